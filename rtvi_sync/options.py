"""What a client is made with, and the mutable parameters of its requests."""

from __future__ import annotations

import inspect
import logging
import re
import ssl
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

import attrs

from .concurrency.cancel import AbortController
from .concurrency.deadline import Deadline
from .errors import ConnectionTimeoutError, DisconnectedError, RTVIError, StartBotError, TransportStartError
from .events import RTVIEvent, event_from
from .media import AudioSink, AudioSource, MediaDeviceInfo, VideoSource
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


def from_mapping(cls: type[T], value: T | Mapping[str, Any] | None) -> T:
    """An object of the attrs class `cls`: `value` itself, or made of a mapping with snake_case or camelCase keys.

    Raises:
        TypeError: an unknown key, or neither mapping nor object.
    """
    if isinstance(value, cls):
        return value
    if value is None:
        return cls()
    if not isinstance(value, Mapping):
        raise TypeError(f"{cls.__name__} or a mapping is needed, not {type(value).__name__}")
    names = [field.alias for field in attrs.fields(cls)]  # type: ignore[arg-type]
    given = {snake_case(key): item for key, item in value.items()}
    if len(given) < len(value):
        raise TypeError(f"{cls.__name__} is given one of {', '.join(value)} in two spellings")
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise TypeError(f"{cls.__name__} has no {', '.join(unknown)}; it has {', '.join(names)}")
    return cls(**given)


def _names_only(value: Mapping[str, Any] | None) -> str:
    """A repr that tells what is there and no value: headers and request data hold credentials."""
    return "None" if value is None else "{" + ", ".join(f"{key!r}: ..." for key in value) + "}"


def _url_shown(url: str | None) -> str:
    """A repr without what may be a credential: user, password, query and fragment."""
    return "None" if url is None else repr(printable(url) + ("?..." if "?" in url else ""))


