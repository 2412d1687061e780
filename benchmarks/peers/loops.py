"""For libraries of asyncio: one loop for all sessions of the process, on a thread beside the one that calls.

Programs of asyncio are on that thread themselves. So the time of a call is measured there, where it is awaited; only
requests to a `Peer` from another thread cross threads.
"""

from __future__ import annotations

import abc
import asyncio
import functools
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ..server_frames import FRAMES_PER_SECOND
from .base import FRAME, LIMIT, Peer

_T = TypeVar("_T")


@functools.cache
def running_loop(make: Callable[[], asyncio.AbstractEventLoop]) -> asyncio.AbstractEventLoop:
    """Return the loop of this process, which runs from the first call on."""
    loop = make()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


def run(work: Coroutine[Any, Any, _T], loop: asyncio.AbstractEventLoop) -> _T:
    """Return the result of a coroutine, awaited on the thread of a loop."""
    return asyncio.run_coroutine_threadsafe(work, loop).result()


class LoopPace:
    """Sends audio frames at their times, on a loop.

    Args:
        send: called for each of them, on the loop.
        loop: runs on another thread than that which calls here.
    """

    def __init__(self, send: Callable[[], object], loop: asyncio.AbstractEventLoop) -> None:
        self._send = send
        self._loop = loop
        self._due = loop.time()
        self._over = False
        loop.call_soon_threadsafe(self._step)

    def _step(self) -> None:
        if not self._over:
            self._send()
            self._due += 1 / FRAMES_PER_SECOND
            self._loop.call_at(self._due, self._step)

    def stop(self) -> None:
        """Send nothing more."""
        self._over = True


class LoopPeer(Peer):
    """A session whose methods are coroutines: `_connect`, `_request`, `_send_audio` and `_close`."""

    def __init__(self, url: str, on_event: Callable[[str], object] = str, **options: Any) -> None:
        super().__init__(url, on_event, **options)
        self.loop = running_loop(asyncio.new_event_loop)
        self._heard: list[bytes] = []

    @abc.abstractmethod
    async def _connect(self, timeout: float = LIMIT) -> None: ...

    @abc.abstractmethod
    async def _request(self, command: str, data: Any = None, timeout: float = LIMIT) -> Any: ...

    @abc.abstractmethod
    async def _send_audio(self, pcm: bytes) -> None: ...

    @abc.abstractmethod
    async def _close(self) -> None: ...

    def connect(self, timeout: float = LIMIT) -> None:
        run(self._connect(timeout), self.loop)

    def request(self, command: str, data: Any = None, timeout: float = LIMIT) -> Any:
        return run(self._request(command, data, timeout), self.loop)

    def send_audio(self, pcm: bytes) -> None:
        run(self._send_audio(pcm), self.loop)

    def close(self) -> None:
        run(self._close(), self.loop)

    def seconds(self, method: str, *arguments: Any) -> float:
        async def measure() -> float:
            coroutine = getattr(self, f"_{method}")
            begun = time.perf_counter()
            await coroutine(*arguments)
            return time.perf_counter() - begun

        return run(measure(), self.loop)

    def send_frames(self, number: int) -> None:
        async def send() -> None:
            for _ in range(number):
                await self._send_audio(FRAME)

        run(send(), self.loop)

    @property
    def heard_bytes(self) -> int:
        return sum(map(len, self._heard))


class MessageLoopPeer(LoopPeer):
    """The part that speaks RTVI, for libraries that give and take messages as dictionaries.

    A subclass calls `take_message()` and `take_audio()` on the loop, and has `_open()` and `_say()`.
    """

    async def _connect(self, timeout: float = LIMIT) -> None:
        self._ready: asyncio.Future[None] = self.loop.create_future()
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._numbers = 0
        self._talk: asyncio.Task[None] | None = None
        await asyncio.wait_for(self._open(), timeout)
        await self._say(_message("0", "client-ready", {"version": "2.0.0", "about": {"library": "benchmarks"}}))
        await asyncio.wait_for(self._ready, timeout)
        if self.talking:
            self._talk = self.loop.create_task(self._keep_talking())

    @abc.abstractmethod
    async def _open(self) -> None:
        """Connect."""

    @abc.abstractmethod
    async def _say(self, message: dict[str, Any]) -> None:
        """Send an RTVI message."""

    def take_message(self, message: dict[str, Any]) -> None:
        """Take a received RTVI message."""
        type_ = message["type"]
        if type_ == "user-transcription":
            self.on_event(message["data"]["timestamp"])
        elif type_ == "server-response":
            waiting = self._waiting.get(message["id"])
            if waiting is not None and not waiting.done():
                waiting.set_result(message["data"].get("d"))
        elif type_ == "bot-ready":
            self._ready.set_result(None)

    def take_audio(self, pcm: bytes) -> None:
        """Take received audio."""
        if self.hearing:
            self._heard.append(pcm)
        if self.on_audio is not None:
            self.on_audio(pcm)

    async def _request(self, command: str, data: Any = None, timeout: float = LIMIT) -> Any:
        self._numbers += 1
        id_ = str(self._numbers)
        answer = self._waiting[id_] = self.loop.create_future()
        try:
            await self._say(_message(id_, "client-message", {"t": command, "d": data}))
            return await asyncio.wait_for(answer, timeout)
        finally:
            del self._waiting[id_]

    async def _keep_talking(self) -> None:
        due = self.loop.time()
        while True:
            await self._send_audio(FRAME)
            due += 1 / FRAMES_PER_SECOND
            await asyncio.sleep(due - self.loop.time())

    async def _stop_talking(self) -> None:
        if self._talk is not None:
            self._talk.cancel()
            await asyncio.wait([self._talk])


def _message(id_: str, type_: str, data: Any) -> dict[str, Any]:
    return {"label": "rtvi-ai", "type": type_, "id": id_, "data": data}
