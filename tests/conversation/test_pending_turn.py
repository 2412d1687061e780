"""Questions that are asked when the bot does something."""

from __future__ import annotations

import contextlib
import threading
import weakref

import pytest

from rtvi_sync import (
    BotNotReadyError,
    CloseInfo,
    DeviceError,
    DisconnectedError,
    ReconnectPolicy,
    RequestTimeoutError,
    RTVIError,
    RTVIMessage,
)
from rtvi_sync.media import CallbackSource
from tests.support.clients import bot_says, settle, transport_of
from tests.support.garbage import collect
from tests.support.limits import changed
from tests.support.probes import listeners, replaces_microphone, waiting_calls
from tests.support.scripted_talk import TalkingBot, begun, hangs_up, said, says, tone, written
from tests.support.slowness import GUARD, takes
from tests.support.threads import InThread, workers_of_package
from tests.support.waiting import until


def waits(text: str) -> str | None:
    """Let the test tell the story."""
    return None if text == "story" else f"You said {text}"


def test_by_text() -> None:
    """The story is interrupted, and the heard part is its start."""
    bot = TalkingBot(waits)
    with bot.client() as client:
        second = client.barge_in("stop")
        assert not second.done()
        thread = InThread(lambda: client.ask("story", GUARD))
        bot.await_question()
        says(client, [*written("Once upon a time"), *begun("Once upon a time")])
        first = thread.get()
        assert (first.interrupted, first.spoken_text) == (True, "Once")
        turn = second.result(GUARD)
        assert (turn.user_text, turn.bot_text) == ("stop", "You said stop")
        assert second.done()
        assert second.result(0.0) is turn
        assert not second.cancel()


def test_manual_mode_delivers_the_events_that_barge_in_waits_for() -> None:
    """In manual mode, result() delivers the events for which barge_in() waits."""
    with TalkingBot().client(events="manual") as client:
        pending = client.barge_in("stop", after="server-message")
        bot_says(client, "server-message", 1)
        assert pending.result(GUARD).bot_text == "You said stop"


def test_where_and_delay() -> None:
    """barge_in() asks once, the delay after the first event that meets where=."""
    bot = TalkingBot()
    with bot.client() as client:
        pending = client.barge_in("stop", after="server-message", where=lambda event: event.data == 2, delay=0.01)
        for number in (1, 2, 2):
            bot_says(client, "server-message", number)
        assert pending.result(GUARD).bot_text == "You said stop"
        assert len(bot.questions) == 1


def test_the_question_cannot_be_sent() -> None:
    """The error is result()'s, each time."""

    def refuse(_: str) -> str:
        raise RuntimeError("no route")

    with TalkingBot(refuse).client() as client:
        pending = client.barge_in("stop", after="server-message")
        bot_says(client, "server-message", 1)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="no route"):
                pending.result(GUARD)
        assert pending.done()


def test_where_raises() -> None:
    """The error is result()'s, each time."""
    with TalkingBot().client() as client:
        pending = client.barge_in("stop", after="server-message", where=lambda event: event.data["no"])
        bot_says(client, "server-message", {})
        for _ in range(2):
            with pytest.raises(KeyError):
                pending.result(GUARD)
        assert pending.done()


def test_a_handler_may_barge_in() -> None:
    """barge_in() does not wait, so that handlers may call it."""
    with TalkingBot().client() as client:
        made = []
        client.once("server_message", lambda: made.append(client.barge_in("stop", after="metrics")))
        bot_says(client, "server-message", 1)
        settle(client)
        assert made[0].result(GUARD).bot_text == "You said stop"


def test_cancel() -> None:
    """A cancelled question is not asked, and result() reports that."""
    bot = TalkingBot()
    with bot.client() as client:
        pending = client.barge_in("stop", after="server-message")
        assert pending.cancel()
        assert pending.done()
        bot_says(client, "server-message", 1)
        settle(client)
        with pytest.raises(RTVIError, match="cancelled"):
            pending.result()
        assert bot.questions == []


