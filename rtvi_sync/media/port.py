"""The transport's view of the client's microphone, speaker and camera."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

from .base import VideoFrame
from .tracks import Tracks


class MediaPort(Protocol):
    """The client's media in one session, as ``Transport.options.media``.

    A transport calls `receive_audio()` and `receive_video()`; the base class `Transport` calls the rest.
    """

    def prepare(self, *, audio: bool = True, video: bool = True, is_continuous: bool = False) -> None:
        """Open the devices that are not open yet. May block.

        Args:
            audio: Open the microphone and the speaker.
            video: Open the camera, and the screen if it is shared.
            is_continuous: `Transport.audio_is_continuous`.

        Raises:
            DeviceError: A device that was asked for by its id cannot be used.
            MissingExtraError: The library for such a device is not installed.
        """

    def start(
        self,
        send_audio: Callable[[bytes, int], None] | None = None,
        send_video: Callable[[VideoFrame], None] | None = None,
        send_screen: Callable[[VideoFrame], None] | None = None,
        *,
        on_io_thread: bool = False,
    ) -> None:
        """Start sending the audio and images of the sources, from their first sample. Does not block.

        Args:
            send_audio: `send_audio(pcm, sample_rate_hz)`, called on one thread at a time; must not block. None, as for
                the next two: the transport does not carry this medium.
            send_video, send_screen: `send_video(frame)`, called on a thread of its own; may block.
            on_io_thread: True to call `send_audio()` for sources on the I/O thread of the WebSocket sessions, not on
                the timer thread.
        """

    def receive_audio(self, pcm: bytes | bytearray | memoryview, sample_rate_hz: int, num_channels: int) -> None:
        """Play the bot's audio and hand it to the readers of its track. Called on one thread at a time; does not block.

        Args:
            pcm: Signed 16-bit little endian. A buffer may be used again after the call.
            sample_rate_hz (hertz): Sample rate of each channel.
            num_channels: Interleaved channels; 0 means one.
        """

    @property
    def wants_video(self) -> bool:
        """False while the bot's images are not read, so that they need not be converted. Any thread."""

    def receive_video(self, frame: VideoFrame) -> None:
        """Hand the bot's image to the readers of its track. Called on one thread at a time; does not block."""

    def interrupt(self) -> None:
        """Drop the bot's audio that is not played yet. Does not block."""

    def tracks(self) -> Tracks:
        """Return the tracks of the session; None for an absent track."""

    def enable_mic(self, enable: bool) -> None:
        """Unmute or mute the microphone. Any thread may call it, as the next three; may block.

        Raises:
            DeviceError, MissingExtraError: The microphone cannot be opened, and is not tried again.
        """

    def enable_cam(self, enable: bool) -> None:
        """Turn the camera on or off. Raises the errors of `enable_mic()`."""

    def enable_screen_share(self, enable: bool) -> None:
        """Start or stop sharing the screen. Raises the errors of `enable_mic()`."""

    def select(self, kind: Literal["mic", "speaker", "cam"], choice: Any) -> None:
        """Replace the microphone, the speaker or the camera; its track continues.

        Args:
            kind: The device to replace.
            choice: The application's argument of `update_mic()`, `update_speaker()` or `update_cam()`.

        Raises:
            DeviceError, MissingExtraError: The new one cannot be opened; the old one stays.
            TypeError, ValueError: `choice` is not a valid choice.
        """
