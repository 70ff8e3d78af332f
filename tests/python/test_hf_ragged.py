"""The ragged cache is exact, both over a whole prefix and over the kept entries of a prefix."""

from __future__ import annotations

import copy
import dataclasses
import gc
import weakref

import pytest
import torch
from conftest import SEED
from dense_reference import continuation, dense_attention, full_cache, keep_positions

import precis
from precis import hf
from precis.hf import ragged_layer

# Several tokens at once (causal among them), then one at a time, then several again.
CHUNKS = [7, 1, 1, 1, 1, 1, 20, 1, 1, 30]
BOUND = 1e-3  # max abs difference of logits in float32


@pytest.fixture
def tokens(hf_model) -> list[int]:
    generator = torch.Generator().manual_seed(SEED)
    return torch.randint(20, 1000, (192,), generator=generator).tolist()


def split(tokens: list[int]) -> tuple[list[int], list[int]]:
    return tokens[: -sum(CHUNKS)], tokens[-sum(CHUNKS) :]


def ragged_continuation(model, cache, tokens) -> torch.Tensor:
    return continuation(model, cache, tokens, CHUNKS)


def random_kept(model, length: int, seed: int = SEED) -> list[list[torch.Tensor]]:
    """A different number of entries in every head, in random order; one head keeps nothing."""
    generator = torch.Generator().manual_seed(seed)
    config = model.config
    kept = []
    for _ in range(config.num_hidden_layers):
        heads = []
        for _ in range(config.num_key_value_heads):
            count = int(torch.randint(1, length + 1, (1,), generator=generator))
            heads.append(torch.randperm(length, generator=generator)[:count])
        kept.append(heads)
    kept[1][0] = torch.empty(0, dtype=torch.long)
    return kept


def test_whole_prefix_gives_the_logits_of_transformers_own_cache(hf_model, tokens):
    prompt, rest = split(tokens)
    cache, _ = full_cache(hf_model, prompt, whole=True)
    everything = [[torch.arange(len(prompt))] * layer.keys.shape[1] for layer in cache.layers]
    prefix = keep_positions(cache, everything)
    own, _ = full_cache(hf_model, prompt)
    expected = continuation(hf_model, own, rest, CHUNKS)
    actual = ragged_continuation(hf_model, hf.RaggedCache(hf_model, prefix), rest)
    assert actual.shape[0] == 64
    assert (actual - expected).abs().max() <= BOUND


def test_kept_entries_give_the_logits_of_a_dense_attention_over_them(hf_model, tokens):
    prompt, rest = split(tokens)
    cache, _ = full_cache(hf_model, prompt, whole=True)
    prefix = keep_positions(cache, random_kept(hf_model, len(prompt)))
    full = continuation(hf_model, copy.deepcopy(cache), rest, CHUNKS)
    with dense_attention(hf_model, prefix):
        expected = continuation(hf_model, cache, rest, CHUNKS)
    actual = ragged_continuation(hf_model, hf.RaggedCache(hf_model, prefix), rest)
    assert (actual - expected).abs().max() <= BOUND
    assert (full - expected).abs().max() > 10 * BOUND  # the evicted entries mattered


def test_prefill_over_nothing_equals_transformers_own(hf_model, tokens):
    prompt, rest = split(tokens)
    cache, logits = full_cache(hf_model, prompt)
    read = hf.prefill(hf_model, prompt)
    assert (read.logits - logits).abs().max() <= BOUND
    assert read.cache.get_seq_length() == len(prompt)
    expected = continuation(hf_model, cache, rest, CHUNKS)
    assert (ragged_continuation(hf_model, read.cache, rest) - expected).abs().max() <= BOUND


def test_queries_in_blocks_give_the_same_logits(random_llama, monkeypatch):
    tokens = torch.arange(20, 150).tolist()
    cache, _ = full_cache(random_llama, tokens[:70])
    prefix = keep_positions(cache, random_kept(random_llama, 70))
    whole = hf.forward(random_llama, tokens[70:], hf.RaggedCache(random_llama, prefix))
    monkeypatch.setattr("precis.hf.ragged_layer._BLOCK_SCORES", 4000)  # 7 queries at a time
    blocks = hf.forward(random_llama, tokens[70:], hf.RaggedCache(random_llama, prefix))
    assert (whole - blocks).abs().max() <= 1e-4


