"""Transports that a user writes."""

from __future__ import annotations

import inspect
import json
import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from rtvi_sync import (
    AbortSignal,
    CloseInfo,
    ConnectionTimeoutError,
    DisconnectedError,
    MemoryTransport,
    MessageTooLargeError,
    RTVIClient,
    RTVIEvent,
    RTVIMessage,
    Transport,
    TransportOptions,
    TransportStartError,
    TransportState,
    UnsupportedFeatureError,
)
from tests.support.attempts import connect_within, timed_out
from tests.support.clients import manager_of, transport_of
from tests.support.loopback import Peer, Server
from tests.support.slowness import GUARD
from tests.support.threads import InThread, thread_names
from tests.support.waiting import until


class LinesTransport(Transport):
    """RTVI as lines of JSON over TCP: a transport without audio, as the documentation's reader would write one."""

    name = "lines"

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None
        self._reader: threading.Thread | None = None

    def connect(self, auth_bundle: Any, abort: AbortSignal) -> None:
        sock = socket.socket()
        detach = abort.attach(sock)
        try:
            sock.connect(("127.0.0.1", self._port))
        except OSError as error:
            sock.close()
            raise TransportStartError(f"No server listens on port {self._port}") from error
        finally:
            detach()
        self._socket = sock
        self._reader = threading.Thread(target=self._read, args=(sock,), daemon=True)
        self._reader.start()

    def disconnect(self) -> None:
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.shutdown(socket.SHUT_RDWR)
            assert self._reader is not None
            self._reader.join(GUARD)
            sock.close()

    def send_message(self, message: RTVIMessage) -> None:
        sock = self._socket
        if sock is None:
            raise DisconnectedError("The lines are not connected", initiator="client")
        sock.sendall(self.serialize(message).encode() + b"\n")

    def _read(self, sock: socket.socket) -> None:
        with sock.makefile("rb") as lines:
            for line in lines:
                self.on_message(line)
        if self._socket is sock:
            self.options.on_closed(CloseInfo(initiator="network"))


def answer(peer: Peer) -> None:
    """Answer as the bot at the other end."""
    connection = peer.sock
    with connection.makefile("rwb") as lines:
        for line in lines:
            message = json.loads(line)
            replies: list[dict[str, Any]] = []
            if message["type"] == "client-ready":
                replies = [{"type": "bot-ready", "id": message["id"], "data": {"version": "2.2.0"}}]
            elif message["type"] == "client-message":
                replies = [
                    {"type": "server-message", "data": "asked"},
                    {"type": "server-response", "id": message["id"], "data": message["data"]},
                ]
            elif message["type"] == "disconnect-bot":
                connection.shutdown(socket.SHUT_RDWR)
                return
            for reply in replies:
                lines.write(json.dumps({"label": "rtvi-ai", **reply}).encode() + b"\n")
            lines.flush()


@contextmanager
def lines_client(**options: Any) -> Iterator[RTVIClient]:
    with Server(answer) as server:
        yield RTVIClient(transport=LinesTransport(server.port), connect_timeout=GUARD, **options)


def test_it_is_short() -> None:
    """A transport without media takes less than 100 lines."""
    assert len(inspect.getsource(LinesTransport).splitlines()) < 100


def test_every_feature_that_needs_no_media() -> None:
    """Connect, requests, events at all doors, messages, and the way out and in again."""
    with lines_client() as client:
        heard: list[Any] = []
        client.on("server_message", heard.append)
        for _ in range(3):
            with client, client.events("server_message", timeout=GUARD) as stream:
                assert client.send_client_request("echo", {"a": 1}) == {"a": 1}
                assert next(stream).data == "asked"
                assert client.connected
        assert heard == ["asked"] * 3
        assert thread_names() == []


def test_the_bot_leaves() -> None:
    """An end that the transport reports is the session's."""
    with lines_client(request_timeout=None) as client:
        ended: queue.SimpleQueue[CloseInfo] = queue.SimpleQueue()
        client.on("disconnected", ended.put)
        client.connect()
        client.disconnect_bot()
        assert ended.get(timeout=GUARD).initiator == "network"
        with client:
            assert client.send_client_request("echo", 1) == 1


def test_connect_raises_the_error_of_the_transport() -> None:
    """connect() raises the transport's own error if no server listens."""
    with Server(answer) as server:
        pass
    client = RTVIClient(transport=LinesTransport(server.port))
    with pytest.raises(TransportStartError, match="No server listens"):
        client.connect()
    assert client.state is TransportState.ERROR


def test_size_limit() -> None:
    """`max_message_size` is checked by `serialize()`."""
    with lines_client() as client:
        transport_of(client).max_message_size = 500
        with client:
            with pytest.raises(MessageTooLargeError):
                client.send_client_message("x", "y" * 500)
            assert client.send_client_request("echo", 1) == 1


