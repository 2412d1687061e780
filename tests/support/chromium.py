"""The system's Chromium, without a window."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.required import missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Yield a browser for the tests of a file."""
    program = shutil.which("chromium")
    if program is None:
        missing("Chromium is not installed: run `python3 run.py test --real`")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        missing("Playwright is not installed: run `python3 run.py test --real`")
    with sync_playwright() as playwright:
        # CI runs as root, for whom Chromium's own sandbox is unavailable; and no click precedes the sound.
        arguments = ["--no-sandbox", "--autoplay-policy=no-user-gesture-required"]
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()
