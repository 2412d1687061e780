"""The slots of a client: its microphone, speaker, camera and screen, opened, replaced and closed.

A slot lives as long as its client and is empty between sessions. It owns the application's choice, the component that
is open for that choice, its track, and its status.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import attrs

from ..concurrency.deadline import Deadline
from ..concurrency.lock import new_lock
from ..concurrency.logs import package_logger
from ..concurrency.timer_thread import Scheduler
from ..errors import DeviceError, MissingExtraError, fresh_copy
from ..events import RTVIEvent
from ..protocol.record import Record
from . import pcm as pcm_tools
from .base import AudioSink, AudioSource, MediaDeviceInfo, VideoFrame, VideoSource
from .capture import AudioSender, MemoryReader, PrefetchReader, Reader, SendAudio
from .convert import ResamplingSource, origin_of
from .devices.device import END_TIMEOUT, OPEN_TIMEOUT, Device, await_opening
from .kinds import Kind, is_device
from .leases import Lease, lease_key_of
from .levels import LevelMeter
from .playback import BufferingSpeaker, DirectSpeaker, QueuedSpeaker, Speaker
from .push_source import PushReader, PushSource
from .sinks import MEMORY_SINKS, NullSink
from .sources import MEMORY_SOURCES, MemorySource, PackagedSource, SourceRun
from .status import AudioDroppedData, DeviceStatus, Participant, TrackData
from .tracks import AudioTrack, VideoTrack
from .video import CameraSource, ScreenSource

if TYPE_CHECKING:
    from .devices.camera import Camera
    from .devices.microphone import DeviceMic
    from .media import Media

logger: logging.Logger = package_logger(__name__)

_UPDATED: dict[Kind, RTVIEvent] = {
    "mic": RTVIEvent.MIC_UPDATED,
    "speaker": RTVIEvent.SPEAKER_UPDATED,
    "cam": RTVIEvent.CAM_UPDATED,
}
_TOO_SLOW = (
    "it takes audio more slowly than the bot sends it, so the oldest is dropped. Let the sink return faster, or raise "
    "max_queued_audio_bytes"
)
_TOO_FAST = (
    "the bot sends audio faster than it plays: two minutes wait, and the oldest is dropped. Let the bot send in real "
    "time, or give the client a sink, which takes audio at any speed"
)
_LOCAL = Participant(id="local", name="", local=True)


# A class has only one base with slots, and `ClientStats` has two bases.
@attrs.frozen(kw_only=True, slots=False, eq=False, repr=False)
class MediaCounters(Record):
    """The counters of a session's media, since its start: mostly failures that did not end the session.

    Attributes:
        mic_underruns: chunks of 20 ms of silence that were sent because the source was late.
        mic_delayed: seconds by which a source's audio was delayed because this process was too busy; only pauses of
            over 1 s count.
        mic_max_delay: longest delay, in seconds, of a source's chunk beyond its due time: how late the sending thread
            was.
        mic_dropped: chunks of 20 ms that were not sent, because they were read too late, or a `PushSource` was full.
        speaker_underruns: number of times that the speaker had nothing to play during the bot's speech.
        speaker_dropped_seconds: seconds of the bot's audio that were lost, because the sink or speaker was too slow,
            did not take them before the session ended, or failed.
        speaker_waiting: seconds of the bot's audio that a speaker of this machine has not played yet; 0.0 while it
            fails or hangs.
        video_dropped: images of the camera and the screen that were dropped because the transport was too slow.
        bot_frames_ignored: audio frames of the bot with an unsupported sample rate or number of channels.
    """

    mic_underruns: int = 0
    mic_delayed: float = 0.0
    mic_max_delay: float = 0.0
    mic_dropped: int = 0
    speaker_underruns: int = 0
    speaker_dropped_seconds: float = 0.0
    speaker_waiting: float = 0.0
    video_dropped: int = 0
    bot_frames_ignored: int = 0


# By kind: the session's counter -> the component's counter.
_COUNTERS: dict[Kind, dict[str, str]] = {
    "mic": {
        "mic_underruns": "underruns",
        "mic_delayed": "delayed_seconds",
        "mic_max_delay": "max_delay",
        "mic_dropped": "stale_dropped",
    },
    "speaker": {"speaker_underruns": "underruns", "speaker_dropped_seconds": "dropped_seconds"},
    "cam": {"video_dropped": "dropped"},
    "screen": {"video_dropped": "dropped"},
}

_UNINITIALIZED = DeviceStatus()
_STATUS = {
    "uninitialized": _UNINITIALIZED,
    "initializing": DeviceStatus(state="initializing"),
    "granted": DeviceStatus(state="granted"),
}

P = TypeVar("P", bound="AudioSender | DeviceMic | Speaker | Camera")
T = TypeVar("T", AudioTrack, VideoTrack)


class Slot(Generic[P, T]):
    """One of a client's slots.

    `open()`, `replace()` and `close()` may block, and one thread at a time calls them (see `Media`). The rest may be
    called on any thread, and does not block.

    Args:
        media: the media that the slot is part of.
        kind: kind of the device.
        given: the application's choice.

    Attributes:
        kind: as given.
        given: the application's choice, for the current and later sessions.
        choice: the choice that was opened last in this session: as given, or the source or sink of a file.
        component: the recorder or player; None in an empty slot.
        track: track of the component's recording; None for a speaker and an empty slot.
        info: the device in use, or the one to be opened; None: an unopened default device, or an object.
        status: status of the device.
    """

    # Held while a component is put in or halted, if that must not overlap with its use.
    _exclusive: AbstractContextManager[object] = contextlib.nullcontext()

    def __init__(self, media: Media, kind: Kind, given: Any) -> None:
        self._media = media
        self.kind: Kind = kind
        self.given: Any = given
        # Replaced in single steps, on any thread.
        self.info: MediaDeviceInfo | None = None
        self.status: DeviceStatus = _UNINITIALIZED
        # The fields below belong to one session, and are written under `Media.lock`; other threads read the first three
        # without it.
        self.choice: Any = None
        self.component: P | None = None
        self.track: T | None = None
        # The arguments of `component.start()`, from the moment the bot is ready.
        self._senders: tuple[Any, ...] | None = None
        self._leaving: list[Any] = []  # components that were taken out, and whose losses are not counted yet
        self._abandoned: list[Any] = []  # replaced components that did not end in time
        self._lost: Counter[str] = Counter()  # losses of components that have ended

    # The differences between the kinds.

    def _make(self, choice: Any, deadline: Deadline, *, persists: bool) -> P:
        """Return the component for a choice: a device that is being opened, or a source or sink with its lease.

        Args:
            choice: None, a device's id, or an object.
            deadline: limit of the wait for a source or sink that is still being closed.
            persists: see `Device`.

        Raises:
            DeviceError: the source or sink cannot be used.
        """
        raise NotImplementedError

    def _make_track(self) -> T | None:
        """Return a track for the component's recording; None for a speaker."""
        return None

    def _surrender(self, old: P, new: P) -> None:
        """Give the new component the unfinished work of the old one."""

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def works(self) -> bool:
        """True if the component has not failed."""
        return not (isinstance(self.component, Device) and self.component.has_failed)

    def needs(self, choice: object) -> bool:
        """Return whether a choice must be open: a device only while it is on, a source or sink always, False never."""
        media = self._media
        return (
            choice is not False
            and self.kind in media.carried
            and (media.settings.opens(self.kind) or not is_device(choice))
        )

    def holds(self, choice: Any) -> bool:
        """Return whether a choice is in the slot and still works."""
        return self.component is not None and not self.component.ended and self.works and choice == self.choice

    def reset(self) -> None:
        """Forget the last session; called under the lock."""
        self.choice = self._senders = None
        self._leaving, self._abandoned, self._lost = [], [], Counter()

    def after_fork_in_child(self) -> None:
        """Forget the component, which is the parent process's."""
        self.component = self.track = None

    def add_losses(self, counts: Counter[str]) -> None:
        """Add the losses in this session, by the name of their counter; called under the lock."""
        counts.update(self._lost)
        for component in (*self._leaving, self.component):
            if component is not None:
                self._add_losses_of(component, counts)

    def _add_losses_of(self, component: Any, counts: Counter[str]) -> None:
        for name, own in _COUNTERS[self.kind].items():
            value = getattr(component, own)
            counts[name] = max(counts[name], value) if own == "max_delay" else counts[name] + value

    # -- status --------------------------------------------------------------------------------------------------------

    def set_status(self, state: Literal["uninitialized", "initializing", "granted"]) -> None:
        """Record a status other than a failure, and publish it if it changed."""
        self._publish_status(_STATUS[state])

    def set_info(self, info: MediaDeviceInfo | None) -> None:
        """Record the selected device and publish the change; None: an object of the application, not a device."""
        if self.info != info:
            self.info = info
            if info is not None:
                self._media.publish(_UPDATED[self.kind], info)

    def opened(self, info: MediaDeviceInfo) -> None:
        """Record that a device works, for the first time or again."""
        self._media.warned = ""
        self.set_info(info)
        self.set_status("granted")
        with self._media.lock:
            made = self._begin_track()  # of a device that could not be opened before
        if made is not None:
            self._publish_track(made)

    def error(self, error: DeviceError | MissingExtraError) -> None:
        """Record that a device, source or sink cannot be used."""
        # As a copy: the error's frames keep the client, and the object that ends a dropped client's devices keeps this.
        self._publish_status(DeviceStatus(state="error", error=fresh_copy(as_device_error(self.kind, None, error))))

    def failed(self, error: DeviceError | MissingExtraError) -> None:
        """Record and publish the failure of a device, source or sink."""
        self.error(error)
        event = RTVIEvent.SCREEN_SHARE_ERROR if self.kind == "screen" else RTVIEvent.DEVICE_ERROR
        self._media.publish(event, as_device_error(self.kind, None, error))

    def _object_failed(self, thing: object, error: BaseException) -> None:
        """Record and publish an exception of a source or sink, as `failed()` does."""
        self.failed(as_device_error(self.kind, thing, error))

    def _publish_status(self, status: DeviceStatus) -> None:
        if self.kind != "screen" and self.status is not status:
            self.status = status
            self._media.publish_state()

    # -- opening and replacing: on threads that may block --------------------------------------------------------------

    def open(self, choice: Any, deadline: Deadline, session: object, *, persists: bool) -> DeviceError | None:
        """Open the application's choice and put the component in.

        Args:
            choice: None, a device id, or an object.
            deadline: limit for a device to open; beyond it the device is considered hung.
            session: the caller's session.
            persists: see `Device`.

        Returns:
            Why a device that `persists` could not be opened yet.

        Raises:
            DeviceError, MissingExtraError: the choice cannot be opened, or the session has ended.
        """
        self.set_status("initializing")
        try:
            component = self._make(choice, deadline, persists=persists)
            missing = await_opening(component, deadline) if isinstance(component, Device) else None
        except (DeviceError, MissingExtraError) as error:
            self.error(error)
            raise
        if missing is not None:
            self.error(missing)
        if not self._put_in(component, choice, session):
            raise DeviceError("The session ended while its devices were being prepared", devices=(self.kind,))
        if not is_device(choice):
            self.set_status("granted")
        return missing

    def replace(self, choice: Any, session: object) -> None:
        """Open the application's choice and replace the component by it; the track continues.

        Raises:
            DeviceError, MissingExtraError: the choice cannot be opened; the present component continues.
        """
        if self.component is not None and self.component.ended and choice == self.choice:
            self._end(self.component)  # its lease is on the object that is opened again
        try:
            component = self._opened(choice)
        except DeviceError as error:
            held_by_other = any(each is choice for each in Lease.leased())
            both_of_machine = _is_of_machine(choice) and _is_of_machine(self.choice)
            if error.type != "in-use" or self.component is None or held_by_other or not both_of_machine:
                raise
            component = self._open_after_release(choice, session)
        if not is_device(choice):
            self.set_info(None)
            self.set_status("granted")
        self._put_in(component, choice, session)

    def _opened(self, choice: Any) -> P:
        """Return the component for a choice, which is open. See `open()`."""
        deadline = Deadline(OPEN_TIMEOUT)
        component = self._make(choice, deadline, persists=False)
        if isinstance(component, Device):
            await_opening(component, deadline)
        return component

    def _open_after_release(self, choice: Any, session: object) -> P:
        """Release the present device and open another one, because a sound card may serve only one stream.

        Raises:
            DeviceError: it cannot be opened; the present device is opened again if possible.
        """
        self._release(session)
        try:
            return self._opened(choice)
        except (DeviceError, MissingExtraError):
            try:
                missing = self.open(self.choice, Deadline(OPEN_TIMEOUT), session, persists=is_device(self.choice))
            except (DeviceError, MissingExtraError) as error:
                self.close()
                missing = as_device_error(self.kind, None, error)
            if missing is not None:
                self.failed(missing)
            raise

    def _release(self, session: object) -> None:  # noqa: ARG002 - for the speaker
        """Release the present device, until the next one is open."""
        if self.component is not None:
            self._end(self.component)

    def _put_in(self, component: P, choice: Any, session: object) -> bool:
        """Put an open component in. If the session has ended, end the component and return False."""
        # A new speaker first gets the audio that the old one has not played.
        with self._exclusive:
            old = self.component
            if old is not None and self._media.session is session:
                self._surrender(old, component)
            with self._media.lock:
                is_current = self._media.session is session
                if is_current:
                    self._leaving += [old] if old is not None else []
                    self.component, self.choice, senders = component, choice, self._senders
                    made = self._begin_track()
        if not is_current:
            self._end(component)
            return False
        if made is not None:
            self._publish_track(made)
        if old is not None:
            self.halt(old)
        if senders is not None:
            component.start(*senders)
        if old is not None:
            self._end(old)
        return True

    def _begin_track(self) -> T | None:
        """Make the track if there is none, once the device works; return it if it is new. Called under the lock."""
        made = self._make_track() if self.track is None and self.component is not None and self.works else None
        self.track = self.track or made
        if self.track is not None:
            choice = self.choice
            self.track.label = choice or "default" if is_device(choice) else type(choice).__name__
        return made

    def start(self, session: object, *senders: Any) -> None:
        """Let this component and each later one in this slot send: the bot is ready.

        Args:
            session: the caller's session.
            senders: the arguments of the component's `start()`.
        """
        with self._media.lock:
            if self._media.session is not session:
                return
            self._senders = senders
            component = self.component
        if component is not None:
            component.start(*senders)

    def pause(self) -> None:
        """Stop sending from this slot, now and later in this session."""
        with self._media.lock:
            self._senders = None
            senders = self._sending_now()
        for sender in senders:
            sender.halt()

    def _sending_now(self) -> list[Any]:
        """Return the components that send; called under the lock."""
        return [self.component] if self.component is not None else []

    def _publish_track(self, track: AudioTrack | VideoTrack) -> None:
        """Publish that the track has started, or ended."""
        if self.kind == "screen":
            started, stopped = RTVIEvent.SCREEN_TRACK_STARTED, RTVIEvent.SCREEN_TRACK_STOPPED
        else:
            started, stopped = RTVIEvent.TRACK_STARTED, RTVIEvent.TRACK_STOPPED
        event = started if track.ready_state == "live" else stopped
        self._media.publish(event, TrackData(track=track, participant=_LOCAL))

    # -- closing -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the component and the track; the session continues without them. May block."""
        with self._media.lock:
            component, track = self._take_out()
        if track is not None:
            self.end_track(track)
        if component is not None:
            self._end(component)

    def _take_out(self) -> tuple[P | None, T | None]:
        """Empty the slot, and return its component and track; called under the lock."""
        component, self.component = self.component, None
        track, self.track = self.track, None
        if component is not None:
            self._leaving.append(component)
        return component, track

    def take_all(self) -> tuple[list[Any], list[Any], T | None]:
        """Empty the slot at the end of the session; called under the lock.

        Returns:
            The components to halt and join, the components that were abandoned before, and the track.
        """
        component, track = self._take_out()
        self._senders = None
        return [component] if component is not None else [], self._abandoned, track

    def end_track(self, track: T) -> None:
        """End a track that was taken out, and publish that."""
        track.end()
        self._publish_track(track)

    def halt(self, component: Any) -> None:
        """Halt a present or former component."""
        with self._exclusive:
            component.halt()

    def _end(self, component: Any) -> None:
        """Halt a component and wait until it has ended, for a limited time."""
        self.halt(component)
        deadline = Deadline(END_TIMEOUT)
        if self._still_plays(component, deadline):
            return
        thread = component.join(deadline)
        self._count(component)
        if thread is not None:
            with self._media.lock:
                self._abandoned.append(component)

    def _still_plays(self, component: Any, deadline: Deadline) -> bool:  # noqa: ARG002 - for the speaker
        """Wait while a component plays its queued audio; return whether it still does at the deadline."""
        return False

    def _count(self, component: Any) -> None:
        """Count the losses of a component that has left."""
        with self._media.lock:
            if component in self._leaving:
                self._leaving.remove(component)
                self._add_losses_of(component, self._lost)

    def join(self, component: Any, deadline: Deadline) -> threading.Thread | None:
        """Wait until a component has ended at the end of the session; return the abandoned thread, or None."""
        thread: threading.Thread | None = component.join(deadline)
        self._count(component)
        return thread


