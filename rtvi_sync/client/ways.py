"""The ways to a bot: which transports may reach the bot at a URL, and in which order they are tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import attrs

from ..errors import InvalidTransportParamsError
from ..net.urls import merged_headers
from ..protocol.validation import HEADERS, STRING, nearest
from ..session.connect_request import BotURL, same_origin
from ..session.params import RTVIClientParams
from ..transports.base import Transport

TransportName = Literal["auto", "websocket", "webrtc", "eval"]

# Transports of Pipecat's runner that belong to services.
_NOT_REACHED = ("daily", "livekit", "moq", "vonage", "whatsapp")

# The order in which they are tried.
_NAMES = ("websocket", "webrtc", "eval")

# Pipecat's runner takes the offer for a bot without the entry `webrtc`, too, and no bot ever speaks. In seconds.
_WEBRTC_PATIENCE = 5.0


@attrs.frozen(eq=False, repr=False)
class Way:
    """One way to a bot.

    Attributes:
        transport: carries the session.
        bot_url: where the transport's parameters come from; None: as the client's parameters say.
        patience: seconds that it may be silent at most while others remain; None: no limit but that of all ways.
    """

    transport: Transport
    bot_url: BotURL | None = None
    patience: float | None = None

    def for_request(self) -> dict[str, Any]:
        """Return what a `ConnectRequest` on this way has of it."""
        return {"bot_url": self.bot_url, "transport_name": self.transport.start_name or self.transport.name}


def ways_to(
    url: str,
    transport: TransportName | Transport = "auto",
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[Way, ...]:
    """Return the ways to the bot at `url`, in the order in which they are tried. Does no I/O.

    Args:
        url: as `RTVIClient.for_url()` takes it.
        transport: a transport, its name, or "auto": each that may reach the bot.
        token: for the WebSocket; None: the token in the server's answer.
        headers: for the handshake, if `url` is that of a WebSocket.

    Raises:
        InvalidTransportParamsError: `url` cannot be the URL of a bot.
        TypeError, ValueError: another argument is not valid.
    """
    bot_url = BotURL.parse(url)
    STRING.or_none.check(token=token)
    HEADERS.or_none.check(headers=headers)
    if isinstance(transport, Transport):
        if token is not None:
            raise TypeError("token is for the transports that for_url() makes; give it to your transport")
        if headers is not None and bot_url.ws_url is not None:
            raise TypeError("headers of a handshake are for the transports that for_url() makes; give them to yours")
        return (_way(transport, bot_url),)
    if transport in _NOT_REACHED:
        raise ValueError(
            f"transport {transport!r} is not supported: such bots are reached by the client of that service. Let the "
            "bot serve 'websocket', 'webrtc' or 'eval' as well"
        )
    if transport != "auto" and transport not in _NAMES:
        text = f"transport must be a Transport or one of 'auto', 'websocket', 'webrtc', 'eval', not {transport!r}"
        near = nearest(transport.lower(), ("auto", *_NAMES)) if isinstance(transport, str) else None
        raise ValueError(f"{text}; did you mean {near!r}?" if near else text)
    wanted = _NAMES if transport == "auto" else (transport,)
    offered = [name for name in wanted if (bot_url.ws_url if name == "webrtc" else bot_url.offer_url) is None]
    if not offered:
        kind = "a WebSocket" if bot_url.ws_url is not None else "a WebRTC offer"
        raise InvalidTransportParamsError(f"The URL is that of {kind}, which the transport {transport!r} does not use")
    # A program that makes its transport itself needs no other one.
    from ..transports.eval import EvalTransport
    from ..transports.small_webrtc import SmallWebRTCTransport, is_installed
    from ..transports.websocket import WebSocketTransport

    if "webrtc" in offered and len(offered) > 1 and not is_installed():
        offered.remove("webrtc")
    own_headers = headers if not bot_url.endpoints else None
    make: dict[str, Callable[[], Transport]] = {
        "websocket": lambda: WebSocketTransport(token=token, headers=own_headers),
        "webrtc": lambda: SmallWebRTCTransport(headers=own_headers),
        "eval": lambda: EvalTransport(token=token, headers=own_headers),
    }
    return tuple(_way(make[name](), bot_url) for name in offered)


def video_first(ways: tuple[Way, ...]) -> tuple[Way, ...]:
    """Return the ways in the order in which they are tried if the camera or the screen is on."""
    return tuple(sorted(ways, key=lambda way: not way.transport.supports_video))


def _way(transport: Transport, bot_url: BotURL) -> Way:
    from ..transports.eval import EvalTransport
    from ..transports.small_webrtc import SmallWebRTCTransport

    if isinstance(transport, EvalTransport):
        return Way(transport, bot_url.with_eval_route())
    if isinstance(transport, SmallWebRTCTransport):
        return Way(transport, bot_url.with_offer_route(), _WEBRTC_PATIENCE)
    return Way(transport, bot_url)


def params_for(ways: tuple[Way, ...], params: RTVIClientParams, headers: Mapping[str, str] | None) -> RTVIClientParams:
    """Return `params` for the bot of `ways`: with the server that knows it, and `headers` for that server.

    Raises:
        ValueError: `headers` would go to the server of `params.base_url`, which is another one.
    """
    bot_url = ways[0].bot_url
    assert bot_url is not None, "they are ways to a URL"
    if params.base_url is None:
        params = attrs.evolve(params, base_url=bot_url.base_url)
    if headers is None or not bot_url.endpoints:
        return params
    if not same_origin(params.base_url or "", bot_url.endpoints[0]):
        raise ValueError(
            "headers are for the server of url, but params.base_url is another one: give them to it as params.headers, "
            "or leave base_url out"
        )
    return attrs.evolve(params, headers=merged_headers(params.headers or {}, headers))
