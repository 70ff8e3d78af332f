"""The batch seen head by head: page tables, lengths and the order of queries, against loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from precis_vllm.attention import HeadBatch, keys_are_turned
from precis_vllm.plan import Layout

LAYERS, HEADS, BLOCKS, SIZE = 3, 2, 200, 32


@pytest.mark.parametrize("seed", range(20))
def test_each_head_has_its_prefix_then_the_new_tokens(seed: int) -> None:
    draw = np.random.default_rng(seed)
    free = draw.permutation(np.arange(1, BLOCKS)).tolist()
    prefixes, rows, totals, queries = {}, [], [], []
    for request in range(draw.integers(1, 6)):
        new = int(draw.integers(1, 90))
        skip, layout = 0, None
        if request == 0 or draw.random() < 0.5:
            skip = int(draw.integers(1, 6))
            pages = draw.integers(0, skip + 1, (LAYERS, HEADS))
            blocks = [free.pop() for _ in range(max(1, -(-int(pages.sum()) // (LAYERS * HEADS))))]
            layout = Layout.of(skip * SIZE, pages, blocks, BLOCKS)
            prefixes[blocks[0]] = layout
        near = [free.pop() for _ in range(-(-new // SIZE))]
        row = ((blocks + [0] * (skip - len(blocks))) if layout else []) + near
        rows.append((row, layout, near))
        totals.append(skip * SIZE + new)
        queries.append(int(draw.integers(1, new + 1)))
    width = max(len(row) for row, _, _ in rows)
    table = torch.tensor([row + [0] * (width - len(row)) for row, _, _ in rows], dtype=torch.int32)
    starts = torch.tensor([0, *np.cumsum(queries)], dtype=torch.int32)
    batch = HeadBatch.of(
        starts,
        table,
        torch.tensor(totals, dtype=torch.int32),
        prefixes,
        LAYERS,
        HEADS,
        BLOCKS,
        SIZE,
    )
    for layer in range(LAYERS):
        for r, (_, layout, near) in enumerate(rows):
            for h in range(HEADS):
                far = layout.padded[layer, h, : layout.pages[layer, h]].tolist() if layout else []
                want = far + [(layer * BLOCKS + b) * HEADS + h for b in near]
                sequence = r * HEADS + h
                assert batch.tables[layer, sequence, : len(want)].tolist() == want
                before = layout.tokens if layout else 0
                assert batch.lengths[layer, sequence] == len(far) * SIZE + totals[r] - before
    order = batch.order if batch.order is not None else torch.arange(starts[-1] * HEADS)
    want = [t * HEADS + h for r in range(len(rows)) for h in range(HEADS)
            for t in range(starts[r], starts[r + 1])]  # fmt: skip
    assert order.tolist() == want
    assert batch.starts.tolist() == [0, *np.cumsum(np.repeat(queries, HEADS))]


def test_the_cpu_kernels_tell_how_they_hold_keys() -> None:
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    isa = _get_attn_isa(torch.float32, 32, 64)
    assert keys_are_turned(isa, torch.float32, 32, 64) in (True, False)
