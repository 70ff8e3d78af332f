"""A model with sliding windows: the service keeps what later queries see, and nothing is lost."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from conftest import SEED
from dense_reference import continuation, full_cache

import precis
from precis import hf

BOUND = 1e-3
CHUNKS = [20, 1, 1, 1, 11, 30]
WINDOW = 24  # of 4 of the 6 layers of random_gemma3
SLIDING = [0, 1, 3, 4]


@pytest.fixture
def tokens() -> list[int]:
    generator = torch.Generator().manual_seed(SEED)
    return torch.randint(20, 1000, (224,), generator=generator).tolist()


@pytest.fixture
def registered(cache, random_gemma3, request) -> precis.Model:
    return cache.register_model(hf.model_spec(random_gemma3, name=request.node.nodeid[-200:]))


def expected(hf_model, prompt, rest) -> torch.Tensor:
    return continuation(hf_model, full_cache(hf_model, prompt)[0], rest, CHUNKS)


def check_all_that_is_seen(prefix: precis.Prefix, hf_model, prompt, rest) -> None:
    """The prefix has what later queries see and nothing else; the logits are the model's own."""
    for index, layer in enumerate(prefix.layers):
        first = len(prompt) - WINDOW if index in SLIDING else 0
        assert sorted(layer.heads[0].positions.tolist()) == list(range(first, len(prompt)))
    got = continuation(hf_model, hf.RaggedCache(hf_model, prefix), rest, CHUNKS)
    assert (got - expected(hf_model, prompt, rest)).abs().max() <= BOUND


def test_only_what_later_queries_see_is_kept_and_the_logits_are_the_models_own(
    cache, registered, random_gemma3, tokens
):
    prompt, rest = tokens[:160], tokens[160:]
    assert registered.spec.windows == (24, 24, 0, 24, 24, 0)
    segment, _ = hf.store(cache, registered, random_gemma3, prompt, keep=1.0)
    assert segment.plan.sum() == 4 * WINDOW + 2 * 160
    check_all_that_is_seen(cache.get(cache.lookup(registered, prompt)), random_gemma3, prompt, rest)


def test_a_budget_that_holds_all_windows_loses_nothing(cache, registered, random_gemma3, tokens):
    # 416 of the 960 entries are visible, so 44% of them are all that can be kept.
    prompt, rest = tokens[:160], tokens[160:]
    recipe = "global_kvdiff(min_entries=0)"
    segment, _ = hf.store(cache, registered, random_gemma3, prompt, recipe=recipe, keep=0.44)
    assert segment.plan.sum() == 4 * WINDOW + 2 * 160
    ragged = hf.RaggedCache(random_gemma3, cache.get(cache.lookup(registered, prompt)))
    got = continuation(random_gemma3, ragged, rest, CHUNKS)
    assert (got - expected(random_gemma3, prompt, rest)).abs().max() <= BOUND


def test_a_prompt_that_leaves_a_segment_goes_on_from_the_last_one_that_ends_before(
    cache, registered, random_gemma3, tokens
):
    hf.store(cache, registered, random_gemma3, tokens[:160], keep=1.0, segment_tokens=40)
    prompt = tokens[:100] + tokens[120:160]
    match = cache.lookup(registered, prompt)
    assert match.matched_tokens == 80  # not 96, the last shared block of 16
    ragged = hf.RaggedCache(random_gemma3, cache.get(match))
    segment, read = hf.store(cache, registered, random_gemma3, prompt, past=ragged, keep=1.0)
    assert (segment.begin, segment.end, read.read) == (80, 140, 60)
    _, logits = full_cache(random_gemma3, prompt)
    assert (read.logits - logits).abs().max() <= BOUND
    # For a cache without a prefix, the service finds such a place.
    longer, empty = tokens[:130] + tokens[:20], hf.RaggedCache(random_gemma3)
    again, _ = hf.store(cache, registered, random_gemma3, longer, past=empty, keep=1.0)
    assert (again.begin, again.end) == (120, 150)
    ragged = hf.RaggedCache(random_gemma3, cache.get(cache.lookup(registered, longer)))
    rest = tokens[160:]
    got = continuation(random_gemma3, ragged, rest, CHUNKS)
    assert (got - expected(random_gemma3, longer, rest)).abs().max() <= BOUND


