"""The formula of docs/guides/operations.md for the stored bytes of a token."""

from __future__ import annotations

from pathlib import Path

import pytest
from kv import put_all, random_layers, toy_spec

import precis

PAGE = Path(__file__).resolve().parents[2] / "docs/guides/operations.md"
FORMULA = "keep x layers x KV heads x (2 x head_dim x bytes per element + 12.25)"


@pytest.mark.parametrize("keep", [1.0, 0.25])
def test_a_stored_token_takes_what_the_page_says(tmp_path: Path, keep: float) -> None:
    assert FORMULA in PAGE.read_text()
    spec = toy_spec("sized", num_layers=2, num_kv_heads=2, head_dim=64)
    tokens = list(range(4096))
    with precis.open(tmp_path / "cache") as cache:
        model = cache.register_model(spec)
        layers = random_layers(spec, len(tokens))
        stored = put_all(cache, model, tokens, layers, keep=keep).bytes / len(tokens)
    said = keep * spec.num_layers * spec.num_kv_heads * (2 * spec.head_dim * 4 + 12.25)
    assert said <= stored <= 1.02 * said
