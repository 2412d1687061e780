"""One session: how soon it is there, how long a word takes, and how much goes through."""

from __future__ import annotations

import functools
import statistics
import sys
import threading
import time
from typing import Final

from ..peers.base import LIMIT, Peer
from ..server import Command
from ..server_frames import ANSWER_TEXT, FRAME_BYTES
from .figures import Scenario, percentile, spread

# The share of a measurement that only warms up.
_WARM_UP: Final = 0.05
# Audio frames that are sent in a row.
_LOT: Final = 40
# Sessions that only warm up.
_WARMING: Final = 8


class Counting:
    """Counts events and wakes who waits for the last."""

    def __init__(self) -> None:
        self.expect(1)

    def expect(self, number: int) -> None:
        """Count from 0 again."""
        self._left = self._number = number
        self._done = threading.Event()

    def __call__(self, _: str) -> None:
        """Count one more."""
        if self._left == self._number:
            self.first = time.perf_counter()
        self._left -= 1
        if not self._left:
            self.last = time.perf_counter()
            self._done.set()

    def wait(self) -> None:
        """Wait until the last has arrived."""
        if not self._done.wait(LIMIT):
            raise TimeoutError(f"{self._left} of {self._number} events did not arrive")


class Timing(Counting):
    """Notes how old each event is on arrival."""

    def __init__(self) -> None:
        super().__init__()
        self.ages: list[float] = []

    def __call__(self, stamp: str) -> None:
        """Count one more."""
        self.ages.append(time.monotonic() - float(stamp))
        super().__call__(stamp)

    def settled(self) -> list[float]:
        """Return the ages, without the warm-up."""
        return self.ages[int(len(self.ages) * _WARM_UP) :]


def connect(peer: type[Peer], url: str, effort: float) -> dict[str, float]:
    """Time a client's construction until a bot is ready, and the last call until it returns.

    As for each conversation of a program: a new client that hands audio to a function. Work left over from the end of
    one session falls on the next one.
    """
    peer.prepare()
    connecting, closing = [], []
    for _ in range(_WARMING + 4 + round(80 * effort)):
        begun = time.perf_counter()
        client = peer(url, on_audio=len)
        made = time.perf_counter() - begun
        connecting.append(made + client.seconds("connect"))
        client.request(Command.ECHO)
        closing.append(client.seconds("close"))
    return {
        "first_ms": connecting[0] * 1e3,
        "connect_ms": percentile(connecting[_WARMING:], 0.5) * 1e3,
        "close_ms": percentile(closing[_WARMING:], 0.5) * 1e3,
    }


def request(peer: type[Peer], url: str, effort: float) -> dict[str, float]:
    """Measure from client message to server response, asked on the main thread."""
    client = peer(url)
    client.connect()
    taken = [client.seconds("request", Command.ECHO, number) for number in range(200 + round(3000 * effort))]
    client.close()
    return spread(taken[200:], "us", 1e6)


def ask(peer: type[Peer], url: str, effort: float) -> dict[str, float]:
    """Measure from the end of an answer until the call that waits for it returns, and the CPU time of a turn."""
    client = peer(url, hearing=True)
    client.connect()
    late, spent = [], []
    for number in range(4 + round(150 * effort)):
        before = time.process_time()
        said = client.ask(f"question {number}")
        returned, after = time.monotonic(), time.process_time()
        if said != ANSWER_TEXT:
            raise RuntimeError(f"the answer was {said!r}")
        late.append(returned - client.request(Command.ANSWERED)["ended"])
        spent.append(after - before)
    client.close()
    # The first ones warm up.
    return {**spread(late[3:], "us", 1e6), "cpu_ms": statistics.mean(spent[3:]) * 1e3}


def latency(peer: type[Peer], url: str, effort: float, *, rate: float, seconds: float) -> dict[str, float]:
    """Measure from the server's `send()` to the handler, a number of times a second."""
    timing = Timing()
    client = peer(url, timing)
    client.connect()
    number = max(3, round(rate * seconds * effort))
    timing.expect(number)
    client.request(Command.EVENTS, {"n": number, "rate": rate})
    timing.wait()
    client.close()
    return spread(timing.settled(), "us", 1e6)


