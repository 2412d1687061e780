"""An HTTP server whose answers a test scripts, and whose requests it reads."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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
def scripted_server() -> Iterator[ScriptedServer]:
    script = ScriptedServer("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            request = Request(
                self.command,
                self.path,
                {name.lower(): value for name, value in self.headers.items()},
                json.loads(raw) if raw else None,
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

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    script.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
