"""The steps of the end of a session: their order, and what each of them is told."""

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
from rtvi_sync.session.session import EndLimits, Session
from tests.support.bare_session import bare_session, time_to_close
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
            self._owner.note("closed" + " too late" * self._owner.session.closed.is_set())


class Recorded:
    """A session that ends, and whose parts only record, each in one list, what is called on them.

    Args:
        ready: the bot was ready.
        opened: the session was published as connected.
        parts: what parts return or raise, by their names: `disconnect`, `replaces`, `is_followed`.
    """

    def __init__(self, *, ready: bool = True, opened: bool = True, keeps: bool = False, **parts: Any) -> None:
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
                release=lambda: self.note("release threads" + " too late" * self.session.drained.is_set()),
            ),
            media=SimpleNamespace(pause=lambda: self.note("pause"), stop=self._stop),
            replaces=lambda _: self.call("replaces"),
            is_followed=lambda _: self.call("is_followed"),
            keep_devices=(lambda: self.note("keep devices")) if keeps else None,
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

    def _stop(self, *stop_limits: float) -> list[threading.Thread]:
        self.stop_limits = stop_limits[0], stop_limits[1]
        return self._noted("stop")

    def _finish(self, _: int, info: CloseInfo, unsent: DisconnectedError | None, **__: Any) -> Latch:
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
    steps = ["state disconnecting", "pause", "disconnect", "stop", "replaces"]
    assert ended.record == [*BEGUN, *steps, *TOLD]
    assert ended.session.connect_done.is_set()
    assert ended.session.closed.is_set()


def test_the_steps_after_an_attempt_have_their_order() -> None:
    """An attempt that fails is aborted first, and closes its devices unless another attempt is to have them."""
    steps = ["abort", "is_followed"]
    assert Recorded(ready=False, opened=False).end().record == [*BEGUN, *steps, "pause", "disconnect", "stop", *TOLD]
    kept = Recorded(ready=False, opened=False, keeps=True, is_followed=True).end()
    assert kept.record == [*BEGUN, *steps, "disconnect", "keep devices", *TOLD]
    opened = Recorded(ready=False, keeps=True, is_followed=True).end()
    assert "keep devices" not in opened.record, "devices that have played are the session's own"


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
    session = Recorded(replaces=True)
    session.session.bot_dismissed = dismissed
    session.end(initiator)
    assert session.info == CloseInfo(initiator=cast(Any, initiator), reconnecting=replaced)
    assert (session.session.is_replaced, "replaces" in session.record) == (replaced, replaced)


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
    assert exiting.session.drained.is_set()
    assert "replaces" not in exiting.record


def test_the_steps_share_the_promise() -> None:
    """Transport, media, handlers and the result end in this order, within the 5 s that `disconnect()` promises."""
    assert EndLimits.TEARDOWN == 5.0
    assert EndLimits.TRANSPORT_SHARE < EndLimits.MEDIA_SHARE < EndLimits.OWN_SHARE < 1.0
    assert 2 * EndLimits.SETTLE <= EndLimits.TEARDOWN * (1.0 - EndLimits.TRANSPORT_SHARE)
    assert EndLimits.FUNCTIONS < EndLimits.TEARDOWN
    assert EndLimits.SINK_SHARE < EndLimits.MEDIA_SHARE
    assert EndLimits.FLUSH < EndLimits.TEARDOWN * EndLimits.MEDIA_SHARE


@pytest.mark.parametrize(("remaining", "sending"), [(5.0, 3.6), (4.0, 3.6), (1.0, 0.9), (0.0, 0.0)])
def test_a_transport_sends_for_a_part_of_its_time(remaining: float, sending: float) -> None:
    """The rest is for closing; a transport that has more time than its share does not use it."""
    assert time_to_close(Recorded().session, remaining) == pytest.approx(sending, abs=0.1)
