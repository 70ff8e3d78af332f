"""The pushes of precis.hf stay close behind the prefill, and end with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import SEED

import precis
from precis import _core, hf
from precis.demo.service import Precisd, find_precisd
from precis.hf import pusher
from precis.hf.pusher import LAYERS_WAITING_MAX

NUM_LAYERS = 16


def random_llama(num_layers: int):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(SEED)
    shape = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=100, num_hidden_layers=num_layers, **shape)
    return LlamaForCausalLM(config).eval()


@pytest.fixture
def deep_llama():
    """A Llama with random weights and with more layers than may wait."""
    return random_llama(NUM_LAYERS)


@pytest.fixture
def computed(deep_llama):
    """The layers whose computation has begun, in order."""
    begun: list[int] = []
    for index, layer in enumerate(deep_llama.model.layers):
        layer.register_forward_pre_hook(lambda *_, index=index: begun.append(index))
    return begun


class Put:
    """A put that passes the index of each layer to the function `push` of the test."""

    begin, already_stored = 0, False
    recipe = '{"scorer":"knorm"}'

    def __init__(self, hf_model, end, push) -> None:
        self.end = end
        self.model = precis.Model(hf.model_spec(hf_model, name="m"), "")
        self.layers: list[int] = []
        self._push = push

    def layer(self, index, *, wait, **parts):
        self.layers.append(index)
        self._push(index)

    def wait(self):
        pass


def test_a_prefill_waits_for_pushes_that_lag_behind(deep_llama, computed):
    far = threading.Event()
    beyond = deep_llama.model.layers[LAYERS_WAITING_MAX + 2]  # one is pushed, one has no room yet
    beyond.register_forward_pre_hook(lambda *_: far.set())
    ran_ahead: list[bool] = []

    def push(index):
        if index == 0:
            ran_ahead.append(far.wait(0.5))

    put = Put(deep_llama, 20, push)
    hf.prefill(deep_llama, range(20), put)
    assert ran_ahead == [False]
    assert put.layers == computed == list(range(NUM_LAYERS))


def test_an_error_of_an_early_layer_reaches_who_offers_a_later_one(deep_llama, computed):
    def push(index):
        raise precis.OutOfSpace(f"no room for layer {index}")

    put = Put(deep_llama, 20, push)
    with pytest.raises(precis.OutOfSpace, match="no room for layer 0"):
        hf.prefill(deep_llama, range(20), put)
    assert put.layers == [0]
    assert len(computed) <= LAYERS_WAITING_MAX + 2


def test_an_error_of_the_last_layer_reaches_the_caller(deep_llama):
    def push(index):
        if index == NUM_LAYERS - 1:
            raise precis.OutOfSpace(f"no room for layer {index}")

    with pytest.raises(precis.OutOfSpace, match="no room for layer 15"):
        hf.prefill(deep_llama, range(20), Put(deep_llama, 20, push))


def test_nobody_is_in_the_put_once_a_prefill_has_failed(deep_llama):
    pushing = threading.Event()
    inside: list[int] = []

    def push(index):
        inside.append(index)
        pushing.set()
        for _ in range(100_000):  # while the model fails
            pass
        inside.remove(index)

    def fail(*_):
        pushing.wait()
        raise RuntimeError("the model fails")

    deep_llama.model.layers[3].register_forward_pre_hook(fail)
    put = Put(deep_llama, 20, push)
    with pytest.raises(RuntimeError, match="the model fails"):
        hf.prefill(deep_llama, range(20), put)
    assert not inside


def test_an_interrupt_as_the_thread_starts_leaves_none_behind(deep_llama, monkeypatch):
    started: list[threading.Thread] = []

    class Interrupted(threading.Thread):
        def start(self):
            super().start()
            started.append(self)
            raise KeyboardInterrupt

    monkeypatch.setattr(pusher, "threading", SimpleNamespace(Thread=Interrupted))
    put = Put(deep_llama, 20, print)
    with pytest.raises(KeyboardInterrupt):
        hf.prefill(deep_llama, range(20), put)
    started[0].join()
    assert not put.layers


# ---- Ctrl-C -------------------------------------------------------------------------------------

TOKENS = [20 + i % 80 for i in range(1000)]


@pytest.fixture
def full_service(tmp_path):
    """A precisd without free memory, its client, and the client's put, which holds all memory."""
    config = tmp_path / "precisd.toml"
    config.write_text("memory_wait_ms = 3600000\nsilent_client_ms = 3600000\n")
    flags = ("--memory", "16MiB", "--config", str(config))
    with Precisd(find_precisd(), tmp_path / "data", *flags) as service:
        owner = precis.connect(service.address)
        model = owner.register_model(precis.ModelSpec("hoarder", 3, 20, 1, 64, "f32"))
        # Admission counts one staged layer of a put, and these layers stay incomplete. So the put
        # holds more than was counted, and another put is admitted and finds no memory.
        put = owner.begin_put(model, range(900), "observed_mean(window=0)", keep=1.0)
        rows, queries = np.ones((1, 899, 64), np.float32), np.ones((20, 900, 64), np.float32)
        for layer in range(3):
            put.layer(layer, rows, rows, queries)
        yield service, owner, put


