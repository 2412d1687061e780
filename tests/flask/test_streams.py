"""The event stream: its contents, for pages that were away, are slow, or reconnect too often."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import flask
import pytest

from rtvi_sync.flask import RTVIBlueprint
from rtvi_sync.testing import EmbeddedBot
from tests.support.slowness import takes
from tests.support.threads import running

from .browser import User

pytestmark = pytest.mark.inside

Relay = Callable[..., flask.Flask]


def test_a_stream_begins_at_once_and_beats(relay: Relay) -> None:
    """The first part arrives without any event; without events a comment follows in every interval."""
    user = User(relay(heartbeat_interval=0.1))
    user.start()
    stream = user.stream()
    stream.until("botReady")
    assert stream.comments == 1
    with takes(2.0, at_least=0.25):
        assert [next(stream.parts) for _ in range(3)] == [b":\n\n"] * 3
    stream.close()


def test_a_browser_that_comes_back_misses_nothing(relay: Relay) -> None:
    """With its last id, the browser gets the later events, once each; with any other id it gets all."""
    user = User(relay())
    user.start()
    user.post("text", {"text": "One. Two. Three.", "audio_response": False})
    stream = user.stream()
    whole = stream.until("botTranscript", lambda said: said["text"] == "Three.")
    stream.close()
    again = user.stream()
    before = again.until("botTranscript", lambda said: said["text"] == "You said: One.")
    again.close()
    rest = user.stream(again.last_id)
    assert before + rest.until("botTranscript", lambda said: said["text"] == "Three.") == whole
    rest.close()
    for strange in ("x", "1", again.last_id + "9" * 30, again.last_id.split(".")[0] + ".-1", "äöü.1", ".", "a.²"):
        stream = user.stream(strange.encode().decode("latin-1"))
        assert stream.until("botTranscript", lambda said: said["text"] == "Three.") == whole
        stream.close()


def test_a_stream_is_renewed(relay: Relay, bot: EmbeddedBot) -> None:
    """A stream ends after its lifetime, can be opened again, and leaves the session as it is."""
    user = User(relay(heartbeat_interval=0.05, leave_timeout=120.0, stream_lifetime=0.2))
    user.start()
    stream = user.stream()
    with takes(2.0, at_least=0.15):
        assert [each["event"] for each in stream][-1] == "botReady"
    again = user.stream(stream.last_id)
    next(again.parts)
    assert next(again.parts) == b":\n\n"
    again.close()
    assert bot.wait_for_session().ended is None


def test_a_signal_ends_the_streams(relay: Relay, bot: EmbeddedBot) -> None:
    """A signal ends the streams at their next heartbeat and runs its previous handler; the session is not ended."""
    heard = []
    app = relay(heartbeat_interval=0.1)
    user = User(app)
    user.start()
    stream = user.stream()
    blueprint = app.blueprints["rtvi"]
    assert isinstance(blueprint, RTVIBlueprint)
    first = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        blueprint.end_streams_on(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR1)
        assert [each["event"] for each in stream][-1:] in ([], ["botReady"])
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        blueprint.end_streams_on(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR1)
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, first)
    assert heard == [signal.SIGUSR1]
    assert bot.wait_for_session().ended is None


def test_too_many_pages_of_one_user(relay: Relay) -> None:
    """One page too many is refused; a page that was closed, read or not, makes room; HEAD takes none."""
    user = User(relay(max_streams=2))
    user.start()
    for _ in range(3):
        user.http.head("/bot/events", headers=user.headers).close()
        user.stream().close()
    one, two = user.stream(), user.stream()
    refused = user.get("events")
    assert (refused.status_code, refused.get_json()["error"]) == (429, "too_many_pages")
    one.until("botReady")
    one.close()
    user.stream().close()
    two.close()


def test_a_page_that_is_gone_makes_room_at_once(relay: Relay) -> None:
    """An extra heartbeat, which cannot be written to the closed page, frees its slot for the new stream."""
    user = User(relay(max_streams=2, heartbeat_interval=60.0, leave_timeout=70.0))
    user.start()
    stays, gone = user.stream(), user.stream()
    gone.until("botReady")

    def serve() -> list[bytes]:
        """Serve as a server does whose second write into a closed connection fails."""
        parts = [next(gone.parts) for _ in range(2)]
        gone.close()
        return parts

    with running(serve) as server:
        with takes(5.0):
            user.stream().close()
        assert server.get() == [b":\n\n"] * 2
    stays.close()


def test_a_stream_is_closed_once(relay: Relay) -> None:
    """Servers may close a response twice; that makes room for one page, not for two."""
    user = User(relay(max_streams=2))
    user.start()
    one, two = user.stream(), user.stream()
    one.close()
    one.close()
    three = user.stream()
    assert user.get("events").status_code == 429
    for stream in (two, three):
        stream.close()


def test_markup_stays_text(relay: Relay, bot: EmbeddedBot) -> None:
    """The bot's words have no character by which HTML starts or ends, even inside of a script."""
    user = User(relay())
    user.start()
    evil = "<img src=x onerror=alert(1)></script><!--&lt;\u2028\u2029\r\n\ndata: {}\n\nid: 5\nevent: x \ud83d\ude00"
    bot.wait_for_session().send({"label": "rtvi-ai", "type": "bot-transcription", "data": {"text": evil}})
    stream = user.stream()
    chunks: list[bytes] = []
    while b"botTranscript" not in b"".join(chunks):
        chunks.append(next(stream.parts))
    line = next(line for line in b"".join(chunks).split(b"\n") if b"botTranscript" in line)
    assert json.loads(line.removeprefix(b"data: "))["data"]["text"].endswith("\U0001f600")
    assert not set(b"<>&\r\n") & set(line)
    assert line.isascii()
    stream.close()


def test_levels_reach_the_page_if_it_wants_them(relay: Relay, bot: EmbeddedBot) -> None:
    """Levels reach the page as the newest of each kind, beside the events."""
    user = User(relay(events=["bot_audio_level", "server_message"]))
    user.start()
    session = bot.wait_for_session()
    for value in (0.25, 0.5, 0.75):
        session.send({"label": "rtvi-ai", "type": "bot-audio-level", "data": {"value": value}})
    session.send({"label": "rtvi-ai", "type": "server-message", "data": "loud"})
    # One after the other, so that all levels were there before the stream was opened.
    first = user.stream()
    first.until("serverMessage")
    first.close()
    stream = user.stream()
    assert stream.until("botAudioLevel")[-1]["data"] == {"value": 0.75}
    stream.close()
