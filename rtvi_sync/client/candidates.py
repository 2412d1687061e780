"""The candidates for a bot: the transports that may reach the bot at a URL, and the order in which to try them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

import attrs

from ..concurrency.deadline import Deadline
from ..errors import (
    ConnectError,
    ConnectionTimeoutError,
    DisconnectedError,
    InvalidTransportParamsError,
    MissingExtraError,
    ProtocolError,
    RTVIError,
    StartBotError,
    TransportStartError,
)
from ..net.urls import merged_headers
from ..protocol.text import one_line
from ..protocol.validation import HEADERS, STRING, nearest
from ..session.connect_request import TELEPHONY, BotURL, same_origin
from ..session.params import RTVIClientParams
from ..transports.base import Transport

TransportName = Literal["auto", "websocket", "webrtc", "eval", "twilio", "telnyx", "plivo", "exotel"]

# Transports of Pipecat's runner that need the client of another service.
_NOT_REACHED = ("daily", "livekit", "moq", "vonage", "whatsapp")

# The order in which they are tried.
_AUTO = ("websocket", "webrtc", "eval")

# Pipecat's runner accepts offers even for a bot without the entry `webrtc`, and then no bot ever speaks. In seconds.
_WEBRTC_PATIENCE = 5.0

_SENTENCE_END = r"\. (?=[A-Z])"
# The length of each candidate's error, in characters, in the error that lists all of them.
_SHORT = 280
# By these statuses a server refuses the client, over any transport.
_REFUSED_CLIENT = (401, 403, 407, 429)


@attrs.frozen(eq=False, repr=False)
class Candidate:
    """One transport that may reach a bot.

    Attributes:
        transport: Carries the session.
        bot_url: The source of the transport's parameters. None: the client's parameters are the source.
        patience: Seconds that it may stay silent while other candidates remain. None: no limit of its own.
    """

    transport: Transport
    bot_url: BotURL | None = None
    patience: float | None = None

    def for_request(self) -> dict[str, Any]:
        """Return the candidate's part of a `ConnectRequest`."""
        return {"bot_url": self.bot_url, "transport_name": self.transport.start_name or self.transport.name}


