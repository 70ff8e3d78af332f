"""Attention over ragged prefixes, against dense attention over the kept entries."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sglang_stub
import torch
from precis_sglang.attention import OverTriton, make_backend
from precis_sglang.plan import Layout, slots_of
from torch.nn.functional import scaled_dot_product_attention

LAYERS, HEADS, GROUP, DIM, SLOTS = 2, 3, 2, 16, 400


class Pool:
    """K and V of every layer, [slots, H, D]; slot 0 has NaN, which must never be attended to."""

    layer_num, head_num, start_layer = LAYERS, HEADS, 0

    def __init__(self) -> None:
        self.k = torch.randn(LAYERS, SLOTS, HEADS, DIM)
        self.v = torch.randn(LAYERS, SLOTS, HEADS, DIM)
        self.k[:, 0] = self.v[:, 0] = float("nan")

    def get_key_buffer(self, layer: int) -> torch.Tensor:
        return self.k[layer]

    def get_value_buffer(self, layer: int) -> torch.Tensor:
        return self.v[layer]

    def set_kv_buffer(self, layer: Any, where: Any, k: torch.Tensor, v: torch.Tensor) -> None:
        self.k[layer.layer_id, where.loc] = k.view(-1, HEADS, DIM)
        self.v[layer.layer_id, where.loc] = v.view(-1, HEADS, DIM)


class Mode:
    """A forward pass that decodes, or extends."""

    def __init__(self, decodes: bool) -> None:
        self.decodes = decodes

    def is_decode(self) -> bool:
        return self.decodes

    def is_target_verify(self) -> bool:
        return False


def layer_of(index: int, **more: Any) -> SimpleNamespace:
    fields = {
        "layer_id": index,
        "tp_q_head_num": HEADS * GROUP,
        "tp_k_head_num": HEADS,
        "head_dim": DIM,
        "qk_head_dim": DIM,
        "v_head_dim": DIM,
        "scaling": 0.3,
        "logit_cap": 0.0,
        "sliding_window_size": -1,
        "is_cross_attention": False,
        "attn_type": SimpleNamespace(value="decoder"),
    }
    return SimpleNamespace(**(fields | more))


class Step:
    """Requests, some with ragged prefixes, with rows, slots, and K and V of their entries."""

    def __init__(self, seed: int, decodes: bool, prefixes: bool = True) -> None:
        torch.manual_seed(seed)
        draw = np.random.default_rng(seed)
        free = draw.permutation(np.arange(1, SLOTS)).tolist()
        self.pool = Pool()
        rows = torch.zeros(8, 200, dtype=torch.int32)
        self.standing: dict[str, Layout] = {}
        skips, totals, new = [], [], []
        for request in range(4):
            skip = 0
            if prefixes and request % 2 == 0:
                skip = int(draw.integers(1, 30))
                counts = torch.from_numpy(draw.integers(0, skip + 1, (LAYERS, HEADS)))
                slots = torch.tensor([free.pop() for _ in range(slots_of(counts))])
                self.standing[str(request)] = layout = Layout.of(skip, counts, slots)
                rows[request, :skip] = layout.row()
            before = int(draw.integers(0, 9))  # tokens of earlier chunks
            count = 1 if decodes else int(draw.integers(1, 9))
            near = torch.tensor([free.pop() for _ in range(before + count)])
            rows[request, skip : skip + len(near)] = near
            skips.append(skip)
            totals.append(skip + before + count)
            new.append(count)
        self.skips, self.new = skips, new
        self.batch = SimpleNamespace(
            rids=[str(request) for request in range(4)],
            batch_size=4,
            forward_mode=Mode(decodes),
            req_pool_indices=torch.arange(4),
            seq_lens=torch.tensor(totals),
            extend_seq_lens=torch.tensor(new),
            extend_prefix_lens=torch.tensor(totals) - torch.tensor(new),
            out_cache_loc=torch.cat(
                [
                    rows[r, t - n : t].long()
                    for r, (t, n) in enumerate(zip(totals, new, strict=True))
                ]
            ),
            out_cache_loc_is_physical=True,
        )
        self.runner = SimpleNamespace(
            device="cpu",
            use_mla_backend=False,
            req_to_token_pool=SimpleNamespace(req_to_token=rows),
            token_to_kv_pool=self.pool,
        )

    def inputs(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """q, k, v of the new tokens, as a model's layer computes them."""
        tokens = sum(self.new)
        return (
            torch.randn(tokens, HEADS * GROUP * DIM),
            torch.randn(tokens, HEADS, DIM),
            torch.randn(tokens, HEADS, DIM),
        )

    def dense(self, q: torch.Tensor, layer: int) -> torch.Tensor:
        """The expected output: each query head over its KV head's kept entries and later tokens."""
        rows, out, token = self.runner.req_to_token_pool.req_to_token, [], 0
        for request, count in enumerate(self.new):
            total = int(self.batch.seq_lens[request])
            layout = self.standing.get(str(request))
            heads = []
            for head in range(HEADS * GROUP):
                kv = head // GROUP
                near = rows[request, self.skips[request] : total].long()
                k, v = (cache[layer][near, kv] for cache in (self.pool.k, self.pool.v))
                if layout is not None:
                    begin = int(layout.counts[layer, :kv].sum())
                    places = layout.of_layer(layer)[begin:][: int(layout.counts[layer, kv])]
                    slots, columns = places // HEADS, places % HEADS
                    k = torch.cat([self.pool.k[layer][slots, columns], k])
                    v = torch.cat([self.pool.v[layer][slots, columns], v])
                mask = torch.ones(count, len(k), dtype=torch.bool).tril(len(k) - count)
                mine = q.view(-1, HEADS * GROUP, DIM)[token : token + count, head]
                heads.append(scaled_dot_product_attention(mine, k, v, attn_mask=mask, scale=0.3))
            out.append(torch.stack(heads, 1).reshape(count, -1))
            token += count
        return torch.cat(out)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("decodes", [True, False])
