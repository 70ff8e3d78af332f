"""The plot of ./dev simulate cluster: load and moves by the number of nodes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, Any]

# By placement and division: its name for people, its colour and its marker.
WAYS = {
    ("hashing", "first block"): ("4,096 shards hashed to nodes, no forks", "#57606b", "v"),
    ("hashing", "forks"): ("16,384 shards hashed to nodes, forks", "#d55e00", "s"),
    ("table", "first block"): ("table of owners, no forks", "#009e73", "D"),
    ("table", "forks"): ("table of owners, forks (Precis)", "#0072b2", "o"),
}
PANELS = (
    ("stored_over_share", "stored by the most loaded node, over its share", 1.25, "the mark: 1.25"),
    ("moved_by_join", "shards that a new node moves, in 1/nodes of all", 1.0, "the mark: 1"),
)


def main() -> None:
    """Draws the numbers that the simulation wrote."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("json", type=Path, help="what ./dev simulate cluster --json wrote")
    parser.add_argument("png", type=Path)
    options = parser.parse_args()
    told = json.loads(options.json.read_text())
    rows = [row for row in told["rows"] if row["weights"] == "equal"]

    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5), layout="constrained")
    for axes, (field, title, mark, name) in zip(figure.subplots(1, 2), PANELS, strict=True):
        _panel(axes, rows, field)
        axes.axhline(mark, color="#24292f", linestyle="--", linewidth=1, label=name)
        axes.set_title(title, loc="left")
        axes.text(0.99, mark, name, transform=axes.get_yaxis_transform(), ha="right", va="bottom")
    figure.axes[0].set_yscale("log")
    figure.axes[1].set_ylim(bottom=0)
    lines, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(lines[:-1], names[:-1], loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(
        f"{told['prefixes']:,} prompts of {told['tenants']} tenants, nodes of equal weight"
    )
    figure.savefig(options.png, dpi=110)


def _panel(axes: Axes, rows: list[Row], field: str) -> None:
    for way, (name, colour, marker) in WAYS.items():
        of_way = [row for row in rows if (row["placement"], row["division"]) == way]
        nodes = [row["nodes"] for row in of_way]
        axes.plot(nodes, [row[field] for row in of_way], color=colour, marker=marker, label=name)
    nodes = sorted({row["nodes"] for row in rows})
    axes.set_xscale("log")
    axes.set_xticks(nodes, map(str, nodes))
    axes.minorticks_off()
    axes.set_xlabel("nodes")
    axes.grid(axis="y", color="#e4e7eb", linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


if __name__ == "__main__":
    main()
