"""The findings of an evaluation in two sentences, and the best recipe at each budget."""

from __future__ import annotations

import statistics

from .results import Results, Row
from .table import Cells, delta_text, percent


def verdict(results: Results) -> str:
    """Two sentences on the middle budget, made from the figures; one if no recipe ran there."""
    keep = results.middle
    rows = _ranked(results, keep)
    if not rows:
        return f"No recipe has figures at a budget of {percent(keep)}{results.unit}."
    best, asked = rows[0], len(results.full.right)
    if not any(results.full.right):
        return (
            f"At a budget of {percent(keep)}{results.unit}, {best.name} loses "
            f"{delta_text(results, best)}. The model answers nothing right with the full cache."
        )
    at = f"At a budget of {percent(keep)}{results.unit}, {best.name}"
    whole = f"where the full cache gives {sum(results.full.right)}"
    if len(rows) == 1:
        stored = f"It stores {_bytes(results, best)} of the bytes of K and V."
        return f"{at} gives {sum(best.right)} of {asked} right answers, {whole}. {stored}"
    right = f"{sum(best.right)} of {asked} answers are right, {whole}"
    first = f"{at} has the lowest loss of {len(rows)} recipes: {right}."
    typical = statistics.median_low(sum(row.right) for row in rows)
    half = f"alf of the recipes give at most {typical} right answers"
    quick = next((row for row in rows if row.model_seconds < results.prefill_seconds), None)
    if quick is None or quick is best:
        return f"{first} H{half}."
    return (
        f"{first} The best recipe that takes less of the model's time than another prefill is "
        f"{quick.name}, with {sum(quick.right)}; h{half}."
    )


def best_rows(results: Results) -> tuple[Cells, list[Cells]]:
    """Header and rows: the recipe with the lowest loss at each budget."""
    asked = len(results.full.right)
    header = ["budget", "best recipe", f"right of {asked}", "NLL above full", "bytes"]
    rows = [
        [
            percent(keep),
            row.name,
            str(sum(row.right)),
            delta_text(results, row),
            _bytes(results, row),
        ]
        for keep in results.keeps
        for row in _ranked(results, keep)[:1]
    ]
    return header, rows


def _ranked(results: Results, keep: float) -> list[Row]:
    """The recipes that ran at the budget, the lowest loss first."""
    rows = [row for row in results.rows if (row.source, row.keep) == ("precis", keep)]
    return sorted((row for row in rows if not row.failed), key=lambda row: row.mean_nll)


def _bytes(results: Results, row: Row) -> str:
    return f"{row.bytes / results.original_bytes:.1%}" if row.bytes else "-"
