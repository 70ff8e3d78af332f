"""A client of the admin port of a real precisd, and a precisd with something stored."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from kv import put_all, random_layers, toy_spec

import precis
from precis.demo.service import Precisd, find_precisd


class Operator:
    """Speaks HTTP with the admin port of one precisd."""

    def __init__(self, service: Precisd, log: Path, token: str = "") -> None:
        self.service = service
        self.address = re.findall(r"admin port address=(\S+)", log.read_text())[-1]
        self.token = token

    def ask(self, path: str, method: str = "GET", body: object = None, **headers: str):
        """(status, headers, text) of the answer."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token:
            headers.setdefault("Authorization", f"Bearer {self.token}")
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers.setdefault("Content-Type", "application/json")
        asked = urllib.request.Request(f"http://{self.address}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read().decode()

    def api(self, path: str, method: str = "GET", body: object = None, status: int = 200):
        """The JSON of an answer with this status."""
        got, _, text = self.ask(f"/api/v1/{path}", method, body)
        assert got == status, text
        return json.loads(text)

    def raw(self, request: bytes) -> bytes:
        """The bytes that the port sends until it closes the connection."""
        host, port = self.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=60) as link:
            link.sendall(request)
            link.shutdown(socket.SHUT_WR)
            answer = b""
            while part := link.recv(65536):
                answer += part
            return answer


# The settings of a port that needs a token, and a tenant `ops` with the role admin.
TOKEN = "a long random word"
_GUARDED = """
admin_token_file = "{token}"
[[tenant]]
name = "ops"
token = "the word of ops, which is long"
role = "admin"
"""


@contextlib.contextmanager
def guarded(folder: Path, tenants: str = "") -> Iterator[Operator]:
    """A port that needs TOKEN. `tenants`: further lines of the configuration."""
    token = folder / "admin.token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    config = folder / "precisd.toml"
    config.write_text(_GUARDED.format(token=token) + tenants)
    flags = ("--admin", "127.0.0.1:0", "--config", str(config))
    with Precisd(find_precisd(), folder / "data", *flags) as service:
        yield Operator(service, folder / "data.log", TOKEN)
        service.stop()


def samples(text: str) -> dict[str, float]:
    """Value of every sample, by its name with labels."""
    rows = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in rows}


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """A precisd with one stored segment and one session, whose admin port needs no token."""
    folder = tmp_path_factory.mktemp("admin")
    with Precisd(find_precisd(), folder / "data", "--admin", "127.0.0.1:0") as service:
        with precis.connect(service.address) as cache:
            model = cache.register_model(toy_spec(name="toy"))
            layers = random_layers(model.spec, 100)
            segment = put_all(cache, model, list(range(100)), layers, keep=0.5)
            cache.get(cache.lookup(model, list(range(100))))
            session = cache.session("chat")
            session.advance(segment.id)
        yield Operator(service, folder / "data.log")
        service.stop()
