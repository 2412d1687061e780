"""The requests of a client without a session: to start a bot, or for a single action."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import attrs

from ..concurrency.abort import AbortController
from ..concurrency.deadline import Deadline
from ..concurrency.lifecycle import NoThreadError, system_failures_as
from ..concurrency.logs import package_logger
from ..concurrency.runtime import acquire_runtime
from ..errors import BotAlreadyStartedError, DisconnectedError, RTVIError, StartBotError
from ..events import RTVIEvent
from ..messages import RTVIMessage
from ..net.dial import Network
from ..protocol.engine import Engine, about_this_client
from ..protocol.states import TransportState
from ..session.attempt import on_a_thread, was_disconnected
from ..session.connect_request import BotStartedData, Bundle, ConnectRequest
from ..session.event_bus import EventBus, EventPublisher
from ..session.params import RTVIClientParams
from ..session.session import EndLimits
from .connect_call import Operation

if TYPE_CHECKING:
    from ..net.http import HTTPClient
    from ..session.http_action import HTTPAction

logger: logging.Logger = package_logger(__name__)


class BotStart(Operation[Any]):
    """One call of `start_bot()`.

    Args:
        under_way: as of `Operation`.
        request: starts the bot.
        deadline: limit of the call.
        start: does what the call is for.
        forget: forgets the bot that was started; it gets the server's answer.
    """

    def __init__(
        self,
        under_way: list[Operation[Any]],
        request: ConnectRequest,
        deadline: Deadline,
        *,
        start: Callable[[BotStart], Any],
        forget: Callable[[Bundle], object],
    ) -> None:
        super().__init__(under_way)
        self._request = request
        self._start = start
        self._forget = forget
        self._abort: AbortController | None = None
        self.deadline: Deadline = deadline
        #: The server's answer, once the bot was started.
        self.bundle: Bundle | None = None

    def _perform(self) -> Any:
        return self._start(self)

    def send(self) -> Bundle:
        """Make the request, on a thread of its own. Errors of `on_a_thread()` and `ConnectRequest.send()`."""
        # Not in the constructor, because the main thread must not hold the lock that this takes.
        abort = self._abort = AbortController(self.deadline, lambda: StartBotError("The request was aborted"))
        if self.stopped.is_set():  # before it was there to be aborted
            raise was_disconnected()
        bundle: Bundle = on_a_thread(lambda: self._request.send(self.deadline, abort), abort, self.deadline)
        return bundle

    def abandon(self) -> None:
        """Let `run()` return soon. Any thread, at any time."""
        super().abandon()
        abort = self._abort
        if abort is not None:
            abort.abort(was_disconnected())

    def _undo(self, deadline: Deadline) -> None:  # noqa: ARG002 - nothing is waited for
        if self.bundle is not None:
            self._forget(self.bundle)


class Sessionless:
    """Makes the requests that need no session, and queues the events that belong to none.

    Args:
        bus: The client's.
        idle: enters a block that holds the client's lock; raises if the client has a session.
        check_open: raises if the client was closed for good.
        network: TLS and proxy.
        http_client: the application's own, or None.
    """

    def __init__(
        self,
        bus: EventBus,
        *,
        idle: Callable[[], AbstractContextManager[None]],
        check_open: Callable[[], object],
        network: Network,
        http_client: HTTPClient | None,
    ) -> None:
        self._bus = bus
        self._idle = idle
        self._check_open = check_open
        self._network = network
        self._http_client = http_client
        self._start: BotStart | None = None  # the one that is under way; written under the client's lock
        self._actions: list[HTTPAction] = []
        #: The last result of `start_bot()`.
        self.started: Bundle | None = None

    # -- starting a bot -----------------------------------------------------------------------------------------------

    @system_failures_as(StartBotError, "The bot could not be started")
    def start_bot(self, start: BotStart, on_begin: Callable[[], object]) -> Any:
        """Make only the request that starts a bot. See `RTVIClient.start_bot()`.

        Args:
            start: the call.
            on_begin: called as soon as nothing else can begin any more.
        """
        with self._publisher(start=start) as publisher:
            on_begin()
            try:
                publisher.move(TransportState.AUTHENTICATING)
                bundle = start.send()
            except BaseException as error:
                by_application = isinstance(error, DisconnectedError) or not isinstance(error, Exception)
                publisher.move(TransportState.DISCONNECTED if by_application else TransportState.ERROR)
                raise
            publisher.move(TransportState.AUTHENTICATED)
            publisher.event(RTVIEvent.BOT_STARTED, BotStartedData(bundle.content))
            self.started = start.bundle = attrs.evolve(bundle, started=False)  # it has been published
            return bundle.content

    def check_no_start(self) -> None:
        """Raise if a bot is being started. Under the client's lock.

        Raises:
            BotAlreadyStartedError
        """
        if self._start is not None:
            raise BotAlreadyStartedError(
                "start_bot() is under way; wait until it returns, or call disconnect() to end it, before you connect "
                "or start another bot"
            )

    # -- actions and events -------------------------------------------------------------------------------------------

    def http_action(self, message: RTVIMessage, params: RTVIClientParams) -> HTTPAction:
        """Return the request for an action without a session. See `RTVIClient.action()`."""
        from ..session.http_action import HTTPAction  # imports HTTP, which most sessions do not need

        return HTTPAction(
            message,
            params,
            engine=Engine(about_this_client(), awaits_ready=False),
            network=self._network,
            http_client=self._http_client,
            publishing=self._publishing,
        )

    def publish(self, event: RTVIEvent, data: object) -> None:
        """Queue an event that belongs between two sessions; nothing if a session has begun meanwhile."""
        with contextlib.suppress(RTVIError, OSError), self._publisher() as publisher:
            publisher.event(event, data)

    def post(self, item: Callable[[], None]) -> None:
        """Queue what is to run after the events that are queued."""
        with contextlib.suppress(RTVIError, OSError):
            runtime = acquire_runtime()
            self._bus.queue.post(item, runtime.workers, force=True)
            runtime.release()

    @contextlib.contextmanager
    def _publishing(self, action: HTTPAction) -> Iterator[EventPublisher]:
        self._actions.append(action)
        try:
            with self._publisher(on_overflow=action.overflow) as publisher:
                yield publisher
        finally:
            with contextlib.suppress(ValueError):
                self._actions.remove(action)

    @contextlib.contextmanager
    def _publisher(
        self,
        *,
        start: BotStart | None = None,
        forgets_bot: bool = False,
        on_overflow: Callable[[], object] = lambda: None,
    ) -> Iterator[EventPublisher]:
        """Yield a publisher of events; for a `start`, and to forget its bot, also of states, which only one publisher
        may change.
        """
        takes_states = start is not None or forgets_bot
        runtime = acquire_runtime()
        try:
            with self._idle():
                if not forgets_bot:
                    self._check_open()
                if takes_states:
                    self.check_no_start()
                    self._start = start
                publisher = EventPublisher(
                    self._bus, runtime.workers, on_overflow=on_overflow, takes_states=takes_states
                )
            yield publisher
        finally:
            if start is not None and self._start is start:
                self._start = None
            runtime.release()

    # -- ending -------------------------------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """True if `disconnect()` has an action or a started bot to end here."""
        return bool(self._actions) or self._bus.state.value is TransportState.AUTHENTICATED

    def abandon_actions(self) -> list[HTTPAction]:
        """End the requests of actions, and return them."""
        actions = [*self._actions]
        for action in actions:
            action.abandon()
        return actions

    @staticmethod
    def join(actions: Iterable[HTTPAction]) -> None:
        """Wait a moment until the threads of `actions`, which were abandoned, have ended."""
        deadline = Deadline(EndLimits.LINGER)
        for action in actions:
            action.join(deadline)

    def forget(self, bundle: Bundle) -> None:
        """Undo a call of `start_bot()` whose server answered `bundle`, unless the application has begun another."""
        if self.started is bundle:
            self.started = None
            self.forget_bot()

    def forget_bot(self) -> None:
        """Leave the state `authenticated`: the bot that `start_bot()` has started is not connected to."""
        if self._bus.state.value is not TransportState.AUTHENTICATED:
            return
        try:
            with self._publisher(forgets_bot=True) as publisher:
                publisher.move(TransportState.DISCONNECTED)
        except BotAlreadyStartedError:
            pass  # another thread has begun a session or a bot since
        except (NoThreadError, OSError):
            logger.warning("No event tells that the state is `disconnected` now", exc_info=True)
            self._bus.state.value = TransportState.DISCONNECTED

    def after_fork_in_child(self) -> None:
        """Forget the requests, which are the parent's."""
        if self._start is not None:
            self._bus.state.value = TransportState.DISCONNECTED
        self._start = None
        self._actions.clear()
