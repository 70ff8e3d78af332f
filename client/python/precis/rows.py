"""The service's replies as dataclasses."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from . import _core
from .budget import Budget, from_pair
from .errors import InvalidArgument
from .model import ModelSpec


@dataclass(frozen=True, eq=False)
class Segment:
    """The compressed KV of tokens [begin, end) of a path.

    Attributes:
        id, parent: in hex; parent is None at the root.
        begin, end: the tokens it holds.
        recipe: canonical JSON of how it was compressed; preset is the name it was written with.
        encoding: "raw", "int8", "int4", "k8v4" or "k6v4", the form in which K and V are stored.
        keep: the budget it was compressed to.
        trimmed: the budget that it was trimmed to since, or None.
        parent_read: the budget at which the parent was read while this KV was computed, or None.
        kept: number of entries, over all layers and heads.
        whole_entries, whole_begin, whole_end: only for a part of a split segment, else 0: the
            entries of the whole segment at this part's budget, and its tokens.
        bytes: size of all its records as stored.
        original_bytes: K and V of its tokens, uncompressed.
        compress_seconds: compute time, summed over the stages of all layers; layers overlap.
        prefill_seconds: how long its prefill took, as its put said; 0: unknown.
        last_used_unix_ms: when a lookup or get last found it; 0: never.
        priority, ttl_seconds, expected_unix_ms: what hints have set; expected_unix_ms is the time
            until which it counts as about to be used, 0: it does not.
        in_memory: every layer is in the RAM tier.
        out_of_service: it or one of its ancestors is damaged; it is not served.
        plan: entries per (layer, KV head), uint32 [num_layers, num_kv_heads]; None in listings.
    """

    id: str
    parent: str | None
    model: str
    adapter: str
    begin: int
    end: int
    recipe: str
    preset: str
    encoding: str
    keep: Budget
    trimmed: Budget | None
    parent_read: Budget | None
    kept: int
    whole_entries: int
    whole_begin: int
    whole_end: int
    bytes: int
    original_bytes: int
    compress_seconds: float
    prefill_seconds: float
    created_unix_ms: int
    hits: int
    last_used_unix_ms: int
    priority: int
    ttl_seconds: int
    expected_unix_ms: int
    children: int
    in_memory: bool
    out_of_service: bool
    plan: np.ndarray | None = field(repr=False)

    @classmethod
    def from_core(cls, info: Any) -> Segment:
        """Made from the extension module's struct."""
        return _row(
            cls,
            info,
            parent=info.parent or None,
            keep=from_pair(info.budget),
            trimmed=_budget(info.trimmed),
            parent_read=_budget(info.parent_read),
            kept=info.entries,
            bytes=info.stored_bytes,
        )


@dataclass(frozen=True)
class Trimmed:
    """A segment after a trim: its entries and bytes, and the bytes that the trim freed."""

    kept: int
    bytes: int
    freed_bytes: int
    kept_mass: tuple[float, ...]
    """Each layer's share of the stored score mass that is left."""

    @classmethod
    def from_core(cls, trimmed: Any) -> Trimmed:
        """Made from the extension module's struct."""
        mass = tuple(trimmed.kept_mass)
        return cls(trimmed.entries, trimmed.stored_bytes, trimmed.freed_bytes, mass)


@dataclass(frozen=True, eq=False)
class MatchLink:
    """One segment of a match, of which the entries before matched_end are read.

    Attributes:
        counts: how many entries of each (layer, KV head) are served, from its first on, uint32
            [num_layers, num_kv_heads]; None for a match that was looked up without `keep` and
            `align`.
    """

    segment: Segment
    matched_end: int
    counts: np.ndarray | None = field(repr=False)


