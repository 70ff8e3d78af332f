"""Hints about what is worth keeping, pins with a limit, and a limit of the embedded service."""

from __future__ import annotations

import threading
import time

import pytest
from kv import put_all, random_layers, toy_spec

import precis

TOKENS = list(range(300))


def put(cache, model, tokens=TOKENS, **options):
    layers = random_layers(model.spec, len(tokens), seed=tokens[0])
    return put_all(cache, model, tokens, layers, **({"keep": 0.9} | options))


def test_puts_and_lookups_set_what_they_name(cache, model):
    segment = put(cache, model)
    assert (segment.priority, segment.ttl_seconds, segment.expected_unix_ms) == (50, 0, 0)
    now = 1000 * time.time()
    match = cache.lookup(model, TOKENS, priority=70, ttl_s=1.5, expect_reuse_in_s=60)
    found = cache.segment(segment.id)
    assert (found.priority, found.ttl_seconds) == (70, 2)
    assert abs(found.expected_unix_ms - now - 60_000) < 600_000
    assert match.links[0].segment.priority == 70
    with cache.begin_put(model, TOKENS, "global_kvdiff", 0.9, priority=0) as again:
        assert again.already_stored
    found = cache.segment(segment.id)
    assert (found.priority, found.ttl_seconds) == (0, 2)
    other = put(cache, model, TOKENS[5:], priority=100, ttl_s=30)
    assert (other.priority, other.ttl_seconds, other.expected_unix_ms) == (100, 30, 0)
    with precis.Calls(cache) as calls:
        ticket = calls.lookup(model, TOKENS, priority=20)
        outcomes = []
        while not outcomes:
            outcomes = calls.poll()
        assert outcomes[0][0] == ticket and outcomes[0][1].links[0].segment.priority == 20


def test_a_lookup_renews_the_session_that_it_names(cache, model):
    segment = put(cache, model)
    session = cache.session("chat", ttl=5).advance(segment)
    expires = session.expires_unix_ms
    assert cache.lookup(model, TOKENS, session=session)  # a tenth of the ttl has not passed
    time.sleep(0.6)
    assert cache.lookup(model, TOKENS)
    assert session.refresh().expires_unix_ms == expires
    assert cache.lookup(model, TOKENS, session=session)
    assert session.refresh().expires_unix_ms > expires
    assert (session.tip, session.turns) == (segment.id, 1)
    with precis.Calls(cache) as calls:
        ticket = calls.lookup(model, TOKENS, session="gone")
        outcomes = []
        while not outcomes:
            outcomes = calls.poll()
        assert outcomes[0][0] == ticket and isinstance(outcomes[0][1], precis.NotFound)
    with pytest.raises(precis.NotFound, match="session 'gone' does not exist"):
        cache.lookup(model, TOKENS, session="gone")


@pytest.mark.parametrize(
    ("hint", "what"),
    [
        ({"priority": 101}, r"priority is 101, must be in \[0, 100\]"),
        ({"priority": -1}, "priority is -1"),
        ({"priority": 2.5}, "priority: 2.5 is not a whole number"),
        ({"ttl_s": -1}, "ttl_s: -1, must be a number of seconds"),
        ({"ttl_s": float("nan")}, "ttl_s: nan"),
        ({"ttl_s": "1h"}, "ttl_s: '1h'"),
        ({"expect_reuse_in_s": 1e30}, "expect_reuse_in_s: 1e"),
        ({"expect_reuse_in_s": True}, "expect_reuse_in_s: True"),
    ],
)
def test_a_wrong_hint_is_refused_by_name(cache, model, hint, what):
    for call in (cache.begin_put, cache.lookup):
        with pytest.raises(precis.InvalidArgument, match=what):
            call(model, TOKENS, **hint)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 1e9, "3", True])
def test_a_wrong_time_of_a_prefill_is_refused_by_name(cache, model, seconds):
    with pytest.raises(precis.InvalidArgument, match="prefill_s: "):
        cache.begin_put(model, TOKENS, prefill_s=seconds)
    with cache.begin_put(model, TOKENS) as begun, pytest.raises(precis.Error, match="prefill_s: "):
        begun.commit(prefill_s=seconds)


