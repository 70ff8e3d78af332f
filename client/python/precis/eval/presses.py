"""kvpress's presses on the same contexts, with the same questions, for comparison.

A press decides as it does in kvpress: its own hook runs over the hidden states and the KV of one
prefill. Head-wise presses do not remove entries; they name entries, and kvpress makes attention
skip those.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from precis.hf import Answer, attention_modules, attention_windows

from .models import Loaded
from .needles import Document

if TYPE_CHECKING:
    from kvpress import BasePress
    from transformers import DynamicCache


@dataclass(frozen=True)
class PressSpec:
    """A press, and the preset of Precis that is compared with it (None if there is none)."""

    name: str
    preset: str | None
    make: Callable[[float], BasePress]  # takes the removed share


def press_specs() -> list[PressSpec]:
    """The presses with kvpress's own defaults.

    Raises:
        ModuleNotFoundError: kvpress is not installed.
    """
    try:
        import kvpress as k
    except ModuleNotFoundError:
        raise ModuleNotFoundError("kvpress is not installed: pip install kvpress==0.5.5") from None
    logging.getLogger("kvpress").setLevel(logging.ERROR)  # its warnings are about costs
    return [
        PressSpec("Random", "random", k.RandomPress),
        PressSpec("StreamingLLM", "streaming_llm", k.StreamingLLMPress),
        PressSpec("Knorm", "knorm", k.KnormPress),
        PressSpec("KeyDiff", "keydiff", k.KeyDiffPress),
        PressSpec("TOVA", "tova", k.TOVAPress),
        PressSpec("SnapKV", "snapkv", k.SnapKVPress),
        PressSpec("PyramidKV", "pyramidkv", k.PyramidKVPress),
        PressSpec("ExpectedAttention", "expected_attention", k.ExpectedAttentionPress),
        PressSpec("LagKV", "lagkv", k.LagKVPress),
        PressSpec("Ada(SnapKV)", "ada_snapkv", lambda r: k.AdaKVPress(k.SnapKVPress(r))),
        PressSpec("Ada(KeyDiff)", "ada_keydiff", lambda r: k.AdaKVPress(k.KeyDiffPress(r))),
        PressSpec("Critical(SnapKV)", "criticalkv", lambda r: k.CriticalKVPress(k.SnapKVPress(r))),
        PressSpec(
            "CriticalAda(SnapKV)",
            "criticalkv_ada",
            lambda r: k.CriticalAdaKVPress(k.SnapKVPress(r)),
        ),
        PressSpec("KVzip", "kvzip", k.KVzipPress),
        PressSpec("CUR", None, k.CURPress),
        PressSpec("Leverage", None, k.LeverageScorePress),
        PressSpec("Compactor", None, k.CompactorPress),
    ]


def why_not(loaded: Loaded) -> str | None:
    """Why kvpress cannot run on this model; None if it can."""
    windows = attention_windows(loaded.hf_model.config.get_text_config(decoder=True))
    if any(window is not None for window in windows):
        return "kvpress does not compress layers of a sliding window"
    return None


class PressSubject:
    """A context for kvpress's presses: one prefill by Transformers itself.

    As a context manager it restores the model.
    """

    def __init__(self, loaded: Loaded, document: Document) -> None:
        self._loaded, self._document = loaded, document
        self._modules = attention_modules(loaded.hf_model)
        self._calls: list[dict[str, Any]] = []
        self._clear_masks()
        self._cache = self._prefill(self._keep_calls())

    def compress(self, press: BasePress) -> tuple[DynamicCache, float]:
        """The cache after `press`, and the seconds that the press took."""
        from kvpress import KVzipPress

        start = time.perf_counter()
        self._clear_masks()
        if isinstance(press, KVzipPress):  # reads the context again by itself
            cache = self._prefill(press(self._loaded.hf_model))
            return cache, time.perf_counter() - start
        cache = copy.copy(self._cache)
        cache.layers = [copy.copy(layer) for layer in self._cache.layers]
        press.post_init_from_model(self._loaded.hf_model)
        with torch.no_grad():
            for module, call in zip(self._modules, self._calls, strict=True):
                module.rotary_emb = self._loaded.hf_model.get_decoder().rotary_emb
                press.forward_hook(module, [], call | {"past_key_values": cache}, [None, None])
        return cache, time.perf_counter() - start

    @torch.no_grad()
    def answers(self, cache: DynamicCache) -> list[Answer]:
        """How likely the model finds each answer; positions continue from the document's length."""
        encode, dialogue = self._loaded.encode, self._loaded.dialogue
        return [
            self._answer(cache, encode(needle.question(dialogue)), encode(needle.answer))
            for needle in self._document.needles
        ]

    def __enter__(self) -> PressSubject:
        return self

    def __exit__(self, *error: object) -> None:
        for module in self._modules:
            del module.masked_key_indices
            module._modules.pop("rotary_emb", None)

    def _answer(self, cache: DynamicCache, question: list[int], answer: list[int]) -> Answer:
        fed = torch.tensor([question + answer[:-1]], device=self._loaded.hf_model.device)
        begin = len(self._document.tokens)
        held = [(layer.keys, layer.values) for layer in cache.layers]
        logits = self._loaded.hf_model(
            fed,
            past_key_values=cache,
            position_ids=torch.arange(begin, begin + fed.shape[1], device=fed.device)[None],
            logits_to_keep=len(answer),
        ).logits[0]
        for layer, (keys, values) in zip(cache.layers, held, strict=True):
            layer.keys, layer.values = keys, values
        target = torch.tensor(answer, device=logits.device)
        greedy = logits.argmax(-1)
        nll = torch.nn.functional.cross_entropy(logits.float(), target)
        return Answer(bool((greedy == target).all()), float(nll), tuple(greedy.tolist()))

    @torch.no_grad()
    def _prefill(self, around: contextlib.AbstractContextManager) -> DynamicCache:
        from transformers import DynamicCache

        cache = DynamicCache()
        ids = torch.tensor([self._document.tokens], device=self._loaded.hf_model.device)
        with around:
            self._loaded.hf_model(ids, past_key_values=cache, logits_to_keep=1)
        return cache

    @contextlib.contextmanager
    def _keep_calls(self) -> Iterator[None]:
        """Within the block, records the arguments of every layer's attention."""
        hooks = [
            module.register_forward_pre_hook(
                lambda _module, _args, kwargs: self._calls.append(dict(kwargs)), with_kwargs=True
            )
            for module in self._modules
        ]
        yield
        for hook in hooks:
            hook.remove()

    def _clear_masks(self) -> None:
        """Clears the list of entries that head-wise presses make attention skip."""
        for module in self._modules:
            module.masked_key_indices = None
