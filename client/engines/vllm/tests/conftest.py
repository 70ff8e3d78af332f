"""A real precisd, a real model and real engines for the plug-in's tests."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import precis
from precis.demo.service import Precisd, find_precisd
from precis.eval import needles, tasks, texts
from precis.eval.models import SMOLLM2, cache_dir

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
SIZE = 32  # tokens per block; required by vLLM's CPU kernels


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """SmolLM2-135M, converted by ./dev before the tests begin."""
    found = sorted(cache_dir().glob(f"{SMOLLM2.wheel}-*"))
    assert found, "the model is not converted: run these tests by ./dev test"
    return found[-1]


@dataclass
class Doc:
    """A document and its questions, as token ids."""

    tokens: list[int]
    questions: list[tuple[list[int], str]]  # follows the document; the code in the answer

    def prompts(self) -> list[list[int]]:
        """One prompt per question."""
        return [self.tokens + question for question, _ in self.questions]


class Reader:
    """The model's tokenizer, and documents with needles."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.text = texts.machine_texts()[0].text

    def encode(self, text: str) -> list[int]:
        """Token ids, without special tokens."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: list[int]) -> str:
        """The tokens as text."""
        return self.tokenizer.decode(tokens)

    def document(self, seed: int, tokens: int) -> Doc:
        """A document of whole blocks of 64 tokens; the rest goes to the questions."""
        made = needles.make_document(self.text, tasks.CODES, tokens, seed, self.encode)
        whole = len(made.tokens) // 64 * 64
        rest = made.tokens[whole:]
        asked = [(rest + self.encode(n.question()), n.code) for n in made.needles]
        return Doc(made.tokens[:whole], asked)


@pytest.fixture(scope="session")
def reader(model_folder: Path) -> Reader:
    return Reader(model_folder)


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Precisd]:
    """A precisd for all tests; a test that stops it starts it again, at the same address."""
    folder = tmp_path_factory.mktemp("precisd")
    with Precisd(find_precisd(), folder / "data") as probe:
        address = probe.address
    with Precisd(find_precisd(), folder / "data", listen=address) as running:
        yield running


class Engine:
    """A vLLM engine in its own processes, greedy."""

    def __init__(self, folder: Path, connector: dict[str, Any] | None, **options: Any) -> None:
        from vllm import LLM
        from vllm.config import KVTransferConfig

        settings = {
            "dtype": "float32",
            "enforce_eager": True,
            "max_model_len": 4096,
            "block_size": SIZE,
            "max_num_batched_tokens": 512,  # so that prompts are computed in chunks
            "disable_log_stats": False,
            "skip_tokenizer_init": True,
        }
        if connector is not None:
            settings["kv_transfer_config"] = KVTransferConfig(
                kv_connector="PrecisConnector",
                kv_role="kv_both",
                kv_connector_extra_config=connector,
            )
        self.llm = LLM(str(folder), **(settings | options))

    def ask(
        self, prompts: list[list[int]], params: dict[str, Any] | None = None, tokens: int = 12
    ) -> tuple[list[list[int]], list[dict[str, Any]]]:
        """The answers to all prompts, asked at once, and the connector's data about each."""
        from vllm import SamplingParams

        sampling = SamplingParams(
            temperature=0,
            max_tokens=tokens,
            ignore_eos=True,
            detokenize=False,
            extra_args=None if params is None else {"kv_transfer_params": params},
        )
        given = [{"prompt_token_ids": prompt} for prompt in prompts]
        outputs = self.llm.generate(given, sampling, use_tqdm=False)
        told = [(o.kv_transfer_params or {}).get("precis", {}) for o in outputs]
        return [list(o.outputs[0].token_ids) for o in outputs], told

    def clear_prefix_cache(self) -> None:
        """Empties the engine's own cache; afterwards all pushes are over."""
        for _ in range(600):
            if self.llm.reset_prefix_cache():
                return
            time.sleep(0.05)
        raise AssertionError("blocks are still held after 30 s")

    def metric(self, name: str) -> float:
        """One of vLLM's metrics, after a tiny request that updates the counts."""
        self.ask([[1, 2, 3]], {"off": True}, tokens=2)
        return sum(m.value for m in self.llm.get_metrics() if m.name == name)

    def close(self) -> None:
        """Ends its processes."""
        self.llm.llm_engine.engine_core.shutdown()


@pytest.fixture(scope="session")
def make_engine(model_folder: Path, service: Precisd) -> Callable[..., Engine]:
    """Starts an engine; `connector`: its settings besides the address, or None for plain vLLM."""

    def make(connector: dict[str, Any] | None, **options: Any) -> Engine:
        if connector is not None:
            connector = {"address": service.address} | connector
        return Engine(model_folder, connector, **options)

    return make


@pytest.fixture(scope="module")
def plain(make_engine: Callable[..., Engine]) -> Iterator[Engine]:
    """vLLM without the connector: the reference."""
    engine = make_engine(None)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def engine(make_engine: Callable[..., Engine], plain: Engine) -> Iterator[Engine]:
    """vLLM with the connector, which stores everything.

    It starts after the plain engine, because a new engine ends the metrics of earlier ones.
    """
    engine = make_engine({"store_keep": 1.0, "segment_tokens": 1024})
    yield engine
    engine.close()


@pytest.fixture
def cache(service: Precisd) -> Iterator[precis.Cache]:
    with precis.connect(service.address) as cache:
        yield cache
