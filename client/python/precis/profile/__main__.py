"""The command line: ``precis profile build``, ``python -m precis.profile build``."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

# Set before torch is loaded: threads that spin while they wait slow the compressing threads.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import precis
from precis import files
from precis.eval.__main__ import Meter
from precis.eval.cuts import Recipe
from precis.extras import exit_status

_CONTEXTS, _TOKENS, _TOKENS_MIN = 8, 1024, 64
_PROBE_TOKENS = 4096  # learnt from short contexts, a probe is worse in long ones


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog, description="Learns from what a model looks back at: budgets, or a scorer."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    build = verbs.add_parser(
        "build",
        help="reads contexts and writes a profile",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = build.add_argument
    add("--out", type=Path, required=True, metavar="FILE", help="the profile, as JSON")
    add(
        "--recipe",
        default="global_kvprobe",
        help="that will use it: global_kvprobe for a scorer, lukv(...) or headkv for budgets",
    )
    add("--model", default="smollm2", help="smollm2, gemma3, qwen, or a folder")
    add("--name", help="that recipes call it by [the file's]")
    add("--contexts", type=int, default=_CONTEXTS, metavar="N", help="to read")
    add(
        "--tokens",
        type=int,
        metavar="N",
        help=f"of a context [{_PROBE_TOKENS} for a scorer, {_TOKENS} for budgets]",
    )
    add(
        "--text",
        action="append",
        type=Path,
        metavar="FILE",
        help="cut contexts of; may be repeated [texts of this machine that precis eval never uses]",
    )
    add(
        "--questions",
        type=Path,
        metavar="FILE",
        help="a line each, answered about every context [six that suit any text]",
    )
    add(
        "--worth",
        choices=("oracle", "repetition", "scores"),
        default="oracle",
        help="what an entry is worth: the attention that answers give it, or a repetition of the "
        "context, or its own score; see docs/which-recipe.md",
    )
    add("--seed", type=int, default=0, help="of where contexts begin")
    return parser


def _settings(parser: argparse.ArgumentParser, options: argparse.Namespace):
    """The settings, checked as far as possible before a model is loaded."""
    if options.contexts < 1:
        parser.error(f"--contexts {options.contexts}: at least 1 is needed")
    if options.tokens is not None and options.tokens < _TOKENS_MIN:
        parser.error(f"--tokens {options.tokens}: at least {_TOKENS_MIN} are needed")
    if not options.out.absolute().parent.is_dir():
        parser.error(f"--out {options.out}: its folder does not exist; make it first")
    try:
        recipe = Recipe.parse(options.recipe)
    except precis.InvalidArgument as error:
        parser.error(f"--recipe: {error}")
    if recipe.profile is None:
        parser.error(f"--recipe {options.recipe} takes no profile; global_kvprobe and lukv(...) do")
    from precis.eval import texts

    from .build import QUESTIONS, Settings

    is_probe = recipe.fields["table"] == "probe"
    if is_probe and (options.questions or options.worth != "oracle"):
        parser.error("--questions and --worth are for budgets; kvprobe learns from repetitions")
    if options.questions and options.worth != "oracle":
        parser.error(f"--questions are asked for the oracle; leave out --worth {options.worth}")
    questions = QUESTIONS
    if options.questions:
        text = files.read_text(options.questions, files.TEXT_FILE_BYTES_MAX)
        questions = tuple(line.strip() for line in text.splitlines() if line.strip())
        if not questions:
            parser.error(f"--questions {options.questions}: has no questions")
    return Settings(
        name=options.name or recipe.profile or options.out.stem,
        recipe=recipe,
        contexts=options.contexts,
        tokens=options.tokens or (_PROBE_TOKENS if is_probe else _TOKENS),
        texts=tuple(texts.own_texts(options.text) if options.text else _texts(is_probe)),
        questions=questions,
        seed=options.seed,
        worth=options.worth,
    )


def _texts(is_probe: bool):
    from precis.eval import texts

    return [*texts.fitting_texts(), *(texts.long_fitting_texts() if is_probe else [])]


def _build(options: argparse.Namespace, settings) -> None:
    from precis.eval import models

    from .build import BudgetBuilder
    from .probe import ProbeBuilder

    parts = options.out.with_name(options.out.name + ".parts")
    builder = ProbeBuilder if settings.kind == "probe" else BudgetBuilder
    meter = Meter()
    try:
        profile = builder(models.load(options.model), settings, parts).build(meter)
    finally:
        meter.close()
    scratch = options.out.with_name(options.out.name + ".tmp")
    scratch.write_text(json.dumps(profile) + "\n")
    scratch.rename(options.out)
    shutil.rmtree(parts)
    if (correlation := profile.get("held_out_correlation")) is not None:
        print(f"correlation with the attention in texts that were not fitted: {correlation:.2f}")
    elif settings.kind == "probe":
        print("how well the probe predicts is unknown: the last fifth of the texts is too short")
    print(
        f"{options.out}: profile {profile['name']!r} of {settings.contexts} contexts, for "
        f"{settings.recipe.text} with profile={profile['name']}"
    )


def main(arguments: Sequence[str] | None = None, prog: str = "precis.profile") -> int:
    """Returns the exit status: 0, 1 if it failed, 2 for bad arguments."""
    parser = _parser(prog)
    options = parser.parse_args(arguments)
    again = "interrupted; the same command goes on from here"
    return exit_status(prog, lambda: _build(options, _settings(parser, options)), again)


if __name__ == "__main__":
    sys.exit(main())
