"""Pages: gets into paged memory and puts out of it, over an embedded service and precisd."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch
from conftest import SEED
from kv import put_all, random_layers, toy_spec

import precis

ROWS, MARK = 16, 7.5
DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16, "f8_e4m3": np.uint8}


def as_stored(rows: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bf16":
        return (rows.view(np.uint32) >> 16).astype(np.uint16)
    if dtype == "f8_e4m3":
        return torch.from_numpy(rows).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    return rows.astype(DTYPES[dtype])


def room(dtype: str, num_pages: int, dim: int, layout: str) -> tuple[np.ndarray, np.ndarray]:
    """K and V pages of one allocation in an engine's layout, [num_pages, ROWS, dim] each."""
    kind = DTYPES[dtype]
    if layout == "rows":  # K, then V of a page
        whole = np.full((num_pages, 2, ROWS, dim), MARK).astype(kind)
        return whole[:, 0], whole[:, 1]
    if layout == "columns":  # K transposed, as for dot products on a CPU
        whole = np.full((2, num_pages, ROWS * dim), MARK).astype(kind)
        keys = whole[0].reshape(num_pages, dim, ROWS).transpose(0, 2, 1)
        return keys, whole[1].reshape(num_pages, ROWS, dim)
    whole = np.full((num_pages, ROWS, 2, dim), MARK).astype(kind)  # K and V row by row
    return whole[:, :, 0], whole[:, :, 1]


