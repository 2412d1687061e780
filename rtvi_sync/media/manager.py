"""The media manager: a client's microphone, speaker and camera, for one session after the other."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..concurrency.clock import monotonic
from ..concurrency.deadline import Deadline
from ..concurrency.latch import Notifier
from ..concurrency.lifecycle import register_for_fork
from ..concurrency.logs import package_logger
from ..concurrency.runtime import Runtime
from ..concurrency.shield import shielded
from ..concurrency.worker_pool import WorkerPool
from ..errors import DeviceError, MissingExtraError
from ..protocol.validation import number
from . import pcm as pcm_tools
from .base import AudioSource, MediaDeviceInfo, VideoFrame
from .capture import SendAudio
from .component_factory import END_TIMEOUT, OPEN_TIMEOUT, MediaSettings, as_device_error
from .device_slots import MediaCounters
from .devices.backend import AudioBackend, audio_backend, cameras
from .kinds import AudioFiles, CamChoice, Kind, MicChoice, SpeakerChoice, choice_of, find_device, media_kind
from .session import Insertion, MediaSession, Senders
from .status import DeviceStatus, DeviceStatusReporter, NullEventSink
from .tracks import AudioTrack, ParticipantTracks, Tracks

if TYPE_CHECKING:
    from .devices.camera import SendVideo

logger: logging.Logger = package_logger(__name__)

# Seconds that a thread waits to open or replace a device while another thread does so.
_OPENING_TIMEOUT = 30.0


class MediaManager:
    """The microphone, the speaker, the camera and the tracks of one client.

    Args:
        mic, speaker, cam: see `MicChoice`, `SpeakerChoice` and `CamChoice`. A file is opened by `prepare()`.
        enable_mic: False: muted from the start.
        enable_cam: True: the camera is on from the start.
        backend: library or backend for the machine's audio devices; see `audio_backend()`.
        max_queued_audio_bytes: limit of the bot's audio queued for a sink.
        echo_cancellation: see `MediaSettings`.

    Raises:
        TypeError: an argument is of another type.
        ValueError: the name of a file was given as a device id.
    """

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
        self._choices: dict[Kind, Any] = {
            "mic": choice_of("mic", mic),
            "speaker": choice_of("speaker", speaker),
            "cam": choice_of("cam", cam),
            "screen": None,
        }
        self._files = AudioFiles()
        # Guards `_session`. Any thread may hold it for an assignment; the I/O thread reads without it. Re-entrant,
        # because a finalizer may run on the thread that holds it.
        self._lock = threading.RLock()
        self._backend: Callable[[], AudioBackend] = lambda: audio_backend(backend)
        #: The settings for the current and later sessions. An assignment only stores a value; it opens no device.
        self.settings: MediaSettings = MediaSettings(enable_mic, enable_cam, echo_cancellation=echo_cancellation)
        #: The status of the devices, and the event sink for its changes.
        self.status_reporter: DeviceStatusReporter = DeviceStatusReporter()
        self._max_queued_audio_bytes = max_queued_audio_bytes
        self._session: MediaSession | None = None
        self._played_rate_hz: int | None = None  # the last supported sample rate of the bot
        self._counters: Callable[[], MediaCounters] = MediaCounters  # of the last session, also while it ends
        # Set while there is no session that would close an opened device.
        self._over = False
        self._runtime: Runtime | None = None  # of the current or last session
        # One thread at a time opens and replaces devices; two would open the same one, and close each other's.
        self._opening_ended = Notifier()
        self._opening_thread: int | None = None  # the id of that thread
        register_for_fork(self)

    # -- one session --------------------------------------------------------------------------------------------------

    def expect(self, runtime: Runtime) -> None:
        """Allow devices to be opened again, because a session or `init_devices()` begins, which `stop()` will end.

        Args:
            runtime: its timer thread checks devices and times the audio of sources, its workers write to sinks.
        """
        self._runtime = runtime
        self._over = False

    def prepare(self, *, audio: bool = True, video: bool = True, is_continuous: bool = False) -> None:
        """Open the required devices that are not open yet; called on the connect thread or by `init_devices()`.

        May block. A missing default device is logged and reported once, and the session continues without it.

        Args:
            audio: whether microphone and speaker are required.
            video: whether camera and screen are required.
            is_continuous: whether the bot's audio comes in real time and without end; its silence is dropped then.

        Raises:
            DeviceError: a device asked for by id does not exist ("not-found"), a source or sink is used by another
                session ("in-use") or has no usable sample rate ("unknown").
            MissingExtraError: a device was asked for by id, and the library for it is not installed.
        """
        self.settings.is_continuous = is_continuous
        with self._opening():
            self._prepare(*(("mic", "speaker") if audio else ()), *(("cam", "screen") if video else ()))

    @contextlib.contextmanager
    def _opening(self) -> Iterator[None]:
        """Exclude other threads from opening and replacing devices; re-entrant."""
        this_thread = threading.get_ident()
        if self._opening_thread == this_thread:  # a source of the application calls its client
            yield
            return

        def acquire() -> bool:
            with self._lock:
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
        with self._lock:
            before = self._session
            if before is None and self._over:  # the caller's session has ended in the meantime
                raise DeviceError("The session ended while its devices were being prepared")
            # Assigned before any device is opened, so that a concurrent change of the settings reaches the session.
            runtime = self._runtime  # None without a client, as in a transport's own tests
            workers = WorkerPool() if runtime is None else runtime.workers
            session = self._session = before or MediaSession(
                self._backend, self.settings, self.status_reporter, workers, self._max_queued_audio_bytes
            )
        try:
            closed = [kind for kind in kinds if session.slots[kind].component is None]
            opened = {kind: self._open_file(kind, self._choices[kind]) for kind in closed}
            missing = session.prepare(kinds, {**self._choices, **opened})
        except BaseException:
            if before is None:
                with self._lock:
                    self._session = None if self._session is session else self._session
                session.close(Deadline(END_TIMEOUT), Deadline(END_TIMEOUT))
            raise
        if (no_screen := missing.pop("screen", None)) is not None:
            self.settings.screen = False
            self.status_reporter.failed("screen", no_screen)
        self.status_reporter.missing(missing)

    def _open_file(self, kind: Kind, choice: Any) -> Any:
        try:
            return self._files.open(choice, kind)
        except (DeviceError, MissingExtraError) as error:
            self.status_reporter.error(kind, as_device_error(kind, None, error))
            raise

    def start(
        self,
        send_audio: SendAudio | None = None,
        send_video: SendVideo | None = None,
        send_screen: SendVideo | None = None,
        *,
        on_io_thread: bool = False,
    ) -> None:
        """Start the sources from their beginning; called when the bot is ready, does not block.

        Args:
            send_audio: `send_audio(pcm, sample_rate_hz)`, called on the scheduler's thread or the microphone's; must
                not block.
            send_video, send_screen: `send_video(frame)`, each called on its own thread; may block.
            on_io_thread: the I/O thread times the audio of sources; False: the timer thread does.
        """
        session, runtime = self._session, self._runtime
        if session is not None and runtime is not None:
            schedule = runtime.io.scheduler if on_io_thread else runtime.timer
            session.start(Senders(runtime.timer, schedule, send_audio, send_video, send_screen))

    def watch_devices(self) -> None:
        """Begin to detect devices that hang, appear or disappear, before `start()`."""
        session, runtime = self._session, self._runtime
        if session is not None and runtime is not None:
            session.watch_devices(runtime.timer)

    def receive_audio(self, pcm: bytes | bytearray | memoryview, sample_rate_hz: int, num_channels: int) -> None:
        """Play audio of the bot; called on the transport's thread, does not block.

        Several channels are mixed to mono; a missing number of channels (0) means one. Audio with an unsupported sample
        rate or number of channels is counted and ignored. Of a frame with several channels and more than 1 s, which no
        bot sends, only the first channel is played, because mixing it would block all sessions.
        """
        session = self._session
        if session is None:
            return
        pcm = bytes(pcm)  # a transport may use its buffer again; bytes are not copied
        # In the usual case, one channel at the rate of the last frame, all checks are skipped.
        if sample_rate_hz != self._played_rate_hz or num_channels != 1 or len(pcm) % 2:
            if not (pcm_tools.is_rate(sample_rate_hz) and 0 <= num_channels <= pcm_tools.MAX_CHANNELS):
                session.ignore(sample_rate_hz, num_channels)
                return
            self._played_rate_hz = sample_rate_hz
            pcm = pcm_tools.to_mono_soon(pcm, num_channels or 1, sample_rate_hz)
        if pcm:
            session.publish_bot(pcm, sample_rate_hz, monotonic())

    @property
    def wants_video(self) -> bool:
        """Return whether an image of the bot would be read, or would make its track; any thread."""
        return (session := self._session) is not None and session.wants_video

    def receive_video(self, frame: VideoFrame) -> None:
        """Publish an image of the bot; called on one thread of the transport, does not block."""
        if (session := self._session) is not None:
            session.publish_bot_video(frame)

    def interrupt(self) -> None:
        """Drop queued playback after the user interrupted the bot; called on the transport's thread, does not block."""
        if (session := self._session) is not None:
            session.interrupt()

    def insert(self, source: AudioSource, deadline: Deadline) -> Insertion:
        """Let a source speak in the microphone's place until `remove()`; may block. See `MediaSession.insert()`.

        Raises:
            DeviceError: the source cannot be used, or there is no session that carries audio of the user.
        """
        if (session := self._session) is None:
            raise DeviceError("There is no session that could carry the audio", devices=("mic",))
        return session.insert(source, deadline)

    def remove(self, insertion: Insertion) -> None:
        """Let what spoke before, the microphone at last, speak again; does not block."""
        if (session := self._session) is not None:
            session.remove(insertion)

    def received(self) -> AudioTrack | None:
        """Return the track of the bot's audio; None without one."""
        session = self._session
        return session.bot if session is not None else None

    def sent(self) -> AudioTrack | None:
        """Return the track of all audio that is sent in the session; None without one."""
        session = self._session
        return session.sent if session is not None else None

    def pause(self) -> None:
        """Send nothing more in this session from the return of this call on; the bot's audio is still played."""
        session = self._session
        if session is not None:
            for slot in session.slots:
                if slot.component is not None and slot.kind != "speaker":
                    slot.component.halt()

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
        with self._lock:
            self._over = True
            if (session := self._session) is None:
                return []
            self._counters, self._session = session.counters, None
        event_sink = self.status_reporter.event_sink
        threads = session.close(Deadline(timeout), Deadline(timeout if flush_timeout is None else flush_timeout))
        counters = session.counters()
        if counters.speaker_dropped_seconds:
            logger.warning("%.2f s of the bot's audio were dropped in this session", counters.speaker_dropped_seconds)
        with self._lock:
            if self._counters == session.counters:  # no later session has ended meanwhile
                self._counters = lambda: counters
        if self.status_reporter.event_sink is event_sink:
            # Until the next session no publisher delivers events.
            self.status_reporter.event_sink = NullEventSink()
        return threads

    def after_fork_in_child(self) -> None:
        """Reset the state in the child process; the session, its threads and the lock's owner are the parent's."""
        self._lock = threading.RLock()
        self._session, self._opening_thread, self._counters = None, None, MediaCounters
        self.status_reporter.event_sink = NullEventSink()

    # -- state: any thread --------------------------------------------------------------------------------------------

    def devices(self, kind: Kind) -> list[MediaDeviceInfo]:
        """Return the present devices of a kind.

        Raises:
            MissingExtraError: it needs a library that is not installed.
            DeviceError: the audio system does not answer.
        """
        if kind == "cam":
            return cameras()
        return [info for info in self._backend().devices() if info.kind == media_kind(kind)]

    def tracks(self) -> Tracks:
        """Return the tracks of the session; None for an absent track."""
        session = self._session
        if session is None:
            return Tracks()
        slots = session.slots
        return Tracks(
            local=ParticipantTracks(audio=slots.mic.track, video=slots.cam.track, screen_video=slots.screen.track),
            bot=ParticipantTracks(audio=session.bot, video=session.bot_video),
        )

    @property
    def counters(self) -> MediaCounters:
        """Return the counters of the current session, or of the last one."""
        session = self._session
        return session.counters() if session is not None else self._counters()

    # -- calls of the application: shielded, so that Ctrl-C and signal handlers never see a partial change -------------

    def enable_mic(self, enable: bool) -> None:
        """Unmute or mute the microphone, for this and later sessions; called on any thread.

        Muting closes a device and pauses a source; 1 s of silence is sent, then nothing. Blocks only if a device is
        opened for the first time in this session.

        Raises:
            DeviceError, MissingExtraError: the microphone that was selected by its id cannot be opened.
        """
        shielded(lambda: self._enable("mic", enable))

    def enable_cam(self, enable: bool) -> None:
        """Turn the camera on or off, for this and later sessions; turning it off closes a device.

        Blocks until the first image of a device. Raises the errors of `enable_mic()`.
        """
        shielded(lambda: self._enable("cam", enable))

    def _enable(self, kind: Kind, enable: bool) -> None:
        setattr(self.settings, kind, enable)
        session = self._session
        component = session.slots[kind].component if session is not None else None
        if component is not None:
            component.look()
        elif session is not None and enable:
            try:
                with self._opening():
                    if self._session is session:
                        self._prepare(kind)
            except (DeviceError, MissingExtraError):
                setattr(self.settings, kind, False)
                raise

    def enable_screen_share(self, enable: bool) -> None:
        """Begin or end screen sharing, for this and later sessions.

        Raises:
            DeviceError, MissingExtraError: the screen cannot be read; the event `screen_share_error` is published, too.
        """
        shielded(lambda: self._enable_screen_share(enable))

    def _enable_screen_share(self, enable: bool) -> None:
        self.settings.screen = enable
        session = self._session
        if session is None:
            return
        with self._opening():
            if not enable:
                session.slots.close("screen")
            elif session.slots.screen.component is None:
                try:
                    session.slots.open("screen", None, Deadline(OPEN_TIMEOUT))
                except (DeviceError, MissingExtraError) as error:
                    self.settings.screen = False
                    self.status_reporter.failed("screen", as_device_error("screen", None, error))
                    raise

    def set_speaker_volume(self, volume: float) -> None:
        """Set the volume of the speaker, which takes effect within 40 ms; sinks get the bot's audio unchanged.

        Raises:
            TypeError, ValueError: `volume` is not a number from 0.0 to 1.0.
        """
        number(0, 1).check(speaker_volume=volume)
        self.settings.volume = float(volume)

    def select(self, kind: Kind, choice: Any) -> None:
        """Replace a device, source or sink, also during a session; the track continues. Called on the caller's thread.

        Blocks until a new device has opened, and up to 2 s until the old one is closed. An old sink gets its queued
        audio.

        Args:
            kind: of the device.
            choice: as in the constructor.

        Raises:
            DeviceError, MissingExtraError: it cannot be opened; the old one continues.
            TypeError, ValueError: see the constructor.
        """
        chosen = choice_of(kind, choice)
        shielded(lambda: self._select(kind, chosen))

    def _select(self, kind: Kind, choice: Any) -> None:
        with self._opening():
            session, given = self._session, choice
            slot = session.slots[kind] if session is not None else None
            if session is not None and slot is not None:
                choice = self._files.open(choice, kind)
                if choice is False:
                    session.slots.close(kind)
                    slot.choice = False
                    self.status_reporter.status(kind, DeviceStatus())
            if slot is not None and choice is not None and slot.holds(choice):
                return
            opens = session is not None and session.opens(kind, choice)
            if not opens:  # opening a device reports the choice itself
                found = find_device(kind, choice, self.devices(kind)) if isinstance(choice, str) else None
                self.status_reporter.chosen(kind, found)
            if session is not None and slot is not None and (slot.component is not None or opens):
                session.slots.replace(kind, choice)
            self._choices[kind] = given