def busy_event(peer: type[Peer], url: str, effort: float) -> dict[str, float]:
    """Measure as `latency` does, while the main thread computes; in units of `sys.getswitchinterval()`."""
    timing = Timing()
    client = peer(url, timing)
    client.connect()
    number = max(10, round(600 * effort))
    timing.expect(number)
    client.request(Command.EVENTS, {"n": number, "rate": 50})
    waiting = threading.Thread(target=timing.wait)
    waiting.start()
    _compute_until_end_of(waiting)
    client.close()
    return spread(timing.settled(), "intervals", 1 / sys.getswitchinterval())


def busy_request(peer: type[Peer], url: str, effort: float) -> dict[str, float]:
    """Measure `request` on another thread while the main thread computes; in units of `sys.getswitchinterval()`."""
    client = peer(url)
    client.connect()
    taken = []

    def ask() -> None:
        for number in range(max(10, round(600 * effort))):
            begun = time.perf_counter()
            client.request(Command.ECHO, number)
            taken.append(time.perf_counter() - begun)

    asking = threading.Thread(target=ask)
    asking.start()
    _compute_until_end_of(asking)
    client.close()
    return spread(taken[int(len(taken) * _WARM_UP) :], "intervals", 1 / sys.getswitchinterval())


def _compute_until_end_of(thread: threading.Thread) -> None:
    number = 0
    while thread.is_alive():
        for _ in range(1000):
            number = (number * 1103515245 + 12345) % 2147483648


def events(peer: type[Peer], url: str, effort: float) -> dict[str, float]:
    """Measure how many events a second reach the handler, of more than the line holds."""
    counting = Counting()
    client = peer(url, counting)
    client.connect()
    for number in (5_000, round(200_000 * effort)):  # the first ones warm up
        counting.expect(number)
        spent = time.process_time()
        client.request(Command.EVENTS, {"n": number})
        counting.wait()
    spent = time.process_time() - spent
    client.close()
    return {"per_second": (number - 1) / (counting.last - counting.first), "cpu_us": spent / number * 1e6}


def audio_down(peer: type[Peer], url: str, effort: float) -> dict[str, float]:
    """Measure how many audio frames a second reach a sink that keeps them."""
    counting = Counting()
    client = peer(url, counting, hearing=True)
    client.connect()
    sent = 0
    for number in (5_000, round(100_000 * effort)):
        sent += number * FRAME_BYTES
        counting.expect(1)
        begun = time.perf_counter()
        client.request(Command.AUDIO, {"n": number})  # an event follows the last
        counting.wait()
        client.wait_heard(sent)
        taken = time.perf_counter() - begun
    heard = client.heard_bytes
    client.close()
    if heard != sent:
        raise RuntimeError(f"{heard} bytes of {sent} were heard")
    return {"per_second": number / taken}


def audio_up(peer: type[Peer], url: str, effort: float) -> dict[str, float]:
    """Measure how many audio frames a second reach the server; in lots, because a client may keep at most a second."""
    client = peer(url)
    client.connect()
    lots = 10 + round(500 * effort)
    taken = spent = 0.0
    for lot in range(lots):
        client.request(Command.HEARD)
        begun, before = time.monotonic(), time.process_time()
        client.send_frames(_LOT)
        heard = client.request(Command.HEARD)
        after = time.process_time()  # not before: a library may send on another thread
        if heard["frames"] != _LOT:
            raise RuntimeError(f"{heard['frames']} frames of {_LOT} were heard")
        if lot >= 10:  # the first ones warm up
            taken += heard["last"] - begun
            spent += after - before
    client.close()
    number = (lots - 10) * _LOT
    return {"per_second": number / taken, "cpu_us": spent / number * 1e6}


SCENARIOS: Final[dict[str, Scenario]] = {
    "connect": connect,
    "request": request,
    "ask": ask,
    "latency-50": functools.partial(latency, rate=50, seconds=12),
    "latency-1000": functools.partial(latency, rate=1000, seconds=4),
    "busy-event": busy_event,
    "busy-request": busy_request,
    "events": events,
    "audio-down": audio_down,
    "audio-up": audio_up,
}
