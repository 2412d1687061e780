"""What a client is made with, and the mutable parameters of its requests."""

from __future__ import annotations

import logging
import re
import ssl
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

import attrs

from ._validation import (
    BOOL,
    COUNT,
    FUNCTION,
    MAPPING,
    SECONDS,
    STRING,
    STRINGS,
    URL,
    Rule,
    described,
    instance_of,
    list_of,
    mapping_of,
    one_of,
    positive_or_timedelta,
)
from .concurrency.cancel import AbortController
from .concurrency.deadline import Deadline
from .errors import ConnectionTimeoutError, DisconnectedError, RTVIError, StartBotError, TransportStartError
from .events import RTVIEvent, event_from
from .media import AudioSink, AudioSource, MediaDeviceInfo, VideoSource
from .media.kinds import CHOICES
from .messages import RTVIClientConfigOption
from .protocol.config import as_json
from .transports.base import Transport
from .transports.net import printable

if TYPE_CHECKING:
    import httpx

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

Milliseconds = float
Seconds = float


def snake_case(name: str) -> str:
    """``"requestData"`` → ``"request_data"``, ``"onLLMText"`` → ``"on_llm_text"``; snake_case stays as it is."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def from_mapping(cls: type[T], value: T | Mapping[str, Any], name: str) -> T:
    """An object of the attrs class `cls`: `value` itself, or made of a mapping with snake_case or camelCase keys.

    Args:
        cls: the class.
        value: of an option.
        name: of that option.

    Raises:
        TypeError: an unknown key, or neither mapping nor object.
        TypeError, ValueError: a key has a wrong value; the error names the key as it is spelt in the mapping.
    """
    if isinstance(value, cls):
        return value
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be {cls.__name__} or a mapping, not {described(value)}")
    MAPPING.check_one(name, value)
    fields = {field.alias: field for field in attrs.fields(cls)}  # type: ignore[arg-type]
    given = {snake_case(key): item for key, item in value.items()}
    if len(given) < len(value):
        raise TypeError(f"{cls.__name__} is given one of {', '.join(value)} in two spellings")
    unknown = sorted(set(given) - set(fields))
    if unknown:
        raise TypeError(f"{cls.__name__} has no {', '.join(unknown)}; it has {', '.join(fields)}")
    for key, item in value.items():
        rule = fields[snake_case(key)].validator
        if isinstance(rule, Rule):  # the class would name the field instead
            rule.check_one(key, item)
    return cls(**given)


def _names_only(value: Mapping[str, Any] | None) -> str:
    """A repr that tells what is there and no value: headers and request data hold credentials."""
    return "None" if value is None else "{" + ", ".join(f"{key!r}: ..." for key in value) + "}"


def _url_shown(url: str | None) -> str:
    """A repr without what may be a credential: user, password, query and fragment."""
    return "None" if url is None else repr(printable(url) + ("?..." if "?" in url else ""))


def _dict_or_none(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return dict(value) if isinstance(value, Mapping) else value


@attrs.define(kw_only=True)
class Endpoints:
    """Paths below `base_url`. None: there is no such endpoint, and no request is made."""

    connect: str | None = attrs.field(default="connect/", repr=_url_shown, validator=STRING.or_none)
    action: str | None = attrs.field(default="action/", repr=_url_shown, validator=STRING.or_none)


def _endpoints(value: Endpoints | Mapping[str, Any] | None) -> Endpoints:
    if value is None:
        return Endpoints()
    return from_mapping(Endpoints, value, "endpoints") if isinstance(value, Mapping) else value


_SERVICE = instance_of("a RTVIClientConfigOption or a mapping", RTVIClientConfigOption, Mapping)


@attrs.define(kw_only=True)
class RTVIClientParams:
    """Parameters of the requests to the server. May be changed at any time; each request reads them afresh.

    Attributes:
        base_url: URL of the developer's API, or None.
        endpoints: paths below it.
        request_data: sent with every request, as fields of its JSON body.
        headers: sent with every request to `base_url`, and never to the WebSocket.
        config: pipeline configuration for bots that take one: a list of services; their order matters.
        services: service key to provider, for servers that choose by it.
    """

    base_url: str | None = attrs.field(default=None, repr=_url_shown, validator=URL.or_none)
    endpoints: Endpoints = attrs.field(
        factory=Endpoints,
        converter=_endpoints,
        validator=instance_of("Endpoints or a mapping", Endpoints, Mapping).or_none,
    )
    request_data: dict[str, Any] | None = attrs.field(
        default=None, converter=_dict_or_none, repr=_names_only, validator=MAPPING.or_none
    )
    headers: dict[str, str] | None = attrs.field(
        default=None, converter=_dict_or_none, repr=_names_only, validator=STRINGS.or_none
    )
    config: list[Any] | None = attrs.field(
        default=None, repr=False, validator=list_of(_SERVICE, "a list of services").or_none
    )
    services: dict[str, str] | None = attrs.field(default=None, converter=_dict_or_none, validator=STRINGS.or_none)

    def config_as_json(self) -> list[Any]:
        """`config` as JSON has it; entries may be `RTVIClientConfigOption` objects or mappings of that shape.

        Raises:
            TypeError: it is no config; the message says where.
        """
        return as_json(self.config or [])

    def construct_url(self, endpoint: str) -> str:
        """`base_url` and an endpoint, joined with exactly one slash; a query of the base is kept.

        Args:
            endpoint: "connect", "action", or a path.

        Raises:
            RTVIError: `base_url` is missing, or the endpoint is None.
        """
        STRING.check(endpoint=endpoint)
        if not self.base_url:
            raise RTVIError(
                "There is no base_url to make a URL with: set client.params.base_url to your server, "
                "such as 'https://api.example/v1'"
            )
        path = getattr(self.endpoints, endpoint) if endpoint in ("connect", "action") else endpoint
        if path is None:
            raise RTVIError(f"params.endpoints.{endpoint} is None: there is no such endpoint")
        parts = urlsplit(self.base_url)
        path, _, query = path.partition("?")
        return parts._replace(
            path=f"{parts.path.rstrip('/')}/{path.lstrip('/')}",
            query="&".join(part for part in (parts.query, query) if part),
            fragment="",
        ).geturl()


@attrs.frozen
class APIRequest:
    """A request that starts a bot, for `start_bot()`.

    Attributes:
        endpoint: its URL.
        headers: added to, and winning over, those of the client's parameters.
        request_data: fields of the JSON body; as above.
        timeout: seconds; None: the client's connect timeout.
    """

    endpoint: str = attrs.field(repr=_url_shown, validator=URL)
    headers: Mapping[str, str] | None = attrs.field(
        default=None, converter=_dict_or_none, repr=_names_only, validator=STRINGS.or_none
    )
    request_data: Mapping[str, Any] | None = attrs.field(
        default=None, converter=_dict_or_none, repr=_names_only, validator=MAPPING.or_none
    )
    timeout: Seconds | None = attrs.field(default=None, validator=SECONDS.or_none)


class ConnectTimeout:
    """The time-out that a custom connect handler gets, as the interface has it.

    `clear()` ends the handler's own limit; the one of `connect()` runs on until the bot is ready, so there is nothing
    that the handler could leave hanging.
    """

    def __init__(self, deadline: Deadline) -> None:
        self._deadline: Deadline | None = deadline

    def clear(self) -> None:
        """The handler's request has settled."""
        self._deadline = None

    def remaining(self) -> float | None:
        """Seconds left; None without a limit, or after `clear()`."""
        deadline = self._deadline
        return deadline.remaining() if deadline is not None else None


