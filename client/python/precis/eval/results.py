"""The results of an evaluation, as figures and as JSON."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from precis import files

FORMAT = 1


@dataclass
class Row:
    """One recipe, or one press of kvpress, at one budget.

    Attributes:
        name: as the user gave it. beside: for a press, the preset that it is compared with.
        keep: share of the entries.
        right, nll: whether each question was answered right, and the NLL of its answer, in the
            order of Results.full.
        perturbation: relative L2 of each layer's output, mean over contexts; None for a press.
        head_perturbation: L1 distance by [layer, query head]; None for a press.
        bytes: stored bytes of the first context, with positions, seats and scores; None for a
            press.
        compress_seconds: from scoring to encoding at the largest budget, median over contexts; for
            a press, its time at this budget.
        model_seconds: the model's time for the scorer's inputs, median over contexts.
        plan: entries per [layer, KV head] of the first context; None for a press.
        failed: why there is no result, or None.
    """

    name: str
    keep: float
    source: str = "precis"
    beside: str | None = None
    right: list[bool] = field(default_factory=list)
    nll: list[float] = field(default_factory=list)
    perturbation: list[float] | None = None
    head_perturbation: list[list[float]] | None = None
    bytes: int | None = None
    compress_seconds: float = 0.0
    model_seconds: float = 0.0
    plan: list[list[int]] | None = None
    failed: str | None = None

    @property
    def accuracy(self) -> float:
        """The share of questions with the right answer."""
        return sum(self.right) / len(self.right) if self.right else math.nan

    @property
    def mean_nll(self) -> float:
        """The mean over questions of the answers' mean negative log-likelihood."""
        return statistics.fmean(self.nll) if self.nll else math.nan

    @property
    def mean_perturbation(self) -> float:
        """The mean of `perturbation` over layers."""
        return statistics.fmean(self.perturbation) if self.perturbation else math.nan


