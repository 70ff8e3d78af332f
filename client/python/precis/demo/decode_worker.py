"""The decode worker: finds the prefix of a document that it has never read, and answers.

Then it reads the document itself, only for comparison. A second turn follows.
"""

from __future__ import annotations

import sys
import time

import precis
from precis import hf
from precis.eval.models import SMOLLM2

from .worker import Job, Question, tell

# The text between the first turn's answer and the second turn's question.
_NEXT_TURN = "<|im_end|>\n<|im_start|>user"
# The number of layers read from disk for gets; the demo is the service's only client.
_COLD_LAYERS = "precis_layers_cold_total"


class Reader:
    """A model, a cache, and the questions."""

    def __init__(self, job: Job) -> None:
        start = time.perf_counter()
        self.job = job
        self.hf_model, self.tokenizer = SMOLLM2.load()
        tell("loaded", seconds=time.perf_counter() - start)
        self.cache = precis.connect(job.address)
        spec = hf.model_spec(self.hf_model, SMOLLM2.name, SMOLLM2.revision())
        self.model = self.cache.register_model(spec)

    def encode(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def find(self, tokens: list[int]) -> precis.Match:
        """The stored prefix of the whole path; a shorter match is a failure of the demo."""
        start = time.perf_counter()
        match = self.cache.lookup(self.model, tokens)
        if match.matched_tokens != len(tokens):
            raise RuntimeError(
                f"{match.matched_tokens} of {len(tokens)} tokens were found after the restart"
            )
        tell(
            "found",
            tokens=match.matched_tokens,
            segments=len(match.links),
            bytes=match.bytes,
            predicted_seconds=match.predicted_seconds,
            seconds=time.perf_counter() - start,
        )
        return match

    def restore(self, match: precis.Match, keep: float | None) -> hf.RaggedCache:
        cold = self.cache.stats()[_COLD_LAYERS]
        start = time.perf_counter()
        prefix = self.cache.get(match, keep=keep).wait()
        seconds = time.perf_counter() - start
        tell(
            "restored",
            keep=keep,
            bytes=prefix.bytes,
            kept=prefix.kept,
            seconds=seconds,
            tier="memory" if self.cache.stats()[_COLD_LAYERS] == cold else "disk",
        )
        return hf.RaggedCache(self.hf_model, prefix)

    def ask(self, question: Question, cache: hf.RaggedCache, keep: float | None) -> list[int]:
        """Streams the answer word by word, then reports how likely the right answer was."""
        tell("asked", keep=keep, word=question.word)
        asked, right = self.encode(question.text), self.encode(question.answer)
        length = cache.get_seq_length()
        told = []
        for token in hf.generate(self.hf_model, asked, cache, max_new_tokens=len(right)):
            told.append(token)
            tell("word", text=self.tokenizer.decode([token]))
        cache.crop(length)
        answer = hf.answer_nll(self.hf_model, asked, right, cache)
        tell(
            "answered",
            keep=keep,
            word=question.word,
            text=self.tokenizer.decode(told).strip(),
            right=answer.right,
            nll=answer.nll,
        )
        return told

    def second_turn(self) -> None:
        """Reads and pushes only the tokens since the document."""
        first, second = self.job.questions[:2]
        past = self.restore(self.find(self.job.tokens), self.job.keep)
        told = self.ask(first, past, self.job.keep)
        said = self.encode(first.text) + told + self.encode(_NEXT_TURN)
        path = self.job.tokens + said
        segment, read = hf.store(
            self.cache,
            self.model,
            self.hf_model,
            path,
            recipe=self.job.recipe,
            keep=1.0,
            past=past,
        )
        session = self.cache.session(self.job.session).advance(segment)
        tell(
            "pushed",
            tokens=segment.end - segment.begin,
            bytes=segment.original_bytes,
            path=session.tip_end,
            turns=session.turns,
            parent_read=str(segment.parent_read),
            seconds=read.seconds + read.push_seconds,
        )
        self.ask(second, self.restore(self.find(path), None), None)


def main(path: str) -> None:
    job = Job.load(path)
    reader = Reader(job)
    match = reader.find(job.tokens)
    for keep in job.reads:
        ragged = reader.restore(match, keep)
        for question in job.questions:
            reader.ask(question, ragged, keep)
    full = hf.prefill(reader.hf_model, job.tokens)
    tell("prefilled", seconds=full.seconds)
    for question in job.questions:
        reader.ask(question, full.cache, None)
    tell("second_turn")
    reader.second_turn()


if __name__ == "__main__":
    main(sys.argv[1])
