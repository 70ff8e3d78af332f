"""With output projections and with profiles, a service keeps what compress() keeps."""

from __future__ import annotations

import json

import numpy as np
import pytest
from kv import (
    put_all,
    random_layers,
    same_entries,
    toy_probe,
    toy_profile,
    toy_projections,
    toy_spec,
)

import precis
from precis.demo.service import Precisd, find_precisd

TOKENS = list(range(1, 301))


def with_queries(spec: precis.ModelSpec, num_tokens: int) -> list[dict]:
    draw = np.random.default_rng(11)
    shape = (spec.num_q_heads, 32, spec.head_dim)
    return [
        {"keys": keys, "values": values, "queries": draw.standard_normal(shape, np.float32)}
        for keys, values in random_layers(spec, num_tokens)
    ]


def put_layers(cache, model, layers, recipe, keep) -> precis.Segment:
    with cache.begin_put(model, TOKENS, recipe=recipe, keep=keep) as put:
        for index, layer in enumerate(layers):
            put.layer(index, **layer)
        return put.commit()


def read(cache, model) -> precis.Prefix:
    prefix = cache.get(cache.lookup(model, TOKENS))
    prefix.wait()
    return prefix


@pytest.mark.parametrize(
    "recipe",
    ["criticalkv_ada", "criticalkv(value_norm=l2_gram)", "defensivekv(layers=global_flat)"],
)
def test_the_service_weighs_by_projections_as_compress_does(cache, request, recipe):
    spec = toy_spec(name=request.node.nodeid[-200:])
    layers, weights = with_queries(spec, len(TOKENS)), toy_projections(spec)
    model = cache.register_model(spec, o_proj=weights)
    assert cache.register_model(spec).fingerprint == model.fingerprint
    assert [row.projections for row in cache.models() if row.spec == spec] == [spec.num_layers]
    put_layers(cache, model, layers, recipe, 0.4)
    kept = precis.compress(spec, layers, recipe=recipe, keep=0.4, o_proj=weights)
    assert same_entries(read(cache, model), kept)


def test_projections_outlive_the_process_and_are_read_again(tmp_path):
    spec = toy_spec()
    layers, weights = with_queries(spec, len(TOKENS)), toy_projections(spec)
    service = Precisd(find_precisd(), tmp_path / "data")
    service.start()
    with precis.connect(service.address) as cache:
        cache.register_model(spec, o_proj=weights)
    service.kill()
    service.start()
    with precis.connect(service.address) as cache:
        model = cache.register_model(spec)
        put_layers(cache, model, layers, "criticalkv_ada", 0.3)
        kept = precis.compress(spec, layers, recipe="criticalkv_ada", keep=0.3, o_proj=weights)
        assert same_entries(read(cache, model), kept)
    service.stop()


def test_projections_of_bf16_are_kept_as_they_come(cache, request):
    torch = pytest.importorskip("torch")
    spec = toy_spec(name=request.node.nodeid[-200:])
    weights = [torch.from_numpy(layer).bfloat16() for layer in toy_projections(spec)]
    layers = with_queries(spec, len(TOKENS))
    model = cache.register_model(spec, o_proj=weights)
    put_layers(cache, model, layers, "criticalkv", 0.4)
    widened = [layer.float().numpy() for layer in weights]
    kept = precis.compress(spec, layers, recipe="criticalkv", keep=0.4, o_proj=widened)
    assert same_entries(read(cache, model), kept)


