"""Questions about real quotations, of Debian's package `fortunes`: who said them?"""

from __future__ import annotations

import functools
import random
import re
from pathlib import Path

from precis import files

from .needles import Needle, Task
from .tasks import split_sentences

FOLDER = Path("/usr/share/games/fortunes")
# Not the collections in which they are hidden.
_COLLECTIONS = ("computers", "miscellaneous", "platitudes", "songs-poems")
_ASKED_WORDS = 8
_BEGIN = "These are words of"
_WITH_AUTHOR = re.compile(r"([^\t]+)\n\t\t-- ([A-Z][\w.]*(?: [A-Z][\w.]*){1,3})")


def read_quotations(name: str) -> list[str]:
    """The quotations of a collection, with their lines and authors."""
    text = files.read_text(FOLDER / name, files.TEXT_FILE_BYTES_MAX)
    return text.rstrip("\n").removesuffix("\n%").split("\n%\n")


@functools.cache
def with_authors() -> list[tuple[str, str]]:
    """Quotations of one paragraph, each with the name of its author.

    Raises:
        FileNotFoundError: they are not installed.
    """
    found = [name for name in _COLLECTIONS if (FOLDER / name).is_file()]
    if not found:
        raise FileNotFoundError(f"no quotations in {FOLDER}; install Debian's package 'fortunes'")
    made = []
    for name in found:
        for quotation in read_quotations(name):
            if parts := _WITH_AUTHOR.fullmatch(quotation):
                words = parts[1].split()
                if _ASKED_WORDS < len(words) <= 50 and parts[2] not in parts[1]:
                    made.append((" ".join(words), parts[2]))
    return made


def _authors(draw: random.Random, count: int) -> tuple[list[Needle], list[str]]:
    made: dict[str, Needle] = {}
    for quotation, author in draw.sample(with_authors(), len(with_authors())):
        first = " ".join(quotation.split()[:_ASKED_WORDS])
        ask = f'Who said "{first} ..."?'
        told = (f"{quotation} {_BEGIN} {author}.",)
        made.setdefault(author, Needle(author, told, ask, _BEGIN, f" {author}."))
        if len(made) == count:
            return list(made.values()), []
    raise ValueError(f"the quotations in {FOLDER} have {len(made)} authors, {count} are needed")


AUTHORS = Task(_authors, split_sentences, " ")
