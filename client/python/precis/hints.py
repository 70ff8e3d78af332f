"""Hints: what a user knows about the future of a segment."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from . import _core
from .arrays import count_in
from .errors import InvalidArgument

# Priority, TTL, and the time until the next use, as the extension module takes them.
Hints = tuple[int | None, int | None, int | None]


def hints_in(priority: Any, ttl_s: Any, expect_reuse_in_s: Any) -> Hints:
    """Checks hints; None leaves what the segment has. Fractions of a second are rounded up."""
    return (
        None if priority is None else count_in(priority, "priority", _core.PRIORITY_MAX),
        _seconds(ttl_s, "ttl_s"),
        _seconds(expect_reuse_in_s, "expect_reuse_in_s"),
    )


def prefill_in(prefill_s: Any) -> float:
    """Checks the seconds that a prefill took; None is 0: unknown."""
    if prefill_s is None:
        return 0.0
    _check_seconds(prefill_s, "prefill_s", _core.PREFILL_SECONDS_MAX)
    return float(prefill_s)


def _seconds(value: Any, field: str) -> int | None:
    if value is None:
        return None
    _check_seconds(value, field, _core.HINT_SECONDS_MAX)
    return math.ceil(value)


def _check_seconds(value: Any, field: str, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value <= most:
        raise InvalidArgument(f"{field}: {value!r}, must be a number of seconds in [0, {most}]")
