"""Pushes layers on a thread of its own, while the next ones are computed."""

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

# Enough for pushes to go on beside layers that take unlike times. For some recipes each of those
# that wait keeps the queries of all tokens.
LAYERS_WAITING_MAX = 4

# How often who waits looks up for an interrupt. One that comes as a wait is about to begin does not
# end it: Python has seen none before, and the wait was not there yet to be ended.
HEEDED_S = 0.1


class Pusher:
    """Pushes layers in the order they come; the first error stops it.

    A context manager. Once its block has been left nobody is in the put any more, however often
    that was interrupted. Where the block ends well, all that was offered is pushed then; where it
    ends with an exception, what still waits is given up.
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
        # No queue.Queue and no threading.Event: they are written in Python, and an interrupt that
        # comes as they take their lock leaves it taken.
        self._offered: queue.SimpleQueue[tuple | None] = queue.SimpleQueue()
        self._room: queue.SimpleQueue[None] = queue.SimpleQueue()  # one for each that fits in
        self._ended: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._over = False  # set before something is in _ended
        self._given_up = False
        self._error: BaseException | None = None
        self._waits = _core.Waits()
        for _ in range(LAYERS_WAITING_MAX):
            self._room.put(None)

    def __enter__(self) -> Pusher:
        try:
            threading.Thread(target=self._run, name="precis-push", daemon=True).start()
        except BaseException:  # an interrupt, say: it may run already
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
        """Raises what went wrong, if nothing else did in the block, and what interrupts it."""
        give_up, interrupt = kind is not None, None
        while not self._over:
            try:
                if give_up:
                    self._given_up = True
                    self._waits.end()
                self._offered.put(self._END)  # more than one of them do no harm
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
        """Hands a layer over, once there is room; raises what went wrong with an earlier one."""
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
        """Drops what comes after an error or when given up, so that who offers waits no longer."""
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
