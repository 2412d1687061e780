"""A page that talks, without a browser: a WebSocket to a relay, which plays what it receives in real time."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import websocket

from .slowness import GUARD

RATE = 16_000
FRAME = 640  # bytes of 20 ms


class TalkingPage:
    """A page that talks. A thread of it receives, and answers that what it got is played after as long as that takes.

    Attributes:
        events: what it was told, in order: names, data and ids.
        audio: bytes of the bot's audio.
        rate: of this audio; None before the first.
        code: with which it was closed; None while it is open, 1006 if without a code.
    """

    def __init__(
        self,
        url: str,
        cookie: str,
        *,
        after: str = "",
        start: object = None,
        headers: Mapping[str, str] | None = None,
        plays: bool = True,
    ) -> None:
        self.events: list[dict[str, Any]] = []
        self.audio = bytearray()
        self.rate: int | None = None
        self.code: int | None = None
        self._plays = plays
        self._seconds = self._played = 0.0
        self._changed = threading.Condition()
        self._socket = websocket.create_connection(
            url.replace("http", "ws", 1) + "/bot/voice", timeout=GUARD, cookie=cookie, header=dict(headers or {})
        )
        self.send(start or {"type": "start", "sample_rate_hz": RATE, "after": after})
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._receive, self._report)]
        for thread in self._threads:
            thread.start()

    @property
    def last_id(self) -> str:
        """Return the id of the last event that has one."""
        return next((event["id"] for event in reversed(self.events) if "id" in event), "")

    def send(self, message: Any) -> None:
        """Send JSON, text as it is, or audio."""
        if isinstance(message, bytes):
            self._socket.send_binary(message)
        else:
            self._socket.send(message if isinstance(message, str) else json.dumps(message))

    def say(self, pcm: bytes) -> None:
        """Send audio in real time."""
        begun = time.monotonic()
        for number, begin in enumerate(range(0, len(pcm), FRAME)):
            threading.Event().wait(max(0.0, begun + number * 0.02 - time.monotonic()))
            self.send(pcm[begin : begin + FRAME])

    def wait_for(self, condition: Callable[[TalkingPage], object]) -> None:
        """Wait until something is true of the page."""
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), GUARD), (self.events, len(self.audio), self.code)

    def wait_for_event(self, name: str, where: Callable[[Any], bool] = lambda _: True) -> dict[str, Any]:
        """Wait for the first event of a name for whose data `where` is true."""

        def found() -> list[dict[str, Any]]:
            return [event for event in self.events if event["event"] == name and where(event["data"])]

        self.wait_for(lambda _: found())
        return found()[0]

    def closed(self) -> int:
        """Wait until the page was closed; return the code."""
        self.wait_for(lambda page: page.code is not None)
        assert self.code is not None
        return self.code

    def close(self) -> None:
        """Close the page, as a browser does that leaves it."""
        self._socket.close(timeout=1)
        for thread in self._threads:
            thread.join(GUARD)

    def cut(self) -> None:
        """Cut the connection."""
        self._socket.shutdown()

    def _receive(self) -> None:
        code = 1006
        try:
            while True:
                opcode, data = self._socket.recv_data()
                if opcode == websocket.ABNF.OPCODE_CLOSE:
                    code = int.from_bytes(data[:2], "big") if data else 1005
                    break
                with self._changed:
                    self._take(opcode, data)
                    self._changed.notify_all()
        except (OSError, websocket.WebSocketException):
            pass
        with self._changed:
            self.code = code
            self._changed.notify_all()

    def _take(self, opcode: int, data: bytes) -> None:
        if opcode == websocket.ABNF.OPCODE_BINARY:
            assert self.rate is not None
            self.audio += data
            self._seconds += len(data) / (2 * self.rate)
            return
        event = json.loads(data)
        self.events.append(event)
        if event["event"] == "voiceFormat":
            self.rate = event["data"]["sample_rate_hz"]
        elif event["event"] == "voiceClear":
            self._played = self._seconds

    def _report(self) -> None:
        """Play in real time, and say how much each 100 ms."""
        last = time.monotonic()
        while self.code is None:
            with self._changed:
                self._changed.wait(0.1)
                now = time.monotonic()
                if self._plays:
                    self._played = min(self._seconds, self._played + now - last)
                last, played = now, self._played
            try:
                self.send({"type": "played", "seconds": played})
            except (OSError, websocket.WebSocketException):
                return
