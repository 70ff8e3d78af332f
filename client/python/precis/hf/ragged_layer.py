"""One layer of a ragged cache: the kept entries, any number per KV head, and a dense tail.

Evicted entries are absent instead of masked. RoPE is already in the keys, and positions continue
from the length of the original sequence. The entries' positions tell which of them a query sees in
a layer with a sliding window, and which a crop into the prefix hides.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from transformers.cache_utils import CacheLayerMixin
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from .. import _core
from ..arrays import Float8Array
from . import merged
from .spec import attention_windows, head_dim, text_config

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# The most scores computed at a time for one KV head and one block of queries: 16 Mi floats are 64
# MiB.
_BLOCK_SCORES = 1 << 24
_TAIL_TOKENS_MIN = 64


@functools.cache
def _kernel() -> Any:
    """The attention of one token, on as many threads as torch uses."""
    return _core.RaggedAttention(torch.get_num_threads())


class Entries(Protocol):
    """The kept entries of one head: DLPack arrays, K and V [count, head_dim], positions [count]."""

    positions: Any  # in the original sequence; used if the layer has a sliding window
    keys: Any
    values: Any


class Layer(Protocol):
    heads: Sequence[Entries]


class Prefix(Protocol):
    """The part of a prefix that a RaggedCache uses; :class:`precis.Prefix` has it."""

    matched_tokens: int
    layers: Sequence[Layer]


class Kept(NamedTuple):
    """The kept entries of one head, as tensors for attention.

    Attributes:
        positions: only with a sliding window.
        hidden: rows that attention must not see, because a crop dropped them; None for none.
    """

    keys: torch.Tensor
    values: torch.Tensor
    positions: torch.Tensor | None = None
    hidden: torch.Tensor | None = None


# Called with (layer, keys, values, queries) of the new tokens, post-RoPE, as [heads, n, head_dim].
# Queries are scaled so that the model's scores are q.k/sqrt(head_dim) for every model.
Observer = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], None]


class Source:
    """The state that the layers of one cache share.

    The rows of a batch belong to the prefixes in order, the same number of rows to each.

    Attributes:
        lengths: how many tokens of each prefix are used; after a crop fewer than it has.
        seen: which columns of the tail each row sees, bool [batch, columns]; None: all columns.
        attended: whether the model of the current call attends over ragged caches.
    """

    def __init__(self, hf_model: PreTrainedModel, prefixes: Sequence[Prefix | None]) -> None:
        config = text_config(hf_model)
        self.windows = attention_windows(config)
        self.lengths = [0 if prefix is None else int(prefix.matched_tokens) for prefix in prefixes]
        self.seen: torch.Tensor | None = None
        self.observer: Observer | None = None
        self.attended = False
        self.num_layers = config.num_hidden_layers
        self._prefixes = prefixes
        self._heads, self._head_dim = config.num_key_value_heads, head_dim(config)
        self._dtype, self.device = hf_model.dtype, hf_model.device
        for prefix in prefixes:
            if prefix is not None and len(prefix.layers) != self.num_layers:
                raise ValueError(
                    f"the prefix has {len(prefix.layers)} layers, the model {self.num_layers}"
                )

    def copy(self) -> Source:
        """The same state for another cache, which no observer watches."""
        other = copy.copy(self)
        other.lengths, other.observer = list(self.lengths), None
        other.seen = None if self.seen is None else self.seen.clone()
        return other

    @property
    def prefix_tokens(self) -> int:
        """The number of columns before the tail: the length of the longest prefix."""
        return max(self.lengths)

    def rows_of(self, batch: int) -> list[slice]:
        """The rows of a batch that belong to each prefix.

        Raises:
            ValueError: the batch is not a multiple of the number of prefixes.
        """
        each, rest = divmod(batch, len(self.lengths))
        if rest:
            raise ValueError(
                f"the batch is {batch}, must be a multiple of the ragged cache's "
                f"{len(self.lengths)} prefixes"
            )
        return [slice(i * each, (i + 1) * each) for i in range(len(self.lengths))]

    def places(self, which: int, rows: slice, columns: int) -> torch.Tensor:
        """The positions of the tail's first `columns` in each row's sequence, [rows or 1, columns].

        `rows` belong to prefix `which`. A column that a row does not see repeats the position
        before it.
        """
        if self.seen is None:
            places = torch.arange(columns, device=self.device)[None]
        else:
            places = (self.seen[rows, :columns].cumsum(1) - 1).clamp_min(0)
        return places + self.lengths[which]

    def entries(self, index: int) -> Iterator[tuple[np.ndarray, torch.Tensor, torch.Tensor]]:
        """Positions, keys and values of the used entries of each head, of the only prefix."""
        (prefix,), (length,) = self._prefixes, self.lengths
        if prefix is None:
            yield from [(np.empty(0, np.uint32), self._no_rows(), self._no_rows())] * self._heads
            return
        for entries in prefix.layers[index].heads:
            positions = np.asarray(entries.positions)
            keys, values = self._tensor(entries.keys), self._tensor(entries.values)
            if length < int(prefix.matched_tokens):
                used = np.flatnonzero(positions < length)
                rows = torch.from_numpy(used).to(self.device)
                positions, keys, values = positions[used], keys[rows], values[rows]
            yield positions, keys, values

    def _no_rows(self) -> torch.Tensor:
        return torch.empty(0, self._head_dim, dtype=self._dtype, device=self.device)

    def replace(self, prefix: Prefix) -> None:
        """Takes another prefix instead of the only one."""
        self._prefixes, self.lengths = (prefix,), [int(prefix.matched_tokens)]

    def rows_shape(self, tokens: int) -> tuple[int, int, int]:
        """The shape of K or V of so many tokens of a layer, [heads, n, head_dim]."""
        return self._heads, tokens, self._head_dim

    def load_layer(self, index: int, which: int) -> list[Kept]:
        """The kept keys and values of a layer of one prefix, as tensors for attention."""
        prefix, length = self._prefixes[which], self.lengths[which]
        if prefix is None or length == 0:
            return [Kept(self._no_rows(), self._no_rows())] * self._heads
        heads = prefix.layers[index].heads
        if len(heads) != self._heads:
            raise ValueError(
                f"layer {index} of the prefix has {len(heads)} KV heads, the model {self._heads}"
            )
        cropped = length < int(prefix.matched_tokens)
        return [self._load_head(entries, self.windows[index], length, cropped) for entries in heads]

    def _load_head(self, entries: Entries, window: int | None, length: int, cropped: bool) -> Kept:
        keys, values = self._tensor(entries.keys), self._tensor(entries.values)
        if window is None and not cropped:
            return Kept(keys, values)
        positions = torch.as_tensor(
            np.asarray(entries.positions).astype(np.int64), device=self.device
        )
        if window is None:
            # The entries are hidden instead of removed, so that the others need not be copied.
            hidden = (positions >= length).nonzero()[:, 0]
            return Kept(keys, values, hidden=hidden if len(hidden) else None)
        # No future token has the other entries in its window.
        near = (positions > length - window) & (positions < length)
        if not near.all():
            keys, values, positions = keys[near], values[near], positions[near]
        return Kept(keys, values, positions)

    def _tensor(self, rows: Any) -> torch.Tensor:
        tensor = rows if isinstance(rows, torch.Tensor) else torch.from_dlpack(rows)
        if isinstance(rows, Float8Array):
            tensor = tensor.view(torch.float8_e4m3fn)
        if tensor.ndim != 2 or tensor.shape[1] != self._head_dim:
            raise ValueError(
                f"kept rows have shape {tuple(tensor.shape)}, the model [count, {self._head_dim}]"
            )
        return tensor.to(device=self.device, dtype=self._dtype)


class RaggedLayer(CacheLayerMixin):
    """One layer: the kept entries of each KV head, and a tail that all heads share."""

    is_sliding = False
    is_croppable = True

    def __init__(self, source: Source, index: int) -> None:
        super().__init__()
        self._source = source
        self._index = index
        self.window = source.windows[index]
        self._kept: dict[int, list[Kept]] = {}  # by prefix
        self._kept_rows: dict[int, Any] = {}  # the same, for the kernel
        self._tail = 0  # tokens in the tail; keys and values have room for more
        self._shared = False  # another layer may use the memory of the tail

    # ---- calls from Transformers ----------------------------------------------------------------

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.is_initialized = True

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *_args: Any,
        **_kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Appends to the tail and returns it, with this layer as an attribute for the attention."""
        if not self._source.attended:
            raise ValueError(
                "this model does not attend over a RaggedCache: make the cache for the model that "
                "is called, RaggedCache(hf_model, prefix)"
            )
        if self._tail and key_states.shape[0] != self.keys.shape[0]:
            raise ValueError(
                f"the batch is {key_states.shape[0]}, the ragged cache holds {self.keys.shape[0]} "
                "rows"
            )
        self.lazy_initialization(key_states, value_states)
        begin, end = self._tail, self._tail + key_states.shape[2]
        self._reserve(end, key_states)
        self.keys[:, :, begin:end] = key_states
        self.values[:, :, begin:end] = value_states
        self._tail = end
        keys, values = self.keys[:, :, :end], self.values[:, :, :end]
        keys.precis_layer = self
        return keys, values

    def get_seq_length(self) -> int:
        """The length of the sequence including evicted tokens; positions continue from it."""
        return self._source.prefix_tokens + self._tail

    def get_mask_sizes(self, query: torch.Tensor | int) -> tuple[int, int]:
        """`query`: the columns of the queries, or, in newer versions, their number."""
        return self.get_seq_length() + (query if isinstance(query, int) else len(query)), 0

    def get_max_cache_shape(self) -> int:
        return -1

    def get_max_length(self) -> int:
        """The name of get_max_cache_shape() in newer versions of Transformers."""
        return -1

    def crop(self, max_length: int) -> None:
        """Raises ValueError: only RaggedCache.crop() may crop, as all layers have one length."""
        raise ValueError(
            "one layer of a RaggedCache cannot be cropped alone; call RaggedCache.crop()"
        )

    def keep_tail(self, tokens: int) -> None:
        """Drops the tail's tokens after the first `tokens`."""
        self._tail = min(self._tail, tokens)

    def rest_of_tail(self, first: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A copy of the tail's tokens from the one at index `first` on."""
        rest = slice(first, self._tail)
        return self.keys[:, :, rest].clone(), self.values[:, :, rest].clone()

    def replace_tail(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Takes another tail, and releases the memory of the one before."""
        self.keys, self.values, self._shared = keys, values, False
        self._tail = keys.shape[2]

    def load_anew(self) -> None:
        """Drops the loaded entries; the next use loads them from the source again."""
        self._kept, self._kept_rows = {}, {}

    def reset(self) -> None:
        self._tail = 0

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeats every row of the tail."""
        if self._tail:
            self.replace_tail(*(rows.repeat_interleave(repeats, 0) for rows in self._rows()))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keeps only some rows of the tail."""
        if self._tail:
            self.replace_tail(*(rows[indices.to(rows.device)] for rows in self._rows()))

    def _rows(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.keys[:, :, : self._tail], self.values[:, :, : self._tail]

    def fork(self, source: Source) -> RaggedLayer:
        """A layer with the same entries, for the cache of `source`."""
        self._shared = True
        other = copy.copy(self)
        other._source, other._kept = source, dict(self._kept)
        other._kept_rows = dict(self._kept_rows)
        return other

    # ---- the attention --------------------------------------------------------------------------

    def attend(
        self, module: torch.nn.Module, query: torch.Tensor, scaling: float, window: int | None
    ) -> torch.Tensor:
        """Softmax attention of query [batch, num_q_heads, n, head_dim], the tail's last n tokens.

        Every query sees the kept entries and the tail up to itself, both within the model's
        `window`. Returns [batch, n, num_q_heads, head_dim], as Transformers expects.
        """
        if window != self.window:
            raise ValueError(
                f"layer {self._index}: the model asks for a sliding window of {window}, its "
                f"configuration says {self.window}"
            )
        batch, _, count, _ = query.shape
        if self._source.observer is not None:
            if batch != 1:
                raise ValueError(f"one sequence can be observed; the batch is {batch}")
            factor = scaling * query.shape[-1] ** 0.5
            scaled = query[0] if abs(factor - 1) < 1e-6 else query[0] * factor
            self._source.observer(self._index, *self.last(count), scaled)
        if count == self._tail and (window is None or count <= window) and self._causal():
            keys, values = self.keys[:, :, :count], self.values[:, :, :count]
            return sdpa_attention_forward(module, query, keys, values, None, scaling=scaling)[0]
        attend = self._attend_rows
        if count == 1 and self._fits_kernel(query, window):
            attend = self._decode_rows
        elif window is None and self._sees_all_before(query):
            attend = self._merge_rows
        out = [
            attend(query[rows], scaling, window, which, rows)
            for which, rows in enumerate(self._source.rows_of(batch))
        ]
        return torch.cat(out).transpose(1, 2)

    def _fits_kernel(self, query: torch.Tensor, window: int | None) -> bool:
        """Whether the kernel for one token can compute it: every row is seen, on the CPU."""
        if query.device.type != "cpu" or torch.is_grad_enabled() or window is not None:
            return False
        return self._all_seen()

    def _sees_all_before(self, query: torch.Tensor) -> bool:
        """Whether merged.py can compute it: queries see all kept entries and the tail before."""
        return merged.is_available(query) and self._all_seen()

    def _all_seen(self) -> bool:
        """Whether no entry is hidden from later queries but by a sliding window."""
        kept = (each for which in range(len(self._source.lengths)) for each in self.kept(which))
        return self._source.seen is None and all(each.hidden is None for each in kept)

    def _decode_rows(
        self, query: torch.Tensor, scaling: float, _window: int | None, which: int, rows: slice
    ) -> torch.Tensor:
        """The attention of one token of one prefix's rows, [rows, num_q_heads, 1, head_dim]."""
        if which not in self._kept_rows:
            kept = self.kept(which)
            self._kept_rows[which] = _core.KeptRows(
                [each.keys.contiguous()[None] for each in kept],
                [each.values.contiguous()[None] for each in kept],
            )
        out = torch.empty(query.shape, dtype=torch.float32)
        for i, row in enumerate(range(rows.start, rows.stop)):
            tail = (self.keys[row, :, : self._tail], self.values[row, :, : self._tail])
            queries = query[i, :, 0].float().contiguous().numpy()
            mixed = _kernel().attend(self._kept_rows[which], queries, *tail, scaling)
            out[i, :, 0] = torch.from_numpy(mixed)
        return out.to(query.dtype)

    def _causal(self) -> bool:
        """Whether every query sees the whole tail up to itself and nothing else."""
        count = len(self._source.lengths)
        return self._source.seen is None and not any(
            len(kept.keys) for which in range(count) for kept in self.kept(which)
        )

    def _merge_rows(
        self, query: torch.Tensor, scaling: float, _window: int | None, which: int, rows: slice
    ) -> torch.Tensor:
        """As _attend_rows(), by merged.py."""
        return self._merged(query, scaling, which, rows).out.to(query.dtype)

    def _merged(self, query: torch.Tensor, scaling: float, which: int, rows: slice) -> merged.Part:
        tail = self.keys[rows, :, : self._tail], self.values[rows, :, : self._tail]
        return merged.attend(query, self.kept(which), *tail, scaling)

    def _attend_rows(
        self,
        query: torch.Tensor,
        scaling: float,
        window: int | None,
        which: int,
        rows: slice,
    ) -> torch.Tensor:
        """The attention of one prefix's rows, [rows, num_q_heads, n, head_dim]."""
        out = []
        for first, block in self._blocks(query, which):
            heads = self._scores(block, first, scaling, window, which, rows)
            parts = [self._mix(scores, query.dtype, *values) for scores, *values in heads]
            out.append(torch.stack(parts, dim=1).view(block.shape))
        return torch.cat(out, dim=2)

    def log_sum_exp(self, queries: torch.Tensor, in_window: bool = False) -> torch.Tensor:
        """Natural log-sum-exp of q.k/sqrt(d) over the kept entries and the tail up to each query.

        Args:
            queries: [num_q_heads, n, head_dim] of the tail's last n tokens, as an observer gets
                them.
            in_window: leave out the entries outside the layer's sliding window.
        """
        scaling = queries.shape[-1] ** -0.5
        window = self.window if in_window else None
        if window is None and self._sees_all_before(queries):
            return self._merged(queries[None], scaling, 0, slice(0, 1)).lse[0]
        blocks = []
        for first, block in self._blocks(queries[None], 0):
            heads = self._scores(block, first, scaling, window, 0, slice(0, 1))
            sums = torch.stack([scores[0].logsumexp(dim=1) for scores, *_ in heads])
            blocks.append(sums.view(block.shape[1:3]))
        return torch.cat(blocks, dim=1)

    def last(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [num_kv_heads, count, head_dim] of the tail's last tokens."""
        begin = self._tail - count
        return self.keys[0, :, begin : self._tail], self.values[0, :, begin : self._tail]

    def kept(self, which: int = 0) -> list[Kept]:
        """The kept entries per KV head of one prefix, [count, head_dim]; waits for the layer."""
        if which not in self._kept:
            self._kept[which] = self._source.load_layer(self._index, which)
        return self._kept[which]

    def _blocks(self, query: torch.Tensor, which: int) -> Iterator[tuple[int, torch.Tensor]]:
        """The queries in blocks, each with the index in the tail of its first query."""
        batch, num_q_heads, count, _ = query.shape
        widest = max(len(kept.keys) for kept in self.kept(which)) + self._tail
        block = max(1, _BLOCK_SCORES // (batch * num_q_heads // self.keys.shape[1] * widest))
        for i in range(0, count, block):
            yield self._tail - count + i, query[:, :, i : i + block]

    def _scores(
        self,
        query: torch.Tensor,
        first: int,
        scaling: float,
        window: int | None,
        which: int,
        rows: slice,
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """For each KV head: f32 scores [batch, group * n, kept + tail], and the values of both.

        `query`: [batch, num_q_heads, n, head_dim], from index `first` in the tail on, for the
        `rows` of prefix `which`. A score is -inf if the query does not see the entry.
        """
        batch, num_q_heads, count, dim = query.shape
        begin = 0
        if window is not None and self._source.seen is None:
            begin = max(0, first - window + 1)
        tail = slice(begin, first + count)
        heads = self.keys.shape[1]
        grouped = query.reshape(batch, heads, num_q_heads // heads * count, dim)
        near = (grouped @ self.keys[rows, :, tail].transpose(2, 3)).float()
        places = None if window is None else self._source.places(which, rows, first + count)
        hidden = self._hidden(first, tail, window, rows, places)
        if hidden is not None:
            near.view(batch, num_q_heads, count, -1).masked_fill_(hidden[:, None], -torch.inf)
        for head, kept in enumerate(self.kept(which)):
            far = (grouped[:, head] @ kept.keys.T).float()
            if kept.hidden is not None:
                far.index_fill_(2, kept.hidden, -torch.inf)
            if places is not None and kept.positions is not None:
                gone = kept.positions <= places[:, first:, None] - window
                shape = (batch, num_q_heads // heads, count, len(kept.positions))
                far.view(shape).masked_fill_(gone[:, None], -torch.inf)
            scores = torch.cat([far, near[:, head]], dim=2).mul_(scaling)
            yield scores, kept.values, self.values[rows, head, tail]

    def _hidden(
        self,
        first: int,
        tail: slice,
        window: int | None,
        rows: slice,
        places: torch.Tensor | None,
    ) -> torch.Tensor | None:
        """The entries of `tail` that the queries do not see, bool [rows or 1, n, tail].

        The queries are those from index `first` in the tail on. None: they see all of `tail`. Every
        query sees its own token, even padding: a softmax over nothing would be NaN.
        """
        seen = self._source.seen
        if tail.stop - first == 1 and seen is None:  # `tail` begins with its window
            return None
        column = torch.arange(tail.stop, device=self.keys.device)
        index, own = column[None, tail], column[first:, None]
        hidden = (index > own)[None]
        if window is not None:
            hidden = hidden | (places[:, None, tail] <= places[:, first:, None] - window)
        if seen is not None:
            hidden = hidden | (~seen[rows, None, tail] & (index != own))
        return hidden

    @staticmethod
    def _mix(
        scores: torch.Tensor, dtype: torch.dtype, kept: torch.Tensor, tail: torch.Tensor
    ) -> torch.Tensor:
        weights = torch.softmax(scores, dim=2).to(dtype)
        return weights[..., : len(kept)] @ kept + weights[..., len(kept) :] @ tail

    def _reserve(self, tokens: int, like: torch.Tensor) -> None:
        """Makes room for `tokens` in the tail; doubles, so that a row is copied O(1) times."""
        fits = self.keys is not None and self.keys.shape[0] == like.shape[0]
        capacity = self.keys.shape[2] if fits else 0
        if tokens <= capacity and not self._shared:
            return
        room = capacity if fits and tokens <= capacity else max(tokens, 2 * capacity)
        room = max(room, _TAIL_TOKENS_MIN)
        shape = (*like.shape[:2], room, like.shape[3])
        keys, values = like.new_empty(shape), like.new_empty(shape)
        if self._tail:
            keys[:, :, : self._tail] = self.keys[:, :, : self._tail]
            values[:, :, : self._tail] = self.values[:, :, : self._tail]
        self.keys, self.values, self._shared = keys, values, False
