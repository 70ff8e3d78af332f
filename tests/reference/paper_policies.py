"""Eviction policies directly from their papers' equations, in float64 NumPy, every matrix in
memory.

Written for the tests only, from policies.md: no code is shared with the kernels. A scorer turns a
Layer into Scores; `order` gives the order in which a head's entries join, and `counts` how many of
them each head of each layer keeps at a budget ("The joining order").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from paper_tables import curve_seats, head_weights, oracle, prune_curves, weight_seats

INFINITY = float("inf")


@dataclass
class Layer:
    """K and V [Hkv, n, d]; the last queries [Hq, m, d]; queries behind the segment [Hq, b, d] with
    their log-sum-exps [Hq, b]; mean [Hq, d] and covariance [Hq, d, d] of future queries; W_O
    [Hq, d, width]."""

    keys: np.ndarray
    values: np.ndarray
    queries: np.ndarray
    behind: np.ndarray
    behind_lse: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    o_proj: np.ndarray

    @property
    def n(self) -> int:
        return self.keys.shape[1]

    @property
    def group(self) -> int:
        return self.queries.shape[0] // self.keys.shape[0]

    def grouped(self, per_query_head: np.ndarray) -> np.ndarray:
        """[Hq, ...] as [Hkv, G, ...]."""
        return per_query_head.reshape(-1, self.group, *per_query_head.shape[1:])

    def logits(self, queries: np.ndarray) -> np.ndarray:
        keys = np.repeat(self.keys, self.group, axis=0)
        return queries @ keys.transpose(0, 2, 1) / np.sqrt(keys.shape[2])


@dataclass
class Scores:
    """scores [Hkv, n], infinite for a protected token without a score; `second`, the ranking of the
    selector's other stage; the layer's weight."""

    scores: np.ndarray
    second: np.ndarray | None = None
    weight: float = 0.0


@dataclass
class Policy:
    """A recipe, as text for the kernels and as the functions and numbers that it means."""

    recipe: str
    score: Callable[[Layer], Scores]
    sinks: int = 0
    recent: int = 0
    lag: int = 0  # partitions, with a protected tail
    selector: str = "topk"
    heads: str = "uniform"
    layers: str = "uniform"
    table: str = ""  # curves or weights, over heads and layers at once


# Attention (policies/scores.md, "Attention of observation queries").


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def observed(layer: Layer, window: int) -> np.ndarray:
    """Weights [Hq, window, n] of the last queries under the causal mask."""
    z = layer.logits(layer.queries[:, -window:])
    position = np.arange(layer.n)
    stands_at = layer.n - window + np.arange(window)
    return softmax(np.where(position[None, :] <= stands_at[:, None], z, -INFINITY))


def pooled(x: np.ndarray, kernel: int, how: str) -> np.ndarray:
    """1-D pooling along the last axis, stride 1: zeros count in an average, not in a maximum."""
    half = kernel // 2
    edge = 0.0 if how == "avg" else -INFINITY
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(half, half)], constant_values=edge)
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=-1)
    return windows.mean(axis=-1) if how == "avg" else windows.max(axis=-1)


def with_window(past: np.ndarray, n: int) -> np.ndarray:
    """Appends the window's own tokens behind the scored ones."""
    return np.pad(past, [(0, 0), (0, n - past.shape[1])], constant_values=INFINITY)


def v_l1(layer: Layer) -> np.ndarray:
    return np.abs(layer.values).sum(axis=2)


def output_norms(layer: Layer, order: int) -> np.ndarray:
    """N [Hkv, n]: the group's mean of || v W_O ||."""
    values = np.repeat(layer.values, layer.group, axis=0)
    return layer.grouped(np.linalg.norm(values @ layer.o_proj, ord=order, axis=2)).mean(axis=1)


# Scorers; policies/scores.md has a section for each.


def snapkv(layer: Layer, window: int = 32, kernel: int = 7) -> Scores:
    past = observed(layer, window)[:, :, :-window].mean(axis=1)
    past = layer.grouped(past).mean(axis=1)
    return Scores(with_window(pooled(past, kernel, "max"), layer.n))


def tova(layer: Layer) -> Scores:
    past = observed(layer, 1)[:, 0, :-1].mean(axis=0)
    return Scores(with_window(np.tile(past, (layer.keys.shape[0], 1)), layer.n))


