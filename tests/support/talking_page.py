"""A page that talks, without a browser: a WebSocket to a relay; it plays the received audio in real time."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest
import websocket

from .slowness import GUARD

RATE = 16_000
FRAME = 640  # bytes of 20 ms


class TalkingPage:
    """A page that talks. A thread of it receives, and reports audio as played after the time that playing takes.

    Attributes:
        events: the received events, in order: names, data and ids.
        audio: bytes of the bot's audio.
        rate: of this audio; None before the first.
        plays: whether it plays the audio, and reports it.
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
        self.plays = plays
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
        with contextlib.suppress(OSError, websocket.WebSocketException):
            self._socket.close(timeout=1)
        self._socket.shutdown()
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
                if self.plays:
                    self._played = min(self._seconds, self._played + now - last)
                last, played = now, self._played
            try:
                self.send({"type": "played", "seconds": played})
            except (OSError, websocket.WebSocketException):
                return


class Talker:
    """A browser with cookies of its own, whose pages talk."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx.Client(
            base_url=url, headers={"Sec-Fetch-Site": "same-origin"}, timeout=GUARD, trust_env=False
        )
        self.pages: list[TalkingPage] = []

    @property
    def cookie(self) -> str:
        return "; ".join(f"{name}={value}" for name, value in self.http.cookies.items())

    def start(self) -> None:
        """Start a session, and wait until the bot is ready."""
        self.http.get("/")
        answer = self.http.post("/bot/session", json={})
        if answer.status_code == 428:  # this answer has the cookie
            answer = self.http.post("/bot/session", json={})
        assert answer.status_code == 201, answer.text
        give_up = time.monotonic() + GUARD
        while (told := self.http.get("/bot/session").json()) != {"state": "ready"}:
            assert "state" in told, told
            assert time.monotonic() < give_up, told
            threading.Event().wait(0.005)

    def open(self, **options: Any) -> TalkingPage:
        """Open a page, which is closed with the test."""
        self.pages.append(TalkingPage(self.url, self.cookie, **options))
        return self.pages[-1]

    def talk(self, **options: Any) -> TalkingPage:
        """Start a session, and open a page that the bot is ready for."""
        self.start()
        page = self.open(**options)
        page.wait_for_event("botReady")
        return page

    def close(self) -> None:
        for page in self.pages:
            page.close()
        self.http.close()


def speech(seconds: float, seed: int = 1) -> bytes:
    """Return noise that counts as speech, of which no two parts are the same."""
    noise = random.Random(seed)
    return b"".join(
        noise.randrange(-6000, 6000).to_bytes(2, "little", signed=True) for _ in range(int(16_000 * seconds))
    )


def share_of(said: bytes, heard: bytes) -> float:
    """Return the share of the frames of `said` that are in the heard audio."""
    frames = [said[begin : begin + FRAME // 2] for begin in range(0, len(said), FRAME // 2)]
    return sum(frame in heard for frame in frames) / len(frames)


def names_of(page: TalkingPage) -> list[str]:
    """Return the names of the events that a page was told."""
    return [event["event"] for event in page.events]


def connect(user: Talker, cookie: str | None = None, **options: Any) -> websocket.WebSocket:
    """Open a WebSocket as a page does, without any message."""
    return websocket.create_connection(
        user.url.replace("http", "ws", 1) + "/bot/voice",
        timeout=GUARD,
        cookie=user.cookie if cookie is None else cookie,
        **options,
    )


def refusal_of(user: Talker, cookie: str | None = None, **options: Any) -> tuple[int, str]:
    """Open a page that is refused before the upgrade; return the status and the error."""
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        connect(user, cookie, **options)
    return refused.value.status_code, json.loads(refused.value.resp_body or b"")["error"]


def code_of(connection: websocket.WebSocket) -> int:
    """Read until the connection is closed; return the code."""
    try:
        while True:
            opcode, data = connection.recv_data()
            if opcode == websocket.ABNF.OPCODE_CLOSE:
                return int.from_bytes(data[:2], "big")
    finally:
        connection.shutdown()
