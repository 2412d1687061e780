"""One question to the bot, typed or spoken, now or later, until its answer.

`ask()` makes a question, asks it and waits for its answer. `barge_in()` makes a `PendingTurn`, which asks its question
when the bot causes an event.
"""

from __future__ import annotations

import contextlib
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any, Final

from ..concurrency.clock import monotonic
from ..concurrency.deadline import Deadline
from ..concurrency.lifecycle import system_failures_as
from ..concurrency.serial_queue import SerialQueue
from ..concurrency.shield import shielded
from ..errors import (
    BotError,
    BotNotReadyError,
    DeviceError,
    DisconnectedError,
    MissingExtraError,
    RequestRejectedError,
    RequestTimeoutError,
    RTVIError,
    UnsupportedFeatureError,
    WouldDeadlockError,
    fresh_copy,
)
from ..events import Event, RTVIEvent
from ..media.audio_files import decode
from ..media.base import AudioSource
from ..media.capture import AudioSender
from ..media.convert import ResamplingSource, origin_of
from ..media.kinds import is_source
from ..media.levels import WINDOWS_PER_SECOND, audible_windows
from ..media.pcm import MICROPHONE_RATE_HZ
from ..media.resample import resample
from ..media.slot import rate_of
from ..media.sources import BytesSource, MemorySource, PackagedSource, SourceRun, WavSource
from ..messages import RTVIMessage
from ..protocol.states import CloseInfo
from ..protocol.text import one_line, quoted
from ..protocol.validation import WAIT
from ..session.event_bus import EventBus
from ..session.event_stream import EventStream
from ..session.params import Seconds
from ..session.session import Session
from .audio import AudioAccount, account_of
from .follow import ConversationTracker, GivenUp
from .record import TurnRecord
from .tracker import VOICE_UNKNOWN
from .turn import Turn

__tracebackhide__: Callable[..., object] = methodcaller("errisinstance", RTVIError)  # pytest shows the line of the test

_ANSWERS: Final = (RTVIEvent.TURN_ENDED, RTVIEvent.MESSAGE_ERROR)
_MUTES: Final = (RTVIEvent.USER_MUTE_STARTED, RTVIEvent.USER_MUTE_STOPPED)
# The first signs of an answer. After one, the bot no longer joins the next question to the one that was given up.
_BEGINNINGS: Final = (
    RTVIEvent.BOT_LLM_STARTED,
    RTVIEvent.BOT_LLM_TEXT,
    RTVIEvent.BOT_OUTPUT,
    RTVIEvent.BOT_STARTED_SPEAKING,
    RTVIEvent.TURN_ENDED,
)
# Voices end softly, and bots report the end after the last loud part.
_SOFT_END = 0.5
# If it is unknown when the voice ended, an answer counts after this many seconds without further speech of the user.
_QUIET = 1.5
# Seconds after which the microphone is heard again if the bot has not heard a pending question.
_HEARING_LIMIT = 5.0
# Seconds of silence to send after a question that was given up, if the bot has reported none of it.
_UNHEARD = 1.0
# The error names the time that other threads' questions took if it is above these seconds and this share of the limit.
_LONG, _MUCH = 0.1, 0.1
_CANCELLED = "This question was cancelled. Call barge_in() again"


