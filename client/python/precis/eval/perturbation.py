"""How far attention's output moves when entries are left out, layer by layer.

policies/quality.md, "Perturbation", has the equations.

The queries are those of a continuation that no scorer has seen. They attend only to the context's
entries, once to all of them and once to the kept ones, within a layer's sliding window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from precis.hf.ragged_layer import Kept

if TYPE_CHECKING:
    from precis.hf import RaggedCache


@dataclass(frozen=True)
class Perturbation:
    """Means over the probe's queries.

    Attributes:
        layers: the layer's output after W_O, relative L2 distance, [num_layers].
        heads: each query head's part of it, L1 distance (CriticalKV, definition 3.1),
            [num_layers, num_q_heads].
    """

    layers: np.ndarray
    heads: np.ndarray


class Probe:
    """Queries of a continuation, and their output over the whole context."""

    def __init__(
        self,
        queries: Sequence[torch.Tensor],
        rows: Sequence[tuple[torch.Tensor, torch.Tensor]],
        projections: Sequence[torch.Tensor],
        windows: Sequence[int | None],
    ) -> None:
        """All arguments are per layer.

        Args:
            queries: [num_q_heads, m, head_dim] of the m tokens after the context, as observers of a
                RaggedCache see them.
            rows: keys and values [num_kv_heads, n, head_dim] of the context.
            projections: W_O, [num_q_heads, head_dim, hidden].
            windows: of attention; None for full attention.
        """
        self._queries, self._projections, self._windows = queries, projections, windows
        self._num_tokens = rows[0][0].shape[1]
        positions = torch.arange(self._num_tokens, device=queries[0].device)
        self._whole = []
        for layer, (keys, values) in enumerate(rows):
            kept = [Kept(k, v, positions) for k, v in zip(keys, values, strict=True)]
            self._whole.append(self._written(layer, kept))

    @torch.no_grad()
    def measure(self, cache: RaggedCache) -> Perturbation:
        """Measures a cache over the kept entries of the context."""
        layers, heads = [], []
        for index, (layer, whole) in enumerate(zip(cache.layers, self._whole, strict=True)):
            off = self._written(index, layer.kept()) - whole
            layers.append(_relative(off.sum(0).norm(dim=-1), whole.sum(0).norm(dim=-1)))
            heads.append(off.abs().sum(-1).mean(-1).cpu())
        return Perturbation(torch.stack(layers).numpy(), torch.stack(heads).numpy())

    @torch.no_grad()
    def _written(self, layer: int, kept: Sequence[Kept]) -> torch.Tensor:
        """What each query head adds to the residual stream, [num_q_heads, m, hidden]."""
        queries, window = self._queries[layer], self._windows[layer]
        num_q_heads, count, dim = queries.shape
        rows = queries.float().view(len(kept), -1, count, dim)
        out = []
        for asked, head in zip(rows, kept, strict=True):
            scores = asked @ head.keys.float().T * dim**-0.5
            if window is not None:
                places = torch.arange(count, device=scores.device)[:, None] + self._num_tokens
                scores.masked_fill_(head.positions <= places - window, -torch.inf)
            weights = torch.softmax(scores, dim=-1).nan_to_num()  # no visible entry: no output
            out.append(weights @ head.values.float())
        return torch.stack(out).view(num_q_heads, count, dim) @ self._projections[layer]


def _relative(off: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """The mean over queries; a query with no output over the whole context counts as 0."""
    share = torch.where(whole > 0, off / whole.clamp_min(1e-30), torch.zeros_like(off))
    return share.mean(-1).cpu()
