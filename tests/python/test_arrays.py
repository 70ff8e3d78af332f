"""Arrays in and out: layouts, dtypes, and which of them are copied."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from kv import random_layers, toy_spec

import precis
from precis.arrays import heads_in

TORCH = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_kept_rows_are_the_rows_of_their_positions_bit_for_bit(dtype):
    spec = toy_spec(dtype=dtype)
    layers = [
        tuple(torch.from_numpy(part).to(TORCH[dtype]) for part in layer)
        for layer in random_layers(spec, 90)
    ]
    kept = precis.compress(spec, layers, keep=0.3)
    for layer, (keys, values) in enumerate(layers):
        for head in range(spec.num_kv_heads):
            positions = torch.from_numpy(kept.positions[layer][head].astype(np.int64))
            for got, want in ((kept.keys, keys), (kept.values, values)):
                tensor = torch.from_dlpack(got[layer][head])
                assert tensor.dtype == TORCH[dtype]
                assert torch.equal(tensor, want[head, positions])


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_what_comes_out_reaches_torch_without_a_copy(dtype):
    spec = toy_spec(dtype=dtype)
    layers = [
        tuple(torch.from_numpy(part).to(TORCH[dtype]) for part in layer)
        for layer in random_layers(spec, 40)
    ]
    keys = precis.compress(spec, layers, keep=0.5).keys[1][1]
    assert not keys.flags.owndata and not keys.flags.writeable
    assert torch.from_dlpack(keys).data_ptr() == keys.ctypes.data
    assert torch.from_dlpack(keys[3:5]).data_ptr() == keys[3:5].ctypes.data


def test_arrays_keep_the_memory_they_lie_in():
    spec = toy_spec()
    layers = random_layers(spec, 2000)
    kept = precis.compress(spec, layers, keep=0.5)
    keys, positions = kept.keys[0][0], kept.positions[0][0]
    before = keys.copy()
    del kept
    again = [precis.compress(spec, layers, keep=0.5, recipe="knorm") for _ in range(4)]
    assert again and np.array_equal(keys, before)
    assert np.array_equal(keys, layers[0][0][0][positions])


def test_a_slice_of_a_larger_cache_goes_in_as_it_lies():
    large = np.zeros((2, 500, 16), np.float32)
    view = large[:, 100:200]
    assert heads_in(view, "keys").ctypes.data == view.ctypes.data
    tensor = torch.zeros(2, 500, 16)[:, 7:90]
    assert heads_in(tensor, "keys").data_ptr() == tensor.data_ptr()


def test_any_other_layout_is_copied_once_and_means_the_same():
    spec = toy_spec()
    layers = random_layers(spec, 60)
    want = precis.compress(spec, layers, keep=0.4)
    by_token = [
        tuple(part.transpose(1, 0, 2).copy().transpose(1, 0, 2) for part in layer)
        for layer in layers
    ]
    by_element = [
        tuple(torch.from_numpy(part).mT.contiguous().mT for part in layer) for layer in layers
    ]
    for form in (by_token, by_element):
        got = precis.compress(spec, form, keep=0.4)
        for layer in range(3):
            for head in range(2):
                assert np.array_equal(got.positions[layer][head], want.positions[layer][head])
                assert np.array_equal(got.keys[layer][head], want.keys[layer][head])


def test_bf16_goes_in_as_bits_and_comes_out_as_numbers():
    spec = toy_spec(dtype="bf16")
    tensors = [
        tuple(torch.from_numpy(part).bfloat16() for part in layer)
        for layer in random_layers(spec, 50)
    ]
    bits = [tuple(part.view(torch.uint16).numpy() for part in layer) for layer in tensors]
    kept = precis.compress(spec, bits, keep=0.5)
    keys = kept.keys[2][0]
    assert isinstance(keys, precis.BFloat16Array)
    assert np.array_equal(keys, precis.compress(spec, tensors, keep=0.5).keys[2][0])
    assert np.array_equal(keys.to_float32(), torch.from_dlpack(keys).float().numpy())


def test_f8_goes_in_as_bits_and_comes_out_as_numbers():
    spec = toy_spec(dtype="float8_e4m3fn")
    tensors = [
        tuple(torch.from_numpy(part).to(torch.float8_e4m3fn) for part in layer)
        for layer in random_layers(spec, 50)
    ]
    bits = [tuple(part.view(torch.uint8).numpy() for part in layer) for layer in tensors]
    kept = precis.compress(spec, bits, recipe="global_kvdiff", keep=0.5)
    keys = kept.keys[2][0]
    assert isinstance(keys, precis.Float8Array)
    same = precis.compress(spec, tensors, recipe="global_kvdiff", keep=0.5)
    assert np.array_equal(keys, same.keys[2][0])
    numbers = torch.from_numpy(keys.copy()).view(torch.float8_e4m3fn).float().numpy()
    assert np.array_equal(keys.to_float32(), numbers)
    # Entries are chosen as for the same numbers in bf16.
    wide = [tuple(part.bfloat16() for part in layer) for layer in tensors]
    of_wide = precis.compress(toy_spec(dtype="bf16"), wide, recipe="global_kvdiff", keep=0.5)
    for layer, head in np.ndindex(3, 2):
        assert np.array_equal(kept.positions[layer][head], of_wide.positions[layer][head])
        assert np.array_equal(
            kept.values[layer][head].to_float32(), of_wide.values[layer][head].to_float32()
        )


def test_all_numbers_of_f8_come_out_as_they_are():
    bits = np.arange(256, dtype=np.uint8)
    numbers = bits.view(precis.Float8Array).to_float32()
    expected = torch.from_numpy(bits).view(torch.float8_e4m3fn).float().numpy()
    assert np.array_equal(numbers, expected, equal_nan=True)
    assert np.array_equal(np.signbit(numbers[:255]), np.signbit(expected[:255]))


def test_a_tensor_that_requires_grad_goes_in():
    spec = toy_spec()
    layers = [
        tuple(torch.from_numpy(part).requires_grad_() for part in layer)
        for layer in random_layers(spec, 30)
    ]
    assert precis.compress(spec, layers, keep=0.5).plan.sum() == 90


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            np.zeros((2, 30), np.float32),
            r"layer 0 keys: shape \[2, 30\] has 2 dimensions|keys: shape",
        ),
        (np.zeros((2, 30, 16)), "keys: the dtype"),
        (np.zeros((3, 30, 16), np.float32), "num_kv_heads is 3, not 2"),
        (np.zeros((2, 29, 16), np.float32), "n is 29, not 30|values: n is 30, not 29"),
        (np.zeros((2, 30, 8), np.float32), "head_dim is 8, not 16"),
        (np.zeros((2, 30, 16), np.float16), "dtype is f16"),
        ("keys", "keys: str is not an array"),
        (None, "layer 0 keys: missing"),
    ],
)
def test_arrays_of_a_wrong_kind_are_refused_by_name(keys, message):
    spec = toy_spec()
    layers = random_layers(spec, 30)
    layers[0] = (keys, layers[0][1])
    with pytest.raises(precis.InvalidArgument, match=message):
        precis.compress(spec, layers, keep=0.5)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([1, -2], r"outside \[0, 2\^32\)"),
        ([1 << 32], r"outside \[0, 2\^32\)"),
        ([1.5], "not integers"),
        ([[1, 2], [3, 4]], "must be one sequence"),
        ("abc", "tokens"),
    ],
)
def test_tokens_of_a_wrong_kind_are_refused(tokens, message):
    from precis.arrays import tokens_in

    with pytest.raises(precis.InvalidArgument, match=message):
        tokens_in(tokens)


class Elsewhere:
    """An array that claims by DLPack's protocol to be on a GPU."""

    def __init__(self, array, copies):
        self._array, self._copies, self.shape = array, copies, array.shape

    def __dlpack_device__(self):
        return 2, 1  # kDLCUDA, the second GPU

    def __dlpack__(self, *, dl_device=None):
        if not self._copies or dl_device != (1, 0):
            raise BufferError("stays where it is")
        return self._array.__dlpack__()


