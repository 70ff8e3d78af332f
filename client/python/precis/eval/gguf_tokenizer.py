"""Gemma's tokenizer from a GGUF file.

Transformers reads the file's pieces and scores as a unigram model, which splits common words. But
Gemma's tokenizer is a byte-pair encoding, whose merges follow from the same pieces and scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Kinds of pieces in a GGUF file.
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4
_SPACE = "▁"


def merges_of(pieces: Sequence[str], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Every pair of pieces that makes another piece, the best-scored first.

    `scores`: of the whole pieces; equal scores are ordered by the pair's indices.
    """
    places = {piece: i for i, piece in enumerate(pieces)}
    ranked = []
    for piece, score in zip(pieces, scores, strict=True):
        for cut in range(1, len(piece)):
            left, right = places.get(piece[:cut]), places.get(piece[cut:])
            if left is not None and right is not None:
                ranked.append((-score, left, right))
    return [(pieces[left], pieces[right]) for _, left, right in sorted(ranked)]


def gemma_tokenizer(gguf_file: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a GGUF file of the Gemma family; it adds a beginning-of-text token."""
    import gguf
    from transformers import AddedToken, GemmaTokenizer

    fields = gguf.GGUFReader(gguf_file).fields
    read = [fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "scores")]
    kinds = fields["tokenizer.ggml.token_type"].contents()
    # The file stores runs of blanks literally.
    pieces = [_SPACE * len(p) if p and not p.strip(" ") else p for p in read[0]]
    normal = [i for i, kind in enumerate(kinds) if kind == _NORMAL]
    tokenizer = GemmaTokenizer(
        vocab={piece: i for i, piece in enumerate(pieces)},
        merges=merges_of([pieces[i] for i in normal], [read[1][i] for i in normal]),
    )
    for kind in (_CONTROL, _USER_DEFINED):
        tokenizer.add_tokens(
            [
                AddedToken(pieces[i], special=kind == _CONTROL, normalized=False)
                for i, other in enumerate(kinds)
                # Thousands of reserved pieces would only slow the search for the pieces in use.
                if other == kind and not pieces[i].startswith("<unused")
            ]
        )
    return tokenizer
