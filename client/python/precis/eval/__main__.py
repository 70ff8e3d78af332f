"""The command line: ``precis eval``, ``python -m precis.eval``."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import precis
from precis.extras import hint
from precis.profile import shipped

from . import plots
from .cuts import Recipe
from .page import markdown, page
from .results import Results
from .table import LEGEND, failures, headline, sections, summary, text_table
from .verdict import verdict

# Set before torch is loaded: threads that spin while they wait slow the compressing threads.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_KEEPS = (0.5, 0.3, 0.2, 0.1)
_QUICK_KEEPS = (0.5, 0.2)
_LOSS_KEEPS = (0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.07, 0.05)
_QUICK_RECIPES = (
    "streaming_llm", "snapkv", "lagkv", "keydiff", "ada_keydiff", "global_kvdiff", "kvzip",
)  # fmt: skip
_CONTEXTS, _QUICK_CONTEXTS = 24, 5
_TOKENS = 1024
TOKENS_MIN = 256  # room for four needles and some text around them


class Meter:
    """Shows progress and the remaining time: in place on a terminal, else a line now and then."""

    _QUIET_SECONDS = 20

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._start = self._told = time.monotonic()

    def __call__(self, done: int, steps: int, what: str) -> None:
        now = time.monotonic()
        if not self._live and now - self._told < self._QUIET_SECONDS and done < steps:
            return
        self._told = now
        left = (now - self._start) / done * (steps - done) if done else 0.0
        eta = f"{int(left) // 60}:{int(left) % 60:02d} left" if done else "starting"
        line = f"{100 * done // max(1, steps):3d}%  {eta:>12}  {what}"
        if self._live:
            print(f"\r\x1b[K{line[:100]}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Clears the terminal's line."""
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _can_run(preset: str, profiles: Mapping[str, str]) -> bool:
    """Whether the recipe needs no scores from a client, and its profile is among `profiles`."""
    recipe = Recipe.parse(preset)
    scored = recipe.fields["scorer"] != "external"
    return scored and (recipe.profile is None or recipe.profile in profiles)


def default_recipes(profiles: Mapping[str, str]) -> list[str]:
    """Every preset that can run, except the parity presets, which copy kvpress's arithmetic."""
    return [
        name
        for name in precis.preset_names()
        if _can_run(name, profiles) and Recipe.parse(name).fields["count_rule"] != "kvpress_double"
    ]


def split_recipes(text: str) -> list[str]:
    """Splits `text` at the commas outside parentheses and braces."""
    return [part.strip() for part in re.split(r",(?![^({]*[)}])", text) if part.strip()]


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Judges recipes on a model and a text: facts are hidden in contexts, which are "
        "compressed before any question is known.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="fewer contexts, recipes and budgets: minutes")
    known = "smollm2, gemma3, qwen, or a folder that Transformers loads"
    add("--model", default="smollm2", help=known)
    add(
        "--recipes",
        metavar="A,B,...",
        help="presets or recipes; all: every preset [those that need no other input]",
    )
    add("--keep", metavar="A,B,...", help="shares of the entries, in (0, 1] [0.5,0.3,0.2,0.1]")
    add(
        "--loss",
        type=float,
        metavar="X",
        help="also finds the smallest of the budgets that costs at most this NLL, and what it "
        "costs on other contexts",
    )
    add(
        "--bytes",
        action="store_true",
        help="--keep are shares of the bytes of K and V in bf16",
    )
    add(
        "--task",
        choices=(
            "codes",
            "keys",
            "values",
            "variables",
            "facts",
            "authors",
            "functions",
            "tickets",
            "continuation",
        ),
        default="codes",
        help="the hidden facts: codes for words in licences (keys: among many more; values: two "
        "for each word; variables: names of names), facts about people in quotations, authors of "
        "quotations among others, functions in program text, or tickets in the transcript of an "
        "agent's calls; continuation hides nothing, and asks for the words that follow",
    )
    add(
        "--aware",
        action="store_true",
        help="the question is known: it is compressed with the context, at its end",
    )
    add(
        "--contexts", type=int, metavar="N", help=f"how many [{_CONTEXTS}, quick {_QUICK_CONTEXTS}]"
    )
    add("--tokens", type=int, default=_TOKENS, metavar="N", help="length of a context")
    add(
        "--text",
        action="append",
        type=Path,
        metavar="FILE",
        help="a text to make contexts of; may be repeated [those of this machine for the task]",
    )
    add(
        "--profile",
        action="append",
        metavar="FILE",
        help="a profile for recipes that need one: a file, or the name of a shipped profile; may "
        "be repeated",
    )
    add("--seed", type=int, default=0, help="for contexts and needles")
    add("--kvpress", action="store_true", help="also judge kvpress's presses, on the same contexts")
    add("--json", type=Path, metavar="FILE", help="writes the figures")
    add("--html", type=Path, metavar="FILE", help="writes a page with tables and plots")
    add("--markdown", type=Path, metavar="FILE", help="writes the tables, with the plots of --png")
    add("--png", type=Path, metavar="DIR", help="writes the plots")
    add(
        "--load",
        action="append",
        type=Path,
        metavar="FILE",
        help="shows what --json wrote, and runs nothing; several of the same contexts are merged",
    )
    return parser


