"""A prefix that is arriving or has arrived: its layers, heads and kept entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .arrays import rows_out
from .budget import Budget
from .rows import Match


@dataclass(frozen=True, eq=False)
class Head:
    """The kept entries of one (layer, KV head), in retention order, segment by segment.

    All arrays are read-only views of the prefix's memory, which they keep alive.

    Attributes:
        positions: uint32 [count], in the original sequence.
        seats: uint32 [count], places in the joining order of the entry's segment, from 1.
        scores: float32 [count].
        keys, values: [count, head_dim], float32, float16, BFloat16Array or Float8Array.
    """

    positions: np.ndarray
    seats: np.ndarray = field(repr=False)
    scores: np.ndarray = field(repr=False)
    keys: np.ndarray = field(repr=False)
    values: np.ndarray = field(repr=False)

    def __len__(self) -> int:
        return len(self.positions)

    @classmethod
    def from_core(cls, arrays: tuple[np.ndarray, ...]) -> Head:
        """Made from the extension module's arrays."""
        positions, seats, scores, keys, values = arrays
        return cls(positions, seats, scores, rows_out(keys), rows_out(values))


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer of a prefix: heads[h] of each KV head that was asked for."""

    heads: tuple[Head, ...]


class _Layers(Sequence[Layer]):
    """The layers of a prefix; layers[l] waits until layer l has arrived and was checked."""

    def __init__(self, core: Any, out: Any) -> None:
        self._core = core
        self._out = out  # the caller's memory that layers are also written to; kept alive
        self._heads = core.num_heads

    def __len__(self) -> int:
        return self._core.num_layers

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        layer = range(len(self))[index]  # negative ones too; IndexError past the end
        self._core.wait_layer(layer)
        return Layer(tuple(Head.from_core(self._core.head(layer, h)) for h in range(self._heads)))


class Prefix:
    """A restored prefix. It streams: early layers can be used while later ones still arrive.

    ``prefix.layers[l].heads[h].positions / seats / scores / keys / values``. Made by Cache.get.

    Attributes:
        match: the match that it was read by.
        keep: the budget at which it is read: `parent_read` for a put of KV that is computed over
            it.
        heads: the KV heads that were asked for, as a range of the model's KV heads.
    """

    def __init__(self, core: Any, match: Match, keep: Budget, out: Any, heads: range) -> None:
        self._core = core
        self._out = out  # the caller's memory for rows, kept alive for the waits
        self._layers = _Layers(core, out)
        self.match = match
        self.keep = keep
        self.heads = heads

    def __repr__(self) -> str:
        return (
            f"Prefix(matched_tokens={self.matched_tokens}, layers={len(self.layers)}, "
            f"keep={str(self.keep)!r})"
        )

    @property
    def core(self) -> Any:
        """The C++ object."""
        return self._core

    @property
    def matched_tokens(self) -> int:
        """The length of the original sequence; new tokens take positions from here on."""
        return self._core.matched_tokens

    @property
    def layers(self) -> Sequence[Layer]:
        """The layers; indexing one waits for it.

        Raises:
            precis.Corruption: the layer failed its checks.
        """
        return self._layers

    def wait(self) -> Prefix:
        """Waits for every layer; returns the prefix itself."""
        self._core.wait()
        return self

    @property
    def plan(self) -> np.ndarray:
        """Entries per (layer, KV head) at this cut, uint32 [num_layers, heads]. Waits."""
        self.wait()
        return self._core.plan()

    @property
    def kept(self) -> int:
        """The number of entries, over all layers and heads. Waits."""
        return int(self.plan.sum(dtype=np.uint64))

    @property
    def share(self) -> float:
        """The share of all entries of its tokens that came, in (0, 1]. Waits.

        It can be more than `keep`: a recipe with ``min_entries=128``, as the default one, keeps
        about 128 entries per head of each path even at a smaller budget.
        """
        return self.kept / (self.matched_tokens * self.plan.size)

    @property
    def bytes(self) -> int:
        """Transferred bytes. Waits."""
        self.wait()
        return self._core.bytes()

    @property
    def seconds(self) -> float:
        """Seconds from the request to the last layer checked. Waits."""
        self.wait()
        return self._core.seconds()
