"""A cluster's nodes: their probes, and the Python client over two nodes."""

from __future__ import annotations

from pathlib import Path

import torch
from admin_port import Operator
from cluster import Cluster
from conftest import SEED
from dense_reference import continuation, full_cache
from kv import put_all, random_layers, toy_spec

import precis
from precis import hf


def test_a_node_that_is_no_member_lives_and_is_not_ready(tmp_path: Path) -> None:
    with Cluster(tmp_path, nodes=1) as cluster:
        operator = Operator(cluster.nodes[0], cluster.log(0))
        assert operator.ask("/readyz")[::2] == (200, "ready\n")
        assert cluster.precisctl(0, "status", "--ready").returncode == 0
        cluster.kill_etcd()
        cluster.wait(0, lambda state: state["state"] == "cut_off")
        status, _, text = operator.ask("/readyz")
        assert status == 503
        assert "no member of its cluster" in text
        assert "127.0.0.1" not in text  # the addresses of etcd
        assert operator.ask("/healthz")[0] == 200
        assert cluster.precisctl(0, "status", "--ready").returncode == 4
        assert cluster.precisctl(0, "status").returncode == 0


def test_what_one_process_puts_through_two_nodes_another_reads(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        prompts = [list(range(first, first + 128)) for first in range(0, 2000, 100)]
        with precis.connect(cluster.address) as cache:
            model = cache.register_model(toy_spec(name="toy"))
            for prompt in prompts:
                put_all(cache, model, prompt, random_layers(model.spec, 128), keep=0.5)
        for node in cluster.nodes:
            with precis.connect(node.address) as cache:
                assert 0 < cache.status().segments < len(prompts)
                for prompt in prompts:
                    assert cache.get(cache.lookup(model, prompt)).wait().matched_tokens == 128


def test_transformers_restores_from_two_nodes_what_it_stored(tmp_path: Path, random_llama) -> None:
    draw = torch.Generator().manual_seed(SEED)
    prompts = torch.randint(20, 1000, (12, 160), generator=draw).tolist()
    with Cluster(tmp_path) as cluster, precis.connect(cluster.address) as cache:
        model = cache.register_model(hf.model_spec(random_llama, name="llama"))
        for prompt in prompts:
            hf.store(cache, model, random_llama, prompt[:128], recipe="ada_keydiff", keep=1.0)
        for node in cluster.nodes:
            with precis.connect(node.address) as at_node:
                assert at_node.status().segments > 0
        for prompt in prompts:
            match = cache.lookup(model, prompt[:128])
            restored = hf.RaggedCache(random_llama, cache.get(match))
            own, _ = full_cache(random_llama, prompt[:128])
            rest, chunks = prompt[128:], [20, 1, 11]
            want = continuation(random_llama, own, rest, chunks)
            assert (continuation(random_llama, restored, rest, chunks) - want).abs().max() <= 1e-3
