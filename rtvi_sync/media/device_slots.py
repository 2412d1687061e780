"""The device slots of a session: they open, replace and close its microphone, speaker, camera and screen."""

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
from .devices.device import Device
from .kinds import Kind, is_device
from .leases import Lease
from .playback import BufferingSpeaker, QueuedSpeaker, Speaker
from .status import DeviceStatus, DeviceStatusReporter
from .tracks import AudioTrack, VideoTrack
from .video import CameraSource

if TYPE_CHECKING:
    from .devices.camera import Camera


@attrs.frozen(kw_only=True, slots=False)  # a class has only one base with slots, and `ClientStats` has two bases
class MediaCounters:
    """The numbers of media failures that did not end the session, since it began.

    Attributes:
        mic_underruns: chunks of 20 ms of silence that were sent because the source was late.
        mic_delayed: seconds by which the audio of a source was sent later because this process was too busy; only
            pauses of over 1 s count.
        mic_dropped: chunks of 20 ms that were recorded and not sent because they were read too late, or that were
            dropped by a `PushSource`.
        speaker_underruns: how often the speaker had nothing to play during the bot's speech.
        speaker_dropped_seconds: audio of the bot that the sink or speaker was too slow for, did not take before the
            session ended, or lost because it failed.
        video_dropped: images of the camera and the screen that the transport was too slow for.
        bot_frames_ignored: audio frames of the bot with an unsupported sample rate or number of channels.
    """

    mic_underruns: int = 0
    mic_delayed: float = 0.0
    mic_dropped: int = 0
    speaker_underruns: int = 0
    speaker_dropped_seconds: float = 0.0
    video_dropped: int = 0
    bot_frames_ignored: int = 0


# By kind: the session's counter -> the component's counter.
_COUNTERS: dict[Kind, dict[str, str]] = {
    "mic": {"mic_underruns": "underruns", "mic_delayed": "delayed_seconds", "mic_dropped": "stale_dropped"},
    "speaker": {"speaker_underruns": "underruns", "speaker_dropped_seconds": "dropped_seconds"},
    "cam": {"video_dropped": "dropped"},
    "screen": {"video_dropped": "dropped"},
}


class MediaComponent(Protocol):
    """A component that records or plays."""

    @property
    def ended(self) -> bool:
        """Return whether it has ended or failed for good; a device that fails is opened again and does not."""

    def halt(self) -> None:
        """Begin to end; idempotent, does not block."""

    def join(self, deadline: Deadline) -> threading.Thread | None:
        """Wait for the end after `halt()`; return the thread abandoned at the deadline, or None."""


P = TypeVar("P", bound=MediaComponent)
T = TypeVar("T", AudioTrack, VideoTrack)


def _is_of_machine(choice: object) -> bool:
    """Return whether a choice opens a device of the machine, which may serve one stream only."""
    return is_device(choice) or isinstance(choice, CameraSource)


@attrs.define(eq=False, repr=False)
class DeviceSlot(Generic[P, T]):
    """The slot of one microphone, speaker, camera or screen in a session.

    Attributes:
        kind: of the device.
        open_component: `open_component(choice, deadline)` opens the application's choice; may block.
        component: the component in the slot, or None.
        choice: the application's choice.
        track: the track of what the component records; None for a speaker and an empty slot.
        make_track: makes that track; None for a speaker.
    """

    kind: Kind
    open_component: Callable[[Any, Deadline], P]
    make_track: Callable[[], T] | None = None
    component: P | None = None
    choice: Any = None
    track: T | None = None

    @property
    def works(self) -> bool:
        """Return whether what is in the slot has not failed."""
        return not (isinstance(self.component, Device) and self.component.has_failed)

    def holds(self, choice: Any) -> bool:
        """Return whether a choice is in the slot and goes on."""
        return self.component is not None and not self.component.ended and choice == self.choice

    def put(self, component: P | None, choice: Any) -> tuple[T | None, T | None]:
        """Set or remove the component; an existing track continues with a new component.

        Returns:
            The track before and the track after.
        """
        before = self.track
        self.component, self.choice = component, choice
        if component is None:
            self.track = None
        elif self.make_track is not None:
            self.track = before or self.make_track()
            self.track.label = choice or "default" if is_device(choice) else type(choice).__name__
        return before, self.track


