#!/usr/bin/env python3
"""Writes paper_vectors.bin: the results of paper_policies.py's policies on two made-up layers.

Run by hand when a policy is added. Tensors are rounded to f16 first, and both sides compute on the
rounded values: here in float64, in the kernels in f32.

The file is little-endian; paper_vectors.cc reads it:

  char[4] "PPV2", u32 num_layers, num_q_heads, num_kv_heads, n, head_dim, pushed, behind, width,
                  num_budgets, num_cases; u32 budgets[num_budgets], entries of the segment
  per layer: f16 keys [num_kv_heads, n, head_dim], values of the same shape, queries
             [num_q_heads, pushed, head_dim], queries behind the segment [num_q_heads, behind,
             head_dim]; f32 log-sum-exps of the latter [num_q_heads, behind], query mean
             [num_q_heads, head_dim] and covariance [num_q_heads, head_dim, head_dim]; f16 W_O
             [num_q_heads, head_dim, width]
  per case:  u32 bytes of the recipe's text, the text, u32 has a second score, u32 rows of its
             profile's table (0 for none), f32 table [rows, num_layers, num_kv_heads]
    per layer: f32 scores [num_kv_heads, n], second scores of the same shape if it has them, f32
               weight; u16 order [num_kv_heads, n] and u32 counts [num_budgets, num_kv_heads],
               which follow from exactly these scores
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from paper_policies import (
    Layer,
    Policy,
    Scores,
    counts,
    counts_by_table,
    order,
    policies,
    table,
)

NUM_LAYERS, NUM_KV_HEADS, GROUP, NUM_TOKENS, HEAD_DIM = 2, 2, 3, 347, 32
PUSHED, BEHIND, WIDTH = 48, 40, 45
BUDGETS = (NUM_LAYERS * NUM_KV_HEADS * 104, NUM_LAYERS * NUM_KV_HEADS * 173 + 3)


def made_up(rng: np.random.Generator, sharpness: float) -> Layer:
    """Keys drift along the text, as keys of real heads do; some tokens attract every query."""
    num_q_heads = NUM_KV_HEADS * GROUP
    drift = np.cumsum(rng.normal(size=(NUM_KV_HEADS, NUM_TOKENS, HEAD_DIM)), axis=1)
    keys = rng.normal(size=drift.shape) + 0.1 * drift
    values = (
        rng.normal(size=drift.shape) * rng.lognormal(sigma=0.5, size=drift.shape[:2])[..., None]
    )
    toward = np.repeat(keys[:, rng.integers(NUM_TOKENS, size=3)].sum(axis=1), GROUP, axis=0)

    def queries(count: int) -> np.ndarray:
        return sharpness * rng.normal(size=(num_q_heads, count, HEAD_DIM)) + 0.2 * toward[:, None]

    def half(x: np.ndarray) -> np.ndarray:
        return x.astype(np.float16).astype(np.float64)

    root = rng.normal(size=(num_q_heads, HEAD_DIM, HEAD_DIM))
    layer = Layer(
        keys=half(keys),
        values=half(values),
        queries=half(queries(PUSHED)),
        behind=half(queries(BEHIND)),
        behind_lse=np.empty(0),
        mean=as_f32(toward * 0.25),
        covariance=as_f32(root @ root.transpose(0, 2, 1) / HEAD_DIM),
        o_proj=half(rng.normal(size=(num_q_heads, HEAD_DIM, WIDTH)) / np.sqrt(WIDTH)),
    )
    # Queries behind the segment also see tokens outside it, whose mass equals the segment's.
    z = layer.logits(layer.behind)
    layer.behind_lse = as_f32(np.log(np.exp(z).sum(axis=2)) + np.log(2))
    return layer


def as_f32(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32).astype(np.float64)


def rounded(scores: Scores) -> Scores:
    """Rounds to f32, as the kernels hold them: an order must follow from the written scores."""
    second = None if scores.second is None else as_f32(scores.second)
    return Scores(as_f32(scores.scores), second, float(np.float32(scores.weight)))


def layer_bytes(layer: Layer) -> bytes:
    f16 = [layer.keys, layer.values, layer.queries, layer.behind]
    f32 = [layer.behind_lse, layer.mean, layer.covariance]
    parts = [x.astype("<f2").tobytes() for x in f16] + [x.astype("<f4").tobytes() for x in f32]
    return b"".join([*parts, layer.o_proj.astype("<f2").tobytes()])


def case_bytes(policy: Policy, layers: list[Layer]) -> bytes:
    scores = [rounded(policy.score(layer)) for layer in layers]
    learnt = np.zeros((0, NUM_LAYERS * NUM_KV_HEADS))
    if policy.table:
        learnt = as_f32(table(policy, layers, scores))
        kept = [counts_by_table(policy, learnt, budget, NUM_TOKENS) for budget in BUDGETS]
        kept = np.reshape(kept, (len(BUDGETS), NUM_LAYERS, NUM_KV_HEADS)).tolist()
    else:
        kept = [counts(policy, scores, budget) for budget in BUDGETS]
    has_second = scores[0].second is not None
    text = policy.recipe.encode()
    out = struct.pack("<I", len(text)) + text + struct.pack("<2I", has_second, len(learnt))
    out += learnt.astype("<f4").tobytes()
    for i, of_layer in enumerate(scores):
        out += of_layer.scores.astype("<f4").tobytes()
        out += of_layer.second.astype("<f4").tobytes() if has_second else b""
        out += struct.pack("<f", of_layer.weight)
        orders = [order(policy, of_layer, head) for head in range(NUM_KV_HEADS)]
        out += np.array(orders, dtype="<u2").tobytes()
        out += np.array([budget[i] for budget in kept], dtype="<u4").tobytes()
    return out


def main() -> int:
    rng = np.random.default_rng(4)
    layers = [made_up(rng, sharpness) for sharpness in (1.0, 1.6)]
    cases = b"".join(case_bytes(policy, layers) for policy in policies())
    header = b"PPV2" + struct.pack(
        "<10I", NUM_LAYERS, NUM_KV_HEADS * GROUP, NUM_KV_HEADS, NUM_TOKENS, HEAD_DIM, PUSHED,
        BEHIND, WIDTH, len(BUDGETS), len(policies()),
    )  # fmt: skip
    header += struct.pack(f"<{len(BUDGETS)}I", *BUDGETS)
    path = Path(__file__).with_name("paper_vectors.bin")
    path.write_bytes(header + b"".join(layer_bytes(layer) for layer in layers) + cases)
    print(f"{path.name}: {len(policies())} cases, {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
