"""What a client has of microphone, speaker and camera, for one session after the other."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..concurrency.deadline import Deadline
from ..concurrency.latch import Notifier
from ..concurrency.lifecycle import register_for_fork
from ..concurrency.shield import shielded
from ..concurrency.timer_thread import Scheduler, TimerThread
from ..errors import DeviceError, MissingExtraError
from ..protocol.validation import number
from . import pcm as pcm_tools
from .base import AudioSink, AudioSource, MediaDeviceInfo, VideoFrame, VideoSource
from .capture import SendAudio
from .component_factory import END_TIMEOUT, OPEN_TIMEOUT, MediaSettings, as_device_error
from .device_slots import MediaCounters
from .devices.backend import AudioBackend, cameras, pyaudio_backend
from .event_sink import NullEventSink
from .kinds import Kind, choice_of, find_device, media_kind
from .session import MediaSession, Senders
from .status_reporter import DeviceStatusReporter
from .tracks import ParticipantTracks, Tracks

if TYPE_CHECKING:
    from .devices.camera import SendVideo

logger: logging.Logger = logging.getLogger(__name__)


# Who opens or replaces a device waits so long for another thread that does.
_TURN_TIMEOUT = 30.0


class MediaManager:
    """The microphone, the speaker, the camera and the tracks of one client.

    Args:
        mic: None: the system's default; a device id; or an `AudioSource`.
        speaker: None: the system's default; a device id; or an `AudioSink`.
        cam: None: the system's default; a device id; or a `VideoSource`.
        enable_mic: False: muted from the start.
        enable_cam: True: the camera is on from the start.
        backend: the machine's sound devices; None: PyAudio's.
        max_queued_audio_bytes: limit of the bot's audio that may wait for a sink.

    Raises:
        TypeError: something else was given.
        ValueError: the name of a file was given as a device id.
    """

    def __init__(
        self,
        *,
        mic: str | MediaDeviceInfo | AudioSource | None = None,
        speaker: str | MediaDeviceInfo | AudioSink | None = None,
        cam: str | MediaDeviceInfo | VideoSource | None = None,
        enable_mic: bool = True,
        enable_cam: bool = False,
        backend: AudioBackend | None = None,
        max_queued_audio_bytes: int = 16 * 1024 * 1024,
    ) -> None:
        self._choices: dict[Kind, Any] = {
            "mic": choice_of("mic", mic),
            "speaker": choice_of("speaker", speaker),
            "cam": choice_of("cam", cam),
            "screen": None,
        }
        # Guards `_session`. Any thread may hold it, for an assignment; the io thread reads without it. Re-entrant,
        # because a finalizer may come in between.
        self._lock = threading.RLock()
        self._backend: Callable[[], AudioBackend] = pyaudio_backend if backend is None else lambda: backend
        #: What is on, now and in sessions to come. Whoever sets one of these only has it remembered.
        self.settings: MediaSettings = MediaSettings(mic=enable_mic, cam=enable_cam)
        #: What is told of the devices, and to whom.
        self.status_reporter: DeviceStatusReporter = DeviceStatusReporter()
        self._max_queued_audio_bytes = max_queued_audio_bytes
        self._session: MediaSession | None = None
        self._heard_rate_hz: int | None = None  # the last rate of the bot's that could be played
        self._counters = MediaCounters()
        # Nobody would close what is opened now.
        self._over = False
        # One thread at a time opens and replaces devices: two would open the same one, and close each other's.
        self._turns = Notifier()
        self._turn_of: int | None = None  # the thread whose turn it is
        register_for_fork(self)

    # -- one session --------------------------------------------------------------------------------------------------

    def expect(self) -> None:
        """A session begins, or `init_devices()`, and with it what `stop()` will end: devices may be opened again."""
        self._over = False

    def prepare(self, *, audio: bool = True, video: bool = True) -> None:
        """Open what is not open yet. Called on the connect thread, or by `init_devices()`; may block.

        A default device that is missing is logged and reported once, and the session goes on without it.

        Args:
            audio: microphone and speaker are wanted.
            video: camera and screen are.

        Raises:
            DeviceError: a device asked for by id does not exist ("not-found"), a source or sink is used by another
                session ("in-use") or has no usable sample rate ("unknown").
            MissingExtraError: a device was asked for by id, and the library for it is not installed.
        """
        with self._turn():
            self._prepare(*(("mic", "speaker") if audio else ()), *(("cam", "screen") if video else ()))

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        me = threading.get_ident()
        if self._turn_of == me:  # a source of the program's calls its client
            yield
            return

        def take() -> bool:
            with self._lock:
                if self._turn_of is None:
                    self._turn_of = me
                return self._turn_of == me

        if not self._turns.wait_for(take, Deadline(_TURN_TIMEOUT)):
            raise DeviceError("Another thread is still opening a device of this client; try again when it has ended")
        try:
            yield
        finally:
            self._turn_of = None
            self._turns.notify_all()

    def _prepare(self, *kinds: Kind) -> None:
        with self._lock:
            before = self._session
            if before is None and self._over:  # whoever calls this was overtaken by the end of his session
                raise DeviceError("The session ended while its devices were being prepared")
            # In its place before anything is opened: what is switched meanwhile must not get lost.
            session = self._session = before or MediaSession(
                self._backend, self.settings, self.status_reporter, self._max_queued_audio_bytes
            )
        try:
            missing = session.prepare(kinds, self._choices)
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

    def start(
        self,
        timer: TimerThread,
        send_audio: SendAudio | None,
        send_video: SendVideo | None = None,
        send_screen: SendVideo | None = None,
        *,
        schedule: Scheduler | None = None,
    ) -> None:
        """The bot is ready: sources start from their beginning. Called on the io thread; does not block.

        Args:
            timer thread: looks after devices.
            send_audio: `send_audio(pcm, sample_rate_hz)`, called on the schedule's thread, or that of the microphone;
                must not block.
            send_video, send_screen: `send_video(frame)`, called on a thread for itself; may block.
            schedule: times what sources send; None: the timer thread does.
        """
        session = self._session
        if session is not None:
            session.start(
                Senders(
                    timer=timer,
                    schedule=schedule or timer,
                    send_audio=send_audio,
                    send_video=send_video,
                    send_screen=send_screen,
                )
            )

    def look_after(self, timer: TimerThread) -> None:
        """Notice devices that hang, come or go, though there is no session yet. `timer thread`: see `start()`."""
        session = self._session
        if session is not None:
            session.look_after_devices(timer)

    def receive_audio(self, pcm: bytes, sample_rate_hz: int, num_channels: int) -> None:
        """Take audio of the bot's. Called on the io thread; does not block.

        Several channels are mixed to mono; a missing number of channels (0) means one. What no one could play is
        counted and ignored. Of a piece of several channels that is longer than a second, which no bot sends, the first
        is heard: to mix them would keep all sessions waiting.
        """
        session = self._session
        if session is None:
            return
        if sample_rate_hz != self._heard_rate_hz or num_channels != 1 or len(pcm) % 2:  # else it is as usual
            if not (pcm_tools.is_rate(sample_rate_hz) and 0 <= num_channels <= pcm_tools.MAX_CHANNELS):
                session.ignore(sample_rate_hz, num_channels)
                return
            self._heard_rate_hz = sample_rate_hz
            channels = num_channels or 1
            short = len(pcm) <= 2 * channels * sample_rate_hz
            pcm = (pcm_tools.to_mono if short else pcm_tools.first_channel)(pcm, channels)
        if pcm:
            session.publish_bot(pcm, sample_rate_hz, time.monotonic())

    def receive_video(self, frame: VideoFrame) -> None:
        """Take an image of the bot's. Called on one thread of the transport's; does not block."""
        session = self._session
        if session is not None:
            session.publish_bot_video(frame)

    def interrupt(self) -> None:
        """The user interrupted the bot: queued playback is dropped. Called on the io thread; does not block."""
        session = self._session
        if session is not None:
            session.interrupt()

    def pause(self) -> None:
        """Send nothing more in this session from the return of this call on; what the bot says is still taken."""
        session = self._session
        if session is not None:
            for slot in session.slots:
                if slot.component is not None and slot.kind != "speaker":
                    slot.component.halt()

    def stop(self, timeout: float, flush_timeout: float | None = None) -> list[threading.Thread]:
        """End the session: stop the source, give the sink what was received, close both, end the tracks.

        Called on the close thread. Idempotent; afterwards another session may be prepared.

        Args:
            timeout: limit in seconds for devices, and for sources and sinks of the user's that do not return.
            flush_timeout: limit in seconds for sinks that go on taking what waits for them; None: the same.

        Returns:
            Threads that were still in a library or in code of the user's at the limit. They own nothing any more.
        """
        with self._lock:
            self._over = True
            session, self._session = self._session, None
        if session is None:
            return []
        event_sink = self.status_reporter.event_sink
        threads = session.close(Deadline(timeout), Deadline(timeout if flush_timeout is None else flush_timeout))
        self._counters = session.counters()
        if self._counters.speaker_dropped_seconds:
            logger.warning(
                "%.2f s of the bot's audio were dropped in this session", self._counters.speaker_dropped_seconds
            )
        if self.status_reporter.event_sink is event_sink:
            self.status_reporter.event_sink = (
                NullEventSink()
            )  # until the next session there is nobody to deliver events
        return threads

    def after_fork_in_child(self) -> None:
        """The session, its threads and whoever held the lock are the parent's."""
        self._lock = threading.RLock()
        self._session = None
        self._turn_of = None
        self.status_reporter.event_sink = NullEventSink()

    # -- what is: any thread ------------------------------------------------------------------------------------------

    def devices(self, kind: Kind) -> list[MediaDeviceInfo]:
        """The devices of a kind, as they are at this moment.

        Raises:
            MissingExtraError: it needs a library that is not installed.
            DeviceError: the sound system does not answer.
        """
        if kind == "cam":
            return cameras()
        return [info for info in self._backend().devices() if info.kind == media_kind(kind)]

    def tracks(self) -> Tracks:
        """The tracks of the session; None for what is absent."""
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
        """What was lost in the current session, or in the last one."""
        session = self._session
        return session.counters() if session is not None else self._counters

    # -- the user's side: shielded, so that neither Ctrl-C nor a signal handler meets anything half done ---------------

    def enable_mic(self, enable: bool) -> None:
        """Unmute or mute the microphone, now and for later sessions. Called on any thread.

        Muted, a device is closed, and a source stands still; 1 s of silence is sent, then nothing. Waits only if a
        device is opened for the first time in this session.

        Raises:
            DeviceError, MissingExtraError: the microphone that was asked for by its id cannot be had.
        """
        shielded(lambda: self._enable("mic", enable))

    def enable_cam(self, enable: bool) -> None:
        """Turn the camera on or off, now and for later sessions. Off, a device is closed. Errors as of `enable_mic()`.

        Waits for the first image of a device.
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
                with self._turn():
                    if self._session is session:
                        self._prepare(kind)
            except (DeviceError, MissingExtraError):
                setattr(self.settings, kind, False)
                raise

    def enable_screen_share(self, enable: bool) -> None:
        """Begin or end to show the screen, now and in later sessions.

        Raises:
            DeviceError, MissingExtraError: it cannot be read; the event `screen_share_error` fires, too.
        """
        shielded(lambda: self._enable_screen_share(enable))

    def _enable_screen_share(self, enable: bool) -> None:
        self.settings.screen = enable
        session = self._session
        if session is None:
            return
        with self._turn():
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
        """Set the volume of the speaker, from the next 40 ms on. Sinks get what the bot says as it came.

        Raises:
            TypeError, ValueError: it is not a number from 0.0 to 1.0.
        """
        number(0, 1).check(speaker_volume=volume)
        self.settings.volume = float(volume)

    def select(self, kind: Kind, choice: Any) -> None:
        """Replace a device, source or sink, also while a session runs; its track goes on. On the user's thread.

        Waits until a new device has opened, and up to 2 s for the old one to close, a sink with what it was given.

        Args:
            kind: which of them.
            choice: as in the constructor.

        Raises:
            DeviceError, MissingExtraError: it cannot be had; the old one goes on.
            TypeError, ValueError: see the constructor.
        """
        chosen = choice_of(kind, choice)
        shielded(lambda: self._select(kind, chosen))

    def _select(self, kind: Kind, choice: Any) -> None:
        with self._turn():
            self._select_now(kind, choice)

    def _select_now(self, kind: Kind, choice: Any) -> None:
        session = self._session
        slot = session.slots[kind] if session is not None else None
        if slot is not None and slot.component is not None and choice is not None and choice == slot.choice:
            return
        opens = session is not None and session.opens(kind, choice)
        if not opens:  # else whoever opens it tells
            found = find_device(kind, choice, self.devices(kind)) if isinstance(choice, str) else None
            self.status_reporter.chosen(kind, found)
        if session is not None and slot is not None and (slot.component is not None or opens):
            session.slots.replace(kind, choice)
        self._choices[kind] = choice
