"""Marks of tensors: digests of their dtype, shape and bytes."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import torch

PIECE_BYTES = 4 << 20  # hashed by one thread at a time; part of the definition of a mark
_AHEAD_BYTES = 1 << 30  # the most bytes that are read and not hashed yet


def marks_of(tensors: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, str]]:
    """Each name with a digest of dtype, shape and bytes, 32 hex digits, the same on any device.

    The digest is a SHA-256 over the SHA-256s of the tensor's pieces of 4 MiB, which all cores hash
    in parallel: one core hashes 1.7 GB/s if it has SHA instructions.

    Raises:
        ValueError: the bytes of a tensor cannot be read; the message names it.
    """
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)), "precis-marks") as pool:
        waiting: deque[tuple[str, int, str, list[Future[bytes]]]] = deque()
        ahead = 0
        for name, tensor in tensors:
            flat = _bytes_of(name, tensor)
            starts = range(0, len(flat), PIECE_BYTES)
            jobs = [pool.submit(_hash, flat[at : at + PIECE_BYTES]) for at in starts]
            waiting.append((name, len(flat), f"{tensor.dtype} {list(tensor.shape)}", jobs))
            ahead += len(flat)
            while ahead > _AHEAD_BYTES:
                ahead -= waiting[0][1]
                yield _mark(waiting.popleft())
        while waiting:
            yield _mark(waiting.popleft())


def _bytes_of(name: str, tensor: torch.Tensor) -> torch.Tensor:
    try:
        return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    except (RuntimeError, NotImplementedError, TypeError) as error:
        raise ValueError(
            f"revision: {name} is a {type(tensor).__name__} whose bytes cannot be read "
            f"({error}); name the revision of the weights"
        ) from error


def _hash(piece: torch.Tensor) -> bytes:
    return hashlib.sha256(piece.cpu().numpy()).digest()


def _mark(done: tuple[str, int, str, list[Future[bytes]]]) -> tuple[str, str]:
    name, _, kind, jobs = done
    digest = hashlib.sha256(kind.encode())
    for job in jobs:
        digest.update(job.result())
    return name, digest.hexdigest()[:32]
