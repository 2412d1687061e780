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
    UsageError                                              the application called what cannot work
        InvalidTransportParamsError                         no transport, or it cannot use these parameters
        BotAlreadyStartedError                              a session, or an attempt to begin one, is active
        MessageTooLargeError                                over the transport's limit
        ActionEndpointNotSetError                           no endpoint for single-turn actions
        UnsupportedFeatureError                             this bot or transport cannot do it
        WouldDeadlockError                                  waiting here could never end
        MissingExtraError           (also ImportError)      an optional package is not installed
        ScenarioFileError           (also ValueError)       a scenario file cannot be used
    DeviceError                                             a device that was requested cannot be used
    ExpectationError                (also AssertionError)   the bot did not do what `expect()` demands

A wrong type or value of an option is a `TypeError` or `ValueError` that names the option.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
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
            self.__notes__ = [hint]  # as add_note() does, which Python 3.10 lacks
        self.status = status

    def __reduce__(self) -> tuple[Any, ...]:
        # Other errors are made by calling the class with `args`; some of these need more arguments.
        return _new_error, (type(self), *self.args), self.__dict__


def _new_error(type_: type[RTVIError], *args: Any) -> RTVIError:
    error = type_.__new__(type_)
    error.args = args
    return error


def fresh_copy(error: E) -> E:
    """Return a copy of an error and its causes without tracebacks, whose frames keep the application's objects alive.

    An error object is raised once; what is stored, or raised a second time, is a copy.
    """
    try:
        twin = copy.copy(error)
    except Exception:  # noqa: BLE001 - one of the application's own that cannot be copied
        return error
    twin.__cause__ = fresh_copy(error.__cause__) if error.__cause__ is not None else None
    twin.__suppress_context__ = error.__suppress_context__
    return twin


class ConnectError(RTVIError):
    """Base of the errors that `connect()` and `start_bot()` raise because no session could be established.

    Attributes:
        attempts: the name and the error of each way to the bot that `connect()` tried, if there was more than one.
    """

    attempts: tuple[tuple[str, RTVIError], ...] = ()


class SessionError(RTVIError):
    """Base of the errors of a session, and of the calls that need one.

    Attributes:
        turn: what there was of the turn that a call waited for (`ask()`); None otherwise.
    """

    turn: Turn | None = None


class UsageError(RTVIError):
    """Base of the errors that a change to the application, its options or its installation prevents."""


class ConnectionTimeoutError(ConnectError, TimeoutError):
    """The bot was not ready within the limit of `connect()`.

    Attributes:
        phase: what the call waited for: "devices", "http", "transport" or "bot-ready"; "begin" if the limit passed
            before the attempt started.
        elapsed: seconds since `connect()` was called.
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
    """The session ended while a call waited, or before it could be made.

    Attributes:
        code: close code of the transport (WebSocket: RFC 6455), or None when the line broke without one.
        reason: reason text of the peer; "" without one.
        initiator: who ended the session: "client", "server" or "network".
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
    """`connect()` or `start_bot()` was called while a session is active, or one of the two is under way."""


class RequestTimeoutError(SessionError, TimeoutError):
    """The answer or event that a call waited for did not arrive in time.

    Attributes:
        kind: "not_heard" if the bot has not heard the audio that `ask()` said; "timeout" otherwise.
    """

    kind: str = "timeout"


class RequestRejectedError(SessionError):
    """The bot answered a request with an error, or a server refused it.

    Attributes:
        response: the refusing message as the bot sent it, or None.
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
    """A single-turn action was called and `params.endpoints.action` is not set."""


class UnsupportedFeatureError(UsageError):
    """The connected bot's version, or the transport, does not support the requested feature.

    Attributes:
        feature: name of the missing feature.
        needed_version: the protocol versions that have it, such as "2.0 or later" or "before 2.0"; None if it does not
            depend on the version.
        bot_version: the protocol version that the bot speaks; None if it does not depend on the version.
    """

    def __init__(
        self, message: str, *, feature: str, needed_version: str | None = None, bot_version: str | None = None
    ) -> None:
        super().__init__(message)
        self.feature = feature
        self.needed_version = needed_version
        self.bot_version = bot_version


class InvalidTransportParamsError(UsageError):
    """There is no transport, or what it was given does not let it connect."""


class DeviceError(RTVIError):
    """A device that was requested cannot be used.

    Attributes:
        devices: kinds of the devices concerned: "mic", "speaker", "cam".
        type: "not-found", "in-use", "permissions" or "unknown".
        details: what the device library reported, or None.
    """

    def __init__(
        self, message: str, *, devices: Sequence[str] = (), type: str = "unknown", details: Any = None
    ) -> None:
        super().__init__(message)
        self.devices: tuple[str, ...] = tuple(devices)
        self.type = type
        self.details = details


class ExpectationError(RTVIError, AssertionError):
    """The bot did not do what a call of `expect()` demands.

    Attributes:
        kind: what is wrong: "timeout", "text_mismatch", "text_present", "missing_function_call",
            "function_args_mismatch", "unexpected_event", "latency", "interrupted", "bot_ended", "error" or
            "not_judged" (no one can know what the bot has said or called over this transport).
        expected, got: the same in words.
        others: expected, got and kind of each further demand that was not met.
        turn: the turn that was checked; None if there was none.
        timeline: what had happened, one line for each event.
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
    """The other side sent something that the protocol does not allow."""


class WouldDeadlockError(UsageError):
    """A handler, signal handler or finalizer made a call that could only return after itself had returned."""


class ForkedProcessError(SessionError):
    """The session was live when the process forked; only the parent may use it."""


class MissingExtraError(UsageError, ImportError):
    """A feature needs an optional package that is not installed.

    Attributes:
        extra: the extra of this package that installs it.
    """

    def __init__(self, feature: str, extra: str, *, hint: str = "") -> None:
        command = install_command(extra)
        super().__init__(f'{feature} needs the extra "{extra}". Install it with: {command}{hint and f" ({hint})"}')
        self.extra = extra


class ScenarioFileError(UsageError, ValueError):
    """A scenario file cannot be used: it cannot be read, or something in it is wrong.

    The message has one line for each fault: "FILE:LINE:COLUMN: what", or "FILE: what" of a whole file.

    Attributes:
        path: of the file with the first fault, which may be an included one.
        line, column: where that is, from 1 on; 0: the whole file.
        text: what is wrong.
        others: path, line, column and text of each further fault, in this file and those that were read with it; 99 at
            most.
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
