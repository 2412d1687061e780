"""The names of all events, and the record that carries one to a handler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic

import attrs

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # has `default`; type checkers know it although it may not be installed

    from .messages import RTVIMessage

    DataT = TypeVar("DataT", covariant=True, default=Any)
else:
    from typing import TypeVar

    DataT = TypeVar("DataT", covariant=True)


class RTVIEvent(str, Enum):
    """Every event of a client, named as in the JavaScript client.

    A member is its value ("botReady"); `.snake` ("bot_ready") names its signal and its `on_<name>` callback. The
    aliases at the end are second names of the same event, from callbacks and wire types that differ from it.

    A member equals, and is constructed from, every name that `client.on()` takes: ``event.type == "bot-ready"``,
    ``RTVIEvent("bot-ready")``, ``case "bot-ready":``. Its hash is that of its value, so that as a key of a dict, or in
    a set, only "botReady" stands for it; convert other names by ``RTVIEvent(name)``.
    """

    # An event is looked up in several dicts on its way, and Enum's own hash is a function in Python.
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, str) and BY_NAME.get(other) is self)

    def __ne__(self, other: object) -> bool:  # otherwise that of str, which Python prefers to `not ==`
        return not self == other

    @classmethod
    def _missing_(cls, value: object) -> RTVIEvent | None:
        return event_from(value) if isinstance(value, str) else None

    # The client's own session
    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    RECONNECTING = "reconnecting"
    RECONNECT_FAILED = "reconnectFailed"
    TRANSPORT_STATE_CHANGED = "transportStateChanged"
    ERROR = "error"
    MESSAGE_ERROR = "messageError"
    UNSUPPORTED_FEATURE = "unsupportedFeature"
    HANDLER_ERROR = "handlerError"
    UNKNOWN_MESSAGE = "unknownMessage"

    # The bot's side of it
    BOT_STARTED = "botStarted"
    BOT_CONNECTED = "botConnected"
    BOT_READY = "botReady"
    BOT_DISCONNECTED = "botDisconnected"
    PARTICIPANT_CONNECTED = "participantConnected"
    PARTICIPANT_LEFT = "participantLeft"

    # What the user says
    USER_STARTED_SPEAKING = "userStartedSpeaking"
    USER_STOPPED_SPEAKING = "userStoppedSpeaking"
    VAD_USER_STARTED_SPEAKING = "vadUserStartedSpeaking"
    VAD_USER_STOPPED_SPEAKING = "vadUserStoppedSpeaking"
    USER_MUTE_STARTED = "userMuteStarted"
    USER_MUTE_STOPPED = "userMuteStopped"
    USER_INPUT = "userInput"
    USER_TRANSCRIPT = "userTranscript"
    USER_LLM_TEXT = "userLlmText"
    STT_RAW_TEXT = "sttRawText"

    # What the bot says
    BOT_STARTED_SPEAKING = "botStartedSpeaking"
    BOT_STOPPED_SPEAKING = "botStoppedSpeaking"
    BOT_INTERRUPTED = "botInterrupted"
    BOT_OUTPUT = "botOutput"
    BOT_TRANSCRIPT = "botTranscript"
    BOT_LLM_STARTED = "botLlmStarted"
    BOT_LLM_TEXT = "botLlmText"
    BOT_LLM_STOPPED = "botLlmStopped"
    BOT_LLM_MARKER = "botLlmMarker"
    BOT_LLM_SEARCH_RESPONSE = "botLlmSearchResponse"
    LLM_RAW_TEXT = "llmRawText"
    LLM_JSON_COMPLETION = "llmJsonCompletion"
    BOT_TTS_STARTED = "botTtsStarted"
    BOT_TTS_TEXT = "botTtsText"
    BOT_TTS_AUDIO = "botTtsAudio"
    BOT_TTS_STOPPED = "botTtsStopped"
    TTS_RAW_TEXT = "ttsRawText"

    # Function calls
    LLM_FUNCTION_CALL = "llmFunctionCall"
    LLM_FUNCTION_CALL_START = "llmFunctionCallStart"
    LLM_FUNCTION_CALL_STARTED = "llmFunctionCallStarted"
    LLM_FUNCTION_CALL_IN_PROGRESS = "llmFunctionCallInProgress"
    LLM_FUNCTION_CALL_STOPPED = "llmFunctionCallStopped"

    # Messages of the application
    SERVER_MESSAGE = "serverMessage"
    SERVER_RESPONSE = "serverResponse"
    APPEND_TO_CONTEXT_RESULT = "appendToContextResult"
    STORAGE_ITEM_STORED = "storageItemStored"
    UI_COMMAND = "uiCommand"
    UI_JOB_GROUP = "uiJobGroup"

    # Config and actions
    CONFIG = "config"
    CONFIG_UPDATED = "configUpdated"
    CONFIG_DESCRIBE = "configDescribe"
    ACTIONS_AVAILABLE = "actionsAvailable"
    ACTION_RESPONSE = "actionResponse"

    # Measurements and logs of the bot
    METRICS = "metrics"
    USER_AUDIO_LEVEL = "userAudioLevel"
    BOT_AUDIO_LEVEL = "botAudioLevel"
    SYSTEM_LOG = "systemLog"

    # Tracks and devices of the client
    TRACK_STARTED = "trackStarted"
    TRACK_STOPPED = "trackStopped"
    SCREEN_TRACK_STARTED = "screenTrackStarted"
    SCREEN_TRACK_STOPPED = "screenTrackStopped"
    SCREEN_SHARE_ERROR = "screenShareError"
    LOCAL_AUDIO_LEVEL = "localAudioLevel"
    REMOTE_AUDIO_LEVEL = "remoteAudioLevel"
    AVAILABLE_CAMS_UPDATED = "availableCamsUpdated"
    AVAILABLE_MICS_UPDATED = "availableMicsUpdated"
    AVAILABLE_SPEAKERS_UPDATED = "availableSpeakersUpdated"
    CAM_UPDATED = "camUpdated"
    MIC_UPDATED = "micUpdated"
    SPEAKER_UPDATED = "speakerUpdated"
    DEVICE_ERROR = "deviceError"
    AUDIO_DROPPED = "audioDropped"
    MEDIA_STATE_UPDATED = "mediaStateUpdated"

    # The conversation
    TURN_STARTED = "turnStarted"
    TURN_ENDED = "turnEnded"

    # Aliases: names of callbacks
    BOT_TEXT = BOT_LLM_TEXT
    CONFIG_UPDATE = CONFIG_UPDATED
    GENERIC_MESSAGE = UNKNOWN_MESSAGE
    MEDIA_STATE_CHANGED = MEDIA_STATE_UPDATED
    PARTICIPANT_JOINED = PARTICIPANT_CONNECTED

    # Aliases: wire types
    BOT_TRANSCRIPTION = BOT_TRANSCRIPT
    CONFIG_AVAILABLE = CONFIG_DESCRIBE
    ERROR_RESPONSE = MESSAGE_ERROR
    UI_TASK = UI_JOB_GROUP
    USER_TRANSCRIPTION = USER_TRANSCRIPT

    @property
    def snake(self) -> str:
        """Return the event's name in Python: "bot_ready"."""
        return self._name_.lower()

    def __str__(self) -> str:
        return self._value_


