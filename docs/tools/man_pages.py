"""The manual pages precisctl(1) and precisd(8), from the programs' own --help.

Run as `man_pages.py BIN_FOLDER MAN_FOLDER`; `cmake --install` does.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from cli_reference import help_of, subcommands

PAGES = {"precisctl": 1, "precisd": 8}


def _roff(text: str) -> str:
    """The text with nothing that troff would take for a request or an escape."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def _entries(lines: list[str]) -> list[tuple[str, str]]:
    """Name and text of each line of a list; a long name has its text on the next line."""
    entries: list[tuple[str, str]] = []
    for line in lines:
        if line.startswith(" " * 4):
            name, text = entries.pop()
            entries.append((name, f"{text} {line.strip()}".strip()))
        else:
            name, _, text = line.strip().partition("  ")
            entries.append((name, text.strip()))
    return entries


def _parts(text: str) -> tuple[str, str, dict[str, list[str]], list[str]]:
    """What it does, its usage, its lists by their headings, and the paragraphs at the end."""
    head, _, rest = text.partition("Usage: ")
    usage, _, rest = rest.partition("\n")
    lists: dict[str, list[str]] = {}
    paragraphs = []
    for part in filter(None, map(str.strip, re.split(r"\n\n+", rest))):
        first, *lines = part.split("\n")
        if lines and first.endswith(":") and lines[0].startswith("  "):
            lists[first.removesuffix(":")] = lines
        else:
            paragraphs.append(" ".join([first, *lines]))
    return " ".join(head.split()), usage, lists, paragraphs


def _list(entries: list[tuple[str, str]]) -> str:
    return "".join(f".TP\n.B {_roff(name)}\n{_roff(text)}\n" for name, text in entries)


def _options(lists: dict[str, list[str]]) -> str:
    found = [entry for heading in ("Positionals", "Options") for entry in lists.get(heading, [])]
    entries = _entries(found)
    return _list([entry for entry in entries if not entry[0].startswith("-h,")])


def _commands(program: Path, words: tuple[str, ...], footer: list[str]) -> str:
    text = help_of(program, words)
    below = subcommands(text)
    page = ""
    if words and not below:
        what, _, lists, paragraphs = _parts(text)
        usage = " ".join((program.name, *words))
        page = f".SS {_roff(usage)}\n{_roff(what)}.\n" + _options(lists)
        page += "".join(f".PP\n{_roff(p)}\n" for p in paragraphs if p not in footer)
    return page + "".join(_commands(program, (*words, word), footer) for word in below)


def page(program: Path) -> str:
    """The page of one program, in the man macros."""
    name, section = program.name, PAGES[program.name]
    text = help_of(program)
    what, usage, lists, paragraphs = _parts(text)
    usage = re.sub(r"^\S*/", "", usage)  # the program's path
    short = what.split(". ")[0].removeprefix(f"{name} ").rstrip(".")
    parts = [
        f'.TH {name.upper()} {section} "" "" "Precis"\n',
        f".SH NAME\n{name} \\- {_roff(short[0].lower() + short[1:])}\n",
        f".SH SYNOPSIS\n.B {_roff(usage)}\n",
        f".SH DESCRIPTION\n{_roff(what)}\n",
        f".SH OPTIONS\n{_options(lists)}",
    ]
    if subcommands(text):
        parts.append(f".SH COMMANDS\n{_commands(program, (), paragraphs)}")
    for paragraph in paragraphs:
        codes, _, rest = paragraph.partition(". ")
        statuses = re.findall(r"(\d+) (.*?)(?:; (?=\d+ )|$)", codes.removeprefix("Exit codes: "))
        if codes != paragraph and statuses:
            parts.append(f".SH EXIT STATUS\n{_list(statuses)}.PP\n{_roff(rest)}\n")
        else:
            parts.append(f".SH NOTES\n{_roff(paragraph)}\n")
    others = ", ".join(f"{other}({n})" for other, n in PAGES.items() if other != name)
    parts.append(f".SH SEE ALSO\n{_roff(others)}\n")
    return "".join(parts)


def main(programs: Path, to: Path) -> None:
    for name, section in PAGES.items():
        folder = to / f"man{section}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.{section}").write_text(page(programs / name))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
