"""The replacement of a lost session: attempts by the policy, until a new session is stable."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING

import attrs

from ..concurrency.deadline import Deadline, join_thread
from ..concurrency.lifecycle import NoThreadError, start_thread
from ..concurrency.logs import package_logger
from ..concurrency.runtime import acquire_runtime
from ..errors import BotAlreadyStartedError, RTVIError, fresh_copy
from ..protocol.text import LONGEST_LINE, one_line
from ..session.reconnect_policy import ReconnectFailedData, ReconnectPolicy, Retries, should_retry
from ..session.session import Phase, Session
from .operation import Operation, Progress

if TYPE_CHECKING:
    from .connect_steps import Connect
    from .life import Life

logger: logging.Logger = package_logger(__name__)


class Reconnect(Operation[None]):
    """Replaces a lost session, on a thread that lives until the new one is stable, or no attempt follows.

    Args:
        life: As for `Operation`.
        lost: The lost session.
        policy: The client's policy.
        source: The call of `connect()` whose arguments are used again.
    """

    def __init__(self, life: Life, lost: Session, policy: ReconnectPolicy, source: Connect) -> None:
        super().__init__(life, on_collected=lambda _: self.stop())
        self._policy = policy
        self.source: Connect = source
        self._thread: threading.Thread | None = None
        #: The session that it replaces.
        self.lost: Session | None = lost

    def start(self) -> None:
        """Start the attempts. On the close thread of the lost session."""
        if self.abandoned:
            return self._finish()
        try:
            self._thread = start_thread("reconnect", self._work)
        except NoThreadError as error:
            self._report_failure(0, error)
            self._finish()
        return None

    def join(self, deadline: Deadline) -> None:
        """Wait until the thread has ended, if it was started. Not on this thread: `retry_on` may disconnect."""
        if threading.current_thread() is self._thread:
            return
        self.wait_over(deadline)
        if self._thread is not None:
            join_thread(self._thread, deadline)

    # -- on its thread ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        self.progress = Progress.RUNNING
        runtime = None
        # Keeps the threads of the runtime alive between two sessions. If it cannot be acquired, the attempts raise the
        # reason.
        with contextlib.suppress(NoThreadError, OSError):
            runtime = acquire_runtime()
        try:
            self._replace()
        finally:
            self._finish()
            if runtime is not None:
                runtime.release()

    def _replace(self) -> None:
        """Make attempts until a session is stable, or no attempt follows."""
        assert self.lost is not None, "it was made with it"
        retries, attempts = Retries(self._policy, first=1), 0
        error: BaseException = loss_of(self.lost)
        is_loss = is_retried = True  # the policy was asked when the session was lost
        while not self.abandoned:  # also by the policy's own rule
            # 1. Announce the next attempt, if the policy has one.
            following = self.pending = retries.after(error) if is_retried else None
            if following is None:
                return self._report_failure(attempts, error)
            life = self._life()
            if life is None or not life.announce(self, following):
                return None
            del life  # a client that is dropped during the wait must be collected
            text, what = one_line(str(error), LONGEST_LINE).rstrip("."), following.describe_attempt()
            if is_loss:
                logger.warning("The session is lost: %s. The client makes %s", text, what)
            else:
                logger.warning(
                    "Attempt %d to replace the lost session failed: %s. The client makes %s", attempts, text, what
                )
            try:
                # 2. Wait, and connect.
                self.pause(following.delay)
                attempts += 1
                session = self.source.connect_again(self)
            except BaseException as failure:  # noqa: BLE001 - a transport or handler may be the application's, and exit
                if self.abandoned or isinstance(failure, BotAlreadyStartedError):
                    return None  # the application has disconnected, or connected itself
                error, is_loss, is_retried = failure, False, should_retry(self._policy, failure)
                continue
            # 3. A session that is lost before it is stable counts as one more failed attempt.
            self.pending = None
            logger.info("The lost session was replaced, by attempt %d", attempts)
            session.wait_for(Phase.DRAINED, Deadline(self._policy.stable_after))
            life = self._life()
            if life is None or life.finish(self, session):
                return None
            del life
            error, is_loss, is_retried = loss_of(session), True, True
        return None

    def finish(self, session: Session) -> None:
        """End, unless `session` was lost and this operation replaces it, too. Under the lock of the client's life."""
        if self.lost is not session:
            self._leave(self._life(), Progress.DONE)

    def _report_failure(self, attempts: int, error: BaseException) -> None:
        """Report that no attempt follows `error`."""
        life = self._life()
        data = ReconnectFailedData(attempts=attempts, error=fresh_copy(error))
        if life is not None and life.report_failure(self, data):
            logger.warning(
                "The lost session could not be replaced (%d attempts): %s", attempts, one_line(str(error), LONGEST_LINE)
            )

    def _finish(self) -> None:
        self.pending = None
        life = self._life()
        if self.progress is not Progress.DONE:
            if life is not None:
                life.release(self)
            self._leave(life, Progress.FAILED)

    # -- the end of its session: on the close thread -------------------------------------------------------------------

    def _wants_next(self, session: Session) -> bool:
        # After a failed attempt the thread decides.
        return not session.was_ready or should_retry(self._policy, session.close_info.failure())

    def next_after(self, life: Life, session: Session) -> Operation[None]:
        """Return this operation while it runs, else another one."""
        if self.progress is Progress.DONE:
            return Reconnect(life, session, self._policy, self.source)
        if session.was_ready:
            self.lost = session
        return self


def loss_of(session: Session) -> RTVIError:
    """Return an error that says how a session was lost that is being replaced."""
    return attrs.evolve(session.close_info, reconnecting=True).failure()
