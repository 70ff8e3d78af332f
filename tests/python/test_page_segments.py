"""Segments on the operator's page that its list does not have."""

from __future__ import annotations

import re

from kv import put_all, random_layers, toy_spec
from page_tab import Shown, answer_with, column, has_text
from test_admin import Operator

import precis
from precis.demo.service import Precisd, find_precisd


def test_the_filter_finds_any_segment_by_its_whole_id(browser, tmp_path):
    with Precisd(find_precisd(), tmp_path / "data", "--admin", "127.0.0.1:0") as service:
        with precis.connect(service.address) as cache:
            model = cache.register_model(toy_spec(name="small"))
            ids = []
            for n in range(2):
                tokens = range(1000 * n, 1000 * n + 100)
                ids.append(put_all(cache, model, tokens, random_layers(model.spec, 100)).id)
        operator = Operator(service, tmp_path / "data.log")
        newest = [row for row in operator.api("prefixes")["prefixes"] if row["id"] != ids[0]]
        shown = Shown(browser, operator.address)
        answer_with(shown, "prefixes", lambda _: {"prefixes": newest, "next": None})
        tab = shown.open()
        has_text(tab, "#page-place", "1–1 of 1")
        tab.fill("#filter", ids[0])
        has_text(tab, "#segment-table tbody", ids[0][:12])
        assert column(tab, "Model") == ["small"]
        tab.locator("#segment-table tbody button").click()
        tab.locator(".heatmap").wait_for()
        has_text(tab, ".facts", ids[0])
        tab.fill("#filter", ids[0][:31])  # not the whole of it
        has_text(tab, "#segment-table", "No segment matches the filter")
        tab.fill("#filter", f"{1:032x}")
        has_text(tab, "#segment-table", re.escape(f"{1:032x}"))
        assert tab.locator("#segment-table tbody button").count() == 0
        tab.fill("#filter", "")
        has_text(tab, "#segment-table tbody", ids[1][:12])
        shown.close(expected="status of 404")
        service.stop()
