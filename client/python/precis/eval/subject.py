"""A context that has been read once; every recipe and every budget starts from it."""

from __future__ import annotations

import time
from functools import cached_property
from typing import Any

import torch

import precis
from precis import hf

from .cuts import Compressed, Recipe
from .models import Loaded
from .needles import Document
from .perturbation import Probe

PROBE_TOKENS = 32


class Judge:
    """A model, and what of it every context needs."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.hf_model = loaded.hf_model
        self.spec = hf.model_spec(loaded.hf_model, loaded.name, loaded.revision)
        self.windows = hf.attention_windows(loaded.hf_model.config.get_text_config(decoder=True))
        self.projections = hf.output_projections(loaded.hf_model)

    @cached_property
    def projection_tensors(self) -> list[torch.Tensor]:
        """The output projections where the model is."""
        return [torch.from_numpy(p).to(self.hf_model.device) for p in self.projections]

    @cached_property
    def repeat_request(self) -> list[int]:
        """What asks the model to repeat."""
        return hf.repeat_request(self.loaded.tokenizer)


class Subject:
    """One document after its prefill.

    Attributes:
        document: its tokens, needles and what follows.
        cache: everything the model saw.
        prefill_seconds: of reading it.
        probe: for the perturbation.
    """

    def __init__(self, judge: Judge, document: Document) -> None:
        self.document = document
        self._judge = judge
        self._layers: list[tuple[torch.Tensor, ...]] = []
        self._repeated: tuple[list[hf.Repetition], float] | None = None
        self.cache = hf.RaggedCache(judge.hf_model)
        start = time.perf_counter()
        with self.cache.observed(lambda _, *rows: self._layers.append(rows)):
            hf.forward(judge.hf_model, document.tokens, self.cache, logits_to_keep=1)
        self.prefill_seconds = time.perf_counter() - start
        self.probe = self._make_probe()

    @property
    def num_tokens(self) -> int:
        """Of the context."""
        return len(self.document.tokens)

    def answers(self, cache: hf.RaggedCache) -> list[hf.Answer]:
        """How the model takes the answer to each question, over a cache of this context."""
        encode, dialogue = self._judge.loaded.encode, self._judge.loaded.dialogue
        asked = [
            (encode(needle.question(dialogue)), encode(needle.answer))
            for needle in self.document.needles
        ]
        return hf.answer_nlls(self._judge.hf_model, asked, cache)

    def compress(
        self, recipe: Recipe, largest: float, profile: str | None = None
    ) -> tuple[Compressed, float]:
        """By one recipe, and the seconds it took the model to make what its scorer wants.

        `profile`: JSON of one, if the recipe takes its budgets from it.
        """
        layers, seconds = self._inputs(hf.Needs.of(recipe.canonical))
        options: dict[str, Any] = {"profile": profile}
        if recipe.needs_o_proj:
            options["o_proj"] = self._judge.projections

        def compress(keep: float) -> precis.Kept:
            return precis.compress(self._judge.spec, layers, recipe.text, keep, **options)

        made = Compressed(self._judge.spec, recipe, self.num_tokens, largest, compress)
        return made, seconds

    def restore(self, prefix: object) -> hf.RaggedCache:
        """A cache over what was kept of this context."""
        return hf.RaggedCache(self._judge.hf_model, prefix)

    def original_bytes(self) -> int:
        """Of its K and V, uncompressed."""
        return sum(rows.nbytes for keys, values, _ in self._layers for rows in (keys, values))

    def _inputs(self, needs: hf.Needs) -> tuple[list[dict[str, torch.Tensor]], float]:
        """What a scorer is given, by layer, and the seconds it took to make."""
        scorers = hf.Scorers(self._judge.hf_model, needs, self._judge.spec.dtype, 0)
        if needs.repetition:
            chunks, seconds = self._repetition()
            start = time.perf_counter()
            layers = [
                scorers.layer(
                    index,
                    keys,
                    values,
                    torch.cat([chunk.queries[index] for chunk in chunks], dim=1),
                    torch.cat([chunk.lse[index] for chunk in chunks], dim=1),
                )
                for index, (keys, values, _) in enumerate(self._layers)
            ]
        else:
            seconds, start = 0.0, time.perf_counter()
            layers = [scorers.layer(index, *rows) for index, rows in enumerate(self._layers)]
        return layers, seconds + time.perf_counter() - start

    def _repetition(self) -> tuple[list[hf.Repetition], float]:
        """Made once, however many recipes want it."""
        if self._repeated is None:
            start = time.perf_counter()
            request = self._judge.repeat_request
            tokens = self.document.tokens
            made = list(hf.repetitions(self._judge.hf_model, tokens, self.cache, request))
            self._repeated = made, time.perf_counter() - start
        return self._repeated

    def _make_probe(self) -> Probe:
        tokens = self._judge.loaded.encode(" " + self.document.rest)[:PROBE_TOKENS]
        if not tokens:
            raise ValueError("the text ends with the document: nothing is left to probe with")
        queries: list[torch.Tensor] = []
        with self.cache.observed(lambda _layer, _keys, _values, asked: queries.append(asked)):
            hf.forward(self._judge.hf_model, tokens, self.cache, logits_to_keep=1)
        self.cache.crop(self.num_tokens)
        rows = [(keys, values) for keys, values, _ in self._layers]
        return Probe(queries, rows, self._judge.projection_tensors, self._judge.windows)
