"""The worker's half: prefixes of its heads, and the order of steps and transfers on a device.

A stand-in replaces the device's events; no device is needed.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import batches
import numpy as np
import pytest
import torch
from precis_vllm import worker
from precis_vllm.scheduler import Save, Step
from precis_vllm.worker import Pages, Worker

import precis


class Event:
    """An event of a device that does not exist."""

    def __init__(self) -> None:
        self.reached = threading.Event()

    def query(self) -> bool:
        return self.reached.is_set()

    def synchronize(self) -> None:
        assert self.reached.wait(30)


@pytest.fixture
def event(monkeypatch: pytest.MonkeyPatch) -> Event:
    event = Event()
    monkeypatch.setattr(worker, "mark", lambda device: event)
    return event


def make(heads: range) -> Worker:
    service: Any = SimpleNamespace(cache=None, failed=lambda why: None)
    settings: Any = SimpleNamespace(load_timeout=30)
    made = Worker(settings, service, heads, 1, True)
    caches = batches.caches(len(heads), 32, torch.float32)
    made.pages = Pages(caches, lambda pages: pages.split(32, -1))
    return made


@pytest.fixture
def made() -> Worker:
    return make(range(2))


@pytest.mark.parametrize("heads", [range(0, 2), range(2, 4), range(1, 2)])
def test_a_rank_has_the_prefixes_of_its_heads(heads: range) -> None:
    draw = np.random.default_rng(heads.start)
    pages = {
        1: draw.integers(0, 4, (batches.LAYERS, 4)),
        2: draw.integers(0, 3, (batches.LAYERS, 4)),
    }
    worker = make(heads)
    assert worker.prefixes() is None  # no step at all
    worker.bind(Step(layouts={1: (96, pages[1], [7, 8, 9, 10]), 2: (64, pages[2], [20, 21, 22])}))
    assert worker.prefixes() is None  # no request of the step has one
    worker.bind(Step(rows={20: 2, 7: 1}))
    both = worker.prefixes()
    assert both is not None and both.first.tolist() == [20, 7] and both.skip.tolist() == [2, 3, 0]
    for place, number in ((0, 2), (1, 1)):
        mine = pages[number][:, heads.start : heads.stop]
        assert both.pages[:, place].tolist() == mine.tolist()
        layout = worker.layouts[number]
        for layer, head in np.ndindex(mine.shape):
            index = layer * len(heads) + head
            want = layout.table[layout.starts[index] : layout.starts[index + 1]].astype(int)
            base = layer * batches.BLOCKS * len(heads)
            assert both.tables[layer, place, head, : len(want)].tolist() == (want - base).tolist()
    worker.bind(Step(rows={20: 2, 7: 1}))
    assert worker.prefixes() is both  # nothing is copied to the device again
    worker.bind(Step(rows={7: 1}, dropped=[2]))
    one = worker.prefixes()
    assert one is not None and one.first.tolist() == [7]


def test_a_fetch_begins_once_earlier_steps_are_done_with_its_pages(
    monkeypatch: pytest.MonkeyPatch, event: Event, made: Worker
) -> None:
    begun: list[Any] = []

    def get(match: Any, traceparent: str, **more: Any) -> int:
        begun.append((match, traceparent))
        return 7

    calls = SimpleNamespace(get=get, poll=lambda: [])
    made.calls = calls  # type: ignore[assignment]
    monkeypatch.setattr(precis.Match, "from_bytes", lambda data: data)
    pages = np.ones((batches.LAYERS, 2), np.uint32)
    made.bind(Step(layouts={1: (32, pages, [5])}, fetches={"request": (1, b"match", "trace")}))
    made.fetch(None)
    made.bind(Step(dropped=[1]))  # the layout is still known
    assert made.results(set()) == (set(), set(), set()) and not begun
    event.reached.set()
    made.results(set())
    assert begun == [(b"match", "trace")] and list(made.fetching) == [7]


def test_a_push_reads_once_its_step_is_done(
    monkeypatch: pytest.MonkeyPatch, event: Event, made: Worker
) -> None:
    begun: list[bool] = []
    monkeypatch.setattr(made, "_push", lambda push: begun.append(event.query()))
    made.bind(Step(saves=[piece(64)]))
    made.save()
    (push,) = made.pushes["request"]
    assert not push.over.wait(0) and not begun
    event.reached.set()
    assert push.over.wait(30) and begun == [True]


def piece(tokens: int) -> Save:
    """A push of the first tokens of a request."""
    blocks = list(range(tokens // 32))
    return Save(
        "request", np.ones(tokens, np.int32), blocks, 0, 1, None, b"", "", False, "", {}, None
    )  # fmt: skip


def test_a_request_keeps_its_blocks_until_its_last_push_is_over(
    monkeypatch: pytest.MonkeyPatch, event: Event, made: Worker
) -> None:
    made.calls = SimpleNamespace(poll=lambda: [])  # type: ignore[assignment]
    done = {64: threading.Event(), 128: threading.Event()}
    monkeypatch.setattr(made, "_push", lambda push: done[len(push.save.tokens)].wait(30))
    event.reached.set()
    for tokens in done:
        made.bind(Step(saves=[piece(tokens)]))
        made.save()
    first, second = made.pushes["request"]
    done[64].set()
    assert first.over.wait(30)
    assert made.results({"request"})[0] == set()
    done[128].set()
    assert second.over.wait(30)
    assert made.results(set())[0] == {"request"} and not made.pushes


def test_all_pushes_of_a_request_that_loses_its_blocks_are_canceled(
    monkeypatch: pytest.MonkeyPatch, event: Event, made: Worker
) -> None:
    made.bind(Step(saves=[piece(64), piece(128)]))
    pushes = made.pushes["request"]
    made.cancel(Step(canceled={"request"}))
    assert [push.canceled for push in pushes] == [True, True] and not made.pushes


class Put:
    """A put of tokens [begin, end), in 3 layers."""

    already_stored = False

    def __init__(self, begin: int, end: int = 128) -> None:
        self.begin, self.end = begin, end
        self.layers: list[int] = []
        self.committed = False
        self.then = lambda: None

    def __enter__(self) -> Put:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def layer_from_pages(self, layer: int, *rows: Any, **more: Any) -> None:
        self.layers.append(layer)
        self.then()

    def commit(self) -> Any:
        self.committed = True
        return SimpleNamespace(bytes=1, end=self.end)


class Service:
    """A service that gives these puts, and notes the parents that were named."""

    def __init__(self, *puts: Put) -> None:
        self.puts, self.parents, self.is_up = list(puts), [], True
        self.has_joined = False  # segments that pushes name are part of others now
        self.cache = SimpleNamespace(begin_put=self._begin)

    def _begin(self, *path: Any, parent: Any, **how: Any) -> Put:
        self.parents.append(parent)
        if self.has_joined and parent != "auto":
            raise precis.NotFound("it was consolidated")
        return self.puts.pop(0)

    def up(self) -> bool:
        return self.is_up

    def answered(self) -> None:
        pass

    def model(self, adapter: str) -> None:
        pass


def serve(made: Worker, *puts: Put) -> Service:
    made.service = Service(*puts)  # type: ignore[assignment]
    made.settings = SimpleNamespace(recipe="", store_keep=None)  # type: ignore[assignment]
    return made.service  # type: ignore[return-value]


def pushed(made: Worker, put: Put, push: worker.Push) -> Put:
    """What is left of a put after the push."""
    serve(made, put)
    made._push(push)
    return put


def test_a_push_that_is_canceled_is_not_committed(made: Worker) -> None:
    put = pushed(made, Put(0), worker.Push(piece(128)))
    assert put.committed and put.layers == list(range(batches.LAYERS))
    put, push = Put(0), worker.Push(piece(128))
    put.then = lambda: setattr(push, "canceled", True)
    assert pushed(made, put, push).layers == [0] and not put.committed
    assert pushed(made, again := Put(0), push).layers == [] and not again.committed


def test_a_push_that_would_begin_before_its_segment_stores_nothing(made: Worker) -> None:
    save = piece(128)
    save.begin = 64  # the segment that ends here was not stored
    for begin in (64, 96):
        assert pushed(made, Put(begin), worker.Push(save)).committed
    with pytest.raises(precis.NotFound, match="no stored segment ends at token 64 or later"):
        pushed(made, put := Put(0), worker.Push(save))
    assert not put.committed and not put.layers
    put = Put(0)
    put.already_stored = True
    assert pushed(made, put, worker.Push(save)).committed and not put.layers


def test_a_push_continues_the_segment_of_the_one_before(made: Worker) -> None:
    service = serve(made, Put(0, 64), Put(64, 128))
    made.bind(Step(saves=[piece(64), piece(128), piece(128)]))
    first, second, third = made.pushes["request"]
    third.save.ends_turn = True
    ended = []
    made._push(first)
    made._push(second)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "advance", lambda cache, name, segment: ended.append(segment.end))
        made._push(third)  # all of the turn was pushed before
    assert service.parents[0] == "auto" and service.parents[1].end == 64
    assert not service.puts and ended == [128]


def test_after_a_push_that_failed_no_later_one_of_the_request_is_tried(made: Worker) -> None:
    class Lost(Put):
        def commit(self) -> Any:
            raise precis.Unavailable("lost")

    service = serve(made, Lost(0, 64))
    service.failed = lambda why: None  # type: ignore[attr-defined]
    made.bind(Step(saves=[piece(64), piece(128)]))
    pushes = made.pushes["request"]
    for push in pushes:
        made.queue.put(push)
    assert all(push.over.wait(30) for push in pushes)
    assert len(service.parents) == 1 and made.counts.take().data["store_failures"] == 1
    service.is_up = False
    made.bind(Step(saves=[other := piece(64)]))
    other.request = "other"
    with pytest.raises(precis.Unavailable):
        made._push(worker.Push(other))
    assert len(service.parents) == 1, "a service that is not up is not asked"


def test_a_push_whose_segment_before_was_joined_with_others_goes_on(made: Worker) -> None:
    service = serve(made, Put(0, 64), Put(64, 256), Put(128, 192))
    made.bind(Step(saves=[piece(64), piece(128), piece(192)]))
    first, second, third = made.pushes["request"]
    made._push(first)
    service.has_joined = True
    made._push(second)  # its own tokens are part of a longer segment, which is not its end
    assert [parent if parent == "auto" else parent.end for parent in service.parents[1:]] == [
        64,
        "auto",
    ]
    assert second.chain.segment is None
    made._push(third)
    assert service.parents[-1] == "auto" and not service.puts


def test_a_rank_leaves_a_put_of_several_so_that_the_others_do_not_wait(made: Worker) -> None:
    push = worker.Push(piece(128), canceled=True)
    service = serve(made, Put(0))
    made._push(push)
    assert not service.parents
    made.writers = 2
    broken = worker.Push(piece(128), worker.Chain(broken=True))
    for one in (push, broken):
        assert not pushed(made, put := Put(0), one).committed and not put.layers
        assert len(made.service.parents) == 1  # type: ignore[attr-defined]
    service = serve(made, put := Put(0))
    service.is_up = False  # the others may think otherwise
    made._push(worker.Push(piece(128)))
    assert put.committed


def test_work_of_the_cpu_is_done_at_once() -> None:
    assert worker.mark(torch.device("cpu")) is None
