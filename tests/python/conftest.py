"""Fixtures and options of all Python tests: models, caches, and a running precisd."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

# Set before torch is loaded: its threads spin on cores that precisd keeps busy, which makes the
# small matrices of these tests several times slower than on one thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from admin_port import operator  # noqa: F401 - a fixture
from kv import toy_spec
from page_tab import browser  # noqa: F401 - a fixture
from tiny_models import text_file, tiny_llama, tiny_model  # noqa: F401 - fixtures

import precis
from precis.demo.service import Precisd, find_precisd

SEED = 20250417


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--reference", action="store_true", help="also the live comparisons with kvpress (minutes)"
    )


def pytest_report_header() -> str:
    return f"seed: {SEED}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--reference"):
        return
    skip = pytest.mark.skip(reason="runs with --reference")
    for item in items:
        if "reference" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def precisd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Precisd]:
    """One precisd for all tests that need no special one; each test's models are its own."""
    folder = tmp_path_factory.mktemp("precisd")
    with Precisd(find_precisd(), folder / "data") as service:
        yield service
        service.stop()
    shutil.rmtree(folder)


@pytest.fixture(params=["open", "connect"])
def cache(request: pytest.FixtureRequest, tmp_path) -> Iterator[precis.Cache]:
    """Each test runs with both: the service inside this process, and a real precisd."""
    if request.param == "open":
        with precis.open(tmp_path / "cache") as embedded:
            yield embedded
    else:
        with precis.connect(request.getfixturevalue("precisd").address) as remote:
            yield remote


@pytest.fixture
def model(request: pytest.FixtureRequest, cache: precis.Cache) -> precis.Model:
    """A registered toy model that no other test uses."""
    return cache.register_model(toy_spec(name=request.node.nodeid[-200:]))


@pytest.fixture(scope="session")
def smollm2():
    """SmolLM2-135M-Instruct and its tokenizer."""
    from precis.eval.models import SMOLLM2

    return SMOLLM2.load()


@pytest.fixture(params=["smollm2", "random_llama", "random_gemma3"])
def hf_model(request):
    """A real model, and two with random weights."""
    fixture = request.getfixturevalue(request.param)
    return fixture[0] if request.param == "smollm2" else fixture


@pytest.fixture(scope="session")
def random_llama():
    """A Llama with random weights, 32 query heads over 8 KV heads."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=512,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=32,
        initializer_range=0.08,  # sharp enough attention for the tests to detect an error in it
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="session")
def random_gemma3():
    """A Gemma 3 with random weights: QK-norm, windows of 24 tokens in 4 of 6 layers, one KV head,
    and a scale of the scores that does not follow from the head's size."""
    import torch
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    torch.manual_seed(SEED)
    config = Gemma3TextConfig(
        vocab_size=1000,
        hidden_size=128,
        intermediate_size=128,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=32,
        query_pre_attn_scalar=48,
        sliding_window=24,
        layer_types=(["sliding_attention"] * 2 + ["full_attention"]) * 2,
        initializer_range=0.2,
    )
    return Gemma3ForCausalLM(config).eval()