def h2o_window(layer: Layer, window: int) -> Scores:
    return Scores(layer.grouped(observed(layer, window).sum(axis=1)).mean(axis=1))


def vatp(layer: Layer, window: int = 32) -> Scores:
    past = layer.grouped(observed(layer, window)[:, :, :-window].mean(axis=1)).mean(axis=1)
    return Scores(with_window(past * v_l1(layer)[:, :-window], layer.n))


def cake(layer: Layer, tau1: float = 1.0, tau2: float = 1.0, gamma: float = 200.0) -> Scores:
    window = 32
    past = observed(layer, window)[:, :, :-window]
    variance = past.var(axis=1, ddof=1)
    score = pooled(past.mean(axis=1) + gamma * variance, 5, "avg")
    entropy = -(past * np.log(past + 1e-10)).sum()
    weight = entropy ** (1 / tau1) * variance.sum() ** (1 / tau2)
    return Scores(with_window(layer.grouped(score).mean(axis=1), layer.n), weight=weight)


def lava(layer: Layer) -> Scores:
    window = 32
    past = pooled(observed(layer, window)[:, :, :-window].mean(axis=1), 7, "max")
    largest = v_l1(layer).max(axis=1)  # Vbar
    past = layer.grouped(past).max(axis=1) * largest[:, None]
    p = past / past.sum()
    entropy = -(p * np.log(np.where(p > 0, p, 1.0))).sum()
    return Scores(with_window(past, layer.n), weight=entropy / (past.shape[0] * layer.n))


def defensive(layer: Layer) -> Scores:
    window = 32
    past = observed(layer, window)[:, :, :-window]
    rows = pooled(past, 5, "avg")
    rows *= past.sum(axis=2, keepdims=True) / rows.sum(axis=2, keepdims=True)
    worst = layer.grouped(rows).max(axis=1).max(axis=1)
    worst = np.maximum(worst, worst.mean(axis=1, keepdims=True))
    norms = output_norms(layer, 1)
    worst *= (norms / norms.sum(axis=0, keepdims=True))[:, :-window]
    mean = layer.grouped(past).mean(axis=(1, 2))
    return Scores(with_window(worst, layer.n), second=with_window(mean, layer.n))


def expected_attention(layer: Layer, sinks: int = 4, epsilon: float = 0.02) -> Scores:
    keys = np.repeat(layer.keys, layer.group, axis=0)[:, sinks:]
    d = keys.shape[2]
    x = np.einsum("hd,hnd->hn", layer.mean, keys) / np.sqrt(d)
    x += np.einsum("hna,hab,hnb->hn", keys, layer.covariance, keys) / (2 * d)
    p = layer.grouped(softmax(x)).mean(axis=1)
    past = (p + epsilon) * np.linalg.norm(layer.values[:, sinks:], axis=2)
    return Scores(np.pad(past, [(0, 0), (sinks, 0)], constant_values=INFINITY))


def kvzip(layer: Layer) -> Scores:
    weights = np.exp(layer.logits(layer.behind) - layer.behind_lse[:, :, None])
    return Scores(layer.grouped(weights.max(axis=1)).max(axis=1))


def critical(base: Callable[[Layer], Scores], norm: str) -> Callable[[Layer], Scores]:
    """CriticalKV's stage 2 over another scorer: (s + eps) N."""

    def score(layer: Layer) -> Scores:
        s = base(layer).scores
        norms = v_l1(layer) if norm == "v_l1" else output_norms(layer, 1 if norm == "l1" else 2)
        return Scores(s, second=(s + 1e-4) * norms)

    return score


def spread(z: np.ndarray, ranged: np.ndarray) -> np.ndarray:
    """Softmax over a partition's tokens of their spread over channels, normalised by the ranges of
    `ranged`."""
    low, high = ranged.min(axis=0), ranged.max(axis=0)
    return softmax(((z - low) / (high - low)).std(axis=1, ddof=1))


def partitions(layer: Layer, sinks: int, lag: int, ahead: int) -> Scores:
    """LagKV: ranges of the next partition (ahead = 1); LocalKV: of the partition itself (0)."""
    scores = np.full(layer.keys.shape[:2], INFINITY)
    for first in range(sinks, layer.n - 2 * lag + 1, lag):
        here = slice(first, first + lag)
        there = slice(first + ahead * lag, first + (ahead + 1) * lag)
        for head in range(len(scores)):
            scores[head, here] = sum(
                spread(z[head, here], z[head, there]) for z in (layer.keys, layer.values)
            )
    return Scores(scores)