def test_arrays_on_a_gpu_are_brought_by_their_own_library():
    spec = toy_spec()
    layers = random_layers(spec, 30)
    elsewhere = [tuple(Elsewhere(part, copies=True) for part in layer) for layer in layers]
    got, want = (precis.compress(spec, given, keep=0.5) for given in (elsewhere, layers))
    assert np.array_equal(got.positions[1][1], want.positions[1][1])
    assert np.array_equal(got.keys[1][1], want.keys[1][1])


def test_arrays_on_a_gpu_come_in_any_layout():
    spec = toy_spec()
    layers = random_layers(spec, 30)
    turned = [
        tuple(Elsewhere(np.asfortranarray(part), copies=True) for part in layer) for layer in layers
    ]
    got, want = (precis.compress(spec, given, keep=0.5) for given in (turned, layers))
    assert np.array_equal(got.keys[1][1], want.keys[1][1])


def test_small_arrays_come_from_anywhere():
    from precis.arrays import floats_in, statistics_in

    mean = np.arange(6, dtype=np.float32).reshape(2, 3)
    for form in (
        Elsewhere(mean, copies=True),
        torch.from_numpy(mean).requires_grad_(),
        torch.from_numpy(mean).to(torch.bfloat16),
    ):
        assert np.array_equal(statistics_in(form, "query_mean", 2), mean)
        assert np.array_equal(floats_in(form, "lse", (2, 3)), mean)
    with pytest.raises(precis.InvalidArgument, match="query_mean: the tensor is on meta"):
        statistics_in(torch.empty((2, 3), device="meta"), "query_mean", 2)


