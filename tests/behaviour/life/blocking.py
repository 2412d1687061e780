"""Every blocking call of the public API, brought to the point where it blocks, for a process that Ctrl-C strikes there.

Run as a script: ``python -m tests.behaviour.life.blocking NAME`` makes one of the calls, and prints its outcome.
"""

from __future__ import annotations

import contextlib
import functools
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import attrs

from rtvi_sync import MemoryTransport, RTVIClient, RTVIError, RTVIMessage, TransportState, WebSocketTransport
from rtvi_sync.media import NullSink, SilenceSource
from rtvi_sync.testing import EmbeddedBot
from tests.support.clients import memory_client, ready_bot, transport_of
from tests.support.probes import thread_sleeps
from tests.support.slowness import GUARD
from tests.support.threads import thread_names
from tests.support.waiting import until


@attrs.define
class Blocked:
    """A call that blocks.

    Attributes:
        client: The client of the call.
        call: The call itself.
        state: State of the client when the call was interrupted.
        heal: Function that releases the call.
        closed: True if the client is closed for good afterwards.
        reached: Function that returns True once the call blocks; without one it is enough that the main thread sleeps.
    """

    client: RTVIClient
    call: Callable[[], Any]
    state: TransportState = TransportState.READY
    heal: Callable[[], Any] = lambda: None
    closed: bool = False
    reached: Callable[[], object] = lambda: True


class MoodyBot:
    """Silent until it is `ready`; answers no request until it `hears`."""

    def __init__(self, *, ready: bool = True, hears: bool = False) -> None:
        self.ready = ready
        self.hears = hears

    def __call__(self, transport: MemoryTransport, message: RTVIMessage) -> Iterator[Any]:
        if self.hears or (self.ready and message.type == "client-ready"):
            yield from ready_bot(transport, message)

    def heal(self) -> None:
        """Be as bots are."""
        self.hears = True


