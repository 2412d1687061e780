"""The HTTP side of the embedded bot: tells clients where its WebSocket is. Standard library only."""

from __future__ import annotations

import json
import logging
import socket
import ssl
import uuid
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar, Final

from rtvi_sync.testing.acceptor import Acceptor

logger = logging.getLogger(__name__)
_MAX_BODY_BYTES: Final = 1024 * 1024


class HTTPEndpoint:
    """Serves `POST /connect` and `POST /start`, open to pages of every origin.

    Args:
        host: address to listen on.
        port: port; 0 takes any free one.
        ssl_context: makes it HTTPS.
        ws_url: the address that it hands out.

    Raises:
        OSError: the port is taken.
    """

    def __init__(self, host: str, port: int, ssl_context: ssl.SSLContext | None, ws_url: str) -> None:
        listening = socket.create_server((host, port), backlog=128)
        if ssl_context is not None:
            listening = ssl_context.wrap_socket(listening, server_side=True)
        self.ws_url: Final = ws_url
        self._acceptor = Acceptor(listening, "bot-http", self._serve)
        self.port: Final = self._acceptor.port

    def stop(self, timeout: float) -> None:
        """Stop listening and cut what is connected; returns when all threads have ended, or at the limit."""
        self._acceptor.stop(timeout)

    def _serve(self, line: socket.socket, address: Any) -> None:
        try:
            # The handler stores its server for us; it needs nothing of it itself.
            _Handler(line, address, self)  # type: ignore[arg-type]
        except OSError:
            logger.debug("a client broke off", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HTTPEndpoint  # type: ignore[assignment]
    # One request per connection is what `close` says; it spares the clients and us idle connections.
    _common_headers: ClassVar = {"Connection": "close", "Cache-Control": "no-store"}

    def do_POST(self) -> None:
        """Answer a request for a bot."""
        body = self._read_body()
        if self._endpoint == "/connect":
            self._answer(200, {"ws_url": self.server.ws_url})
        elif self._endpoint == "/start":
            self._start(body)
        else:
            self._answer(404, {"detail": "Not Found"})

    def do_GET(self) -> None:
        """There is nothing to read here."""
        known = self._endpoint in ("/connect", "/start")
        self._answer(405 if known else 404, {"detail": "Method Not Allowed" if known else "Not Found"})

    def do_OPTIONS(self) -> None:
        """Answer a browser that asks whether it may send its request."""
        self._answer(200, None)

    @property
    def _endpoint(self) -> str:
        """The path without query and trailing slash: the interface's default endpoint is ``connect/``."""
        return self.path.partition("?")[0].rstrip("/")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing on stderr."""

    def _start(self, body: Any) -> None:
        """Speak like the development runner of a bot framework."""
        if not isinstance(body, dict):
            return self._answer(500, {"detail": "Internal Server Error"})
        transport = body.get("transport", "websocket")
        if transport != "websocket":
            return self._answer(400, {"detail": f"Transport {transport!r} is not allowed. This is a 'websocket' bot."})
        return self._answer(200, {"wsUrl": self.server.ws_url, "sessionId": str(uuid.uuid4()), "token": None})

    def _read_body(self) -> Any:
        length = self.headers.get("Content-Length", "0")
        size = min(int(length), _MAX_BODY_BYTES) if length.isdecimal() else 0
        try:
            return json.loads(self.rfile.read(size))
        except ValueError:
            return {}

    def _answer(self, status: int, answer: dict[str, Any] | None) -> None:
        data = b"" if answer is None else json.dumps(answer).encode()
        origin = self.headers.get("Origin")
        headers = {
            **self._common_headers,
            "Content-Type": "application/json",
            "Content-Length": str(len(data)),
            "Access-Control-Allow-Origin": origin or "*",
            "Access-Control-Allow-Methods": "POST, OPTIONS",
            "Access-Control-Allow-Headers": self.headers.get("Access-Control-Request-Headers", "*"),
            "Vary": "Origin",
        }
        if origin:
            headers["Access-Control-Allow-Credentials"] = "true"
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = True
