"""./dev bench kernels: runs precis_bench_kernels and torch, and shows the results.

Every figure is shown with its ceiling, measured in the same run. The ceilings are: this machine's
read rate for bytes that must be read; memcpy's rate for bytes that must be copied; the rate of the
library behind torch for products, on the stage's own shape (on any shape, if a stage has several);
and NumPy's partition and sort for ordering the best entries. The share is the time that the binding
ceiling alone would take, relative to the stage's time.

Shares and comparisons with another row or with kvpress use the fastest run of each, because a
machine on a shared host loses time at random; ms is the median. Everything is measured in several
rounds, ceilings and stages, and the best round of each counts.

A stage may do more work than its binding ceiling covers. The column "in all" shows the share of
everything that the stage does: reading K again if a second pass must wait for the end of the first;
computing products again if the first ones are not kept (they are as large as K, and the workspace
is 5% of that); and the powers of two of softmax. Each is taken at the rate measured in the same
run. Products are taken at the tile unit's rate in cache, which is far above the library's on thin
shapes, because the library must write its products. Reading and computing may overlap.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from marks import RATES, UNITS, finish, verdicts
from roofline import alt_text, roofline


def run_program(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Runs precis_bench_kernels; each line of its output is a row."""
    command = [options.program, "--backend", options.backend, "--keep", str(options.keep)]
    for name, values in (("--model", options.model), ("--tokens", options.tokens)):
        for value in values:
            command += [name, str(value)]
    for name in ("rounds", "runs", "seconds"):
        command += [f"--{name}", str(getattr(options, name))]
    if options.only:
        command += ["--only", options.only]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)
    return best_rounds([json.loads(line) for line in done.stdout.splitlines()])


def best_rounds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each name, model, length and backend, the row with the fastest run."""
    best: dict[tuple[str, int, str, str], dict[str, Any]] = {}

    def taken(row: dict[str, Any]) -> float:
        return float(row["min"]) if "min" in row else 1 / row["flop_rate"]

    for row in rows:
        key = (row["model"], row["tokens"], row["backend"], row["name"])
        if key not in best or taken(row) < taken(best[key]):
            best[key] = row
    return list(best.values())


def add_torch(rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """Adds the ceilings of products and kvpress's times, as separate rows."""
    import torch_side

    device = "cuda" if options.backend.startswith("cuda") else "cpu"
    for model, tokens in sorted({(row["model"], row["tokens"]) for row in rows}):
        shape = torch_side.SHAPES[model]
        beside = next(row["backend"] for row in rows if row["model"] == model)
        base = {"model": model, "tokens": tokens, "backend": beside, "library": "torch"}
        rates = torch_side.product_rates(shape, tokens, device, options.runs)
        for kind, rate in rates.items():
            rows.append({**base, "name": f"ceiling {kind}", "kind": "ceiling", "flop_rate": rate})
        if device == "cpu":
            order = torch_side.order_seconds(shape, tokens, options.keep, options.runs)
            rows.append({**base, "name": "ceiling order", "kind": "ceiling", "min": order})
            padded = torch_side.padded_attention_seconds(shape, tokens, options.runs)
            peer = {"name": "torch attention", "kind": "kvpress", "preset": "ragged", "min": padded}
            rows.append({**base, **peer})
        if not options.kvpress:
            continue
        for preset, dtype, taken in torch_side.press_times(
            shape, tokens, device, options.keep, options.runs, re.compile(options.only or ".*")
        ):
            print(f"kvpress beside {preset}, {dtype}, {tokens} tokens", file=sys.stderr)
            rows.append(
                {
                    **base,
                    "name": f"kvpress {preset}",
                    "kind": "kvpress",
                    "preset": preset,
                    "dtype": dtype,
                    "min": taken,
                }
            )


HEADER = ["stage", "tokens", "ms", "GB/s", "bound by", "share", "in all", "kvpress", "marks"]


