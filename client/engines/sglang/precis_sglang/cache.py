"""The radix cache: SGLang's, extended by stored prefixes.

A prefix of n tokens that takes s slots is a node outside the tree. A request over the prefix has
the row [its s slots][slot 0, n - s times][new tokens], so that positions and token ids continue as
if the prefix were whole. SGLang handles the prefix like tokens in host memory: match_prefix()
promises the tokens, and init_load_back() is called again until they have arrived. KV that is
computed over such a prefix never enters the tree, where other requests would use it as exact KV.
"""

from __future__ import annotations

import logging
import math
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from sglang.srt.mem_cache.base_prefix_cache import (
    DecLockRefResult,
    EvictParams,
    EvictResult,
    IncLockRefResult,
    MatchResult,
)
from sglang.srt.mem_cache.common import evict_from_tree_cache
from sglang.srt.mem_cache.radix_cache import RadixCache

import precis
from precis import engines
from precis.budget import Keep

from .plan import Layout, slots_of
from .service import Service, Settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wish:
    """The options of a request, from custom_params["precis"]."""

    keep: Keep | None = None
    off: bool = False


@dataclass(eq=False)
class Prefix:
    """A stored prefix that holds slots of the pool.

    Attributes:
        rows: the fetched rows; ready: whether they are in the slots.
        lock_ref: the number of requests on it; used: the time of its last use.
    """

    digest: bytes
    layout: Layout
    rows: Future[Any]
    ready: bool = False
    lock_ref: int = 0
    used: float = field(default_factory=time.monotonic)

    @property
    def free(self) -> bool:
        """Whether it can be evicted: no request uses it, and its fetch has ended."""
        return self.lock_ref == 0 and self.rows.done()


@dataclass(eq=False)
class Asked:
    """A request's lookup and its match: None while the lookup runs, and for a miss."""

    found: Future[precis.Match | None]
    since: float = field(default_factory=time.monotonic)

    @property
    def match(self) -> precis.Match | None:
        return self.found.result() if self.found.done() else None


