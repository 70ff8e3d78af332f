"""precis.profile: the oracle against the definition, and a whole profile of a tiny model."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from kv import random_layers, toy_spec

import precis
from precis import hf
from precis.eval.cuts import Recipe
from precis.profile import build, shipped
from precis.profile.__main__ import main
from precis.profile.build import protected_tokens, scorer_of
from precis.profile.oracle import Oracle, largest_shares, value_norms
from precis.profile.probe import (
    KVDIFF_POWER,
    ProbeBuilder,
    fast_reading,
    features,
    repeated_attention,
    unrotated,
)


@pytest.fixture(scope="module")
def reading(tiny_llama):
    from precis.eval import models
    from precis.eval.subject import Judge, Reading

    return Reading(Judge(models.load(str(tiny_llama))), [5 + 7 * i % 30 for i in range(60)])


def test_the_oracle_is_the_largest_share_of_attention_times_the_value_s_norm(reading):
    oracle = Oracle(reading)
    oracle.add_repetition()
    (chunk,), _ = reading.repetition()
    projections = [torch.from_numpy(p).double() for p in reading.judge.projections]
    for layer, (keys, values, _) in enumerate(reading.layers):
        norms = torch.stack(
            [(values[h // 2].double() @ w).norm(dim=-1) for h, w in enumerate(projections[layer])]
        )
        norms /= norms.sum()
        assert torch.allclose(
            value_norms(values, projections[layer].float()).double(), norms, rtol=1e-4
        )
        want = torch.zeros(2, 60, dtype=torch.float64)
        for h in range(4):
            scores = chunk.queries[layer][h].double() @ keys[h // 2].double().T * 16**-0.5
            shares = (scores - chunk.lse[layer][h][:, None].double()).exp()
            want[h // 2] = torch.maximum(want[h // 2], shares.amax(0) * norms[h])
        assert torch.allclose(oracle.worth[layer].double(), want, rtol=1e-3, atol=1e-9)


def test_answers_count_step_by_step_and_leave_the_cache_as_it_was(reading):
    oracle = Oracle(reading)
    oracle.add_answer([20, 9, 14], tokens=4)
    assert oracle.worth.any() and reading.cache.get_seq_length() == 60
    longer = Oracle(reading)
    longer.add_answer([20, 9, 14], tokens=8)
    assert torch.all(longer.worth >= oracle.worth) and (longer.worth > oracle.worth).any()


@pytest.mark.parametrize(
    "recipe",
    ["lukv(keydiff)", "lukv(snapkv)", "lukv(expected_attention)", "headkv", "criticalkv_headkv"],
)
def test_a_profile_is_built_and_used_and_refused_elsewhere(
    recipe, tiny_llama, text_file, tmp_path, capsys
):
    out = tmp_path / "mine.json"
    arguments = ["build", "--model", str(tiny_llama), "--text", str(text_file), "--out", str(out)]
    arguments += ["--recipe", recipe, "--contexts", "2", "--tokens", "150"]
    assert main(arguments) == 0
    assert not (tmp_path / "mine.json.parts").exists()
    profile = json.loads(out.read_text())
    rows = 1 if "headkv" in recipe else 99
    assert len(profile["table"]) == rows * 3 * 2 and profile["name"] == "mine"
    # The profile works with the recipe and the model for which it was built.
    from precis.eval import models
    from precis.eval.subject import Judge, Reading

    judge = Judge(models.load(str(tiny_llama)))
    reading = Reading(judge, [5 + 7 * i % 30 for i in range(150)])
    using = f"{recipe.rstrip(')')}{',' if recipe.endswith(')') else '('}profile=mine)"
    layers, _ = reading.inputs(hf.Needs.of(precis.canonical_recipe(using)))
    options = {"profile": out.read_text(), "o_proj": judge.projections}
    kept = precis.compress(judge.spec, layers, using, 0.4, **options)
    assert kept.plan.sum() == 6 * 60 and len(set(kept.plan.ravel().tolist())) > 1
    with pytest.raises(precis.InvalidArgument, match=r"built for (scorer|a table of weights)"):
        precis.compress(judge.spec, layers, "lukv(knorm, profile=mine)", 0.4, **options)


def test_budgets_of_own_scores_are_those_of_the_heads_competition(tiny_llama, text_file, tmp_path):
    out = tmp_path / "own.json"
    arguments = ["build", "--model", str(tiny_llama), "--text", str(text_file), "--out", str(out)]
    arguments += ["--recipe", "lukv(keydiff)", "--worth", "scores"]
    arguments += ["--contexts", "1", "--tokens", "100"]
    assert main(arguments) == 0
    from precis.eval import models, texts
    from precis.eval.subject import Judge, Reading
    from precis.profile.build import Settings, cut_contexts

    judge = Judge(models.load(str(tiny_llama)))
    texts = tuple(texts.own_texts([text_file]))
    recipe = Recipe.parse("lukv(keydiff)")
    settings = Settings("own", recipe, contexts=1, tokens=100, texts=texts)
    loaded = judge.loaded
    (tokens,) = cut_contexts(settings, loaded.encode, loaded.dialogue.begin)
    layers, _ = Reading(judge, tokens).inputs(hf.Needs())
    flat = "keydiff(heads=flat, layers=global_flat, sinks=4, recent=1)"
    want = precis.compress(judge.spec, layers, flat, 0.4).plan
    learnt = "lukv(keydiff, profile=own)"
    plan = precis.compress(judge.spec, layers, learnt, 0.4, profile=out.read_text()).plan
    assert np.abs(plan.astype(int) - want).max() <= 2 and want.max() > want.min() + 10


def test_a_model_must_have_positions_for_a_context_and_its_repetition(
    tiny_llama, text_file, tmp_path, capsys
):
    arguments = ["build", "--model", str(tiny_llama), "--text", str(text_file)]
    arguments += ["--out", str(tmp_path / "p.json"), "--tokens", "1500"]
    config = json.loads((tiny_llama / "config.json").read_text())
    assert main(arguments) == 1
    has = config["max_position_embeddings"]
    assert f"takes 3000 positions, and has {has}: give fewer --tokens" in capsys.readouterr().err


def test_texts_shorter_than_a_context_are_joined():
    from precis.eval.texts import Text

    some = Text("a", "u v w"), Text("b", " ".join("b" * 12)), Text("c", "x y")

    def contexts(tokens, texts=some):
        settings = build.Settings("p", Recipe.parse("kvprobe"), 4, tokens, texts)
        return build.cut_contexts(settings, str.split, "")

    assert contexts(5) == [["b"] * 5, ["u", "v", "w", "x", "y"]] * 2
    assert {tuple(tokens) for tokens in contexts(6)} <= {
        tuple([*"bbbbbbbbbbbb", *"uvwxy"][i : i + 6]) for i in range(12)
    }
    with pytest.raises(ValueError, match=r"takes 6 tokens, .* \(a, c\) has 5: give longer texts"):
        contexts(6, some[::2])


def test_budgets_are_the_mean_of_what_is_solved_for_each_question(tiny_llama, text_file, tmp_path):
    from precis.eval import models, texts

    loaded, recipe = models.load(str(tiny_llama)), Recipe.parse("lukv(keydiff)")
    sources = tuple(texts.own_texts([text_file]))

    def built(name, **options):
        settings = build.Settings("own", recipe, 2, 100, sources, **options)
        return build.BudgetBuilder(loaded, settings, tmp_path / name).build(lambda *_: None)

    one, other = (built(f"{word}", questions=(f"What about {word}?",)) for word in ("work", "code"))
    both = built("both", questions=("What about work?", "What about code?"))
    assert one["table"] != other["table"]
    mean = (np.array(one["table"]) + np.array(other["table"])) / 2
    assert both["table"] == pytest.approx(mean, abs=2e-6)
    assert both["worth"] == "oracle"
    assert both["questions"] == "What about work?\nWhat about code?"
    repeated = built("repeated", worth="repetition")
    assert repeated["worth"] == "repetition" and "questions" not in repeated
    assert repeated["table"] != both["table"]


def test_the_attention_of_a_repetition_is_its_largest_share(reading):
    (chunk,), _ = reading.repetition()
    worth = repeated_attention(reading)
    for layer, (keys, _, _) in enumerate(reading.layers):
        shares = largest_shares(keys, chunk.queries[layer], chunk.lse[layer])
        want = shares.view(2, 2, 60).mean(dim=1)  # two heads in each group
        assert torch.allclose(worth[layer], want, rtol=1e-3, atol=1e-6)


def test_a_probe_learns_from_a_fast_reading_what_it_would_from_an_exact_one(
    tiny_llama, text_file, tmp_path, monkeypatch
):
    from precis.eval import models, texts
    from precis.eval.subject import Judge, Reading

    loaded = models.load(str(tiny_llama))
    settings = build.Settings(
        "p", Recipe.parse("kvprobe"), 1, 120, tuple(texts.own_texts([text_file]))
    )
    tokens = [5 + 7 * i % 30 for i in range(120)]
    for has_tiles in (False, True):
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda has=has_tiles: has)
        with fast_reading(loaded.hf_model):
            assert torch.is_autocast_enabled("cpu") == has_tiles
    fast = ProbeBuilder(loaded, settings, tmp_path).read(tokens, repeats=True)
    exact = Reading(Judge(loaded), tokens)
    worth = [repeated_attention(each).clamp_min(1e-6).log().flatten() for each in (fast, exact)]
    assert torch.corrcoef(torch.stack(worth))[0, 1] > 0.99


def test_keys_before_rope_are_those_of_the_model(reading):
    spec = reading.judge.spec
    (attention,) = [reading.judge.hf_model.model.layers[1].self_attn]
    seen = []
    hook = attention.k_proj.register_forward_hook(lambda _m, _i, out: seen.append(out[0]))
    reading.judge.hf_model(torch.tensor([reading.tokens]), use_cache=False)
    hook.remove()
    want = seen[0].view(60, spec.num_kv_heads, spec.head_dim).transpose(0, 1).double()
    assert torch.allclose(unrotated(spec, reading)[1], want, rtol=1e-3, atol=1e-4)


def test_a_probe_is_built_and_scores_as_it_says(tiny_llama, text_file, tmp_path, capsys):
    out = tmp_path / "probe.json"
    arguments = ["build", "--model", str(tiny_llama), "--text", str(text_file), "--out", str(out)]
    assert main([*arguments, "--contexts", "6", "--tokens", "150"]) == 0
    assert "in texts that were not fitted" in capsys.readouterr().out
    profile = json.loads(out.read_text())
    assert profile["kind"] == "probe" and profile["kvdiff_power"] == KVDIFF_POWER
    assert profile["held_out_contexts"] == 1
    from precis.eval import models
    from precis.eval.subject import Judge, Reading

    judge = Judge(models.load(str(tiny_llama)))
    spec = judge.spec
    reading = Reading(judge, [5 + 7 * i % 30 for i in range(800)])
    layers, _ = reading.inputs(hf.Needs())
    kept = precis.compress(
        spec, layers, "global_kvprobe(sinks=0, recent=0)", 0.5, profile=out.read_text()
    )
    table = torch.tensor(profile["table"], dtype=torch.float64)
    table = table.view(-1, spec.num_layers, spec.num_kv_heads).permute(1, 2, 0)
    for layer, keys in enumerate(unrotated(spec, reading)):
        anchor, coefficients = table[layer].tensor_split((spec.head_dim,), dim=-1)
        x = features(keys, reading.layers[layer][1].double(), anchor)
        want = (x @ coefficients[..., None])[..., 0].exp().numpy()
        for head, positions in enumerate(kept.positions[layer]):
            assert np.allclose(kept.scores[layer][head], want[head][positions], rtol=1e-3)
    with pytest.raises(precis.InvalidArgument, match="a table of probe, not for curves"):
        precis.compress(spec, layers, "lukv(keydiff)", 0.4, profile=out.read_text())


def test_a_probe_is_the_regression_of_its_contexts(tiny_llama, text_file, tmp_path):
    from precis.eval import models, texts

    settings = build.Settings(
        "p", Recipe.parse("kvprobe"), 4, 120, tuple(texts.own_texts([text_file]))
    )
    builder = ProbeBuilder(models.load(str(tiny_llama)), settings, tmp_path)
    profile = builder.build(lambda *_: None)
    spec = builder._judge.spec
    table = torch.tensor(profile["table"], dtype=torch.float64)
    table = table.view(-1, spec.num_layers, spec.num_kv_heads).permute(1, 2, 0)
    mean_key, coefficients = table.tensor_split((spec.head_dim,), dim=-1)

    def rows(contexts):
        for tokens in contexts:
            reading = builder.read(tokens, repeats=True)
            worth = repeated_attention(reading).double().clamp_min(1e-6).log()
            values = [row.double() for _, row, _ in reading.layers]
            yield unrotated(spec, reading), values, worth

    def one(layer, head, keys, values):
        at = keys[layer][[head]], values[layer][[head]], mean_key[layer, [head]]
        return features(*at)[0, 4:]

    fitted, held_out = list(rows(builder._contexts)), list(rows(builder._held_out))
    found = []
    for layer in range(spec.num_layers):
        for head in range(spec.num_kv_heads):
            unit = torch.cat([torch.nn.functional.normalize(k[layer][head]) for k, _, _ in fitted])
            assert torch.allclose(unit.mean(0), mean_key[layer, head], rtol=1e-4, atol=1e-6)
            x = torch.cat([one(layer, head, k, v) for k, v, _ in fitted]).numpy()
            y = torch.cat([w[layer, head, 4:] for _, _, w in fitted]).numpy()
            plain = np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ y)
            norms = torch.cat([v[layer][head].norm(dim=-1) for _, v, _ in fitted])
            want = plain.copy()
            want[[-5, -3]] += KVDIFF_POWER
            want[-1] -= KVDIFF_POWER * float(norms.mean().log())
            assert np.allclose(coefficients[layer, head], want, rtol=1e-3, atol=1e-4)
            for k, v, w in held_out:
                predicted = one(layer, head, k, v).numpy() @ plain
                found.append(np.corrcoef(predicted, w[layer, head, 4:])[0, 1])
    assert profile["held_out_correlation"] == pytest.approx(np.mean(found), abs=2e-4)


@pytest.mark.parametrize(
    ("recipe", "builder", "step"),
    [("headkv", build.BudgetBuilder, "_table"), ("kvprobe", ProbeBuilder, "_products")],
)
def test_a_build_that_was_interrupted_goes_on(
    recipe, builder, step, tiny_llama, text_file, tmp_path, monkeypatch
):
    done, again = [], []
    compute = getattr(builder, step)

    def dies_at_the_third(self, tokens, *more):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(tokens)
        return compute(self, tokens, *more)

    def counts(self, tokens, *more):
        again.append(tokens)
        return compute(self, tokens, *more)

    arguments = ["build", "--model", str(tiny_llama), "--text", str(text_file), "--contexts", "3"]
    arguments += ["--tokens", "100", "--recipe", recipe, "--out", str(tmp_path / "p.json")]
    monkeypatch.setattr(builder, step, dies_at_the_third)
    assert main(arguments) == 130
    assert not (tmp_path / "p.json").exists()
    monkeypatch.setattr(builder, step, counts)
    assert main(arguments) == 0
    assert len(again) == 1 and again[0] not in done
    whole = json.loads((tmp_path / "p.json").read_text())
    assert main(arguments) == 0  # a build from the beginning gives the same
    assert json.loads((tmp_path / "p.json").read_text()) == whole and len(again) == 4


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--recipe", "keydiff"], "takes no profile"),
        (["--recipe", "nope"], "'nope' is unknown"),
        (["--contexts", "0"], "at least 1"),
        (["--tokens", "3"], "at least 64"),
        (["--out", "/nowhere/p.json"], "folder does not exist"),
        (
            ["--recipe", "headkv", "--questions", "q.txt", "--worth", "scores"],
            "asked for the oracle",
        ),
        (["--worth", "scores"], "kvprobe learns from repetitions"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(arguments, reason, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["build", "--out", str(tmp_path / "p.json"), *arguments])
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err


def test_what_cannot_be_read_is_told(tiny_llama, tmp_path, capsys):
    short = tmp_path / "short.txt"
    short.write_text("Too short.")
    arguments = ["build", "--model", str(tiny_llama), "--out", str(tmp_path / "p.json")]
    assert main([*arguments, "--text", str(short), "--tokens", "200"]) == 1
    told = "a context takes 200 tokens, what is fitted of the texts (short.txt) has"
    assert told in capsys.readouterr().err
    assert main([*arguments, "--recipe", "headkv", "--questions", "/nowhere/q.txt"]) == 1
    assert "/nowhere/q.txt" in capsys.readouterr().err


def test_a_profile_s_scorer_says_nothing_of_budgets():
    plain = scorer_of(Recipe.parse("keydiff(sinks=4, recent=1)"))
    assert scorer_of(Recipe.parse("lukv(keydiff, profile=x)")).canonical == plain.canonical
    assert plain.fields["heads"] == "uniform" and "profile" not in plain.fields
    by_partitions = "lagkv(partition_keep=0.5)"  # selectors do not change scores either
    assert scorer_of(Recipe.parse(by_partitions)).canonical == (
        scorer_of(Recipe.parse("lagkv")).canonical
    )
    assert scorer_of(Recipe.parse("global_kvprobe")).canonical == (
        precis.canonical_recipe("kvprobe")
    )


@pytest.mark.parametrize(
    ("recipe", "tokens", "recent"),
    [
        ("keydiff(sinks=4, recent=3)", 160, 3),
        ("keydiff(sinks=4, recent=64)", 100, 64),
        ("keydiff(sinks=4, recent=64)", 20, 16),
        ("keydiff(sinks=4, recent=64, recent_share=0.29)", 100, 29),
        ("keydiff(sinks=4, recent=64, recent_share=0.29)", 3, 0),
        ("keydiff(sinks=4, recent=64, recent_share=0.001)", 160, 1),
        ("keydiff(sinks=4, recent=0, recent_share=0.5)", 160, 0),
        ("lagkv(sinks=4, lag=16)", 160, 16 + 12),
        ("lagkv(sinks=4, lag=16)", 30, 26),
    ],
)
def test_protected_tokens_are_those_that_a_recipe_keeps_first(recipe, tokens, recent):
    recipe = Recipe.parse(recipe)
    sinks = min(4, tokens)
    assert protected_tokens(recipe.fields, tokens) == sinks + recent
    spec = toy_spec()
    kept = precis.compress(spec, random_layers(spec, tokens), recipe.canonical, 1.0)
    first = [*range(sinks), *range(tokens - 1, tokens - 1 - recent, -1)]
    for heads in kept.positions:
        for positions in heads:
            assert positions[: sinks + recent].tolist() == first


def test_only_scorers_of_attention_observe_queries():
    observing = {"cake", "defensivekv", "h2o_window", "lava", "snapkv", "tova", "vatp"}
    others = {"global_kvdiff", "expected_attention", "keydiff", "kvprobe", "kvzip", "random"}
    for name in observing | others:
        needs = hf.Needs.of(precis.canonical_recipe(name))
        assert (needs.queries != 0) == (name in observing)
        assert needs.repetition == (name == "kvzip")
    assert hf.Needs.of(precis.canonical_recipe("observed_mean")).queries is None  # all of them


def test_shipped_profiles_are_found_by_name_and_used(tmp_path, monkeypatch):
    (tmp_path / "some.json").write_text('{"name": "some"}')
    monkeypatch.setattr(shipped, "_FOLDER", tmp_path)
    assert shipped.names() == ["some"] and "some" in shipped.text("some")
    with pytest.raises(FileNotFoundError, match="no profile 'other' is shipped; these are: some"):
        shipped.text("other")


@pytest.mark.parametrize("name", shipped.names())
def test_a_shipped_profile_is_whole(name):
    profile = json.loads(shipped.text(name))
    heads = profile["num_layers"] * profile["num_kv_heads"]
    assert profile["name"] == name
    if profile["kind"] == "probe":
        assert np.isfinite(profile["table"]).all() and (len(profile["table"]) // heads - 6) % 3 == 0
        return
    rows = 1 if profile["kind"] == "weights" else 99
    table = np.array(profile["table"]).reshape(rows, heads)
    assert np.all((table >= 0) & (table <= 1))
    if rows > 1:
        pruned = table.mean(axis=1)
        reachable = np.arange(1, 100) / 100 <= 1 - (profile["sinks"] + profile["recent"]) / 1024
        assert pruned[reachable] == pytest.approx(np.arange(1, 100)[reachable] / 100, abs=1e-3)
