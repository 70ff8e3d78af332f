"""LU-KV's solver: from what tokens turn out to be worth to how much every head may lose.

A head loses its worst-scored entries first, whatever they are worth. So what counts is the loss
along that order: its lower convex hull says at which rate a head loses, and taking the smallest
rate of all heads again and again is optimal for the hulls (policies.md 2.16, A7).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

ROWS = 99  # one for each per cent that is pruned


def pooled(gains: np.ndarray) -> np.ndarray:
    """The non-increasing sequence nearest to `gains` in least squares (pool adjacent violators).

    The slopes of the lower convex hull of the loss, from the entry kept longest on.
    """
    values: list[float] = []
    counts: list[int] = []
    for gain in gains.tolist():
        value, count = gain, 1
        while values and values[-1] < value:
            count += counts[-1]
            value += (values.pop() - value) * counts.pop() / count
        values.append(value)
        counts.append(count)
    return np.repeat(values, counts)


def prune_curves(worth: Sequence[np.ndarray], num_tokens: int, protected: int) -> np.ndarray:
    """The share of each head's entries that is pruned when 1%, 2%, ... 99% of all are.

    Args:
        worth: of each head its ranked entries' worth, the best-scored first.
        num_tokens: of every head, protected ones included.
        protected: entries that no head loses; beyond them each keeps 1% at least.

    Returns:
        float64 [99, heads]; where nothing is left to prune, rows repeat.
    """
    least = max(round(0.01 * num_tokens), protected) - protected
    rates = [pooled(head)[least:] for head in worth]
    heads = np.concatenate([np.full(len(rate), i) for i, rate in enumerate(rates)])
    # Of one rate, the lower head first, and within a head from its end.
    places = np.concatenate([-np.arange(len(rate)) for rate in rates])
    order = heads[np.lexsort((places, heads, np.concatenate(rates)))]
    pruned = np.zeros(len(worth))
    curves, done = np.empty((ROWS, len(worth))), 0
    for row in range(ROWS):
        until = min(round((row + 1) / 100 * len(worth) * num_tokens), len(order))
        pruned += np.bincount(order[done:until], minlength=len(worth))
        curves[row], done = pruned / num_tokens, until
    return curves


def head_weights(worth: Sequence[np.ndarray], share: float) -> np.ndarray:
    """How many entries each head has among the best `share` of all, as a share of its own.

    HeadKV's kind of table, by what entries turned out to be worth.
    """
    flat = np.concatenate(worth)
    heads = np.repeat(np.arange(len(worth)), [len(head) for head in worth])
    best = np.argsort(-flat, kind="stable")[: max(1, round(share * len(flat)))]
    lengths = np.array([len(head) for head in worth])
    return np.bincount(heads[best], minlength=len(worth)) / lengths
