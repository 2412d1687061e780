"""A question to the bot, typed or spoken, and the turn that it leads to."""

from __future__ import annotations

import contextlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from operator import methodcaller
from typing import Final

from ..concurrency.clock import monotonic
from ..concurrency.deadline import Deadline
from ..concurrency.lifecycle import system_failures_as
from ..concurrency.shield import shielded
from ..errors import (
    BotError,
    BotNotReadyError,
    DeviceError,
    DisconnectedError,
    RequestRejectedError,
    RequestTimeoutError,
    RTVIError,
    UnsupportedFeatureError,
)
from ..events import Event, RTVIEvent
from ..media.base import AudioSource
from ..media.session import Insertion
from ..media.sources import BytesSource, SourceRun
from ..messages import RTVIMessage
from ..protocol.attribution import VOICE_UNKNOWN
from ..protocol.states import CloseInfo
from ..protocol.text import one_line, quoted
from ..session.dispatcher import Dispatcher
from ..session.session import Session
from .conversation import ConversationTracker
from .message_builders import run_options
from .question_source import at_microphone_rate, voiced_seconds
from .stats import AudioAccount, account_of
from .turn import Turn

__tracebackhide__: Callable[..., object] = methodcaller("errisinstance", RTVIError)  # pytest shows the line of the test

_ANSWERS: Final = (RTVIEvent.TURN_ENDED, RTVIEvent.MESSAGE_ERROR)
_MUTES: Final = (RTVIEvent.USER_MUTE_STARTED, RTVIEvent.USER_MUTE_STOPPED)
# Voices end softly, and bots report their end by the last loud part.
_SOFT_END = 0.5
# Seconds without further speech of the user after which an answer counts, where it is not known when the voice ended.
_QUIET = 1.5


def text_messages(text: str, *, audio_response: bool, llm_service: str) -> list[RTVIMessage]:
    """Return the messages that ask by a text: the first one that the bot knows is to be sent."""
    message = {"role": "user", "content": text}
    arguments = [{"name": "messages", "value": [message]}, {"name": "run_immediately", "value": True}]
    ways = [
        RTVIMessage("send-text", {"content": text, "options": run_options(True, audio_response)}),
        RTVIMessage("append-to-context", {**message, "run_immediately": True}),
        RTVIMessage("action", {"service": llm_service, "action": "append_to_messages", "arguments": arguments}),
    ]
    return ways if audio_response else ways[:1]  # the others cannot ask for text only


