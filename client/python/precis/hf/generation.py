"""Lets Transformers' generate() run over a :class:`RaggedCache`: finds the tokens to read.

A prompt is either whole, or only the tokens after the cached tokens. Transformers reads the columns
after those that the cache holds. So this module rearranges both kinds before the call: first the
cache's columns, then each row's missing tokens, aligned to the right.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from transformers import GenerationMixin

from .ragged import RaggedCache

if TYPE_CHECKING:
    from transformers import GenerationConfig

# A prompt that begins with this many cached tokens is treated as a whole prompt.
_SAME_TOKENS = 16


def lay_out(
    cache: RaggedCache, input_ids: torch.Tensor, attention_mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The columns of a call: those that the cache holds, and the tokens that it lacks.

    The cache drops the tokens that a whole prompt does not share with it, and in any case the whole
    prompt's last token, so that there is a token to read.

    Args:
        input_ids: [batch, n]. Whole prompts begin with the cached tokens. If a prefix's tokens are
            unknown, a prompt that is at least as long as the cached tokens is treated as whole.
        attention_mask: [batch, n]; or [batch, held + n], which says that `input_ids` follow the
            cache.

    Returns:
        Token ids and mask, both [batch, held + new]. The ids of cached columns are 0: they are not
        read.

    Raises:
        ValueError: a prompt is neither clearly whole nor clearly a continuation, or the rows differ
            in that.
    """
    batch, width = input_ids.shape
    held = cache.get_seq_length()
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    mask = mask.to(input_ids.device, torch.bool)
    if mask.shape == (batch, held + width):
        return torch.nn.functional.pad(input_ids, (held, 0)), mask
    if mask.shape != (batch, width):
        raise ValueError(
            f"attention_mask has shape {tuple(mask.shape)}, must be {(batch, width)} for the "
            f"prompt alone, or {(batch, held + width)} with the {held} cached columns before it"
        )
    ids = input_ids.cpu()
    prompts = [row[shown] for row, shown in zip(ids, mask.cpu(), strict=True)]
    counts = cache.held(batch)
    prefixes = cache.prefix_lengths(batch)
    same = [
        _tokens_kept(*row)
        for row in zip(prompts, cache.tokens(batch), counts, prefixes, strict=True)
    ]
    follows = [kept is None for kept in same]
    if all(follow or not count for follow, count in zip(follows, counts, strict=True)):
        before = cache.attention_mask(batch).to(mask.device)
        return torch.nn.functional.pad(input_ids, (held, 0)), torch.cat([before, mask], dim=1)
    if any(follows):
        raise ValueError(
            f"row {follows.index(True)} of the batch does not begin with its cached tokens, and "
            f"row {follows.index(False)} does: give whole prompts for all rows, or for all rows "
            "only the tokens after the cached ones"
        )
    kept = cache.rewind(same)
    rest = [prompt[count:] for prompt, count in zip(prompts, kept, strict=True)]
    longest = max(map(len, rest))
    ids = torch.stack([torch.nn.functional.pad(row, (longest - len(row), 0)) for row in rest])
    new = torch.arange(longest) >= torch.tensor([longest - len(row) for row in rest])[:, None]
    before = cache.attention_mask(batch).to(mask.device)
    ids = torch.nn.functional.pad(ids, (before.shape[1], 0)).to(input_ids.device)
    return ids, torch.cat([before, new.to(mask.device)], dim=1)


