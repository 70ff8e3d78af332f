"""The batch viewed head by head: page tables, lengths and the order of queries, against loops."""

from __future__ import annotations

from typing import Any

import batches
import numpy as np
import pytest
import torch
from batches import BLOCKS, LAYERS, SIZE
from precis_vllm.attention import HeadBatch, Prefixes
from precis_vllm.attention_cpu import keys_are_turned
from precis_vllm.worker import Pages
from torch.utils._python_dispatch import TorchDispatchMode

import precis

HEADS, DIM = 2, 32


def interleaved(pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return pages.split(DIM, -1)


@pytest.mark.parametrize("seed", range(30))
def test_each_head_has_its_prefix_then_the_new_tokens(seed: int) -> None:
    requests = batches.draw(seed, HEADS, decode=seed % 3 == 0)
    pages = Pages(batches.caches(HEADS, DIM, torch.float32), interleaved)
    metadata = batches.metadata(requests)
    prefixes = Prefixes.of(batches.layouts(requests), pages)
    batch = HeadBatch.of(metadata, prefixes, pages)
    for layer in range(LAYERS):
        for r, request in enumerate(requests):
            for h in range(HEADS):
                want = request.pages(layer, h, HEADS)
                sequence = r * HEADS + h
                assert batch.tables[layer, sequence, : len(want)].tolist() == want
                assert batch.lengths[layer, sequence] == request.length(layer, h)
    starts = metadata.query_start_loc
    order = batch.order if batch.order is not None else torch.arange(starts[-1] * HEADS)
    want = [t * HEADS + h for r in range(len(requests)) for h in range(HEADS)
            for t in range(starts[r], starts[r + 1])]  # fmt: skip
    assert order.tolist() == want
    queries = [request.queries for request in requests]
    assert batch.starts.tolist() == [0, *np.cumsum(np.repeat(queries, HEADS))]
    # Required by the kernels of GPUs.
    assert batch.tables.dtype == batch.lengths.dtype == batch.starts.dtype == torch.int32
    assert batch.tables[0].is_contiguous() and batch.lengths[0].is_contiguous()
    assert batch.tables.min() >= 0 and batch.tables.max() < len(pages.cache)


class NoHost(TorchDispatchMode):
    """Refuses operations that wait for a device to know a number or a shape."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in ("_local_scalar_dense", "nonzero", "masked_select", "unique2"), name
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("seed", range(10))
def test_tables_are_the_same_where_a_device_is_not_waited_for(seed: int) -> None:
    requests = batches.draw(seed, HEADS, decode=seed % 3 == 0)
    pages = Pages(batches.caches(HEADS, DIM, torch.float32), interleaved)
    metadata = batches.metadata(requests, wider=7)  # vLLM's bounds are not exact
    prefixes = Prefixes.of(batches.layouts(requests), pages)
    exact = HeadBatch.of(metadata, prefixes, pages)

    class Elsewhere(torch.Tensor):  # a tensor that claims to be on a device
        is_cpu = False

    metadata.seq_lens = metadata.seq_lens.as_subclass(Elsewhere)
    with NoHost(), pytest.raises(AssertionError, match="_local_scalar_dense"):
        metadata.seq_lens.max().item()
    with NoHost():
        bounded = HeadBatch.of(metadata, prefixes, pages)
    width = min(exact.tables.shape[2], bounded.tables.shape[2])
    for layer, sequence in np.ndindex(LAYERS, len(requests) * HEADS):
        used = -(-int(exact.lengths[layer, sequence]) // SIZE)
        assert used <= width
        assert torch.equal(
            exact.tables[layer, sequence, :used], bounded.tables[layer, sequence, :used]
        )
    assert torch.equal(exact.lengths, bounded.lengths)
    assert torch.equal(exact.starts, bounded.starts)
    assert exact.order is None or torch.equal(exact.order, bounded.order)


def test_pages_are_those_of_all_layers_and_what_lies_otherwise_is_refused() -> None:
    caches = batches.caches(HEADS, DIM, torch.float32)
    pages = Pages(caches, interleaved)
    assert pages.layers == list(caches)
    for layer, block, head in ((0, 0, 0), (1, 5, 1), (2, BLOCKS - 1, 0)):
        caches[pages.layers[layer]][block, head, 3, DIM - 1] = 7
        page = (layer * BLOCKS + block) * HEADS + head
        assert page == pages.of_layer(layer, np.array([block]))[head, 0]
        assert pages.store.keys[page, 3, DIM - 1] == pages.cache[page, 0, 3, DIM - 1] == 7
        assert pages.store.values[page, 3, DIM - 1] == 0
    apart = {name: cache.clone() for name, cache in caches.items()}
    by_token = torch.zeros(LAYERS, BLOCKS, SIZE, HEADS, 2 * DIM).transpose(2, 3)
    for wrong in (apart, {name: by_token[i] for i, name in enumerate(caches)}):
        with pytest.raises(ValueError, match="layout LBHNC"):
            Pages(wrong, interleaved)


def test_more_pages_than_tables_number_are_refused() -> None:
    cache = torch.empty(2**20, 2**11, SIZE, 2 * DIM, device="meta")
    with pytest.raises(ValueError, match="2147483648 pages of one head are more than block tables"):
        Pages({"model.layers.0.attn": cache}, interleaved)


def test_pages_that_the_client_does_not_reach_are_refused() -> None:
    with pytest.raises(precis.Unsupported, match="meta"):
        Pages({"model.layers.0.attn": torch.empty(4, 2, SIZE, 2 * DIM, device="meta")}, interleaved)


def test_the_cpu_kernels_tell_how_they_hold_keys() -> None:
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    isa = _get_attn_isa(torch.float32, 32, 64)
    assert keys_are_turned(isa, torch.float32, 32, 64) in (True, False)
