"""The address for the offer of a WebRTC connection, the offer's request, and the checks of its answer."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

import attrs

from ...concurrency.logs import package_logger
from ...errors import InvalidTransportParamsError, TransportStartError
from ...net.urls import Origin, authority, merged_headers, origin, parse_url, printable, url_fault
from ...protocol.envelope import to_json
from ...protocol.text import one_line, quoted
from ..auth_bundle import check_no_login, missing_offer_url, not_reached, reachable
from ..base import StartRequest
from .peer import ICEServer

logger: logging.Logger = package_logger(__name__)

# The default of RFC 8841 for an answer without this attribute.
_DEFAULT_MAX_MESSAGE_SIZE = 65536
# aiortc and aioice take time that grows with the square of these numbers, on the thread of all connections.
_MAX_CHARACTERS = 100_000
_MAX_LINES = 1000
_MAX_CANDIDATES = 100
# Characters of a candidate to show: the description may be the server's.
_MAX_SHOWN = 80
# A session uses the first STUN server and the first TURN server that answers; each URL costs aiortc time there, too.
_MAX_ICE_URLS = 20
# The URLs that aiortc takes: names and IPv4 addresses.
_ICE_URL = re.compile(r"(?:stuns?:[\w.-]+(?::(\d{1,5}))?|turns?:[\w.-]+(?::(\d{1,5}))?(?:\?transport=(?:udp|tcp))?)")
# aiortc ignores these URLs: STUN over TLS, and TURN over DTLS.
_UNUSABLE_ICE_URL = re.compile(r"stuns:.*|turns:.*\?transport=udp")
# The headers of an offer that a server must not choose. A web page may not set them either (the "forbidden request
# headers" of the Fetch standard), with a few exceptions. Authorization, or another host's name for a reverse proxy,
# could turn the offer into a request for a service beside the bot's. The content is the client's own.
_NOT_BY_SERVER = re.compile(
    r"(?i)accept-(?:charset|encoding)|access-control-.*|authorization|connection|content-.*|cookie2?|date|dnt|expect|"
    r"(?:x-)?forwarded.*|host|keep-alive|origin|proxy-.*|referer|sec-.*|set-cookie2?|te|trailer|transfer-encoding|"
    r"upgrade|user-agent|via|x-(?:http-)?(?:host|method)(?:-override)?|x-(?:original|rewrite)-.*|x-real-ip",
    re.DOTALL,
)
_URL_KEYS = ("webrtc_url", "webrtcUrl")
_PARAMS_KEYS = ("webrtc_request_params", "webrtcRequestParams")


@attrs.frozen(kw_only=True)
class Target:
    """The destination of the offer.

    Attributes:
        url: the URL that takes the offer by POST.
        headers: headers of the request.
        request_data: data for the bot; None: no data.
        ice_servers: ICE servers that the server has named.
    """

    url: str = attrs.field(repr=False)
    headers: Mapping[str, str] = attrs.field(repr=False)
    request_data: Any = attrs.field(default=None, repr=False)
    ice_servers: tuple[ICEServer, ...] = ()


def target_of(
    bundle: Any,
    url: str | None,
    headers: Mapping[str, str],
    start: StartRequest | None,
    source: str,
    allowed: Collection[Origin] = (),
) -> Target:
    """Return the destination of the offer.

    Args:
        bundle: the start endpoint's answer, or the argument of `connect()`.
        url: the transport's own URL; None: the URL in the bundle.
        headers: the transport's own headers; they take precedence.
        start: the request that the bundle answers, if there was one.
        source: the sender of the bundle, for error texts.
        allowed: origins to which a server may send the offer, other than its own.

    Raises:
        InvalidTransportParamsError: the bundle has no address, an unusable one, or one that its server must not name.
    """
    given = bundle if isinstance(bundle, Mapping) else {}
    params = _first(given, _PARAMS_KEYS, Mapping) or {}
    session = _first(given, ("sessionId", "session_id"), str)
    address = url or _first(given, _URL_KEYS, str) or _first(params, ("endpoint",), str)
    own_headers = dict(_first(params, ("headers",), Mapping) or {})
    if start is not None:  # otherwise the application has given the bundle
        if address is not None and url is None:
            address = _named_by_server(address, start, source, allowed)
        own_headers = _allowed_headers(own_headers, source)
    if address is None and session and start is not None and not_reached(bundle) is None:
        address = _offer_url(start.url, session)
        own_headers = merged_headers(start.headers, own_headers)
    if address is None:
        raise InvalidTransportParamsError(missing_offer_url(bundle, source))
    check_offer_url(address)
    ice = _first(given, ("iceConfig", "ice_config"), Mapping) or {}
    try:
        servers = ice_servers(_first(ice, ("iceServers", "ice_servers"), Sequence) or (), by_server=bool(source))
    except (TypeError, ValueError) as error:
        raise InvalidTransportParamsError(f"{source or 'connect() was given'} an unusable iceConfig: {error}") from None
    return Target(
        url=address,
        headers=merged_headers(own_headers, headers),
        request_data=_first(params, ("request_data", "requestData"), object),
        ice_servers=servers,
    )


def check_offer_url(url: str) -> SplitResult:
    """Return the parts of the URL that takes the offer, normalized.

    Raises:
        InvalidTransportParamsError: the URL is not valid.
    """
    parts = parse_url(url, "http", "https")
    if parts is None:
        raise InvalidTransportParamsError(
            f"{printable(url)!r} is not the URL of an offer: {url_fault(url, 'http', 'https')}"
        )
    return parts


def checked_origins(urls: Iterable[str]) -> frozenset[Origin]:
    """Return the origins in the option `allowed_origins`.

    Raises:
        InvalidTransportParamsError: an origin is not valid.
    """
    found = set()
    for url in urls:
        parts, server = parse_url(url, "http", "https"), origin(url)
        is_bare = parts is not None and not (parts.path.strip("/") or parts.query or parts.fragment or parts.username)
        if server is None or not is_bare:
            raise InvalidTransportParamsError(
                f"allowed_origins has {printable(url)!r}, which is not an origin. Give scheme, host and port alone, as "
                "in 'https://bots.example:8443'"
            )
        found.add(server)
    return frozenset(found)


def _named_by_server(url: str, start: StartRequest, source: str, allowed: Collection[Origin]) -> str:
    """Return the URL for the offer that a start endpoint has named, normalized.

    Raises:
        InvalidTransportParamsError: the URL is not valid, has a user and password, or leads to another server that is
            not allowed.
    """
    parts = reachable(check_offer_url(url), start)
    check_no_login(parts, source)
    named = origin(parts.geturl())
    assert named is not None, "it was checked"
    if named != origin(start.url) and named not in allowed:
        server = printable(f"{named[0]}://{authority(*named[1:])}")
        raise InvalidTransportParamsError(
            f"{source} an address for the offer at another server, {server}, to which nothing was sent. If that server "
            f"is right, allow it: SmallWebRTCTransport(allowed_origins=[{server!r}])"
        )
    return parts.geturl()


def _allowed_headers(headers: Mapping[str, str], source: str) -> dict[str, str]:
    """Return the headers that a server may choose for the offer; a warning counts the others."""
    allowed = {name: value for name, value in headers.items() if not _NOT_BY_SERVER.fullmatch(name)}
    if len(allowed) < len(headers):
        logger.warning(
            "%s headers for the offer that a server must not choose, such as Host, Cookie or Authorization; %d were "
            "left out. Pass them as SmallWebRTCTransport(headers=...)",
            source,
            len(headers) - len(allowed),
        )
    return allowed


def check_encrypted(url: str) -> None:
    """Check the URL that a start endpoint has named over https.

    Raises:
        InvalidTransportParamsError: the offer would not be encrypted.
    """
    if url.lower().startswith("http:"):
        raise InvalidTransportParamsError(
            f"The start endpoint was reached over https, but {printable(url)} is not encrypted: an attacker on the "
            "network could listen to the conversation. Let the server answer with an https:// URL, or allow it "
            "explicitly: SmallWebRTCTransport(allow_insecure=True)"
        )


def _first(mapping: Mapping[str, Any], keys: Iterable[str], kind: type) -> Any:
    return next((mapping[key] for key in keys if mapping.get(key) and isinstance(mapping[key], kind)), None)


def _offer_url(start_url: str, session: str) -> str:
    """Return the address at which Pipecat's runner and Pipecat Cloud take the offer of a session that they started."""
    parts = urlsplit(start_url)
    path = parts.path.rstrip("/").removesuffix("/start")
    return parts._replace(path=f"{path}/sessions/{quote(session, safe='')}/api/offer", query="", fragment="").geturl()


