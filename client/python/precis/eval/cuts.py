"""One context compressed by one recipe, and cut at any smaller budget.

A budget is a cut of the joining order, so one compression serves all budgets. Recipes whose entries
are defined only at the requested budget (parity presets, ada's blends) are compressed for each
budget.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import precis
from precis import _core
from precis.budget import to_pair
from precis.prefix import Head, Layer


@dataclass(frozen=True)
class Recipe:
    """A recipe as the user named it.

    Attributes:
        text: what the user typed.
        canonical: its canonical JSON. fields: the parsed JSON.
    """

    text: str
    canonical: str
    fields: dict[str, Any]

    @classmethod
    def parse(cls, text: str) -> Recipe:
        """Raises precis.InvalidArgument, with the choices, if `text` is not a recipe."""
        canonical = precis.canonical_recipe(text)
        return cls(text, canonical, json.loads(canonical))

    @property
    def is_cut(self) -> bool:
        """Whether its entries are defined only at the requested budget."""
        blend = self.fields["heads"] == "ada" and self.fields["ada_mode"].endswith("_blend")
        return blend or self.fields["count_rule"] == "kvpress_double"

    @property
    def profile(self) -> str | None:
        """The name of its profile ("" if it names none), or None if it takes no profile."""
        return self.fields.get("profile", "") if "table" in self.fields else None

    @property
    def needs_o_proj(self) -> bool:
        """Whether it needs the model's output projections."""
        two_stage = self.fields["selector"] == "two_stage"
        norms = two_stage and self.fields["value_norm"] != "v_l1"
        return norms or self.fields["scorer"] == "defensive"


@dataclass(frozen=True)
class Cut:
    """The entries kept at one budget, in the form that :class:`precis.hf.RaggedCache` takes."""

    matched_tokens: int
    layers: list[Layer]

    @property
    def plan(self) -> np.ndarray:
        """Entries per (layer, KV head)."""
        return np.array([[len(head) for head in layer.heads] for layer in self.layers])

    @classmethod
    def of(cls, kept: precis.Kept, num_tokens: int, entries: int | None = None) -> Cut:
        """The entries with seats up to `entries`; all entries if that is None."""
        layers = []
        for index, seats in enumerate(kept.seats):
            heads = []
            for head, places in enumerate(seats):
                count = len(places)
                if entries is not None:
                    count = int(np.searchsorted(places, entries, side="right"))
                arrays = (kept.positions, kept.seats, kept.scores, kept.keys, kept.values)
                heads.append(Head(*(array[index][head][:count] for array in arrays)))
            layers.append(Layer(tuple(heads)))
        return cls(num_tokens, layers)

    def same_entries(self, other: Cut) -> bool:
        """Whether both keep the same positions, in the same order."""
        return all(
            np.array_equal(a.positions, b.positions)
            for mine, theirs in zip(self.layers, other.layers, strict=True)
            for a, b in zip(mine.heads, theirs.heads, strict=True)
        )


class Compressed:
    """A context compressed by one recipe.

    Attributes:
        seconds: the time of the compression at the largest budget.
    """

    def __init__(
        self,
        spec: precis.ModelSpec,
        recipe: Recipe,
        num_tokens: int,
        largest: float,
        compress: Callable[[precis.Keep], precis.Kept],
        of_bytes: bool = False,
    ) -> None:
        """`compress`: compresses at a budget.

        `largest`: the largest share to be asked for. `of_bytes`: shares are of the bytes.
        """
        self._spec, self._recipe, self._num_tokens = spec, recipe, num_tokens
        self._of_bytes = of_bytes
        self._compress = lambda share: compress(self._budget(share))
        start = time.perf_counter()
        self._kept = self._compress(largest)
        self.seconds = time.perf_counter() - start
        self._largest = largest

    def cut(self, keep: float) -> Cut:
        """The entries kept at `keep`, which is at most the largest budget."""
        if keep == self._largest:
            return Cut.of(self._kept, self._num_tokens)
        if self._recipe.is_cut:
            return Cut.of(self._compress(keep), self._num_tokens)
        return Cut.of(self._kept, self._num_tokens, self._entries(keep))

    def stored_bytes(self, keep: float) -> int:
        """The bytes of records at `keep`, by compressing again; checks that the cut is the same.

        Raises:
            RuntimeError: the cut differs, which would be a bug in precis.
        """
        if keep == self._largest:
            return self._kept.bytes
        fresh = self._compress(keep)
        if not self.cut(keep).same_entries(Cut.of(fresh, self._num_tokens)):
            raise RuntimeError(f"{self._recipe.text}: the cut at {keep:g} is not what it keeps")
        return fresh.bytes

    def _budget(self, share: float) -> precis.Keep:
        return precis.byte_share(share) if self._of_bytes else share

    def _entries(self, keep: float) -> int:
        """The budget in entries (policies.md, D2 and D3)."""
        pair = to_pair(self._budget(keep))
        return _core.budget_entries(
            self._recipe.canonical, self._spec.to_core(), self._num_tokens, pair
        )