def test_it_is_dense_attention_over_the_kept_entries(seed: int, decodes: bool) -> None:
    step = Step(seed, decodes)
    backend = make_backend(step.runner)
    backend.standing = step.standing
    backend.init_forward_metadata(step.batch)
    for index in range(LAYERS):
        q, k, v = step.inputs()
        forward = backend.forward_decode if decodes else backend.forward_extend
        out = forward(q, k, v, layer_of(index), step.batch)
        torch.testing.assert_close(out, step.dense(q, index))


@pytest.mark.parametrize("decodes", [True, False])
def test_a_step_without_a_prefix_is_the_stock_backends(decodes: bool) -> None:
    step = Step(1, decodes, prefixes=False)
    backend = make_backend(step.runner)
    backend.init_forward_metadata(step.batch)
    assert backend.step is None
    if not sglang_stub.REAL:
        assert backend.forward_decode() == "stock decode"
        assert backend.forward_extend() == "stock extend"


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"sliding_window_size": 128}, "sliding windows"),
        ({"logit_cap": 30.0}, "capped logits"),
        ({"is_cross_attention": True}, "attention that is not causal"),
        ({"v_head_dim": 8}, "values of another width"),
    ],
)
def test_layers_of_other_kinds_are_refused(more: dict[str, Any], what: str) -> None:
    step = Step(2, decodes=True)
    backend = make_backend(step.runner)
    backend.standing = step.standing
    backend.init_forward_metadata(step.batch)
    q, k, v = step.inputs()
    with pytest.raises(ValueError, match=what):
        backend.forward_decode(q, k, v, layer_of(0, **more), step.batch)
    with pytest.raises(ValueError, match="sinks"):
        backend.forward_decode(q, k, v, layer_of(0), step.batch, sinks=torch.zeros(6))


def test_a_padded_step_is_refused() -> None:
    step = Step(3, decodes=True)
    backend = make_backend(step.runner)
    backend.standing = step.standing
    step.batch.batch_size = 8
    with pytest.raises(ValueError, match="padded"):
        backend.init_forward_metadata(step.batch)


