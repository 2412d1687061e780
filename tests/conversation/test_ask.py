"""Spoken questions: the audio sent in the microphone's place, and the choice of the answer."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

from rtvi_sync import (
    BotError,
    CloseInfo,
    DeviceError,
    DisconnectedError,
    LLMHelper,
    MemoryTransport,
    RequestRejectedError,
    RequestTimeoutError,
    RTVIClient,
    RTVIError,
    RTVIMessage,
    UnsupportedFeatureError,
    WebSocketTransport,
)
from rtvi_sync.media import BytesSource, CallbackSource, NullSink, ToneSource
from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.support.clients import bot_says, memory_client, settle, transport_of, websocket_client
from tests.support.limits import changed
from tests.support.moments import at
from tests.support.probes import replaces_microphone
from tests.support.scripted_talk import (
    TalkingBot,
    acknowledgement,
    begun,
    finished,
    hangs_up,
    said,
    says,
    tone,
    written,
)
from tests.support.slowness import GUARD, at_some_limit, takes
from tests.support.threads import InThread, media_threads, running
from tests.support.waiting import until
from tests.support.wavs import write_wav

SPEECH = BytesSource(tone(0.2), 24_000)


def echo_client(bot: EmbeddedBot, **options: Any) -> RTVIClient:
    given = {"mic": None, "enable_mic": False, "speaker": NullSink(), "connect_timeout": GUARD, **options}
    return RTVIClient(transport=WebSocketTransport(bot.ws_url), **given)


def test_a_bot_without_send_text() -> None:
    """The next way to ask is tried, and remembered. (Pipecat 0.0.76 to 0.0.85.)"""
    asked = []

    def refuse(session: BotSession, message: dict[str, Any]) -> bool:
        asked.append(message["type"])
        is_unknown = message["type"] == "send-text"
        if is_unknown:
            refusal = {"error": "Unsupported type send-text"}
            session.send({"label": "rtvi-ai", "type": "error-response", "id": message["id"], "data": refusal})
        return is_unknown

    with EmbeddedBot(version="1.0.0", handler=refuse) as bot, echo_client(bot) as client:
        assert [client.ask(text, GUARD).bot_text for text in ("one", "two")] == ["You said: one", "You said: two"]
    assert asked[-3:] == ["send-text", "append-to-context", "append-to-context"]


def test_a_bot_without_any_way() -> None:
    """The error says so, and the bot is asked once. (An answer without speech can be asked for by send-text alone.)"""
    asked = []

    def refuse(session: BotSession, message: dict[str, Any]) -> bool:
        if message["type"] != "send-text":
            return False
        asked.append(message["type"])
        refusal = {"error": "Unsupported type send-text"}
        session.send({"label": "rtvi-ai", "type": "error-response", "id": message["id"], "data": refusal})
        return True

    with EmbeddedBot(version="1.0.0", handler=refuse) as bot, echo_client(bot) as client:
        for _ in range(2):
            with pytest.raises(UnsupportedFeatureError, match="does not know 'send-text'"):
                client.ask("one", GUARD, audio_response=False)
    assert len(asked) == 1


def asked(
    answer: Callable[[MemoryTransport, RTVIMessage], Iterable[RTVIMessage]],
    type_: str = "send-text",
    version: str = "2.2.0",
) -> RTVIClient:
    """Return a client of a bot that is asked by messages of a type."""
    talking = TalkingBot(version=version)

    def bot(transport: MemoryTransport, message: RTVIMessage) -> Iterable[Any]:
        return answer(transport, message) if message.type == type_ else talking(transport, message)

    return memory_client(bot)


def asked_by_action(answer: Callable[[MemoryTransport, RTVIMessage], Iterable[RTVIMessage]]) -> RTVIClient:
    """Return a client of a bot of RTVI 0.3, which is asked by an action."""
    return asked(answer, "action", "0.3.0")


def test_an_action_that_is_refused() -> None:
    """The bot has heard nothing, so the turn has failed."""
    refusal = {"error": "no service llm"}
    with asked_by_action(lambda _, message: [RTVIMessage("error-response", refusal, message.id)]) as client:
        with pytest.raises(RequestRejectedError, match="no service llm"):
            client.ask("Hi", GUARD)
        until(lambda: [turn.status for turn in client.turns()] == ["failed"])


def test_the_service_of_an_action() -> None:
    """The action that asks a bot of RTVI 0.3 goes to the service under which an LLMHelper is registered."""
    services: list[str] = []

    def refuse(_: MemoryTransport, message: RTVIMessage) -> Iterable[RTVIMessage]:
        services.append(message.data["service"])
        return [RTVIMessage("error-response", {"error": "no"}, message.id)]

    with asked_by_action(refuse) as client:
        client.register_helper("gpt", LLMHelper())
        with pytest.raises(RequestRejectedError):
            client.ask("Hi", GUARD)
    assert services == ["gpt"]


def test_an_action_that_is_not_answered() -> None:
    """The error has the partial turn."""
    with asked_by_action(lambda *_: []) as client, pytest.raises(RequestTimeoutError) as raised:
        client.ask("Hi", 0.05)
    assert raised.value.turn is not None
    assert raised.value.turn.user_text == "Hi"


def test_a_bot_that_ends_the_session_instead_of_an_action() -> None:
    """A bot that hangs up makes ask() raise DisconnectedError with the partial turn."""

    def hang_up(transport: MemoryTransport, _: RTVIMessage) -> Iterable[RTVIMessage]:
        transport.end(CloseInfo(code=1000, initiator="server"))
        return []

    with asked_by_action(hang_up) as client, pytest.raises(DisconnectedError) as raised:
        client.ask("Hi", GUARD)
    assert raised.value.turn is not None
    assert raised.value.turn.user_text == "Hi"


@pytest.mark.parametrize("events", ["thread", "manual"])
def test_a_spoken_question(events: Any) -> None:
    """A spoken question is sent though the microphone is off; the turn has both sides' audio."""
    with EmbeddedBot(transcripts=["Hello?"], replies=["Hi."]) as bot, echo_client(bot, events=events) as client:
        for _ in range(2):
            turn = client.ask(ToneSource(duration=0.3), GUARD)
            assert (turn.user_text, turn.bot_text, turn.modality) == ("Hello?", "Hi.", "audio")
            assert turn.user_audio.seconds == pytest.approx(0.3, abs=0.021)
            assert turn.audio
            assert turn.voice_to_voice is not None
            assert turn.voice_to_voice > 0
        assert not replaces_microphone(client)


