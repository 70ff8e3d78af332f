"""The places of a ragged prefix's pages: arithmetic, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from precis_vllm.plan import Layout, blocks_of, padded, ranks_of


def test_ranks_have_heads_of_their_own_or_copies() -> None:
    assert ranks_of(8, 2) == [range(0, 4), range(4, 8)]
    assert ranks_of(3, 3) == [range(0, 1), range(1, 2), range(2, 3)]
    assert ranks_of(2, 4) == [range(0, 1), range(0, 1), range(1, 2), range(1, 2)]


def test_blocks_are_those_of_the_rank_with_most_pages() -> None:
    pages = np.array([[4, 1], [4, 0]])
    assert blocks_of(pages, ranks_of(2, 1)) == 3  # 9 pages, 4 per block
    assert blocks_of(pages, ranks_of(2, 2)) == 4  # 8 pages, 2 per block


@pytest.mark.parametrize("seed", range(20))
def test_each_page_of_the_blocks_is_dealt_once(seed: int) -> None:
    draw = np.random.default_rng(seed)
    layers, heads, num_blocks = draw.integers(1, 6), draw.integers(1, 5), 50
    pages = draw.integers(0, 9, (layers, heads))
    blocks = draw.permutation(num_blocks)[: -(-int(pages.sum()) // (layers * heads)) or 1].tolist()
    layout = Layout.of(640, pages, blocks, num_blocks)
    assert len(set(layout.table.tolist())) == len(layout.table) == pages.sum()
    of_blocks = {(layer * num_blocks + b) * heads + h
                 for layer in range(layers) for b in blocks for h in range(heads)}  # fmt: skip
    assert set(layout.table.tolist()) <= of_blocks
    for layer in range(layers):
        for h in range(heads):
            begin, end = layout.starts[layer * heads + h : layer * heads + h + 2]
            assert end - begin == pages[layer, h]
            own = [(layer * num_blocks + b) * heads + h for b in blocks]
            assert layout.table[begin:end].tolist()[: len(own)] == own[: pages[layer, h]]


@pytest.mark.parametrize("seed", range(20))
def test_padded_tables_are_those_of_each_prefix_and_of_none(seed: int) -> None:
    draw = np.random.default_rng(seed)
    layers, heads, num_blocks = draw.integers(1, 6), draw.integers(1, 5), 50
    layouts = []
    for _ in range(draw.integers(1, 4)):
        pages = draw.integers(0, 9, (layers, heads)).astype(np.uint32)
        blocks = draw.permutation(num_blocks)[: max(1, -(-int(pages.sum()) // pages.size))]
        layouts.append(Layout.of(640, pages, blocks.tolist(), num_blocks))
    tables, counts = padded(layouts)
    assert counts.shape == (layers, len(layouts) + 1, heads) and not counts[:, -1].any()
    assert tables.shape == (*counts.shape, max(1, counts.max())) and not tables[:, -1].any()
    for p, layout in enumerate(layouts):
        for layer, h in np.ndindex(layers, heads):
            begin, end = layout.starts[layer * heads + h : layer * heads + h + 2]
            assert counts[layer, p, h] == end - begin
            assert tables[layer, p, h, : end - begin].tolist() == layout.table[begin:end].tolist()
            assert not tables[layer, p, h, end - begin :].any()


def test_pages_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="5 pages do not fit into 1 blocks"):
        Layout.of(64, np.array([[3, 2]]), [7], 50)
