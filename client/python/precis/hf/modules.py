"""The parts of a Transformers model that scorers use: output projections and rotations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch

from .spec import head_dim, text_config

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def attention_modules(hf_model: PreTrainedModel) -> list[torch.nn.Module]:
    """The decoder's self-attention modules, layer by layer.

    Raises:
        ValueError: they are not where Transformers' decoders have them.
    """
    layers = getattr(hf_model.get_decoder(), "layers", [])
    found = [getattr(layer, "self_attn", None) for layer in layers]
    count = text_config(hf_model).num_hidden_layers
    if len(found) != count or any(module is None for module in found):
        raise ValueError(
            f"{hf_model.config.model_type}: {count} layers with a self_attn are expected in its "
            "decoder's layers"
        )
    return found


def output_projections(hf_model: PreTrainedModel) -> list[np.ndarray]:
    """W_O of every layer by query head, float32 [num_q_heads, head_dim, hidden_size].

    For ``cache.register_model(spec, o_proj=...)`` and ``precis.compress(..., o_proj=...)``.

    Raises:
        ValueError: the model's attention has no o_proj.
    """
    config = text_config(hf_model)
    shape = (config.num_attention_heads, head_dim(config), -1)
    projections = []
    for module in attention_modules(hf_model):
        weight = getattr(getattr(module, "o_proj", None), "weight", None)
        if weight is None:
            raise ValueError(f"{type(module).__name__} has no o_proj")
        projections.append(weight.detach().T.float().cpu().reshape(shape).contiguous().numpy())
    return projections


class Rotation:
    """A model's own RoPE, undone and averaged."""

    def __init__(self, hf_model: PreTrainedModel) -> None:
        self._config = text_config(hf_model)
        self._embedding = getattr(hf_model.get_decoder(), "rotary_emb", None)
        code = inspect.getmodule(type(attention_modules(hf_model)[0]))
        self._apply: Callable | None = getattr(code, "apply_rotary_pos_emb", None)
        if self._embedding is None or self._apply is None:
            raise ValueError(
                f"{self._config.model_type}: its RoPE is not where Transformers' decoders have it "
                "(decoder.rotary_emb, apply_rotary_pos_emb)"
            )
        self._by_kind = "layer_type" in inspect.signature(self._embedding.forward).parameters

    def undo(self, layer: int, queries: torch.Tensor, begin: int) -> torch.Tensor:
        """Queries [heads, n, head_dim] of the positions from `begin` on, without their RoPE."""
        cos, sin = self._angles(layer, begin, queries.shape[1], queries.device)
        # Some models' rotations also scale by s, so cos^2 + sin^2 = s^2.
        square = cos.square() + sin.square()
        return self._rotate(queries.float(), cos / square, -sin / square)

    def average(self, layer: int, begin: int, count: int, device: torch.device) -> torch.Tensor:
        """The mean rotation matrix of `count` positions from `begin` on, f32 [head_dim, head_dim].

        x @ average.T is the mean of the rotated x.
        """
        cos, sin = self._angles(layer, begin, count, device)
        unit = torch.eye(head_dim(self._config), device=device)[None]
        # Row i is the rotated unit vector i.
        return self._rotate(unit, cos.mean(0, keepdim=True), sin.mean(0, keepdim=True))[0].T

    @torch.no_grad()
    def _angles(
        self, layer: int, begin: int, count: int, device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin of each position, [count, rotated elements]."""
        positions = torch.arange(begin, begin + count, device=device)[None]
        kind = (self._config.layer_types[layer],) if self._by_kind else ()
        cos, sin = self._embedding(torch.zeros(1, device=device), positions, *kind)
        return cos[0], sin[0]

    def _rotate(self, rows: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        return self._apply(rows[None], rows[None], cos[None], sin[None])[0][0]
