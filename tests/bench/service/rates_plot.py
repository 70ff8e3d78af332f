"""The plot of ./dev bench: rates and their ceilings by payload size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]

# By bench: its name for people, its colour and its marker.
BENCHES = {
    "put": ("put", "#0072b2", "o"),
    "get_hot": ("get from memory", "#d55e00", "s"),
    "get_cold": ("get from disk", "#009e73", "D"),
}
TRANSPORTS = {"shm": "shared memory", "tcp": "TCP", "rdma": "RDMA"}


def panels(rows: list[Row]) -> dict[tuple[str, int], list[Row]]:
    """The rows to plot by transport and number of clients, if a row of theirs was measured."""
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        params = row["params"]
        if row["bench"] in BENCHES and "bytes" in params:
            found.setdefault((params["transport"], params["clients"]), []).append(row)
    return {key: of for key, of in sorted(found.items()) if any("value" in row for row in of)}


def title(transport: str, clients: int) -> str:
    """The title of a panel."""
    return f"{TRANSPORTS.get(transport, transport)}, {clients} client" + "s" * (clients > 1)


def alt_text(rows: list[Row]) -> str:
    """A description for readers who do not see the plot: the best rate of each line."""
    told = []
    for key, of_panel in panels(rows).items():
        best = [
            f"{name} up to {max(values):.1f}"
            for bench, (name, _, _) in BENCHES.items()
            if (values := [row["value"] for row in _measured(of_panel, bench)])
        ]
        told.append(f"{title(*key)}: {', '.join(best)}")
    return f"Rates by payload size in GB/s. {'; '.join(told)}."


def plot(rows: list[Row]) -> Figure:
    """One row of panels per transport, with an axis of its own, and a column per client count."""
    from matplotlib.figure import Figure

    found = panels(rows)
    transports = list(dict.fromkeys(transport for transport, _ in found))
    counts = sorted({clients for _, clients in found})
    figure = Figure(figsize=(1 + 5 * len(counts), 1 + 3.6 * len(transports)), layout="constrained")
    grid = figure.subplots(len(transports), len(counts), sharex=True, sharey="row", squeeze=False)
    for transport, line in zip(transports, grid, strict=True):
        for clients, axes in zip(counts, line, strict=True):
            if (transport, clients) in found:
                _panel(axes, found[transport, clients], title(transport, clients))
            else:
                axes.set_visible(False)
        line[0].set_ylabel("GB/s")
        line[0].set_ylim(bottom=0)  # after all plots, because it stops autoscaling
    sizes = sorted({row["params"]["bytes"] >> 20 for of in found.values() for row in of})
    shown = {}
    for axes in grid.flat:
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, map(str, sizes))
        axes.tick_params(labelleft=True, labelbottom=True)
        axes.set_xlabel("MiB of K and V")
        shown |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def _measured(rows: list[Row], bench: str) -> list[Row]:
    found = [row for row in rows if row["bench"] == bench and "value" in row]
    return sorted(found, key=lambda row: row["params"]["bytes"])


def _panel(axes: Axes, rows: list[Row], name: str) -> None:
    for bench, (label, colour, marker) in BENCHES.items():
        of_bench = _measured(rows, bench)
        sizes = [row["params"]["bytes"] / 2**20 for row in of_bench]
        for field, told, style in (
            ("value", label, {"marker": marker, "markersize": 5}),
            ("ceiling", f"ceiling of {label}", {"linestyle": "--", "linewidth": 1.1}),
        ):
            if of_bench:
                values = [row[field] for row in of_bench]
                axes.plot(sizes, values, color=colour, label=told, **style)
    missing = sorted({row["params"]["bytes"] >> 20 for row in rows if "value" not in row})
    what = "; ".join(dict.fromkeys(row["ceiling_name"] for row in rows if "value" in row))
    told = f"ceiling: {what}"
    if missing:
        told += f"\nnot measured: {', '.join(map(str, missing))} MiB"
    axes.set_title(name, loc="left", pad=28 if missing else 17)
    axes.text(0, 1.02, told, transform=axes.transAxes, fontsize=8, color="#57606b")
    axes.grid(axis="y", color="#e4e7eb", linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
