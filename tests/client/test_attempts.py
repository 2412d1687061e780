"""Attempts to connect that fail, or meet another one."""

from __future__ import annotations

import itertools
import threading
from types import FrameType
from typing import Any

import pytest

from rtvi_sync import (
    BotAlreadyStartedError,
    BotNotReadyError,
    ConnectionTimeoutError,
    DisconnectedError,
    RTVIClient,
    RTVIError,
    TransportStartError,
    TransportState,
)
from tests.support.clients import memory_client, silent_bot, transport_of
from tests.support.slowness import GUARD
from tests.support.threads import InThread, thread_names, tracing
from tests.support.waiting import until


def test_two_threads_connect_at_once() -> None:
    """If several threads connect at once, one gets the session, and the others raise `BotAlreadyStartedError`."""
    for _ in range(20):
        client = memory_client()
        start = threading.Barrier(4)

        def connect(client: RTVIClient = client, start: threading.Barrier = start) -> Any:
            start.wait(GUARD)
            return client.connect()

        attempts = [InThread(connect) for _ in range(4)]
        outcomes: list[Any] = []
        for attempt in attempts:
            try:
                outcomes.append(attempt.get())
            except BotAlreadyStartedError as error:
                outcomes.append(error)
        assert sorted(type(o).__name__ for o in outcomes) == ["BotAlreadyStartedError"] * 3 + ["BotReadyData"]
        assert client.send_client_request("ping", 1) == 1
        client.disconnect()


def connects_at(client: RTVIClient, moment: int) -> bool:
    """Close a client; at the `moment`-th line or call of that, connect it on another thread. Return False if it has
    fewer.
    """
    outermost: list[FrameType] = []
    left = moment

    def trace(frame: FrameType, *_: object) -> Any:
        nonlocal left
        if not outermost and frame.f_code is not RTVIClient.close.__code__:
            return None
        outermost.append(frame)
        left -= 1
        if not left:
            InThread(client.connect).thread.join(GUARD)
        return trace

    with tracing(trace):
        client.close()
    return left <= 0


def test_no_session_outlives_close() -> None:
    """A `connect()` of another thread, at whatever moment of `close()`, leaves no session."""
    for moment in itertools.count(1):
        client = memory_client()
        reached = connects_at(client, moment)
        outlived = client.connected
        client.disconnect()
        assert not outlived, f"moment {moment}"
        if not reached:
            break
    assert moment > 10


def test_already_connected() -> None:
    """`connect()` in a live session is refused with the way out, and the session goes on."""
    with memory_client() as client:
        with pytest.raises(BotAlreadyStartedError, match=r"disconnect\(\)"):
            client.connect()
        assert client.send_client_request("ping", 1) == 1
        assert client.state is TransportState.READY


def test_calls_say_why_connect_failed() -> None:
    """After a connect() that failed a call that needs the bot tells why, in its words and as its cause."""

    def refuse(*_: Any) -> None:
        raise TransportStartError("the key has expired", status=401)

    client = memory_client()
    transport_of(client).connect = refuse
    with pytest.raises(TransportStartError):
        client.connect()
    with pytest.raises(BotNotReadyError, match=r"the last attempt to connect failed: the key has expired") as told:
        client.send_text("hello")
    cause = told.value.__cause__
    assert isinstance(cause, TransportStartError)
    assert cause.status == 401


@pytest.mark.parametrize("step", ["initialize", "init_devices", "connect", "send_ready_message"])
@pytest.mark.parametrize("error", [ValueError("broken"), OSError("broken"), RTVIError("broken")])
def test_a_transport_that_raises(step: str, error: Exception) -> None:
    """A transport's error fails the attempt as a `TransportStartError`; an `RTVIError` stays as it is."""
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
    assert thread_names() == []
    setattr(transport, step, real)
    client.connect()
    client.disconnect()


@pytest.mark.parametrize("begun", [False, True])
def test_the_bot_leaves_before_it_is_ready(begun: bool) -> None:
    """The line ends before bot-ready: `connect()` raises the known cause at once; the state is `error`."""
    from rtvi_sync import CloseInfo

    def bot(transport: Any, message: Any) -> Any:
        if message.type == "client-ready":
            transport.end(CloseInfo(code=1013, reason="full", initiator="server"))

    client = memory_client(bot, connect_timeout=None)
    with pytest.raises(DisconnectedError, match="full") as caught:
        client.connect()
    assert (caught.value.code, caught.value.reason, caught.value.initiator) == (1013, "full", "server")
    assert client.state is TransportState.ERROR
    assert thread_names() == []


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
    """A bot can be ready while the transport still opens: states and events keep their order."""
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
    """A bot-ready before the transport failed to open makes no session: the state is `error`."""
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
        until(lambda: thread_names() == [])
