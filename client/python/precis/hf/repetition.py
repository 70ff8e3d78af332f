"""KVzip's pass: the model repeats its input, and its queries show which entries it reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from .decode import Tokens, forward, token_list

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from .ragged import RaggedCache

CHUNK_TOKENS = 2048
# A chunk is fed after this many tokens of the chunk before, so that the model knows where it is.
_LEAD_TOKENS = 8
_REQUEST = "\n\nRepeat everything above, word for word."


@dataclass(frozen=True)
class Repetition:
    """The queries of every layer while the model repeated one chunk.

    Attributes:
        queries: per layer [num_q_heads, m, head_dim], as observers see them.
        lse: per layer float32 [num_q_heads, m]: the natural log-sum-exp of the queries' q.k/sqrt(d)
            over all keys up to each query.
        window_lse: if asked for, as lse, over those of these keys that are in the layer's window.
    """

    queries: list[torch.Tensor]
    lse: list[torch.Tensor]
    window_lse: list[torch.Tensor]


def repeat_request(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The tokens that ask for a repetition: the end of a user's turn and the assistant's start.

    For a model without a chat template, only the request itself.
    """
    text = _REQUEST + "\n"
    if tokenizer.chat_template:
        mark = "\x00"
        turn = [{"role": "user", "content": mark}]
        whole = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
        text = _REQUEST + whole.partition(mark)[2]
    return tokenizer(text, add_special_tokens=False).input_ids


def repetitions(
    hf_model: PreTrainedModel,
    tokens: Tokens,
    cache: RaggedCache,
    request: Tokens = (),
    chunk_tokens: int = CHUNK_TOKENS,
    in_window: bool = False,
) -> Iterator[Repetition]:
    """Repeats `tokens`, the last that `cache` holds, chunk by chunk; leaves the cache unchanged.

    Each chunk follows the whole cache and the request. Costs about two prefills of `tokens`.

    Args:
        request: from repeat_request(). Without it the model repeats a little less reliably.
        in_window: whether to compute window_lse.
    """
    tokens, request = token_list(tokens), token_list(request)
    length = cache.get_seq_length()
    for begin in range(0, len(tokens), chunk_tokens):
        lead = tokens[max(0, begin - _LEAD_TOKENS) : begin]
        made = Repetition([], [], [])

        def observe(layer: int, _keys: object, _values: object, asked: torch.Tensor) -> None:
            rows = cache.layers[layer]
            lse = rows.log_sum_exp(asked)
            made.queries.append(asked)  # noqa: B023
            made.lse.append(lse)  # noqa: B023
            if in_window:
                near = lse if rows.window is None else rows.log_sum_exp(asked, in_window=True)
                made.window_lse.append(near)  # noqa: B023

        with cache.observed(observe):
            fed = [*request, *lead, *tokens[begin : begin + chunk_tokens]]
            forward(hf_model, fed, cache, logits_to_keep=1)
        cache.crop(length)
        yield made
