"""client-js with its WebSocket transport, as a page has it: in Chromium, without a window and without devices.

The environment of this peer holds the file that `run.py bench` makes of `page.js` and the packages of `package.json`.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from playwright.sync_api import CDPSession, Page, sync_playwright

from ...scenarios.figures import spread
from ...server import Command
from ...server_frames import FRAME_BYTES, FRAMES_PER_SECOND
from ..base import FRAME, LIMIT, Peer

_SCRIPT = Path(sys.prefix) / "page/bundle.js"
# Sound is sent in lots, because a client may keep no more than a second.
_LOT = 50
_ARGUMENTS = (
    "--no-sandbox",  # which is not to be had for root, who measures in containers
    "--autoplay-policy=no-user-gesture-required",  # no click comes before the sound
    "--use-fake-device-for-media-stream",
)
_OF_THE_BROWSER = "the process is that of the browser"
_ONE_THREAD = "all of a page runs on its main thread"


class _Handler(BaseHTTPRequestHandler):
    """Serves the page from this machine: pages from elsewhere may not connect to it."""

    def do_GET(self) -> None:
        script = _SCRIPT.read_bytes() if self.path == "/bundle.js" else b""
        self.send_response(200)
        self.send_header("Content-Type", "text/javascript" if script else "text/html; charset=utf-8")
        # A page that shares nothing with others has a clock of 5 µs instead of 100.
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        self.end_headers()
        self.wfile.write(script or b"<!doctype html><title>client-js</title><script src=/bundle.js></script>")

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class _Browser:
    """The page of this process, in a browser of its own."""

    def __init__(self) -> None:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        playwright = sync_playwright().start()
        atexit.register(playwright.stop)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=_ARGUMENTS)
        self.page: Page = browser.new_page(permissions=["microphone"])
        self.page.set_default_timeout(LIMIT * 1e3)
        self.page.goto(f"http://127.0.0.1:{server.server_port}/")
        self._session: CDPSession = browser.new_browser_cdp_session()
        metrics = self.page.context.new_cdp_session(self.page)
        metrics.send("Performance.enable")
        found = {each["name"]: each["value"] for each in metrics.send("Performance.getMetrics")["metrics"]}
        #: What `time.monotonic()` was at the zero of the page's clock.
        self.zero: float = found["NavigationStart"]

    def cpu_seconds(self) -> float:
        """Return the CPU time of all processes of the browser."""
        processes = self._session.send("SystemInfo.getProcessInfo")["processInfo"]
        return float(sum(process["cpuTime"] for process in processes))


_browser: Callable[[], _Browser] = functools.cache(_Browser)


class ClientJs(Peer):
    """One client of the page; events go to a callback there."""

    cannot: ClassVar = {
        "busy-event": _ONE_THREAD,
        "busy-request": _ONE_THREAD,
        "import": _OF_THE_BROWSER,
        "quiet": _OF_THE_BROWSER,
    }

    def __init__(self, url: str, on_event: Callable[[str], object] = str, **options: Any) -> None:
        super().__init__(url, on_event, **options)
        self.browser = _browser()
        self._index = self.open()

    @classmethod
    def prepare(cls) -> None:
        """Start the browser."""
        _browser()

    def open(self) -> int:
        """Make a session in the page, and return its number."""
        words = [self.url, {"talking": self.talking, "hearing": self.hearing}]
        index: int = self.browser.page.evaluate("(words) => open_session(...words)", words)
        return index

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the page's session."""
        return self.browser.page.evaluate("(words) => call(...words)", [self._index, method, *arguments])

    def connect(self, timeout: float = LIMIT) -> None:
        self.call("connect", timeout)

    def request(self, command: str, data: Any = None, timeout: float = LIMIT) -> Any:
        return self.call("request", command, data, timeout)

    def send_audio(self, pcm: bytes) -> None:
        assert len(pcm) == len(FRAME)
        self.call("send", 1)

    @property
    def heard_bytes(self) -> int:
        heard: int = self.call("heardBytes")
        return heard

    def close(self) -> None:
        self.call("close")

    def seconds(self, method: str, *arguments: Any) -> float:
        taken: float = self.call("seconds", method, *arguments)
        return taken


def _latency(url: str, effort: float, *, rate: float, seconds: float) -> dict[str, float]:
    client = ClientJs(url)
    client.connect()
    arrivals = client.call("events", max(10, round(rate * seconds * effort)), rate)
    client.close()
    ages = [client.browser.zero + at / 1e3 - float(stamp) for stamp, at in arrivals]
    return spread(ages[len(ages) // 20 :], "us", 1e6)


def _events(url: str, effort: float) -> dict[str, float]:
    client = ClientJs(url)
    client.connect()
    client.call("events", 500, 0)
    spent = client.browser.cpu_seconds()
    arrivals = client.call("events", max(3_000, round(6_000 * effort)), 0)
    spent = client.browser.cpu_seconds() - spent
    client.close()
    taken = (arrivals[-1][1] - arrivals[0][1]) / 1e3
    return {"per_second": (len(arrivals) - 1) / taken, "cpu_us": spent / len(arrivals) * 1e6}


def _audio_down(url: str, effort: float) -> dict[str, float]:
    client = ClientJs(url, hearing=True)
    client.connect()
    number = max(100, round(5_000 * effort))
    client.call("down", 500)
    taken = client.call("down", number)
    heard, sent = client.heard_bytes, (500 + number) * FRAME_BYTES
    client.close()
    if heard != sent:
        raise RuntimeError(f"{heard} bytes of {sent} were heard")
    return {"per_second": number / taken}


def _audio_up(url: str, effort: float) -> dict[str, float]:
    client = ClientJs(url)
    client.connect()
    lots = max(5, round(50 * effort))
    for _ in range(5):
        client.call("up", _LOT)
    taken, spent = 0.0, client.browser.cpu_seconds()
    for _ in range(lots):
        begun, heard = client.call("up", _LOT)
        if heard["frames"] != _LOT:
            raise RuntimeError(f"{heard['frames']} frames of {_LOT} were heard")
        taken += heard["last"] - client.browser.zero - begun / 1e3
    spent = client.browser.cpu_seconds() - spent
    client.close()
    return {"per_second": lots * _LOT / taken, "cpu_us": spent / lots / _LOT * 1e6}


def _minute(url: str, effort: float) -> dict[str, float]:
    client = ClientJs(f"{url}?audio={FRAMES_PER_SECOND}&events=5", talking=True, hearing=True)
    client.connect()
    client.browser.page.wait_for_timeout(500)
    begun, spent = time.perf_counter(), client.browser.cpu_seconds()
    client.browser.page.wait_for_timeout(max(1.0, 12 * effort) * 1e3)
    spent, taken = client.browser.cpu_seconds() - spent, time.perf_counter() - begun
    heard = client.request(Command.HEARD)["frames"]
    client.close()
    if heard < taken * FRAMES_PER_SECOND * 0.9:
        raise RuntimeError(f"{heard} frames were heard in {taken:.1f} s")
    return {"cpu_seconds": spent / taken * 60}


ClientJs.own = {
    "latency-idle": partial(_latency, rate=2, seconds=15),
    "latency-50": partial(_latency, rate=50, seconds=6),
    "latency-1000": partial(_latency, rate=1000, seconds=4),
    "events": _events,
    "audio-down": _audio_down,
    "audio-up": _audio_up,
    "minute": _minute,
}
