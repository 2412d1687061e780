"""One action without a session: an HTTP request whose answer goes through the same handlers as a session's messages."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType

from ..concurrency.abort import AbortController
from ..concurrency.clock import monotonic
from ..concurrency.deadline import Deadline, join_thread
from ..concurrency.future import Future
from ..concurrency.latch import Notifier
from ..concurrency.lifecycle import fork_generation, start_thread, system_failures_as
from ..concurrency.shield import shielded
from ..errors import (
    ActionEndpointNotSetError,
    DisconnectedError,
    ProtocolError,
    RequestTimeoutError,
    RTVIError,
    fresh_copy,
)
from ..messages import RTVIMessage
from ..net.advice import ACTION, origin_of
from ..net.dial import Network
from ..net.http import HTTPClient, post_stream
from ..net.urls import printable
from ..protocol import engine as protocol
from ..protocol import envelope
from .event_bus import EventPublisher
from .event_stream import forked_error
from .params import RTVIClientParams
from .session import EndLimits


class HTTPAction:
    """Sends one action, and reads the answer on a thread of its own. It reads each message when it is requested.

    A context manager: at the end of the block the request has ended or is abandoned. Use it on one thread; only
    `abandon()` may be called on any. A handler of the same client may use it, too. The events that it causes are then
    delivered afterwards.

    Args:
        message: The action.
        params: The parameters with the endpoint.
        engine: The engine of this action only.
        network: TLS and proxy.
        http_client: The application's HTTP client, or None.
        publishing: Called with this action, returns the publisher of its events as a context manager. The thread of the
            request enters and leaves it. In between, `disconnect()` may call `abandon()`, and a full queue calls
            `overflow()`.

    Raises:
        ActionEndpointNotSetError: `params` name no endpoint for actions.
        TypeError, ValueError: The action or the request data is not JSON.
    """

    def __init__(
        self,
        message: RTVIMessage,
        params: RTVIClientParams,
        *,
        engine: protocol.Engine,
        network: Network,
        http_client: HTTPClient | None,
        publishing: Callable[[HTTPAction], AbstractContextManager[EventPublisher]],
    ) -> None:
        if not params.base_url or params.endpoints.action is None:
            missing = "base_url" if not params.base_url else "endpoints.action"
            raise ActionEndpointNotSetError(
                "There is no session, and no endpoint for actions without one: call connect() first, or set "
                f"client.params.{missing}"
            )
        origin_of(params.base_url, ACTION)
        self._url = params.construct_url("action")
        data = params.request_data or {}
        given = {"params.request_data": data, "action": message.data}
        self._body = envelope.to_json({**data, "actions": [message.to_dict()]}, given)
        self._headers = dict(params.headers or {})
        self._message = message
        self._engine = engine
        self._network = network
        self._http_client = http_client
        self._publishing = publishing
        self._limit = _Limit()
        self._abort = AbortController(self._limit, _was_disconnected)
        self._generation = fork_generation()
        self._answer: Future[RTVIMessage] = Future()
        self._thread: threading.Thread | None = None
        # The thread of the request appends and the caller's thread pops, each in one step.
        self._received: deque[RTVIMessage] = deque()
        self._failures: deque[BaseException] = deque()
        self._asked = True
        self._over = False
        # Notified when a message has arrived, one is requested, or the request has ended.
        self._notifier = Notifier()
        self._abort.signal.on_abort(self._notifier.notify_all)

    def __enter__(self) -> HTTPAction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._over:
            shielded(self.abandon)
        self.join(Deadline(EndLimits.LINGER))

    # -- the caller's thread ------------------------------------------------------------------------------------------

    def result(self, deadline: Deadline) -> RTVIMessage:
        """Return the answer to the action, after the server's last message. By then its events are queued.

        Args:
            deadline: Limit of all messages together.

        Raises:
            RTVIError: As `next_before()`.
        """
        while self.next_before(deadline) is not None:
            pass
        return self._answer.result()

    @system_failures_as(partial(DisconnectedError, initiator="client"), "The action could not be sent")
    def next_before(self, deadline: Deadline) -> RTVIMessage | None:
        """Return the server's next message, or None after the last one. Its event has been queued.

        The first call makes the request.

        Args:
            deadline: Limit of this message.

        Raises:
            RequestTimeoutError: `deadline` passed first.
            RequestRejectedError: The server refused the request; or the bot the action, after the last message.
            DisconnectedError: The server cannot be reached, or broke the connection; or the application called
                `disconnect()`.
            ProtocolError: The server broke the protocol, or no message was the answer.
            InvalidTransportParamsError: A header or the proxy is not valid.
            RTVIError: The client is closed, or has a session now; or the queue of events is full.
            ForkedProcessError: The request is the parent's.
        """
        if self._generation != fork_generation():
            raise forked_error()
        self._limit.deadline = deadline
        self._asked = True
        if self._thread is None:
            self._thread = start_thread("action", self._work)
        self._notifier.notify_all()
        if not self._notifier.wait_for(self._has_news, deadline):
            raise RequestTimeoutError(
                f"{printable(self._url)} has not answered the action within {deadline.timeout:.3g} s. Pass a larger "
                "timeout if the bot needs longer, or see the server's log: it may have failed without an answer."
            )
        reason = self._abort.signal.reason
        if reason is not None:
            raise fresh_copy(reason)  # a copy, because the reason itself may be raised on another thread
        if self._received:
            return self._received.popleft()
        if self._failures:
            raise self._failures.pop()
        if self._answer.wait(Deadline(0)):
            self._answer.result()
            return None
        raise ProtocolError(
            f"{printable(self._url)} has ended its answer without a response to this action. See the server's log, and "
            "check that params.endpoints.action is the endpoint that takes actions without a session."
        )

    def _has_news(self) -> bool:
        return bool(self._received) or self._over or self._abort.signal.aborted

    # -- any thread ---------------------------------------------------------------------------------------------------

    def abandon(self, reason: RTVIError | None = None) -> None:
        """End the request soon. A call that waits raises `reason`. None: `disconnect()` was called."""
        self._abort.abort(reason)

    def join(self, deadline: Deadline) -> None:
        """Wait for the end of the request's thread. The request has ended or was abandoned."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():  # a finalizer may run on the thread itself
            join_thread(thread, deadline)

    def overflow(self) -> None:
        """Abandon the action: the queue of events is full."""
        self.abandon(
            RTVIError(
                "Events arrive faster than the application handles them, and the queue is full; the action is "
                "abandoned. Handle them faster, subscribe to fewer, or raise max_queued_events / max_queued_bytes."
            )
        )

    # -- the thread of the request ------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            with self._publishing(self) as publisher:
                # The request ends before the publisher, which waits for handlers: the caller may be in one.
                self._end(self._converse(publisher))
        except BaseException as error:  # noqa: BLE001 - it is raised to the caller
            self._end(error)

    def _end(self, failure: BaseException | None) -> None:
        if failure is not None:
            self._failures.append(failure)
        self._over = True
        self._notifier.notify_all()

    def _converse(self, publisher: EventPublisher) -> BaseException | None:
        """Make the request and perform the effects of each message; return the error, if there was one."""
        try:
            self._engine.outbound(self._message, self._answer)
            for text in post_stream(
                self._url,
                self._body,
                headers=self._headers,
                network=self._network,
                signal=self._abort.signal,
                client=self._http_client,
            ):
                self._receive(text, publisher)
        except BaseException as error:  # noqa: BLE001 - it is raised to the caller
            return error
        return None

    def _receive(self, text: bytes, publisher: EventPublisher) -> None:
        try:
            message = envelope.decode(text)
        except envelope.ForeignMessageError:
            return
        except envelope.LimitError:
            for effect in self._engine.receive(text):  # a warning, and the failure of the action that it may answer
                publisher.perform(effect)
            return
        except ProtocolError as error:
            raise ProtocolError(
                f"{printable(self._url)} did not answer with RTVI messages: {error}. "
                "Check that params.endpoints.action is the endpoint that takes actions without a session."
            ) from None
        size = envelope.estimated_size(text)
        for effect in self._engine.receive(message):
            if isinstance(effect, protocol.Close):
                raise effect.error
            if isinstance(effect, protocol.Deliver):
                item = publisher.item_of(effect, message, monotonic(), size)
                if item is not None:
                    publisher.enqueue([item], size)
            else:
                publisher.perform(effect)
        self._put(message)

    def _put(self, message: RTVIMessage) -> None:
        """Pass `message` to the caller, and continue to read when the next one is requested. So a server cannot fill
        the memory.
        """
        self._asked = False
        self._received.append(message)
        self._notifier.notify_all()
        signal = self._abort.signal
        self._notifier.wait_for(lambda: self._asked or signal.aborted, Deadline(None))
        signal.raise_if_aborted()


class _Limit(Deadline):
    """The limit of a request: the limit of the message that is being requested."""

    __slots__ = ("deadline",)

    def __init__(self) -> None:
        super().__init__(None)
        self.deadline = Deadline(None)

    def remaining(self) -> float | None:
        return self.deadline.remaining()

    @property
    def expired(self) -> bool:
        return self.deadline.expired


def _was_disconnected() -> DisconnectedError:
    return DisconnectedError("disconnect() was called while an action was under way", initiator="client")
