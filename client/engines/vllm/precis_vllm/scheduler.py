"""The scheduler's half of the connector: decides which requests use and store prefixes.

Nothing here waits for the service: lookups run in the client's threads, and while a request's
lookup runs, vLLM asks for the request again in a later step.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import statistics
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata
from vllm.logger import init_logger

import precis
from precis.engines import RETRY_SECONDS, Service, digest_of

from .blocks import RaggedManager
from .metrics import Counts
from .plan import Plan, blocks_of, ranks_of
from .settings import Settings, Wish

logger = init_logger("vllm.precis")


@dataclass
class Save:
    """One push of a worker: the KV of tokens [.., len(tokens)) from the request's blocks."""

    request: str
    tokens: np.ndarray
    blocks: list[int]
    # The put may not begin before this token: the blocks have kept entries there, or a segment that
    # should end here was not stored, and the put would be larger than a segment.
    begin: int
    least: int  # fewer new tokens are not stored
    parent_read: precis.Budget | None
    parent: bytes  # the match to begin at, if it ends inside a segment, else empty
    session: str
    ends_turn: bool  # whether the session's turn is complete with it
    adapter: str
    hints: dict[str, Any]
    traceparent: str | None


@dataclass
class Step(KVConnectorMetadata):
    """The work of the workers in one step.

    Attributes:
        layouts: new prefixes, by number: (tokens, pages, blocks).
        rows: the prefixes of the step's requests: numbers by their first block.
        dropped: numbers that no request uses any more.
        fetches: prefixes to be filled, by request: (number, match, traceparent).
        saves: pushes to start after the step.
        canceled: requests that lose their blocks: pushes from these must not be committed.
    """

    layouts: dict[int, tuple[int, np.ndarray, list[int]]] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)
    dropped: list[int] = field(default_factory=list)
    fetches: dict[str, tuple[int, bytes, str | None]] = field(default_factory=dict)
    saves: list[Save] = field(default_factory=list)
    canceled: set[str] = field(default_factory=set)


@dataclass
class Held:
    """Blocks of the pool that hold a prefix, and the number of requests that use them."""

    number: int  # identifies the prefix's pages in messages to the workers
    digest: bytes
    blocks: tuple[int, ...]
    users: int = 0


@dataclass
class Tracked:
    """The connector's data about one request.

    Attributes:
        ticket: of its running lookup; asked: the time at which that started.
        again: the time of the next lookup; the first is made at once. pause: seconds between
            lookups, doubled each time; no more lookups after `until`.
        session: that its lookups name; empty if it has none, or the service does not know it yet.
        stored: number of its tokens that the service already has.
        passed: the last segment boundary that was handled, whether pushed or already stored.
        pushed: number of its tokens up to the end of the last push.
        known: number of its tokens that lookups may find: after a preemption in its prefill, those
            before its own segments, which are compressed.
        plan: the prefix that it may use; held: the prefix's blocks, once it has them.
        saving: a push from its blocks was started, and the workers will report its end.
        told: the connector's part of the request's answer.
    """

    request: Any
    wish: Wish
    ticket: int | None = None
    asked: float = 0.0
    again: float = 0.0
    pause: float = 0.01
    until: float = 0.0
    session: str = ""
    stored: int = 0
    passed: int = 0
    pushed: int = 0
    known: float = math.inf
    plan: Plan | None = None
    held: Held | None = None
    failed: bool = False
    preemptions: int = 0
    saved: bool = False
    saving: bool = False
    told: dict[str, Any] = field(default_factory=dict)

    @property
    def stands_on(self) -> Plan | None:
        """The prefix whose blocks it has; None if it has none."""
        return self.plan if self.held else None


