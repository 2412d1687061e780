"""The factory of media components: from the application's choice (None, a device id, an object) to a component."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from ..concurrency.deadline import Deadline
from ..concurrency.serial_work import Workers
from ..errors import DeviceError, MissingExtraError
from . import pcm as pcm_tools
from .base import AudioSink, AudioSource, VideoFrame, VideoSource
from .capture import AudioSender, MemoryReader, Mic, PrefetchReader, Reader
from .convert import ResamplingSource
from .devices.backend import AudioBackend
from .kinds import Kind
from .leases import Lease
from .playback import DirectSpeaker, QueuedSpeaker, Speaker
from .push_source import PushReader, PushSource
from .sinks import MEMORY_SINKS, NullSink
from .sources import MEMORY_SOURCES, MemorySource, PackagedSource, SourceRun
from .status import DeviceStatusReporter

if TYPE_CHECKING:
    from .devices.camera import Camera
    from .devices.echo_canceller import EchoCanceller
    from .devices.microphone import DeviceMic
    from .devices.speaker import DeviceSpeaker

# Limit in seconds for a component to end after it was replaced or could not be opened.
END_TIMEOUT = 2.0
# Seconds after which a device that has not opened is considered hung.
OPEN_TIMEOUT = 5.0


@attrs.define(eq=False, repr=False)
class MediaSettings:
    """The settings of a client's devices, for the current and later sessions; any thread may read and write them.

    Attributes:
        mic, cam, screen: whether they are on.
        speaker: whether the speaker is audible; a change takes effect within 40 ms. Sinks get the bot's audio in any
            case.
        volume: of the speaker, 0.0 to 1.0; a change takes effect within 40 ms. Sinks get the bot's audio unchanged.
        echo_cancellation: whether the echo of a speaker is taken out of what a microphone records; never changes.
        is_continuous: whether the bot's audio comes without end, as `Transport.audio_is_continuous`.
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


def rate_of(source: AudioSource) -> int:
    """Return the sample rate of a source; may block in the application's `sample_rate_hz`.

    Raises:
        DeviceError: it has none that can be used.
    """
    try:
        return pcm_tools.check_rate(source.sample_rate_hz)
    except Exception as error:
        raise DeviceError(
            f"The mic {type(source).__name__} has no usable sample_rate_hz: {error}", devices=("mic",)
        ) from error