def test_the_microphone_goes_on() -> None:
    """When the bot has answered, its source speaks again."""
    bot = TalkingBot(audio=True)
    with bot.client(mic=CallbackSource(lambda frames: b"\1\0" * frames), enable_mic=True) as client:
        sent = transport_of(client).sent_audio
        until(lambda: sent)
        with running(lambda: client.ask(SPEECH, GUARD)) as asking:
            until(lambda: any(b"\xa0\x0f" in frame.pcm for frame in [*sent]))
            says(client, [*heard("Hello?"), *said("Hi.")])
            assert asking.get().bot_text == "Hi."
        sent.clear()
        until(lambda: any(b"\1\0" in frame.pcm for frame in [*sent]))


def test_what_the_user_says_after_a_question_is_another_turn() -> None:
    """A question that was said and answered takes no later turn from `listen()`."""
    with TalkingBot(audio=True).client() as client:
        sent = transport_of(client).sent_audio
        with running(lambda: client.ask(SPEECH, GUARD)) as asking:
            until(lambda: any(b"\xa0\x0f" in frame.pcm for frame in [*sent]))
            says(client, [*heard("Hello?"), *said("Hi.")])
            assert asking.get().bot_text == "Hi."
        says(client, [*heard("And you?"), *said("Fine.")])
        turn = client.listen(GUARD)
        assert (turn.user_text, turn.bot_text) == ("And you?", "Fine.")


