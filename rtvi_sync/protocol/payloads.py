"""What the `data` of an inbound message holds: one frozen class per shape, as far as bots talk to people.

Import them from `rtvi_sync.messages`. The rules by which they are decoded are those of `Payload`.
"""

# No `from __future__ import annotations` here: the decoder needs the annotations as types, not as strings.

from typing import Any

import attrs

from .decoding import ANY_SHAPE, Payload, sent_as, variant_of
from .service_payloads import RTVIClientConfigOption

# The bot


@attrs.frozen(kw_only=True)
class AboutBotData(Payload):
    """The library that the bot is built with; None where the bot does not tell, or tells something else than a text.
    What else it tells of itself is in `extra`.
    """

    library: str | None = attrs.field(default=None, metadata=ANY_SHAPE)
    library_version: str | None = attrs.field(default=None, metadata=ANY_SHAPE)


@attrs.frozen(kw_only=True)
class BotCapabilities(Payload):
    """What the bot does in this session; None where the bot does not tell (before protocol 2.2 it tells nothing).

    Attributes:
        audio_in: it hears the user.
        audio_out: it speaks.
        video_in: it sees the user's camera.
        screen_in: it sees the user's screen.
        video_out: it sends video.
        metrics: it reports metrics.
    """

    audio_in: bool | None = None
    audio_out: bool | None = None
    video_in: bool | None = None
    screen_in: bool | None = None
    video_out: bool | None = None
    metrics: bool | None = None


@attrs.frozen(kw_only=True)
class BotReadyData(Payload):
    """The bot's answer to `client-ready`.

    Attributes:
        version: the protocol version that the bot speaks in this session ("2.2.0"); "" if it does not tell.
        about: the library behind the bot.
        capabilities: what the bot does.
        config: the bot's config, or None if it sent none (bots of protocol 1.x and 2.x do not send it to this client).
    """

    version: str = ""
    # The standard leaves it to the server; and neither is worth a session.
    about: AboutBotData = attrs.field(default=AboutBotData(), metadata=ANY_SHAPE)
    capabilities: BotCapabilities = attrs.field(default=BotCapabilities(), metadata=ANY_SHAPE)
    config: tuple[RTVIClientConfigOption, ...] | None = None


@attrs.frozen(kw_only=True)
class ErrorData(Payload):
    """An error that the bot reports, on its own (`error`) or as an answer (`error-response`).

    Attributes:
        message: what went wrong, in the bot's words; "" without any. The wire calls it "error" or "message".
        fatal: True if the bot ends the session because of it.
    """

    message: str = attrs.field(default="", metadata=sent_as("error", "message"))
    fatal: bool = False


# Speech and text


@attrs.frozen(kw_only=True)
class UserInputData(Payload):
    """What the user said or typed (protocol 2.2).

    Attributes:
        text: the words.
        input_type: "transcription", "chat" (typed), or "backchannel" (an "mhm" while the bot talks).
        final: False only for a transcription that may still change.
        timestamp: ISO 8601, by the bot's clock; "" without one.
        user_id: who it was, or None if the bot does not tell.
        msg_id: for chat, the id of the `send-text` message that it acknowledges; else None.
    """

    text: str
    input_type: str
    final: bool = True
    timestamp: str = ""
    user_id: str | None = None
    msg_id: str | None = None


@attrs.frozen(kw_only=True)
class TranscriptData(Payload):
    """What the bot's speech recognition heard the user say.

    Attributes:
        text: the words.
        final: False for an interim result, which a later message replaces.
        timestamp: ISO 8601, by the bot's clock; "" without one.
        user_id: who spoke; "" if the bot does not tell.
    """

    text: str
    final: bool = True
    timestamp: str = ""
    user_id: str = ""


UserTranscriptionData = TranscriptData
"""`TranscriptData` by the name of its message, `user-transcription`."""


