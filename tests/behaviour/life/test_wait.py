"""`client.wait()`: until the session has ended, and those that replace it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest

from rtvi_sync import (
    BotNotReadyError,
    CloseInfo,
    MemoryTransport,
    ReconnectPolicy,
    RequestTimeoutError,
    RTVIClient,
    RTVIMessage,
    WouldDeadlockError,
)
from tests.support.clients import memory_client, ready_bot, say, transport_of
from tests.support.slowness import GUARD
from tests.support.threads import InThread
from tests.support.waiting import until

NETWORK = CloseInfo(initiator="network")
QUICK = ReconnectPolicy(initial_delay=0.01, max_delay=0.05, stable_after=0.05)
SLOW = ReconnectPolicy(initial_delay=1000.0, max_delay=1000.0)


def waiting(client: RTVIClient, **options: Any) -> InThread:
    """Wait on another thread, which has started waiting when this returns."""
    begun = threading.Event()

    def wait() -> CloseInfo:
        begun.set()
        return client.wait(**options)

    thread = InThread(wait)
    assert begun.wait(GUARD)
    return thread


def test_until_the_client_disconnects() -> None:
    """The handlers of `disconnected` have returned before."""
    client = memory_client()
    heard: list[CloseInfo] = []
    client.on("disconnected", heard.append)
    client.connect()
    waits = [waiting(client), waiting(client, timeout=GUARD)]
    client.disconnect()
    assert [thread.get() for thread in waits] == heard * 2
    assert heard[0].initiator == "client"


def test_until_the_bot_ends_it() -> None:
    """wait() returns the end of a session that has already ended, and later the end of the next session."""
    with memory_client() as client:
        transport_of(client).end(CloseInfo(code=1000, initiator="server"))
        for _ in range(2):
            assert (client.wait(GUARD).code, client.wait(0).initiator) == (1000, "server")
        client.connect()
        transport_of(client).end(NETWORK)
        assert client.wait(GUARD) == NETWORK


def test_without_a_session() -> None:
    """Without a session, wait() raises `BotNotReadyError`."""
    with pytest.raises(BotNotReadyError, match=r"call connect\(\) first"):
        memory_client().wait()


def test_a_limit() -> None:
    """After the limit of wait(), the session continues."""
    with memory_client() as client:
        for timeout in (0, 0.05):
            with pytest.raises(RequestTimeoutError, match=f"has not ended within {timeout} s"):
                client.wait(timeout)
        assert client.send_client_request("ping", 1) == 1


def test_manual_mode_delivers_events_during_wait() -> None:
    """In manual mode, wait() delivers events."""
    heard: list[object] = []
    client = memory_client(events="manual")
    client.on("server_message", heard.append)
    client.on("disconnected", lambda: heard.append("end"))
    client.connect()
    say(client, 1, 2)
    transport_of(client).end(NETWORK)
    assert client.wait(GUARD) == NETWORK
    assert heard == [1, 2, "end"]


def test_inside_a_handler() -> None:
    """The session cannot end before the handler returns; at its end there is nothing to wait for."""
    found: list[object] = []

    def handler() -> None:
        try:
            found.append(client.wait(GUARD))
        except WouldDeadlockError as error:
            found.append(error)

    client = memory_client()
    client.on("server_message", handler)
    client.on("disconnected", handler)
    with client:
        say(client, 1)
        until(lambda: found)
    assert isinstance(found[0], WouldDeadlockError)
    assert found[1:] == [CloseInfo()]


def has_reconnected(client: RTVIClient, count: int) -> bool:
    """Return whether `count` sessions were replaced."""
    return client.stats().reconnects == count


def test_a_session_that_is_replaced() -> None:
    """wait() keeps waiting in each session that follows."""
    client = memory_client(reconnect=QUICK)
    client.connect()
    wait = waiting(client, timeout=GUARD)
    for number in (1, 2, 3):
        transport_of(client).end(NETWORK)
        until(partial(has_reconnected, client, number))
    assert wait.goes_on(0.1)
    client.disconnect()
    assert wait.get() == CloseInfo(initiator="client")


def test_a_session_that_is_not_replaced() -> None:
    """The reason is returned, by a call before the end and by one after it."""

    def bot(transport: MemoryTransport, message: RTVIMessage) -> Iterable[Any]:
        if message.type == "client-ready" and lost:
            raise ConnectionError("away")
        yield from ready_bot(transport, message)

    lost: list[bool] = []
    policy = ReconnectPolicy(max_attempts=2, initial_delay=0.01, max_delay=0.02, retry_on=lambda error: True)
    client = memory_client(bot, reconnect=policy)
    client.connect()
    wait = waiting(client, timeout=GUARD)
    lost.append(True)
    transport_of(client).end(NETWORK)
    info = wait.get()
    assert (info.initiator, info.reconnecting, info.error is None) == ("network", False, False)
    assert client.wait(GUARD) == info


def test_a_client_that_disconnects_between_two_sessions() -> None:
    """No session follows; calls before and after it return."""
    client = memory_client(reconnect=SLOW)
    client.connect()
    with client.events("reconnecting", timeout=GUARD) as events:
        transport_of(client).end(NETWORK)
        next(events)
    wait = waiting(client, timeout=GUARD)
    with pytest.raises(RequestTimeoutError):
        client.wait(0.05)
    client.disconnect()
    assert wait.get() == client.wait(0) == CloseInfo(initiator="client")


@pytest.mark.skipif(os.name == "nt", reason="a process cannot send itself SIGINT there")
def test_ctrl_c_interrupts_wait() -> None:
    """Ctrl-C interrupts wait(), and the session continues."""
    with memory_client() as client:
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            client.wait(GUARD)
        timer.join()
        assert client.send_client_request("ping", 1) == 1