def test_the_answer_to_the_first_part_of_a_question_is_not_its_answer() -> None:
    """An answer to the first part of a question, after a pause in it, is another turn."""

    def check(limit: float) -> None:
        with TalkingBot(audio=True).client() as client:
            sent = transport_of(client).sent_audio
            question = BytesSource(tone(1.0 + 2 * limit), 24_000)
            with running(lambda: client.ask(question, GUARD)) as asking:
                until(lambda: sent)
                says(client, [*heard("Hel"), *said("Who is there?")])
                until(lambda: any(b"\xa0\x0f" in frame.pcm for frame in [*sent]))
                until(lambda: b"\xa0\x0f" not in sent[-1].pcm)  # all was said
                says(client, [*heard("Hello?"), *said("Hi.")])
                assert asking.get().bot_text == "Hi."

    at_some_limit(check)


REFUSAL = RTVIMessage("error-response", {"error": "no\x1b[2J\n"}, "")
ERROR = RTVIMessage("error", {"error": "no\x1b[2J\n"})
CALL = RTVIMessage("llm-function-call-in-progress", {"function_name": "f\x1b[2J\n", "tool_call_id": "1"})


@pytest.mark.parametrize(
    ("message", "timeout", "error", "words"),
    [
        (REFUSAL, GUARD, RequestRejectedError, r"refused the question: no \[2J \."),
        (ERROR, GUARD, BotError, r"answered nothing: no \[2J \."),
        (CALL, 0.3, RequestTimeoutError, r"it waits for its function calls: f \[2J \."),
    ],
)
def test_what_a_bot_says_in_an_error(message: RTVIMessage, timeout: float, error: type[Exception], words: str) -> None:
    """The text of a bot's error is one line, whatever the bot has sent."""

    def bot(_: MemoryTransport, question: RTVIMessage) -> Iterable[RTVIMessage]:
        yield from acknowledgement(question)
        yield from written("")
        yield attrs.evolve(message, id=question.id) if message is REFUSAL else message

    with asked(bot) as client, pytest.raises(error, match=words):
        client.ask("Hi", timeout)


@pytest.mark.parametrize("fatal", [False, True])
def test_an_error_of_the_bot_says_whether_it_is_fatal(fatal: bool) -> None:
    """The exception of a question that a bot has answered by an error only is as fatal as the error."""

    def bot(_: MemoryTransport, question: RTVIMessage) -> Iterable[RTVIMessage]:
        yield from acknowledgement(question)
        yield from written("")
        yield RTVIMessage("error", {"error": "no credits", "fatal": fatal})

    with asked(bot) as client, pytest.raises(BotError, match="no credits") as raised:
        client.ask("Hi", GUARD)
    assert raised.value.fatal is fatal


def test_a_refusal_of_something_else() -> None:
    """A message that the bot refuses while it is asked has nothing to do with the question."""

    def bot(_: MemoryTransport, question: RTVIMessage) -> Iterable[RTVIMessage]:
        yield from acknowledgement(question)
        yield RTVIMessage("error-response", {"error": "no such note"}, "another")
        yield from said("Yes.")

    with asked(bot) as client:
        assert client.ask("Hi", GUARD).bot_text == "Yes."


def test_a_session_that_ends_behind_an_error_and_words() -> None:
    """An answer that has started counts as one with content: the end of the session has cut it."""

    def bot(transport: MemoryTransport, question: RTVIMessage) -> Iterable[RTVIMessage]:
        yield from [*acknowledgement(question), *written("I think")[:2]]
        yield RTVIMessage("error", {"error": "slow"})
        transport.end(CloseInfo(initiator="network"))

    with asked(bot) as client, pytest.raises(DisconnectedError) as raised:
        client.ask("Hi", GUARD)
    assert raised.value.turn is not None
    assert (raised.value.turn.bot_text, raised.value.turn.status) == ("I think", "failed")


