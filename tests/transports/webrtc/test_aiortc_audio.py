"""The voice: encoded and decoded here, or by aiortc where that cannot be."""

from __future__ import annotations

import asyncio
import fractions
import itertools
import random
import types
from typing import Any

import aiortc
import av
import pytest
from aiortc.jitterbuffer import JitterBuffer
from aiortc.rtp import RtpPacket

from rtvi_sync.concurrency.lifecycle import stop_idle_threads
from rtvi_sync.concurrency.loop_thread import acquire_loop
from rtvi_sync.media.pcm import rms
from rtvi_sync.transports.webrtc import opus
from rtvi_sync.transports.webrtc.aiortc_audio import BotAudio, MicTrack, read_frames, take_packets
from tests.support import part_probes
from tests.support.webrtc import result_of

from .sounds import packets, tone

pytestmark = pytest.mark.inside


@pytest.fixture
def loop():
    loop = acquire_loop()
    yield loop
    loop.release()
    stop_idle_threads()


def on_loop(loop, make):
    async def call():
        return make()

    return result_of(loop.run(call()))


async def received(track, count):
    return [await track.recv() for _ in range(count)]


def mic_track(loop, per_second):
    track = on_loop(loop, lambda: MicTrack(loop))
    if per_second == 100:
        track.shorten_packets()
    return track


