"""The command ``precis``: one verb per task."""

from __future__ import annotations

import importlib
import sys

# Imported on demand: most of them need torch.
_VERBS = {
    "demo": "the whole product on a real model",
    "eval": "which recipe keeps what a model needs",
    "profile": "budgets per head, learnt offline",
}


def main() -> int:
    """Runs `precis VERB ...` and returns the exit status."""
    verb = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if verb in ("-h", "--help"):
        print("usage: precis VERB [OPTIONS]; precis VERB --help explains one\n")
        for name, what in _VERBS.items():
            print(f"  {name:8} {what}")
        return 0
    if verb not in _VERBS:
        print(f"precis: {verb!r} is not a verb; choose one of {', '.join(_VERBS)}", file=sys.stderr)
        return 2
    module = importlib.import_module(f"precis.{verb}.__main__")
    return module.main(sys.argv[2:], prog=f"precis {verb}")
