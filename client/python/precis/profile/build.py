"""Builds a profile; an interrupted build goes on where it was.

Budgets are the mean of what is solved for each context and question, from the measured worth of the
context's entries.
probe.py learns kvprobe's coefficients.
"""

from __future__ import annotations

import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import precis
from precis import _core, hf
from precis.eval.cuts import Recipe
from precis.eval.models import Loaded
from precis.eval.subject import Judge, Reading
from precis.eval.texts import Text

from .oracle import Oracle

VERSION = 1
Progress = Callable[[int, int, str], None]
# The share of all entries that is treated as kept, for a table of weights.
_WEIGHTS_SHARE = 0.2
# Asked about any text, if there are no questions of the user.
QUESTIONS = (
    "What is this text about?",
    "Which conditions and exceptions does the text name?",
    "List the names and numbers that the text mentions.",
    "What does the beginning of the text say?",
    "What does the end of the text say?",
    "Explain the most important sentence of the text.",
)


@dataclass(frozen=True)
class Settings:
    """The parameters of a build.

    Attributes:
        name: the profile's name in recipes.
        recipe: the recipe that will use it, such as "lukv(keydiff)" or "headkv".
        contexts: how many, of `tokens` tokens each.
        texts: the sources of the contexts; never texts that recipes are evaluated on.
        questions: the model answers them about every context.
        worth: the measure of an entry: "oracle", the model's attention to it while it answers;
            "repetition", while it repeats the context; "scores", its own score, so that the profile
            holds the mean of the budgets that heads get when all of them compete.
        seed: for the random places where contexts begin.
    """

    name: str
    recipe: Recipe
    contexts: int
    tokens: int
    texts: tuple[Text, ...]
    questions: tuple[str, ...] = QUESTIONS
    seed: int = 0
    worth: str = "oracle"

    def __post_init__(self) -> None:
        if self.worth == "oracle" and not self.questions:
            raise ValueError("questions: the oracle needs at least one")

    @property
    def kind(self) -> str:
        """LU-KV's curves, HeadKV's weights, or kvprobe's coefficients ("probe")."""
        return self.recipe.fields["table"]


def scorer_of(recipe: Recipe) -> Recipe:
    """A recipe with the same scores and protected entries, under uniform budgets.

    A probe's scores depend on no protected entries, so it has those of its scorer's default.
    """
    return Recipe.parse(_core.profile_scorer(recipe.canonical))


def protected_tokens(fields: Mapping[str, Any], num_tokens: int, begin: int = 0) -> int:
    """How many of a path's tokens [begin, begin + num_tokens) a recipe's fields protect."""
    sinks = min(max(0, fields["sinks"] - begin), num_tokens)
    rest = num_tokens - sinks
    if "recent" not in fields:  # partitions: the last whole one and the tokens after it
        lag = fields["lag"]
        return sinks + (rest if rest < 2 * lag else lag + rest % lag)
    share = round(fields.get("recent_share", 1.0) * 1_000_000) * num_tokens // 1_000_000
    return sinks + min(fields["recent"], max(1, share), rest)


def cut_contexts(settings: Settings, encode: Callable[[str], list[int]], begin: str) -> list[list]:
    """The tokens of every context, cut from one text after the other.

    Texts shorter than two contexts are joined.

    Raises:
        ValueError: all of them together are too short.
    """
    draw = random.Random(settings.seed)
    texts = [encode(" ".join(text.text.split())) for text in settings.texts]
    long = [tokens for tokens in texts if len(tokens) >= 2 * settings.tokens]
    joined = [token for tokens in texts if len(tokens) < 2 * settings.tokens for token in tokens]
    if len(joined) >= settings.tokens:
        long.append(joined)
    elif long:
        long[-1] += joined
    else:
        names = ", ".join(text.name for text in settings.texts)
        raise ValueError(
            f"a context takes {settings.tokens} tokens, what is fitted of the texts ({names}) has "
            f"{len(joined)}: give longer texts, or fewer --tokens"
        )
    contexts = []
    for number in range(settings.contexts):
        tokens = long[number % len(long)]
        start = draw.randrange(len(tokens) - settings.tokens + 1)
        head = encode(begin)
        contexts.append((head + tokens[start : start + settings.tokens])[: settings.tokens])
    return contexts


