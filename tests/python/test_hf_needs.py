"""The inputs that scorers need of a model, against a computation by hand from the model's parts."""

from __future__ import annotations

import contextlib
import json

import pytest
import torch

import precis
from precis import hf
from precis.hf.needs import FUTURE_TOKENS

TOKENS = torch.arange(20, 110).tolist()


@pytest.fixture(params=["random_llama", "random_gemma3"])
def hf_model(request):
    return request.getfixturevalue(request.param)


@contextlib.contextmanager
def queries_before_rope(hf_model):
    """Within the block, the last output of every q_norm or q_proj, [num_q_heads, n, head_dim]."""
    seen: dict[int, torch.Tensor] = {}
    hooks = []
    for index, module in enumerate(hf.attention_modules(hf_model)):

        def keep(_module, _args, out, index=index, dim=module.head_dim):
            rows = out[0]
            seen[index] = rows if rows.ndim == 3 else rows.view(len(rows), -1, dim).transpose(0, 1)

        source = getattr(module, "q_norm", None) or module.q_proj
        hooks.append(source.register_forward_hook(keep))
    yield seen
    for hook in hooks:
        hook.remove()


def rotate(rows: torch.Tensor, position: int, theta: float) -> torch.Tensor:
    """RoPE by hand: element i is rotated with element i + d/2."""
    half = rows.shape[-1] // 2
    angle = position / theta ** (torch.arange(half, dtype=torch.float64) / half)
    a, b = rows[..., :half], rows[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], dim=-1)


def observe_all(hf_model, tokens, cache=None):
    """(keys, values, queries) of every layer, for all of a prefill's tokens."""
    layers = []
    cache = hf.RaggedCache(hf_model) if cache is None else cache
    with cache.observed(lambda layer, *rows: layers.append(rows)):
        hf.forward(hf_model, tokens, cache, logits_to_keep=1)
    return cache, layers


def test_output_projections_are_the_models_own_by_head(hf_model):
    projections = hf.output_projections(hf_model)
    heads = torch.randn(hf_model.config.num_attention_heads, hf_model.config.head_dim)
    for module, projection in zip(hf.attention_modules(hf_model), projections, strict=True):
        by_head = sum(heads[h] @ torch.from_numpy(p) for h, p in enumerate(projection))
        assert torch.allclose(module.o_proj(heads.flatten()), by_head, atol=1e-5)


def test_statistics_are_those_of_queries_before_rope_turned_by_the_mean_rotation(hf_model):
    with queries_before_rope(hf_model) as before:
        _, layers = observe_all(hf_model, TOKENS)
    config = hf_model.config
    statistics = hf.QueryStatistics(hf_model)
    # Scorers divide by sqrt(head_dim); this model may divide by another factor.
    factor = (config.head_dim / getattr(config, "query_pre_attn_scalar", config.head_dim)) ** 0.5
    thetas = [10000.0] * config.num_hidden_layers
    if config.model_type.startswith("gemma3"):
        thetas = [config.rope_parameters[kind]["rope_theta"] for kind in config.layer_types]
        assert len(set(thetas)) == 2
    for index, (_, _, queries) in enumerate(layers):
        mean, covariance = statistics.of_layer(index, queries, begin=0, sinks=4)
        past = before[index][:, 4:].double() * factor
        unit = torch.eye(config.head_dim, dtype=torch.float64)
        turns = [
            rotate(unit, len(TOKENS) + i, thetas[index]).T for i in range(FUTURE_TOKENS)
        ]  # columns: the rotated unit vectors
        turn = torch.stack(turns).mean(0)
        for h, rows in enumerate(past):
            centred = rows - rows.mean(0)
            want = turn @ (centred.T @ centred / len(rows)) @ turn.T
            assert torch.allclose(mean[h].double(), turn @ rows.mean(0), atol=1e-4)
            assert torch.allclose(covariance[h].double(), want, atol=1e-4)


def test_statistics_of_nothing_but_sinks_are_zero(random_llama):
    statistics = hf.QueryStatistics(random_llama)
    mean, covariance = statistics.of_layer(0, torch.randn(32, 3, 32), begin=0, sinks=4)
    assert not mean.any() and not covariance.any()
    later, _ = statistics.of_layer(0, torch.randn(32, 3, 32), begin=4, sinks=4)
    assert later.any()


