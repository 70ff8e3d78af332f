"""The attention backend: each KV head of each request is a sequence of its own.

Seen as pages of one head, the cache is that of a model with one KV head, and R requests of H heads
are R*H sequences over it, each with pages and a length of its own. The kernels are vLLM's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from vllm import _custom_ops as ops
from vllm import envs
from vllm.config import get_current_vllm_config
from vllm.distributed.kv_transfer import get_kv_transfer_group, has_kv_transfer_group
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend, CPUAttentionBackendImpl
from vllm.v1.kv_cache_interface import FullAttentionSpec, replace_as

from . import NAME
from .plan import Layout


class RaggedBackend(CPUAttentionBackend):
    """vLLM's CPU backend, which also attends over ragged prefixes where the connector is set."""

    # Whether the engine whose layers were made last has the connector; their specs are asked for
    # next, without a configuration.
    connected = False

    @classmethod
    def customize_spec(cls, spec: Any) -> Any:
        """Puts layers of full attention under the manager that gives out ragged prefixes."""
        if not cls.connected or type(spec) is not FullAttentionSpec:
            return spec
        from .blocks import RaggedSpec

        return replace_as(spec, RaggedSpec)

    @staticmethod
    def get_impl_cls() -> type[CPUAttentionBackendImpl]:
        """The kernels' caller."""
        return RaggedImpl


@dataclass
class HeadBatch:
    """One step's batch, head by head: sequence r*H + h is head h of request r.

    Attributes:
        order: rows of the queries, seen as [tokens * H, group, dim], in the order of sequences;
            None where they stand so already (one query token each).
        starts: [R*H + 1] where each sequence's queries begin.
        tables: [layers, R*H, width] its pages.
        lengths: [layers, R*H] its tokens: entries of its prefix, and the tokens after it.
    """

    order: torch.Tensor | None
    starts: torch.Tensor
    tables: torch.Tensor
    lengths: torch.Tensor

    @classmethod
    def of(
        cls,
        query_starts: torch.Tensor,
        rows: torch.Tensor,
        totals: torch.Tensor,
        prefixes: dict[int, Layout],
        layers: int,
        heads: int,
        num_blocks: int,
        size: int,
    ) -> HeadBatch:
        """Made from vLLM's batch.

        Args:
            query_starts: [R + 1]; rows: [R, blocks] block tables; totals: [R] tokens.
            prefixes: by the first block of a row.
            num_blocks: of the cache; size: rows of a page.
        """
        requests = len(totals)
        first = rows[:, 0].tolist()
        found = [prefixes.get(block) for block in first]
        widest = max(p.padded.shape[2] for p in found if p is not None)
        far = torch.zeros(layers, requests, heads, widest, dtype=torch.int32)
        counts = torch.zeros(layers, requests, heads, dtype=torch.int32)
        skip = torch.zeros(requests, dtype=torch.int64)
        for prefix in {id(p): p for p in found if p is not None}.values():
            at = torch.tensor([r for r, p in enumerate(found) if p is prefix])
            padded = torch.from_numpy(prefix.padded)
            far[:, at, :, : padded.shape[2]] = padded[:, None]
            counts[:, at] = torch.from_numpy(prefix.pages.astype("int32"))[:, None]
            skip[at] = prefix.tokens // size

        near_count = (totals.long() + size - 1) // size - skip
        column = torch.arange(max(1, int(near_count.max())))
        source = (skip[:, None] + column).clamp(max=rows.shape[1] - 1)
        near = rows.long().gather(1, source) * heads  # [R, columns]
        base = torch.arange(layers) * (num_blocks * heads)
        pages = base[:, None, None, None] + near[None, :, None, :] + torch.arange(heads)[:, None]
        tables = torch.zeros(layers, requests, heads, widest + len(column), dtype=torch.int32)
        tables[..., :widest] = far
        tables.scatter_(3, counts.long()[..., None] + column, pages.int())
        lengths = counts * size + (totals.long() - skip * size)[:, None].int()

        queries = torch.diff(query_starts)
        starts = torch.zeros(requests * heads + 1, dtype=torch.int32)
        starts[1:] = queries.repeat_interleave(heads).cumsum(0)
        order = None
        if int(queries.max()) > 1:
            token = torch.arange(int(query_starts[-1]))
            request = torch.repeat_interleave(torch.arange(requests), queries.long())
            begin = query_starts.long()[request]
            # Token t of request r: head h stands at starts[r * H + h] + (t - begin).
            place = starts[:-1].long().view(requests, heads)[request] + (token - begin)[:, None]
            order = torch.empty(len(token) * heads, dtype=torch.int64)
            order[place.flatten()] = torch.arange(len(token) * heads)
        return cls(
            order,
            starts,
            tables.view(layers, requests * heads, -1),
            lengths.reshape(layers, requests * heads),
        )


