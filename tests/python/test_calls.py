"""Calls: non-blocking calls and their outcomes."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from kv import put_all, random_layers

import precis
from precis.demo.service import Precisd, find_precisd

PATIENCE = 60.0


def take(calls: precis.Calls, count: int) -> dict[int, object]:
    """`count` outcomes, taken as an event loop would."""
    waiting = select.poll()
    waiting.register(calls.fileno(), select.POLLIN)
    taken: dict[int, object] = {}
    while len(taken) < count:
        assert waiting.poll(PATIENCE * 1000), f"{len(taken)} of {count} outcomes came"
        for ticket, outcome in calls.poll():
            assert ticket not in taken
            taken[ticket] = outcome
    return taken


def is_readable(calls: precis.Calls) -> bool:
    return bool(select.select([calls], [], [], 0)[0])


@pytest.fixture(params=[1, 4])
def calls(request, cache):
    with precis.Calls(cache, threads=request.param) as made:
        yield made


def test_lookups_bring_matches(cache, model, calls):
    put_all(cache, model, range(128), random_layers(model.spec, 128), keep=0.5)
    paths = [range(64), np.arange(128, dtype=np.uint32), [5, 6, 7], list(range(130))]
    tickets = [calls.lookup(model, path) for path in paths]
    tickets += calls.lookup_many(model, paths)
    assert len(set(tickets)) == 8
    outcomes = take(calls, 8)
    assert not is_readable(calls) and calls.poll() == []
    for ticket, path in zip(tickets, paths * 2, strict=True):
        match = outcomes[ticket]
        plain = cache.lookup(model, path)
        assert isinstance(match, precis.Match)
        assert (match.matched_tokens, bool(match)) == (plain.matched_tokens, bool(plain))
    whole = outcomes[tickets[1]]
    assert np.array_equal(cache.get(whole).plan, cache.get(cache.lookup(model, range(128))).plan)


def test_gets_waits_and_commits_bring_what_the_calls_bring(cache, model, calls):
    layers = random_layers(model.spec, 100)
    put = cache.begin_put(model, range(100), recipe="knorm", keep=0.5)
    with put:
        for index, (keys, values) in enumerate(layers):
            put.layer(index, keys, values, wait=False)
        ticket = calls.commit(put, "wal")
    segment = take(calls, 1)[ticket]
    assert isinstance(segment, precis.Segment) and segment.id == put.segment

    match = cache.lookup(model, range(100))
    shape = (model.spec.num_kv_heads, 100, model.spec.head_dim)
    out = [(np.zeros(shape, np.float32), np.zeros(shape, np.float32)) for _ in layers]
    plain = cache.get(match)
    whole, filled = calls.get(match), calls.get(match, 0.2, out=out)
    waited, layer = calls.wait(plain), calls.wait_layer(plain, 1)
    too_much, no_layer = calls.get(match, 0.9), calls.wait_layer(plain, 7)
    outcomes = take(calls, 6)
    assert outcomes[waited] is plain
    assert isinstance(outcomes[layer], precis.prefix.Layer)
    assert isinstance(outcomes[too_much], precis.InvalidArgument)
    assert isinstance(outcomes[no_layer], precis.InvalidArgument)
    assert np.array_equal(outcomes[whole].plan, plain.plan)
    for h, head in enumerate(outcomes[filled].layers[2].heads):
        assert len(head) and np.array_equal(out[2][1][h, : len(head)], head.values)


def test_a_get_into_pages_does_not_block_either(cache, model, calls):
    put_all(cache, model, range(64), random_layers(model.spec, 64), recipe="knorm", keep=1.0)
    match = cache.lookup(model, range(64))
    whole = np.zeros((24, 2, 16, model.spec.head_dim), np.float32)
    table = np.arange(24, dtype=np.uint32)
    starts = np.arange(0, 25, 4, dtype=np.uint32)
    ticket = calls.get(match, pages=(precis.Pages(whole[:, 0], whole[:, 1]), table, starts))
    prefix = take(calls, 1)[ticket]
    rows = np.asarray(prefix.layers[2].heads[1].keys)
    assert np.array_equal(whole[20:, 0].reshape(64, -1), rows)


def test_what_is_asked_of_a_dead_service_is_submitted_at_once(tmp_path):
    with Precisd(find_precisd(), tmp_path / "data") as service:
        cache = precis.connect(service.address, deadline=1.0)
        model = cache.register_model(precis.ModelSpec("toy", 3, 4, 2, 16, dtype="f32"))
        calls = precis.Calls(cache)
        ticket = calls.lookup(model, range(64))
        assert isinstance(take(calls, 1)[ticket], precis.Match)
        service.stop()
        tickets = [calls.lookup(model, range(64)) for _ in range(8)]
        outcomes = take(calls, 8)
        assert set(outcomes) == set(tickets)
        assert all(isinstance(o, precis.Error) for o in outcomes.values())
        calls.close()


def test_close_ends_calls_that_wait_for_the_service(cache, model):
    # The commit waits for a second writer, which never comes.
    put = cache.begin_put(model, range(64), recipe="knorm", keep=0.5, writers=2)
    calls = precis.Calls(cache, threads=1)
    calls.commit(put)
    behind = calls.lookup(model, range(64))
    assert behind and calls.poll() == []
    begun = time.monotonic()
    calls.close()
    assert time.monotonic() - begun < PATIENCE
    with pytest.raises(precis.Unavailable, match="closed"):
        calls.poll()
    calls.close()


def test_a_call_that_waits_is_forgotten_when_it_is_canceled(cache, model):
    # The commit waits for a second writer until its deadline.
    put = cache.with_deadline(2).begin_put(model, range(64), recipe="knorm", keep=0.5, writers=2)
    with precis.Calls(cache, threads=1) as calls:
        running = calls.commit(put)
        waiting = [calls.lookup(model, range(64)) for _ in range(3)]
        assert calls.cancel(waiting[1])
        assert not calls.cancel(waiting[1])
        assert not calls.cancel(10**6)
        outcomes = take(calls, 3)
        assert set(outcomes) == {running, waiting[0], waiting[2]}
        assert isinstance(outcomes[running], precis.TimedOut)
        over = calls.lookup(model, range(64))
        select.select([calls], [], [], PATIENCE)
        assert calls.cancel(over) and not is_readable(calls)


def test_an_interrupted_poll_loses_no_outcome(cache, model, monkeypatch):
    made = []

    def interrupted(path, core):
        made.append(path)
        if len(made) == 2:
            signal.raise_signal(signal.SIGINT)
        return precis.Match.from_core(core, path)

    monkeypatch.setattr(precis.calls, "_match", interrupted)
    taken, interrupts = [], 0
    # A shell that runs the tests in the background may have set the signal to be ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with precis.Calls(cache, threads=1) as calls:
            tickets = [calls.lookup(model, range(64)) for _ in range(3)]
            while len(taken) < 3:
                assert select.select([calls], [], [], PATIENCE)[0], f"{len(taken)} of 3 came"
                try:
                    taken += calls.poll()
                except KeyboardInterrupt:
                    interrupts += 1
                    assert is_readable(calls)
            assert not is_readable(calls)
    finally:
        signal.signal(signal.SIGINT, before)
    assert [ticket for ticket, _ in taken] == tickets and interrupts == 1


def test_threads_share_one_calls(cache, model):
    put_all(cache, model, range(64), random_layers(model.spec, 64), keep=0.5)
    with precis.Calls(cache, threads=3) as calls:
        mine: list[list[int]] = [[] for _ in range(4)]

        def submit(tickets: list[int]) -> None:
            for _ in range(50):
                tickets.append(calls.lookup(model, range(64)))

        pool = [threading.Thread(target=submit, args=(tickets,)) for tickets in mine]
        for thread in pool:
            thread.start()
        outcomes = take(calls, 200)
        for thread in pool:
            thread.join()
        assert set(outcomes) == {ticket for tickets in mine for ticket in tickets}
        assert all(match.matched_tokens == 64 for match in outcomes.values())


def test_wrong_arguments_are_refused_at_once(cache, model, calls):
    match = cache.lookup(model, range(64))
    with pytest.raises(precis.InvalidArgument, match="threads is 17"):
        precis.Calls(cache, threads=17)
    with pytest.raises(precis.InvalidArgument, match="tokens: the ids are"):
        calls.lookup(model, [0.5])
    with pytest.raises(precis.InvalidArgument, match="durability"):
        calls.commit(cache.begin_put(model, range(64), recipe="knorm", keep=1.0), "paper")
    with pytest.raises(precis.Rejected, match="poll first"):
        calls.lookup_many(model, [[1]] * 4097)
    ticket = calls.get(match)  # an empty match
    assert isinstance(take(calls, 1)[ticket], precis.InvalidArgument)
    assert not is_readable(calls)


PROGRAM = """
import os, sys, precis
cache = precis.open(sys.argv[1])
model = cache.register_model(precis.ModelSpec("toy", 3, 4, 2, 16, dtype="f32"))
put = cache.begin_put(model, range(64), recipe="knorm", keep=0.5, writers=2)
calls = precis.Calls(cache, threads=1)
calls.commit(put)  # waits for a writer that never comes
calls.lookup(model, range(64))
child = os.fork()
if child == 0:
    try:
        calls.lookup(model, [1])
    except precis.Unavailable:
        sys.exit(7)
    sys.exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
if sys.argv[2] == "collected":
    del calls
print("over")
"""


@pytest.mark.parametrize("end", ["collected", "left"])
def test_a_program_ends_over_calls_that_wait_and_so_does_its_child(tmp_path, end):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "data"), end]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "over\n"), done.stderr
