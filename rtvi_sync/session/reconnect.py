"""Automatic reconnection (optional): a new session replaces a lost one."""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

import attrs

from ..concurrency.deadline import Deadline, join_thread
from ..concurrency.latch import Latch
from ..concurrency.lifecycle import NoThreadError, start_thread
from ..concurrency.logs import package_logger
from ..concurrency.runtime import Runtime, acquire_runtime
from ..errors import BotAlreadyStartedError, BotNotReadyError, RTVIError, fresh_copy
from ..events import RTVIEvent
from ..protocol.states import CloseInfo
from ..protocol.text import LONGEST_LINE, one_line
from .attempt import was_disconnected
from .reconnect_policy import ReconnectPolicy, is_transient
from .session import Session

if TYPE_CHECKING:
    from tenacity import RetryCallState, Retrying

logger: logging.Logger = package_logger(__name__)

T = TypeVar("T")

_WAIT = "call wait_until_ready() before you try again"


@attrs.frozen(kw_only=True)
class ReconnectingData:
    """The payload of `reconnecting`: a session was lost, or an attempt to replace it failed, and another one follows.

    Attributes:
        attempt: number of the attempt that follows, from 1.
        max_attempts: of the policy; None: no limit.
        delay: seconds until it begins.
        error: how the session was lost, or why the last attempt failed.
    """

    attempt: int
    max_attempts: int | None
    delay: float
    error: BaseException

    def describe(self) -> str:
        """Return a sentence without its full stop."""
        return f"the client reconnects by itself, {self.describe_attempt()}"

    def describe_attempt(self) -> str:
        """Return which attempt follows, and when."""
        of = f" of {self.max_attempts}" if self.max_attempts is not None else ""
        return f"attempt {self.attempt}{of} within {self.delay:.1f} s"


@attrs.frozen(kw_only=True)
class ReconnectFailedData:
    """The payload of `reconnect_failed`: no further attempt is made.

    Attributes:
        attempts: how many were made.
        error: why the last one failed.
    """

    attempts: int
    error: BaseException

    def describe(self) -> str:
        """Return a sentence without its full stop."""
        plural = "" if self.attempts == 1 else "s"
        return f"the session was lost and not replaced, after {self.attempts} attempt{plural}: {self.error}"


class Sessions(Protocol):
    """What a reconnector calls of the session manager."""

    def reconnect(self, stopped: Latch) -> Session:
        """Connect as the application did last, unless `stopped` is set; return the session, whose bot is ready.

        Raises:
            BotAlreadyStartedError: the application has connected or started a bot itself.
            DisconnectedError: `stopped` is set.
            RTVIError: as `RTVIClient.connect()`.
        """

    def publish(self, event: RTVIEvent, data: object) -> None:
        """Queue an event that belongs between two sessions."""

    def end_waiting_streams(self, info: CloseInfo, last: tuple[RTVIEvent, object] | None = None) -> None:
        """End the streams that wait for a session now, after what is queued: none follows.

        Args:
            info: how the last session ended.
            last: an event that is queued before. A stream that its handler opens waits for what the application begins.
        """


