"""A put in progress: layers are pushed in any order; commit makes the segment visible."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Any, Literal

from .arguments import names_arguments
from .arrays import count_in, exported, floats_in, heads_in, page_numbers, statistics_in
from .budget import Budget, from_pair
from .errors import Error
from .hints import prefill_in
from .model import Model
from .pages import Pages
from .rows import Segment


@names_arguments
class Put:
    """A put in progress, made by Cache.begin_put. Nothing of it is visible before commit.

    A put that is not committed leaves no trace. As a context manager it aborts if the block ends
    without a commit::

        with cache.begin_put(model, tokens, recipe="global_kvdiff", keep=0.3) as put:
            for i, (keys, values) in enumerate(layers):
                put.layer(i, keys, values)
            segment = put.commit()

    Thread-safe; concurrent calls take turns.
    """

    def __init__(self, core: Any, model: Model) -> None:
        self._core = core
        self._done = False
        self.model = model

    def __repr__(self) -> str:
        return f"Put(tokens=[{self.begin}, {self.end}), segment={self.segment})"

    @property
    def begin(self) -> int:
        """The first token whose KV is to be pushed."""
        return self._core.begin

    @property
    def end(self) -> int:
        """One past the last token."""
        return self._core.end

    @property
    def parent(self) -> str | None:
        """The parent segment; None at the root."""
        return self._core.parent or None

    @property
    def segment(self) -> str:
        """The id that the segment will have."""
        return self._core.segment

    @property
    def already_stored(self) -> bool:
        """The same segment is stored: push nothing; commit returns the stored segment."""
        return self._core.already_stored

    @property
    def recipe(self) -> str:
        """Canonical JSON of the recipe in force."""
        return self._core.recipe

    @property
    def entries(self) -> int:
        """The number of entries that will be kept, over all layers and heads."""
        return self._core.entries

    @property
    def keep(self) -> Budget:
        """The budget of the put."""
        return from_pair(self._core.keep)

    @property
    def limited(self) -> bool:
        """Whether an operator's limit lowered the budget to `keep` (Cache.set_budget)."""
        return self._core.limited

    def layer(
        self,
        index: int,
        keys: Any,
        values: Any,
        queries: Any = None,
        lse: Any = None,
        scores: Any = None,
        query_mean: Any = None,
        query_covariance: Any = None,
        *,
        head_begin: int = 0,
        token_begin: int = 0,
        wait: bool = True,
    ) -> None:
        """Pushes one layer, or a piece of it. The arrays may be reused when it returns.

        Compression continues in the background; a later call reports its errors (for example a
        NaN).

        With ``wait=False`` it returns while the piece is in flight, at most four of them, so that
        the next layer can be computed meanwhile. The put keeps the arrays, whose contents must not
        change until wait(), commit() or abort(), or a layer() that waits.

        Args:
            keys, values: [num_kv_heads, n, head_dim] of the model's dtype; keys carry their RoPE.
                If the put has a parent, K and V of the whole path are accepted, too: their last
                tokens are pushed.
            queries: observation queries [num_q_heads, m, head_dim] of the put's last m tokens; for
                kvzip, of tokens that follow the put and repeat it.
            lse: natural log-sum-exp of the queries' q.k/sqrt(d), float32 [num_q_heads, m].
            scores: float32 [num_kv_heads, n], for recipes with external scores.
            query_mean, query_covariance: statistics of future queries, float32 [num_q_heads,
                head_dim] and [num_q_heads, head_dim, head_dim], for expected_attention.
            head_begin, token_begin: the first head and token of this piece, for tensor-parallel
                ranks and chunked prefill; tokens count from the put's first.

        Raises:
            InvalidArgument: a wrong shape, dtype or layer, or a piece that was pushed before.
        """
        index = count_in(index, "layer")
        head_begin, token_begin = (
            count_in(head_begin, "head_begin"),
            count_in(token_begin, "token_begin"),
        )
        keys = heads_in(keys, "keys")
        queries = None if queries is None else heads_in(queries, "queries")
        self._core.layer(
            index,
            exported(keys),
            exported(heads_in(values, "values")),
            exported(queries),
            floats_in(lse, "lse", None if queries is None else tuple(queries.shape[:2])),
            floats_in(scores, "scores", tuple(keys.shape[:2])),
            statistics_in(query_mean, "query_mean", 2),
            statistics_in(query_covariance, "query_covariance", 3),
            head_begin,
            token_begin,
            wait,
        )

    def layer_from_pages(
        self,
        index: int,
        pages: Pages,
        table: Any,
        first_row: int = 0,
        num_tokens: int | None = None,
        queries: Any = None,
        *,
        head_begin: int = 0,
        token_begin: int = 0,
        wait: bool = True,
    ) -> None:
        """Pushes one layer, or a piece of it, from pages.

        Rows and queries are copied into memory that a service on the same host reads in place;
        pages and queries may be reused when this returns. With ``wait=False`` it returns once they
        are copied, but if four pieces are in flight, it waits for the oldest first.

        Args:
            table: uint32 [num_heads, pages]: token t of head h is row ``first_row + t`` of the rows
                of the pages ``table[h]``, taken in order.
            num_tokens: by default the put's tokens from token_begin on.
            queries, head_begin, token_begin: as in layer().

        Raises:
            InvalidArgument: a page that does not exist, too few rows, or as for layer().
        """
        token_begin = count_in(token_begin, "token_begin")
        if num_tokens is None:
            num_tokens = max(0, self.end - self.begin - token_begin)
        self._core.layer_from_pages(
            count_in(index, "layer"),
            pages.core,
            page_numbers(table, "table", 2),
            count_in(first_row, "first_row"),
            count_in(num_tokens, "num_tokens"),
            None if queries is None else exported(heads_in(queries, "queries")),
            count_in(head_begin, "head_begin"),
            token_begin,
            wait,
        )

    def wait(self) -> None:
        """Waits until the service holds the bytes of all layers pushed with ``wait=False``."""
        self._core.wait()

    def commit(
        self,
        durability: Literal["memory", "wal", "fsync", "shared"] = "wal",
        *,
        prefill_s: float | None = None,
    ) -> Segment:
        """Makes the segment visible, atomically, and durable as asked: "memory", "wal",
        "fsync" or "shared".

        At "memory" nothing is promised: the segment may be evicted for newer segments before it is
        written. "shared" needs a cluster whose nodes share a storage. After TimedOut or an
        interrupt, commit may be called again to learn the outcome.

        Args:
            prefill_s: as in Cache.begin_put, if it is known only now; the larger of both counts.

        Raises:
            InvalidArgument: layers are missing (the message names them), or compression found an
                error.
            Error: of the class of the error that ended the put before. If that was a deadline or an
                interrupt while waiting for a layer, it is Unavailable: put again.
        """
        return self._committed(self._core.commit(durability, prefill_in(prefill_s)))

    @property
    def core(self) -> Any:
        """The C++ object."""
        return self._core

    def _committed(self, core: Any) -> Segment:
        self._done = True
        self._core.release_arrays()
        return Segment.from_core(core)

    def abort(self) -> None:
        """Ends the put; no trace is left. No effect if it has failed or been aborted before."""
        self._done = True
        self._core.abort()

    def __enter__(self) -> Put:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._done:
            return
        with contextlib.suppress(Error):  # the put may be over, for example after its own error
            self.abort()
