"""Descriptions of models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from . import _core
from .arguments import refuse_wrong
from .arrays import count_in
from .errors import InvalidArgument

_SHORT = {
    "bfloat16": "bf16",
    "float16": "f16",
    "float32": "f32",
    "float8_e4m3fn": "f8_e4m3",
}


def dtype_name(dtype: str) -> str:
    """The store's name of a dtype: "f32" for "float32", the name in NumPy and PyTorch."""
    return _SHORT.get(dtype, dtype) if isinstance(dtype, str) else dtype


def _windows(windows: Sequence[int]) -> tuple[int, ...]:
    if isinstance(windows, (str, bytes)) or not isinstance(windows, Sequence):
        raise InvalidArgument(f"windows: {windows!r}, must be a list of one number for each layer")
    return tuple(count_in(window, "windows", 2**32 - 1) for window in windows)


@dataclass(frozen=True)
class ModelSpec:
    """A model as the store identifies it; its fingerprint is the SHA-256 of all fields.

    Attributes:
        name: for example "HuggingFaceTB/SmolLM2-135M-Instruct".
        num_layers, num_q_heads, num_kv_heads, head_dim: the shape of its KV cache.
        dtype: "bf16", "f16", "f32" or "f8_e4m3", of K, V and queries as they are pushed and stored;
            the names of NumPy and PyTorch are accepted as well.
        revision: free text that tells weights apart; another revision is another model.
        rope_theta, rope_scaling: RoPE's base, and its scaling as canonical JSON ("" for none). The
            service refuses a rope_type that Transformers does not have, and a factor of 0 or less.
        block_tokens: tokens in one block of a path's digest.
        windows: for each layer, how many tokens a query sees, itself included, 0 for all; () if
            every layer sees all. A layer keeps nothing of a segment that queries after it do not
            see, so such a segment is matched whole or not at all.
    """

    name: str
    num_layers: int
    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    dtype: Literal[
        "bf16", "f16", "f32", "f8_e4m3", "bfloat16", "float16", "float32", "float8_e4m3fn"
    ] = "bf16"
    revision: str = ""
    rope_theta: float = 10000.0
    rope_scaling: str = ""
    block_tokens: int = 64
    windows: Sequence[int] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        object.__setattr__(self, "windows", _windows(self.windows))

    def to_core(self) -> Any:
        """The form that the extension module takes."""
        values = {
            f.name: count_in(getattr(self, f.name), f.name, 2**32 - 1)
            if f.type == "int"
            else getattr(self, f.name)
            for f in fields(self)
        }
        try:
            return _core.ModelSpec(**values)
        except TypeError as error:
            refuse_wrong(ModelSpec, (), values, error)
            raise

    @property
    def fingerprint(self) -> str:
        """The SHA-256 by which a service identifies the model, in hex."""
        return _core.fingerprint(self.to_core())

    @classmethod
    def from_core(cls, spec: Any) -> ModelSpec:
        """Made from the extension module's struct."""
        values = {f.name: getattr(spec, f.name) for f in fields(cls)}
        return cls(**values | {"windows": spec.windows.ravel().tolist()})


@dataclass(frozen=True)
class Model:
    """A registered model, named in puts and lookups. Made by Cache.register_model.

    Attributes:
        spec: the registered spec.
        fingerprint: SHA-256 of the spec, in hex.
        adapter: a LoRA adapter or similar; two adapters share no paths.
    """

    spec: ModelSpec
    fingerprint: str
    adapter: str = ""
    core: Any = field(default=None, repr=False, compare=False)

    def with_adapter(self, adapter: str) -> Model:
        """The same model under another adapter; makes no request."""
        return Model(self.spec, self.fingerprint, adapter, self.core.with_adapter(adapter))


def profile_for(profile: str, model: Model | ModelSpec) -> str:
    """A profile's JSON with the model's fingerprint.

    The profile may be of the same weights under another name, revision or dtype.

    Raises:
        InvalidArgument: it is not a JSON object.
    """
    try:
        content = json.loads(profile)
    except json.JSONDecodeError as error:
        raise InvalidArgument(f"profile: {error}") from None
    if not isinstance(content, dict):
        raise InvalidArgument("profile is not a JSON object")
    return json.dumps(content | {"model": model.fingerprint})
