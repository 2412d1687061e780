"""client-js with its WebRTC transport, in Chromium: the voice and the camera are the page's own, as are the players.

Only its CPU time is measured with a microphone, Chromium's own for tests: a page removes echo and noise from its voice
unless it says otherwise, and that is work.
"""

from __future__ import annotations

import base64
import time

from ...scenarios.echo import PAUSE, SENT_HZ, SESSIONS, compare, speech, summary
from ...scenarios.figures import percentile
from ...scenarios.webrtc import FPS, check_share, video_figures
from . import ClientJs

_SETTLE = 2.0
# A recording is looked at in chunks of this many seconds.
_CHUNK = 0.01


class ClientJsByWebRTC(ClientJs):
    """One client of the page, with the microphone on."""

    def open(self) -> int:
        index: int = self.browser.page.evaluate("(url) => open_rtc_session(url)", self.url)
        return index

    def wait(self, seconds: float) -> float:
        """Wait, and return the browser's CPU time during the wait, as a share of a core."""
        begun, spent = time.perf_counter(), self.browser.cpu_seconds()
        self.browser.page.wait_for_timeout(seconds * 1e3)
        spent, taken = self.browser.cpu_seconds() - spent, time.perf_counter() - begun
        return spent / taken


def _connected(url: str, microphone: str = "made") -> ClientJsByWebRTC:
    client = ClientJsByWebRTC(url)
    client.call("prepare", microphone)
    client.call("connect")
    return client


def _connect(url: str, effort: float) -> dict[str, float]:
    connecting, closing = [], []
    for _ in range(4 + round(40 * effort)):
        client = ClientJsByWebRTC(url)
        client.call("prepare", "made")
        connecting.append(client.call("connect"))
        closing.append(client.call("close"))
    return {"connect_ms": percentile(connecting[3:], 0.5) * 1e3, "close_ms": percentile(closing[3:], 0.5) * 1e3}


def _echo(url: str, effort: float) -> dict[str, float]:
    return summary([each for _ in range(max(1, round(SESSIONS * effort))) for each in _echoes(url)])


def _echoes(url: str) -> list[tuple[float, float, float]]:
    pcm = speech()
    client = _connected(url)
    client.wait(_SETTLE)
    found = client.call("echo", base64.b64encode(pcm).decode(), SENT_HZ, PAUSE)
    client.call("close")
    rate, size = found["rate"], 2 * round(found["rate"] * _CHUNK)
    heard = base64.b64decode(found["pcm"])
    chunks = [
        (found["heard"] + place // size * _CHUNK, heard[place : place + size]) for place in range(0, len(heard), size)
    ]
    taken = [(found["said"] + place / SENT_HZ, place) for place in range(0, len(pcm) // 2, SENT_HZ // 100)]
    return compare(taken, chunks, rate)


def _cpu(url: str, effort: float) -> dict[str, float]:
    client = _connected(url, "device")
    client.wait(_SETTLE)
    before, begun = client.call("counters", "inbound", "audio"), time.perf_counter()
    spent = client.wait(max(1.0, 20 * effort))
    after, taken = client.call("counters", "inbound", "audio"), time.perf_counter() - begun
    client.call("close")
    counted = {name: after[name] - before[name] for name, value in after.items() if isinstance(value, (int, float))}
    check_share("of the echo came", counted["packetsReceived"] / taken / 50)
    return {
        "cpu_percent": spent * 100,
        "concealed_share": counted["concealedSamples"] / counted["totalSamplesReceived"],
        "jitter_buffer_ms": counted["jitterBufferDelay"] / counted["jitterBufferEmittedCount"] * 1e3,
    }


def _video(url: str, effort: float) -> dict[str, float]:
    seconds = max(2.0, 20 * effort)
    client = _connected(url)
    client.call("hum")
    client.wait(_SETTLE)
    before = client.wait(seconds)
    client.call("show", FPS)
    client.wait(_SETTLE)

    def counts() -> tuple[int, int, int]:
        sent, back = client.call("counters", "outbound", "video"), client.call("counters", "inbound", "video")
        return sent.get("framesSent", 0), client.call("request", "pictures"), back.get("framesDecoded", 0)

    first, begun = counts(), time.perf_counter()
    spent = client.wait(seconds)
    last, taken = counts(), time.perf_counter() - begun
    client.call("close")
    return video_figures(first, last, taken, spent - before)


ClientJsByWebRTC.own = {
    "webrtc-connect": _connect,
    "webrtc-echo": _echo,
    "webrtc-cpu": _cpu,
    "webrtc-video": _video,
}
