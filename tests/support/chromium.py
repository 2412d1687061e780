"""The system's Chromium, without a window."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.required import missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: A microphone that plays a WAV file once, from the moment when a page has it.
MICROPHONE = "--use-fake-device-for-media-stream"
SPEAKS = "--use-file-for-fake-audio-capture={}%noloop"


@pytest.fixture(scope="module")
def launch_chromium() -> Iterator[Callable[..., Browser]]:
    """Yield a function that starts browsers, with arguments for each, for the tests of a file."""
    program = shutil.which("chromium")
    if program is None:
        missing("Chromium is not installed: run `python3 run.py test --real`")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        missing("Playwright is not installed: run `python3 run.py test --real`")
    browsers = []
    with sync_playwright() as playwright:

        def launch(*arguments: str) -> Browser:
            # CI runs as root, for whom Chromium's own sandbox is unavailable.
            browsers.append(playwright.chromium.launch(executable_path=program, args=["--no-sandbox", *arguments]))
            return browsers[-1]

        yield launch
        for browser in browsers:
            browser.close()


@pytest.fixture(scope="module")
def chromium(launch_chromium: Callable[..., Browser]) -> Browser:
    """Return a browser for the tests of a file, in which sound needs no click."""
    return launch_chromium("--autoplay-policy=no-user-gesture-required")
