"""The payloads of inbound messages about the bot's services: config, actions, metrics.

Import the classes from `rtvi_sync.messages`. `Payload` has the rules by which they are decoded.
"""

# No `from __future__ import annotations`, because the decoder needs the annotations as types, not as strings.

from typing import Any

import attrs

from .decoding import Payload, sent_as

# Config


@attrs.frozen(kw_only=True)
class OptionDescription(Payload):
    """Name and type ("bool", "number", "string", "array", "object") of an option or argument; "" if not sent."""

    name: str
    type: str = ""


@attrs.frozen(kw_only=True)
class ConfigDescription(Payload):
    """The options that a service has. (The wire calls the service "name" here and "service" in a config.)"""

    service: str = attrs.field(metadata=sent_as("service", "name"))
    options: tuple[OptionDescription, ...] = ()


@attrs.frozen(kw_only=True)
class ConfigAvailableData(Payload):
    """The options of every service of the bot."""

    config: tuple[ConfigDescription, ...]


# Actions


@attrs.frozen(kw_only=True)
class ActionDescription(Payload):
    """An action of the bot, its arguments, and the type of its result ("" if not sent)."""

    service: str
    action: str
    arguments: tuple[OptionDescription, ...] = ()
    result: str = ""


@attrs.frozen(kw_only=True)
class ActionsAvailableData(Payload):
    """Every action of the bot."""

    actions: tuple[ActionDescription, ...]


@attrs.frozen(kw_only=True)
class ActionResponseData(Payload):
    """The result of an action: any JSON."""

    result: Any = None


# Metrics


@attrs.frozen(kw_only=True)
class PipecatMetricData(Payload):
    """A measurement of one processor of the bot: seconds for `ttfb` and `processing`, a count for `characters`."""

    processor: str = ""
    model: str | None = None
    value: float


@attrs.frozen(kw_only=True)
class LLMTokenUsageData(Payload):
    """Tokens of one run of the language model; 0 if not sent.

    Attributes:
        prompt_tokens: of the input. Some services include the cached ones, some do not.
        completion_tokens: of the output, reasoning included.
        total_tokens: of both, cached ones included.
        cache_read_input_tokens: of the input, those read from a cache.
        cache_creation_input_tokens: of the input, those written to a cache.
        reasoning_tokens: of the output, those spent on reasoning.
        input_audio_tokens: of the input, those of audio.
        output_audio_tokens: of the output, those of audio.
        cache_read_input_audio_tokens: of the cached input, those of audio.
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


@attrs.frozen(kw_only=True)
class TTFAMetricData(Payload):
    """Seconds to the first audible audio (`ttfa`): to the first byte (`ttfb`), and of silence after it."""

    processor: str = ""
    model: str | None = None
    ttfa: float
    ttfb: float = 0.0
    leading_silence: float = 0.0


@attrs.frozen(kw_only=True)
class TTFATMetricData(Payload):
    """Seconds to the first token of the answer (`ttfat`): to the first byte (`ttfb`), and of thinking after it."""

    processor: str = ""
    model: str | None = None
    ttfat: float
    ttfb: float = 0.0
    thinking_time: float = 0.0


@attrs.frozen(kw_only=True)
class STTUsageData(Payload):
    """Seconds of audio that speech recognition has processed since the last report."""

    audio_seconds: float = 0.0


@attrs.frozen(kw_only=True)
class STTUsageMetricData(Payload):
    """The usage of one speech recognizer of the bot."""

    processor: str = ""
    model: str | None = None
    value: STTUsageData = STTUsageData()


@attrs.frozen(kw_only=True)
class PipecatMetricsData(Payload):
    """Measurements of the bot. Each message has some kinds, or none. Unknown kinds are in `extra`."""

    ttfb: tuple[PipecatMetricData, ...] = ()
    processing: tuple[PipecatMetricData, ...] = ()
    characters: tuple[PipecatMetricData, ...] = ()
    tokens: tuple[LLMTokenUsageData, ...] = ()
    ttfa: tuple[TTFAMetricData, ...] = ()
    ttfat: tuple[TTFATMetricData, ...] = ()
    stt_usage: tuple[STTUsageMetricData, ...] = ()
