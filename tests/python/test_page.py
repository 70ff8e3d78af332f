"""The operator's page in a real Chromium, over a real precisd."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kv import put_all, random_layers, toy_spec
from page_tab import WAIT_MS, Shown, answer_with, column, fits_every_width_and_can_be_read, has_text
from test_admin import Operator

import precis
from precis.demo.service import Precisd, find_precisd

SOURCES = Path(__file__).parents[2] / "cachesvc/admin/page"
TABS_MAX = 80  # more than the page has stops of Tab outside of lists


def start(folder: Path, *flags: str) -> Precisd:
    return Precisd(find_precisd(), folder / "data", "--admin", "127.0.0.1:0", *flags)


def fill(service: Precisd) -> None:
    """Stores two models, nine segments, of which one has a parent, and a session."""
    with precis.connect(service.address) as cache:
        for name, shape in (("large", {"num_layers": 6, "num_kv_heads": 4}), ("small", {})):
            model = cache.register_model(toy_spec(name=name, **shape))
            for n in range(4):
                tokens = list(range(1000 * n, 1000 * n + 100 + 50 * n))
                layers = random_layers(model.spec, len(tokens), seed=n)
                hints = {"priority": 20 * n, "ttl_s": 3600 if n == 1 else None}
                segment = put_all(cache, model, tokens, layers, keep=0.5, **hints)
                cache.get(cache.lookup(model, tokens))
        cache.session("chat").advance(segment.id)
        tokens = [*tokens, *range(5000, 5100)]
        put_all(cache, model, tokens, random_layers(model.spec, 100, seed=9), keep=0.3)


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    folder = tmp_path_factory.mktemp("page")
    with start(folder) as service:
        fill(service)
        yield Operator(service, folder / "data.log")
        service.stop()


# ---- files of the page --------------------------------------------------------------------------


def test_the_files_of_the_page_are_served_with_their_protections(operator):
    types = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/"}
    for file in SOURCES.iterdir():
        path = "/" if file.name == "index.html" else f"/page/{file.name}"
        status, headers, text = operator.ask(path)
        assert status == 200 and text == file.read_text()
        assert headers["Content-Type"].startswith(types[file.suffix])
        assert headers["X-Content-Type-Options"] == "nosniff"
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'self';") and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        again = operator.ask(path, If_None_Match=headers["ETag"])
        assert (again[0], again[2]) == (304, "")
        assert operator.ask(path, If_None_Match='"another"')[0] == 200
    for path in ("/page", "/page/", "/page/none.js", "/index.html", "/page/..%2fadmin.cc"):
        assert operator.ask(path)[0] == 404, path
    assert operator.ask("/", "POST")[0] == 404
    assert operator.ask("/", Host="evil.example")[0] == 403


# ---- in the browser -----------------------------------------------------------------------------


@pytest.fixture
def shown(browser, operator):
    page = Shown(browser, operator.address)
    yield page
    page.close()


def test_the_state_and_what_takes_the_space(shown, operator):
    tab = shown.open()
    has_text(tab, "#health", "^Up$")
    has_text(tab, "#about", "precisd .* up ")
    has_text(tab, "#tiles", "Memory.*of .*Disk.*Stored KV.*9 segments, 2 models, 1 session")
    tab.locator(".tile").nth(1).wait_for()
    assert tab.locator(".tile .name").all_inner_texts() == ["large", "small"]
    sizes = [box["width"] * box["height"] for box in
             (tile.bounding_box() for tile in tab.locator(".tile").all())]  # fmt: skip
    stored = [row["stored_bytes"] for row in operator.api("models")["models"]]
    # The areas are proportional to the bytes, except for the gaps between tiles.
    assert sizes[0] / sum(sizes) == pytest.approx(max(stored) / sum(stored), abs=0.02)
    tab.select_option("#group", "session")
    has_text(tab, "#treemap", "chat.*no session|no session.*chat")
    tab.select_option("#group", "model")
    tab.locator(".tile").first.click()
    has_text(tab, "#crumbs", "large: .* in 4 segments")
    tab.locator(".tile").first.click()
    tab.locator(".heatmap").wait_for()
    tab.locator("#crumbs button").click()
    has_text(tab, "#crumbs", "All")


def test_segments_are_sorted_filtered_and_shown_with_their_plan(shown, operator):
    rows = operator.api("prefixes")["prefixes"]
    tab = shown.open()
    has_text(tab, "#page-place", "1–9 of 9")
    tokens = sorted((row["end"] - row["begin"] for row in rows), reverse=True)
    tab.get_by_role("button", name="Tokens").click()
    assert [int(text) for text in column(tab, "Tokens")] == tokens
    assert tab.locator("th[aria-sort]").get_attribute("aria-sort") == "descending"
    tab.get_by_role("button", name="Tokens").click()
    assert [int(text) for text in column(tab, "Tokens")] == tokens[::-1]
    for name, key in (("Priority", "priority"), ("Hits", "hits")):
        tab.get_by_role("button", name=name).click()
        values = sorted((row[key] for row in rows), reverse=True)
        assert [int(text) for text in column(tab, name)] == values
    tab.get_by_role("button", name="TTL").click()
    tab.get_by_role("button", name="TTL").click()
    assert column(tab, "TTL") == ["1 h"] * 2 + ["–"] * 7
    assert column(tab, "Last use").count("never") == 1
    tab.fill("#filter", "LARGE")
    assert set(column(tab, "Model")) == {"large"} and len(column(tab, "Model")) == 4
    tab.fill("#filter", "no such thing")
    has_text(tab, "#segment-table", "No segment matches")
    tab.fill("#filter", rows[-1]["id"])
    tab.locator("#segment-table tbody button").click()
    tab.locator(".heatmap").wait_for()
    plan = operator.api(f"prefixes/{rows[-1]['id']}")["plan"]
    said = [cell.get_attribute("aria-label") for cell in tab.locator(".heatmap td[tabindex]").all()]
    counts = [int(re.search(r": ([\d,]+) entries", text)[1].replace(",", "")) for text in said]
    assert counts == [count for heads in plan for count in heads]
    has_text(tab, ".legend-bar", f"{min(counts)} entries.*{max(counts)} entries")
    tab.locator(".heatmap td[tabindex]").nth(5).hover()
    has_text(tab, ".readout", f"^Layer 1, head 1: {plan[1][1]} entries")


def test_a_budget_is_tried_applied_and_rolled_back(shown, operator):
    before = operator.api("budgets")
    newest = operator.api("budgets/revisions")["newest"]
    tab = shown.open()
    has_text(tab, "#budget-table", "in force")
    tab.fill("#keep", "15%")
    tab.fill("#limit", "0.4")
    tab.fill("#recipe", "knorm")
    tab.fill("#comment", "less")
    assert tab.locator("#apply").is_disabled()
    tab.click("#dry-run")
    has_text(tab, "#budget-result tbody", "keep.*15%.*limit.*0.4.*recipe.*knorm")
    assert operator.api("budgets") == before
    tab.fill("#keep", "12%")  # another change than the one that was tried
    assert tab.locator("#apply").is_disabled()
    tab.click("#dry-run")
    has_text(tab, "#budget-result", "12%")
    tab.fill("#your-name", " Ada Lovelace ")  # a name is no part of the change
    tab.click("#apply")
    has_text(tab, "#budget-result", f"Applied as revision {newest + 1}")
    in_force = operator.api("budgets")["effective"]
    assert (in_force["keep"]["value"], in_force["limit"]["value"]) == (0.12, 0.4)
    assert in_force["recipe"] == tab.input_value("#recipe") == "knorm"
    has_text(tab, "#revisions", "by Ada Lovelace.*less")
    made = operator.api("budgets/revisions")["revisions"][0]
    assert (made["user"], made["comment"]) == ("Ada Lovelace", "less")
    tab.reload()  # the tab remembers the name
    has_text(tab, "#budget-table", "in force")
    assert tab.input_value("#your-name") == "Ada Lovelace"

    tab.get_by_role("button", name="Roll back to before the first revision").click()
    has_text(tab, "#rollback-changes tbody", "keep.*12%.*limit.*40%.*recipe.*knorm")
    tab.click("#rollback-cancel")
    assert operator.api("budgets")["effective"]["keep"]["value"] == 0.12
    tab.get_by_role("button", name="Roll back to before the first revision").click()
    has_text(tab, "#rollback-changes tbody", "12%")
    tab.fill("#rollback-comment", "back")
    tab.click("#rollback-apply")
    has_text(tab, "#budget-result", f"Rolled back as revision {newest + 2}")
    after = operator.api("budgets")["effective"]
    assert after["keep"] == before["effective"]["keep"] and after["limit"] is None
    assert after["recipe"] == before["effective"]["recipe"]
    made = operator.api("budgets/revisions")["revisions"][0]
    assert (made["user"], made["comment"]) == ("Ada Lovelace", "back")


def test_a_scope_of_one_model_and_an_unset_field(shown, operator):
    model = next(row for row in operator.api("models")["models"] if row["name"] == "small")
    operator.api("budgets", "PUT", {"model": model["fingerprint"], "keep": "35%"})
    tab = shown.open()
    has_text(tab, "#scope", "small")
    tab.select_option("#scope", label="small")
    has_text(tab, "#budget-table", "model small.*35%")
    assert tab.input_value("#keep") == "35%"
    tab.fill("#keep", "")
    tab.click("#dry-run")
    has_text(tab, "#budget-result tbody", "small.*keep.*35%.*30%")
    tab.click("#apply")
    has_text(tab, "#budget-result", "Applied")
    layers = operator.api(f"budgets?model={model['fingerprint']}")["layers"]
    assert layers[-1]["scope"].startswith("model") and layers[-1]["keep"] is None
    assert operator.api("budgets/revisions")["revisions"][0]["user"] == "admin page"


def test_what_the_service_refuses_is_said(browser, operator):
    shown = Shown(browser, operator.address)
    tab = shown.open()
    has_text(tab, "#budget-table", "in force")
    tab.fill("#keep", "many")
    tab.click("#dry-run")
    has_text(tab, "#budget-result .error", "'many' is not understood")
    assert tab.locator("#apply").is_disabled()
    tab.fill("#keep", "11%")
    tab.click("#dry-run")
    has_text(tab, "#budget-result tbody", "11%")
    other = operator.api("budgets", "PUT", {"keep": "13%", "comment": "another administrator"})
    tab.click("#apply")
    has_text(tab, "#budget-result .error", "Somebody else has changed the budgets")
    assert operator.api("budgets")["effective"] == other["effective"]
    has_text(tab, "#revisions", "another administrator")
    assert tab.input_value("#keep") == "11%" and tab.locator("#apply").is_disabled()
    operator.api("budgets", "PUT", {"keep": None})
    shown.close(expected="status of 4")


def test_the_keyboard_alone_is_enough(shown, operator):
    tab = shown.open()
    has_text(tab, "#page-place", "of 9")
    has_text(tab, "#budget-table", "in force")

    def tab_to(selector: str) -> None:
        for _ in range(TABS_MAX):
            tab.keyboard.press("Tab")
            if tab.evaluate("(s) => document.activeElement.matches(s)", selector):
                break
        else:
            pytest.fail(f"Tab does not reach {selector}")
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert tab.evaluate(outline) != "none", selector

    tab_to(".skip")
    tab_to("nav a")
    tab_to(".plot")
    tab.keyboard.press("ArrowLeft")
    tab_to(".tile")
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate("document.activeElement.innerText").startswith("small")
    tab.keyboard.press("Enter")
    has_text(tab, "#crumbs", "small: ")
    tab_to("#filter")
    tab.keyboard.type("large")
    tab_to("#segment-table thead th:nth-child(4) button")
    tab.keyboard.press("Enter")
    assert column(tab, "Tokens") == ["250", "200", "150", "100"]
    tab_to("#segment-table tbody button")
    tab.keyboard.press("Enter")
    tab.locator(".heatmap").wait_for()
    tab_to(".heatmap td")
    for key, place in (("ArrowRight", "Layer 0, head 1:"), ("ArrowDown", "Layer 1, head 1:"),
                       ("Home", "Layer 0, head 0:"), ("End", "Layer 5, head 3:")):  # fmt: skip
        tab.keyboard.press(key)
        has_text(tab, ".readout", f"^{place}")
    tab_to("#keep")
    tab.keyboard.press("ControlOrMeta+a")
    tab.keyboard.type("17%")
    tab.keyboard.press("Enter")
    has_text(tab, "#budget-result tbody", "17%")
    tab_to("#your-name")
    tab.keyboard.type("Grace")
    tab_to("#apply")
    tab.keyboard.press("Enter")
    has_text(tab, "#budget-result", "Applied")
    assert operator.api("budgets")["effective"]["keep"]["value"] == 0.17
    assert operator.api("budgets/revisions")["revisions"][0]["user"] == "Grace"
    tab_to("#revisions button")
    tab.keyboard.press("Enter")
    has_text(tab, "#rollback-changes", "17%|Nothing")
    tab.keyboard.press("Escape")
    tab.locator("#rollback-dialog").wait_for(state="hidden")
    operator.api("budgets", "PUT", {"keep": None})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_every_width_and_can_be_read(browser, operator, scheme):
    shown = Shown(browser, operator.address, color_scheme=scheme, reduced_motion="reduce")
    tab = shown.open()
    has_text(tab, "#page-place", "of 9")
    tab.locator("#segment-table tbody button").first.click()
    tab.locator(".heatmap").wait_for()
    tab.fill("#keep", "15%")
    tab.click("#dry-run")
    has_text(tab, "#budget-result tbody", "15%")
    fits_every_width_and_can_be_read(tab, scheme)
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (int(re.search(r"\d+", ground)[0]) < 128) == (scheme == "dark")
    assert tab.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    nameless = """[...document.querySelectorAll("input, select, button")].filter((node) =>
        !node.labels?.length && !node.innerText && !node.ariaLabel).map((node) => node.outerHTML)"""
    assert tab.evaluate(nameless) == []
    shown.close()


def test_a_service_that_stores_nothing(browser, tmp_path):
    with start(tmp_path) as service:
        shown = Shown(browser, Operator(service, tmp_path / "data.log").address)
        tab = shown.open()
        has_text(tab, "#health", "^Up$")
        has_text(tab, "#segment-table", "No segments are stored")
        has_text(tab, "#treemap", "Nothing is stored")
        has_text(tab, "#revisions", "Nobody has changed a budget")
        has_text(tab, "#page-place", "No segments")
        assert tab.locator("#next-page").is_disabled()
        shown.close()
        service.stop()


def test_names_are_shown_as_text(browser, tmp_path):
    name = "<img src=/none onerror=alert(1)>"
    with start(tmp_path) as service:
        with precis.connect(service.address) as cache:
            model = cache.register_model(toy_spec(name=name))
            segment = put_all(cache, model, range(64), random_layers(model.spec, 64))
            cache.session(name).advance(segment.id)
            cache.set_budget(keep=0.2, model=model)
        shown = Shown(browser, Operator(service, tmp_path / "data.log").address)
        tab = shown.open()
        has_text(tab, "#page-place", "1–1 of 1")
        tab.locator("#segment-table tbody button").click()
        has_text(tab, ".facts", "img src")
        has_text(tab, "#revisions", "img src")
        assert column(tab, "Model") == column(tab, "Session") == [name]
        assert tab.locator(".tile .name").inner_text() == name
        assert tab.locator("img").count() == 0
        # The browser would refuse a script that got into the page nevertheless.
        refused = tab.evaluate("""() => new Promise((done) => {
          addEventListener("securitypolicyviolation", (event) => done(event.violatedDirective));
          const script = document.createElement("script");
          script.textContent = "window.ran = true";
          document.body.append(script);
        })""")
        assert refused == "script-src-elem" and tab.evaluate("window.ran") is None
        shown.close(expected="Content Security Policy")
        service.stop()


def test_the_token_is_asked_for_once(browser, tmp_path):
    token = tmp_path / "admin.token"
    token.write_text("a long random word\n")
    token.chmod(0o600)
    config = tmp_path / "precisd.toml"
    tenants = '[[tenant]]\nname = "red"\n[[tenant]]\nname = "blue"\n'
    config.write_text(f'admin_token_file = "{token}"\n{tenants}')
    with start(tmp_path, "--config", str(config)) as service:
        shown = Shown(browser, Operator(service, tmp_path / "data.log").address)
        tab = shown.open()
        tab.fill("#token", "a guess")
        tab.keyboard.press("Enter")
        has_text(tab, "#token-error", "is not that of admin_token_file")
        tab.fill("#token", "a long random word")
        tab.keyboard.press("Enter")
        has_text(tab, "#alerts", "red, blue")  # there is no tenant "default"
        tab.fill("#tenant", "blue")
        tab.keyboard.press("Enter")
        has_text(tab, "#health", "^Up$")
        has_text(tab, "#segment-table", "No segments are stored")
        tab.reload()
        has_text(tab, "#health", "^Up$")
        assert not tab.locator("#token-dialog").is_visible()
        assert tab.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        shown.close(expected="status of 40[14]")
        service.stop()


# ---- answers that the test makes up -------------------------------------------------------------


def test_charts_show_the_rates_between_readings(browser, operator):
    shown = Shown(browser, operator.address)
    stats = operator.api("stats")
    readings = []

    def next_stats(_url: str):
        readings.append(len(readings))
        turn = readings[-1]
        if turn == 4:
            return None
        return stats | {
            "precis_requests_total": stats["precis_requests_total"] + turn,
            "precis_lookups_total": 4 * turn, "precis_lookup_hits_total": 3 * turn,
            "precis_pulled_bytes_total": turn << 30, "precis_pushed_bytes_total": turn << 31,
            "precis_open_puts": turn, "precis_open_gets": 7,
            "precis_compressed_in_bytes_total": 4 * turn, "precis_compressed_out_bytes_total": turn,
        }  # fmt: skip

    answer_with(shown, "stats", next_stats)
    shown.tab.clock.install(time=time.time())
    shown.tab.clock.pause_at(time.time() + 10)
    tab = shown.open()

    def read_until(count: int) -> None:
        for _ in range(WAIT_MS // 10):
            if len(readings) >= count:
                return
            tab.clock.run_for(500)
            tab.wait_for_timeout(10)
        pytest.fail("the page does not read the statistics")

    read_until(4)
    has_text(tab, ".chart", "Hit rate.*lookups 75%")
    has_text(tab, ".chart", "Share of the KV.*new puts 25%")
    has_text(tab, ".chart", r"Traffic.*in [\d.]+ \w+/s.*out [\d.]+ \w+/s")
    shown_in, shown_out = (
        float(value) * 1024 ** ["B", "KiB", "MiB", "GiB"].index(unit)
        for value, unit in re.findall(
            r"([\d.]+) (\w+)/s", tab.locator(".legend").nth(1).inner_text()
        )
    )
    # The test does not know how much time was between the readings.
    assert shown_out == pytest.approx(2 * shown_in, rel=0.02)
    has_text(tab, "#tiles", "Puts now.*3.*Gets now.*7")
    assert "Hit rate: lookups 75%" in tab.locator(".plot").first.get_attribute("aria-label")
    read_until(5)
    has_text(tab, "#health", "Does not answer")
    read_until(8)
    has_text(tab, "#health", "^Up$")
    line = tab.locator(".chart .line.s0").first
    assert line.get_attribute("d").count("M") == 2  # the line has a gap where nothing was read
    shown.close(expected="ERR_FAILED")