def test_puts_say_how_long_their_prefill_took(cache, model):
    assert put(cache, model).prefill_seconds == 0
    segment = put(cache, model, TOKENS[1:], prefill_s=1.5)
    assert segment.prefill_seconds == cache.segment(segment.id).prefill_seconds == 1.5
    layers = random_layers(model.spec, 298, seed=2)
    for last, (begin, commit, told) in enumerate([(None, 2.5, 2.5), (3, 2.5, 3)]):
        path = [*TOKENS[2:-1], last]
        with cache.begin_put(model, path, keep=0.9, parent=None, prefill_s=begin) as later:
            for index, (keys, values) in enumerate(layers):
                later.layer(index, keys, values)
            assert later.commit(prefill_s=commit).prefill_seconds == told
    # A segment that is stored already keeps its own time.
    with cache.begin_put(model, TOKENS[1:], "global_kvdiff", 0.9, prefill_s=9) as again:
        assert again.commit(prefill_s=9).prefill_seconds == 1.5


def test_the_retention_of_a_stored_segment_is_set(cache, model):
    segment = put(cache, model)
    changed = cache.set_retention(segment, priority=80)
    assert (changed.id, changed.priority, changed.ttl_seconds) == (segment.id, 80, 0)
    changed = cache.set_retention(segment.id, ttl_s=59.5)
    assert (changed.priority, changed.ttl_seconds) == (80, 60)
    assert cache.set_retention(segment, ttl_s=0).ttl_seconds == 0
    with pytest.raises(precis.InvalidArgument, match="give a priority, a ttl or both"):
        cache.set_retention(segment)
    with pytest.raises(precis.InvalidArgument, match="priority is 101"):
        cache.set_retention(segment, priority=101)
    with pytest.raises(precis.NotFound):
        cache.set_retention("0" * 32, priority=1)
    found = cache.segment(segment.id)
    assert (found.priority, found.ttl_seconds) == (80, 0)


def test_an_embedded_service_stays_within_its_limit(tmp_path):
    limit = 2 << 20
    with precis.open(tmp_path, memory_bytes=64 << 20, max_disk_bytes=limit) as cache:
        status = cache.status()
        assert status.max_disk_bytes == limit and status.max_pinned_bytes == limit // 2
        model = cache.register_model(toy_spec())
        sent = 0
        last = None
        while sent < 3 * limit:
            last = put(cache, model, [sent, *range(1000)])
            sent += last.bytes
            assert cache.status().stored_bytes <= limit
        assert cache.stats()["precis_capacity_freed_bytes_total"] > limit
        assert cache.segment(last.id).bytes > 0

        pinned = 0
        with pytest.raises(precis.OutOfSpace, match="max_pinned_share"):
            while True:
                segment = put(cache, model, [sent + pinned, *range(1000)])
                session = cache.session(f"session {pinned}")
                session.advance(segment).pin()
                pinned += 1
        assert pinned > 0 and not session.refresh().pinned
        assert 0 < cache.status().pinned_bytes <= limit // 2


def test_many_puts_at_a_time_stay_within_the_limit(tmp_path):
    limit = 2 << 20
    most, puts, done = 0, [], threading.Event()
    with precis.open(tmp_path, memory_bytes=64 << 20, max_disk_bytes=limit) as cache:
        model = cache.register_model(toy_spec())

        def watch():
            nonlocal most
            while not done.is_set():
                most = max(most, cache.status().stored_bytes)

        def write(writer):
            sent = 0
            while sent < limit:
                sent += put(cache, model, [1000 * writer + sent, *range(1000)]).bytes
            puts.append(sent)

        watcher = threading.Thread(target=watch)
        writers = [threading.Thread(target=write, args=(number,)) for number in range(1, 5)]
        for thread in (watcher, *writers):
            thread.start()
        for thread in writers:
            thread.join()
        done.set()
        watcher.join()
    assert len(puts) == 4 and limit // 2 < most <= limit * 1.01


def test_a_wrong_limit_of_an_embedded_service_is_refused(tmp_path):
    with pytest.raises(precis.InvalidArgument, match="max_disk_bytes"):
        precis.open(tmp_path, max_disk_bytes=-1)