@pytest.mark.parametrize("keep", [None, 0.9])
def test_a_reader_gets_no_entries_of_segments_that_a_layer_no_longer_sees(
    cache, registered, random_gemma3, tokens, keep
):
    prompt, rest = tokens[:160], tokens[160:]
    hf.store(cache, registered, random_gemma3, prompt, keep=1.0, segment_tokens=40)
    match = cache.lookup(registered, prompt, keep=keep)
    assert len(match.links) == 4
    assert match.plan.ravel().tolist() == [24, 24, 160, 24, 24, 160]
    check_all_that_is_seen(cache.get(match), random_gemma3, prompt, rest)


def test_turns_shorter_than_the_window_see_each_other(cache, registered, random_gemma3, tokens):
    ragged = hf.RaggedCache(random_gemma3)
    for end in (10, 23, 60, 75, 90, 160):
        _, read = hf.store(cache, registered, random_gemma3, tokens[:end], past=ragged, keep=1.0)
        ragged = read.cache
    match = cache.lookup(registered, tokens[:160])
    assert [link.segment.end for link in match.links] == [10, 23, 60, 75, 90, 160]
    rest = tokens[160:]
    restored = hf.RaggedCache(random_gemma3, cache.get(match))
    got = continuation(random_gemma3, restored, rest, CHUNKS)
    assert (got - expected(random_gemma3, tokens[:160], rest)).abs().max() <= BOUND


def test_a_stored_prompt_is_continued_and_cropped_no_further_than_its_windows_reach(
    cache, registered, random_gemma3, tokens
):
    prompt = tokens[:160]
    _, read = hf.store(cache, registered, random_gemma3, prompt, keep=1.0)
    ragged = hf.RaggedCache(random_gemma3, cache.get(cache.lookup(registered, prompt)))
    again = hf.prefill(random_gemma3, prompt, past=ragged)
    assert again.read == 1
    assert (again.logits - read.logits).abs().max() <= BOUND
    ragged = hf.RaggedCache(random_gemma3, cache.get(cache.lookup(registered, prompt)))
    with pytest.raises(ValueError, match=r"cannot crop to 100: .* crop\(0\)"):
        ragged.crop(100)
    ragged.crop(0)
    again = hf.prefill(random_gemma3, prompt, past=ragged)
    assert (again.logits - read.logits).abs().max() <= BOUND


def test_a_cache_over_a_chain_goes_on_from_where_its_windows_have_arrived(
    cache, registered, random_gemma3, tokens
):
    ragged = hf.RaggedCache(random_gemma3)
    for end in (100, 120, 130, 140, 150):
        _, read = hf.store(cache, registered, random_gemma3, tokens[:end], past=ragged, keep=1.0)
        ragged = read.cache
    match = cache.lookup(registered, tokens[:150])
    # A token sees 24 back. The links that end after 150 - 24 have come, and fit into the window.
    for length, at in ((149, 149), (145, 145), (140, 0), (131, 0), (120, 0), (110, 0)):
        restored = hf.RaggedCache(random_gemma3, cache.get(match))
        if at != length:
            with pytest.raises(ValueError, match=rf"cannot crop to {length}: .* crop\({at}\)"):
                restored.crop(length)
        restored.crop(at)
        other = [*tokens[:length], *tokens[200:210]]
        _, logits = full_cache(random_gemma3, other)
        again = hf.prefill(random_gemma3, other, past=restored)
        assert again.read == len(other) - at
        assert (again.logits - logits).abs().max() <= BOUND


