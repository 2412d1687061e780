"""WebRTC beside our WebSocket and beside client-js: with a real bot that sends voice and pictures back, and with one
that costs little.

client-js is measured in its page, by the functions of `peers.client_js.webrtc`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..peers.base import LIMIT
from .echo import PAUSE, SENT_HZ, SESSIONS, compare, speech, summary
from .figures import Scenario, percentile

if TYPE_CHECKING:
    from rtvi_sync import RTVIClient

    from ..peers.ours import Ours

#: Numbers of sessions in one process, each with audio both ways.
NUMBERS: Final = (12,)
#: Shares of the bot's packets that are lost.
LOSSES: Final = (0.05,)
#: Size of the pictures, and how many there are in a second.
WIDTH, HEIGHT, FPS = 640, 480, 15
# Seconds until the process is quiet again after connecting.
SETTLE: Final = 2.0
_FRAMES_PER_SECOND: Final = 50

#: Of ours, by either transport.
OursType: TypeAlias = "type[Ours]"


def client_of(peer: OursType, url: str, query: str = "", **media: Any) -> RTVIClient:
    """Return a client that is not connected; by default it says and keeps nothing."""
    from rtvi_sync import RTVIClient
    from rtvi_sync.media import NullSink, SilenceSource

    media = {"mic": SilenceSource(), "speaker": NullSink(), **media}
    return RTVIClient(transport=peer.transport_to_bot(url, query), connect_timeout=LIMIT, **media)


def connect(peer: OursType, url: str, effort: float) -> dict[str, float]:
    """Time from the call until the bot is ready, and from the other call until it returns, one after the other."""
    connecting, closing = [], []
    for _ in range(4 + round(40 * effort)):
        client = client_of(peer, url)
        begun = time.perf_counter()
        client.connect()
        ready = time.perf_counter()
        client.disconnect()
        closing.append(time.perf_counter() - ready)
        connecting.append(ready - begun)
    # The first sessions import modules, and have the bot do so.
    return {"connect_ms": percentile(connecting[3:], 0.5) * 1e3, "close_ms": percentile(closing[3:], 0.5) * 1e3}


def echo(peer: OursType, url: str, effort: float) -> dict[str, float]:
    """Measure from a chunk of the microphone to the chunk of the sink that has its sound, and compare the two."""
    return summary([each for _ in range(max(1, round(SESSIONS * effort))) for each in _echoes(peer, url)])


def _echoes(peer: OursType, url: str) -> list[tuple[float, float, float]]:
    from rtvi_sync.media import CallbackSink, PushSource

    pcm, size = speech(), 2 * SENT_HZ // _FRAMES_PER_SECOND
    taken: list[tuple[float, int]] = []
    heard: list[tuple[float, bytes]] = []
    rates: set[int] = set()

    def hear(chunk: bytes, rate_hz: int) -> None:
        heard.append((time.monotonic(), chunk))
        rates.add(rate_hz)

    source = PushSource(SENT_HZ)
    with client_of(peer, url, mic=source, speaker=CallbackSink(hear)):
        begun = time.monotonic()
        for place in range(0, len(pcm), size):
            time.sleep(max(0.0, begun + place / 2 / SENT_HZ - time.monotonic()))
            taken.append((time.monotonic(), place // 2))
            source.push(pcm[place : place + size])
        time.sleep(PAUSE)
    (rate_hz,) = rates
    return compare(taken, heard, rate_hz)


def cpu(peer: OursType, url: str, effort: float) -> dict[str, float]:
    """Measure the CPU time of a session in which a bot keeps sending back the received audio."""
    from rtvi_sync.media import ToneSource

    with client_of(peer, url, mic=ToneSource()) as client:
        time.sleep(SETTLE)
        before = client.stats()
        spent, taken = cpu_share(max(1.0, 20 * effort))
        after = client.stats()
    check_share("of the echo came", (after.audio_received - before.audio_received) / taken)
    return {"cpu_percent": spent * 100}


def cpu_share(seconds: float) -> tuple[float, float]:
    """Return how much of a core this process needs while it waits, and how long it waited."""
    begun, spent = time.perf_counter(), time.process_time()
    time.sleep(seconds)
    taken = time.perf_counter() - begun
    return (time.process_time() - spent) / taken, taken


def check_share(words: str, share: float) -> None:
    """Check that a measurement is of a session that works.

    Raises:
        RuntimeError: it is not.
    """
    if share < 0.9:
        raise RuntimeError(f"only {share:.0%} {words}")


def sessions(peer: OursType, url: str, effort: float, *, number: int) -> dict[str, float]:
    """Measure CPU of each of many sessions, and the speech received at both ends, of the worst session."""
    from rtvi_sync.media import ToneSource

    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(client_of(peer, url, mic=ToneSource())) for _ in range(number)]
        time.sleep(SETTLE)
        for client in clients:
            client.send_client_request("heard", timeout=LIMIT)
        before = [(time.perf_counter(), client.stats().audio_received) for client in clients]
        spent, _ = cpu_share(max(1.0, 20 * effort))
        after = [(time.perf_counter(), client.stats().audio_received) for client in clients]
        sent = [client.send_client_request("heard", timeout=LIMIT) for client in clients]
        unsent = sum(client.stats().audio_unsent for client in clients)
        threads = len(list(Path("/proc/self/task").iterdir()))
    heard = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(before, after, strict=True)]
    return {
        "cpu_percent_each": spent * 100 / number,
        "sent_share": min(each["frames"] / math.floor(each["seconds"] * _FRAMES_PER_SECOND) for each in sent),
        "heard_share": min(heard),
        "unsent_s": unsent,
        "threads": float(threads),
    }


def loss(peer: OursType, url: str, effort: float, *, share: float) -> dict[str, float]:
    """Measure the audio that the application gets, and when, from a bot some of whose packets are lost."""
    from rtvi_sync.media import CallbackSink

    heard: list[tuple[float, float]] = []  # the arrival of each chunk, and its length
    sink = CallbackSink(lambda pcm, rate_hz: heard.append((time.monotonic(), len(pcm) / 2 / rate_hz)))
    with client_of(peer, url, f"?loss={share}", speaker=sink) as client:
        time.sleep(max(1.0, 64 * effort))
        concealed = client.stats().audio_concealed
    return timeline(heard) | {"concealed_share": concealed / sum(length for _, length in heard)}


def timeline(heard: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Return how much of the time has sound, the longest gap between two chunks, and how much later all is in the end.

    Args:
        heard: the arrival of each chunk, and the seconds of sound that it has.
    """
    taken = heard[-1][0] - heard[0][0]
    position, late = 0.0, []
    for came, length in heard:
        late.append(came - heard[0][0] - position)
        position += length
    some = min(100, len(late) // 4)
    times = [came for came, _ in heard]
    return {
        "sound_share": (position - heard[-1][1]) / taken,
        "gap_ms": max(b - a for a, b in itertools.pairwise(times)) * 1e3,
        "later_ms": (percentile(late[-some:], 0.5) - percentile(late[:some], 0.5)) * 1e3,
    }


def video(peer: OursType, url: str, effort: float) -> dict[str, float]:
    """Measure the added cost of pictures both ways over voice alone, and how many of the captured pictures return."""
    from rtvi_sync.media import ToneSource

    seconds, camera = max(2.0, 20 * effort), _Camera()
    with client_of(peer, url, mic=ToneSource(), cam=camera) as client:
        time.sleep(SETTLE)
        before, _ = cpu_share(seconds)
        client.enable_cam(True)
        shown = _Shown(client)
        time.sleep(SETTLE)
        first = camera.taken, client.send_client_request("pictures"), shown.number
        spent, taken = cpu_share(seconds)
        last = camera.taken, client.send_client_request("pictures"), shown.number
    return video_figures(first, last, taken, spent - before)


def video_figures(first: Sequence[float], last: Sequence[float], taken: float, cpu_more: float) -> dict[str, float]:
    """Return the figures of pictures that were sent, seen by the bot and back: their numbers before and after."""
    sent, seen, back = (b - a for a, b in zip(first, last, strict=True))
    return {
        "cpu_percent_more": cpu_more * 100,
        "sent_per_second": sent / taken,
        "seen_share": seen / sent,
        "back_share": back / sent,
    }


class _Camera:
    """A camera whose picture moves a little, `FPS` times a second."""

    def __init__(self) -> None:
        from rtvi_sync.media.video import Pace

        self._pace = Pace(FPS)
        self._rows = bytes(value for x in range(2 * WIDTH) for value in (x % 256, x // 5 % 256, 255 - x % 256))
        self.taken = 0

    def read(self) -> Any:
        """Wait for the next picture and return it."""
        from rtvi_sync.media import VideoFrame

        self._pace.wait()
        self.taken += 1
        begin = 3 * (4 * self.taken % WIDTH)
        image = self._rows[begin : begin + 3 * WIDTH] * HEIGHT
        return VideoFrame(image=image, width=WIDTH, height=HEIGHT, timestamp=time.monotonic())

    def close(self) -> None:
        """Keep nothing."""


class _Shown:
    """Counts the pictures of the bot, which are read as a program reads them that shows them."""

    def __init__(self, client: RTVIClient) -> None:
        self.number = 0
        deadline = time.monotonic() + LIMIT
        while (track := client.tracks().bot.video) is None:
            if time.monotonic() > deadline:
                raise TimeoutError("the bot shows nothing")
            time.sleep(0.01)
        self._track = track
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        for _ in self._track.frames(buffer=4):
            self.number += 1


def connects(peer: OursType, url: str, effort: float) -> dict[str, float]:
    """Measure the remains of ended sessions: threads, descriptors, tasks, and memory of each."""
    from rtvi_sync.media import ToneSource

    def some(number: int) -> dict[str, float]:
        for _ in range(number):
            with client_of(peer, url, mic=ToneSource()):
                time.sleep(0.1)
        time.sleep(7)  # by then the loop's thread is gone, too
        return _left()

    each = max(2, round(25 * effort))
    begun = some(each)  # the modules that the first ones load stay
    middle = some(each)
    end = some(each)
    return {
        **{f"{name}_left": end[name] - begun[name] for name in ("threads", "descriptors", "tasks")},
        "kb_each": (end["kb"] - begun["kb"]) / (2 * each),
        "kb_each_late": (end["kb"] - middle["kb"]) / each,
    }


def _left() -> dict[str, float]:
    import psutil  # the environments of other libraries do not have it

    gc.collect()
    psutil.heap_trim()
    tasks = [each for each in gc.get_objects() if isinstance(each, asyncio.Task)]
    return {
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "tasks": len(tasks),
        "kb": int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e3,
    }


#: With a real bot.
OF_PIPECAT: Final[dict[str, Callable[[OursType, str, float], dict[str, float]]]] = {
    "webrtc-connect": connect,
    "webrtc-echo": echo,
    "webrtc-cpu": cpu,
    "webrtc-video": video,
}
#: With one that costs little.
OF_PACKETS: Final[dict[str, Callable[[OursType, str, float], dict[str, float]]]] = {
    **{f"webrtc-loss-{round(100 * share)}": functools.partial(loss, share=share) for share in LOSSES},
    **{f"webrtc-{number}": functools.partial(sessions, number=number) for number in NUMBERS},
    "webrtc-connects": connects,
}
SCENARIOS: Final[dict[str, Scenario]] = {**OF_PIPECAT, **OF_PACKETS}  # type: ignore[dict-item]
