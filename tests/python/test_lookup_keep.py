"""Cache.lookup(keep=, align=): exact plans, and gets of all or some heads by any client."""

from __future__ import annotations

import numpy as np
import pytest
from kv import put_all, random_layers, toy_spec

import precis


@pytest.fixture
def chain(cache, model):
    """A path of 300 tokens in three segments; the second stores the least."""
    for end, keep in ((120, 0.6), (180, 0.2), (300, 0.5)):
        begin = {120: 0, 180: 120, 300: 180}[end]
        layers = random_layers(model.spec, end - begin, seed=end)
        put_all(cache, model, range(end), layers, keep=keep)
    return list(range(300))


def same_rows(one: precis.Head, other: precis.Head) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("positions", "seats", "scores", "keys", "values")
    )


def same_prefix(one: precis.Prefix, other: precis.Prefix) -> bool:
    return all(
        len(a.heads) == len(b.heads) and all(map(same_rows, a.heads, b.heads))
        for a, b in zip(one.layers, other.layers, strict=True)
    )


@pytest.mark.parametrize("end", [300, 250])  # at least 192 of the tokens match
@pytest.mark.parametrize("keep", [0.1, precis.entries(7), "64 KiB"])
def test_a_lookup_at_a_budget_says_what_a_get_brings(cache, model, chain, keep, end):
    path = [*chain[:end], *range(5000, 5100)]
    match = cache.lookup(model, path, keep=keep)
    stored = cache.lookup(model, path)
    assert stored.keep is None and all(link.counts is None for link in stored.links)
    assert match.matched_tokens == stored.matched_tokens > 180 and match.align == 1
    # 64 KiB are more than any segment stores, so each is taken whole.
    expected = cache.get(stored, None if keep == "64 KiB" else keep)
    assert np.array_equal(match.plan, expected.plan)
    prefix = cache.get(match)
    assert prefix.keep == match.keep and prefix.bytes <= match.bytes
    assert np.array_equal(prefix.plan, match.plan)
    assert same_prefix(prefix, expected)
    if match.matched_tokens == 300:
        assert np.array_equal(match.plan, sum(link.counts for link in match.links))


def test_what_is_cold_is_counted_too(tmp_path):
    tokens = range(200)
    with precis.open(tmp_path / "cold") as cache:
        model = cache.register_model(toy_spec())
        put_all(cache, model, tokens, random_layers(model.spec, 200), keep=0.5, durability="fsync")
        hot = cache.lookup(model, tokens, keep=0.2, align=4)
    with precis.open(tmp_path / "cold") as cache:
        model = cache.register_model(toy_spec())
        assert not cache.lookup(model, tokens).links[0].segment.in_memory
        cold = cache.lookup(model, tokens, keep=0.2, align=4)
        assert cold.links[0].segment.in_memory  # it was read to be counted
        assert np.array_equal(cold.plan, hot.plan) and cold.bytes == hot.bytes
        assert np.array_equal(cache.get(cold).plan, cold.plan)