def test_what_was_compressed_in_memory_keeps_the_windows_of_its_end(random_gemma3, tokens):
    ragged = hf.RaggedCache(random_gemma3)
    for end in (100, 200):
        hf.forward(random_gemma3, tokens[end - 100 : end], ragged)
        hf.compress_tail(random_gemma3, ragged, hf.WhileDecoding(keep=1.0, recent=10))
        for index in SLIDING:
            ((positions, _, _),) = ragged.entries(index)
            assert sorted(positions.tolist()) == list(range(end - 10 - WINDOW, end - 10))
    got = hf.prefill(random_gemma3, tokens, past=ragged.fork()).logits
    assert (got - full_cache(random_gemma3, tokens)[1]).abs().max() <= BOUND
    with pytest.raises(ValueError, match=r"cannot crop to 150: .* crop\(0\)"):
        ragged.crop(150)
    ragged.crop(189)
    got = hf.prefill(random_gemma3, tokens, past=ragged).logits
    assert (got - full_cache(random_gemma3, tokens)[1]).abs().max() <= BOUND


def test_a_put_cannot_begin_inside_a_segment_that_has_only_its_last_window(
    cache, registered, random_gemma3, tokens
):
    segment, _ = hf.store(cache, registered, random_gemma3, tokens[:160], keep=1.0)
    match = cache.lookup(registered, tokens[:160])
    inside = dataclasses.replace(match, matched_tokens=64)
    with pytest.raises(
        precis.InvalidArgument, match=f"inside segment {segment.id} at token 64: .* begin at"
    ):
        cache.begin_put(registered, tokens[:64] + tokens[:30], parent=inside)


def test_a_spec_says_for_each_layer_what_its_queries_see(cache):
    spec = precis.ModelSpec("windows", 3, 2, 1, 8, dtype="f32", windows=[0, 16, 0])
    model = cache.register_model(spec)
    assert model.fingerprint == spec.fingerprint
    assert model.fingerprint != precis.ModelSpec("windows", 3, 2, 1, 8, dtype="f32").fingerprint
    (row,) = [row for row in cache.models() if row.fingerprint == model.fingerprint]
    assert row.spec == spec
    assert row.spec.windows == (0, 16, 0)
    rows = np.random.default_rng(SEED).standard_normal((2, 1, 50, 8)).astype("f4")
    kept = precis.compress(spec, [rows] * 3, recipe="knorm", keep=1.0)
    assert kept.plan.tolist() == [[50], [16], [50]]
    assert kept.positions[1][0].min() == 34


@pytest.mark.parametrize(
    ("windows", "message"),
    [
        ([0, 16], "length of windows"),
        ([0, 1, 0], "a window is 1 token"),
        ([0, 0, 0], "all windows are 0"),
        ([0, -1, 0], "windows is -1"),
        ([0, 2.5, 0], "windows: 2.5 is not a whole number"),
        ("abc", "windows: 'abc'"),
        (7, "windows: 7"),
    ],
)
def test_windows_that_fit_no_model_are_refused(cache, windows, message):
    with pytest.raises(precis.InvalidArgument, match=message):
        cache.register_model(precis.ModelSpec("windows", 3, 2, 1, 8, dtype="f32", windows=windows))


def test_a_share_of_the_bytes_stores_finer_rows_if_all_that_is_seen_fits(cache, request):
    # 1,000 tokens have 40% of their entries, which take 22.5% of the bytes in 8 bits.
    def stored(windows: tuple[int, ...], tokens: int, keep: str) -> precis.Segment:
        name = f"{request.node.nodeid[-200:]} {len(windows)} {tokens} {keep}"
        spec = precis.ModelSpec(name, 3, 2, 1, 64, dtype="f16", windows=windows)
        model = cache.register_model(spec)
        draw = np.random.default_rng(SEED)
        with cache.begin_put(model, list(range(tokens)), keep=keep) as put:
            for layer in range(3):
                put.layer(layer, *draw.standard_normal((2, 1, tokens, 64)).astype("f2"))
            return put.commit()

    fits = stored((100, 0, 100), 1000, "23% bytes")
    assert (fits.encoding, fits.plan.ravel().tolist()) == ("int8", [100, 1000, 100])
    assert stored((100, 0, 100), 1000, "22% bytes").encoding == "k6v4"
    assert stored((100, 0, 100), 100, "23% bytes").encoding == "k6v4"
    assert stored((), 1000, "23% bytes").encoding == "k6v4"
