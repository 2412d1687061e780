"""The event stream: what it sends when, to whom who was away, is slow, or comes too often."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from typing import Any

import attrs
import flask
import pytest

from rtvi_sync import RTVIEvent, TransportState, messages
from rtvi_sync.flask import RTVIBlueprint
from rtvi_sync.testing import EmbeddedBot
from rtvi_sync.web.event_log import EventLog, LoggedEvent, Position, as_json
from tests.support import limits
from tests.support.slowness import takes
from tests.support.threads import running

from .browser import User

pytestmark = pytest.mark.inside

Relay = Callable[..., flask.Flask]


def events_in(read: list[LoggedEvent] | None) -> list[Any]:
    """Return the events that were read from a log."""
    assert read is not None
    return [json.loads(event.text) for event in read]


def filled(count: int, *, keep: int = 100) -> EventLog:
    """Return a log with the numbers from 1 to `count`."""
    log = EventLog(keep)
    for number in range(1, count + 1):
        log.add(str(number))
    return log


def test_words_that_are_being_sent() -> None:
    """The words of a send that succeeds precede what arrived during it; those of one that fails do not appear."""
    log = EventLog(100)

    def fail() -> None:
        with log.after("lost"):
            log.add("4")
            raise OSError("refused")

    with log.after("1"):
        log.add("3")
        with pytest.raises(OSError, match="refused"):
            fail()
        with log.after("5"):
            log.add("6")
        assert log.read(Position(), 0.0) == (Position(), [])
    log.add("7")
    position, chunk = log.read(Position(), 0.0)
    assert events_in(chunk) == [1, 3, 4, 5, 6, 7]
    with log.after("9"):
        log.add("8")
        log.close()
    assert events_in(log.read(position, 0.0)[1]) == [8]


def test_a_stream_begins_at_once_and_beats(relay: Relay) -> None:
    """The first part comes without any event, and when nothing happens a comment comes in every interval."""
    user = User(relay(heartbeat_interval=0.1))
    user.start()
    stream = user.stream()
    stream.until("botReady")
    assert stream.comments == 1
    with takes(2.0, at_least=0.25):
        assert [next(stream.parts) for _ in range(3)] == [b":\n\n"] * 3
    stream.close()


def test_a_browser_that_comes_back_misses_nothing(relay: Relay) -> None:
    """With the id that it saw last it is sent what came since, once each; with any other id everything."""
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
    """What the bot says has no character by which HTML begins or ends, not even inside of a script."""
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


def test_a_log_keeps_the_last_events_and_counts_the_others() -> None:
    """A reader who is behind is told how many are gone, then gets the rest; one who is not gets just what is new."""
    log = filled(10, keep=3)
    place, chunk = log.read(Position(), 0)
    assert events_in(chunk) == [{"event": "relayGap", "data": {"missed": 7}}, 8, 9, 10]
    log.add("11")
    place, chunk = log.read(place, 0)
    assert events_in(chunk) == [11]
    for number in (12, 13, 14, 15):
        log.add(str(number))
    assert events_in(log.read(place, 0)[1]) == [{"event": "relayGap", "data": {"missed": 1}}, 13, 14, 15]


def test_a_log_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large events push out more of the others; the newest stays, whatever its size."""
    limits.patch(monkeypatch, event_log=1000)
    log = EventLog(1000)
    for text in ("1", "2", "3" * 980):
        log.add(text)
    assert events_in(log.read(Position(), 0)[1]) == [{"event": "relayGap", "data": {"missed": 2}}, int("3" * 980)]
    log.add("4" * 3000)
    assert events_in(log.read(Position(), 0)[1]) == [{"event": "relayGap", "data": {"missed": 3}}, int("4" * 3000)]
    log.add("5")
    assert events_in(log.read(Position(), 0)[1]) == [{"event": "relayGap", "data": {"missed": 4}}, 5]


def test_of_a_level_the_newest_is_sent() -> None:
    """Of a thousand unread levels one of each kind is kept, and no event is pushed out."""
    log = filled(2, keep=2)
    for value in range(1000):
        log.replace(RTVIEvent.BOT_AUDIO_LEVEL, str(value))
        log.replace(RTVIEvent.USER_AUDIO_LEVEL, str(-value))
    place, chunk = log.read(Position(), 0)
    assert events_in(chunk) == [1, 2, 999, -999]
    log.replace(RTVIEvent.BOT_AUDIO_LEVEL, "1000")
    place, chunk = log.read(place, 0)
    assert chunk == [LoggedEvent("1000")]  # without an id
    assert log.read(place, 0) == (place, [])


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


def test_a_reader_waits_and_is_woken() -> None:
    """A blocked read() returns an event when it arrives, nothing after the timeout, and None after the end."""
    log = EventLog(10)
    assert log.read(Position(), 0.01) == (Position(), [])
    with running(lambda: log.read(Position(), 10.0)) as reading:
        assert reading.goes_on(0.05)
        log.add("1")
        assert events_in(reading.get()[1]) == [1]
    with running(lambda: log.read(Position(1), 10.0)) as reading:
        assert reading.goes_on(0.05)
        log.close()
        assert reading.get() == (Position(1), None)
    log.add("2")
    assert log.read(Position(1), 0) == (Position(1), None)


def test_many_readers_and_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of several streams gets every event of several writers, in one order."""
    log = EventLog(10_000)

    def write(name: int) -> None:
        for number in range(500):
            log.add(f"[{name}, {number}]")

    def read() -> list[Any]:
        place = Position()
        found: list[Any] = []
        while len(found) < 2000:
            place, chunk = log.read(place, 5.0)
            found += events_in(chunk)
        return found

    with running(read) as one, running(read) as other:
        writers = [threading.Thread(target=write, args=(name,)) for name in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        found = one.get()
        assert found == other.get()
    assert [[number for name, number in found if name == who] for who in range(4)] == [list(range(500))] * 4


@attrs.frozen(kw_only=True)
class Odd:
    """A payload with something that is no JSON."""

    error: BaseException
    when: float
    extra: dict[str, Any]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (None, None),
        (TransportState.READY, "ready"),
        ({"a": [1, None, "ü"]}, {"a": [1, None, "ü"]}),
        ([float("nan"), float("inf"), 1.5], [None, None, 1.5]),
        (messages.BotTTSTextData(text="x", extra={"inside": 1}), {"text": "x"}),
        (messages.BotOutputData(text="x", spoken=False), {"text": "x", "spoken": False}),
        (Odd(error=KeyError("secret"), when=float("nan"), extra={}), {"error": None, "when": None}),
        (b"bytes", None),
    ],
)
def test_payloads_as_json(data: Any, told: Any) -> None:
    """The fields that the class knows and that are there; nothing of exceptions; null for what JSON does not have."""
    assert json.loads(as_json("x", data)) == {"event": "x", "data": told}
