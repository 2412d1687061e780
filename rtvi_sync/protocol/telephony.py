"""The messages of telephone providers' media streams, in both directions.

A provider opens a WebSocket to the bot, one for each call. Both sides send JSON text. The provider's messages are
numbered; audio is base64, at 8 kHz. Twilio, Telnyx, Plivo and Exotel differ only in names and codecs.

Sources: the providers' pages on media streams, and the serializers and the runner of Pipecat 0.0.108 to 1.14.0.

All received data is untrusted. Everything here is pure, except `CallWriter`, which has a state.
"""

from __future__ import annotations

import base64
import datetime
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

import attrs

from ..errors import ProtocolError
from .envelope import parse_json, to_json
from .record import Record
from .text import encodable

if TYPE_CHECKING:
    from typing import TypeGuard

ProviderName: TypeAlias = Literal["twilio", "telnyx", "plivo", "exotel"]
Codec: TypeAlias = Literal["PCMU", "PCMA", "L16"]
"""G.711 µ-law, G.711 A-law, or 16-bit little endian."""

#: Samples per second of every call that Pipecat's bots take.
RATE_HZ: Final = 8000
#: The keys of a telephone. Pipecat's bots don't take the other keys of DTMF, A to D.
KEYS: Final = frozenset("0123456789*#")
#: The largest audio in one message, in bytes: a minute of 16-bit samples.
MAX_PAYLOAD: Final = 1_000_000
#: The longest name of a mark, in characters. Providers keep the name, and send it back.
MAX_MARK: Final = 1000

_TWILIO_ACCOUNT = "AC00000000000000000000000000000000"
_PLIVO_MAX_BYTES = 512
_EXOTEL_MAX_COUNT, _EXOTEL_MAX_CHARACTERS = 3, 256


@attrs.frozen(kw_only=True, eq=False, repr=False)
class PhoneCall(Record):
    """One call, as a provider describes it to a bot.

    Attributes:
        provider: Name of the provider.
        call_id: The provider's id of the call.
        stream_id: The provider's id of the call's audio stream.
        from_number: The caller's number. None: unknown.
        to_number: The number of the called bot. None: unknown.
        parameters: The application's parameters, by name.
        codec: The codec of the caller's audio.
    """

    provider: ProviderName
    call_id: str
    stream_id: str
    from_number: str | None = attrs.field(default=None, repr=False)
    to_number: str | None = attrs.field(default=None, repr=False)
    parameters: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    codec: Codec = "PCMU"


class CallAudio(NamedTuple):
    """Audio of the caller or of the bot, in the codec of the call."""

    payload: bytes


class ClearAudio(NamedTuple):
    """The bot tells the provider to drop its unplayed audio."""


class PlaybackMark(NamedTuple):
    """The bot asks for a report when this place of its audio is played, or the provider reports it."""

    name: str


class KeyPress(NamedTuple):
    """The caller has pressed a key."""

    key: str


class CallEnd(NamedTuple):
    """The caller has hung up."""


FromBot: TypeAlias = CallAudio | ClearAudio | PlaybackMark
FromCaller: TypeAlias = CallAudio | PlaybackMark | KeyPress | CallEnd


