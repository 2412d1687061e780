"""The connection that the transport needs from a WebRTC library. `aiortc_peer` is the only implementation so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attrs

from ...concurrency.future import Future
from ...media import VideoFrame
from ...protocol.validation import Rule, integer

AUDIO_BITRATE: Rule = integer(6_000, 510_000)  # the rates of Opus
VIDEO_BITRATE: Rule = integer(50_000, 50_000_000)
PICTURE_SIZE: Rule = Rule(
    "a pair of integers (width, height), from 16 to 16384 pixels each",
    lambda value: isinstance(value, (tuple, list)) and all(type(each) is int for each in value),
    lambda value: len(value) == 2 and all(16 <= each <= 16384 for each in value),
)


@attrs.frozen(kw_only=True)
class ICEServer:
    """A STUN or TURN server.

    Attributes:
        urls: URLs of the server, ``stun:host:port`` or ``turn:host:port?transport=tcp``.
        username, credential: login for TURN.
    """

    urls: tuple[str, ...]
    username: str | None = None
    credential: str | None = attrs.field(default=None, repr=False)


@attrs.frozen(kw_only=True)
class PictureLimits:
    """The limits of the camera's pictures, or of the screen's; None: no limit.

    Attributes:
        bitrate: bits per second.
        size: width and height in pixels; a larger picture is made smaller.
    """

    bitrate: int | None = None
    size: tuple[int, int] | None = None


@attrs.frozen(kw_only=True)
class MediaLimits:
    """The limits of the media that are sent.

    Attributes:
        audio_bitrate: bits per second. None: a rate that suits speech at its sample rate.
        cam, screen: limits of their pictures.
    """

    audio_bitrate: int | None = None
    cam: PictureLimits = PictureLimits()
    screen: PictureLimits = PictureLimits()


@attrs.frozen(kw_only=True)
class PeerEvents:
    """The reports of a peer: functions that it calls on one thread of its own. They do not block.

    Attributes:
        on_text: a message arrived on the data channel.
        on_audio: the bot's audio, as `MediaPort.receive_audio()` takes it.
        on_video: an image of the bot.
        wants_video: returns whether the bot's images are read; unread images need not be decoded.
        on_closed: the connection has ended, or the bot has closed the data channel; called once. The text describes the
            end, as the last part of a sentence.
    """

    on_text: Callable[[str | bytes], None]
    on_audio: Callable[[bytes, int, int], None]
    on_video: Callable[[VideoFrame], None]
    wants_video: Callable[[], bool]
    on_closed: Callable[[str], None]


@attrs.frozen(kw_only=True)
class PeerStats:
    """The counters of a connection.

    Attributes:
        packets_received: packets of any kind except ICE.
        bytes_sent, bytes_received: bytes of these packets.
        audio_unsent: seconds of the user's audio that were dropped, because the loop was late.
        audio_lost: packets of the bot's audio that the network has lost.
        audio_concealed: seconds of the bot's audio that were lost or late, and replaced by estimated audio.
        jitter: jitter of the bot's audio, in seconds; None until audio has arrived.
        round_trip: round trip in seconds; None until it was measured.
    """

    packets_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    audio_unsent: float = 0.0
    audio_lost: int = 0
    audio_concealed: float = 0.0
    jitter: float | None = None
    round_trip: float | None = None


class Peer(Protocol):
    """One WebRTC connection: audio both ways, camera both ways, the screen to the bot, and a data channel.

    Its methods may be called on any thread, and do not block.
    """

    @property
    def step(self) -> str:
        """The next step towards an open data channel, as the object of "waiting for"."""

    @property
    def bytes_waiting(self) -> int:
        """The number of bytes of messages that are not sent yet."""

    def offer(self) -> Future[str]:
        """Return an SDP offer with all candidates. Call it again for each negotiation."""

    def accept(self, answer: str, *, short_packets: bool = False) -> Future[None]:
        """Take the SDP answer; done once the data channel is open.

        With `short_packets`, packets to the bot hold 10 ms of audio.
        The future fails with `TransportStartError` if the answer cannot be used, and with `ConnectionError`, whose text
        describes the failure, if the connection does not open.
        """

    def send_text(self, text: str) -> None:
        """Send a message on the data channel. Without effect once the connection has ended."""

    def send_audio(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Send the next frame of the user's audio. Called on one thread at a time."""

    def send_video(self, frame: VideoFrame, *, is_screen: bool) -> Future[bool]:
        """Send an image of the camera, or of the screen; the newest one wins.

        The result is True once the image was encoded, and False if it was dropped.
        """

    def measure(self, done: Callable[[PeerStats], None]) -> None:
        """Call `done` with the counters, on the thread that calls the events."""

    def close(self, polite: float) -> Future[int]:
        """End the connection; the result is the number of bytes of messages that were not sent.

        Args:
            polite: seconds in which the queued messages may be sent, and the bot may close the data channel; 0.0:
                end it at once.
        """
