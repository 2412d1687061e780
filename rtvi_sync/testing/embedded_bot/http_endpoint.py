"""HTTP server of the embedded bot, open to pages of every origin. Standard library only."""

from __future__ import annotations

import base64
import json
import logging
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

import attrs

from rtvi_sync.concurrency.logs import package_logger
from rtvi_sync.testing.embedded_bot.script import Message
from rtvi_sync.testing.embedded_bot.tcp_server import TCPServer, listen

logger: logging.Logger = package_logger(__name__)
_MAX_BODY_BYTES: Final = 1024 * 1024


@attrs.frozen(kw_only=True)
class BotRequest:
    """An HTTP request that a bot received.

    Attributes:
        method: such as "POST".
        path: path and query.
        headers: names in lower case.
        body: the decoded JSON of the body; None if it was not JSON.
    """

    method: str
    path: str
    headers: Mapping[str, str] = attrs.field(repr=False)
    body: Any = attrs.field(repr=False)

    @property
    def endpoint(self) -> str:
        """Return the path without query and trailing slash: the client's default endpoint is ``connect/``."""
        return self.path.partition("?")[0].rstrip("/")


@attrs.frozen
class HTTPResponse:
    """Status and JSON body of a response."""

    status: int
    body: Mapping[str, Any]


class NoResponseError(Exception):
    """The server sends nothing more, and leaves the connection open."""


# Returns either a response or the messages of an event stream. Both may raise NoResponseError.
Responder = Callable[[BotRequest], HTTPResponse | Iterator[Message]]


class HTTPEndpoint:
    """An HTTP server that serves each connection in a thread of its own, until it is stopped.

    Args:
        host: address to listen on.
        port: port; 0 takes any free one.
        ssl_context: makes it HTTPS.
        respond: called for every GET and POST.

    Raises:
        OSError: the port is taken.
    """

    def __init__(self, host: str, port: int, ssl_context: ssl.SSLContext | None, respond: Responder) -> None:
        listening = listen(host, port)
        if ssl_context is not None:
            listening = ssl_context.wrap_socket(listening, server_side=True)
        self.respond: Final = respond
        self._tcp_server = TCPServer(listening, "bot-http", self._serve)
        self.port: Final = self._tcp_server.port

    def stop(self, timeout: float) -> None:
        """Stop listening and cut all connections; block until all threads have ended, up to `timeout` seconds."""
        self._tcp_server.stop(timeout)

    def _serve(self, connection: socket.socket, address: Any) -> None:
        try:
            # http.server only stores its third argument, so any object serves as the server.
            _RequestHandler(connection, address, self)  # type: ignore[arg-type]
        except OSError:
            logger.debug("An HTTP client closed its connection", exc_info=True)


class _RequestHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # each event of a stream must leave when it is written
    server: HTTPEndpoint  # type: ignore[assignment]

    def do_GET(self) -> None:
        """Answer a GET request."""
        self._answer()

    def do_POST(self) -> None:
        """Answer a POST request."""
        self._answer()

    def do_OPTIONS(self) -> None:
        """Answer the preflight request of a browser."""
        self._begin(200, {"Content-Length": "0"})

    def log_message(self, format: str, *args: Any) -> None:
        """Drop the log lines that http.server would write to stderr."""

    def _answer(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = BotRequest(method=self.command, path=self.path, headers=headers, body=self._read_body())
        try:
            answer = self.server.respond(request)
            if isinstance(answer, HTTPResponse):
                self._write_json(answer)
            else:
                self._write_events(answer)
        except NoResponseError:
            self.rfile.read(1)  # blocks until the client closes the connection, or the bot stops

    def _read_body(self) -> Any:
        length = self.headers.get("Content-Length", "0")
        size = min(int(length), _MAX_BODY_BYTES) if length.isdecimal() else 0
        try:
            return json.loads(self.rfile.read(size))
        except (ValueError, RecursionError):
            return None

    def _write_json(self, answer: HTTPResponse) -> None:
        data = json.dumps(answer.body).encode()
        self._begin(answer.status, {"Content-Type": "application/json", "Content-Length": str(len(data))})
        self.wfile.write(data)

    def _write_events(self, messages: Iterator[Message]) -> None:
        headers = {"Content-Type": "text/event-stream; charset=utf-8", "Transfer-Encoding": "chunked"}
        self._begin(200, headers)
        for message in messages:
            event = b"data: " + base64.b64encode(json.dumps(message).encode()) + b"\n\n"
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
        self.wfile.write(b"0\r\n\r\n")

    def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        origin = self.headers.get("Origin")
        common = {
            # With one request per connection neither side keeps idle connections.
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
