"""precis.prune_curves and precis.head_weights equal the papers' formulas, computed in NumPy."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from conftest import SEED

import precis


@pytest.fixture
def paper_tables(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "reference"))
    import paper_tables

    return paper_tables


def random_worth(draw: np.random.Generator, lengths: list[int]) -> list[np.ndarray]:
    """Mostly descending numbers with ties; they are whole, so that no sum is rounded."""
    return [
        (draw.integers(0, 50, length) + draw.integers(0, 4) * np.arange(length)[::-1] // 8).astype(
            np.float32
        )
        for length in lengths
    ]


@pytest.mark.parametrize(
    ("heads", "num_tokens", "protected"),
    [(1, 1, 0), (3, 7, 7), (4, 36, 36), (5, 99, 0), (2, 250, 0), (6, 300, 5), (9, 700, 36)],
)
def test_prune_curves_are_those_of_the_paper(paper_tables, heads, num_tokens, protected):
    draw = np.random.default_rng(SEED + num_tokens)
    worth = random_worth(draw, [num_tokens - protected] * heads)
    curves = precis.prune_curves(worth, num_tokens, protected)
    assert curves.dtype == np.float32
    assert curves.shape == (99, heads)
    expected = paper_tables.prune_curves(worth, num_tokens, protected)
    assert np.array_equal(curves, expected.astype(np.float32))


@pytest.mark.parametrize("share", [0.001, 0.05, 0.2, 0.5, 1])
def test_head_weights_count_the_best_entries(paper_tables, share):
    worth = random_worth(np.random.default_rng(SEED), [300, 1, 17, 299])
    weights = precis.head_weights(worth, share)
    assert weights.dtype == np.float32
    assert weights.shape == (4,)
    expected = paper_tables.head_weights(worth, share)
    assert np.array_equal(weights, expected.astype(np.float32))


def test_solved_curves_are_the_counts_that_compress_keeps(tmp_path):
    spec = precis.ModelSpec("solved", 2, 4, 2, 16, "f32")
    with precis.open(tmp_path) as cache:
        fingerprint = cache.register_model(spec).fingerprint
    draw = np.random.default_rng(SEED)
    worth = random_worth(draw, [395] * 4)
    curves = precis.prune_curves(worth, 400, 5)
    profile = {
        "version": 1,
        "name": "solved",
        "kind": "curves",
        "model": fingerprint,
        "scorer": precis.canonical_recipe("keydiff(sinks=4, recent=1)"),
        "sinks": 4,
        "recent": 1,
        "num_layers": 2,
        "num_kv_heads": 2,
        "num_tokens": 400,
        "text_digest": "",
        "table": curves.ravel().tolist(),
    }
    layers = [tuple(draw.standard_normal((2, 2, 400, 16), np.float32)) for _ in range(2)]
    for percent in (10, 25, 50, 90):
        kept = precis.compress(
            spec, layers, "lukv(keydiff)", percent / 100, profile=json.dumps(profile)
        )
        expected = 400 - np.round(400 * curves[99 - percent]).astype(int)
        assert kept.plan.ravel().tolist() == expected.tolist()


def test_worth_that_means_nothing_is_refused_by_name():
    good = [np.ones(8, np.float32)] * 2
    for worth, num_tokens, protected, message in (
        ([], 8, 0, "worth: there are no heads"),
        ([good[0], good[0][:7]], 8, 0, "head 1 has 7 entries, must have 8"),
        ([good[0], np.array([1, np.nan] * 4)], 8, 0, "worth: head 1, entry 1 is nan"),
        ([-good[0]], 8, 0, "worth: head 0, entry 0 is -1"),
        ([np.ones((2, 4))], 8, 0, r"head 0 has shape \[2, 4\]"),
        (["many"], 8, 0, r"head 0 has shape \[\]"),
        (good, 8, 9, "protected is 9"),
        (good, 8, -1, "protected is -1"),
        (good, 8.5, 0, "num_tokens: 8.5 is not a whole number"),
    ):
        with pytest.raises(precis.InvalidArgument, match=message):
            precis.prune_curves(worth, num_tokens, protected)
    for share in (0, -1, 1.5, float("nan")):
        with pytest.raises(precis.InvalidArgument, match="share is "):
            precis.head_weights(good, share)
    with pytest.raises(precis.InvalidArgument, match="head 1 has no entries"):
        precis.head_weights([good[0], good[0][:0]], 0.5)
