"""One call of `start_bot()`: the request that starts a bot, without a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from ..concurrency.abort import AbortController
from ..concurrency.deadline import Deadline
from ..concurrency.future import Future
from ..concurrency.lifecycle import system_failures_as
from ..concurrency.pool_task import PoolTask
from ..errors import ConnectionTimeoutError, DisconnectedError, StartBotError
from ..events import RTVIEvent
from ..protocol.states import TransportState
from ..session.connect_request import BotStartedData, Bundle, ConnectRequest
from ..session.session import EndLimits
from .connect_steps import RAISE, time_was_spent, wait_for
from .operation import Operation, was_disconnected

if TYPE_CHECKING:
    from .life import Life


class StartBot(Operation[Any]):
    """One call of `start_bot()`.

    Args:
        life: As for `Operation`.
        request: The request that starts the bot.
        deadline: Limit of the call.
    """

    def __init__(self, life: Life, request: ConnectRequest, deadline: Deadline) -> None:
        super().__init__(life)
        self._request = request
        self._deadline = deadline
        self._abort: AbortController | None = None
        self._bundle: Bundle | None = None  # the server's answer, once the bot was started

    @system_failures_as(StartBotError, "The bot could not be started")
    def _perform(self, life: Life) -> Any:
        life.check_usable()
        before = life.last_session
        displaced = life.hold(self, self._deadline)
        try:
            with life.publisher(takes_states=True) as publisher:
                try:
                    publisher.move(TransportState.AUTHENTICATING)
                    bundle = self._send()
                except BaseException as error:
                    by_application = isinstance(error, DisconnectedError) or not isinstance(error, Exception)
                    publisher.move(TransportState.DISCONNECTED if by_application else TransportState.ERROR)
                    raise
                publisher.move(TransportState.AUTHENTICATED)
                publisher.event(RTVIEvent.BOT_STARTED, BotStartedData(bundle.content))
                life.started = self._bundle = attrs.evolve(bundle, started=False)  # it has been published
                return bundle.content
        except BaseException:
            if displaced is not None and before is not None:
                life.end_waiting_streams(before.close_info)
            raise
        finally:
            life.release(self)

    def _send(self) -> Bundle:
        """Make the request on a thread of its own, which can be left behind, and return the answer."""
        # Not in the constructor, because the main thread must not hold the lock that this acquires.
        deadline = self._deadline
        abort = self._abort = AbortController(deadline, lambda: StartBotError("The request was aborted"))
        self.check_wanted()  # the operation may have been abandoned before `abort` existed
        outcome: Future[Bundle] = Future()
        abort.signal.on_abort(lambda: outcome.reject(was_disconnected()))
        phase = "begin"

        def work() -> None:
            nonlocal phase
            phase = "http"
            try:
                outcome.resolve(self._request.send(deadline, abort))
            except BaseException as error:  # noqa: BLE001 - it is raised to the caller
                outcome.reject(error)

        task = PoolTask("connect", work)
        task.start()
        try:
            if not wait_for(outcome.wait, deadline, "start_bot()", lambda: "the server's answer"):
                raise ConnectionTimeoutError(
                    f"The server did not answer within {deadline.timeout:g} s; {time_was_spent(phase)}, or {RAISE}.",
                    phase=phase,
                    elapsed=deadline.elapsed(),
                )
        finally:
            aborted = not abort.abort(was_disconnected())  # no one needs the request any more
            task.done.wait(Deadline(EndLimits.LINGER))
        if aborted:
            # Not the abort's reason, because an error that is raised on two threads mixes their tracebacks.
            raise was_disconnected()
        return outcome.result()

    def abandon(self) -> None:
        """Let the call return soon. Any thread, at any time."""
        super().abandon()
        abort = self._abort
        if abort is not None:
            abort.abort(was_disconnected())

    def _undo(self, deadline: Deadline) -> None:  # noqa: ARG002 - it waits for nothing
        """Forget the bot, unless the application has started another one."""
        life = self._life()
        if life is not None and life.started is self._bundle:
            life.started = None
            life.forget_bot()
