"""The end of a session: everything that ends with it, once, in order, in bounded time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs

from .concurrency.deadline import Deadline
from .concurrency.gate import Gate
from .concurrency.job import Job
from .concurrency.lifecycle import log_stack_of, unregister_for_exit
from .protocol.states import TransportState
from .transports.base import Transport

if TYPE_CHECKING:
    from .session import Session

logger: logging.Logger = logging.getLogger(__name__)

# What `disconnect()` promises. The teardown itself gives up a little sooner, so that its result is still seen.
TEARDOWN_LIMIT = 5.0
_OWN_SHARE = 0.9
# A transport that does not come back leaves the rest of the limit to the handlers of the last events.
_TRANSPORT_SHARE = 0.8
# What was received and not played yet is played to the end, at most so long. A speaker beside busy threads has 0.6 s.
_FLUSH_TIMEOUT = 1.5
# A thread whose socket was shut down needs this long to find out, even on a busy machine; one that sits in a name
# look-up or in the caller's own code is left behind after it.
_SETTLE_TIMEOUT = 0.1
# The result of a function that the bot called has nowhere to go any more, so less is worth waiting for.
_FUNCTIONS_TIMEOUT = 1.0


def tear_down(session: Session, exit_deadline: Deadline | None) -> None:
    """End a session whose end has begun. On its close thread, or, with a deadline, at the exit of the interpreter."""
    announcer = session.announcer
    limit = TEARDOWN_LIMIT * _OWN_SHARE
    deadline = Deadline(limit if exit_deadline is None else exit_deadline.sooner(limit))
    _abandon_attempt(session)
    if session.was_opened:
        session.move(TransportState.DISCONNECTING)
    if session.initialized:
        session.media.pause()
        _close(session.transport, deadline)
        threads = session.media.stop(deadline.sooner(_FLUSH_TIMEOUT))
        log_stack_of(threads, "A source, a sink or a device does not return")
    if exit_deadline is None:
        session.ask_successor()  # the program's own rule may decide, and take its time
    delivered = announcer.finish(attrs.evolve(session.info, reconnecting=session.is_replaced))
    session.let_go_of_transport()
    session.closed.set()
    session.settled.set()
    if not announcer.manual:
        if exit_deadline is not None:
            announcer.deliver_queued(delivered, deadline.sooner(1.0))
        _await_delivery(session, delivered, deadline)
        _await_functions(session, deadline)
    session.hub.release()
    unregister_for_exit(session)
    session.finished.set()
    session.hand_over()


def _abandon_attempt(session: Session) -> None:
    """Wake the connect thread from whatever it waits for, and give it a moment to go."""
    if not session.announcer.was_ready:
        # With an error of its own: one that is raised on two threads mixes their tracebacks. On a thread of its own: it
        # calls functions of the program's, and one that hangs must not keep the end from coming.
        error = session.info.as_error()
        aborting = Job("close", session.abort.abort, error)
        try:
            aborting.start()
        except RuntimeError:  # the interpreter is shutting down
            session.abort.abort(error)
        else:
            aborting.done.wait(Deadline(_SETTLE_TIMEOUT))
    connecting = session.connecting
    if connecting is not None and not connecting.is_current:
        connecting.done.wait(Deadline(_SETTLE_TIMEOUT))


def _close(transport: Transport, deadline: Deadline) -> None:
    def disconnect() -> None:
        try:
            transport.disconnect()
        except BaseException:
            logger.exception("Closing the %s transport failed", transport.name)

    # On a thread of its own: a transport may be anybody's, and one that hangs must not keep the end from coming.
    closing = Job("close", disconnect)
    try:
        closing.start()
    except RuntimeError:  # the interpreter is shutting down
        disconnect()
        return
    if not closing.done.wait(Deadline(deadline.sooner(TEARDOWN_LIMIT * _TRANSPORT_SHARE))):
        log_stack_of(closing.threads, f"The {transport.name} transport does not disconnect in time")


def _await_functions(session: Session, deadline: Deadline) -> None:
    """Wait a little for functions that the bot called."""
    busy = session.functions.join(Deadline(deadline.sooner(_FUNCTIONS_TIMEOUT)))
    if busy:
        log_stack_of(
            busy, "A function that the bot called is still running though its session ended; its result is lost"
        )


def _await_delivery(session: Session, delivered: Gate, deadline: Deadline) -> None:
    """Wait until the last event was delivered."""
    announcer = session.announcer
    if delivered.wait(deadline) or announcer.overtaken:
        return  # a handler of the last event is at work on the next session already: that is not too long
    announcer.silence()
    busy = announcer.busy_threads()
    if busy:
        log_stack_of(busy, "A handler is still running though its session ended; its events are dropped")
