"""`wait_until_ready()`."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator

import pytest

from rtvi_sync import (
    BotNotReadyError,
    CloseInfo,
    ReconnectPolicy,
    RequestTimeoutError,
    RTVIClient,
    RTVIError,
    TransportState,
    WouldDeadlockError,
)
from tests.support.clients import memory_client, ready_bot, silent_bot, transport_of
from tests.support.http_server import Answer, ScriptedServer
from tests.support.moments import at
from tests.support.probes import session_has_ended, waiting_calls
from tests.support.slowness import GUARD
from tests.support.threads import InThread
from tests.support.waiting import until

LOSS = CloseInfo(initiator="network")
QUICK = ReconnectPolicy(max_attempts=2, initial_delay=0.01, max_delay=0.02, stable_after=0.01)


@contextlib.contextmanager
def closing(client: RTVIClient) -> Iterator[RTVIClient]:
    with contextlib.closing(client):
        yield client


def waiting(client: RTVIClient) -> InThread:
    """Return a thread that waits."""
    thread = InThread(lambda: client.wait_until_ready(GUARD))
    until(lambda: waiting_calls(client))
    return thread


@pytest.mark.parametrize("events", ["thread", "manual"])
def test_no_replacement_is_missed(events: str) -> None:
    """Whenever the call is made after a loss, the bot is ready when it returns."""
    policy = ReconnectPolicy(max_attempts=None, initial_delay=0.001, max_delay=0.001)
    with closing(memory_client(reconnect=policy, events=events)) as client:
        client.connect()
        for number in range(50):
            transport_of(client).end(LOSS)
            if number % 2:
                threading.Event().wait(0.002)  # the session may be replaced by now, or not
            while True:  # it may be the one that is being lost that is ready
                client.wait_until_ready(GUARD)
                with contextlib.suppress(RTVIError):
                    assert client.send_client_request("echo", number, timeout=GUARD) == number
                    break


def test_on_a_thread_beside_connect() -> None:
    """wait_until_ready() before connect() waits for the session that starts next."""
    answer = threading.Event()

    def late(transport, message):
        if message.type == "client-ready":
            answer.wait(GUARD)
        yield from ready_bot(transport, message)

    with closing(memory_client(late, connect_timeout=GUARD)) as client:
        waits = waiting(client)
        connects = InThread(client.connect)
        until(lambda: client.state == "connected")
        assert not waits.done
        answer.set()
        waits.get()
        connects.get()
        client.wait_until_ready(0)


def test_it_begins_as_the_bot_becomes_ready() -> None:
    """wait_until_ready() returns though it is called between the look for listeners of the state and the state."""
    waits = queue.SimpleQueue[InThread]()

    def late(go_on: Callable[[], object], data: object) -> object:
        found = go_on()
        if data is TransportState.READY:
            waits.put(waiting(client))
        return found

    with at("listeners are looked for", late), closing(memory_client()) as client:
        client.connect()
        waits.get(timeout=GUARD).get()


def test_a_bot_that_is_never_ready() -> None:
    """The limit passes, and the error reports the client's state."""
    with closing(memory_client(silent_bot, connect_timeout=GUARD)) as client:
        connects = InThread(client.connect)
        until(lambda: client.state == "connected")
        with pytest.raises(RequestTimeoutError, match=r"not ready within 0\.05 s; .* is connected\.") as caught:
            client.wait_until_ready(0.05)
        assert isinstance(caught.value.__cause__, BotNotReadyError)
        client.disconnect()
        assert isinstance(connects.error(), RTVIError)


@pytest.mark.parametrize("is_waiting", [True, False])
def test_a_loss_that_is_not_replaced(is_waiting: bool, server: ScriptedServer) -> None:
    """The error says why: by the call that waits, and by later ones."""
    server.answers["/connect/"] = Answer({})
    with closing(memory_client(reconnect=QUICK, params={"base_url": server.url})) as client:
        client.connect()
        server.answers["/connect/"] = Answer({}, 401)
        held, heard = threading.Event(), threading.Event()
        client.on("disconnected", lambda: held.wait(GUARD))
        client.on("reconnect_failed", heard.set)
        transport_of(client).end(LOSS)
        if is_waiting:
            until(lambda: session_has_ended(client))
            waits = waiting(client)
            held.set()
            assert "401" in str(waits.error())
        held.set()
        assert heard.wait(GUARD)
        with pytest.raises(BotNotReadyError, match=r"not replaced, after 1 attempt: .*401"):
            client.wait_until_ready(GUARD)


@pytest.mark.parametrize("end", ["disconnect", "close", "lost"])
def test_an_end_without_reconnection(end: str) -> None:
    """After an end without reconnection, wait_until_ready() raises `BotNotReadyError`."""
    with closing(memory_client()) as client:
        client.connect()
        transport_of(client).end(LOSS) if end == "lost" else getattr(client, end)()
        until(lambda: client.state == "disconnected")
        with pytest.raises(BotNotReadyError):
            client.wait_until_ready(GUARD)


def test_an_attempt_that_has_failed() -> None:
    """After an attempt that has failed, wait_until_ready() raises a `BotNotReadyError` that says so."""
    with closing(memory_client(silent_bot, connect_timeout=0.05)) as client:
        with pytest.raises(RTVIError):
            client.connect()
        with pytest.raises(BotNotReadyError, match=r"the last attempt to connect failed"):
            client.wait_until_ready(GUARD)


def test_close_meanwhile() -> None:
    """close() ends a waiting wait_until_ready() with `BotNotReadyError`."""
    with closing(memory_client()) as client:
        waits = waiting(client)
        client.close()
        assert isinstance(waits.error(), BotNotReadyError)


def test_waiting_in_a_handler_raises() -> None:
    """In a handler, wait_until_ready() raises `WouldDeadlockError`: its event would follow the handler."""
    raised = queue.SimpleQueue[BaseException]()

    def handle() -> None:
        try:
            client.wait_until_ready(GUARD)
        except BaseException as error:
            raised.put(error)

    with closing(memory_client(reconnect=QUICK)) as client:
        client.once("disconnected", handle)
        client.connect()
        transport_of(client).end(LOSS)
        assert isinstance(raised.get(timeout=GUARD), WouldDeadlockError)
