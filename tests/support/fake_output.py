"""A machine with speakers, in the manual time of `fake_audio`, which keeps the played audio sample by sample."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import NoReturn

from rtvi_sync.concurrency.latch import Notifier
from rtvi_sync.errors import DeviceError
from rtvi_sync.media import MediaDeviceInfo

from .fake_audio import World


def loudspeaker(name: str) -> MediaDeviceInfo:
    return MediaDeviceInfo(device_id=f"ALSA/{name}", kind="audiooutput", label=name)


class FakeSpeakers:
    """An `AudioBackend` whose speakers a test controls; changes take effect with the next call.

    Attributes:
        outputs: the speakers; the first is the default.
        leap: seconds of audio that a device takes at once; 0: it takes one sample after the other.
        speed: speed of the devices' clock, relative to the test's clock.
        late: returns how long the calling thread waits for the GIL in the library; called at each call.
        longest: the longest period with which a device can be opened.
        most: capacity of a device, in seconds of audio.
        open_error: raised by the next calls of `open_output()`.
        write_error: raised by the next calls of `write()`, also by a blocked one.
        hangs: no call returns while it is true.
        streams: all opened streams, in order.
        asked: the arguments of `open_output()`, in order.
        misused: calls that the interface does not allow.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.outputs = [loudspeaker("speaker_a"), loudspeaker("speaker_b")]
        self.leap = 0.0
        self.speed = 1.0
        self.late: Callable[[], float] = lambda: 0.0
        self.longest = math.inf
        self.most = math.inf
        self.open_error: Exception | None = None
        self.write_error: Exception | None = None
        self.hangs = False
        self.streams: list[FakeOutput] = []
        self.asked: list[tuple[str | None, int, float]] = []
        self.misused: list[str] = []
        self._notifier = Notifier()

    def hang(self, hangs: bool) -> None:
        self.hangs = hangs
        self._notifier.notify_all()

    def fail(self, error: Exception | None) -> None:
        """Make the open stream and later ones fail; None: no longer."""
        self.write_error = error
        self._notifier.notify_all()

    def devices(self) -> list[MediaDeviceInfo]:
        return list(self.outputs)

    def default(self, kind: str) -> MediaDeviceInfo | None:
        return next((device for device in self.outputs if device.kind == kind), None)

    def open_input(self, device_id: str | None, sample_rate_hz: int, period: float) -> NoReturn:
        raise NotImplementedError

    def open_output(self, device_id: str | None, sample_rate_hz: int, period: float) -> FakeOutput:
        self.asked.append((device_id, sample_rate_hz, period))
        self.answer()
        if self.open_error is not None:
            raise self.open_error
        known = {None: self.default("audiooutput")} | {device.device_id: device for device in self.outputs}
        device = known.get(device_id)
        if device is None:
            raise DeviceError(f"There is no speaker {device_id!r}", devices=("speaker",), type="not-found")
        if period > self.longest:
            raise DeviceError("It has no room for so much", devices=("speaker",))
        self.streams.append(FakeOutput(self, device, sample_rate_hz, min(self.most, 3 * period)))
        return self.streams[-1]

    def answer(self) -> None:
        """Block the calling thread as long as the library hangs, and then for the GIL."""
        while self.hangs:
            self._wait(lambda: not self.hangs, math.inf)
        self.sleep(self.late())

    def wait_for_room(self, until: float) -> None:
        """Block the calling thread in the library until a time."""
        self._wait(lambda: self.hangs or self.write_error is not None, until - self.world.time)
        while self.hangs:
            self._wait(lambda: not self.hangs, math.inf)

    def sleep(self, seconds: float) -> None:
        """Block the calling thread unconditionally."""
        self._wait(lambda: False, seconds)

    def _wait(self, ready: Callable[[], object], seconds: float) -> None:
        if seconds > 0 and not ready():
            self.world.wait(self._notifier, ready, seconds)


class FakeOutput:
    """An output stream that plays the written audio, and silence when it has none.

    Attributes:
        buffer: capacity, in seconds of audio.
        heard: all played samples.
        begun: time at which it played the first of them.
        dry: number of underruns.
        open: whether the stream is open.
    """

    def __init__(self, speakers: FakeSpeakers, device: MediaDeviceInfo, rate: int, buffer: float) -> None:
        self.device = device
        self.sample_rate_hz = rate
        self.buffer = buffer
        self.begun = speakers.world.time
        self.heard = bytearray()
        self.dry = 0
        self.open = True
        self._speakers = speakers
        self._owner = threading.current_thread()
        self._failed = False
        self._waiting = bytearray()
        self._is_dry = True
        self._pace = rate * speakers.speed  # samples per second of the test's clock
        self._leap = max(1, round(rate * speakers.leap))
        self._capacity = round(rate * buffer)

    def write(self, pcm: bytes) -> None:
        self._check("write", usable=True)
        assert type(pcm) is bytes
        assert len(pcm) % 2 == 0
        while True:
            if self._speakers.write_error is not None:
                self._failed = True
                raise self._speakers.write_error
            self._play()
            missing = len(pcm) // 2 - self._room()
            self._waiting += pcm[: 2 * self._room()]
            pcm = pcm[len(pcm) - 2 * max(0, missing) :]
            self._is_dry = self._is_dry and not self._waiting
            if missing <= 0:
                break
            # The stream waits until the rest of the audio fits, as far as its capacity allows.
            wanted = len(self.heard) // 2 + min(missing, self._capacity)
            self._speakers.wait_for_room(self.begun + math.ceil(wanted / self._leap) * self._leap / self._pace)
        self._speakers.answer()

    def room(self) -> float:
        self._check("room", usable=True)
        self._play()
        room = self._room() / self.sample_rate_hz
        self._speakers.answer()
        return room

    def drop(self) -> None:
        self._check("drop", usable=True)
        self._play()
        self._waiting.clear()
        self._is_dry = True
        self._speakers.answer()

    def close(self) -> None:
        self._check("close", usable=False)
        if self.open:
            self._play()
        self.open = False
        self._speakers.answer()

    def heard_at(self, index: int) -> float:
        """Return when a sample of `heard` was played."""
        return self.begun + index / self._pace

    def fail(self) -> None:
        """Record a failure: only `close()` may follow."""
        self._failed = True

    def _play(self) -> None:
        """Play until now."""
        leaps = int((self._speakers.world.time - self.begun) * self._pace / self._leap + 1e-3)
        missing = 2 * leaps * self._leap - len(self.heard)
        played = self._waiting[:missing]
        del self._waiting[:missing]
        self.heard += played + bytes(missing - len(played))
        if len(played) < missing and not self._is_dry:
            self._is_dry = True
            self.dry += 1

    def _room(self) -> int:
        return self._capacity - len(self._waiting) // 2

    def _check(self, call: str, *, usable: bool) -> None:
        """Record a call that would crash PortAudio."""
        if threading.current_thread() is not self._owner:
            self._speakers.misused.append(f"{call}() on another thread")
        if not self.open:
            self._speakers.misused.append(f"{call}() of a closed stream")
        if usable and self._failed:
            self._speakers.misused.append(f"{call}() after a failure")
