"""One attempt to connect: its phases on a thread of their own, under one deadline."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

from ..concurrency.abort import AbortController
from ..concurrency.deadline import Deadline
from ..concurrency.future import Future
from ..concurrency.io_thread import Timer
from ..concurrency.latch import Latch
from ..concurrency.lifecycle import NoThreadError, system_failures_as
from ..concurrency.logs import package_logger
from ..concurrency.pool_task import PoolTask
from ..concurrency.shield import shielded
from ..errors import (
    BotNotReadyError,
    ConnectionTimeoutError,
    DisconnectedError,
    RTVIError,
    TransportStartError,
    fresh_copy,
)
from ..events import RTVIEvent
from ..messages import BotReadyData
from ..protocol.states import CloseInfo, TransportState
from ..protocol.text import raised
from ..transports.base import TransportOptions
from .connect_request import BotStartedData, ConnectRequest
from .session import EndLimits, Session

logger: logging.Logger = package_logger(__name__)

# Without a limit, the log says this often, in seconds, what the call waits for.
_REMINDER_INTERVAL = 10.0

# A client without limits waits for its bot without end, but not for a config that the bot may not have.
_CONFIG_TIMEOUT = 10.0

_DOING = {
    "begin": "waiting until its thread runs",
    "devices": "opening the devices",
    "http": "the connect request",
    "transport": "opening the transport",
    "bot-ready": "waiting for the bot to be ready",
}

_NOT_BEGUN = "The session could not begin"

_LIMIT = (
    "the limit (connect_timeout= of the client, or attempt_timeout= of its reconnect policy, in seconds, or timeout= "
    "of start_bot())"
)
_ADVICE = {
    "begin": "Give the machine less to do",
    "devices": "See which device, source or sink does not answer",
    "http": "Check that the server answers",
    "transport": "Check that the bot's address can be reached",
    "bot-ready": "A bot without RTVI (in Pipecat: enable_rtvi=False) is never ready, nor is one of RTVI 0.3 that does "
    "not know its config. See the bot's log",
}


class ConnectAttempt:
    """Brings a session from nothing to a ready bot, or to its end.

    Args:
        request: Returns the transport's parameters.
        deadline: Limit of the attempt.
        config_timeout: Seconds to wait for the config of a bot that has not sent it with `bot-ready`; None: 10.
        patience: Seconds from the opening of the transport until the bot must be ready; None: until the deadline.
    """

    def __init__(
        self,
        request: ConnectRequest,
        deadline: Deadline,
        config_timeout: float | None,
        patience: float | None = None,
    ) -> None:
        self._request = request
        self._patience = patience
        self._config_timeout = _CONFIG_TIMEOUT if config_timeout is None else config_timeout
        self._phase = "begin"
        self._patience_timer: Timer | None = None
        self._error: BaseException | None = None
        self._end: CloseInfo | None = None
        self.deadline: Deadline = deadline
        #: Set by `begin()`.
        self.session: Session | None = None
        self.abandoned: bool = False

    @system_failures_as(TransportStartError, _NOT_BEGUN)
    def begin(self, make_session: Callable[[], Session]) -> Session:
        """Begin the session, if the client is idle.

        Raises:
            DisconnectedError: the attempt was abandoned before.
            RTVIError: of `make_session()`, which raises if the client cannot have a session now.
        """
        if self.abandoned:
            raise was_disconnected()
        self.session = make_session()
        return self.session

    def run(self, session: Session, options: TransportOptions) -> BotReadyData:
        """Connect `session`, whose transport gets `options`. Blocks until the bot is ready.

        Raises:
            ConnectionTimeoutError: the deadline passed first.
            RTVIError: what else went wrong; the session has ended.
            KeyboardInterrupt: Ctrl-C; the attempt is abandoned.
        """
        try:
            if self.abandoned:
                session.end(CloseInfo(initiator="client"))  # as `abandon()` does: it is no failure
                raise was_disconnected()
            # Before the thread starts, because the limit may pass until it runs: an attempt fails from `initializing`.
            session.move(TransportState.INITIALIZING)
            task = session.connecting = PoolTask("connect", self._work, session, options)
            with system_failures_as(TransportStartError, _NOT_BEGUN):
                task.start()
            if not _wait(session.connect_done, self.deadline, lambda: self._doing(session), "connect()"):
                raise self._timeout_error(session, self.deadline.timeout)
            task.done.wait(Deadline(EndLimits.LINGER))
            if session.bot is None:
                own = self._error
                raise own if own is not None and session.close_info is self._end else self._explained(session)
            self._fetch_config(session)
            return session.bot
        except BaseException as error:
            session.end_and_wait(_end_by(error), linger=EndLimits.LINGER)
            raise
        finally:
            if self._patience_timer is not None:
                self._patience_timer.cancel()

    def _timeout_error(self, session: Session, limit: float | None) -> ConnectionTimeoutError:
        """Return the error for a limit that has passed, or, if it is None, for the end of the patience."""
        elapsed = self.deadline.elapsed()
        # The times of all attempts of a call add up to its limit.
        seconds, otherwise = (round(elapsed, 2), "") if limit is None else (round(limit, 3), f", or raise {_LIMIT}")
        return ConnectionTimeoutError(
            f"The bot was not ready within {seconds:g} s; the time was spent on {self._doing(session)}. "
            f"{_diagnosis(session) or f'{_ADVICE[self._phase]}{otherwise}.'}",
            phase=self._phase,
            elapsed=elapsed,
        )

    def _doing(self, session: Session) -> str:
        step = _told(session, session.transport.waiting_for) if self._phase == "transport" else None
        return _DOING[self._phase] + (f": waiting for {step}" if step else "")

    def _explained(self, session: Session) -> RTVIError:
        """Return the error of a session that has ended before its bot was ready."""
        info = session.close_info
        error = info.failure()
        if not isinstance(error, DisconnectedError) or self._phase not in ("transport", "bot-ready"):
            return error
        advice = None if error.reason else _diagnosis(session)
        if advice is None:
            if info.initiator == "client" or isinstance(info.error, RTVIError):
                return error  # it says what to do
            advice = "See the bot's log"
        text = f"{info.describe()} before the bot was ready. {advice}"
        return DisconnectedError(text, code=info.code, reason=info.reason, initiator=info.initiator)

    def _fetch_config(self, session: Session) -> None:
        try:
            session.fetch_config(Deadline(self.deadline.at_most(self._config_timeout)))
        except (BotNotReadyError, DisconnectedError):  # the bot was ready, so the session has ended since
            session.end_and_wait(session.close_info, linger=EndLimits.LINGER)
            # The bot was ready, so its loss may be followed by a reconnect, as it would be a moment later.
            if not session.is_replaced:
                raise session.close_info.as_error() from None

    def abandon(self) -> None:
        """Let `run()` return soon. Any thread, also before `begin()`."""
        self.abandoned = True
        session = self.session
        if session is not None:
            shielded(lambda: session.end(CloseInfo(initiator="client")))

    # -- on the connect thread ----------------------------------------------------------------------------------------

    def _work(self, session: Session, options: TransportOptions) -> None:
        try:
            self._steps(session, options)
        except BaseException as error:  # noqa: BLE001 - it is raised to the caller of connect()
            self._error, self._end = error, _end_by(error)
            session.end(self._end)

    @system_failures_as(TransportStartError, "The session could not be established")
    def _steps(self, session: Session, options: TransportOptions) -> None:
        transport, signal = session.transport, session.abort.signal
        self._phase = "devices"
        with _may_fail(session, "could not be prepared"):
            session.initialize_transport(options)
            session.check_wanted()
            transport.init_devices()
        session.move(TransportState.INITIALIZED)
        bundle = self._request.bundle()
        if bundle is None:
            self._phase = "http"
            session.move(TransportState.AUTHENTICATING)
            bundle = self._request.send(self.deadline, session.abort)
            session.check_wanted()
        if bundle.started:
            session.move(TransportState.AUTHENTICATED)
            session.publisher.event(RTVIEvent.BOT_STARTED, BotStartedData(bundle.content))
        self._phase = "transport"
        if self._patience is not None:
            self._end_later(session, self._patience)
        session.move(TransportState.CONNECTING)
        transport.secure_bundle = bundle.secure
        transport.bundle_source = bundle.source
        transport.start_request = bundle.request
        with _may_fail(session, "failed to connect"):
            transport.connect(bundle.content, signal)
        self._phase = "bot-ready"
        session.opened()
        session.check_wanted()  # it may have called `start_media()` of the application's transport, which may hang
        with _may_fail(session, "could not send client-ready"):
            transport.send_ready_message()

    def _end_later(self, session: Session, seconds: float) -> None:
        """End `session` if the bot is not ready in `seconds`."""
        io = session.runtime.io

        def end() -> None:
            if not session.connect_done.is_set():
                session.end(_end_by(self._timeout_error(session, None)))

        def begin() -> None:
            self._patience_timer = io.call_later(seconds, end)

        io.call(begin)


@contextlib.contextmanager
def _may_fail(session: Session, how: str) -> Iterator[None]:
    """Turn an error of the transport, which may be the application's, into a `TransportStartError`."""
    try:
        yield
    except Exception as error:
        session.check_wanted()
        if isinstance(error, RTVIError) and not isinstance(error, NoThreadError):
            raise
        text = str(error) if isinstance(error, RTVIError) else raised(error)
        raise TransportStartError(f"The {session.transport.name} transport {how}: {text}") from error
    session.check_wanted()


