"""A prompt that is stored whole is continued, and a ragged cache is cropped into its prefix."""

from __future__ import annotations

import copy

import pytest
import torch
from conftest import SEED
from dense_reference import continuation, dense_attention, full_cache, keep_positions
from transformers import DynamicCache

import precis
from precis import hf

BOUND = 1e-3
CHUNKS = [5, 1, 1, 9]
NEW = 12


@pytest.fixture
def tokens() -> list[int]:
    generator = torch.Generator().manual_seed(SEED)
    return torch.randint(20, 1000, (128,), generator=generator).tolist()


@pytest.fixture
def stored(cache, hf_model, tokens, request):
    """A function that stores the tokens at a budget and reads them back."""
    model = cache.register_model(hf.model_spec(hf_model, name=request.node.nodeid[-200:]))

    def store(keep: float) -> precis.Prefix:
        hf.store(cache, model, hf_model, tokens, recipe="ada_keydiff", keep=keep)
        match = cache.lookup(model, tokens)
        assert match.matched_tokens == len(tokens)
        return cache.get(match)

    return store


def some_kept(model, length: int) -> list[list[torch.Tensor]]:
    """About half of the positions of every head, in random order."""
    generator = torch.Generator().manual_seed(SEED)
    config = model.config
    return [
        [
            torch.randperm(length, generator=generator)[: length // 2 + head]
            for head in range(config.num_key_value_heads)
        ]
        for _ in range(config.num_hidden_layers)
    ]


def generated(model, ids: list[int], cache=None) -> list[int]:
    """The tokens that generate() of Transformers adds to a prompt, greedily."""
    out = model.generate(
        torch.tensor([ids]),
        past_key_values=cache,
        max_new_tokens=NEW,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    assert out[0, : len(ids)].tolist() == ids
    return out[0, len(ids) :].tolist()


def test_a_prompt_that_is_stored_whole_is_continued_as_without_a_cache(stored, hf_model, tokens):
    prefix = stored(1.0)
    expected = generated(hf_model, tokens)
    ours = hf.generate(hf_model, [], hf.RaggedCache(hf_model, prefix), NEW, stop=())
    assert list(ours) == expected
    ragged = hf.RaggedCache(hf_model, prefix)
    assert generated(hf_model, tokens, ragged) == expected
    assert ragged.get_seq_length() == len(tokens) + NEW - 1


def test_of_a_compressed_prompt_the_last_token_runs_over_exactly_what_the_rest_kept(
    stored, hf_model, tokens
):
    prefix = stored(0.3)
    ragged = hf.RaggedCache(hf_model, prefix)
    last = ragged.take_back()
    assert last == tokens[-1]
    actual = hf.forward(hf_model, [last], ragged)
    # `own` lacks the last token. The model sees only those of its entries that the prefix keeps.
    own, _ = full_cache(hf_model, tokens[:-1], whole=True)
    with dense_attention(hf_model, keep_positions(own, below(prefix, len(tokens) - 1))):
        expected = continuation(hf_model, own, [last], [1])
    assert (actual - expected).abs().max() <= BOUND
    ours = list(hf.generate(hf_model, [], hf.RaggedCache(hf_model, prefix), NEW, stop=()))
    assert generated(hf_model, tokens, hf.RaggedCache(hf_model, prefix)) == ours
    assert ours[0] == int(expected[-1].argmax())


def below(prefix, end: int) -> list[list[torch.Tensor]]:
    """The positions below `end` that every head of a prefix keeps."""
    kept = []
    for layer in prefix.layers:
        positions = [torch.as_tensor(head.positions.astype("int64")) for head in layer.heads]
        kept.append([head[head < end] for head in positions])
    return kept


@pytest.mark.parametrize("ends", [[95], [72, 40], [1], [0]])
def test_a_cropped_prefix_is_exactly_its_entries_before_the_crop(hf_model, tokens, ends):
    prompt, rest = tokens[:96], tokens[96 : 96 + sum(CHUNKS)]
    full, _ = full_cache(hf_model, prompt, whole=True)
    prefix = keep_positions(full, some_kept(hf_model, len(prompt)))
    ragged = hf.RaggedCache(hf_model, prefix)
    hf.forward(hf_model, rest[:3], ragged)  # every layer is loaded, and there is a tail
    for end in ends:
        ragged.crop(end)
        assert ragged.get_seq_length() == ragged.prefix_tokens == end
        kept = [
            [head.positions[head.positions < end] for head in layer.heads]
            for layer in prefix.layers
        ]
        own, _ = full_cache(hf_model, prompt[: max(end, 1)], whole=True)
        own.crop(end)
        with dense_attention(hf_model, keep_positions(own, kept)):
            expected = continuation(hf_model, own, rest, CHUNKS)
        actual = continuation(hf_model, ragged, rest, CHUNKS)
        assert (actual - expected).abs().max() <= BOUND
        ragged.crop(-len(rest))
    # Another cache over the same prefix sees all of it.
    whole = hf.RaggedCache(hf_model, prefix)
    with dense_attention(hf_model, prefix):
        expected = continuation(hf_model, full, rest, CHUNKS)
    assert (continuation(hf_model, whole, rest, CHUNKS) - expected).abs().max() <= BOUND


def test_a_crop_leaves_what_is_kept_where_it_lies(random_llama, tokens):
    full, _ = full_cache(random_llama, tokens)
    prefix = keep_positions(full, some_kept(random_llama, len(tokens)))
    ragged = hf.RaggedCache(random_llama, prefix)
    ragged.crop(-1)
    for kept, entries in zip(ragged.layers[2].kept(), prefix.layers[2].heads, strict=True):
        assert kept.keys.data_ptr() == entries.keys.data_ptr()
        hidden = 0 if kept.hidden is None else len(kept.hidden)
        assert hidden == int((entries.positions == len(tokens) - 1).sum())


def test_log_sum_exps_over_a_cropped_prefix_leave_out_what_was_cropped(random_llama, tokens):
    full, _ = full_cache(random_llama, tokens)
    everything = [[torch.arange(len(tokens))] * 8 for _ in range(4)]
    ragged = hf.RaggedCache(random_llama, keep_positions(full, everything))
    ragged.crop(50)
    seen = []

    def observe(layer, keys, values, queries):
        seen.append((ragged.layers[layer].log_sum_exp(queries), keys, queries))

    with ragged.observed(observe):
        hf.forward(random_llama, [7], ragged)
    for layer, (lse, keys, queries) in enumerate(seen):
        for head in range(32):
            rows = torch.cat([full.layers[layer].keys[0, head // 4, :50], keys[head // 4]])
            want = (rows @ queries[head, 0] * 32**-0.5).logsumexp(0)
            assert lse[head, 0] == pytest.approx(float(want), abs=1e-4)


def test_what_was_just_read_is_continued_without_new_tokens(hf_model, tokens):
    expected = generated(hf_model, tokens)
    cache = hf.prefill(hf_model, tokens).cache
    assert list(hf.generate(hf_model, [], cache, NEW, stop=())) == expected
    # The cache lacks the last of these tokens, so the model generates it again.
    assert list(hf.generate(hf_model, [], cache, 1, stop=())) == expected[-1:]
    # A prompt that is read again has the same logits.
    cache.crop(len(tokens))
    again = hf.prefill(hf_model, tokens, past=cache)
    assert int(again.logits.argmax()) == expected[0]


def test_generate_of_transformers_reads_on_from_a_part_of_the_prompt(stored, hf_model, tokens):
    prefix = stored(1.0)
    prompt = [*tokens, *range(30, 50)]
    assert generated(hf_model, prompt, hf.RaggedCache(hf_model, prefix)) == generated(
        hf_model, prompt
    )


def test_a_batch_continues_a_whole_prompt(random_llama, tokens):
    full, _ = full_cache(random_llama, tokens)
    everything = [[torch.arange(len(tokens))] * 8 for _ in range(4)]
    ragged = hf.RaggedCache(random_llama, keep_positions(full, everything))
    out = random_llama.generate(
        torch.tensor([tokens] * 3),
        past_key_values=ragged,
        max_new_tokens=4,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    expected = generated(random_llama, tokens)[:4]
    assert out[:, len(tokens) :].tolist() == [expected] * 3


def test_a_model_with_ragged_caches_reads_over_its_own_as_before(random_llama, tokens):
    expected = generated(random_llama, tokens)
    ragged = hf.prefill(random_llama, tokens).cache
    before = random_llama.config._attn_implementation
    assert before != hf.ATTENTION_NAME
    assert generated(random_llama, tokens) == expected
    own = DynamicCache(config=random_llama.config)
    assert list(hf.generate(random_llama, tokens, own, NEW, stop=())) == expected

    class Stop(KeyboardInterrupt):
        pass

    def interrupt(*_: object) -> None:
        raise Stop

    # PyTorch calls no hook after an interrupt: the next call must restore everything.
    with pytest.raises(Stop), ragged.observed(interrupt):
        random_llama(torch.tensor([[7]]), past_key_values=ragged)
    assert generated(random_llama, tokens) == expected
    assert random_llama.config._attn_implementation == before
    fresh = hf.RaggedCache(random_llama)
    with pytest.raises(ValueError, match="one sequence can be observed"), fresh.observed(print):
        random_llama(torch.tensor([[7]] * 2), past_key_values=fresh)
    assert random_llama.config._attn_implementation == before


def test_what_cannot_be_continued_says_what_to_do(random_llama, tokens):
    ragged = hf.prefill(random_llama, tokens).cache
    with pytest.raises(ValueError, match="the cache is empty"):
        next(hf.generate(random_llama, [], hf.RaggedCache(random_llama)))
    with pytest.raises(ValueError, match="DynamicCache does not know its last token"):
        next(hf.generate(random_llama, [], full_cache(random_llama, tokens)[0]))
    by_hand = keep_positions(full_cache(random_llama, tokens)[0], some_kept(random_llama, 128))
    with pytest.raises(ValueError, match=r"not known: crop\(-1\) and feed that token"):
        next(hf.generate(random_llama, [], hf.RaggedCache(random_llama, by_hand)))
    with pytest.raises(ValueError, match="cannot crop 200 tokens off a cache of 128"):
        ragged.crop(-200)
    mask = torch.ones(1, 129, dtype=torch.long)
    mask[0, 3] = 0
    ragged = hf.RaggedCache(random_llama, by_hand)
    with pytest.raises(ValueError, match="attention_mask hides tokens"):
        random_llama(torch.tensor([[7]]), past_key_values=ragged, attention_mask=mask)


def test_a_cache_of_another_model_is_refused_where_it_could_not_be_attended_over(random_llama):
    config = copy.deepcopy(random_llama.config)
    other = type(random_llama)(config).eval()
    ragged = hf.RaggedCache(random_llama)
    with pytest.raises(ValueError, match="make the cache for the model that is called"):
        other(torch.tensor([[7]]), past_key_values=ragged)
    hf.RaggedCache(other)  # `other` attends over ragged caches from now on
    other(torch.tensor([[7]]), past_key_values=ragged)


def test_a_turn_stands_on_the_segment_at_whose_end_the_past_was_cropped(
    cache, random_llama, tokens, request
):
    model = cache.register_model(hf.model_spec(random_llama, name=request.node.nodeid[-200:]))
    first, _ = hf.store(cache, model, random_llama, tokens[:64], recipe="knorm", keep=1.0)
    past = hf.RaggedCache(random_llama, cache.get(cache.lookup(model, tokens[:64])))
    hf.store(cache, model, random_llama, tokens, recipe="knorm", keep=1.0, past=past)
    past = hf.RaggedCache(random_llama, cache.get(cache.lookup(model, tokens)))
    past.crop(64)
    other = [*tokens[:64], *range(100, 132)]
    second, _ = hf.store(cache, model, random_llama, other, recipe="knorm", keep=1.0, past=past)
    assert (second.parent, second.begin, second.end) == (first.id, 64, 96)
    past = hf.RaggedCache(random_llama, cache.get(cache.lookup(model, tokens)))
    past.crop(100)
    with pytest.raises(ValueError, match=r"ends at token 100, inside segment .* \[64, .* crop\(64"):
        hf.store(cache, model, random_llama, [*tokens[:100], 5, 6], past=past)
