"""Each backend's attention over ragged prefixes, against dense attention over the same entries.

The CPU's kernels run here, those of GPUs do not: they are replaced by plain attention over exactly
their arguments, with the checks of their sources.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import batches
import numpy as np
import pytest
import torch
from batches import SIZE, Request
from precis_vllm import NAME, attention, attention_cpu, attention_gpu
from precis_vllm.attention import Prefixes, RaggedBackend, RaggedImpl
from precis_vllm.worker import Pages
from vllm.v1.attention.backends import cpu_attn, flash_attn, triton_attn
from vllm.v1.kv_cache_interface import FullAttentionSpec

DIM = 32
F8 = torch.float8_e4m3fn
BACKENDS = {
    "CPU_ATTN": attention_cpu.RaggedCpuBackend,
    "FLASH_ATTN": attention_gpu.RaggedFlashBackend,
    "TRITON_ATTN": attention_gpu.RaggedTritonBackend,
}


def paged(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, starts: torch.Tensor,
    lengths: torch.Tensor, table: torch.Tensor, scale: float, descales: tuple[Any, Any],
) -> None:  # fmt: skip
    """Causal attention over a paged cache, sequence by sequence and head by head.

    `descales`: of K and V, [sequences, heads]; used for a cache in f8.
    """
    group = q.shape[1] // k.shape[2]
    in_f8 = k.dtype == F8
    if in_f8:
        q, k, v = (x.to(torch.float32) for x in (q, k, v))
    for sequence, length in enumerate(lengths.tolist()):
        begin, end = starts[sequence : sequence + 2].tolist()
        used = table[sequence, : -(-length // SIZE)].long()
        for head in range(q.shape[1]):
            keys, values = (x[used, :, head // group].reshape(-1, DIM)[:length] for x in (k, v))
            if in_f8:
                keys, values = (
                    rows * by[sequence, head // group]
                    for rows, by in zip((keys, values), descales, strict=True)
                )
            out[begin:end, head] = dense(q[begin:end, head], keys, values, scale)


def dense(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
    """Causal attention; the last entries belong to the queries."""
    hidden = torch.ones(len(q), len(keys)).triu(len(keys) - len(q) + 1).bool()
    scores = (q.double() @ keys.double().T * scale).masked_fill(hidden, float("-inf"))
    return (scores.softmax(-1) @ values.double()).to(q.dtype)


def flash_kernel(*, q: Any, k: Any, v: Any, out: Any, **given: Any) -> None:
    """Replaces flash_attn_varlen_func; the checks are those of its C++ code for paged caches."""
    table, starts, lengths = given["block_table"], given["cu_seqlens_q"], given["seqused_k"]
    _, size, heads, dim = k.shape
    sequences = len(lengths)
    assert table.dtype == starts.dtype == lengths.dtype == torch.int32
    assert all(x.stride(-1) == 1 for x in (q, k, v, out, table))
    assert starts.is_contiguous() and lengths.is_contiguous()
    assert starts.shape == (sequences + 1,) and table.shape[0] == sequences <= 65_535
    assert v.shape == k.shape and size % 16 == 0 and dim % 8 == 0 and q.shape[1] % heads == 0
    assert out.shape == q.shape and q.shape[0] == starts[-1]
    assert q.dtype == k.dtype and (out.dtype == q.dtype or q.dtype == F8)
    # For the Tensor Memory Accelerator, with which FlashAttention 3 and 4 load pages.
    assert all(s * x.element_size() % 16 == 0 for x in (k, v) for s in x.stride()[:-1])
    assert all(x.data_ptr() % 16 == 0 for x in (k, v))
    assert starts.diff().max() == given["max_seqlen_q"] and lengths.max() <= given["max_seqlen_k"]
    assert given["k_descale"].shape == given["v_descale"].shape == (sequences, heads)
    assert given["scheduler_metadata"] is None and given["causal"] is True
    assert given["window_size"] in (None, [-1, -1]) and given["softcap"] == 0
    for name in ("alibi_slopes", "s_aux", "mask_mod", "aux_tensors", "dynamic_causal"):
        assert given[name] is None
    descales = given["k_descale"], given["v_descale"]
    paged(q, k, v, out, starts, lengths, table, given["softmax_scale"], descales)


def triton_kernel(*, q: Any, k: Any, v: Any, out: Any, **given: Any) -> None:
    """Replaces unified_attention; if that splits sequences, this uses the same memory."""
    table, starts, lengths = given["block_table"], given["cu_seqlens_q"], given["seqused_k"]
    assert table.dtype == starts.dtype == lengths.dtype == torch.int32
    assert table.stride(1) == 1 and all(x.stride(2) == 1 for x in (q, out))
    assert q.stride(1) == out.stride(1) == q.shape[2] and starts.shape == (len(lengths) + 1,)
    assert given["causal"] is True and given["window_size"] == (-1, -1) and given["softcap"] == 0
    assert all(given[name] is None for name in ("alibi_slopes", "sinks", "rswa_window"))
    if given["max_seqlen_q"] == 1 and len(lengths) <= given["seq_threshold_3D"]:
        parts = q.shape[0] * q.shape[1] * given["num_par_softmax_segments"]
        for name in ("softmax_segm_max", "softmax_segm_expsum"):
            assert given[name].numel() >= parts and given[name].is_contiguous()
        assert given["softmax_segm_output"].numel() >= parts * DIM
        assert given["softmax_segm_output"].is_contiguous()
        assert given["softmax_segm_output"].shape[1] == q.shape[1]
    descales = given["k_descale"], given["v_descale"]
    paged(q, k, v, out, starts, lengths, table, given["softmax_scale"], descales)


def configured(monkeypatch: pytest.MonkeyPatch, connector: str | None = NAME) -> None:
    """A process whose engine has the connector, for layers that are made next."""
    transfer = None if connector is None else SimpleNamespace(kv_connector=connector)
    config = SimpleNamespace(
        kv_transfer_config=transfer, model_config=SimpleNamespace(dtype=torch.float32)
    )
    for module in (attention, cpu_attn):
        monkeypatch.setattr(module, "get_current_vllm_config", lambda: config)
    monkeypatch.setattr(RaggedBackend, "connected", False)


def make(backend: str, heads: int, group: int, **options: Any) -> RaggedImpl:
    given: dict[str, Any] = {"alibi_slopes": None, "sliding_window": None, "kv_cache_dtype": "auto"}
    impl = BACKENDS[backend].get_impl_cls()
    return impl(heads * group, DIM, 0.2, heads, **(given | options))


def made(kind: type, common: dict[str, Any], **own: Any) -> Any:
    """A backend's metadata; further fields of vLLM 0.31 say that there is no cascade."""
    given = common | own
    older = {f.name: False for f in dataclasses.fields(kind)
             if f.name not in given and f.default is dataclasses.MISSING}  # fmt: skip
    return kind(**given, **older)


