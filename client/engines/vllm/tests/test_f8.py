"""Engines with a KV cache in fp8: its rows are stored and restored as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from conftest import Engine, Reader

import precis


@pytest.fixture(scope="module")
def plain(make_engine: Callable[..., Engine]) -> Iterator[Engine]:
    """vLLM without the connector."""
    engine = make_engine(None, kv_cache_dtype="fp8")
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def engine(make_engine: Callable[..., Engine], plain: Engine) -> Iterator[Engine]:
    """vLLM with the connector, which stores everything."""
    engine = make_engine({"store_keep": 1.0}, kv_cache_dtype="fp8_e4m3")
    yield engine
    engine.close()


def test_every_token_is_the_same_with_a_cache_in_f8(
    engine: Engine, plain: Engine, reader: Reader, cache: precis.Cache
) -> None:
    documents = [reader.document(seed, 512) for seed in range(6)]
    prompts = [prompt for document in documents for prompt in document.prompts()]
    expected = plain.ask(prompts)[0]
    engine.ask([document.tokens for document in documents], tokens=1)
    engine.clear_prefix_cache()
    said, told = engine.ask(prompts, {"keep": 1.0})
    whole = np.repeat([len(document.tokens) for document in documents], 4)
    assert [t["tokens"] for t in told] == whole.tolist()
    assert said == expected

    (model,) = [row for row in cache.models() if row.spec.dtype == "f8_e4m3"]
    stored = [segment for segment in cache.segments() if segment.model == model.fingerprint]
    elements = model.spec.num_layers * model.spec.num_kv_heads * model.spec.head_dim
    assert len(stored) >= len(documents)
    for segment in stored:
        rows = 2 * (segment.end - segment.begin) * elements  # K and V, a byte each
        assert segment.encoding == "raw" and segment.original_bytes == rows
        assert rows < segment.bytes < 1.2 * rows

    # A smaller budget reads fewer entries of the same rows.
    engine.clear_prefix_cache()
    _, told = engine.ask(prompts, {"keep": 0.3})
    assert all(t["entries_share"] < 0.35 for t in told)