class Builder(ABC):
    """One profile in progress. Finished parts are in a folder and are not computed again."""

    def __init__(self, loaded: Loaded, settings: Settings, parts: Path) -> None:
        self._judge = Judge(loaded)
        self._settings = settings
        self._parts = parts
        self._scorer = scorer_of(settings.recipe)
        self._contexts = cut_contexts(settings, loaded.encode, loaded.dialogue.begin)
        self._fingerprint = self._judge.spec.fingerprint

    def build(self, progress: Progress) -> dict[str, Any]:
        """Builds the profile; returns it as a dict, the content of its JSON file."""
        self._parts.mkdir(parents=True, exist_ok=True)
        table, more = self._learn(progress)
        spec, fields = self._judge.spec, self._scorer.fields
        return {
            "version": VERSION,
            "name": self._settings.name,
            "kind": self._settings.kind,
            "model": self._fingerprint,
            "scorer": self._scorer.canonical,
            "sinks": fields["sinks"],
            "recent": fields.get("recent", 0),
            "num_layers": spec.num_layers,
            "num_kv_heads": spec.num_kv_heads,
            "num_tokens": self._settings.tokens,
            "text_digest": self._digest(),
            **more,
            "table": table,
        }

    @abstractmethod
    def _learn(self, progress: Progress) -> tuple[list[float], dict[str, Any]]:
        """The table of the profile, and further fields."""

    def _part(self, key: str, compute: Callable[[], np.ndarray]) -> np.ndarray:
        """An array that an earlier run has saved, or that is computed and saved now."""
        part = self._parts / f"{key}.npy"
        if not part.exists():
            scratch = part.with_suffix(".tmp")
            with scratch.open("wb") as out:
                np.save(out, compute())
            scratch.rename(part)
        return np.load(part)

    def _key(self, *content: object) -> str:
        """A digest of everything that a part depends on."""
        settings = self._settings
        parts = (VERSION, self._fingerprint, self._scorer.canonical, settings.kind, *content)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]

    def _digest(self) -> str:
        """SHA-256 of the fitting text: every context's token ids."""
        return hashlib.sha256(repr(self._contexts).encode()).hexdigest()


class BudgetBuilder(Builder):
    """Learns budgets per head: the mean of the tables of all contexts and questions."""

    def _learn(self, progress: Progress) -> tuple[list[float], dict[str, Any]]:
        tables, count = [], len(self._contexts)
        questions = self._settings.questions if self._settings.worth == "oracle" else ()
        asked = ("mean", questions, self._settings.worth)
        for number, tokens in enumerate(self._contexts):
            progress(number, count, f"context {number + 1}/{count}")
            key = self._key(tokens, *asked)
            tables.append(self._part(key, lambda tokens=tokens: self._table(tokens)))
        progress(count, count, "done")
        told: dict[str, Any] = {"worth": self._settings.worth}
        if questions:
            told["questions"] = "\n".join(questions)
        return [round(float(share), 6) for share in np.mean(tables, axis=0).ravel()], told

    def _table(self, tokens: list[int]) -> np.ndarray:
        """The table of one context, a mean over the questions."""
        reading = Reading(self._judge, tokens)
        layers, _ = reading.inputs(hf.Needs.of(self._scorer.canonical))
        options = {"o_proj": self._judge.projections} if self._scorer.needs_o_proj else {}
        kept = precis.compress(self._judge.spec, layers, self._scorer.canonical, 1.0, **options)
        if self._settings.worth == "scores":
            ranked = [self._ranked(head, len(tokens)) for heads in kept.scores for head in heads]
            least = min((float(head.min()) for head in ranked if len(head)), default=0.0)
            # The solver accepts no negative values.
            worth = [head - least for heads in kept.scores for head in heads]
            return self._solved(worth, len(tokens))
        tables = []
        for found in self._oracles(reading):
            worth = [
                found[layer, head, positions]
                for layer, heads in enumerate(kept.positions)
                for head, positions in enumerate(heads)
            ]
            tables.append(self._solved(worth, len(tokens)))
        return np.mean(tables, axis=0)

    def _ranked(self, head: np.ndarray, num_tokens: int) -> np.ndarray:
        """The entries of a head that are not protected; `head` has those that are seen later."""
        return head[protected_tokens(self._scorer.fields, len(head), num_tokens - len(head)) :]

    def _solved(self, worth: list[np.ndarray], num_tokens: int) -> np.ndarray:
        """`worth`: by head, of the entries that later queries see, in their order."""
        protected = protected_tokens(self._scorer.fields, num_tokens)
        ranked = []
        for head in worth:
            # Budgets are shares of all tokens. Those that a window hides are worth nothing.
            of_all = np.zeros(num_tokens - protected, np.float32)
            seen = self._ranked(head, num_tokens)[: len(of_all)]
            of_all[: len(seen)] = seen
            ranked.append(of_all)
        if self._settings.kind == "weights":
            return precis.head_weights(ranked, _WEIGHTS_SHARE)
        return precis.prune_curves(ranked, num_tokens, protected)

    def _oracles(self, reading: Reading) -> Iterator[np.ndarray]:
        """The worth by each answer, or by the repetition; float32 [num_layers, num_kv_heads, n]."""
        loaded = self._judge.loaded
        if self._settings.worth == "repetition":
            oracle = Oracle(reading)
            oracle.add_repetition()
            yield oracle.worth.cpu().numpy()
            return
        for question in self._settings.questions:
            oracle = Oracle(reading)
            oracle.add_answer(loaded.encode(f"\n{question}{loaded.dialogue.change}"))
            yield oracle.worth.cpu().numpy()