def test_a_spoken_question_after_one_that_was_given_up() -> None:
    """A bot that does not answer the first in time takes both for one, and its answer is that to the second."""
    bot = TalkingBot(audio=True)
    with bot.client() as client:
        sent = transport_of(client).sent_audio
        with running(lambda: client.ask(SPEECH, 1.0)) as first:
            until(lambda: sent)
            bot_says(client, "user-started-speaking", None)
            assert isinstance(first.error(), RequestTimeoutError)
        with running(lambda: client.ask(SPEECH, GUARD)) as second:
            sent.clear()
            until(lambda: any(b"\xa0\x0f" in frame.pcm for frame in [*sent]))
            says(client, [*heard("Hello?")[1:], *said("Hi.")])
            assert second.get().bot_text == "Hi."


@pytest.mark.parametrize("by", ["timeout", "cancel", "cancel, without result()"])
def test_each_spoken_question_has_its_own_turn(by: str) -> None:
    """The bot first hears the end of a question that was given up in the middle, though the microphone is off."""
    with EmbeddedBot() as bot, echo_client(bot) as client:
        with client.events("user-transcript", timeout=GUARD) as heard:
            if by == "timeout":
                with pytest.raises(RequestTimeoutError, match=r"still being said after 1\.0 s\. .*Pass a larger"):
                    client.ask(ToneSource(440, 10.0), 1.0)
            else:
                pending = client.barge_in(ToneSource(440, 10.0), after="bot-stopped-speaking")
                client.ask("Hello", GUARD)
                next(heard)
                pending.cancel()
                if by == "cancel":
                    with pytest.raises(RTVIError, match="cancelled"):
                        pending.result(GUARD)
        second = client.ask(ToneSource(440, 0.4), GUARD)
        first = client.turns()[-2]
    assert (first.modality, second.number) == ("audio", first.number + 1)
    assert first.timings.user_stopped is not None
    assert second.timings.user_started is not None
    assert first.timings.user_stopped < second.timings.user_started
    assert second.user_audio.seconds == pytest.approx(0.4, abs=0.1)


def gives_up(client: RTVIClient, limit: float) -> None:
    """Ask a question that the bot hears and does not answer in time."""
    sent = transport_of(client).sent_audio
    with running(lambda: client.ask(SPEECH, limit)) as asking:
        until(lambda: sent or asking.done)
        bot_says(client, "user-started-speaking", None)
        assert isinstance(asking.error(), RequestTimeoutError)
    assert [turn.is_open for turn in client.turns()] == [True]
    sent.clear()


def test_spoken_questions_after_one_that_is_never_answered() -> None:
    """The next one is said in its time, however long a question may wait for another, and those after it at once."""

    def check(limit: float) -> None:
        with changed(hearing=4 * GUARD), TalkingBot(audio=True).client() as client:
            sent = transport_of(client).sent_audio
            gives_up(client, limit)
            with pytest.raises(RequestTimeoutError, match="The bot's answer did not begin"):
                client.ask(SPEECH, limit)
            assert any(b"\xa0\x0f" in frame.pcm for frame in sent)
            sent.clear()
            with running(lambda: client.ask(SPEECH, None)) as third:
                until(lambda: any(b"\xa0\x0f" in frame.pcm for frame in [*sent]))
                says(client, [*heard("Hello?")[1:], *said("Hi.")])
                assert third.get().bot_text == "Hi."

    at_some_limit(check)


def test_no_time_to_say_a_question_after_one_that_was_given_up() -> None:
    """The error says that the question was not said, and does not blame the bot."""

    def check(limit: float) -> None:
        with TalkingBot(audio=True).client() as client:
            gives_up(client, limit)
            for _ in range(2):
                with pytest.raises(RequestTimeoutError, match=r"was not said within 0\.0 s.* the one before") as raised:
                    client.ask(SPEECH, 0.0)
                assert (raised.value.kind, raised.value.turn) == ("not_heard", None)

    at_some_limit(check)


