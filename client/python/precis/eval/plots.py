"""Plots of the results."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .results import Results, Row
from .table import percent
from .theme import LIGHT, SERIES, themed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The first recipes have a colour and a marker each; the others are grey.
_STYLES = [
    {"color": LIGHT[name], "marker": marker}
    for name, marker in zip((*SERIES, "ink"), "osD^vPX", strict=True)
]
_PLANS = 6


def require() -> None:
    """Raises ModuleNotFoundError with advice if matplotlib is missing."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "plots need matplotlib: pip install matplotlib, or leave out --html and --png"
        ) from None
    matplotlib.use("Agg")


class Plot(NamedTuple):
    """A plot, its title, its explanation, and a description for readers who do not see it."""

    figure: Figure
    title: str
    caption: str
    alt: str


def draw(results: Results) -> dict[str, Plot]:
    """Every plot by its name, except plots without data."""
    require()
    import matplotlib

    ink = {f"{name}.color": LIGHT["ink"] for name in ("text", "xtick", "ytick")}
    ink |= {f"axes.{name}": LIGHT["ink"] for name in ("labelcolor", "edgecolor")}
    with matplotlib.rc_context({**ink, "axes.facecolor": "none"}):
        made = (_nll(results), _accuracy(results), _perturbation(results), _plans(results))
    names = ("nll", "accuracy", "perturbation", "plans")
    return {name: plot for name, plot in zip(names, made, strict=True) if plot is not None}


