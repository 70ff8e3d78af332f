#!/usr/bin/env python3
"""Compares the parity presets with kvpress 0.5.5, layer by layer.

The layers are SmolLM2's KV over a text, and the KV of a random model with eight KV heads.

Runs in `./dev test --reference`. Exits 1 if a preset keeps another set than its press. Each entry
that only one of them keeps must be an exchange for an entry with an equal score, or with a score
that equals it within the rounding of f32 sums in another order. A head may exchange one entry or
0.1% of its entries.

More exchanges are allowed in three cases, in which the set is not determined: among tokens of equal
scores, as many as there are (copies of a word have keys of one norm in layer 0, whatever their
rotation); below the protected count, because kvpress gives the protected tokens one score; and
under lagkv, which ranks inside each partition and then takes the best over all partitions, so that
every partition has an entry of each rank.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys

import numpy as np
import torch
from kvpress_reference import (
    WINDOW,
    LayerKv,
    attention,
    kept_positions,
    output_norms,
    presses,
    protected_count,
)
from model_kv import load, prefill, random_model, random_tokens, text_tokens

import precis
import precis.hf

EXCHANGED_MAX = 0.001  # of a head's entries
ROUNDING = 1e-5  # relative; f32 sums in another order may exchange scores this close
RATIOS = (0.5, 0.8, 0.9)
TOKENS = (300, 1000, 4096)
LAYERS_MAX = 6  # of a model, evenly spaced
EPSILON = 1e-4  # of the critical presets' second stage

Pairs = list[tuple[float, float]]


def scores_of(kept: precis.Kept, layer: int, num_heads: int, n: int) -> np.ndarray:
    """Our score of every token, [num_heads, n], from a compression that kept them all."""
    scores = np.empty((num_heads, n), dtype=np.float64)
    for head in range(num_heads):
        scores[head, kept.positions[layer][head]] = kept.scores[layer][head]
    return scores


def exchanges(ours: list[set], theirs: list[set], scores: np.ndarray) -> Pairs:
    """Scores of entries that only we keep, paired with those that only kvpress keeps, by size."""
    extra = sorted(scores[h, t] for h, kept in enumerate(ours) for t in kept - theirs[h])
    missing = sorted(scores[h, t] for h, kept in enumerate(theirs) for t in kept - ours[h])
    assert len(extra) == len(missing), f"{len(extra)} entries more, {len(missing)} fewer"
    return list(zip(extra, missing, strict=True))


def alike(scores: np.ndarray, score: float) -> np.ndarray:
    """Which scores equal `score` within rounding."""
    return np.isclose(scores, score, rtol=ROUNDING, atol=0.0)


class Comparison:
    """One preset at one ratio, over some layers of one model."""

    def __init__(self, name: str, ratio: float) -> None:
        self.name, self.ratio = name, ratio
        self.worst = 1.0  # the lowest share of a head's entries that both keep
        self.exchanged = 0
        self.failures: list[str] = []

    def run(self, spec: precis.ModelSpec, layers: list[LayerKv]) -> None:
        pushed = [self.pushed(kv) for kv in layers]
        o_proj = [of_query_heads(kv) for kv in layers] if "critical" in self.name else None
        kept = precis.compress(spec, pushed, self.name, keep=1 - self.ratio, o_proj=o_proj)
        everything = precis.compress(spec, pushed, self.name, keep=1.0, o_proj=o_proj)
        press = presses(self.ratio)[self.name]
        for index, kv in enumerate(layers):
            num_heads, n, _ = kv.keys.shape
            weights = attention(kv) if self.name == "observed_kvpress" else None
            ours = [set(map(int, positions)) for positions in kept.positions[index]]
            theirs = [set(positions) for positions in kept_positions(press, kv, weights)]
            scores = [scores_of(everything, index, num_heads, n)]
            if "critical" in self.name:
                scores.append((scores[0] + EPSILON) * output_norms(kv).double().numpy())
            self.compare_layer(index, ours, theirs, scores)

    def pushed(self, kv: LayerKv) -> dict[str, object]:
        """The preset's inputs for a layer."""
        parts = {"keys": kv.keys, "values": kv.values}
        if self.name == "ea_kvpress":
            parts |= {"query_mean": kv.query_mean, "query_covariance": kv.query_covariance}
        elif self.name == "observed_kvpress":
            parts["queries"] = kv.queries
        else:
            parts["queries"] = kv.queries[:, -WINDOW:].contiguous()
        return parts

    def explained(self, pairs: Pairs) -> bool:
        exact = self.name == "lagkv_kvpress"  # ranks are small integers over the lag
        return all(a == b or (not exact and alike(a, b)) for a, b in pairs)

    def compare_layer(
        self, layer: int, ours: list[set], theirs: list[set], scores: list[np.ndarray]
    ) -> None:
        """`scores`: of each stage; the scores of one stage must explain all exchanges."""
        heads = range(len(theirs))
        # Uniform budgets are per head; ada may exchange entries between the heads of a layer.
        for group in [heads] if "ada" in self.name else [[h] for h in heads]:
            of_group = [ours[h] for h in group], [theirs[h] for h in group]
            pairs = [exchanges(*of_group, stage[group]) for stage in scores]
            self.exchanged += len(pairs[0])
            if not any(map(self.explained, pairs)):
                text = "; ".join(f"we keep {a:.9g}, kvpress {b:.9g}" for a, b in pairs[-1][:5])
                self.failures.append(f"layer {layer}, heads {list(group)}: {text}")
        n = scores[0].shape[1]
        open_ties = self.name == "lagkv_kvpress" or n * (1 - self.ratio) <= protected_count(
            self.name, n
        )
        for head in heads:
            lost = theirs[head] - ours[head]
            off, count = len(lost), len(theirs[head])
            self.worst = min(self.worst, 1 - off / max(1, count))
            tied = sum(alike(scores[0][head], scores[0][head, t]).sum() > 1 for t in lost)
            if not open_ties and off - tied > max(1, EXCHANGED_MAX * count):
                self.failures.append(f"layer {layer}, head {head}: {off} of {count} differ")