def test_a_bot_that_mutes_the_user_to_answer_a_question_that_was_given_up() -> None:
    """The next question is not said into the mute."""

    def check(limit: float) -> None:
        with TalkingBot(audio=True).client() as client:
            sent = transport_of(client).sent_audio
            gives_up(client, limit)
            with running(lambda: client.ask(SPEECH, limit)) as second:
                until(lambda: sent or second.done)
                bot_says(client, "user-mute-started", None)
                says(client, [*heard("Hello?")[1:], *written("Late"), *begun("Late")])
                error = second.error()
            assert re.search("was not said .* user-mute-started", str(error))
            assert not any(b"\xa0\x0f" in frame.pcm for frame in sent)

    at_some_limit(check)


def test_a_spoken_question_after_one_that_was_given_up_and_a_typed_one() -> None:
    """The bot has not heard the end of the first question, so the next speech belongs to its turn."""
    bot = TalkingBot(audio=True)
    with bot.client() as client:
        sent = transport_of(client).sent_audio
        with running(lambda: client.ask(SPEECH, 0.5)) as first:
            until(lambda: sent)
            bot_says(client, "user-started-speaking", None)
            assert isinstance(first.error(), RequestTimeoutError)
        assert client.ask("one", GUARD).bot_text == "You said one"
        with running(lambda: client.ask(SPEECH, GUARD)) as second:
            sent.clear()
            until(lambda: any(b"\xa0\x0f" in frame.pcm for frame in [*sent]))
            says(client, [*heard("Hello?")[1:], *said("Hi.")])
            assert second.get().bot_text == "Hi."


def test_a_spoken_question_that_the_bot_takes_for_two() -> None:
    """The answer is that to the second, by which the bot was interrupted. (Seen: Pipecat 0.0.73.)"""
    bot = TalkingBot(audio=True)
    with bot.client() as client:
        sent = transport_of(client).sent_audio
        with running(lambda: client.ask(SPEECH, GUARD)) as asking:
            until(lambda: any(b"\xa0\x0f" in frame.pcm for frame in [*sent]))
            until(lambda: b"\xa0\x0f" not in sent[-1].pcm)  # all was said
            says(client, [*heard("Hello?"), *written("Who")[:2]])
            bot_says(client, "user-started-speaking", None)
            bot_says(client, "bot-interrupted", None)
            says(client, [*heard("Hello?")[1:], *said("Hi.")])
            assert asking.get().bot_text == "Hi."
        assert [turn.status for turn in client.turns()] == ["interrupted", "complete"]


@pytest.mark.parametrize("is_unsure", [False, True], ids=["at once", "after it found the user not finished"])
def test_a_model_that_decides_whether_the_user_has_finished(is_unsure: bool) -> None:
    """The bot reports the end of the user's speech only when its model has started to answer."""
    bot = TalkingBot(audio=True)
    with bot.client() as client:
        sent = transport_of(client).sent_audio
        with running(lambda: client.ask(SPEECH, GUARD)) as asking:
            until(lambda: any(b"\xa0\x0f" in frame.pcm for frame in [*sent]))
            until(lambda: b"\xa0\x0f" not in sent[-1].pcm)  # all was said
            started, words, stopped, told = heard("Hello?")
            says(client, [started, words, told])
            if is_unsure:
                says(client, written("")[::2])
                says(client, [words, told])
            says(client, [written("Hi.")[0], stopped, *said("Hi.")[1:]])
            turn = asking.get()
        assert (turn.user_text, turn.bot_text) == ("Hello? Hello?" if is_unsure else "Hello?", "Hi.")
        assert (turn.status, turn.assumed) == ("complete", None)
        assert [each.status for each in client.turns()] == ["complete"]


