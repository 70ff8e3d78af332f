"""Writes the page and the plot of ./dev bench vllm from its JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
from pathlib import Path
from typing import Any

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


def label(row: Row) -> str:
    """The system, and for Precis its budget."""
    keep = row["params"].get("keep")
    return row["params"]["system"] + (f" at {keep}" if keep is not None else "")


def amount(row: Row, value: float) -> str:
    """A value in a readable unit."""
    if row["unit"] == "s":
        return f"{value * 1e6:.0f} us" if value < 1e-3 else f"{value * 1e3:.1f} ms"
    return f"{value:.1f} {row['unit']}"


def markdown(rows: list[Row]) -> str:
    """One table per bench."""
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


def plot(rows: list[Row], path: Path) -> None:
    """Times to the first token over lengths, and bars of the rest."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(15, 4.5), layout="constrained")
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if row["bench"] == "vllm_ttft":
            lines.setdefault(label(row), []).append((row["params"]["tokens"], row["value"]))
    for name, points in lines.items():
        axes[0].plot(*zip(*sorted(points), strict=True), marker="o", label=name)
    axes[0].set(title=TITLES["vllm_ttft"], xlabel="tokens of the document", ylabel="seconds")
    axes[0].set(xscale="log", yscale="log")
    axes[0].legend(fontsize=8)
    for axis, bench in zip(axes[1:], ("vllm_fit", "vllm_turn"), strict=True):
        found = [row for row in rows if row["bench"] == bench]
        axis.barh([label(row) for row in found], [row["value"] for row in found])
        axis.invert_yaxis()
        axis.set(title=TITLES[bench], xlabel=found[0]["unit"] if found else "")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Writes the requested files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path, nargs="+", help="what --json wrote, in parts or whole")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("--png", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    rows = [row for file in arguments.rows for row in json.loads(file.read_text())]
    if arguments.markdown:
        arguments.markdown.write_text(markdown(rows))
    if arguments.png:
        plot(rows, arguments.png)


if __name__ == "__main__":
    main()
