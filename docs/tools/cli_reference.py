"""The page of the programs' command lines, from their own --help."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

PROGRAMS = ("precisctl", "precisd")


def help_of(program: Path, words: tuple[str, ...] = ()) -> str:
    """What `program WORDS --help` prints, the program called by its bare name."""
    return subprocess.run(
        [program.name, *words, "--help"],
        executable=program,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout


def subcommands(text: str) -> list[str]:
    """The names under "Subcommands:" of a help text."""
    _, _, listed = text.partition("\nSubcommands:\n")
    return re.findall(r"^  (\S+)", listed.partition("\n\n")[0], re.MULTILINE)


def _sections(program: Path, words: tuple[str, ...], footer: str) -> list[str]:
    text = help_of(program, words)
    own = text.removesuffix(footer).strip()
    what, _, rest = own.partition("\n")
    name = " ".join((program.name, *words))
    level = "#" * min(len(words) + 2, 4)
    found = [f"{level} {name}\n\n{what}\n\n```text\n{rest.strip()}\n```\n"]
    for word in subcommands(text):
        found += _sections(program, (*words, word), footer)
    return found


def _of(program: Path) -> str:
    # A last paragraph that every subcommand repeats is printed once.
    text = help_of(program)
    footer = text[text.rstrip().rfind("\n\n") :] if "\n\nExit codes:" in text else ""
    parts = _sections(program, (), footer)
    return "\n".join([parts[0], *([footer.strip() + "\n"] if footer else []), *parts[1:]])


def page(folder: Path) -> str:
    """The page; it says what is missing if the programs are not built."""
    head = (
        "# Command line\n\nMade from the programs' own `--help`. `precisctl` looks into a running "
        "`precisd` and changes what may be changed while it runs.\n"
    )
    programs = [folder / name for name in PROGRAMS]
    if not all(program.exists() for program in programs):
        return head + "\nThe programs were not built when this site was made: `./dev docs` does.\n"
    return "\n".join([head, *map(_of, programs)])
