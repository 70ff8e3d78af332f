"""Writes the page and the plot of ./dev bench vllm from its JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import textwrap
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

SHORT = {
    "vllm_ttft": "Time to the first token",
    "vllm_fit": "Conversations in a small pool",
    "vllm_turn": "A turn that comes back",
}
PLOTTED = ("vllm_ttft", "vllm_fit", "vllm_turn")
UNITS = {"s": "seconds"}
# By label: colour and marker, the same in every panel. Precis gets darker with its budget.
INK = {
    "plain, no prefix cache": ("#7a828c", "s"),
    "plain, prefix cache": ("#d55e00", "D"),
    "Precis at 1.0": ("#023858", "o"),
    "Precis at 0.5": ("#0570b0", "o"),
    "Precis at 0.3": ("#3690c0", "o"),
    "Precis at 0.2": ("#74a9cf", "o"),
}
OTHER_INK = ("#009e73", "^")


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


def verdict(rows: list[Row]) -> str:
    """What the rows say, in two or three sentences."""
    told = []
    by_title = {bench: [row for row in rows if row["bench"] == bench] for bench in TITLES}
    faster = [row for row in by_title["vllm_ttft"] if row["mark"] is not None]
    if faster:
        row = max(faster, key=lambda each: each["params"]["tokens"])
        told.append(
            f"The first token after a prefix of {row['params']['tokens']} tokens comes "
            f"{row['share']:.0f} times sooner from {label(row)} than by prefill."
        )
    for row in by_title["vllm_fit"]:
        if row["mark"] is not None:
            told.append(
                f"A small pool holds {row['value']:.0f} conversations with {label(row)}, "
                f"{row['share']:.3g} times as many as without ('{row['ceiling_name']}')."
            )
    marked = [row for row in rows if row["mark"] is not None]
    missed = [
        f"{TITLES[row['bench']].lower()} of {label(row)} ({row['share']:.2f}x of {row['mark']:g}x)"
        for row in marked
        if row["share"] < row["mark"]
    ]
    told.append(f"{len(marked) - len(missed)} of {len(marked)} marks met")
    return " ".join(told) + (f"; not met: {', '.join(missed)}." if missed else ".")


def markdown(rows: list[Row], image: str = "") -> str:
    """One table per bench; `image` is the file of the plot, relative to the page."""
    lines = [
        "# vLLM over Precis, compared with plain vLLM",
        "",
        *textwrap.wrap(verdict(rows), 100),
        "",
        "Medians of requests through the OpenAI API; SmolLM2-135M in float32, blocks of 32.",
        "The factor says how much better a row is than its baseline in the same run.",
        "[bench.py](../../client/engines/vllm/showcase/bench.py) describes each measurement.",
        "",
        f"Measured on: {machine()}.",
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
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    figure = Figure(figsize=(14, 4.4), layout="constrained")
    axes = figure.subplots(1, 3)
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if row["bench"] == "vllm_ttft":
            lines.setdefault(label(row), []).append((row["params"]["tokens"], row["value"]))
    for name, points in lines.items():
        colour, marker = INK.get(name, OTHER_INK)
        axes[0].plot(
            *zip(*sorted(points), strict=True), color=colour, marker=marker, linewidth=2, label=name
        )
    sizes = sorted({tokens for points in lines.values() for tokens, _ in points})
    axes[0].set(xlabel="tokens of the document", ylabel="seconds", xscale="log", yscale="log")
    axes[0].set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes[0].xaxis.minorticks_off()
    axes[0].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes[0].yaxis.set_minor_locator(NullLocator())
    axes[0].yaxis.set_major_formatter("{x:g}")
    axes[0].grid(axis="y", color="#e1e4e8", linewidth=0.8)
    for axis, bench in zip(axes[1:], PLOTTED[1:], strict=True):
        found = [row for row in rows if row["bench"] == bench]
        colours = [INK.get(label(row), OTHER_INK)[0] for row in found]
        values = [row["value"] for row in found]
        bars = axis.barh([label(row) for row in found], values, color=colours, height=0.7)
        whole = all(value == int(value) for value in values)
        axis.bar_label(bars, fmt="%.0f" if whole else "%.2f", padding=4)
        axis.margins(x=0.2)
        axis.invert_yaxis()
        axis.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10], integer=whole))
        axis.set_xlabel(UNITS.get(found[0]["unit"], found[0]["unit"]) if found else "")
    for axis, bench in zip(axes, PLOTTED, strict=True):
        tokens = {row["params"].get("tokens") for row in rows if row["bench"] == bench}
        more = f", {tokens.pop():,} tokens" if len(tokens) == 1 else ""
        axis.set_title(f"{SHORT[bench]}{more}", loc="left", fontsize=11)
        axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=6, frameon=False)
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
