"""Attention over ragged prefixes, for any backend: each KV head is a separate sequence.

Viewed as pages of one head, the cache is that of a model with one KV head, and R requests of H
heads are R*H sequences over it, each with its own pages and length. So a backend's own code
computes the attention, as for such a model. attention_cpu.py and attention_gpu.py have the
differences between backends.

Nothing here waits for a device: tensors are computed on their device, sizes on the host.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from vllm.config import get_current_vllm_config
from vllm.distributed.kv_transfer import get_kv_transfer_group, has_kv_transfer_group
from vllm.utils.torch_utils import async_tensor_h2d, is_quantized_kv_cache
from vllm.v1.kv_cache_interface import FullAttentionSpec, replace_as

from . import NAME
from .model import F8
from .plan import Layout, padded

if TYPE_CHECKING:
    from .worker import Pages


class RaggedBackend:
    """A mixin for vLLM's backends: with the connector, it also attends over ragged prefixes."""

    impl: type[RaggedImpl]  # calls the kernels
    # Whether the engine whose layers were made last has the connector. vLLM asks for the specs of
    # these layers next, and passes no configuration.
    connected = False

    @classmethod
    def get_impl_cls(cls) -> type[RaggedImpl]:
        """The class that calls the kernels."""
        return cls.impl

    @classmethod
    def customize_spec(cls, spec: Any) -> Any:
        """Gives layers of full attention the spec of RaggedManager."""
        spec = super().customize_spec(spec)
        if not cls.connected or type(spec) is not FullAttentionSpec:
            return spec
        from .blocks import RaggedSpec

        return replace_as(spec, RaggedSpec)


