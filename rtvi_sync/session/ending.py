"""The end of a session: how it began, and everything that ends with it, once, in order, in bounded time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import attrs

from ..concurrency.abort import AbortController
from ..concurrency.deadline import Deadline
from ..concurrency.latch import Latch
from ..concurrency.lifecycle import NO_THREAD_PAUSE, is_exiting, log_stack_of
from ..concurrency.logs import package_logger
from ..concurrency.pool_task import PoolTask
from ..concurrency.runtime import Runtime
from ..errors import DisconnectedError, RTVIError, fresh_copy
from ..media.manager import MediaManager
from ..protocol.states import CloseInfo, TransportState
from ..transports.base import Transport
from . import limits
from .message_channel import MessageChannel
from .publisher import EventPublisher

logger: logging.Logger = package_logger(__name__)


@attrs.frozen(eq=False, repr=False, kw_only=True)
class SessionParts:
    """What a session is made of, and what ends with it.

    Attributes:
        transport: carries the session.
        media: of the client.
        publisher: publishes the session's states and events.
        runtime: the threads that the session shares with others.
        channel: sends and receives the session's messages.
        abort: abandons the attempt to connect.
    """

    transport: Transport
    media: MediaManager
    publisher: EventPublisher
    runtime: Runtime
    channel: MessageChannel
    abort: AbortController


class SessionEnd:
    """The one end of a session.

    Args:
        parts: of the session.
        replaces: called on the close thread, once; True if a session that ends so is to be replaced.
        on_closed: called on the close thread once the transport is closed, before another session can begin.
        on_drained: called on the close thread last, after the last event was delivered.
        is_followed: called on the close thread, once, if the bot was never ready: True if another attempt follows.
        keep_devices: called on the close thread instead of closing the devices, if that attempt is to have them; None:
            they are closed.
    """

    def __init__(
        self,
        parts: SessionParts,
        *,
        replaces: Callable[[CloseInfo], bool] | None,
        on_closed: Callable[[], object],
        on_drained: Callable[[], object],
        is_followed: Callable[[CloseInfo], bool] | None,
        keep_devices: Callable[[], object] | None,
    ) -> None:
        self._parts = parts
        self._replaces = replaces
        self._on_closed, self._on_drained = on_closed, on_drained
        self._is_followed = is_followed
        self._keep_devices = keep_devices
        # Guards `_info` and `_tearing_down`: the thread that sets one first does what follows from it. Any thread of
        # the package may hold it, for an assignment; re-entrant, because a finalizer may end the session during one.
        self._lock = threading.RLock()
        self._info: CloseInfo | None = None
        self._tearing_down = False
        self._task: PoolTask | None = None
        self._transport_deadline: Deadline | None = None
        #: The attempt to connect, on a thread of its own.
        self.connecting: PoolTask | None = None
        #: The transport was told of this session, and must be told of its end.
        self.closes_transport: bool = False
        #: The application has requested the bot to leave, so the end of the session is no loss.
        self.bot_dismissed: bool = False
        #: The session is to be replaced by a new one. Known once `closed` is set.
        self.is_replaced: bool = False
        #: The attempt to connect has ended: the bot is ready, or the session closed.
        self.connect_done: Latch = Latch()
        #: The state tells that the session ends, if it told of the session before.
        self.announced: Latch = Latch()
        #: The transport is closed, every waiting call has failed, and another session may begin.
        self.closed: Latch = Latch()
        #: The last event was delivered and the session's threads have ended, or the limit has passed.
        self.drained: Latch = Latch()

    @property
    def has_begun(self) -> bool:
        """Tell whether the session is ending, or has ended."""
        return self._info is not None

    @property
    def info(self) -> CloseInfo:
        """Return how the session ends, or has ended."""
        return self._info or CloseInfo()

    def explain(self, error: BaseException) -> None:
        """Let later errors name `error`, which the call of `connect()` raises, if it has ended with this session.

        The session's own error is that of one attempt, and the call's may tell of several.
        """
        with self._lock:
            info = self._info
            if info is not None and not info.by_application and not self._parts.publisher.was_ready:
                self._info = attrs.evolve(info, error=fresh_copy(error)) if isinstance(error, RTVIError) else info

    # -- beginning: any thread ----------------------------------------------------------------------------------------

    def begin(self, info: CloseInfo) -> None:
        """End the session, as `info` says if this is the first call. Does not wait."""
        self._begin(info)
        # Not only in the first call: Ctrl-C may have interrupted that one here.
        if self._task is not None or self._tearing_down:
            return
        task = PoolTask("close", lambda: self._tear_down(task))
        try:
            task.start()
            # Of two tasks that are started at once one does the work, and stores itself.
            self._task = self._task or task
        except RuntimeError:
            if is_exiting():
                self._tear_down(None, Deadline(limits.TEARDOWN_LIMIT))
            else:  # the system has no thread to give at the moment, and the calling one may be the I/O thread
                io = self._parts.runtime.io
                io.call(lambda: io.call_later(NO_THREAD_PAUSE, lambda: self.begin(info)))

    def begin_and_wait(self, info: CloseInfo, linger: float | None = None) -> None:
        """End the session and wait until it has ended, within the limit of `disconnect()`.

        Args:
            info: how it ends, if it is not ending already.
            linger: seconds to wait for handlers of the last events; None: the rest of the limit.
        """
        self.begin(info)
        deadline = Deadline(limits.TEARDOWN_LIMIT)
        if self.wait_closed(deadline):
            self.wait_drained(deadline if linger is None else Deadline(linger))

    def at_exit(self, deadline: Deadline) -> None:
        """End the session on this thread, before `deadline`: the interpreter exits."""
        self._begin(CloseInfo(initiator="client"))
        self._tear_down(None, deadline)
        self.drained.wait(deadline)

    def _begin(self, info: CloseInfo) -> None:
        with self._lock:
            if self._info is None:
                self._info = info or CloseInfo(initiator="network")  # a transport of the application may pass None
        # Before anything that takes time: no call may wait for an answer that cannot come. Not only in the first call,
        # which Ctrl-C may have interrupted here.
        self._parts.channel.close(self.info.as_error)
        self._parts.publisher.end()

    # -- waiting: any thread ------------------------------------------------------------------------------------------

    def wait_closed(self, deadline: Deadline) -> bool:
        """Wait until another session may begin; False, and a log entry, if `deadline` passed first."""
        if self._on_own_thread() or self.closed.wait(deadline):
            return True
        if self._task is not None:
            log_stack_of(self._task.threads, "A session is not closed in time")
        return False

    def wait_drained(self, deadline: Deadline) -> bool:
        """Wait until the last event was delivered and the threads have ended; False if `deadline` passed first.

        Inside a handler of the same client, or a function that its bot called, it does not wait: the last event follows
        when the handler returns.
        """
        if self._on_own_thread() or self._parts.publisher.in_handler or self._parts.channel.functions.is_current:
            return True
        return self.drained.wait(deadline) and (self._task is None or self._task.done.wait(deadline))

    def _on_own_thread(self) -> bool:
        """Tell whether the end of the session waits for the calling thread, which must not wait for the end."""
        own = self._parts.runtime.io, self._task, self.connecting
        return any(each is not None and each.is_current for each in own)

    def time_to_close(self) -> float:
        """Return how many seconds the transport, whose `disconnect()` has been called, may spend on sending."""
        deadline = self._transport_deadline or Deadline(limits.TEARDOWN_LIMIT)
        return limits.time_to_send(deadline.at_most(limits.TEARDOWN_LIMIT))

    # -- tearing down: on the close thread, or on the exiting one -----------------------------------------------------

    def _tear_down(self, task: PoolTask | None, exit_deadline: Deadline | None = None) -> None:
        """Do everything that ends with the session, in order. As a task, or, with a deadline, at exit."""
        with self._lock:
            if self._tearing_down:
                return
            self._tearing_down = True
        self._task = task or self._task
        parts, publisher = self._parts, self._parts.publisher
        limit = limits.TEARDOWN_LIMIT * limits.OWN_SHARE
        deadline = Deadline(limit if exit_deadline is None else exit_deadline.at_most(limit))
        unsent: DisconnectedError | None = None
        self._abandon_attempt()
        if exit_deadline is None and not publisher.was_ready:
            self._decide_on_replacement(self._is_followed)  # now, because it decides on the devices, too
        if publisher.was_opened:
            publisher.move(TransportState.DISCONNECTING)
            parts.transport.state = publisher.state
        self.announced.set()
        if self.closes_transport:
            unsent = self._close_transport_and_devices(deadline, at_exit=exit_deadline is not None)
        if exit_deadline is None and publisher.was_ready:
            self._decide_on_replacement(self._replaces)  # after the rest: the application's own rule may take its time
        info = attrs.evolve(self.info, reconnecting=self.is_replaced)
        delivered = publisher.finish(info, unsent)
        self._on_closed()
        self.closed.set()
        self.connect_done.set()
        if not publisher.manual:
            if exit_deadline is not None:
                # There may be no worker left that does. On a thread of its own, because a handler may block.
                timeout = deadline.at_most(limits.EXIT_DELIVERY_TIMEOUT)
                _run_apart(lambda: publisher.deliver_queued(delivered, timeout), deadline)
            self._await_delivery(delivered, deadline)
            self._await_functions(deadline)
        parts.runtime.release()
        self._on_drained()

    def _abandon_attempt(self) -> None:
        """Wake the connect thread from whatever blocks it, and give it a moment to end."""
        if not self._parts.publisher.was_ready:
            # With an error of its own: one that is raised on two threads mixes their tracebacks.
            error = self.info.as_error()
            _run_apart(lambda: self._parts.abort.abort(error), Deadline(limits.SETTLE_TIMEOUT))
        if self.connecting is not None and not self.connecting.is_current:
            self.connecting.done.wait(Deadline(limits.SETTLE_TIMEOUT))

    def _close_transport_and_devices(self, deadline: Deadline, *, at_exit: bool) -> DisconnectedError | None:
        """Close both, or leave the devices to the attempt that follows; return what `_close_transport()` returns."""
        media = self._parts.media
        # Devices that have sent or played something are this session's, and so is their end.
        if self._keep_devices is not None and self.is_replaced and not self._parts.publisher.was_opened:
            unsent = self._close_transport(deadline)
            self._keep_devices()
            return unsent
        media_deadline = Deadline(deadline.at_most(limits.TEARDOWN_LIMIT * limits.MEDIA_SHARE))
        # At exit all sessions share one limit, so a slow sink must not take the time of the others.
        sink_share = 0.0 if at_exit else limits.SINK_SHARE
        sink_deadline = Deadline(deadline.at_most(limits.TEARDOWN_LIMIT * sink_share))
        media.pause()
        unsent = self._close_transport(deadline)
        timeout = media_deadline.at_most(limits.FLUSH_TIMEOUT)
        threads = media.stop(timeout, max(timeout, sink_deadline.remaining() or 0.0))
        log_stack_of(threads, "A source, a sink or a device does not return")
        return unsent

    def _close_transport(self, deadline: Deadline) -> DisconnectedError | None:
        """Close the transport; return its error if messages could not be sent."""
        self._transport_deadline = Deadline(deadline.at_most(limits.TEARDOWN_LIMIT * limits.TRANSPORT_SHARE))
        transport = self._parts.transport
        unsent: list[DisconnectedError] = []

        def disconnect() -> None:
            try:
                transport.disconnect()
            except DisconnectedError as error:
                if self._parts.publisher.was_ready:  # before, the application had sent nothing
                    logger.warning("%s", error)
                unsent.append(fresh_copy(error))
            except BaseException:
                logger.exception("Closing the %s transport failed", transport.name)

        hanging = _run_apart(disconnect, self._transport_deadline)
        if hanging:
            late = f"The {transport.name} transport does not disconnect in time"
            log_stack_of(hanging, late)
            return DisconnectedError(f"{late}; what was sent last may be lost", initiator="client")
        return unsent[0] if unsent else None

    def _decide_on_replacement(self, follows: Callable[[CloseInfo], bool] | None) -> None:
        """Find out whether the session is to be replaced."""
        if follows is not None and not (self.info.by_application or self.bot_dismissed):
            self.is_replaced = follows(self.info)

    def _await_functions(self, deadline: Deadline) -> None:
        """Wait a little for functions that the bot called."""
        busy = self._parts.channel.functions.join(Deadline(deadline.at_most(limits.FUNCTIONS_TIMEOUT)))
        log_stack_of(
            busy, "A function that the bot called is still running though its session ended; its result is lost"
        )

    def _await_delivery(self, delivered: Latch, deadline: Deadline) -> None:
        """Wait until the last event was delivered."""
        publisher = self._parts.publisher
        if delivered.wait(deadline) or publisher.overtaken:
            return  # a handler of the last event runs the next session already, so it is not late
        publisher.silence()
        busy = publisher.busy_threads()
        log_stack_of(busy, "A handler is still running though its session ended; its events are dropped")


def _run_apart(work: Callable[[], object], deadline: Deadline) -> list[threading.Thread]:
    """Run `work()` on a thread of its own: if it hangs in the application's code, it must not hold up the end.

    Returns:
        The thread, if it is still running at `deadline`.
    """
    task = PoolTask("close", work)
    try:
        task.start()
    except RuntimeError:  # the interpreter is shutting down
        work()
        return []
    return [] if task.done.wait(deadline) else task.threads
