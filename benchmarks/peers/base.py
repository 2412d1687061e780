"""The interface that the scenarios need of a client library, and the part of it that is the same for most."""

from __future__ import annotations

import abc
import heapq
import itertools
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from ..server_frames import FRAME_BYTES, FRAMES_PER_SECOND

#: Seconds that anything may take if a scenario does not say otherwise.
LIMIT = 240.0
#: Seconds until the effects of connecting are over: a session of ours keeps its first 5 s, for a conversation, and
#: threads for the next connection.
SETTLE = 6.0
FRAME = b"\x00\x10\x00\xf0" * (FRAME_BYTES // 4)


class Peer(abc.ABC):
    """A client of one session, as the scenarios use it: by a thread that calls and waits.

    Args:
        url: of the server.
        on_event: called with the stamp of each event, where the library calls handlers.
        talking: whether a microphone's worth of audio is sent from the ready message on: by the library's own means, or
            else by `Pace`.
        hearing: whether the audio of the bot is kept in memory; else it is thrown away as soon as the library lets.
        on_audio: called with the audio of the bot, where the library calls the application's sinks. A peer of threads
            that has it and is `talking` sends audio that the application pushes, on a thread of the application:
            `Pace`.
    """

    #: Names of scenarios -> why the library cannot do it.
    cannot: ClassVar[dict[str, str]] = {}
    #: The library's package.
    package: ClassVar[str]
    #: Names of scenarios -> how they are measured where the library runs: `(url, effort)` to the same figures.
    own: ClassVar[dict[str, Callable[[str, float], Mapping[str, float]]]] = {}

    def __init__(
        self,
        url: str,
        on_event: Callable[[str], object] = str,
        *,
        talking: bool = False,
        hearing: bool = False,
        on_audio: Callable[[bytes], object] | None = None,
    ) -> None:
        self.url = url
        self.on_event = on_event
        self.talking = talking
        self.hearing = hearing
        self.on_audio = on_audio

    @abc.abstractmethod
    def connect(self, timeout: float = LIMIT) -> None:
        """Connect, say that the client is ready, and return when the bot is; raise an error when it is not in time."""

    @abc.abstractmethod
    def request(self, command: str, data: Any = None, timeout: float = LIMIT) -> Any:
        """Send a client message and return the data of its response; raise an error if no response arrives in time."""

    def ask(self, text: str) -> str:
        """Send a text, and return the bot's answer when it has been spoken. Only peers that some scenario asks have
        it."""
        raise NotImplementedError

    def record(self, path: str) -> Recording:
        """Record the session from now on, in files of this name. Only peers that some scenario records have it."""
        raise NotImplementedError

    @abc.abstractmethod
    def send_audio(self, pcm: bytes) -> None:
        """Send an audio frame, 16-bit mono of 16 kHz."""

    @property
    @abc.abstractmethod
    def heard_bytes(self) -> int:
        """Bytes of audio received from the bot, as PCM; counted for a peer that is `hearing`."""

    @abc.abstractmethod
    def close(self) -> None:
        """End the session, with a close frame."""

    @classmethod  # noqa: B027 (most have nothing to do)
    def prepare(cls) -> None:
        """Start the programs that clients share and that are no part of the library, before anything is timed."""

    def seconds(self, method: str, *arguments: Any) -> float:
        """Time `connect`, `request` or `close`, called where programs that use the library call it."""
        call = getattr(self, method)
        begun = time.perf_counter()
        call(*arguments)
        return time.perf_counter() - begun

    def send_frames(self, number: int) -> None:
        """Send a number of audio frames as fast as the library takes them."""
        for _ in range(number):
            self.send_audio(FRAME)

    def wait_heard(self, number: int) -> None:  # noqa: B027 (most have nothing to do)
        """Return when a number of bytes of audio has arrived in all. Called when a later event has arrived: if audio
        and events arrive in order, there is nothing to wait for."""


class Recording(Protocol):
    """A recording in progress. `lost`: rows of missing parts, each with its `seconds`."""

    @property
    def lost(self) -> Sequence[Mapping[str, Any]]: ...

    def close(self) -> None:
        """End the recording, when all of it is written."""


class Talk(Protocol):
    """Sends audio frames at their times."""

    def stop(self) -> None:
        """Send nothing more."""


class Pace:
    """Sends the audio frames of all sessions at their times, on one thread: for a program without a better way."""

    # Guards the next two, and every `_send`: a stopped talk sends nothing.
    _lock: ClassVar = threading.Lock()
    _due: ClassVar[list[tuple[float, int, Pace]]] = []
    _numbers: ClassVar = itertools.count()

    def __init__(self, send: Callable[[bytes], object]) -> None:
        self._send: Callable[[bytes], object] | None = send
        with self._lock:
            heapq.heappush(self._due, (time.monotonic(), next(self._numbers), self))
            if len(self._due) == 1:
                threading.Thread(target=self._run, daemon=True).start()

    @classmethod
    def _run(cls) -> None:
        while True:
            with cls._lock:
                due, number, pace = cls._due[0]
                delay = due - time.monotonic()
                if delay <= 0:
                    if pace._send is not None:
                        pace._send(FRAME)
                        heapq.heapreplace(cls._due, (due + 1 / FRAMES_PER_SECOND, number, pace))
                    else:
                        heapq.heappop(cls._due)
                        if not cls._due:
                            return
            if delay > 0:
                time.sleep(delay)

    def stop(self) -> None:
        """Send nothing more."""
        with self._lock:
            self._send = None


class MessagePeer(Peer):
    """The part that speaks RTVI, for libraries that only send and receive frames.

    A subclass calls `take()` with each message that its library received, on any thread, and has `_transmit()`.
    """

    #: Reads JSON.
    loads: Callable[[str], Any] = staticmethod(json.loads)

    def __init__(self, url: str, on_event: Callable[[str], object] = str, **options: Any) -> None:
        super().__init__(url, on_event, **options)
        from .frames import Frame  # protobuf, which not every peer needs

        self._new_frame = Frame
        self._parse = Frame.FromString
        self._ready = threading.Event()
        self._waiting: dict[str, tuple[threading.Event, list[Any]]] = {}
        self._numbers = 0
        self._heard: list[bytes] = []
        self._talk: Talk | None = None
        self._written: list[str] = []
        self._spoken = threading.Event()

    @abc.abstractmethod
    def _transmit(self, payload: bytes) -> None:
        """Send a binary message."""

    def take(self, payload: bytes) -> None:
        """Take a received binary message."""
        frame = self._parse(payload)
        kind = frame.WhichOneof("frame")
        if kind == "audio":
            self._take_audio(frame.audio.audio)
        elif kind == "message":
            message = self.loads(frame.message.data)
            type_ = message["type"]
            if type_ == "user-transcription":
                self.on_event(message["data"]["timestamp"])
            elif type_ == "server-response":
                waiter = self._waiting.pop(message["id"], None)
                if waiter is not None:
                    waiter[1].append(message["data"].get("d"))
                    waiter[0].set()
            elif type_ == "bot-llm-text":
                self._written.append(message["data"]["text"])
            elif type_ == "bot-stopped-speaking":
                self._spoken.set()
            elif type_ == "bot-ready":
                self._ready.set()

    def _take_audio(self, pcm: bytes) -> None:
        if self.hearing:
            self._heard.append(pcm)
        if self.on_audio is not None:
            self.on_audio(pcm)

    def begin(self, timeout: float) -> None:
        """Say that the client is ready and wait for the bot; for the end of `connect()`."""
        self._say("0", "client-ready", {"version": "2.0.0", "about": {"library": "benchmarks"}})
        if not self._ready.wait(timeout):
            raise TimeoutError("the bot is not ready")
        if self.talking:
            self._talk = self._begin_to_talk()

    def _begin_to_talk(self) -> Talk:
        return Pace(self.send_audio)

    def end(self) -> None:
        """Stop talking; `close()` calls it first."""
        if self._talk is not None:
            self._talk.stop()

    def _say(self, id_: str, type_: str, data: Any) -> None:
        frame = self._new_frame()
        frame.message.data = json.dumps({"label": "rtvi-ai", "type": type_, "id": id_, "data": data})
        self._transmit(frame.SerializeToString())

    def request(self, command: str, data: Any = None, timeout: float = LIMIT) -> Any:
        self._numbers += 1
        id_ = str(self._numbers)
        done, answer = self._waiting[id_] = (threading.Event(), [])
        self._say(id_, "client-message", {"t": command, "d": data})
        if not done.wait(timeout):
            del self._waiting[id_]
            raise TimeoutError(f"no response to {command}")
        return answer[0]

    def ask(self, text: str) -> str:
        self._written.clear()
        self._spoken.clear()
        self._numbers += 1
        self._say(str(self._numbers), "send-text", {"content": text, "options": {"run_immediately": True}})
        if not self._spoken.wait(LIMIT):
            raise TimeoutError("no answer")
        return "".join(self._written)

    def send_audio(self, pcm: bytes) -> None:
        self._transmit(self._audio_payload(pcm))

    def _audio_payload(self, pcm: bytes) -> bytes:
        frame = self._new_frame()
        frame.audio.audio = pcm
        frame.audio.sample_rate = 16_000
        frame.audio.num_channels = 1
        payload: bytes = frame.SerializeToString()
        return payload

    @property
    def heard_bytes(self) -> int:
        return sum(map(len, self._heard))
