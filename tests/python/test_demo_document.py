"""The demo's document: its needles are in it, once each, and it is as long as asked."""

from __future__ import annotations

import pytest

from precis.demo.needles import make_document

TEXT = " ".join(f"Sentence number {i} says nothing of interest." for i in range(400))


def words(text: str) -> list[int]:
    """A tokenizer of one token per word."""
    known = words.__dict__.setdefault("known", {})
    return [known.setdefault(word, len(known)) for word in text.split()]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_tokens", [100, 777, 2000])
def test_needles_are_hidden_in_a_document_of_the_length_asked(seed, num_tokens):
    tokens, needles = make_document(TEXT, num_tokens, seed, words)
    assert num_tokens - 12 <= len(tokens) <= num_tokens
    assert len({needle.word for needle in needles}) == 4
    for needle in needles:
        sentence = words(needle.sentence)
        places = [i for i in range(len(tokens)) if tokens[i : i + len(sentence)] == sentence]
        assert len(places) == 1
        assert needle.question.endswith(needle.sentence.removesuffix(needle.answer))


def test_a_seed_makes_the_same_document_again():
    assert make_document(TEXT, 300, 7, words) == make_document(TEXT, 300, 7, words)
    assert make_document(TEXT, 300, 7, words) != make_document(TEXT, 300, 8, words)


def test_a_length_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="ends before"):
        make_document(TEXT, 10_000, 1, words)
    with pytest.raises(ValueError, match="are needed"):
        make_document(TEXT, 50, 1, words)