class ComponentFactory:
    """A factory of components, for devices, sources and sinks; called on threads that may block.

    Args:
        backend: returns the backend of the machine's audio devices.
        settings: of the client; read for each audio frame and for each image.
        status_reporter: gets the successes and failures of devices.
        workers: they write to sinks that may block.
        max_queued_audio_bytes: limit of the audio queued for a sink.
        publish_audio: called with what is recorded or sent: pcm, rate, monotonic time.
        publish_cam, publish_screen: called with each image.
        source_enabled: returns whether a source of the application that is the microphone is to be sent now.
    """

    def __init__(
        self,
        backend: Callable[[], AudioBackend],
        settings: MediaSettings,
        status_reporter: DeviceStatusReporter,
        *,
        workers: Workers,
        max_queued_audio_bytes: int,
        publish_audio: Callable[[bytes, int, float], None],
        publish_cam: Callable[[VideoFrame], None],
        publish_screen: Callable[[VideoFrame], None],
        source_enabled: Callable[[], bool],
    ) -> None:
        self._backend = backend
        self._settings = settings
        self._status_reporter = status_reporter
        self._workers = workers
        self._max_queued_audio_bytes = max_queued_audio_bytes
        self._echo: EchoCanceller | None = None  # from the first device on
        self._publish_audio = publish_audio
        self._publish_cam = publish_cam
        self._publish_screen = publish_screen
        self._source_enabled = source_enabled

    def _mic_enabled(self) -> bool:
        return self._settings.mic

    def _cam_enabled(self) -> bool:
        return self._settings.cam

    def _echo_canceller(self) -> EchoCanceller | None:
        """Return the one that microphone and speaker share, if there is to be one."""
        if self._settings.echo_cancellation and self._echo is None:
            from .devices.echo_canceller import EchoCanceller

            self._echo = EchoCanceller()
        return self._echo

    def _volume(self) -> float:
        return self._settings.volume if self._settings.speaker else 0.0

    def mic(self, choice: str | AudioSource | None, deadline: Deadline) -> Mic:
        """Open a microphone, or lease a source; may block in the application's `sample_rate_hz`.

        Args:
            choice: the application's choice.
            deadline: limit for a device to open; beyond it the device is considered hung.

        Raises:
            DeviceError: the device or source cannot be used.
            MissingExtraError: it needs a library that is not installed.
        """
        if choice is None or isinstance(choice, str):
            # Imported here, as the other device classes below, because many sessions use no device.
            from .devices.microphone import DeviceMic

            device = DeviceMic(
                self._backend(),
                choice,
                enabled=self._mic_enabled,
                echo=self._echo_canceller(),
                publish=self._publish_audio,
                report=lambda error: self._status_reporter.failed("mic", error),
                opened=lambda info: self._status_reporter.opened("mic", info),
            )
            await_opening(device, deadline)
            return device
        return self.sender(choice, self._source_enabled, self._publish_audio, deadline)

    def sender(
        self,
        choice: AudioSource,
        enabled: Callable[[], bool],
        publish: Callable[[bytes, int, float], None],
        deadline: Deadline,
    ) -> AudioSender:
        """Lease a source and make the component that sends it; may block in the application's `sample_rate_hz`.

        Args:
            choice: the source.
            enabled: returns whether it is to be sent now; called for each chunk.
            publish: called with what was sent: pcm, rate, monotonic time.
            deadline: limit of the wait, of 2 s at most, for what has used the source before and still closes it.

        Raises:
            DeviceError: the source cannot be used.
        """
        rate = rate_of(choice)
        lease = Lease(choice, "mic", Deadline(deadline.at_most(END_TIMEOUT)))
        source = choice.source if type(choice) is ResamplingSource else choice

        def failed(error: BaseException) -> None:
            run.end()
            self._status_reporter.failed("mic", as_device_error("mic", choice, error))

        reader: Reader
        if isinstance(choice, MemorySource) and type(choice) in MEMORY_SOURCES:
            reader = MemoryReader(choice, lease)
        elif type(source) is PushSource:  # no subclass, which may run code of the application
            reader = PushReader(source, lease, rate)
        else:
            reader = PrefetchReader(choice, rate, lease, enabled, failed)
        # `failed()` cannot run before `run` is assigned, because nothing is read before the sender is started.
        run = source.begin_run() if isinstance(source, PackagedSource) else SourceRun()
        return AudioSender(reader, rate, lease=lease, run=run, enabled=enabled, publish=publish)

    def speaker(self, choice: str | AudioSink | None, deadline: Deadline) -> Speaker:
        """Open a speaker, or lease a sink and make the component that writes to it; raise the errors of `mic()`."""
        if choice is None or isinstance(choice, str):
            from .devices.speaker import DeviceSpeaker

            device = DeviceSpeaker(
                self._backend(),
                choice,
                volume=self._volume,
                echo=self._echo_canceller(),
                is_continuous=lambda: self._settings.is_continuous,
                report=lambda error: self._status_reporter.failed("speaker", error),
                opened=lambda info: self._status_reporter.opened("speaker", info),
            )
            await_opening(device, deadline)
            return device

        def failed(error: BaseException) -> None:
            self._status_reporter.failed("speaker", as_device_error("speaker", choice, error))

        if type(choice) in MEMORY_SINKS:
            return DirectSpeaker(choice, None if isinstance(choice, NullSink) else Lease(choice, "speaker"), failed)
        lease = Lease(choice, "speaker", Deadline(deadline.at_most(END_TIMEOUT)))
        return QueuedSpeaker(choice, lease, failed, self._max_queued_audio_bytes, self._workers)

    def cam(self, choice: str | VideoSource | None, deadline: Deadline) -> Camera:
        """Open a camera, or lease a source; raise the errors of `mic()`."""
        from .devices.camera import Camera

        camera = Camera(
            choice,
            enabled=self._cam_enabled,
            publish=self._publish_cam,
            report=lambda error: self._status_reporter.failed("cam", error),
            opened=lambda info: self._status_reporter.opened("cam", info),
            deadline=Deadline(deadline.at_most(END_TIMEOUT)),
        )
        await_opening(camera, deadline)
        return camera

    def screen(self, choice: VideoSource | None, deadline: Deadline) -> Camera:
        """Open the screen, or lease a source used instead; raise the errors of `mic()`."""
        from .devices.camera import Camera
        from .video import ScreenSource

        screen = Camera(
            ScreenSource() if choice is None else choice,
            enabled=lambda: True,
            publish=self._publish_screen,
            report=lambda error: self._status_reporter.failed("screen", error),
            role="screen",
            deadline=Deadline(deadline.at_most(END_TIMEOUT)),
        )
        await_opening(screen, deadline)
        return screen


def await_opening(device: DeviceMic | DeviceSpeaker | Camera, deadline: Deadline) -> None:
    """Wait until a device has opened; end a device that cannot be opened."""
    try:
        device.wait_opened(deadline)
    except BaseException:
        device.halt()
        if not deadline.expired:  # a hung device would only use up the timeout
            device.join(Deadline(END_TIMEOUT))
        raise


def as_device_error(kind: Kind, thing: object, error: BaseException) -> DeviceError:
    """Convert an exception to a `DeviceError`.

    Args:
        kind: of the device.
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
