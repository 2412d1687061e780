"""Pages in Chromium: the report of a recording, a notebook, a page that talks, and the terminal of README."""

from __future__ import annotations

import html
import os
import shutil
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import attrs
import nbformat
from nbclient import NotebookClient
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import Browser as Process
from playwright.sync_api import FloatRect, Page, sync_playwright
from traitlets.config import Config
from werkzeug.serving import make_server

from rtvi_sync import Recording
from rtvi_sync.testing import EmbeddedBot
from samples.flask_app.app import create_app
from tests.support.chromium import MICROPHONE, SPEAKS
from tests.support.recordings import a_talk

from . import terminal
from .sessions import TRANSCRIPTS, write_speech
from .terminal import ROOT

_MARGIN = 20  # pixels
_LEAST = 100  # pixels, the height of a page that is as long as its content
_SLOWEST = 5  # the number of a turn, which has a call
_COLOURS = 128
_TALK: Final = ROOT / "docs" / "_static" / "talk.svg"
_TEXT: Final = "Text"  # what a picture shows in words, as a chunk of its file

_BOT_IS_LOUD: Final = """
() => new DOMMatrix(getComputedStyle(
  document.querySelector("rtvi-voice").shadowRoot.querySelectorAll(".level > i")[1]).transform).a > 0.5
"""
_NOTEBOOK_STYLE: Final = """
body { margin: 16px; font: 14px/1.5 system-ui, "DejaVu Sans", sans-serif; color: #1f2937; width: 568px; }
.cell { display: grid; grid-template-columns: 48px 1fr; gap: 8px; margin-bottom: 12px; }
.cell > span { color: #6b7280; font: 13px/1.5 "DejaVu Sans Mono", monospace; padding-top: 8px; text-align: right; }
pre { margin: 0; padding: 8px 12px; font: 13px/1.5 "DejaVu Sans Mono", monospace; }
pre { background: #f5f5f5; border: 1px solid #e0e0e0; border-radius: 2px; }
.output { grid-column: 2; padding: 0 12px; }
table { border-collapse: collapse; } th, td { padding: 3px 10px; text-align: right; }
tr:nth-child(even) { background: #f5f5f5; }
"""
_SETUP: Final = """\
from pathlib import Path
from rtvi_sync import RTVIClient
from rtvi_sync.notebook import Conversation
from rtvi_sync.testing import EmbeddedBot, Reply
weather = Reply("It is twelve degrees.", call=("get_weather", {{"city": "Oslo"}}), result=12, seconds=0.4)
bot = EmbeddedBot(transcripts={transcripts}, replies={{"warm": weather, "hear me": "Loud and clear."}})
bot.start()
"""
_URL: Final = "http://localhost:7860"
_CELLS: Final = (
    f'client = RTVIClient.for_url("{_URL}")\ntalk = Conversation(client)\ntalk',
    'with client:\n    client.ask(Path("question.wav"))\n    client.ask("How warm is it in Oslo?")',
    "talk.latency",
)


@attrs.frozen
class Shot:
    """A picture of a page.

    Attributes:
        png: the file.
        text: what the page says, line by line.
    """

    png: bytes
    text: str

    def file(self) -> bytes:
        """Return the file with few colours, and with the text in it."""
        packed = BytesIO()
        info = PngInfo()
        info.add_itxt(_TEXT, self.text, zip=True)
        image = Image.open(BytesIO(self.png)).convert("RGB")
        image.quantize(_COLOURS, dither=Image.Dither.NONE).save(packed, "PNG", optimize=True, pnginfo=info)
        return packed.getvalue()


def text_of(path: Path) -> str:
    """Return the text that `Shot.file()` has put into a file."""
    with Image.open(path) as image:
        return str(image.info[_TEXT])


