"""Unsupported engines: they get the reason when they start."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import batches
import pytest
import torch
from precis_vllm import BACKENDS
from precis_vllm import register as register_plug_in
from precis_vllm.attention import RaggedImpl
from precis_vllm.connector import PrecisConnector
from precis_vllm.model import check_engine
from vllm.v1.attention.backends.registry import AttentionBackendEnum
from vllm.v1.kv_cache_layout import KVCacheLayout

SCHEME = SimpleNamespace(quantization_config={"kv_cache_scheme": {"num_bits": 8}})


def engine(**changed: Any) -> SimpleNamespace:
    """A supported configuration, with `changed` values in any of its parts."""
    parts: dict[str, dict[str, Any]] = {
        "model_config": {
            "dtype": torch.bfloat16, "use_mla": False, "is_mm_prefix_lm": False,
            "is_diffusion": False, "rswa_window": None, "hf_config": None,
        },
        "cache_config": {
            "cache_dtype": "auto", "block_size": batches.SIZE, "kv_cache_dtype_skip_layers": [],
        },
        "parallel_config": {
            "pipeline_parallel_size": 1, "decode_context_parallel_size": 1,
            "prefill_context_parallel_size": 1,
        },
        "scheduler_config": {"max_num_seqs": 256},
    }  # fmt: skip
    for part in parts.values():
        part.update((name, value) for name, value in changed.items() if name in part)
    made = {name: SimpleNamespace(**part) for name, part in parts.items()}
    return SimpleNamespace(**made, speculative_config=changed.get("speculative_config"))


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"cache_dtype": "fp8_e5m2"}, "--kv-cache-dtype fp8_e5m2: choose the model's own dtype"),
        ({"cache_dtype": "float16"}, "--kv-cache-dtype float16"),
        ({"kv_cache_dtype_skip_layers": ["0"]}, "--kv-cache-dtype-skip-layers"),
        ({"hf_config": SCHEME}, "fp8 that only the checkpoint asks for: set --kv-cache-dtype fp8"),
        ({"use_mla": True}, "MLA"),
        ({"is_mm_prefix_lm": True}, "attention that is not causal"),
        ({"is_diffusion": True}, "attention that is not causal"),
        ({"rswa_window": 64}, "attention that is not causal"),
        ({"pipeline_parallel_size": 2}, "pipeline parallelism"),
        ({"decode_context_parallel_size": 2}, "decode context parallelism"),
        ({"prefill_context_parallel_size": 2}, "prefill context parallelism"),
        ({"speculative_config": SimpleNamespace(method="eagle")}, "speculative decoding"),
    ],
)
def test_what_an_engine_has_that_is_not_supported_is_refused(
    changed: dict[str, Any], what: str
) -> None:
    with pytest.raises(ValueError, match=f"PrecisConnector does not support {what}"):
        check_engine(engine(**changed), None)


@pytest.mark.parametrize("dtype", ["auto", "bfloat16", "fp8", "fp8_e4m3"])
def test_the_models_own_dtype_and_f8_are_not_refused(dtype: str) -> None:
    check_engine(engine(cache_dtype=dtype), None)
    if dtype != "auto":
        check_engine(engine(cache_dtype=dtype, hf_config=SCHEME), None)


class Impl(RaggedImpl):
    head_size = 32

    def __init__(self) -> None:
        pass


def register(impl: Any, caches: Any = None, scale: Any = None, **changed: Any) -> Any:
    """The connector's view of an engine's caches."""
    caches = caches or batches.caches(2, 32, torch.float32)
    config = engine(**changed)
    layers = {name: SimpleNamespace(impl=impl, _k_scale=scale) for name in caches}
    config.compilation_config = SimpleNamespace(static_forward_context=layers)
    made = PrecisConnector.__new__(PrecisConnector)
    made._vllm_config, made.worker = config, SimpleNamespace(pages=None)
    made.register_kv_caches(caches)
    return made.worker.pages


def test_caches_are_taken_as_the_backend_lays_out_their_rows() -> None:
    pages = register(Impl())
    assert pages.store.values.storage_offset() == 32  # keys and values side by side


def test_a_backend_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="does not support the backend of SimpleNamespace"):
        register(SimpleNamespace())


def test_scales_of_each_head_are_refused() -> None:
    assert register(Impl(), scale=torch.tensor(2.0))
    with pytest.raises(ValueError, match="scales of a KV cache in fp8 for each head"):
        register(Impl(), scale=torch.tensor([1.0, 2.0]))


def test_layers_of_several_dtypes_are_refused() -> None:
    caches = batches.caches(2, 32, torch.float32)
    last = list(caches)[-1]
    caches[last] = caches[last].view(torch.int32)
    with pytest.raises(ValueError, match=r"of torch.int32, the first layer's .* of torch.float32"):
        register(Impl(), caches)


def test_blocks_that_a_backend_splits_are_refused() -> None:
    with pytest.raises(ValueError, match=r"blocks of 256 tokens into pages of 32.*--block-size 32"):
        register(Impl(), block_size=256)


def test_more_sequences_than_the_kernels_take_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Impl, "max_sequences", 600)
    register(Impl(), max_num_seqs=300)
    with pytest.raises(ValueError, match=r"301 requests of 2 KV heads are 602.*take 600"):
        register(Impl(), max_num_seqs=301)


def test_backends_are_registered_under_vllms_names() -> None:
    register_plug_in()
    for name in BACKENDS:
        made = AttentionBackendEnum[name].get_class()
        assert made.get_name() == name and issubclass(made.get_impl_cls(), RaggedImpl)


def test_the_layout_is_one_of_vllms_and_graphs_leave_attention_out() -> None:
    assert KVCacheLayout[PrecisConnector.get_required_kvcache_layout(None)].is_block_contiguous
    assert PrecisConnector.requires_piecewise_for_cudagraph({})