@pytest.mark.parametrize("seconds", [0.0, 1e-4, 1e-3])
def test_cancel_at_any_moment(seconds: float) -> None:
    """cancel() returns True if nothing is asked, and False if the question is asked, while another thread is about to
    ask it.
    """
    bot = TalkingBot()
    with bot.client() as client:
        for count in range(20):
            asked = len(bot.questions)
            pending = client.barge_in("stop", after="server-message", delay=1e-3)
            bot_says(client, "server-message", count)
            settle(client)
            threading.Event().wait(seconds)
            was_cancelled = pending.cancel()
            if not was_cancelled:
                bot.await_question(asked + 1)
            with contextlib.suppress(RTVIError):
                pending.result(GUARD)
            settle(client)
            assert len(bot.questions) == asked + (not was_cancelled)


def test_cancel_during_the_delay() -> None:
    """The event has happened, and nothing was asked yet."""
    bot = TalkingBot()
    with bot.client() as client:
        pending = client.barge_in("stop", after="server-message", delay=GUARD)
        bot_says(client, "server-message", 1)
        settle(client)
        assert pending.cancel()
        assert bot.questions == []


@pytest.mark.parametrize("is_due", [False, True], ids=["no event", "delayed"])
def test_not_asked_in_time(is_due: bool) -> None:
    """The time-out of result() cancels the question: it interrupts no later one, and result() raises the same again."""
    bot = TalkingBot()
    with bot.client() as client:
        pending = client.barge_in("stop", after="server-message", delay=GUARD if is_due else 0.0)
        assert not pending.done()
        if is_due:
            bot_says(client, "server-message", 1)
            settle(client)
        why = "delay" if is_due else "no serverMessage event arrived"
        for _ in range(2):
            with pytest.raises(RequestTimeoutError, match=f"was not asked .* {why}.* cancelled"):
                pending.result(0.0)
        assert pending.done()
        assert pending.cancel()
        bot_says(client, "server-message", 2)
        later = client.barge_in("go on", after="server-message")
        bot_says(client, "server-message", 3)
        assert later.result(GUARD).bot_text == "You said go on"
        assert [question.data["content"] for question in bot.questions] == ["go on"]


def test_not_answered_in_time() -> None:
    """result() may be called again for a question that was asked."""
    bot = TalkingBot(waits)
    with bot.client() as client:
        pending = client.barge_in("story", after="server-message")
        bot_says(client, "server-message", 1)
        bot.await_question()
        with pytest.raises(RequestTimeoutError, match="answer did not begin"):
            pending.result(0.0)
        says(client, said("The end."))
        assert pending.result(GUARD).bot_text == "The end."


def test_the_end_of_the_session_drops_a_pending_question() -> None:
    """A question that the session's end prevented is not asked in the next session."""
    bot = TalkingBot()
    with bot.client() as client:
        client.turns()
        before = listeners(client)[1:]
        pending = client.barge_in("stop", after="server-message")
        hangs_up(client)
        for _ in range(2):
            with pytest.raises(DisconnectedError):
                pending.result(GUARD)
        client.disconnect()
        client.connect()
        bot_says(client, "server-message", 1)
        settle(client)
        assert bot.questions == []
        assert listeners(client)[1:] == before


def test_no_session() -> None:
    """barge_in() without a session raises BotNotReadyError."""
    with TalkingBot().client() as client:
        client.disconnect()
        with pytest.raises(BotNotReadyError):
            client.barge_in("stop")


def test_the_result_is_not_asked_for() -> None:
    """If result() is never called, no further turns are held, and listen() does not return the pending turn."""
    bot = TalkingBot()
    with bot.client() as client:
        pending = client.barge_in("stop", after="server-message")
        bot_says(client, "server-message", 1)
        until(lambda: waiting_calls(client) == 0)
        client.ask("x", GUARD)
        with pytest.raises(RequestTimeoutError):
            client.listen(0.0)
        assert pending.done()
        assert pending.result(0.0).bot_text == "You said stop"


