"""From what the program chose (nothing, a device's id, an object of its own) to what records or plays."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from ..concurrency.deadline import Deadline
from ..errors import DeviceError, MissingExtraError
from . import pcm as pcm_tools
from .base import AudioSink, AudioSource, Lease, VideoFrame, VideoSource
from .capture import AudioSender, MemoryReader, Mic, PrefetchReader, Reader
from .devices.backend import AudioBackend
from .kinds import Kind
from .playback import DirectSpeaker, QueuedSpeaker, Speaker
from .sinks import MEMORY_SINKS, NullSink
from .sources import MEMORY_SOURCES, MemorySource, PackagedSource, SourceRun
from .status_reporter import DeviceStatusReporter

if TYPE_CHECKING:
    from .devices.camera import Camera
    from .devices.microphone import DeviceMic
    from .devices.speaker import DeviceSpeaker

# One that could not be opened, or is replaced, has so many seconds to end.
END_TIMEOUT = 2.0
# A device that has not opened by then hangs.
OPEN_TIMEOUT = 5.0


@attrs.define
class MediaSettings:
    """What the program has turned on, now and for sessions to come. Set and read by any thread.

    Attributes:
        mic, cam, screen: whether they are on.
        speaker: whether the speaker is heard, from the next 40 ms on. Sinks get what the bot says in any case.
        volume: of the speaker, 0.0 to 1.0, likewise.
    """

    mic: bool = True
    cam: bool = False
    screen: bool = False
    speaker: bool = True
    volume: float = 1.0

    def opens(self, kind: Kind) -> bool:
        """Whether a device of that kind is to be open. A speaker that is not heard is."""
        return kind == "speaker" or bool(getattr(self, kind))


class ComponentFactory:
    """Opens devices and takes sources and sinks. Called on threads that may block.

    Args:
        backend: brings the machine's sound devices.
        settings: of the client; asked for each piece of audio and for each image.
        status_reporter: told of devices that work and of what does not.
        max_queued_audio_bytes: limit of what may wait for a sink.
        publish_audio: given what is recorded or sent: pcm, rate, monotonic time.
        publish_cam, publish_screen: given each image.
    """

    def __init__(
        self,
        backend: Callable[[], AudioBackend],
        settings: MediaSettings,
        status_reporter: DeviceStatusReporter,
        *,
        max_queued_audio_bytes: int,
        publish_audio: Callable[[bytes, int, float], None],
        publish_cam: Callable[[VideoFrame], None],
        publish_screen: Callable[[VideoFrame], None],
    ) -> None:
        self._backend = backend
        self._settings = settings
        self._status_reporter = status_reporter
        self._max_queued_audio_bytes = max_queued_audio_bytes
        self._publish_audio = publish_audio
        self._publish_cam = publish_cam
        self._publish_screen = publish_screen

    def _mic_enabled(self) -> bool:
        return self._settings.mic

    def _cam_enabled(self) -> bool:
        return self._settings.cam

    def _volume(self) -> float:
        return self._settings.volume if self._settings.speaker else 0.0

    def mic(self, choice: str | AudioSource | None, deadline: Deadline) -> Mic:
        """Open a microphone, or take a source. May block in code of the user's (`sample_rate_hz`).

        Args:
            choice: what the program chose.
            deadline: a device that has not opened by then hangs.

        Raises:
            DeviceError: it cannot be had.
            MissingExtraError: it needs a library that is not installed.
        """
        if choice is None or isinstance(choice, str):
            from .devices.microphone import DeviceMic  # this and what follows of its kind: loaded with the first device

            device = DeviceMic(
                self._backend(),
                choice,
                enabled=self._mic_enabled,
                publish=self._publish_audio,
                report=lambda error: self._status_reporter.failed("mic", error),
                opened=lambda info: self._status_reporter.opened("mic", info),
            )
            _await_opening(device, deadline)
            return device
        try:
            rate = pcm_tools.check_rate(choice.sample_rate_hz)
        except Exception as error:
            raise DeviceError(
                f"The mic {type(choice).__name__} has no usable sample_rate_hz: {error}", devices=("mic",)
            ) from error
        lease = Lease(choice, "mic")

        def failed(error: BaseException) -> None:
            run.end()
            self._status_reporter.failed("mic", as_device_error("mic", choice, error))

        reader: Reader
        if isinstance(choice, MemorySource) and type(choice) in MEMORY_SOURCES:
            reader = MemoryReader(choice, lease)
        else:
            reader = PrefetchReader(choice, rate, lease, self._mic_enabled, failed)
        # It cannot have failed before this line: nothing is read before the feed is started.
        run = choice.begin_run() if isinstance(choice, PackagedSource) else SourceRun()
        return AudioSender(reader, rate, run=run, enabled=self._mic_enabled, publish=self._publish_audio)

    def speaker(self, choice: str | AudioSink | None, deadline: Deadline) -> Speaker:
        """Open a speaker, or take a sink and make what writes to it. Errors as of `mic()`."""
        if choice is None or isinstance(choice, str):
            from .devices.speaker import DeviceSpeaker

            device = DeviceSpeaker(
                self._backend(),
                choice,
                volume=self._volume,
                report=lambda error: self._status_reporter.failed("speaker", error),
                opened=lambda info: self._status_reporter.opened("speaker", info),
            )
            _await_opening(device, deadline)
            return device

        def failed(error: BaseException) -> None:
            self._status_reporter.failed("speaker", as_device_error("speaker", choice, error))

        if type(choice) in MEMORY_SINKS:
            return DirectSpeaker(choice, None if isinstance(choice, NullSink) else Lease(choice, "speaker"), failed)
        return QueuedSpeaker(choice, Lease(choice, "speaker"), failed, self._max_queued_audio_bytes)

    def cam(self, choice: str | VideoSource | None, deadline: Deadline) -> Camera:
        """Open a camera, or take a source. Errors as of `mic()`."""
        from .devices.camera import Camera

        camera = Camera(
            choice,
            enabled=self._cam_enabled,
            publish=self._publish_cam,
            report=lambda error: self._status_reporter.failed("cam", error),
            opened=lambda info: self._status_reporter.opened("cam", info),
        )
        _await_opening(camera, deadline)
        return camera

    def screen(self, choice: VideoSource | None, deadline: Deadline) -> Camera:
        """Take the screen, or what stands for it. Errors as of `mic()`."""
        from .devices.camera import Camera
        from .video import ScreenSource

        screen = Camera(
            ScreenSource() if choice is None else choice,
            enabled=lambda: True,
            publish=self._publish_screen,
            report=lambda error: self._status_reporter.failed("screen", error),
            role="screen",
        )
        _await_opening(screen, deadline)
        return screen


def _await_opening(device: DeviceMic | DeviceSpeaker | Camera, deadline: Deadline) -> None:
    """Wait until a device has opened; what cannot be opened is ended."""
    try:
        device.wait_opened(deadline)
    except BaseException:
        device.halt()
        if not deadline.expired:  # else it hangs
            device.join(Deadline(END_TIMEOUT))
        raise


def as_device_error(kind: Kind, thing: object, error: BaseException) -> DeviceError:
    """The error as one of a device.

    Args:
        kind: of the device.
        thing: the source or sink that raised it, if it was one.
        error: what was raised.
    """
    if isinstance(error, DeviceError):
        return error
    if isinstance(error, MissingExtraError):
        failure = DeviceError(str(error), devices=(kind,), type="not-found")
    else:
        failure = DeviceError(f"The {kind} {type(thing).__name__} failed: {error!r}", devices=(kind,))
    failure.__cause__ = error
    return failure
