"""An attempt to connect: its phases run on one thread, which the caller joins with one deadline."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import httpx

from ._version import __version__
from .concurrency.cancel import AbortController, AbortSignal
from .concurrency.deadline import Deadline, join_thread
from .concurrency.lifecycle import start_thread
from .errors import ConnectionTimeoutError, DisconnectedError, RTVIError, StartBotError, TransportStartError
from .messages import BotReadyData
from .options import APIRequest, RTVIClientParams
from .protocol.states import CloseInfo, TransportState
from .session import TEARDOWN_LIMIT, Session
from .transports.http import origin_of, post_json
from .transports.net import Network

logger = logging.getLogger(__name__)

# Without a limit, whoever waits is told this often, in seconds, what for.
_REMINDER_INTERVAL = 10.0
_LINGER_TIMEOUT = 0.1


class ConnectTimeout:
    """The time-out that a custom connect handler gets, as the interface has it.

    `clear()` ends the handler's own limit; the one of `connect()` runs on until the bot is ready, so there is nothing
    that the handler could leave hanging.
    """

    def __init__(self, deadline: Deadline) -> None:
        self._deadline: Deadline | None = deadline

    def clear(self) -> None:
        """The handler's request has settled."""
        self._deadline = None

    def remaining(self) -> float | None:
        """Seconds left; None without a limit, or after `clear()`."""
        return self._deadline.remaining() if self._deadline is not None else None


ConnectHandler = Callable[[RTVIClientParams, ConnectTimeout, AbortController], Any]


@attrs.frozen(kw_only=True)
class ConnectRequest:
    """Where the transport's parameters come from.

    Attributes:
        params: the client's, read when the request is made.
        given: parameters that the caller of `connect()` has already; then no request is made.
        start: a request that starts the bot instead of the default one.
        handler: the caller's own way to make the request.
        transport_name: for servers that start more than one kind.
        network: TLS and proxy.
        http_client: the caller's own, or None.
    """

    params: RTVIClientParams
    given: Any = attrs.field(default=None, repr=False)
    start: APIRequest | None = None
    handler: ConnectHandler | None = None
    transport_name: str = "custom"
    network: Network = attrs.field(factory=Network)
    http_client: httpx.Client | None = None

    @property
    def needed(self) -> bool:
        """True if a request, or the caller's handler, is to be called."""
        if self.given is not None:
            return False
        if self.start is not None or self.handler is not None:
            return True
        return bool(self.params.base_url) and self.params.endpoints.connect is not None

    def send(self, deadline: Deadline, abort: AbortController) -> Any:
        """Make the request and return what the transport is to be given.

        Raises:
            StartBotError: it failed.
            BaseException: the reason for which the attempt was abandoned.
        """
        if self.given is not None or not self.needed:
            return self.given
        if self.start is not None:
            return self._start(self.start, abort.signal)
        if self.handler is not None:
            return self._call_handler(self.handler, deadline, abort)
        return self._post(
            self.params.construct_url("connect"), self._default_body(), self.params.headers or {}, abort.signal
        )

    def _call_handler(self, handler: ConnectHandler, deadline: Deadline, abort: AbortController) -> Any:
        timeout = ConnectTimeout(deadline)
        abort.signal.on_abort(timeout.clear)
        try:
            bundle = handler(self.params, timeout, abort)
        except RTVIError:
            raise
        except Exception as error:
            abort.signal.raise_if_aborted()
            raise StartBotError(f"The custom connect handler raised {type(error).__name__}: {error}") from error
        abort.signal.raise_if_aborted()
        return bundle

    def _start(self, request: APIRequest, signal: AbortSignal) -> Any:
        base = self.params.base_url
        # Credentials for one server are not for another.
        trusted = base is not None and origin_of(base) == origin_of(request.endpoint)
        body: dict[str, Any] = {"transport": self.transport_name}
        body.update((self.params.request_data or {}) if trusted else {})
        body.update(request.request_data or {})
        headers = {**((self.params.headers or {}) if trusted else {}), **(request.headers or {})}
        return self._post(request.endpoint, body, headers, signal)

    def _default_body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"config": self.params.config_as_json()}
        if self.params.services:
            body["services"] = self.params.services
        return {**body, **(self.params.request_data or {}), "rtvi_client_version": __version__}

    def _post(self, url: str, body: Any, headers: Mapping[str, str], signal: AbortSignal) -> Any:
        return post_json(url, body, headers=headers, network=self.network, signal=signal, client=self.http_client)


