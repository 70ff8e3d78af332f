"""Writes the page and the plot of ./dev bench vllm from its JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]
TITLES = {
    "vllm_ttft": "Time to the first token",
    "vllm_bytes": "Bytes fetched for the prefix",
    "vllm_decode": "Output tokens a second",
    "vllm_fit": "Conversations that a small pool holds at a time",
    "vllm_fit_time": "Time until all of these conversations were answered",
    "vllm_turn": "A turn of a conversation that comes back",
    "vllm_attention": "One attention call, eight requests",
    "vllm_step_p99": "Time of a lookup in the scheduler while the service is stopped",
}

PLOTTED = ("vllm_ttft", "vllm_fit", "vllm_turn")
UNITS = {"s": "seconds"}


def label(row: Row) -> str:
    """The system, and for Precis its budget."""
    keep = row["params"].get("keep")
    return row["params"]["system"] + (f" at {keep}" if keep is not None else "")


def amount(row: Row, value: float) -> str:
    """A value in a readable unit."""
    if row["unit"] == "s":
        return f"{value * 1e6:.0f} us" if value < 1e-3 else f"{value * 1e3:.1f} ms"
    return f"{value:.1f} {row['unit']}"


def alt_text(rows: list[Row]) -> str:
    """A description of the plot for readers who do not see it."""
    told = []
    for bench in PLOTTED:
        found = [row for row in rows if row["bench"] == bench]
        most = max((row["params"].get("tokens", 0) for row in found), default=0)
        values = [
            f"{label(row)} {amount(row, row['value'])}"
            for row in found
            if row["params"].get("tokens", 0) == most
        ]
        told.append(f"{TITLES[bench]}{f', {most} tokens' if most else ''}: {'; '.join(values)}.")
    return " ".join(told)


def markdown(rows: list[Row], image: str = "") -> str:
    """One table per bench; `image` is the file of the plot, relative to the page."""
    marked = [row for row in rows if row["mark"] is not None]
    met = sum(row["share"] >= row["mark"] for row in marked)
    lines = [
        "# vLLM over Precis, compared with plain vLLM",
        "",
        "Medians of requests through the OpenAI API; SmolLM2-135M in float32, blocks of 32.",
        "The factor says how much better a row is than its baseline in the same run.",
        "[bench.py](../../client/engines/vllm/showcase/bench.py) describes each measurement.",
        "",
        f"{met} of {len(marked)} marks met. Measured on: {machine()}.",
        "",
        "Two other ways to keep KV do not run on vLLM's CPU backend. vLLM 0.32 does not start with",
        "its own OffloadingConnector. LMCache 0.5.6 was tried by hand on 2026-11-26: it starts,",
        "but has no connector for CPU tensors, so every prompt is computed again.",
    ]
    if image:
        lines += ["", f"![{alt_text(rows)}]({image})"]
    for bench, title in TITLES.items():
        found = [row for row in rows if row["bench"] == bench]
        if not found:
            continue
        lines += [
            "",
            f"## {title}",
            "",
            "| system | of | value | min - max | factor | baseline | mark |",
        ]
        lines.append("| --- | --- | ---: | ---: | ---: | --- | --- |")
        for row in found:
            of = ", ".join(
                f"{value} {name}"
                for name, value in row["params"].items()
                if name not in ("system", "keep")
            )
            share = "" if row["share"] is None else f"{row['share']:.2f}x"
            mark = ""
            if row["mark"] is not None:
                word = "met" if row["share"] >= row["mark"] else "not met"
                mark = f"{row['mark']:g}x: {word}"
            span = f"{amount(row, row['min'])} - {amount(row, row['max'])}"
            lines.append(
                f"| {label(row)} | {of} | {amount(row, row['value'])} | {span} | {share} | "
                f"{row['ceiling_name'] or ''} | {mark} |"
            )
    return "\n".join(lines) + "\n"


def machine() -> str:
    """The machine's processor and cores."""
    names = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores"


def plot(rows: list[Row]) -> Figure:
    """Times to the first token over lengths, and bars of the rest."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(16, 4.5), layout="constrained")
    axes = figure.subplots(1, 3)
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if row["bench"] == "vllm_ttft":
            lines.setdefault(label(row), []).append((row["params"]["tokens"], row["value"]))
    for name, points in lines.items():
        axes[0].plot(*zip(*sorted(points), strict=True), marker="o", label=name)
    sizes = sorted({tokens for points in lines.values() for tokens, _ in points})
    axes[0].set(xlabel="tokens of the document", ylabel="seconds", xscale="log", yscale="log")
    axes[0].set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes[0].xaxis.minorticks_off()
    axes[0].yaxis.set_major_formatter("{x:g}")
    axes[0].legend(fontsize=8)
    for axis, bench in zip(axes[1:], PLOTTED[1:], strict=True):
        found = [row for row in rows if row["bench"] == bench]
        bars = axis.barh([label(row) for row in found], [row["value"] for row in found])
        axis.bar_label(bars, fmt="%.3g", padding=3, fontsize=9)
        axis.margins(x=0.1)
        axis.invert_yaxis()
        axis.set_xlabel(UNITS.get(found[0]["unit"], found[0]["unit"]) if found else "")
    for axis, bench in zip(axes, PLOTTED, strict=True):
        axis.set_title(TITLES[bench], loc="left", fontsize=11)
        axis.spines[["top", "right"]].set_visible(False)
    return figure


def main() -> None:
    """Writes the requested files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path, nargs="+", help="what --json wrote, in parts or whole")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("--png", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    rows = [row for file in arguments.rows for row in json.loads(file.read_text())]
    if arguments.markdown:
        page = arguments.markdown
        image = os.path.relpath(arguments.png, page.parent) if arguments.png else ""
        page.write_text(markdown(rows, image))
    if arguments.png:
        plot(rows).savefig(arguments.png, dpi=110)


if __name__ == "__main__":
    main()
