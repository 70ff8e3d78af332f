"""generate() of Transformers works over ragged caches as over its own ones."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import SEED
from dense_reference import full_cache, keep_positions
from transformers import (
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from precis import hf

NEW = 10
BOUND = 1e-3  # max abs difference of logits in float32
PREFIXES = [96, 41, 70]
TAILS = [3, 17, 8]


@pytest.fixture(params=["random_llama", "random_gemma3"])
def hf_model(request):
    return request.getfixturevalue(request.param)


def some_tokens(count: int, seed: int = SEED) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(20, 1000, (count,), generator=generator).tolist()


def restored(model, tokens: list[int], share: float = 0.4, known: bool = True):
    """A prefix whose heads keep about `share` of their entries, each at other positions."""
    full, _ = full_cache(model, tokens, whole=True)
    generator = torch.Generator().manual_seed(len(tokens))
    kept = []
    for _ in full.layers:
        heads = []
        for head in range(model.config.num_key_value_heads):
            count = len(tokens) if share == 1 else int(share * len(tokens)) + head
            heads.append(torch.randperm(len(tokens), generator=generator)[:count])
        kept.append(heads)
    prefix = keep_positions(full, kept)
    if known:  # as a prefix of a store, which has its tokens
        prefix.match = SimpleNamespace(tokens=np.array(tokens, dtype=np.uint32))
    return prefix


def generate(model, ids, cache=None, new: int = NEW, **options) -> list[list[int]]:
    """The tokens that generate() of Transformers adds to prompts; without options, it is greedy."""
    defaults = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    ids = ids if torch.is_tensor(ids) else torch.tensor([ids])
    out = model.generate(ids, past_key_values=cache, max_new_tokens=new, **{**defaults, **options})
    assert torch.equal(out[:, : ids.shape[1]].cpu(), ids.repeat_interleave(len(out) // len(ids), 0))
    return out[:, ids.shape[1] :].tolist()


def steps(model, ids, cache=None, **options) -> torch.Tensor:
    """The logits from which generate() of Transformers chooses, [batch, NEW, vocabulary].

    A model with random weights may choose one token for any input: equal tokens prove little.
    """
    ids = ids if torch.is_tensor(ids) else torch.tensor([ids])
    out = model.generate(
        ids,
        past_key_values=cache,
        max_new_tokens=NEW,
        do_sample=False,
        **{"eos_token_id": None, "pad_token_id": 0, **options},
        return_dict_in_generate=True,
        output_logits=True,
    )
    return torch.stack(out.logits, dim=1)


def near(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    assert actual.shape == expected.shape
    return bool((actual - expected).abs().max() <= BOUND)


def padded(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows padded on the left as Transformers users do, and the attention mask."""
    longest = max(map(len, rows))
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
    return ids, mask


@pytest.fixture
def rows(hf_model):
    """Prefixes with different lengths and budgets, their tokens, and the tokens that follow."""
    shares = [0.5, 1, 0.3]
    before = [some_tokens(count, seed) for seed, count in enumerate(PREFIXES)]
    after = [some_tokens(count, 10 + seed) for seed, count in enumerate(TAILS)]
    prefixes = [restored(hf_model, *row) for row in zip(before, shares, strict=True)]
    return prefixes, before, after


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("tail", [1, 5, 30])
def test_a_prompt_is_the_whole_one_or_what_follows(hf_model, known, tail):
    before, after = some_tokens(60), some_tokens(tail, 2)
    prefix = restored(hf_model, before, known=known)
    by_hand = hf.RaggedCache(hf_model, prefix)
    tokens = list(hf.generate(hf_model, after, by_hand, NEW, stop=()))
    by_hand.crop(60)
    expected = hf.forward(hf_model, after + tokens[:-1], by_hand, logits_to_keep=NEW)[None]
    whole, part = hf.RaggedCache(hf_model, prefix), hf.RaggedCache(hf_model, prefix)
    assert near(steps(hf_model, before + after, whole), expected)
    assert near(steps(hf_model, after, part), expected)
    assert whole.get_seq_length() == part.get_seq_length() == 60 + tail + NEW - 1
    evicted = (steps(hf_model, before + after)[:, 0] - expected[:, 0]).abs().max()
    assert evicted > 10 * BOUND  # the evicted entries mattered


