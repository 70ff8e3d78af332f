"""Precis for Hugging Face Transformers.

* :func:`model_spec` describes a model to the store.
* :class:`Conversation` holds a conversation turn by turn, and resumes it from the store.
* :func:`prefill` reads a prompt and pushes its KV layer by layer; :func:`store` does a whole put.
* :class:`RaggedCache` is a cache over restored prefixes, with exact attention;
  ``hf_model.generate(prompt, past_key_values=ragged)`` works as with any cache.
* :func:`generate`, :func:`forward` and :func:`answer_nlls` continue from any cache;
  :func:`compress_tail` and :class:`WhileDecoding` compress a cache that grows.
* :func:`output_projections`, :class:`Needs`, :class:`Scorers` and :func:`repetitions` compute the
  inputs that recipes need besides K and V.

Needs PyTorch and Transformers: ``pip install './client/python[hf]'`` from the repository.
"""

from .attention import ATTENTION_NAME
from .conversation import Conversation, Turn
from .decode import Answer, answer_nll, answer_nlls, forward, generate
from .generation import over_ragged_caches
from .live import WhileDecoding, compress_tail
from .modules import Rotation, attention_modules, output_projections
from .needs import Needs, QueryStatistics
from .prefill import Prefilled, prefill, store
from .ragged import RaggedCache
from .repetition import Repetition, repeat_request, repetitions
from .scorers import Scorers
from .spec import attention_windows, model_spec

over_ragged_caches()

__all__ = [
    "ATTENTION_NAME",
    "Answer",
    "Conversation",
    "Needs",
    "Prefilled",
    "QueryStatistics",
    "RaggedCache",
    "Repetition",
    "Rotation",
    "Scorers",
    "Turn",
    "WhileDecoding",
    "answer_nll",
    "answer_nlls",
    "attention_modules",
    "attention_windows",
    "compress_tail",
    "forward",
    "generate",
    "model_spec",
    "output_projections",
    "prefill",
    "repeat_request",
    "repetitions",
    "store",
]