class Scheduler:
    """Made by the connector in the engine's core, and called by the scheduler's thread."""

    def __init__(self, settings: Settings, service: Service, block_size: int, heads: int, tp: int):
        self.settings, self.service, self.size = settings, service, block_size
        self.min_tokens = max(1, settings.min_tokens)
        self.ranks = ranks_of(heads, tp)
        self.counts = Counts()
        self.manager: RaggedManager  # set once the engine has one
        self.requests: dict[str, Tracked] = {}
        self.tickets: dict[int, Tracked] = {}
        self.next = Step()  # the work for the workers in the next step
        self.under_way: dict[bytes, str] = {}  # by digest, the request that fetches it
        self.unfetched: dict[bytes, float] = {}  # by digest, the earliest time of the next attempt
        self.held: dict[tuple[bytes, tuple[int, ...]], Held] = {}  # by digest and blocks
        self.numbers = itertools.count()
        self.prefill = PrefillRate()

    # ---- lookups --------------------------------------------------------------------------------

    def on_new_request(self, request: Any) -> None:
        """Starts the request's lookup early, so that it has ended when the request is scheduled."""
        request_id, told = request.request_id, {}
        try:
            wish = Wish.read(request.kv_transfer_params)
        except Exception as error:  # a request's bad parameters must not disturb the engine
            wish, told["error"] = Wish(off=True), str(error)[:200]
            logger.warning("request %s: %s; Precis is off for it", request_id, told["error"])
        if request.mm_features or request.prompt_embeds is not None:
            wish = Wish(off=True)  # the ids of such prompts do not identify their content
        until = time.monotonic() + wish.wait
        self.requests[request_id] = tracked = Tracked(
            request, wish, until=until, session=wish.session, told=told
        )
        self._look_up(tracked)

    def _look_up(self, tracked: Tracked) -> None:
        request, tracked.again = tracked.request, math.inf
        if not (tracked.wish.off or tracked.failed or request.skip_reading_prefix_cache):
            self._ask(tracked, self._length(tracked))

    def _length(self, tracked: Tracked) -> int:
        """The length to look up in whole pages, without the last token, which must be computed."""
        return int(min(tracked.request.num_tokens - 1, tracked.known)) // self.size * self.size

    def _ask(self, tracked: Tracked, length: int) -> None:
        if length < self.min_tokens:
            return
        request, keep = tracked.request, tracked.wish.keep
        path = np.asarray(request.all_token_ids[:length], np.uint32)
        keep = self.settings.keep if keep is None else keep
        tracked.ticket = self.service.look_up(
            path,
            adapter_of(request),
            keep,
            self.size,
            traceparent=traceparent_of(request),
            session=tracked.session or None,
            **tracked.wish.hints,
        )
        if tracked.ticket is None:
            tracked.told["error"] = "the service does not answer"
            self.counts.add(fallbacks=1)
            return
        self.tickets[tracked.ticket] = tracked
        tracked.asked = time.monotonic()

    def _cancel_lookup(self, tracked: Tracked) -> None:
        if tracked.ticket is not None:
            self.service.cancel(tracked.ticket)
            del self.tickets[tracked.ticket]
            tracked.ticket = None

    def _take_lookups(self) -> None:
        for ticket, result in self.service.poll():
            if tracked := self.tickets.pop(ticket, None):
                tracked.ticket = None
                if isinstance(result, precis.NotFound) and tracked.session:
                    tracked.session = ""  # its first turn is stored later
                    self._ask(tracked, self._length(tracked))
                elif isinstance(result, Exception):
                    self._fall_back(tracked, result)
                else:
                    self._take(tracked, result)

    def _take(self, tracked: Tracked, match: precis.Match) -> None:
        now, matched = time.monotonic(), match.matched_tokens
        tracked.stored = max(tracked.stored, exact_tokens(match))
        if matched < self._whole(self._length(tracked)) and now < tracked.until:
            tracked.pause = min(1.0, 2 * tracked.pause)
            tracked.again = now + tracked.pause
        elif matched % self.size:
            # The last segment ends inside a page: ask for the whole pages before that.
            self._ask(tracked, self._whole(matched))
        elif match and match.plan.any():
            tracked.plan = self._plan(match)
            self.counts.add(hits=1)
        else:
            self.counts.add(misses=1)

    def _whole(self, tokens: int) -> int:
        """Rounds down to whole pages and whole blocks of the store."""
        step = math.lcm(self.size, self.service.block_tokens)
        return tokens // step * step

    def _fall_back(self, tracked: Tracked, why: Exception) -> None:
        self.service.failed(why)
        self.counts.add(fallbacks=1)
        tracked.told["error"] = str(why)[:200]

    def _plan(self, match: precis.Match) -> Plan:
        pages = match.plan.astype(np.int64) // self.size
        complete = int(pages.sum()) * self.size == match.matched_tokens * pages.size
        return Plan(
            digest_of(match),
            match.matched_tokens,
            pages,
            blocks_of(pages, self.ranks),
            match.to_bytes(),
            match.predicted_seconds,
            not ends_inside(match),
            complete and all(map(is_as_pushed, match.links)),
            match.keep,
        )

    # ---- calls from the scheduler ---------------------------------------------------------------

    def matched(self, request: Any, computed: int) -> tuple[int | None, bool]:
        """Tokens after `computed` that a stored prefix has, and whether they must be fetched.

        None instead of a number: not known yet, call again.
        """
        tracked = self.requests.get(request.request_id)
        if tracked is None:
            return 0, False
        self._see_preemption(tracked)
        self.manager.plans.pop(request.request_id, None)
        self._take_lookups()
        now = time.monotonic()
        if tracked.again <= now:
            self._look_up(tracked)
        elif tracked.again < math.inf:
            return None, False
        if tracked.ticket is not None:
            if now - tracked.asked < self.settings.lookup_timeout:
                return None, False
            self._cancel_lookup(tracked)
            self._fall_back(tracked, TimeoutError("the lookup took too long"))
        plan = tracked.plan
        if plan is None or plan.tokens <= computed or not self._goes_far(tracked, plan):
            return 0, False
        resident = self.manager.resident(plan) is not None
        if not resident:
            if not self.service.up() or self.unfetched.get(plan.digest, 0.0) > now:
                return 0, False
            if plan.digest in self.under_way and self.manager.enable_caching:
                return None, False  # another request fetches the same pages
            saved = self.prefill.seconds(plan.tokens - computed)
            if saved is not None and saved - plan.seconds < self.settings.min_gain:
                return 0, False
        self.manager.plans[request.request_id] = plan
        return plan.tokens - computed, not resident

    def _goes_far(self, tracked: Tracked, plan: Plan) -> bool:
        """Whether it is better to use the prefix than to compute the whole prompt and store it.

        KV that is computed over an approximation is not stored for others. So a short prefix that
        many prompts share, for example a system prompt, must not prevent the prompts from being
        stored.
        """
        if plan.exact or tracked.wish.session or not self._stores(tracked):
            return True
        new = self._whole(tracked.request.num_prompt_tokens) - plan.tokens
        if new < self.min_tokens:
            return True
        # A prefix that ends like a segment of a longer prompt is of one that was aborted.
        is_part = bool(self._segment()) and plan.whole and plan.tokens % self._segment() == 0
        return not is_part and new < plan.tokens

    def _stores(self, tracked: Tracked) -> bool:
        wish = tracked.wish
        if wish.off:
            return False
        return (self.settings.store or bool(wish.session)) if wish.store is None else wish.store

    def _is_turn(self, tracked: Tracked) -> bool:
        return bool(tracked.wish.session) and self._stores(tracked)

    def allocated(self, request: Any, blocks: Any, external: int) -> None:
        """The request has its blocks; the pages of its prefix are fetched if they are not there."""
        request_id = request.request_id
        tracked = self.requests.get(request_id)
        if tracked is None:
            return
        plan = self.manager.plans.get(request_id)
        if plan is None or tracked.held is not None:
            return
        if external == 0:
            self.manager.plans.pop(request_id, None)
            return
        row = self.manager.req_to_blocks[request_id]
        blocks = tuple(block.block_id for block in row[: plan.blocks])
        held = self.held.get((plan.digest, blocks))
        if held is None:
            held = Held(next(self.numbers), plan.digest, blocks)
            self.held[plan.digest, blocks] = held
            self.next.layouts[held.number] = (plan.tokens, plan.pages, list(blocks))
        held.users += 1
        tracked.held = held
        saved = plan.tokens // self.size - plan.blocks
        tracked.told |= {
            "tokens": plan.tokens,
            "blocks": plan.blocks,
            "blocks_saved": saved,
            "entries_share": round(plan.share(self.size), 4),
        }
        self.counts.add(hit_tokens=plan.tokens, blocks_saved=saved)
        if row[0].block_hash is None:  # not fetched yet
            self.next.fetches[request_id] = (held.number, plan.match, traceparent_of(request))
            self.under_way[plan.digest] = request_id

    def _leave(self, tracked: Tracked) -> None:
        """The request no longer holds blocks."""
        request_id = tracked.request.request_id
        self.manager.plans.pop(request_id, None)
        self.next.fetches.pop(request_id, None)
        if tracked.plan is not None and self.under_way.get(tracked.plan.digest) == request_id:
            del self.under_way[tracked.plan.digest]
        held, tracked.held = tracked.held, None
        if held is None:
            return
        held.users -= 1
        if held.users == 0:
            del self.held[held.digest, held.blocks]
            if self.next.layouts.pop(held.number, None) is None:
                self.next.dropped.append(held.number)

    def received(self, output: Any) -> None:
        """Handles the workers' reports: fetches that failed, and pushes that have ended."""
        for request_id in output.failed_recving or ():
            if tracked := self.requests.get(request_id):
                # vLLM frees its blocks and computes the prompt.
                tracked.failed = True
                tracked.told = {"error": "the stored prefix could not be fetched"}
                if tracked.plan is not None:  # others do not try it for a while
                    now = time.monotonic()
                    self.unfetched = {d: t for d, t in self.unfetched.items() if t > now}
                    self.unfetched[tracked.plan.digest] = now + RETRY_SECONDS
                self._leave(tracked)
                tracked.plan = None
                self.counts.add(fallbacks=1)
        for request_id in output.finished_sending or ():  # of requests that have ended
            self.requests.pop(request_id, None)

    # ---- the step -------------------------------------------------------------------------------

    def step(self, output: Any) -> Step:
        """The workers' work for the scheduled step."""
        for request_id in output.preempted_req_ids or ():
            if tracked := self.requests.get(request_id):
                self._see_preemption(tracked)
        computed = {r.req_id: r.num_computed_tokens for r in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        computed |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        for request_id, count in output.num_scheduled_tokens.items():
            tracked = self.requests.get(request_id)
            if tracked is None:
                continue
            if tracked.held is not None:
                self.next.rows[tracked.held.blocks[0]] = tracked.held.number
            prompt, before = tracked.request.num_prompt_tokens, computed[request_id]
            # Tokens past the prompt may be drafts, so they count from the next step on.
            self._save_segments(tracked, max(before, min(before + count, prompt)))
            if before + count >= prompt:
                self._save_prompt(tracked)
        self.prefill.note(output.total_num_scheduled_tokens)
        step, self.next = self.next, Step()
        return step

    def _see_preemption(self, tracked: Tracked) -> None:
        """Resets the state of a preempted request; it is looked up again once it is resumed.

        It may have been preempted and resumed within one step.
        """
        if tracked.preemptions == tracked.request.num_preemptions:
            return
        tracked.preemptions = tracked.request.num_preemptions
        if tracked.pushed and not tracked.saved:
            tracked.known = tracked.stands_on.tokens if tracked.stands_on else 0
        self._leave(tracked)
        self.next.canceled.add(tracked.request.request_id)
        tracked.saved = tracked.saving = False
        tracked.passed = tracked.pushed = 0
        tracked.plan, tracked.again = None, 0.0
        tracked.told.clear()

    def _is_worth_storing(self, tracked: Tracked) -> bool:
        """Whether its KV is stored: it is exact, or the request asks for approximations too."""
        plan, wish = tracked.stands_on, tracked.wish
        exact = plan is None or plan.exact or wish.store or bool(wish.session)
        return bool(exact) and self._stores(tracked)

    def _save_segments(self, tracked: Tracked, computed: int) -> None:
        """Stores a long prompt, and a session's long answer, in segments as they are computed."""
        each, request = self._segment(), tracked.request
        if each == 0 or tracked.saved or not self._is_worth_storing(tracked):
            return
        last = min(computed, request.num_tokens)
        if not tracked.wish.session:  # the rest of the prompt must not be too short to be stored
            last = min(last, self._whole(request.num_prompt_tokens) - self.min_tokens)
        while (end := (tracked.passed // each + 1) * each) <= last and self._save(tracked, end, 1):
            tracked.passed = end

    def _segment(self) -> int:
        """The length of a segment of a long prompt, in whole blocks; 0 if there are none."""
        # A number of entries or bytes would be kept of every segment.
        if self.settings.segment_tokens == 0 or self.settings.stores_a_number:
            return 0
        step = math.lcm(self.size, self.service.block_tokens)
        return -(-max(self.settings.segment_tokens, self.min_tokens) // step) * step

    def _save_prompt(self, tracked: Tracked) -> None:
        """Stores the rest of the prompt. A session's is stored with its answer, as one turn."""
        if tracked.saved or tracked.wish.session:
            return
        tracked.saved = not self._is_worth_storing(tracked) or self._save(
            tracked, tracked.request.num_prompt_tokens, self.min_tokens
        )

    def _save(self, tracked: Tracked, tokens: int, least: int, ends_turn: bool = False) -> bool:
        """Stores its first `tokens` tokens, unless too few of them are new to the service.

        `least`: the worker stores no fewer, once it knows where the put begins.

        Returns False if the service is not up: a later step tries again.
        """
        plan, request, length = tracked.stands_on, tracked.request, self._whole(tokens)
        begin = max(plan.tokens if plan else 0, tracked.pushed)
        new = length - max(begin, tracked.stored)
        # A turn ends also if all of it was pushed before.
        if new < (1 if ends_turn else self.min_tokens) and not (ends_turn and tracked.pushed):
            return True
        if not self.service.up():
            return False
        blocks = [b.block_id for b in self.manager.req_to_blocks[request.request_id]]
        self.next.saves.append(
            Save(
                request.request_id,
                np.asarray(request.all_token_ids[:length], np.uint32),
                blocks[: -(-length // self.size)],
                begin,
                least,
                None if plan is None else plan.keep,
                # A later segment begins where the one before ends.
                b"" if plan is None or plan.whole or tracked.saving else plan.match,
                tracked.wish.session,
                ends_turn,
                adapter_of(request),
                tracked.wish.hints,
                traceparent_of(request),
            )
        )
        tracked.saving, tracked.pushed = True, length
        return True

    def finished(self, request: Any, blocks: Any) -> tuple[bool, dict[str, Any] | None]:
        """The request has ended: whether its blocks are still read, and the data for its answer."""
        tracked = self.requests.get(request.request_id)
        if tracked is None:
            return False, None
        self._cancel_lookup(tracked)
        self._see_preemption(tracked)
        whole = request.num_computed_tokens >= request.num_prompt_tokens
        if whole and self._is_turn(tracked):
            # The last token was sampled and not computed. The next turn uses whole blocks.
            end = min(request.num_computed_tokens, request.num_tokens)
            self._save_segments(tracked, end)
            self._save(tracked, end, 1, ends_turn=True)
        self._leave(tracked)
        if not tracked.saving:
            del self.requests[request.request_id]
        told = {"precis": tracked.told} if tracked.told else None
        return tracked.saving, told


class PrefillRate:
    """Estimates how long a prefill takes, from steps that are long enough to measure."""

    def __init__(self) -> None:
        self._each: deque[float] = deque(maxlen=32)  # seconds per token
        self._last = (0.0, 0)

    def note(self, tokens: int) -> None:
        """Notes that a step of `tokens` starts now, and so that the step before has ended."""
        (began, before), now = self._last, time.monotonic()
        if before >= 128:
            self._each.append((now - began) / before)
        self._last = (now, tokens)

    def seconds(self, tokens: int) -> float | None:
        """The expected time for `tokens`; None if no step was long enough yet."""
        return tokens * statistics.median(self._each) if self._each else None


def computed_over(link: precis.MatchLink) -> float:
    """The share of its parents' entries that a segment was computed over; 1 for all."""
    read = link.segment.parent_read
    if read is None or read.kind == "all":
        return 1.0
    return read.value if read.kind == "ratio" else 0.0


def is_as_pushed(link: precis.MatchLink) -> bool:
    """Whether its stored entries are exact: raw rows that were computed over all before them."""
    return link.segment.encoding == "raw" and computed_over(link) >= 1


def ends_inside(match: precis.Match) -> bool:
    """Whether a match ends inside a segment."""
    return bool(match) and match.links[-1].matched_end < match.links[-1].segment.end


def exact_tokens(match: precis.Match) -> int:
    """The tokens of a match before the first segment that is an approximation.

    A lookup at a small budget also finds approximations that suit that budget. A segment that was
    computed over at least 95% of its parents' stored entries counts as exact, as in the service.
    """
    before: list[tuple[int, int]] = []  # for each link: entries of all its tokens, and kept ones
    for link in match.links:
        segment, share = link.segment, computed_over(link)
        read = sum(min(share * had, kept) for had, kept in before)
        if read < 0.95 * sum(kept for _, kept in before):
            return segment.begin
        before.append(((segment.end - segment.begin) * link.counts.size, segment.kept))
    return match.matched_tokens


def adapter_of(request: Any) -> str:
    """The adapter of a request's paths: tells requests with a LoRA or a cache salt apart."""
    lora = request.lora_request
    name = f"{lora.lora_name} {lora.lora_path}" if lora else ""
    if name or request.cache_salt:
        name = hashlib.sha256(f"{name}\x1f{request.cache_salt or ''}".encode()).hexdigest()
    return name


def traceparent_of(request: Any) -> str | None:
    """The span in which vLLM was asked; vLLM passes it on only with --otlp-traces-endpoint."""
    return (request.trace_headers or {}).get("traceparent")
