"""The cache: embedded in this process, or a client of a running precisd. One API for both."""

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
from .model import Model, ModelSpec
from .pages import Pages, sink_of
from .prefix import Prefix
from .projections import Projections, projections_in
from .put import Put
from .rows import Budgets, Match, ModelRow, ProfileRow, Segment, ServerStatus, Trimmed
from .session import Session


@names_arguments
def open(
    directory: str | os.PathLike[str],
    *,
    memory_bytes: int = 0,
    threads: int = 0,
    device: str = "auto",
) -> Cache:
    """Runs the whole service inside this process over `directory`, which is made if it is missing.

    Args:
        memory_bytes: of the RAM tier; 0 for the default.
        threads: that compress; 0 for every core.
        device: that compresses: "auto" (a GPU where there is one), "cpu" or "cuda:0".

    Raises:
        Unavailable: another process has the directory open.
    """
    return Cache(
        _core.open(
            os.fspath(directory),
            count_in(memory_bytes, "memory_bytes", 2**63 - 1),
            count_in(threads, "threads"),
            device,
        )
    )


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
    """Connects to a running precisd at "host:port" or "unix:PATH".

    Args:
        tenant, token: credentials; by default the service's default tenant. The token never
            travels: both sides prove that they know it.
        tls_ca: a PEM file, or "system": whose signature the service's certificate must have. By
            default the connection is not encrypted. tls_cert and tls_key, PEM files, are the
            client's own, where the service asks for them.
        share_memory: whether a service of this host may read and write the library's buffers where
            they lie, which is faster than a socket.
        rdma: whether a service of another host may do the same by RDMA: "auto" (where this host has
            a device and the service offers it; never with TLS, for it is not encrypted), "off", or
            the devices that may be used, with commas: "mlx5_0:1". Cache.status().rdma says what the
            service has.
        timeout: seconds, of connecting and of each request; of one that moves or compresses bytes,
            the silence of the service.
        deadline: seconds, of each call as a whole with its retries, and of a get up to its last
            layer; by default none. Cache.with_deadline() sets it for some calls.
        retry: whether a call that finds the connection lost connects anew, and one that the service
            is too busy for comes again, until its deadline, or without one for `timeout` from its
            first failure. A put of which layers were pushed is lost with its connection: put again.

    Raises:
        Unavailable, PermissionDenied, VersionMismatch: why not.
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


def _deadline_ms(seconds: float | None) -> int:
    return 0 if seconds is None else _milliseconds(seconds, "deadline")


def _milliseconds(seconds: float, field: str) -> int:
    if not 0 < seconds < 2**32 / 1000 - 1:
        raise InvalidArgument(f"{field}: {seconds} seconds, must be above 0 and below 49 days")
    return max(1, round(seconds * 1000))


@names_arguments
class Cache:
    """A store of compressed prefixes. Made by precis.open or precis.connect; any thread may use it.

    What it hands out keeps the connection alive; close() lets go of it once they are gone too.
    """

    def __init__(self, core: Any) -> None:
        self._core = core

    @property
    def core(self) -> Any:
        """The C++ client beneath."""
        if self._core is None:
            raise Unavailable("the cache is closed")
        return self._core

    def close(self) -> None:
        """Lets go of the connection, or of the embedded service."""
        self._core = None

    def with_deadline(self, seconds: float | None) -> Cache:
        """The same cache, whose calls end within so many seconds, or raise TimedOut::

            match = cache.with_deadline(0.2).lookup(model, tokens)

        It goes for a whole call with its retries, and for a get up to its last layer. None: no end.
        """
        return Cache(self.core.with_deadline(_deadline_ms(seconds)))

    def allocate(self, size_bytes: int) -> np.ndarray:
        """Host memory to make KV in, or to copy it to from a GPU, and to push it from.

        A service on the same host reads it where it is, and for any it is registered once and not
        by every push::

            buffer = torch.from_numpy(cache.allocate(2 * keys.nbytes)).view(torch.bfloat16)
            staged_keys, staged_values = buffer.view(2, *keys.shape)
            staged_keys.copy_(keys)

        Returns:
            uint8 [size_bytes], zeros, writable, from a page's boundary on. The array and what is
            made of it keep the memory, and the connection, alive.

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
        """Makes a model known; once or many times.

        Args:
            adapter: LoRA or the like.
            o_proj: the model's output projections, for recipes that weigh values by what they
                write (criticalkv, defensivekv): of every layer an array [num_q_heads, head_dim,
                hidden size], or a safetensors file of the model, or a folder of them. The service
                keeps them: once is enough.

        Raises:
            InvalidArgument: a projection of another shape, with weights that are not finite, or
                other than those that the model was registered with before.
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
        """Loads budgets per head that ``precis profile build`` learnt, for recipes such as lukv.

        It takes the place of one with the same model and name. What was put by another stays.

        Args:
            profile: a file, or its content as a dict.
            model: the same weights as registered here under another name, revision or dtype than
                the profile's; by default it must be its own.

        Raises:
            NotFound: its model is not registered.
            InvalidArgument: it is none, or of another shape than the model.
        """
        text = json.dumps(profile) if isinstance(profile, dict) else _read_text(profile)
        if model is not None:
            text = _for_model(text, model)
        return ProfileRow.from_core(self.core.add_profile(text))

    def profiles(self, model: Model | None = None) -> list[ProfileRow]:
        """Those of a model, or of every model, without their tables."""
        rows = self.core.profiles(None if model is None else model.fingerprint)
        return [ProfileRow.from_core(row) for row in rows]

    def profile(self, model: Model, name: str) -> ProfileRow:
        """One of them, whole: `content` is what add_profile takes."""
        return ProfileRow.from_core(self.core.profile(model.fingerprint, name))

    def remove_profile(self, model: Model, name: str) -> None:
        """Removes one; what was put by it stays."""
        self.core.remove_profile(model.fingerprint, name)

    # ---- put and get ----------------------------------------------------------------------------

    def begin_put(
        self,
        model: Model,
        tokens: Any,
        recipe: str | None = None,
        keep: Keep | None = None,
        *,
        parent: Segment | str | Literal["auto"] | None = "auto",
        parent_read: Keep | None = None,
        writers: int = 1,
    ) -> Put:
        """Begins to store the KV of `tokens`.

        A segment is known by its tokens, recipe, budget and parent. Where it is stored already
        (`put.already_stored`) its KV stays as it is: pushes are checked and not moved.

        Args:
            tokens: the whole path from its root; a sequence, an array or a tensor.
            recipe: a preset ("global_kvdiff"), one with parameters ("ada_snapkv(window=64)"), or
                JSON; by default what the budget in force says.
            keep: a share in (0, 1], precis.entries(n), precis.bytes_(n) or precis.quality(share),
                or as precisctl takes it: "128 entries", "64 MiB"; by default as above.
            parent: where the new tokens begin: at the end of the longest stored proper prefix that
                suits a reader at `parent_read` ("auto"), at the root (None), or at the end of a
                given segment.
            parent_read: the budget at which the parent was read while this KV was computed; by
                default all that was stored. Where that is less than what is stored of the parents,
                the segment is an approximation, and only lookups at such a `keep` find it.
            writers: connections that write the put together, tensor-parallel ranks say: all of them
                begin it alike, push their heads (`head_begin`), and commit, which returns to all at
                once when the last one has. Where one aborts or is gone the others get Unavailable.
                Give it a deadline.
        """
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
        )
        return Put(core, model)

    def lookup(
        self,
        model: Model,
        tokens: Any,
        keep: Keep | None = None,
        align: int = 1,
        lease: float = 0,
    ) -> Match:
        """Finds the longest stored prefix of a path; the match is false when there is none.

        A path that ends inside a segment matches it up to the last whole block of
        `ModelSpec.block_tokens` tokens.

        With `keep` or `align` the match says exactly what a get brings, before anything travels:
        ``match.plan`` and ``match.bytes``, so that pages can be set aside for it. The service reads
        records for that where they are cold. ``cache.get(match)``, without a budget, then serves
        exactly that. With neither, `plan` is what is stored.

        With `keep` or `align` segments are passed over that were computed over less of their
        parents (``parent_read``) than this reader gets of them: a share asks for as much, anything
        else for all that is stored. 95% of it will do. With neither none is passed over.

        Args:
            keep: as in begin_put, but no quality; of a segment that stores less, what it stores.
                precis.ALL for all that is stored of what matched.
            align: entries of a page, 1 to 4096. Each (layer, KV head) gets the nearest multiple of
                it, over all segments; at least one page, at most what is stored in whole pages, so
                nothing where less than a page is. The last segment gives or takes the difference.
            lease: seconds, up to 30, for which the match can be got whatever is removed, trimmed or
                replaced meanwhile; ``match.lease`` says how many were granted.
        """
        path = tokens_in(tokens)
        return Match.from_core(
            self.core.lookup(model.core, path, *lookup_options(keep, align, lease)), path
        )

    def get(
        self,
        match: Match,
        keep: Keep | None = None,
        *,
        heads: range | tuple[int, int] | None = None,
        out: Sequence[tuple[Any, Any]] | None = None,
        pages: tuple[Pages, Any, Any] | None = None,
    ) -> Prefix:
        """Begins to stream a matched prefix, at a budget of at most what is stored.

        Args:
            keep: as in begin_put; by default everything that is stored, or, of a match that was
                looked up with `keep` or `align`, what it says: such a match takes no other.
            heads: the KV heads that are read, travel and are checked, from the first up to, not
                including, the second: range(2, 4) or (2, 4); by default all. ``prefix.layers[l]``
                then has these heads alone, the first of them as ``heads[0]``.
            out: memory of your own for the rows: of every layer (keys, values), NumPy arrays or
                CPU tensors [heads, n, head_dim] of the model's dtype (bf16 also as its bits in
                uint16), with n at least the most rows that a head of the layer has at this
                budget; ``match.plan[layer].max()`` always is enough. Head h of layer l gets its
                ``prefix.plan[l, h]`` rows at [h, :count] once ``prefix.layers[l]`` or
                ``prefix.wait()`` has returned; what lies behind them is left alone. Nothing else
                writes there, and the prefix keeps the arrays alive.
            pages: paged memory of your own for the rows: (precis.Pages, table, starts), both uint32
                arrays, which are copied. Head h of layer l gets its rows, in order and at the same
                time as above, in the pages ``table[starts[i] : starts[i + 1]]`` with i = l *
                num_kv_heads + h; what lies behind them is left alone.

        Raises:
            InvalidArgument: an array of `out` does not fit, its name says which; a page is none.
                Where a head has more rows than its array or its pages, `prefix.layers[l]` and
                `prefix.wait()` raise it.
            NotFound: a segment was trimmed or removed since it was looked up.
        """
        arguments, make = get_arguments(match, keep, heads, out, pages)
        return make(self.core.get(*arguments))

    # ---- sessions -------------------------------------------------------------------------------

    def session(self, name: str, ttl: int | None = None) -> Session:
        """Finds or makes a session. `ttl`: seconds it outlives its last use, set anew if given."""
        seconds = None if ttl is None else count_in(ttl, "ttl")
        return Session(self, self.core.open_session(name, seconds))

    def sessions(self) -> list[Session]:
        """Every session of the tenant."""
        return [Session(self, row) for row in self.core.sessions()]

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
        """Removes a segment; with `recursive` also those that stand on it. Returns how many."""
        id = segment.id if isinstance(segment, Segment) else segment
        return self.core.remove_segment(id, recursive).segments

    def check(self, segment: Segment | str) -> str:
        """Reads all of a segment from the store: what is wrong with it, empty if nothing is."""
        id = segment.id if isinstance(segment, Segment) else segment
        return self.core.check_segment(id).damage

    def trim(
        self,
        segment: Segment | str,
        keep: Keep,
        *,
        durability: Literal["memory", "wal", "fsync"] = "wal",
        dry_run: bool = False,
    ) -> Trimmed:
        """Keeps fewer entries of a segment: exactly those that a put at `keep` would have kept.

        Nothing is computed or compressed again. The segment's id and `keep` stay, its `trimmed`
        says what is left, segments that stand on it stay, and putting it again gives back what it
        lost.

        Args:
            keep: as in begin_put, at most what is stored.
            durability: as in Put.commit; never less than the segment's own.
            dry_run: says what would be, and changes nothing.

        Raises:
            InvalidArgument: it stores less than that.
        """
        id = segment.id if isinstance(segment, Segment) else segment
        return Trimmed.from_core(self.core.trim_segment(id, to_pair(keep), durability, dry_run))

    def budgets(self, model: Model | None = None) -> Budgets:
        """The default recipe and budget in force, globally or for a model."""
        return Budgets.from_core(self.core.budgets(None if model is None else model.fingerprint))

    def set_budget(
        self, recipe: str | None = None, keep: Keep | None = None, model: Model | None = None
    ) -> Budgets:
        """Changes the defaults of puts, live. None leaves a value; "" and precis.ALL unset it.

        A recipe that needs a profile can be set for a model that has one, not for all.
        """
        scope = None if model is None else model.fingerprint
        return Budgets.from_core(self.core.set_budget(scope, recipe, to_pair(keep)))

    def stats(self) -> dict[str, float]:
        """The service's counters and gauges by name."""
        return {row.name: row.value for row in self.core.stats()}

    def status(self) -> ServerStatus:
        """The service about itself."""
        return ServerStatus.from_core(self.core.status())


