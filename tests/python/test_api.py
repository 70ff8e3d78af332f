"""The Python API, over an embedded service and over a real precisd."""

from __future__ import annotations

import pydoc
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import numpy as np
import pytest
import torch
from kv import put_all, random_layers, same_entries, toy_spec

import precis
from precis import _core, rows
from precis.budget import from_pair, to_pair
from precis.demo.service import Precisd, find_precisd


def test_what_is_put_is_found_and_got(cache, model):
    tokens, layers = list(range(100)), random_layers(model.spec, 100)
    assert not cache.lookup(model, tokens)
    segment = put_all(cache, model, tokens, layers, recipe="global_kvdiff", keep=0.5)
    assert (segment.begin, segment.end, segment.parent) == (0, 100, None)
    assert segment.original_bytes == 100 * 3 * 2 * 2 * 16 * 4
    assert segment.kept == segment.plan.sum() == 300
    assert 300 * (12 + 128) <= segment.bytes < segment.original_bytes
    assert segment.preset == "global_kvdiff" and segment.keep == precis.ratio(0.5)
    match = cache.lookup(model, [*tokens, 5000])
    assert match and match.matched_tokens == 100
    assert np.array_equal(match.plan, segment.plan)
    assert match.bytes > 0 and match.predicted_seconds > 0
    assert [link.segment.id for link in match.links] == [segment.id]
    prefix = cache.get(match)
    assert prefix.matched_tokens == 100 and len(prefix.layers) == 3
    assert same_entries(prefix, precis.compress(model.spec, layers, keep=0.5))
    assert np.array_equal(prefix.plan, segment.plan)
    assert prefix.kept == 300 and prefix.bytes > 0 and prefix.seconds > 0


def test_a_put_out_of_allocated_memory_stores_the_same(cache, model):
    tokens, layers = list(range(100)), random_layers(model.spec, 100)
    memory = cache.allocate(sum(k.nbytes + v.nbytes for k, v in layers))
    assert memory.dtype == np.uint8 and memory.flags.writeable and not memory.any()
    lent, at = [], 0
    for pair in layers:
        places = []
        for part in pair:
            place = memory[at : at + part.nbytes].view(part.dtype).reshape(part.shape)
            place[:] = part
            places.append(place)
            at += part.nbytes
        lent.append(places)
    del memory  # its views keep it alive
    put_all(cache, model, tokens, lent, recipe="keydiff", keep=0.5)
    prefix = cache.get(cache.lookup(model, tokens))
    assert same_entries(prefix, precis.compress(model.spec, layers, recipe="keydiff", keep=0.5))


def test_allocated_memory_outlives_its_cache(cache):
    memory = cache.allocate(1 << 16)
    cache.close()
    memory[:] = 7
    assert (memory == 7).all()
    del memory  # the last handle: an embedded service ends with it


def test_ranks_write_a_put_together(precisd):
    spec, tokens = toy_spec(name="written by ranks"), list(range(90))
    layers = random_layers(spec, 90)
    ranks = [precis.connect(precisd.address) for _ in range(2)]

    def write(rank):
        put = ranks[rank].begin_put(
            ranks[rank].register_model(spec), tokens, "keydiff", 0.5, writers=2
        )
        for layer, (keys, values) in enumerate(layers):
            head = slice(rank, rank + 1)
            put.layer(layer, keys[head], values[head], head_begin=rank)
        return put.commit()

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(write, range(2))
    assert first.id == second.id
    prefix = ranks[0].get(ranks[0].lookup(ranks[0].register_model(spec), tokens))
    assert same_entries(prefix, precis.compress(spec, layers, recipe="keydiff", keep=0.5))


@pytest.mark.parametrize("size", [0, -1, 2.5, "1 MiB"])
def test_allocating_no_memory_is_refused(cache, size):
    with pytest.raises(precis.InvalidArgument, match="size_bytes"):
        cache.allocate(size)


