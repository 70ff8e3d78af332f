"""Which texts of a figure overlap, as matplotlib's own renderer lays them out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text


def boxes(figure: Any) -> list[tuple[str, Any]]:
    """Each text that is drawn, without its arrow, and its box in pixels."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    hidden = {id(text) for axes in figure.axes for text in _outside(axes)}
    return [
        (text.get_text(), Text.get_window_extent(text, renderer))
        for text in figure.findobj(Text)
        if text.get_text().strip() and text.get_visible() and id(text) not in hidden
    ]


def _outside(axes: Any) -> Iterator[Text]:
    """The labels of ticks outside the frame, which matplotlib keeps but does not draw."""
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if not low <= tick.get_loc() <= high:
                yield from (tick.label1, tick.label2)


def overlapping(figure: Any) -> list[tuple[str, str]]:
    """Pairs of texts that overlap by more than a pixel."""
    return [
        (one, other)
        for (one, a), (other, b) in combinations(boxes(figure), 2)
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
    ]
