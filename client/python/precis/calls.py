"""Non-blocking calls, for a scheduler, whose thread must not wait for the service."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Literal

from . import _core
from .arguments import names_arguments
from .arrays import count_in, tokens_in
from .budget import Keep
from .cache import Cache, get_arguments, lookup_options
from .errors import Error
from .hints import hints_in
from .model import Model
from .pages import Pages
from .prefix import Prefix
from .put import Put
from .rows import Match
from .session import Session


@names_arguments
class Calls:
    """Runs a cache's calls on C++ threads of its own, which never hold the interpreter's lock.

    Each method returns a ticket at once; poll() returns the outcomes of the calls that are over::

        calls = precis.Calls(cache.with_deadline(1.0))
        ticket = calls.lookup(model, tokens)
        ...                                       # other work, or select.poll() on calls.fileno()
        for done, outcome in calls.poll():        # a Match, or the exception that lookup raises

    Calls start in order and end in any order; at most one call per thread runs at a time. If
    lookups must not wait for gets and commits, use a second Calls for them. Thread-safe.

    Args:
        threads: 1 to 16.

    Raises:
        Rejected: by each method, if 4096 calls were not taken by poll() yet, or their paths have
            more than 2^28 tokens together: poll() first.
    """

    def __init__(self, cache: Cache, threads: int = 2) -> None:
        self._core = _core.Calls(cache.core, count_in(threads, "threads"))
        # Runs at exit, too, before the objects that the threads use are destroyed.
        self._close = weakref.finalize(self, self._core.close)

    def lookup(
        self,
        model: Model,
        tokens: Any,
        keep: Keep | None = None,
        align: int = 1,
        lease: float = 0,
        *,
        priority: int | None = None,
        ttl_s: float | None = None,
        expect_reuse_in_s: float | None = None,
        traceparent: str | None = None,
        session: Session | str | None = None,
    ) -> int:
        """As Cache.lookup(); the outcome is its Match."""
        hints = hints_in(priority, ttl_s, expect_reuse_in_s)
        options = lookup_options(keep, align, lease, hints, traceparent, session)
        path = tokens_in(tokens)
        return self._core.lookup(model.core, path, *options, partial(_match, path))

    def lookup_many(
        self,
        model: Model,
        paths: Sequence[Any],
        keep: Keep | None = None,
        align: int = 1,
        lease: float = 0,
        *,
        priority: int | None = None,
        ttl_s: float | None = None,
        expect_reuse_in_s: float | None = None,
        traceparent: str | None = None,
        session: Session | str | None = None,
    ) -> list[int]:
        """Submits one lookup per path: all of them or, on an error, none."""
        arrays = [tokens_in(path) for path in paths]
        hints = hints_in(priority, ttl_s, expect_reuse_in_s)
        options = lookup_options(keep, align, lease, hints, traceparent, session)
        makers = [partial(_match, path) for path in arrays]
        return self._core.lookup_many(model.core, arrays, *options, makers)

    def get(
        self,
        match: Match,
        keep: Keep | None = None,
        *,
        heads: range | tuple[int, int] | None = None,
        out: Sequence[tuple[Any, Any]] | None = None,
        pages: tuple[Pages, Any, Any] | None = None,
        traceparent: str | None = None,
    ) -> int:
        """As Cache.get(), and waits for all layers; the outcome is the Prefix.

        Rows may be written to `out` and `pages` until there is an outcome.
        """
        arguments, make = get_arguments(match, keep, heads, out, pages, traceparent)
        return self._core.get(*arguments, make)

    def wait(self, prefix: Prefix) -> int:
        """As Prefix.wait(); the outcome is the prefix."""
        return self._core.wait(prefix.core, lambda _: prefix)

    def wait_layer(self, prefix: Prefix, layer: int) -> int:
        """As prefix.layers[layer]; the outcome is the Layer."""
        layer = count_in(layer, "layer")
        return self._core.wait_layer(prefix.core, layer, lambda _: prefix.layers[layer])

    def commit(
        self, put: Put, durability: Literal["memory", "wal", "fsync", "shared"] = "wal"
    ) -> int:
        """As Put.commit(); the outcome is the Segment.

        Leaving a ``with`` block of the put meanwhile does not abort it.
        """
        ticket = self._core.commit(put.core, durability, put._committed)
        put._done = True
        return ticket

    def poll(self) -> list[tuple[int, Any]]:
        """Returns and removes the outcomes of ended calls, as (ticket, result or exception).

        If it raises, for example because of Ctrl-C, the next poll() returns these outcomes.
        """
        return self._core.poll(_outcome)

    def fileno(self) -> int:
        """A descriptor that is readable while poll() has outcomes; use it only to wait."""
        return self._core.descriptor()

    def cancel(self, ticket: int) -> bool:
        """Drops a call.

        Returns:
            True: the call had not started, or had ended and was not taken; poll() does not return
            it. False: the call is running, and poll() returns its outcome (Canceled) once it no
            longer touches any memory; or there is no such call.
        """
        return self._core.cancel(count_in(ticket, "ticket", 2**64 - 1))

    def close(self) -> None:
        """Drops all calls, after waiting for the running calls to end."""
        self._close()

    def __enter__(self) -> Calls:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


# These functions turn results into outcomes. They are kept with their calls, and keep alive the
# objects that a call uses.


def _match(path: Any, core: Any) -> Match:
    return Match.from_core(core, path)


def _outcome(make: Callable[[Any], Any], result: Any) -> Any:
    try:
        return make(result)
    except Error as error:
        return error
