"""SIGTERM while a session is live: by default, with handlers of all kinds, wherever it strikes; and finalizers."""

from __future__ import annotations

import contextlib
import io
import logging
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rtvi_sync import TransportState, WouldDeadlockError
from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.behaviour.life.blocking import hanging
from tests.support import limits
from tests.support.clients import session_of, websocket_client
from tests.support.processes import python, rest_of
from tests.support.slowness import GUARD, takes
from tests.support.threads import own_threads
from tests.support.waiting import until
from tests.support.warm import WarmProcess

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the platform has no signals of this kind")

PREAMBLE = """
    import os, signal, sys, threading, time
    from rtvi_sync import *
    from rtvi_sync.media import *
    from tests.support.clients import manager_of
    from tests.support.threads import own_threads
    from tests.behaviour.life.blocking import tell as say, tell_when_blocked

    mic = SilenceSource()
    client = RTVIClient(transport=WebSocketTransport(sys.argv[1]), mic=mic, speaker=NullSink())
    client.on("disconnected", lambda info: say("disconnected", info.initiator))
"""

#: The position of the main thread when the signal arrives.
PLACES = {
    "asleep": "threading.Event().wait(20)",
    "in wait_for": "client.wait_for('server_message')",
    "in events": "next(client.events('server_message'))",
    "in a request": "client.send_client_request('hang', timeout=None)",
    "in source.wait": "mic.wait()",
    "in frames": "next(client.tracks().bot.audio.frames())",
    "busy": "any(client.send_client_request('echo', 0) for _ in iter(int, 1))",
}


def ignores(session: BotSession, message: Any) -> bool:
    """Return a bot that never answers a request of the type "hang"."""
    return message["type"] == "client-message" and message["data"]["t"] == "hang"


@contextlib.contextmanager
def talking(script: str, place: str) -> Iterator[tuple[WarmProcess, EmbeddedBot]]:
    """Yield a process that is connected and at that place of the script."""
    # In a call that blocks, the process reports when it gets there; elsewhere any moment will do.
    blocks = place.startswith("in ")
    there = "threading.Thread(target=tell_when_blocked, daemon=True).start()" if blocks else 'say("there")'
    script = PREAMBLE + script.format(there=there, place=PLACES[place])
    with EmbeddedBot(handler=ignores) as bot, python(script, bot.ws_url) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == ("blocked\n" if blocks else "there\n")
            yield process, bot
        finally:
            process.kill()


@pytest.mark.parametrize("place", PLACES)
def test_by_default(place: str) -> None:
    """Without a handler the process is gone at once, as processes are; the bot sees the line break."""
    script = """
    client.connect()
    {there}
    {place}
    """
    with talking(script, place) as (process, bot):
        process.send_signal(signal.SIGTERM)
        with takes(2.0):
            assert rest_of(process) == ("", "")
            assert process.returncode == -signal.SIGTERM
        bot.wait_for_session().wait_ended(GUARD)


@pytest.mark.parametrize("place", PLACES)
def test_a_handler_that_exits(place: str) -> None:
    """`SystemExit` ends every wait; the session is ended politely, and the exit code is the program's."""
    script = """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
    client.connect()
    {there}
    {place}
    """
    with talking(script, place) as (process, bot):
        process.send_signal(signal.SIGTERM)
        with takes(3.0):
            assert rest_of(process) == ("disconnected client\n", "")
            assert process.returncode == 5
        assert bot.wait_for_session().wait_ended(GUARD).code == 1000