def test_a_turn_that_a_spoken_question_interrupts() -> None:
    """A turn that a spoken question interrupts is returned by `listen()`, while the question is still being asked."""
    bot = TalkingBot(audio=True)
    with bot.client() as client:
        sent = transport_of(client).sent_audio
        says(client, [*heard("A story!"), *written("Once upon a time"), *begun("Once upon a time")])
        settle(client)
        with running(lambda: client.ask(SPEECH, GUARD)) as asking:
            until(lambda: any(b"\xa0\x0f" in frame.pcm for frame in [*sent]))
            bot_says(client, "user-started-speaking", None)
            bot_says(client, "bot-interrupted", None)
            turn = client.listen(GUARD)
            assert (turn.user_text, turn.status) == ("A story!", "interrupted")
            says(client, [*heard("Stop!")[1:], *said("Yes.")])
            assert asking.get().bot_text == "Yes."
        with pytest.raises(RequestTimeoutError):
            client.listen(0.0)


def test_a_source_that_fails() -> None:
    """The call ends with the source's error, because no answer can follow."""

    def read(_: int) -> bytes:
        raise OSError("unplugged")

    for events in ("thread", "manual"):
        with (
            TalkingBot(audio=True).client(events=events) as client,
            takes(1.0),
            pytest.raises(DeviceError, match="failed before all of it was sent"),
        ):
            client.ask(CallbackSource(read), GUARD)


def test_a_source_that_blocks() -> None:
    """The limit applies to the whole call, even if the source blocks."""
    go_on = threading.Event()

    def read(_: int) -> bytes:
        go_on.wait(GUARD)
        return b""

    with TalkingBot(audio=True).client() as client:
        with takes(1.0), pytest.raises(RequestTimeoutError):
            client.ask(CallbackSource(read), 0.1)
        go_on.set()


class Rateless:
    """A source without a sample rate."""

    def read(self, frames: int) -> bytes:
        return bytes(2 * frames)

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("question", "options", "error", "words"),
    [
        (ToneSource(440), {}, ValueError, "audio that ends"),
        (SPEECH, {"audio_response": False}, ValueError, "audio_response"),
        ("Hello", {"sample_rate_hz": 16_000}, TypeError, "sample_rate_hz"),
        (Rateless(), {}, DeviceError, "Rateless has no usable sample_rate_hz"),
    ],
)
def test_what_cannot_be_asked(question: Any, options: Any, error: type[Exception], words: str) -> None:
    """A question or an option that ask() cannot use is an error that names it."""
    with TalkingBot(audio=True).client() as client, pytest.raises(error, match=words):
        client.ask(question, GUARD, **options)


def heard(text: str) -> list[RTVIMessage]:
    """Return how a bot of 2.2 tells that it has heard the user."""
    return [
        RTVIMessage("user-started-speaking", None),
        RTVIMessage("user-input", {"text": text, "input_type": "transcription", "final": True}),
        RTVIMessage("user-stopped-speaking", None),
        RTVIMessage("user-llm-text", {"text": text}),
    ]


def test_not_heard() -> None:
    """A spoken question that the bot does not hear makes ask() say so, and the microphone is back."""
    with TalkingBot(audio=True).client() as client:
        with pytest.raises(RequestTimeoutError, match="has not heard") as raised:
            client.ask(SPEECH, 0.3)
        assert (raised.value.kind, raised.value.turn) == ("not_heard", None)
        assert not replaces_microphone(client)


def test_not_heard_by_a_bot_that_takes_all() -> None:
    """The error says that the audio was sent in time and taken, so that it is the bot that did not hear."""
    with EmbeddedBot(speech_threshold=math.inf) as bot, websocket_client(bot) as client:
        with pytest.raises(RequestTimeoutError, match=r"\d\.\d s of audio were sent in time, and the server took all"):
            client.ask(SPEECH, 1.0)
        assert client.stats().audio_sent > 0.5


def test_not_heard_after_a_mute_that_is_over() -> None:
    """The error does not blame a mute that ended before the question was said."""

    def check(limit: float) -> None:
        with TalkingBot(audio=True).client() as client:
            gives_up(client, limit)
            with running(lambda: client.ask(SPEECH, 10 * limit)) as asking:
                until(lambda: replaces_microphone(client) or asking.done)
                for event in ("user-mute-started", "user-mute-stopped", "user-stopped-speaking"):
                    bot_says(client, event, None)
                says(client, said("Late."))
                assert "it reported no speech or words" in str(asking.error())

    at_some_limit(check)