@pytest.mark.parametrize("per_second", [50, 100])
def test_packets_of_the_microphone(loop, per_second):
    """Frames of any length become packets of 20 or 10 ms, whose time stamps follow each other."""
    track = mic_track(loop, per_second)
    pcm = tone(16000, 0.1)
    for start in range(0, len(pcm), 500):
        track.send(pcm[start : start + 500], 16000)
    found = result_of(loop.run(received(track, per_second // 10)))
    assert [packet.pts * packet.time_base for packet in found] == [
        fractions.Fraction(n, per_second) for n in range(per_second // 10)
    ]
    decoder = opus.Decoder(24000)
    assert len(b"".join(decoder.decode(bytes(packet)) for packet in found)) == 2 * 2400


def heard_by_a_bot(loop, per_second, lost):
    """Return when a bot on aiortc hears each packet of a second, some of which are lost, and how late, in ms."""
    track, buffer = mic_track(loop, per_second), JitterBuffer(capacity=16, prefetch=4)
    heard, sequence = {}, itertools.count()
    for chunk in range(50):
        track.send(bytes(640), 16000)
        for sent in result_of(loop.run(received(track, per_second // 50))):
            arrived = RtpPacket(sequence_number=next(sequence), timestamp=sent.pts)
            arrived._data = b""  # type: ignore[attr-defined]
            frame = None if arrived.sequence_number in lost else buffer.add(arrived)[1]
            if frame is not None:
                heard[frame.timestamp] = 20 * chunk
    return [(ms, ms - 20 * (timestamp // 960)) for timestamp, ms in heard.items()]


@pytest.mark.parametrize(("per_second", "held_back", "gap"), [(50, 80, 320), (100, 40, 160)])
def test_what_a_bot_on_aiortc_hears(loop, per_second, held_back, gap):
    """aiortc holds 4 packets back, and waits through 16 for a lost one: short packets are heard earlier."""
    assert {late for _, late in heard_by_a_bot(loop, per_second, lost=())} == {held_back}
    moments = [ms for ms, _ in heard_by_a_bot(loop, per_second, lost={20})]
    assert max(after - before for before, after in itertools.pairwise(moments)) == gap


def test_a_rate_that_opus_has_not(loop):
    """Audio of a rate that Opus does not have is resampled to 24 kHz, and its rate may change."""
    track = on_loop(loop, lambda: MicTrack(loop))
    track.send(tone(44100, 0.2), 44100)
    track.send(tone(8000, 0.1), 8000)
    found = result_of(loop.run(received(track, 13)))
    decoder = opus.Decoder(24000)
    decoded = [decoder.decode(bytes(packet)) for packet in found]
    assert {len(pcm) for pcm in decoded} == {960}
    assert rms(decoded[5]) > 3000


@pytest.mark.parametrize("per_second", [50, 100])
def test_a_loop_that_is_late(loop, per_second):
    """For a loop that is late, one second of the microphone is kept; older audio is dropped and counted."""
    track = mic_track(loop, per_second)
    for _ in range(60):
        track.send(bytes(640), 16000)  # 20 ms
    on_loop(loop, int)
    assert track.unsent == pytest.approx(0.2)
    (first,) = result_of(loop.run(received(track, 1)))
    assert first.pts * first.time_base == fractions.Fraction(1, 5)


def test_the_end_of_the_track(loop):
    """A sender that waits is woken."""
    track = on_loop(loop, lambda: MicTrack(loop))

    async def stop_while_waiting():
        waiting = asyncio.ensure_future(track.recv())
        await asyncio.sleep(0)
        track.stop()
        return await waiting

    with pytest.raises(aiortc.mediastreams.MediaStreamError):
        result_of(loop.run(stop_while_waiting()))


def packet(sequence, payload):
    return types.SimpleNamespace(ssrc=1, sequence_number=sequence, payload=payload)


@pytest.mark.parametrize("per_second", [25, 50, 100])
def test_lost_packets_are_made_up(per_second):
    """The time line stays complete, whatever the packets' length, and aiortc gets nothing to decode."""
    heard = []
    audio = BotAudio(lambda *frame: heard.append(frame))
    coded = packets(24000, tone(24000, 20 / per_second), per_second)
    results = [audio.add(packet(n, coded[n])) for n in range(20) if n not in (7, 12)]
    assert set(results) == {(False, None)}
    assert [(len(pcm), rate, channels) for pcm, rate, channels in heard] == [(48000 // per_second, 24000, 1)] * 20
    assert min(rms(pcm) for pcm, *_ in heard[2:]) > 2000
    assert audio.concealed == pytest.approx(2 / per_second)


def deliveries(lost, count=1000, late=None):
    """Return after how many packets of the sender each 20 ms are handed on, if some are lost, or one is late by some.

    A packet is 20 ms, so audio that is handed on 4 packets after the one before it left a gap of 80 ms.
    """
    moments: list[int] = []
    audio = BotAudio(lambda *_: moments.append(moment))
    payload = packets(24000, tone(24000, 0.02))[0]
    arrivals = {n: [n] for n in range(count) if n not in lost}
    for number, delay in (late or {}).items():
        arrivals.pop(number, None)
        arrivals.setdefault(number + delay, []).append(number)
    for moment in range(count):
        for number in sorted(arrivals.get(moment, ())):
            audio.add(packet(number, payload))
    return moments, audio


@pytest.mark.parametrize(("share", "longest"), [(0.01, 5), (0.05, 8)], ids=["1 %", "5 %"])
def test_a_network_that_loses_packets(share, longest):
    """The time line is complete, no gap is longer than 100 ms (at 1 %; 160 at 5 %), and nothing is delayed for good."""
    chance = random.Random(7)
    lost = {n for n in range(10, 990) if chance.random() < share}
    moments, audio = deliveries(lost)
    assert len(moments) == 1000
    assert max(after - before for before, after in itertools.pairwise(moments)) <= longest
    assert moments[-1] == 999  # at once, as at the start
    assert audio.concealed == pytest.approx(len(lost) / 50)


def test_one_late_packet():
    """150 ms late: 80 ms of a gap, and then all as before."""
    moments, audio = deliveries({}, count=100, late={50: 8})
    assert len(moments) == 100
    assert max(after - before for before, after in itertools.pairwise(moments)) == 4
    assert moments[60:] == [*range(60, 100)]
    assert audio.concealed == pytest.approx(0.02)


def test_a_packet_more_than_a_second_late():
    """A packet that is a second late is not played during a later word, and does not hold up those after it."""
    moments, audio = deliveries({}, count=200, late={50: 60})
    assert len(moments) == 200
    assert moments[60:] == [*range(60, 200)]
    assert audio.concealed == pytest.approx(0.02)


def test_an_outage():
    """For 200 ms nothing arrives, and then all at once: nothing is lost, nothing is delayed after it."""
    moments, audio = deliveries({}, count=100, late={n: 60 - n for n in range(50, 60)})
    assert len(moments) == 100
    assert moments[50:60] == [60] * 10
    assert moments[60:] == [*range(60, 100)]
    assert audio.concealed == 0


def fail(*_):
    raise LookupError("a listener's own")


def test_a_failing_listener_does_not_end_the_connection(caplog):
    """aiortc would close the connection without a word."""
    audio = BotAudio(fail)
    assert audio.add(packet(1, packets(24000, tone(24000, 0.02))[0])) == (False, None)
    assert "could not be handed on" in caplog.text


def test_aiortc_has_what_is_replaced(loop):
    """The private field exists in this version, so the packets reach the package."""

    def look():
        connection = aiortc.RTCPeerConnection()
        receiver = connection.addTransceiver("audio").receiver
        return hasattr(receiver, "_RTCRtpReceiver__jitter_buffer"), take_packets(receiver, lambda *_: None)

    assert on_loop(loop, look)[0]
    assert isinstance(on_loop(loop, look)[1], BotAudio)


def test_aiortc_s_own_way(loop, monkeypatch, caplog):
    """Where libopus is not found, aiortc encodes and decodes, which is told once; stereo becomes 24 kHz mono."""
    monkeypatch.setattr(opus, "library", lambda: None)
    part_probes.warn_again()
    track = on_loop(loop, lambda: MicTrack(loop))
    track.shorten_packets()
    track.send(tone(16000, 0.1), 16000)
    frames = result_of(loop.run(received(track, 5)))
    assert [(frame.sample_rate, frame.samples) for frame in frames] == [(16000, 320)] * 5
    other: Any = object()
    assert take_packets(other, lambda *_: None) is None
    assert take_packets(other, lambda *_: None) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "aiortc decodes the bot's audio" in caplog.text

    heard = []
    read_bot(loop, lambda *frame: heard.append(frame))
    assert {frame[1:] for frame in heard} == {(24000, 1)}
    assert 0 < sum(len(frame[0]) for frame in heard) <= 3 * 960


def read_bot(loop, on_audio):
    """Hand on three frames of a bot in stereo, which aiortc has decoded."""
    stereo = av.AudioFrame(format="s16", layout="stereo", samples=960)
    stereo.planes[0].update(tone(48000, 0.02) * 2)
    stereo.sample_rate = 48000
    left = [stereo] * 3

    class Bot:
        async def recv(self):
            if not left:
                raise aiortc.mediastreams.MediaStreamError
            return left.pop()

    bot: Any = Bot()
    result_of(loop.run(read_frames(bot, on_audio)))


def test_audio_after_some_that_failed(loop, caplog):
    """Audio after some that could not be handed on is handed on; only the first failure is logged."""
    tried = []

    def on_audio(*frame):
        tried.append(frame)
        raise MemoryError

    read_bot(loop, on_audio)
    assert len(tried) == 3
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [MemoryError]
