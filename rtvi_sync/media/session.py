"""The media of one session: its devices from their preparation to the session's end, and the audio and video."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from ..concurrency.deadline import Deadline
from ..concurrency.logs import package_logger
from ..concurrency.serial_work import Workers
from ..concurrency.timer_thread import ScheduledTask, Scheduler, TimerThread
from ..errors import DeviceError, MissingExtraError
from ..events import RTVIEvent
from .base import AudioSource, VideoFrame
from .capture import AudioSender, SendAudio
from .component_factory import OPEN_TIMEOUT, ComponentFactory, MediaSettings, as_device_error
from .device_slots import DeviceSlot, DeviceSlots, MediaCounters, losses_of
from .devices.backend import AudioBackend
from .devices.device import Device
from .devices.hotplug import HotPlug
from .kinds import Kind, is_device
from .leases import lease_key_of
from .levels import LevelMeter
from .playback import QueuedSpeaker
from .silence_gate import SilenceGate
from .status import DeviceStatusReporter, Participant, TrackData
from .tracks import AudioTrack, VideoTrack

if TYPE_CHECKING:
    from .devices.camera import Camera, SendVideo

logger: logging.Logger = package_logger(__name__)

# Seconds that a device has to open at least, if another one of the same call used up most of the limit.
_MIN_OPEN_TIMEOUT = 1.0
# Seconds between two checks of the devices, because a hung device reports nothing by itself.
_TICK = 0.25
# Seconds between two checks while a device is missing and may be plugged in; a later discovery does no harm.
_SLOW_TICK = 1.0

_TOO_SLOW = (
    "it takes audio more slowly than the bot sends it, and the oldest goes first. Let the sink return faster, or raise "
    "max_queued_audio_bytes"
)
_TOO_FAST = (
    "the bot sends audio faster than it is played, two minutes of it wait, and the oldest goes first. Let the bot send "
    "in real time, or give the client a sink, which takes audio at any speed"
)

_LOCAL = Participant(id="local", name="", local=True)
_BOT = Participant(id="bot", name="", local=False)


@attrs.frozen(eq=False, repr=False)
class Senders:
    """The send functions of the transport and the timers, from the moment that the bot is ready.

    Attributes:
        timer: checks the devices.
        schedule: times the audio of sources.
        send_audio, send_video, send_screen: see `Transport`; None for media that it does not carry.
    """

    timer: TimerThread
    schedule: Scheduler
    send_audio: SendAudio | None = None
    send_video: SendVideo | None = None
    send_screen: SendVideo | None = None


class Insertion:
    """A source that speaks in the microphone's place."""

    sender: AudioSender


