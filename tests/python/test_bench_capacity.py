"""The replay behind ./dev bench capacity, on a small trace made here."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest

from precis.demo.service import find_precisd

PROGRAM = Path(find_precisd()).parent / "precis_bench_capacity"


def conversations(requests: int) -> list[dict]:
    """Prompts that grow turn by turn below a shared system prompt, some of them abandoned."""
    chance = random.Random(7)
    next_block = iter(range(1, 1_000_000))
    system = [next(next_block) for _ in range(4)]
    open_prompts: list[list[int]] = []
    rows = []
    for number in range(requests):
        if not open_prompts or chance.random() < 0.3:
            open_prompts.append(list(system))
        prompt = chance.choice(open_prompts[-100:])
        prompt += [next(next_block) for _ in range(chance.randint(1, 6))]
        rows.append({"timestamp": 1000 * number, "hash_ids": list(prompt)})
    return rows


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in conversations(600)))
    return path


def replay(trace: Path, tmp_path: Path, *options: str) -> list[dict]:
    out = tmp_path / "rows.json"
    command = [PROGRAM, "--trace", trace, "--json", out, *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=60)
    return json.loads(out.read_text())


def test_rows_have_the_form_of_every_bench(trace, tmp_path):
    rows = replay(trace, tmp_path)
    form = {"bench", "params", "value", "unit", "ceiling", "ceiling_name", "share", "mark", "runs"}
    for row in rows:
        assert form | {"min", "max"} <= row.keys()
        assert row["share"] == pytest.approx(row["value"] / row["ceiling"])
    assert {row["params"]["policy"] for row in rows} == {"full-lru", "lru", "value"}
    assert {row["params"]["disk_share"] for row in rows} == {0.02, 0.05, 0.1, 0.2}


def test_no_policy_stores_more_than_its_limit(trace, tmp_path):
    for row in replay(trace, tmp_path):
        assert 0.5 < row["most_used"] <= 1, row["params"]


def test_trims_save_more_prefill_than_drops_alone(trace, tmp_path):
    saved = {
        (row["params"]["disk_share"], row["params"]["policy"]): row["value"]
        for row in replay(trace, tmp_path)
    }
    for share in (0.02, 0.05, 0.1):
        assert saved[share, "value"] > saved[share, "lru"] > saved[share, "full-lru"]
    share = 0.2  # here, dropping alone may keep all that is used again
    assert saved[share, "value"] >= saved[share, "lru"] >= saved[share, "full-lru"]


def test_check_fails_when_a_mark_is_not_met(trace, tmp_path):
    # With puts as small as the last step of the ladder, there is nothing to trim.
    command = [PROGRAM, "--trace", trace, "--keep", "0.1", "--ladder", "0.1", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "NOT MET" in done.stdout