def test_what_follows_may_be_longer_than_the_prefix(random_llama):
    before, after = some_tokens(30), some_tokens(80, 2)
    prefix = restored(random_llama, before)
    expected = generate(random_llama, before + after, hf.RaggedCache(random_llama, prefix))
    assert generate(random_llama, after, hf.RaggedCache(random_llama, prefix)) == expected
    # If the prefix's tokens are unknown, a mask of all columns says that `after` follows them.
    cache = hf.RaggedCache(random_llama, restored(random_llama, before, known=False))
    mask = torch.ones(1, 110, dtype=torch.long)
    assert generate(random_llama, after, cache, attention_mask=mask) == expected


@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": True, "temperature": 0.8, "top_k": 20},
        {"do_sample": True, "top_p": 0.9, "num_return_sequences": 3},
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
        {"num_beams": 3},
        {"num_beams": 4, "num_return_sequences": 2, "do_sample": True},
        {"prompt_lookup_num_tokens": 3},
    ],
    ids=lambda options: "-".join(options),
)
def test_generation_goes_as_over_transformers_own_cache(random_llama, options):
    tokens = some_tokens(80)
    cache = hf.RaggedCache(random_llama, restored(random_llama, tokens[:70], share=1))
    torch.manual_seed(SEED)
    expected = generate(random_llama, tokens, **options)
    torch.manual_seed(SEED)
    assert generate(random_llama, tokens, cache, **options) == expected
    if options.get("do_sample"):  # another seed gives another result
        cache = hf.RaggedCache(random_llama, restored(random_llama, tokens[:70], share=1))
        torch.manual_seed(SEED + 1)
        assert generate(random_llama, tokens, cache, **options) != expected


SAMPLED = [
    {"temperature": 0.8, "top_k": 20},
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 1.7, "top_p": 0.8, "top_k": 30},
]


@pytest.mark.parametrize("options", SAMPLED, ids=lambda options: "-".join(options))
def test_a_seed_samples_what_transformers_samples(random_llama, options):
    before, after = some_tokens(60), some_tokens(5, 2)
    prefix = restored(random_llama, before)

    def ours(seed: int, **more) -> list[int]:
        cache = hf.RaggedCache(random_llama, prefix)
        return list(hf.generate(random_llama, after, cache, NEW, (), seed=seed, **options, **more))

    state = torch.get_rng_state()
    sampled = ours(SEED)
    assert torch.equal(torch.get_rng_state(), state)  # a seed leaves other randomness alone
    assert ours(SEED) == sampled
    assert ours(SEED + 1) != sampled
    torch.manual_seed(SEED)
    cache = hf.RaggedCache(random_llama, prefix)
    theirs = generate(random_llama, after, cache, do_sample=True, **{"top_k": 0, **options})
    assert [sampled] == theirs


def test_processors_of_transformers_see_the_tokens_and_the_answer(random_llama):
    before, after = some_tokens(60), some_tokens(5, 2)
    prefix = restored(random_llama, before)
    cache = hf.RaggedCache(random_llama, prefix)
    (expected,) = generate(random_llama, after, cache, repetition_penalty=0.1)  # rewards repetition
    cache = hf.RaggedCache(random_llama, prefix)
    processors = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(0.1)])
    assert expected == list(
        hf.generate(random_llama, after, cache, NEW, (), logits_processor=processors)
    )
    plain = list(hf.generate(random_llama, after, hf.RaggedCache(random_llama, prefix), NEW, ()))
    assert plain != expected


def test_limits_of_sampling_without_a_temperature_are_refused_at_the_call(random_llama):
    cache = hf.RaggedCache(random_llama)
    for limit in ({"top_p": 0.9}, {"top_k": 5}):
        with pytest.raises(ValueError, match=f"{next(iter(limit))}: needs a temperature"):
            hf.generate(random_llama, [7, 8], cache, **limit)
    with pytest.raises(ValueError, match="temperature"):
        hf.generate(random_llama, [7, 8], cache, temperature=-1.0)


def test_sampling_of_what_follows_is_that_of_the_whole_prompt(random_llama):
    before, after = some_tokens(60), some_tokens(4, 2)
    prefix = restored(random_llama, before)
    options = {"do_sample": True, "temperature": 1.5, "top_k": 50}
    torch.manual_seed(SEED)
    whole = generate(random_llama, before + after, hf.RaggedCache(random_llama, prefix), **options)
    torch.manual_seed(SEED)
    part = generate(random_llama, after, hf.RaggedCache(random_llama, prefix), **options)
    assert part == whole


