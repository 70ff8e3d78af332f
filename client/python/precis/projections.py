"""Output projections of a model in the service's form, from arrays or the model's own files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .arrays import heads_in
from .errors import InvalidArgument
from .extras import INSTALL_HF
from .model import ModelSpec

Projections = Sequence[Any] | str | os.PathLike[str]

_WEIGHT = re.compile(r"(?:^|\.)layers\.(\d+)\.self_attn\.o_proj\.weight$")


def projections_in(o_proj: Projections, spec: ModelSpec) -> list[Any]:
    """The projection of every layer, [num_q_heads, head_dim, hidden size], for _core.

    Args:
        o_proj: arrays of that shape; or a safetensors file of the model, or a folder of them.

    Raises:
        InvalidArgument: not an array, no such file, or a layer that no file has.
    """
    if isinstance(o_proj, str | os.PathLike):
        return _of_files(Path(o_proj), spec)
    if len(o_proj) != spec.num_layers:
        raise InvalidArgument(f"o_proj has {len(o_proj)} layers, the model has {spec.num_layers}")
    return [heads_in(layer, f"o_proj of layer {index}") for index, layer in enumerate(o_proj)]


def _of_files(path: Path, spec: ModelSpec) -> list[Any]:
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise InvalidArgument(
            f"o_proj: {path} is neither a safetensors file nor a folder of such files"
        )
    try:
        # Through PyTorch, as NumPy has no bf16.
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise InvalidArgument(
            f"o_proj: reading safetensors files needs more packages: {INSTALL_HF}"
        ) from None
    found: dict[int, Any] = {}
    for file in files:
        try:
            with safe_open(file, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118  # It is no dict.
                    if match := _WEIGHT.search(name):
                        weight = tensors.get_tensor(name)
                        found[int(match[1])] = _by_head(weight, spec, f"{file.name}: {name}")
        except SafetensorError as error:
            raise InvalidArgument(f"o_proj: {file}: {error}") from None
    missing = sorted(set(range(spec.num_layers)) - found.keys())
    if missing or len(found) != spec.num_layers:
        raise InvalidArgument(
            f"o_proj: {path} has the projections of {len(found)} layers, the model has "
            f"{spec.num_layers}" + (f"; the first missing is layer {missing[0]}" if missing else "")
        )
    return [found[layer] for layer in range(spec.num_layers)]


def _by_head(weight: Any, spec: ModelSpec, where: str) -> Any:
    """[hidden size, num_q_heads * head_dim] of Linear -> [num_q_heads, head_dim, hidden size]."""
    columns = spec.num_q_heads * spec.head_dim
    if weight.ndim != 2 or weight.shape[1] != columns:
        raise InvalidArgument(
            f"o_proj: {where} is {list(weight.shape)}, must be [hidden size, {columns}]"
        )
    return weight.T.reshape(spec.num_q_heads, spec.head_dim, -1).contiguous()
