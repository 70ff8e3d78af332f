"""Profile tables as their papers define them, entry by entry: LU-KV's oracle, offline solver and
prune curves, HeadKV's weights, and the seats that follow from either.

Written for the tests only, from policies/budgets.md, "Profiles": no code is shared with the
kernels. Numbers of entries are rounded halves upwards.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from fractions import Fraction
from math import floor

import numpy as np


def oracle(shares: np.ndarray, values: np.ndarray, o_proj: np.ndarray) -> np.ndarray:
    """LU-KV, Eq. 4: the measured worth of each token of a layer to each KV head, [Hkv, n].

    Args:
        shares: attention [Hq, steps, n] of future queries.
        values: [Hkv, n, d]. o_proj: [Hq, d, width].
    """
    group = len(o_proj) // len(values)
    norms = np.linalg.norm(np.repeat(values, group, axis=0) @ o_proj, axis=2)
    worth = (shares * (norms / norms.sum())[:, None]).max(axis=1)
    return worth.reshape(-1, group, worth.shape[1]).max(axis=1)


def hull_rates(worth: np.ndarray) -> list[float]:
    """The rate at which each entry is lost, the last one first: the slopes of the lower convex hull
    of the loss, found by going from each of its points to the farthest point with the lowest slope.
    """
    loss = np.concatenate([[0.0], np.cumsum(worth[::-1], dtype=np.float64)])
    rates: list[float] = []
    while len(rates) < len(worth):
        at = len(rates)
        slopes = (loss[at + 1 :] - loss[at]) / np.arange(1, len(loss) - at)
        lowest = slopes.min()
        rates += [lowest] * (int(np.flatnonzero(slopes == lowest)[-1]) + 1)
    return rates


def prune_curves(worth: Sequence[np.ndarray], num_tokens: int, protected: int) -> np.ndarray:
    """LU-KV's greedy algorithm: all heads lose the entry with the smallest rate next, one entry at
    a time; a head at its minimum loses no more. Returns the share of each head that is pruned at
    1%, ... 99%, [99, heads]."""
    least = max((num_tokens + 50) // 100, protected)
    rates = [hull_rates(head) for head in worth]
    pruned = [0] * len(worth)
    queue = [(of_head[0], head) for head, of_head in enumerate(rates) if of_head]
    heapq.heapify(queue)
    table = []
    for percent in range(1, 100):
        target = (percent * len(worth) * num_tokens + 50) // 100
        while sum(pruned) < target and queue:
            _, head = heapq.heappop(queue)
            if num_tokens - pruned[head] <= least:
                continue
            pruned[head] += 1
            if pruned[head] < len(rates[head]):
                heapq.heappush(queue, (rates[head][pruned[head]], head))
        table.append([count / num_tokens for count in pruned])
    return np.array(table)


def head_weights(worth: Sequence[np.ndarray], share: float) -> np.ndarray:
    """How many of each head's entries are among the best `share` of all, as a share of the head's
    own entries."""
    entries = sorted((-float(x), head) for head, of_head in enumerate(worth) for x in of_head)
    best = entries[: max(1, floor(share * len(entries) + 0.5))]
    return np.array(
        [sum(h == head for _, h in best) / len(worth[head]) for head in range(len(worth))]
    )


def curve_seats(table: np.ndarray, num_tokens: int, reserved: int) -> list[int]:
    """The head that takes each ranked seat: the k-th entry of a head joins at the kept fraction
    where its keep count reaches k. The count is linear between the table's percents, 0 at 0% and
    all at 100%, rounded to 0.001."""
    joins = []
    for head, curve in enumerate(table.T):
        kept = [0]
        for pruned in reversed(curve.tolist()):
            count = floor((1 - Fraction(pruned)) * num_tokens * 1000 + Fraction(1, 2))
            kept.append(max(kept[-1], count))
        kept.append(num_tokens * 1000)
        for k in range(reserved + 1, num_tokens + 1):
            until = next(percent for percent, count in enumerate(kept) if count >= 1000 * k)
            step = kept[until] - kept[until - 1]
            joins.append((until - 1 + Fraction(1000 * k - kept[until - 1], step), head, k))
    return [head for _, head, _ in sorted(joins)]


def weight_seats(weights: np.ndarray, num_tokens: int, reserved: int) -> list[int]:
    """The head that takes each ranked seat, by highest averages (Sainte-Lague) over the ranked
    entries."""
    bids = [
        (-Fraction(weight) / (2 * k + 1), head, k)
        for head, weight in enumerate(weights.tolist())
        for k in range(num_tokens - reserved)
    ]
    return [head for _, head, _ in sorted(bids)]
