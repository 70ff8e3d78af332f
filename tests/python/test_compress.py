"""precis.compress: a budget is a cut, and kept entries match their positions."""

from __future__ import annotations

import json

import numpy as np
import pytest
from kv import random_layers, toy_probe, toy_profile, toy_projections, toy_spec

import precis

RECIPES = ["ada_keydiff", "keydiff", "knorm", "streaming_llm", "lagkv(lag=16)"]
RECIPES += ["ada_keydiff(encoding=int8)", "global_keydiff(encoding=int4)"]


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


@pytest.mark.parametrize(
    ("encoding", "bounds", "rows"),
    [
        ("int8", (0.03, 0.03), 2 * (2 + 16)),
        ("int4", (1.5, 1.5), 2 * (2 + 8)),
        ("k8v4", (0.03, 1.5), 2 + 16 + 2 + 8),
        ("k6v4", (0.12, 1.5), 2 + 12 + 2 + 8),
    ],
)
def test_coded_rows_take_fewer_bytes_and_come_back_within_half_a_step(encoding, bounds, rows):
    spec = toy_spec()
    layers = random_layers(spec, 120)
    raw = precis.compress(spec, layers, recipe="keydiff", keep=0.5)
    coded = precis.compress(spec, layers, recipe=f"keydiff(encoding={encoding})", keep=0.5)
    assert np.array_equal(coded.plan, raw.plan)
    saved = int(raw.plan.sum()) * (2 * raw.keys[0][0].itemsize * spec.head_dim - rows)
    assert abs(raw.bytes - coded.bytes - saved) < 128 * raw.plan.size  # padding
    for layer in range(spec.num_layers):
        for head in range(spec.num_kv_heads):
            assert np.array_equal(coded.positions[layer][head], raw.positions[layer][head])
            for name, bound in zip(("keys", "values"), bounds, strict=True):
                kept, pushed = getattr(coded, name)[layer][head], getattr(raw, name)[layer][head]
                assert kept.dtype == pushed.dtype
                assert 0 < np.abs(kept - pushed).max() < bound


def test_observation_queries_decide_where_the_recipe_asks_for_them():
    spec = toy_spec()
    layers = random_layers(spec, 80)
    queries = np.zeros((4, 32, 16), np.float32)
    with pytest.raises(precis.InvalidArgument, match="queries"):
        precis.compress(spec, layers, recipe="snapkv", keep=0.6)
    target = 20  # every query points along one key
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
    with pytest.raises(precis.InvalidArgument, match=r"layer 0 has unknown fields \['sores'\]"):
        precis.compress(spec, [{"keys": 1, "values": 1, "sores": 1}])
    with pytest.raises(
        precis.InvalidArgument, match=r"layer 0 scores: shape \[20\], must be \[2, 20\]"
    ):
        keys, values = random_layers(spec, 20)[0]
        layer = {"keys": keys, "values": values, "scores": np.zeros(20)}
        precis.compress(spec, [layer] * 3, recipe="external")
    with pytest.raises(precis.InvalidArgument, match="layer 0 queries: not pushed, but lse is"):
        layer = {"keys": keys, "values": values, "lse": np.zeros((4, 20), np.float32)}
        precis.compress(spec, [layer] * 3, recipe="knorm")
    with pytest.raises(precis.InvalidArgument, match="o_proj: has 2 layers, must have 3"):
        precis.compress(spec, layers, o_proj=[np.eye(3)] * 2)


def with_queries(spec: precis.ModelSpec, num_tokens: int) -> list[dict]:
    draw = np.random.default_rng(7)
    shape = (spec.num_q_heads, 32, spec.head_dim)
    return [
        {"keys": keys, "values": values, "queries": draw.standard_normal(shape, np.float32)}
        for keys, values in random_layers(spec, num_tokens)
    ]


def test_output_projections_decide_the_second_stage():
    spec = toy_spec()
    layers, o_proj = with_queries(spec, 120), toy_projections(spec)
    with pytest.raises(precis.InvalidArgument, match=r"layer 0 .*o_proj"):
        precis.compress(spec, layers, recipe="criticalkv", keep=0.5)
    kept = precis.compress(spec, layers, recipe="criticalkv", keep=0.5, o_proj=o_proj)
    # The second stage never picks a token whose values add nothing.
    dull = [{**layer, "values": layer["values"].copy()} for layer in layers]
    for layer in dull:
        layer["values"][:, 60:80] = 0
    other = precis.compress(spec, dull, recipe="criticalkv", keep=0.5, o_proj=o_proj)
    assert (kept.plan == other.plan).all()

    def of_dull(result: precis.Kept) -> int:
        return sum(int(((p >= 60) & (p < 80)).sum()) for heads in result.positions for p in heads)

    assert of_dull(other) < of_dull(kept)
    gram = precis.compress(
        spec, layers, recipe="criticalkv(value_norm=l2_gram)", keep=0.5, o_proj=o_proj
    )
    assert (gram.plan == kept.plan).all()
    wrong = [weights[:, :8] for weights in o_proj]
    with pytest.raises(precis.InvalidArgument, match=r"o_proj: is \[4, 8, 24\]"):
        precis.compress(spec, layers, recipe="criticalkv", keep=0.5, o_proj=wrong)