class SlowSource:
    """A source whose opening blocks."""

    def __init__(self, opened: threading.Event, go: threading.Event) -> None:
        self._opened, self._go = opened, go

    @property
    def sample_rate_hz(self) -> int:
        self._opened.set()
        self._go.wait(GUARD)
        return 16_000

    def read(self, frames: int) -> bytes:
        return b""

    def close(self) -> None: ...


def test_a_source_that_blocks_delays_no_event() -> None:
    """A source whose opening blocks delays no event: it is opened on a worker."""
    opened, go = threading.Event(), threading.Event()
    with TalkingBot(audio=True).client() as client:
        pending = client.barge_in(SlowSource(opened, go), after="server-message")
        assert not opened.is_set()
        bot_says(client, "server-message", 1)
        assert opened.wait(GUARD)
        settle(client)
        go.set()
        until(lambda: replaces_microphone(client))
        hangs_up(client)
        with pytest.raises(DisconnectedError):
            pending.result(GUARD)


def test_a_source_that_fails() -> None:
    """The microphone speaks again, though result() is not called, which has the reason."""

    def read(_: int) -> bytes:
        raise OSError("unplugged")

    with TalkingBot(audio=True).client() as client:
        pending = client.barge_in(CallbackSource(read), after="server-message")
        bot_says(client, "server-message", 1)
        until(pending.done)
        until(lambda: not replaces_microphone(client))
        with pytest.raises(DeviceError, match="failed before all of it was sent"):
            pending.result(GUARD)


def test_a_question_of_a_session_that_was_lost() -> None:
    """The bot of the session that replaces it does not hear it."""
    opened, go = threading.Event(), threading.Event()
    with TalkingBot(audio=True).client(reconnect=ReconnectPolicy(initial_delay=0.01)) as client:
        pending = client.barge_in(SlowSource(opened, go), after="server-message")
        bot_says(client, "server-message", 1)
        assert opened.wait(GUARD)
        with client.events("bot_ready", timeout=GUARD) as ready:
            transport_of(client).end(CloseInfo(code=1006, initiator="network"))
            next(ready)
        go.set()
        until(lambda: workers_of_package() == [])  # one has opened the source, and could not ask
        assert not replaces_microphone(client)
        with pytest.raises(DisconnectedError) as raised:
            pending.result(GUARD)
        assert raised.value.initiator == "network"
        with pytest.raises(DisconnectedError) as again:
            pending.result(GUARD)
        assert str(again.value) == str(raised.value)
        assert again.value is not raised.value, "two threads may raise it"


def test_a_question_of_a_session_that_has_ended_claims_no_turn() -> None:
    """The user's speech in a later session is a turn that `listen()` returns, though `result()` was never called."""
    with TalkingBot(audio=True).client() as client:
        client.barge_in(tone(60.0), after="server-message", sample_rate_hz=24_000)
        bot_says(client, "server-message", 1)
        until(lambda: transport_of(client).sent_audio)
        hangs_up(client)
        client.connect()
        heard = {"text": "Time?", "input_type": "transcription", "final": True}
        says(client, [RTVIMessage("user-started-speaking"), RTVIMessage("user-input", heard)])
        says(client, [RTVIMessage("user-stopped-speaking"), *said("Twelve.")])
        turn = client.listen(GUARD)
        assert (turn.user_text, turn.bot_text) == ("Time?", "Twelve.")