class Browser:
    """Chromium, which takes pictures of pages. A context manager."""

    def __init__(self) -> None:
        self._program = shutil.which("chromium")
        if self._program is None:
            raise FileNotFoundError("Chromium is not installed: apt install chromium")
        self._stack = ExitStack()

    def __enter__(self) -> Browser:
        self._playwright = self._stack.enter_context(sync_playwright())
        self._browser = self._launch()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def shot(self, name: str, folder: Path) -> Shot:
        """Return the picture with a name; its files are in a folder."""
        methods = {
            "talk.png": self._drawing,
            "report.png": self._report,
            "report-turn.png": self._turn_of_report,
            "notebook.png": self._notebook,
            "voice.png": self._voice,
        }
        return methods[name](folder)

    def _report(self, folder: Path) -> Shot:
        """Return the upper part of the report of a recording."""
        page = self._page_of_report(folder)
        timeline = _box(page, "#timeline")
        return _shot(page, (0, timeline["y"] + timeline["height"] + _MARGIN))

    def _turn_of_report(self, folder: Path) -> Shot:
        """Return the row of a turn that is selected."""
        page = self._page_of_report(folder)
        page.locator(f"#turns tr[data-turn='{_SLOWEST}']").first.click()
        page.evaluate("scrollTo(0, 0)")
        page.wait_for_timeout(300)
        row, following = (_box(page, f"#turns tr[data-turn='{number}']") for number in (_SLOWEST, _SLOWEST + 1))
        return _shot(page, (row["y"], following["y"]))

    def _page_of_report(self, folder: Path) -> Page:
        recording = Recording.load(a_talk(folder, "test_the_pizza_line").write())
        path = recording.path.with_suffix(".html")
        recording.report(path)
        page = self._page(self._browser, 1200, 700)
        page.goto(path.as_uri())
        page.wait_for_timeout(300)  # for waveforms, which are drawn in the next frame
        return page

    def _notebook(self, folder: Path) -> Shot:
        """Return three cells of a notebook with their outputs."""
        cells = _executed(folder)
        page = self._page(self._browser, 600, _LEAST, scale=1.5)
        page.set_content(f"<!doctype html><style>{_NOTEBOOK_STYLE}</style>{''.join(cells)}")
        return _shot(page)

    def _voice(self, folder: Path) -> Shot:
        """Return a page that talks, behind the sample's server, after a spoken and a written question."""
        speech = write_speech(folder / "voice.wav", 1)
        replies = {"hear me": "Loud and clear. How can I help?", "time": "It is noon, and high time for lunch."}
        with EmbeddedBot(transcripts=TRANSCRIPTS, replies=replies) as bot:
            server = make_server("127.0.0.1", 0, create_app(bot.ws_url), threaded=True)
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            try:
                return self._talk(f"http://127.0.0.1:{server.server_port}/", speech)
            finally:
                server.shutdown()
                thread.join()

    def _talk(self, address: str, speech: Path) -> Shot:
        browser = self._launch(MICROPHONE, SPEAKS.format(speech))
        page = self._page(browser, 640, 560, scale=1.5, permissions=["microphone"])
        page.goto(address)
        page.get_by_role("button", name="Start talking", exact=True).click()
        page.locator("li.bot", has_text="How can I help?").wait_for()
        page.locator("#state[data-state=listening]").wait_for()
        page.get_by_label("Write to the bot").fill("What time is it?")
        page.keyboard.press("Enter")
        page.locator("li.bot", has_text="It is noon").wait_for()
        page.wait_for_function(_BOT_IS_LOUD)
        shot = _shot(page)
        page.close()  # ends the session
        return shot

    def _drawing(self, _: Path) -> Shot:
        """Return the terminal of `talk` for README, because PyPI and some editors show no SVG."""
        svg = _TALK.read_text("utf-8")
        page = self._page(self._browser, 800, _LEAST, scale=1.5)
        page.set_content(f"<!doctype html><style>body {{ margin: 0 }} svg {{ display: block }}</style>{svg}")
        return Shot(_shot(page).png, terminal.text_in(svg))

    def _launch(self, *arguments: str) -> Process:
        browser = self._playwright.chromium.launch(
            executable_path=self._program,
            args=["--no-sandbox", "--autoplay-policy=no-user-gesture-required", *arguments],
        )
        self._stack.callback(browser.close)
        return browser

    def _page(self, browser: Process, width: int, height: int, *, scale: float = 1, **options: Any) -> Page:
        return browser.new_page(
            viewport={"width": width, "height": height}, device_scale_factor=scale, color_scheme="light", **options
        )


def _box(page: Page, selector: str) -> FloatRect:
    """Return the place of the first element that a selector finds."""
    box = page.locator(selector).first.bounding_box()
    assert box is not None, f"the page shows {selector}"
    return box


def _shot(page: Page, part: tuple[float, float] | None = None) -> Shot:
    """Return a picture of the page, or of its part between two heights."""
    assert page.viewport_size is not None
    if part is None:
        png = page.screenshot(animations="disabled", full_page=True)
    else:
        clip: FloatRect = {"x": 0, "y": part[0], "width": page.viewport_size["width"], "height": part[1] - part[0]}
        png = page.screenshot(animations="disabled", full_page=True, clip=clip)
    return Shot(png, page.locator("body").inner_text())


def _executed(folder: Path) -> Sequence[str]:
    """Execute the notebook, and return its cells as HTML."""
    write_speech(folder / "question.wav", 1, after=0.2)
    setup = _SETUP.format(transcripts=TRANSCRIPTS)
    sources = [
        setup,
        *(cell.replace(f'"{_URL}"', "bot.base_url, mic=False, speaker=False") for cell in _CELLS),
        "client.close(); bot.stop()",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    # The kernel's connection is files of this run alone, where the system has them.
    files = {"transport": "ipc", "ip": str(folder / "kernel")} if os.name == "posix" else {}
    resources = {"metadata": {"path": str(folder)}}
    config = Config({"KernelManager": files})
    NotebookClient(notebook, timeout=120, kernel_name="python3", config=config, resources=resources).execute(
        env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    cells = []
    for number, (source, cell) in enumerate(zip(_CELLS, notebook.cells[1:], strict=False), 1):
        outputs = "".join(output["data"].get("text/html", "") for output in cell.outputs if "data" in output)
        cells.append(
            f"<div class=cell><span>[{number}]:</span><pre>{html.escape(source)}</pre>"
            f"<div class=output>{outputs}</div></div>"
        )
    return cells