class Question(ABC):
    """One question, from before it is asked. One thread at a time uses it.

    Args:
        conversation: of the client.
        dispatcher: of the client.
        session: whose bot is asked.
    """

    def __init__(self, conversation: ConversationTracker, dispatcher: Dispatcher, session: Session) -> None:
        self._conversation = conversation
        self._session = session
        # Opened before the question is asked, so that its answer is not missed. The answer to a `PendingTurn` may never
        # be asked for, and the turns behind it are no reason to end the session.
        self._stream = dispatcher.open_stream((*_ANSWERS, *_MUTES), None)
        self._stream.max_bytes = sys.maxsize
        if self._stream.session != session.number:  # that has ended since, while a file was read for example
            self._stream.close()
            raise session.close_info.as_error("the bot was asked")
        self._failure: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """Let `answer()` raise: the question could not be asked. The first error counts. Any thread."""
        self._failure = self._failure or error
        self._stream.end(CloseInfo())

    def forget(self) -> None:
        """Discard what came before the question is asked. On the event queue."""
        self._stream.clear()

    @property
    def has_ended(self) -> bool:
        """Tell whether nothing more can come."""
        return self._stream.ended is not None

    @abstractmethod
    def may_rest(self, turn: Turn) -> bool:
        """Tell whether `rest()` may be called, now that a turn is over."""

    @abstractmethod
    def rest(self) -> None:
        """Do what `close()` does, except for what `answer()` still needs. Any thread."""

    @property
    def is_speaking(self) -> bool:
        """Tell whether it speaks, or is silent, in the microphone's place."""
        return False

    @property
    def has_more_to_say(self) -> bool:
        """Return whether part of its speech has not been said yet."""
        return False

    @property
    def is_said(self) -> bool:
        """Tell whether it has said all, and the user's turn that this led to is over, or never began."""
        return True

    @property
    def was_cut(self) -> bool:
        """Tell whether `rest()` came before it had said all."""
        return False

    def close(self) -> None:
        """Listen no longer."""
        self._stream.close()

    def hold(self, deadline: Deadline) -> None:  # noqa: B027 - only speech needs to be heard
        """Wait until the bot hears the user.

        Raises:
            RequestTimeoutError: not before `deadline`.
        """

    @abstractmethod
    def ask(self, deadline: Deadline) -> None:
        """Send the question, or begin to say it."""

    def answer(self, deadline: Deadline) -> Turn:
        """Wait until the bot has answered.

        Raises:
            RequestTimeoutError: not before `deadline`.
            DisconnectedError: the session ended first.
            BotError: the bot reported an error, and answered nothing.
            RequestRejectedError: it refused the question.
        """
        while True:
            event = self._next(deadline)
            if event is None:
                if self._failure is not None:
                    raise self._failure
                info = self._stream.ended
                if info is None or info.by_application:  # `rest()` may have closed the stream before the session did
                    info = self._session.close_info
                error = info.as_error("the bot had answered")
                error.turn = self.turn_so_far()
                raise error
            if event.type is RTVIEvent.MESSAGE_ERROR:
                self._check_refusal(event, deadline)
            elif event.type is RTVIEvent.TURN_ENDED and self._is_answer(event.data):
                turn: Turn = event.data
                if (failure := failure_of(turn)) is not None:
                    raise failure
                ended_here = turn.assumed == VOICE_UNKNOWN and self._session.close_info.by_application
                if turn.status != "failed" and not ended_here:
                    return turn
                if self._session.live:
                    raise _bot_error(turn, "The bot has not said that its answer is over")

    def _next(self, deadline: Deadline) -> Event | None:
        try:
            return self._stream.next_before(deadline)
        except RequestTimeoutError:
            raise self._timed_out(deadline) from None

    @abstractmethod
    def _is_answer(self, turn: Turn) -> bool:
        """Tell whether a turn that is over answers the question."""

    @abstractmethod
    def turn_so_far(self) -> Turn | None:
        """Return what there is of the turn."""

    def _check_refusal(self, event: Event, deadline: Deadline) -> None:  # noqa: B027 - only a text can be refused
        """Raise if the bot has refused the question."""

    def _losses(self) -> str:
        """Return sentences about what the bot did not get of the question."""
        return ""

    def _timed_out(self, deadline: Deadline) -> RequestTimeoutError:
        turn = self.turn_so_far()
        so_far = "nothing of it came" if turn is None or not turn.bot_text else f"so far: {quoted(turn.bot_text, 200)}"
        calls = [call for call in turn.function_calls if call.stopped is None] if turn is not None else []
        if calls:
            names = ", ".join(call.function_name or "one without a name" for call in calls)
            so_far += (
                f"; it waits for what it called: {one_line(names)}. A function of the application needs "
                "register_function_call_handler()"
            )
        error = RequestTimeoutError(
            f"The bot's answer was not complete within {deadline.timeout} s ({so_far}). {self._losses()}Pass a larger "
            "timeout, or look at the error's .turn."
        )
        error.turn = turn
        return error


def failure_of(turn: Turn) -> BotError | None:
    """Return the error by which the bot has answered nothing; None: there is none, as when the session ended."""
    # Its audio may be silence, or a mixer's.
    is_empty = not turn.bot_text and turn.timings.bot_started_speaking is None
    if turn.status != "failed" or not turn.errors or not is_empty:
        return None
    return _bot_error(turn, f"The bot reported an error and answered nothing: {one_line(turn.errors[0].message)}")


def _bot_error(turn: Turn, what: str) -> BotError:
    error = BotError(f"{what}. See the bot's log", fatal=any(each.fatal for each in turn.errors))
    error.turn = turn
    return error