@pytest.mark.parametrize("events", ["thread", "manual"])
def test_a_bot_that_does_not_hear_the_user_yet(events: Any) -> None:
    """The question is said when the bot hears the user again; before, the microphone keeps its place."""
    with TalkingBot(audio=True).client(events=events) as client:
        bot_says(client, "user-mute-started", None)
        sent = transport_of(client).sent_audio
        with running(lambda: client.ask(SPEECH, GUARD)) as asking:
            says(client, said("Welcome."))
            until(lambda: any(turn.bot_text == "Welcome." and not turn.is_open for turn in client.turns()))
            assert not sent
            bot_says(client, "user-mute-stopped", None)
            until(lambda: any(b"\xa0\x0f" in frame.pcm for frame in [*sent]))
            until(lambda: b"\xa0\x0f" not in sent[-1].pcm)  # all was said
            says(client, [*heard("Hello?"), *said("Hi.")])
            assert asking.get().bot_text == "Hi."


def test_a_bot_that_never_hears_the_user() -> None:
    """The error says that nothing was heard, and a typed question can still be asked."""
    with TalkingBot(audio=True).client() as client:
        bot_says(client, "user-mute-started", None)
        with pytest.raises(RequestTimeoutError, match=r"was not said .* user-mute-started") as raised:
            client.ask(SPEECH, 0.2)
        assert (raised.value.kind, raised.value.turn) == ("not_heard", None)
        assert not transport_of(client).sent_audio
        assert client.ask("one", GUARD).bot_text == "You said one"


def muting(**options: Any) -> RTVIClient:
    """Return a client of a bot that mutes the user before it is ready, as bots do that greet."""
    talking = TalkingBot(lambda _: None, audio=True)

    def bot(transport: MemoryTransport, message: RTVIMessage) -> Iterable[Any]:
        if message.type == "client-ready":
            yield RTVIMessage("user-mute-started", None)
        yield from talking(transport, message)

    given = {"speaker": NullSink(), "enable_mic": False, "connect_timeout": GUARD, **options}
    return RTVIClient(transport=MemoryTransport(bot, audio=True), **given)


def test_a_bot_that_mutes_the_user_before_it_is_ready() -> None:
    """If the bot has muted the user before it is ready, the time-out of ask() names `user-mute-started`."""
    with muting() as client, pytest.raises(RequestTimeoutError, match="user-mute-started"):
        client.ask(SPEECH, 0.2)


@attrs.frozen
class ReadFile:
    """A file that tells when its path is read."""

    path: str
    is_read: threading.Event = attrs.field(factory=threading.Event)

    def __fspath__(self) -> str:
        self.is_read.set()
        return self.path


def test_a_session_that_ends_while_the_user_is_muted(tmp_path: Path) -> None:
    """The error describes the end of the session."""
    file = ReadFile(str(write_wav(tmp_path / "question.wav", [tone(0.2)])))
    with TalkingBot(audio=True).client() as client:
        bot_says(client, "user-mute-started", None)
        thread = InThread(lambda: client.ask(file, GUARD))
        assert file.is_read.wait(GUARD)
        hangs_up(client)
        assert isinstance(thread.error(), DisconnectedError)


@pytest.mark.parametrize("call", ["ask", "barge_in"])
def test_speech_into_a_mute(call: str) -> None:
    """The error names the mute, both for speech in progress and for `barge_in()`, which always speaks."""
    with TalkingBot(audio=True).client() as client:
        sent = transport_of(client).sent_audio
        ask = partial(client.ask, SPEECH, 1.0)
        if call == "barge_in":
            bot_says(client, "user-mute-started", None)
            ask = partial(client.barge_in(SPEECH).result, 1.0)
            says(client, begun("Welcome."))
        with running(ask) as asking:
            until(lambda: sent)
            if call == "ask":
                bot_says(client, "user-mute-started", None)
            bot_says(client, "user-mute-stopped", None)
            error = asking.error()
        assert isinstance(error, RequestTimeoutError)
        assert error.kind == "not_heard"
        assert "muted the user" in str(error)
        assert "transport" not in str(error)