def candidates_for(
    url: str,
    transport: TransportName | Transport = "auto",
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[Candidate, ...]:
    """Return the candidates for the bot at `url`, in the order in which they are tried. Does no I/O.

    Args:
        url: As in `RTVIClient.for_url()`.
        transport: A transport, its name, or "auto": each transport that may reach the bot.
        token: For the WebSocket. None: the token in the server's answer.
        headers: For the handshake, if `url` is a WebSocket.

    Raises:
        InvalidTransportParamsError: `url` cannot be the URL of a bot.
        TypeError, ValueError: Another argument is not valid.
    """
    bot_url = BotURL.parse(url)
    STRING.or_none.check(token=token)
    HEADERS.or_none.check(headers=headers)
    if isinstance(transport, Transport):
        if token is not None:
            raise TypeError("token is for the transports that for_url() makes; give it to your transport")
        if headers is not None and bot_url.ws_url is not None:
            raise TypeError("headers of a handshake are for the transports that for_url() makes; give them to yours")
        return (_candidate(transport, bot_url),)
    if transport in _NOT_REACHED:
        raise ValueError(
            f"transport {transport!r} is not supported: such bots are reached by the client of that service. Let the "
            "bot serve 'websocket', 'webrtc' or 'eval' as well"
        )
    names = get_args(TransportName)
    if transport not in names:
        text = f"transport must be a Transport or one of {', '.join(map(repr, names))}, not {transport!r}"
        near = nearest(transport.lower(), names) if isinstance(transport, str) else None
        raise ValueError(f"{text}; did you mean {near!r}?" if near else text)
    wanted = _AUTO if transport == "auto" else (transport,)
    offered = [name for name in wanted if (bot_url.ws_url if name == "webrtc" else bot_url.offer_url) is None]
    if not offered:
        kind = "a WebSocket" if bot_url.ws_url is not None else "a WebRTC offer"
        raise InvalidTransportParamsError(f"The URL is for {kind}, which the transport {transport!r} does not use")
    # Imported here, because an application that makes its transport itself needs no other one.
    from ..transports.eval import EvalTransport
    from ..transports.small_webrtc import SmallWebRTCTransport, is_installed
    from ..transports.websocket import WebSocketTransport

    own_headers = headers if not bot_url.endpoints else None
    if transport in TELEPHONY:
        from ..transports.telephony import TelephonyTransport

        return (_candidate(TelephonyTransport(transport, token=token, headers=own_headers), bot_url),)
    if "webrtc" in offered and len(offered) > 1 and not is_installed():
        offered.remove("webrtc")
    make: dict[str, Callable[[], Transport]] = {
        "websocket": lambda: WebSocketTransport(token=token, headers=own_headers),
        "webrtc": lambda: SmallWebRTCTransport(headers=own_headers),
        "eval": lambda: EvalTransport(token=token, headers=own_headers),
    }
    return tuple(_candidate(make[name](), bot_url) for name in offered)


def video_first(candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """Return the candidates in the order for a session with camera or screen."""
    return tuple(sorted(candidates, key=lambda candidate: not candidate.transport.supports_video))


def _candidate(transport: Transport, bot_url: BotURL) -> Candidate:
    from ..transports.eval import EvalTransport
    from ..transports.small_webrtc import SmallWebRTCTransport

    if isinstance(transport, EvalTransport) or transport.start_name in TELEPHONY:
        return Candidate(transport, bot_url.with_websocket_route())
    if isinstance(transport, SmallWebRTCTransport):
        return Candidate(transport, bot_url.with_offer_route(), _WEBRTC_PATIENCE)
    return Candidate(transport, bot_url)


def params_for(
    candidates: tuple[Candidate, ...], params: RTVIClientParams, headers: Mapping[str, str] | None
) -> RTVIClientParams:
    """Return `params` for the bot of `candidates`: with the server that starts it, and `headers` for that server.

    Raises:
        ValueError: `headers` would go to the server of `params.base_url`, which is another one.
    """
    bot_url = candidates[0].bot_url
    assert bot_url is not None, "they are made for a URL"
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


def concerns_candidate(error: BaseException) -> bool:
    """Whether another transport may reach the bot in spite of `error`."""
    if isinstance(error, StartBotError):
        return error.status is not None and error.status not in _REFUSED_CLIENT
    if isinstance(error, ConnectionTimeoutError):
        return error.phase in ("transport", "bot-ready")
    if isinstance(error, DisconnectedError):
        return error.initiator != "client"
    return isinstance(error, (TransportStartError, ProtocolError, InvalidTransportParamsError))


def failure_of(
    failures: Sequence[tuple[str, RTVIError]],
    error: RTVIError,
    candidate: Candidate,
    limit: Deadline,
    *,
    is_last: bool,
) -> RTVIError:
    """Return the error of an attempt whose candidates have failed.

    Args:
        failures: Name and error of each candidate, in order.
        error: The error of the last one, `candidate`.
        candidate: The last candidate.
        limit: The limit of the attempt.
        is_last: True if no other candidate is left.
    """
    if len(failures) == 1 or not (isinstance(error, ConnectError) or concerns_candidate(error)):
        return error
    last: dict[str, RTVIError] = {}  # each transport's last error, or its first one if it was silent again
    again: dict[str, str] = {}
    for name, failure in failures:
        if isinstance(failure, ConnectionTimeoutError) and name in last:
            again[name] = f"{again.get(name, '')} It was tried again for {round(failure.elapsed, 2):g} s."
        else:
            last[name] = failure
    if len({str(failure) for failure in last.values()}) == 1:
        text = str(error)
    else:
        from ..transports.small_webrtc import is_installed  # it was imported when the candidates were found

        if (
            "webrtc" not in last
            and candidate.bot_url is not None
            and candidate.bot_url.endpoints
            and not is_installed()
        ):
            last["webrtc"] = MissingExtraError("SmallWebRTCTransport", "webrtc")
        likely = sorted(last.items(), key=lambda each: _unlikeliness(each[1]))
        if all(failure.status in (404, 405) for _, failure in failures):  # probably no bot's server at all
            likely.sort(key=lambda each: isinstance(each[1], MissingExtraError))
        tried = "".join(f"\n  {name}: {_in_short(str(failure))}{again.get(name, '')}" for name, failure in likely)
        if is_last and _may_be_phone_bot(candidate.bot_url):
            tried += f"\n  If this is a phone bot, name the transport: {', '.join(TELEPHONY[:-1])} or {TELEPHONY[-1]}"
        tried += "\n  (error.attempts has each try in full)"
        seconds = limit.timeout if isinstance(error, ConnectionTimeoutError) else None
        within = f" within {round(seconds, 3):g} s" if seconds is not None else ""
        text = f"No bot was reached{within}{', by any transport' if is_last else ''}:{tried}"
    result: ConnectError
    if isinstance(error, ConnectionTimeoutError):
        result = ConnectionTimeoutError(text, phase=error.phase, elapsed=limit.elapsed())
    else:
        result = ConnectError(text, status=error.status)
    result.attempts = (*failures,)
    return result


def _may_be_phone_bot(bot_url: BotURL | None) -> bool:
    """Return whether the user has given the WebSocket at which Pipecat's runner takes calls."""
    named = bot_url.ws_url if bot_url is not None and not bot_url.endpoints else None
    return named is not None and urlsplit(named).path.endswith("/ws")


def _unlikeliness(failure: RTVIError) -> int:
    """Return how unlikely a failure is as the cause. The further the attempt got, the likelier it is."""
    if isinstance(failure, (ConnectionTimeoutError, DisconnectedError)):  # the bot's server took the connection
        return 0
    if isinstance(failure, MissingExtraError):
        return 1
    return 3 if isinstance(failure, StartBotError) else 2  # refused earlier, as for a transport that the bot lacks


def _in_short(text: str) -> str:
    """Return the first sentences of an error, with its advice if that is short."""
    first, *others = re.split(_SENTENCE_END, text.rstrip("."))
    for sentence in others:
        if len(first) + len(sentence) > _SHORT:
            break
        first = f"{first}. {sentence}"
    return one_line(f"{first}.", 2 * _SHORT)
