"""Real Transformers models with random weights, small and fast, in folders to load from."""

from __future__ import annotations

import random
import re

import pytest

SEED = 20250417  # as in conftest

WORDS = ("the", "holder", "may", "licence", "work", "code", "source", "copies", "terms", "any")


def prose(words: int) -> str:
    """Sentences of everyday words."""
    draw = random.Random(SEED)
    sentences = [" ".join(draw.choices(WORDS, k=9)).capitalize() for _ in range(words // 9)]
    return ". ".join(sentences) + "."


def save_tokenizer(folder) -> int:
    """A tokenizer of whole words and digits; returns the size of its vocabulary."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from precis.eval.tasks import WORDS as hidden

    text = prose(4000) + " The secret code for is. What? Repeat everything"
    pieces = dict.fromkeys(["<unk>", *re.findall(r"\w+|\S", text), *hidden, *map(str, range(10))])
    tokenizer = Tokenizer(
        models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)]
    )
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(folder)
    return len(pieces)


SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "initializer_range": 0.3,  # sharp enough to detect a lost entry
}


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """The folder of a Gemma 3 with random weights; one of its layers has a sliding window."""
    import torch
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    folder = tmp_path_factory.mktemp("tiny-gemma")
    torch.manual_seed(SEED)
    kinds = ["sliding_attention", "full_attention", "full_attention"]
    size = save_tokenizer(folder)
    config = Gemma3TextConfig(vocab_size=size, sliding_window=64, layer_types=kinds, **SHAPE)
    Gemma3ForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory):
    """The folder of a Llama with random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("tiny-llama")
    torch.manual_seed(SEED)
    config = LlamaConfig(vocab_size=save_tokenizer(folder), **SHAPE)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(prose(4000))
    return path
