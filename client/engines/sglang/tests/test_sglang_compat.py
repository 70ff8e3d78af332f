"""The names in SGLang's source that the plug-in uses: the test fails if one is gone.

They are read, not imported, so that the wheel is enough, without its dependencies.
"""

from __future__ import annotations

import ast
import functools
import importlib.machinery
import re
from pathlib import Path

import pytest

FOUND = importlib.machinery.PathFinder.find_spec("sglang")
pytestmark = pytest.mark.skipif(
    FOUND is None or not FOUND.submodule_search_locations, reason="SGLang is not installed"
)


@functools.cache
def source(path: str) -> str:
    assert FOUND is not None and FOUND.submodule_search_locations
    return (Path(FOUND.submodule_search_locations[0]) / path).read_text()


def definition(path: str, *names: str) -> ast.AST:
    """The class or function of this name, inside the preceding names."""
    node: ast.AST = ast.parse(source(path))
    for name in names:
        kinds = (ast.ClassDef, ast.FunctionDef)
        inside = [n for n in ast.iter_child_nodes(node) if isinstance(n, kinds) and n.name == name]
        assert inside, f"{path} has no {name}"
        node = inside[-1]
    return node


CACHE, BASE = "srt/mem_cache/radix_cache.py", "srt/mem_cache/base_prefix_cache.py"
ATTENTION = "srt/layers/attention"
KERNELS = "kernels/ops/attention"


@pytest.mark.parametrize(
    ("path", "names", "parameters"),
    [
        ("srt/mem_cache/registry.py", "register_radix_cache_backend", "name factory"),
        ("srt/mem_cache/registry.py", "registered_radix_cache_backends", ""),
        (f"{ATTENTION}/attention_registry.py", "register_attention_backend", "name"),
        (CACHE, "RadixCache __init__", "self params"),
        (CACHE, "RadixCache reset", "self"),
        (CACHE, "RadixCache match_prefix", "self params"),
        (CACHE, "RadixCache checkpoint", "self req up_to"),
        (CACHE, "RadixCache evict", "self params"),
        (CACHE, "RadixCache inc_lock_ref", "self node"),
        (CACHE, "RadixCache dec_lock_ref", "self node params"),
        (CACHE, "RadixCache path_device_indices", "self node"),
        (CACHE, "RadixCache evictable_size", "self"),
        (CACHE, "RadixCache protected_size", "self"),
        (BASE, "BasePrefixCache init_load_back", "self params"),
        (BASE, "BasePrefixCache prefix_device_indices", "self req"),
        (BASE, "BasePrefixCache on_release", "self req checkpointed"),
        (BASE, "BasePrefixCache release_aborted_request", "self handle"),
        (BASE, "BasePrefixCache resolve_node_handle", "self node_handle"),
        ("srt/mem_cache/common.py", "evict_from_tree_cache", "tree_cache num_tokens"),
        ("srt/mem_cache/memory_pool.py", "KVWriteLoc for_batch", "cls forward_batch"),
        ("srt/model_executor/cuda_graph_config.py", "cuda_graph_fully_disabled", ""),
        (f"{ATTENTION}/triton_backend.py", "TritonAttnBackend __init__", "self model_runner"),
        (f"{ATTENTION}/torch_native_backend.py", "TorchNativeAttnBackend __init__", "self"),
        (
            f"{KERNELS}/decode_attention.py",
            "decode_attention_fwd",
            "q k_buffer v_buffer o kv_indptr kv_indices attn_logits attn_lse num_kv_splits "
            "max_kv_splits sm_scale k_scale v_scale",
        ),
        (
            f"{KERNELS}/extend_attention.py",
            "extend_attention_fwd",
            "q_extend k_extend v_extend o_extend k_buffer v_buffer qo_indptr kv_indptr kv_indices "
            "custom_mask is_causal mask_indptr max_len_extend k_scale v_scale sm_scale",
        ),
    ],
)
def test_a_function_takes_what_it_is_given(path: str, names: str, parameters: str) -> None:
    found = definition(path, *names.split())
    assert isinstance(found, ast.FunctionDef)
    has = [a.arg for a in (*found.args.args, *found.args.kwonlyargs)]
    assert has[: len(parameters.split())] == parameters.split()


