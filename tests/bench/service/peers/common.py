"""Shared by the drivers of peers: payloads in cold memory, timing, and the format of the result.

A payload has eight values, one for each of the eight layers of our puts. Each driver stores as many
payloads as fill a pool much larger than the caches, then in every round puts and gets the next
ones.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

LAYERS = 8
POOL_BYTES = 256 << 20
ROUND_BYTES = 64 << 20
PIECE_BYTES = 1 << 20  # all sizes are multiples of it


@dataclass
class Work:
    """A measurement over one transport with one payload size."""

    transport: str
    size: int  # bytes of a payload
    runs: int

    @property
    def value_size(self) -> int:
        """Bytes of a value, which is one layer."""
        return self.size // LAYERS

    @property
    def payloads(self) -> int:
        """Number of payloads that fill the pool."""
        return max(POOL_BYTES // self.size, 1)

    @property
    def times(self) -> int:
        """Number of payloads moved in a round."""
        return max(ROUND_BYTES // self.size, 1)

    def source(self) -> mmap.mmap:
        """Memory of all payloads, filled with random bytes."""
        return self._filled(lambda: os.urandom(PIECE_BYTES))

    def target(self) -> mmap.mmap:
        """As much memory, filled with zeros; every page is present."""
        return self._filled(lambda: bytes(PIECE_BYTES))

    def _filled(self, piece: Callable[[], bytes]) -> mmap.mmap:
        pool = mmap.mmap(-1, self.payloads * self.size)
        for _ in range(0, len(pool), PIECE_BYTES):
            pool.write(piece())
        return pool


def arguments() -> Work:
    """The driver's command line."""
    made = argparse.ArgumentParser()
    made.add_argument("--transport", choices=["shm", "tcp"], required=True)
    made.add_argument("--bytes", type=int, required=True)
    made.add_argument("--runs", type=int, required=True)
    options = made.parse_args()
    return Work(options.transport, options.bytes, options.runs)


def measure(
    work: Work,
    source: mmap.mmap,
    target: mmap.mmap,
    put: Callable[[int], None],
    get: Callable[[int], None],
    forget: Callable[[int], None] = lambda i: None,
    prepare: Callable[[], None] = lambda: None,
) -> None:
    """Prints GB/s of every counted round, once the bytes of the gets equal those of the puts.

    put(i) and get(i) move payload i, i < payloads, from `source` and to `target`. Not timed:
    prepare(), called once all payloads are put, and forget(i), which frees payload i before its
    next put."""
    for i in range(work.payloads):
        put(i)
    prepare()
    for begin in range(0, len(target), PIECE_BYTES):
        target[begin : begin + PIECE_BYTES] = bytes(PIECE_BYTES)
    rates: dict[str, list[float]] = {"put": [], "get": []}
    moved: set[int] = set()
    for run in range(work.runs + 1):  # The first round warms up.
        chosen = [(run * work.times + i) % work.payloads for i in range(work.times)]
        moved |= set(chosen)
        for i in set(chosen):
            forget(i)
        for name, move in (("put", put), ("get", get)):
            began = time.perf_counter()
            for i in chosen:
                move(i)
            taken = time.perf_counter() - began
            if run:
                rates[name].append(work.times * work.size / taken / 1e9)
    for i in moved:
        for begin in range(i * work.size, (i + 1) * work.size, PIECE_BYTES):
            piece = slice(begin, begin + PIECE_BYTES)
            if source[piece] != target[piece]:
                raise SystemExit("a get gave other bytes than were put")
    print(json.dumps(rates))


def check(expected: int, got: int, what: str) -> None:
    """Ends the driver if a peer answers something other than `expected`."""
    if got != expected:
        raise SystemExit(f"{what}: {got}, not {expected}")