@pytest.mark.parametrize("place", [place for place in PLACES if place != "asleep"])
def test_a_handler_that_disconnects(place: str) -> None:
    """The call that the handler interrupts ends as it does when any other thread disconnects."""
    script = """
    signal.signal(signal.SIGTERM, lambda *_: client.disconnect())
    client.connect()
    {there}
    try:
        {place}
    except (DisconnectedError, BotNotReadyError, StopIteration) as error:
        say(type(error).__name__)
    else:
        say("returned")
    say(client.state, *own_threads())
    """
    expected = {
        "in wait_for": "DisconnectedError",
        "in events": "StopIteration",
        "in a request": "DisconnectedError",
        "in source.wait": "returned",
        "in frames": "StopIteration",
    }
    with talking(script, place) as (process, _):
        process.send_signal(signal.SIGTERM)
        with takes(3.0):
            out, err = rest_of(process)
            assert (err, process.returncode) == ("", 0)
            first, how, last = out.splitlines()
            assert (first, last) == ("disconnected client", "disconnected")
            assert how == expected.get(place, how)


def test_a_handler_that_disconnects_while_connecting() -> None:
    """A handler that disconnects while connecting cancels the attempt."""
    script = """
    signal.signal(signal.SIGTERM, lambda *_: client.disconnect())
    client.on("connected", lambda: say("there"))
    try:
        client.connect()
    except DisconnectedError as error:
        say("DisconnectedError", error.initiator)
    say(client.state, *own_threads())
    """
    with EmbeddedBot(ready=False) as bot, python(PREAMBLE + script, bot.ws_url) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "there\n"
            process.send_signal(signal.SIGTERM)
            out, err = rest_of(process)
        finally:
            process.kill()
    assert (out, err, process.returncode) == (
        "disconnected client\nDisconnectedError client\ndisconnected\n",
        "",
        0,
    )


def test_a_handler_that_sends() -> None:
    """A handler may send and set flags, during calls that send and wait."""
    script = """
    def send(*_):
        client.send_client_message("note", "from the handler")
        flags.append("sent")

    flags = []
    signal.signal(signal.SIGTERM, send)
    client.connect()
    {there}
    while not flags:
        client.send_client_request("echo", 1)
    say(client.send_client_request("echo", "and then"))
    client.disconnect()
    """
    with talking(script, "asleep") as (process, bot):
        process.send_signal(signal.SIGTERM)
        assert rest_of(process) == ("and then\ndisconnected client\n", "")
        assert process.returncode == 0
        sent = [message["data"] for message in bot.wait_for_session().messages if message["type"] == "client-message"]
        assert sent.count({"t": "note", "d": "from the handler"}) == 1


def test_a_handler_that_strikes_where_others_need_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler's `disconnect()` returns in time even if it interrupts the application while it is logging."""
    client, let_go = hanging()
    log = logging.StreamHandler(io.StringIO())
    logging.getLogger("rtvi_sync").addHandler(log)
    before = signal.signal(signal.SIGUSR1, lambda *_: client.disconnect())
    try:
        with limits.changed(teardown=0.3, stop=0.2), log.lock, takes(3.0, at_least=0.45):  # type: ignore[union-attr]
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
        logging.getLogger("rtvi_sync").removeHandler(log)
        let_go()
    until(lambda: client.state is TransportState.DISCONNECTED)
    until(lambda: not own_threads())


def test_a_finalizer_on_the_thread_that_reads_the_network() -> None:
    """In a finalizer on the I/O thread, `disconnect()` returns at once, calls that wait raise, and sending works."""
    with EmbeddedBot() as bot, websocket_client(bot) as other:
        client = websocket_client(bot)
        client.connect()
        told: list[Any] = []
        done = threading.Event()

        class Agent:
            def __del__(self) -> None:
                client.send_text("bye")
                for call in (
                    lambda: client.send_client_request("echo", 1, timeout=None),
                    lambda: client.wait_for("server_message"),
                    client.disconnect,
                ):
                    try:
                        told.append(call())
                    except WouldDeadlockError as error:
                        told.append(type(error))
                done.set()

        agents = [Agent()]
        session_of(other).runtime.io.call(agents.clear)
        assert done.wait(GUARD)
        assert told == [WouldDeadlockError, WouldDeadlockError, None]
        until(lambda: client.state is TransportState.DISCONNECTED)
        assert other.send_client_request("echo", 1) == 1
    until(lambda: not own_threads())