def test_mla_and_cuda_graphs_are_refused() -> None:
    with pytest.raises(ValueError, match="MLA"):
        make_backend(SimpleNamespace(use_mla_backend=True))
    if not sglang_stub.REAL:
        with pytest.raises(ValueError, match="cuda-graph-backend-decode disabled"):
            make_backend(SimpleNamespace(use_mla_backend=False, device="cuda"))


class Kernels:
    """Replaces SGLang's Triton kernels: checks the arguments, and computes in plain PyTorch."""

    def __init__(self, step: Step) -> None:
        self.req_to_token_pool = step.runner.req_to_token_pool
        self.token_to_kv_pool = step.pool
        self.max_kv_splits = 4

    def init_forward_metadata(self, batch: Any) -> None:
        pass

    def forward_decode(self, *args: Any) -> None:
        raise AssertionError

    forward_extend = forward_decode

    @staticmethod
    def decode_attention_fwd(
        q: Any, keys: Any, values: Any, out: Any, starts: Any, places: Any, partial: Any, lse: Any,
        splits: Any, max_splits: int, scaling: float, *scales: float,
    ) -> None:  # fmt: skip
        assert partial.shape == (len(q), q.shape[1], max_splits, DIM)
        assert lse.shape == partial.shape[:3] and splits.tolist() == [max_splits] * len(q)
        for sequence in range(len(q)):
            begin, end = starts[sequence : sequence + 2]
            k, v = keys[places[begin:end], 0], values[places[begin:end], 0]
            out[sequence] = torch.softmax(q[sequence] @ k.T * scaling, -1) @ v

    @staticmethod
    def extend_attention_fwd(
        q: Any, k: Any, v: Any, out: Any, keys: Any, values: Any, own: Any, starts: Any,
        places: Any, mask: Any, causal: bool, mask_starts: Any, most: int, k_scale: float,
        v_scale: float, scaling: float,
    ) -> None:  # fmt: skip
        assert causal and mask is None and mask_starts is None
        assert most == int(own.diff().max())
        for sequence in range(len(own) - 1):
            mine = slice(int(own[sequence]), int(own[sequence + 1]))
            far = places[starts[sequence] : starts[sequence + 1]]
            k_all = torch.cat([keys[far, 0], k[mine, 0]])
            v_all = torch.cat([values[far, 0], v[mine, 0]])
            score = torch.einsum("tgd,nd->gtn", q[mine], k_all) * scaling
            seen = torch.ones(score.shape[1:], dtype=torch.bool).tril(len(far))
            weight = score.masked_fill(~seen, -torch.inf).softmax(-1)
            out[mine] = torch.einsum("gtn,nd->tgd", weight, v_all)


def check_over_triton(step: Step, decodes: bool, kernels: dict[str, Any]) -> None:
    """Attends as dense attention does; `kernels`: to use instead of the replacements."""
    backend = type("Backend", (OverTriton, Kernels), kernels)(step)
    backend.standing = step.standing
    backend.init_forward_metadata(step.batch)
    q, k, v = step.inputs()
    forward = backend.forward_decode if decodes else backend.forward_extend
    out = forward(q, k, v, layer_of(1), step.batch)
    torch.testing.assert_close(out, step.dense(q, 1))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("decodes", [True, False])
def test_the_triton_kernels_get_tables_that_mean_the_same(seed: int, decodes: bool) -> None:
    check_over_triton(Step(seed, decodes), decodes, {})


@pytest.mark.skipif(
    not sglang_stub.REAL or os.environ.get("TRITON_INTERPRET") != "1",
    reason="SGLang's kernels run without a GPU where it is installed and TRITON_INTERPRET is 1",
)
@pytest.mark.parametrize("decodes", [True, False])
def test_sglangs_own_kernels_take_the_tables(decodes: bool) -> None:
    from sglang.kernels.ops.attention.decode_attention import decode_attention_fwd
    from sglang.kernels.ops.attention.extend_attention import extend_attention_fwd

    own = {
        "decode_attention_fwd": staticmethod(decode_attention_fwd),
        "extend_attention_fwd": staticmethod(extend_attention_fwd),
    }
    check_over_triton(Step(7, decodes), decodes, own)
