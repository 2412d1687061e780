"""One action without a session: a request over HTTP, whose answer goes through the same handlers as a session's."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Final

import httpx

from ..concurrency.cancel import AbortController
from ..concurrency.deadline import Deadline, join_thread
from ..concurrency.latch import Notifier
from ..concurrency.lifecycle import fork_generation, start_thread, system_failures_as
from ..concurrency.pending_requests import Pending
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
from ..protocol import engine as protocol
from ..protocol import envelope
from ..transports.http import ACTION, origin_of, post_stream
from ..transports.net import Network, printable
from .dispatcher import forked_error
from .effects import Effects
from .params import RTVIClientParams
from .publisher import EventPublisher

# What an answer that is over, or abandoned, leaves behind is gone at once, unless handlers of the program keep it.
_LINGER_TIMEOUT: Final = 0.1


class HTTPAction:
    """Sends one action and takes the answer in, on a thread of its own, one message each time one is asked for.

    A context manager: at the end of the block the request is over or abandoned. Use it on one thread; only `abandon()`
    may be called on any. A handler of the same client may use it, too: what it causes is delivered afterwards.

    Args:
        message: the action.
        params: where to send it.
        engine: of this turn alone.
        network: TLS and proxy.
        http_client: the caller's own, or None.
        announcing: called with this turn, for what queues its events; entered and left on the thread of the request.
            Meanwhile `disconnect()` may call `abandon()`, and a queue that is full calls `overflow()`.

    Raises:
        ActionEndpointNotSetError: `params` name no endpoint for actions.
        TypeError, ValueError: the action or the request data is not JSON.
    """

    def __init__(
        self,
        message: RTVIMessage,
        params: RTVIClientParams,
        *,
        engine: protocol.Engine,
        network: Network,
        http_client: httpx.Client | None,
        announcing: Callable[[HTTPAction], AbstractContextManager[EventPublisher]],
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
        self._announcing = announcing
        self._limit = _Limit()
        self._abort = AbortController(self._limit, _was_disconnected)
        self._generation = fork_generation()
        self._pending: Pending[RTVIMessage] = Pending()
        assert message.id is not None, "an action has an id, or its answer could not be told from others"
        self._answer = self._pending.register(message.id)
        self._thread: threading.Thread | None = None
        # The thread of the request appends and the caller's takes, each in one step.
        self._received: deque[RTVIMessage] = deque()
        self._failures: deque[BaseException] = deque()
        self._asked = True
        self._over = False
        # Rung when a message has come, one is asked for, or the request is over.
        self._notifier = Notifier()
        self._abort.signal.on_abort(self._notifier.notify_all)

    def __enter__(self) -> HTTPAction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._over:
            shielded(self.abandon)
        self.join()

    # -- the caller's thread ------------------------------------------------------------------------------------------

    def result(self, deadline: Deadline) -> RTVIMessage:
        """The answer to the action, once the server has said all; the events of it are queued by then.

        Args:
            deadline: limit of it all.

        Raises:
            RTVIError: as `next_before()`.
        """
        while self.next_before(deadline) is not None:
            pass
        return self._answer.result()

    @system_failures_as(partial(DisconnectedError, initiator="client"), "The action could not be sent")
    def next_before(self, deadline: Deadline) -> RTVIMessage | None:
        """The next message of the server's; None after the last one. Its event has been queued.

        The request is made when the first message is asked for.

        Args:
            deadline: limit of this message.

        Raises:
            RequestTimeoutError: `deadline` passed first.
            RequestRejectedError: the server refused the request; or the bot the action, after the last message.
            DisconnectedError: the server cannot be reached, or broke off; or the program called `disconnect()`.
            ProtocolError: the server sends what it should not; or the answer was not among its messages.
            InvalidTransportParamsError: a header or the proxy is not valid.
            RTVIError: the client is closed, or has a session now; or the queue of events is full.
            ForkedProcessError: the request is the parent's.
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
                "timeout if the bot needs longer, or see the server's log: it may have failed without a word."
            )
        reason = self._abort.signal.reason
        if reason is not None:
            raise fresh_copy(reason)  # on another thread the reason itself may be raised
        if self._received:
            return self._received.popleft()
        if self._failures:
            raise self._failures.pop()
        if self._answer.wait(Deadline(0)):
            self._answer.result()
            return None
        raise ProtocolError(
            f"{printable(self._url)} has ended its answer without a response to this action. See the server's log; is "
            "params.endpoints.action the endpoint that takes actions without a session?"
        )

    def _has_news(self) -> bool:
        return bool(self._received) or self._over or self._abort.signal.aborted

    # -- any thread ---------------------------------------------------------------------------------------------------

    def abandon(self, reason: RTVIError | None = None) -> None:
        """Have the request end soon; a call that waits raises `reason` (None: `disconnect()` was called)."""
        self._abort.abort(reason)

    def join(self) -> None:
        """Wait a moment until the thread of the request, which is over or abandoned, is gone."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():  # as a finalizer may be
            join_thread(thread, Deadline(_LINGER_TIMEOUT))

    def overflow(self) -> None:
        """The queue of events is full."""
        self.abandon(
            RTVIError(
                "Events come faster than the program handles them, and the queue is full; the action is abandoned. "
                "Handle them faster, subscribe to fewer, or raise max_queued_events / max_queued_bytes."
            )
        )

    # -- the thread of the request ------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            with self._announcing(self) as publisher:
                # Over before the publisher is: that waits for handlers, and the caller may be in one.
                self._end(self._converse(Effects(publisher, self._pending)))
        except BaseException as error:  # noqa: BLE001 - it is raised to the caller
            self._end(error)

    def _end(self, failure: BaseException | None) -> None:
        if failure is not None:
            self._failures.append(failure)
        self._over = True
        self._notifier.notify_all()

    def _converse(self, effects: Effects) -> BaseException | None:
        """Make the request and perform what follows from each message. Returns what went wrong."""
        try:
            self._engine.outbound(self._message)
            for text in post_stream(
                self._url,
                self._body,
                headers=self._headers,
                network=self._network,
                signal=self._abort.signal,
                client=self._http_client,
            ):
                self._take_in(text, effects)
        except BaseException as error:  # noqa: BLE001 - it is raised to the caller
            return error
        return None

    def _take_in(self, text: bytes, effects: Effects) -> None:
        try:
            message = envelope.decode(text)
        except envelope.ForeignMessageError:
            return
        except ProtocolError as error:
            raise ProtocolError(
                f"{printable(self._url)} did not answer with RTVI messages: {error}. "
                "Is params.endpoints.action the endpoint that takes actions without a session?"
            ) from None
        size = envelope.estimated_size(text)
        for effect in self._engine.receive(message):
            if isinstance(effect, protocol.Close):
                raise effect.error
            if isinstance(effect, protocol.Deliver):
                effects.deliver(effect, message, time.monotonic(), size)
                effects.flush()
            else:
                effects.perform(effect)
        self._hand_over(message)

    def _hand_over(self, message: RTVIMessage) -> None:
        """Give `message` to the caller, and read on when he asks for the next one: a server cannot fill the memory."""
        self._asked = False
        self._received.append(message)
        self._notifier.notify_all()
        signal = self._abort.signal
        self._notifier.wait_for(lambda: self._asked or signal.aborted, Deadline(None))
        signal.raise_if_aborted()


class _Limit(Deadline):
    """The limit of a request: the one of the message that is asked for now."""

    __slots__ = ("deadline",)

    def __init__(self) -> None:
        super().__init__(None)
        self.deadline = Deadline(None)

    def remaining(self) -> float | None:
        return self.deadline.remaining()


def _was_disconnected() -> DisconnectedError:
    return DisconnectedError("disconnect() was called while an action was under way", initiator="client")
