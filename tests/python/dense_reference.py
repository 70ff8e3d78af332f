"""Dense attention over exactly the kept entries, too simple to be wrong.

The model runs over its own full cache, in Transformers, with an attention that gathers for every
query the entries it may see: the kept positions of the prefix and the new tokens up to itself,
within the layer's sliding window, in float64, one query head at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from transformers import AttentionInterface, DynamicCache


@dataclass
class HeadKept:
    positions: torch.Tensor  # [count] in the original sequence
    keys: torch.Tensor
    values: torch.Tensor


@dataclass
class LayerKept:
    heads: list[HeadKept]


@dataclass
class HandmadePrefix:
    matched_tokens: int
    layers: list[LayerKept]


def full_cache(model, tokens: list[int], whole: bool = False) -> tuple[DynamicCache, torch.Tensor]:
    """Transformers' own prefill: its cache, and the logits of the last token.

    `whole`: layers with a sliding window keep all entries too.
    """
    cache = DynamicCache() if whole else DynamicCache(config=model.config)
    with torch.no_grad():
        out = model(torch.tensor([tokens]), past_key_values=cache, logits_to_keep=1)
    return cache, out.logits[0, -1]


def keep_positions(cache: DynamicCache, kept: list[list[torch.Tensor]]) -> HandmadePrefix:
    """The prefix that keeps kept[layer][head] of a full cache, in the given order."""
    layers = [
        LayerKept(
            [
                HeadKept(positions, layer.keys[0, h, positions], layer.values[0, h, positions])
                for h, positions in enumerate(heads)
            ]
        )
        for layer, heads in zip(cache.layers, kept, strict=True)
    ]
    return HandmadePrefix(cache.get_seq_length(), layers)


@contextlib.contextmanager
def dense_attention(model, prefix) -> Iterator[None]:
    """Within the block, `model` sees only those of the first prefix.matched_tokens entries of its
    cache that lie at positions that `prefix` keeps."""

    def attention(module, query, key, value, attention_mask, scaling, **kwargs):
        group = query.shape[1] // key.shape[1]
        total, count = key.shape[2], query.shape[2]
        out = torch.empty_like(query)
        for h in range(query.shape[1]):
            kept = prefix.layers[module.layer_idx].heads[h // group].positions
            for i in range(count):
                new = torch.arange(prefix.matched_tokens, total - count + i + 1)
                seen = torch.cat([torch.tensor(kept.tolist(), dtype=torch.long), new])
                if window := kwargs.get("sliding_window"):
                    seen = seen[seen > total - count + i - window]
                k, v = key[0, h // group, seen].double(), value[0, h // group, seen].double()
                out[0, h, i] = torch.softmax(k @ query[0, h, i].double() * scaling, 0) @ v
        return out.transpose(1, 2), None

    AttentionInterface.register("dense_reference", attention)
    before = model.config._attn_implementation
    model.config._attn_implementation = "dense_reference"
    try:
        yield
    finally:
        model.config._attn_implementation = before


def continuation(model, cache, tokens: list[int], chunks: list[int]) -> torch.Tensor:
    """Logits of `tokens` fed over `cache` in pieces of the given sizes."""
    assert sum(chunks) == len(tokens)
    rows, begin = [], 0
    for size in chunks:
        piece = torch.tensor([tokens[begin : begin + size]])
        with torch.no_grad():
            rows.append(model(piece, past_key_values=cache).logits[0])
        begin += size
    return torch.cat(rows)
