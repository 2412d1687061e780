"""The deadline over all phases of `connect()`, and the threads that a failed attempt leaves."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from rtvi_sync import (
    AbortSignal,
    BotAlreadyStartedError,
    ConnectionTimeoutError,
    DisconnectedError,
    MemoryTransport,
    ReconnectPolicy,
    RTVIClient,
    TransportState,
    WebSocketTransport,
)
from rtvi_sync.media import BytesSink
from rtvi_sync.testing import EmbeddedBot
from tests.support.attempts import connect_within, timed_out
from tests.support.clients import memory_client, silent_bot, transport_of, websocket_client
from tests.support.hung_phases import PHASES, HangingPhase, bot_ready, http_headers, websocket_handshake
from tests.support.moments import at
from tests.support.slowness import GUARD, LIMITS, takes
from tests.support.threads import InThread, own_threads
from tests.support.waiting import until

TOLERANCE = 0.2


@pytest.mark.parametrize(
    ("diagnosis", "said"),
    [(lambda: "The cable is cut.", "The cable is cut."), (lambda: 1 / 0, "A bot without RTVI"), (None, "A bot")],
    ids=["says", "raises", "has none"],
)
def test_what_the_transport_has_seen(diagnosis: Any, said: str) -> None:
    """A transport's diagnosis replaces the general advice in the error; a diagnosis that raises changes nothing."""
    client = memory_client(silent_bot)
    if diagnosis is not None:
        transport_of(client).diagnosis = diagnosis
    timed_out("bot-ready", partial(connect_within, client), rf"to be ready\. {said}")


@pytest.mark.parametrize(
    "limits", [{"connect_timeout": 0.1}, {"reconnect": ReconnectPolicy(attempt_timeout=0.1)}], ids=["call", "attempt"]
)
def test_the_advice_names_the_limit(limits: dict[str, Any]) -> None:
    """The advice of a time-out names the limit that has passed."""
    client = memory_client(silent_bot, **{"connect_timeout": GUARD, **limits})
    (name,) = limits if "reconnect" not in limits else ("attempt_timeout",)
    timed_out("bot-ready", client.connect, rf"within 0\.1 s.*raise the limit \(.*{name}=")


def only_left(roles: list[str]) -> bool:
    """Return whether the package's threads, except the ones that serve every session, have exactly these roles."""
    return [name.split("-")[1] for name in own_threads()] == roles


class SlowTransport(MemoryTransport):
    """Its connect() waits until it is abandoned."""

    def __init__(self, step: Callable[[], str]) -> None:
        super().__init__()
        self.step = step

    def connect(self, auth_bundle: Any, abort: AbortSignal) -> None:
        abort.wait()
        abort.raise_if_aborted()

    def waiting_for(self) -> str:
        return self.step()


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (lambda: "a carrier pigeon", "opening the transport: waiting for a carrier pigeon. Check"),
        (lambda: "", "opening the transport. Check"),
        (lambda: 1 / 0, "opening the transport. Check"),
    ],
    ids=["says", "says nothing", "raises"],
)
def test_the_step_of_the_transport(step: Any, said: str) -> None:
    """The error includes the step that the transport waited for, if the transport reports it."""
    client = RTVIClient(transport=SlowTransport(step), text_only=True)
    timed_out("transport", partial(connect_within, client), said)


@pytest.mark.parametrize("phase", PHASES)
class TestEveryPhase:
    def test_deadline(self, phase: HangingPhase) -> None:
        """Invariant "one deadline over every phase": `ConnectionTimeoutError` at most 0.2 s after the limit, with phase
        and time; state `error`; no thread left but one that sits in a look-up or a device; then `connect()` works."""
        for limit in LIMITS[1:]:
            with phase(connect_timeout=limit) as hung:
                with takes(limit + TOLERANCE, at_least=limit) as watch, pytest.raises(ConnectionTimeoutError) as caught:
                    hung.client.connect()
                if caught.value.phase != hung.phase and limit != LIMITS[-1]:
                    continue
                assert caught.value.phase == hung.phase
                assert limit <= caught.value.elapsed <= watch.took
                assert isinstance(caught.value, TimeoutError)
                assert hung.client.state.value == "error"
                until(partial(only_left, [] if hung.release is None else ["connect"]))
                hung.connect_healed()
                assert hung.client.state is TransportState.READY
                hung.client.disconnect()
            break

    def test_disconnect_from_another_thread(self, phase: HangingPhase) -> None:
        """`connect()` without a limit raises `DisconnectedError(initiator="client")` at once, and can be called
        again."""
        with phase(connect_timeout=None) as hung:
            connecting = InThread(hung.client.connect)
            assert hung.reached() is not False
            with takes(1.0):
                hung.client.disconnect()
            error = connecting.error()
            assert isinstance(error, DisconnectedError)
            assert error.initiator == "client"
            assert hung.client.state is TransportState.DISCONNECTED
            if hung.release is None:
                until(lambda: not own_threads())
            hung.connect_healed()
            hung.client.disconnect()

    def test_second_connect(self, phase: HangingPhase) -> None:
        """While an attempt is under way another one is refused, and the first is undisturbed."""
        with phase(connect_timeout=None) as hung:
            connecting = InThread(hung.client.connect)
            assert hung.reached() is not False
            with pytest.raises(BotAlreadyStartedError, match=r"disconnect\(\)"):
                hung.client.connect()
            assert not connecting.done
            hung.client.disconnect()
            connecting.error()


