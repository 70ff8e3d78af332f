"""Profiles that come with the package, for the models of the evaluation."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parents[1] / "profiles"


def names() -> list[str]:
    """Of all of them."""
    return sorted(path.stem for path in _FOLDER.glob("*.json"))


def text(name: str) -> str:
    """The JSON of one, as precis.compress and Cache.add_profile take it.

    Raises:
        FileNotFoundError: there is none of that name.
    """
    path = _FOLDER / f"{name}.json"
    if name not in names():
        raise FileNotFoundError(f"no profile {name!r} is shipped; these are: {', '.join(names())}")
    return path.read_text(encoding="utf-8")
