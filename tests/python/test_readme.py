"""The Python programs of the READMEs run as they stand."""

from __future__ import annotations

import re
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
