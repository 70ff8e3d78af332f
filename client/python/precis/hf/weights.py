"""The revision of a model's weights: a digest, so that other weights are another model.

It covers all bytes of the weights in memory, so merging, tuning or replacing weights changes it,
and no file has to be trusted. Files are read only for parameters that are not whole in memory:
offloaded parameters, and parameters that are split over ranks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from .spec import text_config
from .weight_files import file_marks
from .weight_marks import marks_of

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

# Settings that affect neither K nor V, or are covered elsewhere: RoPE in the spec, the dtype with
# each weight. All other settings are part of the digest, because a list of the settings that matter
# would never be complete.
_WITHOUT_EFFECT = {
    "_name_or_path",
    "architectures",
    "bos_token_id",
    "chunk_size_feed_forward",
    "dtype",
    "eos_token_id",
    "id2label",
    "initializer_range",
    "label2id",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "pad_token_id",
    "problem_type",
    "return_dict",
    "rope_parameters",
    "router_aux_loss_coef",
    "torch_dtype",
    "transformers_version",
    "use_cache",
}

# The attributes of adapter layers (PEFT) that say how they are applied.
_ADAPTER = ("active_adapters", "merged_adapters", "disable_adapters", "scaling")


def weights_revision(hf_model: PreTrainedModel) -> str:
    """A digest, "weights-" and 32 hex digits, the same for the same weights from any source.

    It also covers the dtype of the loaded weights, and adapters and how they are applied.

    Raises:
        ValueError: a parameter is neither whole in memory nor in the files of the model.
    """
    settings = (*_setting_lines(text_config(hf_model)), *_adapter_lines(hf_model))
    return _revision((*sorted(_weight_lines(hf_model)), *settings))


def files_revision(config: PretrainedConfig, decoder: PretrainedConfig, dtype: torch.dtype) -> str:
    """The same revision as weights_revision() for a model loaded unchanged from its files.

    For engines, which hold weights fused or split.

    Args:
        config: of the whole model, with name_or_path; decoder: of its decoder.
        dtype: that the model is loaded in.

    Raises:
        ValueError: the files are not found.
    """
    marks = file_marks(config, dtype)
    if not marks:
        raise ValueError(
            f"revision: the safetensors files of {config.name_or_path!r} are not at hand; name the "
            "revision of the weights"
        )
    if getattr(decoder, "tie_word_embeddings", False):
        marks.pop("lm_head.weight", None)  # some files have it twice
    lines = sorted(f"{name} {dtype} {mark}" for name, mark in marks.items())
    return _revision((*lines, *_setting_lines(decoder)))


def _revision(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode() + b"\n")
    return f"weights-{digest.hexdigest()[:32]}"


def _weight_lines(hf_model: PreTrainedModel) -> Iterator[str]:
    tensors = dict(_tensors(hf_model))
    whole = [(name, tensor) for name, tensor in tensors.items() if _is_whole(tensor)]
    for name, mark in marks_of(whole):
        yield f"{name} {tensors[name].dtype} {mark}"
    absent = {name: tensor.dtype for name, tensor in tensors.items() if not _is_whole(tensor)}
    if not absent:
        return
    marks = file_marks(hf_model.config)
    tied = getattr(hf_model, "all_tied_weights_keys", None) or {}  # {name: tied to}
    for name, dtype in absent.items():
        if name not in marks and name in tied:
            continue  # offloaded separately from the tensor it is tied to, which has a line
        if name not in marks:
            raise ValueError(
                f"revision: {name} and {len(absent) - 1} more parameters are not whole in this "
                "process's memory, and the model's safetensors files are not at hand or have no "
                "such name; name the revision of the weights"
            )
        yield f"{name} {dtype} {marks[name]}"


def _tensors(hf_model: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and persistent buffers; tied parameters once."""
    yield from hf_model.named_parameters()
    for prefix, module in hf_model.named_modules():
        for name, buffer in module.named_buffers(prefix, recurse=False):
            if name.rpartition(".")[2] not in module._non_persistent_buffers_set:
                yield name, buffer


def _is_whole(tensor: torch.Tensor) -> bool:
    return not tensor.is_meta and not hasattr(tensor, "full_tensor")  # a DTensor has that


def _setting_lines(config: PretrainedConfig) -> Iterable[str]:
    for name, value in sorted(config.to_dict().items()):
        # Newer releases of Transformers set None for settings that a model does not use.
        if name not in _WITHOUT_EFFECT and value is not None:
            yield f"{name} {_text(value)}"


def _adapter_lines(hf_model: PreTrainedModel) -> Iterable[str]:
    for name, module in hf_model.named_modules():
        if hasattr(module, "active_adapters") and hasattr(module, "scaling"):
            for setting in _ADAPTER:
                yield f"{name} {setting} {_text(getattr(module, setting, None))}"


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
