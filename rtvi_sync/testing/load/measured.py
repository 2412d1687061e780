"""A client that measures the durations of its calls and of the bot's answers."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

import attrs

from rtvi_sync import (
    CloseInfo,
    DisconnectedError,
    Event,
    InvalidTransportParamsError,
    RequestTimeoutError,
    RTVIActionResponse,
    RTVIClient,
    RTVIClientOptions,
    RTVIError,
    RTVIMessage,
    SmallWebRTCTransport,
    Timeout,
    Transport,
    Turn,
    signals,
)
from rtvi_sync.client.base import payload_of
from rtvi_sync.client.candidates import TransportName
from rtvi_sync.client.connect_steps import import_for_session
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.latch import Notifier
from rtvi_sync.conversation.ask import failure_of
from rtvi_sync.conversation.audio import account_of
from rtvi_sync.conversation.record import TurnRecord
from rtvi_sync.conversation.tracker import MAX_TURNS
from rtvi_sync.errors import fresh_copy
from rtvi_sync.net.tls import default_context
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
        kind: "connect"; "request": a call that waits for the bot's answer to it; "answer": the bot's answer to the
            user; "step": a block that the application measured by `MeasuredClient.measure()`.
        name: "connect", "start_bot" or "start_bot_and_connect"; the type of the request; "first text", "first audio" or
            "complete" for an answer; the name of the step.
        began (seconds): Time of Python's monotonic clock at the start.
        seconds (seconds): Duration; until the failure if it failed.
        size: Characters of JSON in the answer to a request, summed over a stream's messages; 0 for other kinds.
        error: The error, without a traceback; None if it succeeded.
    """

    kind: Kind
    name: str
    began: float
    seconds: float
    size: int = 0
    error: BaseException | None = None