def save(plots: dict[str, Plot], folder: Path) -> None:
    """Saves one PNG per plot; makes the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, plot in plots.items():
        plot.figure.savefig(folder / f"{name}.png", dpi=150, bbox_inches="tight")


def embedded(figure: Figure) -> tuple[str, int, int]:
    """The figure as SVG in a data URL, with its width and height in pixels of a page.

    Its background is transparent, and its colours follow the reader's colour scheme.
    """
    import matplotlib

    out = io.StringIO()
    # Text stays text, which is smaller and accessible. The fixed salt makes equal plots equal
    # files.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "precis"}):
        figure.savefig(
            out, format="svg", bbox_inches="tight", metadata={"Date": None}, facecolor="none"
        )
    svg = out.getvalue()
    width, height = (
        round(float(points) * 4 / 3)
        for points in re.search(r'viewBox="0 0 (\S+) (\S+)"', svg).groups()
    )
    data = base64.b64encode(themed(svg).encode()).decode()
    return "data:image/svg+xml;base64," + data, width, height


def _rows(results: Results, name: str) -> list[Row]:
    """The rows of one recipe that did not fail, the smallest budget first."""
    found = [results.row(name, keep) for keep in reversed(results.keeps)]
    return [row for row in found if row is not None and not row.failed]


def _new(width: float, height: float, **options: object) -> tuple[Figure, object]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    return figure, figure.subplots(**options)


def _tidy(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(axis="y", color=LIGHT["rule"], linewidth=0.6)
    axes.set_axisbelow(True)


def _lines(axes: Axes, lines: list[tuple[str, list[float], list[float]]], keep: float) -> None:
    """Draws lines of (name, x, y), the best first, and a legend of the named ones below."""
    for i, (name, x, y) in reversed(list(enumerate(lines))):
        dot = "." if len(x) < 8 else ""  # a single budget has no line
        style = (
            {**_STYLES[i], "linewidth": 1.8, "label": name, "zorder": 3}
            if i < len(_STYLES)
            else {"color": LIGHT["others"], "marker": dot, "linewidth": 0.8, "zorder": 1}
        )
        axes.plot(x, y, markersize=4, markevery=max(1, len(x) // 8), **style)
    _tidy(axes)
    handles, texts = axes.get_legend_handles_labels()
    others = len(lines) - len(texts)
    axes.legend(
        handles[::-1], texts[::-1], title=f"best at {percent(keep)}"
        + (f", {others} others grey" if others else ""),
        frameon=False, loc="upper left", bbox_to_anchor=(-0.1, -0.14), ncols=2, fontsize=9,
        title_fontsize=9, alignment="left", columnspacing=1.2,
    )  # fmt: skip


def _against_bytes(results: Results, label: str, value: object) -> tuple[Figure, str] | None:
    """The figure, and the named recipes with their values at the middle budget, for its alt."""
    lines, told = [], []
    for name in results.names():
        if rows := _rows(results, name):
            shares = [100 * row.bytes / results.original_bytes for row in rows]
            lines.append((name, shares, [value(row) for row in rows]))
            told += [f"{name} {value(row):.2f}" for row in rows if row.keep == results.middle]
    if not lines:
        return None
    figure, axes = _new(7, 4.2)
    axes.axhline(value(results.full), color=LIGHT["quiet"], linestyle="--", linewidth=1)
    axes.set_xlabel("stored bytes, % of K and V uncompressed")
    axes.set_ylabel(label)
    _lines(axes, lines, results.middle)
    alt = (
        f"One line for each of {len(lines)} recipes over the budgets. The {label}: full cache "
        f"{value(results.full):.2f}; at {percent(results.middle)}, "
        f"{', '.join(told[: len(_STYLES)])}."
    )
    return figure, alt


def _nll(results: Results) -> Plot | None:
    made = _against_bytes(results, "NLL of the answers", lambda row: row.mean_nll)
    caption = (
        "Negative log-likelihood of the answers against stored bytes; lower is better. The dashed "
        "line is the full cache."
    )
    return made and Plot(made[0], "Likelihood of the answers", caption, made[1])


def _accuracy(results: Results) -> Plot | None:
    made = _against_bytes(results, "share of right answers", lambda row: row.accuracy)
    caption = (
        "Share of right answers against stored bytes; higher is better. The dashed line is the "
        "full cache."
    )
    return made and Plot(made[0], "Right answers", caption, made[1])


def _perturbation(results: Results) -> Plot | None:
    """The frame ends above the named recipes: a single poor recipe would flatten all others."""
    keep = results.middle
    rows = [row for name in results.names() if (row := results.row(name, keep)) and not row.failed]
    if not rows:
        return None
    figure, axes = _new(7, 4.2)
    layers = list(range(len(rows[0].perturbation)))
    _lines(axes, [(row.name, layers, row.perturbation) for row in rows], keep)
    axes.set_xlabel("layer")
    axes.set_ylabel(f"relative L2 at keep {percent(keep)}")
    axes.set_ylim(0, 1.05 * max(max(row.perturbation) for row in rows[: len(_STYLES)]) or 1)
    axes.xaxis.get_major_locator().set_params(integer=True)
    top = axes.get_ylim()[1]
    outside = {row.name: max(row.perturbation) for row in rows if max(row.perturbation) > top}
    caption = (
        "Relative L2 distance between attention's output over the kept entries and over the full "
        "cache, per layer, for queries of a continuation."
    )
    if outside:
        told = ", ".join(f"{name} (up to {most:.1f})" for name, most in outside.items())
        caption += f" Above the frame in some layers: {told}."
        count = f"{len(outside)} recipes (up to {max(outside.values()):.1f})"
        short = f"above the frame: {told if len(outside) < 3 else count}"
        axes.set_title(short, fontsize=8, loc="right", color=LIGHT["quiet"])
    means = ", ".join(f"{row.name} {row.mean_perturbation:.2f}" for row in rows[: len(_STYLES)])
    alt = f"One line for each of {len(rows)} recipes over {len(layers)} layers. Means: {means}."
    return Plot(figure, "Movement of attention's output", caption, alt)


def _plans(results: Results) -> Plot | None:
    """Heatmaps of the best recipes that give heads or layers different budgets."""
    keep = results.middle
    found = []
    for name in results.names():
        row = results.row(name, keep)
        if row is not None and row.plan and len({n for layer in row.plan for n in layer}) > 2:
            found.append(row)
    found = found[:_PLANS]
    if not found:
        return None
    figure, axes = _new(1.9 * len(found) + 1, 4.8, ncols=len(found), squeeze=False, sharey=True)
    most = max(max(map(max, row.plan)) for row in found)
    for one, row in zip(axes[0], found, strict=True):
        plan = np.array(row.plan)
        image = one.imshow(plan, aspect="auto", cmap="viridis", vmin=0, vmax=most)
        name, bracket, rest = row.name.partition("(")
        one.set_title(f"{name}{bracket}\n{rest}".strip().replace(", ", ",\n"), fontsize=8)
        one.set_xlabel("KV head")
        one.set_xticks(range(plan.shape[1]) if plan.shape[1] <= 8 else [0, plan.shape[1] - 1])
    axes[0][0].set_ylabel("layer")
    bar = figure.colorbar(image, ax=axes[0].tolist(), fraction=0.04, pad=0.02)
    bar.set_label(f"entries at keep {percent(keep)}")
    spans = ", ".join(f"{row.name} {np.min(row.plan)} to {np.max(row.plan)}" for row in found)
    return Plot(
        figure,
        "Budgets of layers and heads",
        "Entries kept per (layer, KV head), for the first context.",
        f"One heatmap per recipe, layers by KV heads. Entries per head: {spans}.",
    )
