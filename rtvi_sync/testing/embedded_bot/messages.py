"""Messages of bots of each generation: versions, checks, reports of function calls, and the eval route."""

from __future__ import annotations

import base64
import binascii
import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias, TypeVar, overload

import attrs

from rtvi_sync.protocol.dialects import (
    FIELDS,
    INBOUND,
    OUTBOUND,
    VERSIONS,
    FieldSpec,
    MessageSpec,
    Version,
    parse_version,
)
from rtvi_sync.protocol.eval_messages import BOT_AUDIO, LEVELS, ReportLevel
from rtvi_sync.protocol.frames import AudioRawFrame, Frame, MessageFrame

# -- RTVI messages ----------------------------------------------------------------------------------------------------

Message: TypeAlias = dict[str, Any]


def message(type: str, data: Any = None, id: str | None = None) -> Message:
    """Build an RTVI message without the fields that are None."""
    fields = {"label": "rtvi-ai", "type": type, "id": id, "data": data}
    return {name: value for name, value in fields.items() if value is not None}


# -- knowledge of a bot of a protocol version, by the table of dialects -----------------------------------------------

_NEWEST: Final = max(VERSIONS)
NEWEST: Final = f"{_NEWEST[0]}.{_NEWEST[1]}.0"


@attrs.frozen
class BotVersion:
    """The protocol version of a bot.

    Attributes:
        text: Version in `bot-ready`. A string that is not a version is sent unchanged, and stands for the newest one.
        number: Major and minor number.
    """

    text: str
    number: Version = attrs.field(init=False)

    @number.default
    def _number_of_version(self) -> Version:
        return parse_version(self.text) or _NEWEST

    @property
    def generation(self) -> int:
        """The generation 0, 1 or 2: the major number, at most 2."""
        return min(2, self.number[0])

    def accepts(self, type: str) -> bool:
        """Return whether such a bot knows this type of client message."""
        spec = OUTBOUND.get(type)
        return spec is not None and self._knows(spec)

    def sends(self, type: str) -> bool:
        """Return whether such a bot sends messages of this type. Types that are not in the table are always sent."""
        spec = INBOUND.get(type)
        return spec is None or self._knows(spec)

    def accepts_field(self, field: str) -> bool:
        """Return whether such a bot knows this field ("type.field") of a client's message."""
        return self._knows(FIELDS[field])

    def _knows(self, spec: MessageSpec | FieldSpec) -> bool:
        return (spec.since or self.number) <= self.number and (spec.until is None or self.number < spec.until)


@attrs.frozen(kw_only=True)
class Negotiation:
    """A bot's answer to the version of a client.

    Attributes:
        version: Version in `bot-ready`.
        generation: Generation of the `bot-output` messages for this client.
        warning: Error text sent before `bot-ready` if the client's version is incompatible, otherwise "".
        includes_config: True if `bot-ready` contains the bot's config.
    """

    version: str
    generation: int
    warning: str = ""
    includes_config: bool = False


def negotiate(bot_version: BotVersion, client_version: Any, *, has_services: bool) -> Negotiation:
    """Negotiate a version like a Pipecat bot.

    Args:
        bot_version: Version of the bot.
        client_version: Version in `client-ready`, any JSON or None.
        has_services: True if the bot has a config or actions. Such bots of 1.x (Pipecat before 1.0) never warn, and
            treat a client without a valid version as a 0.3 client.
    """
    if bot_version.generation == 0:
        return Negotiation(version=bot_version.text, generation=0, includes_config=True)
    numbers = _numbers(client_version)
    if bot_version.generation == 1 and has_services:
        return Negotiation(version=bot_version.text, generation=1, includes_config=not numbers or numbers[0] == 0)
    negotiation = Negotiation(version=bot_version.text, generation=bot_version.generation)
    if not isinstance(client_version, str) or not client_version:
        return attrs.evolve(negotiation, warning="Client version unknown.")
    if len(numbers) != 3:
        return attrs.evolve(negotiation, warning=f"Invalid client version format ({client_version}).")
    if numbers[0] == bot_version.number[0]:
        return negotiation
    if numbers[0] == 1:
        return Negotiation(version=client_version, generation=1)
    reason = f"RTVI version {client_version} is not compatible with server protocol {bot_version.text}."
    return attrs.evolve(negotiation, warning=reason)


def _numbers(version: Any) -> list[int]:
    """Return the numbers of a version; an empty list if the value is not a version."""
    parts = version.split(".") if isinstance(version, str) else []
    return [int(part) for part in parts] if all(part.isdecimal() and len(part) < 6 for part in parts) else []


# -- checks of payloads -----------------------------------------------------------------------------------------------