@dataclass(frozen=True, eq=False)
class Match:
    """The longest stored prefix of a path. False if there is none.

    Attributes:
        matched_tokens: its length.
        bytes: the bytes that a get of all its entries transfers.
        predicted_seconds: how long that should take, from the measured rate of its tier.
        plan: stored entries per (layer, KV head), uint32 [num_layers, num_kv_heads]. For a match
            that was looked up with `keep` or `align`, `plan` and `bytes` are exactly what a get
            transfers.
        links: its segments, from the root on.
        tokens: the matched tokens, uint32 [matched_tokens]; empty if from_bytes() got none with it.
        keep, align: of the lookup; None and 1 by default.
        lease: seconds for which get() can read it even if its segments are removed, trimmed or
            replaced; 0: not granted.
    """

    matched_tokens: int
    bytes: int
    predicted_seconds: float
    plan: np.ndarray = field(repr=False)
    links: tuple[MatchLink, ...] = field(repr=False)
    core: Any = field(repr=False)
    tokens: np.ndarray = field(repr=False)
    keep: Budget | None
    align: int
    lease: float

    def __bool__(self) -> bool:
        return self.matched_tokens > 0

    def to_bytes(self) -> bytes:
        """The match as bytes, for another client of the same tenant, in any process on any host."""
        return self.core.to_bytes(self.tokens)

    @staticmethod
    def from_bytes(data: bytes | bytearray | memoryview) -> Match:
        """A match from the bytes that to_bytes() returned, here or elsewhere.

        Raises:
            InvalidArgument: the bytes are not a readable match; the message names the field.
            VersionMismatch: a newer version wrote it.
        """
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise InvalidArgument(f"data: {type(data).__name__}, must be bytes")
        core, tokens = _core.match_from_bytes(bytes(data))
        return Match.from_core(core, tokens[0])

    @classmethod
    def from_core(cls, match: Any, path: np.ndarray) -> Match:
        """Made from the extension module's struct, for the lookup of `path`."""
        plan, counted = match.plan, match.counted
        links = tuple(
            MatchLink(
                Segment.from_core(link.segment),
                link.matched_end,
                link.counts.reshape(plan.shape) if counted else None,
            )
            for link in match.links
        )
        return _row(
            cls,
            match,
            links=links,
            core=match,
            tokens=path[: match.matched_tokens].copy(),
            plan=plan,
            keep=_budget(match.keep),
        )


@dataclass(frozen=True)
class ModelRow:
    """A registered model, with the counts of its segments and of the layers with a projection.

    Attributes:
        bytes, original_bytes: of its segments: as stored, and of their uncompressed K and V.
        hits, hit_tokens: lookups since the service started that matched at least one token, and the
            tokens that they matched.
    """

    spec: ModelSpec
    fingerprint: str
    segments: int
    projections: int
    bytes: int
    original_bytes: int
    hits: int
    hit_tokens: int

    @classmethod
    def from_core(cls, row: Any) -> ModelRow:
        """Made from the extension module's struct."""
        return cls(
            ModelSpec.from_core(row.model),
            row.fingerprint,
            row.segments,
            row.projections,
            row.stored_bytes,
            row.original_bytes,
            row.hits,
            row.hit_tokens,
        )


@dataclass(frozen=True)
class ProfileRow:
    """A scorer, or budgets per head for one scorer, that were learnt for a model.

    Attributes:
        name: its name in recipes: global_kvprobe(profile=NAME).
        kind: "curves" (lukv), "weights" (headkv) or "probe" (kvprobe).
        model: fingerprint.
        scorer: canonical recipe of the scorer that it was built for.
        digest: SHA-256 of its content; part of the recipe of segments that were put with it.
        num_tokens, text_digest: of the contexts that it was fitted on.
        content: the whole profile, as add_profile takes it; None in listings.
    """

    name: str
    kind: str
    model: str
    scorer: str
    digest: str
    num_tokens: int
    text_digest: str
    added_unix_ms: int
    content: dict[str, Any] | None = field(repr=False)

    @classmethod
    def from_core(cls, row: Any) -> ProfileRow:
        """Made from the extension module's struct."""
        return _row(cls, row, content=json.loads(row.json) if row.json else None)


@dataclass(frozen=True)
class BudgetRow:
    """One scope's defaults for puts that name no recipe or no budget; None: not set."""

    scope: str
    recipe: str | None
    keep: Budget | None
    version: int
    set_unix_ms: int
    """The time of the last change; 0 for the configuration's defaults."""
    limit: Budget | None
    """The largest budget that a put gets."""
    session: str
    """The session's name, if the scope is one; else ""."""

    @classmethod
    def from_core(cls, row: Any) -> BudgetRow:
        """Made from the extension module's struct."""
        budgets = {"keep": _budget(row.keep), "limit": _budget(row.limit)}
        return _row(cls, row, recipe=row.recipe or None, **budgets)


