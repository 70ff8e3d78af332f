"""Prefill: read a prompt and push each layer's KV while the next layer is being computed."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from .decode import Tokens, forward, token_list
from .ragged import RaggedCache
from .spec import TORCH_DTYPES

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ..budget import Keep
    from ..cache import Cache, Put, Segment
    from ..model import Model


@dataclass(frozen=True)
class Prefilled:
    """A prompt that has been read.

    Attributes:
        cache: everything the model saw, to generate from at once.
        logits: float32 [vocabulary], of the last token.
        seconds: from the start to the last layer computed.
        push_seconds: how much longer the last pushes took.
    """

    cache: RaggedCache
    logits: torch.Tensor
    seconds: float
    push_seconds: float


class _Pusher:
    """Pushes layers in the order they come, on one thread of its own; the first error stops it."""

    _END = None

    def __init__(
        self, put: Put, queries: int, lse: bool, progress: Callable[[int], None] | None
    ) -> None:
        self._put = put
        self._progress = progress
        self._num_queries = queries
        self._lse = lse
        self._dtype = TORCH_DTYPES[put.model.spec.dtype]
        self._queue: queue.SimpleQueue[tuple | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="precis-push", daemon=True)
        self._thread.start()

    def offer(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor, queries: torch.Tensor
    ) -> None:
        """Hands a layer over; raises what went wrong with an earlier one."""
        self.check()
        count = min(self._num_queries, queries.shape[1])
        self._queue.put((layer, keys, values, queries[:, queries.shape[1] - count :]))

    def stop(self) -> None:
        """Waits for what was offered; no push is under way after it."""
        self._queue.put(self._END)
        self._thread.join()

    def check(self) -> None:
        """Raises what went wrong, in the caller's thread."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while (item := self._queue.get()) is not self._END:
            try:
                self._push(*item)
                if self._progress is not None:
                    self._progress(item[0])
            except BaseException as error:
                self._error = error
                return

    @torch.no_grad()
    def _push(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor, queries: torch.Tensor
    ) -> None:
        pushed = lse = None
        if queries.shape[1]:
            lse = _log_sum_exp(queries, keys).cpu() if self._lse else None
            pushed = queries.to("cpu", self._dtype).contiguous()
        self._put.layer(
            layer,
            keys.to("cpu", self._dtype),
            values.to("cpu", self._dtype),
            queries=pushed,
            lse=lse,
        )


def _log_sum_exp(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Natural log-sum-exp of q.k/sqrt(d) over the segment's keys up to each query, [heads, m]."""
    num_q_heads, count, dim = queries.shape
    heads, tokens = keys.shape[:2]
    rows = queries.reshape(heads, -1, dim).float() * dim**-0.5
    scores = (rows @ keys.float().transpose(1, 2)).view(heads, -1, count, tokens)
    later = torch.ones(count, count, dtype=torch.bool, device=keys.device).triu(1)
    scores[..., tokens - count :].masked_fill_(later, -torch.inf)
    return scores.logsumexp(dim=-1).view(num_q_heads, count)


def _queries_wanted(put: Put) -> int:
    """How many of the last queries the put's recipe observes."""
    recipe = json.loads(put.recipe)
    return int(recipe.get("window", 0)) if recipe.get("scorer") == "window_attn" else 0


def prefill(
    hf_model: PreTrainedModel,
    tokens: Tokens,
    put: Put | None = None,
    past: RaggedCache | None = None,
    queries: int | None = None,
    lse: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Prefilled:
    """Reads a prompt; with a `put`, pushes each layer while the next one computes.

    Args:
        tokens: the whole path from its root, as in begin_put. Those that `past` holds are not read
            again.
        put: begun on the same tokens; it must begin where `past` ends. Commit it afterwards.
        past: a cache over a restored prefix, for the second turn. It grows.
        queries: observation queries to push, the last of the segment; by default what the put's
            recipe observes.
        lse: push the queries' exact log-sum-exp over the segment as well.
        progress: called with each layer's index once it is pushed, from the pushing thread.

    Raises:
        ValueError: nothing is left to read, or the put begins elsewhere.
        precis.Error: from a push; the put is over then.
    """
    tokens = token_list(tokens)
    cache = RaggedCache(hf_model) if past is None else past
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
        wanted = _queries_wanted(put) if queries is None else queries
        pusher = _Pusher(put, wanted, lse, progress)
    start = time.perf_counter()
    try:
        with cache.observed(pusher.offer) if pusher else contextlib.nullcontext():
            logits = forward(hf_model, tokens[begin:], cache, logits_to_keep=1)[-1]
        computed = time.perf_counter()
    finally:
        if pusher is not None:
            pusher.stop()
    if pusher is not None:
        pusher.check()
    return Prefilled(cache, logits, computed - start, time.perf_counter() - computed)


def store(
    cache: Cache,
    model: Model,
    hf_model: PreTrainedModel,
    tokens: Tokens,
    recipe: str | None = None,
    keep: Keep | None = None,
    past: RaggedCache | None = None,
    durability: str = "wal",
) -> tuple[Segment, Prefilled]:
    """Prefills `tokens` and stores their KV: begin_put, prefill and commit in one call.

    Args:
        recipe, keep: how to compress; by default what the budget in force says.
        past: the cache over a restored prefix, where this turn stands on one. Only the tokens after
            it are read and pushed; the segment records its parent and the budget that was read.

    Raises:
        ValueError: `past` holds more than its prefix, or stands on a part of a segment.
    """
    tokens = token_list(tokens)
    parent, parent_read = (None, None) if past is None else _stands_on(past)
    with cache.begin_put(
        model, tokens, recipe=recipe, keep=keep, parent=parent, parent_read=parent_read
    ) as put:
        prefilled = prefill(hf_model, tokens, put, past)
        return put.commit(durability), prefilled


def _stands_on(past: RaggedCache) -> tuple[Segment | None, Keep | None]:
    """The segment at whose end `past` stands, and the budget at which it was read."""
    if past.prefix is None:
        return None, None
    last = past.prefix.match.links[-1]
    if last.matched_end != last.segment.end:
        raise ValueError(
            f"a segment cannot stand on tokens [{last.segment.begin}, {last.matched_end}) of "
            f"segment {last.segment.id}, which ends at {last.segment.end}"
        )
    return last.segment, past.prefix.keep