@pytest.mark.parametrize(
    ("path", "name", "fields"),
    [
        (
            BASE,
            "MatchResult",
            "device_prefix_len last_device_node last_host_node best_match_node host_hit_length "
            "cache_protected_len",
        ),
        (BASE, "MatchPrefixParams", "key req"),
        (BASE, "InitLoadBackParams", "best_match_node host_hit_length req"),
        (BASE, "EvictParams", "num_tokens"),
        (BASE, "EvictResult", "num_tokens_evicted"),
        (BASE, "IncLockRefResult", "delta"),
        (
            "srt/mem_cache/registry.py",
            "TreeCacheBuildContext",
            "params is_hybrid_swa is_hybrid_ssm enable_hierarchical_cache tp_worker model_config "
            "tp_size",
        ),
        (
            "srt/mem_cache/cache_init_params.py",
            "CacheInitParams",
            "token_to_kv_pool_allocator page_size is_eagle pp_size",
        ),
        (
            "srt/model_executor/forward_batch_info.py",
            "ForwardBatch",
            "rids batch_size forward_mode req_pool_indices seq_lens extend_seq_lens "
            "extend_prefix_lens out_cache_loc",
        ),
    ],
)
def test_a_record_has_its_fields(path: str, name: str, fields: str) -> None:
    body = definition(path, name)
    assert isinstance(body, ast.ClassDef)
    has = [a.target.id for a in body.body if isinstance(a, ast.AnnAssign)]
    assert not set(fields.split()) - set(has)
    if name == "MatchResult":
        assert has[:4] == fields.split()[:4]


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("srt/plugins/__init__.py", r'GENERAL_PLUGINS_GROUP = "sglang\.srt\.plugins"'),
        ("srt/arg_groups/choices.py", r"add_attention_backend_choices = ATTENTION_BACKEND_CHOICES"),
        (f"{ATTENTION}/attention_registry.py", r"ATTENTION_BACKENDS = \{\}"),
        (f"{ATTENTION}/triton_backend.py", r"self\.max_kv_splits = "),
        (f"{ATTENTION}/triton_backend.py", r"self\.token_to_kv_pool = "),
        (f"{ATTENTION}/triton_backend.py", r"self\.req_to_token_pool = "),
        # Slot 0 is never allocated, and a pool's layer is [slots, H, D].
        ("srt/mem_cache/allocator/token.py", r"arange\(\s*1, self\.size \+ 1"),
        ("srt/mem_cache/memory_pool.py", r"class MHATokenToKVPool\(KVCache\):"),
        # init_load_back() returns None for "call again"; a promise is kept whole or not at all.
        ("srt/managers/schedule_policy.py", r"if loaded is None:\s*return AddReqResult\.OTHER"),
        ("srt/managers/schedule_policy.py", r"req\.kv\.cache_protected_len = req\.prefix_len"),
        # A request with a row reads its prefix there, not in the tree.
        ("srt/mem_cache/allocation.py", r"if req\.kv\.holds_kv:\s*row = "),
        ("srt/managers/schedule_batch.py", r"self\.multimodal_inputs: "),
        ("srt/managers/schedule_batch.py", r"self\.positional_embed_overrides = "),
        ("srt/managers/schedule_batch.py", r"self\.cache_salt = "),
        ("srt/managers/schedule_batch.py", r"self\.lora_id = "),
        ("srt/managers/schedule_batch.py", r"self\.beam_group = "),
        ("srt/model_executor/model_runner.py", r"self\.decode_attn_backend = "),
        ("srt/runtime_context.py", r"def get_disagg\("),
        ("srt/arg_groups/kv_shard_hook.py", r"cfg\.disaggregation_mode != "),
        ("srt/sampling/sampling_params.py", r"custom_params: "),
    ],
)
def test_the_source_says_so(path: str, pattern: str) -> None:
    assert re.search(pattern, source(path)), f"{path}: {pattern}"