def test_a_budget_of_no_known_kind_is_refused_by_name(cache, model):
    with pytest.raises(precis.InvalidArgument, match="kind 'ratoi' is unknown, choose all, ratio"):
        cache.begin_put(model, range(8), "knorm", keep=precis.Budget("ratoi", 0.5))


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("0.3", precis.ratio(0.3)),
        ("128 entries", precis.entries(128)),
        ("64 MiB", precis.bytes_(64 << 20)),
        ("64 MB", precis.bytes_(64_000_000)),
        ("30%", precis.ratio(0.3)),
        ("10% bytes", precis.byte_share(0.1)),
    ],
)
def test_a_budget_may_be_said_as_precisctl_takes_it(cache, model, text, budget):
    with cache.begin_put(model, range(40), "knorm", keep=text) as said:
        assert said.segment == cache.begin_put(model, range(40), "knorm", keep=budget).segment


def test_a_loss_may_be_said_as_text():
    assert to_pair("loss 0.05") == to_pair(precis.loss(0.05))
    assert str(from_pair(to_pair("loss 0.05"))) == "loss 0.05"


@pytest.mark.parametrize("keep", ["64 mb", "128 entires", "", "1.5", "all"])
def test_text_that_is_no_budget_is_refused_saying_what_is(cache, model, keep):
    with pytest.raises(precis.InvalidArgument, match=f"'{keep}' .* '128 entries', .* '64 MiB'"):
        cache.begin_put(model, range(40), keep=keep)


@pytest.mark.parametrize("keep", [0.4, 0.1, "7 entries", precis.bytes_(9000), "20% bytes"])
def test_an_elastic_read_equals_a_fresh_compression_at_that_budget(cache, model, keep):
    tokens, layers = list(range(130)), random_layers(model.spec, 130)
    put_all(cache, model, tokens, layers, recipe="ada_keydiff", keep=0.5)
    prefix = cache.get(cache.lookup(model, tokens), keep=keep)
    assert same_entries(
        prefix, precis.compress(model.spec, layers, recipe="ada_keydiff", keep=keep)
    )


def test_a_trimmed_segment_is_what_a_put_at_that_budget_stores(cache, model):
    tokens, layers = list(range(130)), random_layers(model.spec, 130)
    segment = put_all(cache, model, tokens, layers, recipe="ada_keydiff", keep=0.5)
    would = cache.trim(segment, keep=0.2, dry_run=True)
    assert cache.segment(segment.id).trimmed is None
    trimmed = cache.trim(segment, keep=0.2)
    assert trimmed == would and trimmed.bytes + trimmed.freed_bytes == segment.bytes
    after = cache.segment(segment.id)
    assert (after.keep, after.trimmed) == (precis.ratio(0.5), precis.ratio(0.2))
    assert (after.kept, after.bytes) == (trimmed.kept, trimmed.bytes)
    prefix = cache.get(cache.lookup(model, tokens))
    kept = precis.compress(model.spec, layers, recipe="ada_keydiff", keep=0.2)
    assert same_entries(prefix, kept)
    assert cache.trim(segment.id, keep=precis.entries(4), durability="fsync").kept == 4 * 6
    with pytest.raises(precis.Conflict, match="stores 24"):
        cache.trim(segment, keep=0.2)
    again = put_all(cache, model, tokens, layers, recipe="ada_keydiff", keep=0.5)
    assert again.id == segment.id and again.trimmed is None
    assert np.array_equal(again.plan, segment.plan)


