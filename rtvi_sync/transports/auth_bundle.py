"""The addresses that a server names in connection parameters, and the errors if it names none."""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Collection, Mapping
from typing import Any, Final
from urllib.parse import SplitResult, urljoin, urlsplit

from ..concurrency.logs import package_logger
from ..errors import InvalidTransportParamsError
from ..net.dial import Network
from ..net.urls import Origin, authority, origin, parse_url, port_of, printable
from ..protocol.text import quoted
from .base import StartRequest

logger: logging.Logger = package_logger(__name__)

_MAX_KEYS: Final = 8
_MAX_KEY_LENGTH: Final = 40
_DAILY: Final = ("room_url", "roomUrl", "dailyRoom", "dailyToken")
# Runners of Pipecat that serve WebRTC only, as old ones do by default, answer with the last key alone.
_WEBRTC: Final = ("iceConfig", "ice_config", "webrtcUrl", "webrtc_url", "webrtcRequestParams", "sessionId")


def not_reached(bundle: Any) -> str | None:
    """Return the service that the parameters are for if no transport of this package reaches it; else None."""
    if _has(bundle, *_DAILY):
        return "a room of Daily"
    if _has(bundle, "moq"):
        return "a broadcast over MoQ"
    if isinstance(bundle, Mapping) and {"url", "token", "sessionId"} <= bundle.keys():
        return "a room of LiveKit"
    return None


def missing_url(bundle: Any, source: str, transport: str) -> str:
    """Return the text of the error for parameters that lack ``ws_url``.

    Args:
        bundle: the parameters.
        source: the sender, as the start of the text, as in "http://host/connect answered with"; "": no bundle.
        transport: name of the class that needs the URL.
    """
    if bundle is None and not source:
        return (
            f"There is nothing to connect to: {transport} has no ws_url. Pass {transport}(ws_url=...), "
            "connect({'ws_url': ...}), or set params.base_url to a server that answers with one."
        )
    what, begin = not_reached(bundle), "Let"
    if what is None and _has(bundle, *_WEBRTC):
        what, begin = "a WebRTC connection", "Use SmallWebRTCTransport, or let"
    if what is not None:
        advice = (
            f"This is for {what}, which needs another transport. {begin} the server start the bot with its "
            "websocket transport (up to Pipecat 1.12: its runner with -t eval)."
        )
    else:
        advice = f"Set ws_url there to the URL of the bot's WebSocket, or pass {transport}(ws_url=...)."
    return f"{source or 'connect() was given'} {_described(bundle)}, but {transport} needs ws_url. {advice}"


def missing_offer_url(bundle: Any, source: str) -> str:
    """Return the text of the error for parameters that do not name the address for the offer of a WebRTC connection.

    Args:
        bundle, source: as in `missing_url()`.
    """
    if bundle is None and not source:
        return (
            "There is nothing to connect to: SmallWebRTCTransport has no webrtc_url. Pass "
            "SmallWebRTCTransport(webrtc_url='http://host:7860/api/offer'), or start the bot: "
            "start_bot_and_connect('http://host:7860/start')"
        )
    if (what := not_reached(bundle)) is not None:
        advice = f"This is for {what}, which needs another transport. Let the server start the bot for webrtc"
    elif _has(bundle, "sessionId", "session_id"):
        advice = "A sessionId only works together with the request that started the bot: let the client start the bot"
    elif _has(bundle, "ws_url", "wsUrl"):
        advice = "This is for a WebSocket: use WebSocketTransport, or let the server start the bot for webrtc"
    else:
        advice = "Let the server start the bot for webrtc, or pass SmallWebRTCTransport(webrtc_url=...)"
    return (
        f"{source or 'connect() was given'} {_described(bundle)}, but SmallWebRTCTransport needs a sessionId. {advice}"
    )


def reachable(url: SplitResult, start: StartRequest) -> SplitResult:
    """Return an address that a server has named, with the server's own host in place of an unspecified one.

    A server that listens on all addresses, as in a container, may name ``0.0.0.0``, to which no client can connect.
    """
    address = _ip_address(url.hostname or "")
    if address is None or not address.is_unspecified:
        return url
    return _at(url, _server_of(start)[1])