def ice_servers(servers: Any, *, by_server: bool = False) -> tuple[ICEServer, ...]:
    """Return STUN and TURN servers in the form of browsers: URLs, or mappings with ``urls``.

    Args:
        servers: the servers, as given.
        by_server: True if the server named them, not the application. URLs that cannot be used, or are too many, are
            then left out, with one warning.

    Raises:
        TypeError, ValueError: an item is not valid. The text does not repeat user and password.
    """
    if isinstance(servers, (str, bytes, Mapping)) or not isinstance(servers, Iterable):
        raise TypeError(f"ice_servers must be a list of URLs or mappings, not {type(servers).__name__}")
    usable: list[ICEServer] = []
    room = _MAX_ICE_URLS
    left_out: list[str] = []
    for server in map(_ice_server, servers):
        urls: list[str] = []
        for url in server.urls:
            fault = _fault_of(url)
            if fault is not None and (not by_server or re.match("(?i)(stun|turn)s?:", url) is None):
                raise ValueError(f"ice_servers has {_shown(url)}: {fault}")
            if fault is None and len(urls) == room:
                fault = f"at most {_MAX_ICE_URLS} are used"
                if not by_server:
                    raise ValueError(f"ice_servers has too many URLs: {fault}. Name one or two servers")
            if fault is None:
                urls.append(url)
            else:
                left_out.append(fault if left_out else f"{_shown(url)}: {fault}")
        room -= len(urls)
        if urls:
            usable.append(attrs.evolve(server, urls=tuple(urls)))
    if left_out:
        logger.warning("ICE servers of the server are left out (%d); the first is %s", len(left_out), left_out[0])
    return tuple(usable)


