"""The voice on aiortc. Opus is encoded and decoded here, or by aiortc itself where that is impossible.

aiortc's own decoder makes mono 3 dB too quiet, and a lost packet delays all later audio by 200 ms.
"""

from __future__ import annotations

import asyncio
import fractions
import functools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import av
from aiortc import MediaStreamTrack, RTCRtpReceiver
from aiortc.mediastreams import MediaStreamError

from ...concurrency.logs import package_logger
from ...concurrency.loop_thread import LoopThread
from ...media import pcm as pcm_tools
from ...media.resample import RateConverter
from . import opus
from .jitter_buffer import JitterBuffer

logger: logging.Logger = package_logger(__name__)

#: The bot's voice is passed on at this rate, as over WebSocket.
RATE_HZ: Final = 24000
#: The clock of RTP for Opus, at any sample rate of the audio.
RTP_RATE_HZ: Final = 48000
_TIME_BASE = fractions.Fraction(1, RTP_RATE_HZ)
# Seconds of audio that may wait for a busy loop; older audio is of no use.
_MAX_WAITING = 1.0
# Packets of 10 ms. aiortc, which bots run on, holds 4 packets back, and waits through 16 for a lost one.
_SHORT_PACKETS_PER_SECOND = 100
# Where aiortc keeps its jitter buffer.
_JITTER_BUFFER = "_RTCRtpReceiver__jitter_buffer"


class MicTrack(MediaStreamTrack):
    """The user's audio. Audio that is passed to `send()`, on any one thread, is sent at once.

    Args:
        loop: the loop of the connection.
        bitrate: as in `opus.Encoder`. aiortc's own encoder ignores it.
    """

    kind = "audio"

    def __init__(self, loop: LoopThread, bitrate: int | None = None) -> None:
        super().__init__()
        self._bitrate = bitrate
        self._thread = loop
        self._converter: RateConverter | None = None
        self._encoder: opus.Encoder | None = None
        self._encodes = opus.library() is not None
        self._rest = b""
        self._position = 0  # of the next packet, in samples of RTP
        self._packets: deque[Any] = deque()
        self._per_second = opus.FRAMES_PER_SECOND
        self._arrived = asyncio.Event()
        self._dropped = 0  # packets

    @property
    def unsent(self) -> float:
        """The seconds of audio that were dropped."""
        return self._dropped / self._per_second

    def shorten_packets(self) -> None:
        """Send packets of 10 ms instead of 20. Call it before the first audio. aiortc's own encoder has 20 ms only."""
        if self._encodes:
            self._per_second = _SHORT_PACKETS_PER_SECOND

    def send(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Send mono PCM of any length. Called on one thread at a time."""
        rate = self._convert_to(sample_rate_hz)
        pcm = self._rest + self._converter.convert(pcm, sample_rate_hz)  # type: ignore[union-attr]
        size = 2 * rate // self._per_second
        complete = len(pcm) - len(pcm) % size
        self._rest = pcm[complete:]
        if complete:
            packets = [self._packet(pcm[start : start + size], rate) for start in range(0, complete, size)]
            self._thread.call(self._put, packets)

    def _convert_to(self, sample_rate_hz: int) -> int:
        """Return the rate that is sent for a source's rate."""
        rate = sample_rate_hz if sample_rate_hz in opus.RATES else RATE_HZ
        if self._converter is None or self._converter.to_hz != rate:
            self._converter, self._rest = RateConverter(rate), b""
            self._encoder = opus.Encoder(rate, self._bitrate) if self._encodes else None
        return rate

    def _packet(self, pcm: bytes, rate: int) -> Any:
        """Return audio as aiortc takes it."""
        if self._encoder is not None:
            packet: Any = av.Packet(self._encoder.encode(pcm))
            packet.time_base, packet.pts = _TIME_BASE, self._position
        else:
            packet = av.AudioFrame(format="s16", layout="mono", samples=len(pcm) // 2)
            packet.planes[0].update(pcm)
            packet.sample_rate, packet.time_base = rate, fractions.Fraction(1, rate)
            packet.pts = self._position * rate // RTP_RATE_HZ
        self._position += RTP_RATE_HZ // self._per_second
        return packet

    def _put(self, packets: Sequence[Any]) -> None:
        self._packets.extend(packets)
        while len(self._packets) > _MAX_WAITING * self._per_second:
            self._packets.popleft()
            self._dropped += 1
        self._arrived.set()

    async def recv(self) -> Any:
        """Return the next packet; aiortc calls it."""
        while not self._packets:
            if self.readyState != "live":
                raise MediaStreamError
            self._arrived.clear()
            await self._arrived.wait()
        return self._packets.popleft()

    def stop(self) -> None:
        """End the track."""
        super().stop()
        self._arrived.set()


class BotAudio:
    """The bot's voice. Takes its packets from aiortc, in place of aiortc's jitter buffer.

    Args:
        on_audio: as in `PeerEvents`.

    Attributes:
        concealed: seconds of the audio that were lost or late, and replaced by estimated audio.
    """

    def __init__(self, on_audio: Callable[[bytes, int, int], None]) -> None:
        self._on_audio = on_audio
        self._buffer = JitterBuffer()
        self._decoder = opus.Decoder(RATE_HZ)
        self.concealed: float = 0.0

    def add(self, packet: Any) -> tuple[bool, None]:
        """Take an RTP packet; aiortc calls it. aiortc gets nothing to decode."""
        due = self._buffer.add(packet.ssrc, packet.sequence_number, packet.payload)
        for position, payload in enumerate(due):
            if payload is None:
                pcm = self._decoder.conceal(due[position + 1] if position + 1 < len(due) else None)
                self.concealed += len(pcm) / 2 / RATE_HZ
            else:
                pcm = self._decoder.decode(payload)
            try:
                self._on_audio(pcm, RATE_HZ, 1)
            except Exception:  # it would end the connection silently
                logger.exception("The bot's audio could not be handed on")
        return False, None


def take_packets(receiver: RTCRtpReceiver, on_audio: Callable[[bytes, int, int], None]) -> BotAudio | None:
    """Have the packets of `receiver` decoded here; return None if this version of aiortc or PyAV does not allow it."""
    if not hasattr(receiver, _JITTER_BUFFER) or opus.library() is None:
        _warn_of_aiortc()
        return None
    audio = BotAudio(on_audio)
    setattr(receiver, _JITTER_BUFFER, audio)
    return audio


@functools.cache
def _warn_of_aiortc() -> None:
    """Warn, once in this process, that the audio is worse than it could be."""
    logger.warning(
        "aiortc decodes the bot's audio: a lost packet delays all that follows by 200 ms, and mono is 3 dB too quiet. "
        "Install PyAV from its wheel, which brings libopus, or another version of aiortc"
    )


async def read_frames(track: MediaStreamTrack, on_audio: Callable[[bytes, int, int], None]) -> None:
    """Pass on the audio that aiortc has decoded, until the track ends."""
    converter = RateConverter(RATE_HZ)
    failed = False
    while True:
        try:
            frame: Any = await track.recv()
        except MediaStreamError:
            return
        try:
            pcm = bytes(frame.planes[0])[: 2 * frame.samples * len(frame.layout.channels)]
            mono = pcm_tools.first_channel(pcm, len(frame.layout.channels))
            on_audio(converter.convert(mono, frame.sample_rate), RATE_HZ, 1)
        except Exception:  # such as no memory: the next audio may pass
            if not failed:
                logger.exception("The bot's audio could not be handed on; later failures are not reported")
            failed = True