class MediaSession:
    """The devices and the tracks of one session.

    Args:
        backend: returns the backend of the machine's audio devices.
        settings: of the client.
        status_reporter: gets the status of the devices.
        workers: they write to sinks that may block.
        max_queued_audio_bytes: limit of the audio queued for a sink.
    """

    def __init__(
        self,
        backend: Callable[[], AudioBackend],
        settings: MediaSettings,
        status_reporter: DeviceStatusReporter,
        workers: Workers,
        max_queued_audio_bytes: int,
    ) -> None:
        self._settings = settings
        self._status_reporter = status_reporter
        factory = ComponentFactory(
            backend,
            settings,
            status_reporter,
            workers=workers,
            max_queued_audio_bytes=max_queued_audio_bytes,
            publish_audio=self._publish_mic,
            publish_cam=lambda frame: self._publish_video(self.slots.cam, frame),
            publish_screen=lambda frame: self._publish_video(self.slots.screen, frame),
            source_enabled=lambda: settings.mic and self._in_place is None,
        )
        self._factory = factory
        # The sources that speak in the microphone's place, and the last of them, which alone is sent; None: the
        # microphone is. Changed under the lock.
        self._inserted: list[Insertion] = []
        self._inserted_losses: dict[str, float] = {}  # of those that were removed
        self._in_place: Insertion | None = None
        self._leaving: list[AudioSender] = []  # were removed, and may still be in a call of their source; as the above
        # Held while audio is sent; re-entrant, because the transport may end the session meanwhile.
        self._sending = threading.RLock()
        self._takes_insertions = True  # until the session ends; changed under the lock
        self._sent: AudioTrack | None = None  # what is sent, from whichever source; made when it is asked for
        self.slots: DeviceSlots = DeviceSlots(
            factory, settings, status_reporter, begin=self._begin, publish=self._publish_track
        )
        # Bound here because they are needed 50 times a second.
        self._speaker, self._speaking = self.slots.speaker, self.slots.speaking
        self._kinds: set[Kind] = set()  # the kinds that the transport carries
        self.bot: AudioTrack | None = None
        self.bot_video: VideoTrack | None = None  # from its first image on
        # Guards the next two fields, so that one thread starts the sources, and one adds the checks. Held for an
        # assignment; re-entrant, because a finalizer may run on the thread that holds it.
        self._lock = threading.RLock()
        self._senders: Senders | None = None
        self._checking = False
        self._local_level = LevelMeter(RTVIEvent.LOCAL_AUDIO_LEVEL, status_reporter)
        self._bot_level = LevelMeter(RTVIEvent.REMOTE_AUDIO_LEVEL, status_reporter)
        self._hotplug = HotPlug(status_reporter, backend)
        self._timer: TimerThread | None = None
        self._ticks: ScheduledTask | None = None
        # These fields are accessed by the transport's thread only.
        self._gate = SilenceGate()
        self._ignored = 0
        self._bot_heard = False

    def prepare(self, kinds: Sequence[Kind], choices: Mapping[Kind, Any]) -> dict[Kind, DeviceError]:
        """Open the required devices that are not open yet; called on a thread that may block.

        Args:
            kinds: the kinds that the transport carries; only these are ever opened.
            choices: of the application.

        Returns:
            The missing default devices, each with the reason.

        Raises:
            DeviceError, MissingExtraError: an explicit choice of the application cannot be opened, or the session has
                ended meanwhile.
        """
        self._kinds.update(kinds)
        if "speaker" in kinds:
            self.bot = self.bot or AudioTrack(label="bot")  # exists before the bot's first audio
        missing: dict[Kind, DeviceError] = {}
        deadline = Deadline(OPEN_TIMEOUT)
        for kind in kinds:
            choice = choices[kind]
            if choice is False:
                self.slots[kind].choice = False  # no device is missed
            if self.slots[kind].component is not None or not self.opens(kind, choice):
                continue
            limit = Deadline(max(_MIN_OPEN_TIMEOUT, deadline.remaining() or 0.0))
            try:
                self.slots.open(kind, choice, limit)
            except (DeviceError, MissingExtraError) as error:
                if choice is not None or self.slots.closed:
                    raise
                missing[kind] = as_device_error(kind, None, error)
        self._tick_soon()  # a missing device may be plugged in
        return missing

    def opens(self, kind: Kind, choice: object) -> bool:
        """Return whether a choice must be open: a device only while it is on, a source or sink always, False never."""
        return choice is not False and kind in self._kinds and (self._settings.opens(kind) or not is_device(choice))

    def start(self, senders: Senders) -> None:
        """Start the sources from their beginning; called when the bot is ready, does not block."""
        with self._lock:
            if self._senders is not None:
                return
            self._senders = senders
        if (self._settings.cam or self._settings.screen) and senders.send_video is None:
            logger.warning("The camera or the screen is on, but the transport that has reached the bot has no video")
        # The watch comes first because it may start a thread, which would delay sources that have started.
        self.watch_devices(senders.timer)
        for slot in self.slots:
            self._begin(slot)

    def _begin(self, slot: DeviceSlot[Any, Any]) -> None:
        """Tell a slot's component that the bot is ready, if it is: what records sends from now on; does not block."""
        senders, component = self._senders, slot.component
        if component is None:
            return
        self._tick_soon()  # it may be the first device to check
        if senders is None:
            return
        if slot.kind == "mic" and senders.send_audio is not None:
            component.start(senders.schedule, self._gated(senders.send_audio, None))
        elif slot.kind == "cam" and senders.send_video is not None:
            component.start(senders.send_video)
        elif slot.kind == "screen" and senders.send_screen is not None:
            component.start(senders.send_screen)
        elif isinstance(component, QueuedSpeaker):
            component.begin()

    # -- a source in the microphone's place: on threads that may block -------------------------------------------------

    def insert(self, source: AudioSource, deadline: Deadline) -> Insertion:
        """Let a source speak in the microphone's place, even if that is off, and silence after it, until `remove()`.

        A source that speaks so already waits meanwhile. `deadline` limits the wait for one that is still being closed.

        Raises:
            DeviceError: the source cannot be used, the transport carries no audio, or the session has ended.
        """
        senders = self._senders
        if senders is None or senders.send_audio is None:
            raise DeviceError(
                "This session carries no audio of the user. Ask in writing, or use a transport that carries audio",
                devices=("mic",),
            )
        if self.slots.mic.component is not None and lease_key_of(source) == lease_key_of(self.slots.mic.choice):
            raise DeviceError(
                "This source is this client's microphone already; ask with another one",
                devices=("mic",),
                type="in-use",
            )
        insertion = Insertion()

        def publish(pcm: bytes, sample_rate_hz: int, timestamp: float) -> None:
            if self._in_place is insertion:
                self._publish_local(pcm, sample_rate_hz, timestamp)

        sender = insertion.sender = self._factory.sender(source, lambda: self._in_place is insertion, publish, deadline)
        with self._lock:
            takes = self._takes_insertions
            if takes:
                self._inserted.append(insertion)
                self._in_place = insertion
        if not takes:
            sender.halt()
            raise DeviceError("The session has ended", devices=("mic",))
        sender.start(senders.schedule, self._gated(senders.send_audio, insertion))
        return insertion

    def remove(self, insertion: Insertion) -> None:
        """Let what spoke before, the microphone at last, speak again; does not block.

        A source that is in `read()` is closed when that returns, and is in use until then.
        """
        insertion.sender.halt()
        with self._lock:
            if insertion in self._inserted:
                for name, lost in losses_of("mic", insertion.sender).items():
                    self._inserted_losses[name] = self._inserted_losses.get(name, 0) + lost
            self._inserted = [other for other in self._inserted if other is not insertion]
            self._leaving = [sender for sender in (*self._leaving, insertion.sender) if not sender.is_closed]
            self._in_place = self._inserted[-1] if self._inserted else None
            last = self._in_place.sender if self._in_place is not None else self.slots.mic.component
        if last is not None:
            last.look()

    def _gated(self, send_audio: SendAudio, speaker: Insertion | None) -> SendAudio:
        """Return what sends the audio of a source, or of the microphone (None), while that is to be sent."""

        def send(pcm: bytes, sample_rate_hz: int) -> None:
            # Under a lock: when the speaker changes, the microphone's thread and the scheduler's must not both send.
            with self._sending:
                if self._in_place is speaker:
                    send_audio(pcm, sample_rate_hz)

        return send

    @property
    def sent(self) -> AudioTrack:
        """Return the track of all audio that is sent, from the microphone or in its place."""
        with self._lock:
            if self._sent is None:
                self._sent = AudioTrack(label="sent")
            return self._sent

    # -- audio and video ----------------------------------------------------------------------------------------------

    def _publish_mic(self, pcm: bytes, sample_rate_hz: int, timestamp: float) -> None:
        """Hand out what the microphone recorded; called on its thread."""
        if self._in_place is None:
            self._publish_local(pcm, sample_rate_hz, timestamp)

    def _publish_local(self, pcm: bytes, sample_rate_hz: int, timestamp: float) -> None:
        """Hand recorded or sent audio to the readers of the local track; called on the sending thread."""
        track = self.slots.mic.track
        if track is not None and track.readers:
            track.publish(pcm, sample_rate_hz, timestamp)
        if self._sent is not None and self._sent.readers:
            self._sent.publish(pcm, sample_rate_hz, timestamp)
        if timestamp >= self._local_level.idle_until:
            self._local_level.feed(pcm, timestamp)

    def publish_bot(self, pcm: bytes, sample_rate_hz: int, timestamp: float) -> None:
        """Play the bot's audio and hand it to the readers of its track; called on the transport's thread."""
        track = self.bot
        if track is None or (self._settings.is_continuous and not self._gate.passes(pcm, sample_rate_hz)):
            return
        if not self._bot_heard:
            self._bot_heard = True
            self._publish_event(RTVIEvent.TRACK_STARTED, track, _BOT)
        if track.readers:
            track.publish(pcm, sample_rate_hz, timestamp)
        with self._speaking:
            speaker, sink = self._speaker.component, self._speaker.choice
            dropped = speaker.write(pcm, sample_rate_hz) if speaker is not None else 0.0
        if dropped:
            self._status_reporter.audio_dropped(sink, dropped, _TOO_FAST if is_device(sink) else _TOO_SLOW)
        if timestamp >= self._bot_level.idle_until and self._bot_level.feed(pcm, timestamp):
            self._tick_soon()

    def interrupt(self) -> None:
        """Discard the bot's audio that is not played yet; called on the transport's thread."""
        self._gate.interrupted()
        with self._speaking:
            speaker = self._speaker.component
            if speaker is not None:
                speaker.interrupt()

    @property
    def wants_video(self) -> bool:
        """Return whether an image of the bot would be read, or would make its track; any thread."""
        return self.bot_video is None or bool(self.bot_video.readers)

    def publish_bot_video(self, frame: VideoFrame) -> None:
        """Hand an image of the bot to the readers of its track; called on one thread of the transport."""
        if self.bot_video is None:
            self.bot_video = VideoTrack(label="bot")
            self._publish_event(RTVIEvent.TRACK_STARTED, self.bot_video, _BOT)
        self.bot_video.publish(frame)

    def _publish_video(self, slot: DeviceSlot[Camera, VideoTrack], frame: VideoFrame) -> None:
        """Hand an image to the readers of a slot's track; called on the camera's thread."""
        track = slot.track
        if track is not None:
            track.publish(frame)

    def ignore(self, sample_rate_hz: int, num_channels: int) -> None:
        """Count an unplayable audio frame of the bot; called on the transport's thread."""
        self._ignored += 1
        if self._ignored == 1:
            logger.warning("Audio of the bot is ignored: %r Hz, %r channels", sample_rate_hz, num_channels)

    def _publish_track(self, slot: DeviceSlot[Any, Any], track: AudioTrack | VideoTrack) -> None:
        """Publish that a local track has begun, or ended."""
        if slot.kind == "screen":
            started, stopped = RTVIEvent.SCREEN_TRACK_STARTED, RTVIEvent.SCREEN_TRACK_STOPPED
        else:
            started, stopped = RTVIEvent.TRACK_STARTED, RTVIEvent.TRACK_STOPPED
        self._publish_event(started if track.ready_state == "live" else stopped, track, _LOCAL)

    def _publish_event(self, event: RTVIEvent, track: AudioTrack | VideoTrack, participant: Participant) -> None:
        self._status_reporter.event_sink.event(event, TrackData(track=track, participant=participant))

    # -- checks of the devices ----------------------------------------------------------------------------------------

    def watch_devices(self, timer: TimerThread) -> None:
        """Begin to detect devices that hang, appear or disappear, and to publish silence after the bot's audio."""
        if self._timer is not None:
            return
        self._hotplug.look()
        self._timer = timer
        self._tick_soon()

    def _tick_soon(self) -> None:
        """Schedule a check if there is something to check; called on any thread, does not block.

        The first check starts the timer thread, so a session without devices has none.
        """
        timer = self._timer
        if timer is None or self._interval == math.inf:
            return
        with self._lock:
            first, self._checking = not self._checking, True
        if first:
            try:
                self._ticks = timer.add(self._tick, math.inf)
            except RuntimeError:  # the session, and with it the timer thread, has ended
                return
        ticks = self._ticks
        if ticks is not None:
            ticks.reschedule(timer.now() + _TICK)

    def _tick(self, now: float) -> float | None:
        """Check the devices and levels; return when to check again. Called on the timer thread."""
        if self.slots.closed:  # by a thread that did not find this task yet
            return None
        for component in [slot.component for slot in self.slots]:
            if isinstance(component, Device):
                component.check(now)
        self._bot_level.quiet(now)
        self._local_level.quiet(now)
        self._hotplug.look()
        return now + self._interval

    @property
    def _interval(self) -> float:
        """Return the seconds until the next check; `math.inf` if there is nothing to check."""
        if self._bot_level.loud:
            return _TICK
        for slot in self.slots:
            if isinstance(slot.component, Device):
                return _TICK
        for slot in (self.slots.mic, self.slots.speaker):
            if slot.component is None and self.opens(slot.kind, slot.choice):
                return _SLOW_TICK  # it is missing, and may be plugged in
        return math.inf

    # -- closing ------------------------------------------------------------------------------------------------------

    def counters(self) -> MediaCounters:
        """Return the counters of the session."""
        losses: dict[str, Any] = self.slots.losses()
        with self._lock:
            of_inserted = [self._inserted_losses, *(losses_of("mic", each.sender) for each in self._inserted)]
        for lost in of_inserted:
            for name, number in lost.items():
                losses[name] += number
        return MediaCounters(**losses, bot_frames_ignored=self._ignored)

    def close(self, deadline: Deadline, flush: Deadline) -> list[threading.Thread]:
        """End all devices and tracks; take and return the same as `DeviceSlots.close_all()`."""
        if self._ticks is not None:
            self._ticks.cancel()
        self._hotplug.close()
        with self._lock:
            self._takes_insertions = False
            inserted = [*self._leaving, *(insertion.sender for insertion in self._inserted)]
        for sender in inserted:
            sender.halt()
        if self._sent is not None:
            self._sent.end()
        if self.bot is not None:
            self.bot.end()
            if self._bot_heard:
                self._publish_event(RTVIEvent.TRACK_STOPPED, self.bot, _BOT)
        if self.bot_video is not None:
            self.bot_video.end()
            self._publish_event(RTVIEvent.TRACK_STOPPED, self.bot_video, _BOT)
        threads = self.slots.close_all(deadline, flush)
        return threads + [thread for sender in inserted if (thread := sender.join(deadline)) is not None]
