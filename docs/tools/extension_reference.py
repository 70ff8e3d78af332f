"""The page of the extension module: what nanobind says of its functions and classes."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import inspect
from pathlib import Path
from types import ModuleType

_HEAD = (
    "# Extension module\n\n`precis._core` is the C++ beneath the package `precis`, which wraps all "
    "of it; programs use the package. The signatures here are nanobind's own.\n"
)


def load(folder: Path) -> ModuleType | None:
    """The module built in `folder`; None if it is not built, or for another Python."""
    built = [
        folder / f"_core{suffix}"
        for suffix in importlib.machinery.EXTENSION_SUFFIXES
        if (folder / f"_core{suffix}").exists()
    ]
    if not built:
        return None
    spec = importlib.util.spec_from_file_location("precis._core", built[0])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _signature(function: object) -> str:
    return (inspect.getdoc(function) or "").strip()


def _is_function(value: object) -> bool:
    return type(value).__name__ in ("nb_func", "nb_method")


def page(module: ModuleType | None) -> str:
    """The page; it says so if the module is not built."""
    if module is None:
        return _HEAD + "\nThe module was not built when this site was made: `./dev docs` does.\n"
    names = [name for name in dir(module) if not name.startswith("_")]
    functions = [n for n in names if _is_function(getattr(module, n))]
    parts = [_HEAD, "## Functions\n\n```python"]
    parts += [_signature(getattr(module, name)) for name in functions]
    parts.append("```\n")
    for name in (n for n in names if inspect.isclass(getattr(module, n))):
        members = vars(getattr(module, name))
        lines = [
            _signature(value) if _is_function(value) else key
            for key, value in sorted(members.items())
            if key == "__init__" or not key.startswith("_")
        ]
        parts.append(f"## {name}\n\n```python\n" + "\n".join(filter(None, lines)) + "\n```\n")
    return "\n".join(parts)