def _tokens_kept(
    prompt: torch.Tensor, tokens: torch.Tensor | None, held: int, prefix: int
) -> int | None:
    """How many of a row's cached tokens to keep; None if the prompt follows all of them.

    `prefix`: how many of the `held` tokens belong to the prefix.
    """
    if len(prompt) == 0:
        raise ValueError("a row of the prompt has no tokens, or attention_mask hides them all")
    if held == 0:
        return 0
    if tokens is None:
        return min(held, len(prompt) - 1) if len(prompt) >= held else None
    both = min(len(prompt), len(tokens))
    unlike = (prompt[:both] != tokens[:both]).nonzero()
    common = int(unlike[0]) if len(unlike) else both
    if common >= max(prefix, min(held, _SAME_TOKENS)):
        return min(common, len(prompt) - 1)
    if common >= _SAME_TOKENS:
        raise ValueError(
            f"the prompt of {len(prompt)} tokens begins with {common} of the prefix's {prefix} "
            "tokens, not with all of them. Give a whole prompt that begins with the prefix; or, if "
            "this prompt follows the prefix, an attention_mask of all columns: "
            "torch.cat([ragged.attention_mask(batch), mask], dim=1)"
        )
    return None


def _begin(
    cache: RaggedCache,
    input_ids: torch.Tensor,
    config: GenerationConfig,
    model_kwargs: dict[str, Any],
) -> torch.Tensor:
    """Makes generate() start with the tokens that the cache lacks; returns the ids to read."""
    if config.prefill_chunk_size is not None:
        raise ValueError(
            "prefill_chunk_size: generate() cannot read in chunks over a RaggedCache; unset it"
        )
    if model_kwargs.get("use_cache") is False:
        raise ValueError(
            "use_cache=False: generate() over a RaggedCache needs a cache; leave it out"
        )
    embeds = model_kwargs.get("inputs_embeds")
    if embeds is not None:
        if len(cache.prefixes) > 1:
            raise ValueError("inputs_embeds: over several prefixes, give input_ids")
        cache.leave_a_token(embeds.shape[1])
        return input_ids
    mask = model_kwargs.get("attention_mask")
    # Newer versions of Transformers drop a mask that hides nothing, and keep its length.
    length = getattr(config, "_mask_length", None)
    if mask is None and length is not None and length > 0:
        mask = input_ids.new_ones(len(input_ids), length)
    input_ids, mask = lay_out(cache, input_ids, mask)
    model_kwargs["attention_mask"] = mask.long()
    if "position_ids" in model_kwargs:
        model_kwargs["position_ids"] = (mask.cumsum(-1) - 1).clamp_min(0)
    return input_ids


def _cache_of(model_kwargs: dict[str, Any]) -> Any:
    """The cache of a call; newer versions of Transformers call it `cache`."""
    return model_kwargs.get("past_key_values", model_kwargs.get("cache"))


def over_ragged_caches() -> None:
    """Patches Transformers' generate() to use lay_out() if its cache is a RaggedCache."""
    prefill, assisted = GenerationMixin._prefill, GenerationMixin._assisted_decoding

    @functools.wraps(prefill)
    def ragged_prefill(
        self: Any,
        input_ids: torch.Tensor,
        generation_config: GenerationConfig,
        model_kwargs: dict[str, Any],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        cache = _cache_of(model_kwargs)
        if isinstance(cache, RaggedCache) and model_kwargs.get("cache_position") is None:
            input_ids = _begin(cache, input_ids, generation_config, model_kwargs)
        return prefill(self, input_ids, generation_config, model_kwargs, *args, **kwargs)

    @functools.wraps(assisted)
    def ragged_assisted(self: Any, input_ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        cache = _cache_of(kwargs)
        if isinstance(cache, RaggedCache):
            if cache.get_seq_length() and not hasattr(self, "_get_initial_cache_position"):
                raise ValueError(
                    "assisted generation of this version of Transformers reads the whole prompt "
                    "again, so it cannot continue from a RaggedCache; use generate() without it"
                )
            ids, _ = lay_out(cache, input_ids, kwargs.get("attention_mask"))
            if ids.shape != input_ids.shape:
                raise ValueError("assisted generation over a RaggedCache needs the whole prompt")
        return assisted(self, input_ids, *args, **kwargs)

    GenerationMixin._prefill = ragged_prefill
    GenerationMixin._assisted_decoding = ragged_assisted
