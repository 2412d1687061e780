"""A machine with microphones, in manual time.

Nothing happens in it but at the times to which a test lets it advance. The threads of the package sleep in it, in the
library or at a notifier, and wake at exactly their times; so what they do does not depend on how fast the tests run.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

import attrs

from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.latch import Notifier
from rtvi_sync.errors import DeviceError
from rtvi_sync.media import MediaDeviceInfo
from tests.support.slowness import GUARD

# Real time after which something has gone wrong.
LIMIT = GUARD
ROLES = ("rtvi-mic", "rtvi-speaker")


@attrs.frozen
class Sleeper:
    """What a thread waits for."""

    notifier: Notifier
    ready: Callable[[], object]
    due: float


class World:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.time = 500.0
        self._sleepers: dict[threading.Thread, Sleeper] = {}
        self._fell_asleep = Notifier()
        self._others = set(threading.enumerate())

    def now(self) -> float:
        return self.time

    def wait(self, notifier: Notifier, ready: Callable[[], object], timeout: float) -> None:
        """Sleep at `notifier` until `ready()`, at most `timeout` seconds of this world's time."""
        due = self.time + timeout
        me = threading.current_thread()
        self._sleepers[me] = Sleeper(notifier, ready, due)
        self._fell_asleep.notify_all()
        try:
            assert notifier.wait_for(lambda: ready() or self.time >= due, Deadline(LIMIT)), (
                "the test forgot this thread"
            )
        finally:
            del self._sleepers[me]

    def settle(self) -> None:
        """Let the threads run until all sleep or have ended."""
        end = Deadline(LIMIT)
        while not self._fell_asleep.wait_for(self._asleep, Deadline(0.001)):
            assert not end.expired, "a thread did not come to rest"

    def advance(self, seconds: float) -> None:
        """Let time pass; what is due meanwhile happens at its time, one after the other."""
        target = self.time + seconds
        self.settle()
        while (due := min((s.due for s in list(self._sleepers.values())), default=math.inf)) <= target + 1e-9:
            self._set(max(self.time, due))
            self.settle()
        self._set(target)
        self.settle()

    def leap(self, seconds: float) -> None:
        """Let time pass at once, as if the whole process had been stopped meanwhile; does not wait for the threads."""
        self._set(self.time + seconds)

    def _set(self, now: float) -> None:
        self.time = max(self.time, now)
        for sleeper in list(self._sleepers.values()):
            sleeper.notifier.notify_all()

    def _asleep(self) -> bool:
        threads = {t for t in threading.enumerate() if t.name.startswith(ROLES)} - self._others
        for thread in threads:
            sleeper = self._sleepers.get(thread)
            if sleeper is None or self.time >= sleeper.due or sleeper.ready():
                return False
        return True


def microphone(name: str) -> MediaDeviceInfo:
    return MediaDeviceInfo(device_id=f"ALSA/{name}", kind="audioinput", label=name)


