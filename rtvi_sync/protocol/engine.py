"""The conversation as a pure machine: messages in, effects out.

The engine knows the handshake and which message answers which; it has no thread, no socket and no clock. A session
feeds it what the transport delivers and performs the effects in their order. One engine serves one session; one
thread at a time calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs

from ..errors import BotError, ProtocolError
from ..events import RTVIEvent
from ..messages import BotReadyData, RTVIMessage
from . import envelope
from .dialects import INBOUND, OUTBOUND, MessageSpec, decode_payload, require_feature
from .text import one_line

# What we announce. Pipecat 1.14.0 speaks 2.2.0; it answers an older or unknown version with a warning at most.
PROTOCOL_VERSION = "2.2.0"

# Types that answer a request, by its id. Anything else with an id is an event that happens to have one.
REPLY_TYPES = frozenset(spec.answer for spec in OUTBOUND.values() if spec.answer is not None) | {"error-response"}


@attrs.frozen
class Resolve:
    """The call that waits for `message.id`, if there is one, has its answer."""

    message: RTVIMessage


@attrs.frozen
class Reject:
    """The call that waits for `message.id`, if there is one, was refused with `text`."""

    message: RTVIMessage
    text: str


@attrs.frozen
class Deliver:
    """An event for the program. `decode()` makes its payload, when somebody listens."""

    event: RTVIEvent
    message: RTVIMessage
    spec: MessageSpec | None

    def decode(self) -> Any:
        """The typed payload.

        Raises:
            ProtocolError: the data does not have the shape that its type prescribes.
        """
        return decode_payload(self.spec, self.message.data) if self.spec is not None else self.message


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
    """The protocol state of one session.

    Args:
        about: what `client-ready` says about this client.
    """

    def __init__(self, about: Mapping[str, str]) -> None:
        self.client_ready = RTVIMessage("client-ready", {"version": PROTOCOL_VERSION, "about": dict(about)})
        self.bot_ready: BotReadyData | None = None

    def check_outbound(self, message: RTVIMessage) -> None:
        """Raise `UnsupportedFeatureError` if the connected bot's version does not know `message`."""
        require_feature(message.type, self.bot_ready.version if self.bot_ready is not None else None)

    def receive(self, message: RTVIMessage | Mapping[str, Any] | str | bytes) -> list[Effect]:
        """What follows from a message of the bot, in the order in which it is to be done. Never raises."""
        try:
            if isinstance(message, (str, bytes, bytearray)):
                message = envelope.decode(message)
            elif not isinstance(message, RTVIMessage):
                message = envelope.from_json(message)
            elif not isinstance(message.type, str):
                raise ProtocolError(f"A message has a type that is no string but {type(message.type).__name__}")
        except envelope.ForeignMessageError:
            return []
        except ProtocolError as error:
            return [Warn(f"The bot sent something that is no RTVI message; it is skipped. {error}")]
        return self._receive(message)

    def _receive(self, message: RTVIMessage) -> list[Effect]:
        type_ = message.type
        if type_ == "bot-ready" and self.bot_ready is None:
            return self._receive_ready(message)
        if type_ == "error-response":
            return self._receive_refusal(message)
        spec = INBOUND.get(type_)
        if spec is None or spec.event is None:
            return [Deliver(RTVIEvent.UNKNOWN_MESSAGE, message, None)]
        deliver = Deliver(spec.event, message, spec)
        if type_ in REPLY_TYPES and message.id is not None:
            return [Resolve(message), deliver]
        if type_ == "bot-interrupted":
            return [Interrupt(), deliver]
        if type_ == "error" and isinstance(message.data, Mapping) and message.data.get("fatal") is True:
            return [deliver, Close(BotError(f"The bot reported a fatal error: {error_text(message)}", fatal=True))]
        return [deliver]

    def _receive_ready(self, message: RTVIMessage) -> list[Effect]:
        spec = INBOUND["bot-ready"]
        try:
            data = decode_payload(spec, message.data if message.data is not None else {})
        except ProtocolError as error:
            return [Close(ProtocolError(f"The bot's bot-ready cannot be understood: {error}"))]
        self.bot_ready = data
        return [Ready(data, message)]

    def _receive_refusal(self, message: RTVIMessage) -> list[Effect]:
        text = error_text(message)
        if message.id is not None and message.id == self.client_ready.id:
            # Pipecat warns so about a version it does not know, and sends bot-ready right after: no refusal at all.
            return [Warn(f"The bot has a remark on this client's version: {text}")]
        spec = INBOUND["error-response"]
        return [Reject(message, text), Deliver(spec.event or RTVIEvent.MESSAGE_ERROR, message, spec)]


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
