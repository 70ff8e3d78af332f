"""A document with needles, and the questions that find them.

The sentences "The secret code for WORD is NNNNN." are hidden in a text at sentence boundaries. Only
the document is compressed, before any question is known.
"""

from __future__ import annotations

import bisect
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

WORDS = (
    "harbor", "violin", "cactus", "lantern", "glacier", "saddle", "pepper", "anchor",
    "ribbon", "walnut", "falcon", "copper", "meadow", "candle", "turtle", "magnet",
)  # fmt: skip

Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class Dialogue:
    """The text that a model expects around turns.

    Attributes:
        begin: before the user's turn.
        change: between the user's turn and the assistant's.
    """

    begin: str
    change: str

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> Dialogue:
        """From the tokenizer's chat template; without a template, plain text with one line per
        turn.
        """
        if not tokenizer.chat_template:
            return cls(tokenizer.bos_token or "", "\n")
        mark = "\x00"
        turn = [{"role": "user", "content": mark}]
        whole = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
        begin, _, change = whole.partition(mark)
        return cls(begin, change)


CHATML = Dialogue("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n")


@dataclass(frozen=True)
class Needle:
    """One hidden fact, as a question and its answer."""

    word: str
    code: str

    @property
    def sentence(self) -> str:
        return f"The secret code for {self.word} is {self.code}."

    def question(self, dialogue: Dialogue = CHATML) -> str:
        """The question, to follow the document, and the beginning of its answer up to the code."""
        ask = f"\nWhat is the secret code for {self.word}?"
        return f"{ask}{dialogue.change}The secret code for {self.word} is"

    @property
    def answer(self) -> str:
        return f" {self.code}."


@dataclass(frozen=True)
class Document:
    """A text with needles, as tokens.

    Attributes:
        tokens: the text with its needles, after the beginning of the user's turn.
        needles: in no particular order.
        rest: the text that would have followed.
    """

    tokens: list[int]
    needles: list[Needle]
    rest: str


def split_sentences(text: str) -> list[str]:
    """The sentences in order, with every run of white space as one blank."""
    return re.split(r"(?<=\.)\s+", " ".join(text.split()))


def make_document(
    text: str,
    num_tokens: int,
    seed: int | str,
    encode: Encode,
    num_needles: int = 4,
    dialogue: Dialogue = CHATML,
) -> Document:
    """A document of at most `num_tokens` tokens with needles in it.

    Raises:
        ValueError: `text` is too short, or `num_tokens` leaves no room for the needles.
    """
    draw = random.Random(seed)
    needles = [
        Needle(word, f"{draw.randrange(10000, 100000)}") for word in draw.sample(WORDS, num_needles)
    ]
    sentences = split_sentences(text)

    def render(count: int, places: list[int]) -> list[int]:
        told = list(sentences[:count])
        for place, needle in sorted(zip(places, needles, strict=True), key=_place, reverse=True):
            told.insert(place, needle.sentence)
        return encode(dialogue.begin + " ".join(told))

    def length(count: int) -> int:
        return len(render(count, [count] * num_needles))

    # The most sentences that fit; the needles' length hardly depends on their places.
    low = bisect.bisect_right(range(len(sentences) + 1), num_tokens, key=length) - 1
    if low <= num_needles:
        raise ValueError(
            f"{num_tokens} tokens hold {max(low, 0)} sentences of this text; {num_needles + 1} are "
            "needed"
        )
    if low == len(sentences):
        raise ValueError(f"the text ends before {num_tokens} tokens")
    places = sorted(draw.sample(range(1, low), num_needles))
    tokens = render(low, places)
    while len(tokens) > num_tokens:
        low -= 1
        tokens = render(low, [min(place, low) for place in places])
    return Document(tokens, needles, " ".join(sentences[low:]))


def _place(placed: tuple[int, Needle]) -> int:
    return placed[0]
