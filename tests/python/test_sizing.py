"""The formula of docs/guides/operations.md for the stored bytes of a token."""

from __future__ import annotations

from pathlib import Path

import pytest
from kv import put_all, random_layers, toy_spec

import precis

PAGE = Path(__file__).resolve().parents[2] / "docs/guides/operations.md"
FORMULA = "keep x layers x KV heads x (bytes of a row of K + bytes of a row of V + 12.25)"
ROWS = "`head_dim x bytes per element`, or `head_dim x bits / 8 + 2` of a coded row"


@pytest.mark.parametrize("keep", [1.0, 0.25])
@pytest.mark.parametrize(
    ("encoding", "rows"),
    [
        ("raw", 2 * 64 * 4),
        ("int8", 2 * (64 + 2)),
        ("int4", 2 * (32 + 2)),
        ("k8v4", 64 + 2 + 32 + 2),
        ("k6v4", 48 + 2 + 32 + 2),
    ],
)
def test_a_stored_token_takes_what_the_page_says(
    tmp_path: Path, keep: float, encoding: str, rows: int
) -> None:
    page = " ".join(PAGE.read_text().split())
    assert FORMULA in page and ROWS in page
    spec = toy_spec("sized", num_layers=2, num_kv_heads=2, head_dim=64)
    tokens = list(range(4096))
    with precis.open(tmp_path / "cache") as cache:
        model = cache.register_model(spec)
        layers = random_layers(spec, len(tokens))
        recipe = f"global_kvdiff(min_entries=128, encoding={encoding})"
        segment = put_all(cache, model, tokens, layers, keep=keep, recipe=recipe)
    assert segment.encoding == encoding
    stored = segment.bytes / len(tokens)
    said = keep * spec.num_layers * spec.num_kv_heads * (rows + 12.25)
    assert said <= stored <= 1.02 * said
