"""The page of precis eval: its verdict, its order, its colours and its plots."""

from __future__ import annotations

import base64
import html
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from plot_texts import overlapping

from precis.eval import plots, theme
from precis.eval.page import markdown, page
from precis.eval.results import Results, Row
from precis.eval.verdict import best_rows, verdict

RESULTS = Path(__file__).resolve().parents[2] / "docs/results"


def row(name: str, nll: float, right: int, **more: object) -> Row:
    plan = [[40, 60, 80], [20, 50, 90]]
    fields = {"bytes": 205, "perturbation": [0.2, 0.4], "plan": plan} | more
    answers = [i < right for i in range(4)]
    return Row(name, fields.pop("keep", 0.2), right=answers, nll=[nll] * 4, **fields)


def results_of(*rows: Row) -> Results:
    model = {
        "name": "m", "revision": None, "num_layers": 2, "num_q_heads": 6, "num_kv_heads": 3,
        "head_dim": 8, "dtype": "f32",
    }  # fmt: skip
    settings = {
        "questions_per_context": 2, "contexts": 2, "tokens": 300, "seed": 0, "precis": "1",
        "seconds": 1.0, "documents": [{"text": "a", "seed": "0/0", "tokens": 300}],
        "recipes": {
            row.name: {"selector": "topk", "heads": "uniform", "scorer": row.name} for row in rows
        },
    }  # fmt: skip
    full = Row("full", 1.0, right=[True, True, True, False], nll=[0.1] * 4)
    return Results(model, settings, full, list(rows), 1.0, 1000)


ROWS = (row("a", 0.2, 3), row("b", 0.9, 1), row("c", 1.5, 0))
SLOW = row("slow", 0.1, 4, model_seconds=2.0)


def test_the_verdict_is_made_of_the_figures():
    assert verdict(results_of(*ROWS)) == (
        "At a budget of 20%, a has the lowest loss of 3 recipes: 3 of 4 answers are right, where "
        "the full cache gives 3. Half of the recipes give at most 1 right answers."
    )
    assert verdict(results_of(*ROWS[1:], row("a", 2.0, 2))).startswith(
        "At a budget of 20%, b has the lowest loss of 3 recipes: 1 of 4 answers are right"
    )


def test_beside_a_best_recipe_that_takes_a_second_prefill_stands_the_best_that_does_not():
    assert verdict(results_of(*ROWS, SLOW)) == (
        "At a budget of 20%, slow has the lowest loss of 4 recipes: 4 of 4 answers are right, "
        "where the full cache gives 3. The best recipe that takes less of the model's time than "
        "another prefill is a, with 3; half of the recipes give at most 1 right answers."
    )


def test_a_verdict_needs_neither_many_recipes_nor_one_that_ran():
    assert verdict(results_of(ROWS[0])) == (
        "At a budget of 20%, a gives 3 of 4 right answers, where the full cache gives 3. It stores "
        "20.5% of the bytes of K and V."
    )
    failed = Row("a", 0.2, failed="no")
    assert verdict(results_of(failed)) == "No recipe has figures at a budget of 20%."
    assert "No recipe has figures" in page(results_of(failed), "t", {})


def test_the_best_recipe_of_each_budget_is_told():
    rows = (*ROWS, row("b", 0.3, 3, keep=0.5), row("a", 0.4, 2, keep=0.5))
    told = [cells[:3] for cells in best_rows(results_of(*rows))[1]]
    assert told == [["50%", "b", "3"], ["20%", "a", "3"]]


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_the_committed_pages_tell_the_verdict_of_their_figures(name):
    told = verdict(Results.load(RESULTS / f"{name}.json"))
    assert told in (RESULTS / f"{name}.md").read_text()
    assert told in html.unescape((RESULTS / f"{name}.html").read_text())


class Tags(HTMLParser):
    """The tags of a page in order, each with its attributes and the tags around it."""

    VOID = ("meta", "img", "wbr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], tuple[str, ...]]] = []
        self._around: list[str] = []
        self.feed(text)
        assert not self._around

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes), tuple(self._around)))
        if tag not in self.VOID:
            self._around.append(tag)

    def handle_endtag(self, tag):
        assert self._around.pop() == tag


@pytest.fixture(scope="module", params=["smollm2", "gemma3"])
def shown(request):
    """The committed results, their plots and their page."""
    results = Results.load(RESULTS / f"{request.param}.json")
    drawn = plots.draw(results)
    return results, drawn, page(results, "A title", drawn)