def test_a_model_is_removed_once_its_segments_are(cache, model):
    segment = put_all(cache, model, range(40), random_layers(model.spec, 40), keep=0.5)
    (row,) = [row for row in cache.models() if row.fingerprint == model.fingerprint]
    assert (row.segments, row.bytes) == (1, segment.bytes)
    with pytest.raises(precis.Conflict, match="has 1 segment"):
        cache.remove_model(model.fingerprint)
    cache.remove(segment.id)
    cache.remove_model(model.fingerprint)
    assert model.fingerprint not in [row.fingerprint for row in cache.models()]


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f8_e4m3"])
def test_every_dtype_comes_back_bit_for_bit(cache, request, dtype):
    torch_dtype = {
        "f32": torch.float32,
        "f16": torch.float16,
        "bf16": torch.bfloat16,
        "f8_e4m3": torch.float8_e4m3fn,
    }[dtype]
    model = cache.register_model(toy_spec(request.node.nodeid[-200:], dtype))
    layers = [
        tuple(torch.from_numpy(part).to(torch_dtype) for part in layer)
        for layer in random_layers(model.spec, 70)
    ]
    put_all(cache, model, range(70), layers, keep=1.0)
    prefix = cache.get(cache.lookup(model, range(70)))
    if dtype == "f8_e4m3":  # as their bits
        layers = [tuple(part.view(torch.uint8) for part in layer) for layer in layers]
    for layer, (keys, values) in enumerate(layers):
        for head, entries in enumerate(prefix.layers[layer].heads):
            order = torch.from_numpy(entries.positions.astype(np.int64))
            assert torch.equal(torch.from_dlpack(entries.keys), keys[head, order])
            assert torch.equal(torch.from_dlpack(entries.values), values[head, order])


def test_prefix_arrays_lie_in_the_prefix_and_keep_it(cache, model):
    layers = random_layers(model.spec, 60)
    put_all(cache, model, range(60), layers, keep=0.5)
    prefix = cache.get(cache.lookup(model, range(60)))
    keys = prefix.layers[0].heads[1].keys
    assert prefix.layers[0].heads[1].keys.ctypes.data == keys.ctypes.data
    assert torch.from_dlpack(keys).data_ptr() == keys.ctypes.data
    before = keys.copy()
    del prefix
    cache.get(cache.lookup(model, range(60))).wait()
    assert np.array_equal(keys, before)


def test_a_partial_hit_serves_the_entries_before_the_fork(cache, model):
    layers = random_layers(model.spec, 128)
    put_all(cache, model, range(128), layers, keep=0.5)
    match = cache.lookup(model, [*range(100), 7, 7, 7])
    assert 0 < match.matched_tokens <= 100
    prefix = cache.get(match)
    assert prefix.matched_tokens == match.matched_tokens
    kept = precis.compress(model.spec, layers, keep=0.5)
    for layer in range(3):
        for head, entries in enumerate(prefix.layers[layer].heads):
            positions = kept.positions[layer][head]
            assert np.array_equal(entries.positions, positions[positions < match.matched_tokens])


def test_a_second_turn_pushes_only_its_new_tokens(cache, model):
    tokens, layers = list(range(150)), random_layers(model.spec, 150)
    first = put_all(
        cache, model, tokens[:100], [(k[:, :100], v[:, :100]) for k, v in layers], keep=0.5
    )
    put = cache.begin_put(model, tokens, keep=1.0, parent_read=0.3)
    assert (put.begin, put.end, put.parent) == (100, 150, first.id)
    for i, (keys, values) in enumerate(layers):
        put.layer(i, keys[:, 100:], values[:, 100:])
    second = put.commit()
    assert second.parent == first.id and second.parent_read == precis.ratio(0.3)
    match = cache.lookup(model, tokens)
    assert match.matched_tokens == 150
    assert [link.segment.id for link in match.links] == [first.id, second.id]
    prefix = cache.get(match)
    for layer, (keys, _) in enumerate(layers):
        for head, entries in enumerate(prefix.layers[layer].heads):
            assert np.array_equal(entries.keys, keys[head, entries.positions])
            assert set(range(100, 150)) <= set(entries.positions.tolist())


