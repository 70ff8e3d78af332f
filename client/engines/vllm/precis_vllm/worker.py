"""The worker's half of the connector: fills pages with prefixes, pushes prompts from pages.

Fetches run in the client's threads; pushes run in one thread here, and the client does the work.
Both access the engine's own pages. A step waits for neither.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import precis

from .attention import Prefixes
from .metrics import Counts
from .plan import Layout

if TYPE_CHECKING:
    from precis.engines import Service

    from .scheduler import Save, Step
    from .settings import Settings


class Pages:
    """The KV caches of all layers as pages of one KV head (vLLM's layout LBHNC).

    Attributes:
        layers: the layers' names, in order; index: their indices.
        num_blocks, heads, size: of each layer's cache.
        cache: [pages, 1, size, content], all caches viewed as one cache of one head.
        store: the same pages for precis, as keys and values.

    Args:
        kv_caches: [num_blocks, heads, size, content] of each layer.
        rows: gives the keys and values [pages, size, dim] in pages [pages, size, content].

    Raises:
        ValueError: the caches have another layout.
        precis.Error: they are in memory where the store cannot access pages.
    """

    def __init__(
        self,
        kv_caches: dict[str, torch.Tensor],
        rows: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
    ) -> None:
        from vllm.model_executor.models.utils import extract_layer_index

        self.layers = sorted(kv_caches, key=extract_layer_index)
        self.index = {name: i for i, name in enumerate(self.layers)}
        caches = [kv_caches[name] for name in self.layers]
        first = caches[0]
        self.num_blocks, self.heads, self.size, content = first.shape
        page = self.size * content
        for index, cache in enumerate(caches):
            offset = (cache.data_ptr() - first.data_ptr()) // first.element_size()
            follows = offset == index * first.numel() and cache.is_contiguous()
            if cache.shape != first.shape or cache.dtype != first.dtype or not follows:
                raise ValueError(
                    f"the KV cache of {self.layers[index]} is {list(cache.shape)} of "
                    f"{cache.dtype}, the first layer's {list(first.shape)} of {first.dtype}, with "
                    f"strides {list(cache.stride())}, {offset} elements from the first layer's; "
                    "Precis needs layers of one shape and dtype that follow each other, with a "
                    "page for each head (vLLM's layout LBHNC)"
                )
        count = len(caches) * self.num_blocks * self.heads
        if count >= 2**31:
            raise ValueError(f"{count} pages of one head are more than block tables can number")
        self.cache = torch.as_strided(
            first, (count, 1, self.size, content), (page, page, content, 1), first.storage_offset()
        )
        self.store = precis.Pages(*rows(self.cache.squeeze(1)))

    def layer_begins(self) -> np.ndarray:
        """The first page of each layer, [layers]."""
        return np.arange(len(self.layers)) * (self.num_blocks * self.heads)

    def of_layer(self, layer: int, blocks: np.ndarray) -> np.ndarray:
        """The pages of each head of a layer in some blocks, [heads, blocks]."""
        base = self.layer_begins()[layer] + blocks * self.heads
        return (base + np.arange(self.heads)[:, None]).astype(np.uint32)


def mark(device: torch.device) -> torch.Event | None:
    """An event that occurs when the device's work so far is done; None if it is done already."""
    if device.type == "cpu":
        return None
    event = torch.Event(device)
    event.record()
    return event


@dataclass
class Chain:
    """What the pushes of one request have stored, one after the other.

    Attributes:
        segment: the last one, at whose end the next push begins.
        broken: a push failed, so that no later one can continue it.
    """

    segment: precis.Segment | None = None
    broken: bool = False


@dataclass(eq=False)
class Push:
    """A push in progress.

    Attributes:
        chain: of its request.
        after: the event after which its pages are written.
        over: set once it no longer reads pages.
        canceled: its request lost the blocks, and other requests may have written to them since:
            the bytes read from them must not be committed.
    """

    save: Save
    chain: Chain = field(default_factory=Chain)
    after: torch.Event | None = None
    over: threading.Event = field(default_factory=threading.Event)
    canceled: bool = False


class Worker:
    """Made by the connector in each worker process, and called by the worker's thread."""

    def __init__(
        self, settings: Settings, service: Service, heads: range, writers: int, writes: bool
    ) -> None:
        """`heads`: the model's KV heads of this rank. `writers`: the number of ranks that push a
        prompt together; `writes`: whether this rank is one of them (one of the ranks with the same
        heads is).
        """
        self.settings, self.service = settings, service
        self.heads, self.writers, self.writes = heads, writers, writes
        self.counts = Counts()
        self.pages: Pages  # set once the engine has its caches
        self.layouts: dict[int, Layout] = {}
        self.step: Step | None = None
        self.rows: dict[int, int] = {}  # the rows of `made`
        self.made: Prefixes | None = None
        # Fetches not started.
        self.due: list[tuple[torch.Event | None, str, Layout, bytes, str | None]] = []
        self.calls: precis.Calls | None = None
        self.fetching: dict[int, tuple[str, float]] = {}  # by ticket
        self.lost: set[str] = set()
        # By request; pushes that have ended are removed when the next one is added.
        self.pushes: dict[str, list[Push]] = {}
        self.chains: dict[str, Chain] = {}  # by request
        self.ended: set[str] = set()  # requests that have ended while their pushes continue
        self.queue: queue.SimpleQueue[Push] = queue.SimpleQueue()
        threading.Thread(target=self._push_all, name="precis-push", daemon=True).start()

    def bind(self, step: Step) -> None:
        """Takes the step's work."""
        self.step = step
        for number, (tokens, pages, blocks) in step.layouts.items():
            mine = pages[:, self.heads.start : self.heads.stop]
            self.layouts[number] = Layout.of(tokens, mine, blocks, self.pages.num_blocks)
        for number in step.dropped:
            self.layouts.pop(number, None)
        # Registered now: with speculation, vLLM asks for results before it calls save().
        for save in step.saves:
            before = self.pushes.get(save.request, [])
            push = Push(save, self.chains.setdefault(save.request, Chain()))
            self.pushes[save.request] = [p for p in before if not p.over.is_set()] + [push]

    def prefixes(self) -> Prefixes | None:
        """The prefixes of the step's requests; None if there are none."""
        if self.step is None or not self.step.rows:
            return None
        if self.step.rows != self.rows:  # equal rows mean equal layouts: numbers are not reused
            self.rows = self.step.rows
            layouts = {block: self.layouts[number] for block, number in self.rows.items()}
            self.made = Prefixes.of(layouts, self.pages)
        return self.made

    def cancel(self, step: Step) -> None:
        """Cancels the pushes of requests whose blocks other requests will write to."""
        for request in step.canceled:
            self.chains.pop(request, None)
            for push in self.pushes.pop(request, []):
                push.canceled = True

    # ---- fetches --------------------------------------------------------------------------------

    def fetch(self, forward_context: Any, **more: Any) -> None:
        """Fills the pages of prefixes, starting once earlier steps no longer use the pages."""
        if self.step.fetches:
            after = mark(self.pages.cache.device)
            for request, (number, match, trace) in self.step.fetches.items():
                self.due.append((after, request, self.layouts[number], match, trace))
        self._begin()

    def _begin(self) -> None:
        due, self.due = self.due, []
        for after, request, layout, data, trace in due:
            if after is not None and not after.query():
                self.due.append((after, request, layout, data, trace))
                continue
            try:
                if self.calls is None:
                    self.calls = precis.Calls(self.service.cache, threads=2)
                match = precis.Match.from_bytes(data)
                pages = (self.pages.store, layout.table, layout.starts)
                ticket = self.calls.get(match, heads=self.heads, pages=pages, traceparent=trace)
                self.fetching[ticket] = (request, time.monotonic())
            except Exception as error:  # the request is computed
                self._lose(request, error)

    def _lose(self, request: str, why: Exception) -> None:
        self.service.failed(why)
        self.lost.add(request)

    def results(self, finished: set[str]) -> tuple[set[str], set[str], set[str]]:
        """Ended requests whose pushes ended; requests whose fetches ended; which fetches failed."""
        self._begin()
        received: set[str] = set()
        now = time.monotonic()
        for ticket, (request, began) in list(self.fetching.items()):
            # A fetch may wait for a thread behind slow fetches.
            if now - began > self.settings.load_timeout and self.calls.cancel(ticket):
                del self.fetching[ticket]
                self._lose(request, TimeoutError("the fetch did not begin in time"))
        for ticket, result in self.calls.poll() if self.calls is not None else ():
            request, began = self.fetching.pop(ticket)
            if isinstance(result, Exception):
                self._lose(request, result)
            else:
                received.add(request)
                self.counts.add(
                    loads=1, load_bytes=result.bytes, load_seconds=time.monotonic() - began
                )
        failed, self.lost = self.lost, set()
        self.ended = (self.ended | finished) & self.pushes.keys()
        sent = {r for r in self.ended if all(push.over.is_set() for push in self.pushes[r])}
        for request in sent:
            del self.pushes[request]
            self.chains.pop(request, None)
        self.ended -= sent
        return sent, received | failed, failed

    # ---- pushes ---------------------------------------------------------------------------------

    def save(self) -> None:
        """Starts the step's pushes, after its forward pass."""
        after = mark(self.pages.cache.device) if self.step.saves else None
        for save in self.step.saves:
            push = next((p for p in self.pushes.get(save.request, []) if p.save is save), None)
            if push is None:
                continue
            if self.writes:
                push.after = after
                self.queue.put(push)
            else:
                push.over.set()

    def _push_all(self) -> None:
        while True:
            push = self.queue.get()
            try:
                if push.after is not None:
                    push.after.synchronize()
                self._push(push)
            except Exception as error:  # a lost push only causes a later miss
                push.chain.broken = True
                if not push.canceled:  # else another rank may have left the put
                    self.service.failed(error)
                    self.counts.add(store_failures=1)
            finally:
                push.over.set()

    def _push(self, push: Push) -> None:
        chain, save = push.chain, push.save
        # One rank alone must not skip a put that several write: the others would wait for it.
        alone = self.writers == 1
        if alone and (chain.broken or push.canceled):
            return
        if alone and not self.service.up():
            raise precis.Unavailable("the service does not answer")
        cache, segment = self.service.cache, chain.segment
        if segment is None or segment.end < len(save.tokens):
            segment = self._put(cache, push)
            self.service.answered()
        ends = segment is not None and segment.end == len(save.tokens)
        if ends and save.ends_turn and self.heads.start == 0:
            advance(cache, save.session, segment)

    def _put(self, cache: precis.Cache, push: Push) -> precis.Segment | None:
        """Stores the push's tokens; None if they are not to be stored, or it was canceled."""
        chain, save, pages = push.chain, push.save, self.pages
        parent = precis.Match.from_bytes(save.parent) if save.parent else "auto"
        try:
            put = self._begin_put(cache, save, chain.segment or parent)
        except precis.NotFound:  # the service has joined it with others, or dropped it
            if chain.segment is None:
                raise
            put = self._begin_put(cache, save, "auto")
        with put:
            count = put.end - put.begin
            if push.canceled or chain.broken:  # to leave the put ends it for the other ranks
                return None
            if not put.already_stored:
                if put.begin < save.begin:  # the segment that it should continue is gone
                    raise precis.NotFound(f"no stored segment ends at token {save.begin} or later")
                if count < save.least:
                    return None
                blocks = np.asarray(save.blocks)[put.begin // pages.size :]
                for layer in range(len(pages.layers)):
                    if push.canceled:
                        return None
                    put.layer_from_pages(
                        layer,
                        pages.store,
                        pages.of_layer(layer, blocks),
                        first_row=put.begin % pages.size,
                        num_tokens=count,
                        head_begin=self.heads.start,
                        wait=False,
                    )
            if push.canceled:
                return None
            segment = put.commit()
        # A segment that was joined with later ones ends beyond these tokens.
        chain.segment = segment if segment.end == len(save.tokens) else None
        if self.heads.start == 0 and not put.already_stored:
            self.counts.add(stores=1, store_tokens=count, store_bytes=segment.bytes)
        return segment

    def _begin_put(
        self, cache: precis.Cache, save: Save, parent: precis.Segment | precis.Match | str
    ) -> precis.Put:
        return cache.begin_put(
            self.service.model(save.adapter),
            save.tokens,
            recipe=self.settings.recipe or None,
            keep=self.settings.store_keep,
            parent=parent,
            parent_read=save.parent_read,
            writers=self.writers,
            session=cache.session(save.session) if save.session else None,  # it may have a budget
            traceparent=save.traceparent,
            **save.hints,
        )


def advance(cache: precis.Cache, name: str, segment: precis.Segment) -> None:
    """Moves a session to its new turn, even if that does not continue the turn before."""
    session = cache.session(name)
    try:
        session.advance(segment)
    except precis.InvalidArgument:  # not a descendant of the tip, for example after an edit
        pinned, total = session.pinned, session.total
        session.remove()
        session = cache.session(name, total=total).advance(segment)
        if pinned:
            session.pin()
