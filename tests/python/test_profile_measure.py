"""precis profile measure: losses as precis eval finds them, and puts that keep what they say."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from kv import random_layers, toy_spec

import precis
from precis import hf
from precis.eval.cuts import Recipe
from precis.model import profile_for
from precis.profile import measure, shipped
from precis.profile.__main__ import main


@pytest.fixture
def probe(tiny_llama, text_file, tmp_path):
    """A probe of the tiny model, as a file."""
    out = tmp_path / "probe.json"
    arguments = ["build", "--model", str(tiny_llama), "--text", str(text_file), "--out", str(out)]
    assert main([*arguments, "--contexts", "2", "--tokens", "120"]) == 0
    return out


def measured(tiny_llama, text_file, path, out, *more) -> dict:
    arguments = ["measure", str(path), "--model", str(tiny_llama), "--text", str(text_file)]
    arguments += ["--kinds", "codes,facts", "--contexts", "2", "--out", str(out), *more]
    assert main(arguments) == 0
    return json.loads(out.read_text())


def rows(profile: dict) -> list[list[float]]:
    losses = profile["losses"]
    return [losses[i : i + 4] for i in range(0, len(losses), 4)]


def test_losses_are_those_of_the_worst_kind_and_puts_keep_what_they_say(
    tiny_llama, text_file, probe, tmp_path, capsys
):
    out = tmp_path / "measured.json"
    profile = measured(tiny_llama, text_file, probe, out, "--tokens", "256")
    assert "codes" in capsys.readouterr().out
    found = rows(profile)
    assert [row[:2] for row in found] == [[256, keep] for keep in sorted(measure.KEEPS)]
    assert all(math.isfinite(loss) and error >= 0 for _, _, loss, error in found)

    from precis.eval import models, texts
    from precis.eval.run import Settings, evaluate

    loaded = models.load(str(tiny_llama))
    recipe = "global_kvprobe(encoding=k6v4)"
    worst = {}
    for kind in ("codes", "facts"):
        settings = Settings(
            recipes=(recipe,),
            keeps=measure.KEEPS,
            contexts=2,
            tokens=256,
            texts=tuple(texts.own_texts([text_file])),
            task=(kind, texts.TASKS[kind][0]),
            profiles={"": out.read_text()},
        )
        results = evaluate(loaded, settings, lambda *_: None)
        for row in results.rows:
            of_kind = results.delta(row)
            worst[row.keep] = max(of_kind, worst.get(row.keep, of_kind), key=sum)
    for _, keep, loss, error in found:
        assert (loss, error) == pytest.approx(worst[keep], abs=1e-4)

    # A compression at a loss keeps the share of one of these rows.
    spec = hf.model_spec(loaded.hf_model, loaded.name, loaded.revision)
    layers = random_layers(spec, 200)
    most = max(1e-3, max(loss + error for _, keep, loss, error in found if keep >= 0.6))
    allowed = 1.0
    for _, keep, loss, error in reversed(found):
        if loss > most:
            break
        allowed = keep if loss + error <= most else allowed
    kept = precis.compress(spec, layers, recipe, precis.loss(most), profile=out.read_text())
    same = precis.compress(spec, layers, recipe, allowed, profile=out.read_text())
    assert kept.plan.sum() == same.plan.sum() and allowed <= 0.6


def test_losses_of_another_length_stay_and_those_of_another_recipe_go(probe):
    plain = json.loads(probe.read_text())
    recipe = Recipe.parse("global_kvprobe(encoding=k6v4)")

    def at(keep: float, loss: float) -> measure.Measured:
        # The kind with the largest sum of mean and error counts.
        return measure.Measured(keep, {"codes": (loss, 0.125), "facts": (loss + 0.1, 0.001)})

    once = measure.with_losses(plain, recipe, 512, [at(1.0, 0.25), at(0.5, 0.5)])
    assert rows(once) == [[512, 0.5, 0.5, 0.125], [512, 1.0, 0.25, 0.125]]
    twice = measure.with_losses(once, recipe, 256, [at(0.5, 2.0)])
    assert rows(twice) == [[256, 0.5, 2.0, 0.125], *rows(once)]
    again = measure.with_losses(twice, recipe, 512, [at(0.25, 0.75)])
    assert rows(again) == [[256, 0.5, 2.0, 0.125], [512, 0.25, 0.75, 0.125]]
    other = measure.with_losses(
        again, Recipe.parse("global_kvprobe(encoding=int8)"), 512, [at(0.5, 0.5)]
    )
    assert rows(other) == [[512, 0.5, 0.5, 0.125]]
    assert other["table"] == plain["table"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--contexts", "1"], "at least 2 are needed"),
        (["--tokens", "100"], "at least 256 are needed"),
        (["--kinds", "codes,riddles"], "choose from codes, keys"),
        (["--recipe", "nope"], "'nope' is unknown"),
        (["--recipe", "global_kvdiff"], "takes no profile"),
    ],
)
def test_bad_arguments_are_refused(arguments, reason, tiny_llama, probe, capsys):
    before = probe.read_text()
    with pytest.raises(SystemExit) as ended:
        main(["measure", str(probe), "--model", str(tiny_llama), *arguments])
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err
    assert probe.read_text() == before


def test_a_shipped_profile_is_not_written_over_and_budgets_need_their_recipe(tmp_path, capsys):
    for arguments, reason in (
        (["smollm2_kvprobe"], "is a shipped profile; name the result with --out"),
        (["smollm2_kvdiff", "--out", str(tmp_path / "p.json")], "give the --recipe"),
        (["/nowhere/p.json"], "not a profile"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["measure", *arguments])
        assert ended.value.code == 2
        assert reason in capsys.readouterr().err


def test_the_page_says_what_the_shipped_probe_keeps_at_a_loss():
    page = (Path(__file__).parents[2] / "docs/which-recipe.md").read_text()
    told = re.findall(r"^\| (0\.\d+) \| (\d+)% \| \d+% \| \+", page, re.MULTILINE)
    longer = re.search(
        r"(0\.\d+) keeps all entries, .* (0\.\d+) keeps (\d+)% and (0\.\d+) keeps (\d+)%",
        page.replace("\n", " "),
    )
    assert [loss for loss, _ in told] == ["0.05", "0.1", "0.15", "0.2"] and longer
    spec = toy_spec(num_layers=30, num_q_heads=9, num_kv_heads=3, head_dim=64)

    def kept(loss: str, tokens: int) -> int:
        found = precis.compress(
            spec,
            random_layers(spec, tokens),
            "global_kvprobe(encoding=k6v4)",
            f"loss {loss}",
            profile=profile_for(shipped.text("smollm2_kvprobe"), spec),
        )
        return round(100 * found.plan.sum() / (spec.num_layers * spec.num_kv_heads * tokens))

    assert [kept(loss, 1024) for loss, _ in told] == [int(share) for _, share in told]
    of_longer = [(longer[1], 100), (longer[2], int(longer[3])), (longer[4], int(longer[5]))]
    assert [kept(loss, 1100) for loss, _ in of_longer] == [share for _, share in of_longer]
