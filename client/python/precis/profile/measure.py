"""What answers lose with a profile, measured in texts that it was not fitted on.

A put whose budget is a loss keeps the smallest share of the entries that lost no more here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from precis import _core
from precis.eval.cuts import Recipe
from precis.eval.models import Loaded
from precis.eval.needles import Task
from precis.eval.results import Results
from precis.eval.run import Settings, evaluate
from precis.eval.texts import Text

Progress = Callable[[int, int, str], None]
KEEPS = (1.0, 0.8, 0.6, 0.45, 0.35, 0.25, 0.18, 0.13, 0.1, 0.07)
LOSSES, RECIPE = "losses", "losses_recipe"  # the profile's fields


@dataclass(frozen=True)
class Kind:
    """Facts of one kind, and the texts that they are hidden in."""

    name: str
    task: Task
    texts: tuple[Text, ...]


@dataclass(frozen=True)
class Measured:
    """The losses at one share of the entries.

    Attributes:
        keep: the share. losses: by kind, the mean over contexts and its standard error.
    """

    keep: float
    losses: dict[str, tuple[float, float]]

    @property
    def worst(self) -> tuple[float, float]:
        """The loss of the kind whose mean and error have the largest sum."""
        return max(self.losses.values(), key=sum)


def default_recipe(head_dim: int) -> str:
    """The recipe of puts at a loss if the model has a probe and no other recipe is set."""
    return f"global_kvprobe(encoding={'int8' if head_dim % 4 else 'k6v4'})"


def measure(
    loaded: Loaded,
    profile_text: str,
    recipe: Recipe,
    kinds: Sequence[Kind],
    contexts: int,
    tokens: int,
    seed: int,
    progress: Progress,
    keeps: tuple[float, ...] = KEEPS,
) -> list[Measured]:
    """The losses of every share in `keeps`, the largest first.

    Raises:
        ValueError: the texts are too short.
        precis.Error: the profile does not fit the model or the recipe.
    """
    found: dict[str, Results] = {}
    plain = _core.measured_recipe(recipe.canonical)  # a floor would keep more than `keeps`
    for number, kind in enumerate(kinds):

        def tell(done: int, steps: int, what: str, before: int = number, of: Kind = kind) -> None:
            progress(before * steps + done, len(kinds) * steps, f"{of.name}: {what}")

        settings = Settings(
            recipes=(plain,),
            keeps=keeps,
            contexts=contexts,
            tokens=tokens,
            texts=kind.texts,
            task=(kind.name, kind.task),
            seed=seed,
            profiles={"": profile_text},
        )
        results = evaluate(loaded, settings, tell)
        for row in results.rows:
            if row.failed:
                raise ValueError(f"{recipe.text}: {row.failed}")
        found[kind.name] = results
    return [
        Measured(
            keep,
            {name: results.delta(results.row(plain, keep)) for name, results in found.items()},
        )
        for keep in keeps
    ]


def with_losses(
    profile: dict[str, Any], recipe: Recipe, tokens: int, measured: Sequence[Measured]
) -> dict[str, Any]:
    """The profile with these losses.

    They replace those of the same length of contexts, and all of another recipe.
    """
    name = _core.measured_recipe(recipe.canonical)
    old = profile.get(LOSSES, []) if profile.get(RECIPE) == name else []
    rows = [tuple(old[i : i + 4]) for i in range(0, len(old), 4) if old[i] != tokens]
    for one in measured:
        loss, error = one.worst
        rows.append((tokens, one.keep, round(loss, 4), round(error, 4)))
    plain = {key: value for key, value in profile.items() if key not in (LOSSES, RECIPE, "table")}
    losses = [number for row in sorted(rows) for number in row]
    return {**plain, RECIPE: name, LOSSES: losses, "table": profile["table"]}