def test_a_session_advances_pins_and_forks(cache, model, request):
    name = request.node.name
    tokens, layers = list(range(90)), random_layers(model.spec, 90)
    session = cache.session(name, ttl=3600)
    assert (session.tip, session.turns, session.ttl) == (None, 0, 3600)
    assert session.expires_unix_ms == session.updated_unix_ms + 3_600_000
    first = put_all(
        cache, model, tokens[:60], [(k[:, :60], v[:, :60]) for k, v in layers], keep=0.5
    )
    assert session.advance(first).tip == first.id
    second = put_all(cache, model, tokens, [(k[:, 60:], v[:, 60:]) for k, v in layers], keep=0.5)
    fork = session.fork(name + "-fork")
    session.advance(second.id).pin()
    assert (session.tip, session.tip_end, session.turns, session.pinned) == (second.id, 90, 2, True)
    assert not session.unpin().pinned
    assert fork.refresh().tip == first.id
    assert cache.session(name).tip == second.id
    assert {name, name + "-fork"} <= {row.name for row in cache.sessions()}
    with pytest.raises(precis.InvalidArgument):
        fork.advance(second).advance(first)  # first is no descendant of second
    session.remove()
    with pytest.raises(precis.NotFound):
        session.refresh()
    assert cache.session(name).expires_unix_ms is None  # a session without a ttl


def test_a_layer_comes_in_pieces_of_heads_and_tokens(cache, model):
    layers = random_layers(model.spec, 96)
    with cache.begin_put(model, range(96), "global_kvdiff", keep=0.5) as put:
        for i, (keys, values) in enumerate(layers):
            for head in (1, 0):
                for begin in (64, 0, 32):
                    part = np.s_[head : head + 1, begin : begin + 32]
                    put.layer(i, keys[part], values[part], head_begin=head, token_begin=begin)
        put.commit()
    prefix = cache.get(cache.lookup(model, range(96)))
    assert same_entries(prefix, precis.compress(model.spec, layers, keep=0.5))


def test_the_same_put_again_is_already_stored(cache, model):
    layers = random_layers(model.spec, 40)
    first = put_all(cache, model, range(40), layers, recipe="knorm", keep=0.5)
    put = cache.begin_put(model, range(40), recipe="knorm", keep=0.5, parent=None)
    assert put.already_stored and put.segment == first.id
    assert put.commit().id == first.id


def test_a_put_that_is_given_up_leaves_no_trace(cache, model):
    layers = random_layers(model.spec, 40)
    with pytest.raises(RuntimeError, match="given up"), cache.begin_put(model, range(40)) as put:
        put.layer(0, *layers[0])
        raise RuntimeError("given up")
    assert not cache.lookup(model, range(40))
    assert cache.segments(model) == []


def test_layers_go_in_from_another_thread_while_this_one_runs(cache, model):
    layers = random_layers(model.spec, 200)
    put = cache.begin_put(model, range(200), "global_kvdiff", keep=0.5)
    thread = threading.Thread(
        target=lambda: [put.layer(i, *layer) for i, layer in reversed(list(enumerate(layers)))]
    )
    thread.start()
    thread.join()
    put.commit()
    prefix = cache.get(cache.lookup(model, range(200)))
    assert same_entries(prefix, precis.compress(model.spec, layers, keep=0.5))


def test_layers_pushed_ahead_are_kept_until_they_have_arrived(cache, model):
    layers = random_layers(model.spec, 3000)
    with cache.begin_put(model, range(3000), "keydiff", keep=0.5) as put:
        for index, (keys, values) in enumerate(layers):
            put.layer(index, keys.copy(), values.copy(), wait=False)  # only the put holds them
        put.wait()
        with pytest.raises(precis.InvalidArgument, match="pushed before"):
            put.layer(0, *layers[0], wait=False)
    with cache.begin_put(model, range(3000), "keydiff", keep=0.5) as put:
        wrong = layers[0][0].astype(np.float64)
        for index, (keys, values) in enumerate(layers):
            with pytest.raises(precis.InvalidArgument, match="keys"):
                put.layer(index, wrong, wrong, wait=False)  # not a part of the put
            put.layer(index, keys.copy(), values.copy(), wait=False)
        put.commit()
    cache.remove(cache.segments(model)[0])
    with cache.begin_put(model, range(3000), "keydiff", keep=0.5) as put:
        for index, (keys, values) in enumerate(layers):
            put.layer(index, keys.copy(), values.copy(), wait=False)
        put.commit()
    prefix = cache.get(cache.lookup(model, range(3000)))
    assert same_entries(prefix, precis.compress(model.spec, layers, "keydiff", keep=0.5))


