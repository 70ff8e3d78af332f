"""The inputs that a recipe needs besides K and V, and their computation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .. import _core
from .modules import Rotation

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Expected attention averages the rotation over this many future positions (policies/scores.md,
# "Expected attention").
FUTURE_TOKENS = 512


@dataclass(frozen=True)
class Needs:
    """The inputs of a recipe's scorer.

    Attributes:
        queries: how many of the last tokens' queries are observed; 0 for none, None for all.
        repetition: whether the model must repeat the segment, for the queries of the repetition and
            their log-sum-exp (KVzip).
        statistics: whether mean and covariance of future queries are needed (expected attention).
        sinks: first tokens of the path whose queries the statistics leave out.
    """

    queries: int | None = 0
    repetition: bool = False
    statistics: bool = False
    sinks: int = 0

    @classmethod
    def of(cls, recipe: str) -> Needs:
        """`recipe`: canonical JSON, as in Put.recipe and precis.canonical_recipe."""
        fields: dict[str, Any] = json.loads(recipe)
        scorer = fields.get("scorer")
        repetition = scorer == "kvzip"  # its queries come after the segment
        observes = _core.needs_queries(recipe) and not repetition
        return cls(
            queries=fields["window"] or None if observes else 0,
            repetition=repetition,
            statistics=scorer == "expected_attention",
            sinks=int(fields.get("sinks", 0)),
        )

    def last(self, queries: torch.Tensor) -> torch.Tensor | None:
        """The observed queries among queries [num_q_heads, n, head_dim]; None for none."""
        count = queries.shape[1] if self.queries is None else min(self.queries, queries.shape[1])
        return queries[:, queries.shape[1] - count :] if count else None

    def held(self, queries: torch.Tensor) -> torch.Tensor | None:
        """The part of a layer's queries to keep for its scorer; None for nothing.

        The part is a copy, because a view would keep the memory of all queries.
        """
        if self.statistics:
            return queries
        last = self.last(queries)
        return last if last is None or last.shape == queries.shape else last.clone()


class QueryStatistics:
    """Estimates the mean and covariance of future queries, for expected attention.

    The RoPE of the past queries, except those of sinks, is undone. The statistics of the result are
    rotated by the mean rotation of the next FUTURE_TOKENS positions.
    """

    def __init__(self, hf_model: PreTrainedModel) -> None:
        self._rotation = Rotation(hf_model)

    @torch.no_grad()
    def of_layer(
        self, layer: int, queries: torch.Tensor, begin: int, sinks: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Float32 [num_q_heads, head_dim] and [num_q_heads, head_dim, head_dim], on the CPU.

        Args:
            queries: [num_q_heads, n, head_dim] of positions `begin` and on, as observers see them.
            sinks: positions below this are left out. If no position is left, mean and covariance
                are zero, so that all keys are expected to get equal attention.
        """
        heads, count, dim = queries.shape
        skip = min(count, max(0, sinks - begin))
        if skip == count:
            return torch.zeros(heads, dim), torch.zeros(heads, dim, dim)
        before = self._rotation.undo(layer, queries[:, skip:], begin + skip)
        mean = before.mean(dim=1, keepdim=True)
        centred = before - mean
        covariance = centred.transpose(1, 2) @ centred / before.shape[1]
        turn = self._rotation.average(layer, begin + count, FUTURE_TOKENS, queries.device)
        return (mean[:, 0] @ turn.T).cpu(), (turn @ covariance @ turn.T).cpu()
