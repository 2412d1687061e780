"""A client's life: its states, and who holds the client."""

from __future__ import annotations

import contextlib
import gc
import itertools
import threading
import weakref
from pathlib import Path

import pytest

from rtvi_sync import (
    BotAlreadyStartedError,
    CloseInfo,
    DisconnectedError,
    ReconnectFailedData,
    ReconnectingData,
    ReconnectPolicy,
    RTVIClient,
    RTVIError,
    TransportState,
)
from rtvi_sync.client.life import FOLLOWING, State
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.protocol import states
from rtvi_sync.session.session import Phase
from tests.support.clients import manager_of, memory_client, transport_of
from tests.support.probes import holder_of, is_retrying, refuse_further_sessions, waiting_calls
from tests.support.slowness import GUARD
from tests.support.threads import InThread, thread_names
from tests.support.waiting import until

pytestmark = pytest.mark.inside

ROOT = Path(__file__).parents[2]

LOSS = CloseInfo(initiator="network")
SLOW = ReconnectPolicy(initial_delay=1000.0, max_delay=1000.0)

_T = TransportState
#: The state that the application sees in each state of the life.
SEEN = {
    State.IDLE: {_T.DISCONNECTED, _T.ERROR, _T.AUTHENTICATED},
    State.STARTING: {_T.AUTHENTICATING},
    State.CONNECTING: {
        *(_T.DISCONNECTED, _T.ERROR, _T.INITIALIZING, _T.INITIALIZED, _T.AUTHENTICATING, _T.AUTHENTICATED),
        *(_T.CONNECTING, _T.CONNECTED),
    },
    State.READY: {_T.READY},
    State.ENDING: {*_T},
    State.WAITING: {_T.DISCONNECTED},
    State.CLOSED: {_T.DISCONNECTED, _T.ERROR},
}


def test_every_state_is_reached_and_left() -> None:
    """Each state but the last can be left, and each but the first follows another one."""
    assert {*FOLLOWING} == {*State}
    assert [state for state in State if not FOLLOWING[state]] == [State.CLOSED]
    assert {after for following in FOLLOWING.values() for after in following} == {*State}
    assert all(state not in following for state, following in FOLLOWING.items())


def test_a_call_starts_from_rest_only() -> None:
    """A call that starts something may follow only while the client is at rest or a reconnect waits."""
    for started in (State.STARTING, State.CONNECTING):
        before = {state for state, following in FOLLOWING.items() if started in following}
        assert before - {State.ENDING} == {State.IDLE, State.WAITING}


def test_the_page_has_the_table() -> None:
    """docs/background/threads.md shows the table of the code, row by row."""
    page = (ROOT / "docs/background/threads.md").read_text("utf-8")
    rows = [f"| {state.value} | {after.value} | {by} |" for state in State for after, by in FOLLOWING[state].items()]
    assert "| from | to | by |\n|---|---|---|\n" + "\n".join(rows) + "\n\n" in page


class Observed:
    """Records a client's states at each event that may change them."""

    def __init__(self, client: RTVIClient) -> None:
        self.life = manager_of(client)
        self.states = [self.life.state]
        client.on("transport_state_changed", self.look)
        for event in ("connected", "bot_ready", "bot_disconnected", "disconnected", "reconnecting"):
            client.on(event, self.look)

    def look(self, *_: object) -> None:
        self.states.append(self.life.state)

    def now(self) -> State:
        self.look()
        return self.states[-1]

    @property
    def changes(self) -> list[State]:
        return [state for state, _ in itertools.groupby(self.states)]

    def check(self) -> None:
        """Check that each change is one of the table, or two of them at once."""
        for before, after in itertools.pairwise(self.changes):
            between = {state for state in FOLLOWING[before] if after in FOLLOWING[state]}
            assert after in FOLLOWING[before] or between, self.changes


def test_the_states_of_a_session() -> None:
    """A session that the application ends goes through the states of the table."""
    client = memory_client()
    observed = Observed(client)
    for _ in range(3):
        client.connect()
        assert observed.now() is State.READY
        client.disconnect()
        assert observed.now() is State.IDLE
    observed.check()
    client.close()
    assert observed.now() is State.CLOSED


def test_the_states_of_a_loss() -> None:
    """A client waits between the loss of its session and the next attempt."""
    client = memory_client(reconnect=SLOW)
    observed = Observed(client)
    client.connect()
    transport_of(client).end(LOSS)
    until(lambda: is_retrying(client))
    assert observed.now() is State.WAITING
    client.connect()
    assert observed.now() is State.READY
    client.close()
    observed.check()
    assert observed.now() is State.CLOSED


def test_what_the_application_sees_follows_the_table() -> None:
    """The states of the application are a finer view of the same life."""
    for before, following in states.FOLLOWING.items():
        for after in following:
            lives = [(one, other) for one in State for other in State if before in SEEN[one] and after in SEEN[other]]
            assert any(one is other or other in FOLLOWING[one] for one, other in lives), (before, after)


# -- the holder -------------------------------------------------------------------------------------------------------


def test_an_abandoned_call_gets_no_client() -> None:
    """A call that was cancelled between its start and its session makes none."""
    client = memory_client()
    life = manager_of(client)
    call = life.connecting()
    call.stop()
    with pytest.raises(DisconnectedError):
        life.hold(call, Deadline(GUARD))
    assert life.state is State.IDLE