def test_media_is_refused() -> None:
    """Without audio and video the media calls name the missing part, or do nothing."""
    with lines_client() as client:
        client.enable_mic(True)
        with client:
            with pytest.raises(UnsupportedFeatureError, match="lines transport carries no audio"):
                client.enable_mic(True)
            client.enable_mic(False)
            assert client.is_mic_enabled is False
            with pytest.raises(UnsupportedFeatureError, match="no video") as caught:
                client.enable_cam(True)
            assert caught.value.feature == "cam"
            client.enable_cam(False)
            assert client.is_cam_enabled is False
            assert client.tracks().local.audio is None
            assert client.tracks().bot.audio is None


def test_its_state_and_expiry() -> None:
    """A transport may tell when its session will end; the client's state is the transport's too."""
    with lines_client() as client:
        before = client.transport_expiry
        transport = transport_of(client)
        assert transport is not None
        transport.expiry = 1_800_000_000.0
        assert (before, client.transport_expiry) == (None, 1_800_000_000.0)
        states = [transport.state]
        with client:
            states.append(transport.state)
        states.append(transport.state)
        assert states == [TransportState.DISCONNECTED, TransportState.READY, TransportState.DISCONNECTED]


class Scripted(Transport):
    """A transport whose methods a test replaces; it keeps the client's messages."""

    name = "scripted"

    def __init__(self, **methods: Any) -> None:
        self.sent: list[RTVIMessage] = []
        self.calls: list[str] = []
        self.methods = methods

    def _do(self, name: str, *arguments: Any) -> None:
        self.calls.append(name)
        if name in self.methods:
            self.methods[name](self, *arguments)

    def initialize(self, options: TransportOptions, on_message: Any) -> None:
        super().initialize(options, on_message)
        self._do("initialize")

    def init_devices(self) -> None:
        self._do("init_devices")

    def connect(self, auth_bundle: Any, abort: AbortSignal) -> None:
        self._do("connect", abort)

    def disconnect(self) -> None:
        self._do("disconnect")

    def send_message(self, message: RTVIMessage) -> None:
        self.sent.append(message)
        self._do("send_message", message)

    def start_media(self) -> None:
        self._do("start_media")

    def enable_mic(self, enable: bool) -> None:
        self._do(f"enable_mic {enable}")

    def enable_cam(self, enable: bool) -> None:
        self._do(f"enable_cam {enable}")


def ready(transport: Scripted, message: RTVIMessage) -> None:
    if message.type == "client-ready":
        transport.on_message(RTVIMessage("bot-ready", {"version": "2.2.0"}, message.id))
    elif message.type == "client-message":
        transport.on_message(RTVIMessage("server-response", message.data, message.id))


def scripted(**methods: Any) -> tuple[RTVIClient, Scripted]:
    transport = Scripted(**{"send_message": ready, **methods})
    return RTVIClient(transport=transport, connect_timeout=GUARD), transport


def test_order_of_the_calls() -> None:
    """The contract's order, and `disconnect()` always last."""
    client, transport = scripted()
    with client:
        pass
    assert transport.calls == ["initialize", "init_devices", "connect", "send_message", "start_media", "disconnect"]


def test_messages_from_a_thread_of_its_own() -> None:
    """A transport may deliver on its own thread."""
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def pump(transport: Scripted) -> None:
        while (message := inbox.get()) is not None:
            ready(transport, message)

    def end(transport: Scripted) -> None:
        inbox.put(None)
        pumps[-1].get()

    pumps: list[InThread] = []
    client, _ = scripted(
        connect=lambda t, _: pumps.append(InThread(lambda: pump(t))),
        send_message=lambda t, m: inbox.put(m),
        disconnect=end,
    )
    for _ in range(3):
        with client:
            for n in range(100):
                assert client.send_client_request("echo", n) == n


def test_disconnect_is_called_after_a_failed_connect() -> None:
    """disconnect() is called after a connect() that failed, even if that has not returned yet."""
    hung, release = threading.Event(), threading.Event()

    def hang(transport: Scripted, abort: AbortSignal) -> None:
        hung.set()
        release.wait(GUARD)

    client, transport = scripted(connect=hang)
    connecting = InThread(client.connect)
    assert hung.wait(GUARD)
    client.disconnect()
    assert isinstance(connecting.error(), DisconnectedError)
    assert transport.calls[-1] == "disconnect"
    release.set()
    until(lambda: not thread_names())
    assert transport.sent == []


def test_a_failed_initialize() -> None:
    """A failed initialize() is followed by disconnect() at most."""

    def fail(transport: Scripted) -> None:
        raise ValueError("no")

    client, transport = scripted(initialize=fail)
    with pytest.raises(TransportStartError, match="no"):
        client.connect()
    assert transport.calls in (["initialize"], ["initialize", "disconnect"])


def test_an_attempt_knows_its_limit() -> None:
    """`abort.remaining()` is the rest of the client's limit; `abort.wait()` returns when the attempt is abandoned."""
    seen: list[Any] = []

    def connect(transport: Scripted, abort: AbortSignal) -> None:
        seen.append(abort.remaining())
        seen.append(abort.wait())
        seen.append(abort.reason)
        abort.raise_if_aborted()

    client = RTVIClient(transport=Scripted(send_message=ready, connect=connect), connect_timeout=0.3)
    with pytest.raises(ConnectionTimeoutError):
        client.connect()
    until(lambda: len(seen) == 3)
    assert 0.1 < seen[0] <= 0.3
    assert seen[1] is True
    assert isinstance(seen[2].__cause__, ConnectionTimeoutError)


