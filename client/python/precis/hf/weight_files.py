"""Marks (digests) of the parameters in a model's safetensors files, cached beside each file."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .weight_marks import marks_of

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig

_VERSION = 2
_SUFFIX = ".precis-weights"
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"


def file_marks(config: PretrainedConfig, dtype: torch.dtype | None = None) -> dict[str, str]:
    """The marks of all parameters in the safetensors files of the configuration.

    A file is read once: its marks are stored beside it, or in the user's cache folder if its own
    folder cannot be written. They are valid as long as the file has the same inode, size and times.

    Args:
        dtype: floating-point parameters are first converted to it, as loading does; by default they
            are not converted.
    """
    marks: dict[str, str] = {}
    for file in files_of(config):
        marks |= _marks_of(file, dtype)
    return marks


def files_of(config: PretrainedConfig) -> list[Path]:
    """The safetensors files that the model was loaded from; empty if they are not found."""
    source = config.name_or_path
    if not source:
        return []
    index = _found(config, source, _INDEX)
    names = [_SINGLE]
    if index is not None:
        try:
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            return []
    files = [_found(config, source, name) for name in names]
    return [] if None in files else files


def _found(config: PretrainedConfig, source: str, name: str) -> Path | None:
    if os.path.isdir(source):
        path = Path(source, name)
        return path if path.is_file() else None
    from huggingface_hub import try_to_load_from_cache

    revision = getattr(config, "_commit_hash", None)
    with contextlib.suppress(ValueError, OSError):  # for example not the name of a repository
        path = try_to_load_from_cache(source, name, revision=revision)
        if isinstance(path, str):
            return Path(path)
    return None


def _marks_of(file: Path, dtype: torch.dtype | None) -> dict[str, str]:
    file = file.resolve()  # in a hub's cache, the blob that the link points to
    state = _state(file)
    for place in _places(file, dtype):
        marks = _remembered(place, state)
        if marks is not None:
            return marks
    marks = dict(_read(file, dtype))
    if _state(file) == state:
        for place in _places(file, dtype):
            if _remember(place, state, marks):
                break
    return marks


def _read(file: Path, dtype: torch.dtype | None) -> Iterator[tuple[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as tensors:
            names = tensors.keys()
            yield from marks_of((name, _turned(tensors.get_tensor(name), dtype)) for name in names)
    except SafetensorError as error:
        raise ValueError(f"revision: {file.name}: {error}") from None


def _turned(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    return tensor if dtype is None or not tensor.is_floating_point() else tensor.to(dtype)


def _state(file: Path) -> list[int]:
    """Numbers that change with the file: replacing it changes the inode, writing to it the ctime.

    Size and mtime are not enough, because any user can set the mtime.
    """
    found = file.stat()
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


def _places(file: Path, dtype: torch.dtype | None) -> Iterator[Path]:
    suffix = _SUFFIX if dtype is None else f".{str(dtype).removeprefix('torch.')}{_SUFFIX}"
    yield file.with_name(f".{file.name}{suffix}")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    key = hashlib.sha256(os.fsencode(file)).hexdigest()[:32]
    yield Path(home, "precis", f"{key}{suffix}")


def _seal(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _remembered(place: Path, state: list[int]) -> dict[str, str] | None:
    """The stored marks; None if the record is missing, damaged, or of another state of the file."""
    try:
        record = json.loads(place.read_text())
        content = {"version": _VERSION, "state": state, "marks": record["marks"]}
        return content["marks"] if record["seal"] == _seal(content) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remember(place: Path, state: list[int], marks: dict[str, str]) -> bool:
    """Writes the record atomically, even with concurrent writers. False if it cannot be written."""
    content = {"version": _VERSION, "state": state, "marks": marks}
    text = json.dumps(content | {"seal": _seal(content)})
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=place.parent, prefix=f"{place.name}.")
    except OSError:
        return False
    try:
        with os.fdopen(handle, "w") as out:
            out.write(text)
        os.replace(temporary, place)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        return False
    return True
