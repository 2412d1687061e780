"""Limits of a page that talks, and how the server enforces them."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import Any

import pytest
import websocket

from rtvi_sync import RTVIMessage, WebSocketTransport
from rtvi_sync.testing import EmbeddedBot
from tests.support import limits
from tests.support.slowness import GUARD
from tests.support.talking_page import (
    RATE,
    code_of,
    connect,
    refusal_of,
    speech,
)

from .talking import START, Serve

#: A message of 60 kB.
PADDED = json.dumps({"type": "played", "seconds": 0}) + 60_000 * " "


def test_a_page_that_is_silent(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that says nothing counts as gone, and is closed."""
    limits.patch(monkeypatch, page_silence=0.5)
    user = serve().user()
    user.start()
    connection = connect(user)
    connection.send(START)
    assert code_of(connection) == 1013
    connection = connect(user)  # not even the first message
    assert code_of(connection) == 1013


def test_a_page_that_reads_nothing(serve: Serve, bot: EmbeddedBot, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that reads nothing is closed, and the session continues for the user's next page."""
    user = serve().user()
    user.start()
    session = bot.wait_for_session()
    with monkeypatch.context() as patch:  # for this page alone: a slow machine needs more for the next one
        limits.patch(patch, page_socket=0.5)
        connection = connect(user, sockopt=[(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)])
    connection.send(START)
    for number in range(200):
        session.send({"label": "rtvi-ai", "type": "server-message", "data": f"{number}" + 100_000 * "x"})
    with contextlib.suppress(OSError, websocket.WebSocketException):
        for _ in range(int(GUARD / 0.01)):
            connection.send(json.dumps({"type": "played", "seconds": 0}))
            threading.Event().wait(0.01)
        raise AssertionError("the page was not given up")
    connection.shutdown()
    user.open().wait_for_event("relayGap")
    assert session.ended is None


class SlowTransport(WebSocketTransport):
    """A transport that sends a text when `may_send` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_sending = threading.Event()
        self.may_send = threading.Event()

    def send_message(self, message: RTVIMessage) -> None:
        if message.type == "send-text":
            self.is_sending.set()
            assert self.may_send.wait(GUARD)
        super().send_message(message)


def test_messages_that_wait(serve: Serve, bot: EmbeddedBot) -> None:
    """While a message is handled, 1 MiB of later ones may wait; a page that sends more is cut off."""
    transport = SlowTransport()
    user = serve({"transport": transport}).user()
    page = user.talk()
    page.send({"type": "text", "text": "First"})
    assert transport.is_sending.wait(GUARD)
    for _ in range(10):
        page.send(PADDED)
    transport.may_send.set()
    page.send({"type": "text", "text": "Second"})
    page.wait_for_event("relayText", lambda data: data["text"] == "Second")
    assert page.code is None
    transport.is_sending.clear()
    transport.may_send.clear()
    page.send({"type": "text", "text": "Third"})
    assert transport.is_sending.wait(GUARD)
    with contextlib.suppress(OSError, websocket.WebSocketException):
        for _ in range(100):
            page.send(PADDED)
    assert page.closed() == 1006  # before the text was sent
    transport.may_send.set()
    user.open(after=page.last_id).wait_for_event("relayText", lambda data: data["text"] == "Third")
    assert bot.wait_for_session().ended is None


@pytest.mark.parametrize(
    ("start", "code"),
    [
        ({"type": "start", "sample_rate_hz": 48_000, "after": ""}, 1007),
        ({"type": "start", "sample_rate_hz": "16000", "after": ""}, 1007),
        ({"type": "start", "sample_rate_hz": RATE, "after": 5}, 1008),
        ({"type": "played", "seconds": 0}, 1008),
        ("[]", 1008),
        ("{", 1008),
        (b"\0\0" * 320, 1008),
    ],
    ids=str,
)
def test_a_wrong_beginning(serve: Serve, start: Any, code: int) -> None:
    """The page is closed, and does not take the voice."""
    user = serve().user()
    page = user.talk()
    assert user.open(start=start).closed() == code
    page.send({"type": "text", "text": "Hello!"})
    page.wait_for_event("relayText")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"\0", 1007),
        (b"\0" * 641, 1007),
        (b"", 1007),
        (b"\0" * 6402, 1009),
        ("nonsense", 1008),
        ("[1]", 1008),
        ("[" * 60_000, 1008),
        ('{"type": "played", "seconds": NaN}', 1008),
        ('{"type": "played", "seconds": 1e999}', 1008),
        ('{"type": "played", "seconds": -1}', 1008),
        ('{"type": "played", "seconds": true}', 1008),
        ('{"type": "played"}', 1008),
        ('{"type": "start", "sample_rate_hz": 16000}', 1008),
        ('{"type": ["end"]}', 1008),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_message(
    serve: Serve,
    bot: EmbeddedBot,
    caplog: pytest.LogCaptureFixture,
    message: Any,
    code: int,
) -> None:
    """A wrong message closes only its page: the session continues, and the log stays empty."""
    page = serve().user().talk()
    page.send(message)
    assert page.closed() == code
    assert bot.wait_for_session().ended is None
    assert [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


def test_numbers_that_lie(serve: Serve) -> None:
    """For any playback position from a page, the server counts no less than before and no more than it sent."""
    page = serve().user().talk(plays=False)
    for seconds in (1e300, 10**400, 0, 5e-324):
        page.send(json.dumps({"type": "played", "seconds": seconds}))
    page.send({"type": "text", "text": "Hello!"})
    page.wait_for_event("botStoppedSpeaking")
    assert page.code is None


def test_the_reason_of_a_refusal(serve: Serve) -> None:
    """The session tells a page, which cannot read the refusal of its handshake, why it was refused."""
    user = serve(max_streams=1).user()
    page = user.talk()
    assert refusal_of(user) == (429, "too_many_pages")
    assert user.http.get("/bot/session").json() == {"state": "ready", "refused": "too_many_pages"}
    assert user.http.get("/bot/voice").json()["error"] == "not_websocket"  # as behind a proxy that passes none on
    assert user.http.post("/bot/session", json={}).json() == {"state": "ready", "refused": "not_websocket"}
    page.close()
    user.open().wait_for_event("botReady")
    assert user.http.get("/bot/session").json() == {"state": "ready"}


@pytest.mark.parametrize("text", ["", " ", 5, "\ud800"], ids=ascii)
def test_text_that_is_not_sent(serve: Serve, text: Any) -> None:
    """A page whose text is not sent gets the reason, and continues."""
    page = serve().user().talk()
    page.send({"type": "text", "text": text})
    assert page.wait_for_event("voiceRefused")["data"]["error"] == "bad_request"
    assert page.code is None


def test_text_before_the_bot_is_ready(serve: Serve) -> None:
    """Text is refused until the bot is ready, and audio is dropped."""
    with EmbeddedBot(ready=False) as bot:
        user = serve(to=bot).user()
        user.http.get("/")
        assert user.http.post("/bot/session", json={}).status_code == 201
        page = user.open()
        page.send({"type": "text", "text": "Hello?"})
        assert page.wait_for_event("voiceRefused")["data"]["error"] == "not_ready"
        page.say(speech(0.1))
        assert page.code is None
