"""Shared parts of the plug-ins for engines: settings, and non-blocking access to the service."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from kv import put_all, random_layers, toy_spec

import precis
from precis import engines
from precis.demo.service import Precisd, find_precisd

LOGGER = logging.getLogger("test_engines")
PATH = np.arange(128, dtype=np.uint32)


@dataclass(frozen=True)
class Settings(engines.Settings):
    """The settings of a plug-in that also stores."""

    store: bool | None = None
    store_keep: precis.Keep | None = None


def read(given: dict[str, Any], environment: tuple[str, ...] = ()) -> Settings:
    return engines.read(Settings, given, "config", environment)


def test_settings_are_those_given_then_those_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, text in {"TENANT": "t", "TOKEN": "secret", "MIN_TOKENS": "64", "KEEP": ""}.items():
        monkeypatch.setenv(f"PRECIS_{name}", text)
    asked = ("tenant", "min_tokens", "keep")
    assert read({"tenant": "mine"}, asked) == Settings(tenant="mine", min_tokens=64)
    assert read({}, ("token",)) == Settings(token="secret")
    assert read({}) == Settings()


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"adress": "x"}, "config: unknown key 'adress', do you mean 'address'?"),
        ({"zzz": "x"}, "config: unknown key 'zzz', there are address, tenant, token"),
        ({"address": 7}, "config: address is 7, must be a str"),
        ({"store": "yes"}, "config: store is 'yes', must be a bool"),
        ({"min_tokens": "64"}, "config: min_tokens is '64', must be a whole number, 0 or more"),
        ({"min_tokens": True}, "config: min_tokens is True, must be a whole number"),
        ({"load_timeout": -1}, "config: load_timeout is -1, must be a number, 0 or more"),
        (
            {"load_timeout": float("nan")},
            "config: load_timeout is nan, must be a number, 0 or more",
        ),
        ({"keep": 1.5}, "config: keep: keep is 1.5"),
        ({"keep": "loss 0.1"}, "config: keep: a loss is only for store_keep"),
        ({"keep": True}, "config: keep: "),
        ({"store_keep": "lots"}, "config: store_keep: "),
    ],
)
def test_wrong_settings_are_refused_by_name(given: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError) as told:
        read(given)
    assert error in str(told.value)


@pytest.mark.parametrize("text", ["soon", "-1"])
def test_wrong_numbers_of_the_environment_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("PRECIS_LOAD_TIMEOUT", text)
    with pytest.raises(ValueError, match=r"PRECIS_LOAD_TIMEOUT is .*, must be a number, 0 or more"):
        read({}, ("load_timeout",))


def test_what_is_stored_may_be_told_by_its_loss() -> None:
    assert read({"store_keep": "loss 0.1", "store": None}).store_keep == "loss 0.1"


def outcome(service: engines.Service, ticket: int) -> Any:
    """The outcome of a lookup, polled as a scheduler does."""
    for _ in range(6000):
        for done, result in service.poll():
            assert done == ticket
            return result
        time.sleep(0.01)
    raise AssertionError("no outcome in a minute")


def test_a_lookup_is_asked_for_by_its_ticket(precisd: Precisd) -> None:
    spec = toy_spec("engines-lookup")
    with precis.connect(precisd.address) as cache:
        put_all(cache, cache.register_model(spec), PATH, random_layers(spec, len(PATH)), keep=1.0)
    service = engines.Service(Settings(address=precisd.address), spec, LOGGER)
    assert service.up() and service.poll() == []
    found = [outcome(service, service.look_up(PATH, "", keep, 16)) for keep in (0.5, 0.25, 0.5)]
    assert [match.matched_tokens for match in found] == [len(PATH)] * 3
    digests = [engines.digest_of(match) for match in found]
    assert digests[0] == digests[2] != digests[1]
    assert not outcome(service, service.look_up(PATH, "adapter", None, 16))
    service.cancel(service.look_up(PATH, "", None, 16))


def test_a_budget_that_is_none_is_no_lookup(
    precisd: Precisd, caplog: pytest.LogCaptureFixture
) -> None:
    spec = toy_spec("engines-budget")
    service = engines.Service(Settings(address=precisd.address), spec, LOGGER)
    assert service.look_up(PATH, "", 7.5, 1) is None
    assert service.look_up(PATH, "", 7.5, 1) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]  # it is logged once
    assert service.up()  # and is not the service's fault
    assert not outcome(service, service.look_up(PATH, "", None, 1))
    service.look_up(PATH, "", 7.5, 1)
    assert len(caplog.records) == 2


def until(is_so: Callable[[], bool]) -> None:
    for _ in range(6000):
        if is_so():
            return
        time.sleep(0.01)
    raise AssertionError("not within a minute")


def test_a_service_that_does_not_answer_is_left_alone_and_found_again(
    tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with Precisd(find_precisd(), tmp_path / "data") as probe:
        address = probe.address
    caplog.set_level(logging.INFO)
    service = engines.Service(Settings(address=address), toy_spec("engines-late"), LOGGER)
    assert service.look_up(PATH, "", None, 16) is None and service.poll() == []
    with pytest.raises(precis.Unavailable):
        service.model()
    assert service._again > time.monotonic() and not service._connecting
    with Precisd(find_precisd(), tmp_path / "data", listen=address):

        def up() -> bool:
            service._again = 0.0  # as if five seconds were over
            return service.up()

        until(up)
        assert not outcome(service, service.look_up(PATH, "", None, 16))
        assert service.cache.models()
    service.failed(precis.Unavailable("gone"))
    assert not service.up()
    told = [record.getMessage() for record in caplog.records]
    assert "does not answer" in told[0] and "answers again" in told[1]
    assert len(told) == 3 and "gone" in told[2]


def test_a_service_that_refuses_is_told_at_once(tmp_path: Any) -> None:
    with Precisd(find_precisd(), tmp_path / "data") as running:
        settings = Settings(address=running.address, tenant="nobody", token="wrong")
        with pytest.raises(precis.PermissionDenied):
            engines.Service(settings, toy_spec("engines-refused"), LOGGER)