@pytest.mark.parametrize("end", [300, 250])
@pytest.mark.parametrize("align", [2, 16, 50, 4096])
def test_pages_are_whole_and_within_what_is_stored(cache, model, chain, align, end):
    path = [*chain[:end], *range(5000, 5100)]
    stored = cache.get(cache.lookup(model, path)).plan.astype(int)
    at_cut = cache.lookup(model, path, keep=0.15).plan.astype(int)
    match = cache.lookup(model, path, 0.15, align)
    most = stored // align * align
    nearest = (at_cut + align // 2) // align * align
    want = np.where(most == 0, 0, np.clip(nearest, align, np.maximum(most, align)))
    assert np.array_equal(match.plan, want)
    prefix = cache.get(match)
    assert np.array_equal(prefix.plan, match.plan)
    # For each segment, a get of everything begins with the same entries.
    whole = cache.get(cache.lookup(model, path))
    for layer, all_of_it in zip(prefix.layers, whole.layers, strict=True):
        for head, full in zip(layer.heads, all_of_it.heads, strict=True):
            for link in match.links:
                part, of = (
                    h.positions[
                        (h.positions >= link.segment.begin) & (h.positions < link.segment.end)
                    ]
                    for h in (head, full)
                )
                assert np.array_equal(part, of[: len(part)])


def test_align_alone_is_of_all_that_is_stored(cache, model, chain):
    match = cache.lookup(model, chain, align=8)
    assert match.keep is None and match.align == 8
    assert np.array_equal(match.plan, cache.lookup(model, chain).plan // 8 * 8)
    assert np.array_equal(cache.get(match).plan, match.plan)


@pytest.mark.parametrize("options", [{}, {"keep": 0.15}, {"keep": 0.15, "align": 4}])
def test_some_heads_are_as_they_are_in_the_whole(cache, model, chain, options):
    match = cache.lookup(model, chain, **options)
    whole = cache.get(match)
    for heads in (range(0, 1), (1, 2), range(1, 2), (0, 2)):
        first, end = (heads.start, heads.stop) if isinstance(heads, range) else heads
        rows = int(match.plan.max())
        shape = (end - first, rows, model.spec.head_dim)
        out = [(np.zeros(shape, np.float32), np.zeros(shape, np.float32)) for _ in range(3)]
        prefix = cache.get(match, heads=heads, out=out).wait()
        assert prefix.heads == range(first, end)
        assert np.array_equal(prefix.plan, whole.plan[:, first:end])
        for layer, expected, (keys, values) in zip(prefix.layers, whole.layers, out, strict=True):
            assert all(map(same_rows, layer.heads, expected.heads[first:end]))
            for h, head in enumerate(layer.heads):
                assert np.array_equal(keys[h, : len(head)], head.keys)
                assert np.array_equal(values[h, : len(head)], head.values)
    assert cache.get(match, heads=(0, 1)).bytes < whole.bytes


def test_a_match_is_got_by_another_client(cache, model, chain, request):
    match = cache.lookup(model, chain, keep=0.15, align=4)
    data = match.to_bytes()
    passed = precis.Match.from_bytes(data)
    assert passed.matched_tokens == 300 and np.array_equal(passed.tokens, chain)
    assert np.array_equal(passed.plan, match.plan) and passed.bytes == match.bytes
    assert (passed.keep, passed.align) == (precis.ratio(0.15), 4)
    assert [link.segment.id for link in passed.links] == [link.segment.id for link in match.links]
    assert passed.to_bytes() == data
    other = cache.with_deadline(30)
    if "connect" in request.node.name:
        other = precis.connect(request.getfixturevalue("precisd").address)
    assert same_prefix(other.get(precis.Match.from_bytes(bytearray(data))), cache.get(match))
    nothing = precis.Match.from_bytes(cache.lookup(model, [1, 2, 3], keep=0.5).to_bytes())
    assert not nothing and nothing.links == ()


def test_bytes_that_are_no_match_are_refused(cache, model, chain):
    data = cache.lookup(model, chain, keep=0.15).to_bytes()
    for bad in (b"", data[:-8], data[:100], data + bytes(8), bytes(64)):
        with pytest.raises(precis.InvalidArgument):
            precis.Match.from_bytes(bad)
    with pytest.raises(precis.InvalidArgument, match="str, must be bytes"):
        precis.Match.from_bytes("match")


def test_what_is_no_budget_page_or_head_is_refused_by_name(cache, model, chain):
    def refused(message: str, call) -> None:
        with pytest.raises(precis.InvalidArgument, match=message):
            call()

    refused(r"align is 0, must be in \[1, 4096\]", lambda: cache.lookup(model, chain, align=0))
    refused("align is 5000", lambda: cache.lookup(model, chain, align=5000))
    refused("align is -1", lambda: cache.lookup(model, chain, align=-1))
    refused("keep", lambda: cache.lookup(model, chain, keep=0))
    refused("keep", lambda: cache.lookup(model, chain, keep=1.5))
    refused("a loss is for puts", lambda: cache.lookup(model, chain, keep=precis.loss(0.1)))
    match = cache.lookup(model, chain, keep=precis.entries(9), align=4)
    refused(
        "the match was made at keep 9 entries and align 4: get it without a budget",
        lambda: cache.get(match, 0.1),
    )
    refused("the model has 2", lambda: cache.get(match, heads=range(1, 3)))
    refused("must have at least one head", lambda: cache.get(match, heads=range(1, 1)))
    refused("must have at least one head", lambda: cache.get(match, heads=range(-1, 1)))
    refused("must be a range such as", lambda: cache.get(match, heads=range(0, 2, 2)))
    refused("must be a range such as", lambda: cache.get(match, heads=(0, 1, 2)))
    refused("heads", lambda: cache.get(match, heads=[0, 1]))
    out = [(np.zeros((2, 9, 16), np.float32),) * 2] * 3
    refused(r"must be \[1, n, 16\]", lambda: cache.get(match, heads=(0, 1), out=out))


def test_a_match_of_what_was_trimmed_since_is_to_be_looked_up_again(cache, model, chain):
    match = cache.lookup(model, chain, keep=0.2)
    before = cache.get(match).wait()
    cache.trim(match.links[0].segment, keep=0.3)
    assert same_prefix(cache.get(match), before)  # the rest still includes the match's entries
    cache.trim(match.links[0].segment, keep=0.1)
    with pytest.raises(precis.NotFound, match="look the path up again"):
        cache.get(match).wait()
    again = cache.lookup(model, chain, keep=0.2)
    assert np.array_equal(cache.get(again).plan, again.plan)
