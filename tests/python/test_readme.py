"""The Python programs of the READMEs run as they stand."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def programs() -> list[tuple[str, str]]:
    """Every block marked `python` that opens an embedded cache."""
    found = []
    for readme in ("README.md", "client/python/README.md"):
        path = ROOT / readme
        blocks = (
            re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL) if path.exists() else []
        )
        found += [
            pytest.param(block, id=f"{readme}-{i}")
            for i, block in enumerate(blocks)
            if "precis.open(" in block
        ]
    return found


@pytest.mark.parametrize("program", programs())
def test_the_program_of_the_readme_runs(program, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


PYTHON = [sys.executable, str(ROOT / "client/examples/quickstart.py")]
NATIVE = pytest.param(
    ["quickstart"],
    marks=pytest.mark.skipif(not shutil.which("quickstart"), reason="quickstart is not built"),
)


@pytest.mark.parametrize("quickstart", [PYTHON, NATIVE])
def test_the_quickstart_runs_and_without_a_service_says_what_to_start(quickstart, tmp_path):
    def run(where: str) -> subprocess.CompletedProcess[str]:
        command = [*quickstart, where]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    stored = run("cache-dir")
    assert stored.returncode == 0 and "stored " in stored.stdout, stored.stderr
    alone = run("127.0.0.1:1")
    assert alone.returncode == 1
    assert alone.stderr.splitlines()[-2:] == [
        "quickstart: unavailable: connect to 127.0.0.1:1: Connection refused",
        "to start one: precisd --data cache-dir --listen 127.0.0.1:1",
    ]
    assert "Traceback" not in alone.stderr
