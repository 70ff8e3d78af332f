"""A budget for a whole conversation: old turns are trimmed as it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..budget import Keep, from_pair, to_pair
from ..errors import Conflict, InvalidArgument, NotFound

if TYPE_CHECKING:
    from ..cache import Cache, Segment


_TRIES = 3


class TotalBudget:
    """Keeps the stored turns of a conversation within a share of their full KV, or within bytes.

    Old turns are trimmed along their stored scores, the oldest first, down to a common level: a
    little less than the share of its entries that every turn may keep. So a turn is trimmed about
    once, when it gets old. The level falls by a fifth while that frees too little, down to
    `_LEAST`. The first turn is not trimmed below its recipe's `min_entries`. The newest turn and
    segments that other paths continue are left as they are. So a total that is very small can't be
    held.
    """

    _LEVEL, _STEP, _LEAST = 0.95, 0.8, 0.05

    def __init__(self, total: Keep) -> None:
        budget = from_pair(to_pair(total, "total"))
        if budget.kind not in ("ratio", "bytes"):
            raise InvalidArgument(
                f"total is {budget}, must be a share in (0, 1] or bytes, such as '64 MiB'"
            )
        self._budget = budget

    def hold(self, cache: Cache, tip: Segment) -> bool:
        """Trims turns of the path that ends with `tip`. False if they take more than the total."""
        for _ in range(_TRIES):
            # All of the path is read each time: another path may have split one of its segments.
            turns = _path(cache, tip)
            ids = [turn.id for turn in turns]
            if self._trim(cache, turns):
                return True
            if ids == [turn.id for turn in _path(cache, tip)]:
                return False
            # The service has consolidated turns meanwhile.
        return False

    def _trim(self, cache: Cache, turns: list[Segment]) -> bool:
        full = sum(turn.original_bytes for turn in turns)
        value = self._budget.value
        limit = value if self._budget.kind == "bytes" else value * full
        excess = sum(turn.bytes for turn in turns) - limit
        level = self._LEVEL * limit / full
        while excess > 0:
            level = max(level, self._LEAST)
            for number, turn in enumerate(turns[:-1]):
                if excess <= 0:
                    break
                turns[number] = _trimmed(cache, turn, level)
                excess -= turn.bytes - turns[number].bytes
            if level == self._LEAST:
                break
            level *= self._STEP
        return excess <= 0


def _path(cache: Cache, tip: Segment) -> list[Segment]:
    turns = [cache.segment(tip.id)]
    while turns[0].parent is not None:
        turns.insert(0, cache.segment(turns[0].parent))
    return turns


def _trimmed(cache: Cache, turn: Segment, level: float) -> Segment:
    """The turn with at most `level` of its entries, if it can be trimmed."""
    share = turn.kept / (turn.plan.size * (turn.end - turn.begin))
    if turn.children > 1 or level >= share:
        return turn
    try:
        cache.trim(turn, keep=level)
        return cache.segment(turn.id)
    except (Conflict, NotFound):  # it stores less, was removed, or is a part of another one now
        return turn