def on_a_thread(work: Callable[[], Any], abort: AbortController, deadline: Deadline) -> Any:
    """Run `work()` on a thread of its own, which can be left behind; return its result or raise its error."""
    outcome: Future[Any] = Future()
    abort.signal.on_abort(lambda: outcome.reject(was_disconnected()))
    begun = False

    def run() -> None:
        nonlocal begun
        begun = True
        try:
            outcome.resolve(work())
        except BaseException as error:  # noqa: BLE001 - it is raised to the caller
            outcome.reject(error)

    task = PoolTask("connect", run)
    task.start()
    try:
        if not _wait(outcome, deadline, lambda: "the server's answer", "start_bot()"):
            phase = "http" if begun else "begin"
            raise ConnectionTimeoutError(
                f"The server did not answer within {deadline.timeout:g} s; the time was spent on {_DOING[phase]}. "
                f"{_ADVICE[phase]}, or raise {_LIMIT}.",
                phase=phase,
                elapsed=deadline.elapsed(),
            )
    finally:
        aborted = not abort.abort(was_disconnected())  # what still runs has no use any more
        task.done.wait(Deadline(EndLimits.LINGER))
    if aborted:
        # Not the abort's reason: an error that is raised on two threads mixes their tracebacks.
        raise was_disconnected()
    return outcome.result()


