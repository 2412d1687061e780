"""Questions that fail: each is reported once as a failed answer, for any call that asks and waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import pytest

from rtvi_sync import (
    BotError,
    BotNotReadyError,
    DisconnectedError,
    RequestRejectedError,
    RequestTimeoutError,
    RTVIError,
    UnsupportedFeatureError,
)
from rtvi_sync.media import BytesSource, ToneSource
from rtvi_sync.testing import BotSession, EmbeddedBot, Fault, MeasuredClient, Measurement, run_many
from tests.support import limits
from tests.support.slowness import GUARD
from tests.support.waiting import until
from tests.support.wavs import tone

Reported: TypeAlias = list[tuple[str, str | None]]

# The limit of calls that nothing answers.
SOON = 0.1
ANSWERED: Reported = [("first text", None), ("complete", None)]
TIMED_OUT: Reported = [("first text", "RequestTimeoutError")]


@contextmanager
def talk(**options: Any) -> Iterator[tuple[MeasuredClient, Reported, BotSession]]:
    """Yield a client of a bot, the measured answers with the errors of failed ones, and the session."""
    reported: Reported = []

    def note(done: Measurement) -> None:
        if done.kind == "answer":
            reported.append((done.name, type(done.error).__name__ if done.error else None))

    with EmbeddedBot(**{"replies": "No.", **options}) as bot, MeasuredClient.for_url(bot.ws_url) as client:
        client.on_measurement = note
        yield client, reported, bot.wait_for_session()


def mute(_: BotSession, message: dict[str, Any]) -> bool:
    """Leave texts unanswered."""
    return message["type"] == "send-text"


def held_by(release: threading.Event) -> Callable[[BotSession, dict[str, Any]], bool]:
    """Return a function that lets a bot process the text "late" only after the event."""

    def hold(_: BotSession, message: dict[str, Any]) -> bool:
        if message["type"] == "send-text" and message["data"]["content"] == "late":
            assert release.wait(GUARD)
        return False

    return hold


def ask(client: MeasuredClient) -> None:
    client.ask("late", SOON, audio_response=False)


def ask_by_voice(client: MeasuredClient) -> None:
    client.ask(ToneSource(duration=0.05), 4 * SOON)


def type_late(client: MeasuredClient) -> None:
    """Send the text "late", and wait until its turn has started."""
    with client.events("turn_started", timeout=GUARD) as started:
        client.send_text("late", audio_response=False)
        next(started)


def listen(client: MeasuredClient) -> None:
    type_late(client)
    client.listen(SOON)


def wait_for_answer(client: MeasuredClient) -> None:
    type_late(client)
    client.wait_for_answer(SOON)


@pytest.mark.parametrize("way", [ask, ask_by_voice, listen, wait_for_answer])
def test_not_answered_in_time(way: Callable[[MeasuredClient], None]) -> None:
    """The question has failed, once, also if nothing of it was heard."""
    with talk(handler=mute, speech_threshold=1e9) as (client, reported, _), pytest.raises(RequestTimeoutError):
        way(client)
    assert reported == [("first audio" if way is ask_by_voice else "first text", "RequestTimeoutError")]


def test_the_table() -> None:
    """`run_many()` counts the answers that failed, also if the scenario catches the errors."""

    def scenario(client: MeasuredClient) -> None:
        with pytest.raises(RequestTimeoutError):
            ask(client)

    with EmbeddedBot(handler=mute) as bot:
        report = run_many(scenario, 3, bot.ws_url)
    assert [(of.kind, of.name, of.failed) for of in report.percentiles] == [
        ("connect", "connect", 0),
        ("answer", "first text", 3),
    ]


@pytest.mark.parametrize("way", [ask, listen, wait_for_answer])
def test_an_answer_that_comes_later(way: Callable[[MeasuredClient], None]) -> None:
    """An answer that arrives after the time-out is no success, and no answer to the next question."""
    release = threading.Event()
    with talk(handler=held_by(release)) as (client, reported, _):
        with pytest.raises(RequestTimeoutError):
            way(client)
        release.set()
        client.send_text("And now?", audio_response=False)
        assert client.wait_for_answer(GUARD).user_text == "And now?"
    assert reported == [*TIMED_OUT, *ANSWERED]


def answer_speech(session: BotSession) -> None:
    """Have the bot hear the user, and answer by a text."""
    for type_, data in (
        ("user-started-speaking", None),
        ("user-stopped-speaking", None),
        ("user-llm-text", {"text": "Well?"}),
        ("bot-llm-started", None),
        ("bot-llm-text", {"text": "Yes."}),
        ("bot-llm-stopped", None),
        ("bot-output", {"text": "Yes.", "aggregated_by": "sentence", "will_be_spoken": False}),
    ):
        session.send({"label": "rtvi-ai", "type": type_, "data": data})


@pytest.mark.parametrize("is_kept", [True, False])
def test_speech_that_is_heard_later(monkeypatch: pytest.MonkeyPatch, is_kept: bool) -> None:
    """The bot reports the speech after its question has failed: it is no second result, even if the client has since
    forgotten the time of the question.
    """
    if not is_kept:
        limits.patch(monkeypatch, user_lead=0.0)
    with talk(speech_threshold=1e9) as (client, reported, session):
        with pytest.raises(RequestTimeoutError):
            ask_by_voice(client)
        answer_speech(session)
        turn = client.listen(GUARD)
        assert (turn.bot_text, turn.timings.user_stopped is not None) == ("Yes.", is_kept)
        client.ask("And now?", GUARD, audio_response=False)
    assert reported == [("first audio", "RequestTimeoutError"), *ANSWERED]


def test_a_text_that_cannot_be_sent_beside_speech() -> None:
    """The bot gets no part of the text, so its next report is about the user's speech."""
    source = BytesSource(tone(0.2) + bytes(6400), 16_000)  # the voice ends before the text fails
    with talk(version="0.3.0", speech_threshold=1e9) as (client, reported, session):
        client.update_mic(source)
        client.enable_mic(True)
        assert source.wait(GUARD)
        with pytest.raises(UnsupportedFeatureError):
            client.ask("Well?", GUARD, audio_response=False)
        answer_speech(session)
        assert client.listen(GUARD).timings.user_stopped is not None
    assert reported == [("first text", "UnsupportedFeatureError"), *ANSWERED]


