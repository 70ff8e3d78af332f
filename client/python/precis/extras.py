"""What parts of this package need beyond NumPy, and what to type where it is missing."""

from __future__ import annotations

_HF = ("torch", "transformers", "gguf", "safetensors")
INSTALL_HF = "pip install './client/python[hf]' from the repository"


def hint(error: Exception) -> str:
    """An error's message; of a module that is not there, how it is installed as well."""
    if isinstance(error, ModuleNotFoundError) and error.name in _HF:
        return f"{error}: {INSTALL_HF}"
    return str(error)
