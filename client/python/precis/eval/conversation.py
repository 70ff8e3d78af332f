"""Judges the budget of a whole conversation: ``python -m precis.eval.conversation``.

Facts are told in turns of a long conversation with a real model, and asked at its end. The answers
from the stored turns, which were trimmed as the conversation grew, are compared with those from one
compression of all its tokens at the same budget, and with the full cache.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import precis
from precis import hf
from precis.demo.service import Precisd, find_precisd
from precis.demo.view import View, duration, size
from precis.extras import exit_status
from precis.profile import shipped

from . import needles, tasks, texts
from .models import SMOLLM2

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

Encode = Callable[[str], list[int]]
_RESUMES = 3  # per measured time
_TRIM_S = 3  # for trims in the background; a total that is too small is never held


@dataclass
class Point:
    """The stored turns at one moment of the conversation; times in seconds."""

    turn: int
    tokens: int
    stored_bytes: int
    original_bytes: int
    resume_seconds: float


@dataclass
class Told:
    """A fact: the turn that told it, and its answer's mean negative log-likelihood."""

    turn: int
    full: float
    stored: float
    at_once: float


def _turns(
    encode: Encode, count: int, facts: int, seed: int
) -> tuple[list[list[int]], dict[int, needles.Needle]]:
    """The tokens of every turn, and the facts by the turn that tells them: first, last, evenly."""
    draw = random.Random(seed)
    pool = texts.machine_texts()
    sentences = tasks.split_sentences(pool[seed % len(pool)].text)
    first = draw.randrange(max(1, len(sentences) - count))
    words = draw.sample(tasks.WORDS, facts)
    places = [1 + round(i * (count - 2) / (facts - 1)) for i in range(facts)]
    told = {
        place: tasks.secret_code(word, f"{draw.randrange(10000, 100000)}")
        for place, word in zip(places, words, strict=True)
    }
    turns = []
    for number in range(1, count + 1):
        text = sentences[(first + number) % len(sentences)]
        told_text = " ".join(text.split()[:40])
        fact = f" {told[number].sentence}" if number in told else ""
        turns.append(encode(f"{needles.CHATML.begin}{told_text}{fact}<|im_end|>\n"))
    return turns, told


def _resume(cache: precis.Cache, model: precis.Model, hf_model: Any, path: list[int]) -> Any:
    return hf.RaggedCache(hf_model, cache.get(cache.lookup(model, path, lease=60)))


def _seconds(work: Callable[[], object]) -> float:
    times = []
    for _ in range(_RESUMES):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _trimmed(
    cache: precis.Cache, model: precis.Model, path: list[int], total: precis.Budget | None
) -> list[precis.Segment]:
    """The stored turns, once the service has trimmed them to the total, if it can be held."""
    end = time.monotonic() + _TRIM_S
    while True:
        stored = [link.segment for link in cache.lookup(model, path).links]
        full = sum(s.original_bytes for s in stored)
        limit = full if total is None else total.value * (full if total.kind == "ratio" else 1)
        if sum(s.bytes for s in stored) <= limit or time.monotonic() > end:
            return stored
        time.sleep(0.01)


