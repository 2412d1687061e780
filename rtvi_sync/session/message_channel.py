"""The messages of one session, in both directions."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from ..concurrency.abort import AbortController, AbortSignal
from ..concurrency.clock import monotonic
from ..concurrency.deadline import Deadline
from ..concurrency.future import Future
from ..concurrency.logs import package_logger
from ..concurrency.worker_pool import WorkerPool
from ..errors import (
    DisconnectedError,
    ProtocolError,
    RequestRejectedError,
    RequestTimeoutError,
    UnsupportedFeatureError,
)
from ..messages import RTVIMessage
from ..protocol import engine as protocol
from ..protocol import envelope
from ..protocol.engine import about_this_client
from ..transports.base import Inbound, Transport
from .first_messages import SAYING, FirstMessages, Follower
from .function_calls import CALL_EVENTS, FunctionCalls
from .publisher import EventPublisher

logger: logging.Logger = package_logger(__name__)

# A further cause of a bot's silence.
_SILENCE = {
    # Seen: Pipecat 0.0.73 and 0.0.108.
    "action": " If the action has failed, see the bot's log, and reconnect: the bot may answer no further one.",
    "client-message": " A bot of Pipecat answers only what a handler of its program answers (docs/messages.md).",
}


class MessageChannel:
    """Sends messages and requests, and turns the bot's messages into answers, events and function calls.

    Args:
        transport: carries the messages.
        publisher: publishes the events.
        workers: the threads that run the application's functions.
        check_ready: raises unless messages can be sent.
        perform: called with each effect that concerns the session itself, on the thread that delivers messages.
    """

    def __init__(
        self,
        transport: Transport,
        publisher: EventPublisher,
        workers: WorkerPool,
        *,
        check_ready: Callable[[], object],
        perform: Callable[[protocol.Ready | protocol.Close | protocol.Interrupt], object],
    ) -> None:
        self._transport = transport
        self._publisher = publisher
        self._check_ready = check_ready
        self._perform = perform
        self.engine: protocol.Engine = protocol.Engine(about_this_client())
        self.functions: FunctionCalls = FunctionCalls(publisher, workers, self.send)
        #: Keeps the first messages of the session, in case that its conversation is followed later. None: no more.
        self.first_messages: FirstMessages | None = None
        #: Is told of what is sent, if the conversation is followed.
        self.follower: Follower | None = None
        # Held so that the follower is told of what is said in the order of the wire. Re-entrant, because finalizers and
        # signal handlers may send.
        self._order = threading.RLock()
        # Makes the error of a call that the end of the session has overtaken; None: it goes on. Set by any thread, in
        # one step.
        self._make_error: Callable[[], BaseException] | None = None
        self._waiting: list[AbortController] = []  # each use is one step
        # By thread: each counts its own messages, so that no sending thread holds a lock.
        self._sent: defaultdict[int, int] = defaultdict(int)
        # These two belong to the thread that delivers messages: one at a time.
        self.messages_received: int = 0
        self._last_moment = -math.inf

    @property
    def messages_sent(self) -> int:
        """Return how many messages were sent."""
        return sum(self._sent.copy().values())

    # -- sending: any thread ------------------------------------------------------------------------------------------

    def send(self, message: RTVIMessage) -> None:
        """Send `message`. Does not block."""
        self._check_ready()
        self.engine.outbound(message)
        self._transmit(message)

    def _transmit(self, message: RTVIMessage) -> None:
        """Send a message that was checked."""
        with self._order if message.type in SAYING else contextlib.nullcontext():
            first = self.first_messages  # read first, because a conversation sets the follower and then takes them over
            follower = self.follower or first
            if follower is not None:
                follower.sent(message)  # before the bot can answer it
            try:
                self._transport.send_message(message)
            except BaseException as error:
                if follower is not None:
                    follower.unsent(message)
                # The transport, which is closed, knows less of the end than the session.
                if isinstance(error, DisconnectedError) and self._make_error is not None:
                    raise self._make_error() from None
                raise
        self._sent[threading.get_ident()] += 1

    def request(self, message: RTVIMessage, deadline: Deadline) -> RTVIMessage:
        """Send `message` and wait for the answer with its id.

        Raises:
            RequestTimeoutError, RequestRejectedError, DisconnectedError, UnsupportedFeatureError, ProtocolError
        """
        self._check_ready()
        answer: Future[RTVIMessage] = Future()
        try:
            self.engine.outbound(message, answer)
            self._transmit(message)
            if not answer.wait(deadline):
                raise RequestTimeoutError(
                    f"The bot has not answered the {_named(message)} request within {deadline.timeout:.3g} s; the "
                    f"session goes on. Pass a larger timeout if the bot needs longer.{_SILENCE.get(message.type, '')}"
                )
            return answer.result()
        finally:
            if message.id is not None:
                self.engine.pending.abandon(message.id, answer)

    def fetch_config(self, deadline: Deadline) -> None:
        """Request a config that the bot has by its version and has not sent. A failure does not end the session.

        Raises:
            BotNotReadyError, DisconnectedError: the session ended.
        """
        if not self.engine.wants_config:
            return
        try:
            self.request(self.engine.config_request, deadline)
        except (RequestRejectedError, UnsupportedFeatureError) as error:
            logger.debug("The bot has no config: %s", error)
        except (RequestTimeoutError, ProtocolError) as error:
            logger.warning("client.config stays None: %s", error)

    @contextlib.contextmanager
    def waiting(self, deadline: Deadline) -> Iterator[AbortSignal]:
        """Yield the signal of a request beside the session, which is aborted when the session ends."""
        controller = AbortController(deadline, lambda: DisconnectedError("The session has ended", initiator="client"))
        controller.signal.is_supervised = False
        self._waiting.append(controller)
        try:
            self._check_ready()  # it may have ended meanwhile
            yield controller.signal
        finally:
            self._waiting.remove(controller)

    def close(self, make_error: Callable[[], BaseException]) -> None:
        """Receive nothing more, and fail all calls that wait or send, each with an error of its own. Any thread."""
        self._make_error = make_error
        self.engine.pending.fail_all(make_error)
        for controller in [*self._waiting]:
            controller.abort(make_error())

    # -- receiving: one thread at a time ------------------------------------------------------------------------------

    def receive(self, message: Inbound) -> None:
        """Receive one message."""
        self.receive_all((message,))

    def receive_all(self, messages: Iterable[Inbound]) -> None:
        """Receive messages that arrived together.

        Their events are queued together, but before anything that must come after them: an answer, a state, an
        interruption, a function call.
        """
        receive, publisher = self.engine.receive, self._publisher
        try:
            for message in messages:
                if self._make_error is not None:
                    break
                self.messages_received += 1
                # Most messages are `str`, and comparing the type takes half as long as `isinstance()`.
                text = message if type(message) is str or isinstance(message, (str, bytes)) else None
                size = envelope.estimated_size(text) if text is not None else 0
                for effect in receive(message):
                    if type(effect) is protocol.Deliver:
                        # Each has a time of its own: applications compare them to find out what came first.
                        received_at = monotonic()
                        if received_at <= self._last_moment:
                            received_at = math.nextafter(self._last_moment, math.inf)
                        self._last_moment = received_at
                        if (first := self.first_messages) is not None and first.keeps:
                            first.received(effect, received_at, size)
                        publisher.collect(effect, text or effect.message, received_at, size)
                        if effect.event in CALL_EVENTS:
                            publisher.flush()
                            self.functions.called(effect, size)
                    else:
                        publisher.flush()
                        if isinstance(effect, (protocol.Ready, protocol.Close, protocol.Interrupt)):
                            self._perform(effect)
                        else:
                            publisher.perform(effect)
        finally:
            publisher.flush()


def _named(message: RTVIMessage) -> str:
    """Return the type of a request, and the application's own name for it."""
    name = message.data.get("t") if message.type == "client-message" and isinstance(message.data, dict) else None
    return repr(message.type) if name is None else f"{message.type!r} {name!r:.100}"