def test_rows_of_a_batch_are_repeated_and_selected(random_llama):
    first, second = torch.arange(20, 40).tolist(), torch.arange(60, 80).tolist()
    more = torch.arange(200, 205)
    ragged = hf.RaggedCache(random_llama)
    random_llama(torch.tensor([first, second]), past_key_values=ragged)
    ragged.batch_repeat_interleave(2)
    ragged.batch_select_indices(torch.tensor([0, 3]))
    out = random_llama(more.expand(2, -1), past_key_values=ragged).logits
    for row, tokens in zip(out, (first, second), strict=True):
        alone = hf.RaggedCache(random_llama)
        hf.forward(random_llama, tokens, alone)
        assert (row - hf.forward(random_llama, more, alone)).abs().max() <= BOUND


def test_a_prefix_in_f8_is_read_as_its_numbers(random_llama):
    tokens = torch.arange(20, 100).tolist()
    cache, _ = full_cache(random_llama, tokens[:70])
    numbers, bits = (keep_positions(cache, random_kept(random_llama, 70)) for _ in range(2))
    for layer in range(len(numbers.layers)):
        for of_numbers, of_bits in zip(
            numbers.layers[layer].heads, bits.layers[layer].heads, strict=True
        ):
            for name in ("keys", "values"):
                rows = getattr(of_numbers, name).to(torch.float8_e4m3fn)
                setattr(of_numbers, name, rows.float())
                setattr(of_bits, name, rows.view(torch.uint8).numpy().view(precis.Float8Array))
    expected, actual = (
        hf.forward(random_llama, tokens[70:], hf.RaggedCache(random_llama, prefix))
        for prefix in (numbers, bits)
    )
    assert torch.equal(actual, expected)