class Hanging(MemoryTransport):
    """Its `disconnect()` returns when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = threading.Event()
        self.let_go = threading.Event()

    def disconnect(self) -> None:
        self.hangs.set()
        self.let_go.wait(GUARD)
        super().disconnect()


@contextmanager
def unready() -> Iterator[tuple[RTVIClient, Callable[[], Any]]]:
    """Yield a client whose bot does not become ready."""
    bot = MoodyBot(ready=False)
    yield memory_client(bot, connect_timeout=None), bot.heal


def is_connected(client: RTVIClient) -> bool:
    """Return whether the client waits for the bot to be ready."""
    return client.state is TransportState.CONNECTED


@contextmanager
def connecting() -> Iterator[Blocked]:
    with unready() as (client, heal):
        waits = functools.partial(is_connected, client)
        yield Blocked(client, client.connect, TransportState.DISCONNECTED, heal, reached=waits)


@contextmanager
def entering() -> Iterator[Blocked]:
    def enter() -> None:
        with client:
            pass

    with unready() as (client, heal):
        waits = functools.partial(is_connected, client)
        yield Blocked(client, enter, TransportState.DISCONNECTED, heal, reached=waits)


@contextmanager
def mute_server() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the URL of an endpoint that never answers, and a function that returns true after a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/start"
        yield url, lambda: select.select([server], [], [], 0)[0]


@contextmanager
def starting_a_bot() -> Iterator[Blocked]:
    with mute_server() as (url, asked):
        client = memory_client(connect_timeout=None)
        yield Blocked(client, lambda: client.start_bot(url), TransportState.DISCONNECTED, reached=asked)


@contextmanager
def starting_a_bot_and_connecting() -> Iterator[Blocked]:
    with mute_server() as (url, asked):
        client = memory_client(connect_timeout=None)
        call = functools.partial(client.start_bot_and_connect, url)
        yield Blocked(client, call, TransportState.DISCONNECTED, reached=asked)


def hanging() -> tuple[RTVIClient, Callable[[], Any]]:
    """Return a connected client whose transport does not end."""
    transport = Hanging()
    client = RTVIClient(transport=transport)
    client.connect()
    return client, transport.let_go.set


def hangs(client: RTVIClient) -> bool:
    """Return whether the transport of such a client is asked to end."""
    return bool(transport_of(client).hangs.is_set())


@contextmanager
def disconnecting() -> Iterator[Blocked]:
    client, heal = hanging()
    there = functools.partial(hangs, client)
    yield Blocked(client, client.disconnect, TransportState.DISCONNECTING, heal, reached=there)


@contextmanager
def closing() -> Iterator[Blocked]:
    client, heal = hanging()
    there = functools.partial(hangs, client)
    yield Blocked(client, client.close, TransportState.DISCONNECTING, heal, closed=True, reached=there)


@contextmanager
def leaving() -> Iterator[Blocked]:
    transport = Hanging()
    client = RTVIClient(transport=transport)

    def leave() -> None:
        with client:
            pass

    yield Blocked(client, leave, TransportState.DISCONNECTING, transport.let_go.set, reached=transport.hangs.is_set)


@contextmanager
def requesting() -> Iterator[Blocked]:
    bot = MoodyBot()
    client = memory_client(bot)
    client.connect()
    yield Blocked(client, lambda: client.send_client_request("never", timeout=None), heal=bot.heal)


@contextmanager
def waiting_for_an_event(**options: Any) -> Iterator[Blocked]:
    client = memory_client(**options)
    client.connect()
    yield Blocked(client, lambda: client.wait_for("server_message"))


@contextmanager
def iterating() -> Iterator[Blocked]:
    client = memory_client()
    client.connect()
    with client.events("server_message") as events:
        yield Blocked(client, lambda: next(events))


def waiting_for_an_event_in_manual_mode() -> AbstractContextManager[Blocked]:
    return waiting_for_an_event(events="manual")


@contextmanager
def iterating_in_manual_mode() -> Iterator[Blocked]:
    client = memory_client(events="manual")
    client.connect()
    with client.events("server_message") as events:
        yield Blocked(client, lambda: next(events))


@contextmanager
def processing_events() -> Iterator[Blocked]:
    client = memory_client(events="manual")
    client.connect()
    yield Blocked(client, lambda: client.process_events(timeout=None))


@contextmanager
def over_websocket(**options: Any) -> Iterator[RTVIClient]:
    with EmbeddedBot() as bot:
        options = {"mic": SilenceSource(), "speaker": NullSink(), **options}
        client = RTVIClient(transport=WebSocketTransport(bot.ws_url), **options)
        client.connect()
        yield client


@contextmanager
def waiting_for_a_source() -> Iterator[Blocked]:
    source = SilenceSource()
    with over_websocket(mic=source) as client:
        yield Blocked(client, source.wait)


@contextmanager
def reading_a_track() -> Iterator[Blocked]:
    with over_websocket() as client:
        track = client.tracks().bot.audio
        assert track is not None
        frames = track.frames()
        yield Blocked(client, lambda: next(frames))


CALLS: dict[str, Callable[[], AbstractContextManager[Blocked]]] = {
    call.__name__: call
    for call in (
        connecting,
        entering,
        starting_a_bot,
        starting_a_bot_and_connecting,
        disconnecting,
        closing,
        leaving,
        requesting,
        waiting_for_an_event,
        waiting_for_an_event_in_manual_mode,
        iterating,
        iterating_in_manual_mode,
        processing_events,
        waiting_for_a_source,
        reading_a_track,
    )
}


def tell(*words: object) -> None:
    """Say something to the parent process."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def tell_when_blocked(reached: Callable[[], object] = lambda: True) -> None:
    """Report when the call blocks, and the main thread has slept at one place for a while."""
    until(reached)
    until(thread_sleeps())
    tell("blocked")


def check_usable(client: RTVIClient, *, closed: bool) -> None:
    """Check that the interrupted call has left a client that works."""
    if closed:
        client.close()
        with contextlib.suppress(RTVIError):
            client.connect()
            raise AssertionError("it was closed for good")
        return
    if client.state is not TransportState.READY:
        client.connect()
    assert client.send_client_request("echo", [1]) == [1]
    client.disconnect()
    assert client.state is TransportState.DISCONNECTED


def main(name: str) -> None:
    """Make the call of that name, and wait to be interrupted."""
    with CALLS[name]() as blocked:
        threading.Thread(target=tell_when_blocked, args=(blocked.reached,), daemon=True).start()
        try:
            blocked.call()
        except KeyboardInterrupt:
            tell("interrupted", blocked.client.state)
        assert blocked.client.state is blocked.state
        blocked.heal()
        check_usable(blocked.client, closed=blocked.closed)
    until(lambda: not thread_names())
    tell("ended")


if __name__ == "__main__":
    main(sys.argv[1])
