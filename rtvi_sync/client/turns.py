"""The part of the client's interface for conversations: questions, and the turns that answer them."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from operator import methodcaller
from typing import TYPE_CHECKING, TypeAlias

import attrs

from ..concurrency.deadline import Deadline
from ..concurrency.logs import package_logger
from ..errors import BotNotReadyError, RequestTimeoutError, RTVIError, WouldDeadlockError
from ..events import Event, RTVIEvent, event_from
from ..media.base import AudioSource
from ..media.kinds import is_audio_file, is_source
from ..protocol.states import CloseInfo
from ..protocol.validation import BOOL, COUNT, EVENT_CONDITION, WAIT, Rule
from ..session.params import Seconds
from ..session.session import Session
from .base import ClientBase
from .helpers import HelperRegistry
from .llm_helper import LLMHelper
from .message_builders import text_messages

if TYPE_CHECKING:  # most clients need none of them
    from ..conversation.ask import PendingTurn, Question
    from ..conversation.expect import Expect
    from ..conversation.turn import Turn
    from ..event_names import NameOfAnEvent

__tracebackhide__: Callable[..., object] = methodcaller("errisinstance", RTVIError)  # pytest shows the line of the test

logger: logging.Logger = package_logger(__name__)

Askable: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | AudioSource
"""The type of a question to `ask()`."""

_QUESTION = Rule(
    "a text (a str that is not empty), an audio file (a Path, or its bytes), PCM bytes with sample_rate_hz= "
    "(array.tobytes()), or an AudioSource",
    lambda given: isinstance(given, (str, os.PathLike, bytes, bytearray, memoryview)) or is_source(given),
    bool,
)


class ClientTurns(ClientBase):
    """Questions and answers.

    Every method may be called on any thread. It may also be called in functions that the bot calls, but not in manual
    mode, where functions run like handlers and must not wait.
    """

    _helpers: HelperRegistry

    def ask(
        self,
        question: Askable,
        timeout: Seconds | None = 30.0,
        *,
        audio_response: bool = True,
        settle: Seconds = 0.0,
        sample_rate_hz: int | None = None,
    ) -> Turn:
        """Ask the bot a question and return its complete answer.

        Blocks until the bot has written, called its functions and spoken. Calls from several threads queue up. On
        return, the handlers of all earlier events have run. Delivers events in manual mode.

        Args:
            question: A `str`, which is sent as typed text. Or speech: an audio file as a `Path` or as bytes, PCM bytes
                with `sample_rate_hz`, or an `AudioSource` that ends. The client converts speech to 16 kHz and sends it
                in real time in place of the microphone's audio, even if the microphone is off. Silence follows until
                the bot has answered. While the bot has muted the user, speech waits; after a spoken question that was
                given up, it waits in silence until the bot answers that, for at most 5 s and half of the timeout.
            timeout (seconds): Limit of the whole call. None: no limit.
            audio_response: False: ask for text only, which returns much earlier. For typed questions.
            settle (seconds): How long the bot must stay quiet before the answer counts as complete. For bots that don't
                report their function calls: their "One moment" looks like a whole answer. If several calls wait, the
                longest value applies.
            sample_rate_hz (hertz): The sample rate of PCM.

        Returns:
            The turn. Its `status` is "interrupted" if the answer was cut short.

        Raises:
            BotNotReadyError: There is no session with a ready bot.
            RequestTimeoutError: No complete answer arrived within `timeout` seconds. `.turn` has the partial answer.
                `.kind` is "not_heard" if the bot heard nothing of the audio. The session continues; a late answer is
                not mistaken for the answer to the next question.
            DisconnectedError: The session ended. `.turn` has the partial answer.
            BotError: The bot reported an error and no answer. `.turn` has all errors.
            RequestRejectedError: The bot refused the question.
            UnsupportedFeatureError: The bot's version has no such questions, or `track_turns` is False. Or the question
                is a text, but the transport carries no messages, as by telephone. Speak instead.
            DeviceError: The audio cannot be used, or the transport carries none.
            TypeError, ValueError: An argument cannot be used, such as audio without length or without an end.
            WouldDeadlockError: Called in a handler of this client.
            ForkedProcessError: The client was connected when the process forked.

        Example:
            ``client.ask("When are you open?").expect(contains="nine")``
        """
        _QUESTION.check(question=question)
        COUNT.or_none.check(sample_rate_hz=sample_rate_hz)
        BOOL.check(audio_response=audio_response)
        WAIT.or_none.check(timeout=timeout)
        WAIT.check(settle=settle)
        self._check_may_wait("ask()")
        deadline = Deadline(timeout)
        session = self._life.session()
        session.check_ready()
        _check_carried(question, session)  # at once, even if another thread's ask() is running
        conversation = self._turns()
        # In a function that the bot calls, the ask() whose answer includes that call is still running.
        in_function = session.functions.is_current
        with contextlib.nullcontext() if in_function else conversation.ask_lock.hold(deadline):
            session = self._successor_of(session)  # the client may have reconnected in the meantime
            pending = self._question(question, session, audio_response=audio_response, sample_rate_hz=sample_rate_hz)
            # Closed twice, because Ctrl-C may interrupt the first call before it has done anything.
            with conversation.patience(settle), contextlib.closing(pending), contextlib.closing(pending):
                pending.hold(deadline)
                pending.ask(deadline)
                return pending.answer(deadline)

    def barge_in(
        self,
        question: Askable,
        *,
        after: NameOfAnEvent | RTVIEvent = RTVIEvent.BOT_STARTED_SPEAKING,
        delay: Seconds = 0.0,
        where: Callable[[Event], object] | None = None,
        audio_response: bool = True,
        sample_rate_hz: int | None = None,
    ) -> PendingTurn:
        """Arm a question that interrupts the bot: it is asked `delay` seconds after the next `after` event.

        Returns at once:

            second = client.barge_in("Stop!", delay=0.5)
            first = client.ask("Tell me a long story")
            assert first.interrupted
            print(first.spoken_text, second.result().bot_text)

        Args:
            question: As for `ask()`. But audio is sent even while the bot has muted the user.
            after: The event to wait for.
            delay (seconds): Time between the event and the question.
            where: Called with each `after` event. The first event for which it returns true counts. None: the next one.
            audio_response: As for `ask()`.
            sample_rate_hz (hertz): The sample rate of PCM.

        Returns:
            The pending turn. Its `result()` waits for the answer.

        Raises:
            BotNotReadyError: There is no session with a ready bot.
            DisconnectedError: The session ended while the question was being read.
            UnsupportedFeatureError: The question is a text, but the transport carries no messages.
            TypeError, ValueError, DeviceError: An argument cannot be used.
            ForkedProcessError: The client was connected when the process forked.
        """
        _QUESTION.check(question=question)
        COUNT.or_none.check(sample_rate_hz=sample_rate_hz)
        BOOL.check(audio_response=audio_response)
        WAIT.check(delay=delay)
        EVENT_CONDITION.check(where=where)
        from ..conversation.ask import PendingTurn

        event = event_from(after, "after")
        session = self._life.session()
        session.check_ready()
        _check_carried(question, session)
        pending = self._question(question, session, audio_response=audio_response, sample_rate_hz=sample_rate_hz)
        return PendingTurn(pending, self._bus, session, after=event, delay=delay, where=where)

    def listen(self, timeout: Seconds | None = 30.0, *, settle: Seconds = 0.0) -> Turn:
        """Wait for the next complete turn that no call has returned yet, and return it.

        For the bot's greeting, for example, or for speech from the microphone and its answer. Turns from before a
        `connect()` are not returned. Turns from before a loss are, if the client reconnected automatically.

        Args:
            timeout (seconds): Limit of the call. None: no limit.
            settle (seconds): As for `ask()`, for a turn that is incomplete when the call starts.

        Raises:
            BotNotReadyError: There is no session with a ready bot.
            RequestTimeoutError: No turn ended within `timeout` seconds.
            DisconnectedError: The session ended first.
            WouldDeadlockError, ForkedProcessError: As for `ask()`.
        """
        WAIT.or_none.check(timeout=timeout)
        WAIT.check(settle=settle)
        self._check_may_wait("listen()")
        deadline = Deadline(timeout)
        conversation = self._turns()
        with conversation.patience(settle), self._bus.streams.add([RTVIEvent.TURN_ENDED], None) as stream:
            while True:
                if conversation.has_unclaimed:
                    self._life.session().publisher.await_delivery(deadline)
                    if (turn := conversation.claim()) is not None:
                        return turn
                session = self._life.session()
                if stream.after is not None or not session.publisher.was_ready:
                    session.check_ready()
                try:
                    event = stream.next_before(deadline)
                except RequestTimeoutError:
                    raise RequestTimeoutError(
                        f"{conversation.error_within(deadline.elapsed())}No turn ended within {timeout} s. Perhaps "
                        "the bot does not speak first. Else pass a larger timeout; turns() lists turns in progress."
                    ) from None
                if event is None:
                    raise (stream.ended or CloseInfo()).as_error("a turn ended")

    def turns(self) -> tuple[Turn, ...]:
        """Return the last 100 turns of the client's sessions, including turns in progress.

        Turns keep audio, and latencies measured from audio, only after the first call of `turns()`, `ask()` or
        `listen()`, or the first handler of `turn_started` or `turn_ended`. The bot's audio in the first 5 s of the
        session is always kept.

        Raises:
            UnsupportedFeatureError: `track_turns` is False.
        """
        return self._turns().turns()

    def expect(self, within: Seconds = 10.0) -> Expect:
        """Return a context manager that expects actions of the bot, in order:

            with client.expect(within=5) as expect:
                client.send_text("What's the weather in Oslo?")
                expect.call("get_weather", city="Oslo")
                expect.text("rain")
                expect.turn(first_audio=2)
                expect.no_more(for_=1)

        Args:
            within (seconds): Limit of each expectation. It runs from the latest of these: the start of the block, the
                last message that the client sent, and the last event that met an expectation.
        """
        from ..conversation.expect import Expect

        WAIT.check(within=within)
        return Expect(self._bus, self._turns(), within)

    def _check_may_wait(self, call: str) -> None:
        if self._bus.queue.is_current:
            raise WouldDeadlockError(
                f"{call} was called inside a handler of its client, and waits for events that are delivered after the "
                "handler has returned. Call it on another thread."
            )

    def _successor_of(self, session: Session) -> Session:
        """Return the client's session with a ready bot, which may have replaced `session`.

        Raises:
            DisconnectedError: `session` has ended, and has no successor yet.
        """
        try:
            successor = self._life.session()
            successor.check_ready()
        except BotNotReadyError:
            info = attrs.evolve(session.close_info, reconnecting=session.follows)
            raise info.as_error("the bot was asked") from info.error
        return successor

    def _question(
        self, question: Askable, session: Session, *, audio_response: bool, sample_rate_hz: int | None
    ) -> Question:
        from ..conversation.ask import SpokenQuestion, TypedQuestion, source_of

        conversation = self._turns()
        if sample_rate_hz is not None and not isinstance(question, (bytes, bytearray, memoryview)):
            raise TypeError(f"sample_rate_hz goes with PCM (bytes), not with {type(question).__name__}")
        if not isinstance(question, str):
            if not audio_response:
                raise ValueError("audio_response must be True for a spoken question: bots speak their answer to it")
            source = source_of(question, sample_rate_hz)
            return SpokenQuestion(conversation, self._bus, session, source)
        if is_audio_file(question):
            shown = repr(question)[:200]
            logger.warning(
                "%s is sent as words, and is the name of an audio file: to say it, pass Path(%s)", shown, shown
            )
        service = self._helpers.service_of(LLMHelper) or "llm"
        ways = text_messages(question, audio_response=audio_response, llm_service=service)
        return TypedQuestion(conversation, self._bus, session, ways)


def _check_carried(question: Askable, session: Session) -> None:
    """Raise if the question is a text and the transport carries none. Starts no turn."""
    if isinstance(question, str):
        session.check_carries_messages("a text")
