"""Priority and TTL of a segment on the operator's page, in a real Chromium, over a real precisd."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from admin_port import TOKEN, Operator, guarded
from kv import put_all, random_layers, toy_spec
from page_tab import LOW_CONTRAST, Shown, column, has_text

import precis

TABS_MAX = 80  # more than the page has stops of Tab outside of lists


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    """A port with a token, an admin `ops`, and a tenant `search` with two segments."""
    with guarded(tmp_path) as port:
        issued = port.api("tenants?tenant=ops", "POST", {"name": "search"})
        address = port.service.address
        with precis.connect(address, tenant="search", token=issued["token"]) as cache:
            model = cache.register_model(toy_spec())
            for first, ttl in ((0, 90), (500, None)):
                tokens = range(first, first + 100)
                layers = random_layers(model.spec, 100, seed=first)
                put_all(cache, model, tokens, layers, keep=0.5, ttl_s=ttl, prefill_s=2.5)
        yield port


def open_page(shown: Shown):
    tab = shown.open_as(TOKEN, admins="ops", tenant="search")
    has_text(tab, "#page-place", "of 2")
    return tab


def retention(operator: Operator) -> list[tuple[int, int]]:
    rows = operator.api("prefixes?tenant=search")["prefixes"]
    return sorted((row["priority"], row["ttl_seconds"]) for row in rows)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_priority_and_ttl_are_set_with_the_keyboard_alone(browser, operator, scheme):
    shown = Shown(browser, operator.address, color_scheme=scheme)
    tab = open_page(shown)

    def tab_to(selector: str) -> None:
        for _ in range(TABS_MAX):
            tab.keyboard.press("Tab")
            if tab.evaluate("(s) => document.activeElement.matches(s)", selector):
                return
        pytest.fail(f"Tab does not reach {selector}")

    def type_over(selector: str, text: str) -> None:
        tab_to(selector)
        tab.keyboard.press("ControlOrMeta+a")
        tab.keyboard.type(text)

    tab_to("#segment-table thead th:nth-child(11) button")
    tab.keyboard.press("Enter")
    tab.keyboard.press("Enter")
    assert column(tab, "TTL") == ["1 min 30 s", "–"]
    tab_to("#segment-table tbody button")
    tab.keyboard.press("Enter")
    tab.locator("#priority").wait_for()
    has_text(tab, ".facts", "Prefill.*2.5 s")
    assert (tab.input_value("#priority"), tab.input_value("#ttl")) == ("50", "90 s")
    type_over("#priority", "90")
    type_over("#ttl", "1.5 h")
    tab.keyboard.press("Enter")
    has_text(tab, "#retention-said", r"^Set\.$")
    assert retention(operator) == [(50, 0), (90, 5400)]
    assert column(tab, "TTL") == ["1 h 30 min", "–"] and column(tab, "Priority") == ["90", "50"]
    assert tab.evaluate("document.activeElement.id") == "ttl"
    tab.keyboard.press("Enter")
    has_text(tab, "#retention-said", r"^Nothing is changed\.$")
    for width in (320, 1280):
        tab.set_viewport_size({"width": width, "height": 700})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.evaluate(LOW_CONTRAST) == [], (scheme, width)
    tab.keyboard.press("ControlOrMeta+a")
    tab.keyboard.press("Delete")  # no TTL
    tab_to("#retention-set")
    tab.keyboard.press("Enter")
    tab.wait_for_function("""() => [...document.querySelectorAll("#segment-table tbody tr")]
        .every((row) => row.cells[10].innerText === "–")""")
    assert retention(operator) == [(50, 0), (90, 0)]
    shown.close(expected="status of 4")


def test_a_value_can_be_set_back_to_what_it_was(browser, operator):
    shown = Shown(browser, operator.address)
    tab = open_page(shown)
    tab.locator("#segment-table tbody button").first.click()
    before = retention(operator)
    for priorities in (["50", "90"], ["50", "50"]):
        tab.fill("#priority", priorities[1])
        tab.click("#retention-set")
        tab.wait_for_function(
            """(those) => [...document.querySelectorAll("#segment-table tbody tr")]
            .map((row) => row.cells[9].innerText).sort().join() === those.join()""",
            arg=priorities,
        )
    assert retention(operator) == before
    shown.close(expected="status of 4")


def test_a_wrong_value_is_refused_and_says_why(browser, operator):
    shown = Shown(browser, operator.address)
    tab = open_page(shown)
    before = retention(operator)
    tab.locator("#segment-table tbody button").first.click()
    tab.fill("#ttl", "5 apples")
    tab.click("#retention-set")
    has_text(tab, "#retention-said", "'5 apples' is no time: write 12 h")
    tab.fill("#ttl", "")
    tab.fill("#priority", "101")
    tab.click("#retention-set")  # the browser itself refuses it
    assert not tab.evaluate("document.querySelector('#priority').checkValidity()")
    tab.fill("#priority", "50")
    tab.fill("#ttl", "4000 d")
    tab.click("#retention-set")
    has_text(tab, "#retention-said", "ttl_seconds is 345600000")
    assert retention(operator) == before
    shown.close(expected="status of 4")


def test_a_tenant_that_may_not_change_them_cannot_edit_them(browser, operator):
    operator.api("tenants/search?tenant=ops", "PUT", {"role": "reader"})
    before = retention(operator)
    shown = Shown(browser, operator.address)
    tab = open_page(shown)
    tab.locator("#segment-table tbody button").first.click()
    tab.fill("#priority", "90")
    tab.click("#retention-set")
    has_text(tab, "#retention-said", "tenant 'search' has the role reader")
    tab.locator("#segment-table tbody button").last.click()
    tab.wait_for_function("document.querySelector('#priority').disabled")
    assert tab.locator("#ttl").is_disabled() and tab.locator("#retention-set").is_disabled()
    has_text(tab, "#retention-said", "needs the role writer")
    assert retention(operator) == before
    shown.close(expected="status of 4")
