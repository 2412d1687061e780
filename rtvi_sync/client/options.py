"""The options of a client, and the forms in which they are given."""

from __future__ import annotations

import logging
import ssl
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Literal, TypedDict, TypeVar

import attrs

from ..concurrency.logs import package_logger
from ..events import RTVIEvent, event_from
from ..media.devices.audio_libraries import AUDIO_LIBRARIES
from ..media.devices.backend import AudioBackend
from ..media.kinds import CHOICES, CamChoice, MicChoice, SpeakerChoice
from ..net.dial import HTTPClient
from ..protocol.validation import (
    BOOL,
    COUNT,
    FUNCTION,
    SECONDS,
    WAIT,
    Rule,
    check_fields,
    check_names,
    check_together,
    from_mapping,
    function_taking,
    has_method,
    instance_of,
    mapping_of,
    one_of,
    positive_or_timedelta,
    snake_case,
)
from ..session.dispatcher import takes_payload
from ..session.params import APIRequest, ConnectHandler, RTVIClientParams, Seconds
from ..session.reconnect_policy import ReconnectPolicy
from ..transports.base import Transport

logger: logging.Logger = package_logger(__name__)

T = TypeVar("T")

Milliseconds = float


class RTVIEventCallbacks:
    """Functions to call for events, by their callback names: ``RTVIEventCallbacks(on_bot_ready=greet)``.

    May be subclassed instead: every method named ``on_<event>`` is a callback. A mapping is taken, too.
    """

    def __init__(self, **callbacks: Callable[..., Any]) -> None:
        for name, function in callbacks.items():
            callback_event(name)
            takes_payload(function, name)
            setattr(self, snake_case(name), function)

    def items(self) -> list[tuple[RTVIEvent, Callable[..., Any]]]:
        """Return event and function of each callback."""
        names = [name for name in dir(self) if name.startswith("on_")]
        return [(callback_event(name), getattr(self, name)) for name in names]


def callback_event(name: str) -> RTVIEvent:
    """Return the event of a callback: ``"on_bot_ready"`` or ``"onBotReady"``.

    Raises:
        TypeError: there is no such callback.
    """
    snake = snake_case(name)
    try:
        if not snake.startswith("on_"):
            raise ValueError("callbacks are named on_<event>")
        return event_from(snake)
    except ValueError as error:
        raise TypeError(f"There is no callback {name!r}: {error}") from None


def callbacks_of(
    value: RTVIEventCallbacks | Mapping[str, Callable[..., Any]] | None,
) -> list[tuple[RTVIEvent, Callable[..., Any]]]:
    """Return event and function of each of a client's callbacks."""
    if value is None:
        return []
    if isinstance(value, RTVIEventCallbacks):
        return value.items()
    mapping_of(FUNCTION).check(callbacks=value)
    return [(callback_event(name), function) for name, function in value.items()]


def _hint_at_the_unit(milliseconds: float) -> None:
    if milliseconds < 100:
        logger.warning(
            "timeout=%g means %g milliseconds, as the interface has it; for seconds pass connect_timeout=%g",
            milliseconds,
            milliseconds,
            milliseconds,
        )


def connect_limit(
    timeout: Milliseconds | timedelta | None, connect_timeout: Seconds | timedelta | None
) -> Seconds | None:
    """Return in seconds the limit that is given as `timeout` (milliseconds) or `connect_timeout` (seconds).

    Raises:
        TypeError: both are given.
    """
    if timeout is not None and connect_timeout is not None:
        raise TypeError("timeout (milliseconds) and connect_timeout (seconds) are the same limit: give one of them")
    if timeout is not None:
        if isinstance(timeout, timedelta):
            return timeout.total_seconds()
        _hint_at_the_unit(timeout)
        return timeout / 1000
    return connect_timeout.total_seconds() if isinstance(connect_timeout, timedelta) else connect_timeout


_PROXY = Rule("an HTTP proxy's URL (a str), False", lambda proxy: proxy is False or isinstance(proxy, str)).or_none


