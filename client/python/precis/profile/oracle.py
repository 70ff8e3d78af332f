"""The measured worth of a context's tokens: LU-KV's oracle (its equation 4).

policies/budgets.md, "Building a profile", has the equation.

For one KV head, the worth of a token is the largest share of attention that any query of the
answers gives it, times the norm of its value's contribution to the residual stream. The answers are
computed over the full cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from precis import hf

if TYPE_CHECKING:
    from precis.eval.subject import Reading

ANSWER_TOKENS = 64


class Oracle:
    """The worth of every token of one context, a maximum over what was added.

    Attributes:
        worth: float32 [num_layers, num_kv_heads, n].
    """

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._norms = [
            value_norms(values, projection)
            for (_, values, _), projection in zip(
                reading.layers, reading.judge.projection_tensors, strict=True
            )
        ]
        keys = reading.layers[0][0]
        shape = (len(reading.layers), keys.shape[0], keys.shape[1])
        self.worth = torch.zeros(shape, device=keys.device)

    def add_repetition(self) -> None:
        """Adds the answer to "repeat everything": the whole context itself."""
        for number, chunk in enumerate(self._reading.repetition(in_window=True)[0]):
            for layer, asked in enumerate(zip(chunk.queries, chunk.window_lse, strict=True)):
                # Without chunks, the queries of later ones would not see the context's end.
                if number == 0 or self._reading.judge.windows[layer] is None:
                    self._look_back(layer, *asked, self._reading.num_tokens)

    def add_answer(self, question: list[int], tokens: int = ANSWER_TOKENS) -> None:
        """Adds the model's own greedy answer: its queries, not those of the question's tokens."""
        cache, model = self._reading.cache, self._reading.judge.hf_model

        def observe(
            layer: int, _keys: torch.Tensor, _values: torch.Tensor, queries: torch.Tensor
        ) -> None:
            if queries.shape[1] == 1:
                rows = cache.layers[layer]
                lse = rows.log_sum_exp(queries, in_window=True)
                self._look_back(layer, queries, lse, rows.get_seq_length() - 1)

        with cache.observed(observe):
            for _ in hf.generate(model, question, cache, max_new_tokens=tokens):
                pass
        cache.crop(self._reading.num_tokens)

    @torch.no_grad()
    def _look_back(
        self, layer: int, queries: torch.Tensor, lse: torch.Tensor, position: int
    ) -> None:
        """Updates the worth with the attention of queries [num_q_heads, m, head_dim].

        `position`: of the first query. Tokens that a sliding window hides from all queries are
        worth 0.
        """
        keys = self._reading.layers[layer][0]
        heads, tokens = keys.shape[:2]
        window, unseen = self._reading.judge.windows[layer], None
        if window is not None:
            asked = torch.arange(position, position + queries.shape[1], device=keys.device)
            unseen = asked[:, None] - torch.arange(tokens, device=keys.device) >= window
        worth = largest_shares(keys, queries, lse, unseen) * self._norms[layer]
        best = worth.view(heads, -1, tokens).amax(dim=1)
        torch.maximum(self.worth[layer], best, out=self.worth[layer])


def largest_shares(
    keys: torch.Tensor,
    queries: torch.Tensor,
    lse: torch.Tensor,
    unseen: torch.Tensor | None = None,
) -> torch.Tensor:
    """The largest share of attention that any query gives each token, [num_q_heads, n].

    Args:
        keys: [num_kv_heads, n, head_dim].
        queries: [num_q_heads, m, head_dim], and their log-sum-exp [num_q_heads, m].
        unseen: bool [m, n], the tokens that a query does not see; None: it sees all.
    """
    num_q_heads, count, dim = queries.shape
    heads, tokens = keys.shape[:2]
    rows = queries.reshape(heads, -1, dim).float()
    scores = rows @ keys.float().transpose(1, 2) * dim**-0.5
    shares = (scores - lse.reshape(heads, -1, 1)).view(num_q_heads, count, tokens)
    if unseen is not None:
        shares = shares.masked_fill(unseen, -torch.inf)
    return shares.amax(dim=1).exp()  # exp keeps the order


def value_norms(values: torch.Tensor, projection: torch.Tensor) -> torch.Tensor:
    """L2 norm of each token's v W_O by query head, [num_q_heads, n]; a layer's norms sum to 1.

    Args:
        values: [num_kv_heads, n, head_dim].
        projection: [num_q_heads, head_dim, hidden].
    """
    group = projection.shape[0] // values.shape[0]
    # ||v W||^2 = v (W W^T) v, by matrices of head_dim instead of the hidden size.
    gram = projection @ projection.transpose(1, 2)
    rows = values.float().repeat_interleave(group, dim=0)
    norms = ((rows @ gram) * rows).sum(-1).clamp_min(0).sqrt()
    return norms / (norms.sum() + 1e-9)
