"""client-js as a page has it: in Chromium, without a window and without devices.

The environment of this peer holds the file that `run.py bench` makes of `page.js` and the packages of `package.json`.
"""

from __future__ import annotations

import abc
import atexit
import functools
import shutil
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import CDPSession, Page, sync_playwright

from ..base import LIMIT, Peer

_SCRIPT = Path(sys.prefix) / "page/bundle.js"
_ARGUMENTS = (
    "--no-sandbox",  # which is not to be had for root, who measures in containers
    "--autoplay-policy=no-user-gesture-required",  # the page plays sound without a click
    "--use-fake-device-for-media-stream",
)


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
        #: The value of `time.monotonic()` at the zero of the page's clock.
        self.zero: float = found["NavigationStart"]

    def cpu_seconds(self) -> float:
        """Return the CPU time of all processes of the browser."""
        processes = self._session.send("SystemInfo.getProcessInfo")["processInfo"]
        return float(sum(process["cpuTime"] for process in processes))


_browser: Callable[[], _Browser] = functools.cache(_Browser)


class ClientJs(Peer):
    """One client of the page."""

    def __init__(self, url: str, on_event: Callable[[str], object] = str, **options: Any) -> None:
        super().__init__(url, on_event, **options)
        self.browser = _browser()
        self._index = self.open()

    @abc.abstractmethod
    def open(self) -> int:
        """Make a session in the page, and return its number."""

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the page's session."""
        return self.browser.page.evaluate("(words) => call(...words)", [self._index, method, *arguments])

    def connect(self, timeout: float = LIMIT) -> None:
        self.call("connect", timeout)

    def request(self, command: str, data: Any = None, timeout: float = LIMIT) -> Any:
        return self.call("request", command, data, timeout)

    def send_audio(self, pcm: bytes) -> None:
        raise NotImplementedError  # the microphone is the page's own

    @property
    def heard_bytes(self) -> int:
        raise NotImplementedError  # as is the player

    def close(self) -> None:
        self.call("close")
