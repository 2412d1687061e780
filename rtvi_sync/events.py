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
    ``RTVIEvent("BotReady")``, ``case "bot-ready":``. Its hash is that of its value, so that as a key of a dict, or in
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
    """The transport is open; `bot_ready` follows when the bot is ready."""
    DISCONNECTED = "disconnected"
    """A session is over, whatever ended it; its last event."""
    RECONNECTING = "reconnecting"
    """A session was lost, or an attempt to replace it failed, and another attempt follows."""
    RECONNECT_FAILED = "reconnectFailed"
    """A lost session is not replaced: the policy allows no further attempt."""
    TRANSPORT_STATE_CHANGED = "transportStateChanged"
    """`client.state` has changed."""
    ERROR = "error"
    """The bot reports an error of its own."""
    MESSAGE_ERROR = "messageError"
    """The bot answers a message with an error."""
    UNSUPPORTED_FEATURE = "unsupportedFeature"
    """A camera or screen was switched on that the transport does not carry."""
    HANDLER_ERROR = "handlerError"
    """A handler, or a function that the bot called, has raised."""
    UNKNOWN_MESSAGE = "unknownMessage"
    """The bot has sent a message of an unknown type, or one that breaks the protocol."""

    # The bot's side of it
    BOT_STARTED = "botStarted"
    """A server has answered the connect request, or `start_bot()`."""
    BOT_CONNECTED = "botConnected"
    """The bot is in the session; follows `connected`."""
    BOT_READY = "botReady"
    """The bot is ready; `connect()` returns."""
    BOT_DISCONNECTED = "botDisconnected"
    """The session with the bot is over; `disconnected` follows."""
    PARTICIPANT_CONNECTED = "participantConnected"
    """Never: a session has one bot."""
    PARTICIPANT_LEFT = "participantLeft"
    """Never: a session has one bot."""

    # What the user says
    USER_STARTED_SPEAKING = "userStartedSpeaking"
    """The user's turn begins, by the bot's judgement."""
    USER_STOPPED_SPEAKING = "userStoppedSpeaking"
    """The user's turn ends, by the bot's judgement."""
    VAD_USER_STARTED_SPEAKING = "vadUserStartedSpeaking"
    """The bot's voice detection hears the user; off by default."""
    VAD_USER_STOPPED_SPEAKING = "vadUserStoppedSpeaking"
    """The bot's voice detection no longer hears the user; off by default."""
    USER_MUTE_STARTED = "userMuteStarted"
    """The bot begins to ignore the user's audio."""
    USER_MUTE_STOPPED = "userMuteStopped"
    """The bot listens to the user again."""
    USER_INPUT = "userInput"
    """The bot has received what the user typed or said."""
    USER_TRANSCRIPT = "userTranscript"
    """The bot's speech recognition has a result, interim or final."""
    USER_LLM_TEXT = "userLlmText"
    """The user's text goes to the bot's language model."""
    STT_RAW_TEXT = "sttRawText"
    """The bot's speech recognition has a result that is not processed yet; off by default."""

    # What the bot says
    BOT_STARTED_SPEAKING = "botStartedSpeaking"
    """The bot's voice begins."""
    BOT_STOPPED_SPEAKING = "botStoppedSpeaking"
    """The bot's voice ends."""
    BOT_INTERRUPTED = "botInterrupted"
    """The bot's answer is interrupted."""
    BOT_OUTPUT = "botOutput"
    """A segment of the bot's output is new, or its progress in being spoken has changed."""
    BOT_TRANSCRIPT = "botTranscript"
    """The bot's language model has written a sentence."""
    BOT_LLM_STARTED = "botLlmStarted"
    """The bot's language model begins a response."""
    BOT_LLM_TEXT = "botLlmText"
    """The bot's language model has written a token."""
    BOT_LLM_STOPPED = "botLlmStopped"
    """The bot's language model has ended a response."""
    BOT_LLM_MARKER = "botLlmMarker"
    """The bot's language model has put a marker into a response; off by default."""
    BOT_LLM_SEARCH_RESPONSE = "botLlmSearchResponse"
    """The bot's language model has searched the web."""
    LLM_RAW_TEXT = "llmRawText"
    """The bot's language model has written a token that is not processed yet; off by default."""
    LLM_JSON_COMPLETION = "llmJsonCompletion"
    """A bot of RTVI 0.3 sends JSON that its language model has written."""
    BOT_TTS_STARTED = "botTtsStarted"
    """The bot's speech synthesis begins."""
    BOT_TTS_TEXT = "botTtsText"
    """The bot's speech synthesis speaks a word."""
    BOT_TTS_AUDIO = "botTtsAudio"
    """The bot sends speech as a message, not as audio of the transport."""
    BOT_TTS_STOPPED = "botTtsStopped"
    """The bot's speech synthesis has ended."""
    TTS_RAW_TEXT = "ttsRawText"
    """The bot's speech synthesis gets a text that is not processed yet; off by default."""

    # Function calls
    LLM_FUNCTION_CALL = "llmFunctionCall"
    """The bot asks the client to run a function, as bots before RTVI 1.2 do; deprecated since."""
    LLM_FUNCTION_CALL_START = "llmFunctionCallStart"
    """An older bot (before RTVI 1.2) begins to call a function."""
    LLM_FUNCTION_CALL_STARTED = "llmFunctionCallStarted"
    """The bot's language model begins to call a function."""
    LLM_FUNCTION_CALL_IN_PROGRESS = "llmFunctionCallInProgress"
    """A function that the language model has called runs."""
    LLM_FUNCTION_CALL_STOPPED = "llmFunctionCallStopped"
    """A function that the language model has called has ended."""

    # Messages of the application
    SERVER_MESSAGE = "serverMessage"
    """The bot's code sends a message that it defines."""
    SERVER_RESPONSE = "serverResponse"
    """The bot answers a client message."""
    APPEND_TO_CONTEXT_RESULT = "appendToContextResult"
    """The bot answers `append_to_context()`."""
    STORAGE_ITEM_STORED = "storageItemStored"
    """The bot has stored items."""
    UI_COMMAND = "uiCommand"
    """The bot sends a command to the user interface."""
    UI_JOB_GROUP = "uiJobGroup"
    """A group of jobs of the bot begins, makes progress or ends."""

    # Config and actions
    CONFIG = "config"
    """The bot sends its config."""
    CONFIG_UPDATED = "configUpdated"
    """The bot has accepted `update_config()`; comes after `config`."""
    CONFIG_DESCRIBE = "configDescribe"
    """The bot answers `describe_config()`."""
    ACTIONS_AVAILABLE = "actionsAvailable"
    """The bot answers `describe_actions()`."""
    ACTION_RESPONSE = "actionResponse"
    """The bot answers `action()`."""

    # Measurements and logs of the bot
    METRICS = "metrics"
    """The bot reports measurements."""
    USER_AUDIO_LEVEL = "userAudioLevel"
    """The bot reports how loud it hears the user; off by default."""
    BOT_AUDIO_LEVEL = "botAudioLevel"
    """The bot reports how loud it speaks; off by default."""
    SYSTEM_LOG = "systemLog"
    """The bot sends a line of its log; off by default."""

    # Tracks and devices of the client
    TRACK_STARTED = "trackStarted"
    """A track of the client or the bot begins."""
    TRACK_STOPPED = "trackStopped"
    """A track of the client or the bot ends."""
    SCREEN_TRACK_STARTED = "screenTrackStarted"
    """The client begins to share a screen."""
    SCREEN_TRACK_STOPPED = "screenTrackStopped"
    """The client no longer shares a screen."""
    SCREEN_SHARE_ERROR = "screenShareError"
    """The screen cannot be shared."""
    LOCAL_AUDIO_LEVEL = "localAudioLevel"
    """The level of the client's microphone, a few times a second while there is a listener."""
    REMOTE_AUDIO_LEVEL = "remoteAudioLevel"
    """The level of the bot's voice, a few times a second while there is a listener."""
    AVAILABLE_CAMS_UPDATED = "availableCamsUpdated"
    """The list of this machine's cameras has changed."""
    AVAILABLE_MICS_UPDATED = "availableMicsUpdated"
    """The list of this machine's microphones has changed."""
    AVAILABLE_SPEAKERS_UPDATED = "availableSpeakersUpdated"
    """The list of this machine's speakers has changed."""
    CAM_UPDATED = "camUpdated"
    """Another camera is in use."""
    MIC_UPDATED = "micUpdated"
    """Another microphone is in use."""
    SPEAKER_UPDATED = "speakerUpdated"
    """Another speaker is in use."""
    DEVICE_ERROR = "deviceError"
    """A device, source or sink is missing or has failed."""
    AUDIO_DROPPED = "audioDropped"
    """A sink or speaker is too slow, and some of the bot's audio is lost."""
    MEDIA_STATE_UPDATED = "mediaStateUpdated"
    """The status of a device has changed."""

    # The conversation
    TURN_STARTED = "turnStarted"
    """A conversation turn begins."""
    TURN_ENDED = "turnEnded"
    """A conversation turn is over."""

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
        pascal = name.title().replace("_", "")
        camel = pascal[:1].lower() + pascal[1:]
        for spelling in (camel, name, snake, snake.replace("_", "-"), pascal, f"on_{snake}", f"on{pascal}"):
            found[spelling] = event
    return found


#: Every event by each of its names.
BY_NAME: Mapping[str, RTVIEvent] = MappingProxyType(_spellings())


def event_from(name: str | RTVIEvent, option: str = "event") -> RTVIEvent:
    """Return the event that `name` means.

    Args:
        name: a member, its value ("botReady"), its Python name ("bot_ready", "BOT_READY"), the wire type that causes
            it ("bot-ready"), its name in the interface ("BotReady") or that of its callback ("on_bot_ready",
            "onBotReady"). Aliases count: "bot_text" is `BOT_LLM_TEXT`.
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
