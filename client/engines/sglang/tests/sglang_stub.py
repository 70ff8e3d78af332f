"""SGLang if it is installed, else a stub of the names that the plug-in uses.

The stub is our own code after the behaviour of SGLang 0.5.23: a tree with one token per node, and
backends that only record that they were called. Each test file imports it before the plug-in.
"""

from __future__ import annotations

import importlib
import sys
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
torch.set_num_threads(1)  # the tests' tensors are small


class MatchResult(NamedTuple):
    device_prefix_len: int
    last_device_node: Any
    last_host_node: Any
    best_match_node: Any
    host_hit_length: int = 0
    cache_protected_len: int | None = None


@dataclass
class Delta:
    delta: int | None = None


@dataclass
class EvictParams:
    num_tokens: int = 0


@dataclass
class EvictResult:
    num_tokens_evicted: int = 0


class Node:
    def __init__(self, parent: Node | None, slot: int) -> None:
        self.parent, self.slot = parent, slot
        self.children: dict[int, Node] = {}
        self.lock_ref = 0
        self.last_access_time = time.monotonic()

    def path(self) -> list[Node]:
        """The nodes from the root, without the root."""
        return [] if self.parent is None else [*self.parent.path(), self]

    def below(self) -> Iterator[Node]:
        for child in self.children.values():
            yield child
            yield from child.below()


class RadixKey:
    def __init__(self, token_ids: Any, extra_key: Any = None, limit: int | None = None) -> None:
        self.token_ids = token_ids[:limit]

    def __len__(self) -> int:
        return len(self.token_ids)


class RadixCache:
    def __init__(self, params: Any) -> None:
        self.disable = params.disable
        self.req_to_token_pool = params.req_to_token_pool
        self.token_to_kv_pool_allocator = params.token_to_kv_pool_allocator
        self.reset()

    def reset(self) -> None:
        self.root_node = Node(None, 0)

    def match_prefix(self, params: Any) -> MatchResult:
        node = self.root_node
        for token in params.key.token_ids:
            if token not in node.children:
                break
            node = node.children[token]
            node.last_access_time = time.monotonic()
        return MatchResult(len(node.path()), node, node, node)

    def insert(self, params: Any) -> None:
        node = self.root_node
        for token, slot in zip(params.key.token_ids, params.value.tolist(), strict=True):
            node = node.children.setdefault(token, Node(node, slot))

    def path_device_indices(self, node: Any) -> torch.Tensor:
        return torch.tensor([one.slot for one in node.path()], dtype=torch.int64)

    def inc_lock_ref(self, node: Any) -> Delta:
        for one in node.path():
            one.lock_ref += 1
        return Delta(0)

    def dec_lock_ref(self, node: Any, params: Any = None) -> Delta:
        for one in node.path():
            one.lock_ref -= 1
        return Delta(0)

    def lock(self, node: Any) -> Any:
        self.inc_lock_ref(node)
        return node

    def unlock(self, lock: Any) -> None:
        self.dec_lock_ref(lock)

    def checkpoint(self, req: Any, *, up_to: int) -> None:
        tokens = [*req.origin_input_ids, *req.output_ids][:up_to]
        row = self.req_to_token_pool.req_to_token[req.kv.req_pool_idx, :up_to]
        self.insert(types.SimpleNamespace(key=RadixKey(tokens), value=row))
        req.kv.cache_protected_len = up_to

    @property
    def evictable_leaves(self) -> set[Node]:
        nodes = self.root_node.below()
        return {node for node in nodes if not node.children and not node.lock_ref}

    def evict(self, params: EvictParams) -> EvictResult:
        freed = 0
        while freed < params.num_tokens and (leaves := self.evictable_leaves):
            leaf = min(leaves, key=lambda one: one.last_access_time)
            siblings = leaf.parent.children
            del siblings[next(token for token, one in siblings.items() if one is leaf)]
            self.token_to_kv_pool_allocator.free(torch.tensor([leaf.slot]))
            freed += 1
        return EvictResult(freed)

    def evictable_size(self) -> int:
        return sum(not node.lock_ref for node in self.root_node.below())

    def protected_size(self) -> int:
        return sum(bool(node.lock_ref) for node in self.root_node.below())

    def total_size(self) -> int:
        return len(list(self.root_node.below()))

    def resolve_node_handle(self, node_handle: Any) -> Any:
        return node_handle

    def release_aborted_request(self, handle: Any) -> None:
        pass

    def on_release(self, req: Any, *, checkpointed: bool) -> None:
        pass


def evict_from_tree_cache(cache: Any, slots: int) -> None:
    short = slots - cache.token_to_kv_pool_allocator.available_size()
    if short > 0:
        cache.evict(EvictParams(short))


class TorchNativeAttnBackend:
    def __init__(self, runner: Any) -> None:
        self.req_to_token_pool = runner.req_to_token_pool
        self.token_to_kv_pool = runner.token_to_kv_pool

    def init_forward_metadata(self, forward_batch: Any) -> None:
        pass

    def forward_decode(self, *args: Any, **more: Any) -> str:
        return "stock decode"

    def forward_extend(self, *args: Any, **more: Any) -> str:
        return "stock extend"


class KVWriteLoc(NamedTuple):
    loc: torch.Tensor

    @classmethod
    def for_batch(cls, forward_batch: Any) -> KVWriteLoc:
        return cls(forward_batch.out_cache_loc)


def _module(name: str, **names: Any) -> None:
    """Makes the module of this name below sglang.srt, and its parents."""
    whole, above = "sglang", None
    for part in ("", "srt", *name.split(".")):
        whole = f"{whole}.{part}" if part else whole
        module = sys.modules.setdefault(whole, types.ModuleType(whole))
        if above is not None:
            setattr(above, part, module)
        above = module
    vars(above).update(names)


def _install() -> None:
    backends: dict[str, Any] = {}
    caches: dict[str, Any] = {}
    choices: list[str] = []
    _module(
        "mem_cache.base_prefix_cache",
        MatchResult=MatchResult,
        EvictParams=EvictParams,
        EvictResult=EvictResult,
        IncLockRefResult=Delta,
        DecLockRefResult=Delta,
    )
    _module("mem_cache.common", evict_from_tree_cache=evict_from_tree_cache)
    _module("mem_cache.radix_cache", RadixCache=RadixCache, RadixKey=RadixKey)
    _module("mem_cache.memory_pool", KVWriteLoc=KVWriteLoc)
    _module(
        "mem_cache.registry",
        register_radix_cache_backend=caches.__setitem__,
        registered_radix_cache_backends=lambda: list(caches),
    )
    _module(
        "layers.attention.attention_registry",
        ATTENTION_BACKENDS=backends,
        register_attention_backend=lambda name: lambda make: backends.setdefault(name, make),
    )
    _module("layers.attention.torch_native_backend", TorchNativeAttnBackend=TorchNativeAttnBackend)
    _module("runtime_context", get_disagg=lambda: types.SimpleNamespace(disaggregation_mode="null"))
    _module("model_executor.cuda_graph_config", cuda_graph_fully_disabled=lambda: False)
    _module(
        "arg_groups.choices",
        ATTENTION_BACKEND_CHOICES=choices,
        add_attention_backend_choices=choices.extend,
    )


try:
    importlib.import_module("sglang.srt.mem_cache.registry")
    REAL = True
except ImportError:
    for _name in [name for name in sys.modules if name.split(".")[0] == "sglang"]:
        del sys.modules[_name]
    _install()
    REAL = False
