"""The evaluation: contexts, recipes, budgets, and kvpress for comparison."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import precis

from .cuts import Recipe
from .models import Loaded
from .needles import Document, Task
from .perturbation import Perturbation
from .presses import PressSpec, PressSubject, press_specs, why_not
from .results import Results, Row, mean_lists
from .subject import Judge, Subject
from .texts import Text, draw_document


@dataclass(frozen=True)
class Settings:
    """The parameters of an evaluation.

    Attributes:
        recipes: presets or recipes with parameters.
        keeps: shares of the entries, or of the bytes.
        contexts: how many documents, of at most `tokens` tokens.
        task: its name and facts. texts: the sources of the documents.
        of_bytes: whether `keeps` are shares of the bytes of K and V in bf16.
        aware: whether the question is known: each is compressed with the context, at its end.
        seed: for all documents; the same seed makes the same documents.
        kvpress: whether to run the presses of kvpress, too.
        profiles: JSON of profiles by name, for recipes that take one.
    """

    recipes: tuple[str, ...]
    keeps: tuple[float, ...]
    contexts: int
    tokens: int
    texts: tuple[Text, ...]
    task: tuple[str, Task]
    of_bytes: bool = False
    aware: bool = False
    seed: int = 0
    kvpress: bool = False
    profiles: Mapping[str, str] = field(default_factory=dict)


# Called with (steps done, all steps, current work).
Progress = Callable[[int, int, str], None]


@dataclass
class _Gathered:
    """The figures of one recipe over all contexts, by budget."""

    rows: dict[float, Row]
    measured: dict[float, list[Perturbation]] = field(default_factory=dict)
    compress_seconds: list[float] = field(default_factory=list)
    model_seconds: list[float] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether the recipe is to be skipped from now on."""
        return any(row.failed for row in self.rows.values())

    def fail(self, reason: str) -> None:
        """Replaces the figures at every budget by the reason why there are none."""
        for row in self.rows.values():
            row.failed = reason
            row.right, row.nll = [], []

    def finish(self) -> Iterator[Row]:
        """The completed rows."""
        for keep, row in self.rows.items():
            if not row.failed:
                found = self.measured[keep]
                row.perturbation = mean_lists([one.layers for one in found])
                row.head_perturbation = mean_lists([one.heads for one in found])
                row.compress_seconds = statistics.median(self.compress_seconds)
                row.model_seconds = statistics.median(self.model_seconds)
            yield row


