"""Messages of a conversation as tokens, by the tokenizer's chat template if it has one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .decode import token_list
from .repetition import repeat_request

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from .conversation import Message

_MARK = "\x00"
# A conversation whose last answer is the mark. The template writes the end of an answer after it.
_ANSWERED = [{"role": "user", "content": "-"}, {"role": "assistant", "content": _MARK}]


class Chat:
    """Encodes messages so that the tokens of the conversation so far stay as they are.

    A template is applied to the new messages only: text that is decoded and encoded again can give
    other tokens than the model has read.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase | None) -> None:
        self.tokenizer = tokenizer

    def encode(self, message: Message, before: Sequence[int], answered: bool) -> list[int]:
        """The tokens of a message that follow the tokens `before`.

        Args:
            answered: whether the model answers next; a template then adds the start of its answer.

        Raises:
            ValueError: text without a tokenizer, or messages without a chat template.
        """
        if isinstance(message, str):
            tokenizer = self._needed("text")
            if not tokenizer.chat_template:
                return tokenizer(message, add_special_tokens=not before).input_ids
            message = [{"role": "user", "content": message}]
        if not _are_messages(message):
            return token_list(message)
        if not self._needed("messages").chat_template:
            raise ValueError(
                "message: messages need a chat template, and the tokenizer has none; give text or "
                "tokens"
            )
        messages = [dict(one) for one in message]
        if not before:
            return self._ids(self._render(messages, answered))
        # The conversation may already have a part of an answer's end: the end-of-text token that
        # the model chose, or all of it after a message without an answer.
        end = len(self._ids(self._after_mark([], False)))
        tokens = self._ids(self._after_mark(messages, answered))
        known = (k for k in range(min(end, len(before)), 0, -1) if list(before[-k:]) == tokens[:k])
        return tokens[next(known, 0) :]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special tokens; empty without a tokenizer."""
        if self.tokenizer is None:
            return ""
        return self.tokenizer.decode(tokens, skip_special_tokens=True)

    def repeat_request(self) -> list[int]:
        """repeat_request() of the tokenizer; empty without one."""
        return [] if self.tokenizer is None else repeat_request(self.tokenizer)

    def _needed(self, what: str) -> PreTrainedTokenizerBase:
        if self.tokenizer is None:
            raise ValueError(f"message: {what} needs a tokenizer; give one, or give tokens")
        return self.tokenizer

    def _render(self, messages: list[dict[str, Any]], answered: bool) -> str:
        return self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=answered
        )

    def _after_mark(self, messages: list[dict[str, Any]], answered: bool) -> str:
        return self._render([*_ANSWERED, *messages], answered).partition(_MARK)[2]

    def _ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False).input_ids


def _are_messages(message: Any) -> bool:
    return isinstance(message, (list, tuple)) and bool(message) and isinstance(message[0], Mapping)
