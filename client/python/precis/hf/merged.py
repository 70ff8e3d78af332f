"""Exact attention over parts of the keys, merged by the log-sum-exp of their scores.

PyTorch's kernel never holds all scores of the queries, but it has no mask for "all keys before, and
the new ones up to the query". So the keys before are one part, without a mask, and the queries' own
are another, which is causal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch

# Private to PyTorch. It also returns the log-sum-exp.
_flash = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)


class Rows(Protocol):
    """Entries of one KV head, [count, head_dim]."""

    keys: torch.Tensor
    values: torch.Tensor


class Part(NamedTuple):
    """Attention over some of the keys.

    Attributes:
        out: float32 [batch, heads, n, head_dim].
        lse: float32 [batch, heads, n], of the scores.
    """

    out: torch.Tensor
    lse: torch.Tensor


def is_available(query: torch.Tensor) -> bool:
    """Whether attend() can compute it: on the CPU, without gradients."""
    return _flash is not None and query.device.type == "cpu" and not torch.is_grad_enabled()


def attend(
    query: torch.Tensor,
    kept: Sequence[Rows],
    keys: torch.Tensor,
    values: torch.Tensor,
    scaling: float,
) -> Part:
    """Attention over all of `kept`, and over the tail up to each query's own token.

    Args:
        query: [batch, num_q_heads, n, head_dim], the tail's last n tokens.
        kept: by KV head, the same for the whole batch.
        keys, values: the tail, [batch, num_kv_heads, m, head_dim].
    """
    before = keys.shape[2] - query.shape[2]
    parts = [_over(query, keys[:, :, before:], values[:, :, before:], scaling, causal=True)]
    if before > 0:
        parts.append(_over(query, keys[:, :, :before], values[:, :, :before], scaling))
    if any(len(head.keys) for head in kept):
        groups = query.chunk(len(kept), dim=1)
        heads = [_over_head(group, head, scaling) for group, head in zip(groups, kept, strict=True)]
        parts.append(Part(*(torch.cat(each, dim=1) for each in zip(*heads, strict=True))))
    return _merge(parts)


def _over(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scaling: float,
    causal: bool = False,
) -> Part:
    """Attention over all keys; `causal`: over those of the queries' own tokens, up to each."""
    batch, num_q_heads, count, dim = query.shape
    heads, after = keys.shape[1], keys.shape[2]
    # Older versions of the kernel need as many heads of keys as of queries.
    if causal:  # each KV head becomes a row of the batch, and its group are the heads
        group = num_q_heads // heads
        rows = query.reshape(batch * heads, group, count, dim)
        shape = (batch * heads, group, after, dim)
        keys = keys.reshape(-1, 1, after, dim).expand(shape)
        values = values.reshape(-1, 1, after, dim).expand(shape)
    else:  # the queries of a group become more queries of one head
        rows = query.reshape(batch, heads, -1, dim)
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else query.dtype
    rows, keys, values = (each.to(dtype) for each in (rows, keys, values))
    out, lse = _flash(rows, keys, values, 0.0, causal, scale=scaling)
    return Part(out.float().reshape(query.shape), lse.reshape(batch, num_q_heads, count))


def _over_head(query: torch.Tensor, head: Rows, scaling: float) -> Part:
    """Attention of one group of query heads over the entries of its KV head."""
    if len(head.keys) == 0:
        lse = torch.full(query.shape[:3], -torch.inf)
        return Part(torch.zeros(query.shape), lse)
    shape = (query.shape[0], 1, *head.keys.shape)
    return _over(query, head.keys.expand(shape), head.values.expand(shape), scaling)


def _merge(parts: Sequence[Part]) -> Part:
    """The attention over the keys of all parts."""
    lse = torch.stack([part.lse for part in parts]).logsumexp(dim=0)
    weighted = (part.out * (part.lse - lse).exp()[..., None] for part in parts)
    return Part(sum(weighted), lse)
