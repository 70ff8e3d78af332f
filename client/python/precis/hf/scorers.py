"""Computes the inputs of a recipe's scorer from the model's keys, values and queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .needs import Needs, QueryStatistics
from .spec import TORCH_DTYPES

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Scorers:
    """Computes the inputs of a recipe's scorer, layer by layer."""

    def __init__(self, hf_model: PreTrainedModel, needs: Needs, dtype: str, begin: int) -> None:
        """`dtype`: of pushed K, V and queries. `begin`: the position of the first new token."""
        if dtype not in TORCH_DTYPES:
            raise ValueError(
                f"dtype: the store's model has {dtype}; precis.hf pushes bf16, f16 or f32"
            )
        self._needs = needs
        self._dtype = TORCH_DTYPES[dtype]
        self._begin = begin
        self._statistics = QueryStatistics(hf_model) if needs.statistics else None

    @torch.no_grad()
    def layer(
        self,
        index: int,
        keys: torch.Tensor,
        values: torch.Tensor,
        queries: torch.Tensor | None,
        lse: torch.Tensor | None = None,
        with_lse: bool = False,
    ) -> dict[str, torch.Tensor]:
        """The arguments of Put.layer, on the CPU; also the fields of a layer for precis.compress.

        Args:
            keys, values, queries: [heads, n, head_dim] of the new tokens, as observers see them. Of
                the queries, Needs.held() is enough. With `lse`, `queries` are those of the
                repetition.
            lse: of the repetition's queries.
            with_lse: compute the log-sum-exp of the observed queries over the new tokens.
        """
        parts = {"keys": self._pushed(keys), "values": self._pushed(values)}
        if lse is not None:
            return parts | {"queries": self._pushed(queries), "lse": lse.cpu()}
        observed = None if queries is None else self._needs.last(queries)
        if observed is not None:
            parts["queries"] = self._pushed(observed)
            if with_lse:
                parts["lse"] = _log_sum_exp(observed, keys).cpu()
        if self._statistics is not None:
            mean, covariance = self._statistics.of_layer(
                index, queries, self._begin, self._needs.sinks
            )
            parts |= {"query_mean": mean, "query_covariance": covariance}
        return parts

    def _pushed(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.to("cpu", self._dtype)


def _log_sum_exp(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Natural log-sum-exp of q.k/sqrt(d) over the segment's keys up to each query, [heads, m]."""
    num_q_heads, count, dim = queries.shape
    heads, tokens = keys.shape[:2]
    rows = queries.reshape(heads, -1, dim).float() * dim**-0.5
    scores = (rows @ keys.float().transpose(1, 2)).view(heads, -1, count, tokens)
    later = torch.ones(count, count, dtype=torch.bool, device=keys.device).triu(1)
    scores[..., tokens - count :].masked_fill_(later, -torch.inf)
    return scores.logsumexp(dim=-1).view(num_q_heads, count)
