"""Tenants on the operator's page, in a real Chromium, over a real precisd."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from admin_port import TOKEN, Operator, guarded
from kv import put_all, random_layers, toy_spec
from page_tab import LOW_CONTRAST, Shown, has_text

import precis
from precis.demo.service import Precisd, find_precisd

RED = """
[[tenant]]
name = "red"
token = "the word of red, which is long"
"""
KEPT = """() => [...document.querySelectorAll("input")].map((node) => node.value)
    .concat(document.body.innerText, JSON.stringify(sessionStorage), JSON.stringify(localStorage),
            document.cookie).join(" ")"""


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    """A port with a token, an admin `ops`, and a writer `red`, which stores something."""
    with guarded(tmp_path, RED) as port:
        fill(port.service.address, "red", "the word of red, which is long")
        yield port


def fill(address: str, tenant: str, token: str) -> None:
    with precis.connect(address, tenant=tenant, token=token) as cache:
        model = cache.register_model(toy_spec(name=f"model of {tenant}"))
        segment = put_all(cache, model, range(100), random_layers(model.spec, 100), keep=0.5)
        cache.session("chat").advance(segment.id)
        cache.get(cache.lookup(model, list(range(100))))


@pytest.fixture
def shown(browser, operator) -> Iterator[Shown]:
    page = Shown(browser, operator.address)
    tab = page.open_as(TOKEN, admins="ops, red", tenant="red")
    has_text(tab, "#health", "^Up$")
    yield page
    page.close(expected="status of 4")


def manage(tab, tenant: str = "ops") -> None:
    tab.select_option("#manage-as", tenant)
    tab.get_by_role("button", name="Manage", exact=True).click()


def is_there_and_hidden(tab, selector: str) -> None:
    """Checks both, because Playwright calls an element hidden that does not exist."""
    assert tab.locator(selector).count() == 1
    assert tab.locator(selector).is_hidden()


def test_a_tenant_is_added_changed_and_removed(shown, operator):
    tab = shown.tab
    has_text(tab, "#tenants-note", "Choose a tenant with the role admin")
    is_there_and_hidden(tab, "#add-tenant")
    manage(tab)
    tab.click("#add-tenant")
    tab.fill("#tenant-name", "search")
    tab.fill("#tenant-disk", "5 apples")
    tab.click("#tenant-save")
    has_text(tab, "#tenant-error", "'5 apples' is no size")
    tab.fill("#tenant-disk", "1.5 GiB")
    tab.fill("#tenant-weight", "3")
    tab.fill("#tenant-memory", "256 MiB")
    tab.fill("#tenant-puts", "8")
    tab.fill("#tenant-salt", "x" * 257)
    tab.click("#tenant-save")
    has_text(tab, "#tenant-error", "salt length is 257, maximum 256")
    tab.fill("#tenant-salt", "pepper of search")
    tab.click("#tenant-save")
    has_text(tab, "#new-token-title", "search")
    first = tab.input_value("#new-token")
    tab.click("#new-token-close")  # the page gets the dialog's close event a moment later
    tab.wait_for_function("document.getElementById('new-token').value === ''")
    assert first and first not in tab.evaluate(KEPT)
    fill(operator.service.address, "search", first)
    row = operator.api("tenants/search?tenant=ops")
    assert (row["max_disk_bytes"], row["max_puts"]) == (3 << 29, 8)
    assert (row["max_memory_bytes"], row["weight"]) == (256 << 20, 3)
    log = operator.service.log()  # tells that there is a salt, but not the salt
    assert re.search(r'tenant added .*of=search change="with a token, with a salt, weight 3,', log)
    assert "pepper" not in log

    tab.get_by_role("button", name="Manage search").click()
    has_text(tab, "#tenant-models", "model of search.*1 segment, 1 hit")
    assert tab.input_value("#tenant-memory") == "256 MiB"
    tab.fill("#tenant-memory", "")
    tab.fill("#tenant-puts", "")
    tab.fill("#tenant-requests", "many")
    tab.click("#tenant-save")
    has_text(tab, "#tenant-error", "'many' is no whole number")
    tab.fill("#tenant-requests", "500")
    tab.select_option("#tenant-role", "reader")
    tab.click("#tenant-save")
    has_text(tab, "#tenant-saved", "Saved")
    row = operator.api("tenants/search?tenant=ops")
    assert (row["max_disk_bytes"], row["max_puts"]) == (3 << 29, 0)
    assert (row["max_memory_bytes"], row["weight"]) == (0, 3)
    assert (row["max_requests_per_s"], row["role"]) == (500, "reader")

    tab.fill("#tenant-confirm", "search")
    tab.click("#tenant-remove")
    has_text(tab, "#remove-error", "1 segment")
    tab.check("#tenant-purge")
    tab.fill("#tenant-confirm", "sear")
    assert tab.locator("#tenant-remove").is_disabled()
    tab.fill("#tenant-confirm", "search")
    tab.click("#tenant-remove")
    tab.locator("#tenant-dialog").wait_for(state="hidden")
    tab.get_by_role("button", name="Manage search").wait_for(state="detached")
    assert "search" not in [row["name"] for row in operator.api("tenants?tenant=ops")["tenants"]]


def test_a_limit_below_what_is_stored_asks_before_segments_go(shown, operator):
    added = operator.api("tenants?tenant=ops", "POST", {"name": "search"})
    fill(operator.service.address, "search", added["token"])
    stored = operator.api("tenants/search?tenant=ops")["stored_bytes"]
    tab = shown.tab
    manage(tab)
    tab.get_by_role("button", name="Manage search").click()
    is_there_and_hidden(tab, "#below-use")
    tab.fill("#tenant-disk", "1 KiB")
    tab.click("#tenant-save")
    has_text(tab, "#tenant-error", f"stores {stored} B.*would trim and remove")
    assert tab.evaluate("document.activeElement.id") == "below-use"
    assert operator.api("tenants/search?tenant=ops")["max_disk_bytes"] == 0
    tab.keyboard.press("Space")
    assert tab.is_checked("#below-use")
    tab.fill("#tenant-disk", "2 KiB")  # another limit than the one that was confirmed
    is_there_and_hidden(tab, "#below-use")
    tab.click("#tenant-save")
    has_text(tab, "#tenant-error", "2048 B")
    tab.keyboard.press("Space")
    tab.click("#tenant-save")
    has_text(tab, "#tenant-saved", "Saved")
    is_there_and_hidden(tab, "#below-use")
    assert operator.api("tenants/search?tenant=ops")["max_disk_bytes"] == 2048


def test_a_token_is_rotated_shown_once_and_the_old_one_ended(shown, operator):
    added = operator.api("tenants?tenant=ops", "POST", {"name": "search"})
    tab = shown.tab
    shown.context.grant_permissions(["clipboard-read", "clipboard-write"])
    manage(tab)
    tab.get_by_role("button", name="Manage search").click()
    has_text(tab, "#token-state", "^1 token valid")
    assert tab.locator("#tenant-drop").is_disabled()
    tab.click("#tenant-rotate")
    tab.click("#copy-token")
    has_text(tab, "#copied", "Copied")
    token = tab.input_value("#new-token")
    assert tab.evaluate("navigator.clipboard.readText()") == token != added["token"]
    tab.keyboard.press("Escape")
    tab.locator("#new-token-dialog").wait_for(state="hidden")
    # The page gets the dialog's close event a moment later.
    tab.wait_for_function("document.getElementById('new-token').value === ''")
    assert token not in tab.evaluate(KEPT)
    has_text(tab, "#token-state", "^2 tokens valid")
    for valid in (added["token"], token):
        precis.connect(operator.service.address, tenant="search", token=valid).close()
    tab.click("#tenant-drop")
    has_text(tab, "#token-said", "Only the newest")
    with pytest.raises(precis.errors.PermissionDenied):
        precis.connect(operator.service.address, tenant="search", token=added["token"])
    precis.connect(operator.service.address, tenant="search", token=token).close()


def test_only_an_admin_manages_and_the_configuration_has_its_own(shown):
    tab = shown.tab
    has_text(tab, "#tenant-table", "red")
    assert tab.locator("#manage-as").input_value() == "red"
    manage(tab, "red")
    has_text(tab, "#tenants-note", "tenant 'red' has the role writer")
    manage(tab)
    tab.get_by_role("button", name="Manage red").click()
    has_text(tab, "#tenant-dialog", "in the configuration file, and is changed there")
    assert tab.locator("#tenant-weight").is_disabled()
    for control in ("#tenant-save", "#tenant-rotate", "#tenant-remove"):
        is_there_and_hidden(tab, control)
    tab.click("#tenant-close")
    tab.reload()  # the tab remembers the managing tenant
    tab.get_by_role("button", name="Manage red").wait_for()


def test_a_quota_has_a_bar_and_the_map_shows_tenants(shown, operator):
    used = operator.api("status?tenant=red")["stored_bytes"]
    operator.api("tenants?tenant=ops", "POST", {"name": "search", "max_disk_bytes": 4 * used})
    token = operator.api("tenants/search/token?tenant=ops", "POST")["token"]
    fill(operator.service.address, "search", token)
    tab = shown.tab
    manage(tab)
    bar = tab.get_by_role("meter", name="Disk of search")
    bar.wait_for()
    assert bar.get_attribute("aria-valuenow") == "25"
    tab.select_option("#group", "tenant")
    has_text(tab, "#treemap", "red.*search|search.*red")
    tab.locator(".tile", has_text="search").click()
    has_text(tab, "#crumbs", "search: .* in 1 segment")
    tab.locator(".tile", has_text="model of search").click()
    has_text(tab, "#segment-table", "model of search")
    assert tab.input_value("#tenant") == "search" and tab.input_value("#group") == "model"
    tab.get_by_role("button", name="red", exact=True).click()
    has_text(tab, "#segment-table", "model of red")


def test_what_metrics_count_of_a_tenant_is_read_whatever_labels_they_have(shown):
    told = shown.tab.evaluate("""async () => {
      const { readTenants } = await import("/page/metrics.js");
      return Object.fromEntries(await readTenants());
    }""")
    assert set(told) == {"ops", "red"}
    assert [told["red"][key] for key in ("lookups", "hits", "gets", "puts")] == [1] * 4
    assert told["red"]["segments"] == 1 and told["red"]["stored"] > 0
    assert told["ops"]["puts"] == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_keyboard_manages_and_the_dialog_can_be_read(browser, operator, scheme):
    operator.api("tenants?tenant=ops", "POST", {"name": "search"})
    shown = Shown(browser, operator.address, color_scheme=scheme)
    tab = shown.open()
    tab.fill("#token", TOKEN)
    tab.keyboard.press("Enter")
    has_text(tab, "#alerts", "ops, red")
    has_text(tab, "#manage-as", "ops")
    tab.focus("#manage-as")
    tab.keyboard.type("ops")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    tab.locator("#tenant-table .act button").first.wait_for()
    tab.focus("#tenant-table tbody button")
    tab.keyboard.press("End")
    assert tab.evaluate("document.activeElement.ariaLabel") == "Manage search"
    tab.keyboard.press("Enter")
    has_text(tab, "#tenant-models", "None")
    for width in (320, 1280):
        tab.set_viewport_size({"width": width, "height": 700})
        assert tab.evaluate("document.querySelector('#tenant-dialog').scrollWidth") <= width
        assert tab.evaluate(LOW_CONTRAST) == [], (scheme, width)
    for _ in range(20):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.id") == "tenant-rotate":
            break
    tab.keyboard.press("Enter")
    has_text(tab, "#new-token-title", "search")
    assert tab.evaluate("document.activeElement.id") == "copy-token"
    assert tab.evaluate(LOW_CONTRAST) == []
    tab.keyboard.press("Escape")
    tab.keyboard.press("Escape")
    tab.locator("#tenant-dialog").wait_for(state="hidden")
    tab.wait_for_function("document.activeElement.ariaLabel === 'Manage search'")
    shown.close(expected="status of 4")


def test_a_port_without_a_token_says_why_it_does_not_manage(browser, tmp_path):
    with Precisd(find_precisd(), tmp_path / "data", "--admin", "127.0.0.1:0") as service:
        shown = Shown(browser, Operator(service, tmp_path / "data.log").address)
        tab = shown.open()
        has_text(tab, "#tenants-note", "no token, so it does not manage tenants: set admin_token")
        has_text(tab, "#tenant-table", "default.*0 B")
        for control in ("#manage-form", "#add-tenant"):
            is_there_and_hidden(tab, control)
        assert tab.locator("#tenant-table .act").count() == 0
        shown.close()  # it has sent no request that the port refuses
        service.stop()