@pytest.mark.parametrize("chunk_tokens", [2048, 40])
def test_repetitions_bring_queries_and_their_log_sum_exp_over_all_before(hf_model, chunk_tokens):
    request = [5, 6, 7]
    cache, _ = observe_all(hf_model, TOKENS)
    chunks = list(hf.repetitions(hf_model, TOKENS, cache, request, chunk_tokens))
    assert cache.get_seq_length() == len(TOKENS)
    assert len(chunks) == -(-len(TOKENS) // chunk_tokens)
    for i, chunk in enumerate(chunks):
        begin = i * chunk_tokens
        lead = TOKENS[max(0, begin - 8) : begin]
        fed = [*request, *lead, *TOKENS[begin : begin + chunk_tokens]]
        _, layers = observe_all(hf_model, TOKENS + fed)
        for index, (keys, _, queries) in enumerate(layers):
            group = queries.shape[0] // keys.shape[0]
            asked = queries[:, len(TOKENS) :]
            assert (chunk.queries[index] - asked).abs().max() <= 1e-3
            for h in range(0, len(asked), 3):
                for row in range(0, len(fed), 11):
                    before = keys[h // group, : len(TOKENS) + row + 1].double()
                    scores = before @ asked[h, row].double() * asked.shape[-1] ** -0.5
                    want = scores.logsumexp(0)
                    assert chunk.lse[index][h, row] == pytest.approx(float(want), abs=1e-3)


def test_a_request_to_repeat_is_a_users_last_words(smollm2):
    _, tokenizer = smollm2
    text = tokenizer.decode(hf.repeat_request(tokenizer))
    assert text.startswith("\n\nRepeat") and text.endswith("<|im_end|>\n<|im_start|>assistant\n")


class Recorder:
    """A put that records the pushes."""

    already_stored = False

    def __init__(self, hf_model, begin: int, end: int, **recipe) -> None:
        self.begin, self.end = begin, end
        self.recipe = json.dumps({"sinks": 0, **recipe})
        self.model = precis.Model(hf.model_spec(hf_model, name="m"), "")
        self.layers: dict[int, dict[str, torch.Tensor]] = {}

    def layer(self, index, *, wait, **parts):
        self.layers[index] = {name: rows.clone() for name, rows in parts.items()}

    def wait(self):
        pass


@pytest.mark.parametrize(
    ("recipe", "names"),
    [
        ({"scorer": "keydiff"}, set()),
        ({"scorer": "tova", "window": 1}, {"queries"}),
        ({"scorer": "observed_mean", "window": 0}, {"queries"}),
        ({"scorer": "expected_attention", "sinks": 4}, {"query_mean", "query_covariance"}),
        ({"scorer": "kvzip", "window": 0}, {"queries", "lse"}),
    ],
)
def test_prefill_pushes_what_the_recipe_needs(hf_model, recipe, names):
    put = Recorder(hf_model, 0, len(TOKENS), **recipe)
    hf.prefill(hf_model, TOKENS, put)
    config = hf_model.config
    assert list(put.layers) == list(range(config.num_hidden_layers))
    for parts in put.layers.values():
        assert set(parts) == {"keys", "values", *names}
        assert parts["keys"].shape == (config.num_key_value_heads, len(TOKENS), config.head_dim)
        if "queries" in names:
            asked = {"tova": 1}.get(recipe["scorer"], len(TOKENS))
            shape = (config.num_attention_heads, asked, config.head_dim)
            assert parts["queries"].shape == shape


def test_of_the_queries_no_more_is_held_than_a_recipe_needs():
    queries = torch.randn(4, 100, 8)
    assert hf.Needs().held(queries) is None
    last = hf.Needs(queries=5).held(queries)
    assert torch.equal(last, queries[:, 95:])
    assert last.untyped_storage().nbytes() == last.nbytes
    for needs in (hf.Needs(queries=None), hf.Needs(queries=200), hf.Needs(statistics=True)):
        assert torch.equal(needs.held(queries), queries)


def test_a_second_turn_is_repeated_over_the_whole_cache(random_llama):
    past = hf.prefill(random_llama, TOKENS[:50]).cache
    put = Recorder(random_llama, 50, len(TOKENS), scorer="kvzip", window=0)
    hf.prefill(random_llama, TOKENS, put, past)
    whole, _ = observe_all(random_llama, TOKENS)
    (chunk,) = hf.repetitions(random_llama, TOKENS[50:], whole)
    for index, parts in put.layers.items():
        assert parts["keys"].shape[1] == len(TOKENS) - 50
        assert (parts["lse"] - chunk.lse[index]).abs().max() <= 1e-3
    assert past.get_seq_length() == len(TOKENS)


def test_models_of_another_build_are_refused_with_what_is_missing(random_llama):
    class Other:
        config = random_llama.config

        def get_decoder(self):
            return torch.nn.Module()

    with pytest.raises(ValueError, match="self_attn"):
        hf.output_projections(Other())


def test_kvdiff_sees_keys_as_the_models_own_rope_found_them(hf_model):
    """Its scores follow the formula of kvdiff over keys whose rotation is undone.

    In a layer with a sliding window, over those that later queries see.
    """
    spec = hf.model_spec(hf_model, name="kvdiff")
    _, layers = observe_all(hf_model, TOKENS)
    pushed = [{"keys": keys, "values": values} for keys, values, _ in layers]
    kept = precis.compress(spec, pushed, recipe="kvdiff(sinks=0, recent=0)", keep=1.0)
    rotation = hf.Rotation(hf_model)
    for index, (keys, values, _) in enumerate(layers):
        window = (spec.windows or (0,) * spec.num_layers)[index] or len(TOKENS)
        first = max(0, len(TOKENS) - window)
        values = values[:, first:]
        before = rotation.undo(index, keys, 0).double()[:, first:]
        unit = before / before.norm(dim=-1, keepdim=True)
        anchor = unit.mean(dim=1, keepdim=True)
        cosine = (unit * anchor).sum(-1) / anchor.norm(dim=-1)
        norms = values.double().norm(dim=-1)
        want = (1 - cosine) * norms / norms.mean(dim=-1, keepdim=True)
        for head in range(spec.num_kv_heads):
            order = kept.positions[index][head].astype(int) - first
            got = torch.from_numpy(kept.scores[index][head].copy()).double()
            assert (got - want[head][order]).abs().max() <= 2e-4