def test_it_ends_inside_connect() -> None:
    """A line that ends while it is being opened fails the attempt with the known cause."""

    def connect(transport: Scripted, abort: AbortSignal) -> None:
        transport.options.on_closed(CloseInfo(code=1013, reason="full", initiator="server"))

    client, _ = scripted(connect=connect)
    with pytest.raises(DisconnectedError, match="full") as caught:
        client.connect()
    assert caught.value.code == 1013
    assert client.state is TransportState.ERROR


def test_it_ends_inside_send() -> None:
    """A line that is found dead by a send ends the session, once."""
    client, transport = scripted()
    ended: list[CloseInfo] = []
    client.on("disconnected", ended.append)
    client.connect()

    def dead(transport: Scripted, message: RTVIMessage) -> None:
        for _ in range(3):
            transport.options.on_closed(CloseInfo(initiator="network"))
        raise DisconnectedError("dead")

    transport.methods["send_message"] = dead
    with pytest.raises(DisconnectedError):
        client.send_client_request("x")
    client.disconnect()
    assert ended == [CloseInfo(initiator="network")]


def test_events_of_its_own() -> None:
    """`options.on_event` publishes, for instance, a device that failed."""
    client, transport = scripted()
    with client, client.events("device_error", timeout=GUARD) as stream:
        transport.options.on_event(RTVIEvent.DEVICE_ERROR, "no camera")
        data: object = next(stream).data
        assert data == "no camera"


def test_an_odd_initiator() -> None:
    """The initiator that a transport reports is passed on, even if it is not one of the three words."""
    client, transport = scripted(send_message=lambda t, m: ready(t, m) if m.type == "client-ready" else None)
    client.connect()
    asking = InThread(lambda: client.send_client_request("x"))
    until(lambda: len(transport.sent) == 2)
    transport.options.on_closed(CloseInfo(initiator="moderator"))
    error = asking.error()
    assert isinstance(error, DisconnectedError)
    assert error.initiator == "moderator"
    client.disconnect()


class TestSwitches:
    """`enable_mic()` and `enable_cam()` at any time."""

    def test_before_during_and_after(self) -> None:
        """A switch is remembered outside of a session, and passed on to the transport inside."""
        client, transport = scripted()
        client.enable_mic(False)
        assert client.is_mic_enabled is False
        assert transport.calls == []
        with client:
            assert manager_of(client).media.settings.mic is False
            client.enable_mic(True)
            assert transport.calls[-1] == "enable_mic True"
        client.enable_mic(False)
        with client:
            assert manager_of(client).media.settings.mic is False
        assert [c for c in transport.calls if c.startswith("enable")] == ["enable_mic True"]

    def test_a_switch_during_initialize_is_not_lost(self) -> None:
        """A switch that is thrown before the transport knows of its session is not lost."""

        def switch(transport: Scripted) -> None:
            client.enable_mic(False)

        client, transport = scripted(initialize=switch)
        with client:
            assert client.is_mic_enabled is False
        assert transport.calls[:2] == ["initialize", "enable_mic False"]

    def test_camera_of_a_transport_with_video(self) -> None:
        """A transport that carries video is told about the camera as about the microphone."""
        client, transport = scripted()
        transport.supports_video = True
        client = RTVIClient(transport=transport, enable_cam=True, connect_timeout=GUARD)
        assert client.is_cam_enabled is True
        with client:
            assert manager_of(client).media.settings.cam is True
            client.enable_cam(False)
            assert transport.calls[-1] == "enable_cam False"
        assert client.is_cam_enabled is False

    def test_without_a_transport(self) -> None:
        """Without a transport, enable_cam(True) raises `UnsupportedFeatureError`, and enable_mic() is remembered."""
        with pytest.raises(UnsupportedFeatureError, match="no transport"):
            RTVIClient().enable_cam(True)
        RTVIClient().enable_cam(False)
        client = RTVIClient()
        client.enable_mic(False)
        assert client.is_mic_enabled is False
        assert client.tracks().local.audio is None


def test_a_late_initialize_changes_nothing() -> None:
    """An initialize() that returns only in the next session does not change that session's options."""
    release, returned = threading.Event(), threading.Event()

    class Slow(MemoryTransport):
        first = True

        def initialize(self, options: TransportOptions, on_message: Any) -> None:
            late, Slow.first = Slow.first, False
            if late:
                release.wait(GUARD)
            try:
                super().initialize(options, on_message)
            finally:
                if late:
                    returned.set()

    client = RTVIClient(transport=Slow())
    timed_out("devices", partial(connect_within, client))
    connect_within(client)
    with client:
        release.set()
        assert returned.wait(GUARD)
        assert client.send_client_request("echo", 1) == 1
    until(lambda: not thread_names())