ConnectHandler: TypeAlias = Callable[[RTVIClientParams, ConnectTimeout, AbortController], Any]


class RTVIEventCallbacks:
    """Functions to call for events, by their callback names: ``RTVIEventCallbacks(on_bot_ready=greet)``.

    May be subclassed instead: every method named ``on_<event>`` is a callback. A mapping does as well wherever one is
    taken.
    """

    def __init__(self, **callbacks: Callable[..., Any]) -> None:
        for name, function in callbacks.items():
            callback_event(name)
            FUNCTION.check_one(name, function)
            setattr(self, snake_case(name), function)

    def items(self) -> list[tuple[RTVIEvent, Callable[..., Any]]]:
        """Event and function of each callback."""
        names = [name for name in dir(self) if name.startswith("on_")]
        return [(callback_event(name), getattr(self, name)) for name in names]


def callback_event(name: str) -> RTVIEvent:
    """The event of a callback: ``"on_bot_ready"`` or ``"onBotReady"``.

    Raises:
        TypeError: there is no such callback.
    """
    snake = snake_case(name)
    try:
        if not snake.startswith("on_"):
            raise ValueError("callbacks are named on_<event>")
        return event_from(snake.removeprefix("on_"))
    except ValueError as error:
        raise TypeError(f"There is no callback {name!r}: {error}") from None


