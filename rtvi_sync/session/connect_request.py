"""The request that starts a bot, or the parameters that the application passes in its place."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, urlsplit

import attrs

from .._version import __version__
from ..concurrency.abort import AbortController, AbortSignal
from ..concurrency.deadline import Deadline
from ..concurrency.lifecycle import system_failures_as
from ..errors import ConnectionTimeoutError, InvalidTransportParamsError, RTVIError, StartBotError
from ..net.advice import CONNECT, START, hung_up, origin_of, status_of
from ..net.dial import Network
from ..net.urls import merged_headers, origin, parse_url, printable, url_fault
from ..protocol.envelope import to_json
from ..protocol.record import Record
from ..protocol.text import raised
from ..protocol.validation import URL
from ..transports.auth_bundle import upload_url
from ..transports.base import StartRequest
from .params import APIRequest, ConnectHandler, ConnectTimeout, RTVIClientParams

if TYPE_CHECKING:
    from ..net.http import HTTPClient

# Seconds that a server may take to list its routes. This is only a hint: the bot may be reached without it.
_HINT_TIMEOUT = 3.0

# The path of Pipecat's servers for WebRTC offers.
_OFFER_PATH = "/api/offer"

# The path of the page for browsers on Pipecat's runner.
_PAGE = r"/client(/(index\.html)?)?"

# The paths of the WebSockets of Pipecat's bots.
_WEBSOCKET = r"/ws(-client)?(/.*)?"

#: The names under which Pipecat's runner knows its route ``/ws``, and issues tokens for it.
TELEPHONY: Final = ("twilio", "telnyx", "plivo", "exotel")


@attrs.frozen(eq=False, repr=False)
class BotStartedData(Record):
    """The payload of `bot_started`: a server has started a bot.

    Attributes:
        response: The server's answer, plain JSON. Not in the repr, because it may contain a token.
    """

    response: Any = attrs.field(repr=False)


@attrs.frozen(eq=False, repr=False)
class Bundle(Record):
    """The data that a transport connects with.

    Attributes:
        content: The transport's parameters.
        secure: True if an https endpoint returned them.
        source: The source of the parameters; see `Transport.bundle_source`.
        started: True if a start endpoint returned them, and no event has reported it yet.
        request: The request that they answer.
    """

    content: Any = attrs.field(repr=False)
    secure: bool = False
    source: str = ""
    started: bool = False
    request: StartRequest | None = None


@attrs.frozen(eq=False, repr=False)
class BotURL(Record):
    """The address of a bot, from one URL. `RTVIClient.for_url()` defines the forms.

    Attributes:
        ws_url: The bot's WebSocket. None: a server is asked for it. With `endpoints`: used if none of them knows the
            transport.
        endpoints: The server's endpoints. Each is tried if the one before it returns 404 or 405.
        base_url: The server's URL, for its other endpoints.
        offer_url: Takes WebRTC offers. With `endpoints`: used if none of them exists.
        root: The server's WebSocket, used if the server has WebSockets only. None: `url` has a path.
    """

    ws_url: str | None = attrs.field(default=None, repr=False)
    endpoints: tuple[str, ...] = attrs.field(default=(), repr=False)
    base_url: str | None = attrs.field(default=None, repr=False)
    offer_url: str | None = attrs.field(default=None, repr=False)
    root: str | None = attrs.field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str) -> BotURL:
        """Parse a URL.

        Raises:
            InvalidTransportParamsError: It cannot be the URL of a bot. The text does not repeat it, because it may
                contain a key.
            TypeError: It is not a string.
        """
        URL.check(url=url)
        schemes = ("ws", "wss", "http", "https")
        parts = parse_url(url, *schemes)
        if parts is None:
            raise InvalidTransportParamsError(f"This is not the URL of a bot: {url_fault(url, *schemes)}")
        if parts.scheme in ("ws", "wss"):
            return cls(ws_url=url)
        path = parts.path.rstrip("/")
        if path.endswith(_OFFER_PATH):
            return cls(offer_url=url, base_url=parts._replace(path=path.removesuffix(_OFFER_PATH)).geturl())
        if path:
            return cls(endpoints=(url,), base_url=parts._replace(path=path.rpartition("/")[0], fragment="").geturl())
        endpoints = tuple(parts._replace(path=path, fragment="").geturl() for path in ("/start", "/connect"))
        return cls(endpoints=endpoints, base_url=url, root=_websocket_at(parts, ""))

    def with_websocket_route(self) -> BotURL:
        """Return the address with the route ``/ws`` next to a start endpoint, as on Pipecat's runner."""
        if not self.endpoints:
            return self
        parts = urlsplit(self.endpoints[0])
        path = parts.path.rstrip("/")
        if not path.endswith("/start"):
            return self
        url = _websocket_at(parts._replace(query=""), f"{path.removesuffix('start')}ws")
        return attrs.evolve(self, ws_url=url)

    def with_offer_route(self) -> BotURL:
        """Return the address with the route for offers next to a start endpoint, as on Pipecat's servers."""
        if not self.endpoints:
            return self
        parts = urlsplit(self.endpoints[0])
        path = parts.path.rstrip("/")
        if not path.endswith("/start"):
            return self
        path = f"{path.removesuffix('/start')}{_OFFER_PATH}"
        return attrs.evolve(self, offer_url=parts._replace(path=path, query="").geturl())

    @property
    def direct(self) -> Bundle:
        """Return the parameters of a transport that needs no request."""
        return Bundle({"ws_url": self.ws_url} if self.offer_url is None else {"webrtc_url": self.offer_url})


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ConnectRequest(Record):
    """The source of the transport's parameters.

    Attributes:
        params: Returns the client's parameters. Called when the request is made.
        given: Parameters that the application passed to `connect()`. With them, no request is made.
        started: The last result of `start_bot()`. Passed back to `connect()`, it still counts as the server's answer.
        start: A request that starts the bot instead of the default one.
        bot_url: The address of the bot. None: the address in `params`.
        handler: The application's function that makes the request.
        transport_name: For servers that start several kinds of transports.
        network: TLS and proxy.
        http_client: The application's HTTP client, or None.
    """

    params: Callable[[], RTVIClientParams]
    given: Any = attrs.field(default=None, repr=False)
    started: Bundle | None = None
    start: APIRequest | None = None
    bot_url: BotURL | None = None
    handler: ConnectHandler | None = None
    transport_name: str = "custom"
    network: Network = attrs.field(factory=Network)
    http_client: HTTPClient | None = None

    def bundle(self) -> Bundle | None:
        """Return the data to connect with. None if a request or the application's handler must be called first."""
        if self.given is None:
            if self.start is not None or self.handler is not None:
                return None
            if self.bot_url is not None:
                return None if self.bot_url.endpoints else self.bot_url.direct
            params = self.params()
            if params.base_url and params.endpoints.connect is not None:
                return None
        if self.started is not None and self.given is self.started.content:
            return self.started
        return Bundle(self.given, source="connect() was given" if self.given is not None else "")

    @system_failures_as(StartBotError, "The connect request could not be made")
    def send(self, deadline: Deadline, abort: AbortController) -> Bundle:
        """Make the request, or call the handler, and return the data to connect with.

        Raises:
            StartBotError: It failed.
            BaseException: The reason for which the attempt was abandoned.
        """
        abort.signal.raise_if_aborted()
        params = self.params()
        if self.start is not None:
            # Credentials for one server must not reach another.
            trusted = params.base_url is not None and same_origin(params.base_url, self.start.endpoint)
            return self._start(self.start, params if trusted else _without_credentials(params), abort.signal)
        if self.handler is not None:
            content = self._call_handler(self.handler, params, deadline, abort)
            return Bundle(content, source="The custom connect handler returned")
        if self.bot_url is not None:
            return self._ask(self.bot_url, params, abort.signal)
        return self._connect(params.construct_url("connect"), params, abort.signal)

    def _call_handler(
        self, handler: ConnectHandler, params: RTVIClientParams, deadline: Deadline, abort: AbortController
    ) -> Any:
        timeout = ConnectTimeout(deadline)
        abort.signal.on_abort(timeout.clear)
        try:
            bundle = handler(params, timeout, abort)
        except RTVIError:
            raise
        except Exception as error:
            abort.signal.raise_if_aborted()
            raise StartBotError(f"The custom connect handler raised {raised(error)}") from error
        abort.signal.raise_if_aborted()
        return bundle

    def _start(self, request: APIRequest, params: RTVIClientParams, signal: AbortSignal) -> Bundle:
        body = {
            "transport": self.transport_name,
            **(params.request_data or {}),
            **(request.request_data or {}),
        }
        given = {"request_data": request.request_data, "params.request_data": params.request_data}
        headers = merged_headers(params.headers or {}, request.headers or {})
        return self._post(request.endpoint, to_json(body, given), headers, signal, starts=True)

    def _connect(self, url: str, params: RTVIClientParams, signal: AbortSignal) -> Bundle:
        return self._post(url, _default_body(params), params.headers or {}, signal)

    def _ask(self, bot_url: BotURL, params: RTVIClientParams, signal: AbortSignal) -> Bundle:
        """Request the bot from the first endpoint that exists."""
        endpoints = bot_url.endpoints
        if params.base_url is not None and not same_origin(params.base_url, endpoints[0]):
            params = _without_credentials(params)
        for url in endpoints:
            try:
                if urlsplit(url).path.rstrip("/").endswith("/start"):
                    return self._start(APIRequest(url), params, signal)
                return self._connect(url, params, signal)
            except StartBotError as error:
                _check_is_endpoint(bot_url, error)
                missing, status = error, _answered(error)
                if status not in (404, 405):
                    break
        if bot_url.ws_url is not None and status in (400, 404, 405):
            return self._ask_for_route(bot_url, params, signal)
        if bot_url.root is not None and hung_up(missing) and self._has_only_websocket(bot_url, params, signal):
            return Bundle({"ws_url": bot_url.root})
        if bot_url.offer_url is not None and status in (404, 405):
            return bot_url.direct
        if len(endpoints) == 1 or status not in (404, 405):
            raise missing
        proxy = self.network.forwarding_proxy_for(endpoints[1]) if self.http_client is None else None
        raise StartBotError(
            f"{printable(endpoints[0])} is not there, and {printable(endpoints[1])} answered {status}. "
            "Give the whole URL of the endpoint that starts the bot" + (f". {proxy.doubt}" if proxy else ""),
            status=status,
        ) from missing

    def _ask_for_route(self, bot_url: BotURL, params: RTVIClientParams, signal: AbortSignal) -> Bundle:
        """Return the parameters of the eval route of a server that starts no WebSocket sessions.

        Pipecat's runner limited to one transport (``-t twilio``) starts sessions of that transport only, and lists it
        at ``/status``. It names the route after telephone providers, and issues a token for it.
        """
        start = bot_url.endpoints[0]
        status = urlsplit(start)._replace(path="/status", query="").geturl()
        try:
            answer = self._get(status, params, signal)
        except (StartBotError, ConnectionTimeoutError):  # only a hint
            answer = None
        offered = answer.get("transports") if isinstance(answer, Mapping) else None
        for name in offered if isinstance(offered, list) else []:
            if name in TELEPHONY:
                return self._start(APIRequest(start, request_data={"transport": name}), params, signal)
        return Bundle({"ws_url": bot_url.ws_url})

    def _has_only_websocket(self, bot_url: BotURL, params: RTVIClientParams, signal: AbortSignal) -> bool:
        """Whether a server that hangs up on a POST has WebSockets only.

        Pipecat's standalone server does, and so does its runner up to 1.12 with ``-t eval``.
        """
        try:
            self._get(bot_url.endpoints[0], params, signal)
        except (StartBotError, ConnectionTimeoutError) as error:
            return _answered(error) == HTTPStatus.UPGRADE_REQUIRED
        return False

    def _get(self, url: str, params: RTVIClientParams, signal: AbortSignal) -> Any:
        """Return the server's answer to a GET. It gets only part of the time, and leaves the rest for the connection.

        Raises:
            StartBotError: It failed, or took longer than `_HINT_TIMEOUT` seconds or half of the remaining time.
            BaseException: The reason for which the attempt was abandoned.
        """
        from ..net.http import get_json

        remaining = signal.remaining()
        limit = _HINT_TIMEOUT if remaining is None else min(_HINT_TIMEOUT, remaining / 2)
        own = AbortController(Deadline(limit), lambda: StartBotError("The request was aborted"))
        own.signal.is_supervised = False
        signal.on_abort(lambda: own.abort(signal.reason))
        return get_json(
            url, headers=params.headers or {}, network=self.network, signal=own.signal, client=self.http_client
        ).document

    def _post(
        self, url: str, body: bytes, headers: Mapping[str, str], signal: AbortSignal, *, starts: bool = False
    ) -> Bundle:
        from ..net.http import post_json

        secure = origin_of(url)[0] == "https"  # redirects stay within the origin
        answer = post_json(
            url,
            body,
            headers=headers,
            network=self.network,
            signal=signal,
            client=self.http_client,
            purpose=START if starts else CONNECT,
        )
        document, uploads = answer.document, upload_url(answer.document)
        request = StartRequest(url=answer.url, headers=headers, cookies=answer.cookies, upload_url=uploads)
        return Bundle(document, secure, f"{printable(answer.url)} answered with", started=starts, request=request)


