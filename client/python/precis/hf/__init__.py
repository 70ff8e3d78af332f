"""Precis for Hugging Face Transformers.

* :func:`model_spec` describes a model to the store.
* :func:`prefill` reads a prompt and pushes its KV layer by layer; :func:`store` does a whole put.
* :class:`RaggedCache` makes a restored prefix a cache that the model decodes over, exactly.
* :func:`generate`, :func:`forward` and :func:`answer_nlls` read on from any cache.
* :func:`output_projections`, :class:`Needs`, :class:`Scorers` and :func:`repetitions` make what
  recipes want of a model besides K and V.

Needs PyTorch and Transformers: ``pip install './client/python[hf]'`` from the repository.
"""

from .decode import Answer, answer_nll, answer_nlls, forward, generate
from .modules import Rotation, attention_modules, output_projections
from .needs import Needs, QueryStatistics
from .prefill import Prefilled, prefill, store
from .ragged import ATTENTION_NAME, RaggedCache, ragged_attention
from .repetition import Repetition, repeat_request, repetitions
from .scorers import Scorers
from .spec import attention_windows, model_spec

__all__ = [
    "ATTENTION_NAME",
    "Answer",
    "Needs",
    "Prefilled",
    "QueryStatistics",
    "RaggedCache",
    "Repetition",
    "Rotation",
    "Scorers",
    "answer_nll",
    "answer_nlls",
    "attention_modules",
    "attention_windows",
    "forward",
    "generate",
    "model_spec",
    "output_projections",
    "prefill",
    "ragged_attention",
    "repeat_request",
    "repetitions",
    "store",
]
