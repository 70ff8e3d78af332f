"""A ragged prefix in SGLang's pool, and the tables of a step. Only PyTorch, no SGLang.

The pool numbers its slots once for all layers, and has a buffer [slots, H, D] of K and of V for
each layer. Viewed as [slots * H, 1, D], head h of slot s is place s * H + h. In each layer, a
prefix assigns the places of its slots to its heads in order; so it takes ceil(entries / H) slots
for the layer with the most entries. Layers with fewer entries leave places unused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


def slots_of(counts: torch.Tensor) -> int:
    """The number of slots of a prefix, at least one. `counts`: entries, [layers, heads]."""
    layers, heads = counts.shape
    return max(1, -(-int(counts.sum(1).max()) // heads)) if layers else 1


@dataclass(frozen=True, eq=False)
class Layout:
    """The places of one prefix. All tensors except `counts` are on the pool's device.

    Attributes:
        tokens: length of the original sequence.
        counts: int64 [layers, heads], the entries that each head keeps; on the CPU.
        spans: int64 [2, layers, heads], the counts, and the index in `places` of each head's first
            place.
        places: int64 [slots * heads], indices into [slots of the pool * heads, 1, dim].
        slots: int64 [slots], numbered as in the pool.
    """

    tokens: int
    counts: torch.Tensor
    spans: torch.Tensor
    places: torch.Tensor
    slots: torch.Tensor

    @classmethod
    def of(cls, tokens: int, counts: torch.Tensor, slots: torch.Tensor) -> Layout:
        """Assigns the places of the slots.

        Args:
            counts: integers, [layers, heads]; slots: integers [slots_of(counts)], the pool's slots
                for the prefix.

        Raises:
            ValueError: the number of slots is wrong, or a head has more entries than there are
                tokens.
        """
        counts, slots = counts.to("cpu", torch.int64), slots.to(torch.int64)
        if slots_of(counts) != len(slots):
            raise ValueError(f"the prefix takes {slots_of(counts)} slots, {len(slots)} were given")
        if int(counts.max()) > tokens:
            raise ValueError(f"a head keeps {int(counts.max())} entries of {tokens} tokens")
        heads = counts.shape[1]
        places = slots[:, None] * heads + torch.arange(heads, device=slots.device)
        spans = torch.stack([counts, counts.cumsum(1) - counts]).to(slots.device)
        return cls(tokens, counts, spans, places.flatten(), slots)

    def of_layer(self, layer: int) -> torch.Tensor:
        """The places of a layer's entries, head after head, int64 [entries of the layer]."""
        return self.places[: int(self.counts[layer].sum())]

    def row(self) -> torch.Tensor:
        """The prefix's part of a request's row, int64 [tokens]: its slots, then the pool's unused
        slot 0. Only slots of new tokens are read from the row.
        """
        row = torch.zeros(self.tokens, dtype=torch.int64, device=self.slots.device)
        row[: len(self.slots)] = self.slots
        return row


@dataclass(frozen=True)
class Table:
    """The cache of R * H sequences; sequence r * H + h is head h of request r.

    Attributes:
        starts: int32 [R * H + 1], the index of each sequence's first place.
        places: int64, indices into [slots * H, 1, D].
    """

    starts: torch.Tensor
    places: torch.Tensor


@dataclass(frozen=True, eq=False)
class Batch:
    """The requests of one step, with or without prefixes. Made by `of`.

    Attributes:
        row_pool: integers [rows, width], slots of each row's tokens; rows: int64 [R], the row of
            each request.
        skip: int64 [R], the tokens of each request's prefix, 0 if it has none.
        spans: int64 [2, layers, R, H], as in a layout; indices into `places`, the places of all
            prefixes.
    """

    row_pool: torch.Tensor
    rows: torch.Tensor
    skip: torch.Tensor
    spans: torch.Tensor
    places: torch.Tensor

    @classmethod
    def of(
        cls,
        row_pool: torch.Tensor,
        rows: torch.Tensor,
        layouts: Sequence[Layout | None],
        layers: int,
        heads: int,
    ) -> Batch:
        """`layouts`: the prefix of each request; None if it has none."""
        device = row_pool.device
        empty = torch.zeros(2, layers, heads, dtype=torch.int64, device=device)
        places, begins, end = [torch.zeros(0, dtype=torch.int64, device=device)], {}, 0
        for layout in layouts:
            if layout is not None and id(layout) not in begins:
                places.append(layout.places)
                begins[id(layout)] = end
                end += len(layout.places)
        spans = torch.stack([empty if one is None else one.spans for one in layouts], 2)
        offsets = torch.tensor([begins.get(id(one), 0) for one in layouts], device=device)
        spans[1] += offsets[:, None]
        skip = torch.tensor([0 if one is None else one.tokens for one in layouts], device=device)
        return cls(row_pool, rows.long(), skip, spans, torch.cat(places))

    def table(self, layer: int, totals: torch.Tensor) -> Table:
        """The cache of a layer up to `totals` tokens of each request.

        Args:
            totals: integers [R], at least `skip`: the tokens of the prefix and the new tokens after
                it.
        """
        far, begins = self.spans[:, layer]
        heads = far.shape[1]
        lengths = (far + (totals.long() - self.skip)[:, None]).flatten()
        starts = torch.zeros(len(lengths) + 1, dtype=torch.int64, device=lengths.device)
        starts[1:] = lengths.cumsum(0)
        sequence = torch.repeat_interleave(lengths)  # the sequence of each place
        request, head = sequence // heads, sequence % heads
        entry = torch.arange(len(sequence), device=lengths.device) - starts[sequence]
        past = entry - far.flatten()[sequence]  # how far past the prefix, negative inside it
        position = self.skip[request] + past.clamp(min=0)
        near = self.row_pool[self.rows[request], position].long() * heads + head
        if not len(self.places):
            return Table(starts.int(), near)
        dealt = (begins.flatten()[sequence] + entry).clamp(max=len(self.places) - 1)
        return Table(starts.int(), torch.where(past < 0, self.places[dealt], near))


def by_head(queries: torch.Tensor, heads: int) -> torch.Tensor:
    """The rows of [tokens * heads, ...] in the order of sequences.

    Args:
        queries: integers [R], new tokens of each request, stored request after request.

    Returns:
        int64 [tokens * heads].
    """
    queries = queries.long()
    begin = queries.cumsum(0) - queries
    each = queries.repeat_interleave(heads)
    sequence = torch.repeat_interleave(each)
    inside = torch.arange(len(sequence), device=each.device) - (each.cumsum(0) - each)[sequence]
    return (begin[sequence // heads] + inside) * heads + sequence % heads
