"""Peers on the loopback interface for tests: servers scripted by functions, and addresses that never answer."""

from __future__ import annotations

import contextlib
import functools
import socket
import ssl
import threading
import traceback
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import trustme

from tests.support.slowness import GUARD

if TYPE_CHECKING:
    from typing_extensions import Self


# Not at the first call: two threads may make that at once, and each would get one of its own.
_AUTHORITY = trustme.CA()


def authority() -> trustme.CA:
    """Return the certificate authority of the tests; one for the process."""
    return _AUTHORITY


def trusting() -> ssl.SSLContext:
    """Return a client's context that trusts `authority()` alone."""
    # With an authority given the machine's own are not loaded, which would take longer than most tests.
    context = ssl.create_default_context(cadata=authority().cert_pem.bytes().decode())
    context.load_default_certs = lambda *_: None  # type: ignore[method-assign]
    return context


@functools.cache
def serving(*names: str, ca: trustme.CA | None = None) -> ssl.SSLContext:
    """Return a server's context with a certificate for `names`, signed by `ca` (default: `authority()`)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (ca or authority()).issue_cert(*(names or ("localhost", "127.0.0.1", "::1"))).configure_cert(context)
    return context


class Peer:
    """One accepted connection, as its handler sees it. Reads and writes block, at most `GUARD` seconds."""

    def __init__(self, sock: socket.socket, server: Server) -> None:
        sock.settimeout(GUARD)
        self.sock = sock
        self.server = server
        self._read = b""

    def read_until(self, end: bytes) -> bytes:
        """Return everything up to and with `end`."""
        while end not in self._read:
            part = self.sock.recv(65536)
            if not part:
                raise ConnectionError(f"the client left after {self._read!r}")
            self._read += part
        found, _, self._read = self._read.partition(end)
        return found + end

    def read_head(self) -> str:
        """Return the head of an HTTP request."""
        return self.read_until(b"\r\n\r\n").decode("latin-1")

    def read(self, size: int) -> bytes:
        """Read exactly `size` bytes."""
        while len(self._read) < size:
            part = self.sock.recv(65536)
            if not part:
                raise ConnectionError(f"the client left after {len(self._read)} of {size} bytes")
            self._read += part
        found, self._read = self._read[:size], self._read[size:]
        return found

    def read_request(self) -> tuple[str, bytes]:
        """Return head and body of an HTTP request."""
        head = self.read_head()
        sizes = [line.partition(":")[2] for line in head.split("\r\n") if line.lower().startswith("content-length:")]
        return head, self.read(int(sizes[0]) if sizes else 0)

    def send(self, data: bytes) -> None:
        """Write all of it."""
        self.sock.sendall(data)

    def answer(self, status: str, body: bytes = b"", *headers: str) -> None:
        """Send an HTTP answer, after which the connection is closed."""
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]
        self.send("\r\n".join(lines).encode("latin-1") + body)

    def wait_for_end(self) -> bytes:
        """Read until the client closes the connection; return the bytes it still sent."""
        received = self._read
        with contextlib.suppress(ConnectionError):
            while part := self.sock.recv(65536):
                received += part
        return received

    def hold(self) -> None:
        """Do nothing until the server is stopped: a peer that returns before that was not freed by this peer."""
        assert self.server.stopping.wait(6 * GUARD)


class Server:
    """Serves each connection by `handler(peer)` on a thread of its own, until the `with` block ends.

    An error of a handler fails the test at the end of the block, unless it is a broken connection. A handler may set
    `reached`, to report its progress.
    """

    def __init__(
        self, handler: Callable[[Peer], object], *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
    ) -> None:
        self._handler = handler
        self._tls = tls
        self.host = host
        self.stopping = threading.Event()
        self.reached = threading.Event()
        self.connections = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._failures: list[str] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        self._listening = socket.create_server((self.host, 0), family=family)
        self.port: int = self._listening.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 1.0):
            pass  # where shutdown() does not wake accept()
        self._accepting.join(GUARD)
        self._listening.close()
        with self._lock:
            for sock in self._open:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(GUARD)
            assert not thread.is_alive(), "a handler of the test's server does not return"
        if error is None:
            assert not self._failures, "\n".join(self._failures)

    @property
    def authority(self) -> str:
        """host:port, as it stands in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def _accept(self) -> None:
        while not self.stopping.is_set():
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            if self.stopping.is_set():
                sock.close()
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(sock,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            if self._tls is not None:
                sock.settimeout(GUARD)
                sock = self._tls.wrap_socket(sock, server_side=True)
            with self._lock:
                self._open.add(sock)
            self._handler(Peer(sock, self))
        except (ConnectionError, ssl.SSLError):
            pass
        except BaseException:
            self._failures.append(traceback.format_exc())
        finally:
            with self._lock:
                self._open.discard(sock)
            sock.close()


@contextlib.contextmanager
def black_hole() -> Iterator[int]:
    """Yield a port of 127.0.0.1 that answers no SYN: its backlog is full, and no thread accepts."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(16):
            filler = stack.enter_context(socket.socket())
            filler.settimeout(0.2)
            try:
                filler.connect(listening.getsockname())
            except TimeoutError:
                yield listening.getsockname()[1]
                return
        raise AssertionError("this system takes connections that no thread accepts")


class Proxy(Server):
    """An HTTP proxy: CONNECT for whatever is tunnelled, absolute URLs for plain HTTP. Keeps the heads of requests."""

    def __init__(self, *, refuse: str | None = None) -> None:
        super().__init__(self._proxy)
        self._refuse = refuse
        self.heads: list[str] = []

    def _proxy(self, peer: Peer) -> None:
        head = peer.read_head()
        self.heads.append(head)
        if self._refuse is not None:
            peer.answer(self._refuse)
            return
        method, target, _ = head.split("\r\n", 1)[0].split(" ")
        authority, path = (target, "") if method == "CONNECT" else target.removeprefix("http://").split("/", 1)
        host, _, port = authority.rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), GUARD) as upstream:
            upstream.settimeout(GUARD)
            if method == "CONNECT":
                peer.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                upstream.sendall(f"{method} /{path} HTTP/1.1\r\n{head.partition(chr(10))[2]}".encode("latin-1"))
            back = threading.Thread(target=_pump, args=(upstream, peer.sock))
            back.start()
            upstream.sendall(peer._read)
            _pump(peer.sock, upstream)
            back.join(GUARD)


class Front(Server):
    """One port with a start endpoint and a bot's WebSocket, as Pipecat's runner has it.

    Args:
        bot_url: of the WebSocket behind it.
        answer: the start endpoint's answer, as JSON; `{port}` in it is replaced.
        headers: of that answer.
        tls, host: as in `Server`.
    """

    def __init__(
        self,
        bot_url: str,
        answer: str,
        *headers: str,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        super().__init__(self._serve_either, tls=tls, host=host)
        self._bot = urlsplit(bot_url)
        self.answer = answer
        self._headers = headers
        self.heads: list[str] = []  # of all requests

    @property
    def handshakes(self) -> list[str]:
        """Return the heads of the opening handshakes."""
        return [head for head in self.heads if head.startswith("GET ")]

    def _serve_either(self, peer: Peer) -> None:
        if self._tls is None and peer.sock.recv(1, socket.MSG_PEEK) == b"\x16":  # a TLS handshake
            self.heads.append("TLS")
            peer.answer("400 Bad Request")
            return
        head, _ = peer.read_request()
        self.heads.append(head)
        if head.startswith("POST "):
            peer.answer("200 OK", self.answer.replace("{port}", str(self.port)).encode(), *self._headers)
            return
        with socket.create_connection((self._bot.hostname or "", self._bot.port or 0), GUARD) as upstream:
            upstream.settimeout(GUARD)
            upstream.sendall(head.encode("latin-1"))
            back = threading.Thread(target=_pump, args=(upstream, peer.sock))
            back.start()
            upstream.sendall(peer._read)
            _pump(peer.sock, upstream)
            back.join(GUARD)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError):  # ValueError: another thread has ended TLS
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
