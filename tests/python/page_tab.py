"""A tab of a real Chromium that shows the operator's page."""

from __future__ import annotations

import json
import re
import shutil

import pytest

WAIT_MS = 30_000
WIDTHS = (320, 768, 1280, 2560)

# The elements whose text has too little contrast, with the contrast. A canvas turns every notation
# of a colour into bytes.
LOW_CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const bytes = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (; node !== null; node = node.parentElement) {
      const [r, g, b, a] = bytes(getComputedStyle(node).backgroundColor);
      if (a === 255) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim() !== "");
    if (!own || node.disabled || !node.checkVisibility()) continue;
    const style = getComputedStyle(node);
    const text = bytes(node.namespaceURI.endsWith("svg") ? style.fill : style.color).slice(0, 3);
    const [a, b] = [light(text), light(ground(node))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) found.push(`${node.outerHTML.slice(0, 80)} ${contrast.toFixed(2)}`);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed (Debian package chromium)")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as play:
        # A sandbox needs rights that a container does not have.
        started = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


class Shown:
    """The page in a tab of its own. It records console errors and requests to other hosts."""

    def __init__(self, browser, address: str, **options) -> None:
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(WAIT_MS)
        self.tab = self.context.new_page()
        self.errors: list[str] = []
        self.foreign: list[str] = []
        self.origin = f"http://{address}/"
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("console", self._note)
        self.tab.on("request", self._check)

    def _note(self, message) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _check(self, request) -> None:
        if not request.url.startswith(self.origin):
            self.foreign.append(request.url)

    def open(self):
        self.tab.goto(self.origin)
        return self.tab

    def open_as(self, token: str, admins: str, tenant: str):
        """Signs in. The port has no tenant "default", and names the `admins` that it has."""
        self.open()
        self.tab.fill("#token", token)
        self.tab.keyboard.press("Enter")
        has_text(self.tab, "#alerts", admins)
        self.tab.fill("#tenant", tenant)
        self.tab.keyboard.press("Enter")
        return self.tab

    def close(self, expected: str = "nothing") -> None:
        """`expected`: a pattern of the only errors that may be in the console."""
        self.context.close()
        assert [error for error in self.errors if not re.search(expected, error)] == []
        assert self.foreign == []


def has_text(tab, selector: str, pattern: str) -> None:
    """Waits until an element of the page has the text."""
    tab.locator(selector).filter(has_text=re.compile(pattern)).first.wait_for()


def fits_every_width_and_can_be_read(tab, scheme: str) -> None:
    """Checks the page as it is now. `scheme`: the tab's colour scheme."""
    for width in WIDTHS:
        tab.set_viewport_size({"width": width, "height": 900})
        needed = tab.evaluate("document.documentElement.scrollWidth")
        assert needed <= width, (scheme, width, needed)
        pale = tab.evaluate(LOW_CONTRAST)
        assert pale == [], (scheme, width, pale)


def column(tab, name: str) -> list[str]:
    """The texts of a column of the table of segments."""
    heads = tab.locator("#segment-table thead button").all_inner_texts()
    cells = tab.locator(f"#segment-table tbody tr > :nth-child({heads.index(name) + 1})")
    return cells.all_inner_texts()


def answer_with(shown: Shown, path: str, answers) -> None:
    """Requests for the path get what `answers` returns for their URL; None: no answer."""

    def handle(route) -> None:
        answer = answers(route.request.url)
        if answer is None:
            route.abort()
        else:
            route.fulfill(body=json.dumps(answer), content_type="application/json")

    shown.tab.route(re.compile(rf"/api/v1/{path}(\?|$)"), handle)
