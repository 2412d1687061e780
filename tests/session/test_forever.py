"""`ReconnectPolicy.forever()`, as a kiosk has it, with a bot that is killed, restarted and ends by itself."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from rtvi_sync import (
    AbortSignal,
    BotAlreadyStartedError,
    CloseInfo,
    ConnectError,
    DisconnectedError,
    MemoryTransport,
    ReconnectPolicy,
    RTVIClient,
    RTVIError,
)
from rtvi_sync.media import NullSink, PushSource
from rtvi_sync.testing import EmbeddedBot
from tests.support.limits import changed
from tests.support.probes import waiting_calls
from tests.support.processes import run_python
from tests.support.slowness import GUARD
from tests.support.threads import InThread
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
POLICY = ReconnectPolicy.forever(initial_delay=0.05, max_delay=0.2, stable_after=0.05)


@pytest.fixture
def port() -> int:
    """Return a port at which no server listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        number: int = listening.getsockname()[1]
    return number


@pytest.fixture
def kiosk(port: int) -> Iterator[RTVIClient]:
    """Return a client of the bot at that port."""
    client = client_at(port)
    yield client
    client.close()


def client_at(port: int, policy: ReconnectPolicy = POLICY, **options: Any) -> RTVIClient:
    """Return a client that never gives up, without devices."""
    url = f"http://127.0.0.1:{port}"
    return RTVIClient.for_url(url, enable_mic=False, speaker=NullSink(), reconnect=policy, **options)


def test_the_first_connect_waits_for_the_server(port: int, kiosk: RTVIClient) -> None:
    """The first connect() returns once the bot is there; each failed attempt is an event."""
    attempts: list[int] = []
    kiosk.on("reconnecting", lambda data: attempts.append(data.attempt))
    connecting = InThread(kiosk.connect)
    until(lambda: len(attempts) > 1, "the attempt was not repeated")
    with EmbeddedBot(port=port):
        connecting.get(GUARD)
        assert kiosk.connected
        kiosk.disconnect()
    assert attempts == list(range(2, len(attempts) + 2))


def test_what_listens_before_the_server_is_there_hears_its_bot(port: int, kiosk: RTVIClient) -> None:
    """A failed attempt does not end `events()`, `wait_for()` or `wait()`."""
    attempts: list[object] = []
    kiosk.on("reconnecting", attempts.append)
    stream = kiosk.events("bot-transcription", timeout=GUARD)
    connecting = InThread(kiosk.connect)
    until(lambda: len(attempts) > 1, "the attempt was not repeated")
    listening = InThread(lambda: kiosk.wait_for("bot-transcription", timeout=GUARD))
    ending = InThread(lambda: kiosk.wait(GUARD))
    until(lambda: waiting_calls(kiosk) == 3, "the calls do not listen")
    seen = len(attempts)
    until(lambda: len(attempts) > seen + 1, "the attempt was not repeated")
    with EmbeddedBot(port=port, replies="It is noon."):
        connecting.get(GUARD)
        kiosk.send_text("What time is it?")
        assert next(stream).data.text == listening.get(GUARD).data.text == "It is noon."
        kiosk.disconnect()
    assert ending.get(GUARD) == CloseInfo(initiator="client")


def test_what_a_caller_said_meanwhile_reaches_the_bot(port: int) -> None:
    """Speech pushed before the first attempt is sent when a later one, or a later `connect()`, has reached a bot."""
    caller, voice = PushSource(16_000), b"\1\2" * 3200
    caller.push(voice)
    url = f"http://127.0.0.1:{port}"
    with pytest.raises(RTVIError):
        RTVIClient.for_url(url, mic=caller, speaker=NullSink()).connect()
    attempts: list[object] = []
    client = RTVIClient.for_url(url, mic=caller, speaker=NullSink(), reconnect=POLICY)
    client.on("reconnecting", attempts.append)
    connecting = InThread(client.connect)
    until(lambda: len(attempts) > 1, "the attempt was not repeated")
    with EmbeddedBot(port=port) as bot:
        connecting.get(GUARD)
        session = bot.wait_for_session(GUARD)
        until(lambda: voice in session.audio, "the bot did not hear the caller")
        client.close()
    assert caller.dropped_seconds == 0


def test_a_bot_that_ends_and_a_server_that_restarts_are_replaced(port: int, kiosk: RTVIClient) -> None:
    """Close code 1000 is followed by a new session, and so is a restart; `disconnect_bot()` by none."""
    ends: list[CloseInfo] = []
    kiosk.on("disconnected", ends.append)
    with EmbeddedBot(port=port) as bot:
        kiosk.connect()
        with kiosk.events("bot-ready", timeout=GUARD) as ready:
            bot.wait_for_session(GUARD).close(1000)
            next(ready)
            bot.stop()
            bot.start()
            next(ready)
        kiosk.disconnect_bot()
        until(lambda: len(ends) == 3, "the bot has not left")
    assert [(end.code, end.reconnecting) for end in ends] == [(1000, True), (1012, True), (1000, False)]


def test_disconnect_ends_the_first_connect(kiosk: RTVIClient) -> None:
    """disconnect() ends the first connect(), even between two attempts."""
    attempts: list[object] = []
    kiosk.on("reconnecting", attempts.append)
    connecting = InThread(kiosk.connect)
    until(lambda: attempts, "the attempt was not repeated")
    kiosk.disconnect()
    assert isinstance(connecting.error(GUARD), DisconnectedError)


