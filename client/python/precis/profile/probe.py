"""Learns kvprobe's coefficients (docs/design/policies/scores.md, "kvprobe").

The model repeats every context, as for KVzip. For each KV head, a ridge regression predicts the
logarithm of the attention that an entry gets from the entry itself (its key before RoPE and its
value, their norms, how much the key differs from the mean of all keys) and from its distance to the
end, because many heads attend to near tokens. Contexts from the last fifth of each text are not
fitted; they tell how well the prediction holds.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import precis
from precis import _core, files, hf
from precis.eval.models import Loaded
from precis.eval.subject import Judge, Reading
from precis.eval.texts import Text
from precis.hf.repetition import CHUNK_TOKENS

from .build import Builder, Progress, Settings, cut_contexts
from .oracle import largest_shares

# The score is exp(prediction) x kvdiff^KVDIFF_POWER (docs/notes/kvprobe.md).
KVDIFF_POWER = 0.5
_RIDGE = 1.0  # on sums over tokens, so its weight falls as contexts are added
_HELD_OUT = 4  # one context is held out for this many that are fitted
_FITTED_SHARE = 0.8  # of each text; held-out contexts are from the rest
_DISTANCE_TOKENS = 512  # as in kernels/score/probe/probe_op.h
_NUMBER_BYTES = 14  # at most, of a number in the profile
_FIRST = 4  # tokens at the beginning get attention whatever they hold, so they are not fitted
# KVzip's scores of all entries, none of them protected.
_REPEATED = precis.canonical_recipe(
    "kvzip(sinks=0, group_reduce=mean, heads=uniform, layers=uniform)"
)
_WORTH_MIN, _DIFFERENCE_MIN, _NORM_MIN, _VARIANCE_MIN = 1e-6, 1e-6, 1e-12, 1e-9


@dataclass(frozen=True)
class Means:
    """What a head's entries are compared with, over all tokens of the contexts.

    Attributes:
        key: float64 [num_layers, num_kv_heads, head_dim]: the mean of unit keys before RoPE.
        value_norm: float64 [num_layers, num_kv_heads].
    """

    key: torch.Tensor
    value_norm: torch.Tensor


def unrotated(spec: precis.ModelSpec, reading: Reading) -> list[torch.Tensor]:
    """The keys of every layer before RoPE, float64 [num_kv_heads, n, head_dim]."""
    frequencies = _core.rope_frequencies(spec.to_core())
    positions = torch.arange(reading.num_tokens, dtype=torch.float64)
    layers = []
    for layer, (keys, _, _) in enumerate(reading.layers):
        rows = keys.cpu().double()
        angles = positions[:, None] * torch.tensor(frequencies[layer], dtype=torch.float64)
        pairs, cosine, sine = angles.shape[1], angles.cos(), angles.sin()
        first, second, still = rows.tensor_split((pairs, 2 * pairs), dim=-1)
        layers.append(
            torch.cat([first * cosine + second * sine, second * cosine - first * sine, still], -1)
        )
    return layers


def features(keys: torch.Tensor, values: torch.Tensor, mean_key: torch.Tensor) -> torch.Tensor:
    """What a score is predicted from, in the order of a probe's rows after the anchor.

    Args:
        keys: before RoPE, and values: float64 [num_kv_heads, n, head_dim].
        mean_key: [num_kv_heads, head_dim].

    Returns:
        float64 [num_kv_heads, n, 2 * head_dim + 6]: key, value, log |k|, log |v|, the difference
        1 - cos(k, mean key), its log, log(1 + m / 512) where m tokens follow, 1.
    """
    key_norm = keys.norm(dim=-1, keepdim=True).clamp_min(_NORM_MIN)
    value_norm = values.norm(dim=-1, keepdim=True).clamp_min(_NORM_MIN)
    anchor = mean_key / mean_key.norm(dim=-1, keepdim=True).clamp_min(_NORM_MIN)
    apart = 1 - (keys / key_norm) @ anchor[:, :, None]
    apart = apart.clamp_min(_DIFFERENCE_MIN)
    after = torch.arange(keys.shape[1] - 1, -1, -1, dtype=torch.float64)
    distance = (1 + after / _DISTANCE_TOKENS).log()[None, :, None].expand_as(apart)
    ones = torch.ones_like(apart)
    norms = key_norm.log(), value_norm.log()
    return torch.cat([keys, values, *norms, apart, apart.log(), distance, ones], dim=-1)


def repeated_attention(reading: Reading) -> torch.Tensor:
    """KVzip's score: the largest share of attention that an entry gets during the repetition.

    Returns:
        float32 [num_layers, num_kv_heads, n], the mean over the heads of a group. In a layer with a
        sliding window, only queries that see an entry count, and entries that none sees have 0.
    """
    spec = reading.judge.spec
    reading.repetition(in_window=True)
    layers, _ = reading.inputs(hf.Needs.of(_REPEATED))
    kept = precis.compress(spec, layers, _REPEATED, 1.0)
    worth = np.zeros((spec.num_layers, spec.num_kv_heads, reading.num_tokens), np.float32)
    for layer, head in np.ndindex(worth.shape[:2]):
        worth[layer, head, kept.positions[layer][head]] = kept.scores[layer][head]
    for layer, window in enumerate(reading.judge.windows):
        if window is not None:
            worth[layer][:, -window:] = _attention_in_window(reading, layer, window)
    return torch.from_numpy(worth)


def _attention_in_window(reading: Reading, layer: int, window: int) -> np.ndarray:
    """The part of repeated_attention() for the last `window` tokens, [num_kv_heads, tokens]."""
    # Without chunks, the queries of later ones would not see the context's end.
    chunk = reading.repetition()[0][0]
    keys = reading.layers[layer][0][:, -window:]
    heads, tokens = keys.shape[:2]
    rows = slice(0, window - 1)
    queries, lse = chunk.queries[layer][:, rows], chunk.window_lse[layer][:, rows]
    distances = torch.arange(queries.shape[1])[:, None] + torch.arange(tokens, 0, -1)
    unseen = (distances >= window).to(keys.device)
    shares = largest_shares(keys, queries, lse, unseen)
    return shares.view(heads, -1, tokens).mean(dim=1).float().cpu().numpy()


def fast_reading(hf_model: Any) -> contextlib.AbstractContextManager[Any]:
    """Makes a float32 model read in bf16 where that is several times as fast.

    A probe learns nearly the same from it (docs/notes/kvprobe.md).
    """
    device = hf_model.device
    is_fast = False
    if hf_model.dtype == torch.float32 and device.type == "cpu":
        is_fast = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)()
    elif hf_model.dtype == torch.float32 and device.type == "cuda":
        is_fast = torch.cuda.get_device_capability(device) >= (8, 0)
    return torch.autocast(device.type, torch.bfloat16) if is_fast else contextlib.nullcontext()


def _split(texts: tuple[Text, ...]) -> tuple[tuple[Text, ...], tuple[Text, ...]]:
    """The part of each text to fit, and the rest."""
    cuts = [(text, int(_FITTED_SHARE * len(text.text))) for text in texts]
    return (
        tuple(replace(text, text=text.text[:cut]) for text, cut in cuts),
        tuple(replace(text, text=text.text[cut:]) for text, cut in cuts),
    )


def correlation(products: np.ndarray, weights: torch.Tensor) -> float:
    """The correlation of prediction and target within a head of a context, averaged over heads.

    Heads in which all entries have equal predictions or targets are left out.

    Args:
        products: as ProbeBuilder computes them.
        weights: [num_layers, num_kv_heads, features].
    """
    sums = torch.from_numpy(products)
    x, y, count = sums[..., :-1, :-1], sums[..., :-1, -1], sums[..., -2, -2]
    mean_p = (weights * sums[..., :-1, -2]).sum(-1) / count
    mean_y = sums[..., -2, -1] / count
    square_p = torch.einsum("lhf,lhfg,lhg->lh", weights, x, weights) / count
    variance_p = square_p - mean_p**2
    variance_y = sums[..., -1, -1] / count - mean_y**2
    both = (weights * y).sum(-1) / count - mean_p * mean_y
    varies = (variance_p > _VARIANCE_MIN) & (variance_y > _VARIANCE_MIN)
    return float((both / (variance_p * variance_y).sqrt())[varies].mean())


class ProbeBuilder(Builder):
    """Learns the coefficients of every head. Reads each context twice: for means, and to fit.

    Raises:
        ValueError: the texts are too short, the contexts too long for the model, or the profile
            would be larger than a service takes.
    """

    def __init__(self, loaded: Loaded, settings: Settings, parts: Path) -> None:
        needed = settings.tokens + min(settings.tokens, CHUNK_TOKENS)
        config = loaded.hf_model.config.get_text_config(decoder=True)
        positions = getattr(config, "max_position_embeddings", needed)
        if needed > positions:
            raise ValueError(
                f"the model reads each context and repeats it, which takes {needed} positions, and "
                f"has {positions}: give fewer --tokens"
            )
        fitted, rest = _split(settings.texts)
        super().__init__(loaded, replace(settings, texts=fitted), parts)
        spec = self._judge.spec
        numbers = (3 * spec.head_dim + 6) * spec.num_layers * spec.num_kv_heads
        if numbers * _NUMBER_BYTES > files.PROFILE_BYTES_MAX:
            raise ValueError(
                f"a probe of this model has {numbers} numbers, which may take more than the "
                f"{files.PROFILE_BYTES_MAX} bytes of a profile"
            )
        self._reader = Judge(loaded, "bf16")  # of rows that the kernels read fastest
        held_out = replace(settings, texts=rest, contexts=settings.contexts // _HELD_OUT)
        try:
            self._held_out = cut_contexts(held_out, loaded.encode, loaded.dialogue.begin)
        except ValueError:  # the rest of every text is too short
            self._held_out = []

    def read(self, tokens: list[int], repeats: bool = False) -> Reading:
        """A context after its prefill, and after its repetition if the model `repeats` it."""
        with fast_reading(self._reader.hf_model):
            reading = Reading(self._reader, tokens)
            if repeats:
                reading.repetition(in_window=True)
        return reading

    def _learn(self, progress: Progress) -> tuple[list[float], dict[str, Any]]:
        count, rest = len(self._contexts), len(self._held_out)
        steps = 2 * count + rest
        sums = 0
        for number, tokens in enumerate(self._contexts):
            progress(number, steps, f"means of context {number + 1}/{count}")
            key = self._key(tokens, "sums")
            sums = sums + self._part(key, lambda tokens=tokens: self._sums(tokens))
        means = self._means(sums)
        products = 0
        for number, tokens in enumerate(self._contexts):
            progress(count + number, steps, f"fit of context {number + 1}/{count}")
            products = products + self._part_of(tokens, means)
        weights = self._solve(products)
        found = []
        for number, tokens in enumerate(self._held_out):
            progress(2 * count + number, steps, f"held-out context {number + 1}/{rest}")
            found.append(correlation(self._part_of(tokens, means), weights))
        progress(steps, steps, "done")
        more: dict[str, Any] = {"kvdiff_power": KVDIFF_POWER}
        if found:
            more |= {
                "held_out_contexts": rest,
                "held_out_correlation": round(float(np.mean(found)), 4),
            }
        return self._table(weights, means), more

    def _part_of(self, tokens: list[int], means: Means) -> np.ndarray:
        key = self._key(self._contexts, tokens, "products", _DISTANCE_TOKENS)
        return self._part(key, lambda: self._products(tokens, means))

    def _sums(self, tokens: list[int]) -> np.ndarray:
        """[num_layers, num_kv_heads, head_dim + 2]: of unit keys, of values' norms, and tokens."""
        reading = self.read(tokens)
        layers = []
        for keys, (_, values, _) in zip(
            unrotated(self._judge.spec, reading), reading.layers, strict=True
        ):
            unit = keys / keys.norm(dim=-1, keepdim=True).clamp_min(_NORM_MIN)
            norms = values.cpu().double().norm(dim=-1).sum(dim=1, keepdim=True)
            count = torch.full_like(norms, len(tokens))
            layers.append(torch.cat([unit.sum(dim=1), norms, count], dim=1))
        return torch.stack(layers).numpy()

    def _means(self, sums: np.ndarray) -> Means:
        all_sums = torch.from_numpy(sums)
        count = all_sums[..., -1]
        return Means(all_sums[..., :-2] / count[..., None], all_sums[..., -2] / count)

    def _products(self, tokens: list[int], means: Means) -> np.ndarray:
        """The normal equations of one context, with the target y as the last feature.

        [num_layers, num_kv_heads, f, f]: sums over tokens of products of features.
        """
        reading = self.read(tokens, repeats=True)
        worth = repeated_attention(reading).double().clamp_min(_WORTH_MIN).log()
        layers = []
        for layer, keys in enumerate(unrotated(self._judge.spec, reading)):
            values = reading.layers[layer][1].cpu().double()
            x = features(keys, values, means.key[layer])
            window = self._judge.windows[layer] or len(tokens)
            first = max(_FIRST, len(tokens) - window)
            rows = torch.cat([x, worth[layer][..., None]], dim=-1)[:, first:]
            layers.append(rows.transpose(1, 2) @ rows)
        return torch.stack(layers).numpy()

    def _solve(self, products: np.ndarray) -> torch.Tensor:
        """The ridge regression of every head, float64 [num_layers, num_kv_heads, features]."""
        sums = torch.from_numpy(products)
        ridge = _RIDGE * torch.eye(sums.shape[-1] - 1, dtype=torch.float64)
        return torch.linalg.solve(sums[..., :-1, :-1] + ridge, sums[..., :-1, -1])

    def _table(self, weights: torch.Tensor, means: Means) -> list[float]:
        """The coefficients of log(exp(prediction) x kvdiff^KVDIFF_POWER), by a probe's rows.

        log kvdiff = log difference + log |v| - log mean |v|.
        """
        coefficients = weights.clone()
        log_value, log_difference, constant = -5, -3, -1
        coefficients[..., log_value] += KVDIFF_POWER
        coefficients[..., log_difference] += KVDIFF_POWER
        log_mean = means.value_norm.clamp_min(_NORM_MIN).log()
        coefficients[..., constant] -= KVDIFF_POWER * log_mean
        rows = torch.cat([means.key, coefficients], dim=-1).permute(2, 0, 1)
        return [float(f"{x:.6g}") for x in rows.reshape(-1).tolist()]