def test_statistics_of_queries_to_come_decide_expected_attention():
    spec = toy_spec()
    layers = random_layers(spec, 90)
    with pytest.raises(precis.InvalidArgument, match="query_mean"):
        precis.compress(spec, layers, recipe="expected_attention", keep=0.2)
    expected = []
    for keys, values in layers:  # every future query is nearly the key of token 50
        keys[:, 50] *= 4
        mean = np.repeat(keys[:, 50], 2, axis=0)
        covariance = np.tile(1e-3 * np.eye(16, dtype=np.float32), (4, 1, 1))
        expected.append(
            {"keys": keys, "values": values, "query_mean": mean, "query_covariance": covariance}
        )
    kept = precis.compress(spec, expected, recipe="expected_attention", keep=0.2)
    for heads in kept.positions:
        for positions in heads:
            assert positions[4] == 50  # the first after the sinks
    expected[1]["query_mean"] = np.zeros((4, 15), np.float32)
    with pytest.raises(precis.InvalidArgument, match="layer 1 query_mean"):
        precis.compress(spec, expected, recipe="expected_attention", keep=0.2)


def test_a_loss_keeps_the_smallest_share_that_was_measured_to_cost_no_more():
    spec = toy_spec()
    layers = random_layers(spec, 200)
    how = {"recipe": "global_kvprobe(encoding=int8)"}
    measured = {
        "losses_recipe": precis.canonical_recipe("global_kvprobe(encoding=int8)"),
        # tokens, share of the entries, loss, its error
        "losses": [
            *(100, 0.3, 0.5, 0.1),
            *(100, 0.9, 0.01, 0.005),
            *(300, 0.1, 0.02, 0.01),  # by chance: more entries lose more
            *(300, 0.2, 0.3, 0.05),
            *(300, 0.5, 0.05, 0.01),
            *(300, 0.8, 0.02, 0.004),
        ],
    }
    profile = json.dumps(toy_probe(spec) | measured)

    def kept(loss: float) -> float:
        found = precis.compress(spec, layers, keep=precis.loss(loss), profile=profile, **how)
        return round(float(found.plan.sum()) / (200 * 6), 2)

    assert kept(0.02) == 1  # no measured budget costs so little
    assert kept(0.03) == 0.8
    assert kept(0.055) == 0.8  # the error counts
    assert kept(0.062) == 0.5
    assert kept(0.1) == 0.5
    assert kept(10) == 0.1
    for wrong, message in (
        ({"profile": json.dumps(toy_probe(spec))}, "has none: .*'precis profile measure'"),
        ({"recipe": "global_kvprobe"}, "name that recipe, or measure the profile with yours"),
        ({"recipe": "global_kvdiff", "profile": None}, "needs a recipe with a profile"),
    ):
        with pytest.raises(precis.InvalidArgument, match=message):
            precis.compress(spec, layers, keep="loss 0.1", **({"profile": profile} | how | wrong))
    for loss in (0, -1, 101, float("nan")):
        with pytest.raises(precis.InvalidArgument, match="a loss must be in"):
            precis.loss(loss)


def test_a_profile_gives_each_head_its_budget_and_belongs_to_one_model_and_scorer():
    spec = toy_spec()
    layers = random_layers(spec, 400)
    profile = toy_profile(spec)

    def compress(**changes) -> precis.Kept:
        text = json.dumps(profile | changes)
        return precis.compress(spec, layers, recipe="lukv(keydiff)", keep=0.5, profile=text)

    assert compress().plan.tolist() == [[320, 240], [200, 200], [160, 80]]
    with pytest.raises(precis.InvalidArgument, match=r"from a profile, .* precis profile build"):
        precis.compress(spec, layers, recipe="lukv(keydiff)", keep=0.5)
    for changes, message in (
        ({"model": "00" * 32}, "built for model"),
        ({"scorer": precis.canonical_recipe("knorm")}, "built for scorer"),
        ({"table": [0.5] * 7}, "table must be an array of 594 numbers"),
        ({"table": [0.5] * 593 + [0.1]}, "prunes less of layer 2, head 1"),
        ({"kind": "lines"}, "kind must be curves, weights or probe"),
        ({"num_layers": -1}, "num_layers must be a whole number"),
    ):
        with pytest.raises(precis.InvalidArgument, match=message):
            compress(**changes)
    with pytest.raises(precis.VersionMismatch, match="profile version is 2"):
        compress(version=2)


def test_a_model_that_cannot_be_is_refused():
    with pytest.raises(precis.InvalidArgument, match="dtype"):
        precis.compress(toy_spec(dtype="f8"), [])
    with pytest.raises(precis.InvalidArgument, match="num_q_heads"):
        precis.compress(toy_spec(num_q_heads=3), [])


@pytest.mark.parametrize("recipe", ["lagkv", "localkv", "l2_recursive"])
def test_the_incremental_form_decides_a_partition_once_and_for_all(recipe):
    spec = toy_spec()
    layers = random_layers(spec, 300)
    text = f"{recipe}(lag=16, sinks=4, partition_keep=0.3)"
    before: dict[tuple[int, int], set[int]] = {}
    end = 0
    for tokens in (36, 37, 60, 131, 132, 300):
        cut = [(keys[:, :tokens], values[:, :tokens]) for keys, values in layers]
        kept = precis.compress(spec, cut, recipe=text, keep=1.0)
        decided = 4 + 16 * ((tokens - 4) // 16 - 1)
        for place, earlier in before.items():
            now = set(kept.positions[place[0]][place[1]].tolist())
            assert {p for p in now if p < end} == earlier
        for layer in range(3):
            for head in range(2):
                positions = kept.positions[layer][head].tolist()
                before[layer, head] = {p for p in positions if p < decided}
                assert len(positions) == tokens - (decided - 4) // 16 * 12
        end = decided
