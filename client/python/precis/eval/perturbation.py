"""How far the attention output moves when entries are left out, layer by layer.

policies/quality.md, "Perturbation", has the equations.

The queries are those of a continuation that no scorer has seen. They attend only to the context's
entries, once to all entries and once to the kept entries, within the layer's sliding window if it
has one.
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
        layers: relative L2 distance of each layer's output after W_O, [num_layers].
        heads: L1 distance of each query head's part of that output (CriticalKV, definition 3.1),
            [num_layers, num_q_heads].
    """

    layers: np.ndarray
    heads: np.ndarray


class Probe:
    """Queries of a continuation, and their attention output over the whole context."""

    def __init__(
        self,
        queries: Sequence[torch.Tensor],
        rows: Sequence[tuple[torch.Tensor, torch.Tensor]],
        projections: Sequence[torch.Tensor],
        windows: Sequence[int | None],
    ) -> None:
        """All arguments have one item per layer.

        Args:
            queries: [num_q_heads, m, head_dim] of the m tokens after the context, as observers of a
                RaggedCache see them.
            rows: keys and values [num_kv_heads, n, head_dim] of the context.
            projections: W_O, [num_q_heads, head_dim, hidden].
            windows: the sliding window in tokens; None for full attention.
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
        """The contribution of each query head to the residual stream, [num_q_heads, m, hidden]."""
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
    """The mean of off / whole over queries; 0 for a query without output over the whole context."""
    share = torch.where(whole > 0, off / whole.clamp_min(1e-30), torch.zeros_like(off))
    return share.mean(-1).cpu()