_Kind = TypeVar("_Kind")
_NAMES: Final[Mapping[type, str]] = {str: "string", int: "integer", bool: "boolean", dict: "dictionary", list: "list"}


class InvalidMessageError(ValueError):
    """The payload of a client's message doesn't match its type."""


def invalid(name: str, reason: str) -> InvalidMessageError:
    """Return the error for one field, worded like a real bot's validation error."""
    return InvalidMessageError(f"1 validation error\n{name}\n  {reason}")


@overload
def field(data: Any, name: str, kind: type[_Kind]) -> _Kind: ...
@overload
def field(data: Any, name: str, kind: tuple[type, ...]) -> Any: ...
def field(data: Any, name: str, kind: Any) -> Any:
    """Return the value of a required field of one of these kinds.

    Raises:
        InvalidMessageError: The field is missing or has another kind.
    """
    value = required(data if isinstance(data, Mapping) else {}, name)
    # A bool is an int in Python, but not in the protocol.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        names = " or ".join(_NAMES[one] for one in (kind if isinstance(kind, tuple) else (kind,)))
        raise invalid(name, f"Input should be a valid {names}")
    return value


def optional(data: Mapping[str, Any], name: str, kind: type[_Kind]) -> _Kind | None:
    """Return the value of an optional field, checked like `field()`; None if it is missing or null."""
    return None if data.get(name) is None else field(data, name, kind)


def required(data: Mapping[str, Any], name: str) -> Any:
    """Return the value of a required field of any kind.

    Raises:
        InvalidMessageError: The field is missing.
    """
    if name not in data:
        raise invalid(name, "Field required")
    return data[name]


