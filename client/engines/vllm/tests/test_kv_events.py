"""What precisd publishes over ZeroMQ, decoded by vLLM's own classes."""

from __future__ import annotations

import re

import msgspec
import numpy as np
import zmq
from vllm.distributed.kv_events import BlockRemoved, BlockStored, KVEventBatch

import precis
from precis.demo.service import Precisd, find_precisd


def test_vllms_own_classes_decode_the_events(tmp_path):
    config = tmp_path / "precisd.toml"
    config.write_text('kv_events = "tcp://127.0.0.1:0"\n')
    decode = msgspec.msgpack.Decoder(type=KVEventBatch).decode
    spec = precis.ModelSpec(
        name="toy",
        num_layers=1,
        num_q_heads=1,
        num_kv_heads=1,
        head_dim=8,
        dtype="f32",
        block_tokens=4,
    )
    with (
        Precisd(find_precisd(), tmp_path / "data", "--config", str(config)) as service,
        zmq.Context() as context,
        context.socket(zmq.SUB) as subscriber,
        precis.connect(service.address) as cache,
    ):
        subscriber.subscribe(b"precis/default")
        subscriber.setsockopt(zmq.RCVTIMEO, 60_000)
        log = (tmp_path / "data.log").read_text()
        subscriber.connect(re.findall(r"kv events address=(\S+)", log)[-1])
        model = cache.register_model(spec).with_adapter("lora")
        rows = np.ones((1, 40, 8), np.float32)
        events: list = []
        at = 0
        while not events:  # a subscriber that connects late misses messages
            at += 100
            put = cache.begin_put(model, tokens=list(range(at, at + 40)), keep=0.5)
            put.layer(0, rows, rows)
            segment = put.commit()
            if subscriber.poll(100):
                events += decode(subscriber.recv_multipart()[2]).events
        cache.remove(segment)
        while not isinstance(events[-1], BlockRemoved):
            events += decode(subscriber.recv_multipart()[2]).events
        service.stop()
    stored, removed = events[-2:]
    assert isinstance(stored, BlockStored)
    assert stored.block_hashes == removed.block_hashes and len(stored.block_hashes) == 10
    assert all(isinstance(each, bytes) and len(each) == 32 for each in stored.block_hashes)
    assert (stored.block_size, stored.lora_name, stored.token_ids) == (4, "lora", [])
    assert stored.parent_block_hash is None and stored.medium == removed.medium == "STORAGE"
