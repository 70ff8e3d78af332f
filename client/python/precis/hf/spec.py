"""The :class:`precis.ModelSpec` of a Transformers model."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, Literal

import torch

from ..model import ModelSpec, dtype_name

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

DTYPE_NAMES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}
TORCH_DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}


def text_config(hf_model: PreTrainedModel) -> PretrainedConfig:
    """The configuration of the decoder, even if it is one part of a larger model."""
    return hf_model.config.get_text_config(decoder=True)


def head_dim(config: PretrainedConfig) -> int:
    """Elements of one head; some configurations do not state it."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def attention_windows(config: PretrainedConfig) -> list[int | None]:
    """The sliding window of each layer in tokens, including the query's own; None: no window.

    Raises:
        ValueError: a layer attends to chunks, to later tokens, or not by softmax attention.
    """
    window = getattr(config, "sliding_window", None)
    if not getattr(config, "use_sliding_window", True):
        window = None
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        kinds = ["sliding_attention" if window else "full_attention"] * config.num_hidden_layers
    other = sorted(set(kinds) - {"full_attention", "sliding_attention"})
    if other:
        raise ValueError(
            f"{config.model_type}: layer_types has {other}; precis.hf serves models whose layers "
            "are all 'full_attention' or 'sliding_attention'"
        )
    if "sliding_attention" in kinds and not window:
        raise ValueError(
            f"{config.model_type}: layer_types has sliding_attention, but sliding_window is not set"
        )
    if getattr(config, "use_bidirectional_attention", False):
        raise ValueError(
            f"{config.model_type}: use_bidirectional_attention; precis.hf serves causal models"
        )
    return [window if kind == "sliding_attention" else None for kind in kinds]


def _rope(config: PretrainedConfig) -> tuple[float, str]:
    """RoPE's base, and its other parameters as canonical JSON ("" for none)."""
    rope: dict[str, Any] = dict(getattr(config, "rope_parameters", None) or {})
    if isinstance(whole := rope.get("full_attention"), dict):  # parameters for each kind of layer
        theta = whole.get("rope_theta")
        rope = {kind: rope[kind] for kind in sorted(set(config.layer_types))}
        rope["layer_types"] = list(config.layer_types)
    else:
        theta = rope.pop("rope_theta", None)
        if rope.get("rope_type", "default") == "default":
            rope.pop("rope_type", None)
    turned = getattr(config, "no_rope_layers", None)  # 1 if a layer has RoPE, 0 if not
    if turned and not all(turned):
        rope["rope_layers"] = [int(bool(layer)) for layer in turned]
    text = json.dumps(rope, sort_keys=True, separators=(",", ":")) if rope else ""
    return 10000.0 if theta is None else float(theta), text


def model_name(config: PretrainedConfig, default: str) -> str:
    """The hub repository that a model comes from; for other models the architecture, or `default`.

    Never a local path: the same weights must have one name at any path, and the store shows names
    to its operators.
    """
    source = config.name_or_path or ""
    if snapshot := re.search(r"(?:^|[/\\])models--([^/\\]+)[/\\]snapshots[/\\]", source):
        return snapshot[1].replace("--", "/", 1)
    of_hub = getattr(config, "_commit_hash", None) and re.fullmatch(r"[\w.-]+/[\w.-]+", source)
    if of_hub and not os.path.exists(source):
        return source
    return (config.architectures or [default])[0]


def model_spec(
    hf_model: PreTrainedModel,
    name: str | None = None,
    revision: str | None = None,
    dtype: Literal["bf16", "f16", "f32", "bfloat16", "float16", "float32"] | None = None,
    block_tokens: int = 64,
) -> ModelSpec:
    """Describes a Transformers model to the store.

    Args:
        hf_model: a decoder with grouped-query attention and RoPE, with full attention or a sliding
            window.
        name: by default that of model_name().
        revision: of the weights; other weights of the same name need another revision. By default a
            digest of all weights, which is computed once in this call: call model_spec() again
            after the weights were changed.
        dtype: "bf16", "f16" or "f32", of K, V and queries in the store; the model's by default.
        block_tokens: tokens in one block of the path's digest.

    Raises:
        ValueError: precis.hf cannot serve this kind of model, or its weights cannot be read and no
            `revision` is given.
    """
    config = text_config(hf_model)
    if dtype is None:
        if hf_model.dtype not in DTYPE_NAMES:
            raise ValueError(f"dtype: the model is {hf_model.dtype}; name one of bf16, f16, f32")
        dtype = DTYPE_NAMES[hf_model.dtype]
    if dtype_name(dtype) not in TORCH_DTYPES:
        raise ValueError(f"dtype: {dtype!r}, must be bf16, f16 or f32")
    if not revision:
        from .weights import weights_revision

        revision = weights_revision(hf_model)
    name = name or model_name(hf_model.config, type(hf_model).__name__)
    return _spec(config, name, revision, dtype, block_tokens)


def spec_of_files(
    config: PretrainedConfig,
    decoder: PretrainedConfig,
    dtype: str,
    name: str | None = None,
    revision: str | None = None,
) -> ModelSpec:
    """The ModelSpec that model_spec() would give, from a model's files, without loading the model.

    Args:
        config: of the whole model; its name_or_path says where the files are. decoder: the
            configuration of its decoder, for most models the same.
        dtype: the dtype in which the model is loaded, as PyTorch names it.
        name, revision: as for model_spec().

    Raises:
        ValueError: as model_spec().
    """
    short = dtype_name(dtype)
    if short not in TORCH_DTYPES:
        raise ValueError(f"dtype: {dtype!r}, must be bf16, f16 or f32")
    if not revision:
        from .weights import files_revision

        revision = files_revision(config, decoder, TORCH_DTYPES[short])
    return _spec(decoder, name or model_name(config, config.model_type), revision, short, 64)


def _spec(
    config: PretrainedConfig, name: str, revision: str, dtype: str, block_tokens: int
) -> ModelSpec:
    theta, scaling = _rope(config)
    windows = [window or 0 for window in attention_windows(config)]
    return ModelSpec(
        name=name,
        revision=revision,
        num_layers=config.num_hidden_layers,
        num_q_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=head_dim(config),
        dtype=dtype,
        rope_theta=theta,
        rope_scaling=scaling,
        block_tokens=block_tokens,
        windows=windows if any(windows) else (),
    )
