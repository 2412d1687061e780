"""Many sessions at once in this process: what each does, and how long it takes."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import attrs

from rtvi_sync.concurrency.deadline import Deadline, join_thread
from rtvi_sync.concurrency.latch import Notifier
from rtvi_sync.concurrency.lifecycle import NoThreadError, log_stack_of, start_thread
from rtvi_sync.protocol.validation import COUNT, COUNT_OR_ZERO, FUNCTION, SECONDS, Rule
from rtvi_sync.testing.load.measured import MeasuredClient, Measurement
from rtvi_sync.testing.load.report import Outcome, Report, Row, error_text

logger: logging.Logger = logging.getLogger(__name__)

# What a scenario whose client was closed may still take to end, in seconds; `close()` alone may take 5.
_LEAVE_TIMEOUT: Final = 8.0

_CLIENT: Final = Rule(
    "a URL (a str) or a function", lambda client: isinstance(client, str) or FUNCTION.has_type(client)
)
_RATE: Final = Rule("a positive number or math.inf", SECONDS.has_type, lambda rate: rate > 0)

Scenario: TypeAlias = Callable[[MeasuredClient], object]


def run_many(
    scenario: Scenario,
    n: int,
    client: str | Callable[[], MeasuredClient],
    *,
    concurrency: int = 500,
    spawn_rate: float = 50.0,
    session_timeout: float | None = None,
    connect: Callable[[MeasuredClient], object] = MeasuredClient.connect,
    on_row: Callable[[Row], object] | None = None,
) -> Report:
    """Hold `n` sessions with a bot, each as `scenario(client)` says, and tell how long everything took.

        def ask(client):
            client.send_text("What time is it?")
            client.wait_for_answer(timeout=10)

        report = run_many(ask, 100, "ws://localhost:7860/ws-client")
        report.show()
        assert not report.failed

    Each session has a client of its own, which is connected before `scenario` is called and closed when that has
    returned or raised. Every scenario runs on a thread of its own, because its calls block; what the sessions need
    besides they share.

    Args:
        scenario: called with the connected client. It may do what it likes, reconnect too. What it raises fails its
            session, and no other.
        n: how many sessions.
        client: what makes the client of a session, `lambda: MeasuredClient(transport=WebSocketTransport(url), ...)`,
            called on the thread of the session; transports, sources and sinks belong to one client each. Or the URL
            that `MeasuredClient.for_url()` takes: for scenarios without sound.
        concurrency: how many sessions there may be at a time; the others wait until one has ended.
        spawn_rate: how many begin in a second, also of those that waited; `math.inf`: as fast as possible.
        session_timeout: seconds after which a session is closed, which fails it. None: scenarios end by themselves.
        connect: connects a client, if that is not by `connect()`: for a Pipecat runner
            ``lambda client: client.start_bot_and_connect("http://localhost:7860/start")``.
        on_row: called with each row as its session ends, on the thread of the session; with that of a session that has
            got no thread, or does not end when it is closed, on the calling one. What it raises is logged.

    Raises:
        KeyboardInterrupt: Ctrl-C. The sessions are ended, which a second Ctrl-C does not wait for. It has the report so
            far as its argument, which Python shows if nobody catches it.
        ValueError: a number makes no sense.
    """
    FUNCTION.check(scenario=scenario, connect=connect)
    FUNCTION.or_none.check(on_row=on_row)
    COUNT_OR_ZERO.check(n=n)
    COUNT.check(concurrency=concurrency)
    _CLIENT.check(client=client)
    _RATE.check(spawn_rate=spawn_rate)
    SECONDS.or_none.check(session_timeout=session_timeout)
    make = partial(MeasuredClient.for_url, client) if isinstance(client, str) else client
    run = _LoadRun(scenario, make, connect, on_row, session_timeout)
    due = run.began
    try:
        for number in range(n):
            run.wait_until(lambda: run.active_count < concurrency)
            due = max(due, time.monotonic())  # what is late delays those that follow, and does not make them hurry
            run.wait_until(lambda: False, until=due)
            run.start(number)
            due += 1 / spawn_rate
        run.wait_until(lambda: not run.active_count)
        return run.report()
    except BaseException as error:
        run.interrupt(type(error).__name__)
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(run.report()) from None
        raise


@attrs.define(eq=False)
class _LoadSession:
    """One of the sessions. Its fields are each written by one thread, the client by the session's own.

    Attributes:
        began: monotonic seconds.
        thread: None until it is known that it has begun.
        interrupted: why it is being ended from outside, if it is.
        closed_at: when that began.
        closer: the thread that does it.
    """

    number: int
    began: float
    measurements: list[Measurement] = attrs.field(factory=list)
    client: MeasuredClient | None = None
    thread: threading.Thread | None = None
    interrupted: tuple[Outcome, str] | None = None
    closed_at: float = math.inf
    closer: threading.Thread | None = None
    connected: bool = False


class _LoadRun:
    """The sessions of one call. The calling thread starts them, and ends those that take too long."""

    def __init__(
        self,
        scenario: Scenario,
        make: Callable[[], MeasuredClient],
        connect: Callable[[MeasuredClient], object],
        on_row: Callable[[Row], object] | None,
        timeout: float | None,
    ) -> None:
        self._scenario = scenario
        self._make = make
        self._connect = connect
        self._on_row = on_row
        self._timeout = math.inf if timeout is None else timeout
        self.began = time.monotonic()
        # By number, in the order in which they began. Sessions take themselves out; each use is one step.
        self._running: dict[int, _LoadSession] = {}
        self._rows: dict[int, Row] = {}
        self._ended: deque[_LoadSession] = deque()  # whose threads are about to end
        self._notifier = Notifier()  # rung when a session has ended

    @property
    def active_count(self) -> int:
        """How many sessions there are now."""
        return len(self._running)

    def start(self, number: int) -> None:
        """Begin a session. One that finds no thread has failed."""
        session = _LoadSession(number, time.monotonic())
        self._running[number] = session
        try:
            session.thread = start_thread("scenario", self._run_session, session)
        except NoThreadError as error:
            self._finish(session, "not connected", error_text(error), traceback.format_exc())

    def wait_until(self, ready: Callable[[], bool], until: float = math.inf) -> None:
        """Wait until `ready()` or until a moment; meanwhile end the sessions whose time is up."""
        while not ready() and time.monotonic() < until:
            moment = min(until, self._next_limit())
            self._notifier.wait_for(
                ready, Deadline(None if moment == math.inf else max(0.0, moment - time.monotonic()))
            )
            self._end_overdue()
        while self._ended:
            session = self._ended.popleft()
            for thread in (session.thread, session.closer):
                if thread is not None:
                    join_thread(thread, Deadline(_LEAVE_TIMEOUT))

    def interrupt(self, error: str) -> None:
        """End all sessions, and wait for their threads a while; Ctrl-C ends the wait.

        Args:
            error: what struck.
        """
        try:
            for session in list(self._running.values()):
                self._end(session, "interrupted", error)
                if session.thread is None:  # it was about to begin; if it does, it ends at once
                    self._abandon(session)
            self.wait_until(lambda: not self._running)
        except KeyboardInterrupt:
            for session in list(self._running.values()):
                self._end(session, "interrupted", error)  # some may not have been
                self._abandon(session)

    def report(self) -> Report:
        """Of the sessions that have ended."""
        rows = self._rows.copy()
        return Report(rows=tuple(rows[number] for number in sorted(rows)), seconds=time.monotonic() - self.began)

    # -- on the calling thread ----------------------------------------------------------------------------------------

    def _next_limit(self) -> float:
        return min(map(self._limit_of, list(self._running.values())), default=math.inf)

    def _limit_of(self, session: _LoadSession) -> float:
        return session.closed_at + _LEAVE_TIMEOUT if session.interrupted else session.began + self._timeout

    def _end_overdue(self) -> None:
        now = time.monotonic()
        for session in list(self._running.values()):
            if now < self._limit_of(session):
                continue
            if session.interrupted is None:
                self._end(session, "failed", f"TimeoutError: the session was not over within {self._timeout:g} s")
            else:
                # Its scenario is at something that no client of ours ends.
                log_stack_of([session.thread] if session.thread is not None else [], "run_many()")
                self._abandon(session)

    def _end(self, session: _LoadSession, outcome: Outcome, error: str) -> None:
        if session.interrupted is None:
            session.interrupted = outcome, error
            session.closed_at = time.monotonic()
            if session.client is None:
                return
            try:
                session.closer = start_thread("scenario-end", session.client.close)
            except NoThreadError:
                with contextlib.suppress(NoThreadError):  # closing may need one, too; then the session is given up
                    session.client.close()

    def _abandon(self, session: _LoadSession) -> None:
        assert session.interrupted is not None, "it is given up after it was ended"
        session.thread = None  # nobody waits for it
        self._finish(session, *session.interrupted)

    # -- on the thread of a session -----------------------------------------------------------------------------------

    def _run_session(self, session: _LoadSession) -> None:
        outcome: Outcome = "passed"
        error = trace = None
        try:
            self._run_scenario(session)
        except BaseException as failure:  # noqa: BLE001 - an exit in a scenario ends that one only
            outcome = "failed" if session.connected else "not connected"
            error, trace = error_text(failure), traceback.format_exc()
        if session.interrupted is not None:
            outcome, error = session.interrupted
        self._finish(session, outcome, error, trace)

    def _run_scenario(self, session: _LoadSession) -> None:
        client = self._make()
        if not isinstance(client, MeasuredClient):
            raise TypeError(f"run_many() needs what makes a MeasuredClient, not {type(client).__name__}")
        client.on_measurement = session.measurements.append
        session.client = client
        try:
            if session.interrupted is None:  # else it came before there was a client to close
                self._connect(client)
                session.connected = True
                self._scenario(client)
        finally:
            client.close()

    def _finish(self, session: _LoadSession, outcome: Outcome, error: str | None, trace: str | None = None) -> None:
        row = Row(
            number=session.number,
            outcome=outcome,
            error=error,
            traceback=trace,
            began=session.began - self.began,
            seconds=time.monotonic() - session.began,
            measurements=tuple(session.measurements),
        )
        try:
            if self._rows.setdefault(session.number, row) is row and self._on_row is not None:
                self._on_row(row)
        except Exception:
            logger.exception("on_row() of run_many() failed")
        finally:
            # The second time, if it was given up, or is while its `on_row()` takes long: then that is not waited for.
            self._ended.append(session)
            self._running.pop(session.number, None)
            self._notifier.notify_all()
