"""Budgets: how much a reader or a writer keeps."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Literal, TypeAlias

from . import _core
from .errors import InvalidArgument

Kind: TypeAlias = Literal["all", "ratio", "entries", "bytes", "quality", "byte_share"]
_KINDS: tuple[Kind, ...] = ("all", "ratio", "entries", "bytes", "quality", "byte_share")


@dataclass(frozen=True)
class Budget:
    """A budget in one of six units.

    Attributes:
        kind: "all" (everything stored), "ratio", "entries", "bytes", "quality" or
            "byte_share".
        value: a share in (0, 1], entries per head on average, or bytes of the whole segment; 0 for
            "all".
        cap: for "quality", the largest share of entries that may be kept.
    """

    kind: Kind
    value: float
    cap: float = 1.0

    def __str__(self) -> str:
        unit = {
            "all": "all",
            "ratio": f"{self.value:g}",
            "entries": f"{self.value} entries",
            "quality": f"quality {self.value:g} up to {self.cap:g}",
            "byte_share": f"{100 * self.value:g}% bytes",
        }
        return unit.get(self.kind, f"{self.value} B")


# The values of `keep=`: a share in (0, 1], a Budget, or a text as precisctl takes it: "0.3", "128
# entries", "64 MiB", "10% bytes", "quality 0.95 up to 0.5".
Keep: TypeAlias = float | Budget | str


def ratio(share: float) -> Budget:
    """A share of all entries, in (0, 1]; a bare number means the same."""
    return from_pair(to_pair(Budget("ratio", share)))


def entries(per_head: int) -> Budget:
    """`per_head` entries per head, on average over layers and heads."""
    return Budget("entries", _count("entries", per_head))


def bytes_(total: int) -> Budget:
    """`total` bytes of the whole segment."""
    return Budget("bytes", _count("bytes", total))


def quality(share: float, cap: float = 1.0) -> Budget:
    """The smallest budget whose entries hold `share` of a prompt's score mass, for puts.

    The mass of an entry is its score minus the lowest score of its head; scores of a probe count as
    at most 1. At most the share `cap` of all entries is kept. Both are in (0, 1]. The mass does not
    bound what answers lose: ``precis eval --loss`` finds a budget for that.
    """
    return from_pair(to_pair(Budget("quality", share, cap)))


def byte_share(share: float) -> Budget:
    """A share of the bytes that the full K and V take, in (0, 1].

    At such a share, the default recipe stores K in 6 bits and V in 4. For as many entries, a recipe
    of your own needs ``encoding=k6v4``.
    """
    return from_pair(to_pair(Budget("byte_share", share)))


ALL = Budget("all", 0)


def _number(field: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidArgument(f"{field} is {value!r}, must be a number in (0, 1]")
    return float(value)


def _count(field: str, value: float) -> int:
    whole = value.is_integer() if isinstance(value, float) else hasattr(value, "__index__")
    if isinstance(value, bool) or not whole or not 0 < value < 1 << 64:
        raise InvalidArgument(f"{field} is {value!r}, must be a positive integer")
    return int(value)


def to_pair(keep: Keep | None, field: str = "keep") -> tuple[int, int] | None:
    """The budget in the form that the extension module takes."""
    if keep is None:
        return None
    if isinstance(keep, str):
        return _core.parse_keep(keep, field)
    if isinstance(keep, Budget):
        if keep.kind == "ratio":
            return _core.ratio_budget(_number(f"{field}: ratio", keep.value))
        if keep.kind == "quality":
            share = _number(f"{field}: quality", keep.value)
            return _core.quality_budget(share, _number(f"{field}: cap", keep.cap))
        if keep.kind == "byte_share":
            return _core.byte_share_budget(_number(f"{field}: share of bytes", keep.value))
        if keep.kind not in _KINDS:
            raise InvalidArgument(
                f"{field}: kind {keep.kind!r} is unknown, choose {', '.join(_KINDS)}"
            )
        value = 0 if keep.kind == "all" else _count(f"{field}: {keep.kind}", keep.value)
        return _KINDS.index(keep.kind), value
    if isinstance(keep, bool) or not isinstance(keep, Real):
        raise InvalidArgument(
            f"{field}: {keep!r} is not a share in (0, 1], precis.entries(n), precis.bytes_(n), "
            "precis.byte_share(share), precis.quality(share), or text such as '128 entries'"
        )
    return _core.ratio_budget(float(keep))


def from_pair(pair: tuple[int, int]) -> Budget:
    """The budget that the extension module returned."""
    kind, value = _KINDS[pair[0]], pair[1]
    if kind == "quality":
        return Budget(kind, (value & 0xFFFFFFFF) / 1_000_000, (value >> 32) / 1_000_000)
    return Budget(kind, value / 1_000_000 if kind in ("ratio", "byte_share") else value)