class MeasuredClient(RTVIClient):
    """An `RTVIClient` that measures the durations of calls and answers. Create and use it like one.

    It measures `connect()`, `start_bot()`, calls that wait for the bot's answer, and the bot's answers to the user's
    speech and text. An answer belongs to a turn that the user started, and is reported when the turn ends. Its time
    counts from the sending of the text, or of the last audible frame of speech: to the model's first text, to the first
    audible sample, and to the end. Times are arrival times, not the times at which the application receives a message.
    Moments that the bot doesn't report are left out, as is the end of an answer that was interrupted or is `assumed`.

    A failed question counts as one failed answer, and later messages about it are ignored. That is a question whose
    `ask()` raises, and every open question when `listen()` or `wait_for_answer()` times out. A timeout of `barge_in()`
    is not a failure, because another call may wait for the same answer. Turns keep no audio unless `max_turn_audio` is
    given.

    An `action_stream()` counts the time in which the application waits for its messages, not the time between them. It
    is reported when it ends or is closed.
    """

    @overload
    def __init__(self, options: RTVIClientOptions | Mapping[str, Any], /) -> None: ...
    @overload
    def __init__(self, **options: Unpack[ConstructorOptions]) -> None: ...
    def __init__(self, options: RTVIClientOptions | Mapping[str, Any] | None = None, **keywords: Any) -> None:
        given = (options,) if options is not None else ()
        super().__init__(*given, **keywords if given else {"max_turn_audio": 0, **keywords})
        import_for_connect(webrtc=isinstance(self.transport, SmallWebRTCTransport))
        import_for_session(reconnects=self._life.policy is not None)
        self._on_measurement: Callable[[Measurement], object] | None = None
        self.turns()  # starts the turn tracker, so that latencies include the audio from the start
        # The last sent question. Answers to earlier ones are not awaited.
        self._asked_at = 0.0
        self._outcomes = Outcomes()
        # Turns with a handled end: all up to a number, and some after it. The notifier reports each.
        self._handled_until = 0
        self._handled: frozenset[int] = frozenset()
        self._notifier = Notifier()
        self._end: Event | None = None  # the end of the last session
        signals.turn_ended.connect(self._on_turn_ended, sender=self)
        signals.disconnected.connect(self._on_disconnected, sender=self)

    @property
    def on_measurement(self) -> Callable[[Measurement], object] | None:
        """Function called with each `Measurement`; None for no calls. May be assigned at any time.

        It runs on the thread of the call, or for answers on the thread of the client's handlers. It must not block.
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
        """Make a client like `RTVIClient.for_url()`, without microphone and speaker and with 30 s to connect.

        Args:
            url, transport, token, headers: See `RTVIClient.for_url()`.
            options: Options of `RTVIClient`, which override these defaults.
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
        """Ask like `RTVIClient.ask()`. If it raises an `RTVIError`, report a failed answer."""
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
        """Wait like `RTVIClient.listen()`. If no turn ends in time, report a failed answer."""
        called = monotonic()
        try:
            return super().listen(timeout, settle=settle)
        except RequestTimeoutError as error:
            self._fail(self._awaited(), error, called)
            raise

    def wait_for_answer(self, timeout: float | None = 30.0) -> Turn:
        """Wait for the end of the bot's answer to the user's speech or text, and return its turn.

        If the user speaks several times, each call returns the next answer; typed text discards earlier answers. An
        answer that a further question interrupted is skipped. The bot's unasked words are not an answer.

        Args:
            timeout (seconds): Limit of the wait. None: no limit.

        Raises:
            RequestTimeoutError: The answer did not end in time, which is reported as a failed answer. `.turn` has the
                partial answer.
            BotError: The bot reported an error and no answer.
            DisconnectedError: The session ended first.
            BotNotReadyError: There is no session.
            WouldDeadlockError: Called from a handler of this client.
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
            self._notifier.wait_for(partial(self._is_handled, turn.number), deadline)  # so that it is measured, too
            if self._outcomes.was_given_up(turn.number):
                continue
            if (error := failure_of(turn)) is not None:
                raise error
            if turn.status != "failed":
                return turn
            session = self._life.session()
            if session.is_ending:  # otherwise a text could not be sent
                self._notifier.wait_for(partial(self._is_reported_with_the_end, turn), deadline)
                raise session.close_info.as_error("the answer was complete")

    def _is_handled(self, number: int) -> bool:
        return number <= self._handled_until or number in self._handled

    def _is_reported_with_the_end(self, turn: Turn) -> bool:
        return self._end is not None and self._end.received_at >= (turn.timings.ended or 0.0)

    def _is_replaced(self, turn: Turn) -> bool:
        """Return whether the user asked something else instead."""
        if (turn.timings.user_started or 0.0) < self._asked_at:
            return True
        return turn.interrupted and any(later.number > turn.number for later in self._open_questions())

    def _open_questions(self) -> list[Turn]:
        return [turn for turn in self.turns() if turn.is_open and turn.initiator == "user"]

    def _awaited(self) -> list[Turn]:
        """Return the open questions that no `ask()` waits for."""
        ours = self._turns()
        return [
            turn
            for turn in self._open_questions()
            if turn.message_id not in ours.asked and not (ours.speaking and turn.modality == "audio")
        ]

    def _given_up_after(self, timeout: float | None, called: float) -> RequestTimeoutError:
        """Report the late answer, and return the error."""
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
        """Report failed questions; without a turn, a question that the bot did not hear.

        Args:
            turns: Turns of the questions.
            error: The error.
            called: Start of the failed call.
            asked: The question of the failed call; None if it waited for the answer to an earlier question.
        """
        for turn in turns:
            self._report_answer(turn, error, called, asked=asked is not None)
        if not turns:
            # The bot may still receive the question, if it was spoken or has just been sent.
            may_come = asked != "typed" or isinstance(error, RequestTimeoutError)
            if may_come and not self._turns().speaking:  # otherwise it may be another thread's question
                self._outcomes.not_heard(max((turn.number for turn in self.turns()), default=0))
            self._report("answer", "first text" if asked == "typed" else _missing_part(None), called, error=error)

    def send_message(self, message: RTVIMessage) -> None:
        """Send a message of any type, and measure the answer if the message asks for one."""
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
            # Closing the stream early is not a failure. The messages until then are reported.
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
            # A copy without a traceback, because a stored measurement must not keep the application's frames alive.
            kept = fresh_copy(error) if error is not None else None
            self.on_measurement(Measurement(kind=kind, name=name, began=began, seconds=seconds, size=size, error=kept))

    def _report_answer(
        self, turn: TurnRecord, error: BaseException | None = None, called: float = 0.0, *, asked: bool = False
    ) -> None:
        """Report the parts of an answer, and its failure, unless this question was already reported.

        Args:
            turn: Turn of the answer.
            error: The error; None if it succeeded.
            called: Start of the failed call, if a call failed.
            asked: True if that call asked the question itself.
        """
        began = _asked_at(turn) or called
        if asked:  # if the bot did not hear it, the moments of the turn belong to an earlier question
            began = max(began, called)
        timings = turn.timings
        # If the bot reports speech late, its audio is already forgotten, so an ended turn lacks the end of the voice.
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
        """Report an answer that the end of the session cut off, unless the application ended it."""
        # If a text could not be sent, the sending call has already reported the failure.
        end = self._end
        if end is not None and turn.status == "failed" and turn.timings.ended == end.received_at:
            info: CloseInfo = end.data
            error = info.as_error("the answer was complete")
            if turn.initiator == "user" and not _is_by_application(error):
                self._report_answer(turn, error)


@functools.cache
def import_for_connect(*, webrtc: bool = False) -> None:
    """Load what a client loads when it first connects. It takes longer than many bots, whose time would include it."""
    import encodings.idna  # noqa: F401 - of the names of servers

    import rtvi_sync.net.http

    with contextlib.suppress(InvalidTransportParamsError):  # a session with TLS reports it
        default_context()
    if webrtc:
        import rtvi_sync.transports.webrtc.aiortc_peer
        import rtvi_sync.transports.webrtc.connection  # noqa: F401


def _is_by_application(error: RTVIError) -> bool:
    """Return whether the application ended the session itself, and lost nothing but its unsent messages."""
    is_ours = isinstance(error, DisconnectedError) and error.initiator == "client"
    return is_ours and (error.__cause__ is None or isinstance(error.__cause__, DisconnectedError))


def _asked_at(turn: TurnRecord) -> float | None:
    """Return when the user's turn ended; None if unknown."""
    timings = turn.timings
    return next((at for at in (timings.user_stopped, timings.user_stopped_reported, timings.user_started) if at), None)


def _missing_part(turn: TurnRecord | None) -> str:
    """Return the next part that an answer lacks."""
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
    payload_of(answer)  # raises the error of the call, so that a malformed answer counts as a failure
    return _size_of(answer.data)


def _size_of(data: Any) -> int:
    return len(json.dumps(data))