def test_a_model_in_f8_is_not_pushed_to(cache, random_llama):
    spec = dataclasses.replace(hf.model_spec(random_llama), dtype="f8_e4m3")
    with pytest.raises(ValueError, match=r"has f8_e4m3; precis.hf pushes bf16, f16 or f32"):
        hf.store(cache, cache.register_model(spec), random_llama, list(range(20, 100)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_steps_of_one_token_use_the_kernel(random_llama, monkeypatch, dtype):
    model = copy.deepcopy(random_llama).to(dtype)
    tokens = torch.arange(20, 100).tolist()
    cache, _ = full_cache(model, tokens[:70])
    prefix = keep_positions(cache, random_kept(model, 70))
    real, calls = ragged_layer._kernel(), []

    class Counting:
        def attend(self, *arguments):
            calls.append(arguments)
            return real.attend(*arguments)

    monkeypatch.setattr(ragged_layer, "_kernel", Counting)
    one = hf.RaggedCache(model, prefix)
    hf.forward(model, tokens[70:73], one)
    assert not calls
    by_kernel = hf.forward(model, tokens[73:74], one)
    assert len(calls) == model.config.num_hidden_layers
    monkeypatch.setattr(ragged_layer.RaggedLayer, "_fits_kernel", lambda *_: False)
    other = hf.RaggedCache(model, prefix)
    hf.forward(model, tokens[70:73], other)
    by_torch = hf.forward(model, tokens[73:74], other)
    assert len(calls) == model.config.num_hidden_layers
    bound = 1e-4 if dtype == torch.float32 else 0.05 * float(by_torch.abs().max())
    assert (by_kernel - by_torch).abs().max() <= bound


def test_the_model_and_generate_of_transformers_accept_a_ragged_cache(random_llama):
    tokens = torch.arange(20, 120)
    cache, _ = full_cache(random_llama, tokens[:-4].tolist())
    prefix = keep_positions(cache, random_kept(random_llama, 96))
    ours = list(
        hf.generate(random_llama, tokens[-4:], hf.RaggedCache(random_llama, prefix), 12, stop=())
    )
    theirs = random_llama.generate(
        tokens[None],
        past_key_values=hf.RaggedCache(random_llama, prefix),
        max_new_tokens=12,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    assert theirs[0, 100:].tolist() == ours


def test_generate_equals_transformers_generate_over_its_own_cache(smollm2):
    model, tokenizer = smollm2
    text = "<|im_start|>user\nName a colour.<|im_end|>\n<|im_start|>assistant\n"
    ids = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
    theirs = model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :].tolist()
    ours = list(hf.generate(model, ids, hf.RaggedCache(model), max_new_tokens=12))
    assert ours == [token for token in theirs if token != model.generation_config.eos_token_id]
    assert ours


def test_kept_entries_are_used_where_they_lie(random_llama):
    cache, _ = full_cache(random_llama, list(range(20, 80)))
    prefix = keep_positions(cache, random_kept(random_llama, 60))
    ragged = hf.RaggedCache(random_llama, prefix)
    kept = ragged.layers[2].kept()
    for head, entries in zip(kept, prefix.layers[2].heads, strict=True):
        assert head.keys.data_ptr() == entries.keys.data_ptr()
        assert head.values.data_ptr() == entries.values.data_ptr()


def test_asking_for_an_answer_leaves_the_cache_as_it_was(random_llama):
    cache = hf.prefill(random_llama, range(20, 80)).cache
    first = hf.answer_nll(random_llama, [1, 2, 3], [4, 5], cache)
    assert cache.get_seq_length() == 60
    assert hf.answer_nll(random_llama, [1, 2, 3], [4, 5], cache) == first
    logits = hf.forward(random_llama, [1, 2, 3, 4], cache)[-2:]
    nll = torch.nn.functional.cross_entropy(logits, torch.tensor([4, 5]))
    assert first.nll == pytest.approx(float(nll), abs=1e-5)
    assert first.greedy == tuple(logits.argmax(-1).tolist())


@pytest.mark.parametrize("name", ["random_llama", "random_gemma3"])
def test_several_questions_at_once_are_answered_as_one_by_one(name, request):
    model = request.getfixturevalue(name)
    full, _ = full_cache(model, list(range(20, 80)), whole=True)
    cache = hf.RaggedCache(model, keep_positions(full, random_kept(model, 60)))
    asked = [([1, 2, 3], [4, 5]), (list(range(100, 140)), [6]), ([7] * 8, [8, 9, 10, 11])]
    together = hf.answer_nlls(model, asked, cache)
    assert cache.get_seq_length() == 60
    for answer, (question, right) in zip(together, asked, strict=True):
        alone = hf.answer_nll(model, question, right, cache)
        assert answer.greedy == alone.greedy and answer.nll == pytest.approx(alone.nll, abs=1e-3)
    hf.forward(model, [1, 2], cache)  # over this tail, answer_nlls() asks one by one
    again = hf.answer_nlls(model, asked, cache)
    assert again == [hf.answer_nll(model, *pair, cache) for pair in asked]


def test_in_bf16_the_error_is_that_of_transformers_own_attention(random_llama):
    model = copy.deepcopy(random_llama).to(torch.bfloat16)
    prompt, rest = list(range(20, 100)), list(range(100, 110))
    cache, _ = full_cache(model, prompt)
    prefix = keep_positions(cache, [[torch.arange(80)] * 8] * 4)
    ours = hf.forward(model, rest, hf.RaggedCache(model, prefix))
    with dense_attention(model, prefix):  # float64 within each attention
        exact = continuation(model, copy.deepcopy(cache), rest, [10]).float()
    model.config._attn_implementation = "eager"
    theirs = continuation(model, cache, rest, [10]).float()
    assert (ours - exact).norm() <= 1.5 * (theirs - exact).norm()


def test_positions_go_on_from_the_original_length(random_llama):
    cache, _ = full_cache(random_llama, list(range(20, 80)))
    kept = [[torch.tensor([3])] * 8 for _ in range(4)]
    ragged = hf.RaggedCache(random_llama, keep_positions(cache, kept))
    assert ragged.get_seq_length() == 60
    hf.forward(random_llama, [5, 6], ragged)
    assert ragged.get_seq_length() == 62
    ragged.crop(61)
    assert ragged.get_seq_length() == 61
    ragged.crop(59)
    assert ragged.get_seq_length() == ragged.prefix_tokens == 59


def test_what_a_ragged_cache_cannot_express_is_refused(random_llama):
    ragged = hf.RaggedCache(random_llama)
    two = torch.ones(2, 3, dtype=torch.long)
    with ragged.observed(print), pytest.raises(ValueError, match="one sequence"):
        random_llama(two, past_key_values=ragged)
    ragged = hf.prefill(random_llama, [1, 2, 3]).cache
    with pytest.raises(ValueError, match="the batch is 2, the ragged cache holds 1"):
        random_llama(two, past_key_values=ragged)
    by_name = copy.deepcopy(random_llama)
    by_name.config._attn_implementation = hf.ATTENTION_NAME
    with pytest.raises(ValueError, match="needs past_key_values=RaggedCache"):
        by_name(torch.ones(1, 3, dtype=torch.long))
    cache, _ = full_cache(random_llama, list(range(20, 40)))
    prefix = keep_positions(cache, random_kept(random_llama, 20))
    prefix.layers.pop()
    with pytest.raises(ValueError, match="3 layers, the model 4"):
        hf.RaggedCache(random_llama, prefix)
    chunked = copy.deepcopy(random_llama)
    chunked.config.layer_types = ["full_attention", "chunked_attention"] * 2
    with pytest.raises(ValueError, match="chunked_attention"):
        hf.RaggedCache(chunked)
    sliding = copy.deepcopy(random_llama)  # its attention does not slide, despite this setting
    sliding.config.layer_types = ["full_attention", "sliding_attention"] * 2
    sliding.config.sliding_window = 16
    with pytest.raises(ValueError, match="layer 1: the model asks for a sliding window of None"):
        hf.prefill(sliding, range(20, 80))
    with pytest.raises(ValueError, match="there are none to read"):
        hf.prefill(random_llama, [])


def test_a_ragged_cache_is_freed_with_its_last_reference(random_llama):
    gc.disable()
    try:
        read = hf.prefill(random_llama, range(20, 80))
        layer = weakref.ref(read.cache.layers[0])
        del read
        assert layer() is None
    finally:
        gc.enable()


def test_a_fork_and_its_origin_go_on_independently(random_llama):
    tokens = torch.randint(20, 1000, (120,), generator=torch.Generator().manual_seed(SEED)).tolist()
    ragged = hf.RaggedCache(random_llama)
    hf.forward(random_llama, tokens[:50], ragged)
    forks = [ragged.fork(), ragged.fork()]
    assert ragged.layers[0].keys.shape[2] == 64  # room for all tokens that follow
    assert forks[0].layers[0].keys.data_ptr() == ragged.layers[0].keys.data_ptr()  # no copy yet
    ragged.crop(30)  # its next tokens would overwrite rows that the forks share
    ways = [tokens[90:120], tokens[80:94], tokens[70:84]]
    for cache, way in zip([ragged, *forks], ways, strict=True):
        held = tokens[: cache.get_seq_length()]
        logits = hf.forward(random_llama, way, cache)
        alone = hf.forward(random_llama, held + way, hf.RaggedCache(random_llama))
        assert (logits - alone[len(held) :]).abs().max() <= 1e-3
    for cache, way in zip([ragged, *forks], ways, strict=True):  # and none has changed another
        held = cache.tokens(1)[0].tolist()
        assert held[-len(way) :] == way
        logits = hf.forward(random_llama, tokens[:5], cache)
        alone = hf.forward(random_llama, held + tokens[:5], hf.RaggedCache(random_llama))
        assert (logits - alone[len(held) :]).abs().max() <= 1e-3
    more = forks[0].layers[0].keys.shape[2]
    for _ in range(5):
        forks[0] = forks[0].fork()
        hf.forward(random_llama, tokens[:1], forks[0])
    assert forks[0].layers[0].keys.shape[2] == more  # forks do not grow the memory of a tail
