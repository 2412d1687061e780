"""A call that connects, starts a bot or reconnects, as an object that can be cancelled at every instant."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..concurrency.deadline import Deadline
from ..concurrency.latch import Notifier
from ..concurrency.shield import shielded
from ..errors import DisconnectedError
from ..protocol.states import BY_CLIENT
from ..session.reconnect_policy import ReconnectingData
from ..session.session import EndLimits, Session

if TYPE_CHECKING:
    from .life import Life

T = TypeVar("T")


class Progress(IntEnum):
    """How far an operation is. It only moves forward."""

    NEW = 0
    RUNNING = 1
    FAILED = 2  # it has raised its error itself, and left no session
    DONE = 3


class Operation(Generic[T]):
    """One call of `connect()` or `start_bot()`, or the replacement of a lost session.

    It exists before any of its work is done. The public method makes it, and cancels it if anything is raised in that
    method, in its outermost `try`. A signal handler may raise between any two instructions of the main thread, even
    when only the `return` is left. So `cancel()` must be right at every instant: new work will be refused, running work
    is abandoned, and the result of completed work is ended.

    Args:
        life: The client's. Held weakly, because a session refers to its operation, and must not keep the client.
        on_collected: Called when the client was collected.
    """

    # Mutable state. The thread that runs the operation writes `progress`, and any thread sets `abandoned`, which is
    # never reset. Each of these writes is one step, followed by a notification. The thread that runs the operation also
    # writes `session` and `pending`.

    #: The session that it replaces. None: it is a call of the application.
    lost: Session | None = None
    #: The call of `connect()` that made the first of the lost sessions. None: it is a call itself.
    source: Operation[Any] | None = None

    def __init__(self, life: Life, on_collected: Callable[[object], object] | None = None) -> None:
        self._life = weakref.ref(life, on_collected)
        self._notifier = Notifier()
        self.progress: Progress = Progress.NEW
        #: The application has ended the operation: by `disconnect()`, an interrupt, or another call that connects.
        self.abandoned: bool = False
        #: The session that the operation made last, live or not.
        self.session: Session | None = None
        #: The attempt after a failed one or a loss, planned or running. None: nothing follows.
        self.pending: ReconnectingData | None = None

    @property
    def life(self) -> Life:
        """The client's life.

        Raises:
            DisconnectedError: The client was collected.
        """
        life = self._life()
        if life is None:
            raise was_disconnected()
        return life

    # -- the call: on its thread --------------------------------------------------------------------------------------

    def run(self) -> T:
        """Return the result of the work. The main thread only waits for it."""
        self.life.operations.append(self)  # first of all, because `disconnect()` must find it
        return shielded(self._run)

    def _run(self) -> T:
        self.progress, progress, life = Progress.RUNNING, Progress.FAILED, self.life
        try:
            for other in [*life.operations]:
                if other is not self and other.abandoned:
                    other.wait_over(Deadline(EndLimits.STOP))
            self.check_wanted()
            result = self._perform(life)
            progress = Progress.DONE
            return result
        finally:
            if progress is Progress.FAILED:
                life.release(self)
            self._leave(life, progress)

    def _perform(self, life: Life) -> T:
        """Do the work of the call."""
        raise NotImplementedError

    def _leave(self, life: Life | None, progress: Progress) -> None:
        if life is not None:
            with contextlib.suppress(ValueError):
                life.operations.remove(self)
        self.progress = progress
        self._notifier.notify_all()

    def cancel(self) -> None:
        """Undo the call, which raises. On its thread."""
        if self.progress is Progress.FAILED:
            return
        deadline = Deadline(EndLimits.TEARDOWN)
        self.abandon()
        if self.progress is Progress.NEW:  # if it starts nevertheless, it ends at once
            self._leave(self._life(), Progress.NEW)
            return
        self.wait_over(deadline)
        if self.progress is Progress.DONE:
            shielded(lambda: self._undo(deadline))

    def _undo(self, deadline: Deadline) -> None:
        """End the result of the completed work, until `deadline`."""
        raise NotImplementedError

    def check_wanted(self) -> None:
        """Raise `DisconnectedError` if the operation was abandoned."""
        if self.abandoned:
            raise was_disconnected()

    def pause(self, seconds: float) -> None:
        """Wait; raise `DisconnectedError` as soon as the operation is abandoned."""
        self._notifier.wait_for(lambda: self.abandoned, Deadline(seconds))
        self.check_wanted()

    # -- any thread, at any time --------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Let the call return soon, and let nothing follow."""
        self.abandoned = True
        self._notifier.notify_all()

    def abandon(self) -> None:
        """Let the call return soon, and end its session."""
        self.stop()
        session = self.session
        if session is not None:
            shielded(lambda: session.end(BY_CLIENT))

    def wait_over(self, deadline: Deadline) -> None:
        """Wait until the call, if it runs, has left all of its code."""
        if self.progress is Progress.RUNNING:
            self._notifier.wait_for(lambda: self.progress > Progress.RUNNING, deadline)

    # -- the end of its session: on the close thread -------------------------------------------------------------------

    def after(self, session: Session) -> bool:
        """Decide, once for each session, whether another one follows it. If so, let its operation hold the client.

        The operation that made a lost session decides on its replacement.
        """
        wanted = session.is_lost and self._wants_next(session)
        life = self._life()
        return life is not None and life.settle(session, self, wanted=wanted)

    def _wants_next(self, session: Session) -> bool:
        """Whether another session should follow a lost one. It may call code of the application."""
        raise NotImplementedError

    def next_after(self, life: Life, session: Session) -> Operation[Any]:
        """Return the operation that makes the session after `session`. Under the lock of `life`."""
        raise NotImplementedError

    def start(self) -> None:
        """Replace `lost`, which has ended completely. On its close thread."""
        raise NotImplementedError

    def join(self, deadline: Deadline) -> None:
        """Wait until the thread that `start()` has started has ended."""
        raise NotImplementedError

    def drained(self, session: Session) -> None:
        """Start the operation that follows `session`, which has ended completely."""
        life = self._life()
        if life is not None:
            life.session_drained(session)


def was_disconnected() -> DisconnectedError:
    """Return the error of an operation that `disconnect()` has abandoned."""
    return DisconnectedError("disconnect() was called while the bot was being started", initiator="client")
