"""Attention over ragged prefixes by vLLM's Triton backend."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend, TritonAttentionImpl

from .attention import RaggedBackend, RaggedImpl


class RaggedTritonImpl(RaggedImpl, TritonAttentionImpl):
    """Its kernels split a sequence where few are decoded, and keep what the parts come to."""

    def by_head(self, metadata: Any, heads: int, layer: Any, dtype: torch.dtype) -> Any:
        """With as many requests split as before, and the same memory for their parts."""
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
