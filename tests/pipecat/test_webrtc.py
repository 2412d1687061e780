"""WebRTC with real bots, as Pipecat's runner starts them."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rtvi_sync import RTVIClient, RTVIEvent, SmallWebRTCTransport
from rtvi_sync.media import BytesSink, BytesSource, NullSink, SilenceSource, ToneSource, WavSource
from tests.audio.signals import alignment
from tests.support import limits
from tests.support.fake_camera import Pictures
from tests.support.pcm import rms
from tests.support.real_video import opencv
from tests.support.samples import run
from tests.support.slowness import GUARD, takes
from tests.support.waiting import until

from .clients import SPEECH
from .conftest import BotServer

LIMITS: dict[str, Any] = {"connect_timeout": GUARD, "request_timeout": GUARD}


def check_texts(bot: BotServer) -> None:
    """Talk to a bot twice by text, each time in a session of its own, and let it end the second one."""
    with closing(RTVIClient(transport=SmallWebRTCTransport(ice_timeout=GUARD), text_only=True, **LIMITS)) as client:
        for _ in range(2):
            client.start_bot_and_connect(f"{bot.base_url}/start")
            assert client.ask("Good morning").bot_text == "You said: Good morning."
            client.disconnect()
            assert bot.live_sessions(0) == 0
        client.start_bot_and_connect(f"{bot.base_url}/start")
        with client.events(RTVIEvent.DISCONNECTED, timeout=GUARD) as events:
            client.disconnect_bot()
            assert next(events).data.initiator == "server"


def test_a_runner_for_webrtc(pipecat_process: Callable[..., BotServer]) -> None:
    """`-t webrtc`: the session that `/start` names takes the offer."""
    check_texts(pipecat_process("stock", "-t", "webrtc"))


def test_a_stock_runner(pipecat_stock: BotServer) -> None:
    """Without `-t` the request says that it is for WebRTC."""
    check_texts(pipecat_stock)


def test_the_offer_without_a_start_request(pipecat_stock: BotServer) -> None:
    """The runner takes an offer at /api/offer, too."""
    transport = SmallWebRTCTransport(f"{pipecat_stock.base_url}/api/offer", ice_timeout=GUARD)
    with RTVIClient(transport=transport, text_only=True, **LIMITS) as client:
        assert client.ask("Good morning").bot_text == "You said: Good morning."


def test_a_spoken_question(pipecat_stock: BotServer) -> None:
    """The bot hears the user's speech, and its answer arrives as audio of 24 kHz."""
    sink = BytesSink()
    transport = SmallWebRTCTransport(f"{pipecat_stock.base_url}/api/offer", ice_timeout=GUARD)
    with RTVIClient(transport=transport, mic=SilenceSource(), speaker=sink, **LIMITS) as client:
        turn = client.ask(WavSource(SPEECH))
        assert turn.user_text == "hello bot"
        assert turn.bot_text == "You said: hello bot."
    assert sink.sample_rate_hz == 24000
    assert len(sink.pcm) >= round(2 * 24000 * 0.2 * 4)  # a word takes 0.2 s


def test_an_interruption(pipecat_stock: BotServer) -> None:
    """The first answer is cut, its spoken part is its start, and the second one is whole."""
    transport = SmallWebRTCTransport(f"{pipecat_stock.base_url}/api/offer", ice_timeout=GUARD)
    with RTVIClient(transport=transport, mic=SilenceSource(), speaker=NullSink(), **LIMITS) as client:
        second = client.barge_in("Stop", delay=0.5)
        first = client.ask(f"a {'very ' * 20}long question", GUARD)
        answer = second.result(GUARD)
    assert first.interrupted
    assert first.spoken_text
    assert "".join((first.bot_text or "").split()).startswith("".join((first.spoken_text or "").split()))
    assert first.spoken_text != first.bot_text
    assert answer.bot_text == "You said: Stop."


def test_a_muted_microphone(pipecat_process: Callable[..., BotServer]) -> None:
    """While the microphone is muted, an echoing bot is silent; it goes on afterwards, without another negotiation."""
    bot = pipecat_process("stock", "--echo", "-t", "webrtc")
    sink = BytesSink()

    def level() -> float:
        return rms(bytes(sink.pcm[-4800:]))  # of the last 0.1 s

    transport = SmallWebRTCTransport(f"{bot.base_url}/api/offer", ice_timeout=GUARD)
    with RTVIClient(transport=transport, mic=ToneSource(), speaker=sink, **LIMITS) as client:
        until(lambda: level() > 1000)
        client.enable_mic(False)
        until(lambda: level() < 10)
        client.enable_mic(True)
        until(lambda: level() > 1000)


