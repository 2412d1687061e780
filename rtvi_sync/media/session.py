"""What is open between the preparation of the devices and the end of the session, and what flows through it."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from ..concurrency.deadline import Deadline
from ..concurrency.timer_thread import PacerTask, Scheduler, TimerThread
from ..errors import DeviceError, MissingExtraError
from ..events import RTVIEvent
from .base import VideoFrame
from .capture import SendAudio
from .component_factory import OPEN_TIMEOUT, ComponentFactory, MediaSettings, as_device_error
from .device_slots import DeviceSlot, DeviceSlots, MediaCounters
from .devices.backend import AudioBackend
from .devices.device import Device
from .devices.hotplug import HotPlug
from .kinds import Kind, is_device
from .levels import LevelMeter
from .state import Participant, TrackData
from .status_reporter import DeviceStatusReporter
from .tracks import AudioTrack, VideoTrack

if TYPE_CHECKING:
    from .devices.camera import Camera, SendVideo

logger: logging.Logger = logging.getLogger(__name__)

# If one device hangs, the next one of the same call has less time, but so much.
_LEAST_OPEN_TIMEOUT = 1.0
# How often devices are looked at: a hung one says nothing by itself.
_TICK = 0.25
# Where there is none, somebody may listen for one that is plugged in: nothing is lost by a moment more.
_SELDOM = 1.0

_TOO_SLOW = (
    "it takes audio more slowly than the bot sends it, and the oldest goes first. Let a sink return faster, or raise "
    "max_queued_audio_bytes"
)

_LOCAL = Participant(id="local", name="", local=True)
_BOT = Participant(id="bot", name="", local=False)


@attrs.frozen(kw_only=True)
class Senders:
    """What the transport takes, from the moment that the bot is ready.

    Attributes:
        timer thread: looks after devices.
        schedule: times what sources send.
        send_audio, send_video, send_screen: see `Transport`; None for what it does not carry.
    """

    timer: TimerThread
    schedule: Scheduler
    send_audio: SendAudio | None = None
    send_video: SendVideo | None = None
    send_screen: SendVideo | None = None


class MediaSession:
    """The devices and the tracks of one session.

    Args:
        backend: brings the machine's sound devices.
        settings: of the client.
        status_reporter: told how it stands with the devices.
        max_queued_audio_bytes: limit of what may wait for a sink.
    """

    def __init__(
        self,
        backend: Callable[[], AudioBackend],
        settings: MediaSettings,
        status_reporter: DeviceStatusReporter,
        max_queued_audio_bytes: int,
    ) -> None:
        self._settings = settings
        self._status_reporter = status_reporter
        factory = ComponentFactory(
            backend,
            settings,
            status_reporter,
            max_queued_audio_bytes=max_queued_audio_bytes,
            publish_audio=self._publish_local,
            publish_cam=lambda frame: self._publish_video(self.slots.cam, frame),
            publish_screen=lambda frame: self._publish_video(self.slots.screen, frame),
        )
        self.slots: DeviceSlots = DeviceSlots(
            factory, settings, status_reporter, begin=self._begin, tell=self._tell_track
        )
        # Looked for fifty times a second.
        self._speaker, self._speaking = self.slots.speaker, self.slots.speaking
        self._kinds: set[Kind] = set()  # what the transport carries
        self.bot: AudioTrack | None = None
        self.bot_video: VideoTrack | None = None  # from its first image on
        # Guards the next field: whoever sets it begins. Held for an assignment; re-entrant, because a finalizer may
        # come in between.
        self._lock = threading.RLock()
        self._senders: Senders | None = None
        self._local_level = LevelMeter(RTVIEvent.LOCAL_AUDIO_LEVEL, status_reporter)
        self._bot_level = LevelMeter(RTVIEvent.REMOTE_AUDIO_LEVEL, status_reporter)
        self._hotplug = HotPlug(status_reporter)
        self._ticks: PacerTask | None = None
        self._now: Callable[[], float] = time.monotonic  # the timer thread's, once there is one
        # The io thread's alone.
        self._ignored = 0
        self._bot_heard = False

    def prepare(self, kinds: Sequence[Kind], choices: Mapping[Kind, Any]) -> dict[Kind, DeviceError]:
        """Open what is wanted and not open yet. Called on a thread that may block.

        Args:
            kinds: what the transport carries; only that is ever opened.
            choices: of the program.

        Returns:
            Which default devices are missing, and why.

        Raises:
            DeviceError, MissingExtraError: what the program chose cannot be had, or the session has ended meanwhile.
        """
        self._kinds.update(kinds)
        if "speaker" in kinds:
            self.bot = self.bot or AudioTrack(label="bot")  # before its first word
        missing: dict[Kind, DeviceError] = {}
        deadline = Deadline(OPEN_TIMEOUT)
        for kind in kinds:
            choice = choices[kind]
            if self.slots[kind].component is not None or not self.opens(kind, choice):
                continue
            patience = Deadline(max(_LEAST_OPEN_TIMEOUT, deadline.remaining() or 0.0))
            try:
                self.slots.open(kind, choice, patience)
            except (DeviceError, MissingExtraError) as error:
                if choice is not None or self.slots.over:
                    raise
                missing[kind] = as_device_error(kind, None, error)
        return missing

    def opens(self, kind: Kind, choice: object) -> bool:
        """Whether that is to be open: a device that is off is not touched; a source is taken, on or off."""
        return kind in self._kinds and (self._settings.opens(kind) or not is_device(choice))

    def start(self, senders: Senders) -> None:
        """The bot is ready: sources start from their beginning. Called on the io thread; does not block."""
        with self._lock:
            if self._senders is not None:
                return
            self._senders = senders
        self.look_after_devices(senders.timer)  # it may start a thread: a source that is read already would come first
        for slot in self.slots:
            self._begin(slot)

    def _begin(self, slot: DeviceSlot[Any, Any]) -> None:
        """What is in a slot sends from now on, if it has something to send and the bot is ready. Does not block."""
        senders, component = self._senders, slot.component
        self._tick_soon()  # it may be the first to be looked after
        if senders is None or component is None:
            return
        if slot.kind == "mic" and senders.send_audio is not None:
            component.start(senders.schedule, senders.send_audio)
        elif slot.kind == "cam" and senders.send_video is not None:
            component.start(senders.send_video)
        elif slot.kind == "screen" and senders.send_screen is not None:
            component.start(senders.send_screen)

    # -- what flows ---------------------------------------------------------------------------------------------------

    def _publish_local(self, pcm: bytes, sample_rate_hz: int, timestamp: float) -> None:
        """Hand what was recorded or sent to the readers of the local track. On the thread that sends it."""
        track = self.slots.mic.track
        if track is not None and track.readers:
            track.publish(pcm, sample_rate_hz, timestamp)
        if timestamp >= self._local_level.idle_until:
            self._local_level.feed(pcm, timestamp)

    def publish_bot(self, pcm: bytes, sample_rate_hz: int, timestamp: float) -> None:
        """Play what the bot says, and hand it to the readers of its track. On the io thread."""
        track = self.bot
        if track is None:
            return
        if not self._bot_heard:
            self._bot_heard = True
            self._tell(RTVIEvent.TRACK_STARTED, track, _BOT)
        if track.readers:
            track.publish(pcm, sample_rate_hz, timestamp)
        with self._speaking:
            speaker, sink = self._speaker.component, self._speaker.choice
            dropped = speaker.write(pcm, sample_rate_hz) if speaker is not None else 0.0
        if dropped:
            self._status_reporter.audio_dropped(sink, dropped, _TOO_SLOW)
        if timestamp >= self._bot_level.idle_until and self._bot_level.feed(pcm, timestamp):
            self._tick_soon()

    def interrupt(self) -> None:
        """Forget what the bot has said and is not heard yet. On the io thread."""
        with self._speaking:
            speaker = self._speaker.component
            if speaker is not None:
                speaker.interrupt()

    def publish_bot_video(self, frame: VideoFrame) -> None:
        """Hand what the bot shows to the readers of its track. On one thread of the transport's."""
        if self.bot_video is None:
            self.bot_video = VideoTrack(label="bot")
            self._tell(RTVIEvent.TRACK_STARTED, self.bot_video, _BOT)
        self.bot_video.publish(frame)

    def _publish_video(self, slot: DeviceSlot[Camera, VideoTrack], frame: VideoFrame) -> None:
        """On the camera's thread."""
        track = slot.track
        if track is not None:
            track.publish(frame)

    def ignore(self, sample_rate_hz: int, num_channels: int) -> None:
        """Audio of the bot's was nothing that can be played. On the io thread."""
        self._ignored += 1
        if self._ignored == 1:
            logger.warning("Audio of the bot's is ignored: %r Hz, %r channels", sample_rate_hz, num_channels)

    def _tell_track(self, slot: DeviceSlot[Any, Any], track: AudioTrack | VideoTrack) -> None:
        """Tell that a local track has begun, or ended."""
        if slot.kind == "screen":
            started, stopped = RTVIEvent.SCREEN_TRACK_STARTED, RTVIEvent.SCREEN_TRACK_STOPPED
        else:
            started, stopped = RTVIEvent.TRACK_STARTED, RTVIEvent.TRACK_STOPPED
        self._tell(started if track.ready_state == "live" else stopped, track, _LOCAL)

    def _tell(self, event: RTVIEvent, track: AudioTrack | VideoTrack, who: Participant) -> None:
        self._status_reporter.event_sink.event(event, TrackData(track=track, participant=who))

    # -- looking after devices ----------------------------------------------------------------------------------------

    def look_after_devices(self, timer: TimerThread) -> None:
        """From now on devices that hang, come or go are noticed, and the bot's level falls when it is silent."""
        if self._ticks is not None:
            return
        self._hotplug.look()
        try:
            self._ticks = timer.add(self._tick, math.inf)
        except RuntimeError:  # the session has ended, and with it the timer thread
            return
        self._now = timer.now
        self._tick_soon()

    def _tick_soon(self) -> None:
        """There may be something to look after that there was not before. Any thread; does not block."""
        ticks = self._ticks
        if ticks is not None:
            ticks.reschedule(self._now() + _TICK)

    def _tick(self, now: float) -> float:
        """On the timer thread's thread."""
        components = [slot.component for slot in self.slots]
        devices = [component for component in components if isinstance(component, Device)]
        for device in devices:
            device.check(now)
        self._bot_level.quiet(now)
        self._local_level.quiet(now)
        self._hotplug.look()
        if devices or self._bot_level.loud:
            return now + _TICK
        return now + _SELDOM if self._lacks_device else math.inf

    @property
    def _lacks_device(self) -> bool:
        """The program may wait for one to be plugged in."""
        slots = self.slots.mic, self.slots.speaker
        return any(slot.kind in self._kinds and slot.component is None and is_device(slot.choice) for slot in slots)

    # -- the end ------------------------------------------------------------------------------------------------------

    def counters(self) -> MediaCounters:
        """What was lost so far."""
        return MediaCounters(**self.slots.losses(), bot_frames_ignored=self._ignored)

    def close(self, deadline: Deadline, flush: Deadline) -> list[threading.Thread]:
        """End everything. Arguments and result as of `DeviceSlots.close_all()`."""
        if self._ticks is not None:
            self._ticks.cancel()
        self._hotplug.close()
        if self.bot is not None:
            self.bot.end()
            if self._bot_heard:
                self._tell(RTVIEvent.TRACK_STOPPED, self.bot, _BOT)
        if self.bot_video is not None:
            self.bot_video.end()
            self._tell(RTVIEvent.TRACK_STOPPED, self.bot_video, _BOT)
        return self.slots.close_all(deadline, flush)
