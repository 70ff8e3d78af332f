"""The engine's model in the store, and the check that the plug-in supports the engine."""

from __future__ import annotations

import dataclasses
from typing import Any

from precis import ModelSpec, engines

from .settings import Settings

F8 = ("fp8", "fp8_e4m3")  # vLLM's names for a KV cache in f8_e4m3


def model_spec(config: Any, settings: Settings) -> ModelSpec:
    """The ModelSpec of an engine's model, with the dtype of its KV cache.

    Raises:
        ValueError: as engines.model_spec().
    """
    spec = engines.model_spec(config.model_config, settings)
    in_f8 = config.cache_config.cache_dtype in F8
    return dataclasses.replace(spec, dtype="f8_e4m3") if in_f8 else spec


def asks_for_f8(model: Any) -> bool:
    """Whether the checkpoint has a scheme for the KV cache, which workers see, but no scheduler."""
    config = getattr(getattr(model, "hf_config", None), "quantization_config", None)
    return isinstance(config, dict) and config.get("kv_cache_scheme") is not None


def check_engine(config: Any, kv_cache_config: Any) -> None:
    """Checks that the plug-in supports an engine of this configuration.

    Raises:
        ValueError: naming its unsupported feature.
    """
    parallel, cache = config.parallel_config, config.cache_config
    groups = kv_cache_config.kv_cache_groups if kv_cache_config is not None else ()
    draft, model = config.speculative_config, config.model_config
    dtype = str(model.dtype).removeprefix("torch.")
    refused = [
        (
            draft is not None and draft.method not in ("ngram", "ngram_gpu", "suffix"),
            "speculative decoding with a draft model",
        ),
        (model.use_mla, "MLA, which has no K and V of heads"),
        (len(groups) > 1, "layers of several kinds (sliding windows, Mamba)"),
        (
            cache.cache_dtype not in ("auto", dtype, *F8),
            f"--kv-cache-dtype {cache.cache_dtype}: choose the model's own dtype or fp8_e4m3",
        ),
        (
            cache.cache_dtype == "auto" and asks_for_f8(model),
            "fp8 that only the checkpoint asks for: set --kv-cache-dtype fp8",
        ),
        (
            bool(getattr(cache, "kv_cache_dtype_skip_layers", None)),
            "--kv-cache-dtype-skip-layers: all layers need one dtype",
        ),
        (parallel.pipeline_parallel_size > 1, "pipeline parallelism"),
        (parallel.decode_context_parallel_size > 1, "decode context parallelism"),
        (parallel.prefill_context_parallel_size > 1, "prefill context parallelism"),
        (
            model.is_mm_prefix_lm or model.is_diffusion or model.rswa_window is not None,
            "attention that is not causal over all earlier tokens",
        ),
    ]
    for is_so, what in refused:
        if is_so:
            raise ValueError(f"PrecisConnector does not support {what}")
