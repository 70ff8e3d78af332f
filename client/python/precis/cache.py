"""The cache: embedded in this process, or a client of a running precisd, with one API."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal

import numpy as np

from . import _core, files
from .arguments import names_arguments
from .arrays import count_in, exported, rows_in_place, tokens_in
from .budget import ALL, Keep, from_pair, to_pair
from .errors import InvalidArgument, Unavailable
from .hints import Hints, hints_in, prefill_in
from .model import Model, ModelSpec, profile_for
from .pages import Pages, sink_of
from .prefix import Prefix
from .projections import Projections, projections_in
from .put import Put
from .rows import Budgets, Match, ModelRow, ProfileRow, Segment, ServerStatus, Trimmed
from .session import Session
from .tenants import Tenants

# Directories of embedded caches that this process has closed.
_closed: set[str] = set()


@names_arguments
def open(
    directory: str | os.PathLike[str],
    *,
    memory_bytes: int = 0,
    max_disk_bytes: int = 0,
    threads: int = 0,
    device: str = "auto",
) -> Cache:
    """Runs the whole service inside this process over `directory`, which is created if missing.

    Args:
        memory_bytes: size of the RAM tier; 0 for the default.
        max_disk_bytes: the most that stored records take. Near it, the least valuable
            segments are trimmed and then dropped. 0: only the disk is a limit.
        threads: for compression; 0 for one per core.
        device: for compression: "auto" (a GPU if there is one), "cpu" or "cuda:0".

    Raises:
        Unavailable: another process has the directory open, or an object of this process keeps it
            open.
    """
    place = os.path.realpath(os.fspath(directory))
    try:
        core = _core.open(
            os.fspath(directory),
            count_in(memory_bytes, "memory_bytes", 2**63 - 1),
            count_in(max_disk_bytes, "max_disk_bytes", 2**63 - 1),
            count_in(threads, "threads"),
            device,
        )
    except Unavailable as error:
        if place not in _closed:
            raise
        raise Unavailable(
            f"{error}. This process has closed its cache, but a Put, a Prefix or an array that was "
            "made from it keeps the directory open until it is gone: del put"
        ) from None
    _closed.discard(place)
    return Cache(core, place)


@names_arguments
def connect(
    address: str,
    *,
    tenant: str = "",
    token: str = "",
    timeout: float = 10.0,
    deadline: float | None = None,
    retry: bool = True,
    tls_ca: str = "",
    tls_cert: str = "",
    tls_key: str = "",
    share_memory: bool = True,
    rdma: str = "auto",
) -> Cache:
    """Connects to a running precisd.

    Args:
        address: "host:port" or "unix:PATH". For a cluster, one or several of its nodes:
            "precis://host:port,host:port/".
        tenant, token: credentials; by default the service's default tenant. The token is never
            sent: both sides prove that they know it.
        tls_ca: a PEM file, or "system": the authority that signs the service's certificate. By
            default the connection is not encrypted. tls_cert and tls_key, PEM files, are the
            client's own, if the service asks for them.
        share_memory: whether a service on this host may read and write the library's buffers in
            place, which is faster than a socket.
        rdma: whether a service on another host may do the same by RDMA. "auto": if this host has a
            device and the service offers RDMA, but never with TLS, because RDMA is not encrypted.
            "off": no. Otherwise the permitted devices, separated by commas, for example "mlx5_0:1".
            Cache.status().rdma names the service's device.
        timeout: seconds, for connecting and for each request; a request that moves or compresses
            bytes times out when the service has been silent this long.
        deadline: seconds, for each call with its retries, and for a get up to its last layer; by
            default none. Cache.with_deadline() makes a cache with another deadline.
        retry: whether a call that finds the connection lost connects again, and a call that a busy
            service refused is sent again. Retries end at the deadline or, without a deadline,
            `timeout` after the first failure. If the connection is lost, a put with pushed layers
            is lost, too: put again.

    Raises:
        Unavailable, PermissionDenied, VersionMismatch: the connection failed.
    """
    return Cache(
        _core.connect(
            address,
            tenant,
            token,
            _milliseconds(timeout, "timeout"),
            _deadline_ms(deadline),
            retry,
            tls_ca,
            tls_cert,
            tls_key,
            share_memory,
            rdma,
        )
    )


def _name_of(session: Session | str | None) -> str:
    return session.name if isinstance(session, Session) else session or ""


def _deadline_ms(seconds: float | None) -> int:
    return 0 if seconds is None else _milliseconds(seconds, "deadline")


def _milliseconds(seconds: float, field: str) -> int:
    if not 0 < seconds < 2**32 / 1000 - 1:
        raise InvalidArgument(f"{field}: {seconds} seconds, must be above 0 and below 49 days")
    return max(1, round(seconds * 1000))


@names_arguments
class Cache:
    """A store of compressed prefixes, made by precis.open or precis.connect. Thread-safe.

    The objects that it returns keep the connection open; after close() it ends when they are gone.
    """

    def __init__(self, core: Any, directory: str | None = None) -> None:
        self._core = core
        self._directory = directory  # of an embedded cache

    @property
    def core(self) -> Any:
        """The C++ client."""
        if self._core is None:
            raise Unavailable("the cache is closed")
        return self._core

    def close(self) -> None:
        """Releases the connection, or the embedded service."""
        self._core = None
        if self._directory is not None:
            _closed.add(self._directory)

    def with_deadline(self, seconds: float | None) -> Cache:
        """The same cache, with calls that end within `seconds` or raise TimedOut::

            match = cache.with_deadline(0.2).lookup(model, tokens)

        The deadline holds for a whole call with its retries, and for a get up to its last layer.
        None: no deadline.
        """
        return Cache(self.core.with_deadline(_deadline_ms(seconds)))

    def allocate(self, size_bytes: int) -> np.ndarray:
        """Host memory to push KV from. Compute KV in it, or copy KV there from a GPU.

        A service on the same host reads it in place, and for any service it is registered once
        instead of at every push::

            buffer = torch.from_numpy(cache.allocate(2 * keys.nbytes)).view(torch.bfloat16)
            staged_keys, staged_values = buffer.view(2, *keys.shape)
            staged_keys.copy_(keys)

        Returns:
            uint8 [size_bytes], zeros, writable, starting on a page boundary. The array and its
            views keep the memory and the connection alive.

        Raises:
            OutOfSpace: the machine has no such memory.
        """
        return self.core.allocate(count_in(size_bytes, "size_bytes", 2**62)).bytes()

    def __enter__(self) -> Cache:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---- models ---------------------------------------------------------------------------------

    def register_model(
        self, spec: ModelSpec, adapter: str = "", o_proj: Projections | None = None
    ) -> Model:
        """Registers a model. Registering the same model again is allowed.

        Args:
            adapter: a LoRA adapter or similar.
            o_proj: the model's output projections, for recipes that use the norms of projected
                values (criticalkv, defensivekv): an array [num_q_heads, head_dim, hidden size] per
                layer, or a safetensors file of the model, or a folder of them. The service keeps
                them, so it needs them only once.

        Raises:
            InvalidArgument: a projection has another shape, weights that are not finite, or other
                values than the model was registered with before.
        """
        layers = [] if o_proj is None else projections_in(o_proj, spec)
        core = self.core.register_model(spec.to_core(), [exported(layer) for layer in layers])
        core.adapter = adapter
        return Model(ModelSpec.from_core(core.spec), core.fingerprint, adapter, core)

    def models(self) -> list[ModelRow]:
        """Every registered model."""
        return [ModelRow.from_core(row) for row in self.core.models()]

    # ---- profiles -------------------------------------------------------------------------------

    def add_profile(
        self, profile: str | os.PathLike[str] | dict[str, Any], model: Model | None = None
    ) -> ProfileRow:
        """Loads what ``precis profile build`` learnt: a scorer for kvprobe, or budgets for lukv.

        The profile replaces a profile with the same model and name. Segments that were put with the
        old profile stay.

        Args:
            profile: a file, or its content as a dict.
            model: a model that is registered under another name, revision or dtype than the
                profile's, but has the same weights; by default the profile's own.

        Raises:
            NotFound: its model is not registered.
            InvalidArgument: it is not a profile, or has another shape than the model.
        """
        text = json.dumps(profile) if isinstance(profile, dict) else _read_text(profile)
        if model is not None:
            text = profile_for(text, model)
        return ProfileRow.from_core(self.core.add_profile(text))

    def profiles(self, model: Model | None = None) -> list[ProfileRow]:
        """The profiles of a model, or of every model, without their tables."""
        rows = self.core.profiles(None if model is None else model.fingerprint)
        return [ProfileRow.from_core(row) for row in rows]

    def profile(self, model: Model, name: str) -> ProfileRow:
        """One profile with its tables: `content` can be passed to add_profile."""
        return ProfileRow.from_core(self.core.profile(model.fingerprint, name))

    def remove_model(self, fingerprint: str) -> None:
        """Removes a model with its projections, profiles and budgets.

        Raises:
            Conflict: segments of the model are stored; the message has their number.
        """
        self.core.remove_model(fingerprint)

    def remove_profile(self, model: Model, name: str) -> None:
        """Removes a profile; segments that were put with it stay."""
        self.core.remove_profile(model.fingerprint, name)

    # ---- put and get ----------------------------------------------------------------------------

    def begin_put(
        self,
        model: Model,
        tokens: Any,
        recipe: str | None = None,
        keep: Keep | None = None,
        *,
        parent: Match | Segment | str | Literal["auto"] | None = "auto",
        parent_read: Keep | None = None,
        writers: int = 1,
        priority: int | None = None,
        ttl_s: float | None = None,
        expect_reuse_in_s: float | None = None,
        session: Session | str | None = None,
        prefill_s: float | None = None,
        traceparent: str | None = None,
    ) -> Put:
        """Starts to store the KV of `tokens`.

        A segment is identified by its tokens, recipe, budget and parent. If it is already stored
        (`put.already_stored`), pushes are checked and not moved, and the stored KV stays.

        Args:
            tokens: the whole path from its root, as a sequence, an array or a tensor.
            recipe: a preset ("global_kvdiff"), one with parameters ("ada_snapkv(window=64)"), or
                JSON; by default the recipe in force (Cache.budgets).
            keep: a share in (0, 1], precis.entries(n), precis.bytes_(n), precis.byte_share(share),
                precis.loss(most), or text as for precisctl: "128 entries", "10% bytes"; by
                default the budget in force.
            parent: the segment at whose end the new tokens begin: the longest stored proper prefix
                that suits a reader at `parent_read` ("auto"), the root (None), or a given segment.
                With a match, they begin at its end; if that is inside a segment, the service
                splits the segment there. With "auto", it does so if the match is a large part of
                the segment. It never splits one that is longer than a window of the model.
            parent_read: the budget at which the parent was read while this KV was computed; by
                default all stored entries were read. If the parents store more, the segment is an
                approximation: only lookups with such a `keep`, or without one, find it.
            writers: the number of connections that write the put together, for example
                tensor-parallel ranks. All of them begin it with the same arguments, push their
                heads (`head_begin`), and commit. A commit returns once all of them have called it,
                so use a deadline. If one aborts or disconnects, the others get Unavailable.
            priority: 0 to 100; how long the segment is kept when the service is short of space, in
                comparison with other segments of this tenant. By default 50.
            ttl_s: after this time without use, the segment loses half of its worth in each further
                such time; it never expires. By default 0: it does not.
            expect_reuse_in_s: for this long from now on, the segment counts as about to be used.
                None in any of the three leaves a stored segment as it is.
            session: the session that the put continues: its budget and limit apply (set_budget).
                The put does not advance it.
            prefill_s: how long the prefill of the new tokens took, if that is known already
                (Put.commit). Segments that are cheap to compute again are dropped first when the
                service is short of space. None or 0: unknown.
            traceparent: your span, in the form of W3C Trace Context's header `traceparent`. Its
                trace then includes the service's spans of this call. Another form is ignored.

        Raises:
            NotFound: there is no such model, parent or session.
        """
        parent_end = 0
        if isinstance(parent, Match):
            parent_end = parent.matched_tokens
            parent = parent.links[-1].segment if parent else None
        if isinstance(parent, Segment):
            parent = parent.id
        core = self.core.begin_put(
            model.core,
            tokens_in(tokens),
            recipe or "",
            to_pair(keep),
            None if parent == "auto" else parent or "",
            to_pair(parent_read, "parent_read"),
            count_in(writers, "writers", 2**32 - 1),
            parent_end,
            hints_in(priority, ttl_s, expect_reuse_in_s),
            _name_of(session),
            prefill_in(prefill_s),
            traceparent or "",
        )
        return Put(core, model)

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
    ) -> Match:
        """Finds the longest stored prefix of a path; the match is false if there is none.

        A path that ends inside a segment matches that segment up to the last whole block of
        `ModelSpec.block_tokens` tokens.

        With `keep` or `align`, ``match.plan`` and ``match.bytes`` are exactly what
        ``cache.get(match)``, without a budget, transfers, so that pages can be reserved before it.
        The service reads records from the disk for that if they are not in memory. Without both,
        `plan` counts the stored entries.

        With `keep` or `align`, the lookup skips segments that were computed over fewer entries of
        their parents (``parent_read``) than this reader gets. A `keep` that is a share requires 95%
        of that share; any other budget requires 95% of all stored entries. Without both, no segment
        is skipped.

        Args:
            keep: as in begin_put, except a loss. A segment that stores less is matched
                whole. precis.ALL for all stored entries.
            align: entries per page, 1 to 4096. The count of each (layer, KV head) over all segments
                is rounded to the nearest multiple: at least one page, at most the whole pages that
                are stored, and so 0 if less than a page is stored. The last segment absorbs the
                difference.
            lease: seconds, up to 30, for which get() can read the match even if its segments are
                removed, trimmed or replaced; ``match.lease`` is the time that the service granted.
            priority, ttl_s, expect_reuse_in_s: as in begin_put, for all segments of the match.
            traceparent: as in begin_put.
            session: the session that the path continues: its ttl restarts, once a tenth of it has
                passed. Needs the role writer.

        Raises:
            NotFound: there is no such model or session.
        """
        path = tokens_in(tokens)
        hints = hints_in(priority, ttl_s, expect_reuse_in_s)
        options = lookup_options(keep, align, lease, hints, traceparent, session)
        return Match.from_core(self.core.lookup(model.core, path, *options), path)

    def get(
        self,
        match: Match,
        keep: Keep | None = None,
        *,
        heads: range | tuple[int, int] | None = None,
        out: Sequence[tuple[Any, Any]] | None = None,
        pages: tuple[Pages, Any, Any] | None = None,
        traceparent: str | None = None,
    ) -> Prefix:
        """Starts to stream a matched prefix, at a budget of at most what is stored.

        Args:
            keep: as in begin_put; by default all stored entries. A recipe's `min_entries` is a
                lower limit: ``prefix.share`` says what share of all entries came. A match that was
                looked up with `keep` or `align` is read as it was counted, and takes no other
                budget.
            heads: the KV heads to read, transfer and check, from the first up to, not including,
                the second: range(2, 4) or (2, 4); by default all. ``prefix.layers[l]`` then has
                only these heads, the first of them as ``heads[0]``.
            out: your own memory for the rows: (keys, values) for every layer, NumPy arrays or CPU
                tensors [heads, n, head_dim] of the model's dtype (bf16 also as its bits in uint16,
                f8_e4m3 in uint8).
                n must be at least the largest number of rows of a head at this budget;
                ``match.plan[layer].max()`` is always enough. Head h of layer l gets its
                ``prefix.plan[l, h]`` rows at [h, :count] once ``prefix.layers[l]`` or
                ``prefix.wait()`` has returned; the rest is not touched. Nothing else writes there,
                and the prefix keeps the arrays alive.
            pages: your own paged memory for the rows: (precis.Pages, table, starts), both uint32
                arrays, which are copied. Head h of layer l gets its rows, in order and at the same
                time as above, in the pages ``table[starts[i] : starts[i + 1]]`` with i = l *
                num_kv_heads + h; the rest is not touched.
            traceparent: as in begin_put.

        Raises:
            InvalidArgument: an array of `out` does not fit, and is named; or a page does not exist.
                If a head has more rows than its array or its pages, `prefix.layers[l]` and
                `prefix.wait()` raise it.
            NotFound: a segment was trimmed or removed since the lookup.
        """
        arguments, make = get_arguments(match, keep, heads, out, pages, traceparent)
        return make(self.core.get(*arguments))

    # ---- sessions -------------------------------------------------------------------------------

    def session(self, name: str, ttl: int | None = None, *, total: Keep | None = None) -> Session:
        """Finds or makes a session.

        Args:
            ttl: seconds that it lives after its last use; 0: for ever. By default an existing
                session keeps its ttl, and a new one lives for ever.
            total: the most that all its segments may take together: bytes such as "64 MiB", or a
                share of their full KV; precis.ALL: no limit. As the conversation grows, the service
                trims old turns, in the background. By default an existing session keeps its total,
                and a new one has none.
        """
        seconds = None if ttl is None else count_in(ttl, "ttl")
        most = to_pair(total, "total")
        return Session(self, _core.open_session(self.core, name, seconds, most))

    def sessions(self) -> list[Session]:
        """Every session of the tenant."""
        return [Session(self, row) for row in _core.sessions(self.core)]

    # ---- operations -----------------------------------------------------------------------------

    def segments(self, model: Model | None = None, limit: int = 1000) -> list[Segment]:
        """Stored segments, without their plans."""
        limit = count_in(limit, "limit", maximum=2**32 - 1)
        rows = self.core.segments(None if model is None else model.fingerprint, limit)
        return [Segment.from_core(row) for row in rows]

    def segment(self, id: str) -> Segment:
        """One stored segment, with its plan."""
        return Segment.from_core(self.core.segment(id))

    def remove(self, segment: Segment | str, recursive: bool = False) -> int:
        """Removes a segment, with `recursive` also its descendants. Returns how many it removed."""
        id = segment.id if isinstance(segment, Segment) else segment
        return self.core.remove_segment(id, recursive).segments

    def check(self, segment: Segment | str) -> str:
        """Reads all of a segment from the store; returns the damage found, or an empty text."""
        id = segment.id if isinstance(segment, Segment) else segment
        return self.core.check_segment(id).damage

    def trim(
        self,
        segment: Segment | str,
        keep: Keep,
        *,
        durability: Literal["memory", "wal", "fsync", "shared"] = "wal",
        dry_run: bool = False,
    ) -> Trimmed:
        """Trims a segment to exactly the entries that a put at `keep` would have kept.

        Nothing is computed or compressed again. The segment's id, `keep` and children stay, its
        `trimmed` is the new budget, and putting it again restores the removed entries.

        Args:
            keep: as in begin_put, at most what is stored.
            durability: as in Put.commit; at least the segment's own.
            dry_run: reports the effect, and changes nothing.

        Raises:
            Conflict: the segment stores less than that.
        """
        id = segment.id if isinstance(segment, Segment) else segment
        return Trimmed.from_core(self.core.trim_segment(id, to_pair(keep), durability, dry_run))

    def set_retention(
        self,
        segment: Segment | str,
        *,
        priority: int | None = None,
        ttl_s: float | None = None,
    ) -> Segment:
        """Sets how long a stored segment is worth keeping; returns it, without its plan.

        A later put or lookup with hints replaces this.

        Args:
            priority, ttl_s: as in begin_put, at least one of them; ttl_s=0 ends a TTL.
        """
        id = segment.id if isinstance(segment, Segment) else segment
        hints = hints_in(priority, ttl_s, None)
        return Segment.from_core(self.core.set_retention(id, hints))

    def budgets(
        self, model: Model | None = None, *, session: Session | str | None = None
    ) -> Budgets:
        """The default recipe and budget in force: globally, for a model, or in a session."""
        scope = None if model is None else model.fingerprint
        return Budgets.from_core(self.core.budgets(scope, _name_of(session)))

    def set_budget(
        self,
        recipe: str | None = None,
        keep: Keep | None = None,
        model: Model | None = None,
        *,
        limit: Keep | None = None,
        session: Session | str | None = None,
        table: str = "",
        user: str = "",
        comment: str = "",
        dry_run: bool = False,
    ) -> Budgets:
        """Changes the defaults of later puts. None leaves a value; "" and precis.ALL unset it.

        A recipe that needs a profile can only be set for one model, which must have the profile, or
        for a session of that model.

        Args:
            model, session: the change is only for puts of this model, or only for those that name
                this session. It ends with the session.
            limit: the largest budget that a put gets, whatever it names; no loss.
            table: shares or entries of layers and KV heads, such as "0-3=0.5, 4-31=0.15, 12.3=0.6"
                (docs/guides/budgets.md). The recipe gives the scores; the mean is the budget unless
                `keep` is given.
            user, comment: kept with the revision (``precisctl budget log``).
            dry_run: changes nothing; `next_put` of the answer tells what the next put would keep.
        """
        scope = None if model is None else model.fingerprint
        budgets = (to_pair(keep), to_pair(limit, "limit"))
        change = (recipe, *budgets, user, comment, _name_of(session), table, dry_run)
        return Budgets.from_core(self.core.set_budget(scope, *change))

    @property
    def tenants(self) -> Tenants:
        """The service's tenants, for a caller whose tenant has the role admin."""
        return Tenants(self)

    def stats(self) -> dict[str, float]:
        """The service's counters and gauges by name."""
        return {row.name: row.value for row in self.core.stats()}

    def status(self) -> ServerStatus:
        """The service's status."""
        return ServerStatus.from_core(self.core.status())


