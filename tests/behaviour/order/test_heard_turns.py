"""Turns over a transport that carries no messages: their words are the result of `transcribe`, or unknown."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import DisconnectedError, ExpectationError, Recording, RequestTimeoutError, Turn
from tests.support.by_ear import QUESTION, EarTransport, ear_client
from tests.support.scripted_talk import RATE
from tests.support.slowness import GUARD
from tests.support.threads import InThread
from tests.support.waiting import until


def seconds_said(pcm: bytes, sample_rate_hz: int) -> str:
    """Transcribe audio: how long it is."""
    return f"{len(pcm) / 2 / sample_rate_hz:.1f} s were said"


def texts_of(turn: Turn) -> tuple[str | None, ...]:
    return turn.user_text, turn.bot_text, turn.spoken_text


def test_no_one_knows_the_words() -> None:
    """The texts are None; all audio is there."""
    with ear_client() as client:
        turn = client.ask(QUESTION, GUARD)
        assert client.turns() == (turn,)
    assert texts_of(turn) == (None, None, None)
    assert (turn.status, turn.modality, turn.function_calls, turn.spoken_exact) == ("complete", "audio", (), None)
    assert turn.audio.seconds == pytest.approx(0.3)
    assert turn.voice_to_voice is not None
    assert "None" in repr(turn)
    assert "None" not in "".join(entry.text for entry in turn.timeline)


@pytest.mark.parametrize("events", ["thread", "manual"])
def test_a_transcript(events: Any) -> None:
    """The function's result is the bot's words, for ask(), for listen(), for handlers and for turns()."""
    ended: list[Turn] = []
    transport = EarTransport(seconds_said, answers=(0.3, 0.5), greeting=0.1)
    with ear_client(transport, events=events) as client:
        client.on("turn_ended", ended.append)
        assert texts_of(client.listen(GUARD)) == (None, "0.1 s were said", "0.1 s were said")
        assert client.ask(QUESTION, GUARD).bot_text == "0.3 s were said"
        assert client.ask(QUESTION, GUARD).spoken_text == "0.5 s were said"
        assert [turn.bot_text for turn in client.turns()] == [f"0.{n} s were said" for n in (1, 3, 5)]
        if events == "manual":
            client.process_events(0)
        assert [turn.bot_text for turn in ended[-2:]] == ["0.3 s were said", "0.5 s were said"]


def test_a_greeting_before_turns_are_used() -> None:
    """The greeting has its words when turns are used a little later."""
    transport = EarTransport(seconds_said, greeting=0.2)
    with ear_client(transport) as client:
        assert client.listen(GUARD).bot_text == "0.2 s were said"


def test_nothing_is_transcribed_for_no_one() -> None:
    """Without a call or a handler that uses turns the function is not called."""
    calls: list[int] = []

    def counted(pcm: bytes, _rate: int) -> str:
        calls.append(len(pcm))
        return "x"

    transport = EarTransport(counted, greeting=0.2)
    with ear_client(transport) as client, client.events("bot_stopped_speaking", timeout=GUARD) as events:
        transport.say(0.1)
        next(events)
    assert calls == []


def test_where_it_runs() -> None:
    """The function does not block events or messages; its turn is in progress until it returns."""
    entered, go = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def slow(_pcm: bytes, _rate: int) -> str:
        threads.append(threading.current_thread())
        entered.set()
        go.wait(GUARD)
        return "at last"

    transport = EarTransport(slow)
    with ear_client(transport) as client:
        asking = InThread(lambda: client.ask(QUESTION, GUARD))
        assert entered.wait(GUARD)
        with client.events("bot_started_speaking", timeout=GUARD) as events:
            transport.say(0.1)
            next(events)
        (turn, _) = client.turns()
        assert (turn.status, turn.bot_text, turn.timings.ended) == ("in_progress", None, None)
        go.set()
        assert asking.get().bot_text == "at last"
        assert client.listen(GUARD).bot_text == "at last"
    assert threading.main_thread() not in threads
    assert {thread.name.rsplit("-", 1)[0] for thread in threads} == {"rtvi-worker"}


def test_ask_does_not_wait_for_it_longer_than_its_limit(caplog: pytest.LogCaptureFixture) -> None:
    """ask() raises in time, and names the part it waits for. The session ends without the words."""
    go = threading.Event()
    transport = EarTransport(lambda *_: str(go.wait(GUARD)))
    with ear_client(transport) as client:
        ended: list[Turn] = []
        client.on("turn_ended", ended.append)
        first = InThread(lambda: client.ask(QUESTION, 3.0))
        with pytest.raises(RequestTimeoutError, match="`transcribe` has not returned") as raised:
            first.get()
        assert raised.value.turn is not None
        assert raised.value.turn.bot_text is None
    assert [(turn.status, turn.bot_text) for turn in ended] == [("complete", None)]
    assert "does not return in time" in caplog.text
    go.set()


@pytest.mark.parametrize(
    ("transcribe", "logged"),
    [
        (lambda *_: 1 / 0, "ZeroDivisionError"),
        (lambda *_: exec("raise SystemExit"), "SystemExit"),
        (lambda *_: None, "must return a str, and has returned None"),
        (lambda *_: b"x", "must return a str"),
    ],
)
def test_a_function_that_fails(transcribe: Callable[..., Any], logged: str, caplog: pytest.LogCaptureFixture) -> None:
    """The failure is logged, and the words are not known."""
    with ear_client(EarTransport(transcribe)) as client:
        assert texts_of(client.ask(QUESTION, GUARD)) == (None, None, None)
        assert client.ask(QUESTION, GUARD).status == "complete"
    assert logged in caplog.text


def test_a_bot_that_hangs_up_after_its_answer() -> None:
    """The answer has its words, and the end follows it."""
    order: list[str] = []

    class HangsUp(EarTransport):
        def say(self, seconds: float) -> None:
            super().say(seconds)
            self.end()

    go = threading.Event()

    def slow(_pcm: bytes, _rate: int) -> str:
        go.wait(0.2)
        return "bye"

    with ear_client(HangsUp(slow)) as client:
        client.on("turn_ended", lambda turn: order.append(str(turn.bot_text)))
        client.on("disconnected", lambda: order.append("disconnected"))
        assert client.ask(QUESTION, GUARD).bot_text == "bye"
        until(lambda: len(order) == 2)
    assert order == ["bye", "disconnected"]


def test_an_interrupted_answer() -> None:
    """The words of the answer are those that were heard until then."""
    transport = EarTransport(seconds_said, answers=(0,))
    with ear_client(transport) as client:
        asking = InThread(lambda: client.ask(QUESTION, GUARD))
        until(lambda: any(turn.timings.user_stopped_reported for turn in client.turns()))
        transport.tell("bot-started-speaking")
        transport.receive_audio(b"\0\x10" * (RATE // 5), RATE)
        transport.tell("bot-interrupted")
        turn = asking.get()
    assert (turn.status, turn.bot_text) == ("interrupted", "0.2 s were said")


def test_barge_in() -> None:
    """The interrupted answer and the answer to the interruption are turns of their own."""
    transport = EarTransport(seconds_said, answers=(0, 0.5))
    with ear_client(transport) as client:
        second = client.barge_in(QUESTION)
        asking = InThread(lambda: client.ask(QUESTION, GUARD))
        until(lambda: any(turn.timings.user_stopped_reported for turn in client.turns()))
        transport.begin(0.2)
        first = asking.get()
        assert (first.status, first.bot_text) == ("interrupted", "0.2 s were said")
        assert (second.result(GUARD).status, second.result().bot_text) == ("complete", "0.5 s were said")


def test_text_of_any_length_is_cut() -> None:
    """A turn keeps 100,000 characters."""
    with ear_client(EarTransport(lambda *_: "x" * 200_000)) as client:
        assert len(client.ask(QUESTION, GUARD).bot_text or "") == 100_000


# -- expectations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "demand",
    [
        {"contains": "x"},
        {"matches": "x"},
        {"matches": ""},
        {"excludes": "x"},
        {"calls": ["get"]},
        {"absent_calls": ["get"]},
    ],
    ids=str,
)
def test_what_is_not_judged(demand: dict[str, Any]) -> None:
    """An expectation about unknown data is never met, whether it asks for words and calls or for their absence."""
    with ear_client() as client:
        turn = client.ask(QUESTION, GUARD).expect(voice_to_voice=GUARD, first_audio=GUARD)
        with pytest.raises(ExpectationError, match="not known over this transport") as failed:
            turn.expect(**demand)
    assert failed.value.kind == "not_judged"


def test_a_transcript_is_judged() -> None:
    """With a transcript the words are; functions are not."""
    with ear_client(EarTransport(seconds_said)) as client:
        turn = client.ask(QUESTION, GUARD).expect(contains="0.3 s", matches="were", excludes="0.4 s")
        with pytest.raises(ExpectationError) as failed:
            turn.expect(contains="0.4 s")
        assert failed.value.kind == "text_mismatch"
        with pytest.raises(ExpectationError) as failed:
            turn.expect(calls=["get"])
        assert failed.value.kind == "not_judged"


def test_what_is_not_judged_in_time() -> None:
    """Expectations with a time limit follow the same rule; a turn is expected as over any transport."""
    with ear_client(EarTransport(seconds_said)) as client, client.expect(within=GUARD) as expect:
        with pytest.raises(ExpectationError, match="words are not known over this transport") as failed:
            expect.text("x")
        assert failed.value.kind == "not_judged"
        with pytest.raises(ExpectationError, match="calls are not known over this transport") as failed:
            expect.call("get")
        assert failed.value.kind == "not_judged"
        client.ask(QUESTION, GUARD)
        assert expect.turn(contains="0.3 s").bot_text == "0.3 s were said"


# -- recordings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transcribe", [None, seconds_said], ids=["unknown", "transcribed"])
def test_a_recording(transcribe: Callable[[bytes, int], str] | None, tmp_path: Path) -> None:
    """A recording has the same turns: with their words, or without."""
    transport = EarTransport(transcribe, answers=(0.3, 0.5), greeting=0.1)
    client = ear_client(transport)
    with client.record(tmp_path / "a", report=True), client:
        client.listen(GUARD)
        client.ask(QUESTION, GUARD)
        client.ask(QUESTION, GUARD)
        turns = client.turns()
    recording = Recording.load(tmp_path / "a")
    assert [texts_of(turn) for turn in recording.turns()] == [texts_of(turn) for turn in turns]
    assert [turn.status for turn in recording.turns()] == ["complete"] * 3
    assert not any(row.get("dir") == "out" for row in recording.rows if row["kind"] == "message")
    for form in ("html", "vtt", "otlp", "chrome", "conversation"):
        assert "None" not in recording.export(format=form)
    assert recording.report()


@pytest.mark.parametrize("who", ["bot", "user"])
def test_a_recording_of_the_last_words(who: str, tmp_path: Path) -> None:
    """The words of an answer that ends with the session are recorded, too."""

    class HangsUp(EarTransport):
        def say(self, seconds: float) -> None:
            if who == "bot":
                super().say(seconds)
                self.end()
            else:
                self.begin(seconds)

    client = ear_client(HangsUp(seconds_said))
    if who == "user":
        client.on("bot_started_speaking", client.disconnect)
    with client.record(tmp_path / "a"), client:
        with contextlib.suppress(DisconnectedError):
            client.ask(QUESTION, GUARD)
        until(lambda: not client.connected)
    (turn,) = client.turns()
    (recorded,) = Recording.load(tmp_path / "a").turns()
    assert turn.bot_text is not None
    assert (recorded.bot_text, recorded.status) == (turn.bot_text, turn.status)


def test_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is logged of a session that goes well."""
    with caplog.at_level(logging.INFO, "rtvi_sync"), ear_client(EarTransport(seconds_said)) as client:
        client.ask(QUESTION, GUARD)
    assert caplog.records == []
