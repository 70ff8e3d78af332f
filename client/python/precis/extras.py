"""The packages that parts of this package need beyond NumPy, and how to install them."""

from __future__ import annotations

_HF = ("torch", "transformers", "gguf", "safetensors")
INSTALL_HF = "pip install './client/python[hf]' from the repository"


def hint(error: Exception) -> str:
    """An error's message; for a missing module also how to install it."""
    if isinstance(error, ModuleNotFoundError) and error.name in _HF:
        return f"{error}: {INSTALL_HF}"
    return str(error)
