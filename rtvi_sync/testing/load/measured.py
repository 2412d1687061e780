"""A client that measures how long its calls, and the bot's answers, take."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

import attrs

from rtvi_sync import (
    CloseInfo,
    DisconnectedError,
    Event,
    RequestTimeoutError,
    RTVIActionResponse,
    RTVIClient,
    RTVIClientOptions,
    RTVIError,
    RTVIMessage,
    Timeout,
    Transport,
    Turn,
    signals,
)
from rtvi_sync.client.base import payload_of
from rtvi_sync.client.candidates import TransportName
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.latch import Notifier
from rtvi_sync.conversation.ask import failure_of
from rtvi_sync.conversation.audio import account_of
from rtvi_sync.conversation.record import TurnRecord
from rtvi_sync.conversation.tracker import MAX_TURNS
from rtvi_sync.errors import fresh_copy
from rtvi_sync.protocol.sent_text import sent_text
from rtvi_sync.protocol.validation import NAME, WAIT, function_taking
from rtvi_sync.testing.load.outcomes import Outcomes

from ...concurrency.clock import monotonic

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rtvi_sync.client.option_types import ConstructorOptions, KeywordOptions
    from rtvi_sync.client.turns import Askable

T = TypeVar("T")

Kind: TypeAlias = Literal["connect", "request", "answer", "step"]
Asked: TypeAlias = Literal["typed", "said"]


@attrs.frozen(kw_only=True)
class Measurement:
    """The duration of one call, answer or step.

    Attributes:
        kind: "connect"; "request": a call that waits for the bot's answer to it; "answer": to what the user said;
            "step": what the application measured by `MeasuredClient.measure()`.
        name: "connect", "start_bot" or "start_bot_and_connect"; the type of the request; "first text", "first audio" or
            "complete" of an answer; that of the step.
        began: monotonic seconds.
        seconds: its duration; if it failed, until the failure.
        size: characters of JSON in the answer to a request, of a stream in all its messages; 0 for others.
        error: how it failed, without a traceback; None: it succeeded.
    """

    kind: Kind
    name: str
    began: float
    seconds: float
    size: int = 0
    error: BaseException | None = None


class MeasuredClient(RTVIClient):
    """An `RTVIClient` that measures how long calls and answers take. It is made and used as one.

    Measured are `connect()`, `start_bot()`, the calls that wait for the bot's answer to them, and the bot's answers to
    what the user says or types: the turns that the user began, reported when they are over. An answer is timed from the
    moment when the text was sent, or when the last audible frame of the user's voice was sent: to the model's first
    text, to the first audible sample, and to the end. Moments are those at which messages arrived, not those at which
    the application received them. What the bot does not tell is not reported, nor the end of an answer that was
    interrupted or is `assumed`. A question that fails is one failed answer, and nothing that comes later is reported of
    it: one by `ask()` that raises, and all that are open when `listen()` or `wait_for_answer()` has waited in vain.
    What `barge_in()` returns may be waited for again, so its time-outs are no failures. Turns keep no audio, unless the
    option `max_turn_audio` is given.
    An `action_stream()` takes as long as the application waits for its messages, without the time that the application
    spends between them; it is reported when it has ended, or been closed.
    """

    @overload
    def __init__(self, options: RTVIClientOptions | Mapping[str, Any], /) -> None: ...
    @overload
    def __init__(self, **options: Unpack[ConstructorOptions]) -> None: ...
    def __init__(self, options: RTVIClientOptions | Mapping[str, Any] | None = None, **keywords: Any) -> None:
        given = (options,) if options is not None else ()
        super().__init__(*given, **keywords if given else {"max_turn_audio": 0, **keywords})
        self._on_measurement: Callable[[Measurement], object] | None = None
        self.turns()  # so that latencies are measured by the audio from the beginning
        # The last question that was sent; answers to earlier ones are not waited for.
        self._asked_at = 0.0
        self._outcomes = Outcomes()
        # Turns whose end was handled: all up to a number, and some after it. What is notified of each.
        self._handled_until = 0
        self._handled: frozenset[int] = frozenset()
        self._notifier = Notifier()
        self._end: Event | None = None  # of the last session that is over
        signals.turn_ended.connect(self._on_turn_ended, sender=self)
        signals.disconnected.connect(self._on_disconnected, sender=self)

    @property
    def on_measurement(self) -> Callable[[Measurement], object] | None:
        """Called with each `Measurement`, on the thread of the call, and for answers on that of the client's handlers.

        It must not block. May be assigned; None: nothing is called.
        """
        return self._on_measurement

    @on_measurement.setter
    def on_measurement(self, function: Callable[[Measurement], object] | None) -> None:
        function_taking("measurement").or_none.check(on_measurement=function)
        self._on_measurement = function

    @classmethod
    def for_url(
        cls,
        url: str,
        *,
        transport: TransportName | Transport = "auto",
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        **options: Unpack[KeywordOptions],
    ) -> MeasuredClient:
        """Make a client as `RTVIClient.for_url()` does, without microphone and speaker and with 30 s to connect.

        Args:
            url, transport, token, headers: as `RTVIClient.for_url()` takes them.
            options: as `RTVIClient` takes them; they override these defaults.
        """
        given: KeywordOptions = {"enable_mic": "mic" in options, "speaker": False}
        if "timeout" not in options:
            given["connect_timeout"] = 30.0
        given.update(options)
        return super().for_url(url, transport=transport, token=token, headers=headers, **given)

    def measure(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Return a context manager that reports the duration of its block, and its error, as "step" `name`."""
        NAME.check(name=name)
        return self._measured("step", name)

    def ask(
        self,
        question: Askable,
        timeout: float | None = 30.0,
        *,
        audio_response: bool = True,
        settle: float = 0.0,
        sample_rate_hz: int | None = None,
    ) -> Turn:
        """Ask as `RTVIClient.ask()` does. If it raises an `RTVIError`, a failed answer is reported."""
        called = monotonic()
        if not isinstance(question, str):
            self._outcomes.said(called)
        try:
            return super().ask(
                question, timeout, audio_response=audio_response, settle=settle, sample_rate_hz=sample_rate_hz
            )
        except RTVIError as error:
            if not _is_by_application(error):
                turn = getattr(error, "turn", None)
                asked: Asked = "typed" if isinstance(question, str) else "said"
                self._fail([turn] if turn is not None else [], error, called, asked=asked)
            raise

    def listen(self, timeout: float | None = 30.0, *, settle: float = 0.0) -> Turn:
        """Wait as `RTVIClient.listen()` does. If no turn is over in time, this is reported as a failed answer."""
        called = monotonic()
        try:
            return super().listen(timeout, settle=settle)
        except RequestTimeoutError as error:
            self._fail(self._awaited(), error, called)
            raise

    def wait_for_answer(self, timeout: float | None = 30.0) -> Turn:
        """Wait until the bot's answer to what the user said or typed is over, and return its turn.

        Of several answers to speech, each call returns the next; typed text discards earlier answers. An answer that
        was interrupted by a further question is passed over. What the bot says unasked is no answer.

        Args:
            timeout: seconds from now; None: no limit.

        Raises:
            RequestTimeoutError: it was not over in time; this is reported as a failed answer. `.turn` is what there was
                of it.
            BotError: the bot reported an error, and answered nothing.
            DisconnectedError: the session ended first.
            BotNotReadyError: there is no session.
            WouldDeadlockError: called inside a handler of this client.
        """
        WAIT.or_none.check(timeout=timeout)
        self._check_may_wait("wait_for_answer()")
        called, deadline = monotonic(), Deadline(timeout)
        while True:
            try:
                turn = super().listen(deadline.remaining())
            except RequestTimeoutError:
                raise self._given_up_after(timeout, called) from None
            if turn.initiator == "bot" or self._is_replaced(turn):
                continue
            self._notifier.wait_for(partial(self._is_handled, turn.number), deadline)  # it is measured then
            if self._outcomes.was_given_up(turn.number):
                continue
            if (error := failure_of(turn)) is not None:
                raise error
            if turn.status != "failed":
                return turn
            session = self._life.session()
            if session.is_ending:  # else it was a text that could not be sent
                self._notifier.wait_for(partial(self._is_reported_with_the_end, turn), deadline)
                raise session.close_info.as_error("the answer was complete")

    def _is_handled(self, number: int) -> bool:
        return number <= self._handled_until or number in self._handled

    def _is_reported_with_the_end(self, turn: Turn) -> bool:
        return self._end is not None and self._end.received_at >= (turn.timings.ended or 0.0)

    def _is_replaced(self, turn: Turn) -> bool:
        """Return whether the user has asked something else instead."""
        if (turn.timings.user_started or 0.0) < self._asked_at:
            return True
        return turn.interrupted and any(later.number > turn.number for later in self._open_questions())

    def _open_questions(self) -> list[Turn]:
        return [turn for turn in self.turns() if turn.is_open and turn.initiator == "user"]

    def _awaited(self) -> list[Turn]:
        """Return the open questions whose turns no call returns that has asked them itself."""
        ours = self._turns()
        return [
            turn
            for turn in self._open_questions()
            if turn.message_id not in ours.asked and not (ours.speaking and turn.modality == "audio")
        ]

    def _given_up_after(self, timeout: float | None, called: float) -> RequestTimeoutError:
        """Report the answer that did not come in time, and return the error."""
        awaited = self._awaited()
        turn = awaited[-1] if awaited else None
        stats = self.stats()
        account = account_of(stats, stats)
        not_heard = turn is None and account.sent > 0 and not self._asked_at
        missing = _missing_part(turn)
        if not_heard:
            missing += "; the bot has reported neither speech nor words of the user"
        losses = account.describe() if not_heard or account.has_losses else ""
        error = RequestTimeoutError(
            f"The bot's answer was not complete within {timeout} s; missing: {missing}. {losses}"
            "Pass a larger timeout, or see the bot's log"
        )
        error.turn = turn
        error.kind = "not_heard" if not_heard else error.kind
        self._fail(awaited, error, called)
        return error

    def _fail(
        self, turns: Sequence[TurnRecord], error: RTVIError, called: float, *, asked: Asked | None = None
    ) -> None:
        """Report that questions have failed; without a turn, one that the bot has not heard.

        Args:
            turns, error: of the answers.
            called: when the call that has failed began.
            asked: how that call has asked; None: it waited for the answer to what was asked before.
        """
        for turn in turns:
            self._report_answer(turn, error, called, asked=asked is not None)
        if not turns:
            # The bot may still get what was said, or a text that was sent but just now.
            may_come = asked != "typed" or isinstance(error, RequestTimeoutError)
            if may_come and not self._turns().speaking:  # else it may be another thread's question
                self._outcomes.not_heard(max((turn.number for turn in self.turns()), default=0))
            self._report("answer", "first text" if asked == "typed" else _missing_part(None), called, error=error)

    def send_message(self, message: RTVIMessage) -> None:
        """Send a message of any type. One that asks for an answer starts the measurement of that answer."""
        said = sent_text(message) if isinstance(message, RTVIMessage) else None
        if said is None or not said.runs:
            super().send_message(message)
            return
        self._asked_at = began = monotonic()
        try:
            super().send_message(message)
        except Exception as error:
            self._report("answer", "first text", began, error=error)
            raise

    # -- measuring ----------------------------------------------------------------------------------------------------

    def _observe(self, subject: str | RTVIMessage, call: Callable[[], T]) -> T:
        if isinstance(subject, str):
            with self._measured("connect", subject):
                return call()
        name, began = _name_of(subject), monotonic()
        try:
            answer = call()
            seconds = monotonic() - began
            size = _size_of_answer(answer)
        except Exception as error:
            self._report("request", name, began, error=error)
            raise
        self._report("request", name, began, seconds, size=size)
        return answer

    def _stream_from_server(self, message: RTVIMessage, timeout: Timeout) -> Generator[RTVIActionResponse, None, None]:
        name = _name_of(message)
        began = asked = monotonic()
        seconds, size = 0.0, 0
        try:
            stream = super()._stream_from_server(message, timeout)
            # Closing the stream early is not a failure: what came until then is reported.
            with contextlib.closing(stream), contextlib.suppress(GeneratorExit):
                for received in stream:
                    seconds += monotonic() - asked
                    size += _size_of(received.data)
                    yield received
                    asked = monotonic()
        except Exception as error:
            self._report("request", name, began, seconds + monotonic() - asked, size=size, error=error)
            raise
        self._report("request", name, began, seconds, size=size)

    @contextlib.contextmanager
    def _measured(self, kind: Kind, name: str) -> Iterator[None]:
        began = monotonic()
        try:
            yield
        except Exception as error:
            self._report(kind, name, began, error=error)
            raise
        self._report(kind, name, began)

    def _report(
        self,
        kind: Kind,
        name: str,
        began: float,
        seconds: float | None = None,
        *,
        size: int = 0,
        error: BaseException | None = None,
    ) -> None:
        if self.on_measurement is not None:
            if seconds is None:
                seconds = monotonic() - began
            # A copy without traceback: a measurement that is kept must not keep the application's frames alive.
            kept = fresh_copy(error) if error is not None else None
            self.on_measurement(Measurement(kind=kind, name=name, began=began, seconds=seconds, size=size, error=kept))

    def _report_answer(
        self, turn: TurnRecord, error: BaseException | None = None, called: float = 0.0, *, asked: bool = False
    ) -> None:
        """Report what there is of an answer, and how it failed, unless this question was reported already.

        Args:
            turn, error: of the answer.
            called: when the call that has failed began, if one has.
            asked: that call has asked the question itself.
        """
        began = _asked_at(turn) or called
        if asked:  # the bot may not have heard it: the moments of the turn are then those of an earlier question
            began = max(began, called)
        timings = turn.timings
        # Of speech that is told late the audio is forgotten, so that a turn that is over lacks the end of the voice.
        is_late = not asked and timings.ended is not None and timings.user_stopped is None
        in_speech = turn.modality == "audio" and timings.user_stopped_reported is None
        given_up = isinstance(error, RequestTimeoutError)
        moment = None if is_late else began
        if not began or not self._outcomes.note(turn.number, moment, given_up=given_up, in_speech=in_speech):
            return
        is_whole = error is None and turn.status == "complete" and turn.assumed is None
        for name, moment in [
            ("first text", timings.first_token),
            ("first audio", timings.first_audio),
            ("complete", timings.ended if is_whole else None),
        ]:
            if moment is not None:
                self._report("answer", name, began, moment - began)
        if error is not None:
            ended = timings.ended or monotonic()
            self._report("answer", _missing_part(turn), began, ended - began, error=error)

    # -- on the thread of the client's handlers -----------------------------------------------------------------------

    def _on_turn_ended(self, _client: RTVIClient, event: Event) -> None:
        turn: Turn = event.data
        if turn.initiator == "user":
            error = failure_of(turn)
            if error is None and turn.status == "failed":
                self._report_cut(turn)
            else:
                self._report_answer(turn, error)
        self._handled_until = max(self._handled_until, turn.number - MAX_TURNS)
        self._handled = frozenset(each for each in (*self._handled, turn.number) if each > self._handled_until)
        self._notifier.notify_all()

    def _on_disconnected(self, _client: RTVIClient, event: Event) -> None:
        self._end = event
        for turn in self.turns():
            self._report_cut(turn)
        self._notifier.notify_all()

    def _report_cut(self, turn: Turn) -> None:
        """Report an answer that the end of the session has cut off, unless the application has ended it."""
        # Of a text that could not be sent, the call that was to send it has reported the failure.
        end = self._end
        if end is not None and turn.status == "failed" and turn.timings.ended == end.received_at:
            info: CloseInfo = end.data
            error = info.as_error("the answer was complete")
            if turn.initiator == "user" and not _is_by_application(error):
                self._report_answer(turn, error)