def of_query_heads(kv: LayerKv) -> torch.Tensor:
    """The output projection in the layout of Precis, [num_q_heads, head_dim, width]."""
    num_q_heads, _, head_dim = kv.queries.shape
    return kv.o_proj.T.reshape(num_q_heads, head_dim, -1).contiguous()


@torch.no_grad()
def compare(model, title: str, layers: list[LayerKv]) -> bool:
    """Compares every preset at every ratio; returns whether all keep their presses' sets."""
    chosen = layers[:: -(-len(layers) // LAYERS_MAX)]
    spec = dataclasses.replace(precis.hf.model_spec(model), num_layers=len(chosen))
    right = True
    for ratio in RATIOS:
        for name in presses(ratio):
            comparison = Comparison(name, ratio)
            comparison.run(spec, chosen)
            print(
                f"{title:18} {name:21} {1 - ratio:5.1f} {comparison.worst:11.5f} "
                f"{comparison.exchanged:10}",
                flush=True,
            )
            for failure in comparison.failures[:10]:
                print(f"{title}, {name} at {ratio}: {failure}", file=sys.stderr)
            right = right and not comparison.failures
    return right


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS, help=f"lengths ({TOKENS})")
    options = parser.parse_args(arguments)
    print(f"{'model, tokens':18} {'preset':21} {'keep':>5} {'worst head':>11} {'exchanged':>10}")
    model, tokenizer = load()
    random = random_model()
    right = True
    for n in options.tokens:
        layers = prefill(model, text_tokens(tokenizer, n))
        right &= compare(model, f"smollm2, {n}", layers)
        right &= compare(random, f"random, {n}", prefill(random, random_tokens(random, n)))
    return int(not right)


if __name__ == "__main__":
    sys.exit(main())