@dataclass
class Prefixes:
    """The P prefixes of a step's requests, on the device, and last an empty prefix.

    Attributes:
        first: [P] the first block of each.
        skip: [P + 1] the number of blocks that all its tokens would fill.
        pages: [layers, P + 1, heads] the number of pages of each head.
        tables: [layers, P + 1, heads, most pages of a head] these pages, counted from the layer's
            first page.
    """

    first: torch.Tensor
    skip: torch.Tensor
    pages: torch.Tensor
    tables: torch.Tensor

    @classmethod
    def of(cls, layouts: dict[int, Layout], pages: Pages) -> Prefixes:
        """`layouts`: keyed by their first blocks."""
        tables, counts = padded(list(layouts.values()))
        tables = tables - pages.layer_begins()[:, None, None, None]
        skip = [layout.tokens // pages.size for layout in layouts.values()] + [0]
        host = (np.array(list(layouts)), np.array(skip), counts, tables)
        device = pages.cache.device
        return cls(*(async_tensor_h2d(array, device, torch.int32) for array in host))


@dataclass
class HeadBatch:
    """One step's batch, head by head: sequence r*H + h is head h of request r.

    Attributes:
        order: rows of the queries, viewed as [tokens * H, group, dim], in the order of sequences;
            None if the rows are already in that order (one query token per request).
        starts: [R*H + 1] the index of each sequence's first query.
        tables: [layers, R*H, width] the pages of each sequence.
        lengths: [layers, R*H] the length of each sequence: the entries of its prefix and the tokens
            after it.
    """

    order: torch.Tensor | None
    starts: torch.Tensor
    tables: torch.Tensor
    lengths: torch.Tensor

    @classmethod
    def of(cls, metadata: Any, prefixes: Prefixes, pages: Pages) -> HeadBatch:
        """Made from a backend's own metadata of the step."""
        heads, size, rows = pages.heads, pages.size, metadata.block_table
        totals, begins = metadata.seq_lens, metadata.query_start_loc
        requests = len(totals)
        arange = functools.partial(torch.arange, dtype=torch.int32, device=rows.device)

        same = rows[:requests, :1] == prefixes.first
        which = torch.where(same.any(1), same.int().argmax(1), len(prefixes.first))
        skip, counts = prefixes.skip[which], prefixes.pages[:, which]  # [R], [layers, R, H]
        far = prefixes.tables[:, which]  # [layers, R, H, pages]
        near = (totals + size - 1) // size - skip  # [R] blocks after the prefix
        # The exact maximum if it can be read without waiting, else a bound, which only makes the
        # tables wider.
        columns = int(near.max()) if near.is_cpu else -(-metadata.max_seq_len // size)
        column = arange(max(1, columns))
        source = (skip[:, None] + column).clamp(max=rows.shape[1] - 1)
        blocks = rows[:requests].gather(1, source.long())
        new = blocks[:, None] * heads + arange(heads)[:, None]  # [R, H, columns]
        layers, widest = len(far), far.shape[3]
        tables = far.new_zeros(layers, requests, heads, widest + len(column))
        tables[..., :widest] = far
        places = counts.long()[..., None] + column
        tables.scatter_(3, places, new.expand(layers, -1, -1, -1))
        tables += arange(layers)[:, None, None, None] * (pages.num_blocks * heads)
        lengths = counts * size + (totals - skip * size)[:, None]

        queries = torch.diff(begins)[:, None]
        starts = begins[:-1, None] * heads + queries * arange(heads)  # [R, H]
        order = None
        if metadata.max_query_len > 1:
            token = arange(metadata.num_actual_tokens)
            request = torch.searchsorted(begins[1:], token, right=True)
            place = starts[request] + (token - begins[request])[:, None]
            place = place.flatten().long()
            order = torch.empty_like(place)
            order.scatter_(0, place, torch.arange(len(place), device=place.device))
        return cls(
            order,
            torch.cat([starts.flatten(), begins[-1:] * heads]),
            tables.view(layers, requests * heads, -1),
            lengths.reshape(layers, requests * heads),
        )


def ordered(rows: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """The rows in this order. Rows of f8 go as bytes, because PyTorch does not index this dtype."""
    if rows.element_size() > 1:
        return rows.index_select(0, order)
    return rows.view(torch.uint8).index_select(0, order).view(rows.dtype)


class RaggedImpl:
    """A mixin for a backend's implementation: attends head by head if a request has a prefix."""

    max_sequences = 2**31 - 1  # the most sequences in one call of the kernels

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        transfer = get_current_vllm_config().kv_transfer_config
        RaggedBackend.connected = transfer is not None and transfer.kv_connector == NAME
        refused = [
            (self.sliding_window not in (-1, (-1, -1)), "sliding windows"),
            (self.alibi_slopes is not None, "ALiBi"),
            (self.sinks is not None, "attention sinks"),
            (
                is_quantized_kv_cache(self.kv_cache_dtype) and self.kv_cache_dtype not in F8,
                f"a KV cache in {self.kv_cache_dtype}",
            ),
        ]
        for is_so, what in refused:
            if RaggedBackend.connected and is_so:
                raise ValueError(f"PrecisConnector does not support {what}")

    def fused_output_quant_supported(self, *args: Any) -> bool:
        """As in vLLM; False with the connector, because results are put into their order here."""
        return not RaggedBackend.connected and super().fused_output_quant_supported(*args)

    @functools.cached_property
    def one_head(self) -> RaggedImpl:
        """The same object for a model with only one of the KV heads."""
        other = copy.copy(self)
        other.num_heads, other.num_kv_heads = self.num_queries_per_kv, 1
        return other

    def by_head(self, metadata: Any, heads: int, layer: Any, dtype: torch.dtype) -> Any:
        """Completes the backend's metadata of a batch of heads.

        Args:
            metadata: already has the sequences' tables, lengths and starts. heads: the worker's KV
                heads.
        """
        return metadata

    def rows(self, pages: torch.Tensor, layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """The keys and values [pages, size, dim] in pages [pages, size, 2 * dim] of one head."""
        return pages.split(self.head_size, -1)

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        key: Any,
        value: Any,
        kv_cache: Any,
        attn_metadata: Any,
        output: torch.Tensor,
        **kwargs: Any,
    ) -> torch.Tensor:
        """As in vLLM; calls vLLM's own if no request of the step has a ragged prefix."""
        connector = get_kv_transfer_group() if has_kv_transfer_group() else None
        worker = getattr(connector, "worker", None)
        prefixes = worker.prefixes() if worker is not None and attn_metadata is not None else None
        if prefixes is None:
            return super().forward(
                layer, query, key, value, kv_cache, attn_metadata, output, **kwargs
            )
        pages = worker.pages
        batch = getattr(attn_metadata, "precis", None)
        if batch is None:
            batch = attn_metadata.precis = HeadBatch.of(attn_metadata, prefixes, pages)
        index = pages.index[layer.layer_name]
        tokens = attn_metadata.num_actual_tokens
        shape = (tokens * pages.heads, self.num_queries_per_kv, self.head_size)
        queries, target = query[:tokens].reshape(shape), output[:tokens].view(shape)
        out = target
        if batch.order is not None:
            queries, out = ordered(queries, batch.order), torch.empty_like(target)
        metadata = dataclasses.replace(
            attn_metadata,
            num_actual_tokens=len(queries),
            query_start_loc=batch.starts,
            seq_lens=batch.lengths[index],
            block_table=batch.tables[index],
            scheduler_metadata=None,  # the given schedule is for requests, not heads
        )
        metadata = self.by_head(metadata, pages.heads, layer, query.dtype)
        super(RaggedImpl, self.one_head).forward(
            layer, queries, None, None, pages.cache, metadata, out, **kwargs
        )
        if batch.order is not None:
            target.index_copy_(0, batch.order, out)
        return output
