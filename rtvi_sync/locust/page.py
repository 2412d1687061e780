"""Locust's option `--rtvi-html FILE`: the page of a load test, with the sessions of the users of all workers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
from locust import events
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.event import EventHook
from locust.runners import WorkerRunner

from rtvi_sync import RTVIError, RTVIEvent
from rtvi_sync.testing import MeasuredClient, Measurement, Report, Row, RowAudio
from rtvi_sync.testing.load.report import Outcome, error_text, kind_of

from ..concurrency.clock import monotonic, wall_time
from ..concurrency.logs import package_logger

if TYPE_CHECKING:
    from .user import RTVIUser

logger: logging.Logger = package_logger(__name__)

# The name of the rows in a worker's report to the master.
_ROWS: Final = "rtvi_rows"


class WorkerError(RTVIError):
    """A failure of a measurement in a worker, as the master knows it: its text and its kind."""

    def __init__(self, text: str, kind: str | None) -> None:
        super().__init__(text)
        self.kind = kind


def _listen(hook: EventHook, listener: Callable[..., None]) -> None:
    hook.add_listener(listener)  # type: ignore[no-untyped-call]


def _add_option(parser: LocustArgumentParser, **_: object) -> None:
    parser.add_argument(
        "--rtvi-html",
        metavar="FILE",
        include_in_web_ui=False,
        env_var="LOCUST_RTVI_HTML",
        help="At the end write a page about all sessions of RTVIUsers: durations, failures and lost audio, in time",
    )


def _make_page(environment: Environment, **_: object) -> None:
    _PAGES[environment] = LoadPage(environment)


_PAGES: dict[Environment, LoadPage] = {}  # one, in a process that the command `locust` runs
_listen(events.init_command_line_parser, _add_option)
_listen(events.init, _make_page)


def page_of(environment: Environment) -> LoadPage | None:
    """Return the page, or None if no page is wanted."""
    page = _PAGES.get(environment)
    return page if page is not None and page.path else None


class LoadPage:
    """The page, written by the master, or by the only process. Everything runs on its greenlets.

    Args:
        environment: Locust's.

    Raises:
        OSError: the folder of the page cannot be made. Locust ends then, before the test.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._began = wall_time()
        # The sessions that have ended. A worker reports and forgets them.
        self._rows: list[Row] = []
        self._users: dict[RTVIUser, _UserSessions] = {}
        hooks = environment.events
        _listen(hooks.test_start, self._start)
        _listen(hooks.user_error, self._on_user_error)
        if isinstance(environment.runner, WorkerRunner):
            _listen(hooks.report_to_master, self._report)
            return
        if self.path:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        _listen(hooks.worker_report, self._take_report)
        _listen(hooks.quit, self._write)  # all workers have sent their last reports

    @property
    def path(self) -> str | None:
        """The path of the page; None: no page is wanted. The master sends it to a worker before it has users."""
        path: str | None = getattr(self._environment.parsed_options, "rtvi_html", None)
        return path

    def note(self, user: RTVIUser, done: Measurement) -> None:
        """Add a measurement of a user."""
        if user not in self._users:
            self._users[user] = _UserSessions(user.client, self._rows)
        self._users[user].note(done)

    def leave(self, user: RTVIUser) -> None:
        """Complete the session of a user that has stopped."""
        if (sessions := self._users.pop(user, None)) is not None:
            sessions.end()

    def _on_user_error(self, user_instance: Any, exception: BaseException, **_: object) -> None:
        user = getattr(user_instance, "user", user_instance)  # it may be a set of tasks
        if (sessions := self._users.get(user)) is not None:
            sessions.fail(exception)

    def _start(self, **_: object) -> None:
        self._began = wall_time()
        self._rows.clear()

    def _report(self, data: dict[str, Any], **_: object) -> None:
        runner = self._environment.runner
        if runner is not None and not runner.user_count:  # it may be the last report
            self._end_all()
        if self._rows:
            data[_ROWS] = [_as_data(row) for row in self._rows]
            self._rows.clear()

    def _take_report(self, data: dict[str, Any], **_: object) -> None:
        self._rows += map(_row_of, data.get(_ROWS, ()))

    def _end_all(self) -> None:
        for sessions in [*self._users.values()]:
            sessions.end()

    def _write(self, **_: object) -> None:
        if not self.path:
            return
        self._end_all()
        rows = tuple(
            attrs.evolve(row, number=number, began=max(0.0, row.began - self._began))
            for number, row in enumerate(sorted(self._rows, key=lambda row: row.began))
        )
        seconds = max((row.began + row.seconds for row in rows), default=0.0)
        try:
            Report(rows=rows, seconds=seconds).to_html(self.path)
        except OSError as error:
            logger.error("The page %s cannot be written: %s", self.path, error)
        else:
            logger.info("Wrote the page of %s sessions: %s", len(rows), self.path)


