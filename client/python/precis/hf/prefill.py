"""Prefill: reads a prompt and pushes each layer's KV while the next layer is computed."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from ..arrays import count_in
from .decode import Tokens, forward, token_list
from .live import refuse_compressed
from .needs import Needs
from .pusher import Pusher
from .ragged import RaggedCache
from .repetition import repetitions
from .scorers import Scorers

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ..budget import Keep
    from ..cache import Cache, Match, Put, Segment
    from ..model import Model
    from ..session import Session


@dataclass(frozen=True)
class Prefilled:
    """A prompt that has been read.

    Attributes:
        cache: the KV of all tokens, and of `past`, for generation.
        logits: float32 [vocabulary], of the last token.
        seconds: from the start until the last layer was computed, including repetitions.
        push_seconds: the time after that until the last pushes ended.
        read: how many tokens the model read, without repetitions.
        read_seconds: how long that took.
    """

    cache: RaggedCache
    logits: torch.Tensor
    seconds: float
    push_seconds: float
    read: int
    read_seconds: float

    def seconds_of(self, tokens: int) -> float | None:
        """What these tokens, the last of the prompt, took; None if not all of them were read."""
        return self.read_seconds * tokens / self.read if tokens <= self.read else None


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
        tokens: the whole path from its root, as in begin_put. Tokens in `past` are not read again,
            except the last one if `past` holds all of them, and the last ones of the put whose
            queries its recipe needs.
        put: begun on the same tokens. It may begin before the first token that is read, but not
            inside the prefix of `past`, which holds only a part of the entries there. Commit it
            afterwards.
        past: a cache over a restored prefix, or the cache of the turn before; the new tokens are
            added to it.
        queries: number of observation queries to push, of the segment's last tokens; by default as
            many as the put's recipe needs.
        lse: whether to push the queries' exact log-sum-exp over the segment, too.
        repeat: repeat_request() of the tokenizer, for recipes that make the model repeat its input
            (kvzip). Their pushes start only after the repetition.
        progress: called with each layer's index once its push has started, on the pushing thread.

    Raises:
        ValueError: `past` holds other tokens, or the put covers other tokens, or it would continue
            tokens that compress_tail() has compressed.
        precis.Error: from a push; the put has then ended.
    """
    tokens = token_list(tokens)
    cache = RaggedCache(hf_model) if past is None else past
    _check_held(cache, tokens)
    needs, pushed = None, len(tokens)
    if put is not None:
        refuse_compressed(cache)
        if put.end != len(tokens) or put.begin < cache.prefix_tokens:
            raise ValueError(
                f"the put is of tokens [{put.begin}, {put.end}), and this prefill can push "
                f"[{cache.prefix_tokens}, {len(tokens)})"
            )
        pushed = put.begin
        if not put.already_stored:
            needs = Needs.of(put.recipe)
            if queries is not None:
                needs = dataclasses.replace(needs, queries=queries)
    begin = _first_read(needs, cache.get_seq_length(), pushed, len(tokens))
    if begin < cache.get_seq_length():
        cache.crop(begin)
    pusher = None
    if needs is not None:
        scorers = Scorers(hf_model, needs, put.model.spec.dtype, max(begin, pushed))
        pusher = Pusher(put, needs, scorers, lse, progress)
    start = time.perf_counter()
    with contextlib.nullcontext() if pusher is None else pusher:
        with contextlib.ExitStack() as watched:
            if pusher is not None and not needs.repetition:
                count = len(tokens) - pushed

                def offer(layer: int, _keys: object, _values: object, asked: torch.Tensor) -> None:
                    pusher.offer(layer, *cache.layers[layer].last(count), asked[:, -count:])

                watched.enter_context(cache.observed(offer))
            logits = forward(hf_model, tokens[begin:], cache, logits_to_keep=1)[-1]
            read = time_on(logits.device)
        if pusher is not None and needs.repetition:
            _offer_repeated(hf_model, tokens[pushed:], cache, repeat, pusher)
        computed = time.perf_counter()
    return Prefilled(
        cache,
        logits,
        seconds=computed - start,
        push_seconds=time.perf_counter() - computed,
        read=len(tokens) - begin,
        read_seconds=read - start,
    )


