"""The protocol as a pure state machine: messages in, effects out.

The engine knows the handshake and the answers to each message. It has no thread, no socket and no clock. A session
passes it the messages of the transport, and performs the effects in their order. One engine serves one session. One
thread at a time calls it, except for the methods that any thread may call.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import attrs

from .._version import __version__
from ..errors import (
    BotError,
    ConfigUpdateError,
    ProtocolError,
    RequestRejectedError,
    RTVIError,
    UnsupportedFeatureError,
)
from ..events import RTVIEvent
from . import config as configs
from . import envelope
from .dialects import INBOUND, OUTBOUND, MessageSpec, decode_payload, parse_version, require_feature
from .message import RTVIMessage
from .pending_requests import PendingRequests, Waiter
from .record import MutableRecord
from .session_payloads import BotReadyData, RTVIClientConfigOption
from .text import one_line

# The version that this client announces. Pipecat 1.14.0 has 2.2.0. To an older or unknown version it sends at most a
# warning.
PROTOCOL_VERSION = "2.2.0"
# The remark of a bot about a client of another major version. It contains the bot's own.
_INCOMPATIBLE = r"RTVI version \S+ is not compatible with server protocol ([0-9]{1,5})\."

# The types that answer a request, by its id. Any other message with an id is only an event.
REPLY_TYPES = frozenset(spec.answer for spec in OUTBOUND.values() if spec.answer is not None) | {"error-response"}
_UNKNOWN = (RTVIEvent.UNKNOWN_MESSAGE, None)
_EVENTS = {type_: (spec.event, spec) for type_, spec in INBOUND.items() if spec.event is not None}
# The types that have effects other than `Deliver`.
_WITH_EFFECTS = REPLY_TYPES | {"bot-ready", "bot-interrupted", "error", "user-mute-started", "user-mute-stopped"}


_UNDECODED: Final = object()


class Resolve(NamedTuple):
    """A request has its answer.

    Attributes:
        message: The answer.
        waiter: The call that waits for it, or None.
    """

    message: RTVIMessage
    waiter: Waiter | None = None


class Reject(NamedTuple):
    """A request has failed.

    Attributes:
        id: The id of the request.
        error: The failure.
        waiter: The call that waits for the answer, or None.
    """

    id: str
    error: RTVIError
    waiter: Waiter | None = None


@attrs.define(eq=False, repr=False)
class Deliver(MutableRecord):
    """An event for the application. Each message has one, so its message and payload are only made on request.

    Attributes:
        event: The event's type.
        spec: The message's row in the table. None if the type is unknown.
        type: The message's type.
        data: The message's data.
        id: The message's id.
    """

    event: RTVIEvent
    spec: MessageSpec | None
    type: str
    data: Any
    id: str | None
    # Made once: handlers, turns and functions get the same object.
    _payload: Any = attrs.field(default=_UNDECODED, init=False, eq=False, repr=False)

    @property
    def message(self) -> RTVIMessage:
        """The message, a new object each time."""
        return RTVIMessage(self.type, self.data, self.id)

    def decode(self) -> Any:
        """Return the typed payload.

        Raises:
            ProtocolError: The data does not have the shape of its type.
        """
        if self._payload is _UNDECODED:
            self._payload = decode_payload(self.spec, self.data) if self.spec is not None else self.message
        return self._payload


class Ready(NamedTuple):
    """The handshake is complete."""

    data: BotReadyData
    message: RTVIMessage


class Interrupt(NamedTuple):
    """The bot was interrupted. The session must drop its unplayed audio."""


class Warn(NamedTuple):
    """A warning to log."""

    text: str


class Close(NamedTuple):
    """The session cannot continue."""

    error: ProtocolError | BotError


Effect: TypeAlias = Resolve | Reject | Deliver | Ready | Interrupt | Warn | Close


def about_this_client() -> dict[str, str]:
    """Return the client's `about`, for `client-ready`: the library, the platform, and their versions."""
    return {
        "library": "rtvi_sync",
        "library_version": __version__,
        "platform": platform.system().lower() or "unknown",
        "platform_version": platform.release(),
    }


