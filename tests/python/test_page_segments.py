"""The table of segments on the operator's page: few, many, and some that it has not read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kv import put_all, random_layers, toy_spec
from page_tab import Shown, answer_with, column, fits_every_width_and_can_be_read, has_text
from test_admin import Operator

import precis
from precis.demo.service import Precisd, find_precisd


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    """A service with two segments of one model."""
    with Precisd(find_precisd(), tmp_path / "data", "--admin", "127.0.0.1:0") as service:
        with precis.connect(service.address) as cache:
            model = cache.register_model(toy_spec(name="small"))
            for first in (0, 1000):
                layers = random_layers(model.spec, 100)
                put_all(cache, model, range(first, first + 100), layers)
        yield Operator(service, tmp_path / "data.log")
        service.stop()


def test_the_filter_finds_any_segment_by_its_whole_id(browser, operator):
    rows = operator.api("prefixes")["prefixes"]
    ids = [row["id"] for row in rows]
    listed = rows[1:]
    shown = Shown(browser, operator.address)
    answer_with(shown, "prefixes", lambda _: {"prefixes": listed, "next": None})
    tab = shown.open()
    has_text(tab, "#page-place", "1–1 of 1")
    tab.fill("#filter", ids[0])
    has_text(tab, "#segment-table tbody", ids[0][:12])
    assert column(tab, "Model") == ["small"]
    tab.locator("#segment-table tbody button").click()
    tab.locator(".heatmap").wait_for()
    has_text(tab, ".facts", ids[0])
    tab.fill("#filter", ids[0][:31])  # not the whole id
    has_text(tab, "#segment-table", "No segment matches the filter")
    tab.fill("#filter", f"{1:032x}")
    has_text(tab, "#segment-table", re.escape(f"{1:032x}"))
    assert tab.locator("#segment-table tbody button").count() == 0
    tab.fill("#filter", "")
    has_text(tab, "#segment-table tbody", ids[1][:12])
    assert tab.locator("#segment-table tbody button").count() == 1
    listed.insert(0, rows[0])  # without a reload, the page reads only reported changes
    tab.click("#reload")
    has_text(tab, "#page-place", "1–2 of 2")
    assert sorted(column(tab, "Segment")) == sorted(each[:12] for each in ids)
    shown.close(expected="status of 404")


def test_ten_thousand_segments(browser, operator):
    shown = Shown(browser, operator.address)
    sample = operator.api("prefixes")["prefixes"][0]
    asked: list[str] = []

    def prefixes(url: str):
        asked.append(url)
        page = int((re.search(r"after=(\w+)", url) or [0, "0"])[1])
        rows = [sample | {"id": f"{1000 * page + n:032x}", "stored_bytes": 1000 * page + n + 1}
                for n in range(1000)]  # fmt: skip
        return {"prefixes": rows, "next": f"{page + 1:02}"}  # there are always more

    answer_with(shown, "prefixes", prefixes)
    tab = shown.open()
    has_text(tab, "#page-place", "1–50 of 10,000")
    has_text(tab, "#segments-note", "The newest 10,000 segments; the service has more")
    assert len(asked) == 10
    rows = tab.locator("#segment-table tbody tr")
    assert rows.count() == 50
    assert rows.first.get_attribute("data-id") == f"{9999:032x}"  # the one that stores most
    assert tab.is_disabled("#first-page") and tab.is_disabled("#previous-page")
    tab.click("#next-page")
    has_text(tab, "#page-place", "^51–100 of 10,000$")
    tab.click("#last-page")
    has_text(tab, "#page-place", "9,951–10,000 of 10,000")
    assert tab.is_disabled("#next-page") and tab.is_disabled("#last-page")
    tab.click("#previous-page")
    has_text(tab, "#page-place", "9,901–9,950 of")
    tab.click("#first-page")
    has_text(tab, "#page-place", "^1–50 of 10,000$")
    assert rows.first.get_attribute("data-id") == f"{9999:032x}"
    assert tab.is_disabled("#first-page") and tab.is_enabled("#last-page")
    tab.click("#last-page")
    tab.locator(".tile").first.click()
    has_text(tab, "#treemap", "9,880 other segments")
    assert tab.locator("#treemap *").count() < 1000
    has_text(tab, "#page-place", "9,951–10,000 of 10,000")
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)
        fits_every_width_and_can_be_read(tab, scheme)
    tab.fill("#filter", f"{9999:032x}")
    has_text(tab, "#page-place", "1–1 of 1")
    shown.close()