class Question(ABC):
    """One question, from before it is asked. One thread at a time uses it.

    Args:
        conversation: The client's conversation.
        bus: The client's event bus.
        session: The session whose bot is asked.

    Attributes:
        stream: Receives the events that may answer the question.
    """

    def __init__(self, conversation: ConversationTracker, bus: EventBus, session: Session) -> None:
        self._conversation = conversation
        self._bus = bus
        self._session = session
        # Opened before the question is asked, so that its answer is not missed. Perhaps no call ever waits for the
        # answer to a `PendingTurn`; the turns queued behind it must not end the session.
        self.stream: EventStream = bus.open_stream((*_ANSWERS, *_MUTES), None)
        self.stream.max_bytes = sys.maxsize
        if self.stream.session != session.number:  # the session has ended, for example while a file was read
            self.stream.close()
            raise session.close_info.as_error("the bot was asked")
        self._failure: BaseException | None = None
        self._queued = 0.0  # seconds of the timeout that passed while other threads asked

    def hold(self, deadline: Deadline) -> None:
        """Wait until the bot hears the user. A typed question needs no wait.

        Raises:
            RequestTimeoutError: The bot still does not hear the user at `deadline`.
        """
        self._queued = deadline.elapsed()

    @abstractmethod
    def ask(self, deadline: Deadline) -> None:
        """Send the question, or start to say it."""

    def answer(self, deadline: Deadline) -> Turn:
        """Wait until the bot has answered.

        Raises:
            RequestTimeoutError: There was no answer before `deadline`.
            DisconnectedError: The session ended first.
            BotError: The bot reported an error and no answer.
            RequestRejectedError: The bot refused the question.
        """
        while True:
            event = self._next(deadline)
            if event is None:
                if self._failure is not None:
                    raise self._failure
                info = self.stream.ended
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
            return self.stream.next_before(deadline)
        except RequestTimeoutError:
            raise self._timed_out(deadline) from None

    def _is_answer(self, turn: Turn) -> bool:
        """Whether an ended turn answers the question."""
        return self.may_be(turn)

    @abstractmethod
    def may_be(self, turn: TurnRecord) -> bool:
        """Whether a turn may belong to the question."""

    def turn_so_far(self) -> Turn | None:
        """Return the question's last turn, as known so far."""
        return next(filter(self.may_be, reversed(self._conversation.turns())), None)

    @property
    def is_speaking(self) -> bool:
        """Whether the question currently replaces the microphone."""
        return False

    @property
    def all_sent(self) -> bool:
        """Whether all of a spoken question was sent to the bot."""
        return True

    def fail(self, error: BaseException) -> None:
        """Let `answer()` raise: the question could not be asked. The first error counts. Any thread."""
        self._failure = self._failure or error
        self.stream.end(CloseInfo())

    @abstractmethod
    def rest(self) -> None:
        """Release everything except the events that `answer()` still needs. Any thread."""

    def give_up(self) -> None:
        """Do the same as `rest()`. If the bot may still be hearing the question, the next one waits for that."""
        self.rest()

    def close(self) -> None:
        """Release everything."""
        self.stream.close()

    def _check_refusal(self, event: Event, deadline: Deadline) -> None:  # noqa: B027 - only a text can be refused
        """Raise if the bot has refused the question."""

    def _losses(self) -> str:
        """Return sentences about the parts of the question that the bot did not get."""
        return ""

    def _so_far(self, turn: Turn | None) -> str:
        """Return the partial answer in words. "" if there is none."""
        if turn is not None and turn.bot_text:
            return f"so far: {quoted(turn.bot_text, 200)}"
        if turn is not None and turn.bot_text is None and turn.timings.bot_started_speaking is not None:
            is_over = self._conversation.is_pending
            return "it was said, and `transcribe` has not returned" if is_over else "it was heard to start"
        return ""

    def _reported(self, deadline: Deadline) -> str:
        return self._conversation.error_within(deadline.elapsed())

    def _timed_out(self, deadline: Deadline) -> RequestTimeoutError:
        turn = self.turn_so_far()
        calls = [call for call in turn.function_calls if call.stopped is None] if turn is not None else []
        so_far, waits = self._so_far(turn), f"within {deadline.timeout} s"
        has_queued = deadline.timeout is not None and self._queued > max(_LONG, _MUCH * deadline.timeout)
        if has_queued:
            waits += f", of which other threads' questions took {self._queued:.1f} s"
        if calls:
            names = ", ".join(call.function_name or "one without a name" for call in calls)
            so_far = (
                f"{so_far or 'no part of it arrived'}; it waits for its function calls: {one_line(names)}. A function "
                "of the application needs register_function_call_handler()"
            )
        if so_far:
            what = f"The bot's answer was not complete {waits} ({so_far})"
            advice = "Pass a larger timeout, or look at the error's .turn."
        else:
            what = f"The bot's answer did not begin {waits}"
            if turn is not None and (_is_started(turn) or turn.timings.bot_started_speaking is not None):
                what = f"The bot's answer was not complete {waits} (no words of it arrived)"
            advice = "See the bot's log (its model, its key), or run `rtvi-sync doctor URL`."
            if has_queued:
                advice = "Pass a larger timeout, or give each thread a client of its own."
        error = RequestTimeoutError(f"{self._reported(deadline)}{what}. {self._losses()}{advice}")
        error.turn = turn
        return error


