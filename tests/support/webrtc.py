"""A WebRTC bot in this process: it takes offers over HTTP, as Pipecat's runner does, and is scripted by a test."""

from __future__ import annotations

import asyncio
import contextlib
import fractions
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiortc
import av
import pytest

from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.transports.webrtc.aiortc_video import converted
from tests.support.http_server import Answer, Request, scripted_server
from tests.support.slowness import GUARD
from tests.support.waiting import until


class FarLoop:
    """An asyncio loop on a thread of its own, where the bots of many tests live."""

    def __init__(self) -> None:
        self._loop = asyncio.SelectorEventLoop()
        self._loop.set_exception_handler(lambda *_: None)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="far-loop")
        self._thread.start()

    def run(self, work: Any) -> Any:
        """Return the result of a coroutine."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(GUARD)

    def call(self, function: Callable[..., Any], *args: Any) -> None:
        self._loop.call_soon_threadsafe(function, *args)

    def close(self) -> None:
        async def cancel_all() -> None:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

        self.run(cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(GUARD)
        self._loop.close()


@pytest.fixture(scope="module")
def far_loop() -> Iterator[FarLoop]:
    """Return where the bots of a file live."""
    loop = FarLoop()
    yield loop
    loop.close()


class Tone(aiortc.MediaStreamTrack):
    """A bot's voice: a tone in real time, or silence."""

    kind = "audio"

    def __init__(self, samples: Callable[[int, int], bytes], rate_hz: int = 24000) -> None:
        super().__init__()
        self._samples = samples
        self._rate_hz = rate_hz
        self._sent = 0
        self._began = 0.0

    async def recv(self) -> Any:
        size = self._rate_hz // 50
        self._began = self._began or time.monotonic()
        await asyncio.sleep(max(0.0, self._began + self._sent / self._rate_hz - time.monotonic()))
        frame = av.AudioFrame(format="s16", layout="mono", samples=size)
        frame.planes[0].update(self._samples(self._sent, size))
        frame.sample_rate, frame.pts, frame.time_base = self._rate_hz, self._sent, fractions.Fraction(1, self._rate_hz)
        self._sent += size
        return frame


class Film(aiortc.MediaStreamTrack):
    """A bot's pictures: one of one colour, 20 times a second."""

    kind = "video"

    def __init__(self, gray: int) -> None:
        super().__init__()
        self._gray = gray
        self._sent = 0

    async def recv(self) -> Any:
        await asyncio.sleep(0.05)
        frame = av.VideoFrame(160, 120, "gray")
        frame.planes[0].update(bytes([self._gray]) * frame.planes[0].buffer_size)
        frame.pts, frame.time_base = self._sent * 4500, fractions.Fraction(1, 90000)
        self._sent += 1
        return converted(frame, "yuv420p")


async def record(track: Any, into: list[Any]) -> None:
    """Keep the frames of a track, until it ends."""
    with contextlib.suppress(aiortc.mediastreams.MediaStreamError):
        while True:
            into.append(await track.recv())


class Call:
    """One session with the bot.

    Attributes:
        pc: the bot's end of the connection.
        channel: the data channel; None before it is open.
        texts: all received texts, without pings.
        pings: how many arrived.
        frames: of the user's audio, camera and screen.
        reading: the tasks that read them.
        offers: the bodies of the offers.
    """

    def __init__(self, bot: RTCBot) -> None:
        self._bot = bot
        self.pc: Any = None
        self.channel: Any = None
        self.texts: list[str] = []
        self.pings = 0
        self.frames: list[list[Any]] = [[], [], []]
        self.reading: list[Any] = []
        self.offers: list[dict[str, Any]] = []
        self.closed = threading.Event()

    async def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        self.offers.append(body)
        if self.pc is None:
            self._begin()
        await self.pc.setRemoteDescription(aiortc.RTCSessionDescription(body["sdp"], "offer"))
        self._bot.spoil(self.pc)
        for transceiver, track in zip(self.pc.getTransceivers(), self._bot.tracks(), strict=False):
            if track is not None and transceiver.sender.track is None:
                transceiver.sender.replaceTrack(track)
                transceiver.direction = "sendrecv"
        await self.pc.setLocalDescription(await self.pc.createAnswer())
        return {"sdp": self.pc.localDescription.sdp, "type": "answer", "pc_id": f"Bot#{id(self)}"}

    def _begin(self) -> None:
        # As in Pipecat: with the other policies aiortc does not receive the screen.
        policy = aiortc.RTCBundlePolicy.MAX_BUNDLE
        self.pc = aiortc.RTCPeerConnection(aiortc.RTCConfiguration(iceServers=[], bundlePolicy=policy))

        @self.pc.on("datachannel")
        def on_datachannel(channel: Any) -> None:
            self.channel = channel
            channel.on("message", self._on_text)
            channel.on("close", self.closed.set)

        @self.pc.on("track")
        def on_track(track: Any) -> None:
            self.reading.append(asyncio.ensure_future(record(track, self.frames[len(self.reading)])))

        @self.pc.on("connectionstatechange")
        def on_state() -> None:
            if self.pc.connectionState in ("closed", "failed"):
                self.closed.set()

    def _on_text(self, text: str) -> None:
        if text.startswith("ping"):
            self.pings += 1
            return
        self.texts.append(text)
        if json.loads(text)["type"] != "signalling":
            for answer in self._bot.answer(text):
                self.channel.send(answer)

    @property
    def statuses(self) -> list[tuple[int, bool]]:
        """The client's reports about its tracks."""
        told = [json.loads(text)["message"] for text in self.texts if '"signalling"' in text]
        return [(message["receiver_index"], message["enabled"]) for message in told]

    def send(self, text: str | bytes) -> None:
        """Send a text, or bytes. Any thread."""
        self._bot.loop.call(self.channel.send, text)

    def signal(self, kind: str) -> None:
        """Send a signalling message."""
        self.send(json.dumps({"type": "signalling", "message": {"type": kind}}))

    def leave(self) -> None:
        """End as Pipecat does: say so, then close."""
        self.signal("peerLeft")
        self._bot.loop.run(self.pc.close())

    def drop(self) -> None:
        """Close without a word."""
        self._bot.loop.run(self.pc.close())


