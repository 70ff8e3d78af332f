"""The measurement of conversations runs to its end, and its figures are those of the service."""

from __future__ import annotations

import json
from types import SimpleNamespace

from precis.eval import conversation


def test_old_turns_are_trimmed_and_every_fact_is_asked(tiny_llama, monkeypatch, tmp_path, capsys):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    def load():
        model = AutoModelForCausalLM.from_pretrained(tiny_llama).eval()
        return model, AutoTokenizer.from_pretrained(tiny_llama)

    tiny = SimpleNamespace(name="tiny", load=load, revision=lambda: "1")
    monkeypatch.setattr(conversation, "SMOLLM2", tiny)
    # A slow machine needs long to hold the total, and 0.3 is too small for so short turns.
    monkeypatch.setattr(conversation, "_TRIM_S", 20)
    found = tmp_path / "figures.json"
    words = ["--turns", "12", "--facts", "3", "--talks", "1", "--recipe", "global_kvdiff"]
    assert conversation.main([*words, "--keep", "0.5", "--total", "0.4", "--json", str(found)]) == 0
    figures = json.loads(found.read_text())
    end = figures["points"][-1]
    assert end["turn"] == 12 and end["stored_bytes"] <= 0.4 * end["original_bytes"]
    assert [fact["turn"] for fact in figures["facts"]] == [1, 6, 11]
    assert "facts told in" in capsys.readouterr().out
