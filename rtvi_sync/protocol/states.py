"""The states of a client, and the transitions between them.

Rule 1: `can_transition()` checks each change of a state. No other code knows the order.
Rule 2: any state of a session or of a call may be followed by DISCONNECTED or ERROR. These two may be followed only by
the first state of a session or of `start_bot()`; ERROR also by DISCONNECTED.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import attrs

from ..errors import DisconnectedError, RTVIError, fresh_copy
from .record import Record
from .text import one_line
from .validation import BOOL, COUNT_OR_ZERO, NAME, STRING, instance_of


class TransportState(str, Enum):
    """State of a client and its transport. The JavaScript client uses the same names."""

    DISCONNECTED = "disconnected"
    INITIALIZING = "initializing"
    INITIALIZED = "initialized"
    AUTHENTICATING = "authenticating"
    AUTHENTICATED = "authenticated"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    READY = "ready"
    DISCONNECTING = "disconnecting"
    ERROR = "error"

    def __str__(self) -> str:
        return self.value


_S = TransportState
_RESTING = (_S.DISCONNECTED, _S.ERROR)

FOLLOWING: dict[TransportState, frozenset[TransportState]] = {
    _S.DISCONNECTED: frozenset({_S.INITIALIZING, _S.AUTHENTICATING}),
    _S.INITIALIZING: frozenset({_S.INITIALIZED, _S.DISCONNECTING, *_RESTING}),
    _S.INITIALIZED: frozenset({_S.AUTHENTICATING, _S.CONNECTING, _S.DISCONNECTING, *_RESTING}),
    _S.AUTHENTICATING: frozenset({_S.AUTHENTICATED, _S.CONNECTING, _S.DISCONNECTING, *_RESTING}),
    _S.AUTHENTICATED: frozenset({_S.INITIALIZING, _S.AUTHENTICATING, _S.CONNECTING, _S.DISCONNECTING, *_RESTING}),
    _S.CONNECTING: frozenset({_S.CONNECTED, _S.DISCONNECTING, *_RESTING}),
    _S.CONNECTED: frozenset({_S.READY, _S.DISCONNECTING, *_RESTING}),
    _S.READY: frozenset({_S.DISCONNECTING, *_RESTING}),
    _S.DISCONNECTING: frozenset(_RESTING),
    _S.ERROR: frozenset({_S.INITIALIZING, _S.AUTHENTICATING, _S.DISCONNECTED}),
}

ACTIVE = frozenset({_S.CONNECTED, _S.READY})


def can_transition(current: TransportState, new: TransportState) -> bool:
    """Return whether a client in state `current` may enter `new`."""
    return new in FOLLOWING[current]


@attrs.frozen(kw_only=True, eq=False, repr=False)
class CloseInfo(Record):
    """The end of a session, and its reason: the payload of `disconnected`.

    Attributes:
        code: The transport's close code (WebSocket: RFC 6455). None if the connection broke without one. Pipecat's bots
            close with 1000 both after a normal end and after a protocol error.
        reason: The peer's text. "" without one.
        initiator: The side that ended the session: "client", "server" or "network".
        error: The failure. None after a normal end. If there is no other failure, the error names the sent messages
            that had not reached the server.
        reconnecting: True if the client is about to replace the session (`ReconnectPolicy`), unless the application
            starts or ends one first.
    """

    code: int | None = attrs.field(default=None, validator=COUNT_OR_ZERO.or_none)
    reason: str = attrs.field(default="", validator=STRING)
    initiator: str = attrs.field(default="client", validator=NAME)
    error: BaseException | None = attrs.field(
        default=None, validator=instance_of("an exception", BaseException).or_none
    )
    reconnecting: bool = attrs.field(default=False, validator=BOOL)

    def describe(self) -> str:
        """Return the end as a sentence without its full stop."""
        return self._describe("")

    def _describe(self, missed: str) -> str:
        what = {
            "client": "This client ended the session",
            "server": "The bot ended the session",
            "network": "The connection to the bot was lost",
        }.get(self.initiator, "The session has ended") + missed
        if self.error is not None:
            return f"{what}: {self.error}"
        if self.code is not None:
            return f"{what} (code {self.code}{': ' + one_line(self.reason).strip() if self.reason else ''})"
        return what

    @property
    def by_application(self) -> bool:
        """True if the application ended the session, and there was no error."""
        return self.initiator == "client" and self.error is None

    def failure(self) -> RTVIError:
        """Return a new error that says why there is no session."""
        return fresh_copy(self.error) if isinstance(self.error, RTVIError) else self.as_error()

    def as_error(self, before: str = "") -> DisconnectedError:
        """Return a new error for a call that needed the session.

        Args:
            before: The event that the call was waiting for. "" leaves it out.
        """
        STRING.check(before=before)
        missed = f" before {before}" if before else ""
        advice = "" if self.reconnecting else "; call connect() for a new one"
        error = DisconnectedError(
            f"{self._describe(missed)}{advice}",
            code=self.code,
            reason=self.reason,
            initiator=self.initiator,
        )
        error.__cause__ = self.error
        return error


#: The end of a session that the application ends. One object, because each new one is validated.
BY_CLIENT: Final = CloseInfo(initiator="client")


def is_loss(info: CloseInfo) -> bool:
    """Return whether a session was cut off. A normal end has the code 1000, or 1005, which means a close frame without
    a code (RFC 6455, section 7.4.1). WebRTC has no codes.
    """
    return info.initiator == "network" or info.error is not None or info.code not in (None, 1000, 1005)
