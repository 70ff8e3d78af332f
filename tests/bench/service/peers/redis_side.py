"""Redis over a plain socket with its own protocol: TCP, or a Unix socket within the host (shm).

A client library would copy every value once more.
"""

from __future__ import annotations

import mmap
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TypeVar

from common import LAYERS, Work, arguments, measure

AT_ONCE = (1, 2, LAYERS)  # numbers of values to request at a time
TRIES = 3  # of each alternative, before the measured rounds


def connect(work: Work, port: int, path: Path) -> socket.socket:
    """Connects once the server listens."""
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
    """A port on which nothing listens at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Redis:
    """A connection to the server."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        # Redis copies all requested values before it sends the first one. Requests for many values
        # at a time fill its caches; requests for few leave it waiting for the next request.
        self.at_once = LAYERS
        # A put that replaces a value frees its memory, which the next put uses from the caches.
        self.deletes = False
        self.small = bytearray(64)

    def receive(self, into: memoryview) -> None:
        """Receives bytes until `into` is full."""
        while into:
            count = self.link.recv_into(into)
            if count == 0:
                raise SystemExit("redis-server closed the connection")
            into = into[count:]

    def expect(self, answer: bytes) -> None:
        """Ends the driver unless the next bytes are `answer`."""
        got = memoryview(self.small)[: len(answer)]
        self.receive(got)
        if bytes(got) != answer:
            raise SystemExit(f"redis-server answered {bytes(got)!r}, not {answer!r}")

    def put(self, key: int, values: list[memoryview]) -> None:
        """Sends all values of a payload, then reads all answers."""
        for layer, value in enumerate(values):
            name = b"%d.%d" % (key, layer)
            head = b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n" % (len(name), name, len(value))
            self.link.sendall(head)
            self.link.sendall(value)
            self.link.sendall(b"\r\n")
        for _ in values:
            self.expect(b"+OK\r\n")

    def get(self, key: int, values: list[memoryview]) -> None:
        """Keeps `at_once` values requested; requests the next whenever one has arrived."""
        names = [b"%d.%d" % (key, layer) for layer in range(len(values))]
        questions = [b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(name), name) for name in names]
        self.link.sendall(b"".join(questions[: self.at_once]))
        for layer, value in enumerate(values):
            self.expect(b"$%d\r\n" % len(value))
            self.receive(value)
            self.expect(b"\r\n")
            for question in questions[layer + self.at_once : layer + self.at_once + 1]:
                self.link.sendall(question)

    def forget(self, key: int) -> None:
        """Deletes a payload's values. Otherwise the next put replaces them."""
        names = [b"%d.%d" % (key, layer) for layer in range(LAYERS)]
        told = b"".join(b"$%d\r\n%s\r\n" % (len(name), name) for name in names)
        self.link.sendall(b"*%d\r\n$3\r\nDEL\r\n%s" % (len(names) + 1, told))
        self.expect(b":%d\r\n" % len(names))


T = TypeVar("T")


def fastest(ways: tuple[T, ...], taken: Callable[[T], float]) -> T:
    """The alternative with the smallest median time; the tries of all alternatives interleave."""
    tries = [[taken(way) for way in ways] for _ in range(TRIES)]
    return min(zip(map(median, zip(*tries, strict=True)), ways, strict=True))[1]


def main() -> None:
    """Runs a server in a temporary folder, without persistence, and measures it."""
    work = arguments()
    server = shutil.which("redis-server")
    if server is None:
        raise SystemExit("there is no redis-server; apt-get install redis-server")
    source, target = work.source(), work.target()

    def values(pool: mmap.mmap, i: int) -> list[memoryview]:
        begin, step = i * work.size, work.value_size
        view = memoryview(pool)
        return [view[begin + n * step : begin + (n + 1) * step] for n in range(LAYERS)]

    with tempfile.TemporaryDirectory() as folder:
        port, path = free_port(), Path(folder) / "socket"
        command = [server, "--dir", folder, "--port", str(port), "--unixsocket", str(path)]
        command += ["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                redis = Redis(connect(work, port, path))

                def put(i: int) -> None:
                    redis.put(i, values(source, i))

                def get(i: int) -> None:
                    redis.get(i, values(target, i))

                def forget(i: int) -> None:
                    if redis.deletes:
                        redis.forget(i)

                def taken(move: Callable[[int], None]) -> float:
                    began = time.perf_counter()
                    for i in range(work.times):
                        move(i)
                    return time.perf_counter() - began

                def put_taken(deletes: bool) -> float:
                    redis.deletes = deletes
                    taken(forget)
                    return taken(put)

                def get_taken(at_once: int) -> float:
                    redis.at_once = at_once
                    return taken(get)

                def choose() -> None:
                    redis.deletes = fastest((False, True), put_taken)
                    redis.at_once = fastest(AT_ONCE, get_taken)

                measure(work, source, target, put, get, forget, choose)
            finally:
                process.kill()


if __name__ == "__main__":
    main()
