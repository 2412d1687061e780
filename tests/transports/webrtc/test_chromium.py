"""Chromium as the bot: a WebRTC that is not aiortc's takes the offer, and reports the audio and video that it
receives.
"""

from __future__ import annotations

import itertools
import math
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rtvi_sync import RTVIClient, SmallWebRTCTransport
from rtvi_sync.media import BytesSink, ToneSource
from tests.support.busy import others_compute
from tests.support.fake_camera import Pictures
from tests.support.http_server import Answer, Request, scripted_server
from tests.support.pcm import rms, samples_of
from tests.support.slowness import GUARD, Stopwatch
from tests.support.waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.real

PAGE = Path(__file__).with_name("chromium.html")
VOICE_HZ, VOICE_PEAK, GRAY = 440, 0.25, 200  # of the page
SECOND = 48_000  # samples of Chromium's decoder
STALL = 0.1  # seconds that a busy machine may keep a packet; a fault of ours would show in every second


class PageBot:
    """The page, and the server by which it gets the offer and gives the answer."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = f"{url}/api/offer"

    def counters(self) -> dict[str, Any]:
        """Return Chromium's counters."""
        counters: dict[str, Any] = self.page.evaluate("counters()")
        return counters

    def decoded(self, samples: int) -> dict[str, Any]:
        """Return the counters once Chromium has decoded `samples` samples of our voice in all."""
        found: dict[str, Any] = {}

        def enough() -> bool:
            found.update(self.counters())
            return bool(found.get("inbound audio totalSamplesReceived", 0) >= samples)

        until(enough)
        return found


@pytest.fixture
def bot(chromium: Browser) -> Iterator[PageBot]:
    """Yield the bot of one session."""
    offers: queue.Queue[Any] = queue.Queue()
    answers: queue.Queue[Any] = queue.Queue()

    def take_offer(request: Request) -> Answer:
        offers.put(request.body)
        return Answer(answers.get(timeout=GUARD))

    def take_answer(request: Request) -> Answer:
        answers.put(request.body)
        return Answer()

    with scripted_server() as server:
        server.answers["/"] = Answer(PAGE.read_bytes(), headers={"Content-Type": "text/html"})
        server.answers["/offer"] = lambda _: Answer(offers.get(timeout=GUARD))
        server.answers["/answer"] = take_answer
        server.answers["/api/offer"] = take_offer
        page = chromium.new_page()
        page.goto(server.url)
        yield PageBot(page, server.url)
        page.close()


def made_up(before: dict[str, Any], after: dict[str, Any], what: str) -> float:
    """Return by how much a counter of our voice has grown."""
    return float(after[f"inbound audio {what}"] - before[f"inbound audio {what}"])


def check_voice(bot: PageBot, seconds: float) -> None:
    """Chromium loses and discards nothing, and, after the start, conceals no more audio than a busy machine
    explains.
    """
    for _ in range(3):
        before = bot.decoded(2 * SECOND)
        with Stopwatch() as watch:
            after = bot.decoded(before["inbound audio totalSamplesReceived"] + round(seconds * SECOND))
        late = made_up(before, after, "concealedSamples") / SECOND - (watch.took - watch.given)
        if late <= STALL or not others_compute():
            break
    assert (after["inbound audio packetsLost"], after["inbound audio packetsDiscarded"]) == (0, 0)
    assert late <= STALL
    level = math.sqrt(made_up(before, after, "totalAudioEnergy") / made_up(before, after, "totalSamplesDuration"))
    assert 20 * abs(math.log10(level / 0.5)) < 0.5


def check_its_voice(sink: BytesSink) -> None:
    """Chromium's tone arrives with its pitch and its level."""
    until(lambda: len(sink.pcm) >= 2 * 24_000 * 2)
    heard = sink.pcm[24_000:96_000]
    signs = [sample >= 0 for sample in samples_of(heard)]
    hertz = sum(a != b for a, b in itertools.pairwise(signs)) / 2 / 1.5
    assert abs(hertz - VOICE_HZ) < 5
    assert 20 * abs(math.log10(rms(heard) / (VOICE_PEAK * 32768 / math.sqrt(2)))) < 0.5


def check_pictures(client: RTVIClient, bot: PageBot, gray: int) -> None:
    """Each side decodes the pictures of the other one."""
    until(lambda: abs(bot.page.evaluate("gray()") - gray) < 15)
    until(lambda: client.tracks().bot.video is not None)
    video = client.tracks().bot.video
    assert video is not None
    shown = next(video.frames(buffer=1))
    assert (shown.width, shown.height) == (320, 240)
    assert abs(shown.image[len(shown.image) // 2] - GRAY) < 15


def client_of(bot: PageBot, sink: BytesSink, cam: Pictures) -> RTVIClient:
    return RTVIClient(
        transport=SmallWebRTCTransport(bot.url, ice_timeout=GUARD),
        mic=ToneSource(300),
        speaker=sink,
        cam=cam,
        connect_timeout=GUARD,
    )


def test_voice_and_pictures_both_ways(bot: PageBot) -> None:
    """Nothing of our voice is lost at Chromium's decoder, and each side hears and sees the other."""
    sink = BytesSink()
    with client_of(bot, sink, Pictures(80)) as client:
        client.enable_cam(True)
        check_pictures(client, bot, 80)
        check_voice(bot, 1)
        check_its_voice(sink)
        stats = client.stats()
        assert stats.audio_concealed <= stats.mic_max_delay  # while the machine ran neither process


@pytest.mark.matrix
def test_a_long_talk(bot: PageBot) -> None:
    """For half a minute nothing is lost, while the camera is switched on and off."""
    sink, cam = BytesSink(), Pictures(0)
    with client_of(bot, sink, cam) as client:
        for gray in (40, 100, 160):
            cam.frame = Pictures(gray).frame
            client.enable_cam(True)
            check_pictures(client, bot, gray)
            check_voice(bot, 10)
            client.enable_cam(False)
        check_its_voice(sink)
        assert client.stats().audio_concealed == 0
