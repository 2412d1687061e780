"""The payloads of inbound messages of every session: config, `bot-ready`, errors, answers.

Import the classes from `rtvi_sync.messages`. `Payload` has the rules by which they are decoded.
"""

# No `from __future__ import annotations`, because the decoder needs the annotations as types, not as strings.

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from .decoding import ANY_SHAPE, Payload, sent_as
from .validation import STRING, instance_of, iterable, list_of

# Config


@attrs.frozen(eq=False, repr=False)
class ConfigOption(Payload):
    """One option of a service: its name and any JSON value."""

    name: str = attrs.field(validator=STRING)
    value: Any = None


_LIST = iterable("a list of options")
_OPTIONS = list_of(instance_of("a ConfigOption or a mapping", ConfigOption, Mapping), "a list of options")


def _options(options: Iterable[ConfigOption]) -> tuple[ConfigOption, ...]:
    _LIST.check(options=options)
    return tuple(options)


@attrs.frozen(eq=False, repr=False)
class RTVIClientConfigOption(Payload):
    """The options of one service, such as "llm". Both arguments may be positional."""

    service: str = attrs.field(validator=STRING)
    options: tuple[ConfigOption, ...] = attrs.field(default=(), converter=_options, validator=_OPTIONS)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ConfigData(Payload):
    """The bot's whole config, services in the bot's order."""

    config: tuple[RTVIClientConfigOption, ...]


# The bot


@attrs.frozen(kw_only=True, eq=False, repr=False)
class AboutBotData(Payload):
    """The library that the bot is built with. None if it is not sent, or not a string. Other fields are in `extra`."""

    library: str | None = attrs.field(default=None, metadata=ANY_SHAPE)
    library_version: str | None = attrs.field(default=None, metadata=ANY_SHAPE)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class BotCapabilities(Payload):
    """The capabilities of the bot in this session. None if not sent, as before protocol 2.2.

    Attributes:
        audio_in: True if the bot receives the user's audio.
        audio_out: True if the bot sends audio.
        video_in: True if the bot receives the video of the user's camera.
        screen_in: True if the bot receives the user's screen.
        video_out: True if the bot sends video.
        metrics: True if the bot reports metrics.
    """

    audio_in: bool | None = None
    audio_out: bool | None = None
    video_in: bool | None = None
    screen_in: bool | None = None
    video_out: bool | None = None
    metrics: bool | None = None


@attrs.frozen(kw_only=True, eq=False, repr=False)
class BotReadyData(Payload):
    """The bot's answer to `client-ready`.

    Attributes:
        version: The protocol version of the bot in this session ("2.2.0"). "" if not sent.
        about: The library that the bot is built with.
        capabilities: The capabilities of the bot.
        config: The bot's config. None if it sent none: bots of protocol 1.x and 2.x do not send it to this client.
    """

    version: str = ""
    # The RTVI standard leaves their shape to the server, and a wrong one must not end the session.
    about: AboutBotData = attrs.field(default=AboutBotData(), metadata=ANY_SHAPE)
    capabilities: BotCapabilities = attrs.field(default=BotCapabilities(), metadata=ANY_SHAPE)
    config: tuple[RTVIClientConfigOption, ...] | None = None


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ErrorData(Payload):
    """An error that the bot reports, on its own (`error`) or as an answer (`error-response`).

    Attributes:
        message: The bot's text. "" without one. The wire calls it "error" or "message".
        fatal: True if the bot ends the session because of it.
    """

    message: str = attrs.field(default="", metadata=sent_as("error", "message"))
    fatal: bool = False


# Answers


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ServerResponseData(Payload):
    """The answer to a `client-message`: its type `t`, and any JSON `d` (None if the bot sent none)."""

    t: str
    d: Any = None