class RTCBot:
    """A bot for WebRTC, with an HTTP server in front.

    Args:
        loop: where it lives.
        answer: returns the texts that answer a text.
    """

    def __init__(self, loop: FarLoop, answer: Callable[[str], list[str]]) -> None:
        self.loop = loop
        self.answer = answer
        self.calls: list[Call] = []
        self.url = ""
        self.change: Callable[[dict[str, Any]], dict[str, Any]] = lambda answer: answer
        self.spoil: Callable[[Any], object] = lambda pc: None  # each connection, before its answer
        self.tracks: Callable[[], list[Any]] = list

    def offered(self, request: Request) -> Answer:
        """Answer an offer."""
        known = [call for call in self.calls if request.body.get("pc_id") == f"Bot#{id(call)}"]
        call = known[0] if known else Call(self)
        if not known:
            self.calls.append(call)
        return Answer(self.change(self.loop.run(call.answer(request.body))))

    @property
    def call(self) -> Call:
        """The newest session, once its data channel is there."""
        until(lambda: self.calls and self.calls[-1].channel is not None)
        return self.calls[-1]

    def close(self) -> None:
        for call in self.calls:
            if call.pc is not None:
                self.loop.run(call.pc.close())


SESSION = "4e71578b-79d6-4ea9-a59b-2a3ffad1d315"


@contextlib.contextmanager
def rtc_bot(loop: FarLoop, answer: Callable[[str], list[str]], host: str = "127.0.0.1") -> Iterator[RTCBot]:
    """Run a bot behind `/start` of a runner, and behind `/api/offer`."""
    bot = RTCBot(loop, answer)
    with scripted_server(host) as server:
        server.answers["/start"] = Answer({"sessionId": SESSION})
        server.answers[f"/sessions/{SESSION}/api/offer"] = server.answers["/api/offer"] = bot.offered
        bot.url = server.url
        bot.server = server  # type: ignore[attr-defined]
        try:
            yield bot
        finally:
            bot.close()


def ready_answers(text: str) -> list[str]:
    """Answer as a bot that is ready, and returns the data of a request."""
    message = json.loads(text)
    if message["type"] == "client-ready":
        data: Any = {"version": "2.2.0", "about": {"library": "test"}}
        return [json.dumps({"label": "rtvi-ai", "type": "bot-ready", "id": message["id"], "data": data})]
    if message["type"] == "client-message":
        return [json.dumps({**message, "type": "server-response"})]
    return []


def unreachable(answer: dict[str, Any]) -> dict[str, Any]:
    """Change an answer so that ICE hangs, as with a bot behind a firewall.

    The client's checks go to a port without a socket, and by the wrong password those that answer the bot's own checks
    fail. The password alone is not enough with aioice 0.10, the last one for Python 3.10: there the bot's refusal ends
    ICE at once.
    """
    sdp = re.sub(r"(?m)^(a=candidate:.*) \d+ typ", r"\1 9 typ", answer["sdp"])
    return {**answer, "sdp": sdp.replace("a=ice-pwd:", "a=ice-pwd:x")}


#: A bot as a program of its own, for `python -c`, at an address: it prints its URL, and ends with its standard input.
BOT_PROGRAM = """
import json, sys
from tests.support.webrtc import FarLoop, ready_answers, rtc_bot
loop = FarLoop()
with rtc_bot(loop, ready_answers, sys.argv[1]) as bot:
    print(json.dumps(bot.url), flush=True)
    sys.stdin.read()
loop.close()
"""


def result_of(future):
    assert future.wait(Deadline(GUARD))
    return future.result()
