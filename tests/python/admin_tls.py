"""Certificates that the tests sign, and a client of an admin port with TLS."""

from __future__ import annotations

import http.client
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

_NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def _openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


class Authority:
    """A CA in a folder: `NAME.ca.pem` is its certificate."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        new = ["req", "-x509", "-days", "2", *_NEW_KEY]
        files = ["-keyout", f"{name}.ca.key", "-out", f"{name}.ca.pem"]
        _openssl(folder, *new, "-subj", f"/CN={name}", *files)
        self.pem = folder / f"{name}.ca.pem"

    def sign(self, name: str) -> None:
        """Writes NAME.pem, a certificate for 127.0.0.1, and NAME.key; replaces existing ones."""
        ca = ["-CA", f"{self._name}.ca.pem", "-CAkey", f"{self._name}.ca.key", "-CAcreateserial"]
        (self._folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
        new = ["req", *_NEW_KEY]
        files = ["-keyout", f"{name}.key", "-out", f"{name}.csr"]
        _openssl(self._folder, *new, "-subj", f"/CN={name}", *files)
        signed = ["-in", f"{name}.csr", "-out", f"{name}.pem", "-days", "1", "-extfile", "names"]
        _openssl(self._folder, "x509", "-req", *ca, *signed)


def trusting(ca: Path, own: Path | None = None) -> ssl.SSLContext:
    """A client that trusts `ca`. `own`: the client's certificate; its key is the .key beside it."""
    context = ssl.create_default_context(cafile=str(ca))
    if own is not None:
        context.load_cert_chain(own, own.with_suffix(".key"))
    return context


def connect(address: str, context: ssl.SSLContext) -> http.client.HTTPSConnection:
    """A connection on which requests can be made; it connects at the first request."""
    host, port = address.rsplit(":", 1)
    return http.client.HTTPSConnection(host, int(port), timeout=60, context=context)


def get(address: str, context: ssl.SSLContext, path: str, token: str = "") -> tuple[int, bytes]:
    """(status, body) of a request on a connection of its own.

    Raises:
        OSError: the port, or this client, refuses the other's certificate.
    """
    link = connect(address, context)
    try:
        link.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = link.getresponse()
        return answer.status, answer.read()
    finally:
        link.close()


def wait_for(what: Callable[[], bool]) -> None:
    """Returns once `what()` is true; the test's own timeout is the limit."""
    while not what():
        time.sleep(0.02)
