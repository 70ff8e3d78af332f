"""Documents of the demo and the evaluation: the requested length, with every needle once."""

from __future__ import annotations

import json

import pytest

from precis.eval import quotes
from precis.eval.gguf_tokenizer import merges_of
from precis.eval.needles import CHATML, Dialogue, make_document
from precis.eval.tasks import (
    CODES,
    CONTINUATION,
    FACTS,
    FUNCTIONS,
    KEYS,
    TICKETS,
    VALUES,
    VARIABLES,
    split_blocks,
    split_sentences,
)
from precis.eval.texts import (
    Text,
    draw_document,
    fitting_texts,
    long_fitting_texts,
    machine_texts,
    own_texts,
    program_texts,
    transcripts,
)

TEXT = " ".join(f"Sentence number {i} says nothing of interest." for i in range(400))


def words(text: str) -> list[int]:
    """A tokenizer with one token per word."""
    known = words.__dict__.setdefault("known", {})
    return [known.setdefault(word, len(known)) for word in text.split()]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_tokens", [100, 777, 2000])
def test_needles_are_hidden_in_a_document_of_the_length_asked(seed, num_tokens):
    document = make_document(TEXT, CODES, num_tokens, seed, words)
    tokens, needles = document.tokens, document.needles
    assert num_tokens - 12 <= len(tokens) <= num_tokens
    assert len({needle.word for needle in needles}) == 4
    for needle in needles:
        sentence = words(needle.sentence)
        places = [i for i in range(len(tokens)) if tokens[i : i + len(sentence)] == sentence]
        assert len(places) == 1
        assert needle.question().endswith(needle.sentence.removesuffix(needle.answer))


def test_a_seed_makes_the_same_document_again():
    assert make_document(TEXT, CODES, 300, 7, words) == make_document(TEXT, CODES, 300, 7, words)
    assert make_document(TEXT, CODES, 300, 7, words) != make_document(TEXT, CODES, 300, 8, words)


def test_a_length_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="ends before"):
        make_document(TEXT, CODES, 10_000, 1, words)
    with pytest.raises(ValueError, match="are needed"):
        make_document(TEXT, CODES, 50, 1, words)


def test_what_the_text_would_go_on_with_is_at_hand():
    document = make_document(TEXT, CODES, 300, 7, words)
    told = max(i for i in range(400) if words(f"number {i} says")[1] in document.tokens)
    assert document.rest.startswith(f"Sentence number {told + 1} ")


CODE = "\n\n".join(f"def step_{i}(x):\n    y = x * {i}\n    return y" for i in range(400))


@pytest.mark.parametrize(
    ("task", "text"),
    [
        (FACTS, TEXT),
        (KEYS, TEXT),
        (VALUES, TEXT),
        (VARIABLES, TEXT),
        (FUNCTIONS, CODE),
        (TICKETS, TEXT.replace(". ", ".\n")),
    ],
)
def test_facts_of_every_task_are_hidden_whole_and_end_with_their_answer(task, text):
    for seed in range(8):
        document = make_document(text, task, 400, seed, words)
        told = document.tokens
        assert len(told) <= 400 and len({needle.word for needle in document.needles}) == 4
        for needle in document.needles:
            places = [
                next(i for i in range(len(told)) if told[i : i + len(piece)] == piece)
                for piece in map(words, needle.told)
            ]
            assert places == sorted(places)
            assert all(part in needle.sentence for part in needle.code.split(" and "))
            assert needle.code not in needle.question()
            assert needle.word in needle.ask.lower() and needle.answer.startswith(" ")


def test_a_continuation_is_what_follows_the_document():
    document = make_document(TEXT, CONTINUATION, 300, 7, words)
    (needle,) = document.needles
    assert needle.told == () and needle.question() == needle.begin
    known = {token: word for word, token in words.__dict__["known"].items()}
    shown = [known[token] for token in document.tokens[1:]]  # the first opens the user's turn
    whole = " ".join(shown) + needle.begin + needle.answer
    assert len(shown) > 280 and whole in TEXT
    assert (len(needle.begin.split()), len(needle.answer.split())) == (8, 64)
    with pytest.raises(ValueError, match="words after the document"):
        make_document(TEXT[:1500], CONTINUATION, 220, 7, words)


def test_a_question_that_is_known_ends_its_document():
    document = make_document(TEXT, CODES, 300, 7, words)
    asked = list(document.asked(words))
    assert [one.needles[0].word for one in asked] == [n.word for n in document.needles]
    for one, needle in zip(asked, document.needles, strict=True):
        (alone,) = one.needles
        fed = one.tokens + words(alone.question())
        assert fed == document.tokens + words(needle.question())
        assert alone.question() == needle.begin and alone.answer == needle.answer


def test_a_transcript_has_a_call_in_each_line():
    for text in transcripts():
        calls = [json.loads(line) for line in text.text.splitlines()]
        assert len(calls) > 300 and {call["call"] for call in calls} == {"grep"}
        assert all(call["word"] in line for call in calls[:50] for line in call["result"])


