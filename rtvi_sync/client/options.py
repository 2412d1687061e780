"""The options of a client, and the forms in which they are given."""

from __future__ import annotations

import inspect
import logging
import ssl
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import attrs

from ..concurrency.logs import package_logger
from ..events import RTVIEvent, event_from
from ..media.devices.audio_libraries import AUDIO_LIBRARIES
from ..media.devices.backend import AudioBackend
from ..media.kinds import CHOICES, CamChoice, MicChoice, SpeakerChoice
from ..protocol.record import MutableRecord
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
from ..session.event_bus import takes_payload
from ..session.params import APIRequest, ConnectHandler, RTVIClientParams, Seconds
from ..session.reconnect_policy import ReconnectPolicy
from ..transports.base import Transport

if TYPE_CHECKING:
    from ..net.http import HTTPClient

logger: logging.Logger = package_logger(__name__)

T = TypeVar("T")

Milliseconds = float

_TEXT = "text"  # the key in the metadata of an option's field


class RTVIEventCallbacks:
    """Functions to call for events, by their callback names: ``RTVIEventCallbacks(on_bot_ready=greet)``.

    May also be subclassed: then every method named ``on_<event>`` is a callback. A mapping may be given instead.
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
        TypeError: There is no such callback.
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


# A limit in seconds within which no bot gets ready: it was probably given in the wrong unit.
TOO_LITTLE: Seconds = 0.1


def _hint_at_the_unit(milliseconds: float) -> None:
    if milliseconds < 1000 * TOO_LITTLE:
        logger.warning(
            "timeout=%g means %g milliseconds, as the interface has it; for seconds pass connect_timeout=%g",
            milliseconds,
            milliseconds,
            milliseconds,
        )


def connect_limit(
    timeout: Milliseconds | timedelta | None, connect_timeout: Seconds | timedelta | None
) -> Seconds | None:
    """Return the limit in seconds, from either `timeout` (milliseconds) or `connect_timeout` (seconds).

    Raises:
        TypeError: Both are given.
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
    # An application that has an HTTP client has imported its library.
    libraries = sys.modules.get("httpx"), sys.modules.get("httpx2")
    return any(isinstance(value, library.Client) for library in libraries if library is not None)


#: Rule for an application's own client.
HTTP_CLIENT = Rule(
    "an httpx.Client or httpx2.Client", _is_http_client, hint="; an AsyncClient cannot be used, because calls block"
).or_none


def _says(text: str) -> dict[str, str]:
    """Return the metadata of an option: the text in the docstring of `RTVIClient` and on the page of options."""
    return {_TEXT: text}


