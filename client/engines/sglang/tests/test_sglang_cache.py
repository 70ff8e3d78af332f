"""The radix cache: what requests are promised, hold and leave, step by step as SGLang calls it."""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sglang_stub
import torch
from precis_sglang import register
from precis_sglang.attention import Ragged
from precis_sglang.cache import PrecisCache, make_cache
from precis_sglang.plan import slots_of
from precis_sglang.service import Service, Settings
from sglang.srt.mem_cache.base_prefix_cache import EvictParams
from sglang.srt.mem_cache.radix_cache import RadixKey

import precis
from precis import engines
from precis.demo.service import Precisd, find_precisd

LAYERS, HEADS, DIM, TOTAL = 2, 2, 8, 200


class Allocator:
    """Slots 1 to TOTAL of a pool, each allocated once."""

    device, page_size = "cpu", 1

    def __init__(self) -> None:
        self.pool = SimpleNamespace(start_layer=0, layer_num=LAYERS, head_num=HEADS)
        self.k = torch.zeros(LAYERS, TOTAL + 1, HEADS, DIM)
        self.v = torch.zeros(LAYERS, TOTAL + 1, HEADS, DIM)
        self.pool.get_key_buffer, self.pool.get_value_buffer = (
            self.k.__getitem__,
            self.v.__getitem__,
        )
        self.unused = list(range(1, TOTAL + 1))

    def get_kvcache(self) -> Any:
        return self.pool

    def available_size(self) -> int:
        return len(self.unused)

    def alloc(self, count: int) -> torch.Tensor | None:
        if count > len(self.unused):
            return None
        return torch.tensor([self.unused.pop() for _ in range(count)], dtype=torch.int64)

    def free(self, slots: torch.Tensor) -> None:
        self.unused.extend(slots.tolist())
        assert len(set(self.unused)) == len(self.unused), "a slot was freed twice"

    def free_segment(self, slots: torch.Tensor, *, start_pos: int) -> None:
        self.free(slots)

    def evict_to_free_tokens(self, cache: Any, count: int) -> None:
        if count > len(self.unused):
            cache.evict(EvictParams(count - len(self.unused)))


class Answers:
    """A service whose answers the test gives at chosen times."""

    def __init__(self, **settings: Any) -> None:
        self.settings = Settings(**({"min_tokens": 4} | settings))
        self.asked: list[tuple[list[int], Any]] = []
        self.finds: list[Future[Any]] = []
        self.loads: list[Future[Any]] = []

    def find(self, path: np.ndarray, keep: Any) -> Future[Any]:
        self.asked.append((path.tolist(), keep))
        self.finds.append(Future())
        return self.finds[-1]

    def fetch(self, match: Any) -> Future[Any]:
        self.loads.append(Future())
        return self.loads[-1]


def match_of(tokens: int, counts: list[list[int]], name: str = "a") -> Any:
    """A match of one whole segment."""
    plan = np.array(counts, np.uint32)
    segment = SimpleNamespace(id=name, begin=0, parent_read=None)
    link = SimpleNamespace(segment=segment, matched_end=tokens, counts=plan)
    return SimpleNamespace(matched_tokens=tokens, plan=plan, links=(link,))


