"""Deadlines, and a service that is restarted or has no room, from a Python program's view."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time

import numpy as np
import pytest
from kv import put_all, random_layers, toy_spec

import precis
from precis import _core
from precis.demo.service import Precisd, find_precisd


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_cache_goes_on_with_a_service_that_was_killed_and_started_again(tmp_path):
    spec = toy_spec()
    layers = random_layers(spec, 100)
    with Precisd(find_precisd(), tmp_path / "data", listen=f"127.0.0.1:{free_port()}") as service:
        cache = precis.connect(service.address, timeout=60)
        model = cache.register_model(spec)
        put_all(cache, model, range(100), layers, keep=0.5)
        lost = cache.begin_put(model, range(200, 300), keep=0.5)
        lost.layer(0, *layers[0][:2])
        service.kill()
        with pytest.raises(precis.TimedOut, match="deadline of 200 ms"):
            cache.with_deadline(0.2).status()
        service.start()
        prefix = cache.get(cache.lookup(model, range(100)))
        prefix.wait()
        assert len(prefix.layers) == spec.num_layers
        with pytest.raises(precis.Unavailable, match="put again"):
            lost.layer(1, *layers[1][:2])
        put_all(cache, model, range(200, 300), layers, keep=0.5)


def test_a_path_that_does_not_fit_into_memory_is_put_in_segments(tmp_path):
    config = tmp_path / "precisd.toml"
    config.write_text('memory_bytes = "64 MiB"\n')
    spec = toy_spec(num_layers=2, num_q_heads=4, num_kv_heads=4, head_dim=64)
    count, piece = 32 << 10, 4 << 10
    layers = random_layers(spec, count)
    with Precisd(find_precisd(), tmp_path / "data", "--config", str(config)) as service:
        cache = precis.connect(service.address, timeout=60)
        model = cache.register_model(spec)
        with pytest.raises(precis.OutOfSpace, match="put the path in several segments"):
            cache.begin_put(model, range(count), keep=0.3)
        for end in range(piece, count + piece, piece):
            with cache.begin_put(model, range(end), keep=0.3) as put:
                assert (put.begin, put.end) == (end - piece, end)
                for layer, rows in enumerate(layers):
                    put.layer(layer, *(part[:, put.begin : put.end] for part in rows))
                put.commit()
        match = cache.lookup(model, range(count))
        assert match.matched_tokens == count and len(match.links) == count // piece
        kept = sum(link.segment.kept for link in match.links)
        assert kept == pytest.approx(0.3 * count * 8, rel=0.01)
        cache.get(match).wait()


def test_what_is_rejected_says_when_to_come_back(tmp_path):
    config = tmp_path / "precisd.toml"
    config.write_text("max_puts = 1\n")
    spec = toy_spec()
    with Precisd(find_precisd(), tmp_path / "data", "--config", str(config)) as service:
        cache = precis.connect(service.address, retry=False)
        model = cache.register_model(spec)
        first = cache.begin_put(model, range(100), keep=0.5)
        with pytest.raises(precis.Rejected, match="max_puts") as rejected:
            cache.begin_put(model, range(100, 200), keep=0.5)
        assert rejected.value.retry_after > 0
        first.abort()
        cache.begin_put(model, range(100, 200), keep=0.5).abort()


@pytest.mark.parametrize("seconds", [0, -1, 2.0**40, float("nan")])
def test_a_deadline_is_a_time_to_come(cache, seconds):
    with pytest.raises(precis.InvalidArgument, match="deadline"):
        cache.with_deadline(seconds)


def test_a_deadline_that_is_met_changes_nothing(cache, model):
    hurried = cache.with_deadline(60)
    put_all(hurried, model, range(40), random_layers(model.spec, 40), keep=0.5)
    prefix = hurried.get(hurried.lookup(model, range(40)))
    assert all(np.isfinite(head.scores).all() for layer in prefix.layers for head in layer.heads)
    assert hurried.with_deadline(None).lookup(model, range(40))


def interrupted(call):
    """Sends Ctrl-C half a second after `call` begins; returns how many seconds `call` took."""
    # A shell that runs the tests in the background may have set the signal to be ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    began = time.monotonic()
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            call()
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    return time.monotonic() - began


def test_ctrl_c_ends_a_call_that_waits_and_the_connection_goes_on(cache):
    spec = toy_spec()
    model = cache.register_model(spec)
    layers = random_layers(spec, 100)
    # The second writer never comes.
    lonely = cache.with_deadline(30).begin_put(model, range(100), keep=0.5, writers=2)
    for layer, (keys, values, *_) in enumerate(layers):
        lonely.layer(layer, keys, values)
    assert interrupted(lonely.commit) < 5
    put_all(cache, model, range(200, 300), layers, keep=0.5)
    prefix = cache.get(cache.lookup(model, range(200, 300)))
    prefix.wait()


def test_ctrl_c_ends_the_wait_for_layers_that_were_pushed_ahead(tmp_path):
    spec = toy_spec()
    layers = random_layers(spec, 100)
    with Precisd(find_precisd(), tmp_path / "data") as service:
        cache = precis.connect(service.address, timeout=60)
        model = cache.register_model(spec)
        put = cache.begin_put(model, range(100), keep=0.5)
        os.kill(service.pid, signal.SIGSTOP)
        for layer, (keys, values, *_) in enumerate(layers):
            put.layer(layer, keys, values, wait=False)
        assert interrupted(put.wait) < 5
        os.kill(service.pid, signal.SIGCONT)
        with pytest.raises(precis.Unavailable, match=r"interrupted.*put again"):
            put.commit()
        put_all(cache, model, range(100), layers, keep=0.5)
        cache.get(cache.lookup(model, range(100))).wait()


def test_ctrl_c_ends_a_call_that_tries_again(tmp_path):
    with Precisd(find_precisd(), tmp_path / "data") as service:
        cache = precis.connect(service.address, timeout=60)
        service.kill()
        assert interrupted(cache.status) < 5


def test_whoever_has_the_waits_of_a_thread_ends_its_calls(tmp_path):
    with Precisd(find_precisd(), tmp_path / "data") as service:
        cache = precis.connect(service.address, timeout=60)
        os.kill(service.pid, signal.SIGSTOP)
        waits, ended = _core.Waits(), []

        def call():
            waits.adopt()
            for _ in range(2):  # each call ends, not only the first
                with pytest.raises(precis.Canceled, match="interrupted") as raised:
                    cache.status()
                ended.append(raised.value)

        thread = threading.Thread(target=call)
        thread.start()
        waits.end()
        thread.join()
        os.kill(service.pid, signal.SIGCONT)
        assert len(ended) == 2
        assert cache.status()  # a call of another thread


@pytest.mark.parametrize("last", ["cache", "prefix"])
def test_others_go_on_while_the_last_handle_waits_for_the_service(tmp_path, last):
    spec = toy_spec()
    with Precisd(find_precisd(), tmp_path / "data") as service:
        handles = {"cache": precis.connect(service.address, timeout=20)}
        model = handles["cache"].register_model(spec)
        put_all(handles["cache"], model, range(100), random_layers(spec, 100), keep=0.5)
        match = handles["cache"].lookup(model, range(100))
        os.kill(service.pid, signal.SIGSTOP)
        handles["prefix"] = handles["cache"].get(match)
        dropping, counted = threading.Event(), threading.Event()

        def count():  # for longer than a thread's time slice of the interpreter
            dropping.wait()
            for _ in range(2_000_000):
                pass
            counted.set()
            os.kill(service.pid, signal.SIGCONT)

        other = threading.Thread(target=count)
        other.start()
        handles = {last: handles[last]}
        dropping.set()
        handles.clear()
        went_on = counted.is_set()
        other.join()
        assert went_on
