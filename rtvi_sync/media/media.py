"""A client's media: its slots, its tracks, audio levels and settings, for one session after the other."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from ..concurrency.clock import monotonic
from ..concurrency.deadline import Deadline
from ..concurrency.latch import Notifier
from ..concurrency.lifecycle import NoThreadError, log_stack_of, register_for_fork, start_thread
from ..concurrency.lock import new_lock
from ..concurrency.logs import package_logger
from ..concurrency.runtime import Runtime, acquire_runtime
from ..concurrency.serial_work import Workers
from ..concurrency.shield import shielded
from ..concurrency.timer_thread import ScheduledTask, TimerThread
from ..concurrency.worker_pool import WorkerPool
from ..errors import DeviceError, MissingExtraError
from ..events import RTVIEvent
from ..protocol.validation import number
from . import pcm as pcm_tools
from .base import MediaDeviceInfo, VideoFrame
from .capture import SendAudio
from .devices.backend import AudioBackend, audio_backend, cameras
from .devices.device import END_TIMEOUT, OPEN_TIMEOUT, Device
from .devices.hotplug import HotPlug
from .kinds import AudioFiles, CamChoice, Kind, MicChoice, SpeakerChoice, choice_of, find_device, is_device, media_kind
from .levels import LevelMeter
from .playback import QueuedSpeaker
from .silence_gate import SilenceGate
from .slot import CameraSlot, MediaCounters, MicSlot, Slot, SpeakerSlot, as_device_error
from .status import MediaState, Participant, Publisher, TrackData
from .tracks import AudioTrack, ParticipantTracks, Tracks, VideoTrack

if TYPE_CHECKING:
    from .devices.camera import SendVideo
    from .devices.echo_canceller import EchoCanceller

logger: logging.Logger = package_logger(__name__)

# Seconds that a thread waits to open or replace a device while another thread does so.
_OPENING_TIMEOUT = 30.0
# Limit in seconds for devices to close that are open without a session.
_CLOSE_TIMEOUT = 1.0
# Minimum time for a device to open, in seconds, if another device of the same call used up most of the limit.
_MIN_OPEN_TIMEOUT = 1.0
# Seconds between two checks of the devices, because a hung device reports nothing by itself.
_TICK = 0.25

_BOT = Participant(id="bot", name="", local=False)
_ADVICE_AUDIO = "To use none, pass mic=False and speaker=False"
_ADVICE_VIDEO = "Without one pass cam=FileVideoSource(path) of rtvi_sync.media, or leave the camera off"


@attrs.define(eq=False, repr=False)
class MediaSettings:
    """The settings of a client's devices, for the current and later sessions; any thread may read and write them.

    Attributes:
        mic, cam, screen: True if they are on.
        speaker: True if the speaker is audible; a change takes effect within 40 ms. Sinks get the bot's audio in any
            case.
        volume: volume of the speaker, 0.0 to 1.0; a change takes effect within 40 ms. Sinks get the bot's audio
            unchanged.
        echo_cancellation: True to remove the speaker's echo from the microphone's audio; never changes.
        is_continuous: True if the bot's audio never pauses, as `Transport.audio_is_continuous`.
    """

    mic: bool = True
    cam: bool = False
    screen: bool = False
    speaker: bool = True
    volume: float = 1.0
    echo_cancellation: bool = False
    is_continuous: bool = False

    def opens(self, kind: Kind) -> bool:
        """Return whether a device of that kind must be open; a muted speaker stays open."""
        return kind == "speaker" or bool(getattr(self, kind))


class Media:
    """The microphone, speaker, camera and screen of one client, and the tracks of its current session.

    A session starts with `expect()`, opens devices by `prepare()`, sends from `start()` on, and ends with `stop()`.

    Args:
        mic, speaker, cam: see `MicChoice`, `SpeakerChoice` and `CamChoice`. A file is opened by `prepare()`.
        enable_mic: False to start muted.
        enable_cam: True to start with the camera on.
        backend: library or backend for the machine's audio devices; see `audio_backend()`.
        max_queued_audio_bytes: limit of the bot's audio queued for a sink.
        echo_cancellation: see `MediaSettings`.

    Raises:
        ValueError: the name of a file was given as a device id.

    Attributes:
        max_queued_audio_bytes: as given.
        settings: settings for the current and later sessions. An assignment only stores a value; it opens no device.
        mic, speaker, cam, screen: the slots.
        lock: see below.
        publisher: publishes events; None: there is no session, and no listener.
        session: token of the current session, whose devices are open; None: no session.
        carried: the kinds that the session's transport carries; no others are opened.
        warned: the last warning about missing devices.
        bot, bot_video, sent_track: the tracks of the bot's audio, of its images, and of all audio that is sent; None
            until they are needed.
    """

    # Mutable state. `lock` guards the current session, its tracks and the content of the slots. Any thread may hold it
    # for a few instructions, which call no code of devices, sources, sinks or the application. It is re-entrant,
    # because a finalizer may run on the thread that holds it. A call that opens a device reads `session` first, and
    # puts the device into a slot only if that is still the current one; `stop()` empties all slots in one step. So a
    # device that opens late does not reach the next session.

    def __init__(
        self,
        *,
        mic: MicChoice = None,
        speaker: SpeakerChoice = None,
        cam: CamChoice = None,
        enable_mic: bool = True,
        enable_cam: bool = False,
        backend: str | AudioBackend | None = None,
        max_queued_audio_bytes: int = 16 * 1024 * 1024,
        echo_cancellation: bool = False,
    ) -> None:
        # Explained at the head of the class.
        self.lock: threading.RLock = new_lock()
        self.max_queued_audio_bytes: int = max_queued_audio_bytes
        self.settings: MediaSettings = MediaSettings(enable_mic, enable_cam, echo_cancellation=echo_cancellation)
        self.backend: Callable[[], AudioBackend] = lambda: audio_backend(backend)
        self.mic: MicSlot = MicSlot(self, "mic", choice_of("mic", mic))
        self.speaker: SpeakerSlot = SpeakerSlot(self, "speaker", choice_of("speaker", speaker))
        self.cam: CameraSlot = CameraSlot(self, "cam", choice_of("cam", cam))
        self.screen: CameraSlot = CameraSlot(self, "screen", None)
        # The speaker is first, because at the end it still plays, and another device that hangs must not use its time.
        self._slots: tuple[Slot[Any, Any], ...] = (self.speaker, self.mic, self.cam, self.screen)
        self._files = AudioFiles()
        self.publisher: Publisher | None = None
        self.warned: str = ""
        self.session: object | None = None
        self._runtime: Runtime | None = None  # of the current or last session
        self._is_over = False  # `stop()` was called after the last `expect()`
        self._needs_named = True  # see `expect()`
        self._held: Runtime | None = None  # of devices that are open without a session; changed under the lock
        # One thread at a time opens and replaces devices; two would open the same one, and close each other's.
        self._opening_ended = Notifier()
        self._opening_thread: int | None = None  # the id of that thread
        # Of the current or last session; see `_new_session()`.
        self.carried: frozenset[Kind] = frozenset()
        self.bot: AudioTrack | None = None
        self.bot_video: VideoTrack | None = None
        self.sent_track: AudioTrack | None = None
        self._ignored = 0  # frames of the bot
        register_for_fork(self)

    def _new_session(self) -> object:
        """Forget the last session, and return the new one; called under the lock."""
        self.carried = frozenset()
        self.bot = self.bot_video = self.sent_track = None
        self._is_started = self._has_ticks = False
        self._echo: EchoCanceller | None = None
        self._hotplug = HotPlug(self.publish, self.backend)
        self._timer: TimerThread | None = None
        self._ticks: ScheduledTask | None = None
        # These are used by the transport's thread only.
        self._bot_level = LevelMeter(RTVIEvent.REMOTE_AUDIO_LEVEL)
        self._gate = SilenceGate()
        self._played_rate_hz: int | None = None  # the last supported sample rate
        self._bot_heard = False
        self._ignored = 0
        for slot in self._slots:
            slot.reset()
        self.session = session = object()
        return session

    def __getitem__(self, kind: Kind) -> Slot[Any, Any]:
        slot: Slot[Any, Any] = getattr(self, kind)
        return slot

    # -- one session --------------------------------------------------------------------------------------------------

    def expect(self, runtime: Runtime, publisher: Publisher | None = None, *, needs_named: bool = True) -> None:
        """Allow devices to be opened again, because a session starts. It gets those that are open. `stop()` ends it.

        Args:
            runtime: its timer thread checks devices and times the audio of sources, its workers write to sinks.
            publisher: publishes the events of devices from now on.
            needs_named: whether `prepare()`, `enable_mic()` and `enable_cam()` raise if a device that was named by its
                id is missing; else the session continues without it, as without a default device.
        """
        with self.lock:
            self._expect(runtime, publisher, needs_named=needs_named)
            before, self._held = self._held, None
        if before is not None:
            before.release()

    def _expect(self, runtime: Runtime, publisher: Publisher | None, *, needs_named: bool = True) -> None:
        self._needs_named = needs_named
        self.publisher = publisher
        self._runtime = runtime
        self._is_over = False

    def prepare(self, *, audio: bool = True, video: bool = True, is_continuous: bool = False) -> None:
        """Open the required devices that are not open yet; called on the connect thread or by `init_devices()`.

        See `MediaPort.prepare()`. A missing default device is logged and reported once. The session continues without
        it, and tries it again. See `expect()` for named ones.

        Raises:
            DeviceError: a device requested by id does not exist ("not-found"); a source or sink is used by another
                session ("in-use"), or has no usable sample rate ("unknown"); or the session has ended.
            MissingExtraError: a device was asked for by id, and the library for it is not installed.
        """
        self.settings.is_continuous = is_continuous
        with self._opening():
            kinds: tuple[Kind, ...] = (*(("mic", "speaker") if audio else ()), *(("cam", "screen") if video else ()))
            self._prepare(*kinds)

    @contextlib.contextmanager
    def _opening(self) -> Iterator[None]:
        """Exclude other threads from opening and replacing devices; re-entrant."""
        this_thread = threading.get_ident()
        if self._opening_thread == this_thread:  # a source of the application calls its client
            yield
            return

        def acquire() -> bool:
            with self.lock:
                if self._opening_thread is None:
                    self._opening_thread = this_thread
                return self._opening_thread == this_thread

        if not self._opening_ended.wait_for(acquire, Deadline(_OPENING_TIMEOUT)):
            raise DeviceError("Another thread is still opening a device of this client; try again when it has ended")
        try:
            yield
        finally:
            self._opening_thread = None
            self._opening_ended.notify_all()

    def _prepare(self, *kinds: Kind) -> None:
        with self.lock:
            is_first = self.session is None
            if is_first and self._is_over:  # the caller's session has ended
                raise DeviceError("The session ended while its devices were being prepared")
            # Before any device is opened, so that a concurrent change of the settings reaches the session.
            session = self.session or self._new_session()
            self.carried |= frozenset(kinds)
            if "speaker" in kinds:
                self.bot = self.bot or AudioTrack(label="bot")  # exists before the bot's first audio
        try:
            slots = [self[kind] for kind in kinds if self[kind].component is None]
            missing = self._open(slots, session)
        except BaseException:
            if is_first:
                self._close(session, Deadline(END_TIMEOUT), Deadline(END_TIMEOUT))
            raise
        self._tick_soon()
        if (no_screen := missing.pop("screen", None)) is not None:
            self.settings.screen = False
            self.screen.failed(no_screen)
        self._report_missing(missing)

    def _open(self, slots: Sequence[Slot[Any, Any]], session: object) -> dict[Kind, DeviceError | MissingExtraError]:
        """Open the application's choices for slots, if they must be open.

        Returns:
            The missing devices, each with the reason.

        Raises:
            DeviceError, MissingExtraError: an explicit choice of the application cannot be opened, or the session has
                ended.
        """
        missing: dict[Kind, DeviceError | MissingExtraError] = {}
        chosen = [(slot, self._open_file(slot)) for slot in slots]
        deadline = Deadline(OPEN_TIMEOUT)
        for slot, choice in chosen:
            if choice is False:
                slot.choice = False  # no device is missed
            if not slot.needs(choice):
                continue
            persists = slot.kind != "screen" and (choice is None or (is_device(choice) and not self._needs_named))
            limit = Deadline(max(_MIN_OPEN_TIMEOUT, deadline.remaining() or 0.0))
            failure: DeviceError | MissingExtraError | None
            try:
                failure = slot.open(choice, limit, session, persists=persists)
            except (DeviceError, MissingExtraError) as error:
                if choice is not None or self.session is not session:
                    raise
                failure = error
            if failure is not None:
                missing[slot.kind] = failure
        return missing

    def _open_file(self, slot: Slot[Any, Any]) -> Any:
        try:
            return self._files.open(slot.given, slot.kind)
        except (DeviceError, MissingExtraError) as error:
            slot.error(error)
            raise

    def _report_missing(self, failures: Mapping[Kind, DeviceError | MissingExtraError]) -> None:
        """Publish, as one error, that there are no devices of these kinds, except those that work by now.

        It is logged once while nothing changes: one `connect()` may try several transports, and a kiosk has many
        sessions.
        """
        # A device that persists may have opened while the others were tried.
        failures = {kind: failure for kind, failure in failures.items() if not self._works(kind)}
        if not failures:
            return
        errors = {kind: as_device_error(kind, None, failure) for kind, failure in failures.items()}
        first = next(iter(errors.values()))
        reasons = ". ".join(dict.fromkeys(map(str, errors.values())))
        advice = _ADVICE_VIDEO if list(errors) == ["cam"] else _ADVICE_AUDIO
        error = DeviceError(
            f"No {' and no '.join(errors)}: {reasons}. {advice}",
            devices=tuple(errors),
            type=first.type,
            details=first.details,
        )
        if str(error) != self.warned:
            self.warned = str(error)
            them = "it" if len(errors) == 1 else "them"
            tries = all(isinstance(failure, DeviceError) for failure in failures.values())
            and_tries = f", and tries {them} again" if tries else ""
            logger.warning("%s. The session continues without %s%s", error, them, and_tries)
            if any(map(self._works, errors)):  # since a moment ago, so the next absence is a new one
                self.warned = ""
        self.publish(RTVIEvent.DEVICE_ERROR, error)

    def _works(self, kind: Kind) -> bool:
        """Return whether a slot has a component that works."""
        slot = self[kind]
        return slot.component is not None and slot.works

    def start(
        self,
        send_audio: SendAudio | None = None,
        send_video: SendVideo | None = None,
        send_screen: SendVideo | None = None,
        *,
        on_io_thread: bool = False,
    ) -> None:
        """Start the sources from their first sample; called when the bot is ready. See `MediaPort.start()`."""
        with self.lock:
            session, runtime, is_started = self.session, self._runtime, self._is_started
            if session is None or runtime is None or is_started:
                return
            self._is_started = True
        if (self.settings.cam or self.settings.screen) and send_video is None:
            logger.warning("The camera or the screen is on, but the transport that has reached the bot has no video")
        # The watch starts first because it may start a thread, which would delay sources that have started.
        self.watch_devices()
        if send_audio is not None:
            self.mic.start(session, runtime.io.scheduler if on_io_thread else runtime.timer, send_audio)
        if send_video is not None:
            self.cam.start(session, send_video)
        if send_screen is not None:
            self.screen.start(session, send_screen)
        self.speaker.start(session)

    def receive_audio(self, pcm: bytes | bytearray | memoryview, sample_rate_hz: int, num_channels: int) -> None:
        """Play audio of the bot; called on the transport's thread. See `MediaPort.receive_audio()`.

        Several channels are mixed to mono. Audio with an unsupported sample rate or number of channels is counted and
        ignored. Of a frame with several channels and more than 1 s, which no bot sends, only the first channel is
        played, because mixing it would block all sessions.
        """
        if self.session is None:
            return
        pcm = bytes(pcm)  # a transport may use its buffer again; bytes are not copied
        # In the usual case, one channel at the rate of the last frame, all checks are skipped.
        if sample_rate_hz != self._played_rate_hz or num_channels != 1 or len(pcm) % 2:
            if not (pcm_tools.is_rate(sample_rate_hz) and 0 <= num_channels <= pcm_tools.MAX_CHANNELS):
                self._ignored += 1
                if self._ignored == 1:
                    logger.warning("Audio of the bot is ignored: %r Hz, %r channels", sample_rate_hz, num_channels)
                return
            self._played_rate_hz = sample_rate_hz
            pcm = pcm_tools.to_mono_soon(pcm, num_channels or 1, sample_rate_hz)
        track, speaker = self.bot, self.speaker
        if not pcm or track is None or (self.settings.is_continuous and not self._gate.passes(pcm, sample_rate_hz)):
            return
        if not self._bot_heard:
            self._bot_heard = True
            self.publish(RTVIEvent.TRACK_STARTED, TrackData(track=track, participant=_BOT))
        timestamp = monotonic()
        if track.readers:
            track.publish(pcm, sample_rate_hz, timestamp)
        with speaker.speaking:
            component = speaker.component
            dropped = component.write(pcm, sample_rate_hz) if component is not None else 0.0
        if dropped:
            speaker.report_loss(dropped)
        if timestamp >= self._bot_level.idle_until and self._bot_level.feed(pcm, timestamp, self.publisher):
            self._tick_soon()

    @property
    def wants_video(self) -> bool:
        """True if an image of the bot would be read, or would make its track; any thread."""
        return self.session is not None and (self.bot_video is None or bool(self.bot_video.readers))

    def receive_video(self, frame: VideoFrame) -> None:
        """Publish an image of the bot; called on one thread of the transport, does not block."""
        if self.session is None:
            return
        if self.bot_video is None:
            self.bot_video = VideoTrack(label="bot")
            self.publish(RTVIEvent.TRACK_STARTED, TrackData(track=self.bot_video, participant=_BOT))
        self.bot_video.publish(frame)

    def interrupt(self) -> None:
        """Drop queued playback after the user interrupted the bot; called on the transport's thread, does not block."""
        if self.session is None:
            return
        self._gate.interrupted()
        with self.speaker.speaking:
            if (component := self.speaker.component) is not None:
                component.interrupt()

    def pause(self) -> None:
        """Send nothing more in this session from the return of this call on; the bot's audio is still played."""
        if self.session is not None:
            for slot in (self.mic, self.cam, self.screen):
                slot.pause()

    def stop(self, timeout: float, flush_timeout: float | None = None) -> list[threading.Thread]:
        """End the session: stop the source, write the received audio to the sink, close both, end the tracks.

        Called on the close thread; idempotent. Afterwards another session may be prepared.

        Args:
            timeout: limit in seconds for devices, and for sources and sinks of the application that do not return.
            flush_timeout: limit in seconds for sinks that still take queued audio; None: the same.

        Returns:
            The abandoned threads, which were blocked in a library or in the application's code at the limit. They own
            nothing any more.
        """
        with self.lock:
            self._is_over, session = True, self.session
        if session is None:
            return []
        publisher = self.publisher
        threads = self._close(session, Deadline(timeout), Deadline(timeout if flush_timeout is None else flush_timeout))
        if seconds := self.counters.speaker_dropped_seconds:
            logger.warning("%.2f s of the bot's audio were dropped in this session", seconds)
        if self.publisher is publisher:
            self.publisher = None  # until the next session
        return threads

    def _close(self, session: object, deadline: Deadline, flush: Deadline) -> list[threading.Thread]:
        """End the devices and tracks of a session, if it is the current one.

        Args:
            session: the session, read before this call.
            deadline: limit for calls that have to return.
            flush: limit for sinks that still take queued audio.

        Returns:
            The abandoned threads.
        """
        with self.lock:
            if self.session is not session:
                return []
            self.session = None
            taken = [(slot, *slot.take_all()) for slot in self._slots]
            tracks = [(self.sent_track, False), (self.bot, self._bot_heard), (self.bot_video, True)]
            self.sent_track = self.bot = self.bot_video = None
            ticks, hotplug = self._ticks, self._hotplug
        if ticks is not None:
            ticks.cancel()
        hotplug.close()
        for track, was_published in tracks:
            if track is not None:
                track.end()
                if was_published:
                    self.publish(RTVIEvent.TRACK_STOPPED, TrackData(track=track, participant=_BOT))
        patience = deadline.remaining() or 0.0
        ended = [(slot, component) for slot, components, _, _ in taken for component in components]
        for slot, component in ended:
            slot.halt(component)
        for slot, _, _, local in taken:
            if local is not None:
                slot.end_track(local)
        # Sinks are joined last because each still gets queued audio during the other joins.
        sinks = [component for _, component in ended if isinstance(component, QueuedSpeaker)]
        threads = [slot.join(component, deadline) for slot, component in ended if component not in sinks]
        threads += [self.speaker.join_sink(sink, deadline, flush, patience) for sink in sinks]
        threads += [component.join(Deadline(0.0)) for _, _, abandoned, _ in taken for component in abandoned]
        return [thread for thread in threads if thread is not None]

    def after_fork_in_child(self) -> None:
        """Reset the state in the child process; the session, its threads and the lock's owner are the parent's."""
        self.lock = new_lock()
        self.session = self.publisher = self._opening_thread = self._held = self._runtime = None
        self.bot = self.bot_video = self.sent_track = None
        for slot in self._slots:
            slot.after_fork_in_child()

    # -- devices that are open without a session ----------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        """True if devices are open without a session."""
        return self._held is not None

    def hold(self, runtime: Runtime, publisher: Publisher) -> None:
        """Allow devices to be opened without a session, unless they are held already, or a session has them.

        Args:
            runtime: acquired for them; it is released when they are closed, or a session takes them over.
            publisher: see `expect()`.
        """
        with self.lock:
            is_free = self._held is None and (self._runtime is None or self._is_over)
            if is_free:
                self._expect(runtime, publisher)
                self._held = runtime
        if not is_free:
            runtime.release()

    def take_back(self) -> None:
        """Keep the open devices of a session that ends, for the one that follows."""
        runtime = acquire_runtime()
        with self.lock:
            before, self._held = self._held, runtime
        if before is not None:
            before.release()

    def let_go(self) -> None:
        """Close devices that are open without a session. Blocks for a moment; does nothing if a session has them."""
        if self._held is None:
            return
        log_stack_of(self.stop(_CLOSE_TIMEOUT), "A source or sink does not return")
        with self.lock:
            runtime, self._held = self._held, None
        if runtime is not None:
            runtime.release()

    def collected(self) -> None:
        """Close the devices of a client that was collected. A finalizer may run anywhere, and must not wait."""
        if (runtime := self._held) is not None:
            runtime.io.call(self._let_go_apart)

    def _let_go_apart(self) -> None:
        # If no thread can be started, the interpreter is shutting down and closes the devices itself.
        with contextlib.suppress(NoThreadError):
            start_thread("close", self.let_go)

    # -- state: any thread --------------------------------------------------------------------------------------------

    def publish(self, event: RTVIEvent, data: Any) -> None:
        """Publish an event, if it has a listener; does not block."""
        if (publisher := self.publisher) is not None:
            publisher.event(event, data)

    def publish_state(self) -> None:
        """Publish the status of all devices, if that has a listener; does not block."""
        if (publisher := self.publisher) is not None and publisher.has_listener(RTVIEvent.MEDIA_STATE_UPDATED):
            publisher.event(RTVIEvent.MEDIA_STATE_UPDATED, self.state)

    @property
    def state(self) -> MediaState:
        """The status of all devices."""
        return MediaState(mic=self.mic.status, cam=self.cam.status, speaker=self.speaker.status)

    def workers(self) -> Workers:
        """Return the workers that write to sinks that may block."""
        runtime = self._runtime  # None without a client, as in a transport's own tests
        return WorkerPool() if runtime is None else runtime.workers

    def echo_canceller(self) -> EchoCanceller | None:
        """Return the echo canceller that microphone and speaker share in this session; None without cancellation."""
        if self.settings.echo_cancellation and self._echo is None:
            from .devices.echo_canceller import EchoCanceller

            self._echo = EchoCanceller()
        return self._echo

    def devices(self, kind: Kind) -> list[MediaDeviceInfo]:
        """Return the present devices of a kind.

        Raises:
            MissingExtraError: it needs a library that is not installed.
            DeviceError: the audio system does not answer.
        """
        if kind == "cam":
            return cameras()
        return [info for info in self.backend().devices() if info.kind == media_kind(kind)]

    def tracks(self) -> Tracks:
        """Return the tracks of the session; None for an absent track."""
        return Tracks(
            local=ParticipantTracks(audio=self.mic.track, video=self.cam.track, screen_video=self.screen.track),
            bot=ParticipantTracks(audio=self.bot, video=self.bot_video),
        )

    def received(self) -> AudioTrack | None:
        """Return the track of the bot's audio; None without one."""
        return self.bot

    def sent(self) -> AudioTrack | None:
        """Return the track of all audio that is sent in the session, from any source; None without a session."""
        with self.lock:
            if self.session is not None and self.sent_track is None:
                self.sent_track = AudioTrack(label="sent")
            return self.sent_track

    @property
    def counters(self) -> MediaCounters:
        """The counters of the current session, or of the last one."""
        losses: Counter[str] = Counter()
        with self.lock:
            for slot in self._slots:
                slot.add_losses(losses)
            speaker = self.speaker.component
        waiting = speaker.waiting_seconds if speaker is not None else 0.0
        return MediaCounters(**losses, speaker_waiting=waiting, bot_frames_ignored=self._ignored)

    # -- calls of the application: shielded, so that Ctrl-C and signal handlers never see a partial change -------------

    def enable_mic(self, enable: bool) -> None:
        """Unmute or mute the microphone, for this and later sessions. See `MediaPort.enable_mic()`.

        Muting closes a device and pauses a source; 1 s of silence is sent, then nothing. Blocks only if a device is
        opened for the first time in this session.
        """
        shielded(lambda: self._enable("mic", enable))

    def enable_cam(self, enable: bool) -> None:
        """Turn the camera on or off, for this and later sessions; turning it off closes a device.

        Blocks until the first image of a device. See `MediaPort.enable_cam()`.
        """
        shielded(lambda: self._enable("cam", enable))

    def _enable(self, kind: Kind, enable: bool) -> None:
        setattr(self.settings, kind, enable)
        session, component = self.session, self[kind].component
        if component is not None:
            component.look()
        elif session is not None and enable:
            try:
                with self._opening():
                    if self.session is session:
                        self._prepare(kind)
            except (DeviceError, MissingExtraError):
                setattr(self.settings, kind, False)
                raise

    def enable_screen_share(self, enable: bool) -> None:
        """Start or stop screen sharing, for this and later sessions. See `MediaPort.enable_screen_share()`.

        If the screen cannot be read, the event `screen_share_error` is published, too.
        """
        shielded(lambda: self._enable_screen_share(enable))

    def _enable_screen_share(self, enable: bool) -> None:
        self.settings.screen = enable
        if (session := self.session) is None:
            return
        with self._opening():
            if not enable:
                self.screen.close()
            elif self.screen.component is None:
                try:
                    self.screen.open(None, Deadline(OPEN_TIMEOUT), session, persists=False)
                except (DeviceError, MissingExtraError) as error:
                    self.settings.screen = False
                    self.screen.failed(error)
                    raise
                self._tick_soon()

    def set_speaker_volume(self, volume: float) -> None:
        """Set the volume of the speaker, which takes effect within 40 ms; sinks get the bot's audio unchanged.

        Raises:
            TypeError, ValueError: `volume` is not a number from 0.0 to 1.0.
        """
        number(0, 1).check(speaker_volume=volume)
        self.settings.volume = float(volume)

    def select(self, kind: Kind, choice: Any) -> None:
        """Replace a device, source or sink, also during a session; the track continues. See `MediaPort.select()`.

        Blocks until a new device has opened, and up to 2 s until the old one is closed. An old sink gets its queued
        audio.
        """
        chosen = choice_of(kind, choice)
        shielded(lambda: self._select(self[kind], chosen))

    def _select(self, slot: Slot[Any, Any], given: Any) -> None:
        with self._opening():
            session, choice = self.session, given
            if session is not None:
                choice = self._files.open(choice, slot.kind)
                if choice is not None and slot.holds(choice):
                    return
            if choice is False:
                slot.close()
                slot.choice = False
                slot.set_status("uninitialized")
            opens = session is not None and slot.needs(choice)
            if not opens:  # opening a device reports the choice itself
                is_id = isinstance(choice, str)
                slot.set_info(find_device(slot.kind, choice, self.devices(slot.kind)) if is_id else None)
            if session is not None and (slot.component is not None or opens):
                slot.replace(choice, session)
                self._tick_soon()
            slot.given = given

    # -- checks of the devices ----------------------------------------------------------------------------------------

    def watch_devices(self) -> None:
        """Start to detect devices that hang, appear or disappear, and to publish silence after the bot's audio."""
        if self.session is None or self._runtime is None or self._timer is not None:
            return
        self._hotplug.look(self.publisher)
        self._timer = self._runtime.timer
        self._tick_soon()

    def _tick_soon(self) -> None:
        """Schedule a check if there is something to check; called on any thread, does not block.

        The first check starts the timer thread, so a session without devices has none.
        """
        session, timer = self.session, self._timer
        if session is None or timer is None or self._interval == math.inf:
            return
        with self.lock:
            is_first, self._has_ticks = not self._has_ticks, True
        if is_first:
            try:
                task = timer.add(partial(self._tick, session), math.inf)
            except RuntimeError:  # the session, and with it the timer thread, has ended
                return
            with self.lock:
                if self.session is session:
                    self._ticks = task
        if (ticks := self._ticks) is not None:
            ticks.reschedule(timer.now() + _TICK)

    def _tick(self, session: object, now: float) -> float | None:
        """Check the devices and levels; return when to check again. Called on the timer thread."""
        if self.session is not session:  # it was ended by a thread that did not find this task yet
            return None
        for slot in self._slots:
            if isinstance(component := slot.component, Device):
                component.check(now)
        self._bot_level.quiet(now, self.publisher)
        self.mic.level.quiet(now, self.publisher)
        self._hotplug.look(self.publisher)
        return now + self._interval

    @property
    def _interval(self) -> float:
        """The seconds until the next check; `math.inf` if there is nothing to check."""
        if self._bot_level.loud:
            return _TICK
        for slot in self._slots:
            if isinstance(slot.component, Device):
                return _TICK
        return math.inf