def test_what_is_asked_is_anywhere_among_what_is_hidden():
    ranks = set()
    for seed in range(20):
        document = make_document(TEXT, KEYS, 600, seed, words)
        code = words("secret")[0]
        hidden = [document.tokens[i + 3] for i, t in enumerate(document.tokens) if t == code]
        assert len(hidden) == 16
        ranks |= {hidden.index(words(needle.word)[0]) for needle in document.needles}
    assert len(ranks) == 16


def test_program_text_is_split_at_blank_lines_and_keeps_its_lines():
    assert split_blocks("\na\n  b\n\n \nc\n\n") == ["a\n  b", "c"]


def test_a_document_is_drawn_from_texts_that_are_long_enough():
    texts = [Text("short", "Too short."), Text("long", TEXT)]
    for seed in range(6):
        name, document = draw_document(texts, CODES, 300, f"{seed}", words, CHATML)
        assert name == "long" and len(document.tokens) <= 300
    starts = {
        draw_document(texts, CODES, 300, f"{s}", words, CHATML)[1].tokens[3] for s in range(6)
    }
    assert len(starts) > 1
    with pytest.raises(ValueError, match=r"no text is long enough for 300 tokens \(short\)"):
        draw_document(texts[:1], CODES, 300, "0", words, CHATML)


def test_texts_that_are_too_short_are_joined():
    sentences = split_sentences(TEXT)
    texts = [Text("first", " ".join(sentences[:30])), Text("second", " ".join(sentences[30:60]))]
    name, document = draw_document(texts, CODES, 300, "0", words, CHATML)
    assert name in ("first, second", "second, first")
    assert 288 <= len(document.tokens) <= 300


def test_no_sentence_to_judge_on_is_one_that_profiles_are_fitted_on():
    judged, fitted = (
        {sentence for text in texts for sentence in split_sentences(text.text)}
        for texts in (
            [*machine_texts(), *program_texts()],
            [*fitting_texts(), *long_fitting_texts()],
        )
    )
    assert {sentence for sentence in judged & fitted if len(sentence) > 40} == set()


def test_a_file_that_is_no_text_is_refused_by_name(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"abc\xff")
    with pytest.raises(ValueError, match=r"a\.bin: not UTF-8"):
        own_texts([tmp_path / "a.bin"])


def test_a_chat_template_says_what_stands_around_words():
    class Tokenizer:
        bos_token = "<s>"
        chat_template = "..."

        def apply_chat_template(self, turns, **_):
            return f"<s>[user]{turns[0]['content']}[/user][assistant]"

    assert Dialogue.of(Tokenizer()) == Dialogue("<s>[user]", "[/user][assistant]")
    Tokenizer.chat_template = None
    assert Dialogue.of(Tokenizer()) == Dialogue("<s>", "\n")


def test_merges_follow_from_pieces_and_their_scores():
    pieces = ["a", "b", "c", "ab", "abc", "bc"]
    scores = [0.0, 0.0, 0.0, -2.0, -3.0, -1.0]
    assert merges_of(pieces, scores) == [("b", "c"), ("a", "b"), ("a", "bc"), ("ab", "c")]


@pytest.fixture
def collections(tmp_path, monkeypatch):
    """An empty folder of quotations."""
    monkeypatch.setattr(quotes, "FOLDER", tmp_path)
    quotes.with_authors.cache_clear()
    yield tmp_path
    quotes.with_authors.cache_clear()


def test_authors_of_quotations_are_asked_for_by_the_first_words(collections):
    with pytest.raises(FileNotFoundError, match="install Debian's package 'fortunes'"):
        make_document(TEXT, quotes.AUTHORS, 400, 1, words)
    said = [
        f"Opinion {i} about life takes\nmore than eight words to say.\n\t\t-- Ada N. Author{i}"
        for i in range(9)
    ]
    others = [
        "Nobody said this, and it is quite long.",
        "Too short.\n\t\t-- Ben Brief",
        "These words name Carl Clear, who is the author.\n\t\t-- Carl Clear",
        'This one has words enough, and a source.\n\t\t-- Dora Deep, "A Book"',
    ]
    (collections / "platitudes").write_text("\n%\n".join(others + said) + "\n%\n")
    found = set()
    for seed in range(9):
        document = make_document(TEXT, quotes.AUTHORS, 400, seed, words)
        assert len({needle.word for needle in document.needles}) == 4
        for needle in document.needles:
            number = needle.word.removeprefix("Ada N. Author")
            begin = f"Opinion {number} about life takes more than eight"
            assert needle.ask == f'Who said "{begin} ..."?' and needle.code == needle.word
            whole = f"{begin} words to say. {needle.begin} {needle.word}."
            assert needle.told == (whole,)
            piece, told = words(whole), document.tokens
            assert any(told[i : i + len(piece)] == piece for i in range(len(told)))
            found.add(number)
    assert found == set("012345678")  # also the last one, before the collection's end


def test_too_few_authors_are_refused(collections):
    one = "One opinion about life takes more than eight words.\n\t\t-- Ada Author\n%\n"
    (collections / "platitudes").write_text(one)
    with pytest.raises(ValueError, match="have 1 authors, 4 are needed"):
        make_document(TEXT, quotes.AUTHORS, 400, 1, words)
