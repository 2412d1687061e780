"""The end of a session: everything that ends with it, once, in order, in bounded time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs

from ..concurrency.deadline import Deadline
from ..concurrency.latch import Latch
from ..concurrency.lifecycle import log_stack_of, unregister_for_exit
from ..concurrency.pool_task import PoolTask
from ..errors import DisconnectedError, anew
from ..protocol.states import TransportState
from ..transports.base import Transport

if TYPE_CHECKING:
    from .session import Session

logger: logging.Logger = logging.getLogger(__name__)

# What `disconnect()` promises. The teardown itself gives up a little sooner, so that its result is still seen.
TEARDOWN_LIMIT = 5.0
_OWN_SHARE = 0.9
# A transport that does not come back leaves the rest of the limit to the handlers of the last events.
_TRANSPORT_SHARE = 0.8
# The part of that in which a transport may send what waits; the rest is for closing.
_SENDING_SHARE = 0.9
# A speaker that has much to play leaves the rest of the limit to these handlers, too.
_MEDIA_SHARE = 0.85
# What was received and not played yet is played to the end, at most so long. A speaker beside busy threads has 0.6 s. A
# sink of the application that takes nothing for so long hangs.
_FLUSH_TIMEOUT = 1.5
# A sink that is slow and works goes on until this share of the limit is over. Handlers get the rest.
_SINK_SHARE = 0.6
# A thread whose socket was shut down needs this long to find out, even on a busy machine; one that sits in a name
# look-up or in the caller's own code is left behind after it.
_SETTLE_TIMEOUT = 0.1
# The result of a function that the bot called has nowhere to go any more, so less is worth waiting for.
_FUNCTIONS_TIMEOUT = 1.0


def tear_down(session: Session, exit_deadline: Deadline | None) -> None:
    """End a session whose end has begun. On its close thread, or, with a deadline, at the exit of the interpreter."""
    publisher = session.publisher
    limit = TEARDOWN_LIMIT * _OWN_SHARE
    deadline = Deadline(limit if exit_deadline is None else exit_deadline.at_most(limit))
    media_deadline = Deadline(deadline.at_most(TEARDOWN_LIMIT * _MEDIA_SHARE))
    # At exit all sessions share one limit, so a slow sink must not take the others' time.
    flush = Deadline(deadline.at_most(TEARDOWN_LIMIT * _SINK_SHARE)) if exit_deadline is None else Deadline(0.0)
    unsent: DisconnectedError | None = None
    _abandon_attempt(session)
    if session.was_opened:
        session.move(TransportState.DISCONNECTING)
    if session.initialized:
        session.media.pause()
        session.transport_deadline = Deadline(deadline.at_most(TEARDOWN_LIMIT * _TRANSPORT_SHARE))
        unsent = _close(session.transport, session.transport_deadline)
        timeout = media_deadline.at_most(_FLUSH_TIMEOUT)
        threads = session.media.stop(timeout, max(timeout, flush.remaining() or 0.0))
        log_stack_of(threads, "A source, a sink or a device does not return")
    if exit_deadline is None:
        session.ask_successor()  # the program's own rule may decide, and take its time
    info = attrs.evolve(session.info, reconnecting=session.is_replaced)
    if info.by_application and publisher.was_ready:
        info = attrs.evolve(info, error=unsent)  # only here: nothing that decides on another session may see it
    delivered = publisher.finish(info)
    session.release_transport()
    session.closed.set()
    session.connect_done.set()
    if not publisher.manual:
        if exit_deadline is not None:
            publisher.deliver_queued(delivered, deadline.at_most(1.0))
        _await_delivery(session, delivered, deadline)
        _await_functions(session, deadline)
    session.runtime.release()
    unregister_for_exit(session)
    session.drained.set()
    session.hand_over()


def _abandon_attempt(session: Session) -> None:
    """Wake the connect thread from whatever it waits for, and give it a moment to go."""
    if not session.publisher.was_ready:
        # With an error of its own: one that is raised on two threads mixes their tracebacks. On a thread of its own: it
        # calls functions of the program's, and one that hangs must not keep the end from coming.
        error = session.info.as_error()
        aborting = PoolTask("close", session.abort.abort, error)
        try:
            aborting.start()
        except RuntimeError:  # the interpreter is shutting down
            session.abort.abort(error)
        else:
            aborting.done.wait(Deadline(_SETTLE_TIMEOUT))
    connecting = session.connecting
    if connecting is not None and not connecting.is_current:
        connecting.done.wait(Deadline(_SETTLE_TIMEOUT))


def time_to_close(deadline: Deadline | None) -> float:
    """Return how many seconds a transport, whose `disconnect()` has the limit `deadline`, may spend on sending."""
    limit = TEARDOWN_LIMIT * _TRANSPORT_SHARE
    return _SENDING_SHARE * (limit if deadline is None else deadline.at_most(limit))


def _close(transport: Transport, deadline: Deadline) -> DisconnectedError | None:
    """Close the transport; returns its error if messages could not be sent."""
    unsent: list[DisconnectedError] = []

    def disconnect() -> None:
        try:
            transport.disconnect()
        except DisconnectedError as error:
            logger.warning("%s", error)
            unsent.append(anew(error))
        except BaseException:
            logger.exception("Closing the %s transport failed", transport.name)

    # On a thread of its own: a transport may be anybody's, and one that hangs must not keep the end from coming.
    job = PoolTask("close", disconnect)
    try:
        job.start()
    except RuntimeError:  # the interpreter is shutting down
        disconnect()
    else:
        if not job.done.wait(deadline):
            log_stack_of(job.threads, f"The {transport.name} transport does not disconnect in time")
    return unsent[0] if unsent else None


def _await_functions(session: Session, deadline: Deadline) -> None:
    """Wait a little for functions that the bot called."""
    busy = session.functions.join(Deadline(deadline.at_most(_FUNCTIONS_TIMEOUT)))
    if busy:
        log_stack_of(
            busy, "A function that the bot called is still running though its session ended; its result is lost"
        )


def _await_delivery(session: Session, delivered: Latch, deadline: Deadline) -> None:
    """Wait until the last event was delivered."""
    publisher = session.publisher
    if delivered.wait(deadline) or publisher.overtaken:
        return  # a handler of the last event is at work on the next session already: that is not too long
    publisher.silence()
    busy = publisher.busy_threads()
    if busy:
        log_stack_of(busy, "A handler is still running though its session ended; its events are dropped")
