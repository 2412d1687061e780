"""A bot over WebRTC that costs little: its speech was encoded before, and it counts received audio without decoding it.

It prints its address, and ends with its standard input. `POST /api/offer?loss=0.01` is answered by a session whose
voice, a tone, loses this share of its packets on the way. The answer to the client message `heard` counts the audio
received since the last one: `frames` of 20 ms, in how many `seconds`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fractions
import json
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import av
from aiortc import MediaStreamTrack, RTCBundlePolicy, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.rtp import is_rtcp

from rtvi_sync.media import ToneSource
from rtvi_sync.transports.webrtc import aiortc_audio, opus
from rtvi_sync.transports.webrtc.aiortc_consent import be_patient

_RATE_HZ: Final = 24000
_FRAME: Final = _RATE_HZ // opus.FRAMES_PER_SECOND
_TIME_BASE: Final = fractions.Fraction(1, aiortc_audio.RTP_RATE_HZ)


def encoded_second() -> list[bytes]:
    """Return the packets of a second of tone, which can be repeated."""
    source, encoder = ToneSource(400, sample_rate_hz=_RATE_HZ), opus.Encoder(_RATE_HZ)
    packets = [encoder.encode(source.samples(n * _FRAME, _FRAME)) for n in range(2 * opus.FRAMES_PER_SECOND)]
    return packets[opus.FRAMES_PER_SECOND :]


class Voice(MediaStreamTrack):
    """The bot's voice: a packet every 20 ms from the first one on."""

    kind = "audio"

    def __init__(self, packets: list[bytes]) -> None:
        super().__init__()
        self._packets = packets
        self._number = 0
        self._began = 0.0

    async def recv(self) -> Any:
        """Return the next packet when it is due; aiortc calls it."""
        self._began = self._began or time.monotonic()
        await asyncio.sleep(self._began + self._number / opus.FRAMES_PER_SECOND - time.monotonic())
        packet = av.Packet(self._packets[self._number % len(self._packets)])
        packet.time_base, packet.pts = _TIME_BASE, self._number * aiortc_audio.RTP_RATE_HZ // opus.FRAMES_PER_SECOND
        self._number += 1
        return packet


class Ear:
    """Counts the packets of the user's voice, in the place of aiortc's jitter buffer."""

    def __init__(self) -> None:
        self._frames = 0
        self._since = time.monotonic()

    def add(self, _: Any) -> tuple[bool, None]:
        """Take a packet; aiortc calls it, and has nothing to decode."""
        self._frames += 1
        return False, None

    def heard(self) -> dict[str, float]:
        """Return the audio received since the last call."""
        now = time.monotonic()
        frames, self._frames = self._frames, 0
        seconds, self._since = now - self._since, now
        return {"frames": frames / 2, "seconds": seconds}


def lossy(send: Callable[[bytes], Any], share: float) -> Callable[[bytes], Any]:
    """Return a function that sends RTP as `send` does, but drops a share of the packets; it sends all of RTCP."""
    chance = random.Random(7)

    async def send_some(data: bytes) -> None:
        if is_rtcp(data) or chance.random() >= share:
            await send(data)

    return send_some


class Session:
    """One call."""

    def __init__(self, packets: list[bytes], loss: float) -> None:
        policy = RTCBundlePolicy.MAX_BUNDLE
        self._pc = RTCPeerConnection(RTCConfiguration(iceServers=[], bundlePolicy=policy))
        self._voice, self._ear, self._loss = Voice(packets), Ear(), loss
        self._pc.on("datachannel", lambda channel: channel.on("message", lambda text: self._take(channel, text)))
        self._pc.on("connectionstatechange", self._on_state)
        self.closed = asyncio.Event()

    async def answer(self, offer: dict[str, str]) -> dict[str, str]:
        """Return the answer to an offer."""
        await self._pc.setRemoteDescription(RTCSessionDescription(offer["sdp"], "offer"))
        audio: Any = self._pc.getTransceivers()[0]
        audio.sender.replaceTrack(self._voice)
        audio.direction = "sendrecv"
        setattr(audio.receiver, aiortc_audio._JITTER_BUFFER, self._ear)
        be_patient(audio.sender, lambda: None)
        await self._pc.setLocalDescription(await self._pc.createAnswer())
        if self._loss:
            transport = audio.sender.transport
            transport._send_rtp = lossy(transport._send_rtp, self._loss)
        # Of any version of aiortc: the voice is counted in packets of 10 ms, which a bot of 1.16 or later gets.
        sdp = self._pc.localDescription.sdp.replace("max-message-size:65536", "max-message-size:262144")
        return {"sdp": sdp, "type": "answer", "pc_id": str(id(self))}

    def _take(self, channel: Any, text: str) -> None:
        if text.startswith("ping"):
            return
        message = json.loads(text)
        if message["type"] == "client-ready":
            self._say(channel, "bot-ready", message["id"], {"version": "2.2.0", "about": {"library": "benchmarks"}})
        elif message["type"] == "client-message":
            self._say(channel, "server-response", message["id"], {"t": message["data"]["t"], "d": self._ear.heard()})

    @staticmethod
    def _say(channel: Any, type_: str, id_: str, data: Any) -> None:
        channel.send(json.dumps({"label": "rtvi-ai", "type": type_, "id": id_, "data": data}))

    async def _on_state(self) -> None:
        if self._pc.connectionState in ("closed", "failed"):
            await self._pc.close()
            self.closed.set()


class Server:
    """Takes offers."""

    def __init__(self) -> None:
        self._packets = encoded_second()
        self._sessions: set[Session] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            size = int(head.partition("content-length:")[2].partition("\r\n")[0])
            loss = parse_qs(urlsplit(head.split()[1]).query).get("loss", ["0"])[0]
            session = Session(self._packets, float(loss))
            self._sessions.add(session)
            body = json.dumps(await session.answer(json.loads(await reader.readexactly(size)))).encode()
            answer = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            writer.write(answer.encode() + b"Connection: close\r\n\r\n" + body)
            await writer.drain()
            writer.close()
            await session.closed.wait()
            self._sessions.discard(session)


async def main() -> None:
    """Serve until standard input ends."""
    server = await asyncio.start_server(Server().serve, "127.0.0.1", 0)
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(ended.set)), daemon=True).start()
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await ended.wait()


if __name__ == "__main__":
    asyncio.run(main())
