#!/usr/bin/env python3
"""Compares the parity presets with kvpress 0.5.5 over all of SmolLM2's KV, layer by layer.

Runs in `./dev test --reference`. Exits 1 if a preset keeps another set than its press: every entry
that only one of them keeps must be an exchange for one with an equal score, or a score as near as
f32 sums in another order come, and a head may exchange one entry or 0.1% of them.

lagkv may exchange more, exact ties alone: kvpress ranks inside each partition and then takes the
best over all of them, so every partition has an entry of each rank and `topk` leaves open which
partitions' entries of the last rank stay. Sinks and tail tie in the same way.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from kvpress_reference import LayerKv, kept_positions, presses
from smollm2_kv import load, prefill

import precis
import precis.hf

EXCHANGED_MAX = 0.001  # of a head's entries
ROUNDING = 1e-5  # relative, between scores that f32 sums in another order may exchange
RATIOS = (0.3, 0.5, 0.8)


def scores_of(kept: precis.Kept, layer: int, num_heads: int, n: int) -> np.ndarray:
    """Our score of every token, [num_heads, n], from a compression that kept them all."""
    scores = np.empty((num_heads, n), dtype=np.float64)
    for head in range(num_heads):
        scores[head, kept.positions[layer][head]] = kept.scores[layer][head]
    return scores


def exchanges(ours: list[set], theirs: list[set], scores: np.ndarray) -> list[tuple[float, float]]:
    """Scores of what only we keep paired with those of what only kvpress keeps, by size."""
    extra = sorted(scores[h, t] for h, kept in enumerate(ours) for t in kept - theirs[h])
    missing = sorted(scores[h, t] for h, kept in enumerate(theirs) for t in kept - ours[h])
    assert len(extra) == len(missing), f"{len(extra)} entries more, {len(missing)} fewer"
    return list(zip(extra, missing, strict=True))


def explained(name: str, ours: float, theirs: float) -> bool:
    bound = 0.0 if name == "lagkv_kvpress" else ROUNDING
    return ours == theirs or abs(ours - theirs) <= bound * abs(theirs)


class Comparison:
    """One preset at one ratio, over all layers."""

    def __init__(self, name: str, ratio: float) -> None:
        self.name, self.ratio = name, ratio
        self.worst = 1.0  # the lowest share of a head's entries that both keep
        self.pairs: list[str] = []
        self.failures: list[str] = []

    def run(self, spec: precis.ModelSpec, layers: list[LayerKv]) -> None:
        pushed = [vars(kv) for kv in layers]
        kept = precis.compress(spec, pushed, recipe=self.name, keep=1 - self.ratio)
        everything = precis.compress(spec, pushed, recipe=self.name, keep=1.0)
        press = presses(self.ratio)[self.name]
        for index, kv in enumerate(layers):
            num_heads, n, _ = kv.keys.shape
            ours = [set(map(int, positions)) for positions in kept.positions[index]]
            theirs = [set(positions) for positions in kept_positions(press, kv)]
            self.compare_layer(index, ours, theirs, scores_of(everything, index, num_heads, n))

    def compare_layer(
        self, layer: int, ours: list[set], theirs: list[set], scores: np.ndarray
    ) -> None:
        heads = range(len(theirs))
        # A uniform budget is a head's own; ada may exchange entries between the heads of a layer.
        for group in [heads] if self.name == "ada_kvpress" else [[h] for h in heads]:
            for a, b in exchanges(
                [ours[h] for h in group], [theirs[h] for h in group], scores[group]
            ):
                text = f"layer {layer}: we keep {a:.9g}, kvpress {b:.9g}"
                self.pairs.append(text)
                if not explained(self.name, a, b):
                    self.failures.append(text)
        for head in heads:
            off, count = len(theirs[head] - ours[head]), len(theirs[head])
            self.worst = min(self.worst, 1 - off / max(1, count))
            if self.name != "lagkv_kvpress" and off > max(1, EXCHANGED_MAX * count):
                self.failures.append(f"layer {layer}, head {head}: {off} of {count} differ")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=1000, help="length of the text (1000)")
    options = parser.parse_args(arguments)
    model, tokenizer = load()
    spec = precis.hf.model_spec(model)
    layers = prefill(model, tokenizer, options.tokens)
    failed = False
    print(f"{'preset':16} {'removed':>8} {'worst head':>11} {'exchanged':>10}")
    for ratio in RATIOS:
        for name in presses(ratio):
            comparison = Comparison(name, ratio)
            comparison.run(spec, layers)
            print(f"{name:16} {ratio:8} {comparison.worst:11.5f} {len(comparison.pairs):10}")
            if name != "lagkv_kvpress":
                for pair in comparison.pairs:
                    print(f"    {pair}")
            for failure in comparison.failures[:10]:
                print(f"{name} at {ratio}: {failure}", file=sys.stderr)
            failed = failed or bool(comparison.failures)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
