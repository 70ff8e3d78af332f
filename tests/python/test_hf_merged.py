"""Attention in merged parts equals attention over all keys at once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from precis.hf import merged

HEADS, GROUP, DIM, SCALING = 3, 2, 16, 0.3


def dense(query, kept, keys, values):
    """The definition in float64, head by head."""
    count, tail = query.shape[2], keys.shape[2]
    later = torch.ones(count, tail).triu(tail - count + 1).bool()
    outs, lses = [], []
    for head, group in enumerate(query.double().chunk(HEADS, dim=1)):
        batch = (query.shape[0], -1, -1)
        far = kept[head].keys.double().expand(batch), kept[head].values.double().expand(batch)
        k = torch.cat([far[0], keys[:, head].double()], dim=1)[:, None]
        v = torch.cat([far[1], values[:, head].double()], dim=1)[:, None]
        scores = group @ k.transpose(2, 3) * SCALING
        scores[..., k.shape[2] - tail :].masked_fill_(later, -torch.inf)
        outs.append(scores.softmax(-1) @ v)
        lses.append(scores.logsumexp(-1))
    return torch.cat(outs, dim=1), torch.cat(lses, dim=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tail", [7, 8, 40])
@pytest.mark.parametrize("counts", [(0, 0, 0), (5, 0, 300), (64, 1, 65)])
@pytest.mark.parametrize("batch", [1, 2])
@torch.no_grad()
def test_merged_attention_is_attention_over_all_keys(batch, counts, tail, dtype):
    torch.manual_seed(batch + sum(counts) + tail)

    def rows(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, DIM).to(dtype)

    kept = [SimpleNamespace(keys=rows(count), values=rows(count)) for count in counts]
    query = rows(batch, HEADS * GROUP, 7)
    keys, values = rows(batch, HEADS, tail), rows(batch, HEADS, tail)
    assert merged.is_available(query)
    found = merged.attend(query, kept, keys, values, SCALING)
    out, lse = dense(query, kept, keys, values)
    bound = 1e-5 if dtype == torch.float32 else 2e-2
    assert found.out.dtype == torch.float32
    assert (found.out - out).abs().max() <= bound
    assert (found.lse - lse).abs().max() <= bound


def test_it_is_not_used_where_gradients_are_wanted():
    query = torch.zeros(1, 1, 1, DIM)
    assert not merged.is_available(query)
    with torch.no_grad():
        assert merged.is_available(query)
        assert not merged.is_available(torch.empty(1, device="meta"))
