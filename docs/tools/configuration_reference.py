"""The page of precisd's configuration, from deploy/precisd.toml and its comments."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_VALUE = r"(?P<value>\"[^\"]*\"|\[[^\]]*\]|[^#\s]+)"
_KEY = re.compile(r"(?P<name>\w+)\s*=\s*" + _VALUE + r"\s*(?:#\s?(?P<text>.*))?$")
_TABLE = re.compile(r"\[\[(\w+)\]\]$")


@dataclass
class Key:
    """One setting: its name, its default or an example, and what its comment says."""

    name: str
    value: str
    text: list[str] = field(default_factory=list)


@dataclass
class Section:
    """Settings under one comment; `table` names an array of tables whose example is commented."""

    intro: list[str]
    keys: list[Key] = field(default_factory=list)
    table: str = ""


def sections(toml: str) -> list[Section]:
    """The file, section by section. A blank line followed by a comment begins a new one."""
    found = [Section([])]
    above: list[str] = []  # a comment that stands above a key, amid others
    after_blank = True
    for line in toml.splitlines():
        text = line.strip()
        comment = text.lstrip("# ") if text.startswith("#") else None
        inner = text.removeprefix("#").strip()
        if not text:
            after_blank = True
            continue
        if comment is None:
            key = _KEY.match(text)
            if key is None:
                raise ValueError(f"no key: {line}")
            found[-1].keys.append(Key(key["name"], key["value"], above + _text(key["text"])))
            above = []
        elif table := _TABLE.match(inner):
            found[-1].table = table[1]
        elif found[-1].table and (key := _KEY.match(inner)):
            found[-1].keys.append(Key(key["name"], key["value"], _text(key["text"])))
        elif line[0] == " " or found[-1].table:  # goes on with the last key
            found[-1].keys[-1].text.append(comment)
        elif after_blank and (found[-1].keys or found[-1].intro):
            found.append(Section([comment]))
        elif found[-1].keys:
            above.append(comment)
        else:
            found[-1].intro.append(comment)
        after_blank = False
    return found


def _text(text: str | None) -> list[str]:
    return [text] if text else []


def _rows(keys: list[Key]) -> str:
    head = "| key | default | meaning |\n| --- | --- | --- |\n"
    return head + "".join(
        f"| `{key.name}` | `{key.value}` | {_cell(' '.join(key.text))} |\n" for key in keys
    )


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;").replace("[[", r"\[\[")


def page(toml: str) -> str:
    """The page."""
    parts = ["# Configuration\n"]
    for section in sections(toml):
        if section.table:
            parts.append(f"## [[{section.table}]]\n")
        parts.append(_cell(" ".join(section.intro)) + "\n")
        if section.keys:
            rows = _rows(section.keys)
            parts.append(rows.replace("| default |", "| example |", 1) if section.table else rows)
    return "\n".join(parts)