class Reconnector:
    """Replaces the lost sessions of one client, on a thread that lives while there is one to replace.

    It holds the session manager weakly, so that a client which is dropped meanwhile is collected.
    """

    def __init__(self, policy: ReconnectPolicy, sessions: Sessions) -> None:
        self.policy = policy
        self._sessions = weakref.ref(sessions, lambda _: self.stop(None))
        # Guards `_run`, `_unwanted` and `failed`, and puts the events of a run before its end. Any thread may hold it,
        # to assign or to queue an event; re-entrant, because a finalizer may call `stop()`.
        self._lock = threading.RLock()
        self._run: _Run | None = None
        self._unwanted = 0  # the number of the last session for which `lost()` begins no run; none before it has one
        #: The number of sessions that were replaced.
        self.count = 0
        self._repeated: ReconnectingData | None = None  # of a `connect()` that is repeated now
        #: Why the last lost session was not replaced; None if it was, or if the application has connected since.
        self.failed: ReconnectFailedData | None = None

    @property
    def pending(self) -> ReconnectingData | None:
        """Return the attempt that is under way, or comes next; None if there is none."""
        run = self._run
        return run.pending if run is not None else None

    def replaces(self, info: CloseInfo) -> bool:
        """Whether to replace a session that ends with `info`."""
        return self.should_retry(info.failure())

    def should_retry(self, error: BaseException) -> bool:
        """Whether the policy allows another attempt."""
        try:
            return bool((self.policy.retry_on or is_transient)(error))
        except BaseException:
            logger.exception("retry_on of the reconnect policy raised; no further attempt is made")
            return False

    def connect(self, attempt: Callable[[], T], deadline: Deadline, stopped: Latch) -> T:
        """Return what `attempt()` returns; repeat it as the policy says, if that includes the first connect. `stopped`
        is set when the application ends the call.

        Raises:
            DisconnectedError: the application has ended the call between two attempts.
            RTVIError: of the last attempt.
        """
        if not self.policy.first_connect:
            return attempt()

        def should_retry(error: BaseException) -> bool:
            if not isinstance(error, Exception) or isinstance(error, BotAlreadyStartedError) or stopped.is_set():
                return False
            return self.should_retry(error)

        def publish(state: RetryCallState) -> None:
            data = _reconnecting(self.policy, state, state.attempt_number + 1)
            self._repeated = data
            logger.warning(
                "Attempt %d to connect failed: %s. The client makes %s",
                data.attempt - 1,
                one_line(str(data.error), LONGEST_LINE).rstrip("."),
                data.describe_attempt(),
            )
            sessions = self._sessions()
            if sessions is not None:
                sessions.publish(RTVIEvent.RECONNECTING, data)

        def sleep(seconds: float) -> None:
            if stopped.wait(Deadline(seconds)):
                raise was_disconnected()

        left = deadline.remaining()
        try:
            return _retrying(self.policy, left=left, retry=should_retry, before_sleep=publish, sleep=sleep)(attempt)
        finally:
            self._repeated = None

    def is_to_replace(self, session: Session) -> bool:
        """Whether an ended session, the client's last one, is being replaced, or is to be."""
        if self.pending is not None:
            return True
        is_lost = session.is_replaced and session.publisher.was_ready  # else it was an attempt of `connect()`
        return is_lost and session.number > self._unwanted and self.failed is None

    def check_ready(self, session: Session) -> None:
        """Raise if the client's last session has no bot because it is being replaced, or could not be.

        Raises:
            BotNotReadyError
        """
        has_ended, pending, failed = session.is_ending, self.pending, self.failed
        if session.publisher.was_ready and not has_ended:
            return
        repeated = self._repeated
        if repeated is not None:
            raise BotNotReadyError(
                f"There is no bot yet: connect() makes {repeated.describe_attempt()}; {_WAIT}"
            ) from fresh_copy(repeated.error)
        if pending is not None:
            raise BotNotReadyError(f"There is no bot: {pending.describe()}; {_WAIT}") from fresh_copy(pending.error)
        if failed is not None and has_ended:
            raise BotNotReadyError(
                f"There is no bot: {failed.describe()}; call connect() for a new session"
            ) from fresh_copy(failed.error)
        if has_ended and self.is_to_replace(session):  # the first attempt is not planned yet
            loss = _loss_of(session)
            raise BotNotReadyError(f"There is no bot: {loss}; the client reconnects by itself; {_WAIT}") from loss

    def lost(self, session: Session) -> None:
        """Replace `session`, unless the application has ended it. On its close thread, after `drained` is set."""
        run = _Run(self, self._sessions)
        with self._lock:
            if self._run is not None:
                return  # the run that replaces sessions now replaces this one, too
            wanted = session.number > self._unwanted
            self._run = run if wanted else None
        if wanted:
            run.start(session)
        else:
            sessions = self._sessions()
            if sessions is not None:
                sessions.end_waiting_streams(session.close_info)

    def stop(self, session: Session | None) -> _Run | None:
        """Make no further attempt, neither now nor if `session`, or one before it, is lost later. Any thread.

        Returns:
            The run that is stopped; an attempt of it may still be under way.
        """
        with self._lock:
            run, self._run = self._run, None
            if session is not None:
                self._unwanted = max(self._unwanted, session.number)
            if run is not None:
                run.stopped.set()
        return run

    def stop_for_connect(self, session: Session) -> None:
        """Stop for all sessions before `session`, which the application has begun itself."""
        with self._lock:  # at once, or the end of an earlier session could begin a run in between
            self.stop(None)
            self._unwanted = max(self._unwanted, session.number - 1)
        self.failed = None

    def publish(self, run: _Run, event: RTVIEvent, data: ReconnectingData | ReconnectFailedData) -> bool:
        """Queue an event of `run`, the last one with the end of the streams that wait for a session.

        Returns:
            False if the run was stopped before: the state is that of something else then.
        """
        sessions = self._sessions()
        with self._lock:
            if sessions is None or run.stopped.is_set():
                return False
            if isinstance(data, ReconnectFailedData):
                self.failed = data
                sessions.end_waiting_streams(CloseInfo(initiator="network", error=data.error), (event, data))
            else:
                sessions.publish(event, data)
            return True

    def leave(self, run: _Run, session: Session | None = None) -> bool:
        """Remove `run`, which has ended; return False if `session` has ended as well, so that it goes on."""
        with self._lock:
            if session is not None and session.drained.is_set():
                # By any other run: `lost()` may come after this one has given up.
                self._unwanted = max(self._unwanted, session.number)
                return False
            if self._run is run:
                self._run = None
            return True

    def after_fork_in_child(self, session: Session | None) -> bool:
        """Forget what the parent does; tell whether it replaces `session`, the client's last one."""
        is_replaced = session is not None and self.is_to_replace(session)
        self._lock = threading.RLock()
        self._run = None
        if session is not None:
            self._unwanted = max(self._unwanted, session.number)
        return is_replaced


