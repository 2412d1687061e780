"""One deadline over every phase of `connect()`, and what is left of an attempt that failed."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import attrs
import pytest

from rtvi_sync import (
    BotAlreadyStartedError,
    ConnectionTimeoutError,
    DisconnectedError,
    RTVIClient,
    RTVIError,
    TransportStartError,
    TransportState,
    WebSocketTransport,
)
from rtvi_sync.media import NullSink, SilenceSource
from rtvi_sync.testing import EmbeddedBot
from tests.client.helpers import (
    SOON,
    InThread,
    black_hole,
    memory_client,
    raw_server,
    read_request,
    silent_bot,
    threads_of_package,
    transport_of,
    until,
)

LIMIT = 1.0
TOLERANCE = 0.2


class HungSource(SilenceSource):
    """A source that hangs when it is asked for its sample rate, until the test lets it go."""

    hung = threading.Event()
    release = threading.Event()

    @property
    def sample_rate_hz(self) -> int:
        self.hung.set()
        self.release.wait(SOON)
        return 16000


@attrs.define
class Hung:
    """A client whose `connect()` hangs in one phase.

    Attributes:
        client: made without a limit unless the test gives one.
        phase: what the error calls it.
        reached: waits until it hangs.
        heal: makes the next `connect()` work.
        release: lets what hangs go; None: cancelling it is our business.
    """

    client: RTVIClient
    phase: str
    reached: Callable[[], Any]
    heal: Callable[[], Any]
    release: Callable[[], Any] | None = None


def _swallow(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


@contextmanager
def hung_devices(**options: Any) -> Iterator[Hung]:
    HungSource.hung.clear()
    HungSource.release.clear()
    with EmbeddedBot() as bot:
        client = RTVIClient(transport=WebSocketTransport(bot.ws_url), mic=HungSource(), speaker=NullSink(), **options)

        def release() -> None:
            HungSource.release.set()
            until(lambda: not own_threads())

        try:
            yield Hung(client, "devices", lambda: HungSource.hung.wait(SOON), release, release)
        finally:
            release()


@contextmanager
def _http(port: int, reached: Callable[[], Any], **options: Any) -> Iterator[Hung]:
    client = memory_client(params={"base_url": f"http://127.0.0.1:{port}"}, **options)

    def heal() -> None:
        client.params.base_url = None

    yield Hung(client, "http", reached, heal)


@contextmanager
def tcp_black_hole(**options: Any) -> Iterator[Hung]:
    with black_hole() as port, _http(port, lambda: None, **options) as hung:
        hung.reached = lambda: until(lambda: hung.client.state is TransportState.AUTHENTICATING)
        yield hung


@contextmanager
def http_headers(**options: Any) -> Iterator[Hung]:
    asked = threading.Event()

    def serve(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-")
        asked.set()

    with raw_server(serve) as port, _http(port, lambda: asked.wait(SOON), **options) as hung:
        yield hung


@contextmanager
def http_body(**options: Any) -> Iterator[Hung]:
    asked = threading.Event()

    def serve(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
        asked.set()
        # A byte now and then defeats a limit per read.
        while True:
            connection.sendall(b" ")
            threading.Event().wait(0.05)

    with raw_server(serve) as port, _http(port, lambda: asked.wait(SOON), **options) as hung:
        yield hung


@contextmanager
def http_tls(**options: Any) -> Iterator[Hung]:
    asked = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.recv(1)
        asked.set()
        _swallow(connection)

    with raw_server(serve) as port, _http(port, lambda: asked.wait(SOON), **options) as hung:
        hung.client.params.base_url = f"https://127.0.0.1:{port}"
        yield hung


@contextmanager
def _websocket(url: str, reached: Callable[[], Any], phase: str = "transport", **options: Any) -> Iterator[Hung]:
    with EmbeddedBot() as bot:
        client = RTVIClient(transport=WebSocketTransport(), mic=SilenceSource(), speaker=NullSink(), **options)
        client.params.base_url = "http://unused.invalid"
        client.params.endpoints.connect = None
        targets = [url]

        def handler(*_: Any) -> Any:
            return {"ws_url": targets[0]}

        client._connector._options.custom_connect_handler = handler

        def heal() -> None:
            targets[0] = bot.ws_url

        yield Hung(client, phase, reached, heal)


@contextmanager
def websocket_tcp(**options: Any) -> Iterator[Hung]:
    with black_hole() as port, _websocket(f"ws://127.0.0.1:{port}/", lambda: None, **options) as hung:
        hung.reached = lambda: until(lambda: hung.client.state is TransportState.CONNECTING)
        yield hung


@contextmanager
def websocket_tls(**options: Any) -> Iterator[Hung]:
    asked = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.recv(1)
        asked.set()
        _swallow(connection)

    with (
        raw_server(serve) as port,
        _websocket(f"wss://127.0.0.1:{port}/", lambda: asked.wait(SOON), **options) as hung,
    ):
        yield hung


@contextmanager
def websocket_handshake(**options: Any) -> Iterator[Hung]:
    asked = threading.Event()

    def serve(connection: socket.socket) -> None:
        read_request(connection)
        asked.set()
        while True:  # a handshake that drips
            connection.sendall(b"H")
            threading.Event().wait(0.05)

    with (
        raw_server(serve) as port,
        _websocket(f"ws://127.0.0.1:{port}/", lambda: asked.wait(SOON), **options) as hung,
    ):
        yield hung


@contextmanager
def bot_ready(**options: Any) -> Iterator[Hung]:
    with (
        EmbeddedBot(ready=False) as bot,
        _websocket(
            bot.ws_url, lambda: bot.wait_for_session().wait_for_message("client-ready"), "bot-ready", **options
        ) as hung,
    ):
        yield hung


@contextmanager
def name_look_up(**options: Any) -> Iterator[Hung]:
    looked, release = threading.Event(), threading.Event()
    real = socket.getaddrinfo

    def look_up(host: Any, *arguments: Any, **keywords: Any) -> Any:
        if host != "hangs.invalid":
            return real(host, *arguments, **keywords)
        looked.set()
        release.wait(SOON)
        raise socket.gaierror("no such host")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", look_up)
        with _http(1, lambda: looked.wait(SOON), **options) as hung:
            hung.client.params.base_url = "http://hangs.invalid"
            hung.release = release.set
            try:
                yield hung
            finally:
                release.set()
                until(lambda: not own_threads())


PHASES = [
    hung_devices,
    name_look_up,
    tcp_black_hole,
    http_tls,
    http_headers,
    http_body,
    websocket_tcp,
    websocket_tls,
    websocket_handshake,
    bot_ready,
]
HangingPhase = Callable[..., AbstractContextManager[Hung]]


def own_threads() -> list[str]:
    """Threads of the client; those of the embedded bot are the test's."""
    return [name for name in threads_of_package() if not name.startswith("rtvi-bot-")]