def entries(data: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the value of a required field that is a list of objects.

    Raises:
        InvalidMessageError: The field is missing, or is not a list of objects.
    """
    found = field(data, name, list)
    for number, entry in enumerate(found):
        if not isinstance(entry, dict):
            raise invalid(f"{name}.{number}", "Input should be an object")
    return found


def values_by_name(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the values by name of a required field, a list of ``{"name", "value"}``, in its order.

    Raises:
        InvalidMessageError: The field is missing, or is not such a list.
    """
    return {field(entry, "name", str): required(entry, "value") for entry in entries(data, name)}


# -- sending ----------------------------------------------------------------------------------------------------------

MessageHandler: TypeAlias = Callable[[Message], None]


class ReplyControl(Protocol):
    """Control of the bot's speech by config and actions."""

    def stop_speaking(self) -> None:
        """Stop the current reply without reporting an interruption."""

    def respond(self) -> None:
        """Run the language model on the context and play its reply."""

    def say(self, text: str) -> None:
        """Speak a text that the language model did not write."""


class Messenger:
    """A sender of messages to one client. It drops messages that bots of its version don't send. Thread-safe.

    Args:
        bot_version: Version that decides which messages are sent.
        send: Function that sends one message, and raises `DisconnectedError` after the connection has ended.

    Attributes:
        bot_version: As given.
        generation: Generation of the client's `bot-output` messages; the handshake may change it.
    """

    def __init__(self, bot_version: BotVersion, send: Callable[[Message], None]) -> None:
        self.bot_version: Final = bot_version
        self.generation: int = bot_version.generation
        self._send = send

    def send(self, sent: Message) -> None:
        """Send a message if bots of this version send its type."""
        if self.bot_version.sends(sent["type"]):
            self._send(sent)

    def emit(self, type: str, data: Any = None, id: str | None = None) -> None:
        """Build a message and send it if bots of this version send its type."""
        self.send(message(type, data, id))

    def send_error_response(self, received: Message, error: str) -> None:
        """Answer a message with an `error-response`."""
        self.emit("error-response", {"error": error}, received["id"])

    def send_error(self, text: str) -> None:
        """Send an `error`, which belongs to no request."""
        self.emit("error", {"error": text, "fatal": False})


# -- reports of function calls ----------------------------------------------------------------------------------------


class CallReports:
    """A bot's reports of one function call.

    Args:
        bot_version: Version of the bot. Before RTVI 1.2, a bot reports no calls.
        level: Level of detail.
        name: Name of the function.
        arguments: Arguments of the call.

    Attributes:
        call_id: Id of the call.
        told: True if the bot reports calls at all.
        asks: True if the bot asks the client for a call. From RTVI 1.2 on, the report alone is enough, so real bots
            need not ask. This bot asks only if its report is enough, so that no function runs by this message alone.
    """

    def __init__(self, bot_version: BotVersion, level: ReportLevel, name: str, arguments: Mapping[str, Any]) -> None:
        self.call_id: Final = f"call_{uuid.uuid4().hex}"
        self._known = LEVELS.index(level)
        reports = bot_version.sends("llm-function-call-in-progress")
        self.told: Final = reports and level != "disabled"
        self.asks: Final = not reports or self._tells("arguments")
        self._name = name
        self._arguments = dict(arguments)

    def started(self) -> list[Message]:
        """Build the report of a call that the model has started to write."""
        return self._report("started", self._named())

    def in_progress(self) -> list[Message]:
        """Build the report of a running function."""
        given = {"arguments": self._arguments} if self._tells("arguments") else {}
        return self._report("in-progress", {"tool_call_id": self.call_id, **self._named(), **given})

    def stopped(self, result: Any) -> list[Message]:
        """Build the report of a function that has returned. Real bots omit a falsy result."""
        shown = {"result": result} if self._tells("full") and result else {}
        return self._report("stopped", {"tool_call_id": self.call_id, "cancelled": False, **self._named(), **shown})

    def cancelled(self) -> list[Message]:
        """Build the report of a function that was cancelled."""
        return self._report("stopped", {"tool_call_id": self.call_id, "cancelled": True, **self._named()})

    def is_answer(self, received: Message) -> bool:
        """Return whether a client's message has the result."""
        data = received.get("data")
        return isinstance(data, dict) and data.get("tool_call_id") == self.call_id and "result" in data

    def request(self) -> Message:
        """Build the message that asks the client to run its function."""
        data = {"function_name": self._name, "tool_call_id": self.call_id, "args": self._arguments}
        return message("llm-function-call", data)

    def _named(self) -> dict[str, Any]:
        return {"function_name": self._name} if self._tells("name") else {}

    def _tells(self, level: ReportLevel) -> bool:
        return self._known >= LEVELS.index(level)

    def _report(self, phase: str, data: dict[str, Any]) -> list[Message]:
        return [message(f"llm-function-call-{phase}", data)] if self.told else []


# -- the eval route: JSON text in place of protobuf frames ------------------------------------------------------------

#: The fields of later `client-message` messages on this route.
CONTROLS: Final = ("eval-connect", "eval-configure", "eval-context", "eval-image", "eval-cancel")


class EvalRoute:
    """The encoding of one session on the eval route.

    Args:
        flags: The client's flags, from its first message.
    """

    def __init__(self, flags: Message) -> None:
        self.flags: Final = flags
        self._report_levels: Mapping[str, ReportLevel] | None = None

    def configure(self, data: Message) -> None:
        """Apply the levels in the client's `eval-configure`, if any."""
        levels = data.get("function_call_report_level")
        if isinstance(levels, dict):
            self._report_levels = {name: level for name, level in levels.items() if level in LEVELS}

    def report_level(self, function: str, bots_own: ReportLevel) -> ReportLevel:
        """Return the level of detail for reports of a function: the client's level, or the bot's own."""
        levels = self._report_levels
        return bots_own if levels is None else levels.get(function, levels.get("*", "none"))

    def encode(self, frame: Frame) -> str | None:
        """Return the text for a frame; None if the route doesn't send it."""
        if isinstance(frame, MessageFrame):
            return frame.data
        if isinstance(frame, AudioRawFrame) and self.flags.get("capture_bot_audio"):
            audio = base64.b64encode(frame.audio).decode("ascii")
            return json.dumps(message(BOT_AUDIO, {"audio": audio, "sampleRate": frame.sample_rate}))
        return None

    def decode(self, data: bytes | str) -> Frame:
        """Return the frame in a client's message: audio or a message."""
        text = data if isinstance(data, str) else data.decode(errors="replace")
        received = parse(text)
        if isinstance(received, dict) and received.get("type") == "raw-audio":
            try:
                audio = received["data"]
                pcm = base64.b64decode(audio["base64Audio"], validate=True)
                return AudioRawFrame(audio=pcm, sample_rate=audio["sampleRate"], num_channels=audio["numChannels"])
            except (KeyError, TypeError, binascii.Error):
                pass  # the message handler refuses it
        return MessageFrame(data=text)


def open_eval_route(data: bytes | str) -> EvalRoute | None:
    """Return the route if a client's first message is `eval-connect`; None if the client sends protobuf."""
    received: Any = parse(data) if isinstance(data, str) else None
    if control_of(received) != "eval-connect":
        return None
    flags = received["data"].get("d")
    return EvalRoute(flags if isinstance(flags, dict) else {})


def control_of(received: Any) -> str | None:
    """Return the control name of an eval message; None if the message is for the bot."""
    if not isinstance(received, dict) or received.get("type") != "client-message":
        return None
    data = received.get("data")
    kind = data.get("t") if isinstance(data, dict) else None
    return kind if kind in CONTROLS else None


def parse(text: str) -> Any:
    """Decode the JSON of a message; None if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
