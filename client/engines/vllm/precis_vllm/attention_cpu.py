"""Attention over ragged prefixes by vLLM's CPU backend."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from vllm import _custom_ops as ops
from vllm import envs
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend, CPUAttentionBackendImpl

from .attention import RaggedBackend, RaggedImpl


class RaggedCpuImpl(RaggedImpl, CPUAttentionBackendImpl):
    """The CPU kernels need a schedule, and store a page's keys before its values."""

    def by_head(self, metadata: Any, heads: int, layer: Any, dtype: torch.dtype) -> Any:
        """Adds a schedule of the sequences."""
        schedule = ops.cpu_attn_get_scheduler_metadata(
            num_reqs=len(metadata.seq_lens),
            num_heads=self.num_queries_per_kv,
            num_kv_heads=1,
            head_dim=self.head_size,
            seq_lens=metadata.seq_lens,
            dtype=dtype,
            query_start_loc=metadata.query_start_loc,
            causal=True,
            sliding_window_size=-1,
            isa=layer.isa,
            enable_kv_split=envs.VLLM_CPU_ATTN_SPLIT_KV,
        )
        return dataclasses.replace(metadata, scheduler_metadata=schedule)

    def rows(self, pages: torch.Tensor, layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """As in the base class; also for kernels that store the keys as [dim, size]."""
        count, size, dim = len(pages), pages.shape[1], self.head_size
        keys, values = pages.view(count, 2, size, dim).unbind(1)
        if keys_are_turned(layer.isa, pages.dtype, size, dim):
            keys = keys.view(count, dim, size).transpose(1, 2)
        return keys, values


class RaggedCpuBackend(RaggedBackend, CPUAttentionBackend):
    """CPU_ATTN."""

    impl = RaggedCpuImpl


def keys_are_turned(isa: str, dtype: torch.dtype, size: int, dim: int) -> bool:
    """Whether the CPU kernels store a page's keys as [dim, size]: tries the writing kernel.

    Raises:
        ValueError: they use neither order, so the store cannot read or write pages.
    """
    cache = torch.zeros(1, 1, 2 * size, dim, dtype=dtype)
    keys, values = cache.chunk(2, dim=2)
    # Numbers that any dtype represents exactly: the row's number in one pass, the column's in the
    # other.
    row = torch.arange(size).to(dtype)[:, None, None].expand(size, 1, dim).contiguous()
    column = torch.arange(dim).to(dtype).expand(size, 1, dim).contiguous()
    found = []
    for probe in (row, column):
        ops.cpu_attn_reshape_and_cache(probe, probe, keys, values, torch.arange(size), isa)
        if not torch.equal(values.reshape(size, dim), probe[:, 0]):
            raise ValueError(f"the CPU kernels ({isa}, {dtype}) hold values in an unknown order")
        found.append(keys.reshape(-1).clone())
    plain = [row[:, 0].reshape(-1), column[:, 0].reshape(-1)]
    if all(map(torch.equal, found, plain)):
        return False
    if all(map(torch.equal, found, [p.view(size, dim).t().reshape(-1) for p in plain])):
        return True
    raise ValueError(
        f"the CPU kernels ({isa}, {dtype}) hold keys in an order of their own, which Precis does "
        "not read: choose another dtype (float32 or float16)"
    )
