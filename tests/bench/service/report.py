"""./dev bench and ./dev bench store: runs a program that measures, and shows its results.

Every figure is shown with its ceiling, measured in the same run. Each of several rounds measures
the ceiling and directly after it the figure, because the speed of a shared host changes by the
minute. Everything is measured in several passes of some rounds each. value and ceiling are the
medians of all rounds; share is the median of the rounds' shares (value over ceiling for rates,
ceiling over value for times). A figure that could not be measured is shown with the reason, and its
mark counts as not met.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import beside_peers
import marks
import rates_plot
import reference
import rounds

Row = dict[str, Any]

PASSES = 3


def run_program(command: list[str]) -> tuple[list[Row], int]:
    """Runs the command; returns one row for each line of its output, and its exit status. Its
    progress goes to the terminal. If the program dies, its unfinished last line is dropped."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    whole = [line for line in done.stdout.splitlines(keepends=True) if line.endswith("\n")]
    return [json.loads(line) for line in whole], done.returncode


def measure(command: list[str], passes: int, peers: bool) -> tuple[list[Row], int]:
    """The figures of `passes` passes, and the first exit status that is not 0."""
    measured, failed = [], 0
    for number in range(1, passes + 1):
        if passes > 1:
            print(f"pass {number} of {passes}", file=sys.stderr)
        rows, status = run_program(command)
        failed = failed or status
        if peers:
            rows += beside_peers.measure(list(rounds.of_pass(rows).values()))
        measured.append(rows)
    rows = [rounds.summed(row) for row in rounds.joined(measured)]
    if not rows:
        sys.exit(failed or "nothing was measured; --only names parts, see ./dev bench --help")
    return rows + reference.measure(rows), failed


