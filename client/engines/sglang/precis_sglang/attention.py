"""The attention backend: each KV head of each request is a separate sequence.

It is one of SGLang's backends with another forward pass for steps with a ragged prefix; other steps
are unchanged. Over Triton it passes the tables to SGLang's own kernels, which take places and
starts. Over plain PyTorch it attends sequence by sequence, which is slow but simple: a reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from .plan import Batch, Layout, Table, by_head


def attend(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    table: Table,
    queries: torch.Tensor,
    scaling: float,
) -> torch.Tensor:
    """Causal attention of each sequence over its places; the last places belong to its queries.

    Args:
        q: [sum of queries, group, dim], sequence after sequence.
        keys, values: [slots * H, 1, dim]. queries: integers [R * H], the count of each sequence.

    Returns:
        The output, in the shape of q.
    """
    out = torch.empty_like(q)
    begins = (queries.cumsum(0) - queries).tolist()
    starts = table.starts.tolist()
    for sequence, (begin, count) in enumerate(zip(begins, queries.tolist(), strict=True)):
        places = table.places[starts[sequence] : starts[sequence + 1]]
        before = len(places) - count
        seen = torch.ones(count, len(places), dtype=torch.bool, device=q.device).tril(before)
        mine = q[begin : begin + count].transpose(0, 1)  # [group, count, dim]
        k, v = (cache[places, 0].to(q.dtype).expand(len(mine), -1, -1) for cache in (keys, values))
        heads = scaled_dot_product_attention(mine, k, v, attn_mask=seen, scale=scaling)
        out[begin : begin + count] = heads.transpose(0, 1)
    return out


class Ragged:
    """A mixin for SGLang's backends: attends over ragged prefixes in steps that have any.

    Attributes:
        standing: the prefix of each request that has one, by request id. The cache sets it.
    """

    standing: Mapping[str, Layout] = {}
    step: tuple[Batch, torch.Tensor, torch.Tensor] | None = None  # batch, queries, their order

    def _attend(
        self, q: Any, k: Any, v: Any, keys: Any, values: Any, layer: Any, batch: Any
    ) -> torch.Tensor:
        """The step's attention; q [n, group, dim], k and v [n, 1, dim], sequence by sequence."""
        raise NotImplementedError

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """As SGLang's; also computes the data that all layers of the step share."""
        super().init_forward_metadata(forward_batch)
        self.step = None
        layouts = [self.standing.get(rid) for rid in forward_batch.rids or ()]
        if not any(layouts):
            return
        mode, pool = forward_batch.forward_mode, self.token_to_kv_pool
        if len(layouts) != forward_batch.batch_size or mode.is_target_verify():
            raise ValueError("precis: a step is padded or verifies a draft, over a ragged prefix")
        batch = Batch.of(
            self.req_to_token_pool.req_to_token,
            forward_batch.req_pool_indices,
            layouts,
            pool.layer_num,
            pool.head_num,
        )
        lengths = forward_batch.seq_lens
        queries = torch.ones_like(lengths) if mode.is_decode() else forward_batch.extend_seq_lens
        self.step = batch, queries, by_head(queries, pool.head_num)

    def forward_decode(self, *args: Any, **more: Any) -> torch.Tensor:
        """As the stock backend's; the stock one if no request of the step has such a prefix."""
        stock = super().forward_decode
        return (stock if self.step is None else self._forward)(*args, **more)

    def forward_extend(self, *args: Any, **more: Any) -> torch.Tensor:
        """As the stock backend's; the stock one if no request of the step has such a prefix."""
        stock = super().forward_extend
        return (stock if self.step is None else self._forward)(*args, **more)

    def _forward(
        self,
        q: Any,
        k: Any,
        v: Any,
        layer: Any,
        batch: Any,
        save_kv_cache: bool = True,
        **more: Any,
    ) -> torch.Tensor:
        from sglang.srt.mem_cache.memory_pool import KVWriteLoc

        _refuse(layer, k, more)
        assert self.step is not None
        pool, heads, dim = self.token_to_kv_pool, layer.tp_k_head_num, layer.head_dim
        if save_kv_cache:
            pool.set_kv_buffer(layer, KVWriteLoc.for_batch(batch), k, v)
        order = self.step[2]
        mine = q.reshape(-1, layer.tp_q_head_num // heads, dim)[order]
        k, v = (rows.reshape(-1, 1, dim)[order] for rows in (k, v))
        keys = pool.get_key_buffer(layer.layer_id).view(-1, 1, dim)
        values = pool.get_value_buffer(layer.layer_id).view(-1, 1, dim)
        out = torch.empty_like(mine)
        out[order] = self._attend(mine, k, v, keys, values, layer, batch)
        return out.view(-1, layer.tp_q_head_num * dim)


def _refuse(layer: Any, k: Any, more: dict[str, Any]) -> None:
    """Refuses features that attention over kept entries does not support.

    Raises:
        ValueError: naming the feature.
    """
    refused = [
        (layer.sliding_window_size > -1, "sliding windows"),
        (layer.logit_cap > 0, "capped logits"),
        (
            layer.is_cross_attention or layer.attn_type.value != "decoder",
            "attention that is not causal",
        ),
        (layer.v_head_dim != layer.head_dim, "values of another width than keys"),
        (k is None, "layers that use another layer's K and V"),
        (any(value is not None for value in more.values()), f"{', '.join(more)}"),
    ]
    for is_so, what in refused:
        if is_so:
            raise ValueError(f"precis does not support {what} (layer {layer.layer_id})")


class OverTorch(Ragged):
    """Attends in plain PyTorch."""

    def _attend(
        self, q: Any, k: Any, v: Any, keys: Any, values: Any, layer: Any, batch: Any
    ) -> torch.Tensor:
        ragged, queries, _ = self.step
        table = ragged.table(layer.layer_id - self.token_to_kv_pool.start_layer, batch.seq_lens)
        each = queries.repeat_interleave(layer.tp_k_head_num)
        return attend(q, keys, values, table, each, layer.scaling)


class OverTriton(Ragged):
    """Passes the tables to SGLang's Triton kernels."""

    def _attend(
        self, q: Any, k: Any, v: Any, keys: Any, values: Any, layer: Any, batch: Any
    ) -> torch.Tensor:
        ragged, queries, _ = self.step
        decodes = batch.forward_mode.is_decode()
        index = layer.layer_id - self.token_to_kv_pool.start_layer
        # In a prefill the kernel reads new tokens from k and v, so the table ends before them.
        table = ragged.table(index, batch.seq_lens if decodes else batch.extend_prefix_lens)
        out = torch.empty_like(q)
        if decodes:
            splits = torch.full(q.shape[:1], self.max_kv_splits, dtype=torch.int32, device=q.device)
            lse = q.new_empty(*q.shape[:2], self.max_kv_splits, dtype=torch.float32)
            partial = lse.new_empty(*lse.shape, layer.head_dim)
            self.decode_attention_fwd(
                q, keys, values, out, table.starts, table.places, partial, lse, splits,
                self.max_kv_splits, layer.scaling, 1.0, 1.0,
            )  # fmt: skip
            return out
        each = queries.repeat_interleave(layer.tp_k_head_num)
        starts = torch.zeros(len(each) + 1, dtype=torch.int32, device=q.device)
        starts[1:] = each.cumsum(0)
        self.extend_attention_fwd(
            q, k, v, out, keys, values, starts, table.starts, table.places, None, True, None,
            int(queries.max()), 1.0, 1.0, layer.scaling,
        )  # fmt: skip
        return out


def make_backend(runner: Any) -> Any:
    """The attention backend of a model runner: over Triton, or plain PyTorch on a CPU.

    Raises:
        ValueError: the engine captures CUDA graphs, whose tables have a fixed shape; or its model
            or cache is of an unsupported kind.
    """
    from sglang.srt.model_executor.cuda_graph_config import cuda_graph_fully_disabled

    if runner.use_mla_backend:
        raise ValueError("precis does not support MLA, which has no K and V of heads")
    if runner.device == "cpu":
        from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

        return type("PrecisTorchBackend", (OverTorch, TorchNativeAttnBackend), {})(runner)
    if not cuda_graph_fully_disabled():
        raise ValueError(
            "precis makes new tables for each step, which CUDA graphs do not allow: start the "
            "engine with --cuda-graph-backend-decode disabled --cuda-graph-backend-prefill disabled"
        )
    from sglang.srt.layers.attention.triton_backend import TritonAttnBackend

    return type("PrecisTritonBackend", (OverTriton, TritonAttnBackend), {})(runner)
