"""Changes of budgets on the operator's page, applied to what is stored."""

from __future__ import annotations

from kv import put_all, random_layers, toy_spec
from page_tab import Shown, answer_with, has_text
from test_admin import Operator

import precis
from precis.demo.service import Precisd, find_precisd


def test_a_change_of_a_budget_is_applied_to_what_is_stored(browser, tmp_path):
    with Precisd(find_precisd(), tmp_path / "data", "--admin", "127.0.0.1:0") as service:
        with precis.connect(service.address) as cache:
            model = cache.register_model(toy_spec(name="small"))
            layers = random_layers(model.spec, 640)
            segment = put_all(cache, model, range(640), layers, keep=0.8)
            shown = Shown(browser, Operator(service, tmp_path / "data.log").address)
            tab = shown.open()
            has_text(tab, "#budget-table", "in force")
            assert tab.locator("#apply-stored").is_disabled()
            tab.fill("#keep", "20%")
            tab.click("#dry-run")
            has_text(tab, "#budget-result", "would trim 1 segment, .* to be freed")
            has_text(tab, "#budget-result", "Score mass kept: .*% on average")
            assert cache.segment(segment.id).bytes == segment.bytes
            tab.check("#apply-stored")
            tab.click("#apply")
            has_text(tab, "#budget-result", "Applied as revision 1.*trimmed 1 segment")
            trimmed = cache.segment(segment.id)
            assert trimmed.bytes < segment.bytes
            assert not tab.is_checked("#apply-stored")

            tab.fill("#keep", "loss 0.1")  # which no trim can take
            tab.click("#dry-run")
            has_text(tab, "#budget-result", "Nothing is changed yet")
            assert tab.locator("#apply-stored").is_disabled()
            tab.click("#apply")
            has_text(tab, "#budget-result", "Applied as revision 2")

            tab.fill("#keep", "all")  # this unsets the budget, so there is nothing to trim to
            tab.click("#dry-run")
            has_text(tab, "#budget-result", "Nothing is changed yet")
            assert tab.locator("#apply-stored").is_disabled()
            tab.click("#apply")
            has_text(tab, "#budget-result", "Applied as revision 3")
            tab.get_by_role("button", name="Roll back to revision 1").click()
            has_text(tab, "#rollback-changes", "would trim 0 segments")
            tab.check("#rollback-stored")
            tab.click("#rollback-apply")
            has_text(tab, "#budget-result", "Rolled back as revision 4.*trimmed 0 segments")
            assert cache.segment(segment.id).bytes == trimmed.bytes
            shown.close()
        service.stop()


def test_a_table_of_layers_and_heads_is_set_for_a_session(browser, tmp_path):
    with Precisd(find_precisd(), tmp_path / "data", "--admin", "127.0.0.1:0") as service:
        with precis.connect(service.address) as cache:
            model = cache.register_model(toy_spec(name="small"))
            layers = random_layers(model.spec, 300)
            whole = put_all(cache, model, range(300), layers, keep=1.0, recipe="keydiff")
            session = cache.session("talk")
            session.advance(whole.id)
            operator = Operator(service, tmp_path / "data.log")
            shown = Shown(browser, operator.address)
            tab = shown.open()
            has_text(tab, "#scope", "talk")
            assert tab.locator("#layers").is_disabled()  # for all models: their layers differ
            tab.select_option("#scope", label="talk")
            has_text(tab, "#budget-table", "session talk")
            tab.fill("#recipe", "keydiff")
            tab.fill("#layers", "0=0.8, 1-2=0.2, 7.0=1")
            tab.click("#dry-run")
            has_text(tab, "#budget-result .error", "'7.0=1': the model has layers 0 to 2")
            tab.fill("#layers", "0=0.8, 1-2=0.2")
            tab.click("#dry-run")
            has_text(tab, "#budget-result tbody", "layers and heads.*0=0.8, 1-2=0.2")
            has_text(tab, ".next-put", f"like segment {whole.id[:12]} .300 tokens. keeps .*average")
            has_text(tab, "#budget-result", "would trim 1 segment")
            tab.click("#apply")
            has_text(tab, "#budget-result", "Applied as revision 1")
            assert tab.input_value("#keep") == "40%" and tab.input_value("#layers") == ""
            put = put_all(cache, model, range(300), layers, recipe=None, session="talk")
            assert cache.segment(put.id).plan.tolist() == [[240, 240], [60, 60], [60, 60]]
            tab.fill("#recipe", "knorm")
            tab.click("#dry-run")
            has_text(tab, ".next-put", "Only a put can tell what this recipe keeps")
            shown.close(expected="status of 400")
        service.stop()


def test_an_application_that_runs_already_is_shown_and_can_be_canceled(browser, tmp_path):
    with Precisd(find_precisd(), tmp_path / "data", "--admin", "127.0.0.1:0") as service:
        operator = Operator(service, tmp_path / "data.log")
        shown = Shown(browser, operator.address)
        running = operator.api("budgets/application") | {
            "number": 7, "state": "running", "revision": 3, "bytes": 2048, "done_bytes": 1024,
            "trimmed_segments": 2,
        }  # fmt: skip
        asked: list[str] = []

        def application(url: str):
            asked.append(url)
            canceled = any("number=7" in each for each in asked)
            return running | ({"state": "canceled"} if canceled else {})

        answer_with(shown, "budgets/application", application)
        tab = shown.open()
        has_text(tab, "#running", "Revision 3 is applied to what is stored")
        bar = tab.get_by_role("meter", name="Progress")
        tab.wait_for_function(
            "document.querySelector('#running .track').ariaValueText === '1.00 KiB of 2.00 KiB'"
        )
        assert bar.get_attribute("aria-valuenow") == "50"
        tab.focus("#running button")
        tab.keyboard.press("Enter")
        has_text(tab, "#running", "trimmed 2 segments.*It was canceled before its end")
        shown.close()
        service.stop()
