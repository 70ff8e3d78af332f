"""The non-public names of vLLM that the plug-in uses: the test fails if one is gone."""

from __future__ import annotations

import dataclasses
import inspect
from unittest.mock import create_autospec

import pytest
from precis_vllm.connector import PrecisConnector
from precis_vllm.scheduler import Scheduler
from precis_vllm.worker import Worker
from vllm import _custom_ops as ops
from vllm.config import ModelConfig
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import base
from vllm.v1.attention.backends import cpu_attn, flash_attn, triton_attn
from vllm.v1.core import block_pool, single_type_kv_cache_manager
from vllm.v1.core.sched import output, scheduler
from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry
from vllm.v1.request import Request

Manager = single_type_kv_cache_manager.FullAttentionManager


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (block_pool.BlockPool, "_insert_block_hash get_cached_block get_new_blocks touch"),
        (Manager, "_get_num_evictable_blocks get_num_blocks_to_allocate cache_blocks"),
        (Manager, "add_local_computed_blocks allocate_external_computed_blocks"),
        (KVConnectorFactory, "_registry register_connector"),
        (KVCacheSpecRegistry, "register check_kv_cache_spec_registry"),
        (base.KVConnectorBase_V1, "bind_kv_cache_manager on_new_request handle_preemptions"),
        (
            base.KVConnectorBase_V1,
            "get_transfer_results update_connector_output build_prom_metrics",
        ),
        (cpu_attn.CPUAttentionBackend, "customize_spec get_impl_cls"),
        (ops, "cpu_attn_get_scheduler_metadata cpu_attention_with_kv_cache"),
        (ops, "cpu_attn_reshape_and_cache"),
        (base.KVConnectorBase_V1, "get_required_kvcache_layout requires_piecewise_for_cudagraph"),
        (flash_attn.FlashAttentionBackend, "customize_spec get_impl_cls"),
        (triton_attn.TritonAttentionBackend, "customize_spec get_impl_cls"),
        (ModelConfig, "is_mm_prefix_lm is_diffusion rswa_window use_mla"),
    ],
)
def test_it_has(owner: object, names: str) -> None:
    assert not [name for name in names.split() if not hasattr(owner, name)]


@pytest.mark.parametrize(
    "name",
    [
        "on_new_request",
        "get_num_new_matched_tokens",
        "update_state_after_alloc",
        "build_connector_meta",
        "update_connector_output",
        "request_finished",
        "request_finished_all_groups",
        "start_load_kv",
        "wait_for_save",
        "handle_preemptions",
    ],
)
def test_a_half_of_the_connector_takes_what_vllm_gives(name: str) -> None:
    made = PrecisConnector.__new__(PrecisConnector)
    made.scheduler = create_autospec(Scheduler, instance=True)
    made.worker = create_autospec(Worker, instance=True)
    (interface,) = (getattr(c, name) for c in PrecisConnector.__bases__ if hasattr(c, name))
    parameters = [*inspect.signature(interface).parameters.values()][1:]
    given = [object() for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    getattr(made, name)(*given)
    (call,) = made.scheduler.method_calls + made.worker.method_calls
    assert list(call.args) == given


@pytest.mark.parametrize(
    "metadata",
    [
        cpu_attn.CPUAttentionMetadata,
        flash_attn.FlashAttentionMetadata,
        triton_attn.TritonAttentionMetadata,
    ],
)
def test_metadata_of_each_backend_have_what_is_made_anew(metadata: type) -> None:
    fields = {field.name for field in dataclasses.fields(metadata)}
    assert fields >= {
        "num_actual_tokens", "max_query_len", "query_start_loc", "max_seq_len", "seq_lens",
        "block_table", "scheduler_metadata", "causal",
    }  # fmt: skip


def test_a_manager_keeps_its_requests_as_the_plug_in_reads_them() -> None:
    source = inspect.getsource(single_type_kv_cache_manager.SingleTypeKVCacheManager.__init__)
    for name in ("req_to_blocks", "num_cached_block", "_null_block", "enable_caching"):
        assert f"self.{name}" in source


def test_a_block_is_found_by_a_hash_of_any_kind() -> None:
    names = inspect.signature(block_pool.BlockPool._insert_block_hash).parameters
    assert list(names)[1:] == ["block_hash_with_group_id", "block", "num_tokens"]


def test_requests_and_steps_have_what_the_scheduler_half_reads() -> None:
    source = inspect.getsource(Request)
    for name in (
        "kv_transfer_params",
        "mm_features",
        "prompt_embeds",
        "cache_salt",
        "trace_headers",
    ):
        assert f"self.{name}" in source
    for name in ("skip_reading_prefix_cache", "all_token_ids", "num_prompt_tokens"):
        assert name in source
    fields = output.SchedulerOutput.__dataclass_fields__
    for name in ("preempted_req_ids", "scheduled_new_reqs", "num_scheduled_tokens"):
        assert name in fields


def test_the_policy_for_failed_loads_is_read_after_the_connector_is_made() -> None:
    source = inspect.getsource(scheduler.Scheduler.__init__)
    assert source.index("create_connector(") < source.index("kv_load_failure_policy")
