"""The kinds of facts that an evaluation hides and asks for.

"codes", "keys", "values" and "variables" are families of RULER (Hsieh et al., 2024, section 3):
a number for each word; the same among twelve more that nobody asks for; two numbers for each word,
in separate sentences; and names of names of numbers. "facts" are about people by their trade, of
four kinds. "authors" are those of real quotations (quotes.py). "functions" are Python functions
that return a number, in program text. "tickets" are results of an agent's calls of a tool, in the
transcript of many calls. "continuation" hides nothing, and asks for the words that follow.
"""

from __future__ import annotations

import json
import random
import re

from .needles import Needle, Task

WORDS = (
    "harbor", "violin", "cactus", "lantern", "glacier", "saddle", "pepper", "anchor",
    "ribbon", "walnut", "falcon", "copper", "meadow", "candle", "turtle", "magnet",
)  # fmt: skip
_TRADES = (
    "baker", "librarian", "carpenter", "dentist", "gardener", "pilot", "tailor", "watchmaker",
    "plumber", "florist", "sculptor", "beekeeper", "locksmith", "surveyor", "potter", "glazier",
)  # fmt: skip
_TOWNS = ("Lisbon", "Oslo", "Toronto", "Nairobi", "Lima", "Dublin", "Prague", "Kyoto")
_PETS = ("parrot", "ferret", "goat", "tortoise", "rabbit", "canary", "donkey", "lizard")
_NOUNS = ("limit", "offset", "budget", "timeout", "weight", "depth", "margin", "rank")


def split_sentences(text: str) -> list[str]:
    """The sentences in order, with every run of white space as one blank."""
    return re.split(r"(?<=\.)\s+", " ".join(text.split()))


def split_blocks(text: str) -> list[str]:
    """The blocks of lines between blank lines."""
    return [block for block in re.split(r"\n(?:[ \t]*\n)+", text.strip("\n")) if block]


def secret_code(word: str, code: str) -> Needle:
    """A fact of the task "codes"."""
    begin = f"The secret code for {word} is"
    return Needle(
        word, (f"{begin} {code}.",), f"What is the secret code for {word}?", begin, f" {code}."
    )


_Drawn = tuple[list[Needle], list[str]]


def _number(draw: random.Random) -> str:
    return f"{draw.randrange(10000, 100000)}"


def _codes(draw: random.Random, count: int) -> _Drawn:
    words = draw.sample(WORDS, count)
    return [secret_code(word, _number(draw)) for word in words], []


def _keys(draw: random.Random, count: int) -> _Drawn:
    made, _ = _codes(draw, len(WORDS))
    return made[:count], [needle.sentence for needle in made[count:]]


def _values(draw: random.Random, count: int) -> _Drawn:
    made = []
    for word in draw.sample(WORDS, count):
        first, second = _number(draw), _number(draw)
        told = (f"One code for {word} is {first}.", f"Another code for {word} is {second}.")
        ask, begin = f"What are the two codes for {word}?", f"The two codes for {word} are"
        made.append(Needle(word, told, ask, begin, f" {first} and {second}."))
    return made, []


def _variables(draw: random.Random, count: int) -> _Drawn:
    made = []
    for word in draw.sample(WORDS, count):
        name, value = word.upper(), _number(draw)
        told = (f"The value of {name}-1 is {value}.", f"The value of {name}-2 is that of {name}-1.")
        begin = f"The value of {name}-2 is"
        made.append(Needle(word, told, f"What is the value of {name}-2?", begin, f" {value}."))
    return made, []


def _facts(draw: random.Random, count: int) -> _Drawn:
    made = []
    for number, trade in enumerate(draw.sample(_TRADES, count)):
        begin, answer, ask = (
            (f"The {trade} was born in", draw.choice(_TOWNS), f"Where was the {trade} born?"),
            (f"The {trade} keeps a", draw.choice(_PETS), f"Which animal does the {trade} keep?"),
            (
                f"The {trade} charges",
                f"{draw.randrange(21, 100)} crowns",
                f"How much does the {trade} charge?",
            ),
            (
                f"The {trade} has the telephone number",
                f"{draw.randrange(100, 1000)}-{draw.randrange(1000, 10000)}",
                f"What is the telephone number of the {trade}?",
            ),
        )[number % 4]
        made.append(Needle(trade, (f"{begin} {answer}.",), ask, begin, f" {answer}."))
    draw.shuffle(made)  # so that kinds of facts have random places
    return made, []


def _functions(draw: random.Random, count: int) -> _Drawn:
    made = []
    for word in draw.sample(WORDS, count):
        name, value = f"{word}_{draw.choice(_NOUNS)}", _number(draw)
        told = (f"def {name}():\n    return {value}",)
        ask = f"What does {name}() return?"
        made.append(Needle(word, told, ask, f"{name}() returns", f" {value}."))
    return made, []


def _tickets(draw: random.Random, count: int) -> _Drawn:
    made = []
    for word in draw.sample(WORDS, count):
        title, number = f"{word} {draw.choice(_NOUNS)}", _number(draw)
        result = {"ticket": int(number)}
        told = (json.dumps({"call": "open_ticket", "title": title, "result": result}),)
        ask = f'Which ticket did open_ticket return for "{title}"?'
        made.append(
            Needle(word, told, ask, f'For "{title}", it returned the ticket', f" {number}.")
        )
    return made, []


def _nothing(draw: random.Random, count: int) -> _Drawn:
    return [], []


CODES = Task(_codes, split_sentences, " ")
KEYS = Task(_keys, split_sentences, " ")
VALUES = Task(_values, split_sentences, " ")
VARIABLES = Task(_variables, split_sentences, " ")
FACTS = Task(_facts, split_sentences, " ")
FUNCTIONS = Task(_functions, split_blocks, "\n\n")
TICKETS = Task(_tickets, str.splitlines, "\n")
CONTINUATION = Task(_nothing, split_sentences, " ")
