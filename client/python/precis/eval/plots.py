"""Plots of the results."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .results import Results, Row
from .table import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours that people with colour blindness can tell apart (Okabe and Ito), for the first recipes;
# the others are grey.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_GREY = "#c4c4c4"
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


def draw(results: Results) -> dict[str, Figure]:
    """Every plot by its name, except plots without data."""
    require()
    made = {
        "nll": _against_bytes(results, "NLL of the answers", lambda row: row.mean_nll),
        "accuracy": _against_bytes(results, "share of right answers", lambda row: row.accuracy),
        "perturbation": _perturbation(results),
        "plans": _plans(results),
    }
    return {name: figure for name, figure in made.items() if figure is not None}


CAPTIONS = {
    "nll": "Negative log-likelihood of the answers against stored bytes; lower is better. The "
    "dashed line is the full cache.",
    "accuracy": "Share of right answers against stored bytes. The dashed line is the full cache.",
    "perturbation": "Relative L2 distance between attention's output over the kept entries and "
    "over the full cache, per layer, for queries of a continuation.",
    "plans": "Entries kept per (layer, KV head), for the first context.",
}


def save(figures: dict[str, Figure], folder: Path) -> None:
    """Saves one PNG per figure; makes the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.png", dpi=150, bbox_inches="tight")


def data_url(figure: Figure) -> str:
    """The figure as SVG in a data URL, to embed in a page."""
    import matplotlib

    out = io.StringIO()
    # Text stays text, which is smaller and accessible. The fixed salt makes equal plots equal
    # files.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "precis"}):
        figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(out.getvalue().encode()).decode()


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
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.6)
    axes.set_axisbelow(True)


def _against_bytes(results: Results, label: str, value: object) -> Figure | None:
    names = [name for name in results.names() if _rows(results, name)]
    if not names:
        return None
    figure, axes = _new(8, 4.6)
    for i, name in reversed(list(enumerate(names))):
        rows = _rows(results, name)
        shares = [100 * row.bytes / results.original_bytes for row in rows]
        style = (
            {"color": _COLOURS[i], "linewidth": 1.8, "label": name, "zorder": 3}
            if i < len(_COLOURS)
            else {"color": _GREY, "linewidth": 0.9, "zorder": 1}
        )
        axes.plot(shares, [value(row) for row in rows], marker="o", markersize=4, **style)
    axes.axhline(value(results.full), color="#555555", linestyle="--", linewidth=1)
    axes.set_xlabel("stored bytes, % of K and V uncompressed")
    axes.set_ylabel(label)
    _tidy(axes)
    handles, texts = axes.get_legend_handles_labels()
    others = len(names) - len(texts)
    title = f"best at {percent(_middle(results))}" + (f", {others} others grey" if others else "")
    axes.legend(
        handles[::-1], texts[::-1], title=title, frameon=False, loc="center left",
        bbox_to_anchor=(1.01, 0.5), fontsize=9, title_fontsize=9,
    )  # fmt: skip
    return figure


def _middle(results: Results) -> float:
    return results.keeps[len(results.keeps) // 2]


def _perturbation(results: Results) -> Figure | None:
    keep = _middle(results)
    rows = [row for name in results.names() if (row := results.row(name, keep)) and not row.failed]
    if not rows:
        return None
    figure, axes = _new(8, 4.2)
    for i, row in reversed(list(enumerate(rows))):
        style = (
            {"color": _COLOURS[i], "linewidth": 1.6, "label": row.name, "zorder": 3}
            if i < len(_COLOURS)
            else {"color": _GREY, "linewidth": 0.8, "zorder": 1}
        )
        axes.plot(range(len(row.perturbation)), row.perturbation, **style)
    axes.set_xlabel("layer")
    axes.set_ylabel(f"relative L2 at keep {percent(keep)}")
    axes.set_ylim(bottom=0)
    axes.xaxis.get_major_locator().set_params(integer=True)
    _tidy(axes)
    handles, texts = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1], texts[::-1], frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5),
        fontsize=9,
    )  # fmt: skip
    return figure


def _plans(results: Results) -> Figure | None:
    """Heatmaps of the best recipes that give heads or layers different budgets."""
    keep = _middle(results)
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
    return figure