@pytest.mark.parametrize("phase", PHASES)
class TestEveryPhase:
    def test_deadline(self, phase: HangingPhase) -> None:
        """Invariant "one deadline over every phase": `ConnectionTimeoutError` within 20 % of a limit of 1 s, with phase
        and time; state `error`; no thread left but one that sits in a look-up or a device; then `connect()` works."""
        with phase(connect_timeout=LIMIT) as hung:
            begun = time.monotonic()
            with pytest.raises(ConnectionTimeoutError) as caught:
                hung.client.connect()
            elapsed = time.monotonic() - begun
            left = own_threads()
            assert LIMIT <= elapsed <= LIMIT + TOLERANCE
            assert caught.value.phase == hung.phase
            assert LIMIT <= caught.value.elapsed <= elapsed
            assert isinstance(caught.value, TimeoutError)
            assert hung.client.state is TransportState.ERROR
            if hung.release is None:
                assert left == []
            else:
                assert [name.split("-")[1] for name in left] == ["connect"]
            hung.heal()
            hung.client.connect()
            assert hung.client.state is TransportState.READY
            hung.client.disconnect()

    def test_disconnect_from_another_thread(self, phase: HangingPhase) -> None:
        """`connect()` without a limit raises `DisconnectedError(initiator="client")` at once, and can be called
        again."""
        with phase(connect_timeout=None) as hung:
            connecting = InThread(hung.client.connect)
            assert hung.reached() is not False
            begun = time.monotonic()
            hung.client.disconnect()
            disconnected = time.monotonic() - begun
            error = connecting.error(2.0)
            assert isinstance(error, DisconnectedError)
            assert error.initiator == "client"
            assert disconnected < 1.0
            assert hung.client.state is TransportState.DISCONNECTED
            if hung.release is None:
                assert own_threads() == []
            hung.heal()
            hung.client.connect()
            hung.client.disconnect()

    def test_second_connect(self, phase: HangingPhase) -> None:
        """While an attempt is under way another one is refused, and the first is undisturbed."""
        with phase(connect_timeout=None) as hung:
            connecting = InThread(hung.client.connect)
            assert hung.reached() is not False
            with pytest.raises(BotAlreadyStartedError, match=r"disconnect\(\)"):
                hung.client.connect()
            assert not connecting.done()
            hung.client.disconnect()
            connecting.error(2.0)


