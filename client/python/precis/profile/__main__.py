"""The command line: ``precis profile build`` and ``measure``, ``python -m precis.profile``."""

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
from precis.eval.__main__ import TOKENS_MIN as EVAL_TOKENS_MIN
from precis.eval.__main__ import Meter
from precis.eval.cuts import Recipe
from precis.eval.table import text_table
from precis.extras import exit_status

from . import shipped

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
    _add_measure(verbs)
    return parser


def _add_measure(verbs: argparse._SubParsersAction) -> None:
    measure = verbs.add_parser(
        "measure",
        help="measures what answers lose with a profile, and writes that into it",
        description="Measures what answers lose at each budget. A put with keep='loss 0.05' then "
        "keeps the smallest share that lost no more.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = measure.add_argument
    add("profile", metavar="FILE", help="the profile, which gets the losses")
    add(
        "--out",
        type=Path,
        metavar="FILE",
        help="write it here [over FILE; needed for a shipped profile]",
    )
    add("--model", default="smollm2", help="smollm2, gemma3, qwen, or a folder")
    add(
        "--recipe",
        help="that will use it, with its encoding [for a probe, that of puts at a loss]",
    )
    add("--contexts", type=int, default=12, metavar="N", help="of each kind of facts")
    add(
        "--tokens",
        type=int,
        default=_TOKENS,
        metavar="N",
        help="of a context; losses of other lengths stay in the profile",
    )
    add(
        "--text",
        action="append",
        type=Path,
        metavar="FILE",
        help="hide the facts in it; may be repeated; none that the profile was fitted to [texts of "
        "this machine for each kind]",
    )
    add(
        "--kinds",
        default="codes,facts,functions",
        metavar="A,B,...",
        help="of facts, as the tasks of precis eval; the largest loss of a kind counts",
    )
    add("--seed", type=int, default=0, help="for contexts and facts")


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


def _measure(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.contexts < 2:
        parser.error(f"--contexts {options.contexts}: at least 2 are needed, for an error")
    if options.tokens < EVAL_TOKENS_MIN:
        parser.error(f"--tokens {options.tokens}: at least {EVAL_TOKENS_MIN} are needed")
    try:
        text = shipped.read(options.profile)
        profile = json.loads(text)
        kind, name = profile["kind"], profile["name"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        parser.error(f"{options.profile}: not a profile ({error})")
    out = options.out or Path(options.profile)
    if not out.absolute().parent.is_dir():
        parser.error(f"--out {out}: its folder does not exist; make it first")
    if options.out is None and not out.is_file():
        parser.error(f"{options.profile}: is a shipped profile; name the result with --out")
    if options.recipe is None and kind != "probe":
        parser.error(f"{options.profile}: give the --recipe that will use it")
    from precis.eval import models
    from precis.hf.spec import head_dim

    from .measure import default_recipe, measure, with_losses

    recipe = _measured(parser, options.recipe) if options.recipe else None
    kinds = _kinds(parser, options)
    loaded = models.load(options.model)
    if recipe is None:
        channels = head_dim(loaded.hf_model.config.get_text_config(decoder=True))
        recipe = Recipe.parse(default_recipe(channels))
    meter = Meter()
    try:
        measured = measure(
            loaded, text, recipe, kinds, options.contexts, options.tokens, options.seed, meter
        )
    finally:
        meter.close()
    rows = [
        [f"{one.keep:.0%}", *(f"{loss:+.3f} ± {error:.3f}" for loss, error in one.losses.values())]
        for one in measured
    ]
    print(text_table(["keep", *(one.name for one in kinds)], rows), flush=True)
    _write(out, with_losses(profile, recipe, options.tokens, measured))
    print(f"{out}: profile {name!r} with losses in contexts of {options.tokens} tokens")


def _measured(parser: argparse.ArgumentParser, text: str) -> Recipe:
    try:
        recipe = Recipe.parse(text)
    except precis.InvalidArgument as error:
        parser.error(f"--recipe: {error}")
    if recipe.profile is None:
        parser.error(f"--recipe {text} takes no profile")
    return recipe


def _kinds(parser: argparse.ArgumentParser, options: argparse.Namespace):
    from precis.eval import texts

    from .measure import Kind

    kinds = []
    for name in options.kinds.split(","):
        if name not in texts.TASKS:
            parser.error(f"--kinds {name!r}: choose from {', '.join(texts.TASKS)}")
        task, of_task = texts.TASKS[name]
        own = texts.own_texts(options.text) if options.text else of_task()
        kinds.append(Kind(name, task, tuple(own)))
    return kinds


def _write(out: Path, profile: dict) -> None:
    scratch = out.with_name(out.name + ".tmp")
    scratch.write_text(json.dumps(profile) + "\n")
    scratch.rename(out)


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
    _write(options.out, profile)
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
    if options.verb == "measure":
        return exit_status(prog, lambda: _measure(parser, options), "interrupted")
    again = "interrupted; the same command goes on from here"
    return exit_status(prog, lambda: _build(options, _settings(parser, options)), again)


if __name__ == "__main__":
    sys.exit(main())
