"""A context that the model has read once, for all recipes and budgets."""

from __future__ import annotations

import json
import time
from functools import cached_property
from typing import Any

import torch

import precis
from precis import hf
from precis.hf.spec import TORCH_DTYPES

from .cuts import Compressed, Recipe
from .models import Loaded
from .needles import Document
from .perturbation import Probe

PROBE_TOKENS = 32


class Judge:
    """A model and its data that all contexts share.

    `dtype`: of K and V in the store; the model's by default.
    """

    def __init__(self, loaded: Loaded, dtype: str | None = None) -> None:
        self.loaded = loaded
        self.hf_model = loaded.hf_model
        self.spec = hf.model_spec(loaded.hf_model, loaded.name, loaded.revision, dtype)
        self._of_weights = hf.model_spec(loaded.hf_model, loaded.name, loaded.revision).fingerprint
        self.windows = hf.attention_windows(loaded.hf_model.config.get_text_config(decoder=True))
        self.projections = hf.output_projections(loaded.hf_model)

    def profile(self, text: str) -> str:
        """The profile, which may be of the same weights in the model's own dtype, for this spec."""
        fields = json.loads(text)
        if fields["model"] == self._of_weights:
            fields["model"] = self.spec.fingerprint
        return json.dumps(fields)

    @cached_property
    def projection_tensors(self) -> list[torch.Tensor]:
        """The output projections on the model's device."""
        return [torch.from_numpy(p).to(self.hf_model.device) for p in self.projections]

    @cached_property
    def repeat_request(self) -> list[int]:
        """The tokens that ask the model to repeat."""
        return hf.repeat_request(self.loaded.tokenizer)


class Reading:
    """A context after its prefill, with the inputs of scorers.

    Attributes:
        tokens: of the context.
        cache: the KV of all tokens.
        layers: keys, values and queries of every layer, as observers of a RaggedCache see them.
        prefill_seconds: the time to read it.
    """

    def __init__(self, judge: Judge, tokens: list[int]) -> None:
        self.judge = judge
        self.tokens = tokens
        self.layers: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self._repeated: tuple[list[hf.Repetition], float] | None = None
        self.cache = hf.RaggedCache(judge.hf_model)
        start = time.perf_counter()
        with self.cache.observed(lambda _, *rows: self.layers.append(rows)):
            hf.forward(judge.hf_model, tokens, self.cache, logits_to_keep=1)
        self.prefill_seconds = time.perf_counter() - start

    @property
    def num_tokens(self) -> int:
        """The length of the context."""
        return len(self.tokens)

    def inputs(self, needs: hf.Needs) -> tuple[list[dict[str, torch.Tensor]], float]:
        """The inputs of a scorer, by layer, and the seconds that the model took for them."""
        scorers = hf.Scorers(self.judge.hf_model, needs, self.judge.spec.dtype, 0)
        if needs.repetition:
            chunks, seconds = self.repetition()
            start = time.perf_counter()
            layers = [
                scorers.layer(
                    index,
                    keys,
                    values,
                    torch.cat([chunk.queries[index] for chunk in chunks], dim=1),
                    torch.cat([chunk.lse[index] for chunk in chunks], dim=1),
                )
                for index, (keys, values, _) in enumerate(self.layers)
            ]
        else:
            seconds, start = 0.0, time.perf_counter()
            layers = [scorers.layer(index, *rows) for index, rows in enumerate(self.layers)]
        return layers, seconds + time.perf_counter() - start

    def repetition(self, in_window: bool = False) -> tuple[list[hf.Repetition], float]:
        """The repetition of the context, and the seconds that it took; computed once.

        `in_window`: with window_lse.
        """
        if self._repeated is None or (in_window and not self._repeated[0][0].window_lse):
            start = time.perf_counter()
            request = self.judge.repeat_request
            chunks = hf.repetitions(
                self.judge.hf_model, self.tokens, self.cache, request, in_window=in_window
            )
            self._repeated = list(chunks), time.perf_counter() - start
        return self._repeated


class Subject(Reading):
    """A document on which recipes are evaluated.

    Attributes:
        document: its tokens, needles and the following text.
        probe: measures the perturbation.
    """

    def __init__(self, judge: Judge, document: Document) -> None:
        super().__init__(judge, document.tokens)
        self.document = document
        self.probe = self._make_probe()

    def answers(self, cache: hf.RaggedCache) -> list[hf.Answer]:
        """How likely the model finds the answer to each question, over a cache of this context."""
        encode, dialogue = self.judge.loaded.encode, self.judge.loaded.dialogue
        asked = [
            (encode(needle.question(dialogue)), encode(needle.answer))
            for needle in self.document.needles
        ]
        return hf.answer_nlls(self.judge.hf_model, asked, cache)

    def compress(
        self,
        recipe: Recipe,
        largest: float,
        profile: str | None = None,
        of_bytes: bool = False,
    ) -> tuple[Compressed, float]:
        """Compresses by one recipe; also the model's seconds for the scorer's inputs.

        `profile`: JSON of a profile, if the recipe takes one. `of_bytes`: budgets are shares of the
        bytes.
        """
        layers, seconds = self.inputs(hf.Needs.of(recipe.canonical))
        options: dict[str, Any] = {"profile": profile and self.judge.profile(profile)}
        if recipe.needs_o_proj:
            options["o_proj"] = self.judge.projections

        def compress(keep: precis.Keep) -> precis.Kept:
            return precis.compress(self.judge.spec, layers, recipe.text, keep, **options)

        made = Compressed(
            self.judge.spec, recipe, self.num_tokens, largest, compress, of_bytes=of_bytes
        )
        return made, seconds

    def restore(self, prefix: object) -> hf.RaggedCache:
        """A cache over the kept entries of this context."""
        return hf.RaggedCache(self.judge.hf_model, prefix)

    def original_bytes(self) -> int:
        """The size of its K and V in the store's dtype, uncompressed."""
        size = TORCH_DTYPES[self.judge.spec.dtype].itemsize
        return (
            sum(rows.numel() for keys, values, _ in self.layers for rows in (keys, values)) * size
        )

    def _make_probe(self) -> Probe:
        tokens = self.judge.loaded.encode(" " + self.document.rest)[:PROBE_TOKENS]
        if not tokens:
            raise ValueError("the text ends with the document: nothing is left to probe with")
        queries: list[torch.Tensor] = []
        with self.cache.observed(lambda _layer, _keys, _values, asked: queries.append(asked)):
            hf.forward(self.judge.hf_model, tokens, self.cache, logits_to_keep=1)
        self.cache.crop(self.num_tokens)
        rows = [(keys, values) for keys, values, _ in self.layers]
        return Probe(queries, rows, self.judge.projection_tensors, self.judge.windows)
