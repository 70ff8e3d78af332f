"""Cache.lookup(lease=): a match that can be got whatever happens to its segments."""

from __future__ import annotations

import time

import pytest
from kv import put_all, random_layers, toy_spec
from test_lookup_keep import same_prefix

import precis
from precis.demo.service import Precisd, find_precisd

TOKENS = list(range(300))
PARENT = TOKENS[:200]


def put(cache, model, tokens=PARENT, seed=1, **options):
    begin = 0 if len(tokens) == 200 else 200
    layers = random_layers(model.spec, len(tokens) - begin, seed=seed)
    return put_all(cache, model, tokens, layers, **({"keep": 0.6} | options))


def remove(cache, model, segments):
    assert cache.remove(segments[0], recursive=True) == 2


def trim(cache, model, segments):
    for segment in segments:
        cache.trim(segment, keep=0.1)


def replace(cache, model, segments):
    remove(cache, model, segments)
    put(cache, model, seed=3)
    put(cache, model, TOKENS, seed=4)


def passed_on(match):
    """The match as another process receives it."""
    return precis.Match.from_bytes(match.to_bytes())


def got(cache, match, keep=None):
    return cache.get(match, keep).wait()


@pytest.fixture
def segments(cache, model):
    return [put(cache, model), put(cache, model, TOKENS, seed=2)]


@pytest.mark.parametrize("change", [remove, trim, replace])
@pytest.mark.parametrize("keep", [None, precis.ALL, 0.3])
def test_what_is_leased_can_be_got_whatever_happens_to_it(cache, model, segments, change, keep):
    match = passed_on(cache.lookup(model, TOKENS, keep=keep, lease=30))
    assert match.lease == 30
    want = got(cache, match)
    change(cache, model, segments)
    assert same_prefix(got(cache, match), want)
    now = cache.lookup(model, TOKENS, keep=keep)
    assert not now if change is remove else not same_prefix(got(cache, now), want)
    if keep is None:  # a smaller budget than the match's
        small = got(cache, match, 0.3)
        assert (small.plan <= want.plan).all() and small.plan.sum() < want.plan.sum()


def test_what_replaces_an_approximation_leaves_a_lease_of_it(cache, model):
    parent = put(cache, model, keep=1.0)
    cache.trim(parent, keep=0.05)
    rough = put(cache, model, TOKENS, seed=2, keep=1.0)  # over all that is stored
    put(cache, model, keep=1.0)  # restores what the parent lost
    match = cache.lookup(model, TOKENS, keep=0.05, lease=30)
    want = got(cache, match)
    exact = put(cache, model, TOKENS, seed=3, keep=1.0)
    assert exact.id == rough.id
    assert same_prefix(got(cache, passed_on(match)), want)
    assert not same_prefix(got(cache, cache.lookup(model, TOKENS, keep=0.05)), want)


@pytest.mark.parametrize("keep", [None, 0.3])
def test_without_a_lease_what_is_removed_or_trimmed_is_a_miss(cache, model, segments, keep):
    match = cache.lookup(model, TOKENS, keep=keep)
    assert match.lease == 0
    trim(cache, model, segments)
    with pytest.raises(precis.NotFound, match="was trimmed"):
        got(cache, match)
    remove(cache, model, segments)
    with pytest.raises(precis.NotFound):
        got(cache, match)


def test_what_was_committed_to_memory_is_kept_too(cache, model):
    segment = put(cache, model, durability="memory")
    match = cache.lookup(model, PARENT, keep=0.3, lease=30)
    want = got(cache, match)
    cache.remove(segment)
    assert same_prefix(got(cache, match), want)


def test_after_its_end_it_is_a_miss_and_the_space_comes_back(tmp_path):
    with precis.open(tmp_path / "cache") as cache:
        model = cache.register_model(toy_spec())
        segments = [put(cache, model), put(cache, model, TOKENS, seed=2)]
        size = sum(segment.bytes for segment in segments)
        match = cache.lookup(model, TOKENS, lease=0.5)
        assert match.lease == 0.5
        remove(cache, model, segments)
        deadline = time.monotonic() + 60
        with pytest.raises(precis.NotFound):
            while time.monotonic() < deadline:
                got(cache, match)

        def payload_files():
            return sum(file.stat().st_size for file in (tmp_path / "cache/payload").iterdir())

        while payload_files() >= size and time.monotonic() < deadline:
            time.sleep(0.02)
        assert payload_files() < size


def test_a_longer_lease_is_cut_and_a_wrong_one_refused(cache, model, segments):
    assert cache.lookup(model, TOKENS, lease=3600).lease == 30
    assert cache.lookup(model, [*range(900, 1000)], lease=30).lease == 0  # an empty match
    for wrong in (-1, float("nan"), 1e9):
        with pytest.raises(precis.InvalidArgument, match="lease"):
            cache.lookup(model, TOKENS, lease=wrong)


def test_calls_take_leases(cache, model, segments):
    calls = precis.Calls(cache)
    tickets = {calls.lookup(model, TOKENS, lease=20)}
    tickets |= set(calls.lookup_many(model, [PARENT, TOKENS], keep=0.3, lease=20))
    deadline = time.monotonic() + 60
    while tickets and time.monotonic() < deadline:
        for ticket, match in calls.poll():
            assert match.lease == 20
            tickets.remove(ticket)
    assert not tickets


def test_a_lease_is_its_tenants_and_ends_with_the_service(tmp_path):
    config = tmp_path / "precisd.toml"
    config.write_text('[[tenant]]\nname = "red"\n[[tenant]]\nname = "blue"\n')
    with Precisd(find_precisd(), tmp_path / "data", "--config", str(config)) as service:
        red = precis.connect(service.address, tenant="red")
        blue = precis.connect(service.address, tenant="blue")
        model = red.register_model(toy_spec())
        blue.register_model(toy_spec())
        segment = put(red, model)
        match = red.lookup(model, PARENT, lease=30)
        red.remove(segment)
        with pytest.raises(precis.NotFound):
            got(blue, passed_on(match))
        assert (got(red, match).plan == segment.plan).all()
        service.stop()
        service.start()
        again = precis.connect(service.address, tenant="red")
        assert not again.lookup(model, PARENT)
        with pytest.raises(precis.NotFound):
            got(again, match)
        again.close()
        red.close()
        blue.close()
        service.stop()