class MicSlot(Slot["AudioSender | DeviceMic", AudioTrack]):
    """The microphone, and the sources that speak in its place.

    Attributes:
        level: level of the sent audio.
    """

    level: LevelMeter
    # Written under `Media.lock`: the sources in the microphone's place in order, each with its sender; the last of
    # them, which alone is sent (None: the microphone is); senders that were removed, and may still be in a call of
    # their source; and the target of the audio, from the moment the bot is ready.
    _inserted: dict[AudioSender, AudioSource]
    _in_place: AudioSource | None = None
    _removed: list[AudioSender]
    _direct: tuple[Scheduler, SendAudio] | None = None

    def reset(self) -> None:
        """See `Slot.reset()`."""
        super().reset()
        self.level = LevelMeter(RTVIEvent.LOCAL_AUDIO_LEVEL)
        self._inserted, self._removed = {}, []
        self._in_place = self._direct = None
        # Held while audio is sent: when the speaker changes, the microphone's thread and the scheduler's must not both
        # send. Re-entrant, because the transport may end the session during a send.
        self._sending = new_lock()

    def take_all(self) -> tuple[list[Any], list[Any], AudioTrack | None]:
        """See `Slot.take_all()`."""
        components, abandoned, track = super().take_all()
        components += [*self._removed, *self._inserted]
        self._inserted, self._removed, self._direct = {}, [], None
        return components, abandoned, track

    def _sending_now(self) -> list[Any]:
        self._direct = None
        return [*super()._sending_now(), *self._inserted]

    def _make(self, choice: str | AudioSource | None, deadline: Deadline, *, persists: bool) -> AudioSender | DeviceMic:
        if choice is not None and not isinstance(choice, str):
            return self._sender(choice, self._is_sent, None, deadline)
        # Imported here, as the other device classes below, because many sessions use no device.
        from .devices.microphone import DeviceMic

        return DeviceMic(
            self._media.backend(),
            choice,
            enabled=self._is_on,
            echo=self._media.echo_canceller(),
            publish=partial(self._publish, None),
            report=self.failed,
            opened=self.opened,
            persists=persists,
        )

    def _is_on(self) -> bool:
        return self._media.settings.mic

    def _is_sent(self) -> bool:
        """Return whether a source in the microphone's role should be sent now; called for each chunk."""
        return self._media.settings.mic and self._in_place is None

    def _make_track(self) -> AudioTrack:
        return AudioTrack(label="", enabled=lambda: self._is_on() and self.works)

    def _sender(
        self, choice: AudioSource, enabled: Callable[[], bool], place: AudioSource | None, deadline: Deadline
    ) -> AudioSender:
        """Lease a source and return its sender. May block in the application's `sample_rate_hz`.

        Args:
            choice: the source.
            enabled: returns whether the source should be sent now; called for each chunk.
            place: see `_publish()`.
            deadline: limit of the wait, of 2 s at most, for an earlier user of the source that still closes it.

        Raises:
            DeviceError: the source cannot be used.
        """
        rate = rate_of(choice)

        def failed(error: BaseException) -> None:
            run.end()
            self._object_failed(choice, error)

        lease = Lease(choice, "mic", Deadline(deadline.at_most(END_TIMEOUT)), failed)
        source = choice.source if type(choice) is ResamplingSource else choice
        reader: Reader
        if isinstance(choice, MemorySource) and type(choice) in MEMORY_SOURCES:
            reader = MemoryReader(choice, lease)
        elif type(source) is PushSource:  # no subclass, which may run code of the application
            reader = PushReader(source, lease, rate)
        else:
            reader = PrefetchReader(choice, rate, lease, enabled)
        # `failed()` cannot run before `run` is assigned, because nothing is read before the sender is started.
        origin = origin_of(choice)
        run = origin.begin_run() if isinstance(origin, PackagedSource) else SourceRun()
        return AudioSender(reader, rate, lease=lease, run=run, enabled=enabled, publish=partial(self._publish, place))

    def start(self, session: object, schedule: Scheduler, send_audio: SendAudio) -> None:
        """See `Slot.start()`.

        Args:
            session: the caller's session.
            schedule: times the audio of sources.
            send_audio: see `MediaPort.start()`.
        """
        with self._media.lock:
            if self._media.session is session:
                self._direct = schedule, send_audio
        super().start(session, schedule, partial(self._send, None, send_audio))

    def insert(self, source: AudioSource, deadline: Deadline) -> AudioSender:
        """Let a source speak in the microphone's place, even if that is off, and silence after it, until `remove()`.

        An earlier source in the microphone's place waits until then. May block, in the application's code.

        Args:
            source: the source, which is not the client's microphone.
            deadline: limit of the wait for a source that is still being closed.

        Raises:
            DeviceError: the source cannot be used, the transport carries no audio, or the session has ended.
        """
        if (session := self._media.session) is None:
            raise DeviceError(
                "There is no session that could carry the audio; the last one has ended", devices=("mic",)
            )
        if self._direct is None:
            raise DeviceError(
                "This session carries no audio of the user. Ask in writing, or use a transport that carries audio",
                devices=("mic",),
            )
        if self.component is not None and lease_key_of(source) == lease_key_of(self.choice):
            raise DeviceError(
                "This source is this client's microphone already; ask with another one",
                devices=("mic",),
                type="in-use",
            )
        # The lease makes a source unique among the inserted ones.
        sender = self._sender(source, lambda: self._in_place is source, source, deadline)
        with self._media.lock:
            direct = self._direct if self._media.session is session else None
            if direct is not None:
                self._inserted[sender] = self._in_place = source
                self._leaving.append(sender)
        if direct is None:
            sender.halt()
            raise DeviceError("The session has ended", devices=("mic",))
        schedule, send_audio = direct
        sender.start(schedule, partial(self._send, source, send_audio))
        return sender

    def remove(self, sender: AudioSender) -> None:
        """Let the previous source, or the microphone, speak again. Does not block.

        A source that is in `read()` is closed when the call returns, and is in use until then.
        """
        sender.halt()
        with self._media.lock:
            if self._inserted.pop(sender, None) is None:  # the session has ended, and its sender with it
                return
            self._count(sender)
            self._removed = [each for each in (*self._removed, sender) if not each.is_closed]
            self._in_place = next(reversed(self._inserted.values()), None)
            last: AudioSender | DeviceMic | None = next(reversed(self._inserted), self.component)
        if last is not None:
            last.look()

    def _send(self, place: AudioSource | None, send_audio: SendAudio, pcm: bytes, sample_rate_hz: int) -> None:
        """Send audio of a source, or of the microphone (None), if it is the one to send."""
        with self._sending:
            if self._in_place is place:
                send_audio(pcm, sample_rate_hz)

    def _publish(self, place: AudioSource | None, pcm: bytes, sample_rate_hz: int, timestamp: float) -> None:
        """Hand recorded or sent audio to the readers of the tracks; called on the sending thread, for each chunk.

        Args:
            place: the source in the microphone's place that recorded the audio; None: the microphone.
            pcm, sample_rate_hz: the audio.
            timestamp: monotonic time.
        """
        if self._in_place is not place:
            return
        track, sent = self.track, self._media.sent_track
        if track is not None and track.readers:
            track.publish(pcm, sample_rate_hz, timestamp)
        if sent is not None and sent.readers:
            sent.publish(pcm, sample_rate_hz, timestamp)
        if timestamp >= self.level.idle_until:
            self.level.feed(pcm, timestamp, self._media.publisher)


