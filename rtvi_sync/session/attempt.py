"""One attempt to connect: its phases on a thread of their own, all on one deadline."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ..concurrency.abort import AbortController
from ..concurrency.deadline import Deadline
from ..concurrency.latch import Latch
from ..concurrency.lifecycle import NoThreadError, system_failures_as
from ..concurrency.pool_task import PoolTask
from ..concurrency.shield import shielded
from ..errors import ConnectionTimeoutError, DisconnectedError, RTVIError, TransportStartError, anew
from ..events import RTVIEvent
from ..messages import BotReadyData
from ..protocol.states import CloseInfo, TransportState
from .connect_request import BotStartedData, ConnectRequest
from .session import Session

logger: logging.Logger = logging.getLogger(__name__)

# Without a limit, whoever waits is told this often, in seconds, what for.
_REMINDER_INTERVAL = 10.0
# What an attempt leaves behind is gone at once, unless the program's own code is at work in it.
_LINGER_TIMEOUT = 0.1

# A client without limits waits for its bot; that the bot has no config is no reason to wait for ever.
_CONFIG_TIMEOUT = 10.0

_DOING = {
    "begin": "waiting until its thread runs",
    "devices": "opening the devices",
    "http": "the connect request",
    "transport": "opening the transport",
    "bot-ready": "waiting for the bot to be ready",
}

_NOT_BEGUN = "The session could not begin"

_ADVICE = {
    "begin": "Raise connect_timeout, or give the machine less to do.",
    "devices": "See which device, source or sink does not answer.",
    "http": "Check that the server answers, or raise connect_timeout.",
    "transport": "Check that the bot's address can be reached, or raise connect_timeout.",
    "bot-ready": "See the bot's log (RTVI 0.3 is silent about a config it does not know), or raise connect_timeout.",
}


class SessionMaker(Protocol):
    """What an attempt needs of the connector."""

    def begin_session(self, deadline: Deadline, *, is_replacement: bool) -> Session:
        """Begin a session, for which nothing has been done yet.

        Raises:
            RTVIError: the client cannot have one now.
        """

    def initialize_transport(self, session: Session) -> None:
        """Tell the transport of its session. On the connect thread."""


class ConnectAttempt:
    """Brings a session from nothing to a ready bot, or to its end.

    Args:
        connector: makes the session.
        request: brings what the transport is to be given.
        deadline: limit of the attempt.
        config_timeout: seconds that a bot which has not told its config may take to tell it; None: 10.
    """

    def __init__(
        self, connector: SessionMaker, request: ConnectRequest, deadline: Deadline, config_timeout: float | None
    ) -> None:
        self._manager = connector
        self._request = request
        self._deadline = deadline
        self._config_timeout = _CONFIG_TIMEOUT if config_timeout is None else config_timeout
        self._phase = "begin"
        self._error: BaseException | None = None
        self._end: CloseInfo | None = None
        #: From `begin()` on.
        self.session: Session | None = None
        self.abandoned: bool = False
        #: Whoever makes the attempt is at it, or was.
        self.begun: bool = False
        #: Nothing of it is left.
        self.over: Latch = Latch()

    @system_failures_as(TransportStartError, _NOT_BEGUN)
    def begin(self, *, is_replacement: bool = False) -> Session:
        """Begin the session, if the client is idle."""
        self.begun = True
        if self.abandoned:
            raise was_disconnected()
        self.session = self._manager.begin_session(self._deadline, is_replacement=is_replacement)
        return self.session

    def run(self) -> BotReadyData:
        """Connect. Blocks until the bot is ready.

        Raises:
            ConnectionTimeoutError: the deadline passed first.
            RTVIError: what else went wrong; the session has ended.
            KeyboardInterrupt: Ctrl-C; the attempt is abandoned.
        """
        session = self.session
        assert session is not None, "begin() comes first"
        try:
            if self.abandoned:
                session.end(CloseInfo(initiator="client"))  # as `abandon()` would have: it is no failure
                raise was_disconnected()
            # Here, because the limit may pass before the thread runs: an attempt fails from `initializing`.
            session.move(TransportState.INITIALIZING)
            job = session.connecting = PoolTask("connect", self._work, session)
            with system_failures_as(TransportStartError, _NOT_BEGUN):
                job.start()
            if not _wait(session.connect_done, self._deadline, lambda: _DOING[self._phase], "connect()"):
                raise ConnectionTimeoutError(
                    f"The bot was not ready within {self._deadline.timeout:g} s; "
                    f"the time was spent on {_DOING[self._phase]}. {_diagnosis(session) or _ADVICE[self._phase]}",
                    phase=self._phase,
                    elapsed=self._deadline.elapsed(),
                )
            job.done.wait(Deadline(_LINGER_TIMEOUT))
            if session.bot is None:
                own = self._error
                raise own if own is not None and session.info is self._end else session.failure()
            self._fetch_config(session)
            return session.bot
        except BaseException as error:
            session.end_and_wait(_end_by(error), linger=_LINGER_TIMEOUT)
            raise

    def _fetch_config(self, session: Session) -> None:
        try:
            session.fetch_config(Deadline(self._deadline.at_most(self._config_timeout)))
        except DisconnectedError:
            session.end_and_wait(session.info, linger=_LINGER_TIMEOUT)
            # It was ready, so its loss may be the successor's affair, as it were a moment later.
            if not session.is_replaced:
                raise

    def abandon(self) -> None:
        """Let `run()` return soon. Any thread, also before `begin()`."""
        self.abandoned = True
        session = self.session
        if session is not None:
            shielded(lambda: session.end(CloseInfo(initiator="client")))

    # -- on the connect thread ----------------------------------------------------------------------------------------

    def _work(self, session: Session) -> None:
        try:
            self._steps(session)
        except BaseException as error:  # noqa: BLE001 - it is raised to the caller of connect()
            self._error, self._end = error, _end_by(error)
            session.end(self._end)

    @system_failures_as(TransportStartError, "The session could not be established")
    def _steps(self, session: Session) -> None:
        transport, signal = session.transport, session.abort.signal
        self._phase = "devices"
        with _may_fail(session, "could not be prepared"):
            self._manager.initialize_transport(session)
            session.check_wanted()
            transport.init_devices()
            session.check_wanted()
        session.move(TransportState.INITIALIZED)
        if self._request.needed:
            self._phase = "http"
            session.move(TransportState.AUTHENTICATING)
        bundle = self._request.send(self._deadline, session.abort)
        session.check_wanted()
        if bundle.started:
            session.move(TransportState.AUTHENTICATED)
            session.publisher.event(RTVIEvent.BOT_STARTED, BotStartedData(bundle.content))
        self._phase = "transport"
        session.move(TransportState.CONNECTING)
        transport.secure_bundle = bundle.secure
        transport.bundle_source = bundle.source
        with _may_fail(session, "failed to connect"):
            transport.connect(bundle.content, signal)
        self._phase = "bot-ready"
        session.opened()
        with _may_fail(session, "could not send client-ready"):
            transport.send_ready_message()


@contextlib.contextmanager
def _may_fail(session: Session, how: str) -> Iterator[None]:
    """Around a call of a transport, which may be anybody's."""
    session.check_wanted()
    try:
        yield
    except Exception as error:
        session.check_wanted()
        if isinstance(error, RTVIError) and not isinstance(error, NoThreadError):
            raise
        raise TransportStartError(f"The {session.transport.name} transport {how}: {error}") from error
    session.check_wanted()