class _Stopped(Exception):  # noqa: N818 - it is no error
    """The application has disconnected, or connected itself."""


class _Run:
    """The attempts to replace one lost session, and the supervision of the session that replaces it."""

    def __init__(self, owner: Reconnector, sessions: weakref.ref[Sessions]) -> None:
        self._owner = owner
        self._sessions = sessions
        self._attempts = 0
        self._first = True
        self._loss: BaseException | None = None  # of a session; the policy was asked when that ended
        self.stopped: Latch = Latch()
        self._started: Latch = Latch()  # set also if there is no thread to be had
        self._thread: threading.Thread | None = None
        self.pending: ReconnectingData | None = None

    def start(self, lost: Session) -> None:
        try:
            self._thread = start_thread("reconnect", self._work, lost)
        except NoThreadError as error:
            self._owner.leave(self)
            self._give_up(error)
        finally:
            self._started.set()

    def join(self, deadline: Deadline) -> None:
        """Wait until the thread of the run has ended. Any thread, also before it has begun."""
        self._started.wait(deadline)
        if self._thread is not None and self._thread is not threading.current_thread():  # `retry_on` may disconnect
            join_thread(self._thread, deadline)

    def _should_retry(self, error: BaseException) -> bool:
        if self.stopped.is_set() or isinstance(error, BotAlreadyStartedError):
            return False  # the application has connected itself
        return error is self._loss or self._owner.should_retry(error)

    # -- on the reconnect thread --------------------------------------------------------------------------------------

    def _work(self, lost: Session) -> None:
        self._loss = _loss_of(lost)
        del lost
        runtime: Runtime | None = None
        # Keeps the threads of the runtime alive between two sessions. If it cannot be had, the attempts raise the
        # reason.
        with contextlib.suppress(NoThreadError, OSError):
            runtime = acquire_runtime()
        try:
            # The loss counts as the first attempt.
            _retrying(
                self._owner.policy, losses=1, retry=self._should_retry, before_sleep=self._publish, sleep=self._sleep
            )(self._attempt)
        except _Stopped:
            pass
        except BaseException as failure:  # noqa: BLE001 - a transport or handler may be the application's, and exit
            self._give_up(failure)
        finally:
            self._owner.leave(self)
            if runtime is not None:
                runtime.release()

    def _attempt(self) -> None:
        """Replace the session, and wait until the new one is stable. The first call only raises the loss."""
        if self._first:
            self._first = False
            assert self._loss is not None
            raise self._loss
        sessions = self._sessions()
        if sessions is None:
            raise _Stopped
        self._attempts += 1
        try:
            session = sessions.reconnect(self.stopped)
        finally:
            del sessions
        self._owner.count += 1
        self.pending = None
        session.drained.wait(Deadline(self._owner.policy.stable_after))
        if self._owner.leave(self, session):
            return
        if session.is_replaced:
            self._loss = _loss_of(session)
            raise self._loss

    def _publish(self, state: RetryCallState) -> None:
        self.pending = _reconnecting(self._owner.policy, state, state.attempt_number)
        if not self._owner.publish(self, RTVIEvent.RECONNECTING, self.pending):
            return
        error = one_line(str(self.pending.error), LONGEST_LINE).rstrip(".")
        if state.outcome is not None and state.outcome.exception() is self._loss:
            logger.info("The session is lost: %s. The client makes %s", error, self.pending.describe_attempt())
        else:
            logger.info(
                "Attempt %d to replace the lost session failed: %s. The client makes %s",
                self._attempts,
                error,
                self.pending.describe_attempt(),
            )

    def _sleep(self, seconds: float) -> None:
        if self.stopped.wait(Deadline(seconds)):
            raise _Stopped

    def _give_up(self, error: BaseException) -> None:
        self.pending = None
        sessions = self._sessions()
        data = ReconnectFailedData(attempts=self._attempts, error=fresh_copy(error))
        if sessions is None or isinstance(error, BotAlreadyStartedError):
            return
        if self._owner.publish(self, RTVIEvent.RECONNECT_FAILED, data):
            why = one_line(str(error), LONGEST_LINE)
            logger.warning("The lost session could not be replaced (%d attempts): %s", self._attempts, why)


