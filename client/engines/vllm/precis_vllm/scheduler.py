"""The scheduler's half of the connector: which requests stand on a stored prefix, what is stored.

Nothing here waits for the service: lookups run in the client's threads, and a request whose lookup
is under way is asked for again in a later step.
"""

from __future__ import annotations

import hashlib
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
    """One push of a worker: the KV of tokens [.., len(tokens)) out of the request's blocks."""

    request: str
    tokens: np.ndarray
    blocks: list[int]
    exact_from: int  # tokens before it are not in these blocks as they were computed
    parent_read: precis.Budget | None
    session: str
    adapter: str


@dataclass
class Step(KVConnectorMetadata):
    """What one step asks of the workers.

    Attributes:
        layouts: prefixes that are new to them, by number: (tokens, pages, blocks).
        rows: prefixes of the step's requests: by first block, their numbers.
        dropped: numbers that no request uses any more.
        fetches: (request, number, match) whose pages are to be filled.
        saves: pushes to begin after the step.
        canceled: requests whose blocks are taken away: pushes out of them must not be committed.
    """

    layouts: dict[int, tuple[int, np.ndarray, list[int]]] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)
    dropped: list[int] = field(default_factory=list)
    fetches: list[tuple[str, int, bytes]] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)
    canceled: set[str] = field(default_factory=set)


@dataclass
class Tracked:
    """What the connector knows of one request.

    Attributes:
        ticket: of its lookup under way; asked: when that began; since: when the first did;
            again: when the next shall; pause: seconds until then, twice as many each time.
        stored: tokens of it that the service has as they are computed without it.
        plan: the prefix it may stand on; layout: its number once it holds blocks by it.
        saving: a push out of its blocks was begun, and its workers tell when it is over.
        told: what the request's answer says of it.
    """

    request: Any
    wish: Wish
    ticket: int | None = None
    since: float = 0.0
    asked: float = 0.0
    plan: Plan | None = None
    stored: int = 0
    looked: bool = False
    again: float = 0.0
    pause: float = 0.01
    layout: int | None = None
    failed: bool = False
    preemptions: int = 0
    saved: bool = False
    saving: bool = False
    told: dict[str, Any] = field(default_factory=dict)


