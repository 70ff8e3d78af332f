"""Batches of requests over ragged prefixes, by loops that are easy to check."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import torch
from precis_vllm.plan import Layout

LAYERS, BLOCKS, SIZE = 3, 120, 32


@dataclass
class Request:
    """A request: its prefix, if any, and the blocks, tokens and queries after it."""

    layout: Layout | None
    blocks: list[int]
    near: list[int]
    new: int
    queries: int

    @property
    def before(self) -> int:
        return self.layout.tokens if self.layout else 0

    @property
    def row(self) -> list[int]:
        """The row in vLLM's block table."""
        nulls = self.before // SIZE - len(self.blocks)
        return self.blocks + [0] * nulls + self.near

    def pages(self, layer: int, head: int, heads: int) -> list[int]:
        """All pages that a head attends to, in order."""
        begin, end = 0, 0
        if self.layout:
            begin, end = self.layout.starts[layer * heads + head : layer * heads + head + 2]
        far = self.layout.table[begin:end].tolist() if self.layout else []
        return far + [(layer * BLOCKS + block) * heads + head for block in self.near]

    def length(self, layer: int, head: int) -> int:
        """The number of entries in these pages."""
        far = int(self.layout.pages[layer, head]) * SIZE if self.layout else 0
        return far + self.new


def draw(seed: int, heads: int, decode: bool = False) -> list[Request]:
    """Some requests: the first has a prefix; others share it, have their own, or none."""
    draw = np.random.default_rng(seed)
    free = draw.permutation(np.arange(1, BLOCKS)).tolist()
    requests: list[Request] = []
    for number in range(draw.integers(1, 6)):
        new, layout, blocks = int(draw.integers(1, 90)), None, []
        kind = 0.0 if number == 0 else draw.random()
        if 0.4 < kind < 0.6:
            layout, blocks = requests[0].layout, requests[0].blocks
        elif kind <= 0.4:
            skip = int(draw.integers(1, 6))
            pages = draw.integers(0, skip + 1, (LAYERS, heads))
            blocks = [free.pop() for _ in range(max(1, -(-int(pages.sum()) // (LAYERS * heads))))]
            layout = Layout.of(skip * SIZE, pages, blocks, BLOCKS)
        near = [free.pop() for _ in range(-(-new // SIZE))]
        queries = 1 if decode else int(draw.integers(1, new + 1))
        requests.append(Request(layout, blocks, near, new, queries))
    return requests


def layouts(requests: list[Request]) -> dict[int, Layout]:
    """The prefixes by their first blocks."""
    return {r.blocks[0]: r.layout for r in requests if r.layout}


def metadata(requests: list[Request], wider: int = 0) -> SimpleNamespace:
    """The metadata of a step that all backends have."""
    width = max(len(r.row) for r in requests) + wider
    totals = [r.before + r.new for r in requests]
    starts = [0, *np.cumsum([r.queries for r in requests]).tolist()]
    i32 = torch.int32
    return SimpleNamespace(
        num_actual_tokens=starts[-1],
        max_query_len=max(r.queries for r in requests),
        query_start_loc=torch.tensor(starts, dtype=i32),
        max_seq_len=max(totals) + wider,
        seq_lens=torch.tensor(totals, dtype=i32),
        block_table=torch.tensor([r.row + [0] * (width - len(r.row)) for r in requests], dtype=i32),
    )


def caches(heads: int, dim: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The KV caches of an engine, as vLLM allocates them in the layout LBHNC."""
    memory = torch.zeros(LAYERS, BLOCKS, heads, SIZE, 2 * dim, dtype=dtype)
    return {f"model.layers.{layer}.attn": memory[layer] for layer in range(LAYERS)}
