"""A budget for a whole conversation: old turns are trimmed as it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..budget import Keep, from_pair, to_pair
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

    def hold(self, cache: Cache, tip: Segment) -> bool:
        """Trims turns of the path that ends with `tip`. False if they take more than the total."""
        # All of the path is read each time: another path may have split one of its segments.
        turns = [cache.segment(tip.id)]
        while turns[0].parent is not None:
            turns.insert(0, cache.segment(turns[0].parent))
        full = sum(turn.original_bytes for turn in turns)
        value = self._budget.value
        limit = value if self._budget.kind == "bytes" else value * full
        excess = sum(turn.bytes for turn in turns) - limit
        for turn in turns[:-1]:
            if excess <= 0:
                break
            excess -= turn.bytes - self._trimmed(cache, turn, excess).bytes
        return excess <= 0

    def _trimmed(self, cache: Cache, turn: Segment, excess: float) -> Segment:
        """The turn after a trim that frees up to `excess` bytes."""
        stored = turn.trimmed or turn.keep
        tokens = turn.end - turn.begin
        share = stored.value if stored.kind == "ratio" else turn.kept / (turn.plan.size * tokens)
        wanted = max(self._LEAST, share * (1 - excess / turn.bytes))
        if turn.children > 1 or wanted >= share:
            return turn
        try:
            cache.trim(turn, keep=wanted)
            return cache.segment(turn.id)
        except (Conflict, NotFound):  # it stores less already, or was removed
            return turn
