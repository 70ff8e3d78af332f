"""The pages of a ragged prefix, and their places. Only arithmetic: NumPy, no vLLM.

A page holds `size` rows of K and of V of one (layer, KV head). The cache of a worker is a sequence
of pages: the page of (layer l, block b, head h) has the number (l * num_blocks + b) * num_heads +
h.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import precis


@dataclass(frozen=True, eq=False)
class Plan:
    """A stored prefix as an engine holds it; made by the scheduler.

    Attributes:
        digest: a digest of its segments and of the numbers of entries that are read of each head.
            Equal digests mean equal pages.
        tokens: length of the original sequence, a multiple of the block size.
        pages: [layers, KV heads of the model] number of pages of each head.
        blocks: enough for the pages of the rank with most of them.
        match: the match as bytes, for the worker that fetches it.
        seconds: the predicted time of the restore.
        whole: whether it ends at the end of a stored segment; otherwise a put that continues it
            splits the segment there.
        exact: whether it has every entry of its tokens as it was pushed, and these were computed
            over every entry.
        keep: the budget at which it is read; None for all stored entries.
    """

    digest: bytes
    tokens: int
    pages: np.ndarray
    blocks: int
    match: bytes
    seconds: float
    whole: bool
    exact: bool
    keep: precis.Budget | None

    @functools.cached_property
    def hashes(self) -> list[bytes]:
        """The keys of the prefix's blocks in the engine's block pool."""
        numbers = (index.to_bytes(4, "little") for index in range(self.blocks))
        return [hashlib.sha256(b"precis" + self.digest + number).digest() for number in numbers]

    def share(self, size: int) -> float:
        """The share of its tokens' entries that its pages of `size` rows have room for."""
        return float(self.pages.sum() * size / (self.tokens * self.pages.size))


def blocks_of(pages: np.ndarray, ranks: Sequence[range]) -> int:
    """Blocks that the rank with the most pages needs; `ranks`: the KV heads of each rank."""
    layers = len(pages)
    return max(-(-int(pages[:, r.start : r.stop].sum()) // (layers * len(r))) for r in ranks)


def ranks_of(heads: int, tensor_parallel: int) -> list[range]:
    """The KV heads of each rank. If there are more ranks than heads, several have the same head."""
    each = max(1, heads // tensor_parallel)
    copies = max(1, tensor_parallel // heads)
    return [range(r // copies * each, r // copies * each + each) for r in range(tensor_parallel)]


@dataclass(frozen=True, eq=False)
class Layout:
    """The pages of a prefix in one worker's cache.

    Attributes:
        tokens: as the plan's.
        pages: [layers, heads of the worker] number of pages of each head.
        table: page numbers of layer 0's heads, then layer 1's, ...: head after head.
        starts: [layers * heads + 1] index in `table` of each head's first page.
    """

    tokens: int
    pages: np.ndarray
    table: np.ndarray
    starts: np.ndarray

    @classmethod
    def of(cls, tokens: int, pages: np.ndarray, blocks: Sequence[int], num_blocks: int) -> Layout:
        """Gives each head its own pages of the blocks; larger heads also get others' unused pages.

        A head that needs only its own pages has them in the order of vLLM's.

        Args:
            pages: [layers, heads of the worker].
            blocks: the request's blocks for the prefix.
            num_blocks: of the worker's cache.
        """
        layers, heads = pages.shape
        count = len(blocks)
        if pages.sum() > pages.size * count:
            raise ValueError(f"{pages.sum()} pages do not fit into {count} blocks")
        lh = np.arange(layers)[:, None] * (num_blocks * heads) + np.arange(heads)
        own = lh[..., None] + np.asarray(blocks) * heads
        dealt = np.zeros((layers, heads, max(count, int(pages.max()))), np.uint32)
        dealt[..., :count] = own
        filled = np.arange(dealt.shape[2]) < pages[..., None]
        beyond = filled.copy()
        beyond[..., :count] = False
        dealt[beyond] = own[~filled[..., :count]][: beyond.sum()]
        starts = np.zeros(pages.size + 1, np.uint32)
        np.cumsum(pages.reshape(-1), out=starts[1:])
        return cls(tokens, pages, dealt[filled], starts)


def padded(layouts: Sequence[Layout]) -> tuple[np.ndarray, np.ndarray]:
    """The pages of P prefixes, and last of an empty prefix.

    Returns:
        [layers, P + 1, heads, most pages of a head] page numbers, zero past a head's last, and
        [layers, P + 1, heads] the number of pages of each head.
    """
    none = np.zeros_like(layouts[0].pages)
    counts = np.stack([layout.pages for layout in layouts] + [none]).astype(np.int32)
    inside = np.arange(max(1, int(counts.max()))) < counts[..., None]
    tables = np.zeros(inside.shape, np.int32)
    tables[inside] = np.concatenate([layout.table for layout in layouts])
    return tables.swapaxes(0, 1), counts.swapaxes(0, 1)
