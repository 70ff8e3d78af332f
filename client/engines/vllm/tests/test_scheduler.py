"""The scheduler's half with a real service and vLLM's own block pool; no engine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from precis_vllm.blocks import RaggedManager, RaggedSpec
from precis_vllm.scheduler import Scheduler
from precis_vllm.settings import Settings
from precis_vllm.worker import Worker
from vllm.v1.core.block_pool import BlockPool

import precis
from precis import engines
from precis.demo.service import Precisd, find_precisd

SIZE, LAYERS, HEADS, DIM = 32, 2, 2, 64
SPEC = precis.ModelSpec("scheduler-test", LAYERS, 4, HEADS, DIM, "f32")
TOKENS = np.arange(1, 641, dtype=np.uint32)


def request(name: str, tokens: np.ndarray = TOKENS, **params: Any) -> Any:
    """A vLLM request, as far as the scheduler's half reads it."""
    return SimpleNamespace(
        request_id=name,
        kv_transfer_params=params or None,
        mm_features=[],
        prompt_embeds=None,
        skip_reading_prefix_cache=False,
        lora_request=None,
        cache_salt=None,
        trace_headers=None,
        num_tokens=len(tokens) + 1,
        num_prompt_tokens=len(tokens) + 1,
        num_computed_tokens=0,
        num_preemptions=0,
        all_token_ids=[*tokens.tolist(), 7],
    )


def store(service: Precisd, tokens: np.ndarray = TOKENS, begin: int = 0, keep: float = 1.0) -> None:
    """Stores random KV of [begin, ..), by default completely."""
    draw = np.random.default_rng(begin)
    with precis.connect(service.address) as cache:
        model = cache.register_model(SPEC)
        with cache.begin_put(model, tokens, keep=keep) as put:
            assert put.begin == begin
            for layer in range(LAYERS):
                shape = (HEADS, len(tokens) - begin, DIM)
                rows = [draw.standard_normal(shape, dtype=np.float32) for _ in "kv"]
                put.layer(layer, *rows)
            put.commit()


def scheduler(address: str, **settings: Any) -> Scheduler:
    """A scheduler with a pool of 100 blocks."""
    settings = {"min_tokens": 32, "lookup_timeout": 5.0} | settings
    chosen = Settings(address=address, **settings)
    made = Scheduler(chosen, engines.Service(chosen, SPEC), SIZE, HEADS, 1)
    spec = RaggedSpec(block_size=SIZE, num_kv_heads=HEADS, head_size=DIM, dtype=torch.float32)
    made.manager = RaggedManager(spec, BlockPool(100, True, SIZE), True, 0, SIZE)
    return made


def ask(made: Scheduler, asked: Any) -> tuple[int, bool]:
    """Calls as vLLM's scheduler does, until there is an answer."""
    made.on_new_request(asked)
    return ask_again(made, asked)


def ask_again(made: Scheduler, asked: Any) -> tuple[int, bool]:
    """As ask(), for a request that is known."""
    for _ in range(1000):
        tokens, fetched = made.matched(asked, 0)
        if tokens is not None:
            return tokens, fetched
        time.sleep(0.01)
    raise AssertionError("no answer in 10 s")


@pytest.fixture
def running(tmp_path: Any) -> Iterator[Precisd]:
    with Precisd(find_precisd(), tmp_path / "data") as service:
        yield service


def test_a_service_that_starts_late_is_found(tmp_path: Any) -> None:
    with Precisd(find_precisd(), tmp_path / "data") as probe:
        address = probe.address
    made = scheduler(address)
    assert ask(made, request("before")) == (0, False)
    assert "does not answer" in made.requests["before"].told["error"]
    with Precisd(find_precisd(), tmp_path / "data", listen=address) as service:
        store(service)
        for number in range(300):
            made.service._again = 0.0  # as if five seconds were over
            if ask(made, request(str(number))) == (len(TOKENS), True):
                return
            time.sleep(0.05)
    raise AssertionError("the service was never found")


def test_two_budgets_of_a_chain_are_two_contents(running: Precisd) -> None:
    store(running, TOKENS[:320])
    store(running, TOKENS, begin=320)
    made = scheduler(running.address)
    plans = []
    for keep in (0.5, 0.25, 0.5):
        ask(made, asked := request(f"{len(plans)}", keep=keep))
        plans.append(made.requests[asked.request_id].plan)
    assert plans[0].digest == plans[2].digest != plans[1].digest
    assert not set(plans[0].hashes) & set(plans[1].hashes)


