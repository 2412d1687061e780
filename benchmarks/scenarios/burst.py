"""A minute of the bot's audio that comes at once: how much of it the application gets, and the memory that it takes."""

from __future__ import annotations

import functools
import statistics
import tempfile
import threading
import time
import tracemalloc
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ..peers.base import Peer
from ..server import Command
from ..server_frames import FRAME_BYTES, FRAMES_PER_SECOND, burst_of_audio
from .figures import Scenario
from .session import Counting

_FRAMES: Final = 60 * FRAMES_PER_SECOND
#: Seconds until what has not come is known to be lost; the slow sink takes 15.
_LOST: Final = 60.0


class Keeping:
    """Keeps audio in memory, as a function of the application's, and as a sink of its own.

    Args:
        number: of audio frames.
        delay: seconds that each frame takes.
    """

    def __init__(self, number: int, delay: float = 0.0) -> None:
        self._chunks: list[bytes] = []
        self._missing = number * FRAME_BYTES
        self._delay = delay
        self._whole = threading.Event()

    def __call__(self, pcm: bytes) -> None:
        """Keep it, and wake who waits for the last."""
        if self._delay:
            time.sleep(self._delay)
        self._chunks.append(pcm)
        self._missing -= len(pcm)
        if self._missing <= 0:
            self._whole.set()

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:  # noqa: ARG002 - the server has one
        """Keep it."""
        self(pcm)

    def drop(self) -> None:
        """Do nothing: what came is kept."""

    def close(self) -> None:
        """Do nothing."""

    def wait(self) -> None:
        """Wait until the last has come, or is known to be lost."""
        self._whole.wait(_LOST)

    def pcm(self) -> bytes:
        """Return all that has come."""
        return b"".join(self._chunks)


def burst(peer: type[Peer], url: str, effort: float) -> dict[str, float]:
    """Measure how soon a function of the application's has the minute, how much of it, and the memory."""

    def hear() -> tuple[float, Keeping]:
        keeping = Keeping(_FRAMES)
        return _hear(peer, url, _FRAMES, keeping, on_audio=keeping), keeping

    times = [hear()[0] for _ in range(2 + round(10 * effort))]
    (_, keeping), memory = _peak_of(hear)
    return {"ms": statistics.median(times[1:]) * 1e3, **_figures(keeping.pcm(), _FRAMES, memory)}


def into_a_sink(peer: type[Peer], url: str, effort: float, *, delay: float = 0.0) -> dict[str, float]:
    """Measure how much of the minute a sink of the application's gets, and the memory."""
    number = max(50, round(_FRAMES * min(1.0, effort))) if delay else _FRAMES

    def hear(number: int) -> Keeping:
        keeping = Keeping(number, delay)
        _hear(peer, url, number, keeping, sink=keeping)
        return keeping

    hear(1)  # warms up
    keeping, memory = _peak_of(lambda: hear(number))
    return _figures(keeping.pcm(), number, memory)


def into_a_file(peer: type[Peer], url: str, effort: float) -> dict[str, float]:  # noqa: ARG001 - it takes a moment
    """Measure how much of the minute a `WavSink` has written when the session has ended, and the memory."""
    from rtvi_sync.media import WavSink  # only of ours

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "minute.wav")
        _hear(peer, url, 1, sink=WavSink(Path(folder, "warm-up.wav")))
        _, memory = _peak_of(lambda: _hear(peer, url, _FRAMES, sink=WavSink(path)))
        with wave.open(str(path), "rb") as file:
            pcm = file.readframes(file.getnframes())
    return _figures(pcm, _FRAMES, memory)


def _hear(peer: type[Peer], url: str, number: int, keeping: Keeping | None = None, **options: Any) -> float:
    """Have that many audio frames sent at once; return the seconds from the order until `keeping` has the last."""
    counting = Counting()
    client = peer(url, counting, **options)
    client.connect()
    begun = time.perf_counter()
    client.request(Command.AUDIO, {"n": number})  # an event follows the last
    if keeping is not None:
        keeping.wait()
    taken = time.perf_counter() - begun
    counting.wait()
    client.close()
    return taken


def _peak_of(work: Callable[[], Any]) -> tuple[Any, int]:
    """Return what the work returns, and how many bytes more than before were allocated at the peak."""
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    found = work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return found, peak - before


def _figures(pcm: bytes, number: int, memory: int) -> dict[str, float]:
    """Return the share of the frames that are bit exact and at their place, and the memory of each byte of all."""
    expected = burst_of_audio(number)
    places = range(0, max(len(pcm), len(expected)), FRAME_BYTES)
    kept = sum(pcm[place : place + FRAME_BYTES] == expected[place : place + FRAME_BYTES] for place in places)
    return {"kept_share": kept / len(places), "memory_ratio": memory / len(expected)}


SCENARIOS: Final[dict[str, Scenario]] = {
    "burst": burst,
    "burst-wav": into_a_file,
    "burst-sink": into_a_sink,
    "burst-slow-sink": functools.partial(into_a_sink, delay=0.005),
}
