"""Makes a model attend over a ragged cache during each call that passes one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import AttentionInterface, Cache

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ATTENTION_NAME = "precis_ragged"


class AttendedCache(Cache):
    """A cache whose layers compute the attention; hooks tell it the begin and end of each call."""

    def begin_call(
        self, mask: Any, shape: tuple[int, int], ids: torch.Tensor | None
    ) -> torch.Tensor | None:
        """Records the inputs of a call; `shape` is [batch, n].

        Returns:
            Position ids [batch, n]; None if each column's number is its position.
        """
        raise NotImplementedError

    def end_call(self) -> None:
        """Records that the call has ended."""
        raise NotImplementedError


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
    """The function that Transformers calls as attention ATTENTION_NAME."""
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

# The attribute of a decoder with these hooks that stores its attention from before the current
# call; None between calls.
_BEFORE = "_precis_attention_before"


def attend_over_ragged(hf_model: PreTrainedModel) -> torch.nn.Module:
    """Makes the model's decoder attend over a RaggedCache if a call passes one; one call is enough.

    Returns the decoder.
    """
    decoder = hf_model.get_decoder()
    if not hasattr(decoder, _BEFORE):
        setattr(decoder, _BEFORE, None)
        decoder.register_forward_pre_hook(_before_forward, with_kwargs=True)
        decoder.register_forward_hook(_after_forward, with_kwargs=True, always_call=True)
    return decoder


def _ragged_among(args: tuple[Any, ...], kwargs: dict[str, Any]) -> AttendedCache | None:
    given = (*args, *kwargs.values())
    return next((value for value in given if isinstance(value, AttendedCache)), None)


def _before_forward(
    decoder: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    _restore(decoder)
    if (cache := _ragged_among(args, kwargs)) is None:
        return None
    ids = kwargs.get("input_ids", args[0] if args else None)
    ids = ids if torch.is_tensor(ids) else None
    read = kwargs["inputs_embeds"] if ids is None else ids
    places = cache.begin_call(kwargs.get("attention_mask"), tuple(read.shape[:2]), ids)
    setattr(decoder, _BEFORE, decoder.config._attn_implementation)
    decoder.config._attn_implementation = ATTENTION_NAME
    if places is None or kwargs.get("position_ids") is not None:
        return None
    return args, kwargs | {"position_ids": places}


def _after_forward(
    decoder: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], _output: Any
) -> None:
    _restore(decoder)
    if (cache := _ragged_among(args, kwargs)) is not None:
        cache.end_call()


def _restore(decoder: torch.nn.Module) -> None:
    """Restores the attention that the decoder had before a call.

    Also runs before the next call, because PyTorch calls no hook after a call that Ctrl-C has
    ended.
    """
    before = getattr(decoder, _BEFORE)
    if before is not None:
        decoder.config._attn_implementation = before
        setattr(decoder, _BEFORE, None)
