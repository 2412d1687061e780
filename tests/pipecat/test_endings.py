"""How sessions with real bots end: waiting calls end at once, and nothing is left behind."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from rtvi_sync import (
    BotError,
    BotNotReadyError,
    DisconnectedError,
    ReconnectingData,
    ReconnectPolicy,
    RequestTimeoutError,
    RTVIClient,
    RTVIEvent,
    StartBotError,
    WebSocketTransport,
)
from tests.support.slowness import GUARD, takes
from tests.support.threads import open_descriptors, package_threads
from tests.support.waiting import until

from .clients import client_of
from .conftest import BotServer

# The promise to waiting calls when the line dies, in seconds.
PROMISE = 1.0


class Waiting:
    """Calls that wait while something happens to the line: a request, an event, a stream."""

    def __init__(self, client: RTVIClient) -> None:
        self._calls: list[Callable[[], object]] = [
            lambda: client.send_client_request("never", timeout=GUARD),
            lambda: client.send_client_request("never", timeout=None),
            lambda: client.wait_for("server-message", timeout=GUARD),
            lambda: list(client.events("server-message", timeout=GUARD)),
        ]
        self.errors: list[BaseException | None] = []
        self._started = threading.Barrier(len(self._calls) + 1)
        self._threads = [threading.Thread(target=self._run, args=(call,)) for call in self._calls]
        for thread in self._threads:
            thread.start()
        self._started.wait(GUARD)
        # Requests overtake nothing: once this one is answered, those before it are on their way.
        client.send_client_request("ping", 1)

    def _run(self, call: Callable[[], object]) -> None:
        self._started.wait(GUARD)
        try:
            call()
            self.errors.append(None)
        except BaseException as error:
            self.errors.append(error)

    def all_answered_within(self, seconds: float) -> list[BaseException]:
        """Return the errors that the calls raised; the stream just ends."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        assert not any(thread.is_alive() for thread in self._threads)
        errors = [error for error in self.errors if error is not None]
        assert len(errors) == len(self._calls) - 1
        return errors


def kill(server: BotServer) -> None:
    server.kill()


def terminate(server: BotServer) -> None:
    server.process.send_signal(signal.SIGTERM)


def drop(server: BotServer) -> None:
    server.control("drop")


def end(server: BotServer) -> None:
    server.control("end")


def cancel(server: BotServer) -> None:
    server.control("cancel")


def fail(server: BotServer) -> None:
    server.control("fail", error="it broke")


@pytest.mark.parametrize(
    ("how", "initiator", "code"),
    [
        pytest.param(kill, "network", None, id="killed"),
        pytest.param(drop, "network", None, id="dropped", marks=pytest.mark.matrix),
        pytest.param(terminate, "server", 1012, id="SIGTERM", marks=pytest.mark.matrix),
        pytest.param(cancel, "server", 1000, id="cancelled", marks=pytest.mark.matrix),
        pytest.param(end, "server", 1000, id="ended"),
    ],
)
def test_everyone_who_waits_is_told(
    pipecat_process: Callable[..., BotServer], how: Callable[[BotServer], None], initiator: str, code: int | None
) -> None:
    """Whatever ends the line, every waiting call returns within a second, with the code and who ended it."""
    server = pipecat_process("talk")
    client = client_of(server)
    ended = threading.Event()
    client.on("disconnected", ended.set)
    client.connect()
    waiting = Waiting(client)

    how(server)
    assert ended.wait(GUARD)  # the fact
    errors = waiting.all_answered_within(PROMISE)

    for error in errors:
        assert isinstance(error, DisconnectedError)
        assert (error.initiator, error.code) == (initiator, code)
    with pytest.raises(BotNotReadyError):
        client.send_text("Hello?")
    client.disconnect()
    assert client.state.value == "disconnected"


def test_fatal_error(pipecat_talk: BotServer) -> None:
    """A fatal error of the bot is an event, and the cause of the errors that waiting calls raise."""
    with client_of(pipecat_talk) as client, client.events("error", "disconnected", timeout=GUARD) as events:
        waiting = Waiting(client)
        fail(pipecat_talk)

        assert next(events).data.fatal
        closing = next(events)
        assert closing.type is RTVIEvent.DISCONNECTED
        assert isinstance(closing.data.error, BotError)
        for error in waiting.all_answered_within(PROMISE):
            assert "it broke" in str(error)


def test_stall(pipecat_talk: BotServer) -> None:
    """A bot whose loop hangs for a while costs a request its time-out, and no more."""
    with client_of(pipecat_talk) as client:
        pipecat_talk.control("stall", seconds=1.0)
        with pytest.raises(RequestTimeoutError):
            client.send_client_request("ping", 1, timeout=0.2)
        assert client.send_client_request("ping", 2, timeout=GUARD) == {"pong": 2}


@pytest.mark.matrix
def test_disconnect_from_a_stopped_bot(pipecat_process: Callable[..., BotServer]) -> None:
    """disconnect() from a bot whose process is stopped returns within its limit, and nothing is left."""
    server = pipecat_process("talk")
    client = client_of(server)
    client.connect()
    server.process.send_signal(signal.SIGSTOP)

    with takes(5.0):
        client.disconnect()

    assert not package_threads()


