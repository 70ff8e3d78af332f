"""Events on the operator's page, in a real Chromium, over a real precisd."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kv import put_all, random_layers, toy_spec
from page_tab import WAIT_MS, Shown, has_text
from test_admin import Operator

import precis
from precis.demo.service import Precisd, find_precisd


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with Precisd(find_precisd(), tmp_path / "data", "--admin", "127.0.0.1:0") as service:
        yield Operator(service, tmp_path / "data.log")
        service.stop()


def put(cache: precis.Cache, begin: int, name: str = "toy") -> precis.Segment:
    model = cache.register_model(toy_spec(name=name))
    tokens = list(range(begin, begin + 64))
    return put_all(cache, model, tokens, random_layers(model.spec, 64), keep=0.5)


def kinds(tab) -> list[str]:
    return tab.locator("#event-table .kind").all_inner_texts()


def test_events_are_live_filtered_and_paused(browser, operator):
    shown = Shown(browser, operator.address)
    tab = shown.open()
    has_text(tab, "#event-state", "^Live$")
    has_text(tab, "#event-table", "Nothing has happened")
    with precis.connect(operator.service.address) as cache:
        first, second = put(cache, 0), put(cache, 1000, "other")
        cache.trim(first, 0.25)
        cache.remove(second)
        has_text(tab, "#event-count", "^4 events")
        assert kinds(tab) == ["removed", "trimmed", "stored", "stored"]
        has_text(tab, "#event-table tbody tr:nth-child(1)", f"{second.id[:12]}.*asked for")
        has_text(tab, "#event-table tbody tr:nth-child(2)", f"{first.id[:12]}.*25%")
        tab.select_option("#event-kind", "stored")
        has_text(tab, "#event-count", "^2 events")
        tab.fill("#event-filter", first.id[:12])
        has_text(tab, "#event-count", "^1 event")
        tab.fill("#event-filter", "no such thing")
        has_text(tab, "#event-table", "No event matches")
        tab.fill("#event-filter", "")
        tab.select_option("#event-kind", "")

        has_text(tab, "#event-pause", "^Pause$")
        tab.click("#event-pause")
        has_text(tab, "#event-state", "^Paused")
        put(cache, 2000)
        while operator.api("stats")["precis_event_streams"] > 0:  # until the stream has ended
            tab.wait_for_timeout(50)
        assert len(kinds(tab)) == 4
        has_text(tab, "#event-pause", "^Resume$")
        tab.click("#event-pause")
        has_text(tab, "#event-count", "^5 events")
    # The button of a segment shows its plan. Arrow keys move through the list.
    tab.focus("#event-table tbody button")
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    has_text(tab, ".facts", first.id)
    tab.locator(".heatmap").wait_for()
    shown.close()


def test_the_page_says_that_the_service_was_started_again(browser, tmp_path):
    data, log = tmp_path / "data", tmp_path / "data.log"
    with Precisd(find_precisd(), data, "--admin", "127.0.0.1:0") as service:
        address = Operator(service, log).address
        shown = Shown(browser, address)
        tab = shown.open()
        has_text(tab, "#event-state", "^Live$")
        with precis.connect(service.address) as cache:
            put(cache, 0)
        has_text(tab, "#event-count", "^1 event")
        service.stop()
    has_text(tab, "#event-state", "Connecting again in")
    with Precisd(find_precisd(), data, "--admin", address) as service:
        has_text(tab, "#event-lost", "Events were lost")
        has_text(tab, "#event-table", "started again. What it stores follows")
        has_text(tab, "#event-count", "^3 events")
        assert kinds(tab) == ["stored", "lost", "stored"]
        shown.close(expected="ERR_")
        service.stop()


def test_a_revision_of_another_operator_comes_up(browser, operator):
    shown = Shown(browser, operator.address)
    tab = shown.open()
    has_text(tab, "#budget-table", "in force")
    operator.api("budgets", "PUT", {"keep": "13%", "comment": "from elsewhere"})
    has_text(tab, "#revisions", "from elsewhere")
    tab.fill("#keep", "9%")  # a revision leaves what somebody types
    operator.api("budgets", "PUT", {"keep": "14%", "comment": "meanwhile"})
    with tab.expect_response(lambda answer: "budgets/revisions" in answer.url):
        pass
    assert tab.input_value("#keep") == "9%"
    shown.close()


# ---- answers that the test makes up -------------------------------------------------------------


def test_a_stream_that_ends_goes_on_after_its_last_event_and_the_list_is_bounded(browser, operator):
    shown = Shown(browser, operator.address)
    asked: list[str] = []

    def event(number: int) -> dict:
        return {"event": "stored", "position": f"run:{number}", "unix_ms": 1, "model": "ab" * 32,
                "segment": f"{number:032x}", "parent": None, "begin": 0, "end": 64,
                "stored_bytes": 10, "keep": {"kind": "ratio", "value": 0.5}}  # fmt: skip

    def stream(route) -> None:
        if "text/event-stream" not in route.request.headers["accept"]:
            route.fulfill(body='{"events": [], "next": "run:0"}', content_type="application/json")
            return
        asked.append(re.search(r"after=([^&]*)", route.request.url)[1])
        answers = {
            "run%3A0": [event(n) for n in range(1, 8)],
            "run%3A7": [{"event": "lost", "position": "run:900", "lost": 893}],
            "run%3A900": [event(n) for n in range(1000, 2000)]
            + [{"event": "end", "position": None, "error": "permission_denied",
                "message": "the configuration of the tenant has changed"}],
        }  # fmt: skip
        lines = [f"event: {each['event']}\ndata: {json.dumps(each)}\n\n"
                 for each in answers.get(asked[-1], [])]  # fmt: skip
        route.fulfill(body=":\n\n" + "".join(lines), content_type="text/event-stream")

    shown.tab.route(re.compile(r"/api/v1/events\?"), stream)
    tab = shown.open()
    has_text(tab, "#event-count", "^7 events")
    has_text(tab, "#event-table", "893 events are no longer kept")
    has_text(tab, "#event-lost", "Events were lost")
    has_text(tab, "#event-state", "configuration of the tenant has changed. Connecting again")
    has_text(tab, "#event-count", "^The newest 200 of 500 events")
    assert tab.locator("#event-table tbody tr").count() == 200
    assert asked[:3] == ["run%3A0", "run%3A7", "run%3A900"]
    for _ in range(WAIT_MS // 100):
        if len(asked) > 3:
            break
        tab.wait_for_timeout(100)
    assert asked[3] == "run%3A1999"
    shown.close()