def test_the_late_result_of_an_abandoned_attempt() -> None:
    """Invariant "one attempt is one session": what an abandoned attempt still brings acts on a dead session; the next
    one is undisturbed."""
    release = threading.Event()
    answers = iter(["late", "good"])
    called = threading.Event()

    def handler(*_: Any) -> Any:
        answer = next(answers)
        if answer == "late":
            called.set()
            release.wait(SOON)
        return {"ws_url": answer}

    client = memory_client(custom_connect_handler=handler, connect_timeout=None)
    abandoned = InThread(client.connect)
    assert called.wait(SOON)
    (late,) = [t for t in threading.enumerate() if "-connect-" in t.name]
    client.disconnect()
    abandoned.error()
    client.connect()
    release.set()
    late.join(SOON)
    assert client.state is TransportState.READY
    assert transport_of(client).auth_bundle == {"ws_url": "good"}
    assert client.send_client_request("ping", 1) == 1
    client.disconnect()


def test_the_http_answer_does_not_end_the_deadline() -> None:
    """The limit covers what comes after the request: a bot that is started and never ready."""
    with EmbeddedBot(ready=False) as bot:
        client = RTVIClient(
            transport=WebSocketTransport(),
            params={"base_url": bot.base_url},
            connect_timeout=0.5,
            mic=SilenceSource(),
            speaker=NullSink(),
        )
        with pytest.raises(ConnectionTimeoutError) as caught:
            client.connect()
        assert caught.value.phase == "bot-ready"


