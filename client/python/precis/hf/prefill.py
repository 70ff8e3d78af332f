"""Prefill: reads a prompt and pushes each layer's KV while the next layer is computed."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from .decode import Tokens, forward, token_list
from .needs import Needs
from .pusher import Pusher
from .ragged import RaggedCache
from .repetition import repetitions
from .scorers import Scorers

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ..budget import Keep
    from ..cache import Cache, Put, Segment
    from ..model import Model


@dataclass(frozen=True)
class Prefilled:
    """A prompt that has been read.

    Attributes:
        cache: the KV of all tokens, and of `past`, for generation.
        logits: float32 [vocabulary], of the last token.
        seconds: from the start until the last layer was computed, including repetitions.
        push_seconds: the time after that until the last pushes ended.
    """

    cache: RaggedCache
    logits: torch.Tensor
    seconds: float
    push_seconds: float


def prefill(
    hf_model: PreTrainedModel,
    tokens: Tokens,
    put: Put | None = None,
    past: RaggedCache | None = None,
    queries: int | None = None,
    lse: bool = False,
    repeat: Tokens = (),
    progress: Callable[[int], None] | None = None,
) -> Prefilled:
    """Reads a prompt; with a `put`, pushes each layer while the next one is computed.

    Args:
        tokens: the whole path from its root, as in begin_put. Tokens in `past` are not read again.
        put: begun on the same tokens; it must begin where `past` ends. Commit it afterwards.
        past: a cache over a restored prefix, for a later turn; the new tokens are added to it. If
            it holds all of `tokens` and there is no put, its last token is removed and read again.
        queries: number of observation queries to push, of the segment's last tokens; by default as
            many as the put's recipe needs.
        lse: whether to push the queries' exact log-sum-exp over the segment, too.
        repeat: repeat_request() of the tokenizer, for recipes that make the model repeat its input
            (kvzip). Their pushes start only after the repetition.
        progress: called with each layer's index once its push has started, on the pushing thread.

    Raises:
        ValueError: nothing is left to read, or the put covers other tokens.
        precis.Error: from a push; the put has then ended.
    """
    tokens = token_list(tokens)
    cache = RaggedCache(hf_model) if past is None else past
    if put is None and cache.get_seq_length() == len(tokens) > 0:
        cache.crop(len(tokens) - 1)
    begin = cache.get_seq_length()
    if begin >= len(tokens):
        raise ValueError(f"nothing to read: {len(tokens)} tokens, and the cache holds {begin}")
    if put is not None and (put.begin, put.end) != (begin, len(tokens)):
        raise ValueError(
            f"the put is of tokens [{put.begin}, {put.end}), "
            f"the prefill of [{begin}, {len(tokens)})"
        )
    pusher = None
    if put is not None and not put.already_stored:
        needs = Needs.of(put.recipe)
        if queries is not None:
            needs = dataclasses.replace(needs, queries=queries)
        scorers = Scorers(hf_model, needs, put.model.spec.dtype, begin)
        pusher = Pusher(put, needs, scorers, lse, progress)
    start = time.perf_counter()
    with contextlib.nullcontext() if pusher is None else pusher:
        with contextlib.ExitStack() as watched:
            if pusher is not None and not needs.repetition:
                watched.enter_context(cache.observed(pusher.offer))
            logits = forward(hf_model, tokens[begin:], cache, logits_to_keep=1)[-1]
        if pusher is not None and needs.repetition:
            _offer_repeated(hf_model, tokens[begin:], cache, repeat, pusher)
        computed = time.perf_counter()
    return Prefilled(cache, logits, computed - start, time.perf_counter() - computed)


def _offer_repeated(
    hf_model: PreTrainedModel,
    tokens: list[int],
    cache: RaggedCache,
    request: Tokens,
    pusher: Pusher,
) -> None:
    """Offers every layer with the queries of a repetition of `tokens`, the last in `cache`."""
    chunks = list(repetitions(hf_model, tokens, cache, request))
    for index, layer in enumerate(cache.layers):
        keys, values = layer.last(len(tokens))
        queries = torch.cat([chunk.queries[index] for chunk in chunks], dim=1)
        lse = torch.cat([chunk.lse[index] for chunk in chunks], dim=1)
        pusher.offer(index, keys, values, queries, lse)


def store(
    cache: Cache,
    model: Model,
    hf_model: PreTrainedModel,
    tokens: Tokens,
    recipe: str | None = None,
    keep: Keep | None = None,
    past: RaggedCache | None = None,
    durability: Literal["memory", "wal", "fsync"] = "wal",
    repeat: Tokens = (),
) -> tuple[Segment, Prefilled]:
    """Prefills `tokens` and stores their KV: begin_put, prefill and commit in one call.

    Args:
        recipe, keep: how to compress; by default the recipe and budget in force.
        past: the cache over a restored prefix, if this turn follows one. Only the tokens after the
            prefix are read and pushed. The segment records its parent and the budget at which that
            was read.
        repeat: as in prefill.

    Raises:
        ValueError: `past` holds more than its prefix, or ends inside a segment.
    """
    tokens = token_list(tokens)
    parent, parent_read = (None, None) if past is None else _stands_on(past)
    with cache.begin_put(
        model, tokens, recipe=recipe, keep=keep, parent=parent, parent_read=parent_read
    ) as put:
        prefilled = prefill(hf_model, tokens, put, past, repeat=repeat)
        return put.commit(durability), prefilled


def _stands_on(past: RaggedCache) -> tuple[Segment | None, Keep | None]:
    """The segment that `past` ends with, and the budget at which it was read."""
    if len(past.prefixes) > 1:
        raise ValueError(
            f"past: the cache has {len(past.prefixes)} prefixes, must have one, for the parent"
        )
    if past.prefix is None:
        return None, None
    end = past.prefix_tokens
    link = next(link for link in past.prefix.match.links if end <= link.matched_end)
    if end != link.segment.end:
        raise ValueError(
            f"past: it ends at token {end}, inside segment {link.segment.id} of tokens "
            f"[{link.segment.begin}, {link.segment.end}); a parent must end where a segment ends"
        )
    return link.segment, past.prefix.keep
