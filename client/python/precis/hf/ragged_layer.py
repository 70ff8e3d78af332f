"""One layer of a ragged cache: another number of entries in every KV head, and a dense tail.

Evicted entries do not exist: there is no mask over a full cache anywhere. RoPE is in the keys
already, and positions go on from the length of the original sequence. In a layer of a sliding
window a query sees, of what was kept, what lies in its window; the positions of the entries say
which. They also say what a crop into the prefix hides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from transformers.cache_utils import CacheLayerMixin
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from .spec import attention_windows, head_dim, text_config

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Scores held at once for one KV head of one block of queries: 16 Mi floats are 64 MiB.
_BLOCK_SCORES = 1 << 24
_TAIL_TOKENS_MIN = 64


class Entries(Protocol):
    """What one head kept: arrays that DLPack understands, [count, head_dim], and [count]."""

    positions: Any  # in the original sequence; asked for where the layer has a sliding window
    keys: Any
    values: Any


class Layer(Protocol):
    heads: Sequence[Entries]


class Prefix(Protocol):
    """What a RaggedCache needs of a prefix; :class:`precis.Prefix` is one."""

    matched_tokens: int
    layers: Sequence[Layer]


class Kept(NamedTuple):
    """What one head kept, where attention can use it.

    Attributes:
        positions: only under a sliding window.
        hidden: rows that attention must not see, as a crop took them off; None for none.
    """

    keys: torch.Tensor
    values: torch.Tensor
    positions: torch.Tensor | None = None
    hidden: torch.Tensor | None = None


# Called with (layer, keys, values, queries) of the new tokens, post-RoPE, as [heads, n, head_dim].
# Queries are scaled such that the model's scores are q.k/sqrt(head_dim), whatever the model does.
Observer = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], None]


class Source:
    """What the layers of one cache share. Not the cache itself: a cycle would outlive its use.

    Attributes:
        prefix_tokens: how many tokens of the prefix count; fewer than it has once it was cropped.
        attended: whether the model that is being called attends over ragged caches.
    """

    def __init__(self, hf_model: PreTrainedModel, prefix: Prefix | None) -> None:
        config = text_config(hf_model)
        self.windows = attention_windows(config)
        self.prefix_tokens = 0 if prefix is None else int(prefix.matched_tokens)
        self.observer: Observer | None = None
        self.attended = False
        self.num_layers = config.num_hidden_layers
        self._prefix = prefix
        self._heads, self._head_dim = config.num_key_value_heads, head_dim(config)
        self._dtype, self._device = hf_model.dtype, hf_model.device
        if prefix is not None and len(prefix.layers) != self.num_layers:
            raise ValueError(
                f"the prefix has {len(prefix.layers)} layers, the model {self.num_layers}"
            )

    def load_layer(self, index: int) -> list[Kept]:
        """The kept keys and values of one layer, where attention can use them."""
        if self._prefix is None or self.prefix_tokens == 0:
            none = torch.empty(0, self._head_dim, dtype=self._dtype, device=self._device)
            return [Kept(none, none)] * self._heads
        heads = self._prefix.layers[index].heads
        if len(heads) != self._heads:
            raise ValueError(
                f"layer {index} of the prefix has {len(heads)} KV heads, the model {self._heads}"
            )
        return [self._load_head(entries, self.windows[index]) for entries in heads]

    def _load_head(self, entries: Entries, window: int | None) -> Kept:
        keys, values = self._tensor(entries.keys), self._tensor(entries.values)
        cropped = self.prefix_tokens < int(self._prefix.matched_tokens)
        if window is None and not cropped:
            return Kept(keys, values)
        positions = torch.as_tensor(
            np.asarray(entries.positions).astype(np.int64), device=self._device
        )
        if window is None:
            # Hidden and not left out: a crop takes few entries off, and the rest stay where they
            # lie.
            hidden = (positions >= self.prefix_tokens).nonzero()[:, 0]
            return Kept(keys, values, hidden=hidden if len(hidden) else None)
        # The rest is out of sight for every token to come.
        near = (positions > self.prefix_tokens - window) & (positions < self.prefix_tokens)
        if not near.all():
            keys, values, positions = keys[near], values[near], positions[near]
        return Kept(keys, values, positions)

    def _tensor(self, rows: Any) -> torch.Tensor:
        tensor = rows if isinstance(rows, torch.Tensor) else torch.from_dlpack(rows)
        if tensor.ndim != 2 or tensor.shape[1] != self._head_dim:
            raise ValueError(
                f"kept rows have shape {tuple(tensor.shape)}, the model [count, {self._head_dim}]"
            )
        return tensor.to(device=self._device, dtype=self._dtype)


class RaggedLayer(CacheLayerMixin):
    """One layer: per KV head the kept entries, and a tail that all heads share."""

    is_sliding = False

    def __init__(self, source: Source, index: int) -> None:
        super().__init__()
        self._source = source
        self._index = index
        self._window = source.windows[index]
        self._kept: list[Kept] | None = None
        self._tail = 0  # tokens in the tail; keys and values have room for more

    # ---- what Transformers calls ----------------------------------------------------------------

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.is_initialized = True

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        cache_kwargs: dict[str, Any] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Appends to the tail and returns the tail, which carries this layer to the attention."""
        if not self._source.attended:
            raise ValueError(
                "this model does not attend over a RaggedCache: make the cache for the model that "
                "is called, RaggedCache(hf_model, prefix), or call it within "
                "precis.hf.ragged_attention(hf_model)"
            )
        if self._tail and key_states.shape[0] != self.keys.shape[0]:
            raise ValueError(
                f"the batch is {key_states.shape[0]}, the ragged cache holds {self.keys.shape[0]} "
                "continuations of its prefix"
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
        """The length of the original sequence, evicted tokens included: positions go on from it."""
        return self._source.prefix_tokens + self._tail

    def get_mask_sizes(self, cache_position: torch.Tensor) -> tuple[int, int]:
        return self.get_seq_length() + cache_position.shape[0], 0

    def get_max_cache_shape(self) -> int:
        return -1

    def crop(self, max_length: int) -> None:
        """Refused: the layers of a cache have one length. RaggedCache.crop() crops them all."""
        raise ValueError("a layer of a RaggedCache is cropped with all others: RaggedCache.crop()")

    def keep_tail(self, tokens: int) -> None:
        """Forgets what of the tail comes after its first `tokens`."""
        self._tail = min(self._tail, tokens)

    def load_anew(self) -> None:
        """Asks the source again what of the prefix counts, when attention next needs it."""
        self._kept = None

    def reset(self) -> None:
        self._tail = 0

    # ---- the attention --------------------------------------------------------------------------

    def attend(
        self, module: torch.nn.Module, query: torch.Tensor, scaling: float, window: int | None
    ) -> torch.Tensor:
        """Softmax attention of query [batch, num_q_heads, n, head_dim], the tail's last n tokens.

        Every query sees the kept entries and its own tail up to itself, both as far as `window`,
        the model's own, reaches. Returns the output as Transformers wants it, [batch, n,
        num_q_heads, head_dim].
        """
        if window != self._window:
            raise ValueError(
                f"layer {self._index}: the model asks for a sliding window of {window}, its "
                f"configuration says {self._window}"
            )
        batch, _, count, _ = query.shape
        if self._source.observer is not None:
            if batch != 1:
                raise ValueError(f"one sequence can be observed; the batch is {batch}")
            factor = scaling * query.shape[-1] ** 0.5
            scaled = query[0] if abs(factor - 1) < 1e-6 else query[0] * factor
            self._source.observer(self._index, *self.last(count), scaled)
        plain = window is None or count <= window
        if count == self._tail and plain and not any(len(kept.keys) for kept in self.kept()):
            keys, values = self.keys[:, :, :count], self.values[:, :, :count]
            return sdpa_attention_forward(module, query, keys, values, None, scaling=scaling)[0]
        out = []
        for first, block in self._blocks(query):
            heads = self._scores(block, first, scaling, window)
            parts = [self._mix(scores, query.dtype, *values) for scores, *values in heads]
            out.append(torch.stack(parts, dim=1).view(block.shape))
        return torch.cat(out, dim=2).transpose(1, 2)

    def log_sum_exp(self, queries: torch.Tensor) -> torch.Tensor:
        """Natural log-sum-exp of q.k/sqrt(d) over the kept entries and the tail up to each query.

        Args:
            queries: [num_q_heads, n, head_dim] of the tail's last n tokens, as an observer is
                shown them. What a sliding window hides is counted.
        """
        scaling = queries.shape[-1] ** -0.5
        blocks = []
        for first, block in self._blocks(queries[None]):
            heads = self._scores(block, first, scaling, None)
            sums = torch.stack([scores[0].logsumexp(dim=1) for scores, *_ in heads])
            blocks.append(sums.view(block.shape[1:3]))
        return torch.cat(blocks, dim=1)

    def last(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [num_kv_heads, count, head_dim] of the tail's last tokens."""
        begin = self._tail - count
        return self.keys[0, :, begin : self._tail], self.values[0, :, begin : self._tail]

    def kept(self) -> list[Kept]:
        """What each KV head kept, [count, head_dim]; waits for the layer to arrive."""
        if self._kept is None:
            self._kept = self._source.load_layer(self._index)
        return self._kept

    def _blocks(self, query: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
        """The tail's last tokens' queries in blocks, each with the tail index of its first."""
        batch, num_q_heads, count, _ = query.shape
        widest = max(len(kept.keys) for kept in self.kept()) + self._tail
        block = max(1, _BLOCK_SCORES // (batch * num_q_heads // self.keys.shape[1] * widest))
        for i in range(0, count, block):
            yield self._tail - count + i, query[:, :, i : i + block]

    def _scores(
        self, query: torch.Tensor, first: int, scaling: float, window: int | None
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Of each KV head: f32 scores [batch, group * n, kept + tail], and the values of both.

        `query`: [batch, num_q_heads, n, head_dim], of tail index `first` and on. -inf: it does not
        see it.
        """
        batch, num_q_heads, count, dim = query.shape
        begin = 0 if window is None else max(0, first - window + 1)
        tail = slice(begin, first + count)
        heads = self.keys.shape[1]
        rows = query.reshape(batch, heads, num_q_heads // heads * count, dim)
        near = (rows @ self.keys[:, :, tail].transpose(2, 3)).float()
        places = torch.arange(first, first + count, device=query.device)[:, None]
        if count > 1:  # one query sees all of the tail that is its own window
            index = torch.arange(begin, first + count, device=query.device)
            hidden = index > places
            if window is not None:
                hidden |= index <= places - window
            near.view(batch, num_q_heads, *hidden.shape).masked_fill_(hidden, -torch.inf)
        for head, kept in enumerate(self.kept()):
            far = (rows[:, head] @ kept.keys.T).float()
            if kept.hidden is not None:
                far.index_fill_(2, kept.hidden, -torch.inf)
            if window is not None and kept.positions is not None:
                gone = kept.positions <= places + (self._source.prefix_tokens - window)
                far.view(batch, num_q_heads // heads, *gone.shape).masked_fill_(gone, -torch.inf)
            scores = torch.cat([far, near[:, head]], dim=2).mul_(scaling)
            yield scores, kept.values, self.values[:, head, tail]

    @staticmethod
    def _mix(
        scores: torch.Tensor, dtype: torch.dtype, kept: torch.Tensor, tail: torch.Tensor
    ) -> torch.Tensor:
        weights = torch.softmax(scores, dim=2).to(dtype)
        return weights[..., : len(kept)] @ kept + weights[..., len(kept) :] @ tail

    def _reserve(self, tokens: int, like: torch.Tensor) -> None:
        """Makes room for `tokens` in the tail; doubles, so that each row is copied O(1) times."""
        fits = self.keys is not None and self.keys.shape[0] == like.shape[0]
        capacity = self.keys.shape[2] if fits else 0
        if tokens <= capacity:
            return
        room = max(tokens, 2 * capacity, _TAIL_TOKENS_MIN)
        shape = (*like.shape[:2], room, like.shape[3])
        keys, values = like.new_empty(shape), like.new_empty(shape)
        if self._tail:
            keys[:, :, : self._tail] = self.keys[:, :, : self._tail]
            values[:, :, : self._tail] = self.values[:, :, : self._tail]
        self.keys, self.values = keys, values
