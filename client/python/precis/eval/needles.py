"""A document with needles, and the questions that find them.

Facts of a task (tasks.py) are hidden in a text. Only the document is compressed, before any
question is known.
"""

from __future__ import annotations

import bisect
import dataclasses
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Encode = Callable[[str], list[int]]

_LEAD_WORDS, _CONTINUED_WORDS = 8, 64


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
    """One hidden fact, as a question and its answer.

    Attributes:
        word: what it is about.
        told: what is hidden, in pieces that stand apart, in this order.
        ask: the question; empty if the answer continues the document without one.
        begin: the beginning of the answer. answer: the rest of it.
    """

    word: str
    told: tuple[str, ...]
    ask: str
    begin: str
    answer: str

    def question(self, dialogue: Dialogue = CHATML) -> str:
        """The question, to follow the document, and the beginning of its answer."""
        return f"\n{self.ask}{dialogue.change}{self.begin}" if self.ask else self.begin

    @property
    def sentence(self) -> str:
        """All that is hidden."""
        return " ".join(self.told)

    @property
    def code(self) -> str:
        """The answer without blanks and full stop."""
        return self.answer.strip(" .")


@dataclass(frozen=True)
class Task:
    """A kind of facts, and how they are hidden.

    Attributes:
        draw: so many different facts, and what is hidden beside them. Without facts, the document's
            continuation is asked for.
        split: the pieces of a text, between which facts may be. joint: what is between pieces.
    """

    draw: Callable[[random.Random, int], tuple[list[Needle], list[str]]]
    split: Callable[[str], list[str]]
    joint: str


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

    def asked(self, encode: Encode, dialogue: Dialogue = CHATML) -> Iterator[Document]:
        """For each needle a document that ends with its question."""
        for needle in self.needles:
            question = encode(needle.question(dialogue).removesuffix(needle.begin))
            alone = dataclasses.replace(needle, ask="")
            yield Document(self.tokens + question, [alone], self.rest)


def make_document(
    text: str,
    task: Task,
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
    needles, others = task.draw(draw, num_needles)
    hidden = [piece for needle in needles for piece in needle.told]
    # Facts in one piece are in a random order already.
    if len(hidden) + len(others) > num_needles:
        hidden = _shuffled(draw, [list(needle.told) for needle in needles] + [[o] for o in others])
    pieces = task.split(text)

    def render(count: int, places: list[int]) -> list[int]:
        told = list(pieces[:count])
        for place, piece in reversed(list(zip(places, hidden, strict=True))):
            told.insert(place, piece)
        return encode(dialogue.begin + task.joint.join(told))

    def length(count: int) -> int:
        return len(render(count, [count] * len(hidden)))

    # The most pieces that fit; the needles' length hardly depends on their places.
    low = bisect.bisect_right(range(len(pieces) + 1), num_tokens, key=length) - 1
    if low <= len(hidden):
        raise ValueError(
            f"{num_tokens} tokens hold {max(low, 0)} sentences or blocks of this text; "
            f"{len(hidden) + 1} are needed"
        )
    if low == len(pieces):
        raise ValueError(f"the text ends before {num_tokens} tokens")
    places = sorted(draw.sample(range(1, low), len(hidden)))
    tokens = render(low, places)
    while len(tokens) > num_tokens:
        low -= 1
        tokens = render(low, [min(place, low) for place in places])
    rest = task.joint.join(pieces[low:])
    return Document(tokens, needles or [_continuation(rest)], rest)


def _continuation(rest: str) -> Needle:
    """Asks for the words that follow the document. The first words only begin the sentence."""
    words = rest.split(" ")[: _LEAD_WORDS + _CONTINUED_WORDS]
    if len(words) < _LEAD_WORDS + _CONTINUED_WORDS:
        raise ValueError(f"the text ends {len(words)} words after the document")
    begin, answer = (" " + " ".join(part) for part in (words[:_LEAD_WORDS], words[_LEAD_WORDS:]))
    return Needle("continuation", (), "", begin, answer)


def _shuffled(draw: random.Random, lists: list[list[str]]) -> list[str]:
    """All pieces in a random order that keeps those of one list in their order."""
    order = [number for number, pieces in enumerate(lists) for _ in pieces]
    draw.shuffle(order)
    left = [iter(pieces) for pieces in lists]
    return [next(left[number]) for number in order]