def _keeps(
    parser: argparse.ArgumentParser, text: str | None, default: tuple[float, ...]
) -> tuple[float, ...]:
    if text is None:
        return default
    try:
        keeps = [float(part) for part in text.split(",")]
    except ValueError:
        parser.error(f"--keep {text!r}: shares are needed, such as 0.5,0.2")
    if not all(0 < keep <= 1 for keep in keeps) or len(set(keeps)) < len(keeps):
        parser.error(
            f"--keep {text!r}: each share must be above 0 and at most 1, and be given once"
        )
    return tuple(sorted(keeps, reverse=True))


def _profiles(parser: argparse.ArgumentParser, paths: list[str]) -> dict[str, str]:
    """The profiles' JSON by name; a recipe that names none takes the only profile."""
    profiles = {}
    for path in paths:
        try:
            text = shipped.read(path)
            profiles[str(json.loads(text)["name"])] = text
        except (OSError, ValueError, KeyError, TypeError) as error:
            parser.error(f"--profile {path}: not a profile ({error})")
    if len(profiles) == 1:
        profiles[""] = next(iter(profiles.values()))
    return profiles


def _recipes(
    parser: argparse.ArgumentParser, text: str | None, quick: bool, profiles: dict[str, str]
) -> tuple[str, ...]:
    if text is None:
        known = default_recipes(profiles)
        return tuple(name for name in _QUICK_RECIPES if name in known) if quick else tuple(known)
    every = [name for name in precis.preset_names() if _can_run(name, profiles)]
    recipes = [
        recipe for part in split_recipes(text) for recipe in (every if part == "all" else [part])
    ]
    if not recipes or len(set(recipes)) < len(recipes):
        parser.error(f"--recipes {text!r}: at least one is needed, and each once")
    for recipe in recipes:
        try:
            profile = Recipe.parse(recipe).profile
        except precis.InvalidArgument as error:
            parser.error(f"--recipes: {error}")
        if profile is not None and profile not in profiles:
            parser.error(
                f"--recipes: {recipe} takes profile {profile or '(unnamed)'!r}; "
                "name its file with --profile"
            )
    return tuple(recipes)


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.contexts is not None and options.contexts < 1:
        parser.error(f"--contexts {options.contexts}: at least 1 is needed")
    if options.tokens < TOKENS_MIN:
        parser.error(f"--tokens {options.tokens}: at least {TOKENS_MIN} are needed")
    if options.loss is not None and not 0 <= options.loss < math.inf:
        parser.error(f"--loss {options.loss}: must be a number, 0 or more")
    if options.loss is not None and options.contexts is not None and options.contexts < 4:
        parser.error(f"--contexts {options.contexts}: --loss needs at least 4, of which half judge")
    if options.seed < 0:
        parser.error(f"--seed {options.seed}: must not be below 0")
    for path in (options.json, options.html, options.markdown):
        if path is not None and not path.absolute().parent.is_dir():
            parser.error(f"{path}: its folder does not exist; make it first")
    for path in options.text or []:
        if not path.is_file():
            parser.error(f"--text {path}: no such file")


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Results:
    profiles = _profiles(parser, options.profile or [])
    recipes = _recipes(parser, options.recipes, options.quick, profiles)
    default = _KEEPS if options.loss is None else _LOSS_KEEPS
    keeps = _keeps(parser, options.keep, _QUICK_KEEPS if options.quick else default)
    # The rest needs torch, which takes seconds to load, so all checks come before it.
    from . import models, texts
    from .run import Settings, evaluate

    known = models.KNOWN.get(options.model)
    if known is not None and not known.is_converted():
        print(f"{known.name}: converting its GGUF file, once", file=sys.stderr, flush=True)
    task, of_task = texts.TASKS[options.task]
    settings = Settings(
        recipes=recipes,
        keeps=keeps,
        contexts=options.contexts or (_QUICK_CONTEXTS if options.quick else _CONTEXTS),
        tokens=options.tokens,
        texts=tuple(texts.own_texts(options.text) if options.text else of_task()),
        task=(options.task, task),
        of_bytes=options.bytes,
        aware=options.aware,
        seed=options.seed,
        kvpress=options.kvpress,
        profiles=profiles,
    )
    loaded = models.load(options.model)
    names = ", ".join(text.name for text in settings.texts)
    print(
        f"{loaded.name}: {len(recipes)} recipes at {len(keeps)} budgets, {settings.contexts} "
        f"contexts of {settings.tokens} tokens from {names}; seed {settings.seed}",
        flush=True,
    )
    meter = Meter()
    try:
        return evaluate(loaded, settings, meter)
    finally:
        meter.close()


