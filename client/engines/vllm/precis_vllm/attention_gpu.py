"""Attention over ragged prefixes by vLLM's backends for GPUs: FlashAttention and Triton."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from vllm.v1.attention.backends.flash_attn import FlashAttentionBackend, FlashAttentionImpl
from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend, TritonAttentionImpl

from .attention import RaggedBackend, RaggedImpl


class RaggedFlashImpl(RaggedImpl, FlashAttentionImpl):
    """FlashAttention needs no more metadata than any backend.

    No schedule is made before the call, because lengths differ between layers; the kernel makes its
    own. FlashAttention 2 uses one row of the CUDA grid per sequence, and a grid has at most 65,535
    rows.
    """

    max_sequences = 65_535

    def by_head(self, metadata: Any, heads: int, layer: Any, dtype: torch.dtype) -> Any:
        """Turns off vLLM 0.31's cascade attention over the blocks that all requests share."""
        if not hasattr(metadata, "use_cascade"):
            return metadata
        return dataclasses.replace(metadata, use_cascade=False)


class RaggedFlashBackend(RaggedBackend, FlashAttentionBackend):
    """FLASH_ATTN."""

    impl = RaggedFlashImpl


class RaggedTritonImpl(RaggedImpl, TritonAttentionImpl):
    """Triton's kernels split sequences if few are decoded, and need memory for partial results."""

    def by_head(self, metadata: Any, heads: int, layer: Any, dtype: torch.dtype) -> Any:
        """Splits up to as many requests as before, with the same memory for partial results."""
        parts = ("softmax_segm_output", "softmax_segm_max", "softmax_segm_expsum")
        group = self.num_queries_per_kv
        memory = {name: getattr(metadata, name).unflatten(1, (heads, group)).flatten(0, 1)
                  for name in parts}  # fmt: skip
        return dataclasses.replace(
            metadata, seq_threshold_3D=metadata.seq_threshold_3D * heads, **memory
        )


class RaggedTritonBackend(RaggedBackend, TritonAttentionBackend):
    """TRITON_ATTN."""

    impl = RaggedTritonImpl