class Engine:
    """The protocol state of one session, or of one conversation over HTTP.

    Args:
        about: The description of this client in `client-ready`.
        awaits_ready: True if the bot must report that it is ready. False in a conversation over HTTP.
    """

    def __init__(self, about: Mapping[str, str], *, awaits_ready: bool = True) -> None:
        self._awaits_ready = awaits_ready
        self.client_ready: RTVIMessage = RTVIMessage(
            "client-ready", {"version": PROTOCOL_VERSION, "about": dict(about)}
        )
        self.bot_ready: BotReadyData | None = None
        #: The bot's last config. A copy, because the application gets the message's config. None: none was sent.
        self.config: tuple[RTVIClientConfigOption, ...] | None = None
        #: The client's own request for a config that `bot-ready` did not contain. Its refusal is not an event.
        self.config_request: RTVIMessage = RTVIMessage("get-config", {})
        #: The bot has reported that it does not hear the user now. Read by any thread.
        self.user_is_muted: bool = False
        #: The requests that the bot has not answered yet.
        self.pending: PendingRequests = PendingRequests()
        # The features that the bot has refused as unknown, though its version has them.
        # The features that the bot has refused as unknown, although its version has them.
        self._missing: set[str] = set()
        self._known: set[str] = set()

    @property
    def version(self) -> str | None:
        """The protocol version of the bot. None before `bot-ready`."""
        return self.bot_ready.version if self.bot_ready is not None else None

    @property
    def wants_config(self) -> bool:
        """True if bots of this version have a config, and this bot has not sent it.

        Pipecat 0.0.76 to 0.0.108 sends it to clients of RTVI 0.3 only.
        """
        version = parse_version(self.version or "")
        return version is not None and version < (2, 0) and self.config is None

    def outbound(self, message: RTVIMessage, waiter: Waiter | None = None) -> None:
        """Check a message that is about to be sent, and add it to `pending` if the bot answers its type. Any thread.

        Args:
            message: The message.
            waiter: The call that waits for its answer. Call `pending.abandon()` when the wait ends.

        Raises:
            UnsupportedFeatureError: The bot does not know its type.
            ValueError: There is a waiter, but no answer can be matched, or another call waits for an answer to this id.
            BaseException: There is a waiter, and `pending.fail_all()` was called.
        """
        spec = OUTBOUND.get(message.type)
        if spec is not None:
            if spec.feature in self._missing:
                raise self._unsupported(message.type, "it refused the type before")
            if message.type not in self._known:
                require_feature(message.type, self.version)
                if self.bot_ready is not None:
                    self._known.add(message.type)
            if spec.answer is not None and message.id is not None:
                self.pending.add(message.id, message.type, waiter)
                return
        if waiter is not None:
            raise ValueError(
                f"No answer can be matched to a {message.type!r} message with the id {message.id!r}. Send a request "
                "with an id, of a type that the bot answers"
            )

    def refused_as_unknown(self, type_: str, reason: str) -> UnsupportedFeatureError:
        """Note that the bot does not know a type that it never answers, so that no more messages of it are sent. Return
        the error to raise for them.
        """
        self._missing.add(OUTBOUND[type_].feature)
        return self._unsupported(type_, reason)

    def receive(self, message: RTVIMessage | Mapping[str, Any] | str | bytes) -> list[Effect]:
        """Return the effects of a message of the bot, in order. Never raises."""
        try:
            if type(message) is str or isinstance(message, (str, bytes, bytearray)):
                type_, data, id_ = envelope.parse_text(message)
            elif not isinstance(message, RTVIMessage):
                type_, data, id_ = envelope.open_document(message)
            else:
                type_, data, id_ = _checked(message)
        except envelope.ForeignMessageError:
            return []
        except envelope.LimitError as error:
            return self._skip(error)
        except ProtocolError as error:
            return [Warn(f"The bot sent data that is no RTVI message; it is skipped. {error}")]
        event, spec = _EVENTS.get(type_, _UNKNOWN)
        deliver = Deliver(event, spec, type_, data, id_)
        return self._receive(deliver) if type_ in _WITH_EFFECTS else [deliver]

    def _skip(self, error: envelope.LimitError) -> list[Effect]:
        """Skip a message over a limit, and fail the requests that it may answer, because nothing else ends their wait.

        If its type or id cannot be read, it may answer any request.
        """
        if self._awaits_ready and self.bot_ready is None and error.type in ("bot-ready", None):
            return [Close(ProtocolError(f"The bot's bot-ready is over a limit of this client: {error}"))]
        effects: list[Effect] = [Warn(f"The bot sent a message over a limit of this client; it is skipped. {error}")]
        if error.type is None or error.type in REPLY_TYPES:
            for id_ in self.pending.ids() if error.id is None else [error.id]:
                asked = self.pending.take(id_)
                if asked is not None:
                    which = "A message that may be" if error.id is None else "The message that is"
                    text = f"{which} the answer to the {asked.type!r} request is over a limit of this client: {error}"
                    failure = ProtocolError(f"{text}. Have the bot send less at once")
                    effects.append(Reject(id_, failure, asked.waiter))
        return effects

    def _receive(self, deliver: Deliver) -> list[Effect]:
        type_, message = deliver.type, deliver.message
        if type_ == "bot-ready" and self.bot_ready is None:
            return self._receive_ready(message)
        if type_ == "error-response":
            return self._receive_refusal(message, deliver)
        if type_ in REPLY_TYPES:
            return self._receive_answer(message, deliver)
        if type_ == "bot-interrupted":
            # Pipecat reports an interruption for each typed text. A bot that does not hear the user continues to speak.
            return [deliver] if self.user_is_muted else [Interrupt(), deliver]
        if type_ in ("user-mute-started", "user-mute-stopped"):
            self.user_is_muted = type_ == "user-mute-started"
        if type_ == "error" and isinstance(message.data, Mapping) and message.data.get("fatal") is True:
            error = BotError(f"The bot reported a fatal error: {error_text(message)}. See the bot's log", fatal=True)
            return [deliver, Close(error)]
        return [deliver]

    def _receive_ready(self, message: RTVIMessage) -> list[Effect]:
        spec = INBOUND["bot-ready"]
        try:
            data = decode_payload(spec, message.data if message.data is not None else {})
        except ProtocolError as error:
            return [
                Close(
                    ProtocolError(f"Cannot decode the bot's bot-ready: {error}. Check that the server is an RTVI bot")
                )
            ]
        self.bot_ready = data
        if data.config is not None:
            self.config = tuple(configs.config_of(data.config))
        return [Ready(data, message)]

    def _receive_answer(self, message: RTVIMessage, deliver: Deliver) -> list[Effect]:
        asked = self.pending.type_of(message.id) if message.id is not None else None
        effects: list[Effect] = [deliver]
        if message.id is not None and asked is not None and OUTBOUND[asked].answer == message.type:
            request = self.pending.take(message.id)
            effects.insert(0, Resolve(message, request.waiter if request is not None else None))
        if message.type == "config":
            try:
                self.config = tuple(configs.config_of(deliver.decode().config))
            except ProtocolError:
                pass  # the waiting call or the handler gets the error
            else:
                if asked == "update-config":
                    effects.append(attrs.evolve(deliver, event=RTVIEvent.CONFIG_UPDATED))
        return effects

    def _receive_refusal(self, message: RTVIMessage, deliver: Deliver) -> list[Effect]:
        text = error_text(message)
        if message.id is not None and message.id == self.client_ready.id:
            # Not a refusal: Pipecat warns in this way about another major version, and sends bot-ready right after.
            # Older bots send it to a client of their own version, too.
            if (theirs := re.match(_INCOMPATIBLE, text)) and int(theirs[1]) < int(PROTOCOL_VERSION[0]):
                return []
            return [Warn(f"The bot warns about this client's protocol version: {text}")]
        asked = self.pending.take(message.id) if message.id is not None else None
        if message.id is None or asked is None:
            return [deliver]
        reject = Reject(message.id, self._refused(asked.type, text, message), asked.waiter)
        return [reject] if message.id == self.config_request.id else [reject, deliver]

    def _refused(self, asked: str, text: str, message: RTVIMessage) -> RTVIError:
        if text == f"Unsupported type {asked}":  # the text of every version of Pipecat
            self._missing.add(OUTBOUND[asked].feature)
            return self._unsupported(asked, text)
        if asked == "update-config":
            return ConfigUpdateError(
                f"The bot refused the new config: {text}. Options before the refused one may be in force. "
                "Call get_bot_config() to get the current config, and describe_config() to list the options.",
                response=message,
            )
        return RequestRejectedError(
            f"The bot refused the {asked!r} request: {text}. See the bot's log", response=message
        )

    def _unsupported(self, type_: str, reason: str) -> UnsupportedFeatureError:
        version = one_line(self.version or "of an unknown version")
        return UnsupportedFeatureError(
            f"The bot, which speaks RTVI {version}, does not know {type_!r}: {reason}. "
            "Add the feature to the bot, or do not use it.",
            feature=OUTBOUND[type_].feature,
            bot_version=self.version,
        )


def _checked(message: RTVIMessage) -> envelope.Content:
    """Return the content of a message from a transport, which may be custom and deliver any data."""
    if envelope.is_too_deep(message.data):
        raise envelope.too_deep(message.type, message.id)
    return message.type, message.data, message.id


def error_text(message: RTVIMessage) -> str:
    """Return the text of an `error` or `error-response`. Most servers send it as `error`, some as `message`.

    The text is for exceptions and logs: unprintable characters become spaces, and a long text is cut.
    """
    data = message.data
    text: Any = None
    if isinstance(data, Mapping):
        text = next((data[key] for key in ("error", "message") if isinstance(data.get(key), str)), None)
    elif isinstance(data, str):
        text = data
    if not text:
        return "no reason given"
    return one_line(text)
