"""One attempt to connect, and the doctor's check that reports its failure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import SplitResult

import attrs

from rtvi_sync import (
    BotReadyData,
    ConnectError,
    ConnectionTimeoutError,
    DisconnectedError,
    Event,
    InvalidTransportParamsError,
    RTVIClient,
    RTVIError,
    RTVIEvent,
    StartBotError,
    TransportStartError,
    TransportState,
)
from rtvi_sync.concurrency.clock import monotonic
from rtvi_sync.net.advice import is_of_tls
from rtvi_sync.net.urls import parse_url
from rtvi_sync.session.connect_request import TELEPHONY

from .diagnosis import Diagnosis, blocked, fail, of_error

#: The checks that an attempt to connect answers, in order.
STEPS: Final = ("http", "tls", "path", "token", "entry", "rtvi")

_OPENED: Final = {TransportState.CONNECTED: "path", TransportState.READY: "rtvi"}
_BUSY: Final = 1013
_REFUSED_CLIENT: Final = (401, 403, 407, 429, 503)
# Paths of Pipecat's bots. A 403 there is about the token.
_KNOWN_PATHS: Final = ("/ws", "/ws-client")

# Further needs of Pipecat bots for a call, beside the entry.
_CREDENTIALS: Final = {
    "twilio": ", and TWILIO_ACCOUNT_SID and TWILIO_AUTH_TOKEN in its environment, with any text",
    "telnyx": ", and TELNYX_API_KEY in its environment, with any text",
    "plivo": ", and PLIVO_AUTH_ID and PLIVO_AUTH_TOKEN in its environment, with any text",
}

_FOR_START: Final = "Pass the key that the server requires, as --header 'Authorization: Bearer ...'"
_FOR_WEBSOCKET: Final = (
    "Pass a new token, by --token or RTVI_TOKEN: Pipecat's are valid for one connection; or pass the URL of the start "
    "endpoint, which issues one each time. If the server has --allowed-origins, add --header 'Origin: ...'"
)
_LATER: Final = "Try again later, or end the other session: the bot may serve one client at a time"
_CURES: Final = {  # by the phase of a timeout
    "http": "The server accepts the request but does not answer. Check its log; if it loads its models first, pass a "
    "larger --timeout",
    "transport": "Check host and port: the program there accepts connections but answers no WebSocket handshake",
    "bot-ready": "Give the bot an RTVI processor: leave enable_rtvi=False out of its task. If it loads slowly, pass "
    "a larger --timeout; see its log",
}


@attrs.frozen
class Cause:
    """The cause of a failed attempt.

    Attributes:
        step: Check that reports it.
        finding: Finding of the check.
        passed: Checks that passed.
    """

    step: str
    finding: Diagnosis
    passed: tuple[str, ...] = ()


class Trial:
    """One call of `connect()`, and its progress.

    Args:
        client: Client before the connection.
        named: WebSocket URL that the user gave; None if a server must name it.

    Attributes:
        answer: Answer of the start endpoint; None if it was not asked, or refused.
        ready: Introduction of the bot; None if it is not ready.
        cause: Why it is not ready.
        seconds: Durations of the steps in seconds: the answer of the start endpoint ("http"), the open connection
            ("path") and the ready bot ("rtvi").
    """

    def __init__(self, client: RTVIClient, named: SplitResult | None) -> None:
        self.answer: Any = None
        self.ready: BotReadyData | None = None
        self.cause: Cause | None = None
        self.seconds: dict[str, float] = {}
        self._named = named
        began = monotonic()
        with client.events(RTVIEvent.BOT_STARTED, RTVIEvent.TRANSPORT_STATE_CHANGED) as events:
            try:
                self.ready = client.connect()
            except RTVIError as error:
                name = client.transport.name if client.transport is not None else ""
                self._follow(events, began)
                cause = self._decisive(getattr(error, "attempts", ()) or ((name, error),))
                self.cause = attrs.evolve(cause, finding=attrs.evolve(cause.finding, seconds=monotonic() - began))
            else:
                self._follow(events, began)

    def _follow(self, events: Iterator[Event[Any]], last: float) -> None:
        """Follow the events of the attempt, which end with it."""
        for event in events:
            if event.type is RTVIEvent.BOT_STARTED:
                self.answer = event.data.response
            step = "http" if event.type is RTVIEvent.BOT_STARTED else _OPENED.get(event.data)
            if step is not None:
                self.seconds[step] = event.received_at - last
                last = event.received_at
            if step == "rtvi":
                return

    @property
    def websocket(self) -> SplitResult | None:
        """Address of the bot's WebSocket, as named; None if unknown."""
        if self._named is not None:
            return self._named
        answer = self.answer if isinstance(self.answer, Mapping) else {}
        url = answer.get("ws_url") or answer.get("wsUrl")
        return parse_url(url, "ws", "wss") if isinstance(url, str) else None

    def verdict(self, step: str) -> Diagnosis | None:
        """Return the finding of a step that failed or was not reached; None if it passed."""
        if self.cause is None or step in self.cause.passed:
            return None
        return self.cause.finding if step == self.cause.step else blocked(self.cause.step)

    # -- why it failed ------------------------------------------------------------------------------------------------

    def _decisive(self, failures: tuple[tuple[str, RTVIError], ...]) -> Cause:
        """Return the cause of the first transport that reached the bot, otherwise of the first attempted one."""
        causes = [self._cause_of(name, error) for name, error in failures]
        for step in ("rtvi", "entry"):
            for (name, _), cause in zip(failures, causes, strict=True):
                # The runner opens a WebRTC connection even for a bot without an entry for it.
                if cause.step == step and (name != "webrtc" or len(failures) == 1):
                    return cause
        return causes[0]

    def _cause_of(self, name: str, error: RTVIError) -> Cause:
        if isinstance(error, ConnectionTimeoutError):
            step = {"bot-ready": "rtvi", "transport": "path"}.get(error.phase, "http")
            return self._cause(step, of_error(error, _CURES.get(error.phase, "")))
        if is_of_tls(error):
            return Cause("tls", of_error(error), ("http",) if isinstance(error, TransportStartError) else ())
        if isinstance(error, StartBotError):
            if error.status in _REFUSED_CLIENT:
                return Cause("token", _refusal(error, _FOR_START), ("http", "tls"))
            return Cause("http", of_error(error), ("tls",))
        if isinstance(error, InvalidTransportParamsError):
            return Cause("http", of_error(error), ("tls",))
        if isinstance(error, DisconnectedError) and error.code == _BUSY:
            return self._cause("token", fail(f"The server is busy: it closed the connection ({_BUSY})", _LATER))
        if isinstance(error, DisconnectedError):
            return self._cause("entry", of_error(error, _entry(name)))
        if isinstance(error, ConnectError):
            return self._refused(error)
        return self._cause("rtvi", of_error(error))

    def _refused(self, error: ConnectError) -> Cause:
        """Return the cause of a refused WebSocket."""
        url = self.websocket
        is_known = url is not None and url.path.startswith(_KNOWN_PATHS)
        if (error.status == 403 and is_known) or error.status in (401, 407):
            return self._cause("token", _refusal(error, _FOR_WEBSOCKET))
        if error.status in (429, 503):
            return self._cause("token", of_error(error, _LATER))
        return self._cause("path", of_error(error))

    def _cause(self, step: str, finding: Diagnosis) -> Cause:
        return Cause(step, finding, STEPS[: STEPS.index(step)])


def _refusal(error: ConnectError, cure: str) -> Diagnosis:
    """Return the finding of a refusal, with the error's own advice if it says more than the cure."""
    has_better = error.status not in (401, 403) or "HTTP Basic" in str(error)
    return of_error(error, "" if has_better else cure)


def _entry(name: str) -> str:
    """Return the cure for a bot that closes the connection of a transport."""
    if name in TELEPHONY:
        return (
            f"See the bot's log. A bot of Pipecat needs the entry {name} in its transport_params, as "
            f"docs/start/pipecat.md shows{_CREDENTIALS.get(name, '')}. It takes calls at the path /ws alone"
        )
    wanted = (
        "websocket (with a ProtobufFrameSerializer) or eval" if name == "websocket" else name or "of this transport"
    )
    return (
        "See the bot's log. If it has no error, the bot lacks an entry in its transport_params: give it the entry "
        f"{wanted}, as docs/start/pipecat.md shows, or take the path of the entry that it has: /ws is eval, which "
        "needs -t eval up to Pipecat 1.12, and /ws-client is websocket"
    )