def _spellings() -> dict[str, RTVIEvent]:
    found: dict[str, RTVIEvent] = {}
    for name, event in RTVIEvent.__members__.items():
        snake = name.lower()
        for spelling in (event.value, name, snake, snake.replace("_", "-")):
            found[spelling] = event
    return found


#: Every event by each of its names.
BY_NAME: Mapping[str, RTVIEvent] = MappingProxyType(_spellings())


def event_from(name: str | RTVIEvent, option: str = "event") -> RTVIEvent:
    """Return the event that `name` means.

    Args:
        name: a member, its value ("botReady"), its Python name ("bot_ready", "BOT_READY") or the wire type that causes
            it ("bot-ready"). Aliases count: "bot_text" is `BOT_LLM_TEXT`.
        option: named in errors.

    Raises:
        ValueError: no event has this name; the message suggests the nearest one.
        TypeError: `name` is not a string.
    """
    if isinstance(name, RTVIEvent):
        return name
    if not isinstance(name, str):
        raise TypeError(f"{option} must be an RTVIEvent or the name of one, not {type(name).__name__}")
    event = BY_NAME.get(name)
    if event is None:
        import difflib  # imported only for the error

        near = difflib.get_close_matches(name[:100], BY_NAME, n=1)
        hint = f"the nearest is {near[0]!r}" if near else "RTVIEvent lists them all"
        raise ValueError(f"{option} must be the name of an event; no event is named {name[:100]!r}; {hint}")
    return event


class _WithMessage:
    """Makes the message of an event when it is first read, which is rare."""

    __slots__ = ("_make_message",)

    if not TYPE_CHECKING:  # hidden, because a type checker would accept any misspelt attribute

        def __getattr__(self, name: str) -> Any:
            if name != "message":
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            message = self._make_message()
            object.__setattr__(self, "message", message)
            return message


@attrs.frozen(kw_only=True)
class Event(_WithMessage, Generic[DataT]):
    """One event as a handler receives it. ``Event[BotReadyData]`` is one whose `data` has that type.

    Attributes:
        type: the event's name.
        data: the payload: an object of a class in `rtvi_sync.messages`, plain JSON, or None.
        received_at: seconds of the monotonic clock when it arrived, or occurred in the client.
        message: the bot's message that caused it, or None for an event of the client's own.
    """

    type: RTVIEvent
    data: DataT = None  # type: ignore[assignment]
    received_at: float
    message: RTVIMessage | None = None


def event_of(type_: RTVIEvent, data: Any, received_at: float, make_message: Callable[[], RTVIMessage] | None) -> Event:
    """Return an `Event` whose message is made when it is first read; None: it has none."""
    if make_message is None:
        return Event(type=type_, data=data, received_at=received_at)
    event = _new(Event)
    _put_type(event, type_)
    _put_data(event, data)
    _put_received_at(event, received_at)
    _put_make_message(event, make_message)
    return event


# The class is frozen, so its slots are filled directly.
_new = object.__new__
_put_type, _put_data, _put_received_at, _put_make_message = (
    getattr(Event, name).__set__ for name in ("type", "data", "received_at", "_make_message")
)
