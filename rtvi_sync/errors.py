"""Every error that the package raises.

RTVIError
    ConnectError                                            `connect()` or `start_bot()` failed
        ConnectionTimeoutError      (also TimeoutError)     the bot was not ready in time
        StartBotError                                       the connect request failed
        TransportStartError                                 the transport could not be opened
    SessionError                                            a session, or a call that needs one, failed
        DisconnectedError           (also ConnectionError)  the session ended while a call waited
        BotError                                            the bot reported an error
        BotNotReadyError                                    the call needs a ready bot
        RequestTimeoutError         (also TimeoutError)     no answer or event in time
        RequestRejectedError                                the bot or server refused a request
            ConfigUpdateError                               the bot refused an update of its config
        ProtocolError                                       the other side broke the protocol
        ForkedProcessError                                  the session belongs to the parent process
    UsageError                                              the application's call cannot work
        InvalidTransportParamsError                         no transport, or it cannot use these parameters
        BotAlreadyStartedError                              a session is active or being connected
        MessageTooLargeError                                over the transport's limit
        ActionEndpointNotSetError                           no endpoint for single-turn actions
        UnsupportedFeatureError                             this bot or transport cannot do it
        WouldDeadlockError                                  waiting here could never end
        MissingExtraError           (also ImportError)      an optional package is not installed
        ScenarioFileError           (also ValueError)       a scenario file cannot be used
    DeviceError                                             a device that was requested cannot be used
    ExpectationError                (also AssertionError)   the bot did not meet a demand of `expect()`

A wrong type or value of an option is a `TypeError` or `ValueError` that names the option.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from .explanations import hint_of
from .installation import install_command

if TYPE_CHECKING:
    from .conversation.turn import Turn

E = TypeVar("E", bound=BaseException)


class RTVIError(Exception):
    """Base of every error of this package. Can be pickled, to be raised in another process.

    An error of the first minutes has a note, the line below its text in a traceback (Python 3.11 and later): the word
    that `rtvi-sync explain` takes.

    Attributes:
        status: HTTP status of the answer that caused the error, or None.
    """

    _quotes: ClassVar[bool] = False  # True: the text is the bot's or a server's, and none of those that are explained

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        if not self._quotes and (hint := hint_of(message)):
            self.__notes__: list[str] = [hint]  # as add_note() does, which Python 3.10 lacks
        self.status = status

    def __reduce__(self) -> tuple[Any, ...]:
        # Other errors are made by calling the class with `args`; some of these need more arguments.
        return _new_error, (type(self), *self.args), self.__dict__

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows: the application's part of the traceback, in IPython's own form.

        Only for display: the error keeps its traceback and its causes, for loggers, `traceback` and `%debug`.
        """
        from IPython import get_ipython

        shown = copy.copy(self)
        for name in ("__cause__", "__context__"):
            before = getattr(self, name)
            if before is not None and _frames_of_application(before.__traceback__):
                setattr(shown, name, before)
        shown.__suppress_context__ = self.__suppress_context__
        traceback = None
        for each in reversed(_frames_of_application(self.__traceback__)):
            traceback = TracebackType(traceback, each.tb_frame, each.tb_lasti, each.tb_lineno)
        lines: list[str] = get_ipython().InteractiveTB.structured_traceback(type(self), shown, traceback, tb_offset=0)
        return lines


def _frames_of_application(traceback: TracebackType | None) -> list[TracebackType]:
    """Return the parts of a traceback that are neither in this package, nor in an installed one or Python's own."""
    libraries = [os.path.dirname(file) + os.sep for file in (__file__, getattr(os, "__file__", "")) if file]
    frames = []
    while traceback is not None:
        path = traceback.tb_frame.f_code.co_filename
        if not (path.startswith(("<frozen ", *libraries)) or "site-packages" in path or "dist-packages" in path):
            frames.append(traceback)
        traceback = traceback.tb_next
    return frames


def _new_error(type_: type[RTVIError], *args: Any) -> RTVIError:
    error = type_.__new__(type_)
    error.args = args
    return error


