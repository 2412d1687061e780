"""Load tests in this process: many sessions at once, each of which runs and measures a scenario."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import traceback
from collections import deque
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from typing import Final, TypeAlias

import attrs

from rtvi_sync.client.candidates import candidates_for
from rtvi_sync.client.recorder import address_of
from rtvi_sync.concurrency.deadline import Deadline, join_thread
from rtvi_sync.concurrency.latch import Notifier
from rtvi_sync.concurrency.lifecycle import NoThreadError, log_stack_of, start_thread
from rtvi_sync.concurrency.logs import package_logger
from rtvi_sync.net.urls import printable
from rtvi_sync.protocol.validation import BOOL, COUNT, COUNT_OR_ZERO, FUNCTION, SECONDS, Rule, function_taking
from rtvi_sync.testing.load.measured import MeasuredClient, Measurement, import_for_connect
from rtvi_sync.testing.load.progress import LoadProgress
from rtvi_sync.testing.load.report import Outcome, Report, Row, RowAudio, error_text, kind_of

from ...concurrency.clock import monotonic, wall_time

logger: logging.Logger = package_logger(__name__)

# Seconds in which a scenario must end after its client was closed. `close()` alone may take 5 s.
_END_TIMEOUT: Final = 8.0

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
    progress: bool | None = None,
) -> Report:
    """Run `scenario(client)` in `n` sessions with a bot, and return the measurements of all sessions.

        def ask(client):
            client.send_text("What time is it?")
            client.wait_for_answer(timeout=10)

        report = run_many(ask, 100, "http://localhost:7860")
        report.show()
        assert not report.failed

    Each session has its own client, which is connected before the call of `scenario` and closed after it. Scenarios
    block, so each runs on its own thread; the sessions share all other threads.

    Args:
        scenario: Function of the connected client. It may call any method, and may reconnect. An exception fails only
            its own session.
        n: Number of sessions.
        client: Function that makes a session's client, such as
            `lambda: MeasuredClient(transport=WebSocketTransport(url), ...)`. It runs on the session's thread; a
            transport, source or sink belongs to one client. The other sessions start when its first call has returned,
            so that what it loads delays none of them. Or, for scenarios without audio, the URL for
            `MeasuredClient.for_url()`.
        concurrency: Maximum number of sessions at a time. The others wait until one has ended.
        spawn_rate: Maximum number of sessions that start in a second; `math.inf` starts them as fast as possible.
        session_timeout (seconds): Time after which a session is closed and counts as failed. None: no limit.
        connect: Function that connects a client; `connect()` by default. For a Pipecat runner, pass
            ``lambda client: client.start_bot_and_connect("http://localhost:7860/start")``.
        on_row: Function called with each row as its session ends, on the session's thread. If a session got no thread,
            or doesn't end after it was closed, the calling thread calls it. An exception is logged.
        progress: True to show the progress on stderr: a bar on a terminal with rich, otherwise a line each 5 s. False
            to show nothing. None to show it only on a terminal.

    Raises:
        InvalidTransportParamsError: `client` cannot be the URL of a bot.
        MissingExtraError: The URL needs a transport that is not installed.
        TypeError: An argument has a wrong type, or `client` made something other than a `MeasuredClient`. All sessions
            are ended.
        KeyboardInterrupt: Ctrl-C. All sessions are ended; a second Ctrl-C ends the wait for them. Its argument is the
            report so far, which Python shows if nothing catches the exception.
        ValueError: A number is out of range.
    """
    function_taking("client").check(scenario=scenario, connect=connect)
    function_taking("row").or_none.check(on_row=on_row)
    COUNT_OR_ZERO.check(n=n)
    COUNT.check(concurrency=concurrency)
    _CLIENT.check(client=client)
    if isinstance(client, str):
        candidates_for(client)  # otherwise each session would fail
    else:
        function_taking().check(client=client)
    _RATE.check(spawn_rate=spawn_rate)
    SECONDS.or_none.check(session_timeout=session_timeout)
    BOOL.or_none.check(progress=progress)
    make = partial(MeasuredClient.for_url, client) if isinstance(client, str) else client
    import_for_connect()  # before the clock starts
    run = _LoadRun(scenario, make, connect, on_row, session_timeout, spawn_rate, LoadProgress(n, shown=progress))
    due = run.began
    try:
        for number in range(n):
            run.wait_until(lambda: run.active_count < concurrency)
            due = max(due, monotonic())  # a late session delays later ones, so the rate is never exceeded
            run.wait_until(lambda: False, until=due)
            run.check_clients()
            run.start(number)
            if not number:  # it may load more; sessions that wait for that would connect in a burst
                run.wait_until(run.has_client)
            due += 1 / spawn_rate
        run.wait_until(lambda: not run.active_count)
        run.check_clients()
        return run.report()
    except BaseException as error:
        run.interrupt(type(error).__name__)
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(run.report()) from None
        raise
    finally:
        run.progress.close()


@attrs.define(eq=False)
class _LoadSession:
    """One session. Each field is written by one thread; the session's own thread writes the client.

    Attributes:
        began: Start in monotonic seconds.
        thread: Thread of the session; None until it has started, and after the session was abandoned.
        interrupted: Outcome and error if the calling thread is ending the session, otherwise None.
        closed_at: Start of the closing, in monotonic seconds.
        closer: Thread that closes the client.
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
    """The sessions of one call of `run_many()`. The calling thread starts them, and ends overdue ones."""

    def __init__(
        self,
        scenario: Scenario,
        make: Callable[[], MeasuredClient],
        connect: Callable[[MeasuredClient], object],
        on_row: Callable[[Row], object] | None,
        timeout: float | None,
        rate: float,
        progress: LoadProgress,
    ) -> None:
        self._scenario = scenario
        self._make = make
        self._connect = connect
        self._on_row = on_row
        self._timeout = math.inf if timeout is None else timeout
        #: Shown by the calling thread while it waits.
        self.progress: LoadProgress = progress
        self.began = monotonic()
        self._date = datetime.fromtimestamp(wall_time(), timezone.utc)
        self._rate = rate
        # Details of the bot from the first connected session. Written by the threads of sessions.
        self._url, self._transport = "", ""
        # Sessions by number, in the order of their starts. A session removes itself. Each access is atomic under the
        # GIL.
        self._running: dict[int, _LoadSession] = {}
        self._rows: dict[int, Row] = {}
        self._secrets: set[str] = set()  # of all clients
        self._refusal = ""  # why the caller's function cannot be used, which ends the run
        self._ended: deque[_LoadSession] = deque()  # their threads are about to end
        self._notifier = Notifier()  # notified when a session has ended

    @property
    def active_count(self) -> int:
        """The number of current sessions."""
        return len(self._running)

    def has_client(self) -> bool:
        """Return whether a session has its client, or all sessions have ended."""
        running = [*self._running.values()]
        return not running or any(session.client is not None for session in running)

    def start(self, number: int) -> None:
        """Start a session. If no thread can be started, the session fails."""
        session = _LoadSession(number, monotonic())
        self._running[number] = session
        try:
            session.thread = start_thread("scenario", self._run_session, session)
        except NoThreadError as error:
            self._complete(session, "not connected", error, traceback.format_exc())

    def wait_until(self, ready: Callable[[], bool], until: float = math.inf) -> None:
        """Wait until `ready()` or until a moment, and end overdue sessions while waiting."""
        while not ready() and monotonic() < until:
            moment = min(until, self._next_limit(), self.progress.due)
            self._notifier.wait_for(ready, Deadline(None if moment == math.inf else max(0.0, moment - monotonic())))
            self._end_overdue()
            self.progress.show([row.outcome for row in [*self._rows.values()]], self.active_count)
        while self._ended:
            session = self._ended.popleft()
            for thread in (session.thread, session.closer):
                if thread is not None:
                    join_thread(thread, Deadline(_END_TIMEOUT))

    def check_clients(self) -> None:
        """Raise a TypeError if the caller's function made something other than a `MeasuredClient`."""
        if self._refusal:
            raise TypeError(self._refusal)

    def interrupt(self, error: str) -> None:
        """End all sessions and wait for their threads, up to `_END_TIMEOUT`. Ctrl-C ends the wait.

        Args:
            error: Name of the exception that interrupted the run.
        """
        try:
            for session in list(self._running.values()):
                self._end(session, "interrupted", error)
                if session.thread is None:  # a thread that starts later ends immediately
                    self._abandon(session)
            self.wait_until(lambda: not self._running)
        except KeyboardInterrupt:
            for session in list(self._running.values()):
                self._end(session, "interrupted", error)  # in case the first loop did not reach this one
                self._abandon(session)

    def report(self) -> Report:
        """Return the report of the ended sessions."""
        rows = self._rows.copy()
        return Report(
            rows=tuple(rows[number] for number in sorted(rows)),
            seconds=monotonic() - self.began,
            date=self._date.strftime("%Y-%m-%dT%H:%M:%SZ"),
            url=self._url,
            transport=self._transport,
            rate=None if self._rate == math.inf else self._rate,
            secrets=frozenset(self._secrets.copy()),
        )

    # -- on the calling thread ----------------------------------------------------------------------------------------

    def _next_limit(self) -> float:
        return min(map(self._limit_of, list(self._running.values())), default=math.inf)

    def _limit_of(self, session: _LoadSession) -> float:
        return session.closed_at + _END_TIMEOUT if session.interrupted else session.began + self._timeout

    def _end_overdue(self) -> None:
        now = monotonic()
        for session in list(self._running.values()):
            if now < self._limit_of(session):
                continue
            if session.interrupted is None:
                self._end(session, "failed", f"TimeoutError: the session did not end within {self._timeout:g} s")
            else:
                # The scenario blocks in a call that close() does not interrupt, so its stack is logged.
                log_stack_of([session.thread] if session.thread is not None else [], "run_many()")
                self._abandon(session)

    def _end(self, session: _LoadSession, outcome: Outcome, error: str) -> None:
        if session.interrupted is None:
            session.interrupted = outcome, error
            session.closed_at = monotonic()
            if session.client is None:
                return
            try:
                session.closer = start_thread("scenario-end", session.client.close)
            except NoThreadError:
                with contextlib.suppress(NoThreadError):  # if close() gets no thread, the session is abandoned
                    session.client.close()

    def _abandon(self, session: _LoadSession) -> None:
        assert session.interrupted is not None, "a session is abandoned after it was ended"
        session.thread = None  # no call joins it
        self._complete(session, *session.interrupted)

    # -- on the thread of a session -----------------------------------------------------------------------------------

    def _run_session(self, session: _LoadSession) -> None:
        outcome: Outcome = "passed"
        error: BaseException | str | None = None
        trace = None
        try:
            self._run_scenario(session)
        except BaseException as failure:  # noqa: BLE001 - SystemExit in a scenario ends that session only
            outcome = "failed" if session.connected else "not connected"
            error, trace = failure, traceback.format_exc()
        if session.interrupted is not None:
            outcome, error = session.interrupted
        self._complete(session, outcome, error, trace)

    def _run_scenario(self, session: _LoadSession) -> None:
        client = self._make()
        if not isinstance(client, MeasuredClient):
            raise self._refused(client)
        client.on_measurement = session.measurements.append
        session.client = client
        self._notifier.notify_all()
        try:
            if session.interrupted is None:  # otherwise the session was ended before it had a client to close
                self._connect(client)
                session.connected = True
                self._scenario(client)
        finally:
            client.close()

    def _refused(self, client: object) -> TypeError:
        self._refusal = (
            f"`client` of run_many() must return a MeasuredClient, not {type(client).__name__}; "
            "make the client with MeasuredClient(...) or MeasuredClient.for_url(...)"
        )
        return TypeError(self._refusal)

    def _complete(
        self, session: _LoadSession, outcome: Outcome, error: BaseException | str | None, trace: str | None = None
    ) -> None:
        if session.client is not None:
            url, secrets = address_of(session.client._life)
            self._secrets |= secrets
            if not self._url or (session.connected and not self._transport):
                self._url = printable(url) if url else ""
                transport = session.client.transport if session.connected else None
                self._transport = "" if transport is None else transport.name
        row = Row(
            number=session.number,
            outcome=outcome,
            error=error if isinstance(error, str) else error_text(error),
            kind=None if isinstance(error, str) else kind_of(error),
            traceback=trace,
            began=session.began - self.began,
            seconds=monotonic() - session.began,
            measurements=tuple(session.measurements),
            audio=RowAudio() if session.client is None else RowAudio.of(session.client.stats()),
        )
        try:
            if self._rows.setdefault(session.number, row) is row and self._on_row is not None:
                self._on_row(row)
        except Exception:
            logger.exception("on_row() of run_many() failed")
        finally:
            # This runs twice if the session was abandoned, also while its `on_row()` is running.
            self._ended.append(session)
            self._running.pop(session.number, None)
            self._notifier.notify_all()
