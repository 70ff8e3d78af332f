"""The ragged KV cache: the number of entries differs between (layer, KV head) pairs.

A :class:`RaggedCache` consists of the kept entries of a restored prefix, in place in the prefix's
memory, and a dense tail: the tokens computed since. For the model it is an ordinary Transformers
cache. The attention over it is registered with Transformers as ``"precis_ragged"``, and a model
uses that attention during each call that passes such a cache.
"""

from __future__ import annotations

import bisect
import contextlib
import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .attention import AttendedCache, attend_over_ragged
from .ragged_layer import Observer, Prefix, RaggedLayer, Source

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ..rows import Segment


class RaggedCache(AttendedCache):
    """A Transformers cache over a restored prefix, or an empty one.

    ::

        ragged = precis.hf.RaggedCache(hf_model, cache.get(match, keep=0.2))
        hf_model.generate(prompt_ids, past_key_values=ragged, max_new_tokens=64)

    The prompt is either whole, including the tokens of the prefix, or only the tokens after the
    prefix. If the cache holds all of a whole prompt, its last token is removed from the cache and
    read again. The new tokens are added to the cache, which serves the next turn in the same way.

    With several prefixes, each belongs to one row of a batch (None: a row without a prefix), or to
    the same number of rows: in a batch of 4 over two prefixes, rows 0 and 1 have the first prefix.
    Prompts are padded on the left, with an attention_mask, and each row's positions continue from
    the length of its own prefix. With one prefix, all rows of a batch continue it.

    The columns of a batch are those of Transformers: the longest prefix takes as many columns as it
    has tokens, shorter prefixes end where it ends, and the tail of all rows follows.
    get_seq_length() counts columns.

    Attention waits for a layer of a prefix when it first needs it, so decoding starts while later
    layers still arrive. Kept entries are used in place; they are copied only if the model's dtype
    or device differs. A prefix is never written to, so several caches can use the same one.

    The model uses this attention in calls with such a cache, and its own in all other calls. The
    choice is a setting of the model during the call, so two threads should not call one model with
    two kinds of cache.
    """

    def __init__(
        self,
        hf_model: PreTrainedModel,
        prefix: Prefix | Sequence[Prefix | None] | None = None,
    ) -> None:
        self.prefixes = tuple(prefix) if isinstance(prefix, (list, tuple)) else (prefix,)
        if not self.prefixes:
            raise ValueError("no prefixes: give a prefix, or None, for each row of the batch")
        self._source = Source(hf_model, self.prefixes)
        match = getattr(self.prefix, "match", None)
        links = getattr(match, "links", ())
        self.stored = [link.segment for link in links if link.matched_end == link.segment.end]
        self.stored_path: list[int] = match.tokens.tolist() if self.stored else []
        # The token ids of each call (None: unknown), with the column of the first token.
        self._fed: list[tuple[int, torch.Tensor | None]] = []
        layers = [RaggedLayer(self._source, i) for i in range(self._source.num_layers)]
        super().__init__(layers=layers)
        attend_over_ragged(hf_model)

    @property
    def prefix(self) -> Prefix | None:
        """The only prefix; None if there are several, or none."""
        return self.prefixes[0] if len(self.prefixes) == 1 else None

    @property
    def prefix_tokens(self) -> int:
        """The length of the original sequence of the prefix, or the length it was cropped to.

        With several prefixes, the longest of their lengths.
        """
        return self._source.prefix_tokens

    # ---- its segments ---------------------------------------------------------------------------

    def add_stored(self, segment: Segment, path: Sequence[int]) -> None:
        """Records that `segment` holds the last tokens of `path`; a next store() continues it.

        ``stored`` lists the known segments from the root on, and ``stored_path`` their tokens.
        """
        before = [known for known in self.stored if known.end <= segment.begin]
        ends_before = before[-1].id if before else None
        self.stored = [*before, segment] if ends_before == segment.parent else [segment]
        self.stored_path = list(path)

    def fork(self) -> RaggedCache:
        """A cache with the same tokens. Both go on independently.

        Copies no entries: either cache copies its tail when it next adds tokens.
        """
        other = copy.copy(self)
        other._source = self._source.copy()
        other._fed, other.stored = list(self._fed), list(self.stored)
        other.layers = [layer.fork(other._source) for layer in self.layers]
        return other

    # ---- compression in memory (live.py) --------------------------------------------------------

    def check_single(self) -> None:
        """Raises ValueError unless the cache holds one sequence without padding."""
        rows = max(self._batch() or 1, len(self.prefixes))
        if rows > 1 or self._source.seen is not None:
            held = f"{rows} rows" if rows > 1 else "padding"
            raise ValueError(f"one sequence without padding is needed; the cache holds {held}")

    def rows_shape(self, tokens: int) -> tuple[int, int, int]:
        """The shape of K or V of so many tokens of a layer, [heads, n, head_dim]."""
        return self._source.rows_shape(tokens)

    def entries(self, layer: int) -> Iterator[tuple[np.ndarray, torch.Tensor, torch.Tensor]]:
        """Positions, keys and values of each head's kept entries, of the only prefix."""
        return self._source.entries(layer)

    def replace_prefix(self, prefix: Prefix, ids: torch.Tensor | None) -> None:
        """Takes a longer prefix instead of the only one; its tokens leave the tail.

        `ids`: of all tokens, if they are known. Nothing changes if memory is short.
        """
        end, held = prefix.matched_tokens, self.get_seq_length()
        tails = [layer.rest_of_tail(end - self.prefix_tokens) for layer in self.layers]
        for layer, tail in zip(self.layers, tails, strict=True):
            layer.replace_tail(*tail)
            layer.load_anew()
        self._source.replace(prefix)
        self.prefixes = (prefix,)
        self._fed = [(end, None if ids is None else ids[None, end:])] if end < held else []

    # ---- its length -----------------------------------------------------------------------------

    def crop(self, max_length: int) -> None:
        """Drops all positions from `max_length` on (or the last -`max_length` positions).

        A crop may reach into the prefix. Then this cache no longer uses the prefix's entries of the
        dropped positions. Other caches over the same prefix still use them.

        Raises:
            ValueError: the cache holds fewer than -`max_length` tokens, or the crop would reach
                into several prefixes, or to a token whose sliding window has not arrived.
        """
        held = self.get_seq_length()
        length = max_length if max_length >= 0 else held + max_length
        if length < 0:
            raise ValueError(f"cannot crop {-max_length} tokens off a cache of {held}")
        if length < self.prefix_tokens and len(self.prefixes) > 1:
            raise ValueError(
                f"cannot crop a cache over {len(self.prefixes)} prefixes to {length}: the longest "
                f"has {self.prefix_tokens} tokens, and only what follows it is cropped"
            )
        into = length < self.prefix_tokens
        if into and (least := self._readable(self.prefix, length)) < length:
            raise ValueError(
                f"cannot crop to {length}: layers with a sliding window lack entries that the next "
                f"token sees; crop({least}), or get the prefix up to there"
            )
        self._shorten([min(length, tokens) for tokens in self._source.lengths], length)

    def _shorten(self, lengths: list[int], columns: int) -> None:
        """Shortens the prefixes to `lengths`, and the tail to the columns before `columns`."""
        into_prefix = lengths != self._source.lengths
        self._source.lengths = lengths
        tail = max(0, columns - self.prefix_tokens)
        if self._source.seen is not None:
            self._source.seen = self._source.seen[:, :tail] if tail else None
        for layer in self.layers:
            layer.keep_tail(tail)
            if into_prefix:
                layer.load_anew()
        self._fed = [(begin, ids) for begin, ids in self._fed if begin < columns]

    def _readable(self, prefix: Prefix | None, length: int) -> int:
        """The last token up to `length` at which a prefix has every window, or 0.

        A segment that is longer than a window has the window of its end alone, and segments out of
        sight from the prefix's end have brought nothing. compress_tail() keeps the window of its
        end alone, too.
        """
        windows = {window for window in self._source.windows if window}
        if windows and getattr(prefix, "has_last_windows_only", False):
            return length if length >= prefix.matched_tokens - 1 else 0
        links = getattr(getattr(prefix, "match", None), "links", ())
        begins = [link.segment.begin for link in links]
        ends = [link.segment.end for link in links]

        def is_readable(at: int) -> bool:
            inside = bisect.bisect_left(begins, at) - 1  # the link with the token before
            for window in windows:
                begin, end = begins[inside], ends[inside]
                # The window of its last token is kept, too, so that it can be read again.
                if end - begin > window and at < end - 1:
                    return False
                oldest = bisect.bisect_right(ends, at - window + 1)
                if oldest < len(ends) and ends[oldest] <= links[-1].matched_end - window:
                    return False
            return True

        if not windows or not links:
            return length
        places = [length, *(begin for begin in reversed(begins) if begin < length)]
        return next((at for at in places if at > 0 and is_readable(at)), 0)

    def rewind(self, kept: Sequence[int]) -> list[int]:
        """Drops all but the first `kept` tokens of each row of a batch.

        If a row loses a part of its prefix, all rows of that prefix lose it. Rows lose more if the
        prefix cannot be cropped there because of a sliding window.

        Returns:
            How many tokens each row now holds.

        Raises:
            ValueError: a row would lose tokens of its prefix while other rows keep tail tokens.
        """
        groups = self._source.rows_of(len(kept))
        lengths = [
            tokens
            if (least := min(tokens, *kept[rows])) == tokens
            else self._readable(prefix, least)
            for prefix, tokens, rows in zip(
                self.prefixes, self._source.lengths, groups, strict=True
            )
        ]
        seen = self._seen(len(kept)).cpu()
        ends = []
        for tokens, rows in zip(self._source.lengths, groups, strict=True):
            for row in range(rows.start, rows.stop):
                columns = seen[row].nonzero()[:, 0]
                more = kept[row] - tokens
                ends.append(int(columns[more - 1]) + 1 if more > 0 else 0)
        if lengths != self._source.lengths:
            if max(ends) > 0:
                raise ValueError(
                    f"rows would keep {list(kept)} tokens, and prefixes have "
                    f"{self._source.lengths}: a row cannot lose tokens of its prefix while others "
                    "keep tokens after theirs"
                )
            self._shorten(lengths, 0)
        else:
            self._shorten(lengths, self.prefix_tokens + max(ends))
            seen = seen[:, : max(ends)]
            seen &= torch.arange(max(ends)) < torch.tensor(ends)[:, None]
            self._source.seen = None if bool(seen.all()) else seen.to(self._source.device)
        return [
            min(tokens, count) for tokens, count in zip(kept, self.held(len(kept)), strict=True)
        ]

    def take_back(self) -> int:
        """Removes the last token and returns its id, so that it can be fed again.

        Raises:
            ValueError: the cache is empty, or does not know the token.
        """
        length = self.get_seq_length()
        if length == 0:
            raise ValueError("tokens: there are none, and the cache is empty")
        batch = self._batch() or len(self.prefixes)
        if batch != 1:
            raise ValueError(f"one sequence is needed; the cache holds {batch}")
        tokens = self.tokens(1)[0]
        if tokens is None:
            raise ValueError(
                "the id of the cache's last token is not known: crop(-1) and feed that token"
            )
        self.crop(length - 1)
        return int(tokens[-1])

    def leave_a_token(self, prompt_tokens: int) -> None:
        """Drops the last token of a whole prompt if the cache holds all of the prompt.

        Raises:
            ValueError: the cache holds more than the prompt.
        """
        held = self.get_seq_length()
        if held > prompt_tokens:
            raise ValueError(f"the prompt has {prompt_tokens} tokens, the cache holds {held}")
        if held == prompt_tokens > 0:
            self.crop(held - 1)

    def reset(self) -> None:
        """Drops everything except the prefixes."""
        self._shorten(self._source.lengths, 0)

    # ---- its rows -------------------------------------------------------------------------------

    def held(self, batch: int) -> list[int]:
        """How many tokens each row of a batch holds."""
        seen = self._seen(batch).sum(1).tolist()
        return [a + b for a, b in zip(self.prefix_lengths(batch), seen, strict=True)]

    def prefix_lengths(self, batch: int) -> list[int]:
        """The length of each row's prefix, in tokens."""
        groups = zip(self._source.lengths, self._source.rows_of(batch), strict=True)
        return [tokens for tokens, rows in groups for _ in range(rows.stop - rows.start)]

    def tokens(self, batch: int) -> list[torch.Tensor | None]:
        """The token ids that each row of a batch holds, on the CPU; None where they are unknown."""
        fed, seen = self._fed_ids(batch), self._seen(batch).cpu()
        found: list[torch.Tensor | None] = []
        for which, rows in enumerate(self._source.rows_of(batch)):
            before = self._prefix_ids(which)
            for row in range(rows.start, rows.stop):
                known = before is not None and fed is not None
                found.append(torch.cat([before, fed[row][seen[row]]]) if known else None)
        return found

    def _prefix_ids(self, which: int) -> torch.Tensor | None:
        length = self._source.lengths[which]
        if length == 0:
            return torch.empty(0, dtype=torch.long)
        ids = getattr(getattr(self.prefixes[which], "match", None), "tokens", None)
        if ids is None or len(ids) < length:
            return None
        return torch.as_tensor(ids[:length].astype("int64"))

    def _fed_ids(self, batch: int) -> torch.Tensor | None:
        """Token ids of the tail, [batch, columns], on the CPU."""
        count = self.get_seq_length() - self.prefix_tokens
        ends = [begin for begin, _ in self._fed[1:]] + [self.prefix_tokens + count]
        pieces = [torch.empty(batch, 0, dtype=torch.long)]
        for (begin, ids), end in zip(self._fed, ends, strict=False):
            if ids is None:
                return None
            pieces.append(ids[:, : end - begin].cpu())
        fed = torch.cat(pieces, dim=1)
        return fed if fed.shape[1] == count else None

    def _batch(self) -> int | None:
        """How many rows the tail has; None if the tail is empty."""
        held = self.get_seq_length() > self.prefix_tokens
        return self.layers[0].keys.shape[0] if held else None

    def _seen(self, batch: int) -> torch.Tensor:
        """Which columns of the tail each row sees, bool [batch, columns]."""
        rows = self._batch()
        if rows not in (None, batch):
            raise ValueError(f"the batch is {batch}, the ragged cache holds {rows} rows")
        if self._source.seen is not None:
            return self._source.seen
        count = self.get_seq_length() - self.prefix_tokens
        return torch.ones(batch, count, dtype=torch.bool, device=self._source.device)

    def attention_mask(self, batch: int) -> torch.Tensor:
        """The mask of the cached columns, bool [batch, get_seq_length()].

        Followed by the mask of the new tokens, it is the attention_mask of a call.
        """
        seen = self._seen(batch)
        before = torch.ones(batch, self.prefix_tokens, dtype=torch.bool, device=seen.device)
        for tokens, rows in zip(self._source.lengths, self._source.rows_of(batch), strict=True):
            before[rows, : self.prefix_tokens - tokens] = False
        return torch.cat([before, seen], dim=1)

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Reorders rows, each within the rows of its prefix, as beam search does.

        Raises:
            ValueError: a row would move to another prefix.
        """
        for rows in self._source.rows_of(len(beam_idx)):
            taken = beam_idx[rows]
            if bool(((taken < rows.start) | (taken >= rows.stop)).any()):
                raise ValueError(
                    "beam_idx: a row would move to another prefix, which the rows of a ragged "
                    "cache cannot do"
                )
        super().reorder_cache(beam_idx)
        self._take_rows(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeats every row."""
        batch = self._batch()
        super().batch_repeat_interleave(repeats)
        if batch is not None:
            self._take_rows(torch.arange(batch).repeat_interleave(repeats))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keeps only some rows.

        Raises:
            ValueError: the cache has several prefixes.
        """
        if len(self.prefixes) > 1:
            raise ValueError(
                f"rows cannot be selected from a cache over {len(self.prefixes)} prefixes: make a "
                "new cache of the prefixes that remain"
            )
        super().batch_select_indices(indices)
        self._take_rows(indices)

    def _take_rows(self, indices: torch.Tensor) -> None:
        if self._source.seen is not None:
            self._source.seen = self._source.seen[indices.to(self._source.device)]
        self._fed = [
            (begin, None if ids is None else ids[indices.to(ids.device)])
            for begin, ids in self._fed
        ]

    @contextlib.contextmanager
    def observed(self, observer: Observer) -> Iterator[None]:
        """Within the block, calls `observer` with each layer's new tokens as they are computed."""
        self._source.observer = observer
        try:
            yield
        finally:
            self._source.observer = None

    def begin_call(
        self, mask: Any, shape: tuple[int, int], ids: torch.Tensor | None
    ) -> torch.Tensor | None:
        batch, count = shape
        groups, held = self._source.rows_of(batch), self.get_seq_length()
        seen = self._seen_with(mask, batch, count)
        self._source.seen = None if seen is None or bool(seen.all()) else seen
        self._fed.append((held, None if ids is None else ids.clone()))
        self._source.attended = True
        if self._source.seen is None and len(set(self._source.lengths)) == 1:
            return None
        columns = held - self.prefix_tokens + count
        places = [
            self._source.places(which, rows, columns).expand(rows.stop - rows.start, -1)
            for which, rows in enumerate(groups)
        ]
        return torch.cat(places)[:, -count:]

    def _seen_with(self, mask: Any, batch: int, count: int) -> torch.Tensor | None:
        """The tail columns that rows see, including `count` new ones; None: all of them."""
        given = isinstance(mask, torch.Tensor) and mask.ndim == 2 and not bool(mask.all())
        if not given and self._source.seen is None:
            return None
        before = self._seen(batch)
        if not given:
            return torch.cat([before, before.new_ones(batch, count)], dim=1)
        mask = mask.to(device=before.device, dtype=torch.bool)
        if mask.shape == (batch, count):
            return torch.cat([before, mask], dim=1)
        columns = self.prefix_tokens + before.shape[1]
        if mask.shape != (batch, columns + count):
            raise ValueError(
                f"attention_mask has shape {tuple(mask.shape)}, must be {(batch, count)} for the "
                f"new tokens alone, or {(batch, columns + count)} with the {columns} cached columns"
            )
        prefixes = self.attention_mask(batch)[:, : self.prefix_tokens]
        if not torch.equal(mask[:, : self.prefix_tokens], prefixes):
            raise ValueError(
                "attention_mask hides tokens of a prefix, or shows more tokens than it has: its "
                "cached columns must equal the ragged cache's attention_mask(batch)"
            )
        return mask[:, self.prefix_tokens :]

    def end_call(self) -> None:
        self._source.attended = False