class SpeakerSlot(Slot[Speaker, AudioTrack]):
    """The speaker.

    Attributes:
        speaking: held while the bot's audio is handed to the speaker, and while the speaker is interrupted, replaced or
            halted, so that the audio stays in order. The I/O thread and the thread that replaces the speaker hold it
            for some milliseconds, `Media.lock` inside of it. Re-entrant, because a finalizer may run at any time.
    """

    speaking: AbstractContextManager[object] = contextlib.nullcontext()

    def reset(self) -> None:
        """See `Slot.reset()`."""
        super().reset()
        # Explained at the head of the class.
        self._exclusive = self.speaking = new_lock()

    def take_all(self) -> tuple[list[Any], list[Any], AudioTrack | None]:
        """See `Slot.take_all()`."""
        sinks = [*self._leaving]
        components, abandoned, track = super().take_all()
        components += [sink for sink in sinks if isinstance(sink, QueuedSpeaker)] if sinks else []  # they take audio
        return components, abandoned, track

    def _make(self, choice: str | AudioSink | None, deadline: Deadline, *, persists: bool) -> Speaker:
        if choice is None or isinstance(choice, str):
            from .devices.speaker import DeviceSpeaker

            settings = self._media.settings
            return DeviceSpeaker(
                self._media.backend(),
                choice,
                volume=lambda: settings.volume if settings.speaker else 0.0,
                echo=self._media.echo_canceller(),
                is_continuous=lambda: settings.is_continuous,
                report=self.failed,
                opened=self.opened,
                persists=persists,
            )
        failed = partial(self._object_failed, choice)
        if isinstance(choice, NullSink) and type(choice) in MEMORY_SINKS:  # many sessions may share one
            return DirectSpeaker(choice, None, failed)
        if type(choice) in MEMORY_SINKS:
            return DirectSpeaker(choice, Lease(choice, "speaker"), failed)
        lease = Lease(choice, "speaker", Deadline(deadline.at_most(END_TIMEOUT)), failed)
        return QueuedSpeaker(choice, lease, self._media.max_queued_audio_bytes, self._media.workers())

    def _surrender(self, old: Speaker, new: Speaker) -> None:
        for frame in old.surrender():
            new.write(frame.pcm, frame.sample_rate_hz)

    def _release(self, session: object) -> None:
        self._put_in(BufferingSpeaker(), self.choice, session)  # holds the bot's audio until the new device is open

    def report_loss(self, seconds: float) -> None:
        """Log and publish the start of a run of losses.

        Args:
            seconds: seconds of audio lost so far.
        """
        self._dropped(self.choice, seconds, _TOO_FAST if is_device(self.choice) else _TOO_SLOW)

    def _still_plays(self, component: Any, deadline: Deadline) -> bool:
        """Let a sink take the queued audio; it may continue while the new component already plays."""
        if not isinstance(component, QueuedSpeaker):
            return False
        goes_on = component.drain(deadline, END_TIMEOUT)
        if not goes_on:
            self._cut(component)
        return goes_on

    def join_sink(
        self, sink: QueuedSpeaker, deadline: Deadline, flush: Deadline, patience: float
    ) -> threading.Thread | None:
        """Wait until a sink has its audio and is closed at the end of the session.

        Args:
            sink: the sink, which was halted.
            deadline: limit for calls that have to return.
            flush: limit for a sink that still takes queued audio.
            patience: seconds without a completed call after which a sink is considered hung.

        Returns:
            The abandoned thread, or None.
        """
        sink.drain(flush, patience)
        self._cut(sink)
        return self.join(sink, deadline)

    def _cut(self, speaker: QueuedSpeaker) -> None:
        """Drop the audio that a sink has not taken, and report the loss."""
        if seconds := speaker.cut():
            self._dropped(speaker.sink, seconds, "it did not take the audio before the timeout")

    def _dropped(self, sink: AudioSink | str | None, seconds: float, why: str) -> None:
        name = f"the speaker {sink or 'by default'!r}" if is_device(sink) else type(sink).__name__
        logger.warning("Dropped %.2f s of the bot's audio that waited for %s: %s", seconds, name, why)
        self._media.publish(RTVIEvent.AUDIO_DROPPED, AudioDroppedData(seconds=seconds, sink=sink))


