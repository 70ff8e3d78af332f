"""Attention over ragged prefixes by vLLM's CPU backend."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from vllm import _custom_ops as ops
from vllm import envs
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend, CPUAttentionBackendImpl

from .attention import RaggedBackend, RaggedImpl
from .model import F8

HINT = "Precis does not read that; choose another --dtype (float32 or float16)"


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
            **of_cache(self.kv_cache_dtype),
        )
        return dataclasses.replace(metadata, scheduler_metadata=schedule)

    def rows(self, pages: torch.Tensor, layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """As in the base class; also for kernels that store the keys as [dim, size]."""
        count, size, dim = len(pages), pages.shape[1], self.head_size
        keys, values = pages.view(count, 2, size, dim).unbind(1)
        if keys_are_turned(layer.isa, pages.dtype, size, dim, self.kv_cache_dtype):
            keys = keys.view(count, dim, size).transpose(1, 2)
        return keys, values


class RaggedCpuBackend(RaggedBackend, CPUAttentionBackend):
    """CPU_ATTN."""

    impl = RaggedCpuImpl


def keys_are_turned(
    isa: str, dtype: torch.dtype, size: int, dim: int, kv_cache_dtype: str = "auto"
) -> bool:
    """Whether the CPU kernels store a page's keys as [dim, size]: tries the writing kernel.

    Args:
        dtype: of the cache, uint8 for one in f8_e4m3.

    Raises:
        ValueError: they use neither order, so the store cannot read or write pages.
    """
    in_f8 = kv_cache_dtype in F8
    cache = torch.zeros(1, 1, 2 * size, dim, dtype=torch.float8_e4m3fn if in_f8 else dtype)
    keys, values = cache.view(dtype).chunk(2, dim=2)
    # Writes each row's number, and each column's, digit by digit: any dtype represents 0 to 15
    # exactly.
    given = torch.float32 if in_f8 else dtype
    rows = torch.arange(size)[:, None, None].expand(size, 1, dim)
    columns = torch.arange(dim).expand(size, 1, dim)
    found, plain = [], []
    numbers = [n for each in (rows, columns) for n in (each, each // 16, each // 256)]
    for digits in (number % 16 for number in numbers):
        probe = digits.to(given).contiguous()
        slots = torch.arange(size)
        ops.cpu_attn_reshape_and_cache(
            probe, probe, keys, values, slots, isa, **of_cache(kv_cache_dtype)
        )
        of_keys, of_values = (half.to(given) for half in cache.chunk(2, dim=2))
        if not torch.equal(of_values.reshape(size, dim), probe[:, 0]):
            raise ValueError(f"the CPU kernels hold values in an unknown order ({isa}): {HINT}")
        found.append(of_keys.reshape(-1).clone())
        plain.append(probe[:, 0])
    if all(map(torch.equal, found, [p.reshape(-1) for p in plain])):
        return False
    if all(map(torch.equal, found, [p.t().reshape(-1) for p in plain])):
        return True
    raise ValueError(f"the CPU kernels hold keys in an order of their own ({isa}): {HINT}")


def of_cache(kv_cache_dtype: str) -> dict[str, str]:
    """The argument that the kernels need for a cache in f8; older versions do not know it."""
    return {"kv_cache_dtype": kv_cache_dtype} if kv_cache_dtype in F8 else {}
