"""precis.compress: a budget is a cut, and what is kept says where it comes from."""

from __future__ import annotations

import numpy as np
import pytest
from kv import random_layers, toy_spec

import precis

RECIPES = ["ada_keydiff", "keydiff", "knorm", "streaming_llm", "lagkv(lag=16)"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_smaller_budget_is_the_larger_one_cut_short(recipe):
    spec = toy_spec()
    layers = random_layers(spec, 120)
    large = precis.compress(spec, layers, recipe=recipe, keep=0.6)
    small = precis.compress(spec, layers, recipe=recipe, keep=0.2)
    assert small.plan.sum() < large.plan.sum()
    for layer in range(spec.num_layers):
        for head in range(spec.num_kv_heads):
            count = len(small.positions[layer][head])
            for name in ("positions", "seats", "scores", "keys", "values"):
                whole = getattr(large, name)[layer][head]
                assert np.array_equal(whole[:count], getattr(small, name)[layer][head])


@pytest.mark.parametrize("recipe", RECIPES)
def test_seats_are_a_permutation_and_everything_kept_is_everything(recipe):
    spec = toy_spec()
    kept = precis.compress(spec, random_layers(spec, 50), recipe=recipe, keep=1.0)
    seats = np.concatenate([seats for layer in kept.seats for seats in layer])
    assert np.array_equal(np.sort(seats), np.arange(1, 50 * 6 + 1))
    for layer in kept.positions:
        for positions in layer:
            assert np.array_equal(np.sort(positions), np.arange(50))


def test_observation_queries_decide_where_the_recipe_asks_for_them():
    spec = toy_spec()
    layers = random_layers(spec, 80)
    queries = np.zeros((4, 32, 16), np.float32)
    with pytest.raises(precis.InvalidArgument, match="queries"):
        precis.compress(spec, layers, recipe="snapkv", keep=0.6)
    target = 20  # every query looks along one key
    pushed = []
    for keys, values in layers:
        for head in range(2):
            queries[2 * head : 2 * head + 2] = 30 * keys[head, target]
        pushed.append({"keys": keys, "values": values, "queries": queries.copy()})
    kept = precis.compress(spec, pushed, recipe="snapkv(kernel=1)", keep=0.6)
    for layer in range(3):
        for head in range(2):
            assert target in kept.positions[layer][head]
            assert kept.positions[layer][head][32] == target  # the first after the window


def test_external_scores_decide_where_the_recipe_takes_them():
    spec = toy_spec()
    scores = np.random.default_rng(3).permutation(2 * 40).reshape(2, 40).astype(np.float64)
    layers = [
        {"keys": keys, "values": values, "scores": scores}
        for keys, values in random_layers(spec, 40)
    ]
    kept = precis.compress(spec, layers, recipe="external", keep=0.25)
    for head in range(2):
        count = len(kept.positions[0][head])
        best = np.argsort(-scores[head], kind="stable")[:count]
        assert np.array_equal(kept.positions[0][head], best)


def test_budgets_come_as_a_share_entries_or_bytes():
    spec = toy_spec()
    layers = random_layers(spec, 64)
    assert precis.compress(spec, layers, keep=0.25).plan.sum() == 64 * 6 // 4
    assert precis.compress(spec, layers, keep=precis.entries(10)).plan.sum() == 60
    entry = 12 + 2 * 16 * 4  # position, seat, score, K row, V row
    assert precis.compress(spec, layers, keep=precis.bytes_(50 * entry)).plan.sum() == 50


@pytest.mark.parametrize(
    "keep", [0, -0.1, 1.01, float("nan"), True, "half", precis.Budget("ratio", 2)]
)
def test_budgets_outside_their_range_are_refused(keep):
    spec = toy_spec()
    with pytest.raises(precis.InvalidArgument, match="keep"):
        precis.compress(spec, random_layers(spec, 20), keep=keep)


def test_bad_layers_and_recipes_are_refused_by_name():
    spec = toy_spec()
    layers = random_layers(spec, 20)
    with pytest.raises(precis.InvalidArgument, match="2 given, the model has 3"):
        precis.compress(spec, layers[:2])
    with pytest.raises(precis.InvalidArgument, match="'nope' is unknown, choose ada_keydiff"):
        precis.compress(spec, layers, recipe="nope")
    layers[1][0][1, 7, 3] = np.nan
    with pytest.raises(precis.InvalidArgument, match="layer 1 keys: NaN at head 1, token 7"):
        precis.compress(spec, layers)
    with pytest.raises(precis.InvalidArgument, match=r"layer 0 has \['sores'\]"):
        precis.compress(spec, [{"keys": 1, "values": 1, "sores": 1}])
    with pytest.raises(
        precis.InvalidArgument, match=r"layer 0 scores: shape \[20\] is not \[2, 20\]"
    ):
        keys, values = random_layers(spec, 20)[0]
        layer = {"keys": keys, "values": values, "scores": np.zeros(20)}
        precis.compress(spec, [layer] * 3, recipe="external")
    with pytest.raises(precis.Unsupported, match="o_proj"):
        precis.compress(spec, layers, o_proj=np.eye(3))


def test_a_model_that_cannot_be_is_refused():
    with pytest.raises(precis.InvalidArgument, match="dtype"):
        precis.compress(toy_spec(dtype="f8"), [])
    with pytest.raises(precis.InvalidArgument, match="num_q_heads"):
        precis.compress(toy_spec(num_q_heads=3), [])
