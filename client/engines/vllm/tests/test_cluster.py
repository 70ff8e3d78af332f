"""An engine that stores and reads at the nodes of a cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Engine, Reader

import precis

sys.path.insert(0, str(Path(__file__).parents[4] / "tests" / "python"))

from cluster import Cluster


@pytest.mark.slow
def test_an_engine_stores_and_reads_at_two_nodes_and_goes_on_when_one_dies(
    make_engine: Callable[..., Engine], plain: Engine, reader: Reader, tmp_path: Path
) -> None:
    documents = [reader.document(seed, 512) for seed in range(12)]
    prompts = [document.prompts()[0] for document in documents]
    want = plain.ask(prompts)[0]
    with Cluster(tmp_path) as cluster:
        engine = make_engine({"address": cluster.address, "store_keep": 1.0})
        try:
            engine.ask([document.tokens for document in documents], tokens=1)
            engine.clear_prefix_cache()
            for node in cluster.nodes:
                with precis.connect(node.address) as cache:
                    assert cache.status().segments > 0
            said, told = engine.ask(prompts, {"keep": 1.0})
            assert [t["tokens"] for t in told] == [len(d.tokens) for d in documents]
            assert said == want

            cluster.nodes[1].kill()
            cluster.wait(0, lambda state: state["nodes"][0]["shards"] == 16384)
            for _ in range(2):  # the first requests may find their connection lost
                engine.clear_prefix_cache()
                said, told = engine.ask(prompts, {"keep": 1.0})
                assert said == want
            assert any("tokens" in t for t in told)  # those that the other node has
        finally:
            engine.close()
