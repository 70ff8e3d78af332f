"""precis.eval: its figures are correct; a whole evaluation runs on a tiny random model."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from conftest import SEED
from dense_reference import HandmadePrefix, HeadKept, LayerKept
from kv import random_layers, toy_spec
from tiny_models import prose

import precis
from precis import hf
from precis.eval.__main__ import default_recipes, main, split_recipes
from precis.eval.cuts import Compressed, Cut, Recipe
from precis.eval.page import markdown
from precis.eval.perturbation import Probe
from precis.eval.results import Results, Row
from precis.eval.table import sections, summary


def test_a_whole_evaluation_of_a_tiny_model(tiny_model, text_file, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    recipes = "ada_keydiff,snapkv(window=8, kernel=3),keydiff_kvpress"
    arguments = ["--model", str(tiny_model), "--text", str(text_file), "--recipes", recipes]
    arguments += ["--keep", "0.5,0.2", "--contexts", "2", "--tokens", "300", "--kvpress"]
    files = ["--json", str(out / "r.json"), "--html", str(out / "r.html")]
    files += ["--markdown", str(out / "r.md"), "--png", str(out / "png")]
    assert main([*arguments, *files]) == 0
    told = capsys.readouterr().out
    assert "3 recipes at 2 budgets, 2 contexts of 300 tokens from text.txt; seed 0" in told
    assert "full cache: " in told and "snapkv(window=8, kernel=3)" in told
    assert "kvpress was not run: kvpress does not compress layers of a sliding window" in told
    found = json.loads((out / "r.json").read_text())
    assert len(found["rows"]) == 6 and len(found["full"]["nll"]) == 8
    for row in found["rows"]:
        tokens = found["settings"]["documents"][0]["tokens"]
        entries = 6 * int(tokens * row["keep"])
        assert np.sum(row["plan"]) == entries
        assert row["bytes"] > entries * (2 * 16 * 4 + 12)
        assert len(row["nll"]) == 8 and len(row["perturbation"]) == 3
        assert np.shape(row["head_perturbation"]) == (3, 4)
    page = (out / "r.html").read_text()
    assert "<script" not in page and "http" not in re.sub(r"http://www.w3.org\S*", "", page)
    assert page.count("data:image/svg+xml;base64,") >= 3
    assert sorted(path.name for path in (out / "png").iterdir()) == [
        "accuracy.png", "nll.png", "perturbation.png", "plans.png",
    ]  # fmt: skip
    # The saved results are shown again, identical, without a run.
    again = ["--markdown", str(out / "again.md"), "--png", str(out / "png")]
    assert main(["--load", str(out / "r.json"), *again]) == 0
    assert (out / "again.md").read_text() == (out / "r.md").read_text()
    # The same seed makes the same figures.
    assert main([*arguments, "--json", str(out / "again.json")]) == 0
    again = json.loads((out / "again.json").read_text())
    assert [row["nll"] for row in again["rows"]] == [row["nll"] for row in found["rows"]]


def test_at_keep_1_nothing_changes(tiny_model, text_file, tmp_path):
    arguments = ["--model", str(tiny_model), "--text", str(text_file), "--recipes", "knorm"]
    arguments += ["--keep", "1,0.4", "--contexts", "1", "--tokens", "300"]
    assert main([*arguments, "--json", str(tmp_path / "r.json")]) == 0
    results = Results.load(tmp_path / "r.json")
    whole, less = results.rows
    assert whole.nll == pytest.approx(results.full.nll, abs=1e-4)
    assert max(whole.perturbation) < 1e-4
    # The budget holds all that the layer with a window sees.
    assert less.perturbation[0] < 1e-4 < min(less.perturbation[1:])


def test_a_question_that_is_known_is_compressed_with_its_context(tiny_model, text_file, tmp_path):
    arguments = ["--model", str(tiny_model), "--text", str(text_file), "--recipes", "snapkv"]
    arguments += ["--keep", "1,0.3", "--contexts", "2", "--tokens", "300", "--aware"]
    assert main([*arguments, "--json", str(tmp_path / "r.json")]) == 0
    results = Results.load(tmp_path / "r.json")
    whole, less = results.rows
    assert whole.nll == pytest.approx(results.full.nll, abs=1e-4) and len(whole.nll) == 8
    assert results.settings["aware"] and results.settings["questions_per_context"] == 4
    assert less.nll != pytest.approx(results.full.nll, abs=1e-3)
    assert "Each question ended the context when it was compressed." in results.notes


def test_kvpress_beside_us_answers_as_our_presets_of_the_same_set(
    tiny_llama, text_file, tmp_path, monkeypatch
):
    from precis.eval import presses, run

    wanted = {"KeyDiff": "keydiff_kvpress", "SnapKV": "snapkv_kvpress"}
    monkeypatch.setattr(
        run,
        "press_specs",
        lambda: [spec for spec in presses.press_specs() if spec.name in [*wanted, "PyramidKV"]],
    )
    out = tmp_path / "r.json"
    arguments = ["--model", str(tiny_llama), "--text", str(text_file), "--kvpress"]
    arguments += ["--keep", "0.5", "--contexts", "2", "--tokens", "300", "--json", str(out)]
    assert main([*arguments, "--recipes", ",".join(wanted.values())]) == 0
    results = Results.load(out)
    for press, preset in wanted.items():
        theirs, ours = results.row(press, 0.5, "kvpress"), results.row(preset, 0.5)
        assert theirs.nll == pytest.approx(ours.nll, abs=2e-3)
        assert abs(results.delta(ours)[0]) > 5e-3
    assert results.row("PyramidKV", 0.5, "kvpress").failed.startswith("RuntimeError: The size")


def test_coded_rows_are_judged_with_the_bytes_that_they_take(tiny_model, text_file, tmp_path):
    out = tmp_path / "rows.json"
    arguments = ["--model", str(tiny_model), "--text", str(text_file), "--json", str(out)]
    arguments += ["--recipes", "keydiff,keydiff(encoding=int4)"]
    arguments += ["--keep", "0.5", "--contexts", "1", "--tokens", "300"]
    assert main(arguments) == 0
    raw, coded = json.loads(out.read_text())["rows"]
    assert coded["plan"] == raw["plan"] and coded["nll"] != raw["nll"]
    assert np.abs(np.subtract(coded["nll"], raw["nll"])).max() < 0.5
    saved = 2 * np.sum(coded["plan"]) * (4 * 16 - (2 + 8))
    assert abs(coded["bytes"] - (raw["bytes"] - saved)) < 128 * np.size(coded["plan"])  # padding


def test_recipes_are_judged_at_equal_bytes(tiny_llama, text_file, tmp_path, capsys):
    from precis.profile.__main__ import main as profile

    of = ["--model", str(tiny_llama), "--text", str(text_file)]
    own, out = tmp_path / "own.json", tmp_path / "r.json"
    built = ["--out", str(own), "--recipe", "lukv(keydiff)", "--worth", "scores"]
    assert profile(["build", *of, *built, "--contexts", "1", "--tokens", "300"]) == 0
    learnt = "lukv(keydiff, profile=own)"
    arguments = [*of, "--bytes", "--task", "keys", "--keep", "0.4,0.2", "--contexts", "1"]
    arguments += ["--tokens", "900", "--profile", str(own), "--json", str(out)]
    assert main([*arguments, "--recipes", f"keydiff,keydiff(encoding=int8),{learnt}"]) == 0
    told = capsys.readouterr().out
    assert "of the bytes, " in told and "Budgets are shares of the bytes" in told
    results = Results.load(out)
    assert results.settings["task"] == "keys" and results.model["dtype"] == "bf16"
    for row in results.rows:
        assert not row.failed
        assert 0.7 * row.keep < row.bytes / results.original_bytes <= row.keep
    raw, coded = (results.row(name, 0.2) for name in ("keydiff", "keydiff(encoding=int8)"))
    assert np.sum(coded.plan) > 1.3 * np.sum(raw.plan)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--recipes", "nope"], "'nope' is unknown, choose ada_keydiff"),
        (["--recipes", "keydiff,keydiff"], "each once"),
        (["--recipes", "all,kvzip"], "each once"),
        (["--recipes", ","], "at least one"),
        (["--keep", "0.5,half"], "shares are needed"),
        (["--keep", "1.5"], "above 0 and at most 1"),
        (["--keep", "0"], "above 0"),
        (["--contexts", "0"], "at least 1"),
        (["--tokens", "20"], "at least 256"),
        (["--text", "/nowhere/a.txt"], "no such file"),
        (["--json", "/nowhere/a.json"], "folder does not exist"),
        (["--seed", "-1"], "not be below 0"),
        (["--recipes", "lukv(keydiff, profile=mine)"], "takes profile 'mine'; name its file"),
        (["--profile", "/nowhere/p.json"], "/nowhere/p.json: not a profile"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(arguments, reason, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err


def test_what_cannot_be_run_is_told_with_what_to_do(tiny_model, text_file, tmp_path, capsys):
    assert main(["--model", "/nowhere"]) == 1
    assert "neither one of smollm2, gemma3, qwen nor a folder" in capsys.readouterr().err
    short = tmp_path / "short.txt"
    short.write_text(prose(200))
    assert main(["--model", str(tiny_model), "--text", str(short), "--tokens", "999"]) == 1
    assert "no text is long enough for 999 tokens (short.txt)" in capsys.readouterr().err
    (tmp_path / "bad.json").write_text("{}")
    assert main(["--load", str(tmp_path / "bad.json")]) == 1
    assert "bad.json: not results of precis eval" in capsys.readouterr().err


def test_recipes_that_fail_say_why_and_the_others_go_on(
    tiny_model, text_file, tmp_path, capsys, monkeypatch
):
    compress = precis.compress

    def fails_on_knorm(spec, layers, recipe, keep, **options):
        if recipe == "knorm":
            raise precis.Unsupported("not on this machine")
        return compress(spec, layers, recipe, keep, **options)

    monkeypatch.setattr(precis, "compress", fails_on_knorm)
    arguments = ["--model", str(tiny_model), "--text", str(text_file), "--keep", "0.3"]
    arguments += ["--contexts", "1", "--tokens", "300"]
    out = tmp_path / "r.json"
    assert main([*arguments, "--recipes", "knorm,keydiff", "--json", str(out)]) == 0
    assert "note: knorm: not on this machine" in capsys.readouterr().out
    failed, ran = Results.load(out).rows
    assert failed.failed == "not on this machine" and not failed.nll and ran.nll
    assert main([*arguments, "--recipes", "knorm"]) == 1


def test_recipes_are_split_at_commas_outside_parentheses():
    text = 'keydiff, ada_snapkv(alpha=0.05, window=64),{"scorer":"knorm","sinks":4}'
    assert split_recipes(text) == [
        "keydiff",
        "ada_snapkv(alpha=0.05, window=64)",
        '{"scorer":"knorm","sinks":4}',
    ]


def test_presets_that_need_something_else_are_left_out_by_default():
    names = default_recipes({})
    assert "ada_keydiff" in names
    assert not {"external", "lukv", "headkv", "keydiff_kvpress"} & set(names)
    assert "lukv" in default_recipes({"": "{}"})


@pytest.mark.parametrize("recipe", ["ada_keydiff", "keydiff_kvpress", "knorm(min_entries=30)"])
@pytest.mark.parametrize("keep", [0.5, 0.123456, 0.001])
def test_a_cut_of_the_evaluation_is_what_a_compression_at_that_budget_keeps(recipe, keep):
    spec = toy_spec()
    layers = random_layers(spec, 90)

    def compress(share):
        return precis.compress(spec, layers, recipe, share)

    parsed = Recipe.parse(recipe)
    compressed = Compressed(spec, parsed, 90, 0.8, compress)
    fresh = compress(keep)
    assert compressed.cut(keep).same_entries(Cut.of(fresh, 90))
    assert compressed.stored_bytes(keep) == fresh.bytes
    assert np.array_equal(compressed.cut(keep).plan, fresh.plan)


@pytest.mark.parametrize("encoding", ["raw", "int8", "int4", "k8v4", "k6v4"])
def test_a_share_of_the_bytes_holds_with_every_encoding(encoding):
    spec = toy_spec()
    layers = random_layers(spec, 1000)
    full = sum(rows.nbytes for pair in layers for rows in pair)
    recipe = Recipe.parse(f"ada_keydiff(encoding={encoding})")

    def compress(keep):
        return precis.compress(spec, layers, recipe.text, keep)

    compressed = Compressed(spec, recipe, 1000, 0.2, compress, of_bytes=True)
    for share in (0.2, 0.1):
        assert 0.85 * share * full < compressed.stored_bytes(share) <= share * full
        kept = compress(precis.byte_share(share))
        assert compressed.cut(share).same_entries(Cut.of(kept, 1000))


def test_bytes_are_those_that_a_service_stores(tmp_path):
    spec = toy_spec()
    layers = random_layers(spec, 90)
    with precis.open(tmp_path / "cache") as cache:
        model = cache.register_model(spec)
        with cache.begin_put(model, range(90), recipe="ada_keydiff", keep=0.4) as put:
            for index, (keys, values) in enumerate(layers):
                put.layer(index, keys, values)
            segment = put.commit()
    assert segment.bytes == precis.compress(spec, layers, "ada_keydiff", 0.4).bytes


def attended(query, keys, values):
    """One query's output, in float64."""
    weights = torch.softmax(keys.double() @ query.double() * len(query) ** -0.5, 0)
    return weights @ values.double()