class RaggedImpl(CPUAttentionBackendImpl):
    """Attends head by head in steps that have a request over a ragged prefix."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        transfer = get_current_vllm_config().kv_transfer_config
        RaggedBackend.connected = transfer is not None and transfer.kv_connector == NAME
        special = self.sliding_window != -1 or self.alibi_slopes is not None
        if RaggedBackend.connected and (special or self.sinks is not None):
            raise ValueError(
                "PrecisConnector does not support sliding windows, ALiBi and attention sinks"
            )

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: Any,
        output: torch.Tensor,
        *args: Any,
        **kwargs: Any,
    ) -> torch.Tensor:
        """As vLLM's, which it is where no request of the step has such a prefix."""
        connector = get_kv_transfer_group() if has_kv_transfer_group() else None
        worker = getattr(connector, "worker", None)
        prefixes = worker.prefixes() if worker is not None and attn_metadata is not None else None
        if not prefixes:
            return super().forward(
                layer, query, key, value, kv_cache, attn_metadata, output, *args, **kwargs
            )
        pages = worker.pages
        batch = getattr(attn_metadata, "precis", None)
        if batch is None:
            batch = attn_metadata.precis = HeadBatch.of(
                attn_metadata.query_start_loc,
                attn_metadata.block_table,
                attn_metadata.seq_lens,
                prefixes,
                len(pages.layers),
                pages.heads,
                pages.num_blocks,
                pages.size,
            )
        index = pages.index[layer.layer_name]
        tokens, group = attn_metadata.num_actual_tokens, self.num_queries_per_kv
        by_head = query[:tokens].reshape(tokens * pages.heads, group, self.head_size)
        target = output[:tokens].view(tokens * pages.heads, group, self.head_size)
        ordered = by_head.contiguous() if batch.order is None else by_head[batch.order]
        out = target if batch.order is None else torch.empty_like(ordered)
        plan = ops.cpu_attn_get_scheduler_metadata(
            num_reqs=batch.lengths.shape[1],
            num_heads=group,
            num_kv_heads=1,
            head_dim=self.head_size,
            seq_lens=batch.lengths[index],
            dtype=query.dtype,
            query_start_loc=batch.starts,
            causal=True,
            sliding_window_size=-1,
            isa=layer.isa,
            enable_kv_split=envs.VLLM_CPU_ATTN_SPLIT_KV,
        )
        ops.cpu_attention_with_kv_cache(
            query=ordered,
            key_cache=pages.keys,
            value_cache=pages.values,
            output=out,
            query_start_loc=batch.starts,
            seq_lens=batch.lengths[index],
            scale=self.scale,
            causal=True,
            alibi_slopes=None,
            sliding_window=-1,
            block_table=batch.tables[index],
            softcap=self.logits_soft_cap,
            scheduler_metadata=plan,
            s_aux=None,
        )
        if batch.order is not None:
            target[batch.order] = out
        return output


def keys_are_turned(isa: str, dtype: torch.dtype, size: int, dim: int) -> bool:
    """Whether the CPU kernels hold a page's keys as [dim, size]: asks the kernel that writes them.

    Raises:
        ValueError: they are held in neither order, so the store cannot read or write pages.
    """
    cache = torch.zeros(1, 1, 2 * size, dim, dtype=dtype)
    keys, values = cache.chunk(2, dim=2)
    # Numbers that any dtype holds exactly: the row in one pass, the column in another.
    row = torch.arange(size).to(dtype)[:, None, None].expand(size, 1, dim).contiguous()
    column = torch.arange(dim).to(dtype).expand(size, 1, dim).contiguous()
    found = []
    for probe in (row, column):
        ops.cpu_attn_reshape_and_cache(probe, probe, keys, values, torch.arange(size), isa)
        if not torch.equal(values.reshape(size, dim), probe[:, 0]):
            raise ValueError(f"the CPU kernels ({isa}, {dtype}) hold values in an unknown order")
        found.append(keys.reshape(-1).clone())
    plain = [row[:, 0].reshape(-1), column[:, 0].reshape(-1)]
    if all(map(torch.equal, found, plain)):
        return False
    if all(map(torch.equal, found, [p.view(size, dim).t().reshape(-1) for p in plain])):
        return True
    raise ValueError(
        f"the CPU kernels ({isa}, {dtype}) hold keys in an order of their own, which Precis does "
        "not read: choose another dtype (float32 or float16)"
    )