@pytest.mark.parametrize(
    ("moment", "made"), [("an attempt is about to make a session", 0), ("connect() makes a session", 1)]
)
def test_disconnect_before_there_is_a_session(moment: str, made: int) -> None:
    """`disconnect()` on another thread ends a `connect()` that has no session yet: an abandoned attempt makes none, and
    one that is made at that moment ends before its transport connects."""
    client = memory_client()
    sessions: list[object] = []
    states: list[TransportState] = []
    client.on("transport_state_changed", states.append)
    disconnecting: list[InThread] = []

    def disconnect_first(go_on: Callable[[], object], call: Any) -> object:
        disconnecting.append(InThread(client.disconnect))
        until(lambda: call.abandoned)
        return go_on()

    def count(go_on: Callable[[], object], _: object) -> object:
        sessions.append(None)
        return go_on()

    with at(moment, disconnect_first), at("a session is made", count), pytest.raises(DisconnectedError) as caught:
        client.connect()
    disconnecting[0].get()
    assert caught.value.initiator == "client"
    assert len(sessions) == made
    assert not {TransportState.CONNECTING, TransportState.ERROR} & {*states}
    assert client.state is TransportState.DISCONNECTED
    with client:
        assert client.send_client_request("echo", 1) == 1


def test_the_late_result_of_an_abandoned_attempt() -> None:
    """Invariant "one attempt is one session": late results of an abandoned attempt act on a dead session; the next one
    is undisturbed.
    """
    release = threading.Event()
    answers = iter(["late", "good"])
    called = threading.Event()

    def handler(*_: Any) -> Any:
        answer = next(answers)
        if answer == "late":
            called.set()
            release.wait(GUARD)
        return {"ws_url": answer}

    client = memory_client(custom_connect_handler=handler, connect_timeout=None)
    abandoned = InThread(client.connect)
    assert called.wait(GUARD)
    (late,) = [t for t in threading.enumerate() if "-connect-" in t.name]
    client.disconnect()
    abandoned.error()
    client.connect()
    release.set()
    until(lambda: "-connect-" not in late.name)  # it waits for other work
    assert client.state is TransportState.READY
    assert transport_of(client).auth_bundle == {"ws_url": "good"}
    assert client.send_client_request("ping", 1) == 1
    client.disconnect()


def test_the_http_answer_does_not_end_the_deadline() -> None:
    """The limit covers the time after the request: a bot that is started and never ready."""
    with EmbeddedBot(ready=False) as bot:
        client = websocket_client(bot, transport=WebSocketTransport(), params={"base_url": bot.base_url})
        timed_out("bot-ready", partial(connect_within, client))


def test_a_limit_that_passes_before_anything_began() -> None:
    """The connect thread does not run in time: the error blames no phase, and the states are an attempt's usual
    ones.
    """
    run = threading.Event()

    def late(go_on: Callable[[], object], _: object) -> None:
        assert run.wait(GUARD)
        go_on()

    client = memory_client(connect_timeout=0.05)
    states: list[str] = []
    client.on("transport_state_changed", lambda state: states.append(str(state)))
    timed = pytest.raises(ConnectionTimeoutError, match="waiting until its thread runs")
    with at("the connect thread runs", late), timed as caught:
        client.connect()
    run.set()
    until(lambda: own_threads() == [])
    assert caught.value.phase == "begin"
    assert states == ["initializing", "error"]
    assert client.state is TransportState.ERROR


def test_a_late_thread_leaves_the_next_session_its_events() -> None:
    """The late thread of an abandoned attempt leaves the next session its events of audio."""
    run, begun, ended = threading.Event(), threading.Event(), threading.Event()

    def late(go_on: Callable[[], object], _: object) -> None:
        begun.set()
        assert run.wait(GUARD)
        go_on()
        ended.set()

    transport = MemoryTransport(audio=True)
    client = RTVIClient(transport=transport, mic=False, speaker=BytesSink(), connect_timeout=GUARD)
    with at("the connect thread runs", late):
        connecting = InThread(client.connect)
        assert begun.wait(GUARD)
    client.disconnect()
    connecting.error()
    client.connect()
    run.set()
    assert ended.wait(GUARD)
    with client.events("track_started", timeout=GUARD) as started:
        transport.receive_audio(bytes(320), 16_000)
        next(started)
    client.disconnect()


def test_no_limit_is_told_of(limits: Callable[..., None], caplog: pytest.LogCaptureFixture) -> None:
    """Without a limit a warning names the phase, again and again, until the end."""
    limits(reminder=0.02)
    client = memory_client(silent_bot, connect_timeout=None)
    connecting = InThread(client.connect)
    until(lambda: caplog.text.count("waiting for the bot to be ready") >= 3)
    client.disconnect()
    connecting.error()
    assert {r.levelno for r in caplog.records} == {logging.WARNING}
    assert "connect_timeout" in caplog.records[-1].getMessage()


def test_a_limit_is_not_told_of(limits: Callable[..., None], caplog: pytest.LogCaptureFixture) -> None:
    """With a limit there is no reminder."""
    limits(reminder=0.02)
    with pytest.raises(ConnectionTimeoutError):
        memory_client(silent_bot, connect_timeout=0.2).connect()
    assert caplog.records == []


@pytest.mark.parametrize("phase", [http_headers, websocket_handshake, bot_ready])
def test_the_traceback_is_of_the_callers_thread(phase: HangingPhase) -> None:
    """The caller's error does not contain errors of the abandoned thread."""
    with phase(connect_timeout=0.3) as hung:
        with pytest.raises(ConnectionTimeoutError) as caught:
            hung.client.connect()
        until(lambda: not own_threads())
    text = "".join(traceback.format_exception(caught.value))
    assert "_work" not in text
    assert text.count("Traceback") == 1
