"""The plot of ./dev bench kernels: FLOP/s against FLOPs per byte, under the roof of its run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from marks import MARKED_MODEL, MARKED_TOKENS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]

# By kind of row: what it is, its colour and its marker.
KINDS = {
    "norm": ("a norm of the values", "#009e73", "s"),
    "score": ("a score", "#0072b2", "o"),
    "preset": ("a whole preset", "#d55e00", "D"),
}
QUIET = "#8a939e"
GAP = 0.042  # between the lines of the column of names, as a share of the axes' height


def shape_of(rows: list[Row]) -> tuple[str, int]:
    """The model and length to plot: those that have marks, or else the first model's longest."""
    measured = [(row["model"], row["tokens"]) for row in rows]
    if (MARKED_MODEL, MARKED_TOKENS) in measured:
        return MARKED_MODEL, MARKED_TOKENS
    model = measured[0][0]
    return model, max(tokens for name, tokens in measured if name == model)


def spread(wanted: list[float], gap: float) -> list[float]:
    """The heights nearest to the wanted ones, which ascend, that are at least `gap` apart.

    Neighbours that are too close form a block around the mean of their wanted heights.
    """
    blocks: list[tuple[float, int]] = []  # the lowest height, and the number of heights
    for height in wanted:
        blocks.append((height, 1))
        while len(blocks) > 1:
            (low, below), (high, above) = blocks[-2:]
            if high - low >= gap * below:
                break
            shift = (high - low - gap * below) * above / (below + above)
            blocks[-2:] = [(low + shift, below + above)]
    return [low + i * gap for low, count in blocks for i in range(count)]


@dataclass
class Roof:
    """The ceilings and points of one model at one length. Rates are per second.

    Attributes:
        read: bytes that a read moves.
        library, peak: FLOPs of the library's fastest product, and of the fastest products of the
            run, which are usually those of the tile unit with its operands in cache. 0 if the run
            has none.
        points: FLOPs per byte, FLOPs per second, and the row, the slowest first.
    """

    read: float
    library: float
    peak: float
    points: list[tuple[float, float, Row]]

    @classmethod
    def of(cls, rows: list[Row]) -> Roof:
        read = max(row["read_bytes"] / row["min"] for row in rows if row["name"] == "ceiling read")
        library = max((row["flop_rate"] for row in rows if "flop_rate" in row), default=0.0)
        tiles = [row["flops"] / row["min"] for row in rows if row["name"] == "ceiling tiles"]
        points = [
            (
                row["flops"] / (row["read_bytes"] + row["copied_bytes"]),
                row["flops"] / row["min"],
                row,
            )
            for row in rows
            if row["kind"] in KINDS and row["flops"]
        ]
        points.sort(key=lambda point: (point[1], -point[0]))
        return cls(read, library, max([library, *tiles]), points)

    def at(self, flops_per_byte: float) -> float:
        """The most FLOPs per second."""
        return min(self.read * flops_per_byte, self.peak or math.inf)


def of_shape(rows: list[Row]) -> list[Row]:
    """The rows of the model and length to plot."""
    shape = shape_of(rows)
    return [row for row in rows if (row["model"], row["tokens"]) == shape]


def alt_text(rows: list[Row]) -> str:
    """A description for readers who do not see the plot."""
    ours = of_shape(rows)
    roof = Roof.of(ours)
    ends = [f"{row['name']} {rate / 1e9:.0f}" for _, rate, row in reversed(roof.points)]
    return (
        f"GFLOP/s against FLOPs per byte of {len(ends)} stages and presets of "
        f"{ours[0]['model']} at {ours[0]['tokens']} tokens, under a roof of "
        f"{roof.read / 1e9:.1f} GB/s and {roof.peak / 1e9:.0f} GFLOP/s: from "
        f"{' to '.join(ends[:: max(1, len(ends) - 1)])}."
    )


def roofline(rows: list[Row]) -> Figure:
    """Plots one model at one length. The rows' names stand in a column beside the axes."""
    from matplotlib.figure import Figure

    ours = of_shape(rows)
    roof = Roof.of(ours)
    figure = Figure(figsize=(11, 6.5))
    axes = figure.subplots()
    figure.subplots_adjust(left=0.08, right=0.62, bottom=0.1, top=0.93)
    knee = [roof.peak / roof.read] if roof.peak else []
    reach = [x for x, _, _ in roof.points] + knee or [1.0]
    heights = [rate / 1e9 for _, rate, _ in roof.points] or [roof.at(reach[0]) / 1e9]
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(min(reach) / 2, max(reach) * 2),
        ylim=(min(heights) / 2, max([*heights, roof.peak / 1e9]) * 1.6),
        xlabel="FLOPs that must be done per byte that must move",
        ylabel="GFLOP/s",
        title="{model}, one layer, bf16, {tokens} tokens, {backend}".format(**ours[0]),
    )
    _draw_roof(axes, roof, sorted([*axes.get_xlim(), *knee]))
    for kind, (label, colour, marker) in KINDS.items():
        found = [(x, rate / 1e9) for x, rate, row in roof.points if row["kind"] == kind]
        if found:
            axes.plot(*zip(*found, strict=True), marker, color=colour, markersize=6, label=label)
    _name_points(axes, roof)
    axes.tick_params(which="both", length=3.5, pad=4)
    for axis in (axes.xaxis, axes.yaxis):
        for set_one in (axis.set_major_formatter, axis.set_minor_formatter):
            set_one(_amount)
    axes.legend(
        loc="upper left", bbox_to_anchor=(-0.01, -0.09), ncols=2, fontsize=8.5, frameon=False
    )
    return figure


def _amount(value: float, _: object) -> str:
    """A tick's label: only 1, 2 and 5 times a power of ten, so that labels stay apart."""
    return f"{value:,g}" if f"{value:e}"[0] in "125" else ""


def _draw_roof(axes: Axes, roof: Roof, span: list[float]) -> None:
    label = f"roof: reads of {roof.read / 1e9:.1f} GB/s"
    if roof.peak:
        label += f", products of {roof.peak / 1e9:.0f} GFLOP/s"
    axes.plot(span, [roof.at(x) / 1e9 for x in span], color="black", label=label)
    if 0 < roof.library < roof.peak:
        axes.axhline(
            roof.library / 1e9,
            color=QUIET,
            linestyle="--",
            label=f"fastest product of the library: {roof.library / 1e9:.0f} GFLOP/s",
        )


def _name_points(axes: Axes, roof: Roof) -> None:
    """Names the points in a column right of the axes, from which thin lines lead to them."""
    to_axes = axes.transData + axes.transAxes.inverted()
    wanted = [to_axes.transform((x, rate / 1e9))[1] for x, rate, _ in roof.points]
    arrow = {"arrowstyle": "-", "color": QUIET, "linewidth": 0.6, "relpos": (0, 0.5)}
    for (x, rate, row), height in zip(roof.points, spread(wanted, GAP), strict=True):
        axes.annotate(
            row["name"],
            (x, rate / 1e9),
            (1.04, height),
            textcoords="axes fraction",
            va="center",
            fontsize=8.5,
            annotation_clip=False,
            arrowprops=arrow,
            zorder=1,
        )