def test_generation_ends_at_the_end_of_the_text(random_llama):
    before, after = some_tokens(60), some_tokens(4, 2)
    prefix = restored(random_llama, before)
    (text,) = generate(random_llama, after, hf.RaggedCache(random_llama, prefix))
    end = text[4]
    until = text[: text.index(end) + 1]
    cache = hf.RaggedCache(random_llama, prefix)
    assert generate(random_llama, after, cache, eos_token_id=end) == [until]


def test_each_row_of_a_batch_is_as_it_is_alone(hf_model, rows):
    prefixes, before, after = rows
    alone = [
        steps(hf_model, tokens, hf.RaggedCache(hf_model, prefix))
        for prefix, tokens in zip(prefixes, after, strict=True)
    ]
    held = [a + b + NEW - 1 for a, b in zip(PREFIXES, TAILS, strict=True)]
    for prompts in (after, [a + b for a, b in zip(before, after, strict=True)]):
        ids, mask = padded(prompts)
        cache = hf.RaggedCache(hf_model, prefixes)
        assert near(steps(hf_model, ids, cache, attention_mask=mask), torch.cat(alone))
        assert cache.held(3) == held
    cache = hf.RaggedCache(hf_model, prefixes[::-1])
    assert not near(steps(hf_model, padded(after)[0], cache), torch.cat(alone))


def test_the_logits_of_a_padded_batch_are_those_of_each_row(hf_model, rows):
    prefixes, _, after = rows
    cache = hf.RaggedCache(hf_model, prefixes)
    ids, mask = padded(after)
    more = torch.tensor([[5, 6], [7, 8], [9, 10]])
    with torch.no_grad():
        first = hf_model(ids, attention_mask=mask, past_key_values=cache).logits
        second = hf_model(more, past_key_values=cache).logits
    for row, (prefix, tokens) in enumerate(zip(prefixes, after, strict=True)):
        alone = hf.RaggedCache(hf_model, prefix)
        expected = hf.forward(hf_model, tokens, alone)
        assert (first[row, -len(tokens) :] - expected).abs().max() <= 1e-4
        expected = hf.forward(hf_model, more[row], alone)
        assert (second[row] - expected).abs().max() <= 1e-4


@pytest.mark.parametrize("lengths", [(4, 9), (9, 4)])
def test_rows_that_stand_on_nothing_and_rows_on_one_prefix(random_llama, lengths):
    prefix = restored(random_llama, some_tokens(50))
    tails = [some_tokens(count, count) for count in lengths]
    ids, mask = padded(tails)
    alone = [steps(random_llama, row, hf.RaggedCache(random_llama, prefix)) for row in tails]
    nothing = steps(random_llama, tails[1])
    cache = hf.RaggedCache(random_llama, [prefix, None])
    actual = steps(random_llama, ids, cache, attention_mask=mask)
    assert near(actual, torch.cat([alone[0], nothing]))
    cache = hf.RaggedCache(random_llama, prefix)
    assert near(steps(random_llama, ids, cache, attention_mask=mask), torch.cat(alone))


def test_beams_and_samples_of_a_batch_stay_on_their_prefixes(random_llama):
    before = [some_tokens(count, count) for count in (40, 64)]
    prompts = [tokens + some_tokens(5, len(tokens) + 1) for tokens in before]
    prefixes = [restored(random_llama, tokens, share=1) for tokens in before]
    ids, mask = padded(prompts)
    options = {"attention_mask": mask, "num_beams": 3, "num_return_sequences": 2}
    expected = generate(random_llama, ids, **options)
    assert (
        generate(random_llama, ids, hf.RaggedCache(random_llama, prefixes), **options) == expected
    )
    cache = hf.RaggedCache(random_llama, prefixes)
    hf.RaggedCache(random_llama, prefixes)
    random_llama(torch.tensor([[1], [2]]), past_key_values=cache)
    with pytest.raises(ValueError, match="a row would move to another prefix"):
        cache.reorder_cache(torch.tensor([1, 0]))


def test_prompts_that_are_stored_whole_are_continued_in_a_batch(hf_model):
    before = [some_tokens(count, count) for count in (40, 64, 52)]
    prefixes = [restored(hf_model, tokens) for tokens in before]
    prompts = [before[0], before[1] + [7, 8, 9], before[2]]
    alone = [
        steps(hf_model, tokens, hf.RaggedCache(hf_model, prefix))
        for prefix, tokens in zip(prefixes, prompts, strict=True)
    ]
    ids, mask = padded(prompts)
    cache = hf.RaggedCache(hf_model, prefixes)
    assert near(steps(hf_model, ids, cache, attention_mask=mask), torch.cat(alone))


