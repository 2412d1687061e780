"""The message types, in one table for all versions of the protocol.

The table is the source of the decoding, the version check of outbound messages and the tables of docs/reference/protocol.md. A
version is the one that Pipecat announced when it added or removed a message, by the sources of its published releases.
A version here is (major, minor).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import attrs

from ..errors import ProtocolError, RTVIError, UnsupportedFeatureError
from ..events import RTVIEvent
from .decoding import Decoder, MismatchError, Payload, decoder_of

PayloadClass = type[Payload]
Version = tuple[int, int]


def _own_type(spec: MessageSpec) -> str:
    return spec.type


VERSIONS: Mapping[Version, tuple[str, str]] = MappingProxyType(
    {
        (0, 3): ("0.0.50", "0.0.73"),
        (1, 0): ("0.0.76", "0.0.97"),
        (1, 1): ("0.0.98", "0.0.101"),
        (1, 2): ("0.0.102", "1.1.0"),
        (1, 3): ("1.2.0", "1.2.1"),
        (1, 4): ("1.3.0", "1.3.0"),
        (2, 0): ("1.4.0", "1.5.0"),
        (2, 1): ("1.6.0", "1.12.0"),
        (2, 2): ("1.13.0", "1.14.0"),
    }
)
"""Every version that a release of pipecat-ai announces, with the first and the last of these releases."""


@attrs.frozen(eq=False, repr=False, kw_only=True)
class MessageSpec:
    """The description of one message type.

    Attributes:
        type: The wire type, such as "bot-output".
        direction: "in": from the bot. "out": to the bot.
        event: The event that an inbound message causes. None for outbound messages.
        payload: The name of the class that the data is decoded into, such as "turn.TranscriptData". None: the data is
            delivered as received.
        since: The first protocol version that knows the message. None: all do.
        until: The first protocol version that no longer knows it. None: none yet.
        feature: The message's name in an `UnsupportedFeatureError`.
        answer: The type of the inbound message that answers an outbound one and has its id. None: no answer.
        instead: The replacement for bots that no longer know it, as a sentence.
        pipecat: The releases of Pipecat that have it, if they differ from the versions. A release may add or remove a
            message without announcing a new version.
    """

    type: str
    direction: Literal["in", "out"]
    event: RTVIEvent | None = None
    _payload: str | None = None
    since: Version | None = None
    until: Version | None = None
    feature: str = attrs.field(default=attrs.Factory(_own_type, takes_self=True))
    answer: str | None = None
    instead: str = ""
    pipecat: str = ""

    @property
    def payload(self) -> PayloadClass | None:
        """The class itself. Its module is imported on first use, see `load_payload()`.

        Raises:
            RTVIError: The process has no descriptor left for the import.
        """
        if self._payload is None:
            return None
        kind, _, name = self._payload.partition(".")
        try:
            module = import_module(f".{kind}_payloads", __package__)
        except OSError as error:
            raise RTVIError(
                f"The class for messages of the type {self.type!r} could not be imported: {error}. Close files "
                "and connections that are not needed, or raise the limit of open files (ulimit -n)"
            ) from error
        payload: PayloadClass = getattr(module, name)
        return payload


class FieldSpec(NamedTuple):
    """The description of a field of outbound messages that was added or removed later than their type.

    Attributes:
        since: The first protocol version that knows the field.
        until: The first protocol version that no longer knows it. None: none yet.
    """

    since: Version
    until: Version | None = None


@functools.cache
def load_payload(event: RTVIEvent) -> None:
    """Import the payload class of an event that is about to get a listener.

    Must not happen later on a thread of the session: if the process forks while another thread imports a module, the
    child cannot import it.
    """
    for spec in INBOUND.values():
        if spec.event is event:
            spec.payload  # noqa: B018 - the property imports the module


# By message type. Each is added with the type's first message.
_decoders: dict[str, Decoder | None] = {}


def decode_payload(spec: MessageSpec, data: Any) -> Any:
    """Return the payload of a message with this data. Any thread.

    Args:
        spec: The row of the message's type.
        data: The data, plain JSON as `json.loads` returns it. If the type has a payload class, None (a message without
            data) counts as an empty object.

    Raises:
        ProtocolError: The data does not have the shape of the type. The text names the type and the path, as in
            "bot-output: data.text: expected str, got int".
    """
    try:
        decode = _decoders[spec.type]
    except KeyError:
        decode = _decoders[spec.type] = decoder_of(spec.payload) if spec.payload is not None else None
    if decode is None:
        return data
    try:
        return decode({} if data is None else data)
    except MismatchError as error:
        raise ProtocolError(f"{spec.type}: data{error}") from None


# No bot has a version above 99999 or a suffix over 40 characters. A text that matches is safe to print.
_VERSION = re.compile(r"([0-9]{1,5})\.([0-9]{1,5})(?:[.+-][0-9A-Za-z.+-]{0,40})?")


def parse_version(text: str | None) -> Version | None:
    """Return (major, minor) of a protocol version such as "2.2.0" or "2.1". None if it is invalid. Any thread."""
    match = _VERSION.fullmatch(text or "")
    return (int(match[1]), int(match[2])) if match is not None else None


def supports(name: str, bot_version: str | None) -> bool:
    """Return whether a bot knows an outbound type, or a field of one. Any thread.

    Also True if the table does not have the name, or if the bot's version is unknown or invalid. In these cases only
    the bot's answer can show it.

    Args:
        name: A type of `OUTBOUND` ("send-file"), or a key of `FIELDS` ("dtmf.buttons").
        bot_version: The protocol version in the bot's `bot-ready`, or None.
    """
    spec = OUTBOUND.get(name) or FIELDS.get(name)
    version = parse_version(bot_version)
    if spec is None or version is None:
        return True
    return (spec.since is None or version >= spec.since) and (spec.until is None or version < spec.until)


def require_feature(type: str, bot_version: str | None) -> None:
    """Check that a bot can know messages of this type, before one is sent. Any thread.

    Args:
        type: The wire type of an outbound message.
        bot_version: The protocol version in the bot's `bot-ready`, or None.

    Raises:
        UnsupportedFeatureError: Bots of this version do not know the type yet, or no longer (`supports()` is False).
    """
    if supports(type, bot_version):
        return
    spec = OUTBOUND[type]
    version = parse_version(bot_version)
    is_late = version is not None and spec.until is not None and version >= spec.until
    needed = _needed(spec)
    raise UnsupportedFeatureError(
        f"{type!r} needs a bot that speaks RTVI {needed}; this one speaks {bot_version}. "
        f"{spec.instead if is_late else 'Update the bot.'}",
        feature=spec.feature,
        needed_version=needed,
        bot_version=bot_version,
    )


def _needed(spec: MessageSpec) -> str:
    """Return the versions that know a message, in words."""
    since = f"{_text(spec.since)} or later" if spec.since is not None else ""
    until = f"before {_text(spec.until)}" if spec.until is not None else ""
    return ", but ".join(filter(None, (since, until)))


def _text(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def _in(
    type: str,
    event: RTVIEvent,
    payload: str | None = None,
    since: Version | None = None,
    until: Version | None = None,
    pipecat: str = "",
) -> MessageSpec:
    return MessageSpec(
        type=type, direction="in", event=event, payload=payload, since=since, until=until, pipecat=pipecat
    )


def _out(
    type: str,
    since: Version | None = None,
    until: Version | None = None,
    feature: str = "",
    answer: str | None = None,
    instead: str = "",
    pipecat: str = "",
) -> MessageSpec:
    return MessageSpec(
        type=type,
        direction="out",
        since=since,
        until=until,
        feature=feature or type,
        answer=answer,
        instead=instead,
        pipecat=pipecat,
    )


def _by_type(*rows: MessageSpec) -> Mapping[str, MessageSpec]:
    return MappingProxyType({row.type: row for row in rows})


_E = RTVIEvent
# Config, actions and append-to-context are deprecated in all of 1.x. Pipecat 1.0.0 removed them without a new version,
# so only the answer of a 1.x bot shows whether it still has them.
_REMOVED = (2, 0)
_UP_TO_0_0_108 = "up to 0.0.108"
_CLIENT_MESSAGES = "For newer bots, define your own client messages and use send_client_request()."

INBOUND = _by_type(
    # The session
    _in("bot-ready", _E.BOT_READY, "session.BotReadyData"),
    _in("error", _E.ERROR, "session.ErrorData"),
    _in("error-response", _E.MESSAGE_ERROR, "session.ErrorData"),
    # The user's speech
    _in("user-started-speaking", _E.USER_STARTED_SPEAKING),
    _in("user-stopped-speaking", _E.USER_STOPPED_SPEAKING),
    _in("vad-user-started-speaking", _E.VAD_USER_STARTED_SPEAKING, since=(2, 0)),
    _in("vad-user-stopped-speaking", _E.VAD_USER_STOPPED_SPEAKING, since=(2, 0)),
    _in("user-mute-started", _E.USER_MUTE_STARTED, since=(1, 2)),
    _in("user-mute-stopped", _E.USER_MUTE_STOPPED, since=(1, 2)),
    _in("user-input", _E.USER_INPUT, "turn.UserInputData", since=(2, 2)),
    _in("user-transcription", _E.USER_TRANSCRIPT, "turn.TranscriptData"),
    _in("user-llm-text", _E.USER_LLM_TEXT, "turn.UserLLMTextData"),
    _in("stt-raw-text", _E.STT_RAW_TEXT, "turn.TranscriptData", since=(2, 2)),
    # The bot's speech
    _in("bot-started-speaking", _E.BOT_STARTED_SPEAKING),
    _in("bot-stopped-speaking", _E.BOT_STOPPED_SPEAKING),
    _in("bot-interrupted", _E.BOT_INTERRUPTED, since=(2, 0)),
    _in("bot-output", _E.BOT_OUTPUT, "turn.BotOutputData", since=(1, 0), pipecat="from 0.0.96"),
    _in("bot-transcription", _E.BOT_TRANSCRIPT, "turn.BotLLMTextData"),
    _in("bot-llm-started", _E.BOT_LLM_STARTED),
    _in("bot-llm-text", _E.BOT_LLM_TEXT, "turn.BotLLMTextData"),
    _in("bot-llm-stopped", _E.BOT_LLM_STOPPED),
    _in("bot-llm-marker", _E.BOT_LLM_MARKER, "service.BotLLMMarkerData", since=(2, 1), pipecat="from 1.11.0"),
    _in(
        "bot-llm-search-response", _E.BOT_LLM_SEARCH_RESPONSE, "service.BotLLMSearchResponseData", pipecat="from 0.0.54"
    ),
    _in("llm-raw-text", _E.LLM_RAW_TEXT, "turn.BotLLMTextData", since=(2, 2)),
    _in("llm-json-completion", _E.LLM_JSON_COMPLETION, until=(1, 0), pipecat="none; client-js 0.3 knows it"),
    _in("bot-tts-started", _E.BOT_TTS_STARTED),
    _in("bot-tts-text", _E.BOT_TTS_TEXT, "turn.BotTTSTextData"),
    _in("bot-tts-audio", _E.BOT_TTS_AUDIO, "service.BotTTSAudioData"),
    _in("bot-tts-stopped", _E.BOT_TTS_STOPPED),
    _in("tts-raw-text", _E.TTS_RAW_TEXT, "turn.BotTTSTextData", since=(2, 2)),
    # Function calls
    _in("llm-function-call", _E.LLM_FUNCTION_CALL, "turn.LLMFunctionCallData"),
    _in("llm-function-call-start", _E.LLM_FUNCTION_CALL_START, "turn.LLMFunctionCallStartedData", until=(1, 2)),
    _in(
        "llm-function-call-started",
        _E.LLM_FUNCTION_CALL_STARTED,
        "turn.LLMFunctionCallStartedData",
        since=(1, 2),
    ),
    _in(
        "llm-function-call-in-progress",
        _E.LLM_FUNCTION_CALL_IN_PROGRESS,
        "turn.LLMFunctionCallInProgressData",
        since=(1, 2),
    ),
    _in(
        "llm-function-call-stopped",
        _E.LLM_FUNCTION_CALL_STOPPED,
        "turn.LLMFunctionCallStoppedData",
        since=(1, 2),
    ),
    # Messages of the application
    _in("server-message", _E.SERVER_MESSAGE, pipecat="from 0.0.59"),
    _in("server-response", _E.SERVER_RESPONSE, "session.ServerResponseData", since=(1, 0)),
    _in(
        "append-to-context-result",
        _E.APPEND_TO_CONTEXT_RESULT,
        "application.AppendToContextResultData",
        since=(1, 0),
        until=_REMOVED,
        pipecat="none; client-js 1.x knows it",
    ),
    _in(
        "storage-item-stored",
        _E.STORAGE_ITEM_STORED,
        "application.StorageItemStoredData",
        until=(1, 0),
        pipecat="none by itself; client-js 0.3 knows it",
    ),
    _in("ui-command", _E.UI_COMMAND, "application.UICommandData", since=(1, 3)),
    _in("ui-task", _E.UI_JOB_GROUP, "application.UIJobGroupData", since=(1, 3), until=(1, 4)),
    _in("ui-job-group", _E.UI_JOB_GROUP, "application.UIJobGroupData", since=(1, 4)),
    # Config and actions
    _in("config", _E.CONFIG, "session.ConfigData", until=_REMOVED, pipecat=_UP_TO_0_0_108),
    _in("config-available", _E.CONFIG_DESCRIBE, "service.ConfigAvailableData", until=_REMOVED, pipecat=_UP_TO_0_0_108),
    _in(
        "actions-available",
        _E.ACTIONS_AVAILABLE,
        "service.ActionsAvailableData",
        until=_REMOVED,
        pipecat=_UP_TO_0_0_108,
    ),
    _in("action-response", _E.ACTION_RESPONSE, "service.ActionResponseData", until=_REMOVED, pipecat=_UP_TO_0_0_108),
    # Measurements and logs
    _in("metrics", _E.METRICS, "turn.PipecatMetricsData"),
    _in("user-audio-level", _E.USER_AUDIO_LEVEL, "service.AudioLevelData", since=(1, 0), pipecat="from 0.0.87"),
    _in("bot-audio-level", _E.BOT_AUDIO_LEVEL, "service.AudioLevelData", since=(1, 0), pipecat="from 0.0.87"),
    _in("system-log", _E.SYSTEM_LOG, "service.SystemLogData", since=(1, 0), pipecat="from 0.0.87"),
)
"""Every message that a bot may send, by type."""


def _request(type: str, feature: str, answer: str) -> MessageSpec:
    """Return the row of a request about config or actions."""
    return _out(type, until=_REMOVED, feature=feature, answer=answer, instead=_CLIENT_MESSAGES, pipecat=_UP_TO_0_0_108)


OUTBOUND = _by_type(
    _out("client-ready", answer="bot-ready"),
    _out("disconnect-bot"),
    _out("raw-audio", pipecat="from 0.0.57"),
    _out("raw-audio-batch", pipecat="from 0.0.57"),
    _out("llm-function-call-result"),
    _out("client-message", since=(1, 0), answer="server-response"),
    _out("send-text", since=(1, 0), pipecat="from 0.0.86"),
    _out("send-file", since=(2, 2)),
    _out(
        "append-to-context",
        since=(1, 0),
        until=_REMOVED,
        answer="append-to-context-result",
        instead="Use send_text().",
        pipecat="0.0.76 to 0.0.108",
    ),
    _out("dtmf", since=(2, 0), pipecat="from 1.5.0"),
    _out("ui-event", since=(1, 3)),
    _out("ui-snapshot", since=(1, 3)),
    _out("ui-cancel-task", since=(1, 3), until=(1, 4), feature="ui-cancel-job-group"),
    _out("ui-cancel-job-group", since=(1, 4)),
    _request("describe-config", "config", "config-available"),
    _request("get-config", "config", "config"),
    _request("update-config", "config", "config"),
    _request("describe-actions", "actions", "actions-available"),
    _request("action", "actions", "action-response"),
)
"""Every message that this package may send, by type. `send_message()` sends others too."""

FIELDS: Mapping[str, FieldSpec] = MappingProxyType(
    {
        "dtmf.button": FieldSpec(since=(2, 0), until=(2, 1)),  # one key per message
        "dtmf.buttons": FieldSpec(since=(2, 1)),  # any number of keys
    }
)
"""The fields of outbound messages that not all bots know, although they know the type. By "type.field"."""
