"""A TCP proxy that injects faults of networks and servers at moments that a test chooses."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final
from urllib.parse import urlsplit

from rtvi_sync.concurrency.lifecycle import start_thread, what_to_do
from rtvi_sync.concurrency.logs import package_logger
from rtvi_sync.concurrency.timer_thread import LONGEST_WAIT
from rtvi_sync.net.urls import authority
from rtvi_sync.protocol.validation import NAME, URL, WAIT, Rule, integer
from rtvi_sync.testing.fault_injection.fault_connection import Injection, InjectionPlan, ProxyConnection, TargetAddress
from rtvi_sync.testing.faults import ConnectionFault, Direction

from ...concurrency.clock import monotonic

logger: logging.Logger = package_logger(__name__)

# On Linux, a listening socket can stop and start listening and keep its port. Elsewhere, it must be closed.
_CAN_PAUSE: Final = sys.platform == "linux"
_BACKLOG: Final = 128
# Seconds between two attempts to accept a connection while the process has no free descriptor.
_PAUSE = 0.1
_DEFAULT_PORTS: Final = {"http": 80, "ws": 80, "https": 443, "wss": 443}


def _reusable_socket(family: socket.AddressFamily) -> socket.socket:
    made = socket.socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return made


def _is_url_of_server(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and (parts.port is not None or parts.scheme in _DEFAULT_PORTS)
    except ValueError:
        return False


_SERVER = Rule("the URL (a str) of a server", URL.has_type, _is_url_of_server)


class FaultProxy:
    """A proxy that forwards TCP connections to a server and injects faults, on one thread of this process.

    It works on the bytes of the wire: TLS passes through unchanged, and breaks as in a network. Use it as a context
    manager, or call `start()` and `stop()`.

        with EmbeddedBot() as bot, FaultProxy.before(bot.ws_url) as proxy:
            client = RTVIClient(transport=WebSocketTransport(proxy.url(bot.ws_url)))
            client.connect()
            proxy.connections[-1].inject(faults.Reset(), "to_client")

    Args:
        target_host, target_port: Address of the server.
        host: Address to listen on; the port is any free one.

    Attributes:
        host: As given.
        port: The port, once started.
    """

    def __init__(self, target_host: str, target_port: int, *, host: str = "127.0.0.1") -> None:
        NAME.check(target_host=target_host, host=host)
        integer(1, 65535).check(target_port=target_port)
        self.host: Final = host
        self.port: int = 0
        self._target_host = target_host
        self._target_port = target_port
        # Guards the fields below and the state of the connections, and wakes threads that wait in `_apply()`. The
        # proxy's thread holds it except while it waits for sockets; other threads hold it briefly.
        self._changed = threading.Condition()
        self._iterations = 0
        self._plans: list[InjectionPlan] = []
        self._connections: list[ProxyConnection] = []
        self._live: list[ProxyConnection] = []
        self._port_socket: socket.socket | None = None
        self._listening = False
        self._should_listen = False  # applied in the thread's next iteration
        self._accepts_from: float | None = None  # no connection is accepted before this time, for lack of descriptors
        self._running = False
        self._stopping = False
        self._thread: threading.Thread | None = None

    @classmethod
    def before(cls, url: str, *, host: str = "127.0.0.1") -> FaultProxy:
        """Make a proxy for the server of a URL."""
        _SERVER.check(url=url)
        parts = urlsplit(url)
        return cls(parts.hostname or "", parts.port or _DEFAULT_PORTS[parts.scheme], host=host)

    def url(self, url: str) -> str:
        """Return `url` with the proxy's host and port in place of the server's."""
        URL.check(url=url)
        return urlsplit(url)._replace(netloc=authority(self.host, self.port)).geturl()

    @property
    def connections(self) -> list[ProxyConnection]:
        """The connections so far, oldest first, including ended ones."""
        with self._changed:
            return list(self._connections)

    def inject(
        self,
        fault: ConnectionFault,
        direction: Direction | None = None,
        *,
        after_bytes: int = 0,
        counted_in: Direction | None = None,
    ) -> Injection:
        """Inject a fault into each later connection. For an existing one, use its own `inject()`.

        Args:
            fault: Fault from `rtvi_sync.testing.faults`. The latest fault of each kind applies.
            direction: "to_client" or "to_server"; None for both, each by its own count of bytes.
            after_bytes: Exact number of bytes that pass unchanged. With 0, the fault takes effect when the connection
                opens.
            counted_in: Direction in which they are counted; None for the fault's own direction.

        Returns:
            The injection, which reports whether the fault has taken effect, and can lift it.
        """
        plan = InjectionPlan.from_arguments(fault, direction, after_bytes, counted_in, self._apply)
        with self._changed:
            self._plans.append(plan)
        return plan.injection

    def refuse(self) -> None:
        """Refuse new connections, like a server that is down. Existing connections stay open."""

        def close() -> None:
            self._should_listen = False

        self._apply(close)

    def accept(self) -> None:
        """Accept new connections again after `refuse()`, on the same port.

        Raises:
            OSError: Another process has taken the port. This cannot happen on Linux, where the proxy keeps it.
        """

        def listen() -> None:
            if self._running and not self._should_listen:
                self._listen()

        self._apply(listen)

    def start(self) -> FaultProxy:
        """Start listening, and return this object.

        Raises:
            OSError: The host is not an address of this machine, or the target's name is unknown.
            RuntimeError: The proxy is already running.
        """
        if self._running:
            raise RuntimeError("The proxy is already running. Call stop() before start()")
        found = socket.getaddrinfo(self._target_host, self._target_port, type=socket.SOCK_STREAM)
        self._targets = [TargetAddress(family, address) for family, _, _, _, address in found]
        self._listen()
        self._wake_reader, self._wake_writer = socket.socketpair()
        for end in (self._wake_reader, self._wake_writer):
            end.setblocking(False)
        self._running, self._stopping = True, False
        # Created here, not on the thread, so that all descriptors are open when start() returns.
        self._thread = start_thread("bot-proxy", self._run, selectors.DefaultSelector())
        return self

    def stop(self, timeout: float = 5.0) -> None:
        """Close the port and all connections, and end the thread. Idempotent, and harmless before `start()`."""
        WAIT.check(timeout=timeout)
        thread, self._thread = self._thread, None
        if thread is None:
            return
        with self._changed:
            self._stopping = True
            self._wake()
        thread.join(timeout)
        if thread.is_alive():
            logger.warning("The proxy's thread still runs after %.1f s: %s", timeout, thread.name)

    def __enter__(self) -> FaultProxy:
        return self.start()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _listen(self) -> None:
        """Accept connections from the next iteration on. The first call binds the port."""
        if self._port_socket is None:
            self._port_socket = self._bind()
            self._port_socket.setblocking(False)
            self.port = self._port_socket.getsockname()[1]
        self._port_socket.listen(_BACKLOG)
        self._should_listen = True

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        if not _CAN_PAUSE:
            return socket.create_server((self.host, self.port), family=family, backlog=_BACKLOG)
        with contextlib.ExitStack() as undo:
            bound = undo.enter_context(_reusable_socket(family))
            # Linux keeps a port for a socket that doesn't listen only if the socket was bound by number. So a first
            # socket gets a free port and holds it until the second is bound to that number: two sockets that don't
            # listen may share a port.
            with _reusable_socket(family) as first:
                first.bind((self.host, self.port))
                bound.bind(first.getsockname()[:2])
            undo.pop_all()
        return bound

    def _stop_listening(self) -> None:
        assert self._port_socket is not None
        if _CAN_PAUSE:
            self._port_socket.shutdown(socket.SHUT_RDWR)
        else:
            self._port_socket.close()
            self._port_socket = None

    def _apply(self, change: Callable[[], object]) -> None:
        """Make a change, and block until the proxy's thread has acted on it."""
        with self._changed:
            change()
            iteration = self._iterations
            self._wake()
            self._changed.wait_for(lambda: self._iterations > iteration or not self._running)

    def _wake(self) -> None:
        if self._running:
            # If the pipe is full, the thread is already about to wake.
            with contextlib.suppress(BlockingIOError):
                self._wake_writer.send(b"\0")

    # -- on the proxy's thread ----------------------------------------------------------------------------------------

    def _run(self, selector: selectors.BaseSelector) -> None:
        due: float | None = None
        with selector:
            selector.register(self._wake_reader, selectors.EVENT_READ)
            try:
                while True:
                    with self._changed:
                        if self._stopping:
                            return
                        due = self._run_once(selector)
                        self._iterations += 1
                        self._changed.notify_all()
                    selector.select(None if due is None else min(max(0.0, due - monotonic()), LONGEST_WAIT))
            finally:
                with self._changed:
                    self._running = False
                    self._changed.notify_all()
                    self._close_everything()

    def _run_once(self, selector: selectors.BaseSelector) -> float | None:
        """Run one iteration. Return the time of the next; None to run it when a socket is ready."""
        with contextlib.suppress(BlockingIOError):
            self._wake_reader.recv(4096)
        if self._listening != self._should_listen:
            assert self._port_socket is not None
            if self._should_listen:
                selector.register(self._port_socket, selectors.EVENT_READ)
            else:
                if self._accepts_from is None:
                    selector.unregister(self._port_socket)
                self._accepts_from = None
                self._stop_listening()
            self._listening = self._should_listen
        now = monotonic()
        if self._listening and (self._accepts_from is None or self._accepts_from <= now):
            self._accept_waiting(selector, now)
        times = [connection.transfer(now) for connection in self._live]
        self._live = [connection for connection in self._live if not connection.ended]
        return min((due for due in (*times, self._accepts_from) if due is not None), default=None)

    def _accept_waiting(self, selector: selectors.BaseSelector, now: float) -> None:
        """Accept the waiting connections. Without a free descriptor they keep waiting. If the last one is taken, so
        that none is left for the server, the connection is closed.
        """
        assert self._port_socket is not None
        lacked_descriptors, self._accepts_from = self._accepts_from is not None, None
        while True:
            try:
                client, _ = self._port_socket.accept()
            except OSError as error:
                if advice := what_to_do(error):
                    if not lacked_descriptors:
                        logger.warning("The proxy cannot accept a connection, which waits: %s. %s", error, advice)
                        selector.unregister(self._port_socket)  # otherwise it would wake the thread again at once
                    self._accepts_from = now + _PAUSE
                elif lacked_descriptors:
                    selector.register(self._port_socket, selectors.EVENT_READ)
                return
            try:
                connection = ProxyConnection(client, self._targets, selector, self._apply)
            except OSError as error:  # no descriptor is left
                logger.warning("The proxy cannot connect to the server: %s", error)
                client.close()
                continue
            self._connections.append(connection)
            self._live.append(connection)
            for plan in self._plans:
                connection.apply_plan(plan)

    def _close_everything(self) -> None:
        for connection in self._live:
            connection.close()
        for sock in (self._port_socket, self._wake_reader, self._wake_writer):
            if sock is not None:
                sock.close()
        self._live, self._port_socket, self._listening, self._should_listen = [], None, False, False
        self._accepts_from = None