def without_tls_that_is_not_there(url: SplitResult, start: StartRequest, network: Network) -> SplitResult:
    """Return a ``wss`` URL that a server has named as a ``ws`` URL, if its port has just spoken plain HTTP.

    Pipecat's runner names ``wss`` for each `--host` but "localhost", and has no TLS.
    """
    scheme, host, port = _server_of(start)
    if (url.scheme, scheme, port_of(url)) != ("wss", "http", port):
        return url
    if url.hostname != host:
        address = _ip_address(url.hostname or "")
        if address is None or address not in _addresses_of(host, network, start.url):
            return url
    logger.info("The server names %s; its port has answered without TLS, so ws:// is used", printable(url.geturl()))
    return _at(url, host)._replace(scheme="ws")


def _server_of(start: StartRequest) -> Origin:
    server = origin(start.url)
    assert server is not None, "it has answered"
    return server


def _at(url: SplitResult, host: str) -> SplitResult:
    """Return a URL with another host."""
    login, at, _ = url.netloc.rpartition("@")
    return url._replace(netloc=f"{login}{at}{authority(host, port_of(url))}")


def _ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _addresses_of(host: str, network: Network, url: str) -> Collection[object]:
    """Return the addresses of `host`; none behind a proxy, which looks names up in the client's place."""
    if network.proxy_for(url) is not None:
        return ()
    try:
        found = socket.getaddrinfo(host.encode("ascii"), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return [_ip_address(str(address[0])) for *_, address in found]


def upload_url(bundle: Any) -> str | None:
    """Return the server's address for files for the bot, a path or a URL in its answer; None if it has none."""
    named = [bundle.get(key) for key in ("fileUploadUrl", "file_upload_url")] if isinstance(bundle, Mapping) else []
    return next((url for url in named if url and isinstance(url, str)), None)


def upload_target(start: StartRequest) -> SplitResult | None:
    """Return the URL for files in the answer to `start`; None if it is no URL of the server that has named it."""
    base = urlsplit(start.url)
    login, at, host = base.netloc.rpartition("@")
    parts = parse_url(urljoin(base._replace(netloc=host).geturl(), start.upload_url or ""), "http", "https")
    if parts is None or parts.username is not None:
        return None
    parts = reachable(parts, start)
    named = origin(parts.geturl())
    return parts._replace(netloc=f"{login}{at}{parts.netloc}") if named == _server_of(start) else None


def with_cookies(headers: Mapping[str, str], url: SplitResult, start: StartRequest | None) -> dict[str, str]:
    """Return the headers of a request to `url`, with the cookies that the answer to `start` has set for it.

    They lead a load balancer to the machine of the session. They go to the host that has set them, and a cookie of that
    name in `headers` takes precedence.
    """
    if start is None or start.cookies is None or url.hostname != _server_of(start)[1]:
        return dict(headers)
    from ..net.http import with_cookies_of  # it was imported by the request that `start` is

    return with_cookies_of(start.cookies, url, headers)


def check_no_login(url: SplitResult, source: str) -> None:
    """Check an address that a server has named: it must not choose the Authorization of a request to another one.

    Raises:
        InvalidTransportParamsError: the address has a user or password.
    """
    if url.username is not None:
        raise InvalidTransportParamsError(
            f"{source} the address {printable(url.geturl())} with a user and password, which are not sent: a server "
            "must not choose them. Let the server answer with a token, or connect to the address yourself"
        )


def _has(bundle: Any, *keys: str) -> bool:
    """Return whether the parameters have one of these keys."""
    return isinstance(bundle, Mapping) and any(key in bundle for key in keys)


def _described(bundle: Any) -> str:
    """Return a description of the parameters without their values, which may be secret."""
    if bundle is None or bundle == {}:
        return "no parameters"
    if not isinstance(bundle, Mapping):
        return f"a {type(bundle).__name__}"
    for key in ("ws_url", "wsUrl"):
        if key in bundle:
            return f"a {key} of type {type(bundle[key]).__name__}" if bundle[key] else f"an empty {key}"
    names = [quoted(str(key), _MAX_KEY_LENGTH) for key in list(bundle)[:_MAX_KEYS]]
    others = f" and {len(bundle) - _MAX_KEYS} others" if len(bundle) > _MAX_KEYS else ""
    return f"{', '.join(names)}{others}"