class Scheduler:
    """Made by the connector in the engine's core. Its calls come from the scheduler's thread."""

    def __init__(self, settings: Settings, service: Service, block_size: int, heads: int, tp: int):
        self.settings, self.service, self.size = settings, service, block_size
        self.ranks = ranks_of(heads, tp)
        self.counts = Counts()
        self.manager: RaggedManager  # once the engine has one
        self.requests: dict[str, Tracked] = {}
        self.tickets: dict[int, str] = {}
        self.admitted: list[str] = []  # since the last step, to be fetched
        self.under_way: dict[bytes, str] = {}  # by digest, the request that fetches it
        self.unfetched: dict[bytes, float] = {}  # by digest, until when it is not tried again
        self.canceled: set[str] = set()
        self.numbers: dict[tuple[bytes, tuple[int, ...]], int] = {}
        self.users: dict[int, int] = {}  # requests by layout
        self.next_layout = 0
        self.new_layouts: dict[int, tuple[int, np.ndarray, list[int]]] = {}
        self.dropped: list[int] = []
        self.late_saves: list[Save] = []
        self.prefill = PrefillRate()

    # ---- lookups --------------------------------------------------------------------------------

    def on_new_request(self, request: Any) -> None:
        """Begins the request's lookup, so that it is over when the request's turn comes."""
        try:
            wish = Wish.read(request.kv_transfer_params)
        except Exception as error:  # whatever a stranger sends costs the engine nothing
            logger.warning(
                "request %s: %s; Precis is off for it", request.request_id, str(error)[:200]
            )
            self.requests[request.request_id] = tracked = Tracked(request, Wish(off=True))
            tracked.told["error"] = str(error)[:200]
            return
        # The ids of such prompts do not say what was computed.
        opaque = bool(request.mm_features) or request.prompt_embeds is not None
        self.requests[request.request_id] = Tracked(request, Wish(off=True) if opaque else wish)
        self._look_up(self.requests[request.request_id])

    def _look_up(self, tracked: Tracked) -> None:
        request = tracked.request
        tracked.looked = True
        if tracked.wish.off or tracked.failed or request.skip_reading_prefix_cache:
            return
        tracked.since = time.monotonic()
        self._ask(tracked, self._length(request))

    def _length(self, request: Any) -> int:
        """Whole pages, without the last token, which has to be computed."""
        return (request.num_tokens - 1) // self.size * self.size

    def _ask(self, tracked: Tracked, length: int) -> None:
        if length < self.settings.min_tokens:
            return
        path = np.asarray(tracked.request.all_token_ids[:length], np.uint32)
        keep = self._keep(tracked)
        tracked.ticket = self.service.look_up(path, adapter_of(tracked.request), keep, self.size)
        if tracked.ticket is not None:
            self.tickets[tracked.ticket] = tracked.request.request_id
            tracked.asked = time.monotonic()
        else:
            tracked.told["error"] = "the service does not answer"
            self.counts.add(fallbacks=1)

    def _keep(self, tracked: Tracked) -> float | str | None:
        return self.settings.keep if tracked.wish.keep is None else tracked.wish.keep

    def _take_lookups(self) -> None:
        for ticket, result in self.service.poll():
            tracked = self.requests.get(self.tickets.pop(ticket, ""))
            if tracked is None:
                continue
            tracked.ticket = None
            if not isinstance(result, Exception):
                tracked.stored = max(tracked.stored, exact_tokens(result))
            if isinstance(result, Exception):
                self._fall_back(tracked, result)
            elif (
                result.matched_tokens < self._whole(self._length(tracked.request))
                and time.monotonic() - tracked.since < tracked.wish.wait
            ):
                tracked.pause = min(1.0, 2 * tracked.pause)
                tracked.again = time.monotonic() + tracked.pause
            elif result.matched_tokens % self.size:
                # Its last segment ends inside a page, so it is matched up to a block before that.
                self._ask(tracked, self._whole(result.matched_tokens))
            elif self._is_turn(tracked) and ends_inside(result) and result.links[-1].segment.begin:
                # Nothing can stand inside a segment, so a turn stands on those before.
                self._ask(tracked, self._whole(result.links[-1].segment.begin))
            elif result and result.plan.any():
                tracked.plan = self._plan(result)
                self.counts.add(hits=1)
            else:
                self.counts.add(misses=1)

    def _whole(self, tokens: int) -> int:
        """Down to whole pages and whole blocks of the store."""
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
            complete and all(computed_over(link) >= 1 for link in match.links),
            match.keep,
        )

    # ---- what the scheduler asks ----------------------------------------------------------------

    def matched(self, request: Any, computed: int) -> tuple[int | None, bool]:
        """Tokens past `computed` that a stored prefix brings, and whether they have to be fetched.

        None: not known yet, ask again.
        """
        tracked = self.requests.get(request.request_id)
        if tracked is None:
            return 0, False
        self._see_preemption(tracked)
        self.manager.plans.pop(request.request_id, None)
        if not tracked.looked:
            self._look_up(tracked)
        self._take_lookups()
        now = time.monotonic()
        if tracked.again:
            if now < tracked.again:
                return None, False
            tracked.again = 0.0
            self._ask(tracked, self._length(request))
        if tracked.ticket is not None:
            if now - tracked.asked < self.settings.lookup_timeout:
                return None, False
            self.service.forget(tracked.ticket)
            self.tickets.pop(tracked.ticket, None)
            tracked.ticket = None
            self._fall_back(tracked, TimeoutError("the lookup took too long"))
        plan = tracked.plan
        if plan is None or tracked.failed or plan.tokens <= computed:
            return 0, False
        if not self._goes_far(tracked, plan):
            return 0, False
        resident = self.manager.resident(plan) is not None
        if not resident:
            if not self.service.up() or self.unfetched.get(plan.digest, 0.0) > now:
                return 0, False
            if self._fetched_by_another(plan):
                return None, False
            saved = self.prefill.seconds(plan.tokens - computed)
            if saved is not None and saved - plan.seconds < self.settings.min_gain:
                return 0, False
        self.manager.plans[request.request_id] = plan
        return plan.tokens - computed, not resident

    def _fetched_by_another(self, plan: Plan) -> bool:
        """Whether a request fetches the same pages, which are not in the pool yet."""
        fetcher = self.requests.get(self.under_way.get(plan.digest, ""))
        if fetcher is None or not self.manager.enable_caching:
            self.under_way.pop(plan.digest, None)
            return False
        return True

    def _goes_far(self, tracked: Tracked, plan: Plan) -> bool:
        """Whether the prefix is worth more than storing the prompt as it is without it.

        What is computed over an approximation is not stored for others, so a short prefix that many
        prompts share, a system prompt say, must not keep the prompts themselves from being stored.
        """
        if (plan.whole and (plan.exact or tracked.wish.session)) or not self._stores(tracked):
            return True
        new = self._whole(tracked.request.num_prompt_tokens) - plan.tokens
        return new < max(plan.tokens, self.settings.min_tokens)

    def _stores(self, tracked: Tracked) -> bool:
        if tracked.wish.store is not None:
            return tracked.wish.store
        return not tracked.wish.off and (self.settings.store or bool(tracked.wish.session))

    def _is_turn(self, tracked: Tracked) -> bool:
        return bool(tracked.wish.session) and self._stores(tracked)

    def allocated(self, request: Any, blocks: Any, external: int) -> None:
        """The request has its blocks; its pages have to be fetched, unless they are there."""
        request_id = request.request_id
        tracked = self.requests.get(request_id)
        if tracked is None:
            return
        plan = self.manager.plans.get(request_id)
        if plan is None or tracked.layout is not None:
            return
        if external == 0:
            self.manager.plans.pop(request_id, None)
            return
        row = self.manager.req_to_blocks[request_id]
        tracked.layout = self._use_layout(plan, [b.block_id for b in row[: plan.blocks]])
        tracked.told |= {
            "tokens": plan.tokens,
            "blocks": plan.blocks,
            "blocks_saved": plan.tokens // self.size - plan.blocks,
            "entries_share": round(plan.share(self.size), 4),
        }
        self.counts.add(hit_tokens=plan.tokens, blocks_saved=plan.tokens // self.size - plan.blocks)
        if row[0].block_hash is None:  # nobody has fetched it yet
            self.admitted.append(request_id)
            self.under_way[plan.digest] = request_id

    def _use_layout(self, plan: Plan, blocks: list[int]) -> int:
        key = (plan.digest, tuple(blocks))
        number = self.numbers.get(key)
        if number is None:
            number = self.numbers[key] = self.next_layout
            self.next_layout += 1
            self.new_layouts[number] = (plan.tokens, plan.pages, blocks)
        self.users[number] = self.users.get(number, 0) + 1
        return number

    def _leave(self, tracked: Tracked) -> None:
        """The request holds no blocks any more."""
        request_id = tracked.request.request_id
        self.manager.plans.pop(request_id, None)
        if request_id in self.admitted:
            self.admitted.remove(request_id)
        if tracked.plan is not None and self.under_way.get(tracked.plan.digest) == request_id:
            del self.under_way[tracked.plan.digest]
        number, tracked.layout = tracked.layout, None
        if number is None:
            return
        self.users[number] -= 1
        if self.users[number] == 0:
            del self.users[number]
            self.numbers = {k: n for k, n in self.numbers.items() if n != number}
            if self.new_layouts.pop(number, None) is None:
                self.dropped.append(number)

    def received(self, output: Any) -> None:
        """What the workers tell: fetches that failed, and pushes that are over."""
        for request_id in output.failed_recving or ():
            if tracked := self.requests.get(request_id):
                # vLLM frees its blocks and computes the prompt.
                tracked.failed = True
                tracked.told = {"error": "the stored prefix could not be fetched"}
                if tracked.plan is not None:  # others need not wait for the same
                    now = time.monotonic()
                    self.unfetched = {d: t for d, t in self.unfetched.items() if t > now}
                    self.unfetched[tracked.plan.digest] = now + RETRY_SECONDS
                self._leave(tracked)
                self.counts.add(fallbacks=1)
        for request_id in output.finished_sending or ():  # of requests that have ended
            self.requests.pop(request_id, None)

    # ---- the step -------------------------------------------------------------------------------

    def step(self, output: Any) -> Step:
        """What the workers have to know for the step that was scheduled."""
        step = Step(saves=self.late_saves)
        self.late_saves = []
        for request_id in output.preempted_req_ids or ():
            if tracked := self.requests.get(request_id):
                self._see_preemption(tracked)
        step.canceled, self.canceled = self.canceled, set()
        for request_id in self.admitted:
            tracked = self.requests[request_id]
            assert tracked.plan is not None and tracked.layout is not None
            step.fetches.append((request_id, tracked.layout, tracked.plan.match))
        self.admitted = []
        computed = {r.req_id: r.num_computed_tokens for r in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        computed |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        for request_id, count in output.num_scheduled_tokens.items():
            tracked = self.requests.get(request_id)
            if tracked is None:
                continue
            if tracked.layout is not None:
                step.rows[self.manager.req_to_blocks[request_id][0].block_id] = tracked.layout
            if computed[request_id] + count >= tracked.request.num_prompt_tokens:
                self._save_prompt(tracked, step)
        step.layouts, self.new_layouts = self.new_layouts, {}
        step.dropped, self.dropped = self.dropped, []
        self.prefill.note(output.total_num_scheduled_tokens)
        return step

    def _see_preemption(self, tracked: Tracked) -> None:
        """Forgets what a request that was preempted held; it is asked for anew once it is resumed.

        It may have been preempted and resumed within one step.
        """
        if tracked.preemptions == tracked.request.num_preemptions:
            return
        tracked.preemptions = tracked.request.num_preemptions
        self._leave(tracked)
        self.canceled.add(tracked.request.request_id)
        tracked.saved = tracked.saving = tracked.looked = False
        tracked.plan = None
        tracked.told.clear()

    def _save_prompt(self, tracked: Tracked, step: Step) -> None:
        """Has the prompt stored, once; that of a session waits for its answer."""
        if tracked.saved or tracked.wish.off or tracked.wish.session:
            return
        tracked.saved = True
        over = tracked.plan if tracked.layout is not None else None
        if self._stores(tracked) and (over is None or over.exact or tracked.wish.store):
            self._save(tracked, self._whole(tracked.request.num_prompt_tokens), step.saves)

    def _save(self, tracked: Tracked, length: int, saves: list[Save]) -> None:
        plan = tracked.plan if tracked.layout is not None else None
        begin = plan.tokens if plan else 0
        request = tracked.request
        new = length - max(begin, tracked.stored)
        if new < (1 if tracked.wish.session else self.settings.min_tokens):
            return
        if plan is not None and not plan.whole:
            return  # nothing can stand inside a segment
        if not self.service.up():
            return
        blocks = [b.block_id for b in self.manager.req_to_blocks[request.request_id]]
        tokens = np.asarray(request.all_token_ids[:length], np.uint32)
        saves.append(
            Save(
                request.request_id,
                tokens,
                blocks[: -(-length // self.size)],
                begin,
                None if plan is None else plan.keep,
                tracked.wish.session,
                adapter_of(request),
            )
        )
        tracked.saving = True

    def finished(self, request: Any, blocks: Any) -> tuple[bool, dict[str, Any] | None]:
        """The request has ended: whether its blocks are still read, and what its answer says."""
        tracked = self.requests.get(request.request_id)
        if tracked is None:
            return False, None
        if tracked.ticket is not None:
            self.service.forget(tracked.ticket)
            self.tickets.pop(tracked.ticket, None)
        self._see_preemption(tracked)
        whole = request.num_computed_tokens >= request.num_prompt_tokens
        if whole and self._is_turn(tracked):
            # The last token was sampled and not computed. The next turn stands on whole blocks.
            length = min(request.num_computed_tokens, request.num_tokens)
            self._save(tracked, self._whole(length), self.late_saves)
        self._leave(tracked)
        if not tracked.saving:
            del self.requests[request.request_id]
        told = {"precis": tracked.told} if tracked.told else None
        return tracked.saving, told


class PrefillRate:
    """How many tokens a second the engine computes, from steps that are long enough to tell."""

    def __init__(self) -> None:
        self._each: deque[float] = deque(maxlen=32)  # seconds per token
        self._last = (0.0, 0)

    def note(self, tokens: int) -> None:
        """A step of so many tokens begins now; the one before has ended."""
        (began, before), now = self._last, time.monotonic()
        if before >= 128:
            self._each.append((now - began) / before)
        self._last = (now, tokens)

    def seconds(self, tokens: int) -> float | None:
        """That so many tokens should take; None where no step was long enough yet."""
        return tokens * statistics.median(self._each) if self._each else None


def computed_over(link: precis.MatchLink) -> float:
    """The share of its parents' entries that a segment was computed over; 1 where that was all."""
    read = link.segment.parent_read
    if read is None or read.kind == "all":
        return 1.0
    return read.value if read.kind == "ratio" else 0.0


def ends_inside(match: precis.Match) -> bool:
    """Whether a match ends inside a segment."""
    if not match.links:
        return False
    last = match.links[-1]
    return last.matched_end < last.segment.end


def exact_tokens(match: precis.Match) -> int:
    """The tokens of a match before the first segment that is an approximation.

    A reader at a small budget is told of those that suit it, too. What was read of the parents and
    what is stored of them count as equal from 95% on, as the service has it.
    """
    before: list[tuple[int, int]] = []  # of each link: entries that its tokens had, and kept
    for link in match.links:
        segment, share = link.segment, computed_over(link)
        read = sum(min(share * had, kept) for had, kept in before)
        if read < 0.95 * sum(kept for _, kept in before):
            return segment.begin
        before.append(((segment.end - segment.begin) * link.counts.size, segment.kept))
    return match.matched_tokens


def adapter_of(request: Any) -> str:
    """What keeps a request's paths apart from others of the same tokens."""
    lora = request.lora_request
    name = f"{lora.lora_name} {lora.lora_path}" if lora else ""
    if name or request.cache_salt:
        name = hashlib.sha256(f"{name}\x1f{request.cache_salt or ''}".encode()).hexdigest()
    return name
