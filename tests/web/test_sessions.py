"""The session of a user whose pages talk."""

from __future__ import annotations

import contextlib

import websocket

from rtvi_sync.testing import EmbeddedBot
from tests.support.talking_page import (
    connect,
    refusal_of,
    share_of,
    speech,
)

from .talking import PAUSE, Serve


def test_a_page_that_returns(serve: Serve, bot: EmbeddedBot) -> None:
    """A connection that was cut is opened again: the same session, and of the events only those that are missing."""
    user = serve().user()
    page = user.talk()
    last = page.last_id
    page.cut()
    again = user.open(after=last)
    user.http.post("/bot/text", json={"text": "Still there?", "audio_response": False})
    again.wait_for_event("botOutput")
    assert next(event["event"] for event in again.events if "id" in event) == "relayText"
    assert bot.wait_for_session().ended is None


def test_another_page_takes_the_voice(serve: Serve) -> None:
    """The newest page talks and hears; the one before gets the reason, and may take the voice back."""
    user = serve().user()
    first = user.talk()
    second = user.open()
    assert first.closed() == 4001
    said = speech(0.5)
    second.say(said + PAUSE)
    second.wait_for_event("botStoppedSpeaking")
    assert share_of(said, bytes(second.audio)) > 0.8
    assert not first.audio
    third = user.open(after=first.last_id)
    assert second.closed() == 4001
    third.send({"type": "text", "text": "Me again."})
    third.wait_for_event("relayText")


def test_too_many_pages(serve: Serve) -> None:
    """Pages that show the session count together."""
    user = serve(max_streams=1).user()
    user.talk()
    assert refusal_of(user) == (429, "too_many_pages")


def test_a_page_without_a_session(serve: Serve) -> None:
    """No cookie, a forged one, one without a session, and one whose session has ended."""
    site = serve(leave_timeout=0.3, heartbeat_interval=0.1)
    user = site.user()
    assert refusal_of(user) == (404, "no_session")
    user.http.get("/")
    assert refusal_of(user) == (404, "no_session")
    page = user.talk()
    cookie = user.cookie
    assert refusal_of(user, cookie[:-4] + "AAAA") == (404, "no_session")
    page.send({"type": "end"})
    page.closed()
    with contextlib.suppress(websocket.WebSocketBadStatusException):  # its log is kept for a moment
        while True:
            connect(user, cookie).shutdown()
    assert refusal_of(user, cookie) == (410, "ended")
    with serve().app.test_client() as elsewhere:  # signed with the same key, but of another process
        elsewhere.set_cookie("session", user.http.cookies["session"])
        assert elsewhere.get("/bot/voice", headers={"Upgrade": "websocket"}).status_code == 409
