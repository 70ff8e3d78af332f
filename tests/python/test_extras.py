"""If an optional package is missing, the error says how to install it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from kv import toy_spec

import precis
from precis.projections import projections_in

INSTALL = "pip install './client/python[hf]'"

WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(("torch", "transformers")))  # no longer to be imported
from precis.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "arguments", [["eval", "--quick"], ["profile", "build", "--out", "p.json"], ["demo"]]
)
def test_a_verb_that_lacks_what_it_needs_says_how_to_install_it(arguments, tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 1
    assert INSTALL in ran.stderr and "Traceback" not in ran.stderr


def test_reading_projections_without_what_it_needs_says_how_to_install_it(tmp_path, monkeypatch):
    file = tmp_path / "model.safetensors"
    file.touch()
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(precis.InvalidArgument) as refused:
        projections_in(file, toy_spec())
    assert INSTALL in str(refused.value)