_AUDIO_BACKEND = Rule(
    '"pyaudio", "sounddevice" or an object with devices(), open_input() and open_output()',
    lambda given: (
        isinstance(given, str) or all(has_method(given, name) for name in ("devices", "open_input", "open_output"))
    ),
    lambda given: not isinstance(given, str) or given in AUDIO_LIBRARIES,
).or_none


def _is_http_client(value: object) -> bool:
    # An application that has a client has imported its library.
    libraries = sys.modules.get("httpx"), sys.modules.get("httpx2")
    return any(isinstance(value, library.Client) for library in libraries if library is not None)


_HTTP_CLIENT = Rule(
    "an httpx.Client or httpx2.Client", _is_http_client, hint="; an AsyncClient cannot be used, because calls block"
).or_none


@attrs.define(kw_only=True, field_transformer=check_together)
class RTVIClientOptions:
    """The options of a client; `RTVIClient` takes the same names as keyword arguments and documents them."""

    transport: Transport | None = attrs.field(
        default=None,
        validator=attrs.evolve(
            instance_of("an object such as WebSocketTransport()", Transport),
            hint="; for_url() and connect() take names",
        ).or_none,
    )
    params: RTVIClientParams | Mapping[str, Any] | None = attrs.field(
        default=None,
        repr=False,
        validator=instance_of("RTVIClientParams or a mapping", RTVIClientParams, Mapping).or_none,
    )
    callbacks: RTVIEventCallbacks | Mapping[str, Callable[..., Any]] | None = attrs.field(
        default=None, validator=instance_of("RTVIEventCallbacks or a mapping", RTVIEventCallbacks, Mapping).or_none
    )
    timeout: Milliseconds | timedelta | None = attrs.field(
        default=None, validator=positive_or_timedelta("milliseconds").or_none
    )
    enable_mic: bool = attrs.field(default=True, validator=BOOL)
    enable_cam: bool | None = attrs.field(default=None, validator=BOOL.or_none)
    enable_camera: bool | None = attrs.field(default=None, validator=BOOL.or_none)
    custom_connect_handler: ConnectHandler | None = attrs.field(
        default=None, validator=function_taking("params", "timeout", "abort_controller").or_none
    )
    connect_timeout: Seconds | timedelta | None = attrs.field(
        default=None, validator=positive_or_timedelta("seconds").or_none
    )
    request_timeout: Seconds | None = attrs.field(default=10.0, validator=SECONDS.or_none)
    mic: MicChoice = attrs.field(default=None, validator=CHOICES["mic"])
    speaker: SpeakerChoice = attrs.field(default=None, validator=CHOICES["speaker"])
    cam: CamChoice = attrs.field(default=None, validator=CHOICES["cam"])
    text_only: bool = attrs.field(default=False, validator=BOOL)
    echo_cancellation: bool = attrs.field(default=False, validator=BOOL)
    audio_backend: AudioBackend | Literal["pyaudio", "sounddevice"] | None = attrs.field(
        default=None, validator=_AUDIO_BACKEND
    )
    http_client: HTTPClient | None = attrs.field(default=None, validator=_HTTP_CLIENT)
    events: Literal["thread", "manual"] = attrs.field(default="thread", validator=one_of("thread", "manual"))
    ssl_context: ssl.SSLContext | None = attrs.field(
        default=None, repr=False, validator=instance_of("an ssl.SSLContext", ssl.SSLContext).or_none
    )
    proxy: str | bool | None = attrs.field(default=None, repr=False, validator=_PROXY)
    max_queued_events: int = attrs.field(default=100_000, validator=COUNT)
    max_queued_bytes: int = attrs.field(default=64 * 1024 * 1024, validator=COUNT)
    max_queued_audio_bytes: int = attrs.field(default=16 * 1024 * 1024, validator=COUNT)
    track_turns: bool = attrs.field(default=False, validator=BOOL)
    max_turn_audio: Seconds = attrs.field(default=120.0, validator=WAIT)
    reconnect: ReconnectPolicy | None = attrs.field(
        default=None, validator=instance_of("a ReconnectPolicy()", ReconnectPolicy).or_none
    )

    def __attrs_post_init__(self) -> None:
        check_fields(self)
        if self.enable_cam is not None and self.enable_camera is not None:
            raise TypeError("enable_cam and enable_camera are the same option: give one of them")
        if self.text_only:
            self._check_text_only()
        if self.echo_cancellation:
            from ..media.devices import echo_canceller

            echo_canceller.load()

    def _check_text_only(self) -> None:
        """Check that no option asks for a device, and choose none."""
        for name in ("mic", "speaker", "cam"):
            if getattr(self, name) not in (None, False):
                raise TypeError(f"text_only and {name} exclude each other: a text-only session has none. Leave one out")
            object.__setattr__(self, name, False)  # it needs no check
        for name in ("enable_cam", "enable_camera"):
            if getattr(self, name):
                raise TypeError(f"text_only and {name} exclude each other: a text-only session has none. Leave one out")