def fresh_copy(error: E) -> E:
    """Return a copy of an error and its causes without tracebacks, whose frames keep the application's objects alive.

    An error object is raised only once. To store an error, or raise it again, use a copy.
    """
    try:
        twin = copy.copy(error)
    except Exception:  # noqa: BLE001 - an error of the application that cannot be copied
        return error
    twin.__cause__ = fresh_copy(error.__cause__) if error.__cause__ is not None else None
    twin.__suppress_context__ = error.__suppress_context__
    return twin


class ConnectError(RTVIError):
    """Base of the errors that `connect()` and `start_bot()` raise because no session could be established.

    Attributes:
        attempts: `(transport name, error)` for each try of `connect()`, in order, if it tried several transports. One
            that was tried again is there twice. Otherwise empty.
    """

    attempts: tuple[tuple[str, RTVIError], ...] = ()


class SessionError(RTVIError):
    """Base of the errors of a session, and of calls that need one.

    Attributes:
        turn: The partial turn that a call waited for, as of `ask()`. None if there is none.
    """

    turn: Turn | None = None


class UsageError(RTVIError):
    """Base of the errors that a change to the application, its options or its installation prevents."""


class ConnectionTimeoutError(ConnectError, TimeoutError):
    """The bot was not ready within the limit of `connect()`.

    Attributes:
        phase: The phase in which the limit passed: "devices", "http", "transport" or "bot-ready". "begin" if it passed
            before the attempt started.
        elapsed (seconds): Time since `connect()` was called.
    """

    def __init__(self, message: str, *, phase: str, elapsed: float) -> None:
        super().__init__(message)
        self.phase = phase
        self.elapsed = elapsed


class StartBotError(ConnectError):
    """The connect request failed, was refused, or was aborted."""


class TransportStartError(ConnectError):
    """The transport could not be opened."""


class DisconnectedError(SessionError, ConnectionError):
    """The session ended while a call waited, or before the call.

    Attributes:
        code: Close code of the transport (WebSocket: RFC 6455). None if the connection broke without one.
        reason: The peer's reason text. "" if there is none.
        initiator: The side that ended the session: "client", "server" or "network".
    """

    def __init__(self, message: str, *, code: int | None = None, reason: str = "", initiator: str = "network") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.initiator = initiator


class BotError(SessionError):
    """The bot reported an error.

    Attributes:
        fatal: True if the bot ends the session because of it.
    """

    _quotes = True

    def __init__(self, message: str, *, fatal: bool = False) -> None:
        super().__init__(message)
        self.fatal = fatal


class BotNotReadyError(SessionError):
    """The call needs a ready bot and there is none."""


class BotAlreadyStartedError(UsageError):
    """`connect()` or `start_bot()` was called while a session is active or one of the two calls is running."""


class RequestTimeoutError(SessionError, TimeoutError):
    """The answer or event that a call waited for did not arrive in time.

    Attributes:
        kind: "not_heard" if the bot did not hear the spoken question of `ask()`. Otherwise "timeout".
    """

    kind: str = "timeout"


class RequestRejectedError(SessionError):
    """The bot answered a request with an error, or a server refused it.

    Attributes:
        response: The bot's refusal as it was received, or None.
    """

    _quotes = True

    def __init__(self, message: str, *, status: int | None = None, response: Any = None) -> None:
        super().__init__(message, status=status)
        self.response = response


class ConfigUpdateError(RequestRejectedError):
    """The bot refused an update of its config."""


class MessageTooLargeError(UsageError):
    """The serialized message is larger than the transport can carry."""


class ActionEndpointNotSetError(UsageError):
    """A single-turn action was called, but `params.endpoints.action` is not set."""