class TypedQuestion(Question):
    """A typed question.

    Args:
        ways: The messages that can ask it. The first one that the bot knows is sent.
    """

    def __init__(
        self, conversation: ConversationTracker, bus: EventBus, session: Session, ways: list[RTVIMessage]
    ) -> None:
        super().__init__(conversation, bus, session)
        self._ways = ways
        self._message_id: str | None = None
        self._type = ""  # of that message

    def ask(self, deadline: Deadline) -> None:
        """Send the question.

        Raises:
            UnsupportedFeatureError: The bot knows none of the messages.
            RequestRejectedError: A bot of RTVI 0.3 refused the action.
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
        """Ask by an action, as for bots of RTVI 0.3."""
        session = self._session
        try:
            session.request(message, deadline)
        except RequestRejectedError:
            if session.follower is not None:
                session.follower.unsent(message)
            raise
        except RequestTimeoutError:
            raise self._timed_out(deadline) from None

    def may_be(self, turn: TurnRecord) -> bool:
        """See `Question`."""
        return self._message_id is not None and turn.message_id == self._message_id

    def rest(self) -> None:
        """See `Question`. The answer stays in the stream."""
        self.stream.close()

    def close(self) -> None:
        """Release everything. If the answer arrives later, it counts as a turn that no call has returned."""
        if self._message_id is not None:
            self._conversation.asked.discard(self._message_id)
        super().close()

    def _check_refusal(self, event: Event, deadline: Deadline) -> None:
        refusal, follower = event.message, self._session.follower
        if refusal is None or refusal.id != self._message_id:
            return
        if follower is not None:
            follower.unsent(RTVIMessage("send-text", id=self._message_id))
        if event.data.message.startswith("Unsupported type"):
            error = self._session.engine.refused_as_unknown(self._type, one_line(event.data.message))
            with contextlib.suppress(UnsupportedFeatureError):  # this bot knows no other way
                if self._ways:
                    self.ask(deadline)
                    return
            raise error
        raise RequestRejectedError(
            f"The bot refused the question: {one_line(event.data.message)}. See the bot's log", response=refusal
        )


class SpokenQuestion(Question):
    """A question that a source says in place of the microphone.

    Args:
        source: Audio that ends.
    """

    def __init__(self, conversation: ConversationTracker, bus: EventBus, session: Session, source: AudioSource) -> None:
        super().__init__(conversation, bus, session)
        self._source = source
        self._sender: AudioSender | None = None
        self._run: SourceRun | None = None
        self._rests = False
        self._voice_end: float | None = None  # monotonic time; None: unknown before all was sent
        self._last: Turn | None = None  # the user's last turn that has ended
        self._first: int | None = None  # the first turn number that may belong to the question; None: not asked yet
        self._before: AudioAccount | None = None
        self._was_muted = False  # the bot has reported that it did not hear the user
        self._is_owed = False  # the bot may have heard a part of the question, and has not answered

    @property
    def _is_muted(self) -> bool:
        return self._session.engine.user_is_muted

    def hold(self, deadline: Deadline) -> None:
        """See `Question`. Return if the session ends first; then `answer()` raises."""
        super().hold(deadline)
        self._await_unmuted(deadline)
        self._await_given_up(deadline)
        self._await_unmuted(deadline)  # bots may mute the user while they answer

    def _await_given_up(self, deadline: Deadline) -> None:
        """If a question was given up, send silence until the bot answers that, so that it does not take both for one.

        Perhaps it never answers. So wait at most half of the time that is left, and for each turn only once.
        """
        conversation, follower = self._conversation, self._session.follower
        given_up = conversation.given_up
        if given_up is None or follower is None or given_up.session != follower.number:
            return
        limit = Deadline(deadline.at_most(2 * _HEARING_LIMIT) / 2)
        heard_by = Deadline(limit.at_most(_UNHEARD))
        first = max(given_up.first, conversation.unanswered + 1)
        with contextlib.closing(self._bus.open_stream(_BEGINNINGS, None)) as news:
            shielded(lambda: self._send(BytesSource(b"", MICROPHONE_RATE_HZ), deadline), on_interrupt=self.rest)
            while self._session.live:
                turns = [turn for turn in conversation.turns() if turn.session == given_up.session]
                heard = [turn for turn in turns if turn.modality == "audio" and turn.number >= first]
                if heard:
                    if all(_is_started(turn) or not turn.is_open for turn in heard):
                        break
                elif given_up.all_sent or heard_by.expired:
                    break
                if deadline.expired:
                    raise _not_heard(
                        f"The question was not said within {deadline.timeout} s, because the bot was still hearing the "
                        "one before, which was given up. Pass a larger timeout."
                    )
                if heard and limit.expired:
                    conversation.unanswered = heard[-1].number
                    break
                with contextlib.suppress(RequestTimeoutError):
                    if news.next_before(limit if heard else heard_by) is None:
                        break
        if conversation.given_up is given_up:  # no other thread has cancelled a question in the meantime
            conversation.given_up = None

    def _await_unmuted(self, deadline: Deadline) -> None:
        while self._is_muted:
            try:
                if self.stream.next_before(deadline) is None:
                    return
            except RequestTimeoutError:
                raise _not_heard(
                    f"The question was not said within {deadline.timeout} s, because the bot has muted the user: it "
                    "sent user-mute-started, and no user-mute-stopped. Pass a larger timeout, or see the bot's "
                    "user_mute_strategies."
                ) from None

    def ask(self, deadline: Deadline) -> None:
        """Start to speak, unless `rest()` was called.

        Raises:
            DeviceError: The source cannot be used, or the transport carries no audio.
        """
        with system_failures_as(partial(DeviceError, devices=("mic",)), "The audio of the question cannot be used"):
            self._source = at_microphone_rate(self._source)  # here, because a source of the application may block
        if not self._session.live:  # another session may already use the microphone; answer() raises
            return
        self._first = self._next_number()
        self.stream.clear()  # earlier reports that the bot has muted the user
        self._was_muted = self._is_muted
        self._conversation.speaking.add(self)
        if isinstance(self._source, BytesSource):
            self._voice_end = monotonic() + voiced_seconds(self._source)
        # In one step: if `close()` did not know the sender, the microphone would never be heard again.
        shielded(lambda: self._insert(deadline), on_interrupt=self.rest)

    def _insert(self, deadline: Deadline) -> None:
        self._before = self._account()
        self._send(self._source, deadline)
        if self._sender is not None:
            self._run = self._sender.run
            self._is_owed = True
            self._run.when_over(self._check_all_sent)

    def _send(self, source: AudioSource, deadline: Deadline) -> None:
        """Send a source, in place of the microphone and of the source before, unless `rest()` was called."""
        if not self._rests:
            before, mic = self._sender, self._session.media.mic
            try:
                self._sender = mic.insert(source, deadline)
            except DeviceError:
                if self._session.live:
                    raise
                return  # the session has ended: answer() raises
            if before is not None:
                mic.remove(before)
        if self._rests or not self._session.live:  # Ctrl-C ended the call during the insertion, or the session ended
            self.rest()

    def _check_all_sent(self) -> None:
        if not self.all_sent and not self._rests and self._session.live:
            reason = "failed before all of it was sent; the event device_error has the reason"
            self.give_up()  # here, because `answer()` may never be called
            self.fail(DeviceError(f"The source of the question {reason}", devices=("mic",)))

    def _next_number(self) -> int:
        """Return the number of the turn to which the user's current speech belongs."""
        turns = self._conversation.turns()
        # Speech that resumes before the bot answers belongs to the same turn, even if a text was answered in between.
        asked = [turn for turn in turns if turn.modality is not None and turn.is_open and not _is_started(turn)]
        if asked and asked[-1].modality == "audio":
            return asked[-1].number
        return turns[-1].number + 1 if turns else 1

    def may_be(self, turn: TurnRecord) -> bool:
        """See `Question`. Turns of a later session don't count, even if the question has not been closed yet."""
        follower = self._session.follower
        in_session = follower is not None and turn.session == follower.number
        return in_session and turn.modality == "audio" and self._first is not None and turn.number >= self._first

    @property
    def is_speaking(self) -> bool:
        """See `Question`. True before `_sender` is known, because the source may speak as soon as it is inserted."""
        return self._first is not None and not self._rests

    @property
    def all_sent(self) -> bool:
        """See `Question`."""
        return self._run is not None and self._run.sent

    def rest(self) -> None:
        """See `Question`. Let the microphone be heard again."""
        self._rests = True
        shielded(self._rest)

    def _rest(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            self._session.media.mic.remove(sender)
        self._conversation.speaking.discard(self)

    def answer(self, deadline: Deadline) -> Turn:
        """See `Question`."""
        turn = super().answer(deadline)
        self._is_owed = False
        return turn

    def give_up(self) -> None:
        """See `Question`."""
        self.rest()
        is_owed, self._is_owed = self._is_owed, False
        follower = self._session.follower
        if is_owed and self._first is not None and follower is not None:
            self._conversation.given_up = GivenUp(follower.number, self._first, self.all_sent)

    def close(self) -> None:
        """Release everything, including the microphone."""
        self.give_up()
        super().close()

    def _next(self, deadline: Deadline) -> Event | None:
        while True:
            try:
                event = self.stream.next_before(Deadline(deadline.at_most(_QUIET)))
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
            # The answer may be to the first part of the question, before a pause.
            if self.all_sent and not self._is_user_speaking():
                self._voice_end = None
                return Event(type=RTVIEvent.TURN_ENDED, data=last, received_at=monotonic(), message=None)

    def _goes_on_after(self, turn: Turn) -> bool:
        """Whether the question itself interrupted a turn, because the bot took a pause for its end."""
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
            return self.all_sent
        heard_end = turn.timings.user_stopped_reported or turn.timings.acknowledged or turn.timings.ended
        return heard_end is not None and heard_end >= self._voice_end - _SOFT_END

    def _account(self) -> AudioAccount:
        """Return the account of the audio since the start of the question."""
        session = self._session
        # Shielded, because the main thread must not hold the lock that this acquires.
        now = shielded(lambda: account_of(session.transport.stats(), session.media.counters))
        return now if self._before is None else now.since(self._before)

    def _losses(self) -> str:
        account = self._account()
        return account.describe() if account.has_losses else ""

    def _timed_out(self, deadline: Deadline) -> RequestTimeoutError:
        if (turn := self.turn_so_far()) is not None:
            if self.all_sent:
                return super()._timed_out(deadline)
            error = RequestTimeoutError(
                f"The question was still being said after {deadline.timeout} s. {self._losses()}Pass a larger timeout."
            )
            error.turn = turn
            return error
        if self._was_muted:
            return _not_heard(
                f"The bot has not heard the question within {deadline.timeout} s, because it had muted the user: it "
                "sent user-mute-started. Wait for user-mute-stopped, or see the bot's user_mute_strategies."
            )
        if not self._conversation.has_words:
            account = self._account()
            advice = "Listen to its audio: it is silent or soft"
            if account.has_losses:
                advice = "Run less on this machine, or listen to its audio: perhaps it is silent"
            return _not_heard(
                f"Nothing of the question was audible within {deadline.timeout} s, so it is no turn. "
                f"{account.describe()}{advice}."
            )
        return _not_heard(
            f"{self._reported(deadline)}The bot has not heard the question within {deadline.timeout} s: it reported "
            f"no speech or words of the user. {self._account().describe()}See that the bot has a transport with "
            "audio input, and voice activity detection or speech recognition, and that it is not overloaded."
        )


class PendingTurn:
    """A question to ask at an event of the bot, and the turn that answers it. Made by `barge_in()`.

    Any thread may call its methods, but `result()` only on one thread at a time.
    """

    def __init__(
        self,
        question: Question,
        bus: EventBus,
        session: Session,
        *,
        after: RTVIEvent,
        delay: Seconds,
        where: Callable[[Event], object] | None,
    ) -> None:
        self._question = question
        self._runtime = session.runtime
        self._after = after
        self._delay = delay
        self._where = where
        self._turn: Turn | None = None
        self._error: BaseException | None = None
        # Under the key 0: "asked" or "cancelled", whichever was first. Not an attribute, because other threads cannot
        # interrupt `setdefault()`, which is one step.
        self._decision: dict[int, str] = {}
        self._due = False  # the event has arrived
        self._was_said = False
        self._silenced = False
        self._stop = bus.observe({after, RTVIEvent.TURN_ENDED, RTVIEvent.DISCONNECTED}, self._take)

    def result(self, timeout: Seconds | None = 30.0) -> Turn:
        """Wait until the bot has answered, and return the turn.

        Args:
            timeout (seconds): Limit of the call. None: no limit.

        Raises:
            RequestTimeoutError: There was no answer within `timeout` seconds. A question that was not yet asked, or not
                said to its end, is cancelled. Otherwise `result()` may be called again.
            RTVIError: The question was cancelled. Also the errors of `RTVIClient.ask()`.
        """
        WAIT.or_none.check(timeout=timeout)
        if self._turn is not None:
            return self._turn
        if self._error is not None:
            raise fresh_copy(self._error)
        if self._cancelled:
            raise RTVIError(_CANCELLED)
        try:
            self._turn = self._question.answer(Deadline(timeout))
        except WouldDeadlockError:
            raise
        except RequestTimeoutError as error:
            why = f"no {self._after.value} event arrived" if not self._due else f"the delay of {self._delay} s goes on"
            if self._decision.setdefault(0, "cancelled") == "asked":
                if self._question.all_sent or not self._question.is_speaking:
                    raise
                # Cancelled, so that it interrupts no later question: _end() lets the microphone be heard again.
                text = f"The question was still being said after {timeout} s; it is cancelled. Call barge_in() again, "
                self._error = RequestTimeoutError(f"{text}and pass a larger timeout.")
                self._error.turn = error.turn
            else:
                self._error = RequestTimeoutError(
                    f"The question was not asked within {timeout} s, because {why}; it is cancelled. Call barge_in() "
                    "again, and pass a larger timeout, or another event as after=."
                )
            self._end()
            raise fresh_copy(self._error) from None
        except Exception as error:
            if self._cancelled:
                raise RTVIError(_CANCELLED) from None
            self._error = error
            self._end()
            raise
        self._end()
        return self._turn

    def done(self) -> bool:
        """Whether `result()` would return or raise at once."""
        is_settled = self._turn is not None or self._error is not None or self._cancelled
        if is_settled or self._question.stream.ended is not None:
            return True
        turn = self._question.turn_so_far()
        return turn is not None and not turn.is_open

    def cancel(self) -> bool:
        """Cancel the question. If it was asked already, stop saying it, and return False.

        `result()` then raises, unless all of the question was sent.
        """
        self._silenced = True  # first, because another thread may be about to ask
        if self._decision.setdefault(0, "cancelled") == "asked":
            self._silence()
            return False
        self._end()
        return True

    @property
    def _asked(self) -> bool:
        return self._decision.get(0) == "asked"

    @property
    def _cancelled(self) -> bool:
        return self._decision.get(0) == "cancelled"

    def _end(self) -> None:
        self._stop()
        self._question.close()

    # -- on the event queue -------------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        """Ask if this is the expected event. After the answer release everything: perhaps no call reads it."""
        question = self._question
        is_end = event.type is RTVIEvent.DISCONNECTED
        if event.type is RTVIEvent.TURN_ENDED:
            if self._asked:
                is_end = question.all_sent and question.may_be(event.data)
            else:
                question.stream.clear()  # a turn before the question
        if is_end:
            self._stop()
            self._later(question.rest)
        elif event.type is self._after and not self._due and self._is_meant(event):
            self._due = True
            self._call_later(self._delay, self._ask)

    def _is_meant(self, event: Event) -> bool:
        try:
            return self._where is None or bool(self._where(event))
        except Exception as error:  # noqa: BLE001 - result() raises it
            self._stop()
            self._question.fail(error)
            return False

    def _call_later(self, seconds: Seconds, call: Callable[[], None]) -> None:
        io = self._runtime.io
        io.call(lambda: io.call_later(seconds, lambda: self._later(call)))

    def _later(self, call: Callable[[], None]) -> None:
        """Call something on a worker, because opening and closing a source may block."""
        SerialQueue().post(call, self._runtime.workers)

    def _ask(self) -> None:
        if self._decision.setdefault(0, "asked") == "cancelled":
            return
        try:
            self._question.ask(Deadline(None))
        except BaseException as error:  # noqa: BLE001 - result() raises it
            self._question.fail(error)
            self._question.rest()
        self._watch()

    def _watch(self) -> None:
        """Let the microphone be heard again if the bot doesn't hear the question, or the question was cancelled."""
        question = self._question
        if not question.is_speaking:
            return
        turn = question.turn_so_far()
        was_said, self._was_said = self._was_said, question.all_sent and (turn is None or not turn.is_open)
        if self._silenced or (was_said and self._was_said):
            self._silence()
        else:
            self._call_later(_HEARING_LIMIT, self._watch)

    def _silence(self) -> None:
        """Stop saying the question, and let the microphone be heard again."""
        if self._question.is_speaking:
            self._question.give_up()
            if not self._question.all_sent:
                self._question.fail(RTVIError(_CANCELLED))


def source_of(question: Any, sample_rate_hz: int | None) -> AudioSource:
    """Return the source for a spoken question.

    Args:
        question: A `Path`, the bytes of an audio file, PCM with `sample_rate_hz`, or a source.
        sample_rate_hz: The rate of PCM. None: the question is not PCM.

    Raises:
        TypeError: `question` is none of these.
        ValueError: The bytes are not an audio file, or the source has no end or no audio.
        DeviceError: The file cannot be used.
    """
    source = _source_of(question, sample_rate_hz)
    read = origin_of(source)
    if isinstance(read, PackagedSource) and read.is_endless:
        raise ValueError(f"question must be audio that ends, and a {type(read).__name__} of this kind does not")
    if isinstance(read, MemorySource) and read.total_frames == 0:
        raise ValueError("question has no audio: its length is 0. Check its source, or pass other audio")
    return source


def _source_of(question: Any, sample_rate_hz: int | None) -> AudioSource:
    if isinstance(question, os.PathLike):
        return WavSource(Path(question))
    if isinstance(question, (bytes, bytearray, memoryview)):
        if sample_rate_hz is not None:
            return BytesSource(question, sample_rate_hz)
        try:
            return BytesSource(*decode(bytes(question), "The audio file of a question"))
        except (ValueError, MissingExtraError) as error:
            raise ValueError(
                f"question has bytes without sample_rate_hz=, which raw PCM needs. As an audio file it cannot be used: "
                f"{error}"
            ) from error
    if is_source(question):
        source: AudioSource = question
        return source
    raise TypeError(
        "question must be a text (a str), an audio file (a Path, or its bytes), PCM bytes with sample_rate_hz= "
        f"(array.tobytes()), or an AudioSource; not {type(question).__name__}"
    )


def at_microphone_rate(source: AudioSource) -> AudioSource:
    """Return the source, or one at the microphone's rate that reads it. Errors as of `rate_of()`."""
    rate_hz = rate_of(source)
    if rate_hz == MICROPHONE_RATE_HZ:
        return source
    if isinstance(source, BytesSource):
        return BytesSource(resample(source.pcm, rate_hz, MICROPHONE_RATE_HZ), MICROPHONE_RATE_HZ)
    return ResamplingSource(source, MICROPHONE_RATE_HZ)


def voiced_seconds(source: BytesSource) -> float:
    """Return the time at which the voice in a source ends."""
    marks, _ = audible_windows(source.pcm, source.sample_rate_hz)
    last = max((index for index, is_voice in enumerate(marks) if is_voice), default=len(marks))
    return (last + 1) / WINDOWS_PER_SECOND


def failure_of(turn: Turn) -> BotError | None:
    """Return the error that the bot reported instead of an answer. None if there is none, as when the session ended."""
    # The turn's audio may be silence, or a mixer's.
    is_empty = not turn.bot_text and turn.timings.bot_started_speaking is None
    if turn.status != "failed" or not turn.errors or not is_empty:
        return None
    return _bot_error(turn, f"The bot reported an error and answered nothing: {one_line(turn.errors[0].message)}")


def _bot_error(turn: Turn, what: str) -> BotError:
    error = BotError(f"{what}. See the bot's log", fatal=any(each.fatal for each in turn.errors))
    error.turn = turn
    return error


def _not_heard(text: str) -> RequestTimeoutError:
    error = RequestTimeoutError(text)
    error.kind = "not_heard"
    return error


def _is_started(turn: Turn) -> bool:
    is_heard = turn.bot_text is None and turn.timings.bot_started_speaking is not None
    return turn.timings.llm_started is not None or bool(turn.bot_text) or is_heard
