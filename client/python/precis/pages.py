"""Paged memory of an engine's, which gets leave rows in and puts take rows from."""

from __future__ import annotations

from typing import Any

from . import _core
from .arguments import names_arguments
from .arrays import exported, page_numbers, pages_in_place
from .errors import InvalidArgument


@names_arguments
class Pages:
    """K and V pages of one head's rows each, as an engine's paged KV cache holds them.

    Nothing is copied here, and both arrays are kept alive::

        # vLLM's layout LBHNC: cache[layer, block, head] holds block_size rows of K, then of V
        pages = precis.Pages(*cache.view(-1, 2, block_size, head_dim).unbind(1))

    Args:
        keys, values: writable NumPy arrays or CPU tensors [num_pages, page_rows, head_dim] of the
            model's dtype (bf16 also as its bits in uint16), with any strides whose pages stand
            apart: a page that is stored as [head_dim, page_rows] comes as its transposed view.
    """

    def __init__(self, keys: Any, values: Any) -> None:
        self.keys = pages_in_place(keys, "keys")
        self.values = pages_in_place(values, "values")
        self._core = _core.Pages(exported(self.keys), exported(self.values))

    @property
    def core(self) -> Any:
        """The C++ beneath."""
        return self._core

    def __repr__(self) -> str:
        return f"Pages(keys={list(self.keys.shape)}, values={list(self.values.shape)})"


def sink_of(pages: Any) -> tuple[Any, Any, Any] | None:
    """(pages, table, starts) as the extension module takes them."""
    if pages is None:
        return None
    if not isinstance(pages, (tuple, list)) or len(pages) != 3 or not isinstance(pages[0], Pages):
        raise InvalidArgument("pages: must be (precis.Pages, table, starts)")
    memory, table, starts = pages
    return memory.core, page_numbers(table, "table", 1), page_numbers(starts, "starts", 1)
