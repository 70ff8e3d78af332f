"""Budgets: how much a reader or a writer keeps."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Literal, TypeAlias

from . import _core
from .errors import InvalidArgument

Kind: TypeAlias = Literal["all", "ratio", "entries", "bytes", "score_mass", "byte_share", "loss"]
_KINDS: tuple[Kind, ...] = ("all", "ratio", "entries", "bytes", "score_mass", "byte_share", "loss")


@dataclass(frozen=True)
class Budget:
    """A budget in one of six units.

    Attributes:
        kind: "all" (everything stored), "ratio", "entries", "bytes", "byte_share" or "loss".
        value: a share in (0, 1], entries per head on average, bytes of the whole segment, or a
            loss; 0 for "all".
    """

    kind: Kind
    value: float

    def __str__(self) -> str:
        unit = {
            "all": "all",
            "ratio": f"{self.value:g}",
            "entries": f"{self.value} entries",
            "byte_share": f"{100 * self.value:g}% bytes",
            "loss": f"loss {self.value:g}",
        }
        return unit.get(self.kind, f"{self.value} B")


# The values of `keep=`: a share in (0, 1], a Budget, or a text as precisctl takes it: "0.3", "128
# entries", "64 MiB", "10% bytes", "loss 0.05".
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


def loss(most: float) -> Budget:
    """The smallest budget that costs answers at most `most`, for puts.

    The loss is what compression adds to the mean negative log-likelihood of an answer's tokens. It
    was measured for the recipe's profile, by ``precis profile measure``; a put whose recipe has no
    such profile fails. If no measured budget costs so little, all entries are kept.
    """
    return from_pair(to_pair(Budget("loss", most)))


def byte_share(share: float) -> Budget:
    """A share of the bytes that the full K and V take, in (0, 1].

    At such a share, the default recipe stores K in 6 bits and V in 4. For as many entries, a recipe
    of your own needs ``encoding=k6v4``.
    """
    return from_pair(to_pair(Budget("byte_share", share)))


ALL = Budget("all", 0)


def _number(field: str, value: float, range_: str = "(0, 1]") -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidArgument(f"{field} is {value!r}, must be a number in {range_}")
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
        if keep.kind == "loss":
            return _core.loss_budget(_number(f"{field}: loss", keep.value, "(0, 100]"))
        if keep.kind == "byte_share":
            return _core.byte_share_budget(_number(f"{field}: share of bytes", keep.value))
        if keep.kind not in _KINDS:
            raise InvalidArgument(
                f"{field}: kind {keep.kind!r} is unknown, choose "
                + ", ".join(kind for kind in _KINDS if kind != "score_mass")
            )
        value = 0 if keep.kind == "all" else _count(f"{field}: {keep.kind}", keep.value)
        return _KINDS.index(keep.kind), value
    if isinstance(keep, bool) or not isinstance(keep, Real):
        raise InvalidArgument(
            f"{field}: {keep!r} is not a share in (0, 1], precis.entries(n), precis.bytes_(n), "
            "precis.byte_share(share), precis.loss(most), or text such as '128 entries'"
        )
    return _core.ratio_budget(float(keep))


def from_pair(pair: tuple[int, int]) -> Budget:
    """The budget that the extension module returned."""
    kind, value = _KINDS[pair[0]], pair[1]
    if kind == "score_mass":  # of earlier builds; it counts as its cap
        kind, value = "ratio", value >> 32
    return Budget(kind, value / 1_000_000 if kind in ("ratio", "byte_share", "loss") else value)
