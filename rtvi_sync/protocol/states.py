"""The states of a client, and which may follow which.

Rule 1: whatever changes a state goes through `can_transition()`; there is no second place that knows the order.
Rule 2: any state of a session or of a call may be left for DISCONNECTED or ERROR. The states at rest, DISCONNECTED and
ERROR, may be left only for the first state of a session or of `start_bot()`; ERROR for DISCONNECTED too.
"""

from __future__ import annotations

from enum import Enum

import attrs

from ..errors import DisconnectedError, RTVIError, fresh_copy
from .text import one_line
from .validation import BOOL, COUNT_OR_ZERO, NAME, STRING, instance_of


class TransportState(str, Enum):
    """State of a client and its transport; the names are those of the JavaScript client."""

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
    """True if a client in state `current` may enter `new`."""
    return new in FOLLOWING[current]


@attrs.frozen(kw_only=True)
class CloseInfo:
    """How a session ended: the payload of `disconnected`.

    Attributes:
        code: close code of the transport (WebSocket: RFC 6455), or None when the line broke without one. Pipecat's bots
            close with 1000 after a normal end and after a protocol error alike.
        reason: the peer's text; "" without one.
        initiator: "client", "server" or "network".
        error: what went wrong, or None after a normal end. If the application ended the session: the messages that it
            had sent and that had not reached the server.
        reconnecting: the client is about to replace the session by itself (`ReconnectPolicy`), unless the program does
            something else first.
    """

    code: int | None = attrs.field(default=None, validator=COUNT_OR_ZERO.or_none)
    reason: str = attrs.field(default="", validator=STRING)
    initiator: str = attrs.field(default="client", validator=NAME)
    error: BaseException | None = attrs.field(
        default=None, validator=instance_of("an exception", BaseException).or_none
    )
    reconnecting: bool = attrs.field(default=False, validator=BOOL)

    def describe(self) -> str:
        """In a sentence without its full stop."""
        who = {
            "client": "This client ended the session",
            "server": "The bot ended the session",
            "network": "The connection to the bot was lost",
        }.get(self.initiator, "The session has ended")
        if self.error is not None:
            return f"{who}: {self.error}"
        if self.code is not None:
            return f"{who} (code {self.code}{': ' + one_line(self.reason) if self.reason else ''})"
        return who

    @property
    def by_program(self) -> bool:
        """True if the program itself wanted the end, and nothing went wrong."""
        return self.initiator == "client" and self.error is None

    def failure(self) -> RTVIError:
        """The error for whoever asks why there is no session."""
        return fresh_copy(self.error) if isinstance(self.error, RTVIError) else self.as_error()

    def as_error(self, before: str = "") -> DisconnectedError:
        """A new error for a call that needed the session.

        Args:
            before: what the call was waiting for, if that helps.
        """
        STRING.check(before=before)
        missed = f" before {before}" if before else ""
        error = DisconnectedError(
            f"{self.describe()}{missed}; call connect() for a new one",
            code=self.code,
            reason=self.reason,
            initiator=self.initiator,
        )
        error.__cause__ = self.error
        return error