@pytest.mark.parametrize("name", ["random_llama", "random_gemma3"])
def test_perturbation_is_the_distance_between_the_outputs(name, request):
    model = request.getfixturevalue(name)
    config = model.config
    windows = hf.attention_windows(config)
    n, m, dim = 60, 3, config.head_dim
    group = config.num_attention_heads // config.num_key_value_heads
    draw = torch.Generator().manual_seed(SEED)

    def normal(*shape):
        return torch.randn(shape, generator=draw)

    rows = [
        (normal(config.num_key_value_heads, n, dim), normal(config.num_key_value_heads, n, dim))
        for _ in windows
    ]
    queries = [normal(config.num_attention_heads, m, dim) for _ in windows]
    projections = [torch.from_numpy(p) for p in hf.output_projections(model)]
    kept = [
        [torch.randperm(n, generator=draw)[: 10 + h] for h in range(config.num_key_value_heads)]
        for _ in windows
    ]
    prefix = HandmadePrefix(
        n,
        [
            LayerKept([HeadKept(p, k[h][p], v[h][p]) for h, p in enumerate(kept[layer])])
            for layer, (k, v) in enumerate(rows)
        ],
    )
    measured = Probe(queries, rows, projections, windows).measure(hf.RaggedCache(model, prefix))
    for layer, (keys, values) in enumerate(rows):
        shares, head_shares = [], []
        for i in range(m):
            whole, less = [], []
            for h, query in enumerate(queries[layer][:, i]):
                for positions, out in (
                    (torch.arange(n), whole),
                    (kept[layer][h // group], less),
                ):
                    near = positions[positions > n + i - (windows[layer] or n + m)]
                    read = attended(query, keys[h // group, near], values[h // group, near])
                    out.append(read @ projections[layer][h].double())
            whole, less = torch.stack(whole), torch.stack(less)
            shares.append((whole.sum(0) - less.sum(0)).norm() / whole.sum(0).norm())
            head_shares.append((whole - less).abs().sum(-1))
        assert measured.layers[layer] == pytest.approx(float(sum(shares)) / m, rel=1e-3)
        want = (sum(head_shares) / m).numpy()
        assert measured.heads[layer] == pytest.approx(want, rel=1e-3)


KNOWN = (*precis.preset_names(), "keydiff(layers=pyramid)")


def results_of(*rows: Row) -> Results:
    full = Row("full", 1.0, right=[True] * 4, nll=[0.1, 0.2, 0.3, 0.4])
    settings = {
        "questions_per_context": 2, "contexts": 2, "tokens": 300, "seed": 0,
        "documents": [{"text": "a", "seed": "0/0", "tokens": 300}],
        "recipes": {row.name: Recipe.parse(row.name).fields for row in rows if row.name in KNOWN},
    }  # fmt: skip
    return Results({"name": "m"}, settings, full, list(rows), 1.0, 1000)


def test_the_error_of_a_difference_is_over_contexts_not_questions():
    row = Row("r", 0.5, right=[True] * 4, nll=[0.2, 0.3, 0.6, 0.7])  # +0.1 twice, +0.3 twice
    delta, error = results_of(row).delta(row)
    assert delta == pytest.approx(0.2) and error == pytest.approx(0.1)


def test_the_smallest_budget_for_a_loss_is_judged_by_other_contexts():
    def rows(name, *losses):  # one for each budget: of the contexts that choose, of the others
        for keep, (chosen, judged) in zip((0.5, 0.3, 0.2, 0.1), losses, strict=True):
            nll = [1 + chosen, 1 + judged, 1 + chosen, 1 + judged + 0.02]
            yield Row(name, keep, right=[True] * 4, nll=nll)

    found = [
        *rows("good", (0.0, 0.0), (0.01, 0.03), (0.02, 0.05), (0.3, 0.3)),
        *rows("lucky", (0.0, 0.0), (0.5, 0.5), (0.01, 0.01), (0.02, 0.02)),
        *rows("bad", (0.1, 0.0), (0.2, 0.0), (0.3, 0.0), (0.4, 0.0)),
        Row("broken", 0.5, failed="no"),
    ]
    results = results_of(*found)
    results.full.nll = [1.0] * 4
    results.settings |= {"questions_per_context": 1, "contexts": 4, "of_bytes": True}
    assert "The smallest budget" not in str([heading for heading, _, _ in sections(results)])
    results.settings["loss"] = 0.021
    heading, _, (_, table) = next(sections(results))
    assert heading == "The smallest budget that costs at most 0.021"
    assert table == [
        ["good", "20% of the bytes", "+0.02", "+0.06 ±0.01", "+0.07"],
        ["lucky", "50% of the bytes", "+0.00", "+0.01 ±0.01", "+0.02"],
        ["bad", "none of these", "-", "-", "-"],
    ]
    results.settings["contexts"] = 3
    with pytest.raises(ValueError, match="at least 4 contexts"):
        list(sections(results))


def test_presets_stand_beside_their_press_and_selectors_beside_their_base():
    def row(name, nll, moved, **more):
        return Row(name, 0.5, right=[True] * 4, nll=[nll] * 4, head_perturbation=moved, **more)

    base = row("snapkv", 0.5, [[0.2, 0.4], [0.1, 0.3]])
    critical = row("criticalkv", 0.4, [[0.1, 0.3], [0.2, 0.2]])
    press = row("SnapKV", 0.45, None, source="kvpress", beside="snapkv")
    found = {heading: table for heading, _, table in sections(results_of(base, critical, press))}
    assert found["Compared with kvpress"][1] == [["snapkv", "SnapKV", "+0.05 ±0.00"]]
    assert found["Claims: the effect of a selector"][1] == [["criticalkv", "snapkv", "75.0%"]]
    assert not list(sections(results_of(critical)))


def test_learnt_budgets_stand_beside_those_of_a_rule_with_the_same_scores():
    def row(name, moved):
        return Row(name, 0.2, right=[True] * 4, nll=[1.0] * 4, perturbation=moved)

    learnt, uniform = row("lukv", [0.1, 0.2]), row("keydiff", [0.2, 0.4])
    pyramid = row("keydiff(layers=pyramid)", [0.4, 0.2])
    table = sections(results_of(learnt, uniform, pyramid, row("snapkv", [0.1, 0.1])))
    ((heading, _, (header, rows)),) = table
    assert heading == "Claims: the effect of learnt budgets"
    assert header == ["learnt budgets", "base", "@20%"]
    assert rows == [
        ["lukv", "keydiff", "-50% (0.150 for 0.300)"],
        ["lukv", "keydiff(layers=pyramid)", "-50% (0.150 for 0.300)"],
    ]


def test_evaluations_of_the_same_contexts_are_shown_as_one():
    def of(*rows):
        results = results_of(*rows)
        results.model |= {"revision": "1"}
        results.settings |= {"recipes": {row.name: {} for row in rows}, "seconds": 1.0}
        return results

    results = of(Row("a", 0.5, nll=[1.0] * 4), Row("b", 0.5, nll=[2.0] * 4))
    results.merge(of(Row("b", 0.5, nll=[3.0] * 4), Row("c", 0.5, nll=[4.0] * 4)))
    assert [(row.name, row.nll[0]) for row in results.rows] == [("a", 1.0), ("b", 3.0), ("c", 4.0)]
    assert set(results.settings["recipes"]) == {"a", "b", "c"}
    same = of(Row("c", 0.2, nll=[5.0] * 4))
    same.settings |= {"task": "codes", "of_bytes": False}  # what older files do not say
    results.merge(same)
    same.settings |= {"of_bytes": True}
    with pytest.raises(ValueError, match="of_bytes"):
        results.merge(same)
    other = of(Row("d", 0.5))
    other.settings["seed"] = 1
    with pytest.raises(ValueError, match="seed: the two evaluations are not of the same contexts"):
        results.merge(other)


def test_rows_stand_best_first_and_failures_last():
    def row(name, nll, **more):
        return Row(name, 0.5, right=[True] * 4, nll=[nll] * 4, bytes=500, **more)

    failed = Row("broken", 0.5, failed="no")
    press = row("Press", 0.2, source="kvpress", beside="good")
    results = results_of(row("bad", 0.9), failed, row("good", 0.3), press)
    assert results.names() == ["good", "bad", "broken"]
    header, rows = summary(results)
    assert [cells[0] for cells in rows] == ["good", "bad", "broken", "kvpress Press"]
    assert all(len(cells) == len(header) for cells in rows)
    assert rows[2][1:3] == ["failed", "-"] and rows[2][3:5] == ["-", "-"]  # not run at 20%
    assert "- broken: no" in markdown(results, "Results", {})