def _dict_or_none(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if value is None else dict(value)


@attrs.define(kw_only=True)
class Endpoints:
    """Paths below `base_url`. None: there is no such endpoint, and no request is made."""

    connect: str | None = attrs.field(default="connect/", repr=_url_shown)
    action: str | None = attrs.field(default="action/", repr=_url_shown)


def _endpoints(value: Endpoints | Mapping[str, Any] | None) -> Endpoints:
    return from_mapping(Endpoints, value)


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

    base_url: str | None = attrs.field(default=None, repr=_url_shown)
    endpoints: Endpoints = attrs.field(factory=Endpoints, converter=_endpoints)
    request_data: dict[str, Any] | None = attrs.field(default=None, converter=_dict_or_none, repr=_names_only)
    headers: dict[str, str] | None = attrs.field(default=None, converter=_dict_or_none, repr=_names_only)
    config: list[Any] | None = attrs.field(default=None, repr=False)
    services: dict[str, str] | None = None

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

    endpoint: str = attrs.field(repr=_url_shown)
    headers: Mapping[str, str] | None = attrs.field(default=None, repr=_names_only)
    request_data: Mapping[str, Any] | None = attrs.field(default=None, repr=_names_only)
    timeout: Seconds | None = None


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
        TypeError: both are given, or one is not a number.
        ValueError: it is not positive.
    """
    if timeout is not None and connect_timeout is not None:
        raise TypeError("timeout (milliseconds) and connect_timeout (seconds) are the same limit: give one of them")
    if timeout is not None:
        limit = _seconds("timeout", timeout)
        if isinstance(timeout, timedelta):
            return limit
        _hint_at_the_unit(limit)
        return limit / 1000
    return None if connect_timeout is None else _seconds("connect_timeout", connect_timeout)


def _seconds(name: str, value: float | timedelta) -> float:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is a number or a timedelta, not {type(value).__name__}")
    if not value > 0 or value == float("inf"):
        raise ValueError(f"{name} must be positive and finite; leave it out for no limit")
    return float(value)


def is_transient(error: BaseException) -> bool:
    """True if the same attempt may well succeed a little later.

    So are: a line that broke, a server that goes away or restarts (close codes 1001, 1006 and 1011 to 1014, HTTP 408,
    425, 429 and 5xx), a limit that passed. Not so are: a bot that ended the session (Pipecat closes with 1000 however
    it ends), a fatal error of the bot, a server that refuses (401, 404 and so on), a certificate that is refused, a
    broken protocol, and whatever this program itself did.
    """
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

    max_attempts: int | None = 10
    max_elapsed: Seconds | None = None
    initial_delay: Seconds = 0.5
    max_delay: Seconds = 30.0
    stable_after: Seconds = 30.0
    retry_on: Callable[[BaseException], bool] | None = None

    def __attrs_post_init__(self) -> None:
        if self.max_attempts is not None and self.max_attempts < 1:
            raise ValueError(f"max_attempts is 1 or more, not {self.max_attempts!r}; for none leave reconnect= out")
        for name in ("max_elapsed", "initial_delay", "max_delay", "stable_after"):
            seconds = getattr(self, name)
            if seconds is not None and not 0 < seconds < float("inf"):
                raise ValueError(f"{name} is a positive number of seconds, not {seconds!r}")


@attrs.define(kw_only=True)
class RTVIClientOptions:
    """All that a client is made with; `RTVIClient` takes the same names as keyword arguments and documents them."""

    transport: Transport | None = None
    params: RTVIClientParams | Mapping[str, Any] | None = attrs.field(default=None, repr=False)
    callbacks: RTVIEventCallbacks | Mapping[str, Callable[..., Any]] | None = None
    timeout: Milliseconds | timedelta | None = None
    enable_mic: bool = True
    enable_cam: bool | None = None
    enable_camera: bool | None = None
    custom_connect_handler: ConnectHandler | None = None
    connect_timeout: Seconds | timedelta | None = None
    request_timeout: Seconds | None = 10.0
    mic: str | MediaDeviceInfo | AudioSource | None = None
    speaker: str | MediaDeviceInfo | AudioSink | None = None
    cam: str | MediaDeviceInfo | VideoSource | None = None
    http_client: httpx.Client | None = None
    events: Literal["thread", "manual"] = "thread"
    ssl_context: ssl.SSLContext | None = attrs.field(default=None, repr=False)
    proxy: str | bool | None = attrs.field(default=None, repr=False)
    max_queued_events: int = 100_000
    max_queued_bytes: int = 64 * 1024 * 1024
    reconnect: ReconnectPolicy | None = None

    def __attrs_post_init__(self) -> None:
        if self.enable_cam is not None and self.enable_camera is not None:
            raise TypeError("enable_cam and enable_camera are the same option: give one of them")
        if self.events not in ("thread", "manual"):
            raise ValueError(f'events is "thread" or "manual", not {self.events!r}')
        if self.transport is not None and not isinstance(self.transport, Transport):
            raise TypeError(f"transport is an object such as WebSocketTransport(), not {self.transport!r}")
        for name, value, method in (("mic", self.mic, "read"), ("speaker", self.speaker, "write")):
            if value is not None and not isinstance(value, str) and not hasattr(value, method):
                raise TypeError(f"{name} is None, a device id, or an object with {method}(), not {value!r}")
        if self.reconnect is not None and not isinstance(self.reconnect, ReconnectPolicy):
            raise TypeError(f"reconnect is a ReconnectPolicy() or None, not {self.reconnect!r}")
        if self.custom_connect_handler is not None:
            if not callable(self.custom_connect_handler):
                raise TypeError(f"custom_connect_handler is a function, not {self.custom_connect_handler!r}")
            if inspect.iscoroutinefunction(self.custom_connect_handler):
                raise TypeError("custom_connect_handler is called, not awaited: pass a plain function")


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
    if isinstance(endpoint, str):
        return APIRequest(endpoint=endpoint, request_data=request_data, headers=headers, timeout=timeout)
    if request_data is not None or headers is not None or timeout is not None:
        raise TypeError("Give start_bot() either an APIRequest or its parts")
    return from_mapping(APIRequest, endpoint)
