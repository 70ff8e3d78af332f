"""What kvpress 0.5.5 keeps, driven without a model: the presses' own `compress` over given K, V, Q.

A press asks its attention module for queries as `q_proj(hidden_states)` and rotates them by
`position_embeddings`. Here the hidden states are the rotated queries themselves, `q_proj` is the
identity and the rotation is by nothing, so that everything else is kvpress's code, unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import torch
from kvpress import AdaKVPress, KeyDiffPress, KnormPress, LagKVPress, SnapKVPress

WINDOW = 64


@dataclass
class LayerKv:
    """One layer's keys and values [num_kv_heads, n, head_dim], and the last queries
    [num_q_heads, WINDOW, head_dim]; keys and queries carry their RoPE."""

    keys: torch.Tensor
    values: torch.Tensor
    queries: torch.Tensor


def presses(compression_ratio: float) -> dict[str, object]:
    """Our parity presets and the press each of them reproduces."""
    r = compression_ratio
    return {
        "snapkv_kvpress": SnapKVPress(r, window_size=WINDOW, kernel_size=5),
        "ada_kvpress": AdaKVPress(SnapKVPress(r, window_size=WINDOW, kernel_size=5), 0.2),
        "knorm_kvpress": KnormPress(r),
        "keydiff_kvpress": KeyDiffPress(r),
        "lagkv_kvpress": LagKVPress(r, n_sink=4, lag_size=128),
    }


def kept_positions(press: object, layer: LayerKv) -> list[list[int]]:
    """The positions `press` keeps of each KV head, ascending."""
    num_q_heads, window, head_dim = layer.queries.shape
    num_kv_heads, n, _ = layer.keys.shape
    hidden = torch.zeros(1, n, num_q_heads * head_dim)
    hidden[0, -window:] = layer.queries.transpose(0, 1).reshape(window, -1)
    module = SimpleNamespace(
        config=SimpleNamespace(
            num_attention_heads=num_q_heads,
            num_key_value_heads=num_kv_heads,
            _attn_implementation="sdpa",
        ),
        head_dim=head_dim,
        q_proj=lambda x: x,
    )
    unrotated = (torch.ones(1, n, head_dim), torch.zeros(1, n, head_dim))
    out, _ = press.compress(
        module,
        hidden,
        layer.keys[None].clone(),
        layer.values[None].clone(),
        None,
        {"position_embeddings": unrotated},
    )
    masked = getattr(module, "masked_key_indices", None)
    if masked is not None:  # head-wise presses remove nothing: they name what attention must skip
        keep = torch.ones(num_kv_heads, n, dtype=torch.bool)
        keep[masked[1], masked[2]] = False
        return [keep[h].nonzero().flatten().tolist() for h in range(num_kv_heads)]
    return [positions_of(out[0, h], layer.keys[h]) for h in range(num_kv_heads)]


def positions_of(rows: torch.Tensor, keys: torch.Tensor) -> list[int]:
    """Which rows of `keys` stand in `rows`; keys of distinct positions differ, by their RoPE."""
    index = {keys[t].numpy().tobytes(): t for t in range(len(keys))}
    assert len(index) == len(keys), "two keys are equal: positions cannot be told apart"
    return sorted(index[row.numpy().tobytes()] for row in rows.contiguous())
