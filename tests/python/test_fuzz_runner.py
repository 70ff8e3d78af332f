"""How ./dev fuzz reads libFuzzer's output; a script replaces libFuzzer here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).resolve().parents[1] / "fuzz" / "run.py"

SEEDS = """#!/bin/sh
for target in good bad broken; do
  echo $target
  [ -z "$1" ] || { mkdir -p "$1/$target" && echo seed >"$1/$target/seed-0"; }
done
"""

# When it is called to fuzz, it finds an input if the target is bad. Otherwise it runs an input.
FUZZER = """#!/bin/sh
for argument in "$@"; do
  case $argument in
    --target=*) target=${argument#--target=} ;;
    -artifact_prefix=*) prefix=${argument#-artifact_prefix=} ;;
  esac
done
[ -n "$prefix" ] || { echo "replayed $target"; exit 77; }
[ "$target" != broken ] || { echo "cannot start" >&2; exit 1; }
echo "#4096	pulse  cov: 312 ft: 901 corp: 44/3188b lim: 110 exec/s: 2048 rss: 61Mb" >&2
[ "$target" != bad ] || {
  echo x >"${prefix}crash-1"
  echo "artifact_prefix='$prefix'; Test unit written to ${prefix}crash-1" >&2
  exit 77
}
echo "stat::number_of_executed_units: 5000" >&2
"""


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """A build folder with the two programs."""
    (tmp_path / "bin").mkdir()
    for name, text in (("fuzz_seeds", SEEDS), ("precis_fuzz", FUZZER)):
        program = tmp_path / "bin" / name
        program.write_text(text)
        program.chmod(0o755)
    return tmp_path


def fuzz(build: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(RUNNER), "--build", str(build), "--seconds", "1", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_clean_targets_end_well_and_show_their_figures(build):
    done = fuzz(build, "good")
    assert done.returncode == 0, done.stdout + done.stderr
    last = [line for line in done.stdout.splitlines() if line.startswith("good")][-1]
    assert last.split() == ["good", "5,000", "312", "44", "clean"]
    assert done.stdout.endswith("1 of 1 targets clean\n")


def test_a_failure_names_its_input_and_the_command_that_replays_it(build):
    done = fuzz(build, "good", "bad")
    assert done.returncode == 1
    assert "1 of 2 targets clean" in done.stdout
    assert f"input:  {build}/crashes/bad/crash-1" in done.stdout
    command = next(line for line in done.stdout.splitlines() if "replay:" in line)
    replayed = subprocess.run(command.split()[1:], capture_output=True, text=True, timeout=60)
    assert (replayed.returncode, replayed.stdout) == (77, "replayed bad\n")


def test_a_target_that_does_not_start_is_a_failure(build):
    done = fuzz(build, "broken")
    assert done.returncode == 1
    assert "cannot start" in done.stdout


def test_targets_are_listed_and_unknown_ones_refused(build):
    assert fuzz(build, "--list").stdout.split() == ["good", "bad", "broken"]
    done = fuzz(build, "other")
    assert done.returncode == 2
    assert "no target is called other" in done.stderr


def test_the_corpus_is_where_it_is_asked_for(build, tmp_path):
    assert fuzz(build, "--corpus", str(tmp_path / "mine"), "good").returncode == 0
    assert (tmp_path / "mine" / "good").is_dir()