_NAMES = attrs.fields_dict(RTVIClientOptions)
# What `connect()` and `for_url()` take. They have `transport` themselves, and refuse `custom_connect_handler` by name.
_NAMES_BY_URL = dict.fromkeys(("url", "transport", "token", "headers", *_NAMES))
del _NAMES_BY_URL["custom_connect_handler"]


def check_option_names(call: str, given: Mapping[str, object], *, by_url: bool) -> None:
    """Check the names of keyword arguments.

    Args:
        call: as in ``"connect()"``.
        given: the arguments.
        by_url: True: `call` takes a URL, as `RTVIClient.for_url()`.

    Raises:
        TypeError: there is no such argument; the text has the nearest one, and all of them.
    """
    known = _NAMES_BY_URL if by_url else _NAMES
    if given.keys() <= known.keys():
        return
    check_names(call, [name for name in given if not by_url or snake_case(name) != "custom_connect_handler"], known)


class KeywordOptions(TypedDict, total=False):
    """Names and types of the options, for type checkers: the keyword arguments of all that makes a client."""

    params: RTVIClientParams | Mapping[str, Any] | None
    callbacks: RTVIEventCallbacks | Mapping[str, Callable[..., Any]] | None
    timeout: Milliseconds | timedelta | None
    enable_mic: bool
    enable_cam: bool | None
    enable_camera: bool | None
    connect_timeout: Seconds | timedelta | None
    request_timeout: Seconds | None
    mic: MicChoice
    speaker: SpeakerChoice
    cam: CamChoice
    text_only: bool
    echo_cancellation: bool
    audio_backend: AudioBackend | Literal["pyaudio", "sounddevice"] | None
    http_client: HTTPClient | None
    events: Literal["thread", "manual"]
    ssl_context: ssl.SSLContext | None
    proxy: str | bool | None
    max_queued_events: int
    max_queued_bytes: int
    max_queued_audio_bytes: int
    track_turns: bool
    max_turn_audio: Seconds
    reconnect: ReconnectPolicy | None


class ConstructorOptions(KeywordOptions, total=False):
    """The keyword arguments of the constructor, which has two more than `RTVIClient.for_url()`."""

    transport: Transport | None
    custom_connect_handler: ConnectHandler | None


def api_request(
    endpoint: str | APIRequest | Mapping[str, Any],
    request_data: Mapping[str, Any] | None,
    headers: Mapping[str, str] | None,
    timeout: Seconds | None,
) -> APIRequest:
    """Return the request for the arguments of `start_bot()`.

    Raises:
        TypeError: a whole request is given together with parts of one.
    """
    instance_of("a URL (a str), an APIRequest or a mapping", str, APIRequest, Mapping).check(endpoint=endpoint)
    if isinstance(endpoint, str):
        return APIRequest(endpoint=endpoint, request_data=request_data, headers=headers, timeout=timeout)
    if request_data is not None or headers is not None or timeout is not None:
        raise TypeError("Give start_bot() either an APIRequest or its parts: endpoint, request_data, headers, timeout")
    return from_mapping(APIRequest, endpoint, "endpoint")
