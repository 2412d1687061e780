"""A timer thread in manual time, and the media of a session without a transport."""

from __future__ import annotations

import math
import threading
from types import SimpleNamespace
from typing import Any

from rtvi_sync.errors import DeviceError
from rtvi_sync.events import RTVIEvent
from rtvi_sync.media import NullSink, SilenceSource
from rtvi_sync.media.media import Media


class ManualTask:
    def __init__(self, step, due: float) -> None:
        self.step, self.due = step, due

    def cancel(self) -> None:
        self.step = None

    def reschedule(self, due: float) -> None:
        self.due = due


class ManualPacer:
    """A scheduler that runs steps on the calling thread, inside `advance()`, at exactly their times."""

    def __init__(self) -> None:
        self.time = 500.0
        self.tasks: list[ManualTask] = []

    def now(self) -> float:
        return self.time

    def beat(self) -> float:
        return self.time

    def add(self, step, first: float) -> ManualTask:
        self.tasks.append(ManualTask(step, first))
        return self.tasks[-1]

    def live(self) -> list[ManualTask]:
        return [task for task in self.tasks if task.step is not None and task.due < math.inf]

    def advance(self, seconds: float, *, stall: float = 0.0) -> None:
        """Let time pass; `stall` delays the first step by that many seconds."""
        target = self.time + seconds + 1e-9
        while (live := self.live()) and min(task.due for task in live) <= max(target, self.time):
            task = min(live, key=lambda task: task.due)
            self.time = max(self.time, task.due) + stall
            stall = 0.0
            due = task.step(self.time)
            if due is None:
                task.cancel()
            else:
                task.due = due
        self.time = max(self.time, target - 1e-9)


class NoDevices:
    """A machine without audio devices."""

    def devices(self):
        return []

    def open_input(self, device_id, sample_rate_hz, period):
        raise self._absent(device_id)

    def open_output(self, device_id, sample_rate_hz, period):
        raise self._absent(device_id)

    def _absent(self, device_id):
        return DeviceError(f"There is no sound device {device_id or 'by default'}", type="not-found")


class Talk:
    """The media of a client, with the audio that was sent and the events that were published."""

    def __init__(self, timer, workers, **options) -> None:
        self.timer = timer
        self.workers = workers
        given: dict[str, Any] = {"mic": SilenceSource(), "speaker": NullSink(), "backend": NoDevices(), **options}
        self.manager = Media(**given)
        self.manager.publisher = self
        self.chunks: list[bytes] = []
        self.rates: list[int] = []
        self.times: list[float] = []
        self.events: list[tuple[str, object]] = []
        self.other_events: list[tuple[str, object]] = []
        self.levels: list[tuple[str, object]] = []
        self.reported = threading.Event()

    def has_listener(self, event) -> bool:
        return True

    def has_explicit_listener(self, event) -> bool:
        """Return False, so that no test looks for new devices."""
        return False

    def event(self, event, data=None) -> None:
        """Keep errors and other events apart."""
        if event is RTVIEvent.DEVICE_ERROR:
            self.events.append((event.value, data))
            self.reported.set()
        else:
            self.other_events.append((event.value, data))

    def latest(self, event, data) -> None:
        self.levels.append((event.value, data))

    def send(self, pcm: bytes, rate: int) -> None:
        self.chunks.append(pcm)
        self.rates.append(rate)
        self.times.append(self.timer.now())

    def events_of(self, type_: RTVIEvent) -> list[Any]:
        """Return the data of the events of a type, which is no error."""
        return [data for event, data in self.other_events if event == type_.value]

    @property
    def sent(self) -> bytes:
        return b"".join(self.chunks)

    def prepare(self, *, audio: bool = True, video: bool = False, timer=None) -> Talk:
        runtime: Any = SimpleNamespace(timer=timer or self.timer, workers=self.workers)
        self.manager.expect(runtime, self)
        self.manager.prepare(audio=audio, video=video)
        return self

    @property
    def source_is_read(self) -> bool:
        """Whether the source in the microphone's place has been read to its end."""
        return getattr(getattr(self.manager.mic.component, "_reader", None), "_ended", True)

    def begin(self) -> Talk:
        self.prepare()
        self.manager.start(self.send)
        return self

    def hear(self, pcm: bytes, rate: int = 24000, channels: int = 1) -> None:
        self.manager.receive_audio(pcm, rate, channels)
