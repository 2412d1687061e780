"""The payloads of inbound messages about the bot's services: config, actions, searches, audio, levels, logs.

Import the classes from `rtvi_sync.messages`. `Payload` has the rules by which they are decoded.
"""

# No `from __future__ import annotations`, because the decoder needs the annotations as types, not as strings.

from typing import Any

import attrs

from .decoding import Payload, sent_as

# Config


@attrs.frozen(kw_only=True, eq=False, repr=False)
class OptionDescription(Payload):
    """Name and type ("bool", "number", "string", "array", "object") of an option or argument; "" if not sent."""

    name: str
    type: str = ""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ConfigDescription(Payload):
    """The options that a service has. (The wire calls the service "name" here and "service" in a config.)"""

    service: str = attrs.field(metadata=sent_as("service", "name"))
    options: tuple[OptionDescription, ...] = ()


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ConfigAvailableData(Payload):
    """The options of every service of the bot."""

    config: tuple[ConfigDescription, ...]


# Actions


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ActionDescription(Payload):
    """An action of the bot, its arguments, and the type of its result ("" if not sent)."""

    service: str
    action: str
    arguments: tuple[OptionDescription, ...] = ()
    result: str = ""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ActionsAvailableData(Payload):
    """Every action of the bot."""

    actions: tuple[ActionDescription, ...]


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ActionResponseData(Payload):
    """The result of an action: any JSON."""

    result: Any = None


# Details that bots send in addition to a conversation


@attrs.frozen(kw_only=True, eq=False, repr=False)
class BotLLMMarkerData(Payload):
    """A marker that the language model put into a response. It is not spoken.

    Attributes:
        text: The marker. "" if the response had none.
        kind: The meaning of the marker ("complete", "short", "long"), or None.
        raw: The response with its markers. "" if not sent.
        markers: Every marker the bot knows.
    """

    text: str
    kind: str | None = None
    raw: str = ""
    markers: tuple[str, ...] = ()


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LLMSearchResult(Payload):
    """A passage that a search found, and the confidence of the model."""

    text: str
    confidence: tuple[float, ...] = ()


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LLMSearchOrigin(Payload):
    """A site that a search used; address and title are None if not sent."""

    site_uri: str | None = None
    site_title: str | None = None
    results: tuple[LLMSearchResult, ...] = ()


@attrs.frozen(kw_only=True, eq=False, repr=False)
class BotLLMSearchResponseData(Payload):
    """The result of a web search by the language model: text, HTML to show with it (None if not sent), sources."""

    search_result: str | None = None
    rendered_content: str | None = None
    origins: tuple[LLMSearchOrigin, ...] = ()


@attrs.frozen(kw_only=True, eq=False, repr=False)
class BotTTSAudioData(Payload):
    """Speech as a message: base64 of signed 16-bit little endian PCM, its rate in Hz, its channels."""

    audio: str
    sample_rate: int
    num_channels: int = 1


@attrs.frozen(kw_only=True, eq=False, repr=False)
class AudioLevelData(Payload):
    """An audio level: 0.0 is silence, 1.0 the maximum."""

    value: float


@attrs.frozen(kw_only=True, eq=False, repr=False)
class SystemLogData(Payload):
    """A line of the bot's log."""

    text: str