def machine() -> str:
    """A description of this machine."""
    cpu = re.search(
        r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    linux = ".".join(platform.release().split(".")[:2])
    name = cpu[1] if cpu else platform.machine()
    return f"{name}, {os.cpu_count()} cores, {memory / 2**30:.0f} GiB, Linux {linux}"


# ---- tables --------------------------------------------------------------------------------------

HEADER = ["bench", "of", "value", "min - max", "ceiling", "ceiling is", "share", "marks"]


def amount(value: float, unit: str) -> str:
    """A figure with its unit, for people."""
    if unit == "s":
        for scale, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
            if value >= scale:
                return f"{value / scale:.{0 if name == 'us' else 2}f} {name}"
    return f"{value:.2f} {unit}"


def size_text(size: int) -> str:
    """For example "1 MiB"."""
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def params_text(params: dict[str, Any]) -> str:
    """The parameters that distinguish a row from others of its figure."""
    told = []
    for name in ("transport", "peer", "recipe", "durability", "placement", "quantile"):
        if name in params:
            told.append(str(params[name]))
    if "bytes" in params:
        told.append(size_text(params["bytes"]))
    if "clients" in params:
        told.append(f"{params['clients']} client" + ("s" if params["clients"] > 1 else ""))
    if "transfers" in params:
        told.append(f"{params['path']} path, transfers: {params['transfers']}")
    if "head_records" in params:
        within = f" in {params['segments']:,} segments" if "segments" in params else ""
        told.append(f"{params['head_records']:,} head records{within}")
    return ", ".join(told)


def cells(row: Row) -> list[str]:
    """One line of the table."""
    of = params_text(row["params"])
    if "value" not in row:
        return [row["bench"], of, "-", "-", "-", "-", "-", marks.verdict(row)]
    unit = row["unit"]
    found = [amount(row[name], unit) for name in ("value", "min", "max")]
    told = [row["bench"], of, found[0], f"{found[1]} - {found[2]}"]
    if "ceiling" not in row:
        return [*told, "-", "-", "-", marks.verdict(row)]
    share = f"{row['share']:.0%}"
    return [*told, amount(row["ceiling"], unit), row["ceiling_name"], share, marks.verdict(row)]


def summary(rows: list[Row]) -> str:
    """The number of marks met, of all marks. A mark that was not measured is not met."""
    marked = [row for row in rows if row["mark"] is not None]
    told = f"{sum(row['met'] is True for row in marked)} of {len(marked)} marks met"
    unknown = sum(row["met"] is None for row in marked)
    return told + (f", {unknown} not measured" if unknown else "")


def print_table(rows: list[Row]) -> None:
    """Prints the table for a terminal."""
    lines = [HEADER, *map(cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    print()
    for line in lines:
        print("  ".join(text.ljust(w) for text, w in zip(line, widths, strict=True)).rstrip())
    print(f"\n{summary(rows)}")


def paragraph(text: str) -> str:
    """A paragraph of the page, wrapped as its other paragraphs are."""
    return textwrap.fill(text, 110, break_long_words=False, break_on_hyphens=False) + "\n"


def markdown(rows: list[Row], image: str = "") -> str:
    """The results page that is committed; `image` is the file of the plot, relative to the page."""
    runs = sorted({row["runs"] for row in rows if "ceiling" in row}) or [0]
    passes = max(row.get("passes", 1) for row in rows)
    parts = [
        "# put, get, lookup, commit and restart beside this machine's ceilings\n",
        paragraph(
            f"{summary(rows)}; [service-marks.md](service-marks.md) names those that are not, and "
            "what would change that."
        ),
        paragraph(
            f"Medians of {' or '.join(map(str, runs))} rounds, taken in "
            f"{passes} pass{'' if passes == 1 else 'es'} over all figures. In each round, the "
            "ceiling was measured right before the figure. The share is the median of the rounds' "
            "shares. The rounds of a peer come later than ours, so beside a peer, the share is "
            "that of the medians. Of an even number of rounds, the less favourable of the two "
            "middle ones counts. [plan.h](../../tests/bench/service/plan.h) describes each "
            "measurement."
        ),
        *(
            f"Measured on: {text}.\n"
            for text in sorted({row.get("machine", "") for row in rows} - {""})
        ),
    ]
    if image:
        parts.append(f"![{rates_plot.alt_text(rows)}]({image})\n")
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(marks.title(row["bench"]), []).append(row)
    for title, group in groups.items():
        parts.append(f"## {title}\n")
        if title in marks.NOTES:
            parts.append(paragraph(marks.NOTES[title]))
        parts.append("| " + " | ".join(HEADER) + " |")
        parts.append("| --- | --- | ---: | ---: | ---: | --- | ---: | --- |")
        parts += ["| " + " | ".join(cells(row)) + " |" for row in group]
        parts.append("")
    return "\n".join(parts)


# ---- the command line ----------------------------------------------------------------------------


def positive(text: str) -> int:
    """Parses a number of passes; at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def parser() -> argparse.ArgumentParser:
    """The parser of our own options; main() passes all other arguments to the program."""
    made = argparse.ArgumentParser(
        prog="./dev bench", description=__doc__, allow_abbrev=False, add_help=False
    )
    add = made.add_argument
    add("--program", required=True)
    add("--json", type=Path)
    add("--markdown", type=Path)
    add("--png", type=Path)
    add("--peers", action="store_true")
    add("--passes", type=positive)
    add("--load", type=Path)
    return made


def main() -> None:
    """Measures or loads rows, then shows them."""
    options, passed_on = parser().parse_known_args()
    failed = 0
    if options.load:
        rows = json.loads(options.load.read_text(encoding="utf-8"))
    else:
        passes = options.passes or (1 if "--quick" in passed_on else PASSES)
        rows, failed = measure([options.program, *passed_on], passes, options.peers)
        for row in rows:
            row |= {"machine": machine(), "passes": passes}
    marks.judge(rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print_table(rows)
    if options.png and not rates_plot.panels(rows):
        sys.exit("nothing to plot: put, get_hot and get_cold were not measured")
    if options.markdown:
        image = os.path.relpath(options.png, options.markdown.parent) if options.png else ""
        options.markdown.write_text(markdown(rows, image), encoding="utf-8")
    if options.png:
        rates_plot.plot(rows).savefig(options.png, dpi=120)
    sys.exit(failed)


if __name__ == "__main__":
    main()