@attrs.frozen(kw_only=True)
class UserLLMTextData(Payload):
    """The user's text as it goes to the bot's language model."""

    text: str


@attrs.frozen(kw_only=True)
class SpokenProgressData(Payload):
    """How far the bot has come in speaking a segment: the text spoken so far, and the text still to come."""

    accumulated_text: str
    remaining_text: str


@attrs.frozen(kw_only=True)
class BotOutputData(Payload):
    """A piece of what the bot says, or a change in how far it is spoken.

    Attributes:
        text: the text of the whole segment.
        output_type: what the text is: "sentence", "word", "code", ...; None if not told. Older bots send it as
            "text_type" (Pipecat 1.13) or "aggregated_by" (before that).
        text_type: the same, by the name that some bots also send; None if not sent.
        aggregated_by: likewise.
        segment_id: relates all messages about one segment; None if not sent (before protocol 2.0).
        spoken: protocol 1.x: whether it has been spoken; None if not sent.
        will_be_spoken: protocol 2.x: whether it is meant for speech; None if not sent.
        spoken_status: protocol 2.x: "new", "in-progress", "completed"; None if not sent. "in-progress" may come before
            "new".
        spoken_progress: protocol 2.x: the parts spoken and not yet spoken, or None.
    """

    text: str
    output_type: str | None = attrs.field(default=None, metadata=sent_as("output_type", "text_type", "aggregated_by"))
    text_type: str | None = None
    aggregated_by: str | None = None
    segment_id: int | None = None
    spoken: bool | None = None
    will_be_spoken: bool | None = None
    spoken_status: str | None = None
    spoken_progress: SpokenProgressData | None = None


@attrs.frozen(kw_only=True)
class BotLLMTextData(Payload):
    """Text of the bot's language model: one token (spaces included), or a sentence of its transcription."""

    text: str


@attrs.frozen(kw_only=True)
class BotLLMMarkerData(Payload):
    """A marker that the language model put into a response and that is not spoken.

    Attributes:
        text: the marker; "" if the response had none.
        kind: what it means ("complete", "short", "long"), or None.
        raw: the response with its markers; "" if not told.
        markers: every marker the bot knows.
    """

    text: str
    kind: str | None = None
    raw: str = ""
    markers: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class LLMSearchResult(Payload):
    """A passage that a search found, and how sure the model is of it."""

    text: str
    confidence: tuple[float, ...] = ()


@attrs.frozen(kw_only=True)
class LLMSearchOrigin(Payload):
    """A site that a search used; address and title are None if not told."""

    site_uri: str | None = None
    site_title: str | None = None
    results: tuple[LLMSearchResult, ...] = ()


@attrs.frozen(kw_only=True)
class BotLLMSearchResponseData(Payload):
    """What the language model found on the web: its text, HTML to show with it (None if not sent), its sources."""

    search_result: str | None = None
    rendered_content: str | None = None
    origins: tuple[LLMSearchOrigin, ...] = ()


@attrs.frozen(kw_only=True)
class BotTTSTextData(Payload):
    """Text that is being spoken: a word without spaces, from older bots a whole sentence."""

    text: str


@attrs.frozen(kw_only=True)
class BotTTSAudioData(Payload):
    """Speech as a message: base64 of signed 16-bit little endian PCM, its rate in Hz, its channels."""

    audio: str
    sample_rate: int
    num_channels: int = 1


@attrs.frozen(kw_only=True)
class AudioLevelData(Payload):
    """How loud it is: 0.0 is silence, 1.0 the loudest."""

    value: float


@attrs.frozen(kw_only=True)
class SystemLogData(Payload):
    """A line of the bot's log."""

    text: str


# Function calls


@attrs.frozen(kw_only=True)
class LLMFunctionCallStartedData(Payload):
    """The language model begins to call a function; its name is None where the bot withholds it."""

    function_name: str | None = None


