"""The pages of the Python package: what mkdocstrings is to show, and in which order."""

from __future__ import annotations

import ast
from pathlib import Path

# A reader meets these first, in this order; the others follow as `__all__` has them.
_FIRST = ["open", "connect", "Cache", "ModelSpec", "Model", "Put", "Segment", "Match", "MatchLink"]
_FIRST += [
    "Prefix",
    "Layer",
    "Head",
    "Budget",
    "ratio",
    "entries",
    "bytes_",
    "byte_share",
    "loss",
    "Session",
]
# Functions of the extension module, which has a page of its own, and the module of errors, whose
# classes are all in the package.
_ELSEWHERE = {"canonical_recipe", "preset_names", "errors"}


def names_of(init: str) -> list[str]:
    """`__all__` of a package's source."""
    for node in ast.parse(init).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return ast.literal_eval(node.value)
    raise ValueError("the package has no __all__")


def _shown(module: str, title: str, members: list[str] | None = None) -> str:
    options = f"    options:\n      members: {members}\n" if members else ""
    return f"---\ntitle: {title}\n---\n\n::: {module}\n{options}"


def pages(root: Path) -> dict[str, str]:
    """The pages by name."""
    names = names_of((root / "client/python/precis/__init__.py").read_text())
    rest = [name for name in names if name not in _FIRST and name not in _ELSEWHERE]
    return {
        "python": _shown("precis", "precis", _FIRST + rest),
        "hf": _shown("precis.hf", "precis.hf"),
        "engines": _shown("precis.engines", "precis.engines"),
    }