class _Run:
    """One evaluation in progress."""

    def __init__(self, loaded: Loaded, settings: Settings, progress: Progress) -> None:
        self._judge = Judge(loaded, "bf16" if settings.of_bytes else None)
        self._settings = settings
        self._progress = progress
        self._recipes = [Recipe.parse(text) for text in settings.recipes]
        self._gathered = {
            recipe.text: _Gathered({keep: Row(recipe.text, keep) for keep in settings.keeps})
            for recipe in self._recipes
        }
        self.notes: list[str] = []
        if settings.of_bytes:
            self.notes.append(
                "Budgets are shares of the bytes of K and V in bf16, to which rows were rounded."
            )
        self._presses = self._press_specs(loaded)
        self._press_rows = {
            (spec.name, keep): Row(spec.name, keep, "kvpress", spec.preset)
            for spec in self._presses.values()
            for keep in settings.keeps
        }
        self._press_seconds: dict[int, list[float]] = {}  # by row
        self._full = Row("full", 1.0)
        self._prefill_seconds: list[float] = []
        self._original_bytes = 0
        # Drawn before any computation, so that a text that is too short is reported at once.
        self._documents = [self._draw(number) for number in range(settings.contexts)]
        if settings.aware:
            self.notes.append("Each question ended the context when it was compressed.")
            self._compressed = [
                list(document.asked(loaded.encode, loaded.dialogue))
                for _, document in self._documents
            ]
        else:
            self._compressed = [[document] for _, document in self._documents]
        per_document = 1 + len(settings.keeps) * (len(self._recipes) + len(self._presses))
        self._done, self._steps = 0, sum(map(len, self._compressed)) * per_document

    def run(self) -> Results:
        for number, documents in enumerate(self._compressed):
            for document in documents:
                self._context(number, document)
        judge, settings = self._judge, self._settings
        rows = [row for gathered in self._gathered.values() for row in gathered.finish()]
        return Results(
            model={
                "name": judge.loaded.name,
                "revision": judge.loaded.revision,
                **{
                    name: getattr(judge.spec, name)
                    for name in ("num_layers", "num_q_heads", "num_kv_heads", "head_dim", "dtype")
                },
                "windows": judge.windows,
            },
            settings={
                "precis": precis.__version__,
                "seed": settings.seed,
                "contexts": settings.contexts,
                "tokens": settings.tokens,
                "task": settings.task[0],
                "of_bytes": settings.of_bytes,
                "aware": settings.aware,
                "keeps": list(settings.keeps),
                "questions_per_context": len(self._full.nll) // settings.contexts,
                "recipes": {recipe.text: recipe.fields for recipe in self._recipes},
                "documents": [described for described, _ in self._documents],
            },
            full=self._full,
            rows=rows + list(self._press_rows.values()),
            prefill_seconds=statistics.median(self._prefill_seconds),
            original_bytes=self._original_bytes,
            notes=self.notes,
        )

    def _press_specs(self, loaded: Loaded) -> dict[str, PressSpec]:
        if not self._settings.kvpress:
            return {}
        if reason := why_not(loaded):
            self.notes.append(f"kvpress was not run: {reason}.")
            return {}
        return {spec.name: spec for spec in press_specs()}

    def _draw(self, number: int) -> tuple[dict[str, Any], Document]:
        settings, loaded = self._settings, self._judge.loaded
        seed = f"{settings.seed}/{number}"
        name, document = draw_document(
            list(settings.texts),
            settings.task[1],
            settings.tokens,
            seed,
            loaded.encode,
            loaded.dialogue,
        )
        return {"text": name, "seed": seed, "tokens": len(document.tokens)}, document

    def _context(self, number: int, document: Document) -> None:
        label = f"context {number + 1}/{self._settings.contexts}"
        self._tell(f"{label}: reading {len(document.tokens)} tokens", 0)
        subject = Subject(self._judge, document)
        self._prefill_seconds.append(subject.prefill_seconds)
        self._original_bytes = self._original_bytes or subject.original_bytes()
        _take(self._full, subject.answers(subject.cache))
        self._tell(f"{label}: full cache")
        for recipe in self._recipes:
            self._recipe(subject, recipe, label)
        if self._presses:
            self._kvpress(document, label)

    def _recipe(self, subject: Subject, recipe: Recipe, label: str) -> None:
        gathered = self._gathered[recipe.text]
        keeps = self._settings.keeps
        if gathered.failed:
            self._tell(f"{label}: {recipe.text} failed before", len(keeps))
            return
        try:
            profile = self._settings.profiles.get(recipe.profile or "")
            compressed, model_seconds = subject.compress(
                recipe, max(keeps), profile, of_bytes=self._settings.of_bytes
            )
            gathered.model_seconds.append(model_seconds)
            gathered.compress_seconds.append(compressed.seconds)
            for keep, row in gathered.rows.items():
                cut = compressed.cut(keep)
                cache = subject.restore(cut)
                gathered.measured.setdefault(keep, []).append(subject.probe.measure(cache))
                _take(row, subject.answers(cache))
                if row.plan is None:  # of the first context
                    row.bytes = compressed.stored_bytes(keep)
                    row.plan = np.asarray(cut.plan, dtype=int).tolist()
                self._tell(f"{label}: {recipe.text} at {keep:g}")
        except (precis.Error, RuntimeError) as error:
            gathered.fail(str(error))
            self._tell(f"{label}: {recipe.text} failed: {error}", len(keeps))

    def _kvpress(self, document: Document, label: str) -> None:
        with PressSubject(self._judge.loaded, document) as subject:
            for row in self._press_rows.values():
                if not row.failed:
                    self._press(subject, row)
                self._tell(f"{label}: kvpress's {row.name} at {row.keep:g}")

    def _press(self, subject: PressSubject, row: Row) -> None:
        try:
            cache, seconds = subject.compress(self._presses[row.name].make(1 - row.keep))
            answers = subject.answers(cache)
        except Exception as error:  # an error of kvpress: report it, and continue
            row.failed = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            row.right, row.nll = [], []
            return
        taken = self._press_seconds.setdefault(id(row), [])
        taken.append(seconds)
        row.compress_seconds = statistics.median(taken)
        _take(row, answers)

    def _tell(self, what: str, steps: int = 1) -> None:
        self._done = min(self._steps, self._done + steps)
        self._progress(self._done, self._steps, what)


def _take(row: Row, answers: list) -> None:
    row.right += [answer.right for answer in answers]
    row.nll += [round(answer.nll, 5) for answer in answers]


def evaluate(loaded: Loaded, settings: Settings, progress: Progress) -> Results:
    """Evaluates recipes on one model.

    If a recipe fails, its rows say why, and the other recipes go on.

    Raises:
        precis.InvalidArgument: a recipe is wrong.
        ValueError: the texts are too short for the documents asked for, or precis.hf cannot serve
            this kind of model.
        ModuleNotFoundError: kvpress is asked for and not installed.
    """
    start = time.perf_counter()
    results = _Run(loaded, settings, progress).run()
    results.settings["seconds"] = round(time.perf_counter() - start, 1)
    return results
