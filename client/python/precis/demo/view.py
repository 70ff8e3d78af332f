"""The demo's output: steps, figures, progress bars on a terminal, words as they come."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

_BAR_CELLS = 30


def size(count: float) -> str:
    """A byte count for people."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def duration(seconds: float) -> str:
    """A duration for people."""
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


class View:
    """Writes to the standard output; without a terminal, only whole lines."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty()
        self._start = time.monotonic()
        self._open = False  # whether the last line is unfinished

    def step(self, text: str) -> None:
        """Prints the heading of a step."""
        self._finish()
        elapsed = time.monotonic() - self._start
        print(f"\n{self._mark(f'[{elapsed:5.1f} s]', 2)} {self._mark(text, 1)}", flush=True)

    def say(self, text: str) -> None:
        """Prints one line of figures."""
        self._finish()
        print(f"    {text}", flush=True)

    def progress(self, label: str, done: int, total: int) -> None:
        """A progress bar; without a terminal only its end is shown."""
        if self._live:
            cells = _BAR_CELLS * done // total
            bar = "#" * cells + "." * (_BAR_CELLS - cells)
            print(f"\r    {label} [{bar}] {done}/{total}", end="", flush=True)
            self._open = True
        if done == total:
            if self._live:
                self._finish()
            else:
                self.say(f"{label} {done}/{total}")

    def begin_words(self, text: str) -> None:
        """Prints the beginning of a line that continues word by word."""
        self._finish()
        print(f"    {text}", end="", flush=True)
        self._open = True

    def word(self, text: str) -> None:
        """Prints the next word of the line."""
        print(text.replace("\n", " "), end="", flush=True)

    def end_words(self, text: str) -> None:
        """Ends the line."""
        print(f"   {text}", flush=True)
        self._open = False

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Prints a table with columns as wide as they need to be."""
        self._finish()
        widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
        for row in [header, ["-" * width for width in widths], *rows]:
            print("    " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)))
        sys.stdout.flush()

    def _finish(self) -> None:
        if self._open:
            print(flush=True)
            self._open = False

    def _mark(self, text: str, style: int) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._live else text