def _is_by_application(error: RTVIError) -> bool:
    """Return whether the application has ended the session itself, and messages that it left unsent are all it lost."""
    is_ours = isinstance(error, DisconnectedError) and error.initiator == "client"
    return is_ours and (error.__cause__ is None or isinstance(error.__cause__, DisconnectedError))


def _asked_at(turn: TurnRecord) -> float | None:
    """Return when the user's turn ended, as far as that is known."""
    timings = turn.timings
    return next((at for at in (timings.user_stopped, timings.user_stopped_reported, timings.user_started) if at), None)


def _missing_part(turn: TurnRecord | None) -> str:
    """Return the part of an answer that would have come next."""
    if turn is not None and (turn.bot_text or turn.timings.first_audio or turn.timings.bot_started_speaking):
        return "complete"
    return "first text" if turn is not None and turn.modality == "text" else "first audio"


def _name_of(request: RTVIMessage) -> str:
    data = request.data
    if request.type == "client-message":
        return str(data["t"])
    return f"{data['service']}:{data['action']}" if request.type == "action" else request.type


def _size_of_answer(answer: Any) -> int:
    if answer.type == "server-response":
        return _size_of(answer.data.get("d") if isinstance(answer.data, Mapping) else None)
    payload_of(answer)  # raises what the call will raise, so that a malformed answer counts as a failure
    return _size_of(answer.data)


def _size_of(data: Any) -> int:
    return len(json.dumps(data))