class CameraSlot(Slot["Camera", VideoTrack]):
    """The camera, or the screen."""

    kind: Literal["cam", "screen"]

    def _is_on(self) -> bool:
        return self.kind == "screen" or self._media.settings.cam

    def _make(self, choice: str | VideoSource | None, deadline: Deadline, *, persists: bool) -> Camera:
        from .devices.camera import Camera

        is_screen = self.kind == "screen"
        return Camera(
            ScreenSource() if is_screen and choice is None else choice,
            enabled=self._is_on,
            publish=self._publish,
            report=self.failed,
            opened=(lambda _: None) if is_screen else self.opened,
            role=self.kind,
            persists=persists,
            deadline=Deadline(deadline.at_most(END_TIMEOUT)),
        )

    def _make_track(self) -> VideoTrack:
        return VideoTrack(label="", enabled=lambda: self._is_on() and self.works)

    def _publish(self, frame: VideoFrame) -> None:
        """Hand an image to the readers of the track; called on the camera's thread."""
        if (track := self.track) is not None:
            track.publish(frame)


def rate_of(source: AudioSource) -> int:
    """Return the sample rate of a source; may block in the application's `sample_rate_hz`.

    Raises:
        DeviceError: the source has no usable rate.
    """
    try:
        return pcm_tools.check_rate(source.sample_rate_hz)
    except Exception as error:
        raise DeviceError(
            f"The mic {type(source).__name__} has no usable sample_rate_hz: {error}", devices=("mic",)
        ) from error


def as_device_error(kind: Kind, thing: object, error: BaseException) -> DeviceError:
    """Convert an exception to a `DeviceError`.

    Args:
        kind: kind of the device.
        thing: the source or sink that raised the exception, or None.
        error: the exception.
    """
    if isinstance(error, DeviceError):
        return error
    if isinstance(error, MissingExtraError):
        failure = DeviceError(str(error), devices=(kind,), type="not-found")
    else:
        failure = DeviceError(f"The {kind} {type(thing).__name__} failed: {error!r}", devices=(kind,))
    failure.__cause__ = error
    return failure


def _is_of_machine(choice: object) -> bool:
    """Return whether a choice opens a device of the machine, which may serve one stream only."""
    return is_device(choice) or isinstance(choice, CameraSource)
