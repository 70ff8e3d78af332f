"""What an operator sees of a running precisd: precisctl top, and a picture of its page."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from .service import Precisd

_WIDTH, _HEIGHT = 1280, 900
_READ_MS = 7000  # a few readings for the charts


def top(service: Precisd) -> str:
    """One interval of precisctl top.

    Raises:
        FileNotFoundError: no precisctl is on the PATH.
    """
    found = shutil.which("precisctl")
    if found is None:
        raise FileNotFoundError("precisctl is not on the PATH")
    command = [found, "--address", service.address, "top", "--once"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def admin_address(log: str) -> str:
    """The address of the admin port that a log of precisd names last."""
    return re.findall(r"admin port address=(\S+)", log)[-1]


def save_page(address: str, file: Path) -> None:
    """Writes a picture of the page of an admin port without a token.

    Raises:
        FileNotFoundError: no chromium is on the PATH.
        ImportError: playwright is not installed.
    """
    chromium = shutil.which("chromium")
    if chromium is None:
        raise FileNotFoundError("chromium is not on the PATH (Debian package chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        # A sandbox needs rights that a container does not have.
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        size = {"width": _WIDTH, "height": _HEIGHT}
        tab = browser.new_page(viewport=size, reduced_motion="reduce")
        tab.goto(f"http://{address}/")
        # The largest segment, with the entries of its layers and heads.
        tab.locator("#segment-table tbody button").first.click()
        tab.locator(".heatmap").wait_for()
        tab.wait_for_timeout(_READ_MS)
        tab.evaluate("scrollTo(0, 0)")
        tab.screenshot(path=file, full_page=True)
        browser.close()
