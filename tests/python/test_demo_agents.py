"""The demo of an agent: its script runs to the end, and its figures are those of the service."""

from __future__ import annotations

import itertools
import json
import shutil
from types import SimpleNamespace

import pytest

from precis.demo import agents


@pytest.fixture
def tiny(tiny_llama, monkeypatch):
    """The tiny model in the place of the demo's; its tokenizer gets a template."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_llama)
    tokenizer.chat_template = "{% for m in messages %}the {{ m.content }} . {% endfor %}"

    def load():
        return AutoModelForCausalLM.from_pretrained(tiny_llama).eval(), tokenizer

    model = SimpleNamespace(name="tiny", load=load, revision=lambda: "1")
    monkeypatch.setattr(agents, "SMOLLM2", model)


def test_the_agent_resumes_and_its_figures_add_up(tiny, tmp_path, capsys):
    found = tmp_path / "figures.json"
    arguments = ["--turns", "8", "--answer", "4", "--json", str(found)]
    picture = tmp_path / "page.png"
    if shutil.which("chromium"):
        arguments += ["--page", str(picture)]
    assert agents.main(arguments) == 0
    if shutil.which("chromium"):
        assert picture.read_bytes().startswith(b"\x89PNG")
    figures = json.loads(found.read_text())
    turns = figures["turns"]
    agent = [turn for turn in turns if turn["who"] == "agent"]
    assert len(agent) == figures["session_turns"] == 9  # the system prompt is one
    assert [turn["turn"] for turn in turns if turn["who"] == "suppliers"] == [1, 2, 3, 4]
    for turn in turns:
        assert turn["tokens_in"] == turn["read"] + turn["reused"]
    for before, after in itertools.pairwise(agent):
        assert after["reused"] == before["tokens_in"] + before["answered"]
    assert [turn["turn"] for turn in turns if turn["restored"]] == [5]
    assert figures["tokens"] == agent[-1]["tokens_in"] + agent[-1]["answered"]
    every = figures["totals"][-1]
    assert every["read"] == sum(turn["read"] for turn in turns)
    assert every["stored_bytes"] > 0
    out = capsys.readouterr().out
    assert "precisctl top" in out and "USED" in out
    assert f"{every['tokens_in']} tokens went into {len(turns)} turns" in out


def test_a_wrong_recipe_is_refused_before_the_model_is_loaded(monkeypatch, capsys):
    monkeypatch.setattr(agents, "Agents", None)
    assert agents.main(["--recipe", "nosuch"]) == 1
    assert "nosuch" in capsys.readouterr().err