@attrs.define(eq=False)
class _UserSession:
    """A session that is not complete.

    Attributes:
        began: the start, in monotonic seconds.
        ended: the end, in monotonic seconds; None: the session is live, or its end was not handled yet.
        measurements: all so far.
        audio: the audio of a session that has ended.
        error: the exception that a task of the user raised.
    """

    began: float
    ended: float | None = None
    measurements: list[Measurement] = attrs.field(factory=list)
    audio: RowAudio | None = None
    error: BaseException | None = None


class _UserSessions:
    """The sessions of one user. A session is complete when the user connects again, or leaves. Not before: calls that
    the session's end has interrupted fail only after it.

    Args:
        client: the user's client.
        rows: the list that complete sessions are added to. Their times are on the wall clock, which all machines share.
    """

    def __init__(self, client: MeasuredClient, rows: list[Row]) -> None:
        self._client = client
        self._rows = rows
        self._session: _UserSession | None = None
        client.on(RTVIEvent.DISCONNECTED, self._on_disconnected)

    def note(self, done: Measurement) -> None:
        """Add a measurement. The first connect after a session has ended starts the next session."""
        session = self._session
        if session is None or (done.kind == "connect" and session.ended is not None):
            self.end()
            session = self._session = _UserSession(done.began)
        session.measurements.append(done)
        if done.kind == "connect" and done.error is not None:
            session.ended = monotonic()

    def fail(self, error: BaseException) -> None:
        """Note that a task of the user has failed."""
        if self._session is not None and self._session.error is None:
            self._session.error = error

    def end(self) -> None:
        """Complete the current session, if any."""
        session, self._session = self._session, None
        if session is not None:
            self._rows.append(_row(session, session.audio or RowAudio.of(self._client.stats())))

    def _on_disconnected(self, _info: object) -> None:
        if self._session is not None:
            self._session.ended = monotonic()
            self._session.audio = RowAudio.of(self._client.stats())


def _row(session: _UserSession, audio: RowAudio) -> Row:
    failed = next((done for done in session.measurements if done.error is not None), None)
    error = failed.error if failed is not None else session.error
    outcome: Outcome = "passed" if error is None else "failed"
    if failed is not None and failed.kind == "connect":
        outcome = "not connected"
    now = monotonic()
    return Row(
        number=0,
        outcome=outcome,
        error=error_text(error),
        kind=kind_of(error),
        began=wall_time() - (now - session.began),
        seconds=(now if session.ended is None else session.ended) - session.began,
        measurements=tuple(session.measurements),
        audio=audio,
    )


# -- from the workers to the master -----------------------------------------------------------------------------------


def _as_data(row: Row) -> dict[str, Any]:
    return {
        **attrs.asdict(row, recurse=False),
        "audio": attrs.asdict(row.audio),
        "measurements": [
            {**attrs.asdict(done, recurse=False), "error": done.error and (error_text(done.error), kind_of(done.error))}
            for done in row.measurements
        ],
    }


def _row_of(data: dict[str, Any]) -> Row:
    measurements = tuple(
        Measurement(**{**done, "error": done["error"] and WorkerError(*done["error"])}) for done in data["measurements"]
    )
    return Row(**{**data, "audio": RowAudio(**data["audio"]), "measurements": measurements})
