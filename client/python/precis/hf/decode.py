"""Continuing from a cache: forward, generation, and the likelihood of a given answer.

Every function works with a :class:`RaggedCache` and with any cache of Transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from transformers import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from .live import WhileDecoding, compress_tail
from .ragged import RaggedCache

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedModel

Tokens = Sequence[int] | torch.Tensor


def token_list(tokens: Tokens) -> list[int]:
    """Token ids of one sequence as a plain list; [n] or [1, n] tensors are accepted too."""
    if isinstance(tokens, torch.Tensor):
        if tokens.ndim == 2 and tokens.shape[0] == 1:
            tokens = tokens[0]
        if tokens.ndim != 1:
            raise ValueError(
                f"tokens: shape {list(tokens.shape)}, must be one sequence, [n] or [1, n]"
            )
        return tokens.tolist()
    return [int(token) for token in tokens]


@torch.no_grad()
def forward(
    hf_model: PreTrainedModel, tokens: Tokens, cache: Cache, logits_to_keep: int = 0
) -> torch.Tensor:
    """Feeds `tokens`, which follow the tokens in `cache`, and adds them to it.

    Returns:
        Logits, float32 [n, vocabulary], of the last `logits_to_keep` tokens (0: of all tokens).
    """
    ids = torch.tensor([token_list(tokens)], dtype=torch.long, device=hf_model.device)
    out = hf_model(
        input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=logits_to_keep
    )
    return out.logits[0].float()


def generate(
    hf_model: PreTrainedModel,
    tokens: Tokens,
    cache: Cache,
    max_new_tokens: int = 64,
    stop: Sequence[int] | None = None,
    *,
    temperature: float = 0.0,
    top_p: float = 1.0,
    top_k: int = 0,
    seed: int | None = None,
    logits_processor: LogitsProcessorList | None = None,
    compress: WhileDecoding | None = None,
) -> Iterator[int]:
    """Continues `tokens`, yielding each new token as soon as it is known.

    By default it takes the most likely token. With a temperature it samples, as ``generate()`` of
    Transformers does: the same seed gives the same tokens.

    Args:
        tokens: the tokens that follow those in `cache`. If empty, generation continues the cached
            tokens: the last cached token is removed from the cache and fed again.
        stop: tokens that end the text and are not yielded; by default the model's end-of-text
            tokens.
        temperature: above 0 to sample.
        top_p, top_k: sample from the most likely tokens whose probabilities sum to `top_p`, and
            from at most `top_k`; 1.0 and 0 are no limits.
        seed: of the samples; by default PyTorch's own state of randomness decides.
        logits_processor: processors of Transformers, for example penalties, which run first. They
            see `tokens` and the yielded tokens.
        compress: `cache`, a RaggedCache, is compressed by compress_tail() while it grows, so that a
            long text takes about `keep` of its memory.

    The cache grows by `tokens` and by every yielded token but the last.

    Raises:
        ValueError: no tokens, and `cache` is empty or does not know its last token; or `top_p` or
            `top_k` without a temperature.
    """
    choose = _chooser(hf_model, temperature, top_p, top_k, seed, logits_processor)
    if compress is not None:
        if not isinstance(cache, RaggedCache):
            raise ValueError(f"compress: needs a RaggedCache, not a {type(cache).__name__}")
        compress.try_on(hf_model, cache)
    return _continue(hf_model, token_list(tokens), cache, max_new_tokens, stop, choose, compress)


def refuse_limits(temperature: float, top_p: float, top_k: int) -> None:
    """Raises ValueError if samples are limited, but nothing is sampled."""
    for name, given in (("top_p", top_p != 1), ("top_k", top_k != 0)):
        if given and temperature == 0:
            raise ValueError(
                f"{name}: needs a temperature above 0; without one, the most likely token is chosen"
            )


# Chooses the next token; called with all tokens [1, n] and the logits [1, vocabulary].
_Choose = Callable[[torch.Tensor, torch.Tensor], int]


def _chooser(
    hf_model: PreTrainedModel,
    temperature: float,
    top_p: float,
    top_k: int,
    seed: int | None,
    first: LogitsProcessorList | None,
) -> _Choose:
    refuse_limits(temperature, top_p, top_k)
    processors = LogitsProcessorList(first or [])
    if temperature == 0:
        return lambda ids, logits: int(processors(ids, logits)[0].argmax())
    if temperature != 1:
        processors.append(TemperatureLogitsWarper(float(temperature)))
    if top_k != 0:
        processors.append(TopKLogitsWarper(top_k))
    if top_p != 1:
        processors.append(TopPLogitsWarper(top_p))
    random = None
    if seed is not None:
        random = torch.Generator(hf_model.device).manual_seed(seed)

    def sample(ids: torch.Tensor, logits: torch.Tensor) -> int:
        shares = torch.softmax(processors(ids, logits), dim=-1)
        return int(torch.multinomial(shares, 1, generator=random))

    return sample


def _continue(
    hf_model: PreTrainedModel,
    tokens: list[int],
    cache: Cache,
    max_new_tokens: int,
    stop: Sequence[int] | None,
    choose: _Choose,
    compress: WhileDecoding | None,
) -> Iterator[int]:
    if not tokens:
        if not isinstance(cache, RaggedCache):
            raise ValueError(
                f"tokens: there are none, and {type(cache).__name__} does not know its last token: "
                "call crop(-1) and give that token"
            )
        tokens = [cache.take_back()]
    if stop is None:
        eos = hf_model.generation_config.eos_token_id
        stop = eos if isinstance(eos, list) else [] if eos is None else [eos]
    seen = torch.tensor([tokens], dtype=torch.long, device=hf_model.device)
    for _ in range(max_new_tokens):
        if compress is not None and compress.is_due(cache):
            compress_tail(hf_model, cache, compress)
        token = choose(seen, forward(hf_model, tokens, cache, logits_to_keep=1))
        if token in stop:
            return
        yield token
        tokens = [token]
        seen = torch.cat([seen, seen.new_tensor([tokens])], dim=1)


@dataclass(frozen=True)
class Answer:
    """How likely the model finds a given answer, teacher-forced.

    Attributes:
        right: every token of the answer was the greedy choice.
        nll: mean negative log-likelihood of the answer's tokens.
        greedy: the greedy choice at each of the answer's tokens.
    """

    right: bool
    nll: float
    greedy: tuple[int, ...]


def answer_nll(hf_model: PreTrainedModel, question: Tokens, answer: Tokens, cache: Cache) -> Answer:
    """Feeds a question and computes how likely the answer is. `cache` is cropped back after it."""
    question, answer = token_list(question), token_list(answer)
    if not question or not answer:
        raise ValueError("question and answer need at least one token each")
    length = cache.get_seq_length()
    logits = forward(hf_model, question + answer[:-1], cache, logits_to_keep=len(answer))
    cache.crop(length)
    return _judge(logits, answer)


def answer_nlls(
    hf_model: PreTrainedModel, asked: Sequence[tuple[Tokens, Tokens]], cache: Cache
) -> list[Answer]:
    """answer_nll() of several (question, answer) pairs, in one batch if possible.

    A batch is possible over a RaggedCache with an empty tail, and reads the weights only once.
    """
    pairs = [(token_list(question), token_list(answer)) for question, answer in asked]
    alone = isinstance(cache, RaggedCache) and cache.get_seq_length() == cache.prefix_tokens
    if not alone or len(pairs) < 2 or not all(q and a for q, a in pairs):
        return [answer_nll(hf_model, question, answer, cache) for question, answer in pairs]
    fed = [question + answer[:-1] for question, answer in pairs]
    longest = max(map(len, fed))
    # Padding follows the questions and answers, so none of their queries sees it.
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in fed], device=hf_model.device)
    first = min(len(row) - len(answer) for row, (_, answer) in zip(fed, pairs, strict=True))
    with torch.no_grad():
        logits = hf_model(
            input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=longest - first
        ).logits.float()
    cache.crop(cache.prefix_tokens)
    answers = []
    for row, tokens, (_, answer) in zip(logits, fed, pairs, strict=True):
        end = len(tokens) - first
        answers.append(_judge(row[end - len(answer) : end], answer))
    return answers


def _judge(logits: torch.Tensor, answer: list[int]) -> Answer:
    """`logits`: [len(answer), vocabulary], the model's predictions of the answer's tokens."""
    target = torch.tensor(answer, device=logits.device)
    greedy = logits.argmax(dim=-1)
    return Answer(
        right=bool((greedy == target).all()),
        nll=float(torch.nn.functional.cross_entropy(logits, target)),
        greedy=tuple(greedy.tolist()),
    )
