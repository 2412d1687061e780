"""The conversation as a pure machine: messages in, effects out.

The engine knows the handshake and which message answers which; it has no thread, no socket and no clock. A session
feeds it what the transport delivers and performs the effects in their order. One engine serves one session; one
thread at a time calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs

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
from .session_payloads import BotReadyData, RTVIClientConfigOption
from .text import one_line

# What we announce. Pipecat 1.14.0 speaks 2.2.0; it answers an older or unknown version with a warning at most.
PROTOCOL_VERSION = "2.2.0"

# Types that answer a request, by its id. Anything else with an id is an event that happens to have one.
REPLY_TYPES = frozenset(spec.answer for spec in OUTBOUND.values() if spec.answer is not None) | {"error-response"}
_UNKNOWN = (RTVIEvent.UNKNOWN_MESSAGE, None)
_EVENTS = {type_: (spec.event, spec) for type_, spec in INBOUND.items() if spec.event is not None}
# Types that are more than an event.
_MEANT_FOR_US = REPLY_TYPES | {"bot-ready", "bot-interrupted", "error"}


@attrs.frozen
class Resolve:
    """A request has its answer.

    Attributes:
        message: the answer.
        waiter: the call that waits for it; None if no call does.
    """

    message: RTVIMessage
    waiter: Waiter | None = None


@attrs.frozen
class Reject:
    """A request has failed.

    Attributes:
        id: of the request.
        error: why it failed.
        waiter: the call that waits for the answer; None if no call does.
    """

    id: str
    error: RTVIError
    waiter: Waiter | None = None


@attrs.define
class Deliver:
    """An event for the program. One is made of every message, so its payload and its message are not, until somebody
    asks for them.

    Attributes:
        event: its type.
        spec: of the message; None if that is of no known type.
        type, data, id: of the message.
    """

    event: RTVIEvent
    spec: MessageSpec | None
    type: str
    data: Any
    id: str | None

    @property
    def message(self) -> RTVIMessage:
        """The message."""
        return RTVIMessage(self.type, self.data, self.id)

    def decode(self) -> Any:
        """The typed payload.

        Raises:
            ProtocolError: the data does not have the shape that its type prescribes.
        """
        return decode_payload(self.spec, self.data) if self.spec is not None else self.message


@attrs.frozen
class Ready:
    """The handshake is complete."""

    data: BotReadyData
    message: RTVIMessage


@attrs.frozen
class Interrupt:
    """The bot was interrupted: what it said and was not played yet is void."""


@attrs.frozen
class Warn:
    """Something to log."""

    text: str


@attrs.frozen
class Close:
    """The session cannot go on."""

    error: ProtocolError | BotError


Effect: TypeAlias = Resolve | Reject | Deliver | Ready | Interrupt | Warn | Close


class Engine:
    """The protocol state of one session, or of one conversation over HTTP.

    Args:
        about: what `client-ready` says about this client.
    """

    def __init__(self, about: Mapping[str, str]) -> None:
        self.client_ready: RTVIMessage = RTVIMessage(
            "client-ready", {"version": PROTOCOL_VERSION, "about": dict(about)}
        )
        self.bot_ready: BotReadyData | None = None
        #: The bot's config as last heard, a copy of the message's: that is the program's. None if it has told none.
        self.config: tuple[RTVIClientConfigOption, ...] | None = None
        #: The request for a config that `bot-ready` did not bring. It is ours: the program hears of no refusal.
        self.config_request: RTVIMessage = RTVIMessage("get-config", {})
        #: The requests that the bot has not answered yet.
        self.pending: PendingRequests = PendingRequests()
        # What it has said that it does not know, though its version should.
        self._missing: set[str] = set()
        # Outbound types that the bot knows by its version.
        self._known: set[str] = set()

    @property
    def version(self) -> str | None:
        """The protocol version that the bot speaks; None before `bot-ready`."""
        return self.bot_ready.version if self.bot_ready is not None else None

    @property
    def wants_config(self) -> bool:
        """True if the bot has a config by its version, and has not told it. (Pipecat 0.0.76 to 0.0.108 tells it to
        clients of RTVI 0.3 only.)
        """
        version = parse_version(self.version or "")
        return version is not None and version < (2, 0) and self.config is None

    def outbound(self, message: RTVIMessage, waiter: Waiter | None = None) -> None:
        """Check a message that is about to be sent, and add it to `pending` if the bot answers its type. Any thread.

        Args:
            message: the message.
            waiter: the call that waits for its answer. Call `pending.abandon()` when the wait is over.

        Raises:
            UnsupportedFeatureError: the bot does not know its type.
            ValueError: there is a waiter, and no answer can be matched; or another call waits for an answer to this id.
            BaseException: there is a waiter, and `pending.fail_all()` was called.
        """
        spec = OUTBOUND.get(message.type)
        if spec is not None:
            if spec.feature in self._missing:
                raise self._unsupported(message.type, "it said so before")
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

    def receive(self, message: RTVIMessage | Mapping[str, Any] | str | bytes) -> list[Effect]:
        """What follows from a message of the bot, in the order in which it is to be done. Never raises."""
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
            return [Warn(f"The bot sent something that is no RTVI message; it is skipped. {error}")]
        event, spec = _EVENTS.get(type_, _UNKNOWN)
        deliver = Deliver(event, spec, type_, data, id_)
        return self._receive(deliver) if type_ in _MEANT_FOR_US else [deliver]

    def _skip(self, error: envelope.LimitError) -> list[Effect]:
        """Skip a message over a limit, and fail what may wait for it, since nothing else ends the wait.

        If its type or its id cannot be read, it may be what any call waits for.
        """
        if self.bot_ready is None and error.type in ("bot-ready", None):
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
            return [Interrupt(), deliver]
        if type_ == "error" and isinstance(message.data, Mapping) and message.data.get("fatal") is True:
            error = BotError(f"The bot reported a fatal error: {error_text(message)}. See the bot's log", fatal=True)
            return [deliver, Close(error)]
        return [deliver]

    def _receive_ready(self, message: RTVIMessage) -> list[Effect]:
        spec = INBOUND["bot-ready"]
        try:
            data = decode_payload(spec, message.data if message.data is not None else {})
        except ProtocolError as error:
            return [Close(ProtocolError(f"The bot's bot-ready cannot be understood: {error}. Is it an RTVI bot?"))]
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
                pass  # whoever waits for it, or listens, is told
            else:
                if asked == "update-config":
                    effects.append(attrs.evolve(deliver, event=RTVIEvent.CONFIG_UPDATED))
        return effects

    def _receive_refusal(self, message: RTVIMessage, deliver: Deliver) -> list[Effect]:
        text = error_text(message)
        if message.id is not None and message.id == self.client_ready.id:
            # Pipecat warns so about a version it does not know, and sends bot-ready right after: no refusal at all.
            return [Warn(f"The bot has a remark on this client's version: {text}")]
        asked = self.pending.take(message.id) if message.id is not None else None
        if message.id is None or asked is None:
            return [deliver]
        reject = Reject(message.id, self._refused(asked.type, text, message), asked.waiter)
        return [reject] if message.id == self.config_request.id else [reject, deliver]

    def _refused(self, asked: str, text: str, message: RTVIMessage) -> RTVIError:
        if text == f"Unsupported type {asked}":  # the words of every Pipecat
            self._missing.add(OUTBOUND[asked].feature)
            return self._unsupported(asked, text)
        if asked == "update-config":
            return ConfigUpdateError(
                f"The bot refused the new config: {text}. Options before the refused one may be in force: "
                "get_bot_config() tells, describe_config() lists what there is.",
                response=message,
            )
        return RequestRejectedError(
            f"The bot refused the {asked!r} request: {text}. See the bot's log", response=message
        )

    def _unsupported(self, type_: str, reason: str) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(
            f"The bot, which speaks RTVI {self.version or 'of an unknown version'}, does not know {type_!r}: {reason}. "
            "Add it to the bot, or do without.",
            feature=OUTBOUND[type_].feature,
            bot_version=self.version,
        )


def _checked(message: RTVIMessage) -> envelope.Content:
    """What a message says that was made by a transport, which may be anybody's and hand over what it likes."""
    if not isinstance(message.type, str):
        raise ProtocolError(f"A message has a type that is no string but {type(message.type).__name__}")
    if envelope.is_too_deep(message.data):
        raise envelope.too_deep(message.type, message.id)
    return message.type, message.data, message.id


def error_text(message: RTVIMessage) -> str:
    """The text of an `error` or `error-response`: servers put it in `error`, some in `message`.

    It goes into exceptions and logs: what is not printable is left out, and a long text is cut.
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
