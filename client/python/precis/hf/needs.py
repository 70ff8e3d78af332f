"""What a recipe wants of a model besides K and V, and where it comes from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .modules import Rotation

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_ATTENTION_SCORERS = (
    "window_attn", "tova", "h2o", "observed_mean", "vatp", "cake", "lava", "defensive",
)  # fmt: skip

# Expected attention averages the rotation over so many positions to come (policies.md 2.8).
FUTURE_TOKENS = 512


@dataclass(frozen=True)
class Needs:
    """What a recipe's scorer is to be given.

    Attributes:
        queries: the last tokens' queries that are observed; 0 for none, None for all.
        repetition: queries that repeat the segment after it, with their log-sum-exp (KVzip).
        statistics: mean and covariance of queries to come (expected attention).
        sinks: first tokens of the path whose queries the statistics leave out.
    """

    queries: int | None = 0
    repetition: bool = False
    statistics: bool = False
    sinks: int = 0

    @classmethod
    def of(cls, recipe: str) -> Needs:
        """`recipe`: canonical JSON, as Put.recipe and precis.canonical_recipe have it."""
        fields: dict[str, Any] = json.loads(recipe)
        scorer = fields.get("scorer")
        return cls(
            queries=fields["window"] or None if scorer in _ATTENTION_SCORERS else 0,
            repetition=scorer == "kvzip",
            statistics=scorer == "expected_attention",
            sinks=int(fields.get("sinks", 0)),
        )

    def last(self, queries: torch.Tensor) -> torch.Tensor | None:
        """Those of [num_q_heads, n, head_dim] that are observed."""
        count = queries.shape[1] if self.queries is None else min(self.queries, queries.shape[1])
        return queries[:, queries.shape[1] - count :] if count else None

    def held(self, queries: torch.Tensor) -> torch.Tensor | None:
        """What of a layer's queries to keep until its scorer's input is made; None for nothing.

        A part is a copy, as it would keep the memory of all of them.
        """
        if self.statistics:
            return queries
        last = self.last(queries)
        return last if last is None or last.shape == queries.shape else last.clone()


class QueryStatistics:
    """Mean and covariance of the queries to come, as expected attention supposes them.

    Queries of the past, without those of the sinks, as they were before RoPE, then rotated by the
    average over the next FUTURE_TOKENS positions.
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
            sinks: positions below this one are left out; if that leaves none, the mean and the
                covariance are zero and every key is expected alike.
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
