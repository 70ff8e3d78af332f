"""A cache that is compressed while it grows: exact attention over what is left of it."""

from __future__ import annotations

import copy
import dataclasses
import gc
import json
import weakref

import pytest
import torch
from conftest import SEED
from dense_reference import (
    HandmadePrefix,
    HeadKept,
    LayerKept,
    continuation,
    dense_attention,
    full_cache,
)
from kv import toy_probe
from transformers import DynamicCache

import precis
from precis import hf
from precis.hf import ragged_layer

CHUNKS = [7, 1, 1, 1, 1, 1, 20, 1, 1, 30]
BOUND = 1e-3  # max abs difference of logits in float32
HOW = hf.WhileDecoding(every_k=40, keep=0.4, recipe="ada_keydiff", recent=5)
ALL = dataclasses.replace(HOW, keep=1.0)


@pytest.fixture
def tokens() -> list[int]:
    generator = torch.Generator().manual_seed(SEED)
    return torch.randint(20, 1000, (192,), generator=generator).tolist()


def extend(prefix: HandmadePrefix, hf_model, cache: DynamicCache, end: int) -> None:
    """Adds to a prefix what is kept of the tokens of a full cache up to `end`."""
    begin, prefix.matched_tokens = prefix.matched_tokens, end
    rows = [(layer.keys[0, :, begin:end], layer.values[0, :, begin:end]) for layer in cache.layers]
    spec = hf.model_spec(hf_model, revision="any")
    made = precis.compress(spec, rows, HOW.recipe, HOW.keep, begin=begin)
    for layer, positions in zip(prefix.layers, made.positions, strict=True):
        for head, more in zip(layer.heads, positions, strict=True):
            head.positions = torch.cat([head.positions, torch.from_numpy(more.astype("int64"))])


def test_a_compressed_tail_is_attended_to_as_its_kept_entries(hf_model, tokens):
    first, second, rest = tokens[:80], tokens[80:128], tokens[128:]
    ragged = hf.RaggedCache(hf_model)
    for part in (first, second):
        hf.forward(hf_model, part, ragged)
        hf.compress_tail(hf_model, ragged, HOW)
    assert (ragged.get_seq_length(), ragged.prefix_tokens) == (128, 123)
    actual = continuation(hf_model, ragged, rest, CHUNKS)

    cache, _ = full_cache(hf_model, first, whole=True)
    heads = cache.layers[0].keys.shape[1]
    none = torch.empty(0, dtype=torch.long)
    layers = [LayerKept([HeadKept(none, none, none) for _ in range(heads)]) for _ in cache.layers]
    prefix = HandmadePrefix(0, layers)
    extend(prefix, hf_model, cache, 75)
    with dense_attention(hf_model, prefix):
        continuation(hf_model, cache, second, [48])
    extend(prefix, hf_model, cache, 123)
    with dense_attention(hf_model, prefix):
        expected = continuation(hf_model, cache, rest, CHUNKS)
    assert (actual - expected).abs().max() <= BOUND
    whole = hf.forward(hf_model, tokens, hf.RaggedCache(hf_model))[128:]
    assert (whole - expected).abs().max() > 10 * BOUND  # what was dropped mattered


def test_nothing_changes_if_everything_is_kept(hf_model, tokens):
    whole = hf.forward(hf_model, tokens, hf.RaggedCache(hf_model))[128:]
    ragged = hf.RaggedCache(hf_model)
    hf.forward(hf_model, tokens[:128], ragged)
    hf.compress_tail(hf_model, ragged, ALL)
    assert ragged.prefix_tokens == 123
    actual = continuation(hf_model, ragged, tokens[128:], CHUNKS)
    assert (actual - whole).abs().max() <= BOUND


def test_a_generated_text_takes_its_share_of_the_entries(random_llama, tokens):
    plain = list(hf.generate(random_llama, tokens, hf.RaggedCache(random_llama), 150, []))
    kept = hf.RaggedCache(random_llama)
    assert list(hf.generate(random_llama, tokens, kept, 150, [], compress=ALL)) == plain
    assert kept.tokens(1)[0].tolist() == (tokens + plain)[:-1]

    ragged = hf.RaggedCache(random_llama)
    for _ in hf.generate(random_llama, tokens, ragged, 150, [], compress=HOW):
        pass
    assert ragged.prefix_tokens > 192 + 100
    for layer in range(4):
        entries = sum(len(positions) for positions, _, _ in ragged.entries(layer)) / 8
        assert 0.39 <= entries / ragged.prefix_tokens <= 0.41


