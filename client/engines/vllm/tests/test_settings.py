"""Settings and request options, and the errors for wrong ones."""

from __future__ import annotations

import pytest
from precis_vllm.settings import Settings, Wish


def test_settings_come_from_the_configuration_then_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PRECIS_ADDRESS", "store:7470")
    monkeypatch.setenv("PRECIS_TOKEN", "secret")
    settings = Settings.read({"address": "other:7470", "keep": 0.3})
    assert (settings.address, settings.token, settings.keep) == ("other:7470", "secret", 0.3)


@pytest.mark.parametrize(
    ("extra", "error"),
    [
        ({"adress": "x"}, "unknown key 'adress', do you mean 'address'"),
        ({"keep": 1.5}, "keep"),
        ({"store_keep": "lots"}, "store_keep"),
        ({"min_tokens": "many"}, "min_tokens is 'many'"),
        ({"segment_tokens": 0.5}, "segment_tokens is 0.5, must be a whole number"),
        ({"segment_tokens": -1}, "segment_tokens is -1"),
    ],
)
def test_wrong_settings_are_refused_by_name(extra: dict, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        Settings.read(extra)


def test_a_request_without_params_wishes_nothing() -> None:
    assert Wish.read(None) == Wish()
    assert Wish.read({"do_remote_prefill": True}) == Wish()


def test_hints_of_a_request_are_those_of_its_puts_and_lookups() -> None:
    wish = Wish.read({"priority": 80, "ttl_s": 60, "expect_reuse_in_s": 1.5})
    assert wish.hints == {"priority": 80, "ttl_s": 60, "expect_reuse_in_s": 1.5}
    assert set(Wish.read({}).hints.values()) == {None}


@pytest.mark.parametrize(
    "params",
    [
        {"keep": 0},
        {"keep": True},
        {"off": 1},
        {"session": None},
        {"session": "a\nb"},
        {"session": "\ud800"},
        {"session": "s" * 257},
        {"store": 0.3},
        {"wait": -1},
        {"wait": 1e9},
        {"priority": 101},
        {"priority": True},
        {"ttl_s": -1},
        {"ttl_s": "1h"},
        {"expect_reuse_in_s": float("nan")},
    ],
)
def test_wrong_params_are_refused(params: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(params))):
        Wish.read(params)