def test_disconnect_ends_the_first_connect_while_an_attempt_fails() -> None:
    """The call was ended by disconnect(), whatever its last attempt failed with."""

    class Refusing(MemoryTransport):
        def connect(self, auth_bundle: Any, abort: AbortSignal) -> None:
            raise ConnectionRefusedError("no bot here")

        def disconnect(self) -> None:
            client.disconnect()
            super().disconnect()

    client = RTVIClient(transport=Refusing(), reconnect=POLICY)
    with contextlib.closing(client), changed(teardown=0.2):  # disconnect() waits this long for an end that waits for it
        assert isinstance(InThread(client.connect).error(GUARD), DisconnectedError)


def test_what_listens_to_the_session_of_another_thread_goes_on(port: int) -> None:
    """A repeated `connect()` gives up because another thread has connected between two of its attempts."""
    waits, goes_on = threading.Event(), threading.Event()

    def retry(_: BaseException) -> bool:
        waits.set()
        return goes_on.wait(GUARD)

    client = client_at(port, attrs.evolve(POLICY, retry_on=retry))
    with contextlib.closing(client):
        repeated = InThread(client.connect)
        assert waits.wait(GUARD)
        before = client.events("bot-transcription", timeout=GUARD)
        with before, EmbeddedBot(port=port, replies="It is noon."):
            client.connect()
            with client.events("bot-transcription", timeout=GUARD) as stream:
                goes_on.set()
                assert isinstance(repeated.error(GUARD), BotAlreadyStartedError)
                client.send_text("What time is it?")
                assert next(stream).data.text == next(before).data.text == "It is noon."


def test_disconnect_ends_the_session_of_another_thread(port: int) -> None:
    """A call that waits for its next attempt is no reason to forget the session that another thread has started."""
    waits, goes_on = threading.Event(), threading.Event()

    def retry(_: BaseException) -> bool:
        waits.set()
        return goes_on.wait(GUARD)

    client = client_at(port, attrs.evolve(POLICY, retry_on=retry))
    with contextlib.closing(client):
        repeated = InThread(client.connect)
        assert waits.wait(GUARD)
        with EmbeddedBot(port=port) as bot:
            client.connect()
            client.disconnect()
            assert client.state == "disconnected"
            until(lambda: not bot.sessions)
        goes_on.set()
        assert isinstance(repeated.error(GUARD), DisconnectedError)


@pytest.mark.parametrize("retries", [True, False])
def test_disconnect_ends_the_first_connect_in_the_rule_of_its_policy(port: int, retries: bool) -> None:
    """The call was ended by disconnect(), whatever the application's rule says, and no attempt is announced."""

    def retry(_: BaseException) -> bool:
        client.disconnect()
        return retries

    client = client_at(port, attrs.evolve(POLICY, retry_on=retry))
    attempts: list[object] = []
    client.on("reconnecting", attempts.append)
    with contextlib.closing(client), changed(stop=0.1):  # disconnect() waits this long for a call that waits for it
        assert isinstance(InThread(client.connect).error(GUARD), DisconnectedError)
    assert attempts == []


def test_disconnect_ends_each_first_connect(kiosk: RTVIClient) -> None:
    """Several threads may repeat the call at once."""
    connecting = []
    for _ in range(2):
        with kiosk.events("reconnecting", timeout=GUARD) as stream:
            connecting.append(InThread(kiosk.connect))
            next(stream)
    kiosk.disconnect()
    for each in connecting:
        error = each.error(GUARD)
        assert isinstance(error, DisconnectedError | BotAlreadyStartedError), error


def test_connect_after_close(kiosk: RTVIClient) -> None:
    """A client that was closed for good has no session to wait for, whatever its policy says."""
    for end in kiosk.close, kiosk.disconnect:
        end()
        with pytest.raises(RTVIError, match="closed for good"):
            InThread(kiosk.connect).get(GUARD)


def test_a_mistake_of_the_application_is_raised(port: int) -> None:
    """A first connect() that cannot be sent is not repeated: no server can make up for it."""
    params = {"request_data": {"not JSON": object()}}
    url = f"http://127.0.0.1:{port}/connect"
    client = RTVIClient.for_url(url, params=params, text_only=True, reconnect=POLICY)
    attempts: list[object] = []
    client.on("reconnecting", attempts.append)
    with pytest.raises(TypeError, match="JSON"):
        InThread(client.connect).get(GUARD)
    assert not attempts


def test_ctrl_c_during_its_imports_leaves_them_whole() -> None:
    """The next `connect()` works."""
    script = """
        import os, signal, sys
        from rtvi_sync import MemoryTransport, ReconnectPolicy, RTVIClient

        class Interrupts:
            def find_spec(self, name, *_):
                if name == "asyncio.queues":  # one of the last that asyncio imports
                    sys.meta_path.remove(self)
                    os.kill(os.getpid(), signal.SIGINT)

        sys.meta_path.insert(0, Interrupts())
        client = RTVIClient(transport=MemoryTransport(), reconnect=ReconnectPolicy.forever())
        try:
            client.connect()
        except KeyboardInterrupt:
            print("interrupted")
        client.connect()
        print(client.state.value)
    """
    done = run_python(script, timeout=GUARD, executable=sys.executable)  # a Python that has not imported asyncio
    assert done == (0, "interrupted\nready\n", "")


def test_connect_timeout_limits_all_attempts_together(port: int) -> None:
    """The last error is raised."""
    client = client_at(port, connect_timeout=0.5)
    with pytest.raises(ConnectError):
        client.connect()
    client.close()


def test_the_sample_survives_the_end_of_a_session(port: int, tmp_path: Path) -> None:
    """The sample starts before its bot, and has a second session after the bot has ended the first."""
    words = [sys.executable, "-m", "samples.kiosk", "--url", f"http://127.0.0.1:{port}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    kiosk = subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        with EmbeddedBot(port=port) as bot:
            bot.wait_for_session(GUARD).close(1000)
            bot.wait_for_session(GUARD)
    finally:
        kiosk.kill()
        kiosk.communicate()
