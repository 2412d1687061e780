"""A real client, a real bot, and a proxy before each of the bot's two ports: one combination of the fault table."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import math
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import attrs

from rtvi_sync import EvalTransport, RTVIClient, RTVIError, TransportState, WebSocketTransport, errors
from rtvi_sync.errors import ConnectionTimeoutError, DisconnectedError
from rtvi_sync.media import BytesSink, NullSink, ToneSource
from rtvi_sync.testing import BotSession, EmbeddedBot, FaultProxy, Injection, ProxyConnection, faults
from rtvi_sync.testing.faults import Direction
from tests.support.loopback import serving, trusting
from tests.support.slowness import GUARD, takes
from tests.support.wire import tones

from .table import NOTHING, Harm, Landmarks, Moment

# The limits of calls in a session that may end, which keep the table fast; longer if a session without a fault needs
# more.
_CONNECT: Final = 1.5
_REQUEST: Final = 0.7
_MARGIN: Final = 6.0
# The bound of `disconnect()`.
_DISCONNECT: Final = 5.0
# The time that a busy machine may add to a limit.
_GRACE: Final = 2.0
# The bytes that TLS adds to one write.
_RECORD_BYTES: Final = 22
_REPLY: Final = ("word",) * 100
# Low rates, because a connection may split the audio byte by byte.
_TONE_HZ: Final = 2_000
_REPLY_HZ: Final = 2_000
_EXCHANGED_BYTES: Final = 1_000


TransportClass: TypeAlias = type[WebSocketTransport] | type[EvalTransport]


@attrs.frozen
class Limits:
    """The limits of calls, in seconds."""

    connect: float
    request: float


class EarlyLimitError(Exception):
    """The limit of `connect()` passed before the fault took effect: the machine is busier than it was."""


class Scenario:
    """Both ends of a session and the connection between them, into which a fault is injected."""

    large: Final = "größer " * 2000  # more than a TLS record holds
    large_bytes: Final = len(large.encode())

    def __init__(
        self, moment: Moment, harm: Harm, *, secure: bool, transport_class: TransportClass = WebSocketTransport
    ) -> None:
        self.transport_class = transport_class
        self.moment = moment
        self.harm = harm
        self.secure = secure
        self.harmless = harm.harmless
        self.connect_timeout = self.request_timeout = GUARD
        #: Real time that `connect()` and the last request took.
        self.took = Limits(0.0, 0.0)
        self._intact = secure or not harm.falsifies
        self._injection: Injection | None = None
        self._refusing = False
        self._hooks: dict[str, Callable[[Scenario], object]] = {}
        self._held: list[dict[str, Any]] = []
        self._to_hold = 0
        self._tone = ToneSource(sample_rate_hz=_TONE_HZ)
        self._speaker = BytesSink()
        self._threads: list[threading.Thread] = []
        self._events: list[str] = []

    @property
    def landmarks(self) -> Landmarks:
        return landmarks(self.secure, self.transport_class)

    def run(self, limits: Limits | None = None) -> str:
        """Run the scenario and return how it ended: "works", "ended", or the name of the error.

        Args:
            limits: Limits of calls in a session that may end; None: the limits of a session that must survive.

        Raises:
            EarlyLimitError: The limits are too short for this machine now.
        """
        # A reset is detected without a limit; only a hang is ended by one.
        if limits is not None and not self.harmless and not isinstance(self.harm.fault, faults.Reset):
            self.connect_timeout, self.request_timeout = limits.connect, limits.request
        context = serving() if self.secure else None
        with (
            EmbeddedBot(
                ssl_context=context,
                handler=self._handle,
                replies=" ".join(_REPLY),
                audio_out_sample_rate_hz=_REPLY_HZ,
                speech_threshold=math.inf,
            ) as self.bot,
            FaultProxy.before(self.bot.base_url) as self.http,
            FaultProxy.before(self.bot.ws_url) as self.ws,
        ):
            speaks = self.moment.name == "while audio flows"
            self.client = RTVIClient(
                transport=self.transport_class(self.ws.url(self.bot.ws_url)),
                params={"base_url": self.http.url(self.bot.base_url)},
                connect_timeout=self.connect_timeout,
                request_timeout=self.request_timeout,
                ssl_context=_client_context() if self.secure else None,
                proxy=False,
                enable_mic=speaks,
                mic=self._tone,
                speaker=self._speaker if speaks else NullSink(),
            )
            self.client.on("connected", lambda: self._events.append("connected"))
            self.client.on("disconnected", lambda: self._events.append("disconnected"))
            try:
                self.moment.arm(self)
                error = self._use_session()
            finally:
                with takes(_DISCONNECT + _GRACE):
                    self.client.disconnect()
            self._check_end()
            self._use_again()
            return self._ending(error)

    def _use_session(self) -> RTVIError | None:
        """Connect, run the moment's action, and make a request. Return the error that was raised."""
        try:
            with takes(self.connect_timeout + _GRACE) as connecting:
                self._connect()
            self.moment.act(self)
            if self.moment.ends:
                assert self.client.state is TransportState.DISCONNECTED
                return None
            with takes(self.request_timeout + _GRACE) as asking:
                answer = self.client.send_client_request("echo", "still there?")
            self.took = Limits(connecting.took, asking.took)
            self.compare(answer, "still there?")
        except RTVIError as error:
            return error
        return None

    def _connect(self) -> None:
        try:
            self.client.connect()
        except ConnectionTimeoutError as error:
            if not (self._refusing or (self._injection is not None and self._injection.struck)):
                raise EarlyLimitError from error
            raise

    def _ending(self, error: RTVIError | None) -> str:
        if error is None:
            return "ended" if self.moment.ends else "works"
        assert vars(errors).get(type(error).__name__) is type(error), f"an error without a public name: {error!r}"
        assert str(error), "an error without a text"
        if isinstance(error, ConnectionTimeoutError):
            assert error.phase in self.moment.phases, error
        return type(error).__name__

    def _use_again(self) -> None:
        """Lift the fault and check that the same client has a session again."""
        if self._injection is not None:
            self._injection.lift()
        for proxy in (self.http, self.ws):
            proxy.accept()
        start = self.http.url(f"{self.bot.base_url}/start")
        self.client.start_bot_and_connect(start, {"transport": "websocket"}, timeout=GUARD)
        assert self.client.send_client_request("echo", "again", timeout=GUARD) == "again"
        with takes(_DISCONNECT + _GRACE):
            self.client.disconnect()

    def _check_end(self) -> None:
        assert self.client.state in (TransportState.DISCONNECTED, TransportState.ERROR)
        assert self._events in ([], ["connected", "disconnected"])
        if self._injection is not None and self.moment.sure:
            assert self._injection.struck, "the fault did not take effect"
        for thread in self._threads:
            thread.join(GUARD)
            assert not thread.is_alive(), "a thread is left"

    # -- injection ----------------------------------------------------------------------------------------------------

    def strike(
        self, line: FaultProxy | ProxyConnection, after_bytes: int = 0, counted_in: Direction | None = None
    ) -> None:
        """Inject the fault into a connection, or into all later ones of a proxy, after `after_bytes` bytes."""
        if self.harm.fault is not None:
            self._injection = line.inject(
                self.harm.fault, self.harm.direction, after_bytes=after_bytes, counted_in=counted_in
            )
            return
        self._refusing = True
        for proxy in (line,) if isinstance(line, FaultProxy) else (self.http, self.ws):
            proxy.refuse()

    def strike_now(self, after_bytes: int = 0, counted_in: Direction | None = None) -> None:
        """Inject the fault into the WebSocket's connection, after `after_bytes` more bytes."""
        self.strike(self.ws.connections[-1], after_bytes, counted_in)

    def on(self, type: str, hook: Callable[[Scenario], object]) -> None:
        """Call a function when the bot has received a message of a type, before the bot processes it."""
        self._hooks[type] = hook

    # -- use of the session -------------------------------------------------------------------------------------------

    def compare(self, got: object, sent: object) -> None:
        """Check that the received data equals the sent data, unless the fault may change it undetected."""
        if self._intact:
            assert got == sent

    def bot_sends(self, message: dict[str, Any]) -> None:
        """Send a message from the bot if its session is still open; the message need not arrive."""
        for session in self.bot.sessions:
            with contextlib.suppress(DisconnectedError):
                session.send(message)

    def bot_closes(self) -> None:
        """Close the session from the bot's side, and wait until the client has detected it."""
        with self.client.events("disconnected", timeout=self.request_timeout) as events:
            self._in_thread(self._session.close, 1001, "bye")
            for event in events:
                if self.harmless:
                    assert (event.data.code, event.data.reason, event.data.initiator) == (1001, "bye", "server")

    def make_calls(self, number: int) -> None:
        """Make `number` requests at the same time; the fault is injected when the bot has all, before it answers."""
        self._to_hold = number
        outcomes: list[object] = []

        def call(index: int) -> None:
            try:
                with takes(self.request_timeout + _GRACE):
                    self.compare(self.client.send_client_request("hold", index), index)
                outcomes.append(None)
            except BaseException as error:
                outcomes.append(error)

        for index in range(number):
            self._in_thread(call, index)
        for thread in self._threads:
            thread.join(GUARD)
        assert len(outcomes) == number, "a call is not answered"
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def converse(self) -> None:
        """Wait until more audio has arrived both ways, and check that it equals the audio sent."""
        if not self._speaker.pcm:
            self.client.send_text("Speak!")
        enough = [len(pcm) + _EXCHANGED_BYTES for pcm in (self._session.audio, self._speaker.pcm)]
        pause = threading.Event()
        limit = time.monotonic() + GUARD
        while len(self._session.audio) < enough[0] or len(self._speaker.pcm) < enough[1]:
            assert time.monotonic() < limit, "no audio arrives"
            pause.wait(0.01)
        said = self._session.audio
        assert said == ToneSource(sample_rate_hz=_TONE_HZ).samples(0, len(said) // 2)
        heard = self._speaker.pcm
        assert tones(_REPLY, _REPLY_HZ).pcm.startswith(heard)

    @property
    def _session(self) -> BotSession:
        (session,) = self.bot.sessions
        return session

    def _handle(self, session: BotSession, message: dict[str, Any]) -> bool:
        hook = self._hooks.pop(message["type"], None)
        if hook is not None:
            hook(self)
        if message["type"] != "client-message" or message["data"].get("t") != "hold":
            return False
        self._held.append(message)
        if len(self._held) == self._to_hold:
            self.strike_now()
            for held in self._held:
                session.send({"label": "rtvi-ai", "type": "server-response", "id": held["id"], "data": held["data"]})
        return True

    def _in_thread(self, function: Callable[..., object], *arguments: object) -> None:
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()


def limits_beside(number: int) -> Limits:
    """Return limits that sessions without a fault keep on this machine now, while others run at the same time.

    Args:
        number: the number of sessions that run at a time.
    """
    clean = [Scenario(Moment("clean", lambda _: None), NOTHING, secure=True) for _ in range(number)]
    with concurrent.futures.ThreadPoolExecutor(number) as pool:
        assert set(pool.map(Scenario.run, clean)) == {"works"}
    return Limits(
        max(_CONNECT, _MARGIN * max(scenario.took.connect for scenario in clean)),
        max(_REQUEST, _MARGIN * max(scenario.took.request for scenario in clean)),
    )


@functools.cache
def _client_context() -> ssl.SSLContext:
    return trusting()


@functools.cache
def landmarks(secure: bool, transport_class: TransportClass) -> Landmarks:
    """Return where the parts of a session without a fault lie."""
    measured, plain = _measure(secure, transport_class), _measure(False, transport_class)
    first_messages = 2 if transport_class is EvalTransport else 1
    # The bytes of the TLS handshake are the difference to the plain session, less those that TLS adds to each write
    # since: head and body of request and answer, the head of the upgrade and the messages up to client-ready, and its
    # answer.
    request, answer, upgrade, upgraded = (
        there - here - writes * _RECORD_BYTES if secure else 0
        for there, here, writes in zip(measured, plain, (2, 2, 1 + first_messages, 1), strict=True)
    )
    return Landmarks(
        request=request,
        answer=answer,
        answer_end=measured[1],
        upgrade=upgrade,
        upgraded=upgraded,
        upgraded_end=measured[3],
    )


@functools.cache
def _measure(secure: bool, transport_class: TransportClass) -> tuple[int, int, int, int]:
    """Return the bytes of request and answer, and of the WebSocket up to client-ready from and to the client."""
    counts: list[int] = []

    def count(scenario: Scenario) -> None:
        counts.extend(scenario.ws.connections[-1].received_bytes(direction) for direction in ("to_server", "to_client"))

    clean = Moment("clean", lambda scenario: scenario.on("client-ready", count))
    scenario = Scenario(clean, NOTHING, secure=secure, transport_class=transport_class)
    assert scenario.run() == "works"
    http = scenario.http.connections[0]
    to_server, to_client = counts
    return http.received_bytes("to_server"), http.received_bytes("to_client"), to_server, to_client