def lookup_options(
    keep: Keep | None,
    align: int,
    lease: float,
    hints: Hints,
    traceparent: str | None,
    session: Session | str | None,
) -> tuple[tuple[int, int] | None, int, int, Hints, str, str]:
    """The arguments of the extension module's lookup that come after the path."""
    if not 0 <= lease < 2**20:
        raise InvalidArgument(f"lease: {lease} s, must be 0 or more; 30 s at most are granted")
    align = count_in(align, "align", 2**32 - 1)
    name = _name_of(session)
    return to_pair(keep), align, int(lease * 1000), hints, traceparent or "", name


def get_arguments(
    match: Match, keep: Keep | None, heads: Any, out: Any, pages: Any, traceparent: str | None
) -> tuple[tuple[Any, ...], Callable[[Any], Prefix]]:
    """The arguments of the extension module's get, and the function that makes its Prefix.

    That function keeps the caller's memory for rows alive.
    """
    pair = to_pair(ALL if keep is None else keep)
    taken = range(match.plan.shape[1]) if heads is None else _heads_in(heads)
    arrays = [] if out is None else _out_arrays(out)
    rows = [(exported(keys), exported(values)) for keys, values in arrays]
    read = match.keep or from_pair(pair)
    trace = traceparent or ""
    arguments = (match.core, pair, rows, sink_of(pages), taken.start, len(taken), trace)
    return arguments, lambda core: Prefix(core, match, read, (arrays, pages), taken)


