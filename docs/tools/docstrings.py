"""A Griffe extension: takes from docstrings the marks of reStructuredText that Markdown lacks."""

from __future__ import annotations

import re
from typing import Any

import griffe


def plain(docstring: str) -> str:
    """Without the `::` before an indented block, and without the role in :func:`name`."""
    text = re.sub(r"^::$\n?", "", docstring, flags=re.MULTILINE)
    return re.sub(r"::$|:\w+:(?=`)", lambda m: ":" * (m[0] == "::"), text, flags=re.MULTILINE)


class Plain(griffe.Extension):
    """Does it to every docstring."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for every object that has been read."""
        if obj.docstring:
            obj.docstring.value = plain(obj.docstring.value)