class FakeAudio:
    """An `AudioBackend` whose devices do what a test tells them; changes count from the next call on.

    Attributes:
        inputs: the microphones; the first is the default.
        rate: what the devices record at, whatever they are asked for; None: what they are asked for.
        open_error: raised by the next calls of `open_input()`.
        open_takes: how long opening takes, in seconds.
        first_frame_after: how much longer than usual the first frame takes, in seconds.
        read_error: raised by the next calls of `read()`, also one that waits already.
        hangs: no call returns while it is true.
        backlog_limit: no more than so many seconds of what waits are told.
        open: the streams that are open now.
        most_open: how many were open at once.
        asked: the arguments of `open_input()`, in order.
        misused: what was called that the seam does not allow.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.inputs = [microphone("mic_a"), microphone("mic_b")]
        self.rate: int | None = None
        self.open_error: Exception | None = None
        self.open_takes = 0.0
        self.first_frame_after = 0.0
        self.read_error: Exception | None = None
        self._hangs = False
        self.backlog_limit = math.inf
        self.open: list[FakeInput] = []
        self.most_open = 0
        self.asked: list[tuple[str | None, int, float]] = []
        self.closed_at: list[float] = []
        self.misused: list[str] = []
        self.notifier = Notifier()

    @property
    def hangs(self) -> bool:
        return self._hangs

    @hangs.setter
    def hangs(self, hangs: bool) -> None:
        self._hangs = hangs
        self.notifier.notify_all()

    def fail(self, error: Exception | None = None) -> None:
        """Have the open stream, and those to come, fail; without an error: no more."""
        self.read_error = error
        self.notifier.notify_all()

    def devices(self) -> list[MediaDeviceInfo]:
        return list(self.inputs)

    def default(self, kind: str) -> MediaDeviceInfo | None:
        return next((device for device in self.inputs if device.kind == kind), None)

    def open_input(self, device_id: str | None, sample_rate_hz: int, period: float) -> FakeInput:
        self.asked.append((device_id, sample_rate_hz, period))
        self.answer(self.open_takes)
        if self.open_error is not None:
            raise self.open_error
        device = self.default("audioinput")
        if device_id is not None:
            device = next((known for known in self.inputs if known.device_id == device_id), None)
        if device is None:
            raise DeviceError(f"There is no mic {device_id!r}", devices=("mic",), type="not-found")
        return FakeInput(self, device, self.rate or sample_rate_hz, period)

    def open_output(self, device_id: str | None, sample_rate_hz: int, period: float) -> None:
        raise NotImplementedError

    def answer(self, after: float, failed: Callable[[], object] = lambda: False) -> None:
        """Have the calling thread wait in the library."""
        world, due = self.world, self.world.time + after
        while True:
            if self._hangs:
                world.wait(self.notifier, lambda: not self._hangs, math.inf)
            elif world.time < due and not failed():
                world.wait(self.notifier, lambda: self._hangs or failed(), due - world.time)
            else:
                return


class FakeInput:
    """Records a period every 20 ms. Each sample of the k-th is k."""

    def __init__(self, audio: FakeAudio, device: MediaDeviceInfo, rate: int, period: float) -> None:
        self.device = device
        self.sample_rate_hz = rate
        self._audio = audio
        self._owner = threading.current_thread()
        self._period = period
        self._samples = round(rate * period)
        self._begun = audio.world.time + audio.first_frame_after
        self._read = 0
        self._failed = False
        audio.open.append(self)
        audio.most_open = max(audio.most_open, len(audio.open))

    def read(self) -> bytes:
        self._check("read", usable=True)
        audio = self._audio
        ready_at = self._begun + (self._read + 1) * self._period
        audio.answer(ready_at - audio.world.time, lambda: audio.read_error)
        if audio.read_error is not None:
            self._failed = True
            raise audio.read_error
        self._read += 1
        return (self._read % 30000).to_bytes(2, "little") * self._samples

    def backlog(self) -> float:
        self._check("backlog", usable=True)
        waiting = self._audio.world.time - self._begun - self._read * self._period
        return min(max(0.0, waiting), self._audio.backlog_limit)

    def close(self) -> None:
        self._check("close", usable=False)
        self._audio.answer(0.0)
        self._audio.open.remove(self)
        self._audio.closed_at.append(self._audio.world.time)

    def _check(self, call: str, *, usable: bool) -> None:
        """Note what would crash PortAudio."""
        if threading.current_thread() is not self._owner:
            self._audio.misused.append(f"{call}() on another thread")
        if self not in self._audio.open:
            self._audio.misused.append(f"{call}() of a closed stream")
        if usable and self._failed:
            self._audio.misused.append(f"{call}() after a failure")


def frame(number: int, samples: int = 320) -> bytes:
    """What a stream delivers as its `number`-th period, from 1 on."""
    return number.to_bytes(2, "little") * samples


def within(limit: float, condition: Callable[[], object]) -> bool:
    """Let other threads run, in real time, until it holds; False if it does not."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            return False
        threading.Event().wait(0.001)
    return True