class TypedQuestion(Question):
    """A question by a text.

    Args:
        ways: the messages that ask; the first one that the bot knows is sent.
    """

    def __init__(
        self, conversation: ConversationTracker, dispatcher: Dispatcher, session: Session, ways: list[RTVIMessage]
    ) -> None:
        super().__init__(conversation, dispatcher, session)
        self._ways = ways
        self._message_id: str | None = None
        self._type = ""  # of that message

    def ask(self, deadline: Deadline) -> None:
        """Send the question.

        Raises:
            UnsupportedFeatureError: the bot knows none of the messages.
            RequestRejectedError: it refused the action of a bot of RTVI 0.3.
        """
        while True:
            message = self._ways.pop(0)
            assert message.id is not None, "a new message has one"
            self._conversation.asked.add(message.id)
            self._message_id, self._type = message.id, message.type
            try:
                if message.type == "action":
                    self._act(message, deadline)
                else:
                    self._session.send(message)
            except UnsupportedFeatureError:
                if not self._ways:
                    raise
                self._conversation.asked.discard(message.id)
            except (BotNotReadyError, DisconnectedError):
                if not self._session.is_ending:
                    raise
                return  # answer() raises it, when the turn has ended on the event queue
            else:
                return

    def _act(self, message: RTVIMessage, deadline: Deadline) -> None:
        """Ask by an action, as bots of RTVI 0.3 are asked."""
        session = self._session
        try:
            session.request(message, deadline)
        except RequestRejectedError:
            if session.follower is not None:
                session.follower.unsent(message)
            raise
        except RequestTimeoutError:
            raise self._timed_out(deadline) from None

    def may_rest(self, turn: Turn) -> bool:
        """See `Question`."""
        return self._is_answer(turn)

    def rest(self) -> None:
        """See `Question`. The answer stays in the stream."""
        self._stream.close()

    def close(self) -> None:
        """Listen no longer. If the answer comes later, it is one that no call has returned."""
        if self._message_id is not None:
            self._conversation.asked.discard(self._message_id)
        super().close()

    def _is_answer(self, turn: Turn) -> bool:
        return self._message_id is not None and turn.message_id == self._message_id

    def turn_so_far(self) -> Turn | None:
        """See `Question`."""
        return next(filter(self._is_answer, reversed(self._conversation.turns())), None)

    def _check_refusal(self, event: Event, deadline: Deadline) -> None:
        refusal, follower = event.message, self._session.follower
        if refusal is None or refusal.id != self._message_id:
            return
        if follower is not None:
            follower.unsent(RTVIMessage("send-text", id=self._message_id))
        if event.data.message.startswith("Unsupported type"):
            error = self._session.engine.refused_as_unknown(self._type, one_line(event.data.message))
            with contextlib.suppress(UnsupportedFeatureError):  # then this bot knows no other way
                if self._ways:
                    self.ask(deadline)
                    return
            raise error
        raise RequestRejectedError(
            f"The bot refused the question: {one_line(event.data.message)}. See the bot's log", response=refusal
        )


