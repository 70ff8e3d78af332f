"""A document with four needles, and the questions that find them.

A licence text of this machine with four sentences "The secret code for WORD is NNNNN." hidden at
sentence boundaries. The document alone is compressed, before any question is known.
"""

from __future__ import annotations

import bisect
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_LICENCES = Path("/usr/share/common-licenses")
# Longest first: the demo takes the first that is there.
_LICENCE_NAMES = ("GPL-3", "GPL-2", "LGPL-2.1", "Apache-2.0")
_WORDS = (
    "harbor", "violin", "cactus", "lantern", "glacier", "saddle", "pepper", "anchor",
    "ribbon", "walnut", "falcon", "copper", "meadow", "candle", "turtle", "magnet",
)  # fmt: skip
_TURN_BEGIN = "<|im_start|>user\n"
_TURN_CHANGE = "<|im_end|>\n<|im_start|>assistant\n"


@dataclass(frozen=True)
class Needle:
    """One hidden fact, as a question and the answer to it."""

    word: str
    code: str

    @property
    def sentence(self) -> str:
        return f"The secret code for {self.word} is {self.code}."

    @property
    def question(self) -> str:
        """Continues the document; the assistant's answer has begun and lacks the code."""
        ask = f"\nWhat is the secret code for {self.word}?"
        return f"{ask}{_TURN_CHANGE}The secret code for {self.word} is"

    @property
    def answer(self) -> str:
        return f" {self.code}."


def licence_text() -> tuple[str, str]:
    """The name and the text of a licence on this machine.

    Raises:
        FileNotFoundError: there is none where Debian keeps them.
    """
    for name in _LICENCE_NAMES:
        if (path := _LICENCES / name).is_file():
            return name, path.read_text(encoding="utf-8")
    raise FileNotFoundError(
        f"no licence text in {_LICENCES}; name a text file with --document FILE"
    )


def make_document(
    text: str, num_tokens: int, seed: int, encode: Callable[[str], list[int]], num_needles: int = 4
) -> tuple[list[int], list[Needle]]:
    """A document of at most `num_tokens` tokens with needles in it.

    Returns:
        Its token ids, and the needles in no particular order.

    Raises:
        ValueError: `text` is too short, or `num_tokens` leaves no room for the needles.
    """
    draw = random.Random(seed)
    needles = [
        Needle(word, f"{draw.randrange(10000, 100000)}")
        for word in draw.sample(_WORDS, num_needles)
    ]
    sentences = re.split(r"(?<=\.)\s+", " ".join(text.split()))

    def render(count: int, places: list[int]) -> list[int]:
        told = list(sentences[:count])
        for place, needle in sorted(zip(places, needles, strict=True), key=_place, reverse=True):
            told.insert(place, needle.sentence)
        return encode(_TURN_BEGIN + " ".join(told))

    def length(count: int) -> int:
        return len(render(count, [count] * num_needles))

    # The most sentences that fit; the needles' own length hardly depends on where they stand.
    low = bisect.bisect_right(range(len(sentences) + 1), num_tokens, key=length) - 1
    if low <= num_needles:
        raise ValueError(f"{num_tokens} tokens hold {low} sentences; {num_needles + 1} are needed")
    if low == len(sentences):
        raise ValueError(f"the text ends before {num_tokens} tokens")
    places = sorted(draw.sample(range(1, low), num_needles))
    tokens = render(low, places)
    while len(tokens) > num_tokens:
        low -= 1
        tokens = render(low, [min(place, low) for place in places])
    return tokens, needles


def _place(placed: tuple[int, Needle]) -> int:
    return placed[0]
