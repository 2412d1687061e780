"""The steps of the end of a session, with their order and arguments."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rtvi_sync import (
    CloseInfo,
    DisconnectedError,
    TransportState,
)
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.latch import Latch
from rtvi_sync.session.session import End, EndLimits, Phase, Session
from tests.support.bare_session import bare_session, enter, fail_calls, time_to_close
from tests.support.clients import (
    memory_client,
    session_of,
)
from tests.support.probes import in_handler
from tests.support.slowness import GUARD
from tests.support.waiting import until

pytestmark = pytest.mark.inside


def test_a_thread_that_begins_is_in_no_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that has no identity yet is not taken for the one that a stuck handler is on."""
    with memory_client() as client:
        publisher = session_of(client).publisher
        until(lambda: not in_handler(client))
        monkeypatch.setattr(threading, "enumerate", lambda: [threading.Thread()])
        assert publisher.busy_threads() == []
        monkeypatch.undo()


class FakeTransport:
    """Records that it is closed, and that it is free for another session."""

    name = "fake"
    ends_in_time = False

    def __init__(self, owner: Recorded) -> None:
        self._owner = owner

    def disconnect(self) -> None:
        self._owner.call("disconnect")

    @property
    def state(self) -> Any:
        return self._owner.publisher.state

    @state.setter
    def state(self, state: TransportState) -> None:
        if state is TransportState.DISCONNECTED:
            self._owner.note("closed" + " too late" * self._owner.session.is_closed)


class Recorded:
    """A session that ends, and whose parts only record their calls, each in one list.

    Args:
        ready: the bot was ready.
        opened: the session was published as connected.
        several: other attempts of the same call may follow.
        parts: the results or errors of parts, by their names: `disconnect`, `after`.
    """

    def __init__(self, *, ready: bool = True, opened: bool = True, several: bool = False, **parts: Any) -> None:
        self.record: list[str] = []
        self._parts = parts
        self.info: CloseInfo | None = None
        self.unsent: DisconnectedError | None = None
        self.stop_limits: tuple[float, float] = 0.0, 0.0
        self.publisher = SimpleNamespace(
            was_ready=ready,
            was_opened=opened,
            queue=SimpleNamespace(manual=False, is_current=False, run_queued=lambda *_, **__: self.note("deliver")),
            overtaken=False,
            state=TransportState.READY,
            end=lambda: self.note("gate events"),
            move=lambda state: self.note(f"state {state.value}"),
            finish=self._finish,
            silence=lambda: self.note("silence"),
            busy_threads=list,
        )
        self.session: Session = bare_session(
            Session,
            FakeTransport(self),
            self.publisher,
            runtime=SimpleNamespace(
                io=SimpleNamespace(is_current=False, on_end=set()),
                workers=None,
                release=lambda: self.note("release threads" + " too late" * (self.session.phase is Phase.DRAINED)),
            ),
            media=SimpleNamespace(pause=lambda: self.note("pause"), stop=self._stop),
            owner=self,
            is_one_of_several=several,
        )
        changed: Any = self.session
        changed.engine = SimpleNamespace(pending=SimpleNamespace(fail_all=lambda _: self.note("fail calls")))
        changed.functions = SimpleNamespace(is_current=False, join=lambda _: self._noted("await functions"))
        changed.abort = SimpleNamespace(abort=lambda _: self.note("abort"))

    def note(self, line: str) -> None:
        self.record.append(line)

    def _noted(self, line: str) -> list[threading.Thread]:
        """Note a step that leaves no thread behind."""
        self.note(line)
        return []

    def call(self, name: str) -> Any:
        self.note(name)
        outcome = self._parts.get(name, False)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def after(self, session: Session) -> bool:
        assert session is self.session
        return bool(self.call("after")) and session.is_lost

    def drained(self, session: Session) -> None:
        self.note("drained" + " too early" * (session.phase is not Phase.DRAINED))

    def _stop(self, *stop_limits: float) -> list[threading.Thread]:
        self.stop_limits = stop_limits[0], stop_limits[1]
        return self._noted("stop")

    def _finish(self, _: int, info: CloseInfo, unsent: DisconnectedError | None, *__: Any, **___: Any) -> Latch:
        self.note("tell")
        self.publisher.state = TransportState.DISCONNECTED
        self.info, self.unsent = info, unsent
        told = Latch()
        told.set()
        return told

    def end(self, initiator: Any = "network") -> Recorded:
        """End the session, and wait until it has ended."""
        self.session.end_and_wait(CloseInfo(initiator=initiator))
        return self


BEGUN = ["fail calls", "gate events"]
TOLD = ["tell", "closed", "await functions", "release threads"]


def test_the_steps_of_an_end_have_their_order() -> None:
    """Calls fail first; devices pause, the transport closes, devices stop; the end is told, and then all is free."""
    ended = Recorded().end()
    steps = ["state disconnecting", "pause", "disconnect", "stop", "after"]
    assert ended.record == [*BEGUN, *steps, *TOLD]
    assert ended.session.phase is Phase.DRAINED
    assert ended.session.wait_settled(Deadline(0.0), lambda: False)


