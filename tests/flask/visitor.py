"""A user of the sample's page in a real Chromium, and the sample's real server."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psutil

from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.support.processes import free_port
from tests.support.slowness import GUARD

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Locator, Page

ROOT = Path(__file__).parents[2]
REPORT_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) => console.error("policy: " + event.violatedDirective));
"""
#: Notes each event of the element, in `events`, and the audio that its AudioContext plays, in `heard`: blocks of
#: samples at `rate`. `at` is how many seconds were played before the event. The browser does not process the
#: microphone's audio.
RECORD = """
window.events = [];
window.heard = [];
window.rate = 1;
addEventListener("rtvi-event", ({ detail }) => events.push({ ...detail, at: heard.length * 128 / rate }));
const media = navigator.mediaDevices, open = media.getUserMedia.bind(media);
media.getUserMedia = () => open({
  audio: { echoCancellation: false, noiseSuppression: false, autoGainControl: false, channelCount: 1 },
});
const RECORDER = `registerProcessor("recorder", class extends AudioWorkletProcessor {
  process([[samples]]) {
    if (samples) this.port.postMessage(Array.from(samples, (each) => Math.round(each * 32767)));
    return true;
  }
});`;
const connect = AudioNode.prototype.connect;
AudioNode.prototype.connect = function (target, ...rest) {
  const { context } = this;
  if (target === context.destination) {
    window.rate = context.sampleRate;
    context.audioWorklet.addModule("data:text/javascript," + encodeURIComponent(RECORDER)).then(() => {
      const recorder = new AudioWorkletNode(context, "recorder");
      recorder.port.onmessage = ({ data }) => heard.push(data);
      connect.call(this, recorder);
      connect.call(recorder, target);
    });
  }
  return connect.call(this, target, ...rest);
};
"""


@contextlib.contextmanager
def sample_page(folder: Path, bot: EmbeddedBot) -> Iterator[tuple[str, psutil.Popen]]:
    """Yield the address of the sample, as `run.py sample flask_app --url ...` starts it, and its process."""
    port = free_port()
    with (folder / "log").open("wb") as log:
        process = psutil.Popen(
            [sys.executable, "-m", "samples.flask_app", "--port", str(port), "--url", bot.ws_url],
            cwd=ROOT,
            env={**os.environ, "XDG_RUNTIME_DIR": str(folder)},
            stdout=log,
            stderr=log,
        )
    try:
        give_up = time.monotonic() + GUARD
        while True:
            with contextlib.suppress(httpx.ConnectError):
                httpx.get(f"http://127.0.0.1:{port}/", trust_env=False)
                break
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < give_up
        yield f"http://127.0.0.1:{port}/", process
    finally:
        process.terminate()
        process.wait(GUARD)


class PageVisitor:
    """Browser user with separate cookies, whose pages must log no errors.

    Args:
        options: of the browser's context.

    Attributes:
        complaints: the errors and warnings that pages have logged.
    """

    def __init__(self, browser: Browser, address: str, bot: EmbeddedBot, **options: Any) -> None:
        self.context: BrowserContext = browser.new_context(**options)
        self.context.set_default_timeout(GUARD * 1000)
        self.context.add_init_script(REPORT_VIOLATIONS)
        self.complaints: list[str] = []
        self._address = address
        self._bot = bot

    def record(self) -> None:
        """Have pages that are opened later record their audio, and note events. It needs `bypass_csp`."""
        self.context.add_init_script(RECORD)

    def open(self) -> Page:
        """Open the page in a new tab."""
        page = self.context.new_page()
        page.on(
            "console", lambda said: self.complaints.append(said.text) if said.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        page.goto(self._address)
        return page

    def talk(self) -> tuple[Page, BotSession]:
        """Open the page and press its button; the page, and the bot's end of its session."""
        page = self.open()
        button(page, "Start talking").click()
        state_becomes(page, "Listening")
        return page, self._bot.wait_for_session()

    def read(self) -> tuple[Page, BotSession]:
        """Open the page and start without the microphone; return the page, and the bot's end of its session."""
        page = self.open()
        page.locator("rtvi-voice").evaluate("element => element.start({ muted: true })")
        state_becomes(page, "Ready")
        return page, self._bot.wait_for_session()

    def write(self, text: str = "Hello") -> tuple[Page, BotSession]:
        """Open the page and write to the bot, which answers; the page, and the bot's end of its session."""
        page = self.open()
        send(page, text)
        page.locator("li.bot").wait_for()
        return page, self._bot.wait_for_session()


def button(page: Page, name: str) -> Locator:
    """Return a button of the page."""
    return page.get_by_role("button", name=name, exact=True)


def send(page: Page, text: str) -> None:
    """Write to the bot."""
    page.get_by_label("Write to the bot").fill(text)
    page.keyboard.press("Enter")


def becomes(page: Page, selector: str, text: str) -> None:
    """Wait until an element of the page has this text."""
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_have_text(text, timeout=GUARD * 1000)


def state_becomes(page: Page, text: str) -> None:
    """Wait until the element has this state."""
    becomes(page, "#state", text)


def notice_becomes(page: Page, text: str) -> None:
    """Wait until the element says this to the user."""
    becomes(page, "#notice > span", text)


def shows(page: Page, *lines: tuple[str, str]) -> None:
    """Wait until the transcript becomes these lines: the class of each, and its text, with the words of its label."""
    from playwright.sync_api import expect

    items = page.locator("rtvi-voice li")
    expect(items).to_have_text([text for _, text in lines], use_inner_text=False)
    assert [item.get_attribute("class") for item in items.all()] == [who for who, _ in lines]


def message(type_: str, **data: Any) -> dict[str, Any]:
    """Return a message of the bot."""
    return {"label": "rtvi-ai", "type": type_, "data": data}
