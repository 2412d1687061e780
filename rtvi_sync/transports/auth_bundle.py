"""The errors of connection parameters: those that lack an address, and addresses that a server must not name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import SplitResult

from ..errors import InvalidTransportParamsError
from ..protocol.text import quoted
from .net import printable

_MAX_KEYS: Final = 8
_MAX_KEY_LENGTH: Final = 40
_DAILY: Final = ("room_url", "roomUrl", "dailyRoom", "dailyToken")
# Answers of start endpoints for other transports: what they are for, the begin of the advice, and their keys.
_OTHERS: Final = (
    ("a room of Daily", "Let", _DAILY),
    (
        "a WebRTC connection",
        "Use SmallWebRTCTransport, or let",
        # A runner of Pipecat that serves nothing else, as those of old do by default, answers with the last one alone.
        ("iceConfig", "ice_config", "webrtcUrl", "webrtc_url", "webrtcRequestParams", "sessionId"),
    ),
)


def missing_url(bundle: Any, source: str, transport: str) -> str:
    """Return the text of the error for parameters that lack ``ws_url``.

    Args:
        bundle: the parameters.
        source: where they come from, as in "http://host/connect answered with"; "": there are none.
        transport: name of the class that needs the URL.
    """
    if bundle is None and not source:
        return (
            f"There is nothing to connect to: {transport} has no ws_url. Pass {transport}(ws_url=...), "
            "connect({'ws_url': ...}), or set params.base_url to a server that answers with one."
        )
    for what, begin, keys in _OTHERS:
        if _has(bundle, *keys):
            advice = (
                f"This is for {what}, which needs another transport. {begin} the server start the bot with its "
                "websocket transport (up to Pipecat 1.12: its runner with -t eval)."
            )
            break
    else:
        advice = f"Set ws_url there to the URL of the bot's WebSocket, or pass {transport}(ws_url=...)."
    return f"{source or 'connect() was given'} {_described(bundle)}, but {transport} needs ws_url. {advice}"


def missing_offer_url(bundle: Any, source: str) -> str:
    """Return the text of the error for parameters that do not say where the offer of a WebRTC connection goes.

    Args:
        bundle, source: as in `missing_url()`.
    """
    if bundle is None and not source:
        return (
            "There is nothing to connect to: SmallWebRTCTransport has no webrtc_url. Pass "
            "SmallWebRTCTransport(webrtc_url='http://host:7860/api/offer'), or start the bot: "
            "start_bot_and_connect('http://host:7860/start')"
        )
    if _has(bundle, "sessionId", "session_id"):
        advice = "A sessionId is of use only with the request that it is the answer to: let the client start the bot"
    elif _has(bundle, "ws_url", "wsUrl"):
        advice = "This is for a WebSocket: use WebSocketTransport, or let the server start the bot for webrtc"
    elif _has(bundle, *_DAILY):
        advice = "This is for a room of Daily, which needs another transport. Let the server start the bot for webrtc"
    else:
        advice = "Let the server start the bot for webrtc, or pass SmallWebRTCTransport(webrtc_url=...)"
    return (
        f"{source or 'connect() was given'} {_described(bundle)}, but SmallWebRTCTransport needs a sessionId. {advice}"
    )


def check_no_login(url: SplitResult, source: str) -> None:
    """Check an address that a server has named: it must not choose the Authorization of a request to another one.

    Raises:
        InvalidTransportParamsError: the address has a user or password.
    """
    if url.username is not None:
        raise InvalidTransportParamsError(
            f"{source} the address {printable(url.geturl())} with a user and password, which are not sent in the name "
            "of a server. Let the server answer with a token, or connect to the address yourself"
        )


def _has(bundle: Any, *keys: str) -> bool:
    """Tell whether the parameters have one of these keys."""
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
