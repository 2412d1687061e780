"""How soon the page of a recorded hour can be used in Chromium, and how large it is."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from ..peers.base import Peer
from .figures import Scenario, percentile

# Milliseconds, by the page's own clock, from the request for the page until it has handled a key.
_NOW: Final = "performance.now()"


def hour(peer: type[Peer], url: str, effort: float) -> dict[str, float]:  # noqa: ARG001 - nothing is connected
    """Measure until all is loaded, and until a first key has selected a turn; each time in a fresh browser.

    Raises:
        RuntimeError: Chromium is not installed.
    """
    from playwright.sync_api import sync_playwright

    from rtvi_sync import Recording
    from tests.support.recordings import an_hour

    program = shutil.which("chromium")
    if program is None:
        raise RuntimeError("Chromium is not installed")
    loaded, used, spent = [], [], []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        recording = Recording.load(an_hour(Path(folder)))
        begun = time.perf_counter()
        page_file = Path(folder, "hour.html")
        recording.report(page_file)
        written = time.perf_counter() - begun
        for _ in range(max(1, round(5 * effort))):
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1400, "height": 900})
            devtools = page.context.new_cdp_session(page)
            devtools.send("Performance.enable", {"timeDomain": "threadTicks"})  # CPU, not time
            page.goto(page_file.as_uri(), wait_until="load")
            loaded.append(page.evaluate(_NOW))
            page.keyboard.press("j")
            page.wait_for_selector("#turns tr[aria-current=true]")
            used.append(page.evaluate(_NOW))
            metrics = {each["name"]: each["value"] for each in devtools.send("Performance.getMetrics")["metrics"]}
            spent.append(metrics["TaskDuration"])
            browser.close()
        size = page_file.stat().st_size
    return {
        "loaded_ms": percentile(loaded, 0.5),
        "used_ms": percentile(used, 0.5),
        "cpu_ms": percentile(spent, 0.5) * 1e3,
        "written_ms": written * 1e3,
        "megabytes": size / 1e6,
    }


SCENARIOS: Final[dict[str, Scenario]] = {"page-hour": hour}
