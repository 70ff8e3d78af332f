"""Texts to read: those of this machine, or the user's own.

A profile or parameter is never evaluated on a text that it was fitted on. So each text of this
machine is used either for evaluation or for fitting.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from precis import files

from . import quotes, tasks
from .needles import Dialogue, Document, Encode, Task, make_document
from .tasks import split_sentences

_LICENCES = Path("/usr/share/common-licenses")
# Long texts first: the demo takes the first that exists.
EVALUATION = ("GPL-3", "GPL-2", "MPL-2.0", "Apache-2.0")
_FITTING = ("CC0-1.0", "Artistic")
_FITTING_LONG = "MPL-1.1"


@dataclass(frozen=True)
class Text:
    """A text with a name for people."""

    name: str
    text: str


def machine_texts(names: tuple[str, ...] = EVALUATION) -> list[Text]:
    """The licences among `names` that this machine has.

    Raises:
        FileNotFoundError: Debian's folder of licences has none of them.
    """
    found = [Text(name, _read(_LICENCES / name)) for name in names if (_LICENCES / name).is_file()]
    if not found:
        raise FileNotFoundError(f"no licence text in {_LICENCES}; name a text file of your own")
    return found


def fitting_texts() -> list[Text]:
    """The texts for fitting profiles: other licences, if present, and Python's reference."""
    from pydoc_data.topics import topics

    licences = [_LICENCES / name for name in _FITTING]
    reference = Text("Python's language reference", "\n".join(topics.values()))
    return [Text(p.name, _read(p)) for p in licences if p.is_file()] + [reference]


def long_fitting_texts() -> list[Text]:
    """More texts, for contexts of thousands of tokens: a licence, and NumPy's sources.

    The licence without the sentences that it shares with those for evaluation.
    """
    import numpy as np

    folder = Path(np.__file__).parent
    sources = (_read(path) for path in sorted((folder / "lib").glob("*.py")))
    texts = [Text("NumPy's sources", "\n".join(sources))]
    licence = _LICENCES / _FITTING_LONG
    if licence.is_file():
        judged = {sentence for text in machine_texts() for sentence in split_sentences(text.text)}
        own = [s for s in split_sentences(_read(licence)) if s not in judged]
        texts.append(Text(licence.name, " ".join(own)))
    return texts


def quotations() -> list[Text]:
    """The collections of quotations of Debian's package `fortunes`.

    Raises:
        FileNotFoundError: it is not installed.
    """
    names = ("literature", "science", "wisdom", "art", "people", "work", "education")
    found = [name for name in names if (quotes.FOLDER / name).is_file()]
    if not found:
        raise FileNotFoundError(
            f"no quotations in {quotes.FOLDER}; install Debian's package 'fortunes', or name a "
            "text file of your own"
        )
    return [Text(name, "\n".join(quotes.read_quotations(name))) for name in found]


def program_texts() -> list[Text]:
    """Long modules of Python's standard library."""
    folder = Path(random.__file__).parent
    names = ("argparse.py", "tarfile.py", "subprocess.py", "shutil.py", "zipfile.py", "typing.py")
    return [Text(name, _read(folder / name)) for name in names if (folder / name).is_file()]


def transcripts() -> list[Text]:
    """What an agent got that searched modules of Python's standard library, a call in each line."""
    made = []
    for module in program_texts():
        found: dict[str, list[str]] = {}
        for number, line in enumerate(module.text.splitlines(), 1):
            for name in re.findall(r"[a-z]{5,}", line)[:2]:
                found.setdefault(name, []).append(f"{number}: {line.strip()}")
        calls = (
            {"call": "grep", "file": module.name, "word": name, "result": lines[:3]}
            for name, lines in found.items()
        )
        made.append(Text(f"calls on {module.name}", "\n".join(map(json.dumps, calls))))
    return made


# A task's facts, and the texts of this machine that they are hidden in.
TASKS: dict[str, tuple[Task, Callable[[], list[Text]]]] = {
    "codes": (tasks.CODES, machine_texts),
    "keys": (tasks.KEYS, machine_texts),
    "values": (tasks.VALUES, machine_texts),
    "variables": (tasks.VARIABLES, machine_texts),
    "facts": (tasks.FACTS, quotations),
    "authors": (quotes.AUTHORS, quotations),
    "functions": (tasks.FUNCTIONS, program_texts),
    "tickets": (tasks.TICKETS, transcripts),
    "continuation": (tasks.CONTINUATION, lambda: machine_texts() + quotations()),
}


def own_texts(paths: list[Path]) -> list[Text]:
    """Files of UTF-8 text.

    Raises:
        OSError, ValueError: naming the file.
    """
    return [Text(path.name, _read(path)) for path in paths]


def _read(path: Path) -> str:
    return files.read_text(path, files.TEXT_FILE_BYTES_MAX)


def draw_document(
    texts: list[Text], task: Task, num_tokens: int, seed: str, encode: Encode, dialogue: Dialogue
) -> tuple[str, Document]:
    """The name of a random text of `texts`, and a document with needles from it.

    The document starts at a random piece of the text; at its end the text wraps around. Texts that
    are too short are skipped; if all are, they are joined.

    Raises:
        ValueError: all texts together are too short.
    """
    draw = random.Random(seed)
    drawn = draw.sample(texts, len(texts))
    joined = Text(", ".join(each.name for each in drawn), "\n".join(each.text for each in drawn))
    for text in [*drawn, joined]:
        pieces = task.split(text.text)
        start = draw.randrange(max(1, len(pieces)))
        turned = task.joint.join(pieces[start:] + pieces[:start])
        # A token is rarely longer than 12 characters, and texts may be books: cut early.
        turned = turned[: 12 * num_tokens + 4000]
        try:
            return text.name, make_document(
                turned, task, num_tokens, seed, encode, dialogue=dialogue
            )
        except ValueError as error:
            reason = error
    raise ValueError(f"no text is long enough for {num_tokens} tokens ({joined.name}): {reason}")
