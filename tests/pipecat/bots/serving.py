"""Common parts of the bots of every Pipecat version: a loopback server on a free port, its sessions, a test's controls.

It imports no Pipecat, so that bots of different versions can use it. A bot writes exactly one line to its standard
output, when it listens: a JSON object with `base_url` (HTTP: `POST /connect` and the controls) and `ws_url`.

Controls, all under `base_url`:
    GET  /control/sessions?expected=N&timeout=S   {"live": n}, after waiting up to S seconds for n == N if asked to
    POST /control/end      {}                     the bot's own, normal end of every live session
    POST /control/cancel   {}                     cancels every live session
    POST /control/fail     {"error": text}        a fatal error in every live session
    POST /control/send     {"data": any}          a server-message to every live session
    POST /control/drop     {}                     aborts the TCP connection under every live session: no close frame
    POST /control/stall    {"seconds": S}         blocks the event loop for S seconds, after the reply
They answer {"sessions": n}, the number of sessions concerned.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Protocol

import uvicorn
from fastapi import BackgroundTasks, Body, FastAPI, HTTPException, WebSocket

_NO_PARAMS = Body(default={})


class Session(Protocol):
    """One running bot, as the controls see it."""

    async def end(self) -> None: ...

    async def cancel(self) -> None: ...

    async def fail(self, error: str) -> None: ...

    async def send(self, data: Any) -> None: ...


class Sessions:
    """The sessions that are live now. Used on the event loop only."""

    def __init__(self) -> None:
        self._live: list[Session] = []
        self._changed = asyncio.Event()

    @contextlib.contextmanager
    def live(self, session: Session) -> Iterator[None]:
        """Count a session as live as long as the block runs."""
        self._live.append(session)
        self._announce_change()
        try:
            yield
        finally:
            self._live.remove(session)
            self._announce_change()

    async def settle(self, expected: int, timeout: float) -> None:
        """Wait until a number of sessions is live, but no longer than the timeout."""

        async def settled() -> None:
            while len(self._live) != expected:
                await self._changed.wait()

        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(settled(), timeout)

    def now(self) -> list[Session]:
        return list(self._live)

    def _announce_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def listen() -> socket.socket:
    """Return a socket that listens on a free port of 127.0.0.1."""
    # asyncio turns Nagle's algorithm off only for sockets that name their protocol, as those it makes itself do.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    return listener


class Host:
    """A uvicorn server on a free port of 127.0.0.1, with the controls of a test.

    Args:
        app: the application to extend; a new one without it.
        ws_path: where on this server the bot's WebSocket is.
    """

    def __init__(self, app: FastAPI | None = None, ws_path: str = "/ws") -> None:
        # Banners and logs of others must not look like the one line that is promised.
        sys.stdout = sys.stderr
        self.app = app or FastAPI()
        self.sessions = Sessions()
        self.listener = listen()
        self.port: int = self.listener.getsockname()[1]
        self.base_url = f"http://127.0.0.1:{self.port}"
        self.ws_url = f"ws://127.0.0.1:{self.port}{ws_path}"
        self._server = _AnnouncingServer(uvicorn.Config(self.app, log_level="info"), self)
        self._add_controls()

    def add_connect(self) -> None:
        """Add `POST /connect`, which tells a client where the WebSocket is."""

        @self.app.post("/connect")
        async def connect() -> dict[str, str]:
            return {"ws_url": self.ws_url}

    def add_bot(self, bot: Callable[[WebSocket], Awaitable[None]]) -> None:
        """Add `/connect` and the WebSocket; each connection runs a bot of its own."""
        self.add_connect()

        @self.app.websocket("/ws")
        async def converse(websocket: WebSocket) -> None:
            await websocket.accept()
            await bot(websocket)

    def run(self) -> None:
        """Serve until a signal ends it, as `uvicorn.run` does."""
        asyncio.run(self.serve())

    async def serve(self) -> None:
        """Serve on the running event loop until a signal ends it."""
        end_with_parent()
        await self._server.serve(sockets=[self.listener])

    def announce(self) -> None:
        """Tell the test where the bot is: it listens now."""
        line = json.dumps({"base_url": self.base_url, "ws_url": self.ws_url})
        os.write(1, line.encode() + b"\n")

    @property
    def is_stopping(self) -> bool:
        """Whether a signal has asked for the end."""
        return self._server.should_exit

    def drop(self) -> int:
        """Abort the TCP connection of every WebSocket; return how many."""
        protocols = [p for p in self._server.server_state.connections if p.scope and p.scope["type"] == "websocket"]
        for protocol in protocols:
            protocol.transport.abort()
        return len(protocols)

    def _add_controls(self) -> None:
        @self.app.get("/control/sessions")
        async def count(expected: int | None = None, timeout: float = 5.0) -> dict[str, int]:
            if expected is not None:
                await self.sessions.settle(expected, timeout)
            return {"live": len(self.sessions.now())}

        @self.app.post("/control/{name}")
        async def control(
            name: str, background: BackgroundTasks, params: dict[str, Any] = _NO_PARAMS
        ) -> dict[str, int]:
            sessions = self.sessions.now()
            if name == "drop":
                return {"sessions": self.drop()}
            if name == "stall":
                background.add_task(_block_event_loop, **params)
            elif name in {"end", "cancel", "fail", "send"}:
                for session in sessions:
                    await getattr(session, name)(**params)
            else:
                raise HTTPException(404, f"no control named {name!r}")
            return {"sessions": len(sessions)}


class _AnnouncingServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, host: Host) -> None:
        super().__init__(config)
        self._host = host

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._host.announce()


async def _block_event_loop(seconds: float) -> None:
    time.sleep(seconds)


def end_with_parent() -> None:
    """Leave no bot behind: when its parent dies, however abruptly, the pipe on standard input ends."""
    if os.environ.get("RTVI_BOT_ENDS_WITH_STDIN") == "1":

        def watch() -> None:
            while os.read(0, 4096):
                pass
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()