@attrs.define(kw_only=True, field_transformer=check_together, eq=False, repr=False)
class RTVIClientOptions(MutableRecord):
    """The options of a client; `RTVIClient` takes the same names as keyword arguments and documents them."""

    transport: Transport | None = attrs.field(
        default=None,
        validator=attrs.evolve(
            instance_of("an object such as WebSocketTransport()", Transport),
            hint="; for_url() and connect() take names",
        ).or_none,
        metadata=_says("Carries the sessions. None: only `start_bot()` and single actions over HTTP work."),
    )
    params: RTVIClientParams | Mapping[str, Any] | None = attrs.field(
        default=None,
        repr=False,
        validator=instance_of("RTVIClientParams or a mapping", RTVIClientParams, Mapping).or_none,
        metadata=_says("Parameters of the requests to your server; see `RTVIClientParams`."),
    )
    callbacks: RTVIEventCallbacks | Mapping[str, Callable[..., Any]] | None = attrs.field(
        default=None,
        validator=instance_of("RTVIEventCallbacks or a mapping", RTVIEventCallbacks, Mapping).or_none,
        metadata=_says("Functions to call for events, by callback name (`on_bot_ready`)."),
    )
    timeout: Milliseconds | timedelta | None = attrs.field(
        default=None,
        validator=positive_or_timedelta("milliseconds").or_none,
        metadata=_says("Limit of `connect()` in MILLISECONDS, from the call until the bot is ready. None: no limit."),
    )
    enable_mic: bool = attrs.field(
        default=True, validator=BOOL, metadata=_says("True: the microphone is on at the start.")
    )
    enable_cam: bool | None = attrs.field(
        default=None, validator=BOOL.or_none, metadata=_says("True: the camera is on at the start.")
    )
    enable_camera: bool | None = attrs.field(
        default=None, validator=BOOL.or_none, metadata=_says("Another name for `enable_cam`.")
    )
    custom_connect_handler: ConnectHandler | None = attrs.field(
        default=None,
        validator=function_taking("params", "timeout", "abort_controller").or_none,
        metadata=_says(
            "Makes the connect request: `handler(params, timeout, abort_controller)` returns the transport's "
            "parameters. It runs on the connect thread."
        ),
    )
    connect_timeout: Seconds | timedelta | None = attrs.field(
        default=None,
        validator=positive_or_timedelta("seconds").or_none,
        metadata=_says("The same limit as `timeout`, in seconds."),
    )
    request_timeout: Seconds | None = attrs.field(
        default=10.0,
        validator=SECONDS.or_none,
        metadata=_says(
            "Limit in seconds of `send_client_request()` and of calls for config and actions, unless a call is given "
            "another. None: no limit."
        ),
    )
    mic: MicChoice = attrs.field(
        default=None,
        validator=CHOICES["mic"],
        metadata=_says(
            "None: the system's default microphone. False: none. Otherwise a device or its id, a source, an audio file "
            "as a `Path`, which `connect()` opens, or a function as of `CallbackSource` (16 kHz)."
        ),
    )
    speaker: SpeakerChoice = attrs.field(
        default=None,
        validator=CHOICES["speaker"],
        metadata=_says(
            "None: the system's default speaker. False: none. Otherwise a device or its id, a sink, a WAV file to "
            "write as a `Path`, which `connect()` opens, or a function as of `CallbackSink`."
        ),
    )
    cam: CamChoice = attrs.field(
        default=None,
        validator=CHOICES["cam"],
        metadata=_says("None: the system's default camera. False: none. Otherwise a device or its id, or a source."),
    )
    text_only: bool = attrs.field(
        default=False,
        validator=BOOL,
        metadata=_says("True: no microphone, speaker or camera. The client doesn't look for devices."),
    )
    echo_cancellation: bool = attrs.field(
        default=False,
        validator=BOOL,
        metadata=_says(
            "True: remove the bot's voice and noise from the microphone's audio, so that the bot doesn't hear itself "
            "through a loudspeaker. Only if microphone and speaker are the machine's. Needs the extra `aec`."
        ),
    )
    audio_backend: AudioBackend | Literal["pyaudio", "sounddevice"] | None = attrs.field(
        default=None,
        validator=_AUDIO_BACKEND,
        metadata=_says(
            'The library for microphones and speakers, "pyaudio" or "sounddevice", or an object of your own with the '
            "methods of `rtvi_sync.media.devices.backend.AudioBackend`. None: PyAudio if it is installed, else "
            "sounddevice."
        ),
    )
    http_client: HTTPClient | None = attrs.field(
        default=None,
        validator=HTTP_CLIENT,
        metadata=_says(
            "Your own `httpx.Client` or `httpx2.Client`, for the connect request and actions without a session. The "
            "`RTVIClient` never closes it."
        ),
    )
    events: Literal["thread", "manual"] = attrs.field(
        default="thread",
        validator=one_of("thread", "manual"),
        metadata=_says(
            '"thread": handlers run on a thread of the package. "manual": only inside `process_events()`, `wait_for()` '
            "and `events()`."
        ),
    )
    ssl_context: ssl.SSLContext | None = attrs.field(
        default=None,
        repr=False,
        validator=instance_of("an ssl.SSLContext", ssl.SSLContext).or_none,
        metadata=_says("For HTTPS and WSS. None: certificates are verified against certifi's authorities."),
    )
    proxy: str | bool | None = attrs.field(
        default=None,
        repr=False,
        validator=_PROXY,
        metadata=_says("URL of an HTTP proxy for both. None: from the environment. False: none."),
    )
    max_queued_events: int = attrs.field(
        default=100_000,
        validator=COUNT,
        metadata=_says("Limit of the number of queued events. Beyond it the session ends."),
    )
    max_queued_bytes: int = attrs.field(
        default=64 * 1024 * 1024,
        validator=COUNT,
        metadata=_says("Limit of the size of queued events, in bytes. 64 MiB by default. Beyond it the session ends."),
    )
    max_queued_audio_bytes: int = attrs.field(
        default=16 * 1024 * 1024,
        validator=COUNT,
        metadata=_says(
            "Limit of the bot's audio that waits for a slow sink, in bytes. Beyond it the oldest audio is dropped. The "
            "default of 16 MiB holds several minutes."
        ),
    )
    track_turns: bool = attrs.field(
        default=True,
        validator=BOOL,
        metadata=_says(
            "False: the client doesn't follow turns, which saves some microseconds per event. Then `ask()`, `listen()` "
            "and everything else about turns raise `UnsupportedFeatureError`."
        ),
    )
    max_turn_audio: Seconds = attrs.field(
        default=120.0,
        validator=WAIT,
        metadata=_says("Seconds of the bot's audio that each turn keeps. 0: turns keep no audio at all."),
    )
    reconnect: ReconnectPolicy | None = attrs.field(
        default=None,
        validator=instance_of("a ReconnectPolicy()", ReconnectPolicy).or_none,
        metadata=_says(
            "When to replace a lost session whose bot was ready, and how often to try. None: never. See "
            "`ReconnectPolicy`; docs/guides/reconnecting.md says which state is kept."
        ),
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
#: The options that `connect()` and `for_url()` don't take: one is a parameter of theirs, the other excludes a URL.
NOT_BY_URL = ("transport", "custom_connect_handler")
_NAMES_BY_URL = dict.fromkeys(("url", "transport", "token", "headers", *(n for n in _NAMES if n not in NOT_BY_URL)))


def option_texts() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each option."""
    for name, field in _NAMES.items():
        yield name, field.metadata[_TEXT]


def documents_options(cls: type[T]) -> type[T]:
    """Add the options to the `Args` of a class's docstring."""
    if cls.__doc__ is not None:  # python -OO
        above, raises, below = inspect.cleandoc(cls.__doc__).partition("\n\nRaises:\n")
        form = textwrap.TextWrapper(112, initial_indent="    ", subsequent_indent="        ")
        texts = (form.fill(f"{name}: {text}") for name, text in option_texts())
        cls.__doc__ = "\n".join([above, *texts]) + raises + below
    return cls


def check_option_names(call: str, given: Mapping[str, object], *, by_url: bool) -> None:
    """Check the names of keyword arguments.

    Args:
        call: The call's name, as in ``"connect()"``.
        given: The arguments.
        by_url: True if `call` takes a URL, like `RTVIClient.for_url()`.

    Raises:
        TypeError: There is no such argument. The text has the nearest one, and all of them.
    """
    known = _NAMES_BY_URL if by_url else _NAMES
    if given.keys() <= known.keys():
        return
    check_names(call, [name for name in given if not by_url or snake_case(name) != "custom_connect_handler"], known)


def api_request(
    endpoint: str | APIRequest | Mapping[str, Any],
    request_data: Mapping[str, Any] | None,
    headers: Mapping[str, str] | None,
    timeout: Seconds | None,
) -> APIRequest:
    """Return the request for the arguments of `start_bot()`.

    Raises:
        TypeError: A whole request is given together with parts of one.
    """
    instance_of("a URL (a str), an APIRequest or a mapping", str, APIRequest, Mapping).check(endpoint=endpoint)
    if isinstance(endpoint, str):
        return APIRequest(endpoint=endpoint, request_data=request_data, headers=headers, timeout=timeout)
    if request_data is not None or headers is not None or timeout is not None:
        raise TypeError("Give start_bot() either an APIRequest or its parts: endpoint, request_data, headers, timeout")
    return from_mapping(APIRequest, endpoint, "endpoint")