def test_first_comes_the_verdict_then_plots_then_tables(shown):
    results, _, text = shown
    told = text.index(html.escape(verdict(results)))
    assert text.index("<h1>") < told < text.index("<figure") < text.index("<table")
    assert text.rindex("</figure>") < text.index("<table")
    tables = [around for tag, _, around in Tags(text).found if tag == "table"]
    assert "details" not in tables[0] and len(tables) > 5
    assert all("details" in around for around in tables[1:])
    assert all("open" not in given for tag, given, _ in Tags(text).found if tag == "details")


def test_the_page_can_be_read_without_seeing_it_and_without_a_network(shown):
    _, drawn, text = shown
    found = Tags(text).found
    levels = [int(tag[1]) for tag, _, _ in found if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    images = [given for tag, given, _ in found if tag == "img"]
    assert [given["alt"] for given in images] == [plot.alt for plot in drawn.values()]
    assert all(len(given["alt"]) > 40 for given in images)
    scopes = [given.get("scope") for tag, given, _ in found if tag == "th"]
    assert scopes.count("row") == sum("tbody" in around for tag, _, around in found if tag == "tr")
    assert set(scopes) == {"row", "col"}
    assert "script" not in {tag for tag, _, _ in found}
    sources = [given[name] for _, given, _ in found for name in ("src", "href") if name in given]
    assert all(source.startswith("data:") for source in sources)
    assert "url(" not in text and "@import" not in text


def test_what_is_wider_than_the_screen_scrolls_in_its_own_box(shown):
    found = Tags(shown[2]).found
    names = dict.fromkeys(("table", "img"), 0)
    boxes = [given for tag, given, _ in found if given.get("class") == "scroll"]
    for tag, _, around in found:
        if tag in names:
            names[tag] += 1
            assert around[-1] == "div"
    assert len(boxes) == sum(names.values())
    assert all(given["tabindex"] == "0" and given["aria-label"] for given in boxes)
    assert 'name="viewport" content="width=device-width, initial-scale=1"' in shown[2]


def test_page_and_plots_follow_the_readers_colour_scheme(shown):
    text = shown[2]
    css = text.partition("<style>")[2].partition("</style>")[0]
    svgs = [
        base64.b64decode(data).decode() for data in re.findall(r'svg\+xml;base64,([^"]+)', text)
    ]
    assert len(svgs) == 4
    for themed in (css, *svgs):
        dark = themed.split("@media (prefers-color-scheme:dark)")[1]
        for name, (light, other) in theme.COLOURS.items():
            assert f"--{name}:{light};" in themed and f"--{name}:{other};" in dark
        assert set(re.findall(r"var\(--(\w+)\)", themed)) <= set(theme.COLOURS)
        assert "var(--ink)" in themed
    for svg in svgs:
        drawn = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
        # No text or shape has a colour of only one scheme.
        assert re.findall(r"(?:fill|stroke): (?!none|var)[^;\"]+", drawn) == []
        assert "<text" in drawn


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG 2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1])
def test_text_and_lines_have_enough_contrast(scheme):
    of = {name: pair[scheme] for name, pair in theme.COLOURS.items()}
    for behind in ("paper", "panel"):
        assert min(contrast(of[name], of[behind]) for name in ("ink", "quiet", "link")) >= 4.5
    assert min(contrast(of[name], of["paper"]) for name in theme.SERIES) >= 3


def test_no_texts_of_the_plots_overlap(shown):
    assert {name: overlapping(plot.figure) for name, plot in shown[1].items()} == {
        "nll": [], "accuracy": [], "perturbation": [], "plans": [],
    }  # fmt: skip


def test_a_single_outlier_does_not_flatten_the_named_recipes():
    named = [row(f"r{i}", 0.1 * i, 3, perturbation=[0.5, 0.25]) for i in range(7)]
    rows = (*named, row("wild", 3.0, 0, perturbation=[0.5, 50.0]))
    plot = plots.draw(results_of(*rows))["perturbation"]
    assert plot.figure.axes[0].get_ylim() == pytest.approx((0, 0.525))
    assert "Above the frame in some layers: wild (up to 50.0)." in plot.caption
    assert plot.figure.axes[0].get_title(loc="right") == "above the frame: wild (up to 50.0)"


def test_the_markdown_has_the_verdict_first_and_shows_the_saved_plots():
    results = results_of(*ROWS)
    drawn = plots.draw(results)
    text = markdown(results, "A title", drawn, "m")
    assert text.startswith(f"# A title\n\n{verdict(results)}\n\n")
    for name, plot in drawn.items():
        assert f"![{plot.alt}](m/{name}.png)\n\n{plot.caption}\n" in text
    assert "![" not in markdown(results, "A title", {})