def lookup_options(
    keep: Keep | None, align: int, lease: float
) -> tuple[tuple[int, int] | None, int, int]:
    """What the extension module's lookup takes beside the path."""
    if not 0 <= lease < 2**20:
        raise InvalidArgument(f"lease: {lease} s, must be 0 or more, and is 30 at most")
    return to_pair(keep), count_in(align, "align", 2**32 - 1), int(lease * 1000)


def get_arguments(
    match: Match, keep: Keep | None, heads: Any, out: Any, pages: Any
) -> tuple[tuple[Any, ...], Callable[[Any], Prefix]]:
    """What the extension module's get takes, and what makes a Prefix of its answer.

    The latter keeps the memory alive that rows are left in.
    """
    pair = to_pair(ALL if keep is None else keep)
    taken = range(match.plan.shape[1]) if heads is None else _heads_in(heads)
    arrays = [] if out is None else _out_arrays(out)
    rows = [(exported(keys), exported(values)) for keys, values in arrays]
    read = match.keep or from_pair(pair)
    arguments = (match.core, pair, rows, sink_of(pages), taken.start, len(taken))
    return arguments, lambda core: Prefix(core, match, read, (arrays, pages), taken)


def _heads_in(heads: Any) -> range:
    if isinstance(heads, tuple) and len(heads) == 2:
        first, end = (count_in(head, "heads") for head in heads)
        heads = range(first, end)
    if not isinstance(heads, range) or heads.step != 1:
        raise InvalidArgument(f"heads: {heads!r} is no range of heads, as range(2, 4) or (2, 4) is")
    if len(heads) == 0 or heads.start < 0:
        raise InvalidArgument(f"heads: {heads!r} names no heads")
    return heads


def _out_arrays(out: Any) -> list[tuple[Any, Any]]:
    arrays = []
    for i, layer in enumerate(out):
        if not isinstance(layer, (tuple, list)) or len(layer) != 2:
            raise InvalidArgument(f"out[{i}]: {type(layer).__name__} is no pair (keys, values)")
        keys, values = layer
        arrays.append(
            (rows_in_place(keys, f"out[{i}].keys"), rows_in_place(values, f"out[{i}].values"))
        )
    if not arrays:
        raise InvalidArgument("out: has no layers")
    return arrays


def _for_model(profile: str, model: Model) -> str:
    try:
        content = json.loads(profile)
    except json.JSONDecodeError as error:
        raise InvalidArgument(f"profile: {error}") from None
    if not isinstance(content, dict):
        raise InvalidArgument("profile is not a JSON object")
    return json.dumps(content | {"model": model.fingerprint})


def _read_text(path: str | os.PathLike[str]) -> str:
    try:
        return files.read_text(path, files.PROFILE_BYTES_MAX)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"profile: {error}") from None
