"""Pushes layers on a thread of its own while the next ones are computed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import _core

if TYPE_CHECKING:
    import torch

    from ..cache import Put
    from .needs import Needs
    from .scorers import Scorers

# Enough to keep pushes going although layers take different times. Not more, because for some
# recipes each waiting layer keeps the queries of all tokens.
LAYERS_WAITING_MAX = 4

# Waits end after this time, in seconds, so that Python can handle an interrupt. An interrupt that
# comes just before a wait does not end the wait: Python has checked for signals, and the wait has
# not started yet.
HEEDED_S = 0.1


class Pusher:
    """Pushes layers in the order in which they are offered, up to the first error.

    A context manager. After its block no thread uses the put any more, even if the exit was
    interrupted several times. If the block succeeds, its exit pushes all offered layers; if the
    block raises, the waiting layers are dropped.
    """

    _END = None

    def __init__(
        self,
        put: Put,
        needs: Needs,
        scorers: Scorers,
        lse: bool,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._put = put
        self._needs = needs
        self._scorers = scorers
        self._lse = lse
        self._progress = progress
        # Not queue.Queue or threading.Event: they are written in Python, and an interrupt while
        # they take their lock can leave the lock held.
        self._offered: queue.SimpleQueue[tuple | None] = queue.SimpleQueue()
        self._room: queue.SimpleQueue[None] = queue.SimpleQueue()  # one item per free place
        self._ended: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._over = False  # set before an item is in _ended
        self._given_up = False
        self._error: BaseException | None = None
        self._waits = _core.Waits()
        for _ in range(LAYERS_WAITING_MAX):
            self._room.put(None)

    def __enter__(self) -> Pusher:
        try:
            threading.Thread(target=self._run, name="precis-push", daemon=True).start()
        except BaseException:  # for example an interrupt; the thread may already be running
            self._given_up = True
            self._offered.put(self._END)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Raises an interrupt of this wait or, if the block raised nothing, the pusher's error."""
        give_up, interrupt = kind is not None, None
        while not self._over:
            try:
                if give_up:
                    self._given_up = True
                    self._waits.end()
                self._offered.put(self._END)  # several of them do no harm
                _take(self._ended)
            except BaseException as raised:
                give_up, interrupt = True, interrupt or raised
        if interrupt is not None:
            raise interrupt
        if kind is None:
            self._check()

    def offer(
        self,
        layer: int,
        keys: torch.Tensor,
        values: torch.Tensor,
        queries: torch.Tensor,
        lse: torch.Tensor | None = None,
    ) -> None:
        """Queues a layer once there is room; raises the error of an earlier layer."""
        held = self._needs.held(queries) if lse is None else queries
        _take(self._room)
        self._check()
        self._offered.put((layer, keys, values, held, lse))

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._waits.adopt()
            while (item := self._offered.get()) is not self._END:
                self._room.put(None)
                self._attempt(self._push, *item)
            self._attempt(self._put.wait)
        finally:
            self._over = True
            self._ended.put(None)

    def _attempt(self, step: Callable[..., None], *arguments: Any) -> None:
        """Runs a step, but none after an error or a give-up: the queue then only empties."""
        if self._error is not None or self._given_up:
            return
        try:
            step(*arguments)
        except BaseException as error:
            self._error = error

    def _push(
        self,
        layer: int,
        keys: torch.Tensor,
        values: torch.Tensor,
        queries: torch.Tensor | None,
        lse: torch.Tensor | None,
    ) -> None:
        pushed = self._scorers.layer(layer, keys, values, queries, lse, with_lse=self._lse)
        self._put.layer(layer, **pushed, wait=False)
        if self._progress is not None:
            self._progress(layer)


def _take(line: queue.SimpleQueue[None]) -> None:
    while True:
        try:
            return line.get(timeout=HEEDED_S)
        except queue.Empty:
            pass
