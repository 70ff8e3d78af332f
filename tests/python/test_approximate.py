"""Lookups distinguish segments that were computed over a part of their parents from exact ones."""

from __future__ import annotations

import pytest
from kv import put_all, random_layers, toy_spec

import precis

TOKENS = list(range(440))
BEGIN, END = 200, 400  # of an approximation


def put(cache, model, begin, end, **options):
    layers = random_layers(model.spec, end - begin, seed=end)
    return put_all(cache, model, TOKENS[:end], layers, keep=1.0, **options)


def found(cache, model, keep, path=TOKENS):
    """Ids of the links of a lookup, which skips segments that are too approximate for `keep`."""
    match = cache.lookup(model, path, keep=keep, align=2)
    return [link.segment.id for link in match.links]


@pytest.fixture
def parent(cache, model):
    return put(cache, model, 0, BEGIN)


@pytest.fixture
def rough(cache, model, parent):
    """Computed over a twentieth of the parent."""
    return put(cache, model, BEGIN, END, parent_read=0.05)


def test_a_reader_finds_what_was_computed_over_as_much_as_it_reads(cache, model, parent, rough):
    assert rough.parent == parent.id
    for keep in (None, precis.ALL, 1.0, 0.5, 0.1, precis.entries(3)):
        assert found(cache, model, keep) == [parent.id], keep
        assert found(cache, model, keep, TOKENS[:300]) == [parent.id], keep
    for keep in (0.05, 0.01):
        assert found(cache, model, keep) == [parent.id, rough.id], keep
        assert found(cache, model, keep, TOKENS[:300]) == [parent.id, rough.id], keep
    # A lookup without `keep` and `align` skips none; the segments say how they were computed.
    longest = cache.lookup(model, TOKENS)
    assert longest.matched_tokens == 400
    assert longest.links[1].segment.parent_read == precis.ratio(0.05)


def test_the_exact_prompt_is_stored_beside_an_approximation(cache, model, parent, rough):
    for end in (END, len(TOKENS)):  # with the same tokens, and with more
        exact = put(cache, model, BEGIN, end)
        assert exact.parent == parent.id and exact.id != rough.id
        for keep in (None, 0.5, 0.05):
            assert found(cache, model, keep) == [parent.id, exact.id]
        assert cache.lookup(model, TOKENS).links[1].segment.id == exact.id
        cache.remove(exact)


def test_a_put_stands_on_what_is_as_faithful_as_it(cache, model, parent, rough):
    def stands_on(**options):
        with cache.begin_put(model, [*TOKENS, 7], keep=1.0, **options) as began:
            return began.parent

    assert stands_on() == stands_on(parent_read=0.3) == parent.id
    assert stands_on(parent_read=precis.entries(2)) == parent.id
    assert stands_on(parent_read=0.05) == rough.id
    assert stands_on(parent=rough) == rough.id  # the caller names the parent


def test_turns_at_one_budget_find_each_other(cache, model, parent):
    """Each turn is stored at keep 0.3, and computed over earlier turns, read at keep 0.3."""
    turns = [parent.id]
    for end in (260, 330, END):
        assert found(cache, model, 0.3) == turns
        layers = random_layers(model.spec, end - (cache.segment(turns[-1]).end), seed=end)
        turn = put_all(cache, model, TOKENS[:end], layers, recipe=None, keep=0.3, parent_read=0.3)
        assert turn.parent == turns[-1]
        turns.append(turn.id)
    assert found(cache, model, 0.3) == found(cache, model, 0.1) == turns
    assert found(cache, model, 0.5) == found(cache, model, None) == turns[:1]


def test_a_parent_of_which_no_more_is_left_makes_its_children_exact(tmp_path):
    def reopened():
        return precis.open(tmp_path / "store")

    with reopened() as cache:
        model = cache.register_model(toy_spec())
        parent = put(cache, model, 0, BEGIN)
        rough = put(cache, model, BEGIN, END, parent_read=0.05)
    with reopened() as cache:
        model = cache.register_model(toy_spec())
        assert found(cache, model, None) == [parent.id]
        assert found(cache, model, 0.05) == [parent.id, rough.id]
        cache.trim(parent, keep=0.05)
        assert found(cache, model, None) == [parent.id, rough.id]
    with reopened() as cache:
        model = cache.register_model(toy_spec())
        assert found(cache, model, None) == [parent.id, rough.id]
        put(cache, model, 0, BEGIN)  # restores what it lost
        assert found(cache, model, None) == [parent.id]


def test_what_was_read_counts_link_by_link(cache, model):
    """Shares count for each link: a fifth of both links together would be more than they store."""
    path = list(range(1100))

    def put_to(begin, end, keep, **options):
        layers = random_layers(model.spec, end - begin, seed=end)
        options |= {"recipe": "knorm", "keep": keep}
        return put_all(cache, model, path[:end], layers, **options).id

    chain = [put_to(0, 100, 1.0), put_to(100, 1000, 0.1), put_to(1000, 1100, 1.0, parent_read=0.2)]
    for keep in (None, 1.0, 0.5, 0.3):
        assert found(cache, model, keep, path) == chain[:2], keep
    assert found(cache, model, 0.2, path) == chain


def test_what_was_computed_over_a_trimmed_parent_is_not_exact_once_that_is_whole_again(
    cache, model, parent
):
    cache.trim(parent, keep=0.05)
    rough = put(cache, model, BEGIN, END)  # over all that is stored
    assert found(cache, model, None) == [parent.id, rough.id]
    put(cache, model, 0, BEGIN)
    assert found(cache, model, None) == [parent.id]
    assert found(cache, model, 0.05) == [parent.id, rough.id]
    exact = put(cache, model, BEGIN, END)  # replaces it
    assert found(cache, model, None) == [parent.id, exact.id]
    with cache.begin_put(model, TOKENS[:END], recipe="global_kvdiff", keep=1.0) as again:
        assert again.already_stored
