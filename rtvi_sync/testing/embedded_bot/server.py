"""Servers of the embedded bot with one thread per connection: TCP, HTTP, and the bot's HTTP interface."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import selectors
import socket
import ssl
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import attrs

from rtvi_sync.concurrency.clock import monotonic
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.lifecycle import NoThreadError, start_thread, what_to_do
from rtvi_sync.concurrency.lock import new_lock
from rtvi_sync.concurrency.logs import package_logger
from rtvi_sync.net.tls import wrap_socket
from rtvi_sync.protocol.telephony import PROVIDERS
from rtvi_sync.testing.embedded_bot.messages import (
    BotVersion,
    InvalidMessageError,
    Message,
    Messenger,
    entries,
    field,
    invalid,
    message,
)
from rtvi_sync.testing.embedded_bot.options import BotOptions
from rtvi_sync.testing.embedded_bot.reply import LLMContext
from rtvi_sync.testing.embedded_bot.reply_script import written
from rtvi_sync.testing.embedded_bot.services import ActionRegistry, NeverAnsweredError, read_call

logger: logging.Logger = package_logger(__name__)

# -- TCP --------------------------------------------------------------------------------------------------------------

# Seconds between two checks whether another thread has closed a socket.
_SLICE = 0.5
# Seconds between two attempts to accept a connection while the process has no free descriptor.
_PAUSE = 0.1


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes any free one.

    Raises:
        OSError: The port is in use, or the host is not an address of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=128)


class TCPServer:
    """A server that runs from its construction to `stop()`, with one thread per connection.

    Args:
        listening: Listening socket, with or without TLS; closed at the end. `serve` does the TLS handshake, because a
            client that stalls it must not block the others.
        role: Role of the connection threads, for their names.
        serve: Function called with an accepted socket and its address. When it returns, the socket is closed.
    """

    def __init__(self, listening: socket.socket, role: str, serve: Callable[[socket.socket, Any], object]) -> None:
        listening.setblocking(False)
        if isinstance(listening, ssl.SSLSocket):  # the application's own connections work with this class, too
            listening.context.sslsocket_class = SharedTLSSocket
        self.port: Final[int] = listening.getsockname()[1]
        self._listening = listening
        self._role = role
        self._serve = serve
        self._wake_reader, self._wake_writer = socket.socketpair()
        # Created here, not on the thread, so that all descriptors are open when the constructor returns.
        self._selector = selectors.DefaultSelector()
        # Guards _open. Connection threads, the accepting thread and the stopping thread hold it briefly.
        self._lock = new_lock()
        self._open: set[socket.socket] = set()
        # Used only by the accepting thread, and by stop() after that thread has ended.
        self._threads: list[threading.Thread] = []
        self._accept_thread = start_thread("bot-accept", self._accept)

    def stop(self, timeout: float) -> None:
        """Close the listening socket and cut every connection; block until all threads end, up to `timeout` seconds."""
        deadline = monotonic() + timeout
        self._wake_writer.close()
        self._accept_thread.join(max(0.0, deadline - monotonic()))
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            cut(connection)
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
        late = [thread.name for thread in (self._accept_thread, *self._threads) if thread.is_alive()]
        if late:
            logger.warning("Threads of the bot still run after %.1f s: %s", timeout, ", ".join(late))

    def _accept(self) -> None:
        with self._selector as selector, self._listening, self._wake_reader:
            selector.register(self._listening, selectors.EVENT_READ)
            selector.register(self._wake_reader, selectors.EVENT_READ)
            lacks_descriptors = False
            while True:
                ready = [key.fileobj for key, _ in selector.select()]
                if self._wake_reader in ready:
                    return
                try:
                    connection, address = self._accept_one()
                except OSError as error:
                    if advice := what_to_do(error):
                        if not lacks_descriptors:
                            logger.warning("The bot cannot accept a connection, which waits: %s. %s", error, advice)
                        lacks_descriptors = True
                        self._pause()
                    continue
                lacks_descriptors = False
                with self._lock:
                    self._open.add(connection)
                try:
                    thread = start_thread(self._role, self._serve_connection, connection, address)
                except NoThreadError as error:
                    logger.warning("The bot cannot serve a connection, which it closes: %s", error)
                    self._close(connection)
                    continue
                self._threads = [*(old for old in self._threads if old.is_alive()), thread]

    def _pause(self) -> None:
        """Block for `_PAUSE` seconds or until `stop()`: `select()` would return at once, for the same connection."""
        self._wake_reader.settimeout(_PAUSE)
        with contextlib.suppress(TimeoutError):
            self._wake_reader.recv(1)

    def _accept_one(self) -> tuple[socket.socket, Any]:
        # SSLSocket.accept() would leak the descriptor of a connection that is reset during the call.
        connection, address = socket.socket.accept(self._listening)
        connection.setblocking(True)
        if isinstance(self._listening, ssl.SSLSocket):
            connection = wrap_socket(
                connection, self._listening.context, server_side=True, do_handshake_on_connect=False
            )
        return connection, address

    def _serve_connection(self, connection: socket.socket, address: Any) -> None:
        try:
            self._serve(connection, address)
        finally:
            self._close(connection)

    def _close(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.remove(connection)
        connection.close()


class SharedTLSSocket(ssl.SSLSocket):
    """A TLS connection that one thread reads while others write.

    Two threads inside OpenSSL with one connection may crash the process (python/cpython#124984, #151508). This class
    admits one at a time, and none while it waits.
    """

    _lock: threading.RLock | None = None
    _timeout: float | None = None

    def do_handshake(self, block: bool = False) -> None:
        """Do the handshake. Only one thread has the connection at this time."""
        super().do_handshake(block)
        self._timeout = self.gettimeout()
        super().settimeout(0.0)
        # Guards OpenSSL's object. A reading or writing thread holds it, but never while it waits.
        self._lock = new_lock()

    def settimeout(self, value: float | None) -> None:
        """Set the time limit of one read or write; None for no limit."""
        if self._lock is None:
            super().settimeout(value)
        else:
            self._timeout = value

    def setblocking(self, flag: bool) -> None:
        """Set no limit if `flag` is true, otherwise a limit of 0."""
        self.settimeout(None if flag else 0.0)

    def gettimeout(self) -> float | None:
        """Return the limit."""
        return super().gettimeout() if self._lock is None else self._timeout

    def read(self, len: int = 1024, buffer: Any = None) -> Any:
        """Read up to `len` bytes. All reading methods end here."""
        return self._when_ready(super().read, len, buffer)

    def send(self, data: Any, flags: int = 0) -> int:
        """Write as many bytes as fit. `sendall()` ends here, too."""
        written: int = self._when_ready(super().send, data, flags)
        return written

    def _when_ready(self, call: Callable[..., Any], *args: Any) -> Any:
        if self._lock is None:
            return call(*args)
        deadline = Deadline(self._timeout)
        while True:
            try:
                with self._lock:
                    return call(*args)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
                if self._timeout == 0.0:
                    raise
                event = selectors.EVENT_READ if isinstance(error, ssl.SSLWantReadError) else selectors.EVENT_WRITE
            if deadline.expired:
                raise TimeoutError("the peer does not send or receive anything")
            with selectors.DefaultSelector() as selector:
                # In slices, because another thread may close the socket. This wakes no selector, but the next slice
                # raises.
                selector.register(self, event)
                selector.select(deadline.at_most(_SLICE))


def cut(connection: socket.socket) -> None:
    """Cut a connection from any thread. The thread that reads or writes wakes up and closes the socket."""
    # SSLSocket.shutdown() would drop the TLS state that the other thread is using.
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


# -- HTTP, open to pages of every origin ------------------------------------------------------------------------------

_MAX_BODY_BYTES: Final = 1024 * 1024


@attrs.frozen(kw_only=True)
class BotRequest:
    """An HTTP request that a bot received.

    Attributes:
        method: Method, such as "POST".
        path: Path and query.
        headers: Headers with names in lower case.
        body: Decoded JSON of the body; None if it was not JSON.
        content: Body as received, up to 1 MiB.
    """

    method: str
    path: str
    headers: Mapping[str, str] = attrs.field(repr=False)
    body: Any = attrs.field(repr=False)
    content: bytes = attrs.field(default=b"", repr=False)

    @property
    def endpoint(self) -> str:
        """Path without query and trailing slash. The client's default endpoint is ``connect/``."""
        return self.path.partition("?")[0].rstrip("/")


@attrs.frozen
class HTTPResponse:
    """Status and JSON body of a response; None for no body."""

    status: int
    body: Mapping[str, Any] | None


class NoResponseError(Exception):
    """The server sends nothing more, and leaves the connection open."""


# Returns either a response or the messages of an event stream. Both may raise NoResponseError.
Responder = Callable[[BotRequest], HTTPResponse | Iterator[Message]]


class HTTPEndpoint:
    """An HTTP server with one thread per connection, which runs until it is stopped.

    Args:
        host: Address to listen on.
        port: Port to listen on; 0 takes any free one.
        ssl_context: TLS context for HTTPS; None for HTTP.
        respond: Function called for every GET, POST and DELETE.

    Raises:
        OSError: The port is in use.
    """

    def __init__(self, host: str, port: int, ssl_context: ssl.SSLContext | None, respond: Responder) -> None:
        listening = listen(host, port)
        if ssl_context is not None:
            listening = ssl_context.wrap_socket(listening, server_side=True)
        self.respond: Final = respond
        self._tcp_server = TCPServer(listening, "bot-http", self._serve)
        self.port: Final = self._tcp_server.port

    def stop(self, timeout: float) -> None:
        """Stop listening and cut all connections. Blocks until all threads have ended, up to `timeout` seconds."""
        self._tcp_server.stop(timeout)

    def _serve(self, connection: socket.socket, address: Any) -> None:
        try:
            # http.server only stores its third argument, so any object serves as the server.
            _RequestHandler(connection, address, self)  # type: ignore[arg-type]
        except OSError:
            logger.debug("An HTTP client closed its connection", exc_info=True)


class _RequestHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # each event of a stream must leave immediately
    server: HTTPEndpoint  # type: ignore[assignment]

    def do_GET(self) -> None:
        """Answer a GET request."""
        self._answer()

    def do_POST(self) -> None:
        """Answer a POST request."""
        self._answer()

    def do_DELETE(self) -> None:
        """Answer a DELETE request."""
        self._answer()

    def do_OPTIONS(self) -> None:
        """Answer the preflight request of a browser."""
        self._begin(200, {"Content-Length": "0"})

    def log_message(self, format: str, *args: Any) -> None:
        """Drop the log lines that http.server would write to stderr."""

    def _answer(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        content = self._read_content()
        request = BotRequest(
            method=self.command, path=self.path, headers=headers, body=_json_in(content), content=content
        )
        try:
            answer = self.server.respond(request)
            if isinstance(answer, HTTPResponse):
                self._write_json(answer)
            else:
                self._write_events(answer)
        except NoResponseError:
            self.rfile.read(1)  # blocks until the client closes the connection, or the bot stops

    def _read_content(self) -> bytes:
        length = self.headers.get("Content-Length", "0")
        return self.rfile.read(min(int(length), _MAX_BODY_BYTES) if length.isdecimal() else 0)

    def _write_json(self, answer: HTTPResponse) -> None:
        if answer.body is None:
            self._begin(answer.status, {})
            return
        data = json.dumps(answer.body).encode()
        self._begin(answer.status, {"Content-Type": "application/json", "Content-Length": str(len(data))})
        self.wfile.write(data)

    def _write_events(self, messages: Iterator[Message]) -> None:
        headers = {"Content-Type": "text/event-stream; charset=utf-8", "Transfer-Encoding": "chunked"}
        self._begin(200, headers)
        for each in messages:
            event = b"data: " + base64.b64encode(json.dumps(each).encode()) + b"\n\n"
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
        self.wfile.write(b"0\r\n\r\n")

    def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        origin = self.headers.get("Origin")
        common = {
            # One request per connection keeps both sides free of idle connections.
            "Connection": "close",
            "Cache-Control": "no-store",
            "Access-Control-Allow-Origin": origin or "*",
            "Access-Control-Allow-Methods": "POST, OPTIONS",
            "Access-Control-Allow-Headers": self.headers.get("Access-Control-Request-Headers", "*"),
            "Vary": "Origin",
        }
        if origin:
            common["Access-Control-Allow-Credentials"] = "true"
        self.send_response(status)
        for name, value in (common | dict(headers)).items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True


def _json_in(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


# -- the address of the bot's WebSocket, and actions without a session ------------------------------------------------

_NOT_FOUND: Final = HTTPResponse(404, {"detail": "Not Found"})
# Servers of actions without a session date from RTVI 0.3, and negotiate nothing.
_ACTION_VERSION: Final = BotVersion("0.3.0")


class BotAPI:
    """The responses to HTTP requests. Any thread may use it.

    Args:
        options: Options of the bot.
        ws_url: WebSocket address for the responses.
    """

    def __init__(self, options: BotOptions, ws_url: str) -> None:
        self._options = options
        self._ws_url = ws_url
        self._bot_version = BotVersion(options.version)
        # Guards _requests. Threads of requests, sessions and the test hold it briefly.
        self._lock = new_lock()
        self._requests: list[BotRequest] = []

    @property
    def requests(self) -> list[BotRequest]:
        """All requests so far, in order."""
        with self._lock:
            return list(self._requests)

    def requested_config(self, path: str) -> Any:
        """Return the config in the connect request behind this path of the WebSocket; None without one."""
        number = parse_qs(urlsplit(path).query).get("request", [""])[0]
        requests = self.requests
        if not number.isdecimal() or len(number) > 9 or int(number) >= len(requests):
            return None
        body = requests[int(number)].body
        return body.get("config") if isinstance(body, dict) else None

    def answer(self, request: BotRequest) -> HTTPResponse | Iterator[Message]:
        """Answer a request with a document or message by message.

        Raises:
            NoResponseError: The request must stay unanswered.
        """
        with self._lock:
            number = len(self._requests)
            self._requests.append(request)
        endpoints = {"/connect", "/start"} | ({"/action"} if self._options.has_actions else set())
        if request.endpoint not in endpoints:
            return _NOT_FOUND
        if request.method != "POST":
            return HTTPResponse(405, {"detail": "Method Not Allowed"})
        if any(request.headers.get(name.lower()) != value for name, value in self._options.headers.items()):
            return HTTPResponse(401, {"detail": "Unauthorized"})
        if request.endpoint == "/connect":
            return self._connect(request, number)
        return self._start(request) if request.endpoint == "/start" else self._act(request)

    def _connect(self, request: BotRequest, number: int) -> HTTPResponse:
        has_config = isinstance(request.body, dict) and request.body.get("config") is not None
        if has_config and self._bot_version.accepts("update-config"):
            return HTTPResponse(200, {"ws_url": f"{self._ws_url}?request={number}"})
        return HTTPResponse(200, {"ws_url": self._ws_url})

    def _start(self, request: BotRequest) -> HTTPResponse:
        """Answer like the development runner of a bot framework."""
        body = {} if request.body is None else request.body
        if not isinstance(body, dict):
            return HTTPResponse(500, {"detail": "Internal Server Error"})
        transport = body.get("transport", "websocket")
        if transport in tuple(PROVIDERS):  # the runner reports eval as "twilio", too
            return HTTPResponse(200, {"wsUrl": self._ws_url})
        if transport != "websocket":
            return HTTPResponse(400, {"detail": f"Transport {transport!r} is not allowed. This is a 'websocket' bot."})
        return HTTPResponse(200, {"wsUrl": self._ws_url, "sessionId": str(uuid.uuid4()), "token": None})

    def _act(self, request: BotRequest) -> HTTPResponse | Iterator[Message]:
        try:
            received = entries(request.body, "actions")
            if not received:
                raise invalid("actions", "List should have at least 1 item")
            for action in received:
                field(action, "id", str)
        except InvalidMessageError as error:
            return HTTPResponse(422, {"detail": str(error)})
        events = HTTPActionRun(self._options).events(received)
        accepted = request.headers.get("accept", "*/*")
        if self._options.action_stream and ("text/event-stream" in accepted or "*/*" in accepted):
            return events
        return HTTPResponse(200, next(events))


class HTTPActionRun:
    """A bot for the actions of one HTTP request, which writes but doesn't speak.

    Args:
        options: Options of the bot.
    """

    def __init__(self, options: BotOptions) -> None:
        self._context = LLMContext(options.replies)
        self._actions = ActionRegistry(options.actions or {}, self._context, self, quirks=options.quirks)
        self._wants_run = False

    def stop_speaking(self) -> None:
        """Do nothing: this bot does not speak."""

    def say(self, text: str) -> None:
        """Do nothing: this bot does not speak."""

    def respond(self) -> None:
        """Run the language model after all actions have been answered."""
        self._wants_run = True

    def events(self, received: list[Message]) -> Iterator[Message]:
        """Run the actions and yield their messages as they arise.

        Raises:
            NoResponseError: An action failed, and a bot with `quirks` then sends nothing more.
        """
        answers: deque[Message] = deque()
        messenger = Messenger(_ACTION_VERSION, answers.append)
        for action in received:
            try:
                self._actions.perform(read_call(action), messenger)
            except InvalidMessageError as error:
                messenger.send_error_response(action, f"Invalid message: {error}")
            except NeverAnsweredError as error:
                raise NoResponseError from error
            yield from answers
            answers.clear()
        # Real servers end their bot by one more action, whose response is sent like the others.
        yield message("action-response", {"result": True}, "END")
        if self._wants_run:
            said = self._context.said
            reply = self._context.run(said)
            yield message("user-llm-text", {"text": said})
            yield message("bot-llm-started")
            yield from written(reply.text or "")
            yield message("bot-llm-stopped")