class UnsupportedFeatureError(UsageError):
    """The connected bot's version, or the transport, does not support the requested feature.

    Attributes:
        feature: Name of the missing feature.
        needed_version: The protocol versions that have the feature, such as "2.0 or later" or "before 2.0". None if it
            does not depend on the version.
        bot_version: The bot's protocol version. None if the feature does not depend on it.
    """

    def __init__(
        self, message: str, *, feature: str, needed_version: str | None = None, bot_version: str | None = None
    ) -> None:
        super().__init__(message)
        self.feature = feature
        self.needed_version = needed_version
        self.bot_version = bot_version


class InvalidTransportParamsError(UsageError):
    """There is no transport, or it cannot connect with its parameters."""


class DeviceError(RTVIError):
    """A requested device cannot be used.

    Attributes:
        devices: Kinds of the devices concerned: "mic", "speaker", "cam".
        type: "not-found", "in-use", "permissions" or "unknown".
        details: The report of the device library, or None.
    """

    def __init__(
        self, message: str, *, devices: Sequence[str] = (), type: str = "unknown", details: Any = None
    ) -> None:
        super().__init__(message)
        self.devices: tuple[str, ...] = tuple(devices)
        self.type = type
        self.details = details


class ExpectationError(RTVIError, AssertionError):
    """The bot did not meet a demand of `expect()`.

    Attributes:
        kind: The kind of failure: "timeout", "text_mismatch", "text_present", "missing_function_call",
            "function_args_mismatch", "unexpected_event", "latency", "interrupted", "bot_ended", "error" or
            "not_judged" (this transport reports no words or calls).
        expected: The demand in words.
        got: The bot's behaviour in words.
        others: The demand, behaviour and kind of each further failure.
        turn: The checked turn. None if there was none.
        timeline: The events before the failure, one a line.
    """

    _quotes = True

    def __init__(
        self,
        expected: str,
        got: str,
        kind: str,
        *,
        others: Sequence[tuple[str, str, str]] = (),
        turn: Turn | None = None,
        timeline: str = "",
    ) -> None:
        unmet = "\n".join(
            f"expected {one}\nbut {other}  [{what}]" for one, other, what in ((expected, got, kind), *others)
        )
        super().__init__(unmet + (f"\n{timeline}" if timeline else ""))
        self.expected = expected
        self.got = got
        self.kind = kind
        self.others: tuple[tuple[str, str, str], ...] = tuple(others)
        self.turn = turn
        self.timeline = timeline


class ProtocolError(SessionError):
    """The peer sent something that the protocol does not allow."""


class WouldDeadlockError(UsageError):
    """A handler, signal handler or finalizer made a call that waits for its own return."""


class ForkedProcessError(SessionError):
    """The session was live when the process forked; only the parent may use it."""


class MissingExtraError(UsageError, ImportError):
    """A feature needs an optional package that is not installed.

    Attributes:
        extra: The extra of this package that installs it.
    """

    def __init__(self, feature: str, extra: str, *, hint: str = "") -> None:
        command = install_command(extra)
        super().__init__(f'{feature} needs the extra "{extra}". Install it with: {command}{hint and f" ({hint})"}')
        self.extra = extra


class ScenarioFileError(UsageError, ValueError):
    """A scenario file cannot be used: it cannot be read, or has faults.

    The message has one line for each fault: `FILE:LINE:COLUMN: TEXT`, or `FILE: TEXT` if the fault has no line.

    Attributes:
        path: Path of the file with the first fault, which may be an included file.
        line: Line of the fault, from 1. 0: the whole file.
        column: Column of the fault, from 1. 0: the whole file.
        text: The fault.
        others: Path, line, column and text of each further fault in this file and the files read with it. At most 99.
    """

    def __init__(
        self, path: Path, line: int, column: int, text: str, *, others: Sequence[tuple[Path, int, int, str]] = ()
    ) -> None:
        super().__init__("\n".join(_faulty(*fault) for fault in ((path, line, column, text), *others)))
        self.path = path
        self.line = line
        self.column = column
        self.text = text
        self.others: tuple[tuple[Path, int, int, str], ...] = tuple(others)


def _faulty(path: Path, line: int, column: int, text: str) -> str:
    return f"{path}:{line}:{column}: {text}" if line else f"{path}: {text}"