def test_the_memory_of_the_others_is_released(random_llama, tokens):
    ragged = hf.RaggedCache(random_llama)
    hf.forward(random_llama, tokens, ragged)
    before = [weakref.ref(layer.keys) for layer in ragged.layers]
    hf.compress_tail(random_llama, ragged, HOW)
    gc.collect()
    assert all(ref() is None for ref in before)
    row = 8 * 32 * 4  # heads, head_dim and bytes of an element
    for index, layer in enumerate(ragged.layers):
        assert layer.keys.untyped_storage().nbytes() == HOW.recent * row
        entries = list(ragged.entries(index))
        assert sum(keys.untyped_storage().nbytes() for _, keys, _ in entries) < 0.42 * 192 * row


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_kept_rows_are_those_of_the_tail_whatever_the_encoding(random_llama, tokens, dtype):
    model = copy.deepcopy(random_llama).to(dtype)
    ragged = hf.RaggedCache(model)
    hf.forward(model, tokens, ragged)
    rows = [layer.last(192) for layer in ragged.layers]
    how = dataclasses.replace(HOW, recipe="ada_keydiff(encoding=int4)")
    hf.compress_tail(model, ragged, how)
    for layer, (keys, values) in enumerate(rows):
        for head, (positions, *kept) in enumerate(ragged.entries(layer)):
            places = torch.from_numpy(positions.astype("int64"))
            assert 0 < len(places) < 187
            assert torch.equal(kept[0], keys[head, places])
            assert torch.equal(kept[1], values[head, places])


def test_it_goes_on_after_a_prefix_of_a_service(cache, random_llama, tokens):
    model = cache.register_model(hf.model_spec(random_llama))
    hf.store(cache, model, random_llama, tokens[:100], "ada_keydiff", 0.5)
    prefix = cache.get(cache.lookup(model, tokens[:100]))
    plain, ragged = (hf.RaggedCache(random_llama, prefix) for _ in range(2))
    for one in (plain, ragged):
        hf.forward(random_llama, tokens[100:150], one)
    hf.compress_tail(random_llama, ragged, ALL)
    assert (plain.prefix_tokens, ragged.prefix_tokens) == (100, 145)
    expected, actual = (hf.forward(random_llama, tokens[150:], one) for one in (plain, ragged))
    assert (actual - expected).abs().max() <= BOUND


def test_without_recent_tokens_a_batch_goes_on(random_llama, tokens):
    ragged = hf.RaggedCache(random_llama)
    hf.forward(random_llama, tokens[:64], ragged)
    hf.compress_tail(random_llama, ragged, dataclasses.replace(ALL, recent=0))
    assert ragged.prefix_tokens == 64
    prompts = torch.tensor([tokens[:80], tokens[:72] + tokens[100:108]])
    out = random_llama.generate(
        prompts, past_key_values=ragged, max_new_tokens=4, do_sample=False, num_beams=2
    )
    expected = random_llama.generate(prompts, max_new_tokens=4, do_sample=False, num_beams=2)
    assert torch.equal(out, expected)


def test_nothing_changes_if_a_compression_fails(random_llama, tokens, monkeypatch):
    ragged = hf.RaggedCache(random_llama)
    hf.forward(random_llama, tokens[:128], ragged)
    before = hf.forward(random_llama, tokens[128:], ragged.fork())
    real = ragged_layer.RaggedLayer.rest_of_tail

    def fails(layer, first):
        if layer is ragged.layers[2]:
            raise MemoryError
        return real(layer, first)

    monkeypatch.setattr(ragged_layer.RaggedLayer, "rest_of_tail", fails)
    with pytest.raises(MemoryError):
        hf.compress_tail(random_llama, ragged, HOW)
    assert torch.equal(hf.forward(random_llama, tokens[128:], ragged), before)


def test_a_compressed_cache_is_cropped_and_forked_as_over_any_prefix(random_llama, tokens):
    ragged = hf.RaggedCache(random_llama)
    hf.forward(random_llama, tokens[:128], ragged)
    other = ragged.fork()
    hf.compress_tail(random_llama, ragged, ALL)
    assert (other.prefix_tokens, ragged.prefix_tokens) == (0, 123)
    expected = hf.forward(random_llama, tokens[100:120], _cropped(other, 100))
    for cache in (ragged.fork(), ragged):
        actual = hf.forward(random_llama, tokens[100:120], _cropped(cache, 100))
        assert (actual - expected).abs().max() <= BOUND