def was_disconnected() -> DisconnectedError:
    """Return the error of an attempt that `disconnect()` has abandoned."""
    return DisconnectedError("disconnect() was called while the bot was being started", initiator="client")


def _wait(done: Latch | Future[Any], deadline: Deadline, doing: Callable[[], str], call: str) -> bool:
    """Wait for `done`; return False if `deadline` passed first. Without a limit, log at intervals what the call waits
    for.
    """
    while not done.wait(Deadline(deadline.at_most(_REMINDER_INTERVAL))):
        if deadline.expired:
            return False
        if deadline.timeout is None:
            logger.warning(
                "%s has taken %.0f s so far (now: %s). Set connect_timeout for a limit",
                call,
                deadline.elapsed(),
                doing(),
            )
    return True


def _diagnosis(session: Session) -> str | None:
    """Ask the transport why the bot is not ready."""
    return _told(session, session.transport.diagnosis)


def _told(session: Session, ask: Callable[[], str | None]) -> str | None:
    """Return what the transport, which may be the application's, says of its state."""
    try:
        return ask()
    except Exception:
        logger.exception("The diagnosis of the %s transport failed", session.transport.name)
        return None


def _end_by(error: BaseException) -> CloseInfo:
    """Return how a session ends whose attempt raised `error`."""
    if isinstance(error, KeyboardInterrupt):
        return CloseInfo(initiator="client")  # the application interrupts its own call, which is no failure
    # A copy, because the error gets a traceback on its way to the caller, and that would keep the client alive.
    kept = fresh_copy(error)
    if isinstance(error, DisconnectedError):
        return CloseInfo(code=error.code, reason=error.reason, initiator=error.initiator, error=kept)
    return CloseInfo(initiator="client", error=kept)
