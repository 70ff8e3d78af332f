"""Sessions: named tips that advance turn by turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _core
from .arguments import names_arguments
from .budget import Budget, from_pair
from .rows import Segment

if TYPE_CHECKING:
    from .cache import Cache


@names_arguments
class Session:
    """A named, mutable pointer to the tip of a prefix. Made by Cache.session.

    Its properties are from the service's last reply; every call updates them.
    """

    def __init__(self, cache: Cache, row: Any) -> None:
        self._cache = cache
        self._row = row

    def __repr__(self) -> str:
        return f"Session({self.name!r}, tip={self.tip}, turns={self.turns})"

    @property
    def name(self) -> str:
        """Unique within the tenant."""
        return self._row.name

    @property
    def tip(self) -> str | None:
        """The id of the last turn's segment; None before the first turn or if it was removed."""
        return self._row.tip or None

    @property
    def tip_end(self) -> int:
        """Tokens of the whole conversation so far."""
        return self._row.tip_end

    @property
    def turns(self) -> int:
        """How often the tip changed."""
        return self._row.turns

    @property
    def ttl(self) -> int | None:
        """Seconds it lives after its last use; None for ever."""
        return self._row.ttl_seconds or None

    @property
    def total(self) -> Budget | None:
        """The most that all its segments may take together; None: no limit."""
        return None if self._row.total is None else from_pair(self._row.total)

    @property
    def expires_unix_ms(self) -> int | None:
        """The time when it expires unless it is used; None for never."""
        return self._row.expires_unix_ms or None

    @property
    def updated_unix_ms(self) -> int:
        """The time of its last change; with a ttl, each use counts as one."""
        return self._row.updated_unix_ms

    @property
    def shard(self) -> int | None:
        """The shard of its name, if it is in a cluster."""
        return self._row.shard

    @property
    def pinned(self) -> bool:
        """Whether its prefix is protected from removal."""
        return self._row.pinned

    def refresh(self) -> Session:
        """Asks the service again; another client may have advanced it."""
        self._row = _core.session(self._cache.core, self.name)
        return self

    def advance(self, segment: Segment | str) -> Session:
        """Moves the tip to `segment`, which must be a descendant of the present tip.

        Raises:
            OutOfSpace: the session is pinned, and pinned sessions would hold more than the service
                allows. The segment stays stored, without protection: unpin the session, or others.
        """
        tip = segment.id if isinstance(segment, Segment) else segment
        self._row = _core.advance_session(self._cache.core, self.name, tip)
        return self

    def pin(self, pinned: bool = True) -> Session:
        """Protects the prefix from removal while the session lives; False ends the protection.

        Raises:
            OutOfSpace: pinned sessions would hold more than the service allows (max_pinned_share).
        """
        self._row = _core.pin_session(self._cache.core, self.name, pinned)
        return self

    def unpin(self) -> Session:
        """Undoes pin."""
        return self.pin(False)

    def fork(self, name: str) -> Session:
        """A new session at the same tip; the two then advance independently."""
        return Session(self._cache, _core.fork_session(self._cache.core, self.name, name))

    def remove(self) -> None:
        """Removes the session; its segments stay."""
        _core.remove_session(self._cache.core, self.name)
