"""KV events over ZeroMQ: subscribers can use only a limited part of the service's memory."""

from __future__ import annotations

import re

import pytest
from kv import put_all, random_layers, toy_spec

import precis
from precis.demo.service import Precisd, find_precisd

SHAPE = {"num_layers": 1, "num_q_heads": 1, "num_kv_heads": 1, "head_dim": 8}


def test_subscribers_that_ask_for_too_many_topics_are_disconnected(tmp_path):
    zmq = pytest.importorskip("zmq")
    config, log = tmp_path / "precisd.toml", tmp_path / "data.log"
    config.write_text('kv_events = "tcp://127.0.0.1:0"\n')
    context = zmq.Context()
    with Precisd(find_precisd(), tmp_path / "data", "--config", str(config)) as service:
        address = re.findall(r"kv events address=(\S+)", log.read_text())[-1]
        with precis.connect(service.address) as cache:
            model = cache.register_model(toy_spec(**SHAPE))
            tokens = iter(range(1 << 30))

            def put() -> None:
                path = [next(tokens) for _ in range(8)]
                put_all(cache, model, path, random_layers(model.spec, len(path)))

            greedy = context.socket(zmq.SUB)
            greedy.setsockopt(zmq.SNDHWM, 0)
            greedy.connect(address)
            for n in range(2000):
                greedy.subscribe(b"%0900d" % n)
            while "asked for too many topics" not in log.read_text():
                put()
            greedy.close(0)
            honest = context.socket(zmq.SUB)
            honest.subscribe(b"precis/default")
            honest.connect(address)
            while not honest.poll(100):  # a subscriber that connects late misses messages
                put()
            assert honest.recv_multipart()[0] == b"precis/default"
            honest.close(0)
        service.stop()
    context.term()
