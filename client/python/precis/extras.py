"""The packages that parts of this package need beyond NumPy, and how to install them."""

from __future__ import annotations

import sys
from collections.abc import Callable

from .errors import Error

_HF = ("torch", "transformers", "gguf", "safetensors")
INSTALL_HF = "pip install './client/python[hf]' from the repository"


def hint(error: Exception) -> str:
    """An error's message; for a missing module also how to install it."""
    if isinstance(error, ModuleNotFoundError) and error.name in _HF:
        return f"{error}: {INSTALL_HF}"
    return str(error)


def exit_status(prog: str, work: Callable[[], None], interrupted: str = "interrupted") -> int:
    """Runs a program's work. An error or Ctrl-C becomes a line on stderr and the exit status."""
    try:
        work()
    except (OSError, ValueError, ModuleNotFoundError, RuntimeError, Error) as error:
        print(f"\n{prog}: {hint(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\n{prog}: {interrupted}", file=sys.stderr)
        return 130
    return 0