def test_statistics_pushed_ahead_are_kept_until_they_have_arrived(cache, model):
    spec, draw = model.spec, np.random.default_rng(5)
    layers = []
    for keys, values in random_layers(spec, 3000):
        mean = draw.standard_normal((spec.num_q_heads, spec.head_dim))
        root = draw.standard_normal((spec.num_q_heads, spec.head_dim, spec.head_dim))
        statistics = {"query_mean": mean, "query_covariance": root @ root.transpose(0, 2, 1)}
        layers.append({"keys": keys, "values": values, **statistics})
    with cache.begin_put(model, range(3000), "expected_attention", keep=0.5) as put:
        for index, layer in enumerate(layers):
            # The statistics are float64, so the push is a converted copy that only the put holds.
            put.layer(index, **{name: rows.copy() for name, rows in layer.items()}, wait=False)
        put.commit()
    prefix = cache.get(cache.lookup(model, range(3000)))
    assert same_entries(prefix, precis.compress(spec, layers, "expected_attention", keep=0.5))


def test_a_put_that_is_dropped_with_layers_under_way_leaves_no_trace(cache, model):
    layers = random_layers(model.spec, 3000)
    for end in (lambda put: put.abort(), lambda put: None):
        put = cache.begin_put(model, range(3000))
        for index, (keys, values) in enumerate(layers):
            put.layer(index, keys.copy(), values.copy(), wait=False)
        end(put)
        del put
        assert not cache.lookup(model, range(3000))


def test_defaults_change_live_and_apply_to_the_next_put(cache, model):
    layers = random_layers(model.spec, 64)
    cache.set_budget(recipe="knorm", keep=0.25, model=model)
    effective = cache.budgets(model).effective
    assert effective.recipe.startswith("knorm") and effective.keep == precis.ratio(0.25)
    segment = put_all(cache, model, range(64), layers, recipe=None)
    assert segment.preset == "knorm" and segment.kept == 64 * 6 // 4
    assert cache.budgets(model).next_put is None
    told = cache.set_budget(keep=0.125, model=model, dry_run=True).next_put
    assert (told.segment, told.tokens, told.keep) == (segment.id, 64, precis.ratio(0.125))
    assert told.bytes < segment.bytes and len(told.kept_mass) == 3 and told.note == ""
    told = cache.set_budget(recipe="keydiff", model=model, dry_run=True).next_put
    assert told.segment == "" and told.keep is None and "only a put" in told.note
    assert cache.budgets(model).effective.keep == precis.ratio(0.25)


def test_a_session_has_a_budget_of_its_own(cache, model, request):
    chat = cache.session(request.node.nodeid[-200:])
    cache.set_budget(recipe="knorm", keep=0.25, model=model)
    cache.set_budget(keep=0.5, limit=0.6, session=chat)
    assert cache.budgets(session=chat.name).effective.keep == precis.ratio(0.5)
    assert cache.budgets(model, session=chat).layers[-1].scope == f"session {chat.name}"
    assert f"session {chat.name}" in [row.scope for row in cache.budgets().sessions]

    def budget(**options):
        with cache.begin_put(model, range(64), **options) as put:
            return put.keep, put.limited

    assert budget(session=chat) == (precis.ratio(0.5), False)
    assert budget(session=chat.name, keep=0.9) == (precis.ratio(0.6), True)
    assert budget() == (precis.ratio(0.25), False)
    with pytest.raises(precis.InvalidArgument, match="not for both"):
        cache.set_budget(keep=0.5, model=model, session=chat)
    chat.remove()
    with pytest.raises(precis.NotFound, match="does not exist"):
        cache.begin_put(model, range(64), session=chat)
    with pytest.raises(precis.NotFound, match="does not exist"):
        cache.set_budget(keep=0.5, session=chat)