def _load(paths: Sequence[Path]) -> Results:
    first, *others = paths
    results = Results.load(first)
    for path in others:
        try:
            results.merge(Results.load(path))
        except ValueError as error:
            raise ValueError(f"{path} beside {first}: {error}") from None
    return results


def _write(results: Results, options: argparse.Namespace) -> None:
    title = f"Recipes on {results.model['name']}"
    if options.json is not None:
        results.save(options.json)
    drawn = {}
    if options.html is not None or options.png is not None:
        drawn = plots.draw(results)
    if options.html is not None:
        options.html.write_text(page(results, title, drawn))
    if options.png is not None:
        plots.save(drawn, options.png)
    if options.markdown is not None:
        saved = drawn if options.png is not None else {}
        folder = os.path.relpath(options.png, options.markdown.parent) if saved else ""
        options.markdown.write_text(markdown(results, title, saved, folder))


def main(arguments: Sequence[str] | None = None, prog: str = "precis.eval") -> int:
    """Returns the exit status: 0, 1 if it failed, 2 for bad arguments."""
    parser = _parser(prog)
    options = parser.parse_args(arguments)
    _check(parser, options)
    try:
        if options.html is not None or options.png is not None:
            plots.require()
        results = _load(options.load) if options.load else _run(parser, options)
        if options.loss is not None:
            results.settings["loss"] = options.loss
        _write(results, options)
    except (OSError, ValueError, ModuleNotFoundError, RuntimeError, precis.Error) as error:
        print(f"{prog}: {hint(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\n{prog}: interrupted", file=sys.stderr)
        return 130
    print(verdict(results))
    print()
    print(headline(results))
    print()
    print(text_table(*summary(results)))
    print()
    print(LEGEND)
    for heading, what, table in sections(results):
        print(f"\n{heading}\n\n{text_table(*table)}\n\n{what}")
    for note in [*results.notes, *failures(results)]:
        print(f"note: {note}")
    ran = [row for row in results.rows if row.source == "precis"]
    return 1 if ran and all(row.failed for row in ran) else 0


if __name__ == "__main__":
    sys.exit(main())
