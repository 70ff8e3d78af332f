"""Compression of a live cache, while a model generates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import torch

from ..arrays import count_in
from ..compress import compress
from ..model import profile_for
from .spec import DTYPE_NAMES, model_spec

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ..budget import Keep
    from .ragged import RaggedCache

_TRIED_TOKENS = 8


@dataclass(frozen=True)
class WhileDecoding:
    """How generate() compresses a cache that grows.

    Attributes:
        every_k: once so many tokens and the recent ones follow the prefix, all but the recent ones
            are compressed together.
        keep, recipe: as in precis.compress. Only recipes that need K and V alone. `keep` is best a
            share of the entries, which is also the share of the memory, because the rows stay in
            the model's dtype. A number of entries or bytes applies to each compression anew.
        profile: of these weights; its model's name and revision do not matter.
        recent: so many last tokens stay as they are, because many heads attend to near tokens.
    """

    every_k: int = 512
    keep: Keep = 0.3
    recipe: str = "global_kvdiff"
    profile: str | None = field(default=None, repr=False)
    recent: int = 64

    def __post_init__(self) -> None:
        if count_in(self.every_k, "every_k") == 0:
            raise ValueError("every_k: is 0, must be positive")
        count_in(self.recent, "recent")

    def is_due(self, cache: RaggedCache) -> bool:
        """Whether the cache has grown by enough tokens."""
        return cache.get_seq_length() - cache.prefix_tokens >= self.every_k + self.recent

    def positions(
        self,
        hf_model: PreTrainedModel,
        rows: Sequence[tuple[torch.Tensor, torch.Tensor]],
        begin: int,
    ) -> list[list[np.ndarray]]:
        """The positions that are kept of rows [heads, n, head_dim] of each layer, from `begin` on.

        Raises:
            InvalidArgument, ValueError: the recipe, the budget or the profile does not suit.
        """
        dtype = DTYPE_NAMES.get(rows[0][0].dtype)
        # Only the shape and RoPE are used.
        spec = model_spec(hf_model, name="live", revision="live", dtype=dtype)
        profile = None if self.profile is None else profile_for(self.profile, spec)
        threads = torch.get_num_threads()
        made = compress(
            spec, rows, self.recipe, self.keep, profile=profile, begin=begin, threads=threads
        )
        return made.positions

    def try_on(self, hf_model: PreTrainedModel, cache: RaggedCache) -> None:
        """Raises what compress_tail() would, before anything is generated."""
        cache.check_single()
        row = torch.ones(1, dtype=hf_model.dtype).expand(*cache.rows_shape(_TRIED_TOKENS))
        self.positions(hf_model, [(row, row)] * len(cache.layers), 0)


class KeptHead(NamedTuple):
    """The kept entries of one head: positions [count], K and V [count, head_dim]."""

    positions: np.ndarray
    keys: torch.Tensor
    values: torch.Tensor


class KeptLayer(NamedTuple):
    heads: list[KeptHead]


class KnownTokens(NamedTuple):
    """Stands for the match of a prefix from a service."""

    tokens: np.ndarray


@dataclass(frozen=True, eq=False)
class CompressedPrefix:
    """A prefix of kept entries in this process's memory, as RaggedCache takes it.

    Attributes:
        match: None if the tokens are unknown.
        has_last_windows_only: layers with a sliding window have only the window of its end.
    """

    has_last_windows_only: ClassVar[bool] = True
    matched_tokens: int
    layers: list[KeptLayer]
    match: KnownTokens | None


@torch.no_grad()
def compress_tail(
    hf_model: PreTrainedModel, cache: RaggedCache, how: WhileDecoding | None = None
) -> None:
    """Compresses the tokens that follow the cache's prefix, except for the recent ones.

    Their kept entries become a part of the prefix, and the memory of the others is released. The
    entries of the prefix so far are copied. Later calls of the model attend to the kept entries.

    They are in no service: store before this call what is to be stored. Afterwards store() and a
    prefill() that pushes refuse the cache, and reset() keeps the compressed tokens. As in any
    prefix, a later prompt can't differ from them. A Conversation whose cache is compressed drops
    it at its next turn, and restores its turns from the service.

    Raises:
        ValueError: the cache has several rows or prefixes, or padding.
        InvalidArgument: from precis.compress. The cache is as before.
    """
    how = how or WhileDecoding()
    cache.check_single()
    begin = cache.prefix_tokens
    tail = cache.get_seq_length() - begin
    count = tail - how.recent
    if count <= 0:
        return
    rows = [
        (keys[:, :count], values[:, :count])
        for keys, values in (layer.last(tail) for layer in cache.layers)
    ]
    kept = how.positions(hf_model, rows, begin)
    layers = []
    for index, ((keys, values), positions) in enumerate(zip(rows, kept, strict=True)):
        heads = []
        window = cache.layers[index].window
        for head, before in enumerate(cache.entries(index)):
            if window is not None:  # entries that no query after the compressed tokens sees
                seen = before[0] >= begin + count - window
                before = (before[0][seen], before[1][seen], before[2][seen])
            places = torch.from_numpy(positions[head].astype(np.int64) - begin).to(keys.device)
            heads.append(
                KeptHead(
                    np.concatenate([before[0], positions[head]]),
                    torch.cat([before[1], keys[head, places].to(before[1].dtype)]),
                    torch.cat([before[2], values[head, places].to(before[2].dtype)]),
                )
            )
        layers.append(KeptLayer(heads))
    ids = cache.tokens(1)[0]
    known = None if ids is None else KnownTokens(ids[: begin + count].numpy().astype(np.uint32))
    cache.replace_prefix(CompressedPrefix(begin + count, layers, known), ids)


def is_compressed(cache: RaggedCache) -> bool:
    """Whether some of the cache's tokens were compressed in memory."""
    return isinstance(cache.prefix, CompressedPrefix) and cache.prefix_tokens > 0


def refuse_compressed(cache: RaggedCache) -> None:
    """Raises ValueError if a put that continues this cache would continue no stored KV."""
    if is_compressed(cache):
        raise ValueError(
            "past: tokens of this cache were compressed in memory (compress_tail), and their KV is "
            "in no service: store before that, or from another cache"
        )