@pytest.mark.parametrize("share", [0.4, 1])
def test_the_next_turn_goes_on_from_the_same_cache(hf_model, share):
    before, asked, again = some_tokens(60), some_tokens(5, 2), some_tokens(7, 3)
    prefix = restored(hf_model, before, share)
    cache = hf.RaggedCache(hf_model, prefix)
    first = before + asked + generate(hf_model, before + asked, cache)[0]
    second = steps(hf_model, first + again, cache)
    once = hf.RaggedCache(hf_model, prefix)
    assert near(second, steps(hf_model, first + again, once))
    if share == 1:
        assert near(second, steps(hf_model, first + again))
    # The prompt may be only the tokens that the cache lacks, the answer's last one among them.
    cache = hf.RaggedCache(hf_model, prefix)
    generate(hf_model, before + asked, cache)
    assert near(steps(hf_model, first[-1:] + again, cache), second)


def test_a_turn_that_takes_another_course_forgets_what_it_goes_on_without(random_llama):
    before, asked, other = some_tokens(60), some_tokens(9, 2), some_tokens(4, 3)
    prefix = restored(random_llama, before)
    cache = hf.RaggedCache(random_llama, prefix)
    generate(random_llama, before + asked, cache)
    prompt = before + asked[:5] + other
    expected = generate(random_llama, prompt, hf.RaggedCache(random_llama, prefix))
    assert generate(random_llama, prompt, cache) == expected
    assert cache.get_seq_length() == len(prompt) + NEW - 1
    # The same prompt again: the cache has all of it, and the model reads only its last token.
    assert generate(random_llama, prompt, cache) == expected


def test_the_next_turn_of_a_batch_leaves_out_what_came_after_each_end(hf_model, rows):
    prefixes, before, after = rows
    prompts = [a + b for a, b in zip(before, after, strict=True)]
    ids, mask = padded(prompts)
    plain = generate(hf_model, ids, hf.RaggedCache(hf_model, prefixes), attention_mask=mask)
    end = plain[1][3]  # row 1 ends early, perhaps others too, and is padded from there on
    assert any(end not in row[:9] for row in plain)
    cache = hf.RaggedCache(hf_model, prefixes)
    texts = generate(hf_model, ids, cache, attention_mask=mask, eos_token_id=end)
    texts = [text[: text.index(end) + 1] if end in text else text for text in texts]
    assert len(set(map(len, texts))) > 1
    again = [some_tokens(count, 20 + count) for count in (4, 2, 6)]
    turns = [a + b + c for a, b, c in zip(prompts, texts, again, strict=True)]
    alone = [
        steps(hf_model, turn, hf.RaggedCache(hf_model, prefix))
        for prefix, turn in zip(prefixes, turns, strict=True)
    ]
    ids, mask = padded(turns)
    assert near(steps(hf_model, ids, cache, attention_mask=mask), torch.cat(alone))
    assert cache.held(3) == [len(turn) + NEW - 1 for turn in turns]


def test_the_next_turn_of_a_batch_may_be_what_follows(random_llama):
    before = [some_tokens(count, count) for count in (40, 64)]
    prefixes = [restored(random_llama, tokens) for tokens in before]
    ids, mask = padded([some_tokens(3, 1), some_tokens(6, 2)])
    cache = hf.RaggedCache(random_llama, prefixes)
    first = generate(random_llama, ids, cache, attention_mask=mask)
    again = [text[-1:] + some_tokens(5 + row, 3 + row) for row, text in enumerate(first)]
    expected = []
    for row, prefix in enumerate(prefixes):
        asked = ids[row][mask[row] == 1].tolist()
        tokens = before[row] + asked + first[row] + again[row][1:]
        expected += generate(random_llama, tokens, hf.RaggedCache(random_llama, prefix))
    ids, mask = padded(again)
    assert generate(random_llama, ids, cache, attention_mask=mask) == expected