def cells(row: dict[str, Any]) -> list[str]:
    """One line of the table."""
    moved = (row["read_bytes"] + row["copied_bytes"]) / row["seconds"] / 1e9
    faster = row.get("times_faster")
    return [
        row["name"],
        str(row["tokens"]),
        f"{1e3 * row['seconds']:.2f}",
        f"{moved:.1f}" if moved else "-",
        row.get("bound", "-"),
        f"{row['share']:.0%}" if "share" in row else "-",
        f"{row['share_in_all']:.0%}" if "share_in_all" in row else "-",
        f"{faster:.1f}x" if faster else "-",
        "; ".join(verdicts(row)),
    ]


def ceiling_lines(rows: list[dict[str, Any]], model: str, backend: str) -> list[str]:
    """The ceilings of a model on a backend, one line per length."""
    lines = []
    ours = [row for row in rows if (row["model"], row["backend"]) == (model, backend)]
    for tokens in sorted({row["tokens"] for row in ours}):
        best: dict[str, float] = {}
        for row in ours:
            if row["kind"] != "ceiling" or row["tokens"] != tokens:
                continue
            name = row["name"].removeprefix("ceiling ")
            if "flop_rate" in row:
                best[f"{name} products {{:.0f}} GFLOP/s"] = row["flop_rate"] / 1e9
                continue
            if name == "order":
                best["order {:.2f} ms"] = 1e3 * row["min"]
                continue
            text = f"{name} {{:.1f}} {UNITS.get(name, 'GB/s')}"
            best[text] = row[RATES[row["name"]][1]] / row["min"] / 1e9
        told = ", ".join(text.format(rate) for text, rate in best.items())
        lines.append(f"ceilings at {tokens} tokens: {told}")
    return lines


def tables(rows: list[dict[str, Any]]) -> list[tuple[str, list[str], list[list[str]]]]:
    """For every model and backend: title, ceilings, lines."""
    made = []
    shown = [row for row in rows if row["kind"] not in ("ceiling", "kvpress")]
    for model, backend in sorted({(row["model"], row["backend"]) for row in shown}):
        lines = [cells(row) for row in shown if (row["model"], row["backend"]) == (model, backend)]
        made.append(
            (f"{model}, one layer, bf16, {backend}", ceiling_lines(rows, model, backend), lines)
        )
    return made


def growth(rows: list[dict[str, Any]]) -> list[tuple[str, list[str], list[list[str]]]]:
    """For every model measured at three lengths or more: nanoseconds a token of its presets."""
    made = []
    shown = [row for row in rows if row["kind"] == "preset"]
    for model, backend in sorted({(row["model"], row["backend"]) for row in shown}):
        of_model = [row for row in shown if (row["model"], row["backend"]) == (model, backend)]
        lengths = sorted({row["tokens"] for row in of_model})
        if len(lengths) < 3:
            continue
        lines = []
        for name in dict.fromkeys(row["name"] for row in of_model):
            taken = {row["tokens"]: row["min"] for row in of_model if row["name"] == name}
            cells_of = [f"{1e9 * taken[n] / n:.1f}" if n in taken else "-" for n in lengths]
            lines.append([name, *cells_of])
        header = ["ns a token", *(f"{n} tokens" for n in lengths)]
        made.append((f"{model}, {backend}: how cost grows with length", header, lines))
    return made


def print_tables(rows: list[dict[str, Any]]) -> None:
    """Prints the tables for a terminal."""
    for title, ceilings, lines in tables(rows):
        widths = [max(map(len, column)) for column in zip(HEADER, *lines, strict=True)]
        print(f"\n{title}")
        print("\n".join(ceilings))
        for line in [HEADER, *lines]:
            print("  ".join(text.ljust(w) for text, w in zip(line, widths, strict=True)).rstrip())
    for title, header, lines in growth(rows):
        print(f"\n{title}")
        for line in [header, *lines]:
            print("".join(text.ljust(45 if i == 0 else 16) for i, text in enumerate(line)).rstrip())


