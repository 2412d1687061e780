"""The places of microphone, speaker, camera and screen in a session: how they are filled and emptied."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import attrs

from ..concurrency.deadline import Deadline
from ..errors import DeviceError, MissingExtraError
from .capture import Mic
from .component_factory import END_TIMEOUT, OPEN_TIMEOUT, ComponentFactory, MediaSettings, as_device_error
from .kinds import Kind, is_device
from .playback import QueuedSpeaker, Speaker, WaitingSpeaker
from .state import DeviceStatus
from .status_reporter import DeviceStatusReporter
from .tracks import AudioTrack, VideoTrack

if TYPE_CHECKING:
    from .devices.camera import Camera


@attrs.frozen(kw_only=True, slots=False)  # a class has only one base with slots, and `ClientStats` has two bases
class MediaCounters:
    """What went wrong with audio since the session began, without ending it.

    Attributes:
        mic_underruns: chunks of 20 ms of silence that were sent because the source was late.
        mic_dropped: chunks of 20 ms that were recorded and not sent, because they came too late to be of use.
        speaker_underruns: how often the speaker had nothing to play in the midst of the bot's speech.
        speaker_dropped_seconds: audio of the bot that the sink or speaker was too slow for, or did not take before the
            session ended.
        video_dropped: images of the camera and the screen that the transport was too slow for.
        bot_frames_ignored: frames of the bot's with an impossible sample rate or number of channels.
    """

    mic_underruns: int = 0
    mic_dropped: int = 0
    speaker_underruns: int = 0
    speaker_dropped_seconds: float = 0.0
    video_dropped: int = 0
    bot_frames_ignored: int = 0


# By kind: which counter of a session is which of its part's.
_COUNTERS: dict[Kind, dict[str, str]] = {
    "mic": {"mic_underruns": "underruns", "mic_dropped": "stale_dropped"},
    "speaker": {"speaker_underruns": "underruns", "speaker_dropped_seconds": "dropped_seconds"},
    "cam": {"video_dropped": "dropped"},
    "screen": {"video_dropped": "dropped"},
}


class MediaComponent(Protocol):
    """What records or plays."""

    def halt(self) -> None:
        """End. Idempotent; does not block."""

    def join(self, deadline: Deadline) -> threading.Thread | None:
        """After `halt()`: wait until it has ended; the thread that was given up at the deadline, or None."""


P = TypeVar("P", bound=MediaComponent)
T = TypeVar("T", AudioTrack, VideoTrack)


@attrs.define(eq=False)
class DeviceSlot(Generic[P, T]):
    """The place of one microphone, speaker or camera in a session.

    Attributes:
        kind: what it is a place for.
        open: `open(choice, deadline)` opens what the program chose; may block.
        component: what is in it.
        choice: what the program chose for it.
        track: what is recorded, while something is in it; None for a speaker.
        make_track: makes that track; None: there is none.
    """

    kind: Kind
    open_component: Callable[[Any, Deadline], P]
    make_track: Callable[[], T] | None = None
    component: P | None = None
    choice: Any = None
    track: T | None = None

    def put(self, component: P | None, choice: Any) -> tuple[T | None, T | None]:
        """Fill it, or empty it. The track goes on if there was one. Returns the track before and the track after."""
        before = self.track
        self.component, self.choice = component, choice
        if component is None:
            self.track = None
        elif self.make_track is not None:
            self.track = before or self.make_track()
            self.track.label = choice or "default" if is_device(choice) else type(choice).__name__
        return before, self.track


class DeviceSlots:
    """All places of one session.

    Args:
        factory: opens what is put there.
        settings: of the client.
        status_reporter: told how it stands with each.
        begin: `begin(slot)`: what is in a slot may send, if the bot is ready.
        tell: `tell(slot, track)`: the track of a slot has begun, or has ended.
    """

    def __init__(
        self,
        factory: ComponentFactory,
        settings: MediaSettings,
        status_reporter: DeviceStatusReporter,
        *,
        begin: Callable[[DeviceSlot[Any, Any]], None],
        tell: Callable[[DeviceSlot[Any, Any], AudioTrack | VideoTrack], None],
    ) -> None:
        self._status_reporter = status_reporter
        self._begin = begin
        self._tell = tell
        # Guards what is in the slots, and the fields below. Any thread may hold it, for a few instructions; nothing of
        # devices, sources, sinks or the program's is called under it. The io thread and those of devices look into the
        # slots without it. Re-entrant, because a finalizer may come in between.
        self._lock = threading.RLock()
        # Held while the bot's audio is handed to the speaker, or that is interrupted, replaced or ended, so that the
        # order stays as it came: by the io thread, and by the one that replaces it, for some milliseconds. Re-entrant,
        # too.
        self.speaking: threading.RLock = threading.RLock()
        self._over = False
        self._replaced: list[
            tuple[DeviceSlot[Any, Any], Any]
        ] = []  # and not ended yet: where it was, and the component
        self._given_up: list[threading.Thread] = []  # of what was replaced and did not come back in time
        self._lost: Counter[str] = Counter()  # by what was replaced and has ended
        self.mic: DeviceSlot[Mic, AudioTrack] = DeviceSlot(
            "mic", factory.mic, lambda: AudioTrack(label="", enabled=lambda: settings.mic)
        )
        self.speaker: DeviceSlot[Speaker, AudioTrack] = DeviceSlot("speaker", factory.speaker)
        self.cam: DeviceSlot[Camera, VideoTrack] = DeviceSlot(
            "cam", factory.cam, lambda: VideoTrack(label="", enabled=lambda: settings.cam)
        )
        self.screen: DeviceSlot[Camera, VideoTrack] = DeviceSlot("screen", factory.screen, lambda: VideoTrack(label=""))

    def __iter__(self) -> Iterator[DeviceSlot[Any, Any]]:
        return iter((self.mic, self.speaker, self.cam, self.screen))

    def __getitem__(self, kind: Kind) -> DeviceSlot[Any, Any]:
        return {slot.kind: slot for slot in self}[kind]

    @property
    def over(self) -> bool:
        """True from `close()` on."""
        return self._over

    # -- filling: on threads that may block ---------------------------------------------------------------------------

    def open(self, kind: Kind, choice: Any, deadline: Deadline) -> None:
        """Open what was chosen and put it in its place.

        Args:
            kind: of the place.
            choice: None, a device's id, or an object.
            deadline: a device that has not opened by then hangs.

        Raises:
            DeviceError, MissingExtraError: it cannot be had, or the session has ended meanwhile.
        """
        slot = self[kind]
        self._status_reporter.status(kind, DeviceStatus(state="initializing"))
        try:
            component = slot.open_component(choice, deadline)
        except (DeviceError, MissingExtraError) as error:
            self._status_reporter.status(kind, DeviceStatus(state="error", error=as_device_error(kind, None, error)))
            raise
        if not self._install(slot, component, choice):
            raise DeviceError("The session ended while its devices were being prepared", devices=(kind,))
        if not is_device(choice):
            self._status_reporter.status(kind, DeviceStatus(state="granted"))

    def replace(self, kind: Kind, choice: Any) -> None:
        """Open what was chosen and put it in the place of what is there, whose track goes on.

        Raises:
            DeviceError, MissingExtraError: it cannot be had; what is there goes on.
        """
        slot = self[kind]
        try:
            component = slot.open_component(choice, Deadline(OPEN_TIMEOUT))
        except DeviceError as error:
            if error.type != "in-use" or slot.component is None or not (is_device(choice) and is_device(slot.choice)):
                raise
            component = self._open_in_turn(slot, choice)
        if not is_device(choice):
            self._status_reporter.chosen(kind, None)
            self._status_reporter.status(kind, DeviceStatus(state="granted"))
        self._install(slot, component, choice)

    def close(self, kind: Kind) -> None:
        """End what is in a place, and its track."""
        slot = self[kind]
        with self._lock:
            component, tell = slot.component, self._put(slot, None, slot.choice)
        tell()
        if component is not None:
            self._end(slot, component)

    def _open_in_turn(self, slot: DeviceSlot[Any, Any], choice: Any) -> Any:
        """Open a device that the old one keeps from opening: a card may serve one stream only, under any of its names.

        Raises:
            DeviceError: it cannot be had; the old one goes on, if it still can.
        """
        if slot is self.speaker:  # what is to be heard waits for what comes
            self._install(slot, WaitingSpeaker(), slot.choice)
        elif slot.component is not None:
            self._end(slot, slot.component)
        try:
            return slot.open_component(choice, Deadline(OPEN_TIMEOUT))
        except (DeviceError, MissingExtraError):
            try:
                self._install(slot, slot.open_component(slot.choice, Deadline(OPEN_TIMEOUT)), slot.choice)
            except (DeviceError, MissingExtraError) as error:
                self.close(slot.kind)
                self._status_reporter.failed(slot.kind, as_device_error(slot.kind, None, error))
            raise

    def _install(self, slot: DeviceSlot[Any, Any], component: Any, choice: Any) -> bool:
        """Put what was opened in its place; False if the session has ended meanwhile: then it is ended, too."""
        # What the old one has not played is played by its successor, before what comes after it; an interruption is
        # meant for both.
        with self.speaking if slot is self.speaker else contextlib.nullcontext():
            old = slot.component
            if slot is self.speaker and old is not None and not self._over:
                for frame in old.surrender():
                    component.write(frame.pcm, frame.sample_rate_hz)
            with self._lock:
                tell = None if self._over else self._put(slot, component, choice)
        if tell is None:
            self._end(slot, component)
            return False
        tell()
        if old is not None:
            self._halt(slot, old)
        self._begin(slot)
        if old is not None:
            self._end(slot, old)
        return True

    def _put(self, slot: DeviceSlot[P, T], component: P | None, choice: Any) -> Callable[[], None]:
        """Under the lock: fill a slot. Returns what tells of its track, to be called without the lock."""
        if slot.component is not None:
            self._replaced.append((slot, slot.component))
        before, after = slot.put(component, choice)

        def tell() -> None:
            if before is not None and after is None:
                before.end()
                self._tell(slot, before)
            elif before is None and after is not None:
                self._tell(slot, after)

        return tell

    def _halt(self, slot: DeviceSlot[Any, Any], component: MediaComponent) -> None:
        """Halt what is, or was, in a slot: a speaker not while it is given something."""
        with self.speaking if slot is self.speaker else contextlib.nullcontext():
            component.halt()

    def _end(self, slot: DeviceSlot[Any, Any], component: MediaComponent) -> None:
        self._halt(slot, component)
        deadline = Deadline(END_TIMEOUT)
        if isinstance(component, QueuedSpeaker):
            if component.drain(deadline, END_TIMEOUT):
                return  # it goes on beside its successor
            self._cut(component)
        thread = component.join(deadline)
        with self._lock:
            if (slot, component) in self._replaced:
                self._replaced.remove((slot, component))
                self._lost.update(_losses(slot.kind, component))
            if thread is not None:
                self._given_up.append(thread)

    def _cut(self, speaker: QueuedSpeaker) -> None:
        """Drop what a sink has not taken, and report it."""
        seconds = speaker.cut()
        if seconds:
            self._status_reporter.audio_dropped(speaker.sink, seconds, "the time in which it could be taken is over")

    # -- the end ------------------------------------------------------------------------------------------------------

    def losses(self) -> Counter[str]:
        """What was lost so far, by the name of its counter."""
        with self._lock:
            counts = self._lost.copy()
            for slot, component in (*self._replaced, *((slot, slot.component) for slot in self)):
                if component is not None:
                    counts.update(_losses(slot.kind, component))
        return counts

    def close_all(self, deadline: Deadline, flush: Deadline) -> list[threading.Thread]:
        """End everything, for good.

        Args:
            deadline: for what has to return.
            flush: for sinks that go on taking what waits for them.

        Returns:
            The threads that were given up.
        """
        with self._lock:
            self._over = True
            # The speaker first, which has something to do yet: one that hangs must not take its time.
            slots = sorted(self, key=lambda slot: slot is not self.speaker)
            components: list[tuple[DeviceSlot[Any, Any], MediaComponent]] = [
                (slot, slot.component) for slot in slots if slot.component is not None
            ]
            components += [
                (slot, component) for slot, component in self._replaced if isinstance(component, QueuedSpeaker)
            ]
        patience = deadline.remaining() or 0.0
        for slot, component in components:
            self._halt(slot, component)
        for slot in self:
            if slot.track is not None:
                slot.track.end()
                self._tell(slot, slot.track)
        # Sinks last: each goes on with its work meanwhile, on its own thread.
        sinks = [component for _, component in components if isinstance(component, QueuedSpeaker)]
        threads = [component.join(deadline) for _, component in components if component not in sinks]
        for sink in sinks:
            sink.drain(flush, patience)
            self._cut(sink)
            threads.append(sink.join(deadline))
        alive = [thread for thread in self._given_up if thread.is_alive()]
        return alive + [thread for thread in threads if thread is not None]


def _losses(kind: Kind, component: Any) -> dict[str, Any]:
    """What was lost by what is, or was, in a slot."""
    return {name: getattr(component, own) for name, own in _COUNTERS[kind].items()}
