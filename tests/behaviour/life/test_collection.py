"""Clients that are dropped instead of disconnected."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import (
    AbortSignal,
    DeviceError,
    DisconnectedError,
    MemoryTransport,
    ReconnectPolicy,
    RTVIClient,
    RTVIMessage,
    TransportStartError,
)
from rtvi_sync.media import SilenceSource, WavSink
from rtvi_sync.testing import EmbeddedBot
from tests.support.clients import (
    bot_says,
    memory_client,
    server_message,
    silent_bot,
    transport_of,
    websocket_client,
)
from tests.support.garbage import collect
from tests.support.probes import run_on_io_thread
from tests.support.slowness import GUARD
from tests.support.threads import InThread, own_threads, thread_names
from tests.support.waiting import until


class UnluckyTransport(MemoryTransport):
    """Its first connection fails."""

    tries = 0

    def connect(self, auth_bundle: Any, abort: AbortSignal) -> None:
        self.tries += 1
        if self.tries == 1:
            raise TransportStartError("bad luck")
        super().connect(auth_bundle, abort)


class TestCollection:
    @pytest.fixture(autouse=True)
    def _nothing_of_earlier_tests(self) -> None:
        collect()

    def drop(self, clients: list[RTVIClient]) -> weakref.ref[RTVIClient]:
        """Drop the only client of the list, collect it, and return a reference that is dead then."""
        gone = weakref.ref(clients[0])
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            clients.clear()
            collect()
        (warning,) = [w for w in told if w.category is ResourceWarning]
        assert "disconnect()" in str(warning.message)
        return gone

    def test_dropped_while_connected(self) -> None:
        """Invariant "nothing holds the client": one that is dropped while connected is collected, warns, and is torn
        down: transport closed, threads gone."""
        clients = [memory_client()]
        clients[0].connect()
        transport = transport_of(clients[0])
        assert self.drop(clients)() is None
        until(lambda: not thread_names())
        with pytest.raises(DisconnectedError):
            transport.send_message(RTVIMessage("x"))

    def test_dropped_with_handlers_that_know_it(self) -> None:
        """Handlers, callbacks and signals that close over the client do not keep it."""

        def build() -> RTVIClient:
            client: RTVIClient = memory_client(callbacks={"on_bot_ready": lambda: client.version})
            client.on("server_message", lambda: client.send_text("x"))
            client.once("metrics", client.disconnect)
            stream = client.events("server_message")
            client.note = stream  # type: ignore[attr-defined]
            client.connect()
            return client

        clients = [build()]
        assert self.drop(clients)() is None
        until(lambda: not thread_names())

    @pytest.mark.parametrize(
        "how", [{"events": "manual"}, {"reconnect": ReconnectPolicy()}], ids=["manual", "reconnect"]
    )
    def test_dropped_after_an_attempt_that_failed(self, how: dict[str, Any]) -> None:
        """The traceback of a failed `connect()` holds the client through its frames; the stored error does not."""

        def build() -> RTVIClient:
            client = RTVIClient(transport=UnluckyTransport(), connect_timeout=GUARD, **how)
            with pytest.raises(TransportStartError):
                client.connect()
            client.connect()
            return client

        clients = [build()]
        assert self.drop(clients)() is None
        until(lambda: not thread_names())

    def test_dropped_over_websocket(self) -> None:
        """A dropped client with a real connection ends its session, and no thread is left."""
        with EmbeddedBot() as bot:
            clients = [websocket_client(bot)]
            clients[0].connect()
            session = bot.wait_for_session()
            assert self.drop(clients)() is None
            session.wait_ended(GUARD)
            until(lambda: not own_threads())

    def test_dropped_after_a_failed_attempt(self) -> None:
        """An attempt that has failed is no session: nothing to warn of, and the exception does not keep the client."""
        client = memory_client(silent_bot, connect_timeout=0.05)
        with pytest.raises(TimeoutError):
            client.connect()
        gone = weakref.ref(client)
        del client
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            collect()
        assert gone() is None

    def test_dropped_after_disconnect(self) -> None:
        """A client that was disconnected goes silently, at once and without the collector's help."""
        gc.disable()
        try:
            client = memory_client()
            with client:
                pass
            gone = weakref.ref(client)
            del client
            assert gone() is None
        finally:
            gc.enable()

    def test_dropped_while_an_abandoned_handler_hangs(self) -> None:
        """The custom handler of an abandoned attempt keeps the client until it returns, and no longer."""
        release = threading.Event()

        def handler(*_: Any) -> None:
            release.wait(GUARD)

        clients = [memory_client(custom_connect_handler=handler, connect_timeout=0.1)]
        with pytest.raises(TimeoutError):
            clients[0].connect()
        gone = weakref.ref(clients.pop())
        release.set()
        until(lambda: not thread_names())
        collect()
        assert gone() is None

    def test_dropped_in_manual_mode(self) -> None:
        """Events that are never processed do not keep the client."""
        clients = [memory_client(events="manual")]
        clients[0].on("server_message", lambda: None)
        clients[0].connect()
        bot_says(clients[0], "server-message", 1)
        assert self.drop(clients)() is None
        until(lambda: not thread_names())

    def test_what_it_gave_out_ends(self) -> None:
        """Calls that wait for its events, its audio or its source end; none of these keeps the client."""
        source = SilenceSource()
        with EmbeddedBot() as bot:
            clients = [websocket_client(bot, mic=source)]
            clients[0].connect()
            events = clients[0].events("server_message")
            track = clients[0].tracks().bot.audio
            assert track is not None
            frames = track.frames()
            waiting = InThread(lambda: next(events, "ended"))
            listening = InThread(lambda: list(frames))
            sending = InThread(source.wait)
            assert self.drop(clients)() is None
            assert waiting.get() == "ended"
            assert listening.get() == []
            assert sending.get() is False
            assert track.ready_state == "ended"
            until(lambda: not own_threads())

    def test_collected_in_its_own_handler(self) -> None:
        """A handler may drop the last reference to its client; it goes when the handler has returned."""
        clients = [memory_client()]
        gone = weakref.ref(clients[0])
        transport = transport_of(clients[0])

        def drop() -> None:
            clients.clear()
            collect()

        clients[0].on("server_message", drop)
        clients[0].connect()

        def collected() -> bool:
            collect()
            return gone() is None

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            transport.receive(server_message("drop me"))
            until(lambda: not clients)
            until(collected)
            until(lambda: not thread_names())

    def test_collected_on_the_thread_that_reads_the_network(self) -> None:
        """The garbage collector runs where it likes; there it must not wait for the end, which this thread brings."""
        with EmbeddedBot() as bot, websocket_client(bot) as other:
            clients = [websocket_client(bot)]
            clients[0].connect()
            gone = weakref.ref(clients[0])
            clients[0].me = clients[0]  # type: ignore[attr-defined]
            done = threading.Event()

            def command() -> None:
                collect()
                done.set()

            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                gc.disable()
                try:
                    clients.clear()
                    run_on_io_thread(command)
                    assert done.wait(GUARD)
                finally:
                    gc.enable()
            assert gone() is None
            assert other.send_client_request("echo", 1) == 1
        until(lambda: not own_threads())


def test_a_client_whose_device_could_not_be_opened(tmp_path: Path) -> None:
    """The stored error does not hold the frames of the call or the client."""
    sink = WavSink(tmp_path / "a.wav")

    def failed() -> weakref.ref[RTVIClient]:
        client = websocket_client(bot, speaker=sink)
        with pytest.raises(DeviceError, match="another session"):
            client.connect()
        assert client.media_state.speaker.error is not None
        return weakref.ref(client)

    with EmbeddedBot() as bot, websocket_client(bot, speaker=sink):
        gone = failed()

    def collected() -> bool:
        collect()
        return gone() is None

    until(collected)
