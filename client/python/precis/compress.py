"""Compression of arrays in memory by the kernels alone, without a service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _core
from .arguments import names_arguments
from .arrays import count_in, exported, floats_in, heads_in, rows_out, statistics_in
from .budget import Keep, to_pair
from .errors import InvalidArgument
from .model import Model, ModelSpec

_LAYER_FIELDS = (
    "keys",
    "values",
    "queries",
    "lse",
    "scores",
    "query_mean",
    "query_covariance",
)


@dataclass(frozen=True, eq=False)
class Kept:
    """The result of a compression; every list is indexed ``[layer][head]``, in retention order.

    Attributes:
        plan: entries per (layer, KV head), uint32 [num_layers, num_kv_heads].
        positions: uint32 [count]. seats: uint32 [count], from 1. scores: float32 [count].
        keys, values: [count, head_dim].
        bytes: size of the head records that hold all this.
    """

    plan: np.ndarray
    positions: list[list[np.ndarray]] = field(repr=False)
    seats: list[list[np.ndarray]] = field(repr=False)
    scores: list[list[np.ndarray]] = field(repr=False)
    keys: list[list[np.ndarray]] = field(repr=False)
    values: list[list[np.ndarray]] = field(repr=False)
    bytes: int


@names_arguments
def compress(
    model: ModelSpec | Model,
    layers: Sequence[Any],
    recipe: str = "global_kvdiff",
    keep: Keep = 1.0,
    o_proj: Sequence[Any] | None = None,
    *,
    profile: str | None = None,
    begin: int = 0,
    threads: int = 0,
) -> Kept:
    """Compresses the KV of one segment, as a put would.

    Args:
        model: a spec, or a registered model.
        layers: for each layer (keys, values), or a dict with these and queries, lse, scores,
            query_mean and query_covariance, in the shapes of Put.layer.
        recipe, keep: as in Cache.begin_put.
        o_proj: the output projection [num_q_heads, head_dim, hidden size] of each layer, for
            recipes that use the norms of projected values (criticalkv, defensivekv).
        profile: JSON of a profile, for recipes that take one (global_kvprobe, lukv, headkv).
        begin: the absolute position of the segment's first token.
        threads: 0 for one per core.

    Raises:
        InvalidArgument: naming the layer and the field.
    """
    spec = model.spec if isinstance(model, Model) else model
    if o_proj is not None and len(o_proj) != len(layers):
        raise InvalidArgument(
            f"o_proj: has {len(o_proj)} layers, must have {len(layers)} as `layers`"
        )
    core = _core.compress(
        spec.to_core(),
        [
            _layer_in(layer, None if o_proj is None else o_proj[index], index)
            for index, layer in enumerate(layers)
        ],
        recipe,
        to_pair(keep),
        count_in(begin, "begin"),
        profile or "",
        count_in(threads, "threads"),
    )
    heads = [
        [core.head(layer, head) for head in range(spec.num_kv_heads)]
        for layer in range(spec.num_layers)
    ]
    positions, seats, scores, keys, values = (
        [[head[part] for head in layer] for layer in heads] for part in range(5)
    )
    return Kept(
        plan=np.array([[len(head) for head in layer] for layer in positions], dtype=np.uint32),
        positions=positions,
        seats=seats,
        scores=scores,
        keys=[[rows_out(head) for head in layer] for layer in keys],
        values=[[rows_out(head) for head in layer] for layer in values],
        bytes=core.bytes(),
    )


def _layer_in(layer: Any, o_proj: Any, index: int) -> Any:
    """One layer in the form that the extension module takes."""
    where = f"layer {index} "
    parts = (
        dict(layer) if isinstance(layer, Mapping) else dict(zip(_LAYER_FIELDS, layer, strict=False))
    )
    unknown = sorted(set(parts) - set(_LAYER_FIELDS))
    if unknown:
        raise InvalidArgument(
            f"{where}has unknown fields {unknown}; the fields are {list(_LAYER_FIELDS)}"
        )
    for name in ("keys", "values"):
        if parts.get(name) is None:
            raise InvalidArgument(f"{where}{name}: missing")
    keys = heads_in(parts["keys"], where + "keys")
    queries = parts.get("queries")
    if queries is not None:
        queries = heads_in(queries, where + "queries")
    observed = None if queries is None else tuple(queries.shape[:2])
    return _core.LayerArrays(
        exported(keys),
        exported(heads_in(parts["values"], where + "values")),
        exported(queries),
        floats_in(parts.get("lse"), where + "lse", observed),
        floats_in(parts.get("scores"), where + "scores", tuple(keys.shape[:2])),
        statistics_in(parts.get("query_mean"), where + "query_mean", 2),
        statistics_in(parts.get("query_covariance"), where + "query_covariance", 3),
        None if o_proj is None else exported(heads_in(o_proj, where + "o_proj")),
    )
