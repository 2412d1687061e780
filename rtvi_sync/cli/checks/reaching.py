"""Checks of the way to the bot: port, start endpoint, TLS, path, token, entry, eval route, RTVI."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult

from rtvi_sync import RTVIError
from rtvi_sync.concurrency.clock import monotonic, wall_time
from rtvi_sync.net.advice import ProxyError
from rtvi_sync.net.dial import dial, dial_by
from rtvi_sync.net.upgrade import open_websocket
from rtvi_sync.net.urls import authority, port_of, printable
from rtvi_sync.protocol.text import one_line

from .diagnosis import Diagnosis, fail, of_error, ok, skipped, warn
from .examination import Examination

# Days before its expiry at which a certificate should be replaced.
_DAYS: Final = 14
_MAX_KEYS: Final = 8

_START_BOT: Final = (
    "Start the bot, and see which --host and --port it has. In Docker start it with --host 0.0.0.0, and publish the "
    "port: docker run -p {port}:{port}"
)


def port(exam: Examination) -> Diagnosis:
    """Check that a server listens: name, network, proxy."""
    parts = exam.parts
    where = authority(parts.hostname or "", port_of(parts))
    # Without TLS, which has its own check. With an explicit port, because the default port follows from the scheme.
    # Through
    # a proxy a tunnel is opened, as for TLS, except where the session needs none.
    plain = parts._replace(scheme="http" if parts.scheme == "http" else "ws", netloc=where)
    began = monotonic()
    try:
        proxy = exam.network.proxy_for(exam.url)
        sock, detach = exam.open(plain, lambda url, *how: dial_by(proxy, url, *how))
    except ProxyError as error:
        return of_error(error, "Check the proxy, or unset the variable. NO_PROXY lists servers that need no proxy")
    except socket.gaierror as error:
        return fail(f"{parts.hostname} is not known: {error.strerror}", "Check the name of the host, and the network")
    except ConnectionRefusedError:
        return fail(f"nothing listens at {where}", _START_BOT.format(port=port_of(parts)))
    except TimeoutError:
        return fail(
            f"{where} does not answer",
            "Check host and port; a firewall may drop the packets, or the machine is off",
        )
    except (OSError, RTVIError) as error:
        return of_error(error, "Check host and port, and the network")
    exam.round_trip = monotonic() - began
    detach()
    sock.close()
    return ok(f"{where} accepts connections{f', through the {proxy}' if proxy is not None else ''}")


def http(exam: Examination) -> Diagnosis:
    """Check the start endpoint and its answer."""
    if not exam.bot_url.endpoints:
        return skipped("the URL needs no start request")
    trial = exam.trial
    if (finding := trial.verdict("http")) is not None:
        return finding
    seconds = trial.seconds.get("http")
    if trial.answer is None:
        refused = trial.cause is not None
        return ok("the start endpoint exists" if refused else "the server has WebSockets only", seconds=seconds)
    keys = list(trial.answer)[:_MAX_KEYS] if isinstance(trial.answer, Mapping) else []
    return ok(one_line(f"the start endpoint answered with {', '.join(map(str, keys)) or 'nothing'}"), seconds=seconds)


def tls(exam: Examination) -> Diagnosis:
    """Check TLS and the server's certificate."""
    trial = exam.trial
    if (finding := trial.verdict("tls")) is not None:
        return finding
    websocket = trial.websocket
    places = [url for url in (exam.parts, websocket) if url is not None and url.scheme in ("https", "wss")]
    if not places:
        return skipped("the address is plain, without TLS")
    if exam.parts.scheme == "http" and websocket is not None and trial.ready is not None:
        return warn(
            f"the server advertises {printable(websocket.geturl())} but has no TLS, so ws:// was used",
            "Pipecat's runner does so with any --host but localhost. Browsers and other clients cannot connect: put a "
            "proxy with TLS before it, or start it with --host localhost",
        )
    return min((_certificate(exam, url) for url in places), key=lambda finding: finding.status == "ok")


def _certificate(exam: Examination, url: SplitResult) -> Diagnosis:
    try:
        sock, detach = exam.open(url, dial)
    except (OSError, RTVIError) as error:  # it was valid a moment ago
        return warn(f"the certificate could not be read: {one_line(str(error))}", "Run doctor again")
    certificate = sock.getpeercert() if isinstance(sock, ssl.SSLSocket) else None
    detach()
    sock.close()
    end = (certificate or {}).get("notAfter")
    if not isinstance(end, str):
        return ok("the certificate is trusted")
    days = int((ssl.cert_time_to_seconds(end) - wall_time()) // 86400)
    text = f"the certificate of {url.hostname} is valid for {days} more days"
    return ok(text) if days >= _DAYS else warn(text, "Renew it")


def path(exam: Examination) -> Diagnosis:
    """Check that the path accepts a WebSocket, or an offer."""
    trial = exam.trial
    if (finding := trial.verdict("path")) is not None:
        return finding
    seconds = trial.seconds.get("path")
    if trial.ready is None:
        return ok("the server has the path")
    return ok("the connection opens", seconds=seconds)


def token(exam: Examination) -> Diagnosis:
    """Check that the server accepts this client: keys, tokens, and whether it is busy."""
    return exam.trial.verdict("token") or ok("the server accepts this client")


def entry(exam: Examination) -> Diagnosis:
    """Check that the bot has an entry for the transport."""
    if (finding := exam.trial.verdict("entry")) is not None:
        return finding
    name = _transport(exam)
    return ok(f"the bot is reached by {name}" if name else "the bot accepts the connection")


def eval_route(exam: Examination) -> Diagnosis:
    """Look for the eval route, without a session."""
    if _transport(exam) == "eval":
        return ok("the session uses it")
    url = exam.trial.websocket
    if url is None or not exam.bot_url.endpoints or "/ws-client" not in url.path:
        return skipped("this server names only one WebSocket")
    scheme = "ws" if exam.parts.scheme == "http" else "wss"
    url = url._replace(scheme=scheme, netloc=exam.parts.netloc, path=url.path.replace("/ws-client", "/ws"))
    try:
        sock, _, detach = exam.open(url, lambda at, *how: open_websocket(at, {}, *how))
    except (OSError, RTVIError):
        return skipped("no eval route at /ws (only tests need it)")
    detach()
    sock.close()
    return ok("the eval route is at /ws")


def rtvi(exam: Examination) -> Diagnosis:
    """Check that the bot becomes ready."""
    trial = exam.trial
    return trial.verdict("rtvi") or ok("the bot is ready", seconds=trial.seconds.get("rtvi"))


def _transport(exam: Examination) -> str:
    """Return the name of the transport that reached the bot; "" if none did."""
    transport = exam.client.transport
    return transport.name if transport is not None and exam.trial.ready is not None else ""