def test_a_request_that_was_preempted_is_looked_up_anew(running: Precisd) -> None:
    store(running)
    made = scheduler(running.address)
    asked = request("first")
    assert ask(made, asked) == (len(TOKENS), True)
    manager = made.manager
    manager.add_local_computed_blocks("first", [], 0, len(TOKENS))
    made.allocated(asked, None, len(TOKENS))
    assert made.requests["first"].held is not None and list(made.next.fetches) == ["first"]
    manager.free("first")  # vLLM preempts it, or resets all running requests
    asked.num_preemptions = 1
    assert made.matched(asked, 0)[0] in (None, len(TOKENS))
    assert made.requests["first"].held is None
    assert not made.next.fetches and not made.under_way and made.next.canceled == {"first"}
    assert not made.held and not made.next.layouts


def test_lookups_fetches_and_pushes_are_part_of_the_request_s_trace(running: Precisd) -> None:
    store(running)
    made = scheduler(running.address)
    asked, headers = request("traced"), {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"}
    asked.trace_headers = headers
    looked_up: list[Any] = []
    look_up = made.service.look_up
    made.service.look_up = lambda *path, **more: looked_up.append(more) or look_up(*path, **more)
    assert ask(made, asked) == (len(TOKENS), True)
    assert [more["traceparent"] for more in looked_up] == [headers["traceparent"]]
    made.manager.add_local_computed_blocks("traced", [], 0, len(TOKENS))
    made.allocated(asked, None, len(TOKENS))
    assert made.next.fetches["traced"][2] == headers["traceparent"]
    made.requests["traced"].held = None
    made.requests["traced"].stored = 0
    made._save(made.requests["traced"], len(TOKENS), 1)
    assert made.next.saves[0].traceparent == headers["traceparent"]


def computed(made: Scheduler, asked: Any, *counts: int) -> list[list[tuple[int, bool]]]:
    """Runs a step of each count of tokens. Returns each step's pushes, as (length, ends_turn)."""
    pushed = []
    for count in counts:
        before = asked.num_computed_tokens
        asked.num_computed_tokens += count
        asked.num_tokens = max(asked.num_tokens, asked.num_computed_tokens)
        asked.all_token_ids += [7] * (asked.num_tokens - len(asked.all_token_ids))
        grown = len(made.manager.req_to_blocks[asked.request_id]) * SIZE
        made.manager.req_to_blocks[asked.request_id] += made.manager.block_pool.get_new_blocks(
            max(0, -(-(asked.num_computed_tokens - grown) // SIZE))
        )
        step = made.step(
            SimpleNamespace(
                preempted_req_ids=(),
                scheduled_new_reqs=[],
                scheduled_cached_reqs=SimpleNamespace(
                    req_ids=[asked.request_id], num_computed_tokens=[before]
                ),
                num_scheduled_tokens={asked.request_id: count},
                total_num_scheduled_tokens=count,
            )
        )
        assert all(len(s.blocks) * SIZE == len(s.tokens) for s in step.saves)
        made.begins = [s.begin for s in step.saves]  # type: ignore[attr-defined]
        pushed.append([(len(s.tokens), s.ends_turn) for s in step.saves])
    return pushed


@pytest.mark.parametrize(
    ("settings", "params", "pushed"),
    [
        ({"segment_tokens": 256}, {}, [[], [256], [512], [640]]),
        # 64 tokens are a block of the store, and segments are whole blocks.
        ({"segment_tokens": 193}, {}, [[], [256], [512], [640]]),
        ({"segment_tokens": 128}, {}, [[128], [256, 384], [512], [640]]),
        # The rest of a prompt is not left without a segment.
        ({"segment_tokens": 256, "min_tokens": 129}, {}, [[], [256], [], [640]]),
        # No segment is too short to be stored.
        ({"segment_tokens": 64, "min_tokens": 200}, {}, [[], [256], [], [640]]),
        ({"segment_tokens": 640}, {}, [[], [], [], [640]]),
        ({"segment_tokens": 0}, {}, [[], [], [], [640]]),
        ({"segment_tokens": 256, "store": False}, {}, [[], [], [], []]),
        ({"segment_tokens": 256}, {"off": True, "store": True}, [[], [], [], []]),
    ],
)
def test_a_long_prompt_is_stored_in_segments_while_it_is_computed(
    running: Precisd, settings: dict, params: dict, pushed: list[list[int]]
) -> None:
    made = scheduler(running.address, **settings)
    asked = request("long", **params)
    assert ask(made, asked) == (0, False)
    steps = computed(made, asked, 200, 200, 200, 41)
    assert steps == [[(length, False) for length in step] for step in pushed]
    assert computed(made, asked, 1, 300) == [[], []], "an answer belongs to a session"


def test_a_long_answer_of_a_session_is_stored_while_it_is_computed(running: Precisd) -> None:
    made = scheduler(running.address, segment_tokens=256)
    asked = request("long", session="talk")
    assert ask(made, asked) == (0, False)
    assert computed(made, asked, 600, 41) == [[(256, False), (512, False)], []]
    # A draft token may be rejected, so tokens of the answer count only from the next step on.
    assert computed(made, asked, 127, 1) == [[], [(768, False)]]
    assert made.finished(asked, None)[0]
    # The turn ends with the last segment, even if all of it is stored already.
    assert [(len(s.tokens), s.ends_turn) for s in made.next.saves] == [(768, True)]


def test_a_request_that_was_preempted_stores_its_segments_anew(running: Precisd) -> None:
    made = scheduler(running.address, segment_tokens=256)
    asked = request("long")
    assert ask(made, asked) == (0, False)
    assert computed(made, asked, 300) == [[(256, False)]]
    store(running, TOKENS[:256], keep=0.3)  # as a worker does
    made.manager.free("long")
    asked.num_preemptions, asked.num_computed_tokens = 1, 0
    # Its own segment is compressed, so the prompt is not computed over it.
    assert ask_again(made, asked) == (0, False) and made.next.canceled == {"long"}
    assert computed(made, asked, 300, 341) == [[(256, False)], [(512, False), (640, False)]]


def test_a_prompt_whose_first_segments_alone_are_stored_is_stored_whole(running: Precisd) -> None:
    store(running, TOKENS[:384], keep=0.3)  # by a request that was aborted
    for settings, covered in (
        ({"segment_tokens": 128}, 0),
        ({"segment_tokens": 256}, 384),  # a prompt that shares 384 tokens with another
        ({"segment_tokens": 0}, 384),
        ({"segment_tokens": 128, "store": False}, 384),
    ):
        assert ask(scheduler(running.address, **settings), request("again"))[0] == covered
    made = scheduler(running.address, segment_tokens=128)
    assert ask(made, asked := request("again")) == (0, False)
    made.requests["again"].stored = 384
    assert computed(made, asked, 641) == [[(512, False), (640, False)]]


def test_a_push_that_could_not_be_started_is_started_later(running: Precisd) -> None:
    made = scheduler(running.address, segment_tokens=128)
    assert ask(made, asked := request("long")) == (0, False)
    assert computed(made, asked, 200) == [[(128, False)]]
    up, made.service.up = made.service.up, lambda: False
    assert computed(made, asked, 100, 341) == [[], []]
    made.service.up = up
    # The prompt is computed by now, and a later step stores the rest of it, in segments.
    assert computed(made, asked, 1, 1) == [
        [(256, False), (384, False), (512, False), (640, False)],
        [],
    ]


def test_a_number_of_entries_is_kept_of_the_whole_prompt(running: Precisd) -> None:
    made = scheduler(running.address, segment_tokens=128, store_keep="100 entries")
    assert ask(made, asked := request("long")) == (0, False)
    assert computed(made, asked, 600, 41) == [[], [(640, False)]]


def test_a_push_begins_where_the_one_before_ended_or_later(running: Precisd) -> None:
    made = scheduler(running.address, segment_tokens=128)
    assert ask(made, asked := request("long")) == (0, False)
    made.requests["long"].stored = 120
    assert computed(made, asked, 641) == [[(256, False), (384, False), (512, False), (640, False)]]
    assert made.begins == [0, 256, 384, 512]


def test_of_two_that_need_the_same_pages_one_fetches_and_the_other_waits(running: Precisd) -> None:
    store(running)
    made = scheduler(running.address)
    first, second = request("first"), request("second")
    assert ask(made, first) == (len(TOKENS), True)
    made.manager.add_local_computed_blocks("first", [], 0, len(TOKENS))
    made.allocated(first, None, len(TOKENS))
    made.on_new_request(second)
    for _ in range(100):
        assert made.matched(second, 0) == (None, False)
        time.sleep(0.002)
    made.received(SimpleNamespace(failed_recving={"first"}, finished_sending=None))
    assert made.matched(second, 0) == (0, False), "a failed fetch is not tried again at once"


def test_fetches_that_wait_behind_slow_ones_are_given_up_in_time() -> None:
    worker = Worker(Settings(load_timeout=0.0), SimpleNamespace(failed=lambda why: None),
                    range(HEADS), 1, True)  # fmt: skip
    canceled = []
    worker.calls = SimpleNamespace(cancel=lambda t: canceled.append(t) or t != 1, poll=lambda: [])
    worker.fetching = {t: (f"request {t}", time.monotonic() - 1) for t in (1, 2, 3)}
    sent, received, failed = worker.results(set())
    assert canceled == [1, 2, 3]
    # The first has begun to write pages: it is not dropped before it ends.
    assert received == failed == {"request 2", "request 3"} and not sent
    assert list(worker.fetching) == [1]
