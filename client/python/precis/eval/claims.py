"""Checks the claims of papers about the attention output on the figures of one evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .results import Results, Row

Cells = list[str]

# The recipe fields in which a two-stage selector differs from its base policy.
_STAGES = ("selector", "first_stage", "epsilon", "value_norm")
# The recipe fields that do not change an entry's score.
_BUDGETS = (
    *_STAGES, "heads", "layers", "ada_mode", "alpha", "beta", "table", "profile", "min_entries",
    "sinks", "recent", "recent_share",
)  # fmt: skip


def selectors(results: Results) -> tuple[Cells, list[Cells]]:
    """The share of (layer, query head) pairs whose output moves less than under the base policy."""
    return _table(results, ("selector", "base"), _staged(results), _moves_less)


def budgets(results: Results) -> tuple[Cells, list[Cells]]:
    """How much less a layer's output moves under learnt budgets than under uniform heads."""
    return _table(results, ("learnt budgets", "base"), _learnt(results), _moves_by)


def _table(
    results: Results,
    names: tuple[str, str],
    pairs: Iterable[tuple[str, str]],
    compare: Callable[[Row, Row], str],
) -> tuple[Cells, list[Cells]]:
    header = [*names, *(f"@{100 * keep:g}%" for keep in results.keeps)]
    rows = []
    for name, base in pairs:
        cells = [
            _compared(results.row(name, keep), results.row(base, keep), compare)
            for keep in results.keeps
        ]
        if any(cell != "-" for cell in cells):
            rows.append([name, base, *cells])
    return header, rows


def _compared(one: Row | None, other: Row | None, compare: Callable[[Row, Row], str]) -> str:
    if one is None or other is None or one.failed or other.failed:
        return "-"
    return compare(one, other)


def _moves_less(one: Row, other: Row) -> str:
    if not one.head_perturbation or not other.head_perturbation:
        return "-"
    moved = [
        a < b
        for mine, theirs in zip(one.head_perturbation, other.head_perturbation, strict=True)
        for a, b in zip(mine, theirs, strict=True)
    ]
    return f"{sum(moved) / len(moved):.1%}"


def _moves_by(one: Row, other: Row) -> str:
    share = one.mean_perturbation / other.mean_perturbation - 1
    return f"{share:+.0%} ({one.mean_perturbation:.3f} for {other.mean_perturbation:.3f})"


def _staged(results: Results) -> Iterator[tuple[str, str]]:
    """Recipes with a two-stage selector, each with its base: a recipe that differs only in that."""
    recipes = results.settings["recipes"]
    for name, fields in recipes.items():
        if fields["selector"] == "two_stage":
            for base, others in recipes.items():
                if others["selector"] == "topk" and _less(fields, _STAGES) == _less(
                    others, _STAGES
                ):
                    yield name, base


def _learnt(results: Results) -> Iterator[tuple[str, str]]:
    """Recipes with a profile's budgets, each with recipes of the same scores and uniform heads."""
    recipes = results.settings["recipes"]
    for name, fields in recipes.items():
        if fields["heads"] == "table" and fields["selector"] == "topk":
            for base, others in recipes.items():
                by_rule = others["heads"] == "uniform" and others["selector"] == "topk"
                if by_rule and _less(fields, _BUDGETS) == _less(others, _BUDGETS):
                    yield name, base


def _less(fields: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}