def _shown(url: str) -> str:
    """Return the URL of an ICE server without user and password."""
    scheme, colon, rest = url.partition(":")
    return quoted(f"{scheme}{colon}***@{rest.rpartition('@')[2]}" if "@" in rest else url)


def _fault_of(url: str) -> str | None:
    """Return why the URL of an ICE server cannot be used; None if it can."""
    if _UNUSABLE_ICE_URL.fullmatch(url):
        return "STUN over TLS and TURN over DTLS are not supported; use 'stun:', or 'turns:' over TCP"
    found = _ICE_URL.fullmatch(url)
    if found is None:
        return (
            "URLs must be such as 'stun:host:3478' or 'turn:host:3478?transport=tcp', with a name or an IPv4 address, "
            "and without user and password"
        )
    port = found[1] or found[2]
    return None if port is None or 1 <= int(port) <= 65535 else "ports are numbers from 1 to 65535"


def _ice_server(server: Any) -> ICEServer:
    entry = {"urls": server} if isinstance(server, str) else server
    if not isinstance(entry, Mapping):
        raise TypeError(f"each of ice_servers must be a URL or a mapping, not {type(server).__name__}")
    urls = entry.get("urls", entry.get("url"))
    urls = (urls,) if isinstance(urls, str) else urls
    if not isinstance(urls, Sequence) or not urls or not all(isinstance(url, str) for url in urls):
        raise TypeError("each mapping of ice_servers needs urls: a URL, or a list of URLs")
    login = entry.get("username"), entry.get("credential")
    if not all(part is None or isinstance(part, str) for part in login):
        raise TypeError("username and credential of ice_servers must be strings")
    return ICEServer(urls=tuple(urls), username=login[0], credential=login[1])


def offer_body(sdp: str, pc_id: str | None, request_data: Any) -> bytes:
    """Return the request with an offer. To negotiate a connection again, pass the `pc_id` of its first answer."""
    body = {"sdp": sdp, "type": "offer", "pc_id": pc_id, "restart_pc": False}
    # Pipecat's server ignores the spelling of its JavaScript client, `requestData`.
    return to_json({**body, **({"request_data": request_data} if request_data is not None else {})})