def test_an_array_that_its_library_does_not_bring_is_refused_by_name():
    spec = toy_spec()
    layers = random_layers(spec, 30)
    layers[0] = (layers[0][0], Elsewhere(layers[0][1], copies=False))
    message = r"values: the array lies on DLPack device \(2, 1\) and Elsewhere .*stays where it is"
    with pytest.raises(precis.InvalidArgument, match=message):
        precis.compress(spec, layers, keep=0.5)


def test_a_tensor_without_memory_is_refused_by_name():
    spec = toy_spec()
    layers = random_layers(spec, 30)
    layers[0] = (torch.empty((2, 30, 16), device="meta"), layers[0][1])
    with pytest.raises(precis.InvalidArgument, match="keys: the tensor is on meta"):
        precis.compress(spec, layers, keep=0.5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_tensors_on_a_gpu_go_in_as_they_are():
    spec = toy_spec()
    layers = random_layers(spec, 30)
    on_gpu = [tuple(torch.from_numpy(part).cuda() for part in layer) for layer in layers]
    got, want = (precis.compress(spec, given, keep=0.5) for given in (on_gpu, layers))
    assert np.array_equal(got.keys[1][1], want.keys[1][1])


def test_tokens_come_as_lists_ranges_arrays_and_tensors():
    from precis.arrays import tokens_in

    for form in ([3, 4], range(3, 5), np.array([3, 4]), torch.tensor([[3, 4]])):
        assert tokens_in(form).tolist() == [3, 4]
        assert tokens_in(form).dtype == np.uint32


def test_a_tensor_that_is_the_negative_of_its_memory_is_taken_for_what_it_says():
    spec = toy_spec()
    layers = random_layers(spec, 32)
    plain = [tuple(torch.from_numpy(part) for part in layer) for layer in layers]
    lazy = [tuple(torch._neg_view(-part) for part in layer) for layer in plain]
    assert lazy[0][0].is_neg()
    want, got = (precis.compress(spec, given, recipe="knorm", keep=0.5) for given in (plain, lazy))
    for ours, theirs in zip(want.keys, got.keys, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
    page = torch._neg_view(torch.zeros(4, 16, spec.head_dim))
    with pytest.raises(precis.InvalidArgument, match=r"keys: .* negative of what its memory holds"):
        precis.Pages(page, page)
