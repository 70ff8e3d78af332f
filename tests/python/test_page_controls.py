"""Every control of the operator's page is used by a test."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "cachesvc/admin/page/index.html"
CONTROLS = ("input", "select", "button", "textarea")


class Controls(HTMLParser):
    """The ids of the controls in the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        name = dict(attrs).get("id")
        if tag in CONTROLS and name:
            self.ids.append(name)


def test_every_control_of_the_page_is_used_by_a_test():
    ids = Controls(PAGE.read_text()).ids
    assert len(ids) == len(set(ids)) > 40
    tests = "".join(file.read_text() for file in HERE.glob("test_page*.py"))
    assert [name for name in ids if not re.search(rf"#{name}(?![\w-])", tests)] == []