@attrs.frozen(kw_only=True)
class OfferAnswer:
    """The answer to an offer.

    Attributes:
        sdp: the session description.
        pc_id: the server's name for the connection.
        max_message_size: largest message that the server takes, in bytes; `sys.maxsize` without a limit.
    """

    sdp: str = attrs.field(repr=False)
    pc_id: str | None = attrs.field(default=None, repr=False)
    max_message_size: int = _DEFAULT_MAX_MESSAGE_SIZE

    @property
    def takes_short_packets(self) -> bool:
        """True if packets of audio may be shorter than 20 ms.

        aiortc up to 1.11 hears nothing in them. All versions up to 1.15 have this size, and no other distinction.
        """
        return self.max_message_size > _DEFAULT_MAX_MESSAGE_SIZE


def answer_of(document: Any, where: str) -> OfferAnswer:
    """Return the answer in a JSON document.

    Args:
        document: the server's answer.
        where: the server's URL, without secrets.

    Raises:
        TransportStartError: the document is no answer, or the answer allows no conversation.
    """
    sdp = document.get("sdp") if isinstance(document, Mapping) else None
    if not isinstance(sdp, str):
        raise TransportStartError(
            f"{where} has answered without an sdp. Check that it takes offers (in Pipecat it ends in /api/offer)"
        )
    if len(sdp) > _MAX_CHARACTERS:
        raise TransportStartError(
            f"{where} answered with {len(sdp)} characters; at most {_MAX_CHARACTERS} are read. Check the server that "
            "writes the answer"
        )
    lines = sdp.splitlines()
    addresses = {line for line in lines if line.startswith("a=candidate:")}  # each medium may repeat them
    if len(lines) > _MAX_LINES or len(addresses) > _MAX_CANDIDATES:
        raise TransportStartError(
            f"{where} answered with {len(lines)} lines and {len(addresses)} addresses of the bot; at most "
            f"{_MAX_LINES} and {_MAX_CANDIDATES} are read. Check the server that writes the answer"
        )
    ports = dict(re.findall(r"(?m)^m=(\w+) (\d+)", sdp))
    if not ports:
        raise TransportStartError(f"{where} answered the offer without media. See the server's log")
    if ports.get("audio", "0") == "0":
        raise TransportStartError(
            f"{where} has refused the audio of this connection. Check that the bot's transport has audio, and Opus"
        )
    if ports.get("application", "0") == "0":
        raise TransportStartError(f"{where} has refused the data channel, which carries RTVI. See the server's log")
    if not candidates(sdp):
        raise TransportStartError(
            f"{where} has answered without an address of the bot: its machine may have no network but loopback"
        )
    if not re.search(r"(?m)^a=fingerprint:", sdp):  # aiortc would wait for ever
        raise TransportStartError(f"{where} answered without a fingerprint, which WebRTC needs. See the server's log")
    size = re.search(r"(?m)^a=max-message-size:(\d{1,15})", sdp)  # int() refuses 5000 digits
    pc_id = document.get("pc_id")
    return OfferAnswer(
        sdp=sdp,
        pc_id=pc_id if isinstance(pc_id, str) else None,
        max_message_size=(int(size[1]) or sys.maxsize) if size else _DEFAULT_MAX_MESSAGE_SIZE,
    )


def candidates(sdp: str) -> list[str]:
    """Return the kinds and addresses of the candidates in a session description, such as "host 192.0.2.1"."""
    found = re.findall(r"(?m)^a=candidate:\S+ \d+ (\S+) \d+ (\S+) \d+ typ (\S+)", sdp)
    shown = (one_line(f"{kind} {address} ({protocol.lower()})", _MAX_SHOWN) for protocol, address, kind in found)
    return [*dict.fromkeys(shown)]


def message(content: Mapping[str, Any]) -> str:
    """Return the text of a signalling message, which is not RTVI."""
    return to_json({"type": "signalling", "message": content}).decode()


def track_status(receiver: int, *, enabled: bool) -> str:
    """Return the message that tells the bot whether a track is on: 0 microphone, 1 camera, 2 screen."""
    return message({"type": "trackStatus", "receiver_index": receiver, "enabled": enabled})


def signalled(document: Any) -> str | None:
    """Return the type of a signalling message ("renegotiate", "peerLeft"); None for any other document."""
    if not isinstance(document, Mapping) or document.get("type") != "signalling":
        return None
    content = document.get("message")
    kind = content.get("type") if isinstance(content, Mapping) else None
    return kind if isinstance(kind, str) else ""
