"""The example: a prefill instance, a decode instance that never sees the prompt, and the router."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from openai import InternalServerError, OpenAI

import precis
from precis.demo.service import Precisd

FOLDER = Path(__file__).parent.parent
sys.path.insert(0, str(FOLDER / "showcase"))

from serving import Reader, Server  # noqa: E402


@pytest.mark.slow
def test_the_decode_instance_answers_from_what_the_prefill_instance_stored(
    service: Precisd, tmp_path: Path
) -> None:
    reader = Reader()
    asked = reader.document(1024, seed=300)
    prompt = asked.prompts()[0]
    writes = {"address": service.address, "store_keep": 1.0}
    reads = {"address": service.address, "store": False}
    with (
        Server(reader.folder, tmp_path / "prefill.log", writes) as prefill,
        Server(reader.folder, tmp_path / "decode.log", reads) as decode,
    ):
        want = decode.ask(prompt, {"off": True}, tokens=80)
        urllib.request.urlopen(
            urllib.request.Request(f"{decode.address}/reset_prefix_cache", method="POST")
        ).close()
        command = [sys.executable, str(FOLDER / "examples" / "router.py"), "--port", "0"]
        command[-1] = str(free_port())
        command += ["--prefill", prefill.address, "--decode", decode.address]
        router = subprocess.Popen(command)
        try:
            client = OpenAI(base_url=f"http://127.0.0.1:{command[3]}/v1", api_key="none")
            wait_until_up(f"http://127.0.0.1:{command[3]}/v1/models")
            reply = client.completions.create(
                model="model",
                prompt=prompt,
                max_tokens=80,
                temperature=0,
                user="conversation 7",
                extra_body={"ignore_eos": True, "return_token_ids": True},
            )
            told = reply.model_extra["kv_transfer_params"]["precis"]
            decode.wait_metric("vllm:precis_stores_total", 1)
            decode.stop()
            with pytest.raises(InternalServerError, match="decode instance does not answer"):
                client.with_options(max_retries=0).completions.create(model="model", prompt="short")
        finally:
            router.terminate()
            router.wait(30)
    assert told["tokens"] == len(prompt) // 64 * 64
    assert reply.choices[0].model_extra["token_ids"] == want.tokens
    with precis.connect(service.address) as cache:  # `user` named the session
        tip = cache.session("conversation 7").tip
        assert cache.segment(tip).end == (len(prompt) + 79) // 64 * 64


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_up(address: str) -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise AssertionError(f"{address} does not answer")