def test_a_bot_that_freezes_is_found_dead(pipecat_process: Callable[..., BotServer]) -> None:
    """A bot whose process is stopped while nothing is sent is found by a ping; before that it answered pings."""
    server = pipecat_process("talk")
    client = client_of(server, enable_mic=False, transport=WebSocketTransport(ping_interval=0.2, ping_timeout=15.0))
    client.connect()  # a bot is busy for seconds when its process serves the first session
    until(lambda: client.stats().round_trip is not None)
    waiting = Waiting(client)

    server.process.send_signal(signal.SIGSTOP)
    ended = client.wait_for("disconnected", timeout=GUARD).data

    assert (ended.initiator, ended.code) == ("network", None)
    assert "has not answered a ping" in str(ended.error)
    waiting.all_answered_within(PROMISE)
    client.disconnect()


def test_a_lost_session_comes_back(pipecat_process: Callable[..., BotServer], pipecat_echo: BotServer) -> None:
    """With a policy a dropped line, a restarting server and a killed one each cost a moment, not the session."""
    server = pipecat_process("talk")
    client = client_of(server, reconnect=ReconnectPolicy(initial_delay=0.1, max_delay=0.5))

    @client.on("reconnecting")
    def move(data: ReconnectingData) -> None:
        if isinstance(data.error, StartBotError):  # that server is gone: there is another one
            client.params.base_url = pipecat_echo.base_url

    with client:
        for times, how in enumerate((drop, kill), 1):
            how(server)
            until(partial(lambda times: client.stats().reconnects == times, times))
            assert client.state.value == "ready"
        assert pipecat_echo.live_sessions(expected=1) == 1
    assert not package_threads()


def test_a_bot_that_hangs_up_is_not_called_back(pipecat_talk: BotServer) -> None:
    """The bot's own normal end is the end, policy or not."""
    client = client_of(pipecat_talk, reconnect=ReconnectPolicy(initial_delay=0.01))
    client.connect()
    with client.events("disconnected", timeout=GUARD) as ended:  # the bot may be gone when `end()` returns
        end(pipecat_talk)
        assert next(ended).data.code == 1000
    client.disconnect()
    assert client.stats().sessions == 1


def test_bot_leaves_on_request(pipecat_talk: BotServer) -> None:
    """disconnect_bot() does not close by itself: the bot ends the session."""
    with client_of(pipecat_talk) as client, client.events("disconnected", timeout=GUARD) as ended:
        client.disconnect_bot()
        closing = next(ended)

    assert closing.data.initiator == "server"
    assert closing.data.code == 1000


def test_reconnect_after_every_end(pipecat_talk: BotServer) -> None:
    """One client connects again and again: after its own disconnect, after drops, also inside the handler of one."""
    client = client_of(pipecat_talk)
    reconnected = threading.Event()

    @client.on("disconnected")
    def reconnect(info: object) -> None:
        if not reconnected.is_set():
            client.connect()
            reconnected.set()

    client.connect()
    drop(pipecat_talk)
    assert reconnected.wait(GUARD)
    assert client.send_client_request("ping", 1) == {"pong": 1}
    client.disconnect()
    client.connect()
    assert client.send_client_request("ping", 2) == {"pong": 2}
    client.disconnect()


def test_ten_sessions_leave_nothing(pipecat_talk: BotServer) -> None:
    """Ten sessions on one client: when disconnect() has returned, not one thread or descriptor more is there, but those
    that wait for the next session.
    """
    client = client_of(pipecat_talk)
    client.connect()
    client.disconnect()
    assert not package_threads()
    before = open_descriptors()

    for _ in range(10):
        client.connect()
        assert client.send_client_request("ping", 1) == {"pong": 1}
        client.disconnect()
        assert not package_threads()
        assert len(open_descriptors()) == len(before)

    assert pipecat_talk.live_sessions(expected=0) == 0


@pytest.mark.matrix
def test_hundred_clients_at_once(pipecat_echo: BotServer) -> None:
    """A hundred sessions in real time need a handful of threads, and leave none and no descriptor."""
    before = open_descriptors()
    clients = [client_of(pipecat_echo) for _ in range(100)]
    connecting = [threading.Thread(target=client.connect) for client in clients]
    for thread in connecting:
        thread.start()
    for thread in connecting:
        thread.join(GUARD)
    try:
        assert all(client.state.value == "ready" for client in clients)
        assert pipecat_echo.live_sessions(expected=100) == 100
        for client in clients[:10]:
            voice = client.tracks().bot.audio
            assert voice is not None
            assert next(voice.frames()).sample_rate_hz == 16000
        until(lambda: len(package_threads()) <= 10)  # workers that were busy with the connects go after a while
    finally:
        closing = [threading.Thread(target=client.disconnect) for client in clients]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(GUARD)

    assert not package_threads()
    assert len(open_descriptors()) == len(before)
    assert pipecat_echo.live_sessions(expected=0) == 0