def test_plain_calls_of_the_model_are_as_before_and_attend_by_sdpa(random_llama, monkeypatch):
    model, other = copy.deepcopy(random_llama), copy.deepcopy(random_llama)
    assert model.config._attn_implementation == "sdpa"
    tokens = some_tokens(40)
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits
    expected = generate(model, tokens)
    calls, sdpa = [], ALL_ATTENTION_FUNCTIONS["sdpa"]

    def counted(*args, **kwargs):
        calls.append(1)
        return sdpa(*args, **kwargs)

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, "sdpa", counted)
    ragged = hf.RaggedCache(model, restored(model, tokens[:30]))
    calls.clear()
    generate(model, tokens, ragged)
    assert not calls
    with torch.no_grad():
        assert torch.equal(model(torch.tensor([tokens])).logits, logits)
    assert len(calls) == 4
    for cache in (None, DynamicCache(config=model.config)):
        calls.clear()
        assert generate(model, tokens, cache) == expected
        assert len(calls) == 4 * NEW
    assert generate(other, tokens) == expected  # a model for which no cache was made
    mine, theirs = hf.RaggedCache(model), hf.RaggedCache(other)
    for cache, reader in ((mine, model), (theirs, other)):
        assert generate(reader, tokens, cache) == expected
    assert {model.config._attn_implementation, other.config._attn_implementation} == {"sdpa"}


def test_what_generate_cannot_do_over_a_ragged_cache_says_so(random_llama):
    before, after = some_tokens(60), some_tokens(6, 2)
    prefix = restored(random_llama, before)
    two = torch.tensor([[1, 2], [3, 4]])

    def refused(match: str, ids=after, prefixes=prefix, **options) -> None:
        cache = hf.RaggedCache(random_llama, prefixes)
        with pytest.raises(ValueError, match=match):
            generate(random_llama, ids, cache, **options)

    refused("begins with 30 of the prefix's 60", before[:30] + after)
    refused("begins with 20 of the prefix's 60", before[:20])
    refused("the batch is 2, must be a multiple of the ragged cache's 3", two, [prefix] * 3)
    rows = [before + after, some_tokens(66, 5)]
    refused("row 1 of the batch does not begin", torch.tensor(rows), [prefix] * 2)
    refused("no tokens", two, [prefix] * 2, attention_mask=torch.tensor([[0, 1], [0, 0]]))
    refused("attention_mask has shape", attention_mask=torch.ones(1, 7, dtype=torch.long))
    refused("prefill_chunk_size", prefill_chunk_size=4)
    refused("use_cache", use_cache=False)
    refused("cache_implementation", cache_implementation="static")
    refused("whole prompt", prompt_lookup_num_tokens=3)
    with pytest.raises(ValueError, match="no prefixes"):
        hf.RaggedCache(random_llama, [])
    several = hf.RaggedCache(random_llama, [prefix] * 2)
    with pytest.raises(ValueError, match="over 2 prefixes to 59"):
        several.crop(59)
    with pytest.raises(ValueError, match="rows cannot be selected"):
        several.batch_select_indices(torch.tensor([0]))
    with pytest.raises(ValueError, match="the cache has 2 prefixes"):
        hf.store(None, None, random_llama, before, past=several)


def test_a_compiled_model_reads_over_a_ragged_cache_as_it_is():
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.3,
    )
    model = LlamaForCausalLM(config).eval()
    prefix = restored(model, some_tokens(30))
    compiled = torch.compile(model, backend="eager")
    ours, theirs = hf.RaggedCache(model, prefix), hf.RaggedCache(model, prefix)
    for chunk in ([7, 8, 9], [3], [4]):
        with torch.no_grad():
            logits = compiled(torch.tensor([chunk]), past_key_values=theirs).logits[0]
        assert near(logits, hf.forward(model, chunk, ours))


def test_rows_of_one_store_are_answered_in_a_batch(cache, smollm2, request):
    model, tokenizer = smollm2
    registered = cache.register_model(hf.model_spec(model, name=request.node.nodeid[-200:]))
    texts = ["The sea was calm that day. " * 12, "Rain fell on the old town for hours. " * 5]
    prefixes, before = [], []
    for text, keep in zip(texts, (0.3, 0.6), strict=True):
        tokens = tokenizer(text).input_ids
        hf.store(cache, registered, model, tokens, recipe="ada_keydiff", keep=keep)
        prefixes.append(cache.get(cache.lookup(registered, tokens)))
        before.append(tokens)
    asked = [tokenizer(text).input_ids for text in ("In the evening", "When it stopped, people")]
    expected = []
    for prefix, tokens in zip(prefixes, asked, strict=True):
        alone = hf.RaggedCache(model, prefix)
        expected.append(list(hf.generate(model, tokens, alone, NEW, stop=())))
    for rows in (asked, [a + b for a, b in zip(before, asked, strict=True)]):
        ids, mask = padded(rows)
        batch = hf.RaggedCache(model, prefixes)
        assert generate(model, ids, batch, attention_mask=mask) == expected
