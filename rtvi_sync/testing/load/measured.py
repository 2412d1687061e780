"""A client that measures how long its calls, and the bot's answers, take."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import attrs

from rtvi_sync import (
    BotNotReadyError,
    CloseInfo,
    Event,
    RequestTimeoutError,
    RTVIActionResponse,
    RTVIClient,
    RTVIClientOptions,
    RTVIMessage,
    Timeout,
    Transport,
    WouldDeadlockError,
    signals,
)
from rtvi_sync.client.base import payload_of
from rtvi_sync.client.ways import TransportName
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.latch import Notifier
from rtvi_sync.errors import fresh_copy
from rtvi_sync.media import AudioFrame, TrackFrames
from rtvi_sync.protocol.validation import NAME, WAIT
from rtvi_sync.testing.load.answers import EVENTS, Answer, AnswerTimer, end_of_voice

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rtvi_sync.client.options import KeywordOptions

T = TypeVar("T")

Kind: TypeAlias = Literal["connect", "request", "answer", "step"]

# Seconds of the user's latest audio that are kept, to find the end of the user's voice. A bot reports that end earlier.
# They take 125 kB. Keeping the loudness of each frame instead would cost 20 us a frame, on the thread that sends the
# audio of all clients.
_KEPT_SECONDS = 3.0


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
    what the user says or types. An answer is timed from the moment when the text was sent, or when the last audible
    frame of the user's voice was sent: to the first text, to the event by which the bot reports that it speaks, which
    comes with its first audio, and to the end. Moments are those at which messages arrived, not those at which the
    application received them. A question that follows before the answer has begun replaces the earlier one.
    An `action_stream()` takes as long as the application waits for its messages, without the time that the application
    spends between them; it is reported when it has ended, or been closed.

    Attributes:
        on_measurement: called with each `Measurement`, on the thread of the call, and for answers on that of the
            client's handlers. It must not block.
    """

    on_measurement: Callable[[Measurement], object] | None = None

    def __init__(self, options: RTVIClientOptions | Mapping[str, Any] | None = None, /, **keywords: Any) -> None:
        given = (options,) if options is not None else ()
        super().__init__(*given, **keywords)
        # Guards `_answer_timer`. Held for a moment by the client's handlers and by calls that ask or wait; re-entrant,
        # because a signal handler may ask in between.
        self._timer_lock = threading.RLock()
        self._answer_timer = AnswerTimer()
        self._notifier = Notifier()  # notified when an answer or the session is over
        self._sent_audio: TrackFrames[AudioFrame] | None = None
        # When the latest session began, and when and how the latest end came. Handlers may lag behind calls; these
        # moments tell whether the end belongs to the session.
        self._session_began: float | None = None
        self._session_end: tuple[float, CloseInfo] | None = None
        signals.connected.connect(self._on_connected, sender=self)
        signals.disconnected.connect(self._on_disconnected, sender=self)
        signals.user_stopped_speaking.connect(self._on_user_stopped, sender=self)
        for event in EVENTS:
            signals.BY_EVENT[event].connect(self._on_bot_event, sender=self)

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

    def wait_for_answer(self, timeout: float | None = 30.0) -> Answer:
        """Wait until the bot's answer to what the user said or typed is complete.

        Of several answers to speech, each call returns the next; typed text discards earlier answers. A spoken answer
        is complete when the bot has stopped writing and speaking, a written one when it has stopped writing.

        Args:
            timeout: seconds from now; None: no limit.

        Raises:
            RequestTimeoutError: it was not complete in time; this is reported as a failed answer.
            DisconnectedError: the session ended first.
            BotNotReadyError: there is no session.
            WouldDeadlockError: called inside a handler of this client.
        """
        WAIT.or_none.check(timeout=timeout)
        if self._dispatcher.queue.is_current:
            raise WouldDeadlockError(
                "wait_for_answer() was called inside a handler, which delays the events that it waits for; "
                "call it on another thread"
            )
        if self._session_began is None:
            raise BotNotReadyError("There is no bot that could answer; call connect() first")
        called = time.monotonic()
        self._wait_until(lambda: self._answer_timer.completed or self._close_info, Deadline(timeout))
        with self._timer_lock:
            if self._answer_timer.completed:
                return self._answer_timer.completed.popleft()
            close_info = self._close_info
            missing, began = (not close_info and self._answer_timer.cancel()) or ("first audio", called)
        if close_info is not None:
            raise close_info.as_error("the answer was complete")
        error = RequestTimeoutError(
            f"The bot's answer was not complete within {timeout} s; missing: {missing}. "
            "Pass a larger timeout, or see the bot's log"
        )
        self._report("answer", missing, began, error=error)
        raise error

    def send_message(self, message: RTVIMessage) -> None:
        """Send a message of any type. One that asks for an answer starts the measurement of that answer."""
        spoken = _asks_spoken(message)
        with self._timing_answer(spoken) if spoken is not None else contextlib.nullcontext():
            super().send_message(message)

    # -- measuring ----------------------------------------------------------------------------------------------------

    def _observe(self, subject: str | RTVIMessage, call: Callable[[], T]) -> T:
        if isinstance(subject, str):
            if subject != "start_bot":
                self._session_began = time.monotonic()
            with self._measured("connect", subject):
                return call()
        name, began = _name_of(subject), time.monotonic()
        try:
            answer = call()
            seconds = time.monotonic() - began
            size = _size_of_answer(answer)
        except Exception as error:
            self._report("request", name, began, error=error)
            raise
        self._report("request", name, began, seconds, size=size)
        return answer

    def _stream_from_server(self, message: RTVIMessage, timeout: Timeout) -> Generator[RTVIActionResponse, None, None]:
        name = _name_of(message)
        began = asked = time.monotonic()
        seconds, size = 0.0, 0
        try:
            stream = super()._stream_from_server(message, timeout)
            # Closing the stream early is not a failure: what came until then is reported.
            with contextlib.closing(stream), contextlib.suppress(GeneratorExit):
                for received in stream:
                    seconds += time.monotonic() - asked
                    size += _size_of(received.data)
                    yield received
                    asked = time.monotonic()
        except Exception as error:
            self._report("request", name, began, seconds + time.monotonic() - asked, size=size, error=error)
            raise
        self._report("request", name, began, seconds, size=size)

    @contextlib.contextmanager
    def _measured(self, kind: Kind, name: str) -> Iterator[None]:
        began = time.monotonic()
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
                seconds = time.monotonic() - began
            # A copy without traceback: a measurement that is kept must not keep the application's frames alive.
            kept = fresh_copy(error) if error is not None else None
            self.on_measurement(Measurement(kind=kind, name=name, began=began, seconds=seconds, size=size, error=kept))

    @contextlib.contextmanager
    def _timing_answer(self, spoken: bool) -> Iterator[None]:
        with self._timer_lock:
            self._answer_timer.completed.clear()
            self._answer_timer.start(time.monotonic(), spoken=spoken)
        try:
            yield
        except BaseException as error:
            with self._timer_lock:
                cancelled = self._answer_timer.cancel()
            if cancelled is not None and isinstance(error, Exception):
                self._report("answer", *cancelled, error=error)
            raise

    @property
    def _close_info(self) -> CloseInfo | None:
        """Return how the latest session ended; None: it has not."""
        end = self._session_end
        return end[1] if end is not None and end[0] >= (self._session_began or 0.0) else None

    def _wait_until(self, ready: Callable[[], object], deadline: Deadline) -> None:
        if not self._dispatcher.queue.manual:
            self._notifier.wait_for(ready, deadline)
            return
        while not ready() and not deadline.expired:
            self.process_events(deadline.at_most(threading.TIMEOUT_MAX))

    # -- on the thread of the client's handlers -----------------------------------------------------------------------

    def _on_connected(self, _client: RTVIClient, event: Event) -> None:
        track = self.tracks().local.audio
        self._sent_audio = track.frames(buffer=_KEPT_SECONDS) if track is not None else None
        self._session_began = max(self._session_began or 0.0, event.received_at)  # also of a reconnect

    def _on_user_stopped(self, _client: RTVIClient, event: Event) -> None:
        end = end_of_voice(self._sent_audio.queued(), event.received_at) if self._sent_audio is not None else None
        with self._timer_lock:
            self._answer_timer.start(event.received_at if end is None else end, spoken=True)

    def _on_bot_event(self, _client: RTVIClient, event: Event) -> None:
        with self._timer_lock:
            completed = self._answer_timer.handle_event(event)
        for name, began, seconds in completed:
            self._report("answer", name, began, seconds)
            if name == "complete":
                self._notifier.notify_all()

    def _on_disconnected(self, _client: RTVIClient, event: Event) -> None:
        info: CloseInfo = event.data
        with self._timer_lock:
            self._session_end = event.received_at, info
            unanswered = self._answer_timer.end_session(event.received_at)
        if unanswered is not None and info.initiator != "client":
            missing, began = unanswered
            self._report(
                "answer", missing, began, event.received_at - began, error=info.as_error("the answer was complete")
            )
        self._notifier.notify_all()


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


def _asks_spoken(message: RTVIMessage) -> bool | None:
    """Tell whether the answer that `message` asks for is to be spoken; None: it asks for no answer."""
    if not isinstance(message, RTVIMessage) or not isinstance(message.data, Mapping):
        return None
    if message.type == "append-to-context":
        return True if message.data.get("run_immediately") else None
    options = message.data.get("options") if message.type in ("send-text", "send-file") else None
    if isinstance(options, Mapping) and options.get("run_immediately"):
        return bool(options.get("audio_response"))
    return None
