"""The entries that kvpress 0.5.5 keeps, without a model: calls the presses' own `compress` on given
tensors.

A press asks its attention module for queries as `q_proj(hidden_states)` and rotates them by
`position_embeddings`. Here the hidden states are the rotated queries themselves, `q_proj` is the
identity, and the rotation does nothing. Statistics of future queries are given, and the attention
that ObservedAttentionPress needs is the softmax of the given queries. Everything else is kvpress's
code, unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import torch
from kvpress import (
    AdaKVPress,
    CriticalAdaKVPress,
    CriticalKVPress,
    ExpectedAttentionPress,
    KeyDiffPress,
    KnormPress,
    LagKVPress,
    ObservedAttentionPress,
    SnapKVPress,
    TOVAPress,
)

WINDOW = 64


@dataclass
class LayerKv:
    """One layer: keys and values [num_kv_heads, n, head_dim]; the last queries [num_q_heads, at
    most n, head_dim]; keys and queries carry their RoPE. Mean [num_q_heads, head_dim] and
    covariance [num_q_heads, head_dim, head_dim] of future queries; the output projection's weight
    [width, num_q_heads * head_dim]."""

    keys: torch.Tensor
    values: torch.Tensor
    queries: torch.Tensor
    query_mean: torch.Tensor
    query_covariance: torch.Tensor
    o_proj: torch.Tensor


def presses(compression_ratio: float) -> dict[str, object]:
    """Our parity presets and the press that each of them reproduces."""
    r = compression_ratio

    def snapkv() -> SnapKVPress:
        return SnapKVPress(r, window_size=WINDOW, kernel_size=5)

    return {
        "snapkv_kvpress": snapkv(),
        "ada_kvpress": AdaKVPress(snapkv(), 0.2),
        "critical_kvpress": CriticalKVPress(snapkv()),
        "critical_ada_kvpress": CriticalAdaKVPress(snapkv(), 0.2),
        "knorm_kvpress": KnormPress(r),
        "keydiff_kvpress": KeyDiffPress(r),
        "lagkv_kvpress": LagKVPress(r, n_sink=4, lag_size=128),
        "ea_kvpress": ExpectedAttentionPress(r),
        "tova_kvpress": TOVAPress(r),
        "observed_kvpress": ObservedAttentionPress(r),
    }


# The number of tokens that a preset protects. If a budget holds fewer, kvpress gives them all one
# score and keeps an arbitrary part.
PROTECTED = {
    "snapkv_kvpress": WINDOW,
    "ada_kvpress": WINDOW,
    "critical_kvpress": WINDOW,
    "critical_ada_kvpress": WINDOW,
    "ea_kvpress": 4,
    "tova_kvpress": 1,
}


def protected_count(preset: str, n: int) -> int:
    """How many of `n` tokens `preset` protects."""
    if preset != "lagkv_kvpress":
        return PROTECTED.get(preset, 0)
    return n if n < 4 + 2 * 128 else 4 + 128 + (n - 4) % 128


def attention(layer: LayerKv) -> torch.Tensor:
    """Causal weights [num_q_heads, n, n] of queries that stand at every token."""
    num_q_heads, n, head_dim = layer.queries.shape
    keys = layer.keys.repeat_interleave(num_q_heads // len(layer.keys), dim=0)
    logits = layer.queries @ keys.transpose(1, 2) / head_dim**0.5
    logits.masked_fill_(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))
    return logits.softmax(dim=-1)


def attention_module(layer: LayerKv) -> SimpleNamespace:
    num_q_heads, _, head_dim = layer.queries.shape
    return SimpleNamespace(
        config=SimpleNamespace(
            num_attention_heads=num_q_heads,
            num_key_value_heads=len(layer.keys),
            head_dim=head_dim,
            hidden_size=len(layer.o_proj),
            _attn_implementation="sdpa",
        ),
        head_dim=head_dim,
        num_key_value_groups=num_q_heads // len(layer.keys),
        q_proj=lambda x: x,
        o_proj=SimpleNamespace(weight=layer.o_proj),
    )


def kept_positions(
    press: object, layer: LayerKv, weights: torch.Tensor | None = None
) -> list[list[int]]:
    """The positions that `press` keeps of each KV head, ascending. `weights`: attention(layer), for
    ObservedAttentionPress."""
    num_q_heads, pushed, head_dim = layer.queries.shape
    num_kv_heads, n, _ = layer.keys.shape
    hidden = torch.zeros(1, n, num_q_heads * head_dim)
    hidden[0, -pushed:] = layer.queries.transpose(0, 1).reshape(pushed, -1)
    module = attention_module(layer)
    unrotated = (torch.ones(1, n, head_dim), torch.zeros(1, n, head_dim))
    if isinstance(press, ExpectedAttentionPress):
        statistics = (layer.query_mean[None], layer.query_covariance[None])
        press.get_query_statistics = lambda _module, _hidden: statistics
    out, _ = press.compress(
        module,
        hidden,
        layer.keys[None].clone(),
        layer.values[None].clone(),
        weights[None] if isinstance(press, ObservedAttentionPress) else None,
        {"position_embeddings": unrotated},
    )
    masked = getattr(module, "masked_key_indices", None)
    if masked is not None:  # head-wise presses only list the keys that attention skips
        keep = torch.ones(num_kv_heads, n, dtype=torch.bool)
        keep[masked[1], masked[2]] = False
        return [keep[h].nonzero().flatten().tolist() for h in range(num_kv_heads)]
    return [positions_of(out[0, h], layer.keys[h]) for h in range(num_kv_heads)]


def positions_of(rows: torch.Tensor, keys: torch.Tensor) -> list[int]:
    """The indices in `keys` of the rows of `rows`. Keys of distinct positions differ, by their
    RoPE."""
    index = {keys[t].numpy().tobytes(): t for t in range(len(keys))}
    assert len(index) == len(keys), "two keys are equal: positions cannot be told apart"
    return sorted(index[row.numpy().tobytes()] for row in rows.contiguous())


def output_norms(layer: LayerKv) -> torch.Tensor:
    """The norms that the critical presses multiply by, [num_kv_heads, n]."""
    return CriticalKVPress.vwl1norm(layer.values[None], attention_module(layer))[0]