def _loss_of(session: Session) -> RTVIError:
    """Return an error that says how a session was lost, which is being replaced."""
    return attrs.evolve(session.close_info, reconnecting=True).failure()


def _retrying(
    policy: ReconnectPolicy,
    *,
    losses: int = 0,
    left: float | None = None,
    retry: Callable[[BaseException], bool],
    before_sleep: Callable[[RetryCallState], None],
    sleep: Callable[[float], None],
) -> Retrying:
    """Return the policy as tenacity has it; `losses` count as attempts, and none begins after `left` seconds."""
    import tenacity  # imports asyncio, and most applications never reconnect

    limits = [limit for limit in (policy.max_elapsed, left) if limit is not None]
    deadline = Deadline(min(limits, default=None))

    def is_over(state: RetryCallState) -> bool:
        if policy.max_attempts is not None and state.attempt_number >= policy.max_attempts + losses:
            return True
        remaining = deadline.remaining()  # not tenacity's own limit, which follows a replaced clock
        return remaining is not None and state.upcoming_sleep >= remaining

    return tenacity.Retrying(
        stop=is_over,
        wait=tenacity.wait_random_exponential(multiplier=policy.initial_delay, max=policy.max_delay),
        retry=tenacity.retry_if_exception(retry),
        before_sleep=before_sleep,
        sleep=sleep,
        reraise=True,
    )


def _reconnecting(policy: ReconnectPolicy, state: RetryCallState, attempt: int) -> ReconnectingData:
    """Return the event before an attempt."""
    assert state.outcome is not None
    error = state.outcome.exception()
    assert error is not None
    return ReconnectingData(
        attempt=attempt,
        max_attempts=policy.max_attempts,
        delay=state.upcoming_sleep,
        # a copy, because the frames of the error keep the client, which is to be collected if dropped
        error=fresh_copy(error),
    )
