"""Solvers of profile tables, from the measured worth of entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _core
from .arrays import count_in, floats_in
from .errors import InvalidArgument


def prune_curves(worth: Sequence[Any], num_tokens: int, protected: int) -> np.ndarray:
    """The share of each head's entries that is pruned when 1%, 2%, ... 99% of all are.

    LU-KV's offline solver: heads lose their worst-scored entries first. The next entries come from
    the head whose loss has the smallest slope on its lower convex hull.

    Args:
        worth: for each head (layer * num_kv_heads + head) the oracle importance of its ranked
            entries, float32 [num_tokens - protected], the best-scored first; finite, not negative.
        num_tokens: entries of every head, including protected entries.
        protected: entries of every head that are never pruned; at least 1% of a head's entries
            stay, too.

    Returns:
        float32 [99, heads], rising along each head's curve; rows repeat once nothing is left to
        prune.

    Raises:
        InvalidArgument: naming the field.
    """
    return _core.prune_curves(
        _heads_in(worth),
        count_in(num_tokens, "num_tokens"),
        count_in(protected, "protected"),
    )


def head_weights(worth: Sequence[Any], share: float) -> np.ndarray:
    """The share of each head's entries that are among the best `share` of all heads' entries.

    A table as HeadKV's, computed from the measured worth of entries.

    Args:
        worth: for each head the oracle importance of its entries, float32, in any order; finite,
            not negative.
        share: in (0, 1].

    Returns:
        float32 [heads], in [0, 1].

    Raises:
        InvalidArgument: naming the field.
    """
    return _core.head_weights(_heads_in(worth), float(share))[0]


def _heads_in(worth: Sequence[Any]) -> list[np.ndarray]:
    """Contiguous float32 arrays of one dimension each."""
    heads = []
    for index, head in enumerate(worth):
        shape = tuple(np.shape(head))
        if len(shape) != 1:
            raise InvalidArgument(f"worth: head {index} has shape {list(shape)}, must be [entries]")
        heads.append(floats_in(head, f"worth: head {index}", shape))
    return heads
