"""A machine with microphones, in manual time.

Time passes only when a test advances it. The package's threads sleep in it, in the library or at a notifier, and wake
at exactly their times, so that their behaviour does not depend on the speed of the tests.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import NoReturn

import attrs

from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.latch import Notifier
from rtvi_sync.errors import DeviceError
from rtvi_sync.media import MediaDeviceInfo
from tests.support.slowness import GUARD

ROLES = ("rtvi-mic", "rtvi-speaker")


@attrs.frozen
class Sleeper:
    """A condition that a thread waits for, with its due time."""

    notifier: Notifier
    ready: Callable[[], object]
    due: float


class World:
    """A clock that advances when a test says so."""

    def __init__(self) -> None:
        self.time = 500.0
        self._sleepers: dict[threading.Thread, Sleeper] = {}
        self._fell_asleep = Notifier()
        self._others = set(threading.enumerate())

    def now(self) -> float:
        return self.time

    def wait(self, notifier: Notifier, ready: Callable[[], object], timeout: float) -> None:
        """Sleep at `notifier` until `ready()`, at most `timeout` seconds of this clock."""
        due = self.time + timeout
        me = threading.current_thread()
        self._sleepers[me] = Sleeper(notifier, ready, due)
        self._fell_asleep.notify_all()
        try:
            assert notifier.wait_for(lambda: ready() or self.time >= due, Deadline(GUARD)), (
                "the test forgot this thread"
            )
        finally:
            del self._sleepers[me]

    def settle(self) -> None:
        """Let the threads run until all of them sleep or have ended."""
        end = Deadline(GUARD)
        while not self._fell_asleep.wait_for(self._asleep, Deadline(0.001)):
            assert not end.expired, "a thread did not come to rest"

    def advance(self, seconds: float) -> None:
        """Advance the clock; all that becomes due in this time runs at its time, in order."""
        target = self.time + seconds
        self.settle()
        while (due := min((s.due for s in list(self._sleepers.values())), default=math.inf)) <= target + 1e-9:
            self._set(max(self.time, due))
            self.settle()
        self._set(target)
        self.settle()

    def leap(self, seconds: float) -> None:
        """Advance the clock at once, as if the whole process had been stopped; do not wait for the threads."""
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
    """An `AudioBackend` whose devices a test controls; changes take effect with the next call.

    Attributes:
        inputs: the microphones; the first is the default.
        rate: rate at which the devices record; None: the requested rate.
        open_error: raised by the next calls of `open_input()`.
        open_takes: seconds that opening takes.
        first_frame_after: additional seconds that the first frame takes.
        read_error: raised by the next calls of `read()`, also by a blocked one.
        hangs: no call returns while it is true.
        backlog_limit: seconds of the backlog that the device reports at most.
        open: the streams that are open now.
        most_open: the largest number of streams open at once.
        asked: the arguments of `open_input()`, in order.
        misused: calls that the interface does not allow.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.inputs = [microphone("mic_a"), microphone("mic_b")]
        self.rate: int | None = None
        self.open_error: Exception | None = None
        self.open_takes = 0.0
        self.first_frame_after = 0.0
        self.read_error: BaseException | None = None
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

    def fail(self, error: BaseException | None = None) -> None:
        """Make the open stream and later ones fail; None: no longer."""
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

    def open_output(self, device_id: str | None, sample_rate_hz: int, period: float) -> NoReturn:
        raise NotImplementedError

    def answer(self, after: float, failed: Callable[[], object] = lambda: False) -> None:
        """Block the calling thread in the library."""
        world, due = self.world, self.world.time + after
        while True:
            if self._hangs:
                world.wait(self.notifier, lambda: not self._hangs, math.inf)
            elif world.time < due and not failed():
                world.wait(self.notifier, lambda: self._hangs or failed(), due - world.time)
            else:
                return


class FakeInput:
    """A stream that records a period every 20 ms. Each sample of the k-th is k."""

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
        """Record a call that would crash PortAudio."""
        if threading.current_thread() is not self._owner:
            self._audio.misused.append(f"{call}() on another thread")
        if self not in self._audio.open:
            self._audio.misused.append(f"{call}() of a closed stream")
        if usable and self._failed:
            self._audio.misused.append(f"{call}() after a failure")


def frame(number: int, samples: int = 320) -> bytes:
    """Return the `number`-th period of a stream, from 1 on."""
    return number.to_bytes(2, "little") * samples


def within(limit: float, condition: Callable[[], object]) -> bool:
    """Let other threads run in real time until the condition holds; return False if it never does."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            return False
        threading.Event().wait(0.001)
    return True
