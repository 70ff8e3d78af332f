"""Slots of prefixes, their places, the tables of a step: against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import sglang_stub  # noqa: F401  (makes the plug-in importable)
import torch
from precis_sglang.plan import Batch, Layout, by_head, slots_of


def ragged(draw: np.random.Generator, layers: int, heads: int, tokens: int) -> torch.Tensor:
    """Entries of each head; some prefixes keep nothing, some everything."""
    most = int(draw.choice([0, 1, tokens // 3, tokens]))
    counts = torch.from_numpy(draw.integers(0, most + 1, (layers, heads)))
    return torch.full_like(counts, tokens) if draw.random() < 0.1 else counts


@pytest.mark.parametrize("seed", range(40))
def test_each_entry_has_a_place_of_its_own_in_the_fewest_slots(seed: int) -> None:
    draw = np.random.default_rng(seed)
    layers, heads = int(draw.integers(1, 6)), int(draw.integers(1, 9))
    tokens, pool = int(draw.integers(1, 60)), 500
    counts = ragged(draw, layers, heads, tokens)
    slots = torch.from_numpy(draw.permutation(np.arange(1, pool))[: slots_of(counts)])
    layout = Layout.of(tokens, counts, slots)
    most = max(int(counts[layer].sum()) for layer in range(layers))
    assert len(slots) == max(1, -(-most // heads)) <= tokens
    of_slots = {int(slot) * heads + head for slot in slots for head in range(heads)}
    for layer in range(layers):
        places = layout.of_layer(layer).tolist()
        assert len(places) == len(set(places)) == counts[layer].sum()
        assert set(places) <= of_slots
        for head in range(heads):
            count, begin = layout.spans[:, layer, head].tolist()
            assert count == counts[layer, head]
            assert begin == counts[layer, :head].sum()
    assert layout.row().tolist() == slots.tolist() + [0] * (tokens - len(slots))


def test_a_prefix_is_rounded_to_its_last_slot_alone() -> None:
    assert slots_of(torch.tensor([[5, 3], [0, 1]])) == 4
    assert slots_of(torch.tensor([[5, 4], [0, 1]])) == 5  # 9 entries, 2 per slot
    assert slots_of(torch.tensor([[0, 0]])) == 1


def test_wrong_slots_and_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="takes 2 slots, 1 were given"):
        Layout.of(9, torch.tensor([[2, 1]]), torch.tensor([4]))
    with pytest.raises(ValueError, match="keeps 3 entries of 2 tokens"):
        Layout.of(2, torch.tensor([[3, 1]]), torch.tensor([4, 5]))


@pytest.mark.parametrize("seed", range(40))
def test_a_table_has_the_prefix_then_the_new_tokens_of_each_head(seed: int) -> None:
    draw = np.random.default_rng(seed)
    layers, heads, width = int(draw.integers(1, 5)), int(draw.integers(1, 5)), 80
    requests, pool = int(draw.integers(1, 7)), 2000
    free = draw.permutation(np.arange(1, pool)).tolist()
    row_pool = torch.zeros(20, width, dtype=torch.int32)
    rows = torch.from_numpy(draw.permutation(20)[:requests])
    layouts: list[Layout | None] = []
    totals = []
    for row in rows.tolist():
        layout, skip = None, 0
        if layouts and layouts[-1] is not None and draw.random() < 0.3:
            layout = layouts[-1]  # two requests on one prefix
        elif draw.random() < 0.6:
            tokens = int(draw.integers(1, 50))
            counts = ragged(draw, layers, heads, tokens)
            slots = torch.tensor([free.pop() for _ in range(slots_of(counts))])
            layout = Layout.of(tokens, counts, slots)
        if layout is not None:
            skip = layout.tokens
            row_pool[row, :skip] = layout.row()
        new = int(draw.integers(0 if skip else 1, width - skip))
        row_pool[row, skip : skip + new] = torch.tensor([free.pop() for _ in range(new)]).int()
        layouts.append(layout)
        totals.append(skip + new)

    batch = Batch.of(row_pool, rows, layouts, layers, heads)
    for layer in range(layers):
        table = batch.table(layer, torch.tensor(totals))
        assert table.starts[0] == 0 and table.starts[-1] == len(table.places)
        for r, (row, layout) in enumerate(zip(rows.tolist(), layouts, strict=True)):
            for head in range(heads):
                begin, end = table.starts[r * heads + head : r * heads + head + 2].tolist()
                want = []
                if layout is not None:
                    first = int(layout.counts[layer, :head].sum())
                    for entry in range(first, first + int(layout.counts[layer, head])):
                        want.append(int(layout.slots[entry // heads]) * heads + entry % heads)
                for position in range(layout.tokens if layout else 0, totals[r]):
                    want.append(int(row_pool[row, position]) * heads + head)
                assert table.places[begin:end].tolist() == want


@pytest.mark.parametrize("seed", range(10))
def test_rows_are_ordered_sequence_by_sequence(seed: int) -> None:
    draw = np.random.default_rng(seed)
    queries, heads = draw.integers(1, 9, draw.integers(1, 6)), int(draw.integers(1, 5))
    begins = np.cumsum(queries) - queries
    want = [t * heads + head for begin, count in zip(begins, queries, strict=True)
            for head in range(heads) for t in range(begin, begin + count)]  # fmt: skip
    assert by_head(torch.from_numpy(queries), heads).tolist() == want


def test_one_query_each_stands_in_order_already() -> None:
    assert by_head(torch.ones(3, dtype=torch.int32), 4).tolist() == list(range(12))
