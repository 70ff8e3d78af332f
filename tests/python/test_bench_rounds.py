"""How ./dev bench summarizes a figure's rounds."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SERVICE = Path(__file__).parents[1] / "bench" / "service"


@pytest.fixture(scope="module")
def rounds() -> Any:
    """The module, which is beside a program and in no package."""
    spec = importlib.util.spec_from_file_location("rounds", SERVICE / "rounds.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(**more: Any) -> dict[str, Any]:
    return {"bench": "put", "params": {"bytes": 1}, "unit": "GB/s", "ceiling_name": "copy"} | more


def test_a_figure_has_the_rounds_of_all_passes(rounds: Any) -> None:
    other = row(bench="get", values=[9.0], ceilings=[9.0])
    passes = [
        [row(values=[1.0, 8.0], ceilings=[2.0, 4.0]), other],
        [row(values=[3.0], ceilings=[4.0])],
    ]
    joined = rounds.joined(passes)
    assert [made["bench"] for made in joined] == ["put", "get"]
    assert joined[0]["values"] == [1.0, 8.0, 3.0]
    found = rounds.summed(joined[0])
    assert (found["value"], found["min"], found["max"], found["runs"]) == (3.0, 1.0, 8.0, 3)
    assert (found["ceiling"], found["ceiling_min"], found["ceiling_max"]) == (4.0, 2.0, 4.0)
    assert found["share"] == 0.75  # of 0.5, 2 and 0.75


def test_a_time_is_better_when_it_is_less(rounds: Any) -> None:
    assert rounds.summed(row(unit="s", values=[4.0], ceilings=[1.0]))["share"] == 0.25


def test_rounds_that_do_not_follow_their_ceiling_compare_medians(rounds: Any) -> None:
    unpaired = row(values=[1.0, 2.0, 3.0], ceilings=[3.0, 1.0, 2.0], paired=False)
    assert rounds.summed(unpaired)["share"] == 1.0


@pytest.mark.parametrize("failed_first", [True, False])
def test_what_one_pass_could_not_measure_is_told_by_the_others(
    rounds: Any, failed_first: bool
) -> None:
    passes = [[row(why_not="no disk")], [row(values=[1.0], ceilings=[1.0])]]
    (made,) = rounds.joined(passes if failed_first else passes[::-1])
    assert rounds.summed(made)["value"] == 1.0
    assert made["failed"] == [f"pass {1 if failed_first else 2}: no disk"]
    (none,) = rounds.joined([passes[0], passes[0]])
    assert rounds.summed(none) == row(why_not="no disk")
    (none,) = rounds.joined([passes[0], [row(why_not="no memory")]])
    assert none["why_not"] == "no disk; no memory"


def test_in_a_pass_what_was_measured_counts_or_else_the_last_reason(rounds: Any) -> None:
    owed, why = row(why_not="not yet"), row(why_not="no disk")
    (made,) = rounds.joined([[owed, why]])
    assert made["why_not"] == "no disk"
    (made,) = rounds.joined([[owed, row(values=[1.0], ceilings=[1.0]), why]])
    assert made["values"] == [1.0]
    assert "failed" not in made


def test_a_pass_that_says_nothing_of_a_figure_is_told(rounds: Any) -> None:
    (made,) = rounds.joined([[row(values=[1.0], ceilings=[1.0])], []])
    assert made["failed"] == ["pass 2: nothing was said of it"]


def test_of_two_middle_rounds_the_one_that_speaks_against_us_counts(rounds: Any) -> None:
    rate = rounds.summed(row(values=[1.0, 2.0], ceilings=[4.0, 5.0], paired=False))
    assert (rate["value"], rate["ceiling"], rate["share"]) == (1.0, 5.0, 0.2)
    time = rounds.summed(row(unit="s", values=[1.0, 2.0], ceilings=[4.0, 5.0], paired=False))
    assert (time["value"], time["ceiling"], time["share"]) == (2.0, 4.0, 2.0)
    paired = rounds.summed(row(unit="s", values=[1.0, 2.0], ceilings=[4.0, 5.0]))
    assert paired["share"] == 2.5  # of 4 and 2.5


def report(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SERVICE / "report.py", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_program_that_dies_in_a_pass_loses_no_other(tmp_path: Path) -> None:
    whole = json.dumps(row(params={"transport": "shm"}, values=[2.0], ceilings=[4.0]))
    program = tmp_path / "program"
    program.write_text(
        f"""#!/bin/sh
cd {tmp_path}
[ -e first ] && {{ printf '%s' '{whole[:20]}'; exit 7; }}
touch first
echo '{whole}'
"""
    )
    program.chmod(0o755)
    saved, page = tmp_path / "rows.json", tmp_path / "page.md"
    done = report("--program", program, "--passes", 2, "--json", saved)
    assert done.returncode == 7, done.stderr
    (made,) = json.loads(saved.read_text())
    assert (made["value"], made["share"], made["runs"], made["passes"]) == (2.0, 0.5, 1, 2)

    del made["passes"]  # as older files have none
    saved.write_text(json.dumps([made]))
    done = report("--program", program, "--load", saved, "--markdown", page)
    assert done.returncode == 0, done.stderr
    assert "2.00 GB/s" in page.read_text()


def test_nothing_measured_is_an_error(tmp_path: Path) -> None:
    done = report("--program", "/bin/true", "--passes", 1)
    assert done.returncode != 0
    assert "nothing was measured" in done.stderr