class ConnectAttempt:
    """Brings a session from nothing to a ready bot, or to its end."""

    def __init__(self, session: Session, request: ConnectRequest, deadline: Deadline) -> None:
        self._session = session
        self._request = request
        self._deadline = deadline
        self._phase = "devices"
        self._result: BotReadyData | None = None
        self._error: BaseException | None = None

    def run(self) -> BotReadyData:
        """Connect. Blocks until the bot is ready.

        Raises:
            ConnectionTimeoutError: the deadline passed first.
            RTVIError: what else went wrong; the session has ended.
            KeyboardInterrupt: Ctrl-C; the attempt is abandoned.
        """
        try:
            thread = self._session.connect_thread = start_thread("connect", self._work)
            self._join(thread)
        except BaseException as error:
            self._abandon(error)
            raise
        if self._error is not None:
            self._abandon(self._error)
            raise self._error
        assert self._result is not None
        return self._result

    # -- on the caller's thread ---------------------------------------------------------------------------------------

    def _join(self, thread: threading.Thread) -> None:
        while not join_thread(thread, Deadline(self._deadline.sooner(_REMINDER_INTERVAL))):
            if self._deadline.expired:
                raise ConnectionTimeoutError(
                    f"The bot was not ready within {self._deadline.timeout:g} s; "
                    f"the time was spent on {_DOING[self._phase]}",
                    phase=self._phase,
                    elapsed=self._deadline.elapsed(),
                )
            if self._deadline.timeout is None:
                logger.warning(
                    "connect() has been waiting for %.0f s, now for %s; set connect_timeout for a limit",
                    self._deadline.elapsed(),
                    _DOING[self._phase],
                )

    def _abandon(self, error: BaseException) -> None:
        self._session.end(_end_by(error))
        self._session.wait_closed(Deadline(TEARDOWN_LIMIT))
        # Its threads end at once, unless a handler is at work; the caller's limit is not to be stretched for that.
        self._session.wait_finished(Deadline(_LINGER_TIMEOUT))

    # -- on the connect thread ----------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._result = self._steps()
        except BaseException as error:  # noqa: BLE001 - it is raised to the caller of connect()
            self._error = error
            self._session.end(_end_by(error))

    def _steps(self) -> BotReadyData:
        session, transport, signal = self._session, self._session.transport, self._session.abort.signal
        session.move(TransportState.INITIALIZING)
        session.initialize_transport()
        transport.init_devices()
        session.move(TransportState.INITIALIZED)
        if self._request.needed:
            self._phase = "http"
            session.move(TransportState.AUTHENTICATING)
        bundle = self._request.send(self._deadline, session.abort)
        signal.raise_if_aborted()
        self._phase = "transport"
        session.move(TransportState.CONNECTING)
        try:
            transport.connect(bundle, signal)
        except RTVIError:
            raise
        except Exception as error:
            signal.raise_if_aborted()
            raise TransportStartError(f"The {transport.name} transport failed to connect: {error}") from error
        signal.raise_if_aborted()
        self._phase = "bot-ready"
        session.opened()
        transport.send_ready_message()
        # The caller's join has the limit; whatever ends the session settles this wait.
        session.ready.wait(Deadline(None))
        return session.ready.result()


def start_bot(session_abort: AbortController, request: ConnectRequest, deadline: Deadline) -> Any:
    """Make only the request of an attempt, on a thread joined with `deadline`. Returns what was answered."""
    outcome: list[Any] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            outcome.append(request.send(deadline, session_abort))
        except BaseException as error:  # noqa: BLE001 - it is raised to the caller
            failure.append(error)

    thread = start_thread("connect", work)
    try:
        if not join_thread(thread, deadline):
            raise ConnectionTimeoutError(
                f"The server did not answer within {deadline.timeout:g} s", phase="http", elapsed=deadline.elapsed()
            )
    except BaseException as error:
        session_abort.abort(error)
        join_thread(thread, Deadline(0.1))
        raise
    if failure:
        raise failure[0]
    return outcome[0]


_DOING = {
    "devices": "opening the devices",
    "http": "the connect request",
    "transport": "opening the transport",
    "bot-ready": "waiting for the bot to be ready",
}


def _end_by(error: BaseException) -> CloseInfo:
    """How a session ends whose attempt raised `error`."""
    if isinstance(error, DisconnectedError):
        return CloseInfo(code=error.code, reason=error.reason, initiator=error.initiator, error=error)
    if isinstance(error, Exception):
        return CloseInfo(initiator="client", error=error)
    return CloseInfo(initiator="client")  # Ctrl-C: the caller's own wish, not a failure
