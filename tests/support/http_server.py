"""An HTTP server whose answers a test scripts, and whose requests it reads."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

import attrs


@attrs.frozen
class Request:
    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: Any


@attrs.frozen
class Answer:
    body: Any = None
    status: int = 200
    headers: dict[str, str] = attrs.field(factory=dict)


@attrs.define
class ScriptedServer:
    """`answers` maps paths to answers, or to functions from request to answer."""

    url: str
    answers: dict[str, Answer | Callable[[Request], Answer]] = attrs.field(factory=dict)
    requests: list[Request] = attrs.field(factory=list)


@contextlib.contextmanager
def scripted_server(host: str = "127.0.0.1") -> Iterator[ScriptedServer]:
    """Run a server at an address of this machine."""
    script = ScriptedServer("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            raw = self.rfile.read(size)
            if len(raw) < size:  # the client has given up: this is no request
                self.close_connection = True
                return
            request = Request(
                self.command,
                self.path,
                {name.lower(): value for name, value in self.headers.items()},
                json.loads(raw) if raw and "json" in self.headers.get("Content-Type", "json") else raw or None,
            )
            script.requests.append(request)
            answer = script.answers.get(self.path.partition("?")[0], Answer({"detail": "no such path"}, 404))
            if not isinstance(answer, Answer):
                answer = answer(request)
            content = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            self.send_response(answer.status)
            for name, value in {"Content-Length": str(len(content)), **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(content)

        do_GET = do_POST  # noqa: N815 - the name that the base class calls

        def log_message(self, *_: Any) -> None:
            """Be quiet."""

    class Listening(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True
        server_bind = TCPServer.server_bind  # HTTPServer's looks up the name of the address

    server = Listening((host, 0), Handler)
    script.url = f"http://{f'[{host}]' if ':' in host else host}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