def _cropped(cache: hf.RaggedCache, length: int) -> hf.RaggedCache:
    cache.crop(length)
    return cache


def test_a_crop_before_a_compression_leaves_no_entry_behind(random_llama, tokens):
    ragged = hf.RaggedCache(random_llama)
    hf.forward(random_llama, tokens[:128], ragged)
    hf.compress_tail(random_llama, ragged, ALL)
    ragged.crop(90)
    hf.forward(random_llama, tokens[90:140], ragged)
    hf.compress_tail(random_llama, ragged, ALL)
    assert ragged.prefix_tokens == 135
    for positions, keys, _ in ragged.entries(1):
        assert sorted(positions.tolist()) == list(range(135)) and len(keys) == 135


def test_a_probe_of_the_same_weights_scores_the_tail(random_llama, tokens):
    spec = hf.model_spec(random_llama)
    profile = json.dumps(toy_probe(spec))
    how = dataclasses.replace(HOW, recipe="global_kvprobe", profile=profile)
    ragged = hf.RaggedCache(random_llama)
    hf.forward(random_llama, tokens[:128], ragged)
    rows = [layer.last(128) for layer in ragged.layers]
    rows = [(keys[:, :123], values[:, :123]) for keys, values in rows]
    made = precis.compress(spec, rows, how.recipe, how.keep, profile=profile)
    hf.compress_tail(random_llama, ragged, how)
    for layer, expected in enumerate(made.positions):
        for (positions, _, _), want in zip(ragged.entries(layer), expected, strict=True):
            assert positions.tolist() == want.tolist()


def test_what_cannot_be_compressed_is_refused(random_llama, tokens):
    two = hf.RaggedCache(random_llama)
    random_llama(torch.tensor([tokens[:60], tokens[60:120]]), past_key_values=two)
    for call in (hf.compress_tail, lambda model, *how: how[1].try_on(model, how[0])):
        with pytest.raises(ValueError, match=r"one sequence without padding is needed; .* 2 rows"):
            call(random_llama, two, HOW)
    with pytest.raises(ValueError, match="every_k: is 0"):
        hf.WhileDecoding(every_k=0)
    with pytest.raises(precis.InvalidArgument, match="recent"):
        hf.WhileDecoding(recent=-1)
    # Before a token is generated.
    with pytest.raises(ValueError, match="compress: needs a RaggedCache, not a DynamicCache"):
        hf.generate(random_llama, tokens, DynamicCache(), compress=HOW)
    for change, message in (
        ({"recipe": "nope"}, "'nope' is unknown"),
        ({"recipe": "snapkv"}, "queries: not pushed"),
        ({"recipe": "global_kvprobe"}, "profile"),
        ({"keep": 1.5}, "must be in"),
    ):
        how = dataclasses.replace(HOW, **change)
        with pytest.raises(precis.InvalidArgument, match=message):
            hf.generate(random_llama, tokens, hf.RaggedCache(random_llama), compress=how)


def test_what_was_compressed_in_memory_is_never_stored(random_llama, tokens, cache):
    model = cache.register_model(hf.model_spec(random_llama))
    segment, read = hf.store(cache, model, random_llama, tokens[:100])
    ragged = read.cache
    hf.compress_tail(random_llama, ragged, dataclasses.replace(HOW, recent=0))
    with pytest.raises(ValueError, match="past: tokens of this cache were compressed in memory"):
        hf.store(cache, model, random_llama, tokens, past=ragged)
    with (
        cache.begin_put(model, tokens, parent=segment) as put,
        pytest.raises(ValueError, match="past: tokens of this cache were compressed in memory"),
    ):
        hf.prefill(random_llama, tokens, put, ragged)
    assert hf.prefill(random_llama, tokens, past=ragged).read == 92  # it may be read over

    talk = hf.Conversation(cache, model, random_llama)
    talk.say(tokens[100:164], max_new_tokens=4)
    hf.compress_tail(random_llama, talk.live, HOW)
    turn = talk.say(tokens[:36], max_new_tokens=4)
    assert turn.error is None and turn.segment is not None and turn.restored > 0