def callbacks_of(
    value: RTVIEventCallbacks | Mapping[str, Callable[..., Any]] | None,
) -> list[tuple[RTVIEvent, Callable[..., Any]]]:
    """Event and function of each of a client's callbacks."""
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
    """The one limit that `timeout` (milliseconds) and `connect_timeout` (seconds) are two spellings of, in seconds.

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


def is_transient(error: BaseException) -> bool:
    """True if the same attempt may well succeed a little later.

    So are: a line that broke, a server that goes away or restarts (close codes 1001, 1006 and 1011 to 1014, HTTP 408,
    425, 429 and 5xx), a limit that passed. Not so are: a bot that ended the session (Pipecat closes with 1000 however
    it ends), a fatal error of the bot, a server that refuses (401, 404 and so on), a certificate that is refused, a
    broken protocol, and whatever this program itself did.
    """
    instance_of("an exception", BaseException).check(error=error)
    if isinstance(error, DisconnectedError):
        return error.initiator == "network" or (error.initiator == "server" and error.code in _PASSING_CODES)
    if isinstance(error, (StartBotError, TransportStartError)):
        if _is_caused_by(error, ssl.SSLCertVerificationError):
            return False
        return error.status is None or error.status in _PASSING_STATUSES or error.status >= 500
    return isinstance(error, ConnectionTimeoutError)


def _is_caused_by(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error is not None


_PASSING_CODES = (1001, 1006, 1011, 1012, 1013, 1014)
_PASSING_STATUSES = (408, 425, 429)


@attrs.frozen(kw_only=True)
class ReconnectPolicy:
    """When a session that was ready and is lost is to be replaced by a new one, and how often that is tried.

    The delay before attempt n is chosen at random between 0 and ``min(max_delay, initial_delay * 2 ** (n - 1))``
    seconds ("full jitter"), so that the clients of a server that restarts do not all come back at once.

    Attributes:
        max_attempts: attempts to replace one lost session; None: no limit.
        max_elapsed: seconds after which no further attempt begins; None: no limit.
        initial_delay, max_delay: seconds; see above.
        stable_after: seconds after which a new session counts as good. One that is lost sooner is one more failed
            attempt, so a server that lets everybody in and out again is not hammered.
        retry_on: decides, given the error of a lost session (`DisconnectedError`) or of a failed attempt, whether to go
            on. None: `is_transient`, which lists what it lets pass. Asked once for each, on a thread of the package;
            the `disconnected` of a lost session waits for the answer.
    """

    max_attempts: int | None = attrs.field(
        default=10, validator=COUNT.or_none.but("to make no attempt leave reconnect= out")
    )
    max_elapsed: Seconds | None = attrs.field(default=None, validator=SECONDS.or_none)
    initial_delay: Seconds = attrs.field(default=0.5, validator=SECONDS)
    max_delay: Seconds = attrs.field(default=30.0, validator=SECONDS)
    stable_after: Seconds = attrs.field(default=30.0, validator=SECONDS)
    retry_on: Callable[[BaseException], bool] | None = attrs.field(default=None, validator=FUNCTION.or_none)


_PROXY = Rule("an HTTP proxy's URL (a str), False", lambda proxy: proxy is False or isinstance(proxy, str)).or_none


def _is_http_client(value: object) -> bool:
    httpx = sys.modules.get("httpx")  # an application that has a client has imported it
    return httpx is not None and isinstance(value, httpx.Client)


@attrs.define(kw_only=True)
class RTVIClientOptions:
    """All that a client is made with; `RTVIClient` takes the same names as keyword arguments and documents them."""

    transport: Transport | None = attrs.field(
        default=None, validator=instance_of("an object such as WebSocketTransport()", Transport).or_none
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
    custom_connect_handler: ConnectHandler | None = attrs.field(default=None, validator=FUNCTION.or_none)
    connect_timeout: Seconds | timedelta | None = attrs.field(
        default=None, validator=positive_or_timedelta("seconds").or_none
    )
    request_timeout: Seconds | None = attrs.field(default=10.0, validator=SECONDS.or_none)
    mic: str | MediaDeviceInfo | AudioSource | None = attrs.field(default=None, validator=CHOICES["mic"])
    speaker: str | MediaDeviceInfo | AudioSink | None = attrs.field(default=None, validator=CHOICES["speaker"])
    cam: str | MediaDeviceInfo | VideoSource | None = attrs.field(default=None, validator=CHOICES["cam"])
    http_client: httpx.Client | None = attrs.field(
        default=None, validator=Rule("an httpx.Client", _is_http_client).or_none
    )
    events: Literal["thread", "manual"] = attrs.field(default="thread", validator=one_of("thread", "manual"))
    ssl_context: ssl.SSLContext | None = attrs.field(
        default=None, repr=False, validator=instance_of("an ssl.SSLContext", ssl.SSLContext).or_none
    )
    proxy: str | bool | None = attrs.field(default=None, repr=False, validator=_PROXY)
    max_queued_events: int = attrs.field(default=100_000, validator=COUNT)
    max_queued_bytes: int = attrs.field(default=64 * 1024 * 1024, validator=COUNT)
    max_queued_audio_bytes: int = attrs.field(default=16 * 1024 * 1024, validator=COUNT)
    reconnect: ReconnectPolicy | None = attrs.field(
        default=None, validator=instance_of("a ReconnectPolicy()", ReconnectPolicy).or_none
    )

    def __attrs_post_init__(self) -> None:
        if self.enable_cam is not None and self.enable_camera is not None:
            raise TypeError("enable_cam and enable_camera are the same option: give one of them")


def api_request(
    endpoint: str | APIRequest | Mapping[str, Any],
    request_data: Mapping[str, Any] | None,
    headers: Mapping[str, str] | None,
    timeout: Seconds | None,
) -> APIRequest:
    """The request that the arguments of `start_bot()` mean.

    Raises:
        TypeError: a whole request is given together with parts of one.
    """
    instance_of("a URL (a str), an APIRequest or a mapping", str, APIRequest, Mapping).check(endpoint=endpoint)
    if isinstance(endpoint, str):
        return APIRequest(endpoint=endpoint, request_data=request_data, headers=headers, timeout=timeout)
    if request_data is not None or headers is not None or timeout is not None:
        raise TypeError("Give start_bot() either an APIRequest or its parts: endpoint, request_data, headers, timeout")
    return from_mapping(APIRequest, endpoint, "endpoint")
