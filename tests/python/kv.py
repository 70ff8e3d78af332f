"""Small models and random KV for the tests."""

from __future__ import annotations

import numpy as np

import precis


def toy_spec(name: str = "toy", dtype: str = "f32", **shape: int) -> precis.ModelSpec:
    """3 layers, 4 query heads over 2 KV heads of 16 elements."""
    defaults = {"num_layers": 3, "num_q_heads": 4, "num_kv_heads": 2, "head_dim": 16}
    return precis.ModelSpec(name, dtype=dtype, **(defaults | shape))


def random_layers(
    spec: precis.ModelSpec, num_tokens: int, seed: int = 1
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Keys and values of every layer, [num_kv_heads, n, head_dim] in float32."""
    draw = np.random.default_rng(seed)
    shape = (spec.num_layers, 2, spec.num_kv_heads, num_tokens, spec.head_dim)
    return [(layer[0], layer[1]) for layer in draw.standard_normal(shape, dtype=np.float32)]


def toy_projections(spec: precis.ModelSpec, hidden: int = 24) -> list[np.ndarray]:
    """Random output projections of every layer, [num_q_heads, head_dim, hidden]."""
    draw = np.random.default_rng(8)
    shape = (spec.num_layers, spec.num_q_heads, spec.head_dim, hidden)
    return list(draw.standard_normal(shape, dtype=np.float32))


def toy_profile(spec: precis.ModelSpec, slowest: float = 0.4, scorer: str = "keydiff") -> dict:
    """Curves over a scorer of K and V; the heads of a toy model lose entries at different rates."""
    rates = np.array([[slowest, 0.8], [1.0, 1.0], [1.2, 2 - slowest]])
    percents = np.arange(1, 100)[:, None, None] / 100
    return {
        "version": 1,
        "name": "toy",
        "kind": "curves",
        "model": spec.fingerprint,
        "scorer": precis.canonical_recipe(f"{scorer}(sinks=4, recent=1)"),
        "sinks": 4,
        "recent": 1,
        "num_layers": spec.num_layers,
        "num_kv_heads": spec.num_kv_heads,
        "num_tokens": 400,
        "text_digest": "",
        "table": np.minimum(1, rates * percents).ravel().tolist(),
    }


def toy_probe(spec: precis.ModelSpec) -> dict:
    """Random coefficients of kvprobe for a toy model."""
    draw = np.random.default_rng(1)
    rows = 3 * spec.head_dim + 6
    return toy_profile(spec) | {
        "kind": "probe",
        "scorer": precis.canonical_recipe("kvprobe"),
        "table": (draw.normal(size=rows * spec.num_layers * spec.num_kv_heads) / 8).tolist(),
    }


def put_all(
    cache: precis.Cache,
    model: precis.Model,
    tokens,
    layers,
    durability: str = "wal",
    recipe: str | None = "global_kvdiff",
    **options,
) -> precis.Segment:
    """One put of whole layers; the recipe is precis.compress's default, not the service's."""
    with cache.begin_put(model, tokens, recipe=recipe, **options) as put:
        for index, (keys, values) in enumerate(layers):
            put.layer(index, keys, values)
        return put.commit(durability)


def same_entries(prefix: precis.Prefix, kept: precis.Kept) -> bool:
    """Whether a prefix of one segment has exactly a compression's entries, in the same order."""
    for layer, got in enumerate(prefix.layers):
        for head, entries in enumerate(got.heads):
            for name in ("positions", "seats", "scores", "keys", "values"):
                want = getattr(kept, name)[layer][head]
                if not np.array_equal(getattr(entries, name), want):
                    return False
    return True
