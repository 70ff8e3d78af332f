"""The live comparison with kvpress over the KV of SmolLM2, minutes long: ./dev test --reference."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


@pytest.mark.reference
def test_the_parity_presets_keep_what_kvpress_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = Path(__file__).parents[1] / "reference"
    monkeypatch.syspath_prepend(str(reference))
    import compare_kvpress

    assert compare_kvpress.main([]) == 0, "what differs, and why, is printed above"
    sys.modules.pop("compare_kvpress")
