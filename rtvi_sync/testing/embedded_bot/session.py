"""A client's session with the embedded bot, for tests to observe and control."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias, get_args

import attrs

from rtvi_sync.concurrency.clock import monotonic
from rtvi_sync.concurrency.lifecycle import start_thread
from rtvi_sync.errors import DisconnectedError, ProtocolError, RequestTimeoutError, UnsupportedFeatureError
from rtvi_sync.protocol.eval_messages import LEVELS, ReportLevel
from rtvi_sync.protocol.frames import AudioRawFrame, Frame, InterruptionFrame, MessageFrame, decode, encode
from rtvi_sync.protocol.telephony import KEYS, CallEnd, KeyPress, PlaybackMark, call_in
from rtvi_sync.protocol.validation import (
    MAPPING,
    NAME,
    STRING,
    WAIT,
    Rule,
    function_taking,
    instance_of,
    integer,
    one_of,
)
from rtvi_sync.testing.embedded_bot.messages import (
    BotVersion,
    CallReports,
    EvalRoute,
    Message,
    message,
    open_eval_route,
)
from rtvi_sync.testing.embedded_bot.phone import (
    HANG_UP_REQUESTS,
    BotCall,
    HangUpRequest,
    PhoneRoute,
    begin_call,
    may_open_call,
)
from rtvi_sync.testing.embedded_bot.reply import FaultPlan, LLMContext
from rtvi_sync.testing.embedded_bot.services import Config, LiveConfig

_FRAME = instance_of("a frame", *get_args(Frame))
CLOSE_CODE = Rule(
    "a code of a close frame (1000 to 1003, 1007 to 1014, or 3000 to 4999)",
    integer(0).has_type,
    lambda code: 1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999,
)


def _fits_close_frame(reason: str) -> bool:
    try:
        return len(reason.encode()) <= 123
    except UnicodeEncodeError:
        return False


_REASON = Rule("a string of up to 123 bytes of UTF-8, as a close frame has it", STRING.has_type, _fits_close_frame)
_DATA = instance_of("bytes or a string", bytes, bytearray, memoryview, str)
_KEYS = Rule("keys of a telephone: 0 to 9, * and #", STRING.has_type, lambda keys: bool(keys) and set(keys) <= KEYS)


class Connection(Protocol):
    """The connection of a session."""

    @property
    def path(self) -> str:
        """Path and query of the client's request."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the client's request, names in lower case."""

    def send(self, data: bytes | str) -> None:
        """Send one message."""

    def receive(self, timeout: float | None) -> bytes | str:
        """Return the next message."""

    def close(self, code: int, reason: str) -> None:
        """Close the connection with a close frame."""

    def drop(self) -> None:
        """Cut the connection without a close frame."""


@attrs.frozen(kw_only=True)
class SessionState:
    """State that a session shares with its conversation: the bot's version and faults, the config and the context.

    `provider_url` returns the URL of the HTTP server that ends telephone calls; "" without one.
    """

    bot_version: BotVersion
    config: LiveConfig
    context: LLMContext
    fault_plan: FaultPlan = attrs.field(factory=FaultPlan)
    provider_url: Callable[[], str] = str


class ProtobufRoute:
    """The encoding of most sessions: protobuf frames in binary messages."""

    def encode(self, frame: Frame) -> bytes:
        """Return the bytes for a frame."""
        return encode(frame)

    def decode(self, data: bytes | str) -> Frame | None:
        """Return the frame in a client's message; None for an unknown kind.

        Raises:
            ProtocolError: The message is not a frame.
        """
        if isinstance(data, str):
            raise ProtocolError("The client sent a text message; bots take binary frames only")
        return decode(data)


_Route: TypeAlias = ProtobufRoute | EvalRoute | PhoneRoute


class BotSession:
    """The bot's end of one connection. Made by `EmbeddedBot`. Any thread may use it.

    The session object keeps all received messages and audio.

    Attributes:
        path: Path and query of the client's WebSocket request.
        headers: Headers of the request, names in lower case.
        eval_route: Eval route with the client's flags, if the client's first message chose it, otherwise None.
        call: Telephone call, if the client's first messages are a provider's, otherwise None. `wait_for_call()` waits
            for it.
    """

    def __init__(self, connection: Connection, state: SessionState) -> None:
        self._connection = connection
        self._state = state
        self.path: Final = connection.path
        self.headers: Final = connection.headers
        self.eval_route: EvalRoute | None = None
        self.call: BotCall | None = None
        self._route: _Route = ProtobufRoute()
        # The first messages, until they identify the client; used by the receiving thread.
        self._opening: list[bytes | str] | None = []
        self._frame_ids = itertools.count(1)
        # Guards _messages, _audio, call, _hang_up and _end, and wakes threads that wait for them. The receiving thread
        # and the test's threads hold it briefly.
        self._received = threading.Condition()
        self._messages: list[Message] = []
        self._audio: list[bytes] = []
        self._end: DisconnectedError | None = None
        self._finish_speech: Callable[[], None] = lambda: None
        self._hang_up: threading.Thread | None = None
        self._hang_up_request: HangUpRequest | None = None

    @property
    def messages(self) -> list[Message]:
        """All received RTVI messages so far, in order: the JSON objects as they arrived."""
        with self._received:
            return list(self._messages)

    @property
    def config(self) -> Config:
        """A copy of this session's current config: ``[{"service", "options": [{"name", "value"}]}]``."""
        return self._state.config.services

    @property
    def context(self) -> list[Message]:
        """A copy of the language model's current input: messages with ``role`` and ``content``."""
        return self._state.context.messages

    @property
    def audio(self) -> bytes:
        """All received PCM so far, in order, at the rates at which it arrived."""
        with self._received:
            return b"".join(self._audio)

    @property
    def ended(self) -> DisconnectedError | None:
        """The end of the connection (code, reason, initiator); None while it is open."""
        with self._received:
            return self._end

    def wait_for_message(
        self, type: str, timeout: float = 30.0, *, where: Callable[[Message], bool] | None = None
    ) -> Message:
        """Wait for the first message of a type, which may have arrived already, and return it.

        Args:
            type: RTVI message type.
            timeout (seconds): Limit of the wait.
            where: Further condition on the message. It is called with an internal lock held, so keep it simple.

        Raises:
            RequestTimeoutError: No such message arrived in time.
            DisconnectedError: The session ended without such a message.
        """
        NAME.check(type=type)
        WAIT.check(timeout=timeout)
        function_taking("message").or_none.check(where=where)
        deadline = monotonic() + timeout
        seen = 0
        with self._received:
            while True:
                for message in self._messages[seen:]:
                    if message.get("type") == type and (where is None or where(message)):
                        return message
                seen = len(self._messages)
                if self._end is not None:
                    raise self._ended_before(f"the client sent {type!r}", self._end)
                if not self._received.wait(max(0.0, deadline - monotonic())):
                    raise RequestTimeoutError(f"The client sent no {type!r} within {timeout:g} s")

    def wait_for_call(self, timeout: float = 30.0) -> BotCall:
        """Wait until a telephone provider has reported its call, which takes two messages, and return the call.

        Raises:
            RequestTimeoutError: No provider reported a call within `timeout` seconds.
            DisconnectedError: The session ended first.
        """
        WAIT.check(timeout=timeout)
        with self._received:
            self._wait(lambda: self.call is not None, "a provider told of a call", timeout)
            assert self.call is not None
            return self.call

    def wait_for_dtmf(self, keys: str, timeout: float = 30.0) -> None:
        """Wait until the caller has pressed these keys in a row, at any time since the start of the call.

        Args:
            keys: Keys, such as "12#".
            timeout (seconds): Limit of the wait.

        Raises:
            RequestTimeoutError: The keys were not pressed in time.
            DisconnectedError: The session ended first.
        """
        _KEYS.check(keys=keys)
        WAIT.check(timeout=timeout)
        with self._received:
            self._wait(
                lambda: self.call is not None and keys in self.call.dtmf, f"the caller pressed {keys!r}", timeout
            )

    def wait_for_mark(self, name: str, timeout: float = 30.0) -> None:
        """Wait until the provider has reported that a mark of the bot was reached; see `send_mark()`.

        Raises:
            RequestTimeoutError: The provider did not report the mark in time.
            DisconnectedError: The session ended first.
        """
        NAME.check(name=name)
        WAIT.check(timeout=timeout)
        with self._received:
            self._wait(
                lambda: self.call is not None and name in self.call.marks, f"the mark {name!r} came back", timeout
            )

    def _wait(self, has_come: Callable[[], bool], what: str, timeout: float) -> None:
        """Wait with `_received` held."""
        if not self._received.wait_for(lambda: has_come() or self._end is not None, timeout):
            raise RequestTimeoutError(f"{timeout:g} s were over before {what}")
        if self._end is not None and not has_come():
            raise self._ended_before(what, self._end)

    @staticmethod
    def _ended_before(what: str, end: DisconnectedError) -> DisconnectedError:
        text = f"The session ended before {what}"
        return DisconnectedError(text, code=end.code, reason=end.reason, initiator=end.initiator)

    def wait_ended(self, timeout: float = 30.0) -> DisconnectedError:
        """Wait for the end of the connection.

        Returns:
            The end: code, reason, initiator.

        Raises:
            RequestTimeoutError: The connection is still open after `timeout` seconds.
        """
        WAIT.check(timeout=timeout)
        with self._received:
            if not self._received.wait_for(lambda: self._end is not None, timeout):
                raise RequestTimeoutError(f"The connection is still open after {timeout:g} s")
            assert self._end is not None
            return self._end

    def send(self, message: Message) -> None:
        """Send an RTVI message, exactly this JSON object.

        Raises:
            DisconnectedError: The connection has ended.
        """
        MAPPING.check(message=message)
        self.send_frame(MessageFrame(data=json.dumps(message)))

    def call_function(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        timeout: float = 30.0,
        *,
        report_level: ReportLevel = "full",
    ) -> Any:
        """Call a function of the client, as a bot of this version does when its language model calls it.

        Before RTVI 1.2, the bot sends `llm-function-call-start` and `llm-function-call`; from then on
        `llm-function-call-started` and `-in-progress`, and `-stopped` at the end.

        Args:
            name: Name of the function.
            arguments: Arguments by name.
            timeout (seconds): Limit of the wait for the client's `llm-function-call-result`.
            report_level: Level of detail in the reports of bots from 1.2 on, a setting of real bots with the default
                "none". "disabled": no report; "none": the id of the call; "name": also the function's name;
                "arguments": also the arguments; "full": also the result. On the eval route, the client's level applies
                if it asked for one.

        Returns:
            The result.

        Raises:
            RequestTimeoutError: The client did not answer in time. The bot reported the call as cancelled.
            DisconnectedError: The session has ended.
        """
        NAME.check(name=name)
        MAPPING.or_none.check(arguments=arguments)
        WAIT.check(timeout=timeout)
        one_of(*LEVELS).check(report_level=report_level)
        if self.eval_route is not None:
            report_level = self.eval_route.report_level(name, report_level)
        bot_version = self._state.bot_version
        reports = CallReports(bot_version, report_level, name, arguments or {})
        if bot_version.sends("llm-function-call-in-progress"):
            opening = [*reports.started(), *reports.in_progress()]
        else:
            opening = [message("llm-function-call-start", {"function_name": name}), reports.request()]
        for each in opening:
            self.send(each)
        try:
            answer = self.wait_for_message("llm-function-call-result", timeout, where=reports.is_answer)
        except RequestTimeoutError:
            for each in reports.cancelled():
                self.send(each)
            raise
        result = answer["data"]["result"]
        for each in reports.stopped(result):
            self.send(each)
        return result

    def send_frame(self, frame: Frame) -> None:
        """Send a frame. Audio and interruptions without an id and a name get both, as from real bots.

        The eval route carries only messages, and audio if the client asked for it. A telephone call carries only audio,
        at 8 kHz, and `clear` for an interruption.

        Raises:
            DisconnectedError: The connection has ended.
        """
        _FRAME.check(frame=frame)
        if isinstance(frame, AudioRawFrame | InterruptionFrame) and not frame.name:
            number = next(self._frame_ids)
            kind = "OutputAudioRawFrame" if isinstance(frame, AudioRawFrame) else "InterruptionFrame"
            frame = attrs.evolve(frame, id=number, name=f"{kind}#{number}")
        data = self._route.encode(frame)
        if data is not None:
            self.send_raw(data)

    def send_raw(self, data: bytes | str) -> None:
        """Send any bytes as one binary WebSocket message, or a string as one text message.

        Raises:
            DisconnectedError: The connection has ended.
        """
        _DATA.check(data=data)
        self._connection.send(data)

    def send_mark(self, name: str) -> None:
        """Ask the provider to report when all audio sent before has been played, or dropped by `clear`.

        `wait_for_mark()` waits for the report, and `call.marks` has it.

        Raises:
            UnsupportedFeatureError: The session is not a telephone call.
            DisconnectedError: The connection has ended.
        """
        NAME.check(name=name)
        self.send_raw(self._phone("send_mark").mark(name))

    def hang_up(self) -> None:
        """Make the bot hang up like a Pipecat bot: it finishes its speech, has the provider end the call, and closes.

        If `EmbeddedBot` has a `provider_api`, the bot sends the provider a request (except Exotel), and waits without a
        limit for the answer. Then it closes the connection (1000). This happens on a thread of the bot, and
        `wait_ended()` waits for it. If the caller hangs up first, the remaining steps are skipped.

        Raises:
            UnsupportedFeatureError: The session is not a telephone call.
        """
        route = self._phone("hang_up")
        with self._received:
            if self._hang_up is None and self._end is None:
                self._hang_up = start_thread("bot-hang-up", self._end_call, route)

    def _phone(self, feature: str) -> PhoneRoute:
        if not isinstance(self._route, PhoneRoute):
            raise UnsupportedFeatureError("The session is no telephone call", feature=feature)
        return self._route

    def _end_call(self, route: PhoneRoute) -> None:
        self._finish_speech()
        url = self._state.provider_url()
        request = HangUpRequest(route.call, url) if url and route.call.provider in HANG_UP_REQUESTS else None
        with self._received:
            if self._end is not None:
                return
            self._hang_up_request = request
        if request is not None:
            request.send()
        self.close()

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the connection with a code and a reason; wait up to 2 s for the client's close frame."""
        CLOSE_CODE.check(code=code)
        _REASON.check(reason=reason)
        self._connection.close(code, reason)

    def drop(self) -> None:
        """Cut the TCP connection without a close frame. The client sees the end of the stream."""
        self._connection.drop()

    def receive(self, timeout: float | None) -> Frame | BotCall | None:
        """Wait for the next frame and keep its audio. Called by the one thread that serves the session.

        Returns:
            The frame, or the call once the provider has reported it. None for input that the conversation ignores: a
            frame of an unknown kind, a key, or the message that chooses the eval route.

        Raises:
            TimeoutError: No frame arrived within `timeout` seconds.
            ProtocolError: The client sent data that is not a frame.
            DisconnectedError: The connection has ended.
        """
        data = self._connection.receive(timeout)
        if self._opening is not None:
            self._opening.append(data)
            route = self._route_of(self._opening)
            if route is None:
                return None
            self._opening = None
            if not isinstance(route, ProtobufRoute):
                return self._take(route)
        heard = self._route.decode(data)
        with self._received:
            if isinstance(heard, AudioRawFrame):
                self._audio.append(heard.audio)
            elif isinstance(heard, KeyPress) and self.call is not None:
                self.call.dtmf += heard.key
                self._received.notify_all()
            elif isinstance(heard, PlaybackMark) and self.call is not None:
                self.call.marks += (heard.name,)
                self._received.notify_all()
        return None if isinstance(heard, KeyPress | PlaybackMark | CallEnd) else heard

    def _route_of(self, opening: list[bytes | str]) -> _Route | None:
        """Return the route that the client's first messages choose; None if the next one decides, or no route fits."""
        first, is_first = opening[0], len(opening) == 1
        eval_route = open_eval_route(first) if is_first else None
        if eval_route is not None:
            return eval_route
        if is_first:
            return None if isinstance(first, str) and may_open_call(first) else ProtobufRoute()
        texts = [each for each in opening if isinstance(each, str)]
        call = call_in(texts) if len(texts) == len(opening) == 2 else None
        if call is None:
            self.drop()  # as bots of Pipecat do
            return None
        return PhoneRoute(call)

    def _take(self, route: EvalRoute | PhoneRoute) -> BotCall | None:
        """Switch to another route than protobuf, and return its call."""
        with self._received:
            self._route = route
            if isinstance(route, EvalRoute):
                self.eval_route = route
            else:
                self.call = begin_call(route.call)
            self._received.notify_all()
        return self.call

    def before_hang_up(self, finish_speech: Callable[[], None]) -> None:
        """Set the function that waits for the end of the bot's speech; called by the thread that serves the session."""
        self._finish_speech = finish_speech

    def keep(self, message: Message) -> None:
        """Add a message to `messages`; called by the thread that serves the session."""
        with self._received:
            self._messages.append(message)
            self._received.notify_all()

    def finish(self, end: DisconnectedError) -> None:
        """Note the end of the connection; called by the thread that served the session."""
        with self._received:
            self._end = end
            self._received.notify_all()

    def release(self) -> None:
        """End the thread that hangs up; called by the thread that served the session, after `finish()`."""
        if self._hang_up is not None:
            if self._hang_up_request is not None:
                self._hang_up_request.cancel()
            self._hang_up.join()
