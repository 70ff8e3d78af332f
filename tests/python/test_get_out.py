"""Cache.get(out=): rows in the caller's memory, over an embedded service and precisd."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from kv import put_all, random_layers, toy_spec

import precis

MARK = 7.5  # the caller's memory before the get


def room(spec: precis.ModelSpec, rows: int) -> list[tuple[np.ndarray, np.ndarray]]:
    shape = (spec.num_kv_heads, rows, spec.head_dim)
    dtype = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}[spec.dtype]
    return [
        (np.full(shape, MARK, dtype), np.full(shape, MARK, dtype)) for _ in range(spec.num_layers)
    ]


def check_rows(prefix: precis.Prefix, out) -> None:
    for layer, parts in zip(prefix.layers, out, strict=True):
        for h, head in enumerate(layer.heads):
            count = len(head)
            for got, want in zip(parts, (head.keys, head.values), strict=True):
                got = np.asarray(got[h])
                assert np.array_equal(got[:count], np.asarray(want))
                assert (got[count:] == np.array(MARK).astype(got.dtype)).all()


@pytest.mark.parametrize("keep", [None, 0.2, precis.entries(9)])
def test_the_rows_of_any_budget_are_left_in_the_callers_memory(cache, model, keep):
    tokens = list(range(130))
    put_all(cache, model, tokens, random_layers(model.spec, 130), recipe="ada_keydiff", keep=0.5)
    match = cache.lookup(model, tokens)
    out = room(model.spec, int(match.plan.max()))
    prefix = cache.get(match, keep, out=out)
    prefix.wait()
    assert prefix.kept == prefix.plan.sum() > 0
    assert all((layer[0][:, 0] != MARK).any() for layer in out)
    check_rows(prefix, out)


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f8_e4m3"])
def test_tensors_and_parts_of_larger_ones_are_written_where_they_lie(cache, request, dtype):
    spec = toy_spec(name=request.node.nodeid[-200:], dtype=dtype)
    model = cache.register_model(spec)
    kind = {"bf16": torch.bfloat16, "f16": torch.float16, "f8_e4m3": torch.float8_e4m3fn}[dtype]
    layers = [
        tuple(torch.from_numpy(part).to(kind) for part in layer)
        for layer in random_layers(spec, 100)
    ]
    put_all(cache, model, range(100), layers, recipe="ada_keydiff", keep=0.5)
    whole = torch.full((spec.num_layers, 2, spec.num_kv_heads, 200, spec.head_dim), MARK).to(kind)
    out = [(layer[0][:, 50:150], layer[1][:, 50:150]) for layer in whole]
    prefix = cache.get(cache.lookup(model, range(100)), out=out)
    for i, layer in enumerate(prefix.layers):
        for h, head in enumerate(layer.heads):
            for part, rows in enumerate((head.keys, head.values)):
                got, last = whole[i, part, h], 50 + len(head)
                bits = got.view(torch.uint8) if dtype == "f8_e4m3" else got
                assert torch.equal(bits[50:last], torch.from_dlpack(rows))
                assert (got[last:].float() == MARK).all() and (got[:50].float() == MARK).all()


def test_a_layer_is_there_as_soon_as_it_has_been_asked_for(cache, model):
    put_all(cache, model, range(100), random_layers(model.spec, 100), keep=0.5)
    out = room(model.spec, 100)
    prefix = cache.get(cache.lookup(model, range(100)), out=out)
    keys = prefix.layers[1].heads[0].keys
    assert np.array_equal(out[1][0][0, : len(keys)], keys)


def test_of_a_path_matched_in_part_only_what_matched_is_left(cache, model):
    put_all(cache, model, range(200), random_layers(model.spec, 200), recipe="knorm", keep=0.5)
    match = cache.lookup(model, [*range(130), 9999])
    assert match.matched_tokens == 128
    out = room(model.spec, int(match.plan.max()))
    check_rows(cache.get(match, out=out).wait(), out)


def test_what_does_not_fit_is_refused_by_name(cache, model):
    put_all(cache, model, range(100), random_layers(model.spec, 100), keep=0.5)
    match = cache.lookup(model, range(100))

    def refused(change, message: str) -> None:
        out = room(model.spec, 100)
        out[1] = change(*out[1])
        with pytest.raises(precis.InvalidArgument, match=message):
            cache.get(match, out=out)

    refused(lambda k, v: (k[:1], v), r"out\[1\]\.keys: shape \[1, 100, 16\], must be \[2, n, 16\]")
    refused(lambda k, v: (k, v[..., :8].copy()), r"out\[1\]\.values: shape \[2, 100, 8\]")
    refused(lambda k, v: (k, v[0]), r"out\[1\]\.values: shape \[100, 16\] has 2 dimensions")
    refused(
        lambda k, v: (k.astype(np.float16), v), r"out\[1\]\.keys: dtype f16, the model's is f32"
    )
    refused(lambda k, v: (k.astype(np.int64), v), r"out\[1\]\.keys: the dtype is none of bf16")
    refused(lambda k, v: (k, v[:, ::2]), r"out\[1\]\.values: rows of .* must be contiguous")
    refused(
        lambda k, v: (k, torch.from_numpy(v)[:1].expand(2, -1, -1)), r"values: heads .* overlap"
    )
    refused(lambda k, v: (k, v.tolist()), r"out\[1\]\.values: list is neither a NumPy array")
    refused(lambda k, v: (k, torch.empty((2, 9, 16), device="meta")), r"values: .*is on meta")
    refused(lambda k, v: (k,), r"out\[1\]: tuple, must be a pair")

    def read_only(k, v):
        k.flags.writeable = False
        return k, v

    refused(read_only, r"out\[1\]\.keys: the array is read-only")
    with pytest.raises(precis.InvalidArgument, match="out: has 2 layers, the model has 3"):
        cache.get(match, out=room(model.spec, 100)[:2])
    with pytest.raises(precis.InvalidArgument, match="out: has no layers"):
        cache.get(match, out=[])


def test_a_head_that_kept_more_rows_than_there_is_room_for_says_which(cache, model):
    put_all(cache, model, range(100), random_layers(model.spec, 100), keep=0.5)
    prefix = cache.get(cache.lookup(model, range(100)), out=room(model.spec, 5))
    with pytest.raises(precis.InvalidArgument, match=r"out\[0\]\.keys: has room for 5 rows"):
        prefix.wait()
    with pytest.raises(precis.InvalidArgument, match=r"out\[2\]\.keys: has room for 5 rows"):
        prefix.layers[2]
