"""The payloads of inbound messages that conversation turns are made of: speech, function calls, metrics.

Import the classes from `rtvi_sync.messages`. `Payload` has the rules by which they are decoded.
"""

# No `from __future__ import annotations`, because the decoder needs the annotations as types, not as strings.

from typing import Any

import attrs

from .decoding import Payload, sent_as

# Speech


@attrs.frozen(kw_only=True, eq=False, repr=False)
class UserInputData(Payload):
    """Speech or text input of the user (protocol 2.2).

    Attributes:
        text: The words.
        input_type: "transcription", "chat" (typed), or "backchannel" (an "mhm" while the bot talks).
        final: False only for a transcription that may still change.
        timestamp: ISO 8601, by the bot's clock. "" without one.
        user_id: The id of the user. None if not sent.
        msg_id: For chat, the id of the `send-text` message that it acknowledges. Else None.
    """

    text: str
    input_type: str
    final: bool = True
    timestamp: str = ""
    user_id: str | None = None
    msg_id: str | None = None


@attrs.frozen(kw_only=True, eq=False, repr=False)
class TranscriptData(Payload):
    """A result of the bot's speech recognition.

    Attributes:
        text: The words.
        final: False for an interim result, which a later message replaces.
        timestamp: ISO 8601, by the bot's clock. "" without one.
        user_id: The id of the user. "" if not sent.
    """

    text: str
    final: bool = True
    timestamp: str = ""
    user_id: str = ""


UserTranscriptionData = TranscriptData
"""`TranscriptData` by the name of its message, `user-transcription`."""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class UserLLMTextData(Payload):
    """The user's text as the bot's language model receives it."""

    text: str


@attrs.frozen(kw_only=True, eq=False, repr=False)
class SpokenProgressData(Payload):
    """The bot's progress in speaking a segment: the text spoken so far, and the remaining text."""

    accumulated_text: str
    remaining_text: str


@attrs.frozen(kw_only=True, eq=False, repr=False)
class BotOutputData(Payload):
    """A segment of the bot's output, or a change of its status or progress.

    Attributes:
        text: The text of the whole segment.
        output_type: The kind of the text: "sentence", "word", "code", ... None if not sent. Older bots send it as
            "text_type" (Pipecat 1.13) or "aggregated_by" (before that).
        text_type: The same kind, by a name that some bots send too. None if not sent.
        aggregated_by: The same kind, by another such name. None if not sent.
        segment_id: The same in all messages about one segment. None if not sent (before protocol 2.0).
        spoken: Protocol 1.x: whether it has been spoken. None if not sent.
        will_be_spoken: Protocol 2.x: whether it is meant for speech. None if not sent.
        spoken_status: Protocol 2.x: "new", "in-progress", "completed". None if not sent. "in-progress" may arrive
            before "new".
        spoken_progress: Protocol 2.x: the parts spoken and not yet spoken, or None.
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


@attrs.frozen(kw_only=True, eq=False, repr=False)
class BotLLMTextData(Payload):
    """Text of the bot's language model: one token (spaces included), or a sentence of its transcription."""

    text: str


@attrs.frozen(kw_only=True, eq=False, repr=False)
class BotTTSTextData(Payload):
    """Text that is being spoken: a word without spaces, from older bots a whole sentence."""

    text: str


# Function calls


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LLMFunctionCallStartedData(Payload):
    """The language model starts a function call. The name is None if the bot withholds it."""

    function_name: str | None = None


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LLMFunctionCallInProgressData(Payload):
    """A function is running. Name and arguments are None if the bot withholds them."""

    tool_call_id: str
    function_name: str | None = None
    arguments: dict[str, Any] | None = None


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LLMFunctionCallStoppedData(Payload):
    """A function has ended. `result` is None if the bot withholds it, or if it is empty, 0 or False."""

    tool_call_id: str
    cancelled: bool = False
    function_name: str | None = None
    result: Any = None


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LLMFunctionCallData(Payload):
    """The bot asks the client to run a function. (The wire calls the arguments "args" here.)"""

    tool_call_id: str
    function_name: str | None = None
    arguments: dict[str, Any] = attrs.field(factory=dict, metadata=sent_as("args", "arguments"))


# Metrics


@attrs.frozen(kw_only=True, eq=False, repr=False)
class PipecatMetricData(Payload):
    """A measurement of one processor of the bot: seconds for `ttfb` and `processing`, a count for `characters`."""

    processor: str = ""
    model: str | None = None
    value: float


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LLMTokenUsageData(Payload):
    """Tokens of one run of the language model. 0 if not sent.

    Attributes:
        prompt_tokens: Tokens of the input. Some services include cached tokens, some do not.
        completion_tokens: Tokens of the output, including reasoning.
        total_tokens: Tokens of both, including cached tokens.
        cache_read_input_tokens: Input tokens read from a cache.
        cache_creation_input_tokens: Input tokens written to a cache.
        reasoning_tokens: Output tokens spent on reasoning.
        input_audio_tokens: Input tokens of audio.
        output_audio_tokens: Output tokens of audio.
        cache_read_input_audio_tokens: Cached input tokens of audio.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    reasoning_tokens: int = 0
    input_audio_tokens: int = 0
    output_audio_tokens: int = 0
    cache_read_input_audio_tokens: int = 0


@attrs.frozen(kw_only=True, eq=False, repr=False)
class TTFAMetricData(Payload):
    """Seconds to the first audible audio (`ttfa`): to the first byte (`ttfb`), and of silence after it."""

    processor: str = ""
    model: str | None = None
    ttfa: float
    ttfb: float = 0.0
    leading_silence: float = 0.0


@attrs.frozen(kw_only=True, eq=False, repr=False)
class TTFATMetricData(Payload):
    """Seconds to the first token of the answer (`ttfat`): to the first byte (`ttfb`), and of thinking after it."""

    processor: str = ""
    model: str | None = None
    ttfat: float
    ttfb: float = 0.0
    thinking_time: float = 0.0


@attrs.frozen(kw_only=True, eq=False, repr=False)
class STTUsageData(Payload):
    """Seconds of audio that speech recognition has processed since the last report."""

    audio_seconds: float = 0.0


@attrs.frozen(kw_only=True, eq=False, repr=False)
class STTUsageMetricData(Payload):
    """The usage of one speech recognizer of the bot."""

    processor: str = ""
    model: str | None = None
    value: STTUsageData = STTUsageData()


@attrs.frozen(kw_only=True, eq=False, repr=False)
class PipecatMetricsData(Payload):
    """Measurements of the bot. Each message has some kinds, or none. Unknown kinds are in `extra`."""

    ttfb: tuple[PipecatMetricData, ...] = ()
    processing: tuple[PipecatMetricData, ...] = ()
    characters: tuple[PipecatMetricData, ...] = ()
    tokens: tuple[LLMTokenUsageData, ...] = ()
    ttfa: tuple[TTFAMetricData, ...] = ()
    ttfat: tuple[TTFATMetricData, ...] = ()
    stt_usage: tuple[STTUsageMetricData, ...] = ()
