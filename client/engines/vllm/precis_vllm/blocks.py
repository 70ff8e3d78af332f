"""The scheduler's block manager: the blocks of a request over a stored prefix.

The request's block row is [blocks of the prefix][null blocks up to the prefix's length][blocks of
new tokens], so that positions, slot mappings and everything else in vLLM are unchanged. Blocks of a
prefix are in vLLM's own pool under hashes of their own: requests share them, and the pool evicts
them like other blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vllm.utils.math_utils import cdiv
from vllm.v1.core.kv_cache_utils import BlockHash, KVCacheBlock, make_block_hash_with_group_id
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry

from .plan import Plan


class RaggedManager(FullAttentionManager):
    """vLLM's manager of full attention, except for requests that have a plan."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.plans: dict[str, Plan] = {}  # by request; the connector adds and removes them

    def resident(self, plan: Plan) -> list[KVCacheBlock] | None:
        """The prefix's blocks, if all of them are in the pool."""
        found = []
        for name in plan.hashes:
            hit = self.block_pool.get_cached_block(BlockHash(name), [self.kv_cache_group_id])
            if hit is None:
                return None
            found.append(hit[0])
        return found

    def get_num_blocks_to_allocate(
        self,
        request_id: str,
        num_tokens: int,
        new_computed_blocks: Any,
        total_computed_tokens: int,
        *args: Any,
        **kwargs: Any,
    ) -> int:
        """For a request that gets the blocks of its plan now: those of the prefix and of new
        tokens.
        """
        plan = self.plans.get(request_id)
        first = request_id not in self.num_cached_block
        if plan is None or not first or total_computed_tokens != plan.tokens:
            return super().get_num_blocks_to_allocate(
                request_id, num_tokens, new_computed_blocks, total_computed_tokens, *args, **kwargs
            )
        found = self.resident(plan)
        prefix = plan.blocks if found is None else self._get_num_evictable_blocks(found)
        return prefix + cdiv(num_tokens, self.block_size) - plan.tokens // self.block_size

    def add_local_computed_blocks(
        self, request_id: str, new_computed_blocks: Any, local: int, external: int
    ) -> None:
        """Gives a request with a plan the blocks of its prefix, instead of blocks of exact hits."""
        plan = self.plans.get(request_id)
        if plan is None or local + external != plan.tokens:  # the scheduler chose another prefix
            self.plans.pop(request_id, None)
            super().add_local_computed_blocks(request_id, new_computed_blocks, local, external)
            return
        blocks = self.resident(plan)
        if blocks is None:
            blocks = self.block_pool.get_new_blocks(plan.blocks)
        else:
            self.block_pool.touch(blocks)
        row = self.req_to_blocks[request_id]
        row.extend(blocks)
        row.extend([self._null_block] * (plan.tokens // self.block_size - plan.blocks))
        self.num_cached_block[request_id] = len(row)

    def allocate_external_computed_blocks(self, request_id: str, *args: Any, **kwargs: Any) -> None:
        """Does nothing for a request with a plan, whose blocks are already allocated."""
        if request_id not in self.plans:
            super().allocate_external_computed_blocks(request_id, *args, **kwargs)

    def cache_blocks(self, request: Any, *args: Any, **kwargs: Any) -> None:
        """Lets other requests find the prefix, once it is loaded.

        KV that is computed over the prefix never enters vLLM's prefix cache: it is an
        approximation, and other requests would use it as exact KV.
        """
        plan = self.plans.get(request.request_id)
        if plan is None:
            super().cache_blocks(request, *args, **kwargs)
            return
        row = self.req_to_blocks[request.request_id]
        if not self.enable_caching or row[0].block_hash is not None:
            return
        for name, block in zip(plan.hashes, row, strict=False):
            key = make_block_hash_with_group_id(BlockHash(name), self.kv_cache_group_id)
            self.block_pool._insert_block_hash(key, block, num_tokens=None)


@dataclass(frozen=True, kw_only=True)
class RaggedSpec(FullAttentionSpec):
    """Full attention with the same pages, under another manager."""


# Registered at import, so that a process knows the manager before a spec arrives from another
# process. vLLM registers its own specs only if no spec is registered yet, so the first line
# registers them.
KVCacheSpecRegistry.check_kv_cache_spec_registry({})
KVCacheSpecRegistry.register(RaggedSpec, RaggedManager, FullAttentionSpec)