def summary(rows: list[dict[str, Any]]) -> str:
    """A summary of the rows, in one or two sentences."""
    told = [verdict.startswith("met") for row in rows for verdict in verdicts(row)]
    faster = [row["times_faster"] for row in rows if row.get("times_faster")]
    beside = (
        f" A preset is {min(faster):.1f} to {max(faster):.0f} times as fast as kvpress' code."
        if faster
        else ""
    )
    return f"{sum(told)} of {len(told)} marks met.{beside}"


def markdown(rows: list[dict[str, Any]], image: str = "") -> str:
    """The page that is committed; `image` is the file of the plot, relative to the page."""
    parts = [
        "# Kernels compared with this machine's ceilings\n",
        f"{summary(rows)}\n",
        "Times and GB/s are medians; shares and marks compare the fastest runs. The share is the\n"
        "time that the ceiling alone needs, divided by the time of the stage.\n",
    ]
    if image:
        parts.append(f"![{alt_text(rows)}]({image})\n")
    for title, ceilings, lines in tables(rows):
        parts.append(f"## {title}\n")
        parts += [f"- {line}" for line in ceilings]
        parts.append("\n| " + " | ".join(HEADER) + " |")
        parts.append("| --- |" + " ---: |" * 3 + " --- |" + " ---: |" * 3 + " --- |")
        parts += ["| " + " | ".join(line) + " |" for line in lines]
        parts.append("")
    for title, header, lines in growth(rows):
        parts.append(f"## {title}\n")
        parts.append("| " + " | ".join(header) + " |")
        parts.append("| --- |" + " ---: |" * (len(header) - 1))
        parts += ["| " + " | ".join(line) + " |" for line in lines]
        parts.append("")
    return "\n".join(parts)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="./dev bench kernels", description=__doc__)
    add = made.add_argument
    add("--program", required=True, help=argparse.SUPPRESS)
    add(
        "--model",
        action="append",
        help="llama-3.1-8b, smollm2-135m, one-head-group [the first two]; may be repeated",
    )
    add("--tokens", action="append", type=int, help="[4096, 32768, 131072]; may be repeated")
    add("--backend", default="cpu", help="cpu or cuda:N [cpu]")
    add("--keep", type=float, default=0.2, help="share of the entries that is kept [0.2]")
    add("--only", help="rows whose name matches this regular expression")
    add("--rounds", type=int, default=2, help="how often all is measured [2]")
    add("--runs", type=int, default=7, help="runs per figure and round at least [7]")
    add("--seconds", type=float, default=0.3, help="and for as long at least [0.3]")
    add("--no-kvpress", dest="kvpress", action="store_false", help="leave kvpress out")
    add(
        "--with",
        dest="earlier",
        action="append",
        type=Path,
        metavar="FILE",
        help="rows of an earlier run's --json, shown and written too; may be repeated",
    )
    add(
        "--load",
        type=Path,
        metavar="FILE",
        help="shows the rows of an earlier run's --json, and runs nothing",
    )
    add("--json", type=Path, metavar="FILE", help="writes the rows")
    add("--markdown", type=Path, metavar="FILE", help="writes the tables")
    add("--png", type=Path, metavar="FILE", help="writes the roofline plot")
    return made


def main() -> None:
    """Measures, then shows the results."""
    options = parser().parse_args()
    options.model = options.model or ["llama-3.1-8b", "smollm2-135m"]
    options.tokens = options.tokens or [4096, 32768, 131072]
    if options.load:
        rows = json.loads(options.load.read_text(encoding="utf-8"))
    else:
        rows = run_program(options)
        add_torch(rows, options)
        finish(rows)
    for file in options.earlier or []:
        rows += json.loads(file.read_text(encoding="utf-8"))
    rows = best_rounds(rows)
    print_tables(rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if options.markdown:
        image = os.path.relpath(options.png, options.markdown.parent) if options.png else ""
        options.markdown.write_text(markdown(rows, image), encoding="utf-8")
    if options.png:
        roofline(rows).savefig(options.png, dpi=120, bbox_inches="tight")


if __name__ == "__main__":
    main()
