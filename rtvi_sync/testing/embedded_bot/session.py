"""A client's session with the embedded bot, as tests observe and control it."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, get_args

import attrs

from rtvi_sync.concurrency.clock import monotonic
from rtvi_sync.errors import DisconnectedError, ProtocolError, RequestTimeoutError
from rtvi_sync.protocol.eval_messages import LEVELS, ReportLevel
from rtvi_sync.protocol.frames import AudioRawFrame, Frame, InterruptionFrame, MessageFrame, decode, encode
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


class Connection(Protocol):
    """The connection of a session."""

    @property
    def path(self) -> str:
        """Return path and query of the client's request."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the headers of that request, names in lower case."""

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
    """What a session and its conversation share: the bot's version and faults, and the current config and context."""

    bot_version: BotVersion
    config: LiveConfig
    context: LLMContext
    fault_plan: FaultPlan = attrs.field(factory=FaultPlan)


class BotSession:
    """The bot's end of one connection. Any thread may use it.

    All received messages and audio are kept as long as the session object lives.

    Attributes:
        path: path and query of the client's WebSocket request.
        headers: the headers of that request, names in lower case.
        eval_route: the eval route with the client's flags, if the client chose it by its first message, else None.
    """

    def __init__(self, connection: Connection, state: SessionState) -> None:
        self._connection = connection
        self._state = state
        self.path: Final = connection.path
        self.headers: Final = connection.headers
        self.eval_route: EvalRoute | None = None
        self._is_new = True  # the client has sent nothing yet; used by the thread that receives
        self._frame_ids = itertools.count(1)
        # Guards _messages, _audio and _end, and wakes threads that wait for them. Held for a moment by the thread that
        # receives and by the test's threads.
        self._received = threading.Condition()
        self._messages: list[Message] = []
        self._audio: list[bytes] = []
        self._end: DisconnectedError | None = None

    @property
    def messages(self) -> list[Message]:
        """Return every RTVI message received so far, in order: the JSON objects as they arrived."""
        with self._received:
            return list(self._messages)

    @property
    def config(self) -> Config:
        """Return a copy of this session's current config: ``[{"service", "options": [{"name", "value"}]}]``."""
        return self._state.config.services

    @property
    def context(self) -> list[Message]:
        """Return a copy of what a language model would be given now: messages with ``role`` and ``content``."""
        return self._state.context.messages

    @property
    def audio(self) -> bytes:
        """Return all PCM received so far, in order, at the rates at which it arrived."""
        with self._received:
            return b"".join(self._audio)

    @property
    def ended(self) -> DisconnectedError | None:
        """Return how the connection ended (code, reason, initiator), or None while it is open."""
        with self._received:
            return self._end

    def wait_for_message(
        self, type: str, timeout: float = 30.0, *, where: Callable[[Message], bool] | None = None
    ) -> Message:
        """Wait for the first message of a type, which may have arrived already, and return it.

        Args:
            type: RTVI message type.
            timeout: seconds.
            where: condition that the message must meet as well; called with an internal lock held, so keep it simple.

        Raises:
            RequestTimeoutError: no such message arrived in time.
            DisconnectedError: the session ended without such a message.
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
                    raise DisconnectedError(
                        f"The session ended before the client sent {type!r}",
                        code=self._end.code,
                        reason=self._end.reason,
                        initiator=self._end.initiator,
                    )
                if not self._received.wait(max(0.0, deadline - monotonic())):
                    raise RequestTimeoutError(f"The client sent no {type!r} within {timeout:g} s")

    def wait_ended(self, timeout: float = 30.0) -> DisconnectedError:
        """Wait until the connection has ended.

        Returns:
            How it ended: code, reason, initiator.

        Raises:
            RequestTimeoutError: it is still open after `timeout` seconds.
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
            DisconnectedError: the connection has ended.
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

        Before RTVI 1.2 the bot sends `llm-function-call-start` and `llm-function-call`, from then on
        `llm-function-call-started` and `-in-progress`, and `-stopped` at the end.

        Args:
            name: of the function.
            arguments: of the function, by name.
            timeout: seconds to wait for the client's `llm-function-call-result`.
            report_level: how much bots from 1.2 on report; a setting of real bots, where the default is "none".
                "disabled": nothing; "none": the id of the call; "name": also the function's name; "arguments": also
                the arguments; "full": also the result. Over the eval route the client's level holds, if it has asked
                for one.

        Returns:
            The result.

        Raises:
            RequestTimeoutError: the client did not answer in time. The bot has reported the call as cancelled.
            DisconnectedError: the session has ended.
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
        """Send a frame. Audio and interruptions without an id and a name get both, as real bots send them.

        On the eval route only messages are sent, and audio if the client has asked for it.

        Raises:
            DisconnectedError: the connection has ended.
        """
        _FRAME.check(frame=frame)
        if isinstance(frame, AudioRawFrame | InterruptionFrame) and not frame.name:
            number = next(self._frame_ids)
            kind = "OutputAudioRawFrame" if isinstance(frame, AudioRawFrame) else "InterruptionFrame"
            frame = attrs.evolve(frame, id=number, name=f"{kind}#{number}")
        data = encode(frame) if self.eval_route is None else self.eval_route.encode(frame)
        if data is not None:
            self.send_raw(data)

    def send_raw(self, data: bytes | str) -> None:
        """Send any bytes as one binary WebSocket message, or a string as one text message.

        Raises:
            DisconnectedError: the connection has ended.
        """
        _DATA.check(data=data)
        self._connection.send(data)

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the connection with a code and a reason; wait up to 2 s for the client's close frame."""
        CLOSE_CODE.check(code=code)
        _REASON.check(reason=reason)
        self._connection.close(code, reason)

    def drop(self) -> None:
        """Cut the TCP connection without a close frame: the client sees the end of the stream."""
        self._connection.drop()

    def receive(self, timeout: float | None) -> Frame | None:
        """Wait for the next frame and keep its audio. Called by the one thread that serves the session.

        Returns:
            The frame, or None for an unknown kind, and for the message by which the client chooses the eval route.

        Raises:
            TimeoutError: no frame arrived within `timeout` seconds.
            ProtocolError: the client sent data that is not a frame.
            DisconnectedError: the connection has ended.
        """
        data = self._connection.receive(timeout)
        is_first, self._is_new = self._is_new, False
        if is_first:
            self.eval_route = open_eval_route(data)
            if self.eval_route is not None:
                return None
        frame: Frame | None
        if self.eval_route is not None:
            frame = self.eval_route.decode(data)
        elif isinstance(data, str):
            raise ProtocolError("The client sent a text message; bots take binary frames only")
        else:
            frame = decode(data)
        if isinstance(frame, AudioRawFrame):
            with self._received:
                self._audio.append(frame.audio)
        return frame

    def keep(self, message: Message) -> None:
        """Add a message to `messages`; called by the thread that serves the session."""
        with self._received:
            self._messages.append(message)
            self._received.notify_all()

    def finish(self, end: DisconnectedError) -> None:
        """Note how the connection ended; called by the thread that served the session."""
        with self._received:
            self._end = end
            self._received.notify_all()