def test_no_limit_is_told_of(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Without a limit a warning names the phase, again and again, until the end."""
    monkeypatch.setattr("rtvi_sync.connect._REMINDER_INTERVAL", 0.02)
    client = memory_client(silent_bot, connect_timeout=None)
    connecting = InThread(client.connect)
    until(lambda: len(caplog.records) >= 3)
    client.disconnect()
    connecting.error()
    assert {r.levelno for r in caplog.records} == {logging.WARNING}
    assert "waiting for the bot to be ready" in caplog.records[-1].getMessage()
    assert "connect_timeout" in caplog.records[-1].getMessage()


def test_a_limit_is_not_told_of(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """With a limit nobody has to be told."""
    monkeypatch.setattr("rtvi_sync.connect._REMINDER_INTERVAL", 0.02)
    with pytest.raises(ConnectionTimeoutError):
        memory_client(silent_bot, connect_timeout=0.2).connect()
    assert caplog.records == []


def test_reminder_interval() -> None:
    """The warnings come every 10 s."""
    from rtvi_sync import connect

    assert connect._REMINDER_INTERVAL == 10.0


def test_two_threads_connect_at_once() -> None:
    """One gets the session, the others are told that there is one."""
    for _ in range(20):
        client = memory_client()
        start = threading.Barrier(4)

        def connect(client: RTVIClient = client, start: threading.Barrier = start) -> Any:
            start.wait(SOON)
            return client.connect()

        attempts = [InThread(connect) for _ in range(4)]
        outcomes: list[Any] = []
        for attempt in attempts:
            try:
                outcomes.append(attempt.result())
            except BotAlreadyStartedError as error:
                outcomes.append(error)
        assert sorted(type(o).__name__ for o in outcomes) == ["BotAlreadyStartedError"] * 3 + ["BotReadyData"]
        assert client.send_client_request("ping", 1) == 1
        client.disconnect()


def test_already_connected() -> None:
    """`connect()` in a live session is refused with the way out, and the session goes on."""
    with memory_client() as client:
        with pytest.raises(BotAlreadyStartedError, match=r"disconnect\(\)"):
            client.connect()
        assert client.send_client_request("ping", 1) == 1
        assert client.state is TransportState.READY


@pytest.mark.parametrize("step", ["initialize", "init_devices", "connect", "send_ready_message"])
@pytest.mark.parametrize("error", [ValueError("broken"), OSError("broken"), RTVIError("broken")])
def test_a_transport_that_raises(step: str, error: Exception) -> None:
    """An error of a transport fails the attempt as a `TransportStartError`, or as what it is if it is one of ours."""
    client = memory_client()
    transport = transport_of(client)
    real = getattr(transport, step)

    def broken(*_: Any) -> None:
        raise error

    setattr(transport, step, broken)
    expected = RTVIError if isinstance(error, RTVIError) else TransportStartError
    with pytest.raises(expected, match="broken") as caught:
        client.connect()
    assert caught.value is error or caught.value.__cause__ is error
    assert client.state is TransportState.ERROR
    assert threads_of_package() == []
    setattr(transport, step, real)
    client.connect()
    client.disconnect()


@pytest.mark.parametrize("begun", [False, True])
def test_the_bot_leaves_before_it_is_ready(begun: bool) -> None:
    """The line ends before bot-ready: `connect()` raises at once what is known of the end; the state is `error`."""
    from rtvi_sync import CloseInfo

    def bot(transport: Any, message: Any) -> Any:
        if message.type == "client-ready":
            transport.end(CloseInfo(code=1013, reason="full", initiator="server"))

    client = memory_client(bot, connect_timeout=None)
    with pytest.raises(DisconnectedError, match="full") as caught:
        client.connect()
    assert (caught.value.code, caught.value.reason, caught.value.initiator) == (1013, "full", "server")
    assert client.state is TransportState.ERROR
    assert threads_of_package() == []


def test_a_fatal_error_before_ready() -> None:
    """A bot that says that it cannot go on is not waited for; its own words are raised."""
    from rtvi_sync import BotError, RTVIMessage

    def bot(transport: Any, message: Any) -> Any:
        if message.type == "client-ready":
            yield RTVIMessage("error", {"error": "no model", "fatal": True}, None)

    client = memory_client(bot, connect_timeout=None)
    with pytest.raises(BotError, match="no model") as caught:
        client.connect()
    assert caught.value.fatal is True
    assert client.state is TransportState.ERROR


def test_bot_ready_before_connect_has_returned() -> None:
    """A bot that is ready while the transport still opens: states and events come in their order all the same."""
    client = memory_client()
    transport = transport_of(client)
    real = transport.connect

    def connect(*arguments: Any) -> None:
        real(*arguments)
        transport.receive({"label": "rtvi-ai", "type": "bot-ready", "id": "1", "data": {"version": "2.2.0"}})
        assert client.state is TransportState.CONNECTING

    transport.connect = connect
    heard: list[str] = []
    client.on("transport_state_changed", lambda state: heard.append(str(state)))
    client.on("connected", lambda: heard.append("event connected"))
    client.on("bot_ready", lambda: heard.append("event bot_ready"))
    with client:
        assert client.connected
    assert heard[3:8] == ["connected", "event connected", "ready", "event bot_ready", "event bot_ready"]


def test_bot_ready_and_then_a_failure() -> None:
    """A bot-ready that came before the transport failed to open is no session: the state is `error`."""
    client = memory_client()
    transport = transport_of(client)

    def connect(*_: Any) -> None:
        transport.receive({"label": "rtvi-ai", "type": "bot-ready", "id": "1", "data": {"version": "2.2.0"}})
        raise OSError("gone")

    transport.connect = connect
    ended: list[Any] = []
    client.on("disconnected", ended.append)
    with pytest.raises(TransportStartError):
        client.connect()
    assert client.state is TransportState.ERROR
    assert ended == []


def test_media_that_does_not_start() -> None:
    """A transport whose media fails to start ends the attempt with that error."""
    client = memory_client(connect_timeout=None)
    transport = transport_of(client)

    def start_media() -> None:
        raise RuntimeError("no sound")

    transport.start_media = start_media
    with pytest.raises(TransportStartError, match="no sound"):
        client.connect()
    del transport.start_media
    client.connect()
    client.disconnect()


def test_two_limits_in_a_row() -> None:
    """A client whose attempts fail again and again leaves nothing behind."""
    client = memory_client(silent_bot, connect_timeout=0.05)
    for _ in range(10):
        with pytest.raises(ConnectionTimeoutError):
            client.connect()
        assert threads_of_package() == []