def test_segments_are_listed_shown_and_removed(cache, model):
    tokens, layers = list(range(80)), random_layers(model.spec, 80)
    first = put_all(
        cache, model, tokens[:40], [(k[:, :40], v[:, :40]) for k, v in layers], keep=0.5
    )
    second = put_all(cache, model, tokens, [(k[:, 40:], v[:, 40:]) for k, v in layers], keep=0.5)
    assert {row.id for row in cache.segments(model)} == {first.id, second.id}
    shown = cache.segment(first.id)
    assert shown.children == 1 and np.array_equal(shown.plan, first.plan)
    with pytest.raises(precis.Error):
        cache.remove(first)  # it has a child
    assert cache.remove(first, recursive=True) == 2
    assert not cache.lookup(model, tokens)
    with pytest.raises(precis.NotFound):
        cache.segment(first.id)


def test_the_service_tells_about_itself(cache, model):
    put_all(cache, model, range(40), random_layers(model.spec, 40), keep=0.5)
    status = cache.status()
    assert status.segments >= 1 and status.models >= 1 and status.stored_bytes > 0
    assert status.rdma  # "off", or the device in words
    assert status.exposed == ""  # it listens on the loopback, or not at all
    assert not status.doubtful_recovery and status.lost_changes == 0 and status.kept_bytes == 0
    assert status.kept_log_bytes == 0
    assert any(row.fingerprint == model.fingerprint for row in cache.models())
    assert all(name.startswith("precis_") for name in cache.stats())
    assert len(cache.stats()) > 5


def test_lookups_are_counted(cache, model):
    def counted():
        stats = cache.stats()
        names = ("lookups", "lookup_hits", "lookup_tokens", "lookup_hit_tokens")
        return np.array([stats[f"precis_{name}_total"] for name in names])

    put_all(cache, model, range(40), random_layers(model.spec, 40), keep=0.5)
    before = counted()
    assert not cache.lookup(model, range(7_000, 7_010))
    assert cache.lookup(model, range(50)).matched_tokens == 40
    assert list(counted() - before) == [2, 1, 60, 40]


@pytest.mark.parametrize(
    ("core", "row", "renamed"),
    [
        ("SegmentInfo", "Segment", {"budget": "keep", "entries": "kept", "stored_bytes": "bytes"}),
        ("Trimmed", "Trimmed", {"entries": "kept", "stored_bytes": "bytes"}),
        ("NextPut", "NextPut", {"stored_bytes": "bytes"}),
        ("ModelRow", "ModelRow", {"model": "spec", "stored_bytes": "bytes"}),
        ("ProfileRow", "ProfileRow", {"json": "content"}),
        *(
            (name, name, {})
            for name in ("MatchLink", "BudgetRow", "Budgets", "ServerStatus", "TenantRow")
        ),
    ],
)
def test_every_field_of_a_reply_is_in_its_dataclass(core, row, renamed):
    names = {name for name in vars(getattr(_core, core)) if not name.startswith("_")}
    told = {field.name for field in fields(getattr(rows, row, None) or getattr(precis, row))}
    assert told == {renamed.get(name, name) for name in names}


def test_every_field_of_a_session_is_one_of_its_properties():
    names = {name for name in vars(_core.SessionRow) if not name.startswith("_")}
    properties = {name for name, member in vars(precis.Session).items() if type(member) is property}
    assert properties == {"ttl" if name == "ttl_seconds" else name for name in names}


def test_an_adapter_is_another_path(cache, request):
    spec = toy_spec(request.node.nodeid[-200:])
    plain, lora = cache.register_model(spec), cache.register_model(spec, adapter="lora-1")
    put_all(cache, plain, range(64), random_layers(spec, 64), keep=0.5)
    assert cache.lookup(plain, range(64)) and not cache.lookup(lora, range(64))


def test_everything_survives_a_restart(tmp_path):
    spec = toy_spec()
    layers = random_layers(spec, 100)
    with precis.open(tmp_path / "cache") as cache:
        model = cache.register_model(spec)
        segment = put_all(cache, model, range(100), layers, keep=0.5)
        cache.session("chat", ttl=60).advance(segment)
    with precis.open(tmp_path / "cache") as cache:
        model = cache.register_model(spec)
        assert cache.session("chat").tip == segment.id
        prefix = cache.get(cache.lookup(model, range(100)), keep=0.3)
        assert same_entries(prefix, precis.compress(spec, layers, keep=0.3))