def test_who_ended_the_session() -> None:
    """result() says who ended the session, though the question has cleaned up by itself."""
    bot = TalkingBot(waits)
    with bot.client() as client:
        pending = client.barge_in("story", after="server-message")
        bot_says(client, "server-message", 1)
        bot.await_question()
        transport_of(client).end(CloseInfo(code=1006, initiator="network"))
        until(pending.done)
        until(lambda: waiting_calls(client) == 0)  # a worker has cleaned up
        with pytest.raises(DisconnectedError, match="The connection to the bot was lost before the bot") as raised:
            pending.result(GUARD)
        assert raised.value.initiator == "network"


def test_turns_before_are_not_kept() -> None:
    """A question whose event never happens holds no turn of the session."""
    with TalkingBot().client() as client:
        pending = client.barge_in("stop", after="metrics")
        turns = [weakref.ref(client.ask(f"Question {number}", GUARD)) for number in range(103)]

        def are_gone() -> bool:
            collect()
            return not any(turn() for turn in turns[:3])

        until(are_gone)
        assert not pending.done()  # the client itself keeps the last hundred


def test_cancel_while_result_waits() -> None:
    """result() tells of that, and not of an end of the session, each time."""
    with TalkingBot().client() as client:
        pending = client.barge_in("stop", after="metrics")
        waiting = InThread(lambda: pending.result(GUARD))
        assert waiting.goes_on(0.1)
        pending.cancel()
        assert str(waiting.error()) == "This question was cancelled. Call barge_in() again"
        with pytest.raises(RTVIError, match="cancelled"):
            pending.result(GUARD)


def test_a_question_that_is_not_heard() -> None:
    """The microphone speaks again soon after a question that is not heard, though result() is not called."""
    with changed(hearing=0.01), TalkingBot(audio=True).client() as client:
        client.barge_in(b"\0\0" * 800, after="server-message", sample_rate_hz=16_000)
        bot_says(client, "server-message", 1)
        until(lambda: replaces_microphone(client))
        until(lambda: not replaces_microphone(client))


def test_turns_after_a_question_that_is_not_heard() -> None:
    """Turns after a question that is not heard do not end the session, however much audio they have."""
    size = len(tone(0.1))
    with TalkingBot(audio=True).client(max_queued_bytes=3 * size) as client:
        pending = client.barge_in(b"\0\0" * 800, after="server-message", sample_rate_hz=16_000)
        bot_says(client, "server-message", 1)
        until(lambda: replaces_microphone(client))
        until(lambda: len(transport_of(client).sent_audio) >= 3)  # all of it
        for _ in range(5):
            assert client.ask("x", GUARD).audio.pcm == tone(0.1)
        assert not pending.done()
        assert client.connected


def test_not_said_in_time() -> None:
    """The time-out of result() ends speech that is still being said, so that it interrupts no later question."""
    bot = TalkingBot(audio=True)
    with bot.client() as client:
        pending = client.barge_in(b"\0\0" * 16_000 * 60, after="server-message", sample_rate_hz=16_000)
        bot_says(client, "server-message", 1)
        until(lambda: transport_of(client).sent_audio)
        for _ in range(2):
            with pytest.raises(RequestTimeoutError, match=r"still being said after .* cancelled"):
                pending.result(0.0)
        assert pending.done()
        assert client.ask("x", GUARD).bot_text == "You said x"


def test_cancel_ends_the_speech() -> None:
    """cancel() ends speech that is being said, at once: result() says why, and the microphone is back."""
    with TalkingBot(audio=True).client() as client:
        pending = client.barge_in(b"\0\0" * 16_000 * 60, after="server-message", sample_rate_hz=16_000)
        bot_says(client, "server-message", 1)
        until(lambda: transport_of(client).sent_audio)
        waiting = InThread(lambda: pending.result(GUARD))
        with takes(0.5):  # the question itself has a minute, and the client looks every few seconds
            assert not pending.cancel()
            assert str(waiting.error()) == "This question was cancelled. Call barge_in() again"
        assert pending.done()
        until(lambda: not replaces_microphone(client))
        with pytest.raises(RTVIError, match="was cancelled"):
            pending.result(GUARD)
