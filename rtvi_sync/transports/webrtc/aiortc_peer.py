"""A WebRTC connection by aiortc. All of its objects are used on the loop's thread only."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from aiortc import (
    MediaStreamTrack,
    RTCBundlePolicy,
    RTCConfiguration,
    RTCIceServer,
    RTCPeerConnection,
    RTCRtpSender,
    RTCSessionDescription,
    rtcsctptransport,
)

from ...concurrency.deadline import Deadline
from ...concurrency.descriptors import closed_error
from ...concurrency.future import Future
from ...concurrency.lock import new_lock
from ...concurrency.logs import package_logger
from ...concurrency.loop_thread import LoopThread, Scope
from ...errors import DisconnectedError, TransportStartError
from ...media import VideoFrame
from ...protocol.text import raised
from .aiortc_audio import RTP_RATE_HZ, BotAudio, MicTrack, read_frames, take_packets
from .aiortc_consent import be_patient
from .aiortc_turn import reachable_first
from .aiortc_video import PictureTrack, limit_bitrate, picture_of, read_pictures
from .peer import ICEServer, MediaLimits, PeerEvents, PeerStats

logger: logging.Logger = package_logger(__name__)


def _is_harmless(record: logging.LogRecord) -> bool:
    """Return whether a record of aiortc may be logged: below warnings they hold addresses and passwords of ICE."""
    return record.levelno >= logging.WARNING or not (record.threadName or "").startswith("rtvi-loop-")


for _name in [*logging.root.manager.loggerDict]:
    if _name.partition(".")[0] in ("aiortc", "aioice"):
        logging.getLogger(_name).addFilter(_is_harmless)

# Before 1.16 aiortc's packets of messages are larger than the smallest MTU of IPv6, which many VPNs have. Such a packet
# is lost each time that it is sent, and all messages wait behind it.
if hasattr(rtcsctptransport, "USERDATA_MAX_LENGTH"):
    rtcsctptransport.USERDATA_MAX_LENGTH = min(rtcsctptransport.USERDATA_MAX_LENGTH, 1160)

#: The step after ICE.
DTLS: Final = "the DTLS handshake"
# Seconds that a closing connection has before it is abandoned.
_CLOSE_TIMEOUT = 1.0
# Seconds between two checks of the messages that wait.
_FLUSH_INTERVAL = 0.01
# A bot that acknowledges nothing for this many seconds takes no more messages. A lost packet is sent again after 1 s.
_STALL_TIMEOUT = 1.5
# The bot acknowledges the end of the data channel within milliseconds.
_POLITE_CLOSE_TIMEOUT = 1.0


class AiortcPeer:
    """See `Peer`."""

    def __init__(self, loop: LoopThread, servers: Iterable[ICEServer], limits: MediaLimits, events: PeerEvents) -> None:
        self._loop = loop
        self._servers = [*servers]
        self._limits = limits
        self._events = events
        self._connection: RTCPeerConnection | None = None
        self._channel: Any = None
        self._mic: MicTrack | None = None
        self._cam: PictureTrack | None = None
        self._screen: PictureTrack | None = None
        self._bot_audio: BotAudio | None = None
        self._readers: set[asyncio.Task[None]] = set()
        self._opening: asyncio.Future[None] | None = None
        self._gathering = Scope()  # aiortc does not end all of it when a search for addresses is cancelled
        self._ended = False  # it has been told, or is not told any more
        self._has_failed_to_measure = False
        # Guards the next field. Any thread may hold it, for an addition; re-entrant, because a finalizer may send.
        self._lock = new_lock()
        self._bytes_handed_over = 0  # by `send_text()`, and not yet taken by the loop
        loop.on_loss.add(self._lose_loop)

    # -- opening ------------------------------------------------------------------------------------------------------

    @property
    def step(self) -> str:
        """The next step towards an open data channel."""
        connection = self._connection
        if connection is None or connection.iceConnectionState not in ("completed", "closed"):
            return "ICE: a network packet from the bot"
        if connection.connectionState != "connected":
            return DTLS
        return "the data channel"

    def offer(self) -> Future[str]:
        """Return an offer with all candidates."""
        return self._loop.run(self._offer())

    async def _offer(self) -> str:
        self._gathering.enter()
        self._check_not_ended()
        if self._connection is None:
            servers = await reachable_first(self._servers)
            self._check_not_ended()
            self._connection = self._begin(servers)
            for name, track in self._own_tracks.items():
                track.on("ended", partial(self._on_own_track_ended, name))
        connection = self._connection
        await connection.setLocalDescription(await connection.createOffer())
        sdp: str = connection.localDescription.sdp
        return sdp

    def _check_not_ended(self) -> None:
        if self._ended:  # nothing would close the sockets that an offer opens now
            raise DisconnectedError("The WebRTC connection has ended", initiator="client")

    def _begin(self, servers: Iterable[ICEServer]) -> RTCPeerConnection:
        ice_servers = [
            RTCIceServer(urls=[*server.urls], username=server.username, credential=server.credential)
            for server in servers
        ]
        # Always a list, because None means the servers of Google.
        connection = RTCPeerConnection(
            RTCConfiguration(iceServers=ice_servers, bundlePolicy=RTCBundlePolicy.MAX_BUNDLE)
        )
        self._opening = asyncio.get_running_loop().create_future()
        self._mic = MicTrack(self._loop, self._limits.audio_bitrate)
        audio = connection.addTransceiver(self._mic)
        _prefer(audio, "audio/opus")
        be_patient(audio.sender, self._on_consent_lost)
        # The bot takes the tracks by their order, and ignores later ones.
        self._cam, self._screen = PictureTrack(), PictureTrack()
        for track, direction, limits in (
            (self._cam, "sendrecv", self._limits.cam),
            (self._screen, "sendonly", self._limits.screen),
        ):
            video = connection.addTransceiver(track, direction=direction)
            if limits.bitrate is not None:
                _prefer(video, "video/VP8", "video/rtx")
                if not limit_bitrate(video.sender, limits.bitrate):
                    logger.warning("The bit rate of pictures has no limit of its own with this version of aiortc")
        self._bot_audio = take_packets(audio.receiver, self._events.on_audio)
        connection.on("track", self._on_track)
        connection.on("connectionstatechange", self._on_state)
        channel = self._channel = connection.createDataChannel("chat", ordered=True)
        channel.on("open", self._on_open)
        channel.on("message", self._on_message)
        channel.on("close", self._on_channel_closed)
        return connection

    def accept(self, answer: str, *, short_packets: bool = False) -> Future[None]:
        """Take the answer; done once the data channel is open."""
        return self._loop.run(self._accept(answer, short_packets))

    async def _accept(self, answer: str, short_packets: bool) -> None:
        assert self._connection is not None, "there was an offer"
        assert self._opening is not None, "there was an offer"
        if self._mic is not None and short_packets:
            self._mic.shorten_packets()
        try:
            await self._connection.setRemoteDescription(RTCSessionDescription(answer, "answer"))
        except Exception as error:  # noqa: BLE001 - aiortc may raise anything, with a text of the server
            why = f" ({raised(error)})" if str(error) else ""  # a bare `assert` of aiortc's parser has none
            raise TransportStartError(
                f"The bot's answer to the offer cannot be used: aiortc cannot read its session description (sdp){why}. "
                "Check that the URL takes offers (in Pipecat it ends in /api/offer), and see the bot's log"
            ) from None
        await asyncio.shield(self._opening)

    # -- reports of aiortc --------------------------------------------------------------------------------------------

    def _on_track(self, track: MediaStreamTrack) -> None:
        if track.kind == "audio":
            if self._bot_audio is None:
                self._start(read_frames(track, self._events.on_audio))
        else:
            self._start(read_pictures(track, self._events.on_video, self._events.wants_video))

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._readers.add(task)
        task.add_done_callback(self._readers.discard)

    def _on_open(self) -> None:
        if self._opening is not None and not self._opening.done():
            self._opening.set_result(None)

    def _on_message(self, text: str | bytes) -> None:
        try:
            self._events.on_text(text)
        except Exception:  # it would end the connection silently
            logger.exception("A message of the bot could not be handed on")

    def _on_state(self) -> None:
        if self._connection is None or self._connection.connectionState not in ("failed", "closed"):
            return
        if self._is_open and self._connection.connectionState == "failed":  # by aioice's own watch
            self._on_consent_lost()
        elif self._is_open:  # aiortc does so by itself if the bot closes DTLS
            self._on_channel_closed()
        elif self.step == DTLS:
            reason = "the bot's certificate does not match the answer's fingerprint"
            self._end(f"waiting for {DTLS} has failed: {reason}, or something between changes packets")
        else:
            self._end(f"waiting for {self.step} has failed")

    def _on_consent_lost(self) -> None:
        reason = "the bot no longer answers ICE"
        self._end(f"{reason}: this machine or the bot's is too busy, or the way to it is blocked")

    def _on_channel_closed(self) -> None:
        self._end("the bot has closed the connection without saying that it leaves")

    @property
    def _own_tracks(self) -> dict[str, MediaStreamTrack]:
        tracks = {"microphone": self._mic, "camera": self._cam, "screen": self._screen}
        return {name: track for name, track in tracks.items() if track is not None}

    def _on_own_track_ended(self, name: str) -> None:
        """Take the end of a track. If aiortc cannot send a track, it stops it, warns, and continues without it."""
        connection = self._connection
        if self._ended or connection is None or connection.connectionState != "connected":
            return  # all tracks end
        if any(sender.transport.state == "closed" for sender in connection.getSenders()):
            return  # the bot has closed DTLS, and aiortc closes the connection next
        if name == "microphone":
            self._end("the WebRTC library has failed to send the user's audio; see its warning in the log")
        else:
            logger.error("Sending a picture of the %s failed; no more is sent in this session", name)

    def _lose_loop(self) -> None:
        """Take the loss of the loop: no call waits for a picture any more."""
        self._end(str(closed_error()))
        self._stop_tracks()

    @property
    def _is_open(self) -> bool:
        opening = self._opening
        return opening is not None and opening.done() and not opening.cancelled() and opening.exception() is None

    def _end(self, reason: str) -> None:
        opening = self._opening
        if opening is not None and not opening.done():
            opening.set_exception(ConnectionError(reason))
            opening.exception()  # maybe no thread waits for it
        elif not self._ended:
            self._ended = True
            self._events.on_closed(reason)

    # -- sending ------------------------------------------------------------------------------------------------------

    @property
    def bytes_waiting(self) -> int:
        """The number of bytes of messages that the bot has not acknowledged yet."""
        channel = self._channel
        if channel is None:
            return self._bytes_handed_over
        # aiortc takes a message out of `bufferedAmount` when it cuts it into chunks, long before they have arrived.
        sctp = channel.transport
        chunks = [*getattr(sctp, "_outbound_queue", ()), *getattr(sctp, "_sent_queue", ())]
        on_the_way = sum(len(each.user_data) for each in chunks if not each._acked and not _is_ping(each.user_data))
        queued: int = channel.bufferedAmount
        return self._bytes_handed_over + queued + on_the_way

    def send_text(self, text: str) -> None:
        """Send a message on the data channel."""
        with self._lock:
            self._bytes_handed_over += len(text)
        self._loop.call(self._send_text, text)

    def _send_text(self, text: str) -> None:
        with self._lock:
            self._bytes_handed_over -= len(text)
        if self._channel is not None and self._channel.readyState == "open":
            with contextlib.suppress(ValueError):  # too large: the transport has refused it before
                self._channel.send(text)

    def send_audio(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Send the next frame of the user's audio."""
        if self._mic is not None:
            self._mic.send(pcm, sample_rate_hz)

    def send_video(self, frame: VideoFrame, *, is_screen: bool) -> Future[bool]:
        """Send an image of the camera, or of the screen."""
        encoded: Future[bool] = Future()
        track, limits = (self._screen, self._limits.screen) if is_screen else (self._cam, self._limits.cam)
        if track is None or not self._loop.call(track.put, picture_of(frame, limits.size), frame.timestamp, encoded):
            encoded.resolve(False)
        return encoded

    # -- counters -----------------------------------------------------------------------------------------------------

    def measure(self, done: Callable[[PeerStats], None]) -> None:
        """Call `done` with the counters."""

        async def measure() -> None:
            try:
                if self._connection is not None:
                    done(self._stats_of(await self._connection.getStats()))
            except Exception:
                if not self._has_failed_to_measure:
                    logger.exception("The counters of a connection cannot be read; a bot that dies is noticed late")
                self._has_failed_to_measure = True

        self._loop.run(measure())

    def _stats_of(self, report: Any) -> PeerStats:
        by_kind: dict[str, Any] = {}
        for entry in report.values():
            by_kind.setdefault(f"{entry.type} {getattr(entry, 'kind', '')}".strip(), entry)
        names = "transport", "inbound-rtp audio", "remote-inbound-rtp audio"
        wire, audio, sent = (by_kind.get(name) for name in names)
        return PeerStats(
            packets_received=getattr(wire, "packetsReceived", 0),
            bytes_sent=getattr(wire, "bytesSent", 0),
            bytes_received=getattr(wire, "bytesReceived", 0),
            audio_unsent=self._mic.unsent if self._mic is not None else 0.0,
            audio_lost=max(0, getattr(audio, "packetsLost", 0)),  # below zero if packets arrived twice
            audio_concealed=self._bot_audio.concealed if self._bot_audio is not None else 0.0,
            jitter=audio.jitter / RTP_RATE_HZ if audio is not None else None,
            round_trip=getattr(sent, "roundTripTime", None),
        )

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self, polite: float) -> Future[int]:
        """End the connection."""
        self._loop.on_loss.discard(self._lose_loop)
        return self._loop.run(self._close(polite))

    async def _close(self, polite: float) -> int:
        self._ended = True
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
        channel = self._channel
        try:
            if polite > 0 and channel is not None and channel.readyState == "open":
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._close_channel(channel), polite)
            return self.bytes_waiting
        finally:
            await self._close_connection()

    async def _close_channel(self, channel: Any) -> None:
        """Close the data channel once all messages have arrived, and wait for the bot to close it."""
        waiting, deadline = self.bytes_waiting, Deadline(_STALL_TIMEOUT)
        while waiting and channel.readyState == "open":
            if deadline.expired:
                return
            await asyncio.sleep(_FLUSH_INTERVAL)
            if (left := self.bytes_waiting) < waiting:
                waiting, deadline = left, Deadline(_STALL_TIMEOUT)
        channel.close()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(_until_closed(channel), _POLITE_CLOSE_TIMEOUT)

    async def _close_connection(self) -> None:
        deadline = Deadline(_CLOSE_TIMEOUT)
        try:
            if self._connection is not None:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._connection.close(), deadline.remaining())
        finally:
            for reader in self._readers.copy():
                reader.cancel()
            self._stop_tracks()
            await self._gathering.close(deadline.at_most(_CLOSE_TIMEOUT))

    def _stop_tracks(self) -> None:
        for track in self._own_tracks.values():  # also those that were never sent
            track.stop()


def _is_ping(data: bytes) -> bool:
    """Return whether a chunk is a ping, which is no loss."""
    return data.startswith(b"ping: ")


def _prefer(transceiver: Any, *types: str) -> None:
    """Offer only some of the codecs."""
    known = RTCRtpSender.getCapabilities(transceiver.kind).codecs
    transceiver.setCodecPreferences([codec for codec in known if codec.mimeType in types])


async def _until_closed(channel: Any) -> None:
    while channel.readyState != "closed":
        await asyncio.sleep(_FLUSH_INTERVAL / 10)
