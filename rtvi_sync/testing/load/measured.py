"""A client that tells how long its calls, and the bot's answers, took."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import attrs

from rtvi_sync import (
    DEFAULT_TIMEOUT,
    APIRequest,
    BotNotReadyError,
    BotReadyData,
    CloseInfo,
    Event,
    RequestTimeoutError,
    RTVIActionRequestData,
    RTVIActionResponse,
    RTVIClient,
    RTVIClientOptions,
    RTVIMessage,
    Timeout,
    WouldDeadlockError,
    signals,
)
from rtvi_sync.client.actions import request_of
from rtvi_sync.client.base import TIMEOUT
from rtvi_sync.client.message_builders import FileLike
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.latch import Notifier
from rtvi_sync.errors import fresh_copy
from rtvi_sync.media import AudioFrame, NullSink, TrackFrames
from rtvi_sync.protocol.decoding import Payload
from rtvi_sync.protocol.validation import NAME, WAIT
from rtvi_sync.testing.embedded_bot.answers import EVENTS, Answer, AnswerClock, end_of_voice

T = TypeVar("T")

Kind: TypeAlias = Literal["connect", "request", "answer", "step"]

# Seconds of what the user said last that are kept, to find the end of it. A bot takes less to notice that. They take
# 125 kB; to keep the loudness of each piece instead would take 20 us for each, on the thread that sends everybody's.
_KEPT = 3.0


@attrs.frozen(kw_only=True)
class Measurement:
    """Something that took its time.

    Attributes:
        kind: "connect"; "request": a call that waits for the bot's answer to it; "answer": to what the user said;
            "step": what the program measured by `MeasuredClient.measure()`.
        name: "connect", "start_bot" or "start_bot_and_connect"; the type of the request; "first text", "first sound" or
            "whole" of an answer; that of the step.
        began: monotonic seconds.
        seconds: how long it took, until it failed if it did.
        size: characters of JSON in the answer to a request, of a stream in all its messages; 0 for others.
        error: how it failed, without a traceback; None: it did not.
    """

    kind: Kind
    name: str
    began: float
    seconds: float
    size: int = 0
    error: BaseException | None = None


def _in_message(answer: Any) -> Any:
    return answer.data if isinstance(answer, RTVIMessage) else answer


def _in_config(services: Sequence[Payload]) -> Any:
    return {"config": services}


def _size_of(data: Any) -> int:
    return len(json.dumps(data, default=_as_sent))


def _as_sent(payload: Payload) -> dict[str, Any]:
    """What was decoded into `payload`; of several names of a field the last, which is the one in use."""
    fields = [field for field in attrs.fields(type(payload)) if field.name != "extra"]
    sent = {field.metadata.get("names", (field.name,))[-1]: getattr(payload, field.name) for field in fields}
    return {**sent, **payload.extra}


class MeasuredClient(RTVIClient):
    """An `RTVIClient` that tells how long things took. It is made and used as one.

    Measured are `connect()`, `start_bot()`, the calls that wait for the bot's answer to them, and what the bot answers
    to what the user says or types. An answer is timed from the moment when the text was sent, or when the last
    audible piece of the user's voice was: to the first text, to the event by which the bot tells that it speaks, which
    comes with its first sound, and to the end. Moments are those at which messages arrived, not those at which the
    program got to see them. A question that follows before the answer has begun takes the place of the one before.
    An `action_stream()` takes as long as it is waited for its messages, without what the program does in between; it is
    told when it has ended, or been closed.

    Attributes:
        on_measurement: called with each `Measurement`, on the thread of the call, and for answers on that of the
            client's handlers. It must not block.
    """

    on_measurement: Callable[[Measurement], object] | None = None

    def __init__(self, options: RTVIClientOptions | Mapping[str, Any] | None = None, /, **keywords: Any) -> None:
        given = (options,) if options is not None else ()
        super().__init__(*given, **keywords)
        # Guards `_clock`. Held for a moment by the client's handlers and by who asks or hears; re-entrant, because a
        # signal handler may ask in between.
        self._clock_lock = threading.RLock()
        self._clock = AnswerClock()
        self._notifier = Notifier()  # rung when an answer or the session is over
        self._sent: TrackFrames[AudioFrame] | None = None
        # When a session was begun last, and when and how one ended. By these moments is known what belongs to which:
        # handlers may lag behind calls.
        self._begun: float | None = None
        self._end: tuple[float, CloseInfo] | None = None
        signals.connected.connect(self._connected, sender=self)
        signals.disconnected.connect(self._disconnected, sender=self)
        signals.user_stopped_speaking.connect(self._user_stopped, sender=self)
        for event in EVENTS:
            signals.BY_EVENT[event].connect(self._heard, sender=self)

    @classmethod
    def for_url(cls, url: str, **options: Any) -> MeasuredClient:
        """Make a client as `RTVIClient.for_url()` does, without microphone and speaker and with 30 s to connect.

        Args:
            url: as `RTVIClient.for_url()` takes it.
            options: as `RTVIClient` takes them; they win.
        """
        given: dict[str, Any] = {
            "enable_mic": "mic" in options,
            "speaker": NullSink(),
            **({} if "timeout" in options else {"connect_timeout": 30.0}),
        }
        return super().for_url(url, **{**given, **options})

    def measure(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Around a step of your program's: how long it took, and whether it raised, is told as "step" `name`."""
        NAME.check(name=name)
        return self._measured("step", name)

    def wait_for_answer(self, timeout: float | None = 30.0) -> Answer:
        """Wait until the bot has said all that it has to say to what the user said or typed.

        Of several answers to what was said aloud, each call returns the next; what is typed begins anew. An answer in
        sound is over when the bot has stopped writing and speaking, one in writing when it has stopped writing.

        Args:
            timeout: seconds from now; None: no limit.

        Raises:
            RequestTimeoutError: it was not over in time; this is told as a failed answer.
            DisconnectedError: the session ended first.
            BotNotReadyError: there is no session.
            WouldDeadlockError: called inside a handler of this client.
        """
        WAIT.or_none.check(timeout=timeout)
        if self._dispatcher.queue.is_current:
            raise WouldDeadlockError("wait_for_answer() was called inside a handler, which holds up what it waits for")
        if self._begun is None:
            raise BotNotReadyError("There is no bot that could answer; call connect() first")
        called = time.monotonic()
        self._wait_until(lambda: self._clock.heard or self._over, Deadline(timeout))
        with self._clock_lock:
            if self._clock.heard:
                return self._clock.heard.popleft()
            over = self._over
            missing, began = (not over and self._clock.give_up()) or ("first sound", called)
        if over is not None:
            raise over.as_error("the answer was over")
        error = RequestTimeoutError(f"The bot's answer was not over within {timeout} s: no {missing}")
        self._tell("answer", missing, began, error=error)
        raise error

    def __enter__(self) -> MeasuredClient:
        super().__enter__()
        return self

    # -- what is measured ---------------------------------------------------------------------------------------------

    def connect(self, connection_params: Any = None) -> BotReadyData:
        self._begun = time.monotonic()
        with self._measured("connect", "connect"):
            return super().connect(connection_params)

    def start_bot(
        self,
        endpoint: str | APIRequest | Mapping[str, Any],
        request_data: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Any:
        with self._measured("connect", "start_bot"):
            return super().start_bot(endpoint, request_data, headers, timeout)

    def start_bot_and_connect(
        self,
        endpoint: str | APIRequest | Mapping[str, Any],
        request_data: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> BotReadyData:
        self._begun = time.monotonic()
        with self._measured("connect", "start_bot_and_connect"):
            return super().start_bot_and_connect(endpoint, request_data, headers, timeout)

    def send_client_request(self, type: str, data: Any = None, timeout: Timeout = DEFAULT_TIMEOUT) -> Any:
        return self._request(type, lambda: RTVIClient.send_client_request(self, type, data, timeout))

    def action(
        self, action: RTVIActionRequestData | Mapping[str, Any], timeout: Timeout = DEFAULT_TIMEOUT
    ) -> RTVIActionResponse:
        request = request_of(action)
        return self._request(_name_of(request), lambda: RTVIClient.action(self, request, timeout))

    def action_stream(
        self, action: RTVIActionRequestData | Mapping[str, Any], timeout: Timeout = DEFAULT_TIMEOUT
    ) -> Generator[RTVIActionResponse, None, None]:
        TIMEOUT.check(timeout=timeout)
        return self._measured_stream(request_of(action), timeout)

    def _measured_stream(
        self, action: RTVIActionRequestData, timeout: Timeout
    ) -> Generator[RTVIActionResponse, None, None]:
        name = _name_of(action)
        began = asked = time.monotonic()
        seconds, size = 0.0, 0
        try:
            stream = super().action_stream(action, timeout)
            with contextlib.closing(stream), contextlib.suppress(GeneratorExit):  # who closes it has heard enough
                for message in stream:
                    seconds += time.monotonic() - asked
                    size += _size_of(message.data)
                    yield message
                    asked = time.monotonic()
        except Exception as error:
            self._tell("request", name, began, seconds + time.monotonic() - asked, size=size, error=error)
            raise
        self._tell("request", name, began, seconds, size=size)

    def describe_actions(self, timeout: Timeout = DEFAULT_TIMEOUT) -> RTVIMessage:
        return self._request("describe-actions", lambda: RTVIClient.describe_actions(self, timeout))

    def get_bot_config(self, timeout: Timeout = DEFAULT_TIMEOUT) -> Any:
        return self._request("get-config", lambda: RTVIClient.get_bot_config(self, timeout), _in_config)

    get_config = get_bot_config

    def update_config(self, config: Any, interrupt: bool = False, timeout: Timeout = DEFAULT_TIMEOUT) -> RTVIMessage:
        return self._request("update-config", lambda: RTVIClient.update_config(self, config, interrupt, timeout))

    def describe_config(self, timeout: Timeout = DEFAULT_TIMEOUT) -> Any:
        return self._request("describe-config", lambda: RTVIClient.describe_config(self, timeout), _in_config)

    def send_text(self, content: str, run_immediately: bool = True, audio_response: bool = True) -> None:
        with self._asking(audio_response) if run_immediately else contextlib.nullcontext():
            super().send_text(content, run_immediately, audio_response)

    def send_file(
        self,
        file: FileLike,
        content: str = "",
        run_immediately: bool = True,
        audio_response: bool = True,
        *,
        format: str | None = None,
        name: str | None = None,
        custom_options: Mapping[str, Any] | None = None,
    ) -> None:
        with self._asking(audio_response) if run_immediately else contextlib.nullcontext():
            super().send_file(
                file,
                content,
                run_immediately,
                audio_response,
                format=format,
                name=name,
                custom_options=custom_options,
            )

    def append_to_context(self, role: str, content: Any, run_immediately: bool = False) -> None:
        with self._asking(aloud=True) if run_immediately else contextlib.nullcontext():
            super().append_to_context(role, content, run_immediately)

    # -- how ----------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _measured(self, kind: Kind, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        except Exception as error:
            self._tell(kind, name, began, error=error)
            raise
        self._tell(kind, name, began)

    def _request(self, name: str, call: Callable[[], T], data_of: Callable[[T], Any] = _in_message) -> T:
        began = time.monotonic()
        try:
            answer = call()
        except Exception as error:
            self._tell("request", name, began, error=error)
            raise
        seconds = time.monotonic() - began
        self._tell("request", name, began, seconds, size=_size_of(data_of(answer)))
        return answer

    def _tell(
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
            # what is kept shall not keep the frames of the program
            kept = fresh_copy(error) if error is not None else None
            self.on_measurement(Measurement(kind=kind, name=name, began=began, seconds=seconds, size=size, error=kept))

    @contextlib.contextmanager
    def _asking(self, aloud: bool) -> Iterator[None]:
        with self._clock_lock:
            self._clock.heard.clear()
            self._clock.ask(time.monotonic(), aloud=aloud)
        try:
            yield
        except BaseException as error:
            with self._clock_lock:
                unasked = self._clock.give_up()
            if unasked is not None and isinstance(error, Exception):
                self._tell("answer", *unasked, error=error)
            raise

    @property
    def _over(self) -> CloseInfo | None:
        """How the session ended that was begun last; None: it has not."""
        return self._end[1] if self._end is not None and self._end[0] >= (self._begun or 0.0) else None

    def _wait_until(self, ready: Callable[[], object], deadline: Deadline) -> None:
        if not self._dispatcher.queue.manual:
            self._notifier.wait_for(ready, deadline)
            return
        while not ready() and not deadline.expired:
            self.process_events(deadline.sooner(threading.TIMEOUT_MAX))

    # -- on the thread of the client's handlers -----------------------------------------------------------------------

    def _connected(self, _client: RTVIClient, event: Event) -> None:
        track = self.tracks().local.audio
        self._sent = track.frames(buffer=_KEPT) if track is not None else None
        self._begun = max(self._begun or 0.0, event.received_at)  # it may be a session that replaces a lost one

    def _user_stopped(self, _client: RTVIClient, event: Event) -> None:
        end = end_of_voice(self._sent.queued(), event.received_at) if self._sent is not None else None
        with self._clock_lock:
            self._clock.ask(event.received_at if end is None else end, aloud=True)

    def _heard(self, _client: RTVIClient, event: Event) -> None:
        with self._clock_lock:
            told = self._clock.take(event)
        for name, began, seconds in told:
            self._tell("answer", name, began, seconds)
            if name == "whole":
                self._notifier.notify_all()

    def _disconnected(self, _client: RTVIClient, event: Event) -> None:
        info: CloseInfo = event.data
        with self._clock_lock:
            self._end = event.received_at, info
            unanswered = self._clock.end(event.received_at)
        if unanswered is not None and info.initiator != "client":
            missing, began = unanswered
            self._tell("answer", missing, began, event.received_at - began, error=info.as_error("the answer was over"))
        self._notifier.notify_all()


def _name_of(action: RTVIActionRequestData) -> str:
    return f"{action.service}:{action.action}"