def measure(
    cache: precis.Cache,
    model: precis.Model,
    hf_model: Any,
    encode: Encode,
    options: argparse.Namespace,
    seed: int,
    view: View,
) -> tuple[list[Point], list[Told]]:
    """Tells one conversation and asks for its facts. The cache has stored nothing of it yet."""
    turns, told = _turns(encode, options.turns, options.facts, seed)
    points = []
    talk = hf.Conversation(
        cache, model, hf_model, session=f"talk-{seed}", keep=options.keep,
        recipe=options.recipe, total=options.total,
    )  # fmt: skip
    with talk:
        for number, tokens in enumerate(turns, 1):
            turn = talk.add(tokens)
            if turn.error is not None:
                raise turn.error
            view.progress("turns", number, len(turns))
            if number in (10, len(turns) // 4, len(turns) // 2, len(turns)):
                path = talk.tokens
                stored = _trimmed(cache, model, path, talk.session.total)
                points.append(
                    Point(
                        number,
                        len(path),
                        sum(s.bytes for s in stored),
                        sum(s.original_bytes for s in stored),
                        _seconds(lambda path=path: _resume(cache, model, hf_model, path)),
                    )
                )
        path, live = talk.tokens, talk.live
        asked = [(encode(n.question()), encode(n.answer)) for n in told.values()]
        full = hf.answer_nlls(hf_model, asked, live)
        stored = hf.answer_nlls(hf_model, asked, _resume(cache, model, hf_model, path))
    kept = points[-1].stored_bytes / points[-1].original_bytes
    cache.session(f"talk-{seed}").remove()
    for segment in sorted(cache.segments(model), key=lambda s: -s.begin):
        cache.remove(segment)
    live.stored.clear()
    hf.store(cache, model, hf_model, path, recipe=options.recipe, keep=kept, past=live)
    at_once = hf.answer_nlls(hf_model, asked, _resume(cache, model, hf_model, path))
    return points, [
        Told(turn, f.nll, s.nll, o.nll)
        for turn, f, s, o in zip(told, full, stored, at_once, strict=True)
    ]


def _mean(values: Sequence[float]) -> str:
    """Mean and standard error."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{statistics.mean(values):+.3f} +- {error:.3f}"


def _show(points: Sequence[Point], facts: Sequence[Told], turns: int, view: View) -> None:
    names = ["turn", "tokens", "stored", "of", "share", "resume"]
    view.table(
        names,
        [
            [
                str(p.turn),
                str(p.tokens),
                size(p.stored_bytes),
                size(p.original_bytes),
                f"{p.stored_bytes / p.original_bytes:.3f}",
                duration(p.resume_seconds),
            ]
            for p in points
        ],
    )
    groups = {
        "first fifth": [f for f in facts if f.turn <= turns / 5],
        "between": [f for f in facts if turns / 5 < f.turn <= turns * 4 / 5],
        "last fifth": [f for f in facts if f.turn > turns * 4 / 5],
        "all": list(facts),
    }
    view.table(
        ["facts told in", "n", "stored turns", "all at once", "difference"],
        [
            [
                name,
                str(len(group)),
                _mean([f.stored - f.full for f in group]),
                _mean([f.at_once - f.full for f in group]),
                _mean([f.stored - f.at_once for f in group]),
            ]
            for name, group in groups.items()
            if group
        ],
    )


def _share_or_bytes(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _arguments(arguments: Sequence[str] | None, prog: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=prog, description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--precisd", metavar="PATH", help="the service [from the PATH]")
    add("--json", metavar="FILE", type=Path, help="also writes the figures")
    add("--turns", type=int, default=100, help="of a conversation [%(default)s]")
    add("--facts", type=int, default=12, help="told in each, 2 to 16 [%(default)s]")
    add("--talks", type=int, default=3, help="number of conversations [%(default)s]")
    add("--recipe", help="[the default of the service]")
    add("--profile", metavar="FILE", help="a file, or the name of a shipped profile")
    add("--keep", type=_share_or_bytes, default=0.3, help="of a new turn [%(default)s]")
    add("--total", type=_share_or_bytes, default=0.2, help="of all turns [%(default)s]")
    add("--seed", type=int, default=0, help="[%(default)s]")
    options = parser.parse_args(arguments)
    if not 2 <= options.facts <= len(tasks.WORDS) or options.turns < 2 * options.facts:
        parser.error(f"--facts must be 2 to {len(tasks.WORDS)}, and at most half of --turns")
    return options


def main(arguments: Sequence[str] | None = None, prog: str = "precis.eval.conversation") -> int:
    """Runs it. Returns the exit status."""
    options = _arguments(arguments, prog)

    def work() -> None:
        view = View()
        view.step(f"{SMOLLM2.name}: conversations of {options.turns} turns, total {options.total}")
        hf_model, tokenizer = SMOLLM2.load()
        encode = lambda text: tokenizer.encode(text, add_special_tokens=False)  # noqa: E731
        points: list[Point] = []
        facts: list[Told] = []
        with (
            tempfile.TemporaryDirectory(prefix="precis-eval-") as scratch,
            Precisd(options.precisd or find_precisd(), Path(scratch) / "data") as service,
            precis.connect(service.address) as cache,
        ):
            spec = hf.model_spec(hf_model, SMOLLM2.name, SMOLLM2.revision())
            model = cache.register_model(spec)
            if options.profile is not None:
                cache.add_profile(json.loads(shipped.read(options.profile)))
            for seed in range(options.seed, options.seed + options.talks):
                seen, told = measure(cache, model, hf_model, encode, options, seed, view)
                points += seen
                facts += told
        _show(points, facts, options.turns, view)
        if options.json is not None:
            figures: dict[str, Any] = {
                "points": [asdict(p) for p in points],
                "facts": [asdict(f) for f in facts],
            }
            options.json.write_text(json.dumps(figures, indent=1) + "\n")

    return exit_status(prog, work)


if __name__ == "__main__":
    sys.exit(main())
