"""Attention over ragged prefixes by vLLM's FlashAttention backend.

It needs nothing but one head's metadata. No schedule is made ahead of the call, whose lengths
differ from layer to layer: the kernel makes its own.
"""

from __future__ import annotations

from vllm.v1.attention.backends.flash_attn import FlashAttentionBackend, FlashAttentionImpl

from .attention import RaggedBackend, RaggedImpl


class RaggedFlashImpl(RaggedImpl, FlashAttentionImpl):
    """FlashAttention 2 has a row of CUDA's grid for each sequence, and a grid 65,535 rows."""

    max_sequences = 65_535


class RaggedFlashBackend(RaggedBackend, FlashAttentionBackend):
    """FLASH_ATTN."""

    impl = RaggedFlashImpl