def on_a_thread(work: Callable[[], Any], abort: AbortController, deadline: Deadline) -> Any:
    """Do `work()` on a thread of its own, so that it can be left behind; returns its result or raises its error."""
    outcome: list[Any] = []
    failure: list[BaseException] = []
    settled = Latch()
    abort.signal.on_abort(settled.set)
    begun = False

    def run() -> None:
        nonlocal begun
        begun = True
        try:
            outcome.append(work())
        except BaseException as error:  # noqa: BLE001 - it is raised to the caller
            failure.append(error)
        finally:
            settled.set()

    job = PoolTask("connect", run)
    job.start()
    try:
        if not _wait(settled, deadline, lambda: "the server's answer", "start_bot()"):
            phase = "http" if begun else "begin"
            raise ConnectionTimeoutError(
                f"The server did not answer within {deadline.timeout:g} s; the time was spent on {_DOING[phase]}. "
                f"{_ADVICE[phase]}",
                phase=phase,
                elapsed=deadline.elapsed(),
            )
    finally:
        aborted = not abort.abort(was_disconnected())  # whatever still goes on is of no use any more
        job.done.wait(Deadline(_LINGER_TIMEOUT))
    if aborted:
        # Not the reason itself: an error that is raised on two threads mixes their tracebacks.
        raise was_disconnected()
    if failure:
        raise failure[0]
    return outcome[0]


def was_disconnected() -> DisconnectedError:
    return DisconnectedError("disconnect() was called while the bot was being started", initiator="client")


def _wait(latch: Latch, deadline: Deadline, doing: Callable[[], str], call: str) -> bool:
    """Wait for `gate`; False if `deadline` passed first. Without a limit the program is told now and then."""
    while not latch.wait(Deadline(deadline.at_most(_REMINDER_INTERVAL))):
        if deadline.expired:
            return False
        if deadline.timeout is None:
            logger.warning(
                "%s has been waiting for %.0f s, now for %s; set connect_timeout for a limit",
                call,
                deadline.elapsed(),
                doing(),
            )
    return True


def _diagnosis(session: Session) -> str | None:
    """Ask the transport, which may be anybody's, why the bot is not ready."""
    try:
        return session.transport.diagnosis()
    except Exception:
        logger.exception("The diagnosis of the %s transport failed", session.transport.name)
        return None


def _end_by(error: BaseException) -> CloseInfo:
    """How a session ends whose attempt raised `error`."""
    if isinstance(error, KeyboardInterrupt):
        return CloseInfo(initiator="client")  # the caller's own wish, not a failure
    # Not the error itself: on its way to the caller it gets a traceback, which would keep the client alive.
    kept = anew(error)
    if isinstance(error, DisconnectedError):
        return CloseInfo(code=error.code, reason=error.reason, initiator=error.initiator, error=kept)
    return CloseInfo(initiator="client", error=kept)
