"""Threads that share a put, threads that still run when the program ends, and forked children."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading

import pytest
from kv import random_layers

import precis


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a Python program in its own process, with helpers to open a cache."""
    prologue = """
        import os, sys, threading
        import numpy as np, precis
        def opened(where):
            return precis.connect(where) if ":" in where else precis.open(where)
        spec = precis.ModelSpec("toy", 3, 4, 2, 16, dtype="f32")
        def rows(n, seed=1):
            draw = np.random.default_rng(seed)
            return draw.standard_normal((3, 2, 2, n, 16), dtype=np.float32)
    """
    source = textwrap.dedent(prologue) + textwrap.dedent(program)
    command = [sys.executable, "-c", source, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.fixture(params=["open", "connect"])
def where(request, tmp_path) -> str:
    """The argument of a program: a folder, or the address of a precisd."""
    if request.param == "open":
        return str(tmp_path / "data")
    return request.getfixturevalue("precisd").address


@pytest.mark.parametrize("threads", [2, 8])
def test_threads_that_share_a_put_take_turns(threads, where):
    done = run(
        """
        threads = int(sys.argv[2])
        cache = opened(sys.argv[1])
        model = cache.register_model(spec)
        whole = rows(512)
        for turn in range(6):
            tokens = [turn * 1000 + threads + i for i in range(512)]
            put = cache.begin_put(model, tokens, recipe="knorm", keep=1.0)
            pieces = [(layer, at) for layer in range(3) for at in range(0, 512, 32)]
            errors = []
            def push(mine):
                try:
                    for layer, at in mine:
                        keys, values = (x[:, at : at + 32] for x in whole[layer])
                        put.layer(layer, keys, values, token_begin=at, wait=at % 64 == 0)
                        put.wait()
                except BaseException as error:
                    errors.append(error)
            pool = [
                threading.Thread(target=push, args=(pieces[i::threads],)) for i in range(threads)
            ]
            for thread in pool: thread.start()
            for thread in pool: thread.join()
            assert not errors, errors
            put.commit()
            prefix = cache.get(cache.lookup(model, tokens)).wait()
            for layer in range(3):
                for head, got in enumerate(prefix.layers[layer].heads):
                    assert np.array_equal(got.keys, whole[layer][0][head][got.positions])
        print("whole")
        """,
        where,
        str(threads),
    )
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr


def test_of_threads_that_commit_one_put_one_gets_the_segment(cache, model):
    layers = random_layers(model.spec, 128)
    for turn in range(10):
        put = cache.begin_put(model, range(turn * 1000, turn * 1000 + 128), recipe="knorm", keep=1)
        for index, (keys, values) in enumerate(layers):
            put.layer(index, keys, values, wait=False)
        outcomes: list[str] = []

        def commit(put=put, outcomes=outcomes) -> None:
            try:
                outcomes.append(put.commit().id)
            except precis.InvalidArgument as error:
                outcomes.append(str(error))

        pool = [threading.Thread(target=commit) for _ in range(4)]
        for thread in pool:
            thread.start()
        for thread in pool:
            thread.join()
        ended = "the put has ended with its commit"
        assert sorted(outcomes) == sorted([put.segment, ended, ended, ended])


def test_a_signal_handler_within_a_call_of_a_put_cannot_make_another(cache, model):
    # The second writer never comes, so commit() waits, and checks for signals, until its deadline.
    put = cache.with_deadline(3).begin_put(model, range(64), recipe="knorm", keep=0.5, writers=2)
    caught: list[str] = []

    def interrupt(*_: object) -> None:
        try:
            put.abort()
        except precis.InvalidArgument as error:
            caught.append(str(error))

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for index, (keys, values) in enumerate(random_layers(model.spec, 64)):
            put.layer(index, keys[:1], values[:1])
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        with pytest.raises(precis.TimedOut):
            put.commit()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert caught and "this thread is already in one of its calls" in caught[0]


@pytest.mark.parametrize("call", ["lookup", "commit", "compress", "push"])
def test_a_program_ends_over_a_daemon_thread_in_a_call(call, where):
    # Several rounds: the interpreter's end comes at another moment each time.
    for _ in range(3):
        done = run(
            """
            class InPython:  # an array whose library is written in Python
                def __init__(self, rows):
                    self.rows, self.shape = rows, rows.shape
                def __dlpack__(self, **options):
                    return [self.rows.__dlpack__(**options) for _ in range(50)][-1]
                def __dlpack_device__(self):
                    return self.rows.__dlpack_device__()
            cache = opened(sys.argv[1])
            model = cache.register_model(spec)
            whole = rows(64)
            started = threading.Event()
            def lookup():
                cache.lookup(model, range(100_000))
                started.set()
            def commit():  # waits for a writer that never comes
                tokens = [threading.get_native_id(), *range(63)]
                put = cache.begin_put(model, tokens, recipe="knorm", keep=0.5, writers=2)
                for layer in range(3):
                    put.layer(layer, whole[layer][0][:1], whole[layer][1][:1])
                started.set()
                put.commit()
            def push():
                tokens = [threading.get_native_id(), *range(63)]
                put = cache.begin_put(model, tokens, recipe="knorm", keep=0.5)
                for layer in (0, 1, 2, 3):
                    try:
                        put.layer(layer, *map(InPython, whole[layer % 3]), wait=layer == 1)
                    except precis.InvalidArgument:
                        started.set()
            def compress():
                precis.compress(spec, list(whole), recipe="knorm", keep=0.5)
                started.set()
            def forever(step):
                while True:
                    step()
            for _ in range(3):
                step = locals()[sys.argv[2]]
                threading.Thread(target=forever, args=(step,), daemon=True).start()
            started.wait()
            print("ends")
            """,
            where,
            call,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")


FORK = """
    cache = opened(sys.argv[1])
    model = cache.register_model(spec)
    whole = rows(64)
    def stored(tokens):
        put = cache.begin_put(model, tokens, recipe="knorm", keep=1.0)
        for layer in range(3):
            put.layer(layer, *whole[layer])
        return put.commit()
    stored(range(64))
    match = cache.lookup(model, range(64))
    prefix = cache.get(match).wait()
    session = cache.session(f"fork {os.getpid()}")
    put = cache.begin_put(model, range(100, 164), recipe="knorm", keep=1.0)
    put.layer(0, *whole[0], wait=False)
    buffer = cache.allocate(1 << 20)
    def in_child(step):
        child = os.fork()
        if child == 0:
            code = 3
            try:
                step()
                code = 0
            finally:
                sys.stdout.flush()
                os._exit(code)
        done, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
"""


def test_in_a_forked_child_every_call_says_to_connect_anew(where):
    done = run(
        FORK
        + """
    def refused(call):
        try:
            call()
        except precis.Unavailable as error:
            assert str(error) == (
                "this client was opened in another process; connect again after fork"
            ), error
        else:
            raise AssertionError("the call went on")
    def child():
        keys, values = whole[1]
        for call in (
            lambda: cache.lookup(model, range(64)),
            lambda: cache.get(match),
            lambda: cache.status(),
            lambda: cache.with_deadline(1),
            lambda: cache.allocate(4096),
            lambda: cache.begin_put(model, range(64)),
            lambda: session.advance(match.links[-1].segment),
            lambda: prefix.wait(),
            lambda: prefix.layers[0],
            lambda: prefix.plan,
            lambda: put.layer(1, keys, values),
            lambda: put.wait(),
            lambda: put.commit(),
            lambda: put.abort(),
        ):
            refused(call)
    in_child(child)
    for layer in (1, 2):
        put.layer(layer, *whole[layer])
    put.commit()
    print("the parent goes on")
    """,
        where,
    )
    assert (done.returncode, done.stdout) == (0, "the parent goes on\n"), done.stderr


def test_a_forked_child_drops_all_of_its_parents_and_ends(where):
    done = run(
        FORK
        + """
    def child():
        global cache, prefix, put, session, buffer, match
        cache.close()
        del cache, prefix, put, session, buffer, match
        import gc
        gc.collect()
    in_child(child)
    # And one that ends as programs do, with everything alive.
    child = os.fork()
    if child == 0:
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    for layer in (1, 2):
        put.layer(layer, *whole[layer])
    put.commit()
    assert cache.lookup(model, range(100, 164)).matched_tokens == 64
    print("the parent goes on")
    """,
        where,
    )
    assert (done.returncode, done.stdout) == (0, "the parent goes on\n"), done.stderr


def test_a_forked_child_connects_anew(precisd):
    done = run(
        FORK
        + """
    def child():
        anew = precis.connect(sys.argv[1])
        model = anew.register_model(spec)
        got = anew.get(anew.lookup(model, range(64))).wait()
        assert got.layers[2].heads[0].keys.shape == (64, 16)
        anew.close()
    in_child(child)
    stored(range(64))
    print("the parent goes on")
    """,
        precisd.address,
    )
    assert (done.returncode, done.stdout) == (0, "the parent goes on\n"), done.stderr


def test_a_forked_child_does_not_keep_its_parents_folder(tmp_path):
    done = run(
        """
        import socket
        cache = precis.open(sys.argv[1])
        try:
            precis.open(sys.argv[1])
        except precis.Unavailable:
            print("open once")
        here, there = socket.socketpair()
        child = os.fork()
        if child == 0:
            here.close()
            there.send(b"begun")
            there.recv(1)  # lives until the parent closes its end
            os._exit(0)
        there.close()
        here.recv(5)
        cache.close()
        precis.open(sys.argv[1]).close()
        here.close()
        assert os.waitpid(child, 0)[1] == 0
        print("opened anew")
        """,
        str(tmp_path / "data"),
    )
    assert (done.returncode, done.stdout) == (0, "open once\nopened anew\n"), done.stderr
