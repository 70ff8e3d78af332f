"""The page of the C++ client: its public headers, declaration by declaration, with their comments.

It reads the layout that clang-format gives these headers, not C++: a comment stands above what it
is about or behind it on the same line, and a blank line ends it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_HEAD = (
    "# C++\n\nMade from the public headers of the client. A program includes "
    "`precis/client.h`, and `precis/calls.h` if its threads must not wait.\n"
)
_CLASS = re.compile(r"(class|struct|enum class) (\w+)[^;(]*\{$")
_NAME = re.compile(r"(~?\w+)\s*(?:\(|=|\{|;|$)")
# Nothing that a reader calls: moves, deleted copies, destructors, names that are only announced.
_SILENT = re.compile(r"&&\) noexcept;|= delete;|^(virtual )?~|^(friend )?(class|struct) \w+;")
# Words of a comment that are code.
_CODE = re.compile(
    r"`[^`]+`|\[[\w, ]*_[\w, ]*\]"
    r"|(?<![\w:/.\"])(?:k[A-Z]\w+|\w+(?:::\w+)+(?:\(\))?|\w+\(\)|[a-z]\w*_\w+)(?!\w)"
)


@dataclass
class Item:
    """A declaration or a class: its comment, its text, and of a class what is public in it."""

    comment: list[str]
    text: str
    name: str
    members: list[Item] | None = None

    @property
    def is_field(self) -> bool:
        """A variable, for which a line of a table is enough."""
        declared = re.split("[={]", _without_templates(self.text))[0]
        return self.members is None and "(" not in declared and not declared.startswith("using")


@dataclass
class _Reader:
    lines: list[str]
    at: int = 0
    hidden: bool = False  # past private:
    comment: list[str] = field(default_factory=list)

    def items(self) -> list[Item]:
        """Everything up to the brace that closes the block."""
        found: list[Item] = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            text = line.strip()
            self.at += 1
            if text.startswith("}"):
                break
            if text.startswith("//"):
                self.comment.append(text[2:].removeprefix(" "))
            elif not text:
                self.comment = []
            elif text in ("public:", "private:", "protected:"):
                self.hidden = text != "public:"
            else:
                self._declaration(text, found)
        return found

    def _declaration(self, text: str, found: list[Item]) -> None:
        comment, self.comment = self.comment, []
        hidden = self.hidden
        if opened := _CLASS.match(text):
            self.hidden = False
            item = Item(comment, text.removesuffix("{").strip() + ";", opened[2], self.items())
            self.hidden = hidden
        else:
            item = self._statement(text, comment)
            if _SILENT.search(item.text) and not comment:
                return
        if not hidden:
            found.append(item)

    def _statement(self, text: str, comment: list[str]) -> Item:
        """Up to its semicolon, or to the end of a body that stands in the class."""
        parts = []
        while True:
            code, slashes, behind = text.partition("  // ")
            parts.append(code.strip())
            if slashes:
                comment = [*comment, behind, *self._continued()]
            joined = " ".join(parts)
            depth = sum(joined.count(c) for c in "({") - sum(joined.count(c) for c in ")}")
            if depth <= 0 and joined[-1] in ";}":
                break
            text = self.lines[self.at].strip()
            self.at += 1
        joined = re.sub(r" \{ .*\}$", ";", joined)
        return Item(comment, joined, _name_of(joined))

    def _continued(self) -> list[str]:
        """Further lines of a comment that began behind a declaration: they stand to its right."""
        behind = []
        while self.at < len(self.lines) and re.match(r" {8,}// ", self.lines[self.at]):
            behind.append(self.lines[self.at].strip()[3:])
            self.at += 1
        return behind


def _without_templates(text: str) -> str:
    """The text without what stands in angle brackets, however deep."""
    while (shorter := re.sub(r"<[^<>]*>", "", text)) != text:
        text = shorter
    return text


def _name_of(declaration: str) -> str:
    if using := re.match(r"using (\w+)", declaration):
        return using[1]
    if operator := re.search(r"operator ?[^(]+", declaration):
        return operator[0]
    plain = _without_templates(declaration)
    found = _NAME.search(plain.partition("(")[0] + plain.partition("(")[1])
    return found[1] if found else declaration


def items_of(header: str) -> tuple[list[str], list[Item]]:
    """The comment that a header begins with, and what stands in its namespace."""
    lines = header.splitlines()
    about = []
    for line in lines:
        if not line.startswith("//"):
            break
        about.append(line[2:].removeprefix(" "))
    begin = lines.index("namespace precis {") + 1
    return about, _Reader(lines[begin:]).items()


def _prose(comment: list[str]) -> str:
    """A comment as Markdown: indented lines are code, the others paragraphs."""
    blocks: list[tuple[bool, list[str]]] = []
    for line in comment:
        is_code = line.startswith("  ")
        if not line.strip():
            blocks.append((False, []))
        elif blocks and blocks[-1][0] == is_code and blocks[-1][1]:
            blocks[-1][1].append(line)
        else:
            blocks.append((is_code, [line]))
    return "\n\n".join(
        "```cpp\n" + "\n".join(line[2:] for line in lines) + "\n```" if is_code else _inline(lines)
        for is_code, lines in blocks
        if lines
    )


def _inline(lines: list[str]) -> str:
    text = " ".join(lines).replace("<", "&lt;").replace("*", r"\*")
    return _CODE.sub(lambda found: "`" + found[0].strip("`") + "`", text)


def _fields(fields: list[Item]) -> str:
    rows = [
        f"| `{item.text.removesuffix(';')}` | {_inline(item.comment).replace('|', chr(92) + '|')} |"
        for item in fields
    ]
    return "\n".join(["| field | meaning |", "| --- | --- |", *rows])


def _rendered(item: Item, level: int) -> list[str]:
    parts = ["#" * level + f" {item.name}"]
    if item.members is None:
        return [*parts, f"```cpp\n{item.text}\n```", _prose(item.comment)]
    parts.append(_prose(item.comment))
    fields = [member for member in item.members if member.is_field]
    if fields:
        parts.append(_fields(fields))
    for member in item.members:
        if not member.is_field:
            parts += _rendered(member, level + 1)
    return parts


def page(headers: dict[str, str]) -> str:
    """The page of the headers that are C++; client.h first."""
    parts = [_HEAD]
    names = [name for name, text in headers.items() if "\nnamespace precis {\n" in text]
    for name in sorted(names, key=lambda name: (name != "client.h", name)):
        about, items = items_of(headers[name])
        parts += [f"## {name}", _prose(about)]
        for item in items:
            parts += _rendered(item, 3)
    return "\n\n".join(part for part in parts if part) + "\n"