def test_projections_come_from_the_models_own_files(cache, request, tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    spec = toy_spec(name=request.node.nodeid[-200:])
    weights = toy_projections(spec)
    for layer, weight in enumerate(weights):
        flat = torch.from_numpy(weight.reshape(-1, weight.shape[-1]).T.copy())
        name = f"model.layers.{layer}.self_attn.o_proj.weight"
        save_file({name: flat}, tmp_path / f"part-{layer}.safetensors")
    cache.register_model(spec, o_proj=tmp_path)
    cache.register_model(spec, o_proj=weights)  # the same weights: others would be refused
    with pytest.raises(precis.InvalidArgument, match="of 1 layers, the model has 3"):
        cache.register_model(spec, o_proj=tmp_path / "part-1.safetensors")
    with pytest.raises(precis.InvalidArgument, match="is neither a safetensors file"):
        cache.register_model(spec, o_proj=tmp_path / "none")
    (tmp_path / "part-0.safetensors").write_bytes(b"no tensors")
    with pytest.raises(precis.InvalidArgument, match=r"part-0\.safetensors"):
        cache.register_model(spec, o_proj=tmp_path)
    save_file({"layers.0.self_attn.o_proj.weight": torch.zeros(4, 5)}, tmp_path / "x.safetensors")
    with pytest.raises(precis.InvalidArgument, match=r"is \[4, 5\], must be \[hidden size, 64\]"):
        cache.register_model(spec, o_proj=tmp_path / "x.safetensors")


def test_bad_projections_are_refused_by_name(cache, request):
    spec = toy_spec(name=request.node.nodeid[-200:])
    weights = toy_projections(spec)
    model = cache.register_model(spec)
    with pytest.raises(precis.NotFound, match=r"layer 0 .* has no output projection"):
        cache.begin_put(model, TOKENS, recipe="criticalkv_ada", keep=0.5)
    for o_proj, message in (
        (weights[:2], "o_proj has 2 layers, the model has 3"),
        ([weights[0], weights[1], weights[2][:3]], r"layer 2 is \[3, 16, 24\], must be \[4, 16"),
        ([weights[0], weights[1], np.full_like(weights[2], np.nan)], "layer 2 .*not finite"),
    ):
        with pytest.raises(precis.InvalidArgument, match=message):
            cache.register_model(spec, o_proj=o_proj)
    # The two layers before the bad one are stored, and cannot be changed.
    with pytest.raises(precis.NotFound, match=r"layer 2 .* has no output projection"):
        cache.begin_put(model, TOKENS, recipe="criticalkv_ada", keep=0.5)
    with pytest.raises(precis.InvalidArgument, match=r"layer 0 .* has another output projection"):
        cache.register_model(spec, o_proj=[-layer for layer in weights])
    cache.register_model(spec, o_proj=weights)
    cache.begin_put(model, TOKENS, recipe="criticalkv_ada", keep=0.5).abort()


# ---- profiles


def test_the_service_budgets_by_a_profile_as_compress_does(cache, request, tmp_path):
    spec = toy_spec(name=request.node.nodeid[-200:])
    layers, profile = random_layers(spec, len(TOKENS)), toy_profile(spec)
    model = cache.register_model(spec)
    with pytest.raises(precis.NotFound, match=r"has no profile over the scores of lukv\(keydiff\)"):
        cache.begin_put(model, TOKENS, recipe="lukv(keydiff)", keep=0.5)
    file = tmp_path / "toy.json"
    file.write_text(json.dumps(profile))
    row = cache.add_profile(file)
    assert (row.name, row.kind, row.model, row.content) == (
        "toy",
        "curves",
        model.fingerprint,
        None,
    )
    assert [found.digest for found in cache.profiles(model)] == [row.digest]
    assert cache.profile(model, "toy").content["table"] == pytest.approx(profile["table"])

    segment = put_all(cache, model, TOKENS, layers, recipe="lukv(keydiff, profile=toy)", keep=0.5)
    kept = precis.compress(
        spec, layers, recipe="lukv(keydiff)", keep=0.5, profile=json.dumps(profile)
    )
    assert same_entries(read(cache, model), kept)
    # The segment is identified by the table, not by the profile's name.
    assert json.loads(segment.recipe)["profile"] == row.digest
    for recipe in ("lukv(keydiff)", f"lukv(keydiff, profile={row.digest})"):
        with cache.begin_put(model, TOKENS, recipe=recipe, keep=0.5) as put:
            assert put.already_stored and put.segment == segment.id
    cache.remove_profile(model, "toy")
    assert cache.profiles(model) == []
    assert same_entries(read(cache, model), kept)
    with pytest.raises(precis.NotFound, match="has no profile 'toy'"):
        cache.begin_put(model, TOKENS, recipe="lukv(keydiff, profile=toy)", keep=0.5)
    with pytest.raises(precis.NotFound, match="has no profile 'toy'"):
        cache.remove_profile(model, "toy")


def test_a_profile_for_something_else_is_refused(cache, request):
    spec = toy_spec(name=request.node.nodeid[-200:])
    other = toy_spec(name=f"other {request.node.nodeid[-190:]}")
    model, profile = cache.register_model(spec), toy_profile(spec)
    with pytest.raises(precis.NotFound, match="is not registered"):
        cache.add_profile(profile | {"model": other.fingerprint})
    # The caller claims that both models have the same weights. Only another shape is refused.
    row = cache.add_profile(profile | {"model": other.fingerprint, "name": "moved"}, model)
    assert row.model == model.fingerprint
    cache.remove_profile(model, "moved")
    wide = cache.register_model(toy_spec(name=f"wide {spec.name}"[:200], num_layers=4))
    with pytest.raises(precis.InvalidArgument, match="of 3 layers with 2 KV heads, model"):
        cache.add_profile(profile, wide)
    for changes, message in (
        ({"table": [0.5] * 7}, "table must be an array of 594 numbers"),
        ({"num_layers": 2, "table": [0.5] * 396}, "of 2 layers with 2 KV heads, model"),
        ({"name": ""}, "name must have 1 to"),
        ({"name": "a,b"}, "cannot be used in a recipe's text"),
    ):
        with pytest.raises(precis.InvalidArgument, match=message):
            cache.add_profile(profile | changes)
    with pytest.raises(precis.VersionMismatch, match="profile version is 9"):
        cache.add_profile(profile | {"version": 9})
    cache.add_profile(profile)
    with pytest.raises(precis.InvalidArgument, match="built for scorer"):
        cache.begin_put(model, TOKENS, recipe="lukv(knorm, profile=toy)", keep=0.5)
    assert cache.register_model(other).fingerprint == other.fingerprint
    with pytest.raises(precis.NotFound, match="has no profile 'toy'"):
        cache.begin_put(
            cache.register_model(other), TOKENS, recipe="lukv(keydiff, profile=toy)", keep=0.5
        )
    with pytest.raises(
        precis.InvalidArgument, match="built for a table of curves, not for weights"
    ):
        cache.begin_put(model, TOKENS, recipe="headkv(keydiff, sinks=4, recent=1, profile=toy)")
    with pytest.raises(precis.InvalidArgument, match="text_digest must be a SHA-256"):
        cache.add_profile(profile | {"text_digest": "x" * 300})
    assert [row.name for row in cache.profiles(model)] == ["toy"]


def test_a_put_that_names_no_recipe_goes_by_the_profile_where_there_is_one(cache, request):
    spec = toy_spec(name=request.node.nodeid[-200:])
    model, layers = cache.register_model(spec), random_layers(spec, len(TOKENS))
    assert json.loads(cache.begin_put(model, TOKENS).recipe)["layers"] == "global_flat"
    profile = toy_probe(spec)
    row = cache.add_profile(profile)
    assert [layer.scope for layer in cache.budgets(model).layers][2] == "profile"
    segment = put_all(cache, model, TOKENS, layers, recipe=None, keep=0.5)
    assert json.loads(segment.recipe)["profile"] == row.digest
    recipe, text = "global_kvprobe(encoding=int8, min_entries=128)", json.dumps(profile)
    kept = precis.compress(spec, layers, recipe=recipe, keep=0.5, profile=text)
    assert same_entries(read(cache, model), kept)


def test_profiles_outlive_the_process_and_can_be_replaced(tmp_path):
    spec = toy_spec()
    service = Precisd(find_precisd(), tmp_path / "data")
    service.start()
    with precis.connect(service.address) as cache:
        model = cache.register_model(spec)
        first = cache.add_profile(toy_profile(spec))
        second = cache.add_profile(toy_profile(spec, slowest=0.6))
        assert first.digest != second.digest
    service.kill()
    service.start()
    with precis.connect(service.address) as cache:
        assert [row.digest for row in cache.profiles(model)] == [second.digest]
    service.stop()
