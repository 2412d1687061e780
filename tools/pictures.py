"""The pictures of the docs: the page of a recording, as Chromium shows it.

`python -m tools.pictures` writes them to docs/pictures. It needs Playwright and the system's Chromium; the recording is
written by a script, so that the pictures change with the page alone.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import FloatRect, Page, sync_playwright

from rtvi_sync import Recording
from tests.support.recordings import a_talk

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
_WIDTH, _HEIGHT, _MARGIN = 1200, 700, 20  # pixels
_TURN = 5  # the slowest one, with a call


def main() -> None:
    """Write all pictures."""
    program = shutil.which("chromium")
    if program is None:
        sys.exit("Chromium is not installed: apt install chromium")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        recording = Recording.load(a_talk(Path(folder), "test_the_pizza_line").write())
        html = recording.path.with_suffix(".html")
        recording.report(html)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT}, color_scheme="light")
        page.goto(html.as_uri())
        timeline = page.locator("#timeline").bounding_box()
        assert timeline is not None, "the page has a timeline"
        _picture(page, "recording", 0, timeline["y"] + timeline["height"] + _MARGIN)
        row = page.locator(f"#turns tr[data-turn='{_TURN}']").first
        row.click()
        page.evaluate("scrollTo(0, 0)")
        top, following = row.bounding_box(), page.locator(f"#turns tr[data-turn='{_TURN + 1}']").first.bounding_box()
        assert top is not None
        assert following is not None
        _picture(page, "recording-turn", top["y"], following["y"])
        browser.close()


def _picture(page: Page, name: str, top: float, bottom: float) -> None:
    """Write the part of the page between two heights."""
    page.wait_for_timeout(300)  # for the waveforms, which are drawn in the next frame
    path = FOLDER / f"{name}.png"
    clip: FloatRect = {"x": 0, "y": top, "width": _WIDTH, "height": bottom - top}
    page.screenshot(path=path, animations="disabled", full_page=True, clip=clip)
    print(f"{path.relative_to(FOLDER.parents[1])}  {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