def test_several_calls_that_wait() -> None:
    """One question fails once, however often it is waited for; the next one is another."""
    with talk(handler=mute) as (client, reported, _):
        for _ in range(2):
            type_late(client)
            for wait in (client.listen, client.wait_for_answer, client.listen):
                with pytest.raises(RequestTimeoutError):
                    wait(SOON)
        with pytest.raises(RequestTimeoutError):
            ask(client)
        with pytest.raises(RequestTimeoutError):
            client.listen(SOON)
    assert reported == 3 * TIMED_OUT


def hear(client: MeasuredClient, session: BotSession) -> None:
    """Have the bot hear the user, and start no answer."""
    with client.events("user-stopped-speaking", timeout=GUARD) as stopped:
        for type_ in ("user-started-speaking", "user-stopped-speaking"):
            session.send({"label": "rtvi-ai", "type": type_})
        next(stopped)


def test_several_questions_in_one_turn() -> None:
    """Questions to a hanging bot share one turn. Each of them fails, or is answered in the end."""
    source = ToneSource(duration=0.2)
    with talk(speech_threshold=1e9) as (client, reported, session):
        hear(client, session)
        for _ in range(2):
            with pytest.raises(RequestTimeoutError) as raised:
                ask_by_voice(client)
            assert raised.value.turn is not None
            assert raised.value.turn.number == 1
        asking = threading.Thread(target=lambda: client.ask(source, GUARD))
        asking.start()
        until(lambda: source.wait(GUARD))  # False before the question starts
        answer_speech(session)
        asking.join(GUARD)
    assert reported == [*2 * [("first audio", "RequestTimeoutError")], *ANSWERED]