def test_what_follows_starts_last() -> None:
    """The operation that replaces a lost session starts it when nothing of the lost one is left."""
    assert Recorded(after=True).end().record[-2:] == ["release threads", "drained"]
    assert "drained" not in Recorded(ready=False, after=True).end().record, "a failed attempt is no lost session"


def test_the_steps_after_an_attempt_have_their_order() -> None:
    """An attempt that fails is aborted first, and closes its devices unless another attempt is to have them."""
    steps = ["abort", "after"]
    assert Recorded(ready=False, opened=False).end().record == [*BEGUN, *steps, "pause", "disconnect", "stop", *TOLD]
    kept = Recorded(ready=False, opened=False, several=True, after=True).end()
    assert kept.record == [*BEGUN, *steps, "disconnect", *TOLD]
    opened = Recorded(ready=False, several=True, after=True).end()
    assert "stop" in opened.record, "devices that have played are the session's own"
    alone = Recorded(ready=False, opened=False, after=True).end()
    assert "stop" in alone.record, "an attempt to replace a session opens its devices itself"


def test_a_session_ends_once() -> None:
    """The first cause counts, however often the session is ended afterwards, also at exit."""
    ended = Recorded().end("server")
    ended.end("client")
    ended.session.at_exit(Deadline(GUARD))
    assert ended.session.close_info.initiator == "server"
    assert ended.info == CloseInfo(initiator="server")
    steps = [line for line in ended.record if line not in BEGUN]
    assert len(steps) == len({*steps})


@pytest.mark.parametrize(
    ("initiator", "dismissed", "replaced"),
    [("network", False, True), ("server", False, True), ("client", False, False), ("network", True, False)],
)
def test_which_sessions_are_replaced(initiator: str, dismissed: bool, replaced: bool) -> None:
    """A session is lost unless the application has ended it, or dismissed its bot; `disconnected` says so."""
    session = Recorded(after=True)
    session.session.nothing_follows = dismissed
    session.end(initiator)
    assert session.info == CloseInfo(initiator=cast(Any, initiator), reconnecting=replaced)
    assert (session.session.follows, session.record[-1] == "drained") == (replaced, replaced)


def test_messages_that_could_not_be_sent_are_told() -> None:
    """The transport's error is a part of the end, as a copy, and no other error of it is."""
    lost = DisconnectedError("3 messages were lost")
    told = Recorded(disconnect=lost).end().unsent
    assert (str(told), told is lost) == ("3 messages were lost", False)
    assert Recorded(disconnect=OSError("broken")).end().unsent is None


def test_who_must_not_wait_for_the_last_event() -> None:
    """A handler, and a function that the bot called, wait for no end that waits for them."""
    session = Recorded()
    assert not session.session.wait_drained(Deadline(0.0))
    session.publisher.queue.is_current = True
    assert session.session.wait_drained(Deadline(0.0))


def test_a_slow_sink_has_its_time_unless_the_process_exits() -> None:
    """Sinks have longer than devices, but not at exit, where all sessions share one limit."""
    devices, sinks = Recorded().end().stop_limits
    assert devices < sinks
    exiting = Recorded()
    exiting.session.at_exit(Deadline(GUARD))
    devices, sinks = exiting.stop_limits
    assert devices == sinks
    assert exiting.record[-1] == "release threads"
    assert exiting.session.phase is Phase.DRAINED


def test_nothing_follows_at_exit() -> None:
    """The operation is told of the end, and finds that it is no loss."""
    exiting = Recorded(after=True)
    fail_calls(exiting.session, CloseInfo(initiator="network"))
    exiting.session.at_exit(Deadline(GUARD))
    assert "after" in exiting.record
    assert not exiting.session.follows


def test_the_steps_share_the_promise() -> None:
    """Transport, media, handlers and the result end in this order, within the 5 s that `disconnect()` promises."""
    assert EndLimits.TEARDOWN == 5.0
    shares = [step.share for step in End.STEPS if step.share is not None]
    assert shares == sorted(shares)
    assert shares[0] == EndLimits.TRANSPORT_SHARE
    assert shares[-1] < 1.0
    assert 2 * EndLimits.SETTLE <= EndLimits.TEARDOWN * (1.0 - EndLimits.TRANSPORT_SHARE)
    assert EndLimits.FUNCTIONS < EndLimits.TEARDOWN
    assert shares[1] > EndLimits.SINK_SHARE
    assert EndLimits.TEARDOWN * shares[1] > EndLimits.FLUSH


def test_a_phase_only_moves_forward() -> None:
    """Late results of an attempt reach a session that has ended, and have no effect."""
    session = Recorded().end().session
    assert [enter(session, phase) for phase in Phase] == [False] * len(Phase)
    assert session.phase is Phase.DRAINED


@pytest.mark.parametrize(("remaining", "sending"), [(5.0, 3.6), (4.0, 3.6), (1.0, 0.9), (0.0, 0.0)])
def test_a_transport_sends_for_a_part_of_its_time(remaining: float, sending: float) -> None:
    """The rest is for closing; a transport that has more time than its share does not use it."""
    assert time_to_close(Recorded().session, remaining) == pytest.approx(sending, abs=0.1)
