"""The ragged KV cache: another number of entries in every (layer, KV head).

A :class:`RaggedCache` is what a restored prefix kept, exactly as it lies in the prefix's memory,
and a dense tail of the tokens computed since. It is an ordinary Transformers cache for the model;
the attention over it is a function registered with Transformers as ``"precis_ragged"``. Evicted
entries do not exist: there is no mask over a full cache anywhere. RoPE is in the keys already, and
positions go on from the length of the original sequence.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from transformers import AttentionInterface, Cache
from transformers.cache_utils import CacheLayerMixin
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from .spec import head_dim, require_full_attention, text_config

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ATTENTION_NAME = "precis_ragged"

# Scores held at once for one KV head of one block of queries: 16 Mi floats are 64 MiB.
_BLOCK_SCORES = 1 << 24
_TAIL_TOKENS_MIN = 64


class Entries(Protocol):
    """What one head kept: arrays that DLPack understands, [count, head_dim]."""

    keys: Any
    values: Any


class Layer(Protocol):
    heads: Sequence[Entries]


class Prefix(Protocol):
    """What a RaggedCache needs of a prefix; :class:`precis.Prefix` is one."""

    matched_tokens: int
    layers: Sequence[Layer]


# Called with (layer, keys, values, queries) of the new tokens, post-RoPE, as [heads, n, head_dim].
Observer = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], None]


class _Source:
    """What the layers of one cache share. Not the cache itself: a cycle would outlive its use."""

    def __init__(self, hf_model: PreTrainedModel, prefix: Prefix | None) -> None:
        config = text_config(hf_model)
        require_full_attention(config)
        self.prefix_tokens = 0 if prefix is None else int(prefix.matched_tokens)
        self.observer: Observer | None = None
        self.num_layers = config.num_hidden_layers
        self._prefix = prefix
        self._heads, self._head_dim = config.num_key_value_heads, head_dim(config)
        self._dtype, self._device = hf_model.dtype, hf_model.device
        if prefix is not None and len(prefix.layers) != self.num_layers:
            raise ValueError(
                f"the prefix has {len(prefix.layers)} layers, the model {self.num_layers}"
            )

    def load_layer(self, index: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The kept keys and values of one layer, where attention can use them."""
        if self._prefix is None:
            none = torch.empty(0, self._head_dim, dtype=self._dtype, device=self._device)
            return [(none, none)] * self._heads
        heads = self._prefix.layers[index].heads
        if len(heads) != self._heads:
            raise ValueError(
                f"layer {index} of the prefix has {len(heads)} KV heads, the model {self._heads}"
            )
        return [(self._tensor(entries.keys), self._tensor(entries.values)) for entries in heads]

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

    def __init__(self, source: _Source, index: int) -> None:
        super().__init__()
        self._source = source
        self._index = index
        self._kept: list[tuple[torch.Tensor, torch.Tensor]] | None = None
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
        if key_states.shape[0] != 1:
            raise ValueError(
                f"a ragged cache holds one sequence; the batch is {key_states.shape[0]}"
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
        """Forgets the tail's tokens from position `max_length` on (or the last -`max_length`)."""
        length = max_length if max_length >= 0 else self.get_seq_length() + max_length
        tail = length - self._source.prefix_tokens
        if tail < 0:
            raise ValueError(
                f"cannot crop to {length} tokens, into the prefix of {self._source.prefix_tokens}"
            )
        self._tail = min(self._tail, tail)

    def reset(self) -> None:
        self._tail = 0

    # ---- the attention --------------------------------------------------------------------------

    def attend(self, module: torch.nn.Module, query: torch.Tensor, scaling: float) -> torch.Tensor:
        """Softmax attention of query [1, num_q_heads, n, head_dim], the tail's last n tokens.

        Every query sees all kept entries and the tail up to itself. Returns the output as
        Transformers wants it, [1, n, num_q_heads, head_dim].
        """
        count = query.shape[2]
        if self._source.observer is not None:
            new = slice(self._tail - count, self._tail)
            self._source.observer(
                self._index, self.keys[0, :, new], self.values[0, :, new], query[0]
            )
        kept = self.kept()
        if count == self._tail and not any(len(keys) for keys, _ in kept):
            keys, values = self.keys[:, :, :count], self.values[:, :, :count]
            return sdpa_attention_forward(module, query, keys, values, None, scaling=scaling)[0]
        group = query.shape[1] // self.keys.shape[1]
        widest = max(len(keys) for keys, _ in kept) + self._tail
        block = max(1, _BLOCK_SCORES // (group * widest))
        out = [
            self._attend_block(query[0, :, i : i + block], self._tail - count + i, scaling)
            for i in range(0, count, block)
        ]
        return torch.cat(out, dim=1).transpose(0, 1)[None]

    def kept(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Keys and values [count, head_dim] of each KV head; waits for the layer to arrive."""
        if self._kept is None:
            self._kept = self._source.load_layer(self._index)
        return self._kept

    def _attend_block(self, query: torch.Tensor, first: int, scaling: float) -> torch.Tensor:
        """The same for a block of queries that stand at tail index `first` and on."""
        num_q_heads, count, dim = query.shape
        end = first + count
        tail_keys, tail_values = self.keys[0, :, :end], self.values[0, :, :end]
        heads = tail_keys.shape[0]
        rows = query.reshape(heads, num_q_heads // heads * count, dim)  # [group, count] per KV head
        tail = (rows @ tail_keys.transpose(1, 2)).float()
        if count > 1:  # causal among the new tokens
            later = torch.ones(count, count, dtype=torch.bool, device=query.device).triu(1)
            tail.view(heads, -1, count, end)[..., first:].masked_fill_(later, -torch.inf)
        out = []
        for head, (keys, values) in enumerate(self.kept()):
            scores = torch.cat([(rows[head] @ keys.T).float(), tail[head]], dim=1)
            weights = torch.softmax(scores.mul_(scaling), dim=1).to(query.dtype)
            n = len(keys)
            out.append(weights[:, :n] @ values + weights[:, n:] @ tail_values[head])
        return torch.stack(out).view(num_q_heads, count, dim)

    def _reserve(self, tokens: int, like: torch.Tensor) -> None:
        """Makes room for `tokens` in the tail; doubles, so that each row is copied O(1) times."""
        capacity = 0 if self.keys is None else self.keys.shape[2]
        if tokens <= capacity:
            return
        shape = (1, like.shape[1], max(tokens, 2 * capacity, _TAIL_TOKENS_MIN), like.shape[3])
        keys, values = like.new_empty(shape), like.new_empty(shape)
        if self._tail:
            keys[:, :, : self._tail] = self.keys[:, :, : self._tail]
            values[:, :, : self._tail] = self.values[:, :, : self._tail]
        self.keys, self.values = keys, values


class RaggedCache(Cache):
    """A Transformers cache over a restored prefix, or over nothing yet.

    ::

        ragged = precis.hf.RaggedCache(hf_model, cache.get(match, keep=0.2))
        for token in precis.hf.generate(hf_model, question_ids, ragged): ...

    A layer of the prefix is waited for when attention first reaches it, so decoding starts while
    later layers still travel. Kept entries are used where they lie; they are copied only where the
    model's dtype or device is another one. The prefix is never written to, so that several caches
    can stand on one. Batch size 1.
    """

    def __init__(self, hf_model: PreTrainedModel, prefix: Prefix | None = None) -> None:
        self._source = _Source(hf_model, prefix)
        self.prefix = prefix
        layers = [RaggedLayer(self._source, i) for i in range(self._source.num_layers)]
        super().__init__(layers=layers)

    @property
    def prefix_tokens(self) -> int:
        """The length of the original sequence that the prefix stands for."""
        return self._source.prefix_tokens

    @contextlib.contextmanager
    def observed(self, observer: Observer) -> Iterator[None]:
        """Within the block, shows `observer` the new tokens of every layer as it is computed."""
        self._source.observer = observer
        try:
            yield
        finally:
            self._source.observer = None


def _ragged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """What Transformers calls in place of its own attention."""
    layer = getattr(key, "precis_layer", None)
    if layer is None:
        raise ValueError(f"attention {ATTENTION_NAME!r} needs past_key_values=RaggedCache(...)")
    unsupported = [name for name in ("softcap", "s_aux") if kwargs.get(name) is not None]
    if attention_mask is not None:
        unsupported.append("attention_mask")
    if unsupported:
        raise ValueError(f"attention {ATTENTION_NAME!r} does not support {', '.join(unsupported)}")
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    return layer.attend(module, query, scaling), None


AttentionInterface.register(ATTENTION_NAME, _ragged_attention)


@contextlib.contextmanager
def ragged_attention(hf_model: PreTrainedModel) -> Iterator[None]:
    """Lets `hf_model` attend over a :class:`RaggedCache` within the block.

    Only a call of the model itself needs it; the functions of precis.hf do it themselves. It is a
    setting of the model, so that one model should not serve two kinds of cache from two threads.
    """
    before = hf_model.config._attn_implementation
    hf_model.config._attn_implementation = ATTENTION_NAME
    try:
        yield
    finally:
        hf_model.config._attn_implementation = before
