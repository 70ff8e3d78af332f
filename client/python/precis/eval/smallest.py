"""The smallest budget that costs at most a given loss, and what it costs on other contexts.

A budget that is chosen and judged on the same contexts looks better than it is. So every second
context chooses, and the others judge.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from .results import Results


@dataclass(frozen=True)
class Smallest:
    """What was found for one recipe.

    Attributes:
        name: of the recipe. keep: the budget, as in Row.
        chosen: the mean loss on the contexts that chose the budget.
        loss, error: mean loss and its standard error on the other contexts.
        worst: the largest loss of one of these.
    """

    name: str
    keep: float
    chosen: float
    loss: float
    error: float
    worst: float


def smallest_budgets(results: Results, most: float) -> list[Smallest | str]:
    """For each recipe the smallest evaluated budget with a mean loss of at most `most`.

    The recipe with the smallest budget comes first.

    The search stops at the first budget that costs more, because a smaller one that costs less does
    so by chance. A recipe without such a budget is only named. Recipes that failed are left out.

    Raises:
        ValueError: there are fewer than four contexts, two to choose and two to judge.
    """
    if results.settings["contexts"] < 4:
        raise ValueError("a loss needs at least 4 contexts: two choose the budget, two judge it")
    found: list[Smallest | str] = []
    for name in results.names():
        best: Smallest | None = None
        rows = [row for keep in results.keeps if (row := results.row(name, keep))]
        if any(row.failed for row in rows):
            continue
        for row in rows:  # the largest budget first
            losses = results.losses(row)
            chosen = statistics.fmean(losses[::2])
            if not chosen <= most:
                break
            judged = losses[1::2]
            error = statistics.stdev(judged) / len(judged) ** 0.5
            best = Smallest(name, row.keep, chosen, statistics.fmean(judged), error, max(judged))
        found.append(best or name)
    return sorted(found, key=lambda one: 2.0 if isinstance(one, str) else one.keep)
