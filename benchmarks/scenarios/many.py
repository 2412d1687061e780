"""Many sessions in one process, each with audio both ways in real time and five events a second."""

from __future__ import annotations

import functools
import gc
import itertools
import resource
import statistics
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from ..peers.base import SETTLE, Peer
from ..server import Command, Heard
from ..server_frames import FRAME_BYTES, FRAMES_PER_SECOND, stamps_of
from .figures import Scenario, spread

NUMBERS: Final = (1, 100, 500)
_EVENTS_PER_SECOND: Final = 5
#: The least number of events: few sessions are measured for longer than 20 s.
_EVENTS: Final = 200
#: How often sessions are measured without recordings, and with them.
_TURNS: Final = 3


class Hearing:
    """A sink's function of the application, which keeps the statistics of one session's audio.

    Args:
        ages: gets how old each frame is.
    """

    def __init__(self, ages: list[float]) -> None:
        self.heard = Heard()
        self._ages = ages

    def __call__(self, pcm: bytes) -> None:
        """Count one more frame, or some at once."""
        now = time.monotonic()
        for stamp in stamps_of(pcm):
            self._ages.append(now - stamp)
        self.heard.note(len(pcm) // FRAME_BYTES, len(pcm))


def sessions(peer: type[Peer], url: str, effort: float, *, number: int, own_audio: bool = False) -> dict[str, float]:
    """Measure CPU, age of events and the audio that the server hears of all; memory and threads of each one more.

    Args:
        own_audio: the application takes each audio frame of the bots by a function, and pushes the frames to send.
    """
    _allow_descriptors(2 * number + 100)
    address = f"{url}?audio={FRAMES_PER_SECOND}&events={_EVENTS_PER_SECOND}"
    ages: list[float] = []

    def note(stamp: str) -> None:
        ages.append(time.monotonic() - float(stamp))

    audio_ages: list[float] = []
    hearings = [Hearing(audio_ages) for _ in range(number if own_audio else 0)]
    clients = [
        peer(address, note, talking=True, on_audio=on_audio) for on_audio in hearings or itertools.repeat(None, number)
    ]
    clients[0].connect()
    time.sleep(0.2)
    held, threads = _held(), _threads()
    begun = time.perf_counter()
    for client in clients[1:]:
        client.connect()
    connecting = time.perf_counter() - begun
    time.sleep(SETTLE)
    figures = {"threads": float(_threads())}
    if number > 1:  # now, because the notes below take memory too
        figures |= {
            "kb_each": (_held() - held) / (number - 1) / 1e3,
            "threads_each": (figures["threads"] - threads) / (number - 1),
            "connect_ms": connecting / (number - 1) * 1e3,
        }
    for client in clients:
        client.request(Command.HEARD)  # audio heard before does not count
    ages.clear()
    audio_ages.clear()
    for hearing in hearings:
        hearing.heard = Heard()
    begun, spent = time.perf_counter(), time.process_time()
    time.sleep(max(1.0, max(20.0, _EVENTS / (number * _EVENTS_PER_SECOND)) * effort))
    spent, taken = time.process_time() - spent, time.perf_counter() - begun
    measured = ages.copy()
    if own_audio:
        late = spread(audio_ages.copy() or [taken], "ms", 1e3)
        figures |= {f"audio_{name}": value for name, value in late.items()}
        figures["taken_share"] = min(in_time(hearing.heard.told()) for hearing in hearings)
    heard = [client.request(Command.HEARD) for client in clients]
    for client in clients:
        client.close()
    # Only received audio counts: a client that falls behind has spent little.
    expected = number * taken
    return figures | {
        "cpu_percent": spent / taken * 100,
        **spread(measured or [taken], "ms", 1e3),
        "gap_ms": max(each["gap"] for each in heard) * 1e3,
        "events_share": len(measured) / (expected * _EVENTS_PER_SECOND),
        "sound_share": min(map(in_time, heard)),
        "server_late_ms": max(each["late"] for each in heard) * 1e3,
    }


def recorded(peer: type[Peer], url: str, effort: float, *, number: int) -> dict[str, float]:
    """Measure the CPU and the memory that recordings add to each session, with and without them in turn."""
    _allow_descriptors(4 * number + 100)  # two files each
    address = f"{url}?audio={FRAMES_PER_SECOND}&events={_EVENTS_PER_SECOND}"
    clients = [peer(address, talking=True) for _ in range(number)]
    for client in clients:
        client.connect()
    time.sleep(SETTLE)
    seconds = max(1.0, 10.0 * effort)
    without, recording, held = [], [], []
    lost = 0.0
    for turn in range(_TURNS):
        without.append(_cpu_percent(seconds))
        before = _held()
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(number) as pool:
            made = [client.record(f"{folder}/{turn}-{index}") for index, client in enumerate(clients)]
            time.sleep(1.0)  # the files are there
            recording.append(_cpu_percent(seconds))
            held.append(_held() - before)
            for _ in pool.map(lambda each: each.close(), made):  # each waits until all of it is written
                pass
        lost += sum(row["seconds"] for each in made for row in each.lost)
    for client in clients:
        client.close()
    return {
        "cpu_percent_each": statistics.median(without) / number,
        "cpu_percent_more_each": (statistics.median(recording) - statistics.median(without)) / number,
        "kb_more_each": statistics.median(held) / number / 1e3,
        "lost_seconds": lost,
        "kb_peak": float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss),
    }


def _cpu_percent(seconds: float) -> float:
    """Return the CPU of this process for some seconds from now, in percent of a core."""
    begun, spent = time.perf_counter(), time.process_time()
    time.sleep(seconds)
    return (time.process_time() - spent) / (time.perf_counter() - begun) * 100


def in_time(heard: Mapping[str, float]) -> float:
    """Return the received share of the frames that were due.

    Microseconds decide whether the frames at both ends fall into the time. So the due frames are counted from the first
    received frame to the last, if these arrived within two periods of the ends.
    """
    periods = 2 / FRAMES_PER_SECOND
    begins = min(heard["first"], heard["begun"] + periods)
    ends = max(heard["last"], heard["begun"] + heard["seconds"] - periods)
    due = round((ends - begins) * FRAMES_PER_SECOND) + 1
    return min(1.0, heard["frames"] / due)


def _allow_descriptors(number: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(number, hard), hard))


def _held() -> float:
    """Return the bytes that the process holds, including its part of the memory that it shares with others."""
    gc.collect()
    for line in Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024.0
    raise RuntimeError("this system does not tell")


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


SCENARIOS: Final[dict[str, Scenario]] = {
    **{f"sessions-{number}": functools.partial(sessions, number=number) for number in NUMBERS},
    "recorded-100": functools.partial(recorded, number=100),
    "own-audio-100": functools.partial(sessions, number=100, own_audio=True),
}