class SpokenQuestion(Question):
    """A question that a source says in the microphone's place.

    Args:
        source: with an end.
    """

    def __init__(
        self, conversation: ConversationTracker, dispatcher: Dispatcher, session: Session, source: AudioSource
    ) -> None:
        super().__init__(conversation, dispatcher, session)
        self._source = source
        self._insertion: Insertion | None = None
        self._run: SourceRun | None = None
        self._rests = False
        self._voice_end: float | None = None  # monotonic time; None: unknown before all was sent
        self._last: Turn | None = None  # the last turn of the user that is over
        self._first: int | None = None  # the number from which turns may be those of the question; None: not asked yet
        self._before: AudioAccount | None = None
        self._was_muted = False  # the bot has reported that it did not hear the user

    @property
    def _is_muted(self) -> bool:
        return self._session.engine.user_is_muted

    def hold(self, deadline: Deadline) -> None:
        """See `Question`. If the session ends first, return: `answer()` raises."""
        while self._is_muted:
            try:
                if self._stream.next_before(deadline) is None:
                    return
            except RequestTimeoutError:
                raise _not_heard(
                    f"The question was not said within {deadline.timeout} s, because the bot has muted the user: it "
                    "sent user-mute-started, and no user-mute-stopped. Pass a larger timeout, or see the bot's "
                    "user_mute_strategies."
                ) from None

    def ask(self, deadline: Deadline) -> None:
        """Begin to speak, unless `rest()` was called.

        Raises:
            DeviceError: the source cannot be used, or the transport carries no audio.
        """
        with system_failures_as(partial(DeviceError, devices=("mic",)), "The audio of the question cannot be used"):
            self._source = at_microphone_rate(self._source)  # here, because a source of the application may block
        if not self._session.live:  # the microphone may be another session's already; answer() raises
            return
        self._first = self._next_number()
        self._was_muted = self._is_muted
        self._conversation.speaking.add(self)
        if isinstance(self._source, BytesSource):
            self._voice_end = monotonic() + voiced_seconds(self._source)
        # In one step: if `close()` did not know of the insertion, the microphone would never speak again.
        shielded(lambda: self._insert(deadline), on_interrupt=self.rest)

    def _insert(self, deadline: Deadline) -> None:
        if not self._rests:
            self._before = self._account()
            try:
                self._insertion = insertion = self._session.media.insert(self._source, deadline)
            except DeviceError:
                if self._session.live:
                    raise
                return  # the session has ended meanwhile: answer() raises
            self._run = insertion.sender.run
            self._run.when_over(self._check_all_sent)
        if self._rests or not self._session.live:  # Ctrl-C has ended the call meanwhile, or the session has ended
            self._rest()

    def _check_all_sent(self) -> None:
        if not self._all_sent and not self._rests and self._session.live:
            reason = "failed before all of it was sent; the event device_error has the reason"
            self.rest()  # here, because `answer()` may never be called
            self.fail(DeviceError(f"The source of the question {reason}", devices=("mic",)))

    def _next_number(self) -> int:
        """Return the number of the turn that the user's speech of now belongs to."""
        turns = self._conversation.turns()
        # Speech that resumes before the bot has begun to answer is the same turn, though a text was answered meanwhile.
        asked = [turn for turn in turns if turn.modality is not None and turn.is_open and not _has_begun(turn)]
        if asked and asked[-1].modality == "audio":
            return asked[-1].number
        return turns[-1].number + 1 if turns else 1

    def may_be(self, turn: Turn) -> bool:
        """Tell whether a turn may be that of the question."""
        return turn.modality == "audio" and self._first is not None and turn.number >= self._first

    def may_rest(self, turn: Turn) -> bool:
        """See `Question`."""
        return self.may_be(turn) and self._all_sent

    @property
    def is_speaking(self) -> bool:
        """See `Question`."""
        return self._insertion is not None

    @property
    def has_more_to_say(self) -> bool:
        """See `Question`."""
        return self.is_speaking and not self._all_sent

    @property
    def is_said(self) -> bool:
        """See `Question`."""
        turn = self.turn_so_far()
        return self._all_sent and (turn is None or not turn.is_open)

    @property
    def was_cut(self) -> bool:
        """See `Question`."""
        return self._rests and self._run is not None and not self._run.sent

    def rest(self) -> None:
        """See `Question`. Let the microphone speak again."""
        self._rests = True
        shielded(self._rest)

    def _rest(self) -> None:
        insertion, self._insertion = self._insertion, None
        if insertion is not None:
            self._session.media.remove(insertion)
        self._conversation.speaking.discard(self)

    def close(self) -> None:
        """Let the microphone speak again, and listen no longer."""
        self.rest()
        super().close()

    def _next(self, deadline: Deadline) -> Event | None:
        while True:
            try:
                event = self._stream.next_before(Deadline(deadline.at_most(_QUIET)))
            except RequestTimeoutError:
                if deadline.expired:
                    raise self._timed_out(deadline) from None
            else:
                if event is None or event.type not in _MUTES:
                    return event
                self._was_muted = self._was_muted or event.type is RTVIEvent.USER_MUTE_STARTED
                continue
            last = self._last
            if last is None or last.status == "interrupted":
                continue
            # The answer may have been to the first part of what is said, before a pause.
            if self._all_sent and not self._is_user_speaking():
                self._voice_end = None
                return Event(type=RTVIEvent.TURN_ENDED, data=last, received_at=monotonic(), message=None)

    @property
    def _all_sent(self) -> bool:
        return self._run is not None and self._run.sent

    def _goes_on_after(self, turn: Turn) -> bool:
        """Tell whether the question itself has interrupted a turn: the bot took it for over too early."""
        later = (other for other in self._conversation.turns() if other.number > turn.number)
        return self._conversation.speaking == {self} and any(map(self.may_be, later))

    def _is_user_speaking(self) -> bool:
        turns = self._conversation.turns()
        return bool(turns) and turns[-1].modality == "audio" and turns[-1].status == "in_progress"

    def _is_answer(self, turn: Turn) -> bool:
        if not self.may_be(turn):
            return False
        self._last = turn
        if turn.status == "interrupted" and self._goes_on_after(turn):
            return False
        if self._voice_end is None:
            return self._all_sent
        heard_end = turn.timings.user_stopped_reported or turn.timings.acknowledged or turn.timings.ended
        return heard_end is not None and heard_end >= self._voice_end - _SOFT_END

    def turn_so_far(self) -> Turn | None:
        """See `Question`."""
        return next(filter(self.may_be, reversed(self._conversation.turns())), None)

    def _account(self) -> AudioAccount:
        """Return what became of the audio since the question was begun."""
        session = self._session
        # Shielded, because the main thread must not hold the lock that this takes.
        now = shielded(lambda: account_of(session.transport.stats(), session.media.counters))
        return now if self._before is None else now.since(self._before)

    def _losses(self) -> str:
        account = self._account()
        return account.describe() if account.has_losses else ""

    def _timed_out(self, deadline: Deadline) -> RequestTimeoutError:
        if self.turn_so_far() is not None:
            return super()._timed_out(deadline)
        if self._was_muted:
            return _not_heard(
                f"The bot has not heard what was said within {deadline.timeout} s, because it had muted the user: it "
                "sent user-mute-started. Wait for user-mute-stopped, or see the bot's user_mute_strategies."
            )
        return _not_heard(
            f"The bot has not heard what was said within {deadline.timeout} s: it reported neither speech nor words of "
            f"the user. {self._account().describe()}See that the bot has a transport with audio input, and voice "
            "activity detection or speech recognition, and that it is not overloaded."
        )


def _not_heard(text: str) -> RequestTimeoutError:
    error = RequestTimeoutError(text)
    error.kind = "not_heard"
    return error


def _has_begun(turn: Turn) -> bool:
    return turn.timings.llm_started is not None or bool(turn.bot_text)