def key_norms(layer: Layer) -> Scores:
    return Scores(-np.linalg.norm(layer.keys, axis=2))


def keydiff(layer: Layer) -> Scores:
    unit = layer.keys / np.linalg.norm(layer.keys, axis=2, keepdims=True)
    anchor = unit.mean(axis=1, keepdims=True)
    cosine = (unit * anchor).sum(axis=2) / np.linalg.norm(anchor, axis=2)
    return Scores(-cosine)


# Joining order inside a head.


def protected(policy: Policy, n: int) -> list[int]:
    """Sinks ascending, then the recent ones from the last backwards."""
    sinks, recent = min(policy.sinks, n), policy.recent
    if policy.lag:
        rest = n - sinks
        recent = rest if rest < 2 * policy.lag else policy.lag + rest % policy.lag
    return list(range(sinks)) + list(range(n - 1, max(sinks, n - recent) - 1, -1))


def best(values: np.ndarray, tokens: list[int]) -> list[int]:
    return sorted(tokens, key=lambda t: (-values[t], t))


def two_stage(s: np.ndarray, second: np.ndarray, tokens: list[int]) -> list[int]:
    """The entry that each larger budget adds: floor(B / 2) by score, the rest by `second`."""
    order: list[int] = []
    for budget in range(1, len(tokens) + 1):
        kept = best(s, tokens)[: budget // 2]
        kept += best(second, [t for t in tokens if t not in kept])[: budget - len(kept)]
        (joined,) = set(kept) - set(order)
        order.append(joined)
    return order


def threshold(s: np.ndarray, mean: np.ndarray, tokens: list[int]) -> list[int]:
    """The tokens that hold 0.9 of the mean attention first, the crossing one included."""
    descending = best(mean, tokens)
    running = np.cumsum(mean[descending]) / mean[tokens].sum()
    first = descending[: int(np.searchsorted(running, 0.9)) + 1]
    return first + best(s, [t for t in tokens if t not in first])


def by_partition(policy: Policy, s: np.ndarray, tokens: list[int]) -> list[int]:
    """(rank within the partition, partition)."""
    parts = [tokens[i : i + policy.lag] for i in range(0, len(tokens), policy.lag)]
    ranked = [best(s, part) for part in parts]
    return [part[rank] for rank in range(policy.lag) for part in ranked if rank < len(part)]


def order(policy: Policy, scores: Scores, head: int) -> list[int]:
    s = scores.scores[head]
    first = protected(policy, len(s))
    tokens = [t for t in range(len(s)) if t not in set(first)]
    if policy.selector == "two_stage":
        return first + two_stage(s, scores.second[head], tokens)
    if policy.selector == "threshold":
        return first + threshold(s, scores.second[head], tokens)
    if policy.selector == "partition_topk":
        return first + by_partition(policy, s, tokens)
    return first + best(s, tokens)


# Across heads and layers: the head that takes the next seat.


class Heads:
    """A layer's heads, each with its ranked scores, best first."""

    def __init__(self, policy: Policy, scores: Scores, reserved: int) -> None:
        num_heads, n = scores.scores.shape
        ranked = [t for t in range(n) if t not in set(protected(policy, n))]
        self.policy = policy
        self.values = [sorted((-scores.scores[h, ranked]).tolist()) for h in range(num_heads)]
        self.counts = [reserved] * num_heads
        self.reserved = reserved
        self.ranked = len(ranked)

    def taken(self) -> int:
        return sum(self.counts) - self.reserved * len(self.counts)

    def open_heads(self) -> list[int]:
        return [h for h, c in enumerate(self.counts) if c - self.reserved < self.ranked]

    def next_value(self, head: int) -> float:
        return self.values[head][self.counts[head] - self.reserved]

    def take(self) -> None:
        """Gives the layer's next ranked seat to a head."""
        if self.policy.heads == "flat":
            head = min(self.open_heads(), key=lambda h: (self.next_value(h), h))
        else:
            head = min(self.open_heads(), key=lambda h: (self.counts[h], h))
        self.counts[head] += 1


def table(policy: Policy, layers: list[Layer], scores: list[Scores]) -> np.ndarray:
    """The policy's profile of exactly these layers by LU-KV's oracle, [99 or 1, layers * heads]."""
    n = layers[0].n
    reserved = len(protected(policy, n))
    worth = []
    for layer, of_layer in zip(layers, scores, strict=True):
        shares = np.exp(layer.logits(layer.behind) - layer.behind_lse[:, :, None])
        of_tokens = oracle(shares, layer.values, layer.o_proj)
        worth += [w[order(policy, of_layer, h)[reserved:]] for h, w in enumerate(of_tokens)]
    if policy.table == "weights":
        return head_weights(worth, 0.2)[None]
    return prune_curves(worth, n, reserved)


def counts_by_table(policy: Policy, learnt: np.ndarray, budget: int, n: int) -> list[int]:
    """The entries that every head keeps, over all layers, of a budget that holds all protected
    entries."""
    reserved = len(protected(policy, n))
    if policy.table == "weights":
        seats = weight_seats(learnt[0], n, reserved)
    else:
        seats = curve_seats(learnt, n, reserved)
    heads = learnt.shape[1]
    taken = np.bincount(seats[: budget - reserved * heads], minlength=heads)
    return (reserved + taken).tolist()


def counts(policy: Policy, scores: list[Scores], budget: int) -> list[list[int]]:
    """The entries that every head of every layer keeps of a budget that holds all protected
    entries."""
    num_heads, n = scores[0].scores.shape
    reserved = len(protected(policy, n))
    layers = [Heads(policy, s, reserved) for s in scores]
    left = budget - reserved * num_heads * len(layers)
    assert left >= 0
    for _ in range(left):
        opened = [m for m, layer in enumerate(layers) if layer.open_heads()]
        if policy.layers == "uniform":
            layers[min(opened, key=lambda m: (layers[m].taken(), m))].take()
        elif policy.layers == "weighted":  # highest averages
            rate = {m: float(scores[m].weight) / (2 * layers[m].taken() + 1) for m in opened}
            layers[min(opened, key=lambda m: (-rate[m], m))].take()
        else:  # global_flat
            places = [(m, h) for m in opened for h in layers[m].open_heads()]
            m, h = min(places, key=lambda p: (layers[p[0]].next_value(p[1]), *p))
            layers[m].counts[h] += 1
    return [layer.counts for layer in layers]


def policies() -> list[Policy]:
    """Every policy without a press in kvpress, and the policies that these build on."""
    window = {"recent": 32}
    lag = {"sinks": 16, "lag": 32, "selector": "partition_topk"}
    weighted = {"layers": "weighted", **window}
    critical_window = {"selector": "two_stage", **window}
    return [
        Policy("snapkv", snapkv, **window),
        Policy("tova", tova, recent=1),
        Policy("h2o_window(window=48, recent=24)", lambda x: h2o_window(x, 48), recent=24),
        Policy("vatp", vatp, sinks=20, **window),
        Policy("cake", cake, **weighted),
        Policy("cake(tau1=1.6, tau2=0.4)", lambda x: cake(x, 1.6, 0.4), **weighted),
        Policy("lava", lava, heads="flat", **weighted),
        Policy("defensivekv", defensive, selector="threshold", heads="flat", **window),
        Policy("expected_attention", expected_attention, sinks=4),
        Policy("kvzip", kvzip, sinks=4, layers="global_flat"),
        Policy("criticalkv", critical(snapkv, "l1"), **critical_window),
        Policy("criticalkv(value_norm=l2_gram)", critical(snapkv, "l2"), **critical_window),
        Policy("criticalkv(value_norm=v_l1)", critical(snapkv, "v_l1"), **critical_window),
        Policy("lagkv(lag=32)", lambda x: partitions(x, 16, 32, 1), **lag),
        Policy("localkv(lag=32)", lambda x: partitions(x, 16, 32, 0), **lag),
        Policy("l2_recursive(lag=32)", key_norms, **lag),
        Policy("lukv(keydiff)", keydiff, sinks=4, recent=1, table="curves"),
        Policy("lukv(snapkv)", snapkv, sinks=4, recent=32, table="curves"),
        Policy("headkv", snapkv, table="weights", **window),
    ]
