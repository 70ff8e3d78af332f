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


@torch.no_grad()
def test_long_rows_in_a_larger_buffer_and_other_arithmetic():
    torch.manual_seed(5)
    query = torch.randn(1, HEADS * GROUP, 600, DIM)
    room = torch.randn(2, 1, HEADS, 2048, DIM)
    keys, values = room[0][:, :, :1300], room[1][:, :, :1300]
    kept = [SimpleNamespace(keys=torch.randn(700, DIM), values=torch.randn(700, DIM))] * HEADS
    out, lse = dense(query, kept, keys, values)
    found = merged.attend(query, kept, keys, values, SCALING)
    assert (found.out - out).abs().max() <= 1e-5 and (found.lse - lse).abs().max() <= 1e-5
    with torch.autocast("cpu", torch.bfloat16):
        fast = merged.attend(query, kept, keys, values, SCALING)
    assert 0 < (fast.out - out).abs().max() <= 5e-2


def test_it_is_not_used_where_gradients_are_wanted():
    query = torch.zeros(1, 1, 1, DIM)
    assert not merged.is_available(query)
    with torch.no_grad():
        assert merged.is_available(query)
        assert not merged.is_available(torch.empty(1, device="meta"))