def test_what_a_muted_user_types() -> None:
    """The bot reports an interruption, and goes on to speak: the turn is whole."""
    story = "Once upon a time there was a dog."
    with muting() as client:
        says(client, [*written(story), *begun(story)])
        settle(client)
        with running(lambda: client.ask("Hello", GUARD)) as asking:
            until(lambda: any(turn.message_id and turn.timings.acknowledged for turn in client.turns()))
            bot_says(client, "bot-interrupted", None)
            says(client, finished(story))
            bot_says(client, "user-mute-stopped", None)
            assert client.listen(GUARD).spoken_text == story
            says(client, said("Hi."))
            assert asking.get().bot_text == "Hi."
        assert {turn.bot_text: turn.status for turn in client.turns()} == {story: "complete", "Hi.": "complete"}


@pytest.mark.parametrize("call", ["ask", "barge_in"])
def test_the_session_ends_while_the_question_is_read(call: str) -> None:
    """A question whose session ends while its audio is read raises DisconnectedError, also if all events were delivered
    by then.
    """
    with TalkingBot(audio=True).client() as client:

        def slowly(go_on: Callable[[], object], _: object) -> object:
            hangs_up(client)
            client.wait(GUARD)
            return go_on()

        ended = pytest.raises(DisconnectedError, match="before the bot was asked")
        with at("the source of a question is made", slowly), ended:
            getattr(client, call)(SPEECH)


def test_the_session_ends_meanwhile() -> None:
    """No thread is left, and the source is released."""
    source = CallbackSource(lambda frames: bytes(2 * frames))
    with TalkingBot(audio=True).client() as client:
        thread = InThread(lambda: client.ask(source, GUARD))
        until(lambda: replaces_microphone(client))
        hangs_up(client)
        assert isinstance(thread.error(), DisconnectedError)
        until(lambda: not media_threads())
        client.disconnect()
        client.connect()
        with pytest.raises(RequestTimeoutError):
            client.ask(source, 0.1)


@pytest.mark.parametrize(
    "question", [SPEECH, ToneSource(440, 1.0, 24_000), CallbackSource(lambda n: bytes(2 * n), 8000)]
)
@pytest.mark.parametrize("version", ["0.3.0", "2.2.0"])
def test_bots_get_16_khz(version: str, question: Any) -> None:
    """Bots get spoken questions at 16 kHz, whatever the rate of the audio."""
    with TalkingBot(audio=True, version=version).client() as client:
        sent = transport_of(client).sent_audio
        thread = InThread(lambda: client.ask(question, GUARD))
        until(lambda: sent)
        hangs_up(client)
        assert isinstance(thread.error(), DisconnectedError)
        assert {frame.sample_rate_hz for frame in sent} == {16_000}


def test_a_transport_without_audio() -> None:
    """A spoken question over a transport without audio raises DeviceError."""
    client = RTVIClient(transport=MemoryTransport())
    with client, pytest.raises(DeviceError, match="no audio"):
        client.ask(SPEECH, GUARD)


def test_a_late_answer_has_the_error_of_the_bot() -> None:
    """The error starts with the bot's report during the call: it is more likely the cause."""

    def fail(session: BotSession, message: dict[str, Any]) -> bool:
        if is_question := message["type"] == "send-text":
            session.send({"label": "rtvi-ai", "type": "error", "data": {"error": "no \x1b[1mcredit", "fatal": False}})
        return is_question

    def ask(limit: float) -> None:
        with pytest.raises(RequestTimeoutError, match=r"^The bot reported an error: 'no .*credit'\. ") as caught:
            client.ask("Hello", limit)
        assert "\x1b" not in str(caught.value)

    with EmbeddedBot(handler=fail) as bot, echo_client(bot) as client:
        at_some_limit(ask)
