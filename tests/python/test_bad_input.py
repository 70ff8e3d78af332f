"""Bad input gets an error that names the field, and the service keeps serving."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kv import put_all, random_layers, toy_spec

import precis


@pytest.fixture(autouse=True)
def still_serving(cache, model):
    """After every test here a whole put and get must work on the same connection."""
    yield
    layers = random_layers(model.spec, 30, seed=9)
    put_all(cache, model, range(9000, 9030), layers, keep=0.5)
    assert cache.get(cache.lookup(model, range(9000, 9030))).kept == 90


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"dtype": "f64"}, "dtype"),
        ({"num_layers": 0}, "num_layers"),
        ({"num_q_heads": 3}, "num_q_heads"),
        ({"head_dim": 5000}, "head_dim"),
        ({"block_tokens": 0}, "block_tokens"),
        ({"name": ""}, "name"),
        ({"rope_scaling": '{"rope_type":"yarm"}'}, "rope_scaling: rope_type 'yarm' is unknown"),
        ({"rope_scaling": '{"rope_type":"linear"}'}, "rope_scaling: factor is missing"),
    ],
)
def test_a_model_that_cannot_be_is_refused(cache, change, field):
    with pytest.raises(precis.InvalidArgument, match=field):
        cache.register_model(replace(toy_spec(), **change))


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"recipe": "nope"}, "nope"),
        ({"recipe": "ada_keydiff(alpha=2)"}, "alpha"),
        ({"recipe": "{"}, "recipe"),
        ({"keep": 0}, "keep"),
        ({"keep": 1.5}, "keep"),
        ({"parent_read": 7.0}, "keep|parent_read"),
        ({"parent": "zz"}, "segment|hex"),
    ],
)
def test_a_put_that_cannot_be_is_refused(cache, model, options, field):
    with pytest.raises(precis.InvalidArgument, match=field):
        cache.begin_put(model, range(40), **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c, m, p: precis.connect(7470), "address: must be str, is 7470"),
        (lambda c, m, p: precis.connect("127.0.0.1:1", tenant=None), "tenant: must be str"),
        (lambda c, m, p: precis.connect("127.0.0.1:1", timeout="1"), "timeout: must be float"),
        (lambda c, m, p: precis.connect("127.0.0.1:1", timeout=1e10), "timeout: .* 49 days"),
        (lambda c, m, p: precis.connect("127.0.0.1:1", retry="no"), "retry: must be bool"),
        (lambda c, m, p: precis.open(7), r"directory: must be str \| os.PathLike"),
        (lambda c, m, p: precis.open("127.0.0.1:7470"), r"is an address, for connect\(\)"),
        (lambda c, m, p: precis.open("nowhere", threads=-1), "threads is -1"),
        (lambda c, m, p: precis.open("nowhere", memory_bytes="4 GiB"), "memory_bytes: '4 GiB'"),
        (lambda c, m, p: c.register_model("toy"), "spec: must be ModelSpec, is 'toy'"),
        (lambda c, m, p: c.register_model(replace(m.spec, name=5)), "name: must be str, is 5"),
        (lambda c, m, p: c.register_model(replace(m.spec, head_dim=-1)), "head_dim is -1"),
        (lambda c, m, p: c.begin_put(m.spec, [1]), "model: must be Model, is ModelSpec"),
        (lambda c, m, p: c.begin_put(m, "abc"), "tokens: 'abc' is not a sequence of token ids"),
        (lambda c, m, p: c.begin_put(m, [1], recipe=0.3), r"recipe: must be str \| None, is 0.3"),
        (lambda c, m, p: c.begin_put(m, [1], keep=[]), "keep: .* is not a share"),
        (lambda c, m, p: c.begin_put(m, [1], keep=precis.Budget("entries", -3)), "entries is -3"),
        (lambda c, m, p: c.begin_put(m, [1], parent_read="64 mb"), "^parent_read '64 mb' is not"),
        (lambda c, m, p: c.begin_put(m, [1], parent=5), r"parent: must be Match \| Segment"),
        (lambda c, m, p: p.layer(0, None, None), "keys: NoneType is not an array"),
        (lambda c, m, p: p.layer(0, np.array([None]), None), "keys: dtype object"),
        (lambda c, m, p: p.layer(0, *random_layers(m.spec, 40)[0], wait="x"), "wait: must be bool"),
        (lambda c, m, p: p.commit(5), "durability: must be Literal"),
        (lambda c, m, p: c.lookup(m, None), "tokens: None is not a sequence of token ids"),
        (lambda c, m, p: c.lookup(None, [1]), "model: must be Model, is None"),
        (lambda c, m, p: c.get(None), "match: must be Match, is None"),
        (lambda c, m, p: c.get(c.lookup(m, [1]), out=5), "out: must be Sequence.*, is 5"),
        (lambda c, m, p: c.session(5), "name: must be str, is 5"),
        (lambda c, m, p: c.session("typed").advance(None), r"segment: must be Segment \| str"),
        (lambda c, m, p: precis.compress("x", []), r"model: must be ModelSpec \| Model, is 'x'"),
        (lambda c, m, p: precis.compress(m, np.zeros(1), recipe=None), "recipe: must be str, is"),
    ],
)
def test_an_argument_of_a_wrong_type_is_refused_by_its_name(cache, model, call, message):
    with (
        cache.begin_put(model, range(40)) as put,
        pytest.raises(precis.InvalidArgument, match=message),
    ):
        call(cache, model, put)


def test_what_fails_for_another_reason_is_told_as_it_was(cache, model):
    class Tokens:
        def __array__(self, *_, **__):
            raise TypeError("of its own")

    with pytest.raises(TypeError, match="of its own"):
        cache.lookup(model, Tokens())
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'tokens'"):
        cache.lookup(model)


def test_a_put_needs_tokens_a_known_model_and_a_parent_that_exists(cache, model):
    with pytest.raises(precis.InvalidArgument, match="token"):
        cache.begin_put(model, [])
    with pytest.raises(precis.NotFound):
        cache.begin_put(model, range(40), parent="0123456789abcdef" * 2)


@pytest.mark.parametrize(
    ("shape", "dtype", "field"),
    [
        ((1, 40, 16), np.float32, r"layer 0 \(tokens of 1 of 2 .* head 1 got 0 of 40\)"),
        ((2, 30, 16), np.float32, r"layer 0 \(tokens of 2 of 2 .* head 0 got 30 of 40\)"),
        ((3, 40, 16), np.float32, "head"),
        ((2, 41, 16), np.float32, "token"),
        ((2, 40, 8), np.float32, "head_dim"),
        ((2, 40, 16), np.float16, "f16"),
        ((2, 0, 16), np.float32, "token"),
        ((2, 40), np.float32, "keys"),
        ((2, 40, 16), np.float64, "dtype"),
    ],
)
def test_a_layer_of_a_wrong_shape_or_dtype_is_refused(cache, model, shape, dtype, field):
    part = np.zeros(shape, dtype)
    with (
        pytest.raises(precis.InvalidArgument, match=field),
        cache.begin_put(model, range(40)) as put,
    ):
        put.layer(0, part, part)
        for i in range(1, 3):  # a piece of layer 0 may be valid: the commit misses the rest
            put.layer(i, *random_layers(model.spec, 40)[i])
        put.commit()


def test_a_layer_that_is_not_there_or_came_before_is_refused(cache, model):
    layers = random_layers(model.spec, 40)
    with pytest.raises(precis.InvalidArgument, match="layer"):
        cache.begin_put(model, range(40)).layer(3, *layers[0])
    put = cache.begin_put(model, range(40))
    put.layer(1, *layers[1])
    with pytest.raises(precis.InvalidArgument, match="layer 1"):
        put.layer(1, *layers[1])


def test_a_commit_with_layers_missing_names_them(cache, model):
    put = cache.begin_put(model, range(40))
    put.layer(1, *random_layers(model.spec, 40)[1])
    with pytest.raises(precis.InvalidArgument, match=r"0.*2"):
        put.commit()
    assert not cache.lookup(model, range(40))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_in_the_keys_is_refused_by_commit_at_the_latest(cache, model, value):
    layers = random_layers(model.spec, 40)
    layers[2][0][1, 5, 3] = value
    with pytest.raises(precis.InvalidArgument, match="head 1, token 5"):
        put_all(cache, model, range(40), layers)
    assert not cache.lookup(model, range(40))


def test_a_durability_that_does_not_exist_is_refused(cache, model):
    with pytest.raises(precis.InvalidArgument, match="durability"):
        put_all(cache, model, range(40), random_layers(model.spec, 40), durability="disk")


def test_queries_that_the_recipe_needs_must_come(cache, model):
    with pytest.raises(precis.InvalidArgument, match="queries"):
        put_all(cache, model, range(40), random_layers(model.spec, 40), recipe="snapkv")


def test_an_lse_without_its_queries_is_refused(cache, model):
    keys, values = random_layers(model.spec, 40)[1]
    put = cache.begin_put(model, range(40))
    with pytest.raises(precis.InvalidArgument, match="layer 1: an lse was pushed without queries"):
        put.layer(1, keys, values, lse=np.zeros((4, 32), np.float32))


def test_a_read_above_what_is_stored_is_refused(cache, model):
    put_all(cache, model, range(40), random_layers(model.spec, 40), keep=0.3)
    match = cache.lookup(model, range(40))
    with pytest.raises(precis.InvalidArgument):
        cache.get(match, keep=0.6).wait()


def test_a_get_of_nothing_is_refused(cache, model):
    match = cache.lookup(model, range(7000, 7040))
    assert not match
    with pytest.raises(precis.Error):
        cache.get(match).wait()


def test_a_get_of_what_was_removed_is_not_found(cache, model):
    segment = put_all(cache, model, range(40), random_layers(model.spec, 40), keep=0.3)
    match = cache.lookup(model, range(40))
    cache.remove(segment)
    with pytest.raises(precis.NotFound):
        cache.get(match).wait()


def test_sessions_that_are_not_there_are_not_found(cache):
    session = cache.session("short-lived")
    session.remove()
    with pytest.raises(precis.NotFound):
        session.pin()
    with pytest.raises(KeyError):
        session.fork("another")


def test_an_error_prints_its_message_alone():
    error = precis.NotFound("segment 12ab: not stored")
    assert str(error) == "segment 12ab: not stored"
    assert error.code == "not_found" and isinstance(error, KeyError)