class Provider(ABC):
    """The messages of one provider.

    Attributes:
        name: The provider's name.
        codecs: The possible codecs of the caller's audio. The first one is usual.
        bot_codec: The codec of the bot's audio, whatever the caller's is.
        frame_seconds: The length of the caller's audio in a message, in seconds.
        stream_key: The key of the stream's id in messages.
        number_key: The key of the message's number.
        number_type: The type of message numbers.
        call_key: The key of the call's id in `start`.
        constant: The constant members of every message of the provider.
    """

    name: ClassVar[ProviderName]
    codecs: ClassVar[tuple[Codec, ...]] = ("PCMU",)
    bot_codec: ClassVar[Codec] = "PCMU"
    frame_seconds: ClassVar[float] = 0.02
    stream_key: ClassVar[str]
    number_key: ClassVar[str] = "sequenceNumber"
    number_type: ClassVar[type[str] | type[int]] = str
    call_key: ClassVar[str]
    constant: ClassVar[Mapping[str, str]] = {}
    _audio_event: ClassVar[str] = "media"
    _clear_event: ClassVar[str] = "clear"
    _mark_event: ClassVar[str] = "mark"

    # -- the provider's side ------------------------------------------------------------------------------------------

    def check(self, call: PhoneCall) -> None:  # noqa: B027 - not every provider has limits
        """Raise `ValueError` if the provider would not pass on the call's numbers and parameters."""

    def query(self, call: PhoneCall) -> Mapping[str, str]:  # noqa: ARG002 - not every provider sends one
        """Return the parameters that the provider adds to the query of the WebSocket's URL."""
        return {}

    def connected(self) -> dict[str, Any] | None:
        """Return the message before `start`, or None."""
        return {"event": "connected"}

    @abstractmethod
    def start(self, call: PhoneCall) -> dict[str, Any]:
        """Return the message that describes the call, without its number."""

    @abstractmethod
    def media(self, payload: str, chunk: int, at_ms: int, wall: float) -> dict[str, Any]:
        """Return the content of a message with audio.

        Args:
            payload: The audio in base64.
            chunk: The message's number among the messages with audio, from 1.
            at_ms: Milliseconds since the start of the call.
            wall: Unix time.
        """

    @abstractmethod
    def key(self, key: str, wall: float) -> dict[str, Any]:
        """Return the message for a pressed key, without its number."""

    def played(self, name: str) -> dict[str, Any]:
        """Return the message that a mark was reached, without its number."""
        return {"event": "mark", "mark": {"name": name}}

    def cleared(self) -> dict[str, Any] | None:
        """Return the answer to `clear`, without its number. None: there is none."""
        return None

    def stop(self, call: PhoneCall) -> dict[str, Any] | None:
        """Return the message that the caller has hung up, without its number. None: there is none."""
        return {"event": "stop", "stop": {self.call_key: call.call_id}}

    def read_bot(self, text: str | bytes) -> FromBot | None:
        """Decode a message of the bot. None: providers don't know its event.

        Raises:
            ProtocolError: The message is not JSON or not an object, or lacks a member that its event requires.
        """
        document = _object_of(text)
        event = document.get("event")
        if event == self._audio_event:
            return CallAudio(_payload_of(document))
        if event == self._clear_event:
            return ClearAudio()
        if event == self._mark_event:
            return _mark_of(self._name_in(document))
        return None

    def _name_in(self, document: Mapping[str, Any]) -> Any:
        return _members(document, "mark").get("name")

    # -- the bot's side -----------------------------------------------------------------------------------------------

    def call_of(self, document: Mapping[str, Any]) -> PhoneCall | None:
        """Return the call in a `start` message. None: the message is another one, or another provider's."""
        start = _members(document, "start")
        stream_id, call_id = self._stream_in(document, start), start.get(self.call_key)
        if not (_is_id(stream_id) and _is_id(call_id) and self._is_start(document, start)):
            return None
        given = self._parameters_in(document, start)
        parameters = {name: value for name, value in given.items() if isinstance(value, str)}
        numbers = (start.get("from"), start.get("to"), parameters.get("from_number"), parameters.get("to_number"))
        caller, called, caller_in, called_in = (number if isinstance(number, str) else None for number in numbers)
        return PhoneCall(
            provider=self.name,
            call_id=call_id,
            stream_id=stream_id,
            from_number=caller or caller_in,
            to_number=called or called_in,
            parameters=parameters,
            codec=self._codec_in(start),
        )

    def _stream_in(self, document: Mapping[str, Any], start: Mapping[str, Any]) -> Any:  # noqa: ARG002
        return start.get(self.stream_key)

    def _is_start(self, document: Mapping[str, Any], start: Mapping[str, Any]) -> bool:  # noqa: ARG002
        return document.get("event") == "start"

    def _parameters_in(self, document: Mapping[str, Any], start: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002
        return _members(start, "custom_parameters")

    def _codec_in(self, start: Mapping[str, Any]) -> Codec:  # noqa: ARG002
        return self.codecs[0]

    def read_caller(self, text: str | bytes) -> FromCaller | None:
        """Decode a message of the provider. None: the bot doesn't need it. Raises as `read_bot()`."""
        document = _object_of(text)
        event = document.get("event")
        if event == "media":
            return CallAudio(_payload_of(document))
        if event == "dtmf":
            key = _text_of(_members(document, "dtmf").get("digit"), "dtmf has no digit")
            return KeyPress(key) if key in KEYS else None
        if event == "stop":
            return CallEnd()
        if event == self.played("")["event"]:
            return _mark_of(self._name_in(document))
        return None

    def bot_audio(self, call: PhoneCall, payload: bytes) -> bytes:
        """Return the JSON text of the bot's audio."""
        media = {"payload": base64.b64encode(payload).decode()}
        return self._of_bot(call, {"event": self._audio_event, "media": media})

    def bot_clear(self, call: PhoneCall) -> bytes:
        """Return the JSON text by which the bot drops its unplayed audio."""
        return self._of_bot(call, {"event": self._clear_event})

    def bot_mark(self, call: PhoneCall, name: str) -> bytes:
        """Return the JSON text of a mark of the bot."""
        return self._of_bot(call, {"event": self._mark_event, "mark": {"name": name}})

    def _of_bot(self, call: PhoneCall, content: dict[str, Any]) -> bytes:
        return to_json({**content, self.stream_key: call.stream_id})


class Twilio(Provider):
    """Twilio's media streams."""

    name: ClassVar[ProviderName] = "twilio"
    stream_key: ClassVar[str] = "streamSid"
    call_key: ClassVar[str] = "callSid"

    def connected(self) -> dict[str, Any]:
        """See `Provider`."""
        return {"event": "connected", "protocol": "Call", "version": "1.0.0"}

    def start(self, call: PhoneCall) -> dict[str, Any]:
        """See `Provider`."""
        start = {
            "accountSid": _TWILIO_ACCOUNT,
            "streamSid": call.stream_id,
            "callSid": call.call_id,
            "tracks": ["inbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": RATE_HZ, "channels": 1},
            "customParameters": _told(call),
        }
        return {"event": "start", "start": start}

    def media(self, payload: str, chunk: int, at_ms: int, wall: float) -> dict[str, Any]:  # noqa: ARG002
        """See `Provider`."""
        return {"track": "inbound", "chunk": str(chunk), "timestamp": str(at_ms), "payload": payload}

    def key(self, key: str, wall: float) -> dict[str, Any]:  # noqa: ARG002
        """See `Provider`."""
        return {"event": "dtmf", "dtmf": {"track": "inbound_track", "digit": key}}

    def stop(self, call: PhoneCall) -> dict[str, Any]:
        """See `Provider`."""
        return {"event": "stop", "stop": {"accountSid": _TWILIO_ACCOUNT, "callSid": call.call_id}}

    def _parameters_in(self, document: Mapping[str, Any], start: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002
        return _members(start, "customParameters")


class Telnyx(Provider):
    """Telnyx's media streams. The bot's audio is µ-law, even in a call of A-law, because Pipecat sends no other."""

    name: ClassVar[ProviderName] = "telnyx"
    codecs: ClassVar[tuple[Codec, ...]] = ("PCMU", "PCMA")
    stream_key: ClassVar[str] = "stream_id"
    number_key: ClassVar[str] = "sequence_number"
    call_key: ClassVar[str] = "call_control_id"

    def connected(self) -> dict[str, Any]:
        """See `Provider`."""
        return {"event": "connected", "version": "1.0.0"}

    def start(self, call: PhoneCall) -> dict[str, Any]:
        """See `Provider`."""
        start = {
            "user_id": "0",
            "call_control_id": call.call_id,
            "call_session_id": call.call_id,
            "from": call.from_number or "",
            "to": call.to_number or "",
            "custom_parameters": dict(call.parameters),
            "media_format": {"encoding": call.codec, "sample_rate": RATE_HZ, "channels": 1},
        }
        return {"event": "start", "start": start}

    def media(self, payload: str, chunk: int, at_ms: int, wall: float) -> dict[str, Any]:  # noqa: ARG002
        """See `Provider`."""
        return {"track": "inbound", "chunk": str(chunk), "timestamp": str(at_ms), "payload": payload}

    def key(self, key: str, wall: float) -> dict[str, Any]:
        """See `Provider`."""
        at = datetime.datetime.fromtimestamp(wall, datetime.timezone.utc)
        return {"event": "dtmf", "occurred_at": at.isoformat(), "dtmf": {"digit": key}}

    def _stream_in(self, document: Mapping[str, Any], start: Mapping[str, Any]) -> Any:  # noqa: ARG002
        return document.get("stream_id")

    def _is_start(self, document: Mapping[str, Any], start: Mapping[str, Any]) -> bool:  # noqa: ARG002
        return True

    def _codec_in(self, start: Mapping[str, Any]) -> Codec:
        return "PCMA" if _members(start, "media_format").get("encoding") == "PCMA" else "PCMU"

    def _of_bot(self, call: PhoneCall, content: dict[str, Any]) -> bytes:  # noqa: ARG002 - one stream a connection
        return to_json(content)


class Plivo(Provider):
    """Plivo's audio streams: no message before `start`, none at the end, and message numbers of type int."""

    name: ClassVar[ProviderName] = "plivo"
    stream_key: ClassVar[str] = "streamId"
    number_type: ClassVar[type[str] | type[int]] = int
    call_key: ClassVar[str] = "callId"
    constant: ClassVar[Mapping[str, str]] = {"extra_headers": ""}
    _audio_event: ClassVar[str] = "playAudio"
    _clear_event: ClassVar[str] = "clearAudio"
    _mark_event: ClassVar[str] = "checkpoint"

    def check(self, call: PhoneCall) -> None:
        """See `Provider`."""
        parameters = _told(call)
        text = _as_headers(parameters)
        if any(mark in part for each in parameters.items() for part in each for mark in ";="):
            raise ValueError('parameters of a call by Plivo cannot have ";" or "=", which separate them')
        if len(text.encode()) > _PLIVO_MAX_BYTES:
            raise ValueError(
                f"parameters of a call by Plivo, with the numbers, take at most {_PLIVO_MAX_BYTES} bytes; these take "
                f"{len(text.encode())}"
            )

    def connected(self) -> None:
        """See `Provider`."""
        return

    def start(self, call: PhoneCall) -> dict[str, Any]:
        """See `Provider`."""
        start = {
            "callId": call.call_id,
            "streamId": call.stream_id,
            "accountId": "MA0000000000",
            "tracks": ["inbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": RATE_HZ},
        }
        headers = _as_headers(_told(call))
        return {"event": "start", "start": start, "extra_headers": headers}

    def media(self, payload: str, chunk: int, at_ms: int, wall: float) -> dict[str, Any]:  # noqa: ARG002
        """See `Provider`."""
        return {"track": "inbound", "chunk": chunk, "timestamp": str(int(wall * 1000)), "payload": payload}

    def key(self, key: str, wall: float) -> dict[str, Any]:
        """See `Provider`."""
        return {"event": "dtmf", "dtmf": {"track": "inbound", "digit": key, "timestamp": str(int(wall * 1000))}}

    def played(self, name: str) -> dict[str, Any]:
        """See `Provider`."""
        return {"event": "playedStream", "name": name}

    def cleared(self) -> dict[str, Any]:
        """See `Provider`."""
        return {"event": "clearedAudio"}

    def stop(self, call: PhoneCall) -> None:  # noqa: ARG002
        """See `Provider`."""
        return

    def _name_in(self, document: Mapping[str, Any]) -> Any:
        return document.get("name")

    def _is_start(self, document: Mapping[str, Any], start: Mapping[str, Any]) -> bool:  # noqa: ARG002
        return True

    def _parameters_in(self, document: Mapping[str, Any], start: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002
        headers = document.get("extra_headers")
        pairs = headers.split(";") if isinstance(headers, str) else []
        return {name: value for name, mark, value in (pair.partition("=") for pair in pairs) if mark}

    def bot_audio(self, call: PhoneCall, payload: bytes) -> bytes:
        """See `Provider`."""
        media = {
            "contentType": "audio/x-mulaw",
            "sampleRate": RATE_HZ,
            "payload": base64.b64encode(payload).decode(),
        }
        return self._of_bot(call, {"event": self._audio_event, "media": media})

    def bot_mark(self, call: PhoneCall, name: str) -> bytes:
        """See `Provider`."""
        return self._of_bot(call, {"event": self._mark_event, "name": name})


class Exotel(Provider):
    """Exotel's voice streams: linear samples, 100 ms a message."""

    name: ClassVar[ProviderName] = "exotel"
    codecs: ClassVar[tuple[Codec, ...]] = ("L16",)
    bot_codec: ClassVar[Codec] = "L16"
    frame_seconds: ClassVar[float] = 0.1
    stream_key: ClassVar[str] = "stream_sid"
    number_key: ClassVar[str] = "sequence_number"
    call_key: ClassVar[str] = "call_sid"

    def check(self, call: PhoneCall) -> None:
        """See `Provider`."""
        own = call.parameters
        size = sum(len(part) for pair in own.items() for part in pair)
        if len(own) > _EXOTEL_MAX_COUNT or size > _EXOTEL_MAX_CHARACTERS:
            raise ValueError(
                f"a call by Exotel has at most {_EXOTEL_MAX_COUNT} parameters, of {_EXOTEL_MAX_CHARACTERS} characters "
                f"in all; these are {len(own)}, of {size}"
            )

    def query(self, call: PhoneCall) -> Mapping[str, str]:
        """See `Provider`."""
        return call.parameters

    def start(self, call: PhoneCall) -> dict[str, Any]:
        """See `Provider`."""
        start = {
            "stream_sid": call.stream_id,
            "call_sid": call.call_id,
            "account_sid": "exotel0",
            "from": call.from_number or "",
            "to": call.to_number or "",
            "custom_parameters": dict(call.parameters),
            "media_format": {"encoding": "audio/x-raw", "sample_rate": str(RATE_HZ), "bit_rate": "16"},
        }
        return {"event": "start", "start": start}

    def media(self, payload: str, chunk: int, at_ms: int, wall: float) -> dict[str, Any]:  # noqa: ARG002
        """See `Provider`."""
        return {"chunk": str(chunk), "timestamp": str(at_ms), "payload": payload}

    def key(self, key: str, wall: float) -> dict[str, Any]:  # noqa: ARG002
        """See `Provider`."""
        return {"event": "dtmf", "dtmf": {"digit": key, "duration": "100"}}

    def stop(self, call: PhoneCall) -> dict[str, Any]:
        """See `Provider`."""
        return {"event": "stop", "stop": {"call_sid": call.call_id, "account_sid": "exotel0", "reason": "callended"}}

    def _is_start(self, document: Mapping[str, Any], start: Mapping[str, Any]) -> bool:
        return document.get("event") == "start" and _is_id(start.get("account_sid"))


#: In the order in which Pipecat's runner tries to recognise them.
PROVIDERS: Final[Mapping[str, Provider]] = {each.name: each for each in (Twilio(), Telnyx(), Plivo(), Exotel())}


class CallWriter:
    """The writer of a provider's messages in one call. One thread at a time uses it.

    Args:
        call: The call.
        wall: Unix time at its start.
    """

    def __init__(self, call: PhoneCall, wall: float) -> None:
        self._call = call
        self._provider = PROVIDERS[call.provider]
        self._wall = wall
        self._number = 0
        self._chunk = 0

    def opening(self) -> list[bytes]:
        """Return the JSON texts at the start of the call."""
        connected = self._provider.connected()
        first = [to_json(connected)] if connected is not None else []
        return [*first, self._numbered(self._provider.start(self._call))]

    def audio(self, payload: bytes, at: float) -> bytes:
        """Return the JSON text of the caller's audio, `at` seconds since the start of the call."""
        self._chunk += 1
        content = base64.b64encode(payload).decode()
        media = self._provider.media(content, self._chunk, int(at * 1000), self._wall + at)
        return self._numbered({"event": "media", "media": media})

    def key(self, key: str, at: float) -> bytes:
        """Return the JSON text for a key that the caller has pressed."""
        return self._numbered(self._provider.key(key, self._wall + at))

    def played(self, name: str) -> bytes:
        """Return the JSON text that a mark was reached, or dropped by `clear`."""
        return self._numbered(self._provider.played(name))

    def cleared(self) -> bytes | None:
        """Return the JSON text that answers `clear`. None: the provider does not answer it."""
        return self._optional(self._provider.cleared())

    def stop(self) -> bytes | None:
        """Return the JSON text that the caller has hung up. None: the provider sends none."""
        return self._optional(self._provider.stop(self._call))

    def _optional(self, document: dict[str, Any] | None) -> bytes | None:
        return self._numbered(document) if document is not None else None

    def _numbered(self, document: dict[str, Any]) -> bytes:
        self._number += 1
        provider = self._provider
        number, stream = provider.number_type(self._number), self._call.stream_id
        numbering = {provider.number_key: number, provider.stream_key: stream}
        return to_json({**provider.constant, **document, **numbering})


def call_in(texts: Iterable[str | bytes]) -> PhoneCall | None:
    """Return the call that one of the first messages of a WebSocket describes. None: they are no provider's."""
    for text in texts:
        try:
            document = _object_of(text)
        except ProtocolError:
            continue
        for provider in PROVIDERS.values():
            if (call := provider.call_of(document)) is not None:
                return call
    return None


def _told(call: PhoneCall) -> dict[str, str]:
    """Return the parameters of a call, including its numbers, for a provider without fields for numbers."""
    numbers = {"from_number": call.from_number, "to_number": call.to_number}
    return {name: number for name, number in numbers.items() if number is not None} | {**call.parameters}


def _as_headers(parameters: Mapping[str, str]) -> str:
    return ";".join(f"{name}={value}" for name, value in parameters.items())


def _object_of(text: str | bytes) -> dict[str, Any]:
    document = parse_json(text)
    if not isinstance(document, dict):
        raise ProtocolError("a message is JSON, but no object")
    return document


def _members(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _text_of(value: Any, fault: str) -> str:
    if not isinstance(value, str):
        raise ProtocolError(fault)
    return value


def _mark_of(name: Any) -> PlaybackMark:
    """Return the mark of a name that can be sent back."""
    text = _text_of(name, "a mark has no name")
    if len(text) > MAX_MARK or text != encodable(text):
        raise ProtocolError(f"the name of a mark has more than {MAX_MARK} characters, or half a character")
    return PlaybackMark(text)


def _is_id(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and value != ""


def _payload_of(document: Mapping[str, Any]) -> bytes:
    text = _text_of(_members(document, "media").get("payload"), "media has no payload")
    if len(text) > MAX_PAYLOAD * 4 // 3 + 4:
        raise ProtocolError(f"media has a payload of more than {MAX_PAYLOAD} bytes")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:  # binascii.Error, or characters that are not ASCII
        raise ProtocolError("the payload of media is not base64") from None