class Case:
    """A layer of a backend in a worker, with its requests' pages."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, backend: str, requests: list[Request], heads: int,
        group: int, dtype: torch.dtype, kv_cache_dtype: str = "auto",
    ) -> None:  # fmt: skip
        """`dtype`: of queries and results, and of the cache unless it is in f8."""
        configured(monkeypatch)
        monkeypatch.setattr(flash_attn, "flash_attn_supports_kv_cache_dtype", lambda *a, **k: True)
        self.requests, self.heads, self.group, self.backend = requests, heads, group, backend
        self.in_f8 = kv_cache_dtype != "auto"
        self.impl = make(backend, heads, group, kv_cache_dtype=kv_cache_dtype)
        self.impl.vllm_flash_attn_version = 3
        monkeypatch.setattr(flash_attn, "flash_attn_varlen_func", flash_kernel, raising=False)
        monkeypatch.setattr(triton_attn, "unified_attention", triton_kernel)
        isa = cpu_attn._get_attn_isa(dtype, SIZE, DIM)
        self.caches = batches.caches(heads, DIM, torch.uint8 if self.in_f8 else dtype)
        self.scales = (0.5, 0.25) if self.in_f8 else (1.0, 1.0)  # of K and V
        one, (k_scale, v_scale) = torch.ones(()), map(torch.tensor, self.scales)
        self.layer = SimpleNamespace(
            layer_name=list(self.caches)[1], isa=isa, _q_scale=one, _k_scale=k_scale,
            _v_scale=v_scale, _k_scale_float=self.scales[0], _v_scale_float=self.scales[1],
        )  # fmt: skip
        self.pages = Pages(self.caches, lambda cache: self.impl.rows(cache, self.layer))
        found = batches.layouts(requests)
        prefixes = Prefixes.of(found, self.pages) if found else None
        worker = SimpleNamespace(prefixes=lambda: prefixes, pages=self.pages)
        monkeypatch.setattr(attention, "has_kv_transfer_group", lambda: True)
        monkeypatch.setattr(
            attention, "get_kv_transfer_group", lambda: SimpleNamespace(worker=worker)
        )
        self.draw = torch.Generator().manual_seed(1)
        self.dtype = dtype
        self.fill()

    def random(self, *shape: int) -> torch.Tensor:
        drawn = torch.randn(*shape, generator=self.draw)
        return (drawn.to(F8) if self.in_f8 else drawn).to(self.dtype)

    def stored(self, rows: torch.Tensor, scale: float) -> torch.Tensor:
        """Rows as the cache has them."""
        return (rows / scale).to(F8).view(torch.uint8) if self.in_f8 else rows

    def fill(self) -> None:
        """Writes prefixes by the store's view of the pages, new tokens by the backend."""
        for scale, rows in zip(
            self.scales, (self.pages.store.keys, self.pages.store.values), strict=True
        ):
            for request in self.requests:
                for page in request.layout.table.tolist() if request.layout else ():
                    rows[page] = self.stored(self.random(SIZE, DIM), scale)
        self.near = []
        cache = self.caches[self.layer.layer_name]
        for request in self.requests:
            keys, values = (self.random(request.new, self.heads, DIM) for _ in range(2))
            self.near.append((keys, values))
            slots = torch.tensor(
                [request.near[t // SIZE] * SIZE + t % SIZE for t in range(request.new)]
            )
            if self.backend == "CPU_ATTN":
                self.impl.do_kv_cache_update(self.layer, keys, values, cache, slots)
            else:  # as reshape_and_cache_flash, whose caches are these halves of the content
                cache[slots // SIZE, :, slots % SIZE, :DIM] = self.stored(keys, self.scales[0])
                cache[slots // SIZE, :, slots % SIZE, DIM:] = self.stored(values, self.scales[1])

    def metadata(self) -> Any:
        """The backend's own metadata."""
        common = vars(batches.metadata(self.requests)) | {"slot_mapping": torch.empty(0)}
        stale = torch.zeros(1)  # a schedule of requests, not of sequences
        if self.backend == "FLASH_ATTN":
            return made(flash_attn.FlashAttentionMetadata, common, scheduler_metadata=stale)
        if self.backend == "CPU_ATTN":
            return cpu_attn.CPUAttentionMetadata(**common, scheduler_metadata=stale)
        most, parts = triton_attn.MIN_LAUNCH_GRID_SIZE_2D // self.heads, 16
        shape = (most, self.heads * self.group, parts)
        return made(
            triton_attn.TritonAttentionMetadata, common, causal=True,
            seq_threshold_3D=most, num_par_softmax_segments=parts,
            softmax_segm_output=torch.empty(*shape, DIM), softmax_segm_max=torch.empty(shape),
            softmax_segm_expsum=torch.empty(shape),
        )  # fmt: skip

    def entries(self, request: int, head: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The keys and values that a request's KV head attends to."""
        found, layout = [], self.requests[request].layout
        index = self.pages.index[self.layer.layer_name] * self.heads + head
        for store, near, scale in zip(
            (self.pages.store.keys, self.pages.store.values),
            self.near[request],
            self.scales,
            strict=True,
        ):
            begin, end = layout.starts[index : index + 2] if layout else (0, 0)
            table = layout.table[begin:end].astype(np.int64) if layout else []
            far = [store[page] for page in table]
            if self.in_f8:
                far = [page.contiguous().view(F8).to(self.dtype) * scale for page in far]
            found.append(torch.cat([*far, near[:, head]]))
        return found[0], found[1]

    def check(self, bound: float) -> None:
        """Checks its attention against the dense one."""
        metadata, heads, group = self.metadata(), self.heads, self.group
        tokens = metadata.num_actual_tokens
        # With rows past the last token, as CUDA graphs pad them.
        query = self.random(tokens + 3, heads * group, DIM)
        output = torch.full_like(query, 9)
        cache = self.caches[self.layer.layer_name]
        # vLLM rounds the queries of FlashAttention to f8.
        given = query.to(F8) if self.in_f8 and self.backend == "FLASH_ATTN" else query
        got = self.impl.forward(self.layer, given, None, None, cache, metadata, output)
        want = torch.full_like(query, 9)
        for r, request in enumerate(self.requests):
            begin = int(metadata.query_start_loc[r])
            rows = slice(begin, begin + request.queries)
            for head in range(heads * group):
                entries = self.entries(r, head // group)
                want[rows, head] = dense(query[rows, head], *entries, self.impl.scale)
        torch.testing.assert_close(got, want, rtol=0, atol=bound)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("heads", "group"), [(2, 3), (1, 4), (4, 1)])
@pytest.mark.parametrize("decode", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_each_head_attends_to_what_it_kept_and_to_the_new_tokens(
    monkeypatch: pytest.MonkeyPatch, backend: str, heads: int, group: int, decode: bool, seed: int
) -> None:
    requests = batches.draw(seed, heads, decode)
    Case(monkeypatch, backend, requests, heads, group, torch.float32).check(2e-5)


@pytest.mark.parametrize("backend", ["FLASH_ATTN", "TRITON_ATTN"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_it_does_in_the_dtypes_of_gpus(
    monkeypatch: pytest.MonkeyPatch, backend: str, dtype: torch.dtype
) -> None:
    Case(monkeypatch, backend, batches.draw(4, 2), 2, 2, dtype).check(2e-2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kv_cache_dtype", ["fp8", "fp8_e4m3"])
@pytest.mark.parametrize("seed", range(3))
def test_it_does_over_a_cache_in_f8(
    monkeypatch: pytest.MonkeyPatch, backend: str, kv_cache_dtype: str, seed: int
) -> None:
    requests = batches.draw(seed, 2, decode=seed == 0)
    Case(monkeypatch, backend, requests, 2, 3, torch.float32, kv_cache_dtype).check(2e-5)


def test_a_batch_too_large_to_split_its_sequences_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = batches.draw(0, 2, decode=True)
    case = Case(monkeypatch, "TRITON_ATTN", requests, 2, 2, torch.float32)
    few = case.metadata()
    for name in ("output", "max", "expsum"):
        part = f"softmax_segm_{name}"
        setattr(few, part, getattr(few, part)[: len(requests) - 1])
    few.seq_threshold_3D = len(requests) - 1
    case.metadata = lambda: few  # type: ignore[method-assign]
    case.check(2e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_steps_without_a_prefix_are_vllms_own(
    monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    requests = [r for r in batches.draw(3, 2) if r.layout is None]
    assert requests
    case = Case(monkeypatch, backend, requests, 2, 2, torch.float32)
    seen = []
    stock = next(c for c in type(case.impl).__mro__ if c.__module__.startswith("vllm."))
    monkeypatch.setattr(stock, "forward", lambda *given: seen.append(given))
    metadata = case.metadata()
    case.impl.forward(case.layer, 1, 2, 3, 4, metadata, 5)  # type: ignore[arg-type]
    assert seen == [(case.impl, case.layer, 1, 2, 3, 4, metadata, 5)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("option", "what"),
    [
        ({"sliding_window": 128}, "sliding windows"),
        ({"alibi_slopes": [0.5, 0.25]}, "ALiBi"),
        ({"sinks": torch.zeros(2)}, "attention sinks"),
        ({"kv_cache_dtype": "fp8_e5m2"}, "a KV cache in fp8_e5m2"),
    ],
)
def test_what_layers_have_that_is_not_supported_is_refused(
    monkeypatch: pytest.MonkeyPatch, backend: str, option: dict[str, Any], what: str
) -> None:
    monkeypatch.setattr(flash_attn, "flash_attn_supports_kv_cache_dtype", lambda *a, **k: True)
    monkeypatch.setattr(flash_attn, "flash_attn_supports_sinks", lambda: True, raising=False)
    configured(monkeypatch)
    with pytest.raises(ValueError, match=f"PrecisConnector does not support {what}"):
        make(backend, 1, 2, **option)
    configured(monkeypatch, connector=None)
    make(backend, 1, 2, **option)  # vLLM's own is unchanged


@pytest.mark.parametrize("backend", BACKENDS)
def test_layers_come_under_the_manager_where_the_connector_is_set(
    monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    from precis_vllm.blocks import RaggedSpec

    spec = FullAttentionSpec(block_size=32, num_kv_heads=2, head_size=DIM, dtype=torch.float16)
    configured(monkeypatch, connector="Another")
    make(backend, 2, 2)
    assert type(BACKENDS[backend].customize_spec(spec)) is FullAttentionSpec
    configured(monkeypatch)
    make(backend, 2, 2)
    ragged = BACKENDS[backend].customize_spec(spec)
    assert type(ragged) is RaggedSpec and ragged.page_size_bytes == spec.page_size_bytes
