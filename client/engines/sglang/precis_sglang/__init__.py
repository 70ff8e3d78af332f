"""Precis for SGLang: requests decode over a compressed prefix.

It depends on names in SGLang 0.5.23, as in the wheel on PyPI, which names no commit. No engine has
run with it. README.md says what was tried without a GPU, and how.

SGLang calls register() in every process, by the entry point group ``sglang.srt.plugins``. These
flags turn it on::

    python -m sglang.launch_server --model-path MODEL \\
        --radix-cache-backend precis --attention-backend precis \\
        --cuda-graph-backend-decode disabled --cuda-graph-backend-prefill disabled

SGLang's pool keeps K and V of a layer as [slots, H, D]. Viewed as [slots * H, 1, D], this is the
cache of a model with one KV head, and R requests of H heads are R * H sequences for SGLang's
kernels, each with its own table and length.

- plan.py: the slots and places of a prefix, and the tables of a step. Only arithmetic.
- attention.py: the attention backend, over SGLang's Triton backend or its plain PyTorch one.
- cache.py: the radix cache that gives requests such prefixes.
- service.py: settings, and access to the service.
"""

from __future__ import annotations

NAME = "precis"


def register() -> None:
    """Registers the radix cache and the attention backend by their names, once per process."""
    from sglang.srt.arg_groups.choices import add_attention_backend_choices
    from sglang.srt.layers.attention.attention_registry import (
        ATTENTION_BACKENDS,
        register_attention_backend,
    )
    from sglang.srt.mem_cache.registry import (
        register_radix_cache_backend,
        registered_radix_cache_backends,
    )

    from .attention import make_backend

    if NAME not in ATTENTION_BACKENDS:
        register_attention_backend(NAME)(make_backend)
        add_attention_backend_choices([NAME])
    if NAME not in registered_radix_cache_backends():
        register_radix_cache_backend(NAME, _make_cache)


def _make_cache(context: object) -> object:
    from .cache import make_cache  # its base class is SGLang's, which is slow to import

    return make_cache(context)