@pytest.mark.matrix
def test_a_camera_in_the_middle_of_a_session(pipecat_process: Callable[..., BotServer]) -> None:
    """The bot sees its pictures without another negotiation, and the bot's own pictures have a track."""
    bot = pipecat_process("stock", "--echo", "-t", "webrtc")
    transport = SmallWebRTCTransport(f"{bot.base_url}/api/offer", ice_timeout=GUARD)
    with RTVIClient(transport=transport, mic=SilenceSource(), speaker=NullSink(), cam=Pictures(80), **LIMITS) as client:
        client.enable_cam(True)
        until(lambda: client.tracks().bot.video is not None)
        video = client.tracks().bot.video
        assert video is not None
        shown = next(video.frames(buffer=1))
    assert (shown.width, shown.height) == (160, 120)
    assert abs(shown.image[len(shown.image) // 2] - 80) < 15


@pytest.mark.matrix
def test_the_echo_of_a_voice(pipecat_process: Callable[..., BotServer]) -> None:
    """The echo of a voice equals the voice, 3 dB quieter; sounds with the gaps of a busy machine are skipped."""

    def chirp_at(rate_hz: int) -> np.ndarray[Any, Any]:
        at = np.arange(rate_hz // 5) / rate_hz
        return 8000 * np.sin(2 * np.pi * (300 + 7500 * at) * at) * np.minimum(1, np.minimum(at, 0.2 - at) / 0.01)

    chirp, said = chirp_at(16000), chirp_at(24000).astype(np.int16)
    source = BytesSource(np.concatenate([chirp, np.zeros(1600)] * 200).astype("<i2").tobytes(), 16000)
    sink = BytesSink()
    levels: list[float] = []
    bot = pipecat_process("stock", "--echo", "-t", "webrtc")
    transport = SmallWebRTCTransport(f"{bot.base_url}/api/offer", ice_timeout=GUARD)
    with RTVIClient(transport=transport, mic=source, speaker=sink, **LIMITS):
        for second in range(50):
            end = 2 * 24000 * (second + 1)
            until(lambda end=end: len(sink.pcm) >= end)  # type: ignore[misc]
            heard = np.frombuffer(bytes(sink.pcm[end - 48000 : end]), np.int16)
            similar, begin = alignment(heard, said)
            if similar > 0.98:
                levels.append(20 * math.log10(rms(heard[begin : begin + len(said)].tobytes()) / rms(said.tobytes())))
            if len(levels) == 3:
                break
    assert [round(level) for level in levels] == [-3, -3, -3]


@pytest.mark.matrix
def test_the_sample_of_a_video_call(pipecat_process: Callable[..., BotServer], tmp_path: Path) -> None:
    """The bot sends back its view, bars of colour, and the sample keeps it in a folder."""
    cv2 = opencv()
    bot = pipecat_process("stock", "--echo", "-t", "webrtc")
    call = ("--url", f"{bot.base_url}/start", "--silent", "--most", "20", "--folder", "shown")
    assert run(tmp_path, "video_call", *call) == ["The bot's 20 pictures are in shown."]
    last = cv2.imread(str(tmp_path / "shown" / "00020.jpg"))
    assert last.shape == (120, 160, 3)
    yellow, blue = last[20, 30], last[20, 130]  # in the order blue, green, red
    assert yellow[0] < 80 < 170 < min(yellow[1:])
    assert max(blue[1:]) < 80 < 170 < blue[0]


@pytest.mark.matrix
def test_a_killed_bot(pipecat_process: Callable[..., BotServer], monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is gone sends no packet any more."""
    limits.patch(monkeypatch, rtc_silence=3.0)
    bot = pipecat_process("stock", "-t", "webrtc")
    with closing(RTVIClient(transport=SmallWebRTCTransport(ice_timeout=GUARD), text_only=True, **LIMITS)) as client:
        client.start_bot_and_connect(f"{bot.base_url}/start")
        with client.events(RTVIEvent.DISCONNECTED, timeout=GUARD) as events:
            bot.kill()
            ended = next(events).data
    assert ended.initiator == "network"
    assert "no packet has come for 3 s" in str(ended.error)


@pytest.mark.matrix
def test_a_killed_bot_is_noticed_in_time(pipecat_process: Callable[..., BotServer]) -> None:
    """A killed bot is noticed within 12 s, by the limit that users have."""
    bot = pipecat_process("stock", "-t", "webrtc")
    with closing(RTVIClient(transport=SmallWebRTCTransport(ice_timeout=GUARD), text_only=True, **LIMITS)) as client:
        client.start_bot_and_connect(f"{bot.base_url}/start")
        with client.events(RTVIEvent.DISCONNECTED, timeout=GUARD) as events, takes(12.0):
            bot.kill()
            ended = next(events).data
    assert ended.initiator == "network"
    assert "no packet has come for 10 s" in str(ended.error)


@pytest.mark.matrix
def test_a_bot_that_stalls(pipecat_process: Callable[..., BotServer]) -> None:
    """A process that is stopped for 6 s costs nothing but these, with sound and without."""
    bot = pipecat_process("stock", "-t", "webrtc")
    options: list[dict[str, Any]] = [{"text_only": True}, {"mic": SilenceSource(), "speaker": NullSink()}]
    with ExitStack() as stack:
        clients = []
        for each in options:
            client = RTVIClient(transport=SmallWebRTCTransport(ice_timeout=GUARD), **each, **LIMITS)
            stack.enter_context(closing(client))
            client.start_bot_and_connect(f"{bot.base_url}/start")
            clients.append(client)
        bot.process.send_signal(signal.SIGSTOP)
        time.sleep(6.0)  # the stall itself
        bot.process.send_signal(signal.SIGCONT)
        for client in clients:
            assert client.ask("Good morning").bot_text == "You said: Good morning."


@pytest.mark.matrix
def test_the_first_pipecat_with_webrtc(pipecat_process: Callable[..., BotServer]) -> None:
    """Pipecat 0.0.62 takes the same offer, and sends voice and pictures back."""
    bot, sink = pipecat_process("webrtc-0.3"), BytesSink()
    transport = SmallWebRTCTransport(f"{bot.base_url}/api/offer", ice_timeout=GUARD)
    with RTVIClient(transport=transport, mic=ToneSource(), speaker=sink, cam=Pictures(80), **LIMITS) as client:
        client.enable_cam(True)
        until(lambda: client.tracks().bot.video is not None)
        video = client.tracks().bot.video
        assert video is not None
        assert abs(next(video.frames(buffer=1)).image[160 * 60 * 3] - 80) < 15
        until(lambda: len(sink.pcm) >= 2 * 24000 * 2)
    assert rms(sink.pcm[-24000:]) > 4000  # of 11,600, without the 3 dB that the bot takes
    assert bot.live_sessions(0) == 0
