"""Tenants of a service, which a tenant with the role admin manages while the service runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from . import _core
from .arguments import names_arguments
from .arrays import count_in

if TYPE_CHECKING:
    from .cache import Cache

_U32 = 2**32 - 2  # a field's largest value means that it is not set
_U64 = 2**64 - 2

Role = Literal["reader", "writer", "admin"]


@dataclass(frozen=True)
class TenantRow:
    """A tenant, its limits, and what it uses. A limit of 0 is none of its own.

    Attributes:
        configured: it is in the configuration, and can only be changed there.
        tokens: how many are valid; 0: it needs none.
        token_unix_ms: when the newest was made; 0: it is the configuration's.
        added_unix_ms: when it was added; 0: it is in the configuration.
        stored_bytes, original_bytes: of its segments: as stored, and of their uncompressed K and V.
        puts, memory_bytes: puts in progress; the memory that they may use and that its layers take.
        hits, hit_tokens: lookups since the service started that matched at least one token, and the
            tokens that they matched.
    """

    name: str
    role: str
    weight: int
    configured: bool
    max_disk_bytes: int
    max_memory_bytes: int
    max_puts: int
    max_requests_per_s: int
    tokens: int
    token_unix_ms: int
    added_unix_ms: int
    models: int
    segments: int
    sessions: int
    stored_bytes: int
    original_bytes: int
    connections: int
    puts: int
    memory_bytes: int
    hits: int
    hit_tokens: int

    @classmethod
    def from_core(cls, row: Any) -> TenantRow:
        """Made from the extension module's struct."""
        return cls(**{name: getattr(row, name) for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class IssuedToken:
    """A tenant and its new token, which no later call shows; "" if none was made."""

    tenant: TenantRow
    token: str

    def __repr__(self) -> str:
        return f"IssuedToken(tenant={self.tenant.name!r}, token={'...' if self.token else ''!r})"

    @classmethod
    def from_core(cls, issued: Any) -> IssuedToken:
        """Made from the extension module's struct."""
        return cls(TenantRow.from_core(issued.tenant), issued.token)


@names_arguments
class Tenants:
    """The tenants of a service: Cache.tenants.

    Iterate over it for all of them; ``tenants["red"]`` is one.

    Raises:
        PermissionDenied: every call, unless the caller's tenant has the role admin.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def __iter__(self) -> Iterator[TenantRow]:
        return iter([TenantRow.from_core(row) for row in _core.tenants(self._cache.core)])

    def __getitem__(self, name: str) -> TenantRow:
        return TenantRow.from_core(_core.tenant(self._cache.core, name))

    def add(
        self,
        name: str,
        *,
        role: Role = "writer",
        weight: int = 1,
        salt: str = "",
        max_disk_bytes: int = 0,
        max_memory_bytes: int = 0,
        max_puts: int = 0,
        max_requests_per_s: int = 0,
    ) -> IssuedToken:
        """Adds a tenant, which is stored with the data, and makes its first token.

        Args:
            weight: its share of the service's time beside other tenants.
            salt: of the digests of its paths. A tenant of the same name and salt finds what was
                stored; with another salt it does not.
            max_disk_bytes, max_memory_bytes, max_puts, max_requests_per_s: limits; 0: none.

        Raises:
            Conflict: a tenant of that name is stored or configured.
        """
        return IssuedToken.from_core(
            _core.add_tenant(
                self._cache.core,
                name,
                role,
                count_in(weight, "weight", _U32),
                salt,
                count_in(max_disk_bytes, "max_disk_bytes", _U64),
                count_in(max_memory_bytes, "max_memory_bytes", _U64),
                count_in(max_puts, "max_puts", _U32),
                count_in(max_requests_per_s, "max_requests_per_s", _U32),
            )
        )

    def change(
        self,
        name: str,
        *,
        role: Role | None = None,
        weight: int | None = None,
        max_disk_bytes: int | None = None,
        max_memory_bytes: int | None = None,
        max_puts: int | None = None,
        max_requests_per_s: int | None = None,
        below_use: bool = False,
    ) -> TenantRow:
        """Changes what is given, for a tenant that is stored with the data.

        Another role closes the tenant's connections.

        Args:
            below_use: also accept a `max_disk_bytes` below what the tenant stores. The service then
                trims and removes segments of the tenant.

        Raises:
            Conflict: the tenant stores more than `max_disk_bytes`, and `below_use` is not given.
        """
        given = (
            _given(weight, "weight", _U32),
            _given(max_disk_bytes, "max_disk_bytes", _U64),
            _given(max_memory_bytes, "max_memory_bytes", _U64),
            _given(max_puts, "max_puts", _U32),
            _given(max_requests_per_s, "max_requests_per_s", _U32),
        )
        return TenantRow.from_core(
            _core.change_tenant(self._cache.core, name, role or "", *given, below_use)
        )

    def rotate_token(self, name: str, *, drop_old: bool = False) -> IssuedToken:
        """Makes a token. The newest one before it stays valid, and an older one ends.

        Args:
            drop_old: makes no token: all but the newest end, with the connections that use them.
        """
        return IssuedToken.from_core(_core.rotate_token(self._cache.core, name, drop_old))

    def remove(self, name: str, *, purge: bool = False) -> int:
        """Removes a tenant. Returns how many segments it removed.

        Args:
            purge: also remove its sessions, segments, models and budgets.

        Raises:
            Conflict: the tenant has segments, and `purge` is not given.
        """
        segments, _ = _core.remove_tenant(self._cache.core, name, purge)
        return segments


def _given(value: int | None, name: str, maximum: int) -> int | None:
    return None if value is None else count_in(value, name, maximum)