def _heads_in(heads: Any) -> range:
    if isinstance(heads, tuple) and len(heads) == 2:
        first, end = (count_in(head, "heads") for head in heads)
        heads = range(first, end)
    if not isinstance(heads, range) or heads.step != 1:
        raise InvalidArgument(f"heads: {heads!r}, must be a range such as range(2, 4) or (2, 4)")
    if len(heads) == 0 or heads.start < 0:
        raise InvalidArgument(f"heads: {heads!r}, must have at least one head, from 0 on")
    return heads


def _out_arrays(out: Any) -> list[tuple[Any, Any]]:
    arrays = []
    for i, layer in enumerate(out):
        if not isinstance(layer, (tuple, list)) or len(layer) != 2:
            raise InvalidArgument(
                f"out[{i}]: {type(layer).__name__}, must be a pair (keys, values)"
            )
        keys, values = layer
        arrays.append(
            (rows_in_place(keys, f"out[{i}].keys"), rows_in_place(values, f"out[{i}].values"))
        )
    if not arrays:
        raise InvalidArgument("out: has no layers, must have all layers of the model")
    return arrays


def _read_text(path: str | os.PathLike[str]) -> str:
    try:
        return files.read_text(path, files.PROFILE_BYTES_MAX)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"profile: {error}") from None