@pytest.mark.parametrize("way", [MeasuredClient.listen, MeasuredClient.wait_for_answer])
def test_speech_that_is_repeated(way: Callable[[MeasuredClient, float], object]) -> None:
    """Repeated speech of the user is another question, though it is the same turn; a repeated wait is not."""
    with talk(speech_threshold=1e9) as (client, reported, session):
        for _ in range(2):
            hear(client, session)
            for _ in range(2):
                with pytest.raises(RequestTimeoutError):
                    way(client, SOON)
        assert len(client.turns()) == 1
    assert reported == 2 * [("first audio", "RequestTimeoutError")]


def test_a_thread_that_listens() -> None:
    """A wait in vain does not count as the question of another thread's ask(), which is answered in time."""
    release = threading.Event()
    with talk(handler=held_by(release)) as (client, reported, _):
        asking = threading.Thread(target=lambda: client.ask("late", GUARD, audio_response=False))
        with client.events("turn_started", timeout=GUARD) as started:
            asking.start()
            next(started)
        with pytest.raises(RequestTimeoutError):
            client.listen(SOON)
        release.set()
        asking.join(GUARD)
    assert reported == [("first audio", "RequestTimeoutError"), *ANSWERED]


def test_a_thread_that_listens_while_another_speaks() -> None:
    """A listen() that times out does not fail the question that another thread's ask() has just spoken."""
    source = ToneSource(duration=0.05)
    with talk(speech_threshold=1e9) as (client, reported, session):
        asking = threading.Thread(target=lambda: client.ask(source, GUARD))
        asking.start()
        until(lambda: source.wait(GUARD))  # False before the question starts
        with pytest.raises(RequestTimeoutError):
            client.listen(SOON)
        answer_speech(session)
        asking.join(GUARD)
    assert reported == [("first audio", "RequestTimeoutError"), *ANSWERED]


def refuse(_: BotSession, message: dict[str, Any]) -> bool:
    if message["type"] == "send-text":
        raise ValueError("not today")
    return False


def break_protocol(session: BotSession, message: dict[str, Any]) -> bool:
    if message["type"] == "send-text":
        session.send_raw(bytes(2 << 24))  # more than a client takes
    return False


def leave(session: BotSession, message: dict[str, Any]) -> bool:
    if message["type"] == "send-text":
        session.close(1011, "out of memory")
    return False


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"handler": refuse}, RequestRejectedError),
        ({"handler": leave}, DisconnectedError),
        ({"handler": break_protocol}, DisconnectedError),
        ({"faults": [Fault("error")]}, BotError),
    ],
)
def test_other_errors(options: dict[str, Any], error: type[RTVIError]) -> None:
    """Each way in which a question fails is one failed answer."""
    with talk(**options) as (client, reported, _), pytest.raises(error):
        client.ask("Well?", GUARD, audio_response=False)
    assert reported == [("first text", error.__name__)]


def test_a_session_that_the_client_ends_by_itself() -> None:
    """The question of wait_for_answer() also fails if the client ends a session whose bot breaks the protocol."""
    with talk(handler=break_protocol) as (client, reported, _):
        client.send_text("Well?", audio_response=False)
        with pytest.raises(DisconnectedError) as raised:
            client.wait_for_answer(GUARD)
        assert raised.value.initiator == "client"
    assert reported == [("first text", "DisconnectedError")]


def test_no_session() -> None:
    """A question without a session has failed, as a text has."""
    with talk() as (client, reported, _):
        client.disconnect()
        with pytest.raises(BotNotReadyError):
            ask(client)
    assert reported == [("first text", "BotNotReadyError")]


def test_the_user_leaves() -> None:
    """A question that disconnect() cuts off is no failure of the bot."""
    raised: list[RTVIError] = []
    with talk(handler=mute) as (client, reported, _):

        def ask_in_vain() -> None:
            try:
                client.ask("Well?", GUARD)
            except RTVIError as error:
                raised.append(error)

        asking = threading.Thread(target=ask_in_vain)
        with client.events("turn_started", timeout=GUARD) as started:
            asking.start()
            next(started)
        client.disconnect()
        asking.join(GUARD)
    assert [type(error) for error in raised] == [DisconnectedError]
    assert reported == []
