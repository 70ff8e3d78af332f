"""A budget for a whole conversation: old turns are trimmed as it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..budget import Keep, entries, from_pair, to_pair
from ..errors import Conflict, InvalidArgument, NotFound

if TYPE_CHECKING:
    from ..cache import Cache, Segment


class TotalBudget:
    """Keeps the stored turns of a conversation within a share of their full KV, or within bytes.

    The oldest turns are trimmed first, along their stored scores, each to no less than `_LEAST` of
    its entries and not below its recipe's `min_entries`. The newest turn and segments that other
    paths continue are left as they are. So a total that is very small can't be held.
    """

    _LEAST = 0.05

    def __init__(self, total: Keep) -> None:
        budget = from_pair(to_pair(total, "total"))
        if budget.kind not in ("ratio", "bytes"):
            raise InvalidArgument(
                f"total is {budget}, must be a share in (0, 1] or bytes, such as '64 MiB'"
            )
        self._budget = budget
        self._turns: list[Segment] = []  # from the root on

    def hold(self, cache: Cache, tip: Segment) -> bool:
        """Trims turns of the path that ends with `tip`. False if they take more than the total."""
        self._follow(cache, tip)
        full = sum(turn.original_bytes for turn in self._turns)
        value = self._budget.value
        limit = value if self._budget.kind == "bytes" else value * full
        excess = sum(turn.bytes for turn in self._turns) - limit
        for index, turn in enumerate(self._turns[:-1]):
            if excess <= 0:
                break
            fewer = self._trimmed(cache, turn, excess)
            excess -= turn.bytes - fewer.bytes
            self._turns[index] = fewer
        return excess <= 0

    def _follow(self, cache: Cache, tip: Segment) -> None:
        """Adds the turns that are new, or all of another path."""
        new = [tip]
        known = {turn.id: index for index, turn in enumerate(self._turns)}
        while new[-1].parent is not None and new[-1].parent not in known:
            new.append(cache.segment(new[-1].parent))
        begin = 0 if new[-1].parent is None else known[new[-1].parent] + 1
        self._turns[begin:] = reversed(new)

    def _trimmed(self, cache: Cache, turn: Segment, excess: float) -> Segment:
        """The turn after a trim that frees up to `excess` bytes."""
        try:
            now = cache.segment(turn.id)
            if now.children > 1 or now.plan is None:
                return now
            heads = now.plan.size
            tokens = now.end - now.begin
            wanted = now.kept * max(0.0, 1 - excess / now.bytes) / heads
            per_head = max(1, int(self._LEAST * tokens), int(wanted))
            if per_head * heads < now.kept:
                cache.trim(now, keep=entries(per_head))
                return cache.segment(turn.id)
        except (Conflict, NotFound):  # it stores less already, or was removed
            return turn
        return now
