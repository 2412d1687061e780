"""The part of the client's interface for conversations: questions, and the turns that they lead to."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from operator import methodcaller
from typing import TYPE_CHECKING, TypeAlias

from ..concurrency.deadline import Deadline
from ..concurrency.logs import package_logger
from ..errors import RequestTimeoutError, RTVIError, WouldDeadlockError
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

__tracebackhide__: Callable[..., object] = methodcaller("errisinstance", RTVIError)  # pytest shows the line of the test

logger: logging.Logger = package_logger(__name__)

Askable: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | AudioSource
"""What `ask()` takes."""

_QUESTION = Rule(
    "a text (a str that is not empty), an audio file (a Path, or its bytes), PCM with sample_rate_hz=, or an "
    "AudioSource",
    lambda given: isinstance(given, (str, os.PathLike, bytes, bytearray, memoryview)) or is_source(given),
    bool,
)


class ClientTurns(ClientBase):
    """Questions and answers. Every method may be called on any thread, also in functions that the bot calls; in manual
    mode those run where handlers do, and must not wait.
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
        """Ask the bot something, and wait until it has answered: written, spoken, and called functions.

        An answer that is interrupted is returned; its `status` says so. Calls of several threads take turns. When it
        returns, the handlers of every earlier event have returned. In manual mode it delivers events meanwhile.

        Args:
            question: a text (any `str`), which the user types. Or audio, which is said in the microphone's place in
                real time, also while that is off, and followed by silence until the bot has answered: an audio file as
                a `Path` or as its bytes, PCM (bytes with `sample_rate_hz`), or an `AudioSource` that ends. It is
                converted to 16 kHz, the rate of microphones, and held while the bot has muted the user.
            timeout: seconds, for the whole call; None: no limit.
            audio_response: the answer is spoken; False: it comes as text only. For a typed question.
            settle: how many seconds the bot must be quiet before its answer counts as complete. For bots that do not
                report the functions that they call: what they say before a function looks like the whole answer. Of
                calls that wait at the same time, the longest holds for all.
            sample_rate_hz: of PCM.

        Raises:
            BotNotReadyError: there is no session with a ready bot.
            RequestTimeoutError: not answered within `timeout` seconds; `.turn` is what there was of it, and `.kind` is
                "not_heard" if the bot has heard nothing of the audio. The session goes on, and a later question is not
                confused by the answer to this one.
            DisconnectedError: the session ended first; `.turn` is what there was.
            BotError: the bot reported an error, and answered nothing; `.turn` has all errors.
            RequestRejectedError: the bot refused the question.
            UnsupportedFeatureError: the bot's version knows no way to ask so; a text over a transport that carries no
                messages, as by telephone: speak instead; or the client was made with `track_turns=False`.
            DeviceError: the audio cannot be used, or the transport carries none.
            TypeError, ValueError: an argument cannot be used, such as audio of no length, or without an end.
            WouldDeadlockError: called inside a handler of this client.
            ForkedProcessError: the client was connected when the process forked.
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
        _check_carried(question, session)  # at once, though another thread's ask() may be under way
        conversation = self._turns()
        # A function runs while the ask() to whose answer it belongs waits for that.
        in_function = session.functions.is_current
        with contextlib.nullcontext() if in_function else conversation.ask_lock.hold(deadline):
            session = self._life.session()  # it may have been replaced meanwhile
            session.check_ready()
            pending = self._question(question, session, audio_response=audio_response, sample_rate_hz=sample_rate_hz)
            # Closed twice, because Ctrl-C may come before the first call has done anything.
            with conversation.patience(settle), contextlib.closing(pending), contextlib.closing(pending):
                pending.hold(deadline)
                pending.ask(deadline)
                return pending.answer(deadline)

    def barge_in(
        self,
        question: Askable,
        *,
        after: str | RTVIEvent = RTVIEvent.BOT_STARTED_SPEAKING,
        delay: Seconds = 0.0,
        where: Callable[[Event], object] | None = None,
        audio_response: bool = True,
        sample_rate_hz: int | None = None,
    ) -> PendingTurn:
        """Ask something while the bot speaks: `delay` seconds after the next `after` event.

        It is armed when the call returns::

            second = client.barge_in("Stop!", delay=0.5)
            first = client.ask("Tell me a long story")
            assert first.interrupted
            print(first.spoken_text, second.result().bot_text)

        Args:
            question, audio_response, sample_rate_hz: as of `ask()`, but audio is also said while the bot has muted the
                user.
            after: the event.
            delay: seconds.
            where: called with each `after` event; the first one for which it is true counts.

        Raises:
            BotNotReadyError: there is no session with a ready bot.
            DisconnectedError: the session ended while the question was read.
            UnsupportedFeatureError: a text, over a transport that carries no messages.
            TypeError, ValueError, DeviceError: an argument cannot be used.
            ForkedProcessError: the client was connected when the process forked.
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
        """Return the next turn that is over and that no call has returned yet, once there is one.

        A greeting of the bot, for example, or what a user said into the microphone and the bot answered. Turns before a
        `connect()` are not returned after it; those before a loss are, if the client has replaced the session by
        itself.

        Args:
            timeout: seconds; None: no limit.
            settle: as of `ask()`, for a turn that is not over when the call begins.

        Raises:
            BotNotReadyError: there is no session with a ready bot.
            RequestTimeoutError: none within `timeout` seconds.
            DisconnectedError: the session ended first.
            WouldDeadlockError, ForkedProcessError: as of `ask()`.
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
                        f"{conversation.error_within(deadline.elapsed())}No turn was over within {timeout} s. Pass a "
                        "larger timeout, or see turns() for one that is under way."
                    ) from None
                if event is None:
                    raise (stream.ended or CloseInfo()).as_error("a turn was over")

    def turns(self) -> tuple[Turn, ...]:
        """Return the last 100 turns of the client's sessions, with those that are not over.

        They have audio, and the latencies that are measured by it, from the first call of this method, `ask()` or
        `listen()` on, or from the first handler of `turn_started` or `turn_ended`; and what the bot said in the first 5
        s of the session.

        Raises:
            UnsupportedFeatureError: The client was made with `track_turns=False`.
        """
        return self._turns().turns()

    def expect(self, within: Seconds = 10.0) -> Expect:
        """Return a context manager in whose block the bot is expected to do things, in order::

            with client.expect(within=5) as expect:
                client.send_text("What's the weather in Oslo?")
                expect.call("get_weather", city="Oslo")
                expect.text("rain")
                expect.turn(first_audio=2)
                expect.no_more(for_=1)

        Args:
            within: seconds for each expectation, from the latest of the beginning of the block, the last message that
                the client sent, and what was met last.
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
    """Raise if a question is a text, and the transport carries none. No turn is started."""
    if isinstance(question, str):
        session.check_carries_messages("a text")