def test_a_session_is_named_as_what_is_in_the_way() -> None:
    """A call that may not start is told whether a session or another call is in its way."""
    with memory_client() as client:
        life = manager_of(client)
        with pytest.raises(BotAlreadyStartedError, match=r"^A session is active \(state ready\)"):
            life.hold(life.connecting(), Deadline(GUARD))
    one, other = life.connecting(), life.connecting()
    life.hold(one, Deadline(GUARD))
    with pytest.raises(BotAlreadyStartedError, match=r"^connect\(\) is under way"):
        life.hold(other, Deadline(GUARD))
    life.release(other)
    assert holder_of(client) is one
    life.release(one)
    assert holder_of(client) is None


def test_disconnect_ends_what_follows_since_it_was_called() -> None:
    """A session that is lost as disconnect() starts is not replaced."""
    with contextlib.closing(memory_client(reconnect=SLOW)) as client:
        client.connect()
        ending = manager_of(client).ending()
        transport_of(client).end(LOSS)
        until(lambda: is_retrying(client))
        ending.run()
        assert holder_of(client) is None
        assert not any("reconnect" in name for name in thread_names())


def test_replaced_sessions_are_forgotten() -> None:
    """A client that reconnects for months keeps none of its old sessions but the first and the last ones."""
    policy = ReconnectPolicy(initial_delay=0.001, max_delay=0.001, stable_after=0.001)
    sessions: list[weakref.ref[object]] = []
    with contextlib.closing(memory_client(reconnect=policy)) as client:

        def lose(times: int) -> None:
            sessions.append(weakref.ref(manager_of(client).last_session))
            transport_of(client).end(LOSS)
            until(lambda: client.stats().reconnects == times and client.connected)

        client.connect()
        for times in range(1, 6):
            lose(times)
        until(lambda: not any("reconnect" in name for name in thread_names()))
        gc.collect()
        kept = [number for number, session in enumerate(sessions, 1) if session() is not None]
    assert not {2, 3} & {*kept}, kept


def test_a_stopped_reconnect_reports_nothing() -> None:
    """A reconnect that the application has stopped announces no attempt, and no failure."""
    with contextlib.closing(memory_client(reconnect=SLOW)) as client:
        client.connect()
        transport_of(client).end(LOSS)
        until(lambda: is_retrying(client))
        life, reconnect = manager_of(client), holder_of(client)
        data = ReconnectingData(attempt=2, max_attempts=3, delay=0.0, error=RTVIError("lost"))
        assert life.announce(reconnect, data)
        client.disconnect()
        assert not life.announce(reconnect, data)
        assert not life.report_failure(reconnect, ReconnectFailedData(attempts=1, error=RTVIError("lost")))
        assert life.failed is None


def test_a_closed_client_is_not_held() -> None:
    """close() on another thread may run after a call has started."""
    client = memory_client()
    life = manager_of(client)
    call = life.connecting()
    client.close()
    with pytest.raises(RTVIError, match="closed for good"):
        life.hold(call, Deadline(GUARD))
    assert life.state is State.CLOSED


def test_an_attempt_that_begins_after_close_reports_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A call that waits is told of `close()`, and not that a client which is closed could not reconnect."""
    client = memory_client(reconnect=ReconnectPolicy(initial_delay=0.1, max_delay=0.1))
    client.on("reconnecting", lambda _: refuse_further_sessions(client))  # as `close()` does first
    client.connect()
    waiting = InThread(client.wait)
    until(lambda: waiting_calls(client))
    transport_of(client).end(LOSS)
    until(lambda: holder_of(client) is not None)
    until(lambda: holder_of(client) is None)
    client.close()
    assert waiting.get() == CloseInfo(initiator="client")
    assert "could not be replaced" not in caplog.text


def test_only_the_holder_is_followed() -> None:
    """The late end of an old session decides nothing about a new one."""
    client = memory_client(reconnect=SLOW)
    with client:
        life = manager_of(client)
        old = life.connecting()
        assert not life.settle(life.last_session, old, wanted=True)
        assert client.send_client_request("ping", 1) == 1
        assert life.state is State.READY


def test_nothing_follows_close() -> None:
    """A session that is lost while the client is closed is not replaced."""
    asked, closed = threading.Event(), threading.Event()

    def rule(_: BaseException) -> bool:
        asked.set()
        return closed.wait(GUARD)

    client = memory_client(reconnect=ReconnectPolicy(retry_on=rule))
    client.connect()
    life = manager_of(client)
    session = life.last_session
    transport_of(client).end(LOSS)
    assert asked.wait(GUARD)
    refuse_further_sessions(client)  # as `close()` does first
    closed.set()
    assert session.wait_for(Phase.DRAINED, Deadline(GUARD))
    assert not session.follows
    client.close()


def test_a_failed_call_takes_the_client_from_no_other() -> None:
    """A call that is refused gives nothing back that another call holds."""
    with memory_client() as client:
        life = manager_of(client)
        life.release(life.connecting())
        assert holder_of(client) is not None
        assert life.watch.operation() is holder_of(client)