@dataclass
class Results:
    """A whole evaluation.

    Attributes:
        model: its name, revision and shape.
        settings: everything needed to repeat it, with seeds and texts.
        full: the row of the full cache, keep 1.
        rows: every recipe and press at every budget.
        prefill_seconds: the model's time to read a context, median over contexts.
        original_bytes: size of K and V of the first context, uncompressed.
        notes: remarks for readers.
    """

    model: dict[str, Any]
    settings: dict[str, Any]
    full: Row
    rows: list[Row]
    prefill_seconds: float
    original_bytes: int
    notes: list[str] = field(default_factory=list)

    def losses(self, row: Row, other: Row | None = None) -> list[float]:
        """How much higher the row's mean NLL is than another's in each context.

        Args:
            other: by default the full cache.
        """
        per_context = self.settings["questions_per_context"]
        base = self.full if other is None else other
        differences = [a - b for a, b in zip(row.nll, base.nll, strict=True)]
        return [
            statistics.fmean(differences[i : i + per_context])
            for i in range(0, len(differences), per_context)
        ]

    def delta(self, row: Row, other: Row | None = None) -> tuple[float, float]:
        """How much higher the row's mean NLL is than another's, and the standard error.

        Questions of one context are not independent, so the error is computed over contexts.

        Args:
            other: by default the full cache.
        """
        means = self.losses(row, other)
        if not means:
            return math.nan, math.nan
        error = statistics.stdev(means) / math.sqrt(len(means)) if len(means) > 1 else math.nan
        return statistics.fmean(means), error

    def _setting(self, name: str) -> Any:
        """A setting; older files lack those below and have these values."""
        return self.settings.get(
            name, {"task": "codes", "of_bytes": False, "aware": False}.get(name)
        )

    @property
    def unit(self) -> str:
        """The unit of budgets, to follow a percentage."""
        return " of the bytes" if self._setting("of_bytes") else ""

    @property
    def keeps(self) -> list[float]:
        """The budgets, the largest first."""
        return sorted({row.keep for row in self.rows}, reverse=True)

    @property
    def middle(self) -> float:
        """The middle budget, at which recipes are ranked; 0 without rows."""
        keeps = self.keeps
        return keeps[len(keeps) // 2] if keeps else 0.0

    def names(self, source: str = "precis") -> list[str]:
        """Names of recipes or presses, the best at the middle budget first, failed ones last."""
        middle = self.middle

        def rank(name: str) -> tuple[bool, float]:
            row = self.row(name, middle, source)
            bad = row is None or row.failed is not None
            return bad, math.inf if bad else row.mean_nll

        found = dict.fromkeys(row.name for row in self.rows if row.source == source)
        return sorted(found, key=rank)

    def row(self, name: str, keep: float, source: str = "precis") -> Row | None:
        """The row of one recipe or press at one budget."""
        for row in self.rows:
            if (row.name, row.keep, row.source) == (name, keep, source):
                return row
        return None

    def merge(self, other: Results) -> None:
        """Adds another evaluation's rows, replacing those of the same recipe, source and budget.

        Raises:
            ValueError: the contexts or the model differ.
        """
        of_contexts = ("seed", "tokens", "documents", "task", "of_bytes", "aware")
        for name in ("name", "revision"):
            if self.model[name] != other.model[name]:
                raise ValueError(f"{name}: {other.model[name]!r} is not {self.model[name]!r}")
        for name in of_contexts:
            if self._setting(name) != other._setting(name):
                raise ValueError(f"{name}: the two evaluations are not of the same contexts")
        keys = {(row.name, row.keep, row.source) for row in other.rows}
        kept = [row for row in self.rows if (row.name, row.keep, row.source) not in keys]
        self.rows = kept + other.rows
        self.settings["recipes"] |= other.settings["recipes"]
        self.settings["seconds"] += other.settings["seconds"]
        self.notes = list(dict.fromkeys(self.notes + other.notes))

    def to_json(self) -> dict[str, Any]:
        """The results as JSON, with derived figures."""

        def of(row: Row) -> dict[str, Any]:
            out = {k: v for k, v in asdict(row).items() if v is not None}
            if row.nll and not row.failed:
                delta, error = self.delta(row)
                out |= {"accuracy": row.accuracy, "mean_nll": row.mean_nll, "nll_delta": delta}
                if not math.isnan(error):
                    out["nll_delta_error"] = error
            return out

        return {
            "format": FORMAT,
            "model": self.model,
            "settings": self.settings,
            "prefill_seconds": self.prefill_seconds,
            "original_bytes": self.original_bytes,
            "notes": self.notes,
            "full": of(self.full),
            "rows": [of(row) for row in self.rows],
        }

    def save(self, path: Path) -> None:
        """Writes JSON for load(), one row per line, to be small and easy to compare with diff."""
        found = self.to_json()
        rows = ",\n".join(json.dumps(row) for row in found.pop("rows"))
        head = ",\n".join(f"{json.dumps(name)}: {json.dumps(found[name])}" for name in found)
        path.write_text(f'{{{head},\n"rows": [\n{rows}\n]}}\n')

    @classmethod
    def load(cls, path: Path) -> Results:
        """Reads a file that save() wrote.

        Raises:
            ValueError: the file is not such JSON.
        """
        try:
            found = json.loads(files.read_text(path, files.TEXT_FILE_BYTES_MAX))
            if found["format"] != FORMAT:
                raise ValueError(f"format {found['format']}, must be {FORMAT}")
            names = ("model", "settings", "prefill_seconds", "original_bytes", "notes")
            rows = [_row(row) for row in found["rows"]]
            return cls(full=_row(found["full"]), rows=rows, **{name: found[name] for name in names})
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: not results of precis eval ({error})") from None


def _row(fields: dict[str, Any]) -> Row:
    return Row(**{name: value for name, value in fields.items() if name in Row.__annotations__})


def mean_lists(lists: Sequence[Any]) -> list[Any]:
    """The mean of arrays of one shape, rounded to four digits for JSON."""
    total = sum(lists[1:], start=lists[0]) / len(lists)
    return [[_digits(x) for x in row] if row.ndim else _digits(row) for row in total]


def _digits(value: float) -> float:
    return float(f"{value:.4g}")