class PrecisCache(RadixCache):
    """Made by make_cache(). The scheduler's thread calls it; no call waits for the service.

    Attributes:
        standing: the layout of each request's prefix, by request id, for the attention backend.
    """

    def __init__(self, params: Any, service: Service, forward_stream: Any = None) -> None:
        self.service = service
        self.forward_stream = forward_stream
        self.prefixes: dict[bytes, Prefix] = {}
        self.asked: dict[str, Asked] = {}
        self.unfetched: dict[bytes, float] = {}  # by digest, the earliest time of the next attempt
        self.standing: dict[str, Layout] = {}
        super().__init__(params)

    def reset(self) -> None:
        """Drops everything; the caller clears the pool."""
        super().reset()
        for known in (self.prefixes, self.asked, self.unfetched, self.standing):
            known.clear()

    # ---- matches --------------------------------------------------------------------------------

    def match_prefix(self, params: Any) -> Any:
        """The tree's match or a longer stored prefix, in slots or promised as a host hit."""
        exact, req = super().match_prefix(params), params.req
        if req is None or self.disable:
            return exact
        self.standing.pop(req.rid, None)
        if (asked := self._ask(req)) is None:
            return exact
        if not asked.found.done():
            waits = time.monotonic() - asked.since < self.service.settings.lookup_timeout
            if waits and exact.device_prefix_len < len(params.key):
                # Promises one token, so that SGLang calls init_load_back() until the lookup has
                # ended.
                return exact._replace(host_hit_length=1, best_match_node=asked)
            return exact
        match = asked.match
        if match is None or not exact.device_prefix_len < match.matched_tokens <= len(params.key):
            return exact
        digest, now = engines.digest_of(match), time.monotonic()
        prefix = self.prefixes.get(digest)
        if prefix is not None and prefix.ready:
            prefix.used = now
            self.standing[req.rid] = prefix.layout
            tokens = match.matched_tokens
            return MatchResult(tokens, prefix, prefix, prefix, cache_protected_len=tokens)
        if self.unfetched.get(digest, 0.0) > now:
            return exact
        root = self.root_node
        return MatchResult(0, root, root, asked, host_hit_length=match.matched_tokens)

    def _ask(self, req: Any) -> Asked | None:
        """The request's lookup, started by its first match; None if it has none."""
        given = (req.sampling_params.custom_params or {}).get("precis") or {}
        try:
            wish = engines.read(Wish, dict(given), "precis")
        except (TypeError, ValueError) as error:
            logger.debug("request %s: %s; it is computed without the store", req.rid, error)
            return None
        if wish.off:
            return None
        # Token ids do not identify the content of such prompts, and beams share rows.
        opaque = (req.multimodal_inputs, req.input_embeds, req.positional_embed_overrides)
        apart = (req.extra_key, req.cache_salt, req.lora_id, req.beam_group)
        if any(one is not None for one in opaque + apart):
            return None
        if req.rid not in self.asked:
            # The last token must be computed.
            path = np.asarray([*req.origin_input_ids, *req.output_ids][:-1], np.int64)
            if len(path) < self.service.settings.min_tokens:
                return None
            keep = wish.keep or self.service.settings.keep or precis.ALL
            self.asked[req.rid] = Asked(self.service.find(path.astype(np.uint32), keep))
        return self.asked[req.rid]

    def init_load_back(self, params: Any) -> tuple[int, Any] | None:
        """Starts the promised fetch, or reports that the prefix is there; None: call again.

        (0, node) if it cannot be fetched: the request is computed.
        """
        req, match = params.req, params.best_match_node.match
        if match is None or params.host_hit_length != match.matched_tokens:
            return None  # the lookup was still running; the next match knows more
        digest = engines.digest_of(match)
        prefix = self.prefixes.get(digest)
        if prefix is None:
            counts = torch.from_numpy(match.plan.astype(np.int64))
            evict_from_tree_cache(self, slots_of(counts))
            slots = self.token_to_kv_pool_allocator.alloc(slots_of(counts))
            if slots is None:
                return 0, req.last_node
            layout = Layout.of(match.matched_tokens, counts, slots)
            self.prefixes[digest] = Prefix(digest, layout, self.service.fetch(match))
            return None
        if not prefix.rows.done():
            return None
        if not prefix.ready:
            if (rows := prefix.rows.result()) is None:
                self._drop(prefix)
                now = time.monotonic()
                self.unfetched = {d: t for d, t in self.unfetched.items() if t > now}
                self.unfetched[digest] = now + engines.RETRY_SECONDS
                return 0, req.last_node
            self._place(prefix.layout, rows)
            prefix.ready = True
        self.standing[req.rid] = prefix.layout
        return match.matched_tokens, prefix

    def _place(self, layout: Layout, rows: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Copies rows [heads, most, dim] of each layer into the pool, after its pending writes."""
        pool = self.token_to_kv_pool_allocator.get_kvcache()
        if self.forward_stream is not None:
            torch.cuda.current_stream().wait_stream(self.forward_stream)
        for layer, (counts, pair) in enumerate(zip(layout.counts, rows, strict=True)):
            kept = torch.arange(pair[0].shape[1]) < counts[:, None]
            index = layer + pool.start_layer
            buffers = (pool.get_key_buffer(index), pool.get_value_buffer(index))
            for buffer, one in zip(buffers, pair, strict=True):
                view = buffer.view(-1, one.shape[2])
                view[layout.of_layer(layer)] = one[kept].to(view.device, view.dtype)

    # ---- the slots of requests ------------------------------------------------------------------

    def checkpoint(self, req: Any, *, up_to: int, **more: Any) -> None:
        """As SGLang's, but KV of requests over a stored prefix does not enter the tree."""
        if not isinstance(req.last_node, Prefix):
            super().checkpoint(req, up_to=up_to, **more)

    def path_device_indices(self, node: Any) -> torch.Tensor:
        """The beginning of the row of a request on this node."""
        return node.layout.row() if isinstance(node, Prefix) else super().path_device_indices(node)

    def resolve_node_handle(self, node_handle: Any) -> Any:
        """The node of the tree by which waiting requests are sorted; for a prefix the root."""
        return self.root_node if isinstance(node_handle, Prefix) else node_handle

    def inc_lock_ref(self, node: Any) -> Any:
        if not isinstance(node, Prefix):
            return super().inc_lock_ref(node)
        node.lock_ref += 1
        return IncLockRefResult(delta=-len(node.layout.slots) if node.lock_ref == 1 else 0)

    def dec_lock_ref(self, node: Any, params: Any = None) -> Any:
        if not isinstance(node, Prefix):
            return super().dec_lock_ref(node, params)
        node.lock_ref -= 1
        return DecLockRefResult(delta=len(node.layout.slots) if node.lock_ref == 0 else 0)

    def on_release(self, req: Any, *, checkpointed: bool) -> None:
        """The request has released its slots: it ended, or went back to the waiting queue."""
        super().on_release(req, checkpointed=checkpointed)
        self._drop_request(req.rid)

    def release_aborted_request(self, handle: Any) -> None:
        super().release_aborted_request(handle)
        self._drop_request(handle.rid)

    def _drop_request(self, rid: str) -> None:
        self.standing.pop(rid, None)
        self.asked.pop(rid, None)

    # ---- room -----------------------------------------------------------------------------------

    def evictable_size(self) -> int:
        """The slots of the tree that can be evicted, and those of unused prefixes."""
        return super().evictable_size() + self._slots(free=True)

    def protected_size(self) -> int:
        """The protected slots of the tree, and those of prefixes in use or being fetched."""
        return super().protected_size() + self._slots(free=False)

    def total_size(self) -> int:
        return super().total_size() + self._slots(free=True) + self._slots(free=False)

    def _slots(self, free: bool) -> int:
        return sum(len(p.layout.slots) for p in self.prefixes.values() if p.free == free)

    def evict(self, params: Any) -> Any:
        """Evicts prefixes older than all leaves of the tree, then leaves, then other prefixes."""
        if self.disable:
            return EvictResult()
        oldest = min((leaf.last_access_time for leaf in self.evictable_leaves), default=math.inf)
        freed = self._drop_unused(params.num_tokens, oldest)
        if freed < params.num_tokens:
            freed += super().evict(EvictParams(params.num_tokens - freed)).num_tokens_evicted
        freed += self._drop_unused(params.num_tokens - freed, math.inf)
        return EvictResult(num_tokens_evicted=freed)

    def _drop_unused(self, slots: int, before: float) -> int:
        freed = 0
        for prefix in sorted(self.prefixes.values(), key=lambda one: one.used):
            if freed < slots and prefix.free and prefix.used < before:
                freed += self._drop(prefix)
        return freed

    def _drop(self, prefix: Prefix) -> int:
        del self.prefixes[prefix.digest]
        self.token_to_kv_pool_allocator.free(prefix.layout.slots)
        return len(prefix.layout.slots)


def make_cache(context: Any) -> PrecisCache:
    """The cache of one engine.

    Raises:
        ValueError: naming the engine's unsupported feature, or the wrong setting.
    """
    from sglang.srt.runtime_context import get_disagg

    from .attention import Ragged

    params, model = context.params, context.model_config
    runner = context.tp_worker.model_runner
    pool = params.token_to_kv_pool_allocator.get_kvcache()
    refused = [
        (not isinstance(runner.attn_backend, Ragged), "another --attention-backend than precis"),
        (runner.decode_attn_backend is not None, "a separate attention backend for decoding"),
        (get_disagg().disaggregation_mode != "null", "separate servers for prefill and decode"),
        # Each rank would decide by itself which prefix a request uses; they would have to agree.
        (context.tp_size > 1 or params.pp_size > 1, "tensor and pipeline parallelism"),
        (context.is_hybrid_swa or context.is_hybrid_ssm, "layers of several kinds"),
        (params.page_size != 1, "--page-size other than 1"),
        (params.is_eagle, "speculative decoding"),
        (context.enable_hierarchical_cache, "the hierarchical cache"),
        (pool.dtype != model.dtype, f"a KV cache in {pool.dtype}"),
        (type(pool).__name__ != "MHATokenToKVPool", f"a pool of kind {type(pool).__name__}"),
    ]
    for is_so, what in refused:
        if is_so:
            raise ValueError(f"--radix-cache-backend precis does not support {what}")
    settings = Settings.read()
    spec = engines.model_spec(model, settings)
    stream = runner.forward_stream if pool.get_key_buffer(pool.start_layer).is_cuda else None
    cache = PrecisCache(params, Service(settings, spec), stream)
    runner.attn_backend.standing = cache.standing
    return cache