def until(cache: precis.Cache, **wanted: int) -> None:
    """Waits until the service counts exactly these numbers."""
    for _ in range(30_000):
        stats = cache.stats()
        if all(stats[f"precis_{name}"] == count for name, count in wanted.items()):
            return
        time.sleep(0.01)
    pytest.fail(f"never came to {wanted}: {stats}")


@contextlib.contextmanager
def ctrl_c_once(ready):
    """Sends Ctrl-C within the block as soon as `ready` returns."""

    def press():
        try:
            ready()
        finally:
            # The signal goes to this thread, so it does not wake the main thread from its wait. The
            # same happens if a signal comes just before the main thread waits.
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    # A shell that runs the tests in the background may have set the signal to be ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    presser = threading.Thread(target=press)
    presser.start()
    try:
        yield
    finally:
        presser.join()
        signal.signal(signal.SIGINT, before)


class Twice:
    """The Waits of a thread; a second Ctrl-C comes just before end() ends them."""

    def __init__(self) -> None:
        self._waits = _core.Waits()
        self.adopt = self._waits.adopt
        self._pressed = False

    def end(self) -> None:
        if not self._pressed:
            self._pressed = True
            signal.raise_signal(signal.SIGINT)
        self._waits.end()


@pytest.mark.parametrize(
    ("num_layers", "computed"), [(6, 6), (NUM_LAYERS, 10)], ids=["all is computed", "amid layers"]
)
@pytest.mark.parametrize("waits", [_core.Waits, Twice], ids=["once", "twice"])
def test_ctrl_c_ends_a_store_that_waits_for_the_services_memory(
    full_service, monkeypatch, num_layers, computed, waits
):
    service, owner, hoard = full_service
    monkeypatch.setattr(pusher, "_core", SimpleNamespace(Waits=waits))
    hf_model = random_llama(num_layers)
    reached = threading.Event()
    last = hf_model.lm_head if computed == num_layers else hf_model.model.layers[computed - 1]
    last.register_forward_pre_hook(lambda *_: reached.set())
    cache = precis.connect(service.address)
    model = cache.register_model(hf.model_spec(hf_model, name="deep"))

    def ready():
        assert reached.wait(300)
        until(owner, waiting_requests=4)  # as many as a put has in flight

    with pytest.raises(KeyboardInterrupt), ctrl_c_once(ready):
        hf.store(cache, model, hf_model, TOKENS, recipe="knorm", keep=1.0)
    until(owner, waiting_requests=0, open_puts=1)
    hoard.abort()
    until(owner, open_puts=0, staged_bytes=0)
    hf.store(cache, model, hf_model, TOKENS, recipe="knorm", keep=1.0)
    assert cache.lookup(model, TOKENS).matched_tokens == len(TOKENS)


STORE = """
import signal, sys
from transformers import LlamaConfig, LlamaForCausalLM
import precis
from precis import hf

shape = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2}
hf_model = LlamaForCausalLM(LlamaConfig(vocab_size=100, num_hidden_layers=6, **shape)).eval()
cache = precis.connect(sys.argv[1])
model = cache.register_model(hf.model_spec(hf_model, name="deep"))
signal.signal(signal.SIGINT, signal.default_int_handler)
hf.store(cache, model, hf_model, [20 + i % 80 for i in range(1000)], recipe="knorm", keep=1.0)
"""


def test_a_process_whose_store_ctrl_c_ends_ends_by_it_and_leaves_nothing(full_service):
    service, owner, hoard = full_service
    arguments = [sys.executable, "-c", STORE, service.address]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE) as store:
        try:
            until(owner, waiting_requests=4)
            for _ in range(2):
                os.kill(store.pid, signal.SIGINT)
            _, errors = store.communicate(timeout=60)
        finally:
            store.kill()
    assert store.returncode == -signal.SIGINT, errors.decode()
    assert errors.rstrip().endswith(b"KeyboardInterrupt")
    until(owner, waiting_requests=0, open_puts=1)
    hoard.abort()
    until(owner, open_puts=0, staged_bytes=0)
