"""The names of all events, and the record that carries one to a handler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal

import attrs

from .protocol.record import Record

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # has `default`; type checkers know it although it may not be installed

    from .messages import RTVIMessage

    DataT = TypeVar("DataT", covariant=True, default=Any)
else:
    from typing import TypeVar

    DataT = TypeVar("DataT", covariant=True)


class _Columns:
    """The columns of the table of events. Not in the enum itself, where mypy takes each name for a member.

    Attributes:
        when: When the event occurs.
        payload: The type of `Event.data`, such as "list[MediaDeviceInfo]". Empty: the type of the bot's message (see
            `rtvi_sync.protocol.dialects`), or None for events without a message.
        starts: "once" if the event occurs in the start of a session, "often" if there and later. Empty: not before the
            session is ready.
        in_turns: True if conversation turns are made of it.
    """

    when: str
    payload: str
    starts: Literal["", "once", "often"]
    in_turns: bool


def _row(
    value: str, when: str, *, payload: str = "", starts: Literal["", "once", "often"] = "", in_turns: bool = False
) -> str:
    """Return the row of an event in the table. Type checkers see only the value; see `_Columns`."""
    return value, when, payload, starts, in_turns  # type: ignore[return-value]


class RTVIEvent(_Columns, str, Enum):
    """Every event of a client, named as in the JavaScript client.

    A member is its value ("botReady"); `.snake` ("bot_ready") names its signal and its `on_<name>` callback. The
    aliases at the end are second names of the same event, from callbacks and wire types that differ from it.

    A member equals every name that `client.on()` takes, and can be made from it: ``event.type == "bot-ready"``,
    ``RTVIEvent("BotReady")``, ``case "bot-ready":``. But its hash is its value's hash. As a key of a dict or in a set,
    only "botReady" finds it; convert other names by ``RTVIEvent(name)``.
    """

    if not TYPE_CHECKING:  # an application calls the enum with a name alone

        def __new__(cls, value: str, *columns: Any) -> RTVIEvent:
            """Make the member of a row."""
            event = str.__new__(cls, value)
            event._value_ = value
            event.when, event.payload, event.starts, event.in_turns = columns
            return event

    # An event is looked up in several dicts on its way, and Enum's own hash is a function in Python.
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, str) and BY_NAME.get(other) is self)

    def __ne__(self, other: object) -> bool:  # else Python would call str's method, not `not ==`
        return not self == other

    @classmethod
    def _missing_(cls, value: object) -> RTVIEvent | None:
        return event_from(value) if isinstance(value, str) else None

    # The client's own session
    CONNECTED = _row("connected", "The transport is open; `bot_ready` follows when the bot is ready.", starts="once")
    DISCONNECTED = _row("disconnected", "The session has ended, for any reason. Its last event.", payload="CloseInfo")
    RECONNECTING = _row(
        "reconnecting",
        "A session was lost, or an attempt to replace it failed. Another attempt follows.",
        payload="ReconnectingData",
        starts="often",
    )
    RECONNECT_FAILED = _row(
        "reconnectFailed",
        "The client stops reconnecting: the policy allows no further attempt.",
        payload="ReconnectFailedData",
        starts="often",
    )
    TRANSPORT_STATE_CHANGED = _row(
        "transportStateChanged", "`client.state` has changed.", payload="TransportState", starts="often"
    )
    ERROR = _row("error", "The bot reports an error of its own.", in_turns=True)
    MESSAGE_ERROR = _row("messageError", "The bot answers a message with an error.")
    UNSUPPORTED_FEATURE = _row(
        "unsupportedFeature",
        "A camera or screen was switched on, but the transport does not carry it.",
        payload="UnsupportedFeatureError",
    )
    HANDLER_ERROR = _row(
        "handlerError", "A handler, or a function that the bot called, has raised.", payload="HandlerError"
    )
    UNKNOWN_MESSAGE = _row(
        "unknownMessage",
        "The bot has sent a message of an unknown type, or one that breaks the protocol.",
        payload="RTVIMessage",
    )

    # The bot's side of the session
    BOT_STARTED = _row(
        "botStarted",
        "A server has answered the connect request, or `start_bot()`.",
        payload="BotStartedData",
        starts="once",
    )
    BOT_CONNECTED = _row("botConnected", "The bot is in the session; follows `connected`.", starts="once")
    BOT_READY = _row("botReady", "The bot is ready; `connect()` returns.", starts="once")
    BOT_DISCONNECTED = _row("botDisconnected", "The session with the bot has ended; `disconnected` follows.")
    PARTICIPANT_CONNECTED = _row("participantConnected", "Never: a session has one bot.")
    PARTICIPANT_LEFT = _row("participantLeft", "Never: a session has one bot.")

    # The user's input
    USER_STARTED_SPEAKING = _row("userStartedSpeaking", "The user's turn starts, as the bot judges.", in_turns=True)
    USER_STOPPED_SPEAKING = _row("userStoppedSpeaking", "The user's turn ends, as the bot judges.", in_turns=True)
    VAD_USER_STARTED_SPEAKING = _row(
        "vadUserStartedSpeaking", "The bot's voice detection hears the user; off by default."
    )
    VAD_USER_STOPPED_SPEAKING = _row(
        "vadUserStoppedSpeaking", "The bot's voice detection no longer hears the user; off by default."
    )
    USER_MUTE_STARTED = _row("userMuteStarted", "The bot starts to ignore the user's audio.", in_turns=True)
    USER_MUTE_STOPPED = _row("userMuteStopped", "The bot listens to the user again.", in_turns=True)
    USER_INPUT = _row("userInput", "The bot has received the user's typed or spoken words.", in_turns=True)
    USER_TRANSCRIPT = _row(
        "userTranscript", "The bot's speech recognition has a result, interim or final.", in_turns=True
    )
    USER_LLM_TEXT = _row("userLlmText", "The user's text goes to the bot's language model.", in_turns=True)
    STT_RAW_TEXT = _row("sttRawText", "The bot's speech recognition has an unprocessed result; off by default.")

    # The bot's output
    BOT_STARTED_SPEAKING = _row("botStartedSpeaking", "The bot starts speaking.", in_turns=True)
    BOT_STOPPED_SPEAKING = _row("botStoppedSpeaking", "The bot stops speaking.", in_turns=True)
    BOT_INTERRUPTED = _row("botInterrupted", "The bot's answer is interrupted.", in_turns=True)
    BOT_OUTPUT = _row("botOutput", "The bot has a new segment of output, or has spoken more of one.", in_turns=True)
    BOT_TRANSCRIPT = _row("botTranscript", "The bot's language model has written a sentence.")
    BOT_LLM_STARTED = _row("botLlmStarted", "The bot's language model starts a response.", in_turns=True)
    BOT_LLM_TEXT = _row("botLlmText", "The bot's language model has written a token.", in_turns=True)
    BOT_LLM_STOPPED = _row("botLlmStopped", "The bot's language model has ended a response.", in_turns=True)
    BOT_LLM_MARKER = _row("botLlmMarker", "The bot's language model has put a marker into a response; off by default.")
    BOT_LLM_SEARCH_RESPONSE = _row("botLlmSearchResponse", "The bot's language model has searched the web.")
    LLM_RAW_TEXT = _row("llmRawText", "The bot's language model has written an unprocessed token; off by default.")
    LLM_JSON_COMPLETION = _row(
        "llmJsonCompletion", "A bot of RTVI 0.3 sends JSON that its language model has written.", payload="Any"
    )
    BOT_TTS_STARTED = _row("botTtsStarted", "The bot's speech synthesis starts.")
    BOT_TTS_TEXT = _row("botTtsText", "The bot's speech synthesis speaks a word.", in_turns=True)
    BOT_TTS_AUDIO = _row("botTtsAudio", "The bot sends speech as a message, not as audio of the transport.")
    BOT_TTS_STOPPED = _row("botTtsStopped", "The bot's speech synthesis has ended.")
    TTS_RAW_TEXT = _row("ttsRawText", "The bot's speech synthesis gets an unprocessed text; off by default.")

    # Function calls
    LLM_FUNCTION_CALL = _row(
        "llmFunctionCall",
        "The bot asks the client to run a function, as bots before RTVI 1.2 do; deprecated since.",
        in_turns=True,
    )
    LLM_FUNCTION_CALL_START = _row(
        "llmFunctionCallStart", "An older bot (before RTVI 1.2) starts to call a function.", in_turns=True
    )
    LLM_FUNCTION_CALL_STARTED = _row(
        "llmFunctionCallStarted", "The bot's language model starts to call a function.", in_turns=True
    )
    LLM_FUNCTION_CALL_IN_PROGRESS = _row(
        "llmFunctionCallInProgress", "A function called by the language model is running.", in_turns=True
    )
    LLM_FUNCTION_CALL_STOPPED = _row(
        "llmFunctionCallStopped", "A function called by the language model has ended.", in_turns=True
    )

    # Messages of the application
    SERVER_MESSAGE = _row("serverMessage", "The bot's code sends a message that it defines.", payload="Any")
    SERVER_RESPONSE = _row("serverResponse", "The bot answers a client message.")
    APPEND_TO_CONTEXT_RESULT = _row("appendToContextResult", "The bot answers `append_to_context()`.")
    STORAGE_ITEM_STORED = _row("storageItemStored", "The bot has stored items.")
    UI_COMMAND = _row("uiCommand", "The bot sends a command to the user interface.")
    UI_JOB_GROUP = _row("uiJobGroup", "A group of the bot's jobs starts, makes progress or ends.")

    # Config and actions
    CONFIG = _row("config", "The bot sends its config.")
    CONFIG_UPDATED = _row(
        "configUpdated", "The bot has accepted `update_config()`; follows `config`.", payload="ConfigData"
    )
    CONFIG_DESCRIBE = _row("configDescribe", "The bot answers `describe_config()`.")
    ACTIONS_AVAILABLE = _row("actionsAvailable", "The bot answers `describe_actions()`.")
    ACTION_RESPONSE = _row("actionResponse", "The bot answers `action()`.")

    # Measurements and logs of the bot
    METRICS = _row("metrics", "The bot reports measurements.", in_turns=True)
    USER_AUDIO_LEVEL = _row("userAudioLevel", "The bot reports the level of the user's audio; off by default.")
    BOT_AUDIO_LEVEL = _row("botAudioLevel", "The bot reports the level of its own voice; off by default.")
    SYSTEM_LOG = _row("systemLog", "The bot sends a line of its log; off by default.")

    # Tracks and devices of the client
    TRACK_STARTED = _row("trackStarted", "A track of the client or the bot starts.", payload="TrackData")
    TRACK_STOPPED = _row("trackStopped", "A track of the client or the bot ends.", payload="TrackData")
    SCREEN_TRACK_STARTED = _row("screenTrackStarted", "The client starts to share a screen.", payload="TrackData")
    SCREEN_TRACK_STOPPED = _row("screenTrackStopped", "The client no longer shares a screen.", payload="TrackData")
    SCREEN_SHARE_ERROR = _row("screenShareError", "The screen cannot be shared.", payload="DeviceError")
    LOCAL_AUDIO_LEVEL = _row(
        "localAudioLevel",
        "The level of the client's microphone, a few times a second while there is a listener.",
        payload="AudioLevel",
    )
    REMOTE_AUDIO_LEVEL = _row(
        "remoteAudioLevel",
        "The level of the bot's voice, a few times a second while there is a listener.",
        payload="AudioLevel",
    )
    AVAILABLE_CAMS_UPDATED = _row(
        "availableCamsUpdated", "The list of this machine's cameras has changed.", payload="list[MediaDeviceInfo]"
    )
    AVAILABLE_MICS_UPDATED = _row(
        "availableMicsUpdated", "The list of this machine's microphones has changed.", payload="list[MediaDeviceInfo]"
    )
    AVAILABLE_SPEAKERS_UPDATED = _row(
        "availableSpeakersUpdated", "The list of this machine's speakers has changed.", payload="list[MediaDeviceInfo]"
    )
    CAM_UPDATED = _row("camUpdated", "Another camera is in use.", payload="MediaDeviceInfo")
    MIC_UPDATED = _row("micUpdated", "Another microphone is in use.", payload="MediaDeviceInfo")
    SPEAKER_UPDATED = _row("speakerUpdated", "Another speaker is in use.", payload="MediaDeviceInfo")
    DEVICE_ERROR = _row("deviceError", "A device, source or sink is missing or has failed.", payload="DeviceError")
    AUDIO_DROPPED = _row(
        "audioDropped",
        "A sink or speaker is too slow, and some of the bot's audio is lost.",
        payload="AudioDroppedData",
    )
    MEDIA_STATE_UPDATED = _row("mediaStateUpdated", "The status of a device has changed.", payload="MediaState")

    # The conversation
    TURN_STARTED = _row("turnStarted", "A conversation turn starts.", payload="Turn")
    TURN_ENDED = _row("turnEnded", "A conversation turn has ended.", payload="Turn")

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
    """Return the event named `name`.

    Args:
        name: A member, its value ("botReady"), its Python name ("bot_ready", "BOT_READY"), the wire type that causes
            it ("bot-ready"), its interface name ("BotReady") or its callback ("on_bot_ready", "onBotReady"). Aliases
            count: "bot_text" is `BOT_LLM_TEXT`.
        option: The argument's name in errors.

    Raises:
        ValueError: No event has this name. The message suggests the nearest one.
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


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Event(_WithMessage, Record, Generic[DataT]):
    """One event as a handler receives it. ``Event[BotReadyData]`` is an event whose `data` has that type.

    Attributes:
        type: The event's name.
        data: The payload: an object of a class in `rtvi_sync.messages`, plain JSON, or None.
        received_at (seconds): Time of Python's monotonic clock at receipt, or at the occurrence in the client.
        message: The bot's message that caused the event. None for events of the client.
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