class DeviceSlots:
    """All device slots of one session.

    Args:
        factory: opens the components.
        settings: of the client.
        status_reporter: gets the status of each device.
        begin: `begin(slot)` lets a slot's new component send, if the bot is ready.
        publish: `publish(slot, track)` publishes that the track of a slot has begun, or has ended.
    """

    def __init__(
        self,
        factory: ComponentFactory,
        settings: MediaSettings,
        status_reporter: DeviceStatusReporter,
        *,
        begin: Callable[[DeviceSlot[Any, Any]], None],
        publish: Callable[[DeviceSlot[Any, Any], AudioTrack | VideoTrack], None],
    ) -> None:
        self._status_reporter = status_reporter
        self._begin = begin
        self._publish = publish
        # Guards the slots' contents and the fields below. Any thread may hold it for a few instructions; no code of
        # devices, sources, sinks or the application is called under it. The I/O thread and the devices' threads read
        # the slots without it. Re-entrant, because a finalizer may run on the thread that holds it.
        self._lock = threading.RLock()
        # Held while the bot's audio is handed to the speaker, and while the speaker is interrupted, replaced or ended,
        # so that the audio stays in order. The I/O thread and the thread that replaces the speaker hold it for some
        # milliseconds. Re-entrant for the same reason.
        self.speaking: threading.RLock = threading.RLock()
        self._closed = False
        # The slot and the component of each replaced component that has not ended yet.
        self._replaced: list[tuple[DeviceSlot[Any, Any], Any]] = []
        self._abandoned: list[MediaComponent] = []  # replaced components that did not end in time
        self._lost: Counter[str] = Counter()  # losses of replaced components that have ended
        self.mic: DeviceSlot[Mic, AudioTrack] = DeviceSlot(
            "mic", factory.mic, lambda: AudioTrack(label="", enabled=lambda: settings.mic and self.mic.works)
        )
        self.speaker: DeviceSlot[Speaker, AudioTrack] = DeviceSlot("speaker", factory.speaker)
        self.cam: DeviceSlot[Camera, VideoTrack] = DeviceSlot(
            "cam", factory.cam, lambda: VideoTrack(label="", enabled=lambda: settings.cam and self.cam.works)
        )
        self.screen: DeviceSlot[Camera, VideoTrack] = DeviceSlot(
            "screen", factory.screen, lambda: VideoTrack(label="", enabled=lambda: self.screen.works)
        )

    def __iter__(self) -> Iterator[DeviceSlot[Any, Any]]:
        return iter((self.mic, self.speaker, self.cam, self.screen))

    def __getitem__(self, kind: Kind) -> DeviceSlot[Any, Any]:
        slot: DeviceSlot[Any, Any] = getattr(self, kind)
        return slot

    @property
    def closed(self) -> bool:
        """Return True from `close_all()` on."""
        return self._closed

    # -- opening and replacing: on threads that may block --------------------------------------------------------------

    def open(self, kind: Kind, choice: Any, deadline: Deadline) -> None:
        """Open the application's choice and install the component in its slot.

        Args:
            kind: of the slot.
            choice: None, a device id, or an object.
            deadline: limit for a device to open; beyond it the device is considered hung.

        Raises:
            DeviceError, MissingExtraError: it cannot be opened, or the session has ended meanwhile.
        """
        slot = self[kind]
        self._status_reporter.status(kind, DeviceStatus(state="initializing"))
        try:
            component = slot.open_component(choice, deadline)
        except (DeviceError, MissingExtraError) as error:
            self._status_reporter.error(kind, as_device_error(kind, None, error))
            raise
        if not self._install(slot, component, choice):
            raise DeviceError("The session ended while its devices were being prepared", devices=(kind,))
        if not is_device(choice):
            self._status_reporter.status(kind, DeviceStatus(state="granted"))

    def replace(self, kind: Kind, choice: Any) -> None:
        """Open the application's choice and replace the slot's component by it; the track continues.

        Raises:
            DeviceError, MissingExtraError: it cannot be opened; the present component continues.
        """
        slot = self[kind]
        if slot.component is not None and slot.component.ended and choice == slot.choice:
            self._end(slot, slot.component)  # its lease is on what is opened again
        try:
            component = slot.open_component(choice, Deadline(OPEN_TIMEOUT))
        except DeviceError as error:
            held_by_other = any(each is choice for each in Lease.leased())
            both_of_machine = _is_of_machine(choice) and _is_of_machine(slot.choice)
            if error.type != "in-use" or slot.component is None or held_by_other or not both_of_machine:
                raise
            component = self._open_after_release(slot, choice)
        if not is_device(choice):
            self._status_reporter.chosen(kind, None)
            self._status_reporter.status(kind, DeviceStatus(state="granted"))
        self._install(slot, component, choice)

    def close(self, kind: Kind) -> None:
        """Close a slot: end its component and its track."""
        slot = self[kind]
        with self._lock:
            component, publish = slot.component, self._put(slot, None, slot.choice)
        publish()
        if component is not None:
            self._end(slot, component)

    def _open_after_release(self, slot: DeviceSlot[Any, Any], choice: Any) -> Any:
        """Release the present device and open another one, because a sound card may serve only one stream.

        Raises:
            DeviceError: it cannot be opened; the present device is opened again if possible.
        """
        if slot is self.speaker:  # holds the bot's audio until the new device is open
            self._install(slot, BufferingSpeaker(), slot.choice)
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
        """Install an open component in its slot; if the session has ended meanwhile, end it and return False."""
        # The new speaker first gets the audio that the old one has not played. The lock lets an interruption affect
        # the audio of both.
        with self.speaking if slot is self.speaker else contextlib.nullcontext():
            old = slot.component
            if slot is self.speaker and old is not None and not self._closed:
                for frame in old.surrender():
                    component.write(frame.pcm, frame.sample_rate_hz)
            with self._lock:
                publish = None if self._closed else self._put(slot, component, choice)
        if publish is None:
            self._end(slot, component)
            return False
        publish()
        if old is not None:
            self._halt(slot, old)
        self._begin(slot)
        if old is not None:
            self._end(slot, old)
        return True

    def _put(self, slot: DeviceSlot[P, T], component: P | None, choice: Any) -> Callable[[], None]:
        """Set or remove a slot's component; called under the lock.

        Returns:
            A function that publishes the change of the track, to be called without the lock.
        """
        if slot.component is not None:
            self._replaced.append((slot, slot.component))
        before, after = slot.put(component, choice)

        def publish() -> None:
            if before is not None and after is None:
                before.end()
                self._publish(slot, before)
            elif before is None and after is not None:
                self._publish(slot, after)

        return publish

    def _halt(self, slot: DeviceSlot[Any, Any], component: MediaComponent) -> None:
        """Halt a slot's present or former component; a speaker not during a `write()`."""
        with self.speaking if slot is self.speaker else contextlib.nullcontext():
            component.halt()

    def _end(self, slot: DeviceSlot[Any, Any], component: MediaComponent) -> None:
        self._halt(slot, component)
        deadline = Deadline(END_TIMEOUT)
        if isinstance(component, QueuedSpeaker):
            if component.drain(deadline, END_TIMEOUT):
                return  # the sink still takes audio while the new component already plays
            self._cut(component)
        thread = component.join(deadline)
        with self._lock:
            if (slot, component) in self._replaced:
                self._replaced.remove((slot, component))
                self._lost.update(losses_of(slot.kind, component))
            if thread is not None:
                self._abandoned.append(component)

    def _cut(self, speaker: QueuedSpeaker) -> None:
        """Drop the audio that a sink has not taken, and report the loss."""
        seconds = speaker.cut()
        if seconds:
            self._status_reporter.audio_dropped(speaker.sink, seconds, "it did not take the audio before the timeout")

    # -- closing ------------------------------------------------------------------------------------------------------

    def losses(self) -> Counter[str]:
        """Return the losses so far, by the name of their counter."""
        with self._lock:
            counts = self._lost.copy()
            for slot, component in (*self._replaced, *((slot, slot.component) for slot in self)):
                if component is not None:
                    counts.update(losses_of(slot.kind, component))
        return counts

    def close_all(self, deadline: Deadline, flush: Deadline) -> list[threading.Thread]:
        """End all components and tracks for good.

        Args:
            deadline: for calls that have to return.
            flush: for sinks that still take queued audio.

        Returns:
            The abandoned threads.
        """
        with self._lock:
            self._closed = True
            # The speaker comes first because it still plays, and another component that hangs must not use its time.
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
                self._publish(slot, slot.track)
        # Sinks are joined last because each still gets queued audio meanwhile.
        sinks = [component for _, component in components if isinstance(component, QueuedSpeaker)]
        threads = [component.join(deadline) for _, component in components if component not in sinks]
        for sink in sinks:
            sink.drain(flush, patience)
            self._cut(sink)
            threads.append(sink.join(deadline))
        threads += [component.join(Deadline(0.0)) for component in self._abandoned]
        return [thread for thread in threads if thread is not None]


def losses_of(kind: Kind, component: Any) -> dict[str, Any]:
    """Return the losses of a slot's present or former component."""
    return {name: getattr(component, own) for name, own in _COUNTERS[kind].items()}