def _answered(error: RTVIError) -> int | None:
    """Return the status of the server's answer. None without an answer, or if a proxy refused the request."""
    return error.status if status_of(error) is None else None


def _check_is_endpoint(bot_url: BotURL, error: RTVIError) -> None:
    """Refuse a URL that takes no start request for any transport: a page, a WebSocket, or a path that the server lacks.
    A missing start endpoint is not refused, because there may be routes next to it.

    Raises:
        StartBotError: The URL is refused.
    """
    url, *others = bot_url.endpoints
    parts, status = urlsplit(url), _answered(error)
    takes_none = status in (404, 405, HTTPStatus.UPGRADE_REQUIRED) or hung_up(error)
    if others or not takes_none or parts.path.rstrip("/").endswith("/start"):
        return
    server = printable(parts._replace(path="", query="", fragment="").geturl())
    text = f"{error}. If the server has no such endpoint, pass its URL without a path, {server}"
    if status == HTTPStatus.UPGRADE_REQUIRED or re.fullmatch(_WEBSOCKET, parts.path):
        websocket = printable(_websocket_at(parts, parts.path))
        text = (
            f"{printable(url)} takes no start request: it is the URL of a WebSocket. Pass "
            f"{websocket}, or the URL of the server, {server}"
        )
    elif re.fullmatch(_PAGE, parts.path):
        text = (
            f"{printable(url)} answered {status}: it is a page for browsers, as Pipecat's runner has one. Pass the URL "
            f"of the server, {server}"
        )
    raise StartBotError(text, status=status) from error


def _websocket_at(server: SplitResult, path: str) -> str:
    """Return the URL of a WebSocket of the server at an ``http`` or ``https`` URL."""
    scheme = "wss" if server.scheme == "https" else "ws"
    return server._replace(scheme=scheme, path=path, fragment="").geturl()


def _without_credentials(params: RTVIClientParams) -> RTVIClientParams:
    return attrs.evolve(params, headers=None, request_data=None)


def _default_body(params: RTVIClientParams) -> bytes:
    body: dict[str, Any] = {"config": params.config_as_json()}
    if params.services:
        body["services"] = params.services
    data = params.request_data or {}
    given = {"params.request_data": data, **{f"params.{name}": value for name, value in body.items()}}
    return to_json({**body, **data, "rtvi_client_version": __version__}, given)


def same_origin(one: str, other: str) -> bool:
    """Whether two URLs have the same server. False if one of them is not a URL."""
    found = origin(one)
    return found is not None and found == origin(other)