def test_a_folder_may_be_named_as_an_address_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run:12").mkdir()
    with precis.open("run:12") as cache:
        assert cache.status()


def test_a_folder_serves_one_process(tmp_path):
    with precis.open(tmp_path / "cache"), pytest.raises(precis.Unavailable):
        precis.open(tmp_path / "cache")


def test_a_prefix_says_what_share_of_all_entries_came(cache, model):
    layers = random_layers(model.spec, 200)
    put_all(cache, model, range(200), layers, recipe="global_kvdiff(min_entries=64)", keep=1.0)
    match = cache.lookup(model, range(200))
    assert cache.get(match).share == 1
    assert cache.get(match, keep=0.5).share == pytest.approx(0.5, abs=0.01)
    few = cache.get(match, keep=0.05)
    assert few.share == few.kept / (200 * 6) == 64 / 200  # a limit of the recipe
    assert repr(few) == "Prefix(matched_tokens=200, layers=3, keep='0.05')"
    one = cache.get(match, keep=0.5, heads=(0, 1))
    assert one.share == one.kept / (200 * 3)


def test_what_keeps_the_directory_of_a_closed_cache_open_is_named(tmp_path):
    cache = precis.open(tmp_path / "cache")
    model = cache.register_model(toy_spec())
    put = cache.begin_put(model, range(40))
    with pytest.raises(precis.Unavailable) as still_open:
        precis.open(tmp_path / "cache")
    assert "del put" not in str(still_open.value)  # that would not help
    cache.close()
    (tmp_path / "link").symlink_to(tmp_path / "cache")
    for place in (tmp_path / "cache", tmp_path / "link"):
        with pytest.raises(precis.Unavailable, match=r"a Put, a Prefix or an array .* del put"):
            precis.open(place)
    del put
    precis.open(tmp_path / "cache").close()


def test_help_begins_with_where_to_start():
    text = pydoc.plain(pydoc.render_doc(precis))
    start = text[: text.index("PACKAGE CONTENTS")]
    for name in re.findall(r":(?:class|func):`(\w+)`", start):
        assert name in precis.__all__
    assert "`Cache` has every call" in start


def test_a_closed_cache_says_so(tmp_path):
    cache = precis.open(tmp_path / "cache")
    cache.close()
    with pytest.raises(precis.Unavailable, match="closed"):
        cache.status()


def test_rdma_is_off_or_by_a_device_that_is_there(precisd):
    with precis.connect(precisd.address, rdma="off") as cache:
        assert "rdma" not in cache.status().transport
    with pytest.raises(precis.Unsupported, match="no_such_device"):
        precis.connect(precisd.address, rdma="no_such_device:1")


def test_where_nobody_listens_the_service_is_unavailable():
    with pytest.raises(precis.Unavailable):
        precis.connect("127.0.0.1:1", timeout=2)
    with pytest.raises(ConnectionError):
        precis.connect("127.0.0.1:1", timeout=2)


def test_the_log_of_the_service_names_python_and_its_version(tmp_path):
    with Precisd(find_precisd(), tmp_path / "data", "--log-level", "debug") as service:
        precis.connect(service.address).close()
        service.stop()
        assert f"client=precis-python/{precis.__version__} " in service.log_end()


def test_a_commit_that_misses_layers_names_them_by_their_ranges(cache, request):
    spec = toy_spec(name=request.node.nodeid[-200:], num_layers=12)
    model = cache.register_model(spec)
    layers = random_layers(spec, 64)
    put = cache.begin_put(model, range(64), recipe="knorm", keep=0.5)
    put.layer(0, *layers[0])
    put.layer(4, *(rows[:, :16] for rows in layers[4]))
    put.layer(10, *layers[10])
    with pytest.raises(
        precis.InvalidArgument, match=r"layers 1-3, layer 4 \(.*\), layers 5-9, layer 11"
    ):
        put.commit()
