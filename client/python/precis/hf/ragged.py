"""The ragged KV cache: another number of entries in every (layer, KV head).

A :class:`RaggedCache` is what a restored prefix kept, exactly as it lies in the prefix's memory,
and a dense tail of the tokens computed since. It is an ordinary Transformers cache for the model;
the attention over it is a function registered with Transformers as ``"precis_ragged"``, which a
model takes for as long as it is called with such a cache.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from transformers import AttentionInterface, Cache, GenerationMixin

from .ragged_layer import Observer, Prefix, RaggedLayer, Source

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ATTENTION_NAME = "precis_ragged"


class RaggedCache(Cache):
    """A Transformers cache over a restored prefix, or over nothing yet.

    ::

        ragged = precis.hf.RaggedCache(hf_model, cache.get(match, keep=0.2))
        for token in precis.hf.generate(hf_model, question_ids, ragged): ...

    ``hf_model.generate(prompt_ids, past_key_values=ragged)`` takes the whole prompt, with the
    tokens that the prefix stands for. A prompt that the cache holds whole is continued: its last
    token is run again, over the cache without it.

    A layer of the prefix is waited for when attention first reaches it, so decoding starts while
    later layers still travel. Kept entries are used where they lie; they are copied only where the
    model's dtype or device is another one. The prefix is never written to, so that several caches
    can stand on one. A batch is so many continuations of the one prefix, all of the same length.
    """

    def __init__(self, hf_model: PreTrainedModel, prefix: Prefix | None = None) -> None:
        self._source = Source(hf_model, prefix)
        self.prefix = prefix
        # Token ids that were fed, each call's with the position of its first; None: not known.
        self._fed: list[tuple[int, torch.Tensor | None]] = []
        layers = [RaggedLayer(self._source, i) for i in range(self._source.num_layers)]
        super().__init__(layers=layers)
        _attend_over_ragged(hf_model)

    @property
    def prefix_tokens(self) -> int:
        """The length of the original sequence that the prefix stands for, or was cropped to."""
        return self._source.prefix_tokens

    def crop(self, max_length: int) -> None:
        """Forgets what stands at position `max_length` and after it (or the last -`max_length`).

        That may reach into the prefix: the entries that it kept of those positions are seen no
        more by this cache, all others as before. Another cache over the same prefix sees them.

        Raises:
            ValueError: the cache holds fewer than -`max_length` tokens.
        """
        held = self.get_seq_length()
        length = max_length if max_length >= 0 else held + max_length
        if length < 0:
            raise ValueError(f"cannot crop {-max_length} tokens off a cache of {held}")
        into_prefix = length < self._source.prefix_tokens
        self._source.prefix_tokens = min(self._source.prefix_tokens, length)
        for layer in self.layers:
            layer.keep_tail(length - self._source.prefix_tokens)
            if into_prefix:
                layer.load_anew()
        self._fed = [(begin, ids) for begin, ids in self._fed if begin < length]

    def take_back(self) -> int:
        """Crops the last token off and returns its id, to be fed again.

        Raises:
            ValueError: the cache is empty, or does not know the token.
        """
        length = self.get_seq_length()
        token = self._last_token(length)
        self.crop(length - 1)
        return token

    def _last_token(self, length: int) -> int:
        if length == 0:
            raise ValueError("no tokens are given and the cache holds none")
        begin, ids = self._fed[-1] if self._fed else (0, None)
        if ids is None and length <= self.prefix_tokens:
            ids = getattr(getattr(self.prefix, "match", None), "tokens", None)
            ids = None if ids is None else torch.as_tensor(ids.astype("int64"))[None]
        if ids is None:
            raise ValueError(
                "the id of the cache's last token is not known: crop(-1) and feed that token"
            )
        if ids.shape[0] != 1:
            raise ValueError(f"one sequence is needed; the cache holds {ids.shape[0]}")
        return int(ids[0, length - 1 - begin])

    def leave_a_token(self, prompt_tokens: int) -> None:
        """Makes room for the last token of a whole prompt, where the cache holds all of it.

        Raises:
            ValueError: the cache holds more than that.
        """
        held = self.get_seq_length()
        if held > prompt_tokens:
            raise ValueError(
                f"the prompt has {prompt_tokens} tokens, the cache holds {held}: generate() of "
                "Transformers takes the whole prompt, with the tokens that the cache holds; "
                "precis.hf.generate() takes those that follow"
            )
        if held == prompt_tokens > 0:
            self.crop(held - 1)

    @contextlib.contextmanager
    def observed(self, observer: Observer) -> Iterator[None]:
        """Within the block, shows `observer` the new tokens of every layer as it is computed."""
        self._source.observer = observer
        try:
            yield
        finally:
            self._source.observer = None

    def _begin_call(self, mask: Any, ids: Any) -> None:
        if isinstance(mask, torch.Tensor) and mask.ndim == 2 and not bool(mask.all()):
            raise ValueError(
                "attention_mask hides tokens (padding, say); all of a RaggedCache's are seen: "
                "give sequences of one length"
            )
        self._fed.append((self.get_seq_length(), ids.clone() if torch.is_tensor(ids) else None))
        self._source.attended = True

    def _end_call(self) -> None:
        self._source.attended = False


# ---- how a model comes to attend over it --------------------------------------------------------


def _ragged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
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
    window = kwargs.get("sliding_window")
    return layer.attend(module, query, scaling, window), None


AttentionInterface.register(ATTENTION_NAME, _ragged_attention)

# On a decoder with our hooks: the attention that it had before the call under way; None between
# calls.
_BEFORE = "_precis_attention_before"


def _attend_over_ragged(hf_model: PreTrainedModel) -> torch.nn.Module:
    """Has the model's decoder attend over each RaggedCache that it is called with; once is enough.

    Returns the decoder.
    """
    decoder = hf_model.get_decoder()
    if not hasattr(decoder, _BEFORE):
        setattr(decoder, _BEFORE, None)
        decoder.register_forward_pre_hook(_before_forward, with_kwargs=True)
        decoder.register_forward_hook(_after_forward, with_kwargs=True, always_call=True)
    return decoder


def _ragged_among(args: tuple[Any, ...], kwargs: dict[str, Any]) -> RaggedCache | None:
    given = (*args, *kwargs.values())
    return next((value for value in given if isinstance(value, RaggedCache)), None)


def _before_forward(
    decoder: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    _restore(decoder)
    if (cache := _ragged_among(args, kwargs)) is None:
        return
    ids = kwargs.get("input_ids", args[0] if args else None)
    cache._begin_call(kwargs.get("attention_mask"), ids)
    setattr(decoder, _BEFORE, decoder.config._attn_implementation)
    decoder.config._attn_implementation = ATTENTION_NAME


def _after_forward(
    decoder: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], _output: Any
) -> None:
    _restore(decoder)
    if (cache := _ragged_among(args, kwargs)) is not None:
        cache._end_call()


def _restore(decoder: torch.nn.Module) -> None:
    """Gives the decoder the attention back that it had before a call.

    Also before the next one: PyTorch calls no hook after a call that Ctrl-C has ended.
    """
    before = getattr(decoder, _BEFORE)
    if before is not None:
        decoder.config._attn_implementation = before
        setattr(decoder, _BEFORE, None)


@contextlib.contextmanager
def ragged_attention(hf_model: PreTrainedModel) -> Iterator[None]:
    """Lets `hf_model` attend over a :class:`RaggedCache` within the block, and over no other cache.

    A model for which a RaggedCache was made needs it no more: it takes this attention by itself
    when it is called with one. It is a setting of the model while a call lasts, so that one model
    should not serve two kinds of cache from two threads.
    """
    _restore(_attend_over_ragged(hf_model))
    before = hf_model.config._attn_implementation
    hf_model.config._attn_implementation = ATTENTION_NAME
    try:
        yield
    finally:
        hf_model.config._attn_implementation = before


def _continue_whole_prompts() -> None:
    """Has generate() of Transformers continue a prompt that a RaggedCache holds whole.

    It would feed the tokens that the cache does not hold, which are none, and fail: it leaves it to
    the cache to take the last one back. This is the first place that knows the prompt's length and
    the cache. In a version of Transformers without it the same is ``cache.crop(-1)`` before the
    call.
    """
    original = getattr(GenerationMixin, "_get_initial_cache_position", None)
    if original is None:
        return

    @functools.wraps(original)
    def initial(self: Any, seq_length: int, device: Any, model_kwargs: dict[str, Any]) -> Any:
        cache = model_kwargs.get("past_key_values")
        if isinstance(cache, RaggedCache) and model_kwargs.get("cache_position") is None:
            embeds = model_kwargs.get("inputs_embeds")
            cache.leave_a_token(seq_length if embeds is None else embeds.shape[1])
        return original(self, seq_length, device, model_kwargs)

    GenerationMixin._get_initial_cache_position = initial


_continue_whole_prompts()