def tables(counts: np.ndarray, num_pages: int, spare: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Different random pages for the given numbers of rows of each head."""
    need = -(-counts.ravel().astype(int) // ROWS) + spare
    starts = np.concatenate([[0], np.cumsum(need)]).astype(np.uint32)
    shuffled = np.random.default_rng(SEED).permutation(num_pages)
    return shuffled[: starts[-1]].astype(np.uint32), starts


def check_pages(prefix: precis.Prefix, arrays, table: np.ndarray, starts: np.ndarray) -> None:
    """Checks that every head's rows are in its pages, and nothing else was written."""
    expected = [np.full(a.shape, MARK).astype(a.dtype) for a in arrays]
    heads = prefix.plan.shape[1]
    for layer, got in enumerate(prefix.layers):
        for h, head in enumerate(got.heads):
            i = layer * heads + h
            mine = table[starts[i] : starts[i + 1]]
            for pages, rows in zip(expected, (head.keys, head.values), strict=True):
                for r, row in enumerate(np.asarray(rows)):
                    pages[mine[r // ROWS], r % ROWS] = row
    for array, want in zip(arrays, expected, strict=True):
        assert np.array_equal(array, want)


@pytest.mark.parametrize("layout", ["rows", "columns", "interleaved"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_get_into_pages_is_the_plain_get(cache, request, dtype, layout):
    spec = toy_spec(name=request.node.nodeid[-200:], dtype=dtype, head_dim=24)
    model = cache.register_model(spec)
    layers = [tuple(as_stored(x, dtype) for x in kv) for kv in random_layers(spec, 200)]
    put_all(cache, model, range(200), layers, recipe="ada_keydiff", keep=0.5)
    match = cache.lookup(model, range(200))
    for keep in (None, 0.2, precis.entries(9)):
        plain = cache.get(match, keep).wait()
        arrays = room(dtype, 120, spec.head_dim, layout)
        table, starts = tables(plain.plan, 120, spare=1)
        pages = (precis.Pages(*arrays), table, starts)
        prefix = cache.get(match, keep, pages=pages)
        del pages
        assert np.array_equal(prefix.plan, plain.plan)
        check_pages(plain, arrays, table, starts)


def test_a_layer_is_in_its_pages_as_soon_as_it_has_been_asked_for(cache, model):
    put_all(cache, model, range(100), random_layers(model.spec, 100), keep=0.5)
    match = cache.lookup(model, range(100))
    keys, values = room("f32", 64, model.spec.head_dim, "columns")
    table, starts = tables(match.plan, 64)
    prefix = cache.get(match, pages=(precis.Pages(keys, values), table, starts))
    rows = prefix.layers[1].heads[0].keys
    first = table[starts[2]]
    assert np.array_equal(keys[first, : min(ROWS, len(rows))], rows[:ROWS])


def test_bf16_tensors_are_pages_where_they_lie(cache, request):
    spec = toy_spec(name=request.node.nodeid[-200:], dtype="bf16")
    model = cache.register_model(spec)
    layers = [
        tuple(torch.from_numpy(x).to(torch.bfloat16) for x in kv) for kv in random_layers(spec, 100)
    ]
    put_all(cache, model, range(100), layers, recipe="ada_keydiff", keep=0.5)
    match = cache.lookup(model, range(100))
    bits = np.full((64, 2, ROWS, spec.head_dim), MARK).astype(np.uint16)
    whole = torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)
    table, starts = tables(match.plan, 64)
    pages = precis.Pages(whole[:, 0], whole[:, 1])
    prefix = cache.get(match, pages=(pages, torch.from_numpy(table.astype(np.int64)), starts))
    check_pages(prefix, (bits[:, 0], bits[:, 1]), table, starts)

    bits = np.full((64, 2, spec.head_dim, ROWS), MARK).astype(np.int16)
    transposed = torch.from_numpy(bits).view(torch.bfloat16)
    keys, values = (part.transpose(1, 2) for part in transposed.unbind(1))
    cache.get(match, pages=(precis.Pages(keys, values), table, starts)).wait()
    assert torch.equal(transposed.transpose(2, 3), whole)


def test_pages_arrive_over_a_path_that_is_matched_in_part(cache, model):
    put_all(cache, model, range(200), random_layers(model.spec, 200), recipe="knorm", keep=0.5)
    match = cache.lookup(model, [*range(130), 9999])
    plain = cache.get(match).wait()
    arrays = room("f32", 120, model.spec.head_dim, "rows")
    table, starts = tables(plain.plan, 120)
    cache.get(match, pages=(precis.Pages(*arrays), table, starts)).wait()
    check_pages(plain, arrays, table, starts)


def filled(spec, layers, num_tokens: int, first_row: int, layout: str, dtype: str):
    """Pages with all rows of every layer, from page row `first_row` on, and each layer's table."""
    per_head = -(-(first_row + num_tokens) // ROWS)
    keys, values = room(dtype, 200, spec.head_dim, layout)
    order = np.random.default_rng(SEED).permutation(200).astype(np.uint32)
    found = []
    for layer, kv in enumerate(layers):
        table = order[: spec.num_kv_heads * per_head].reshape(spec.num_kv_heads, per_head)
        order = order[table.size :]
        for pages, rows in zip((keys, values), kv, strict=True):
            for h in range(spec.num_kv_heads):
                for t in range(num_tokens):
                    row = first_row + t
                    pages[table[h, row // ROWS], row % ROWS] = rows[h, t]
        found.append(table)
        assert layer < spec.num_layers
    return precis.Pages(keys, values), found


def entries(prefix: precis.Prefix) -> list[np.ndarray]:
    return [
        np.asarray(part)
        for layer in prefix.layers
        for head in layer.heads
        for part in (head.positions, head.seats, head.scores, head.keys, head.values)
    ]


@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("first_row", [0, 5])
def test_a_put_out_of_pages_is_the_put_of_arrays(cache, request, layout, dtype, first_row):
    spec = toy_spec(name=request.node.nodeid[-200:], dtype=dtype)
    model = cache.register_model(spec)
    n = 150
    layers = [tuple(as_stored(x, dtype) for x in kv) for kv in random_layers(spec, n)]
    queries = [
        as_stored(np.random.default_rng(i).standard_normal((4, 8, 16), np.float32), dtype)
        for i in range(spec.num_layers)
    ]
    recipe = {"recipe": "snapkv(window=8)", "keep": 0.3}
    with cache.begin_put(model, range(n), **recipe) as put:
        for index, (keys, values) in enumerate(layers):
            put.layer(index, keys, values, queries[index])
        plain = put.commit()
    wanted = entries(cache.get(cache.lookup(model, range(n))))
    assert cache.remove(plain) == 1

    pages, found = filled(spec, layers, n, first_row, layout, dtype)
    with cache.begin_put(model, range(n), **recipe) as put:
        for index, table in enumerate(found):
            asked = queries[index].copy()
            put.layer_from_pages(index, pages, table, first_row, n, asked, wait=False)
            asked[:] = 0  # the caller may reuse the queries and the pages
            pages.keys[table.ravel()] = 0
            pages.values[table.ravel()] = 0
        again = put.commit()
    assert (again.id, again.bytes) == (plain.id, plain.bytes)
    got = entries(cache.get(cache.lookup(model, range(n))))
    assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))


def test_pieces_of_pages_make_up_a_put(cache, model):
    n = 100
    layers = random_layers(model.spec, n)
    wanted = put_all(cache, model, range(n), layers, recipe="knorm", keep=0.4)
    rows = entries(cache.get(cache.lookup(model, range(n))))
    cache.remove(wanted)
    pages, found = filled(model.spec, layers, n, 0, "rows", "f32")
    with cache.begin_put(model, range(n), recipe="knorm", keep=0.4) as put:
        for index, table in enumerate(found):
            for h in range(model.spec.num_kv_heads):
                mine = table[h : h + 1]
                put.layer_from_pages(index, pages, mine, 0, 37, head_begin=h, wait=False)
                put.layer_from_pages(index, pages, mine, 37, token_begin=37, head_begin=h)
        put.commit()
    got = entries(cache.get(cache.lookup(model, range(n))))
    assert all(np.array_equal(a, b) for a, b in zip(got, rows, strict=True))


def test_what_is_no_page_is_refused_by_name(cache, model):
    put_all(cache, model, range(100), random_layers(model.spec, 100), keep=0.5)
    match = cache.lookup(model, range(100))
    dim = model.spec.head_dim
    keys, values = room("f32", 64, dim, "rows")
    table, starts = tables(match.plan, 64)
    good = precis.Pages(keys, values)

    def refused(message: str, pages) -> None:
        with pytest.raises(precis.InvalidArgument, match=message):
            cache.get(match, pages=pages)

    refused(r"pages: table\[0\] is 64, there are 64 pages", (good, np.uint32([64]), starts))
    refused("pages: has 2 starts, must have 7", (good, table, starts[:2]))
    refused(r"pages: starts\[1\] is .*, less than the one", (good, table, starts[::-1].copy()))
    refused("pages: the last start is", (good, table[:3], starts))
    refused("a number lies outside", (good, -table.astype(np.int64) - 1, starts))
    refused("table: dtype float64, must be integers", (good, table * 1.5, starts))
    refused("table: shape .* must have 1 dimensions", (good, table[None], starts))
    refused("must be .precis.Pages, table, starts.", (keys, table, starts))
    refused("must be .precis.Pages, table, starts.", (good, table))
    refused("pages.keys: dtype f16", (precis.Pages(keys.astype(np.float16), values), table, starts))
    refused("pages.values: head_dim 8", (precis.Pages(keys, values[..., :8]), table, starts))
    refused("16 rows, pages of values 8", (precis.Pages(keys, values[:, :8]), table, starts))
    still = torch.zeros(1, ROWS, dim).expand(64, -1, -1)
    refused("pages.keys: .* a page is longer than", (precis.Pages(still, values), table, starts))
    same = torch.zeros(64, 1, dim).expand(-1, ROWS, -1)
    refused("pages.keys: .* they overlap", (precis.Pages(same, values), table, starts))

    def no_pages(message: str, *arrays, error=precis.InvalidArgument) -> None:
        with pytest.raises(error, match=message):
            precis.Pages(*arrays)

    no_pages("keys: list is not an array", keys.tolist(), values)
    no_pages("keys: the dtype is none of bf16", keys.astype(np.int64), values)
    no_pages("values: shape .16, 16., must be", keys, values[0])
    no_pages("values: shape .0, 16, 16., must be", keys, values[:0])
    no_pages("keys: stands in descending order", keys[::-1], values)
    no_pages(
        "on meta, must be in host memory or on a CUDA device",
        torch.empty((4, 16, 16), device="meta"),
        values,
        error=precis.Unsupported,
    )
    frozen = keys.copy()
    frozen.flags.writeable = False
    no_pages("keys: the array is read-only", frozen, values)


def test_a_head_with_more_rows_than_its_pages_hold_says_which(cache, model):
    put_all(cache, model, range(100), random_layers(model.spec, 100), recipe="knorm", keep=1.0)
    match = cache.lookup(model, range(100))
    table, starts = tables(np.full((3, 2), 96), 64)
    pages = precis.Pages(*room("f32", 64, model.spec.head_dim, "rows"))
    prefix = cache.get(match, pages=(pages, table, starts))
    said = r"pages: layer {}, head 0 kept 100 rows, there is room for 6 pages of 16"
    with pytest.raises(precis.InvalidArgument, match=said.format(0)):
        prefix.wait()
    with pytest.raises(precis.InvalidArgument, match=said.format(2)):
        prefix.layers[2]


def test_a_wrong_push_out_of_pages_is_refused_by_name(cache, model):
    pages, found = filled(model.spec, random_layers(model.spec, 64), 64, 0, "rows", "f32")

    def refused(message: str, table, *rest, **options) -> None:
        with (
            cache.begin_put(model, range(64), recipe="knorm", keep=0.5) as put,
            pytest.raises(precis.InvalidArgument, match=message),
        ):
            put.layer_from_pages(1, pages, table, *rest, **options)

    refused("layer 1: pages: rows .1, 65. of each head, its 4 pages hold 64", found[1], 1, 64)
    refused("layer 1: pages: 65 tokens of 2 heads", found[1], 0, 65)
    refused("layer 1: pages: table.0. is 200, there are 200 pages", found[1] * 0 + 200)
    refused("layer 1: keys are .2, 63, d. from head 1|from head 1", found[1], 1, 63, head_begin=1)
    refused("table: shape .8., must have 2 dimensions", found[1].ravel())
    refused("first_row is -1", found[1], -1)


class SaysItIsOn:
    """An array in host memory that claims by DLPack to be on another device."""

    def __init__(self, array: np.ndarray, device: tuple[int, int]) -> None:
        self.array, self.device, self.shape = array, device, array.shape

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **_):
        capsule = self.array.__dlpack__()
        pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
        pointer_of.restype, pointer_of.argtypes = (
            ctypes.c_void_p,
            (ctypes.py_object, ctypes.c_char_p),
        )
        device = pointer_of(capsule, b"dltensor") + ctypes.sizeof(ctypes.c_void_p)
        (ctypes.c_int32 * 2).from_address(device)[:] = self.device
        return capsule


def test_pages_on_a_device_that_is_not_there_say_what_to_do(model):
    arrays = room("f32", 64, model.spec.head_dim, "rows")
    said = "pages: memory on device 999 is not available: .*; use pages in host memory"
    with pytest.raises(precis.Unsupported, match=said):
        precis.Pages(*(SaysItIsOn(array, (2, 999)) for array in arrays))
    with pytest.raises(precis.InvalidArgument, match="keys lie on device 0, values in host memory"):
        precis.Pages(SaysItIsOn(arrays[0], (2, 0)), arrays[1])
    with pytest.raises(precis.Unsupported, match=r"keys: .* DLPack device \(10, 1\), must be in"):
        precis.Pages(SaysItIsOn(arrays[0], (10, 1)), arrays[1])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("layout", ["rows", "columns", "interleaved"])
def test_pages_on_a_gpu_are_as_those_on_the_host(cache, request, layout):
    spec = toy_spec(name=request.node.nodeid[-200:], dtype="bf16")
    model = cache.register_model(spec)
    n = 150
    layers = [tuple(as_stored(x, "bf16") for x in kv) for kv in random_layers(spec, n)]
    pages, found = filled(spec, layers, n, 5, layout, "bf16")

    def on_gpu(array: np.ndarray) -> torch.Tensor:
        bits = torch.from_numpy(array.view(np.int16))
        whole = torch.empty_strided(bits.shape, bits.stride(), dtype=bits.dtype, device="cuda")
        return whole.copy_(bits).view(torch.bfloat16)

    there = precis.Pages(on_gpu(pages.keys), on_gpu(pages.values))
    torch.cuda.synchronize()
    got = []
    for source in (pages, there):
        with cache.begin_put(model, range(n), recipe="knorm", keep=0.4) as put:
            for index, table in enumerate(found):
                put.layer_from_pages(index, source, table, 5, n, wait=False)
            segment = put.commit()
        got.append(entries(cache.get(cache.lookup(model, range(n)))))
        cache.remove(segment)
    assert all(np.array_equal(a, b) for a, b in zip(*got, strict=True))

    put_all(cache, model, range(n), layers, recipe="ada_keydiff", keep=0.5)
    match = cache.lookup(model, range(n))
    plain = cache.get(match).wait()
    arrays = room("bf16", 120, spec.head_dim, layout)
    table, starts = tables(plain.plan, 120)
    on_device = [on_gpu(array) for array in arrays]
    torch.cuda.synchronize()
    cache.get(match, pages=(precis.Pages(*on_device), table, starts)).wait()
    bits = [array.view(torch.int16).cpu().numpy().view(np.uint16) for array in on_device]
    check_pages(plain, bits, table, starts)
