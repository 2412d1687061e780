"""The payloads of inbound messages about the speech of user and bot.

Import the classes from `rtvi_sync.messages`. `Payload` has the rules by which they are decoded.
"""

# No `from __future__ import annotations`, because the decoder needs the annotations as types, not as strings.

import attrs

from .decoding import Payload, sent_as


@attrs.frozen(kw_only=True)
class UserInputData(Payload):
    """Speech or text input of the user (protocol 2.2).

    Attributes:
        text: the words.
        input_type: "transcription", "chat" (typed), or "backchannel" (an "mhm" while the bot talks).
        final: False only for a transcription that may still change.
        timestamp: ISO 8601, by the bot's clock; "" without one.
        user_id: the id of the user; None if not sent.
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
    """A result of the bot's speech recognition.

    Attributes:
        text: the words.
        final: False for an interim result, which a later message replaces.
        timestamp: ISO 8601, by the bot's clock; "" without one.
        user_id: the id of the user; "" if not sent.
    """

    text: str
    final: bool = True
    timestamp: str = ""
    user_id: str = ""


UserTranscriptionData = TranscriptData
"""`TranscriptData` by the name of its message, `user-transcription`."""


@attrs.frozen(kw_only=True)
class UserLLMTextData(Payload):
    """The user's text as the bot's language model receives it."""

    text: str


@attrs.frozen(kw_only=True)
class SpokenProgressData(Payload):
    """The bot's progress in speaking a segment: the text spoken so far, and the remaining text."""

    accumulated_text: str
    remaining_text: str


@attrs.frozen(kw_only=True)
class BotOutputData(Payload):
    """A segment of the bot's output, or a change of its status or progress.

    Attributes:
        text: the text of the whole segment.
        output_type: the kind of the text: "sentence", "word", "code", ...; None if not sent. Older bots send it as
            "text_type" (Pipecat 1.13) or "aggregated_by" (before that).
        text_type: the same kind, by a name that some bots send too; None if not sent.
        aggregated_by: the same kind, by another such name; None if not sent.
        segment_id: the same in all messages about one segment; None if not sent (before protocol 2.0).
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
        kind: its meaning ("complete", "short", "long"), or None.
        raw: the response with its markers; "" if not sent.
        markers: every marker the bot knows.
    """

    text: str
    kind: str | None = None
    raw: str = ""
    markers: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class LLMSearchResult(Payload):
    """A passage that a search found, and the confidence of the model."""

    text: str
    confidence: tuple[float, ...] = ()


@attrs.frozen(kw_only=True)
class LLMSearchOrigin(Payload):
    """A site that a search used; address and title are None if not sent."""

    site_uri: str | None = None
    site_title: str | None = None
    results: tuple[LLMSearchResult, ...] = ()


@attrs.frozen(kw_only=True)
class BotLLMSearchResponseData(Payload):
    """The result of a web search by the language model: text, HTML to show with it (None if not sent), sources."""

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
    """An audio level: 0.0 is silence, 1.0 the maximum."""

    value: float


@attrs.frozen(kw_only=True)
class SystemLogData(Payload):
    """A line of the bot's log."""

    text: str