@attrs.frozen(kw_only=True)
class LLMFunctionCallInProgressData(Payload):
    """A function is running; name and arguments are None where the bot withholds them."""

    tool_call_id: str
    function_name: str | None = None
    arguments: dict[str, Any] | None = None


@attrs.frozen(kw_only=True)
class LLMFunctionCallStoppedData(Payload):
    """A function has ended. `result` is None where the bot withholds it, and where it is empty, 0 or False."""

    tool_call_id: str
    cancelled: bool = False
    function_name: str | None = None
    result: Any = None


@attrs.frozen(kw_only=True)
class LLMFunctionCallData(Payload):
    """The bot asks the client to run a function. (The wire calls the arguments "args" here.)"""

    tool_call_id: str
    function_name: str | None = None
    arguments: dict[str, Any] = attrs.field(factory=dict, metadata=sent_as("args", "arguments"))


# Messages of the application


@attrs.frozen(kw_only=True)
class ServerResponseData(Payload):
    """The answer to a `client-message`: its type `t`, and any JSON `d` (None if the bot sent none)."""

    t: str
    d: Any = None


@attrs.frozen(kw_only=True)
class AppendToContextResultData(Payload):
    """The answer to `append-to-context`: any JSON."""

    result: Any = None


@attrs.frozen(kw_only=True)
class StorageItemStoredData(Payload):
    """The bot has stored something: what it did ("append"), and with what (any JSON)."""

    action: str
    items: Any = None


@attrs.frozen(kw_only=True)
class UICommandData(Payload):
    """The bot wants the user interface to do something: a command of the application, with any JSON."""

    command: str
    payload: Any = None


# What protocol 1.3 called the jobs of a group.
_KINDS = {"task_update": "job_update", "task_completed": "job_completed"}


def _kind(kind: str) -> str:
    return _KINDS.get(kind, kind)


@attrs.frozen(kw_only=True)
class UIJobGroupData(Payload):
    """A step in the life of a group of jobs. A known `kind` comes as one of the subclasses.

    Bots of protocol 1.3 send the same as `ui-task`, of a task's agents; it is given here by its later names.

    Attributes:
        kind: "group_started", "job_update", "job_completed", "group_completed".
        job_id: the group; what `cancel_ui_job_group` takes.
        at: milliseconds since the epoch, by the bot's clock; 0 if not told.
    """

    kind: str = attrs.field(converter=_kind)
    job_id: str = attrs.field(metadata=sent_as("job_id", "task_id"))
    at: int = 0


@variant_of(UIJobGroupData, "kind", "group_started")
@attrs.frozen(kw_only=True)
class UIJobGroupStartedEnvelope(UIJobGroupData):
    """A group has begun: its workers, a label for people (or None), and whether the client may cancel it."""

    workers: tuple[str, ...] = attrs.field(default=(), metadata=sent_as("workers", "agents"))
    label: str | None = None
    cancellable: bool = True


@variant_of(UIJobGroupData, "kind", "job_update")
@variant_of(UIJobGroupData, "kind", "task_update")
@attrs.frozen(kw_only=True)
class UIJobUpdateEnvelope(UIJobGroupData):
    """A worker has got further; `data` is any JSON of its own."""

    worker_name: str = attrs.field(metadata=sent_as("worker_name", "agent_name"))
    data: Any = None


@variant_of(UIJobGroupData, "kind", "job_completed")
@variant_of(UIJobGroupData, "kind", "task_completed")
@attrs.frozen(kw_only=True)
class UIJobCompletedEnvelope(UIJobGroupData):
    """A worker has ended: status ("completed", "cancelled", "failed", "error"), and any JSON as its response."""

    worker_name: str = attrs.field(metadata=sent_as("worker_name", "agent_name"))
    status: str
    response: Any = None


@variant_of(UIJobGroupData, "kind", "group_completed")
@attrs.frozen(kw_only=True)
class UIJobGroupCompletedEnvelope(UIJobGroupData):
    """Every worker of the group has ended."""
