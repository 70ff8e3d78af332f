"""precis.hf through a real service: exact at keep 1, and below it over the kept entries."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from conftest import SEED
from dense_reference import continuation, dense_attention, full_cache

import precis
from precis import hf

BOUND = 1e-3
CHUNKS = [20, 1, 1, 1, 11, 30]


@pytest.fixture
def tokens() -> list[int]:
    generator = torch.Generator().manual_seed(SEED)
    return torch.randint(20, 1000, (224,), generator=generator).tolist()


@pytest.fixture
def registered(cache, hf_model, request) -> precis.Model:
    return cache.register_model(hf.model_spec(hf_model, name=request.node.nodeid[-200:]))


def read_back(cache, model, hf_model, tokens, keep=None) -> tuple[precis.Prefix, hf.RaggedCache]:
    match = cache.lookup(model, tokens)
    assert match.matched_tokens == len(tokens)
    prefix = cache.get(match, keep=keep)
    return prefix, hf.RaggedCache(hf_model, prefix)


def over(hf_model, ragged, rest) -> torch.Tensor:
    return continuation(hf_model, ragged, rest, CHUNKS)


def test_at_keep_1_the_logits_are_those_of_transformers_own_cache(
    cache, registered, hf_model, tokens
):
    prompt, rest = tokens[:160], tokens[160:]
    hf.store(cache, registered, hf_model, prompt, recipe="ada_keydiff", keep=1.0)
    _, ragged = read_back(cache, registered, hf_model, prompt)
    own, _ = full_cache(hf_model, prompt)
    expected = continuation(hf_model, own, rest, CHUNKS)
    assert (over(hf_model, ragged, rest) - expected).abs().max() <= BOUND


@pytest.mark.parametrize("keep", [None, 0.15])
def test_below_it_the_logits_are_those_of_a_dense_attention_over_the_kept(
    cache, registered, hf_model, tokens, keep
):
    prompt, rest = tokens[:160], tokens[160:]
    hf.store(cache, registered, hf_model, prompt, recipe="ada_keydiff", keep=0.4)
    prefix, ragged = read_back(cache, registered, hf_model, prompt, keep)
    own, _ = full_cache(hf_model, prompt, whole=True)
    full = continuation(hf_model, copy.deepcopy(own), rest, CHUNKS)
    with dense_attention(hf_model, prefix):
        expected = continuation(hf_model, own, rest, CHUNKS)
    assert (over(hf_model, ragged, rest) - expected).abs().max() <= BOUND
    assert (full - expected).abs().max() > 10 * BOUND


def test_a_second_turn_is_computed_over_its_parent_as_read(cache, random_llama, tokens, request):
    hf_model = random_llama
    model = cache.register_model(hf.model_spec(hf_model, name=request.node.nodeid[-200:]))
    first, _ = hf.store(cache, model, hf_model, tokens[:100], recipe="ada_keydiff", keep=0.5)
    prefix, ragged = read_back(cache, model, hf_model, tokens[:100], keep=0.3)
    second, read = hf.store(cache, model, hf_model, tokens[:140], keep=1.0, past=ragged)
    assert (second.begin, second.end, second.parent) == (100, 140, first.id)
    assert second.parent_read == precis.ratio(0.3)
    # The same turn over the kept entries by hand.
    own, _ = full_cache(hf_model, tokens[:100])
    with dense_attention(hf_model, prefix), torch.no_grad():
        out = hf_model(torch.tensor([tokens[100:140]]), past_key_values=own)
    assert (read.logits - out.logits[0, -1]).abs().max() <= BOUND
    # The restored chain has the second turn's entries, and the length of both turns.
    chain, restored = read_back(cache, model, hf_model, tokens[:140])
    for layer, kept in zip(own.layers, chain.layers, strict=True):
        for head, entries in enumerate(kept.heads):
            new = entries.positions >= 100
            want = layer.keys[0, head, torch.from_numpy(entries.positions[new].astype("int64"))]
            assert new.sum() == 40
            assert (torch.from_numpy(entries.keys[new]) - want).abs().max() <= BOUND
    assert restored.get_seq_length() == 140


@pytest.mark.parametrize(
    "recipe",
    ["snapkv", "ada_snapkv(window=8)", "tova", "observed_mean", "expected_attention", "kvzip"],
)
def test_a_service_keeps_what_a_compression_of_the_same_inputs_keeps(
    cache, hf_model, tokens, recipe, registered
):
    needs = hf.Needs.of(precis.canonical_recipe(recipe))
    ragged = hf.RaggedCache(hf_model)
    captured: list[tuple] = []
    with ragged.observed(lambda layer, *rows: captured.append(rows)):
        hf.forward(hf_model, tokens[:120], ragged)
    scorers = hf.Scorers(hf_model, needs, registered.spec.dtype, 0)
    if needs.repetition:
        (chunk,) = hf.repetitions(hf_model, tokens[:120], ragged, [7, 8])
        captured = [
            (keys, values, chunk.queries[layer], chunk.lse[layer])
            for layer, (keys, values, _) in enumerate(captured)
        ]
    layers = [scorers.layer(index, *rows) for index, rows in enumerate(captured)]
    want = precis.compress(registered, layers, recipe=recipe, keep=0.4)
    hf.store(cache, registered, hf_model, tokens[:120], recipe=recipe, keep=0.4, repeat=[7, 8])
    prefix, _ = read_back(cache, registered, hf_model, tokens[:120])
    for layer, heads in enumerate(want.positions):
        for head, positions in enumerate(heads):
            got = prefix.layers[layer].heads[head].positions
            assert got.tolist() == positions.tolist()


def test_log_sum_exp_is_that_of_the_full_attention(random_llama, tokens):
    class Recorder:
        """A put that records the pushes."""

        begin, end, already_stored = 0, 90, False
        recipe = '{"scorer":"window_attn","window":16}'
        model = precis.Model(hf.model_spec(random_llama, name="m"), "")

        def __init__(self) -> None:
            self.layers = {}

        def layer(self, index, keys, values, queries=None, lse=None, wait=True):
            self.layers[index] = (keys.clone(), queries, lse)

        def wait(self):
            pass

    put = Recorder()
    hf.prefill(random_llama, tokens[:90], put, lse=True)
    assert list(put.layers) == [0, 1, 2, 3]
    for keys, queries, lse in put.layers.values():
        assert queries.shape == (32, 16, 32) and lse.shape == (32, 16)
        for head in range(32):
            for i in range(16):
                scores = keys[head // 4, : 90 - 16 + i + 1] @ queries[head, i] * 32**-0.5
                assert lse[head, i] == pytest.approx(float(scores.logsumexp(0)), abs=1e-4)


def test_an_error_of_a_push_reaches_the_caller(cache, random_llama, tokens, request):
    model = cache.register_model(hf.model_spec(random_llama, name=request.node.nodeid[-200:]))
    put = cache.begin_put(model, tokens[:60], recipe="knorm", keep=0.5)
    put.abort()
    with pytest.raises(precis.Error):
        hf.prefill(random_llama, tokens[:60], put)


def test_a_put_may_begin_anywhere_but_inside_the_prefix_of_its_cache(
    cache, random_llama, tokens, request
):
    model = cache.register_model(hf.model_spec(random_llama, name=request.node.nodeid[-200:]))
    hf.store(cache, model, random_llama, tokens[:100], keep=1.0)
    hf.store(cache, model, random_llama, tokens[:120], keep=1.0)
    _, whole = read_back(cache, model, random_llama, tokens[:120])
    first = cache.lookup(model, tokens[:100]).links[0].segment
    with (
        cache.begin_put(model, tokens[:140], parent=first) as put,
        pytest.raises(ValueError, match=r"\[100, 140\), and this prefill can push \[120, 140\)"),
    ):
        hf.prefill(random_llama, tokens[:140], put, whole)
    with cache.begin_put(model, tokens[:140], parent=first, keep=1.0) as put:
        hf.prefill(random_llama, tokens[:140], put)  # reads all, pushes what the put lacks
        assert put.commit().begin == 100
    _, restored = read_back(cache, model, random_llama, tokens[:140])
    own, _ = full_cache(random_llama, tokens[:140])
    expected = continuation(random_llama, own, tokens[140:204], CHUNKS)
    assert (over(random_llama, restored, tokens[140:204]) - expected).abs().max() <= BOUND


@pytest.mark.parametrize("held", [0, 40, 150])
def test_a_long_text_is_stored_in_segments(cache, random_llama, tokens, request, held):
    model = cache.register_model(hf.model_spec(random_llama, name=request.node.nodeid[-200:]))
    how = {"recipe": "knorm", "keep": 1.0}
    past = None
    if held:
        _, read = hf.store(cache, model, random_llama, tokens[:held], **how)
        past = read.cache
    last, read = hf.store(cache, model, random_llama, tokens, past=past, segment_tokens=64, **how)
    ends = [*([held] if held else []), *range(held + 64, len(tokens) - 32, 64), len(tokens)]
    links = cache.lookup(model, tokens).links
    assert [link.segment.end for link in links] == ends and links[-1].segment.id == last.id
    assert all(link.segment.parent_read is None for link in links)
    own, _ = full_cache(random_llama, tokens)
    rest = tokens[:64]
    expected = continuation(random_llama, own, rest, CHUNKS)
    assert read.cache.get_seq_length() == len(tokens)
    assert (over(random_llama, read.cache, rest) - expected).abs().max() <= BOUND
    _, ragged = read_back(cache, model, random_llama, tokens)
    assert (over(random_llama, ragged, rest) - expected).abs().max() <= BOUND


def test_segments_that_cannot_be_are_refused(random_llama, tokens):
    with pytest.raises(ValueError, match="segment_tokens: is 0, must be positive"):
        hf.store(None, None, random_llama, tokens, segment_tokens=0)
    with pytest.raises(ValueError, match="prefill_s: it is measured for each segment"):
        hf.store(None, None, random_llama, tokens, segment_tokens=64, prefill_s=1.0)


# A recipe without queries, one with the last 16, one with the statistics of all, one that repeats.
RECIPES = ["global_kvdiff", "snapkv(window=16)", "expected_attention", "kvzip"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_cache_of_a_turn_serves_the_put_of_the_next(
    cache, random_llama, tokens, request, recipe
):
    """Turns over one live cache store the segments that turns over a restored prefix store."""
    model = cache.register_model(hf.model_spec(random_llama, name=request.node.nodeid[-200:]))
    how = {"recipe": recipe, "keep": 1.0}
    first, read = hf.store(cache, model, random_llama, tokens[:100], **how)
    live = read.cache
    told = list(hf.generate(random_llama, tokens[100:110], live, 6, stop=()))
    path = tokens[:110] + told
    assert live.get_seq_length() == len(path) - 1
    second, _ = hf.store(cache, model, random_llama, path, past=live, **how)
    assert (second.begin, second.end, second.parent) == (100, len(path), first.id)
    assert second.parent_read is None
    third, _ = hf.store(cache, model, random_llama, path + tokens[150:170], past=live, **how)
    assert third.parent == second.id
    again, _ = hf.store(cache, model, random_llama, path + tokens[150:170], past=live, **how)
    assert again.id == third.id

    spec = hf.model_spec(random_llama, name=f"plain {request.node.nodeid[-190:]}")
    plain = cache.register_model(spec)
    hf.store(cache, plain, random_llama, tokens[:100], **how)
    past = hf.RaggedCache(random_llama, cache.get(cache.lookup(plain, tokens[:100])))
    hf.store(cache, plain, random_llama, path, past=past, **how)
    ours = cache.get(cache.lookup(model, path)).wait()
    theirs = cache.get(cache.lookup(plain, path)).wait()
    assert ours.matched_tokens == theirs.matched_tokens == len(path)
    for one, other in zip(ours.layers, theirs.layers, strict=True):
        for head, same in zip(one.heads, other.heads, strict=True):
            order, its = head.positions.argsort(), same.positions.argsort()
            assert abs(head.keys[order] - same.keys[its]).max() <= BOUND
            assert np.allclose(head.scores[order], same.scores[its], rtol=0, atol=BOUND)


def test_the_cache_of_a_prompt_that_was_not_stored_can_be_stored(
    cache, random_llama, tokens, request
):
    model = cache.register_model(hf.model_spec(random_llama, name=request.node.nodeid[-200:]))
    first, _ = hf.store(cache, model, random_llama, tokens[:80], keep=1.0)
    live = hf.prefill(random_llama, tokens[:120]).cache
    second, _ = hf.store(cache, model, random_llama, tokens[:140], past=live, keep=1.0)
    assert (second.parent, second.begin, second.end) == (first.id, 80, 140)
    _, restored = read_back(cache, model, random_llama, tokens[:140])
    own, _ = full_cache(random_llama, tokens[:140])
    expected = continuation(random_llama, own, tokens[140:204], CHUNKS)
    assert (over(random_llama, restored, tokens[140:204]) - expected).abs().max() <= BOUND


def test_a_cache_that_goes_another_way_stores_no_segment_of_the_first(
    cache, random_llama, tokens, request
):
    model = cache.register_model(hf.model_spec(random_llama, name=request.node.nodeid[-200:]))
    first, read = hf.store(cache, model, random_llama, tokens[:80], keep=1.0)
    second, _ = hf.store(cache, model, random_llama, tokens[:120], past=read.cache, keep=1.0)
    other = tokens[:100] + tokens[150:190]
    with pytest.raises(ValueError, match=r"at 100, .*crop\(100\)"):
        hf.store(cache, model, random_llama, other, past=read.cache)
    read.cache.crop(100)
    third, _ = hf.store(cache, model, random_llama, other, past=read.cache, keep=1.0)
    assert (second.parent, third.parent, third.begin) == (first.id, first.id, 80)
    _, restored = read_back(cache, model, random_llama, other)
    own, _ = full_cache(random_llama, other)
    expected = continuation(random_llama, own, tokens[:64], CHUNKS)
    assert (over(random_llama, restored, tokens[:64]) - expected).abs().max() <= BOUND


def test_a_turn_stands_on_a_part_of_a_segment(cache, random_llama, tokens, request):
    model = cache.register_model(hf.model_spec(random_llama, name=request.node.nodeid[-200:]))
    whole, _ = hf.store(cache, model, random_llama, tokens[:128], keep=1.0)
    other = [*tokens[:100], 1, 2, 3]
    prefix = cache.get(cache.lookup(model, other))
    shared = prefix.matched_tokens
    assert 0 < shared <= 100
    past = hf.RaggedCache(random_llama, prefix)
    turn, prefilled = hf.store(cache, model, random_llama, other, keep=1.0, past=past)
    assert (turn.begin, turn.end) == (shared, len(other))
    assert cache.segment(turn.parent).end == shared
    assert cache.segment(whole.id).begin == shared
    dense = random_llama(torch.tensor([other])).logits[0, -1]
    torch.testing.assert_close(prefilled.logits, dense, rtol=1e-3, atol=1e-3)
    again = hf.RaggedCache(random_llama, cache.get(cache.lookup(model, tokens[:128])))
    assert again.get_seq_length() == 128
