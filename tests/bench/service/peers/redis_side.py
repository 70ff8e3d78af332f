"""Redis, by its protocol over a plain socket: TCP, or a Unix socket within the host (shm).

A client library would copy every value once more.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from common import LAYERS, Work, arguments, check, measure


def connect(work: Work, port: int, path: Path) -> socket.socket:
    """Once the server listens."""
    for _ in range(100):
        try:
            if work.transport == "tcp":
                made = socket.create_connection(("127.0.0.1", port))
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return made
            made = socket.socket(socket.AF_UNIX)
            made.connect(str(path))
            return made
        except OSError:
            time.sleep(0.05)
    raise SystemExit("redis-server does not listen")


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Redis:
    """A connection."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.small = bytearray(64)

    def receive(self, into: memoryview) -> None:
        """Until it is full."""
        while into:
            count = self.link.recv_into(into)
            if count == 0:
                raise SystemExit("redis-server closed the connection")
            into = into[count:]

    def expect(self, answer: bytes) -> None:
        """The next bytes of an answer."""
        got = memoryview(self.small)[: len(answer)]
        self.receive(got)
        if bytes(got) != answer:
            raise SystemExit(f"redis-server answered {bytes(got)!r}, not {answer!r}")

    def put(self, key: int, values: list[memoryview]) -> None:
        """All values of a payload, then all answers."""
        for layer, value in enumerate(values):
            name = b"%d.%d" % (key, layer)
            head = b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n" % (len(name), name, len(value))
            self.link.sendall(head)
            self.link.sendall(value)
            self.link.sendall(b"\r\n")
        for _ in values:
            self.expect(b"+OK\r\n")

    def get(self, key: int, values: list[memoryview]) -> None:
        """All questions, then all values."""
        asked = b""
        for layer in range(len(values)):
            name = b"%d.%d" % (key, layer)
            asked += b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(name), name)
        self.link.sendall(asked)
        for value in values:
            self.expect(b"$%d\r\n" % len(value))
            self.receive(value)
            self.expect(b"\r\n")


def main() -> None:
    """A server of one's own, in a folder of its own, that keeps nothing on disk."""
    work = arguments()
    server = shutil.which("redis-server")
    if server is None:
        raise SystemExit("there is no redis-server; apt-get install redis-server")
    source, target = memoryview(work.pool()), memoryview(work.pool())

    def values(pool: memoryview, i: int) -> list[memoryview]:
        begin = i * work.size
        step = work.value_size
        return [pool[begin + n * step : begin + (n + 1) * step] for n in range(LAYERS)]

    with tempfile.TemporaryDirectory() as folder:
        port, path = free_port(), Path(folder) / "socket"
        command = [server, "--dir", folder, "--port", str(port), "--unixsocket", str(path)]
        command += ["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                link = connect(work, port, path)
                redis = Redis(link)
                measure(
                    work,
                    lambda i: redis.put(i, values(source, i)),
                    lambda i: redis.get(i, values(target, i)),
                )
                check(source[0], target[0], "the first byte got")
            finally:
                process.kill()


if __name__ == "__main__":
    main()