def time_on(device: torch.device) -> float:
    """The time in seconds, once the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _check_held(cache: RaggedCache, tokens: list[int]) -> None:
    """Raises ValueError if the path does not begin with the tokens that the cache holds."""
    held = cache.get_seq_length()
    if not tokens:
        raise ValueError("tokens: there are none to read")
    known = cache.tokens(1)[0]
    same = held if known is None else _same(known.tolist(), tokens)
    if same < min(held, len(tokens)):
        raise ValueError(
            f"tokens: the cache holds token {int(known[same])} at {same}, the path has "
            f"{tokens[same]} there; after crop({same}) the cache can go on with this path"
        )
    if held > len(tokens):
        raise ValueError(
            f"tokens: there are {len(tokens)}, and the cache holds {held}: crop() it first"
        )


def _first_read(needs: Needs | None, held: int, pushed: int, end: int) -> int:
    """The first token to read, to compute the last token's logits and the put's queries."""
    first = min(held, end - 1)
    if needs is None or (needs.queries == 0 and not needs.statistics):
        return first
    if needs.statistics or needs.queries is None:
        return min(first, pushed)
    return min(first, max(pushed, end - needs.queries))


def _same(some: Sequence[int], others: Sequence[int]) -> int:
    """The number of tokens that two paths begin with in common."""
    pairs = enumerate(zip(some, others, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(some), len(others)))


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
    durability: Literal["memory", "wal", "fsync", "shared"] = "wal",
    repeat: Tokens = (),
    *,
    priority: int | None = None,
    ttl_s: float | None = None,
    expect_reuse_in_s: float | None = None,
    session: Session | str | None = None,
    prefill_s: float | None = None,
    segment_tokens: int | None = None,
) -> tuple[Segment, Prefilled]:
    """Prefills `tokens` and stores their KV: begin_put, prefill and commit in one call.

    Args:
        recipe, keep: how to compress; by default the recipe and budget in force.
        past: the cache over a restored prefix, if this turn follows one, or the cache of the turn
            before. The new segment holds the tokens after the last stored segment of this path that
            the cache knows, from its prefix or from earlier calls of store() with it; a cache that
            knows none takes the longest that is stored. The segment records its parent and the
            budget at which the prefix was read. Without `past`, the segment holds all tokens.
        repeat: as in prefill.
        priority, ttl_s, expect_reuse_in_s, session: as in Cache.begin_put.
        prefill_s: as in Put.commit; by default it is measured, unless `past` holds tokens of the
            new segment: then it is unknown.
        segment_tokens: longer texts are read and stored in segments of this length, one after
            another, so that the service stages no more than one of them. They are counted from the
            last stored segment that `past` knows. The first also has the tokens of `past` that are
            not stored, and the last has up to half as many tokens more or less. By default the new
            tokens are one segment.

    Returns:
        The segment and its prefill: those of the last segment, if there are several.

    Raises:
        ValueError: `past` holds other tokens, or was cropped inside a block of the service, or
            holds tokens that compress_tail() has compressed; or segment_tokens is not positive, or
            there is also a `prefill_s`.
    """
    tokens = token_list(tokens)
    how: dict[str, Any] = {
        "recipe": recipe, "keep": keep, "session": session, "priority": priority, "ttl_s": ttl_s,
        "expect_reuse_in_s": expect_reuse_in_s,
    }  # fmt: skip
    if segment_tokens is not None:
        if count_in(segment_tokens, "segment_tokens") == 0:
            raise ValueError("segment_tokens: is 0, must be positive")
        if prefill_s is not None:
            raise ValueError("prefill_s: it is measured for each segment; leave it out")
        held = 0 if past is None else past.get_seq_length()
        known = 0 if past is None or not past.stored else past.stored[-1].end
        first = known + ((held - known) // segment_tokens + 1) * segment_tokens
        for end in range(first, len(tokens) - segment_tokens // 2, segment_tokens):
            path = tokens[:end]
            further = {"past": past, "durability": durability, "repeat": repeat} | how
            past = store(cache, model, hf_model, path, **further)[1].cache
    parent, parent_read = (None, None) if past is None else _stands_on(past, tokens, model)
    with cache.begin_put(model, tokens, parent=parent, parent_read=parent_read, **how) as put:
        prefilled = prefill(hf_model, tokens, put, past, repeat=repeat)
        if prefill_s is None:
            prefill_s = prefilled.seconds_of(put.end - put.begin)
        segment = put.commit(durability, prefill_s=prefill_s)
    prefilled.cache.add_stored(segment, tokens)
    return segment, prefilled


def _stands_on(
    past: RaggedCache, tokens: list[int], model: Model
) -> tuple[Segment | Match | Literal["auto"], Keep | None]:
    """The segment or match that a put of `tokens` continues, and the budget of the prefix's read.

    Without a prefix, the tail holds all of the path, so any stored segment may be the parent.
    """
    if len(past.prefixes) > 1:
        raise ValueError(
            f"past: the cache has {len(past.prefixes)} prefixes, must have one, for the parent"
        )
    refuse_compressed(past)
    known = past.stored_path or tokens  # a match can come without its tokens
    same = min(_same(known, tokens), len(tokens) - 1)
    whole = (s for s in reversed(past.stored) if past.prefix_tokens <= s.end <= same)
    parent = next(whole, None)
    if past.prefix_tokens == 0:
        return parent or "auto", None
    return parent or _cut(
        past.prefix.match, past.prefix_tokens, model.spec.block_tokens
    ), past.prefix.keep


def _cut(match: Match, end: int, block: int) -> Match:
    """The match up to a token inside a segment, where the service can split the segment."""
    links = match.links
    last = next(i for i, link in enumerate(links) if end <= link.matched_end)
    segment = links[last].segment
    if end % block:
        raise ValueError(
            f"past: it ends at token {end}, inside segment {segment.id} of tokens "
            f"[{segment.begin}, {segment.end}); a turn can begin there only at a multiple of "
            f"{block} tokens: crop({end // block * block})"
        )
    return dataclasses.replace(match, matched_tokens=end, links=links[: last + 1])
