"""The profiles in this package, for the models of the evaluation."""

from __future__ import annotations

from pathlib import Path

from precis import files

_FOLDER = Path(__file__).parents[1] / "profiles"


def names() -> list[str]:
    """The names of these profiles."""
    return sorted(path.stem for path in _FOLDER.glob("*.json"))


def text(name: str) -> str:
    """The JSON of a profile, for precis.compress and Cache.add_profile.

    Raises:
        FileNotFoundError: no profile has that name.
    """
    path = _FOLDER / f"{name}.json"
    if name not in names():
        raise FileNotFoundError(f"no profile {name!r} is shipped; these are: {', '.join(names())}")
    return path.read_text(encoding="utf-8")


def read(name: str) -> str:
    """The JSON of a shipped profile, or of a file.

    Raises:
        OSError, ValueError: the file cannot be read, or is too large.
    """
    return text(name) if name in names() else files.read_text(name, files.PROFILE_BYTES_MAX)
