"""What a Transformers model is to the store: its :class:`precis.ModelSpec`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from ..model import ModelSpec

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

DTYPE_NAMES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}
TORCH_DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}


def text_config(hf_model: PreTrainedModel) -> PretrainedConfig:
    """The configuration of the decoder, also where it is one part of a larger model."""
    return hf_model.config.get_text_config(decoder=True)


def head_dim(config: PretrainedConfig) -> int:
    """Elements of one head, which some configurations leave to be worked out."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def require_full_attention(config: PretrainedConfig) -> None:
    """Refuses what a set of kept entries cannot express.

    Raises:
        ValueError: a layer attends to a sliding window, to chunks, or not by softmax attention.
    """
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise ValueError(
            f"{config.model_type}: layer_types has {sorted(kinds)}; precis.hf serves models whose "
            "layers are all 'full_attention'"
        )
    if getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        raise ValueError(
            f"{config.model_type}: sliding_window is {config.sliding_window}; precis.hf serves "
            "models without one"
        )


def model_spec(
    hf_model: PreTrainedModel,
    name: str | None = None,
    revision: str | None = None,
    dtype: str | None = None,
    block_tokens: int = 64,
) -> ModelSpec:
    """Describes a Transformers model to the store.

    Args:
        hf_model: a decoder of the Llama shape (grouped-query attention, RoPE, full attention).
        name: defaults to the name or path it was loaded from.
        revision: of the weights; other weights of the same name need another revision.
        dtype: "bf16", "f16" or "f32", of K, V and queries in the store; the model's by default.
        block_tokens: tokens in one block of the path's digest.

    Raises:
        ValueError: the model is of a kind that precis.hf cannot serve.
    """
    config = text_config(hf_model)
    require_full_attention(config)
    if dtype is None:
        if hf_model.dtype not in DTYPE_NAMES:
            raise ValueError(f"dtype: the model is {hf_model.dtype}; name one of bf16, f16, f32")
        dtype = DTYPE_NAMES[hf_model.dtype]
    rope: dict[str, Any] = dict(getattr(config, "rope_parameters", None) or {})
    theta = float(rope.pop("rope_theta", 10000.0))
    if rope.get("rope_type", "default") == "default":
        rope.pop("rope_type", None)
    return ModelSpec(
        name=name or config.name_or_path or hf_model.config.name_or_path or config.model_type,
        revision=revision or getattr(config, "_commit_hash", None) or "",
        num_layers=config.num_hidden_layers,
        num_q_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=head_dim(config),
        dtype=dtype,
        rope_theta=theta,
        rope_scaling=json.dumps(rope, sort_keys=True, separators=(",", ":")) if rope else "",
        block_tokens=block_tokens,
    )