def rows_of(match: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Rows as from a fetch: all different, and NaN after a head's last entry."""
    rows = []
    for layer, counts in enumerate(match.plan.tolist()):
        pair = torch.full((2, HEADS, max(1, *counts), DIM), torch.nan)
        for head, count in enumerate(counts):
            entry = torch.arange(count)[:, None] + 100 * head + 1000 * layer
            pair[0, head, :count], pair[1, head, :count] = entry, -entry
        rows.append((pair[0], pair[1]))
    return rows


class Engine:
    """The part of SGLang's scheduler that calls the cache; every step checks the pool's sum."""

    def __init__(self, service: Any) -> None:
        self.allocator = Allocator()
        self.rows = torch.zeros(9, 300, dtype=torch.int32)
        pool = SimpleNamespace(req_to_token=self.rows, write=self.rows.__setitem__)
        self.params = {
            "disable": False,
            "req_to_token_pool": pool,
            "token_to_kv_pool_allocator": self.allocator,
            "page_size": 1,
            "pp_size": 1,
            "is_eagle": False,
            "eviction_policy": "lru",
            "eviction_policy_config": None,
            "enable_kv_cache_events": False,
            "dynamo_kv_event_format": False,
            "kv_event_lora_names": None,
            "enable_metrics": False,
        }
        self.cache = PrecisCache(SimpleNamespace(**self.params), service)
        self.running: list[Any] = []
        self.free_rows = list(range(9))

    def request(self, tokens: list[int], rid: str = "r", **more: Any) -> Any:
        fields = {
            "rid": rid,
            "origin_input_ids": array("q", tokens),
            "output_ids": array("q"),
            "full_untruncated_fill_ids": array("q", tokens),
            "sampling_params": SimpleNamespace(custom_params=None),
            "kv": SimpleNamespace(cache_inserted_len=0, swa_evict_floor=0),
            "priority": 0,
        }
        none = ("multimodal_inputs", "input_embeds", "positional_embed_overrides")
        nothing = dict.fromkeys((*none, "extra_key", "cache_salt", "lora_id", "beam_group"))
        return SimpleNamespace(**(fields | nothing | more))

    def match(self, req: Any) -> Any:
        tokens = req.full_untruncated_fill_ids
        key = RadixKey(tokens, None, limit=len(tokens) - 1)
        return self.cache.match_prefix(SimpleNamespace(key=key, req=req, cow_mamba=False))

    def admit(self, req: Any) -> bool:
        """Tries once to start the request; returns whether it runs."""
        found = self.match(req)
        req.prefix_len, req.last_node = found.device_prefix_len, found.last_device_node
        if found.host_hit_length:
            load = SimpleNamespace(
                best_match_node=found.best_match_node,
                host_hit_length=found.host_hit_length,
                req=req,
            )
            loaded = self.cache.init_load_back(load)
            self.check()
            if loaded is None:
                return False
            assert loaded[0] in (0, found.host_hit_length), "all that was promised or nothing"
            req.prefix_len += loaded[0]
            req.last_node = loaded[1]
        req.kv.cache_protected_len = req.prefix_len
        req.lock = self.cache.lock(req.last_node)
        prefix = self.cache.path_device_indices(req.last_node)
        assert len(prefix) >= req.prefix_len
        req.kv.req_pool_idx = row = self.free_rows.pop()
        req.length = len(req.full_untruncated_fill_ids)
        self.allocator.evict_to_free_tokens(self.cache, req.length - req.prefix_len)
        new = self.allocator.alloc(req.length - req.prefix_len)
        assert new is not None
        self.rows[row, : req.prefix_len] = prefix[: req.prefix_len].int()
        self.rows[row, req.prefix_len : req.length] = new.int()
        self.running.append(req)
        self.check()
        return True

    def finish(self, req: Any) -> None:
        """Ends the request: its KV goes into the tree, the other slots back to the pool."""
        self.cache.checkpoint(req, up_to=req.length)
        row = self.rows[req.kv.req_pool_idx]
        self.allocator.free(row[req.kv.cache_protected_len : req.length].long())
        self.cache.unlock(req.lock)
        self.cache.on_release(req, checkpointed=True)
        self.free_rows.append(req.kv.req_pool_idx)
        self.running.remove(req)
        self.check()

    def check(self) -> None:
        """Every slot is free, the cache's, or one request's own."""
        own = sum(req.length - req.kv.cache_protected_len for req in self.running)
        cache = self.cache.evictable_size() + self.cache.protected_size()
        assert self.allocator.available_size() + cache + own == TOTAL
        assert cache == self.cache.total_size()


DOC = list(range(1, 41))
COUNTS = [[10, 3], [4, 4]]  # 7 slots, because of layer 0


@pytest.fixture
def service() -> Answers:
    return Answers()


@pytest.fixture
def engine(service: Answers) -> Engine:
    return Engine(service)


def fetching(engine: Engine, service: Answers) -> Any:
    """A request whose prefix was found and is being fetched."""
    req = engine.request([*DOC, 99])
    engine.match(req)
    service.finds[0].set_result(match_of(40, COUNTS))
    assert not engine.admit(req)
    return req


def stored(engine: Engine, service: Answers, rid: str = "r", name: str = "a") -> Any:
    """A request that runs on the stored document."""
    req = engine.request([*DOC, 99], rid)
    match = match_of(40, COUNTS, name)
    assert not engine.admit(req)
    service.finds[-1].set_result(match)
    assert not engine.admit(req)
    service.loads[-1].set_result(rows_of(match))
    assert engine.admit(req)
    return req


def test_a_request_waits_for_its_lookup_and_its_fetch_and_runs_on_the_prefix(
    engine: Engine, service: Answers
) -> None:
    req = engine.request([*DOC, 99])
    found = engine.match(req)
    assert (found.device_prefix_len, found.host_hit_length) == (0, 1)
    assert not engine.admit(req)
    assert service.asked == [(DOC, precis.ALL)]
    match = match_of(40, COUNTS)
    service.finds[0].set_result(match)
    assert engine.match(req).host_hit_length == 40
    assert not engine.admit(req)
    assert engine.cache.protected_size() == slots_of(torch.tensor(COUNTS)) == 7
    assert not engine.admit(req) and len(service.loads) == 1
    service.loads[0].set_result(rows_of(match))
    assert engine.admit(req)
    assert req.prefix_len == 40 and engine.cache.standing["r"].tokens == 40
    row = engine.rows[req.kv.req_pool_idx].tolist()
    assert all(row[:7]) and not any(row[7:40]) and row[40]
    engine.finish(req)
    assert not engine.cache.standing and not engine.cache.asked


def test_entries_lie_in_their_places(engine: Engine, service: Answers) -> None:
    req = stored(engine, service)
    layout, want = engine.cache.standing[req.rid], rows_of(match_of(40, COUNTS))
    for layer in range(LAYERS):
        begin = 0
        for head, count in enumerate(COUNTS[layer]):
            for entry in range(count):
                place = int(layout.of_layer(layer)[begin + entry])
                slot, column = divmod(place, HEADS)
                assert engine.allocator.k[layer, slot, column].equal(want[layer][0][head, entry])
                assert engine.allocator.v[layer, slot, column].equal(want[layer][1][head, entry])
            begin += count
    assert not engine.allocator.k.isnan().any() and not engine.allocator.v.isnan().any()


def test_a_second_request_shares_the_prefix_that_is_here(engine: Engine, service: Answers) -> None:
    first = stored(engine, service)
    second = engine.request([*DOC, 98], "s")
    engine.match(second)
    service.finds[-1].set_result(match_of(40, COUNTS))
    found = engine.match(second)
    assert (found.device_prefix_len, found.host_hit_length, found.cache_protected_len) == (
        40,
        0,
        40,
    )
    assert engine.admit(second) and len(service.loads) == 1
    assert engine.cache.protected_size() == 7
    engine.finish(first)
    assert engine.cache.protected_size() == 7
    engine.finish(second)
    assert engine.cache.evictable_size() == 7


def test_nothing_that_was_computed_over_it_enters_the_tree(
    engine: Engine, service: Answers
) -> None:
    engine.finish(stored(engine, service))
    plain = engine.request([*DOC, 99, 5], "p", sampling_params=SimpleNamespace(
        custom_params={"precis": {"off": True}}))  # fmt: skip
    assert engine.match(plain).device_prefix_len == 0
    assert engine.admit(plain) and len(service.asked) == 1
    engine.finish(plain)
    assert engine.match(engine.request([*DOC, 99, 5, 6], "q")).device_prefix_len == 42


def test_an_exact_prefix_that_is_as_long_is_taken_first(engine: Engine, service: Answers) -> None:
    plain = engine.request([*DOC, 99], "p", extra_key=None, lora_id="none of ours")
    assert engine.admit(plain)
    engine.finish(plain)
    req = engine.request([*DOC, 99, 7])
    engine.match(req)
    service.finds[-1].set_result(match_of(40, COUNTS))
    found = engine.match(req)
    assert (found.device_prefix_len, found.host_hit_length) == (41, 0)
    assert engine.admit(req)
    engine.finish(req)


@pytest.mark.parametrize(
    "more",
    [
        {"multimodal_inputs": object()},
        {"extra_key": "apart"},
        {"lora_id": "x"},
        {"beam_group": object()},
        {"sampling_params": SimpleNamespace(custom_params={"precis": {"off": True}})},
        {"sampling_params": SimpleNamespace(custom_params={"precis": "no object"})},
        {"sampling_params": SimpleNamespace(custom_params={"precis": {"keep": "much"}})},
        {"sampling_params": SimpleNamespace(custom_params={"precis": {"kept": 0.3}})},
        {"full_untruncated_fill_ids": array("q", [1, 2]), "origin_input_ids": array("q", [1, 2])},
    ],
)
def test_requests_of_other_kinds_are_never_looked_up(
    engine: Engine, service: Answers, more: dict[str, Any]
) -> None:
    assert engine.match(engine.request([*DOC, 99], **more)).host_hit_length == 0
    assert not service.asked


def test_tokens_that_no_store_has_are_a_miss(engine: Engine, service: Answers) -> None:
    assert engine.match(engine.request([-1, *DOC, 2**40])).host_hit_length == 1
    assert service.asked[0][0][0] == 2**32 - 1


def test_a_request_names_its_budget(engine: Engine, service: Answers) -> None:
    wish = SimpleNamespace(custom_params={"precis": {"keep": 0.3}})
    engine.match(engine.request([*DOC, 99], sampling_params=wish))
    assert service.asked[0][1] == 0.3


@pytest.mark.parametrize("answer", [None, "late"])
def test_a_miss_and_a_lookup_that_takes_too_long_are_computed(
    answer: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Answers()
    engine = Engine(service)
    req = engine.request([*DOC, 99])
    assert not engine.admit(req)
    if answer is None:
        service.finds[0].set_result(None)
    else:
        now = time.monotonic() + 1.5
        monkeypatch.setattr("precis_sglang.cache.time.monotonic", lambda: now)
    assert engine.admit(req) and req.prefix_len == 0
    engine.finish(req)


def test_a_fetch_that_fails_is_computed_and_not_tried_again_at_once(
    engine: Engine, service: Answers
) -> None:
    req = fetching(engine, service)
    service.loads[0].set_result(None)
    assert engine.admit(req) and req.prefix_len == 0
    assert not engine.cache.prefixes and not engine.cache.standing
    other = engine.request([*DOC, 98], "s")
    engine.match(other)
    service.finds[1].set_result(match_of(40, COUNTS))
    assert engine.match(other).host_hit_length == 0


def test_a_fetch_whose_request_is_gone_gives_its_slots_back(
    engine: Engine, service: Answers
) -> None:
    fetching(engine, service)
    engine.cache.release_aborted_request(SimpleNamespace(rid="r"))
    assert not engine.cache.asked
    assert engine.cache.evict(EvictParams(5)).num_tokens_evicted == 0  # a fetch writes into it
    service.loads[0].set_result(rows_of(match_of(40, COUNTS)))
    assert engine.cache.evictable_size() == 7
    assert engine.cache.evict(EvictParams(5)).num_tokens_evicted == 7
    engine.check()


def test_what_was_used_longest_ago_is_evicted_first(engine: Engine, service: Answers) -> None:
    engine.finish(stored(engine, service, "old", "old"))
    plain = engine.request(list(range(500, 520)), "p", lora_id="x")
    assert engine.admit(plain)
    plain.lora_id = None
    engine.finish(plain)
    engine.finish(stored(engine, service, "new", "new"))
    assert len(engine.cache.prefixes) == 2
    assert engine.cache.evict(EvictParams(1)).num_tokens_evicted == 7
    assert engines.digest_of(match_of(40, COUNTS, "new")) in engine.cache.prefixes
    assert engine.cache.evict(EvictParams(20)).num_tokens_evicted == 20
    assert len(engine.cache.prefixes) == 1
    assert engine.cache.evict(EvictParams(20)).num_tokens_evicted == 7
    assert engine.allocator.available_size() == TOTAL


def test_a_prefix_in_use_is_never_evicted(engine: Engine, service: Answers) -> None:
    req = stored(engine, service)
    assert engine.cache.evict(EvictParams(TOTAL)).num_tokens_evicted == 0
    engine.finish(req)


def test_waiting_requests_on_a_prefix_are_sorted_at_the_root(
    engine: Engine, service: Answers
) -> None:
    req = stored(engine, service)
    assert engine.cache.resolve_node_handle(req.last_node) is engine.cache.root_node
    assert engine.cache.resolve_node_handle(engine.cache.root_node) is engine.cache.root_node
    if sglang_stub.REAL:
        assert engine.cache.dfs_weight_order([req.last_node, engine.cache.root_node]) == [0, 1]


def test_a_reset_forgets_everything(engine: Engine, service: Answers) -> None:
    engine.finish(stored(engine, service))
    engine.cache.reset()
    assert engine.cache.total_size() == 0 and not engine.cache.asked


def test_settings_are_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.read() == Settings()
    for name, text in {"KEEP": "0.3", "MIN_TOKENS": "64", "TENANT": "t"}.items():
        monkeypatch.setenv(f"PRECIS_{name}", text)
    assert Settings.read() == Settings(keep="0.3", min_tokens=64, tenant="t")
    monkeypatch.setenv("PRECIS_LOAD_TIMEOUT", "soon")
    with pytest.raises(ValueError, match="PRECIS_LOAD_TIMEOUT is 'soon', must be a number"):
        Settings.read()
    monkeypatch.setenv("PRECIS_LOAD_TIMEOUT", "-1")
    with pytest.raises(ValueError, match=r"PRECIS_LOAD_TIMEOUT is -1\.0, must be a number"):
        Settings.read()


SPEC = precis.ModelSpec(
    name="sglang", num_layers=LAYERS, num_q_heads=4, num_kv_heads=HEADS, head_dim=DIM, dtype="f32"
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        program = find_precisd()
    except FileNotFoundError:
        pytest.skip("precisd is not built")
    folder: Path = tmp_path_factory.mktemp("precisd")
    with Precisd(program, folder / "data") as running:
        yield running.address


def test_a_prefix_of_a_real_service_arrives_in_its_places(address: str) -> None:
    draw = np.random.default_rng(5)
    tokens = list(range(128))
    pushed = draw.random((LAYERS, 2, HEADS, 128, DIM)).astype(np.float32)
    with precis.connect(address) as cache:
        model = cache.register_model(SPEC)
        put = cache.begin_put(model, tokens=tokens, recipe="global_kvdiff", keep=1.0)
        for layer in range(LAYERS):
            put.layer(layer, *pushed[layer])
        put.commit()
        want = cache.get(cache.lookup(model, tokens, keep=0.3, align=1)).wait()

        service = Service(Settings(address=address, min_tokens=64, lookup_timeout=30.0), SPEC)
        engine = Engine(service)
        wish = SimpleNamespace(custom_params={"precis": {"keep": 0.3}})
        req = engine.request([*tokens, 7], sampling_params=wish)
        engine.match(req)
        service_match = engine.cache.asked["r"].found.result(60)
        assert not engine.admit(req)
        engine.cache.prefixes[engines.digest_of(service_match)].rows.result(60)
        assert engine.admit(req) and req.prefix_len == 128
        layout = engine.cache.standing["r"]
        assert layout.counts.tolist() == want.plan.tolist()
        assert len(layout.slots) < 128 and len(layout.slots) == slots_of(layout.counts)
        for layer in range(LAYERS):
            heads = want.layers[layer].heads
            view = engine.allocator.k[layer].view(-1, DIM)[layout.of_layer(layer)]
            assert np.array_equal(view.numpy(), np.concatenate([head.keys for head in heads]))
            view = engine.allocator.v[layer].view(-1, DIM)[layout.of_layer(layer)]
            assert np.array_equal(view.numpy(), np.concatenate([head.values for head in heads]))


def test_a_wrong_budget_and_a_dead_service_are_misses(address: str) -> None:
    path = np.arange(128, dtype=np.uint32)
    service = Service(Settings(address=address), SPEC)
    assert service.find(path, "nonsense").result(60) is None
    assert service.find(path, 7.5).result(60) is None
    dead = Service(Settings(address="127.0.0.1:1", load_timeout=1.0), SPEC)
    assert dead.find(path, 0.3).result(60) is None
    began = time.monotonic()
    assert dead.find(path, 0.3).result(60) is None
    assert time.monotonic() - began < 1.0  # the service is not asked for some seconds


def test_both_backends_are_known_by_one_name_however_often_it_is_loaded() -> None:
    from sglang.srt.arg_groups.choices import ATTENTION_BACKEND_CHOICES
    from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
    from sglang.srt.mem_cache.registry import registered_radix_cache_backends

    register()
    register()
    assert ATTENTION_BACKEND_CHOICES.count("precis") == 1
    assert "precis" in ATTENTION_BACKENDS
    assert registered_radix_cache_backends().count("precis") == 1


class MHATokenToKVPool(SimpleNamespace):
    """Has the name of SGLang's pool of plain K and V."""


def context(engine: Engine, **more: Any) -> Any:
    """SGLang's context for make_cache(), of a supported engine with the changes `more`."""
    model = SimpleNamespace(
        dtype=torch.float32,
        hf_config=SimpleNamespace(
            name_or_path="", architectures=["Tiny"], model_type="tiny", num_hidden_layers=LAYERS,
            num_attention_heads=4, num_key_value_heads=HEADS, head_dim=DIM, _commit_hash=None,
        ),
    )  # fmt: skip
    model.hf_text_config = model.hf_config
    pool = MHATokenToKVPool(dtype=torch.float32, **vars(engine.allocator.pool))
    engine.allocator.pool = more.pop("pool", pool)
    params = engine.params | {name: more.pop(name) for name in engine.params.keys() & more}
    runner = SimpleNamespace(
        attn_backend=more.pop("attn_backend", Ragged()),
        decode_attn_backend=more.pop("decode_attn_backend", None),
    )
    fields = {
        "params": SimpleNamespace(**params),
        "model_config": model,
        "tp_worker": SimpleNamespace(model_runner=runner),
        "tp_size": 1,
        "is_hybrid_swa": False,
        "is_hybrid_ssm": False,
        "enable_hierarchical_cache": False,
    }
    return SimpleNamespace(**(fields | more))


@pytest.fixture
def mode(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """SGLang's answer about a server's mode: both prefill and decode."""
    answer = SimpleNamespace(disaggregation_mode="null")
    monkeypatch.setattr("sglang.srt.runtime_context.get_disagg", lambda: answer)
    return answer


def test_the_cache_tells_the_attention_backend_who_stands_on_what(
    engine: Engine, mode: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRECIS_REVISION", "1")
    made = context(engine)
    cache = make_cache(made)
    assert made.tp_worker.model_runner.attn_backend.standing is cache.standing
    assert (cache.service.heads, cache.service.dim) == (HEADS, DIM)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"attn_backend": object()}, "another --attention-backend"),
        ({"decode_attn_backend": object()}, "a separate attention backend"),
        ({"tp_size": 2}, "tensor and pipeline parallelism"),
        ({"pp_size": 2}, "tensor and pipeline parallelism"),
        ({"is_hybrid_swa": True}, "layers of several kinds"),
        ({"page_size": 16}, "--page-size other than 1"),
        ({"is_eagle": True}, "speculative decoding"),
        ({"enable_hierarchical_cache": True}, "the hierarchical cache"),
        ({"pool": MHATokenToKVPool(dtype=torch.float16)}, "a KV cache in torch.float16"),
        ({"pool": SimpleNamespace(dtype=torch.float32)}, "a pool of kind SimpleNamespace"),
    ],
)
def test_engines_of_other_kinds_are_refused(
    engine: Engine, mode: SimpleNamespace, more: dict[str, Any], what: str
) -> None:
    with pytest.raises(ValueError, match=what):
        make_cache(context(engine, **more))


def test_a_server_that_only_decodes_is_refused(engine: Engine, mode: SimpleNamespace) -> None:
    mode.disaggregation_mode = "decode"
    with pytest.raises(ValueError, match="separate servers for prefill and decode"):
        make_cache(context(engine))