@dataclass(frozen=True)
class NextPut:
    """What the next put would keep after a change, if it was like a stored segment.

    Attributes:
        segment: its id: the session's tip, or the newest of the model or tenant; "" for none.
        tokens: of that segment.
        bytes: of all records that the put would store.
        kept_mass: each layer's share of the segment's score mass that would be left.
        note: what cannot be computed from the segment; "" for nothing.
        keep: the put's budget, within the limit; None without such a segment.
    """

    segment: str
    tokens: int
    bytes: int
    kept_mass: tuple[float, ...]
    note: str
    keep: Budget | None

    @classmethod
    def from_core(cls, told: Any) -> NextPut:
        """Made from the extension module's struct."""
        given = {"bytes": told.stored_bytes, "kept_mass": tuple(told.kept_mass)}
        return _row(cls, told, keep=_budget(told.keep), **given)


@dataclass(frozen=True)
class Budgets:
    """The defaults in force, and the scopes they come from, widest first."""

    effective: BudgetRow
    layers: tuple[BudgetRow, ...]
    sessions: tuple[BudgetRow, ...]
    """What sessions set, by name, at most the first 100; only if neither model nor session is
    asked for."""
    application: int
    """The number of the application to stored segments that the change began; 0: none."""
    next_put: NextPut | None
    """Only after a dry run."""

    @classmethod
    def from_core(cls, budgets: Any) -> Budgets:
        """Made from the extension module's struct."""
        layers = tuple(BudgetRow.from_core(row) for row in budgets.layers)
        sessions = tuple(BudgetRow.from_core(row) for row in budgets.sessions)
        effective = BudgetRow.from_core(budgets.effective)
        told = budgets.next_put
        next_put = None if told is None else NextPut.from_core(told)
        return cls(effective, layers, sessions, budgets.application, next_put)


@dataclass(frozen=True)
class ServerStatus:
    """The service's status."""

    server: str
    tenant: str
    data_dir: str
    transport: str
    device: str
    rdma: str
    """The service's RDMA device in words, or "off"; `transport` says if this client uses RDMA."""
    uptime_seconds: float
    segments: int
    sessions: int
    models: int
    stored_bytes: int
    memory_bytes: int
    memory_limit_bytes: int
    segments_out_of_service: int
    """Damaged segments and their descendants."""
    disk_free_bytes: int
    disk_min_free_bytes: int
    """Puts that would leave less free space are refused."""
    disk_low: bool
    """Puts are refused because the disk is short of space."""
    disk_fault: str
    """The reason why changes fail until an operator acts; empty if they do not."""
    exposed: str
    """The reason why others on the network can read or change stored data; empty if they cannot."""
    doubtful_recovery: bool
    """Acknowledged changes are missing or may be, and no operator has accepted the loss."""
    lost_changes: int
    """How many changes are missing; 0 if that is unknown."""
    kept_bytes: int
    """Bytes of payload without a row, kept at the service's start for the missing changes."""
    kept_log_bytes: int
    """Bytes of kept logs from before the recovery."""
    max_disk_bytes: int
    """The limit of this tenant's stored records, or else of all tenants' together; 0: none."""
    pinned_bytes: int
    """Stored records of this tenant that pinned sessions need."""
    max_pinned_bytes: int
    """The limit of pinned_bytes; 0: none."""

    @classmethod
    def from_core(cls, status: Any) -> ServerStatus:
        """Made from the extension module's struct."""
        return _row(cls, status)


def _budget(pair: tuple[int, int] | None) -> Budget | None:
    return None if pair is None else from_pair(pair)


def _row(cls: type, source: Any, **given: Any) -> Any:
    """A `cls` with the given fields, and with the fields of the same name in `source`."""
    same = {f.name: getattr(source, f.name) for f in fields(cls) if f.name not in given}
    return cls(**given, **same)
