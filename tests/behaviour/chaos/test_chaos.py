"""Everything at once: many threads that make random calls on one client."""

from __future__ import annotations

import functools
import logging
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rtvi_sync import (
    CloseInfo,
    MemoryTransport,
    RTVIClient,
    RTVIError,
    RTVIMessage,
    TransportState,
    WebSocketTransport,
    WouldDeadlockError,
)
from rtvi_sync.media import NullSink, SilenceSource
from rtvi_sync.testing import EmbeddedBot
from tests.support.attempts import connect_within
from tests.support.clients import ready_bot
from tests.support.slowness import takes
from tests.support.threads import InThread, own_threads
from tests.support.waiting import until

SECONDS = 2.0


class MoodyBot:
    """A bot that is ready at times, leaves at times, and chatters, until it is `calm`."""

    calm = False

    def __call__(self, transport: MemoryTransport, message: RTVIMessage) -> Iterator[Any]:
        if not self.calm:
            mood = random.random()
            if mood < 0.1:
                transport.end(CloseInfo(code=1012, initiator="server"))
                return
            if mood < 0.2:
                return
            yield RTVIMessage("server-message", mood, None)
            if mood < 0.25:
                yield RTVIMessage("error", {"error": "moody", "fatal": True}, None)
        yield from ready_bot(transport, message)


def acts(client: RTVIClient, rng: random.Random) -> list[Callable[[], Any]]:
    """Return the possible actions of a thread."""

    def watch() -> None:
        with client.events(timeout=0.05) as stream:
            for _ in stream:
                if rng.random() < 0.3:
                    return

    def listen() -> None:
        handler = client.on("server_message", lambda: None)
        client.once("disconnected", lambda: rng.random() < 0.5 or client.connect())
        client.off("server_message", handler)

    return [
        client.connect,
        client.connect,
        client.disconnect,
        lambda: client.send_client_request("x", 1, timeout=0.1),
        lambda: client.send_text("x"),
        client.disconnect_bot,
        lambda: client.wait_for("server_message", timeout=0.05),
        watch,
        listen,
        lambda: client.enable_mic(rng.random() < 0.5),
        client.tracks,
        lambda: client.state,
    ]


def live(client: RTVIClient, seed: int, stop: threading.Event) -> int:
    """Do things until `stop`; returns how many."""
    rng = random.Random(seed)
    count = 0
    while not stop.is_set():
        try:
            rng.choice(acts(client, rng))()
        except WouldDeadlockError:
            raise
        except RTVIError:
            pass
        count += 1
    return count


def endure(client: RTVIClient, threads: int) -> None:
    """Let many threads live with a client; afterwards it works as ever and leaves nothing behind."""
    stop = threading.Event()
    crowd = [InThread(functools.partial(live, client, seed, stop)) for seed in range(threads)]
    threading.Event().wait(SECONDS)
    stop.set()
    for thread in crowd:
        assert thread.get() > 0

    def at_rest() -> bool:
        client.disconnect()
        return not own_threads()

    with takes(10):
        client.disconnect()
        until(at_rest)  # a handler of `disconnected` may connect again
    assert client.state in (TransportState.DISCONNECTED, TransportState.ERROR)


def test_memory(caplog: pytest.LogCaptureFixture) -> None:
    """Invariants "one attempt is one session" and "locks are leaves": under any concurrency nothing hangs, only errors
    of the package are raised, and the client is as good as new afterwards.
    """
    bot = MoodyBot()
    client = RTVIClient(transport=MemoryTransport(bot), connect_timeout=0.5)
    endure(client, 8)
    bot.calm = True
    client.off("disconnected")
    connect_within(client)
    with client:
        assert client.send_client_request("ping", 1) == 1
    unexpected = [r for r in caplog.records if r.levelno >= logging.ERROR and "'disconnected' raised" not in r.msg]
    assert [r for r in unexpected if not isinstance((r.exc_info or (None, None))[1], RTVIError)] == []


def test_websocket(caplog: pytest.LogCaptureFixture) -> None:
    """Under any concurrency over real connections nothing hangs, and the client is as good as new afterwards."""
    with EmbeddedBot() as bot:
        client = RTVIClient(
            transport=WebSocketTransport(bot.ws_url), mic=SilenceSource(), speaker=NullSink(), connect_timeout=2.0
        )
        endure(client, 6)
        client.off("disconnected")
        connect_within(client)
        with client:
            assert client.send_client_request("ping", 1) == 1
    unexpected = [r for r in caplog.records if r.levelno >= logging.ERROR and r.name.startswith("rtvi_sync.")]
    unexpected = [r for r in unexpected if not r.name.startswith("rtvi_sync.testing")]
    assert [r for r in unexpected if not isinstance((r.exc_info or (None, None))[1], RTVIError)] == []
