"""Libraries on the same shapes: torch's products and NumPy's sort as ceilings, kvpress's presses as
peers."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

WINDOW = 32
SQUARE = 4096


@dataclass(frozen=True)
class Shape:
    """A model's attention layer, with precis_bench_kernels's name for it."""

    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    hidden: int


SHAPES = {
    "llama-3.1-8b": Shape(32, 8, 128, 4096),
    "smollm2-135m": Shape(9, 3, 64, 576),
    "one-head-group": Shape(4, 1, 128, 512),
}


def fastest(run: Callable[[], object], device: str, runs: int, seconds_min: float) -> float:
    """The fastest run, after one to warm up."""

    def once() -> float:
        began = time.perf_counter()
        run()
        if device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    once()
    times: list[float] = []
    while len(times) < runs or sum(times) < seconds_min:
        times.append(once())
    return min(times)


def product_rates(shape: Shape, tokens: int, device: str, runs: int) -> dict[str, float]:
    """FLOP/s of bf16 products of the stages' shapes, by the library behind torch.

    window: the queries of every KV head's group with its keys. exact: a head's values with its
    output projection. gram: a head's values with a square matrix. square: a large square product,
    which no stage has, as the most that the library achieves on this machine.
    """
    group = shape.num_q_heads // shape.num_kv_heads
    keys = torch.randn(shape.num_kv_heads, tokens, shape.head_dim, device=device).bfloat16()
    rows = torch.randn(shape.num_kv_heads, group * WINDOW, shape.head_dim, device=device).bfloat16()
    wide = torch.randn(shape.head_dim, shape.hidden, device=device).bfloat16()
    square = torch.randn(shape.head_dim, shape.head_dim, device=device).bfloat16()
    large = torch.randn(SQUARE, SQUARE, device=device).bfloat16()
    cases: dict[str, tuple[Callable[[], object], float]] = {
        "window": (
            lambda: torch.matmul(rows, keys.transpose(1, 2)),
            2.0 * shape.num_q_heads * WINDOW * shape.head_dim * tokens,
        ),
        "exact": (lambda: keys[0] @ wide, 2.0 * tokens * shape.head_dim * shape.hidden),
        "gram": (lambda: keys[0] @ square, 2.0 * tokens * shape.head_dim**2),
        "square": (lambda: large @ large, 2.0 * SQUARE**3),
    }
    with torch.inference_mode():
        return {
            name: flops / fastest(run, device, runs, 0.2) for name, (run, flops) in cases.items()
        }


def order_seconds(shape: Shape, tokens: int, keep: float, runs: int) -> float:
    """NumPy's time to put every head's best keys in order; its partition and sort use AVX-512.
    Measured on one core and divided by the cores that the heads could be spread over."""
    kept = max(1, int(keep * tokens))
    norms = np.sqrt(np.random.default_rng(0).chisquare(shape.head_dim, tokens))
    ranks = norms.astype(np.float32).view(np.uint32).astype(np.uint64)
    keys = ranks << np.uint64(32) | np.arange(tokens, dtype=np.uint64)

    def order() -> object:
        return np.sort(np.partition(keys, kept - 1)[:kept])

    cores = min(shape.num_kv_heads, len(os.sched_getaffinity(0)))
    return fastest(order, "cpu", runs, 0.1) * shape.num_kv_heads / cores


def padded_attention_seconds(shape: Shape, tokens: int, runs: int) -> float:
    """The time of torch's attention of one token over heads with (h + 1) / H of the rows each.

    The rows are padded to the longest head, with a mask, as torch needs them. The queries of a
    group stand as rows of their KV head, so that torch reads its keys and values once.
    """
    heads, group = shape.num_kv_heads, shape.num_q_heads // shape.num_kv_heads
    keys, values = (torch.randn(1, heads, tokens, shape.head_dim).bfloat16() for _ in range(2))
    query = torch.randn(1, heads, group, shape.head_dim).bfloat16()
    counts = torch.arange(1, heads + 1) * tokens // heads
    mask = (torch.arange(tokens)[None] < counts[:, None])[None, :, None]
    attention = torch.nn.functional.scaled_dot_product_attention
    with torch.inference_mode():
        return fastest(lambda: attention(query, keys, values, mask), "cpu", runs, 0.1)


def _layer(shape: Shape, dtype: torch.dtype, device: str) -> Any:
    """An attention layer with random weights, in the form that kvpress's hooks get."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaAttention

    config = LlamaConfig(
        hidden_size=shape.hidden,
        num_attention_heads=shape.num_q_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        num_hidden_layers=1,
    )
    config._attn_implementation = "sdpa"
    return LlamaAttention(config, layer_idx=0).to(device=device, dtype=dtype).eval()


def _presses(keep: float) -> dict[str, Any]:
    """kvpress's presses by our preset that each is compared with, with its window."""
    import kvpress as k

    removed = 1 - keep

    def snap() -> Any:
        return k.SnapKVPress(removed, window_size=WINDOW, kernel_size=7)

    return {
        "knorm": k.KnormPress(removed),
        "keydiff": k.KeyDiffPress(removed),
        "lagkv": k.LagKVPress(removed),
        "snapkv": snap(),
        "ada_snapkv": k.AdaKVPress(snap()),
        "criticalkv_ada": k.CriticalAdaKVPress(snap()),
    }


def press_times(
    shape: Shape, tokens: int, device: str, keep: float, runs: int, wanted: re.Pattern[str]
) -> Iterator[tuple[str, str, float]]:
    """Yields preset, dtype and seconds of each press on one layer whose keys and values exist
    already.

    Measures from the scores to the kept entries, as the press's hook would run after the layer's
    forward pass.
    """
    for dtype in (torch.bfloat16, torch.float32):
        layer = _layer(shape, dtype, device)
        heads = (1, shape.num_kv_heads, tokens, shape.head_dim)
        keys = torch.randn(heads, device=device, dtype=dtype)
        values = torch.randn(heads, device=device, dtype=dtype)
        hidden = torch.randn(1, tokens, shape.hidden, device=device, dtype=dtype)
        turns = torch.randn(1, tokens, shape.head_dim, device=device, dtype=dtype)
        kwargs = {"position_embeddings": (turns.cos(), turns.sin())}
        for preset, press in _presses(keep).items():
            if wanted.search(f"preset {preset}") is None:
                continue

            def run(press: Any = press) -> object:
                return press.compress(layer, hidden, keys, values, None, kwargs)  # noqa: B023

            with torch.inference_mode():
                yield preset, str(dtype).removeprefix("torch."), fastest(run, device, runs, 0.0)
