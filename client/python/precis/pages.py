"""Paged memory of an engine, which gets write rows to and puts read rows from."""

from __future__ import annotations

from typing import Any

from . import _core
from .arguments import names_arguments
from .arrays import exported, page_numbers, pages_in_place
from .errors import InvalidArgument


@names_arguments
class Pages:
    """K and V pages with rows of one head each, as in an engine's paged KV cache.

    Nothing is copied here, and both arrays are kept alive::

        # vLLM's layout LBHNC: cache[layer, block, head] holds block_size rows of K, then of V
        pages = precis.Pages(*cache.view(-1, 2, block_size, head_dim).unbind(1))

    Args:
        keys, values: writable NumPy arrays, or DLPack tensors in host memory or on one CUDA device,
            [num_pages, page_rows, head_dim] of the model's dtype (bf16 also as its bits in uint16,
            f8_e4m3 in uint8). Any strides are allowed if pages do not overlap: a page that is
            stored as [head_dim, page_rows] is passed as its transposed view.

    On a device, a layer's rows cross the bus in one copy, and one kernel moves them, on the
    client's own stream. That stream does not wait for other streams: earlier work of the device on
    the pages must have ended before a call (``torch.cuda.current_stream().synchronize()``), and the
    client's work has ended when the call returns.

    Raises:
        InvalidArgument: not arrays, or arrays of another dtype or shape.
        Unsupported: an array on another kind of device, or on a CUDA device that this build or
            machine cannot use.
    """

    def __init__(self, keys: Any, values: Any) -> None:
        self.keys = pages_in_place(keys, "keys")
        self.values = pages_in_place(values, "values")
        self._core = _core.Pages(exported(self.keys), exported(self.values))

    @property
    def core(self) -> Any:
        """The C++ object."""
        return self._core

    def __repr__(self) -> str:
        return f"Pages(keys={list(self.keys.shape)}, values={list(self.values.shape)})"


def sink_of(pages: Any) -> tuple[Any, Any, Any] | None:
    """(pages, table, starts) in the form that the extension module takes."""
    if pages is None:
        return None
    if not isinstance(pages, (tuple, list)) or len(pages) != 3 or not isinstance(pages[0], Pages):
        raise InvalidArgument("pages: must be (precis.Pages, table, starts)")
    memory, table, starts = pages
    return memory.core, page_numbers(table, "table", 1), page_numbers(starts, "starts", 1)
