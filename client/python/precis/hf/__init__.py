"""Precis for Hugging Face Transformers.

* :func:`model_spec` describes a model to the store.
* :func:`prefill` reads a prompt and pushes its KV layer by layer; :func:`store` does a whole put.
* :class:`RaggedCache` makes a restored prefix a cache that the model decodes over, exactly.
* :func:`generate`, :func:`forward` and :func:`answer_nll` read on from any cache.

Needs PyTorch and Transformers: ``pip install './client/python[hf]'`` from the repository.
"""

from .decode import Answer, answer_nll, forward, generate
from .prefill import Prefilled, prefill, store
from .ragged import ATTENTION_NAME, RaggedCache, ragged_attention
from .spec import model_spec

__all__ = [
    "ATTENTION_NAME",
    "Answer",
    "Prefilled",
    "RaggedCache",
    "answer_nll",
    "forward",
    "generate",
    "model_spec",
    "prefill",
    "ragged_attention",
    "store",
]
