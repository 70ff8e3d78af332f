"""A put in progress: the same segment for any pieces, within the memory that it asked for."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from conftest import SEED
from kv import put_all, random_layers, same_entries, toy_spec

import precis

RECIPES = [
    "lagkv(lag=16)",
    "localkv(lag=16)",
    "l2_recursive(lag=16)",
    "ada_keydiff",
    "snapkv(window=8)",
    "cake(window=8)",
    "lava(window=8)",
    "external(heads=flat, layers=global_flat)",
]


def pieces_of(draw: np.random.Generator, heads: int, tokens: int) -> list[tuple[slice, slice]]:
    """Random ranges of heads and tokens that make up a layer."""
    pieces = []
    cuts = sorted({0, heads, *draw.integers(1, heads, 1).tolist()})
    for first, last in pairwise(cuts):
        rows = sorted({0, tokens, *draw.integers(1, tokens, draw.integers(0, 6)).tolist()})
        pieces += [(slice(first, last), slice(begin, end)) for begin, end in pairwise(rows)]
    return pieces


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_put_in_any_pieces_is_the_put_of_whole_layers(cache, model, recipe):
    draw = np.random.default_rng(SEED)
    spec = model.spec
    group = spec.num_q_heads // spec.num_kv_heads
    for round_ in range(4):
        tokens = range(1000 * round_, 1000 * round_ + int(draw.integers(30, 130)))
        n = len(tokens)
        layers = [
            {
                "keys": keys,
                "values": values,
                "queries": draw.standard_normal((spec.num_q_heads, 8, spec.head_dim), np.float32),
                "scores": draw.standard_normal((spec.num_kv_heads, n), np.float32),
            }
            for keys, values in random_layers(spec, n, seed=round_)
        ]
        pushes = [
            (index, *piece)
            for index in range(spec.num_layers)
            for piece in pieces_of(draw, spec.num_kv_heads, n)
        ]
        observed = set()
        with cache.begin_put(model, tokens, recipe, keep=0.4) as put:
            for index, heads, rows in draw.permutation(np.array(pushes, dtype=object)):
                layer = layers[index]
                more = {}
                if "external" in recipe:
                    more["scores"] = layer["scores"][heads, rows]
                elif "window" in recipe and (index, heads.start) not in observed:
                    observed.add((index, heads.start))
                    more["queries"] = layer["queries"][group * heads.start : group * heads.stop]
                put.layer(
                    index,
                    layer["keys"][heads, rows],
                    layer["values"][heads, rows],
                    **more,
                    head_begin=heads.start,
                    token_begin=rows.start,
                    wait=bool(draw.integers(0, 2)),
                )
            put.commit()
        prefix = cache.get(cache.lookup(model, tokens))
        assert same_entries(prefix, precis.compress(spec, layers, recipe, 0.4))


@pytest.mark.parametrize("layers", ["uniform", "entropy", "global_flat"])
def test_a_put_gets_by_with_the_memory_that_it_says_it_needs(tmp_path, layers):
    """Layers that compete shrink as others come. The freed memory must be usable for the others."""
    spec = precis.ModelSpec("staged", 48, 2, 2, 128, "f32")
    n = 700
    draw = np.random.default_rng(SEED)
    pushed = [
        {"keys": k, "values": v, "scores": draw.random((2, n), np.float32)}
        for k, v in random_layers(spec, n)
    ]
    recipe = f"external(heads=flat, layers={layers})"
    with precis.open(tmp_path / "small", memory_bytes=16 << 20) as cache:
        model = cache.register_model(spec)
        with pytest.raises(precis.OutOfSpace, match="the put needs") as refusal:
            cache.begin_put(model, range(n), recipe, keep=0.25)
    needed = int(re.search(r"needs (\d+) B", str(refusal.value))[1])
    assert needed < 0.35 * 48 * 2 * 2 * n * 128 * 4
    expected = precis.compress(spec, pushed, recipe, 0.25)
    for name, order, wait in (
        ("ascending", range(48), True),
        ("descending", range(47, -1, -1), True),
        ("mixed", draw.permutation(48).tolist(), True),
        ("ahead", range(48), False),
    ):
        with precis.open(tmp_path / name, memory_bytes=needed) as cache:
            model = cache.register_model(spec)
            with cache.begin_put(model, range(n), recipe, keep=0.25) as put:
                for index in order:
                    put.layer(index, **pushed[index], wait=wait)
                put.commit("memory")
            assert same_entries(cache.get(cache.lookup(model, range(n))), expected)


def test_a_put_that_needs_projections_gets_by_with_the_memory_that_it_says_it_needs(tmp_path):
    """Projections lie among the put's records. Their freed memory must leave no hole."""
    spec = precis.ModelSpec("weighed", 24, 4, 2, 128, "f32")
    n, recipe = 1500, "defensivekv(layers=global_flat, window=8)"
    draw = np.random.default_rng(SEED)
    o_proj = [draw.standard_normal((4, 128, 1024), np.float32) for _ in range(24)]
    pushed = [
        {"keys": k, "values": v, "queries": draw.standard_normal((4, 8, 128), np.float32)}
        for k, v in random_layers(spec, n)
    ]
    with precis.open(tmp_path / "small", memory_bytes=16 << 20) as cache:
        model = cache.register_model(spec, o_proj=o_proj)
        with pytest.raises(precis.OutOfSpace, match="the put needs") as refusal:
            cache.begin_put(model, range(n), recipe, keep=0.4)
    # Observation queries need further memory.
    needed = int(re.search(r"needs (\d+) B", str(refusal.value))[1]) + (64 << 10)
    expected = precis.compress(spec, pushed, recipe, 0.4, o_proj=o_proj)
    with precis.open(tmp_path / "enough", memory_bytes=needed) as cache:
        model = cache.register_model(spec, o_proj=o_proj)
        with cache.begin_put(model, range(n), recipe, keep=0.4) as put:
            for index in range(24):
                put.layer(index, **pushed[index])
            put.commit("memory")
        assert same_entries(cache.get(cache.lookup(model, range(n))), expected)


def test_a_trim_takes_memory_for_what_it_leaves_and_one_layer(tmp_path):
    spec, tokens = toy_spec(num_layers=12), range(8000)
    layers = random_layers(spec, len(tokens))
    with precis.open(tmp_path / "cache", memory_bytes=64 << 20) as cache:
        model = cache.register_model(spec)
        segment = put_all(cache, model, tokens, layers, recipe="knorm", keep=1.0)
    assert segment.bytes > 26_000_000
    with precis.open(tmp_path / "cache", memory_bytes=16 << 20) as cache:
        model = cache.register_model(spec)
        with pytest.raises(precis.Error, match="raise memory_bytes"):
            cache.trim(segment, keep=0.9)
        assert cache.segment(segment.id).trimmed is None
        assert cache.trim(segment, keep=0.3).bytes < segment.bytes / 3
        assert cache.stats()["precis_staged_bytes"] == 0
        prefix = cache.get(cache.lookup(model, tokens))
        assert same_entries(prefix, precis.compress(spec, layers, recipe="knorm", keep=0.3))
