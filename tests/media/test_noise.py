"""A worse line: its noise, its losses and its delays, as samples and in sessions."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Sequence
from itertools import cycle
from typing import Any

import pytest

from rtvi_sync import DeviceError, connect
from rtvi_sync.media import AudioSource, BytesSource, CallbackSource, NoisySource, PushSource, SilenceSource, WavSource
from rtvi_sync.media.convert import ResamplingSource
from rtvi_sync.testing import EmbeddedBot
from tests.support.slowness import GUARD
from tests.support.waiting import until
from tests.support.wavs import silence, tone, write_wav

RATE = 16_000
PACKET = 2 * RATE // 50


def all_of(source: AudioSource, sizes: Sequence[int] = (320,)) -> bytes:
    parts = []
    for frames in cycle(sizes):
        parts.append(source.read(frames))
        if not parts[-1]:
            return b"".join(parts)
    raise AssertionError


def samples_of(pcm: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(pcm) // 2}h", pcm)


def packets_of(pcm: bytes) -> list[bytes]:
    return [pcm[begin : begin + PACKET] for begin in range(0, len(pcm), PACKET)]


def numbered(numbers: Sequence[int]) -> bytes:
    """Return a packet for each number, whose samples are the number; 0 is a pause."""
    return b"".join(struct.pack("<h", 1_000 + number if number else 0) * (PACKET // 2) for number in numbers)


def numbers_of(pcm: bytes) -> list[int]:
    """Return the numbers of packets, without silence."""
    found = {packet: samples_of(packet)[0] for packet in packets_of(pcm)}
    assert all(packet == packet[:2] * (PACKET // 2) for packet in found)
    return [found[packet] - 1_000 for packet in packets_of(pcm) if found[packet]]


def syllables() -> bytes:
    """Return 10 s of audio whose level changes each 60 ms, with pauses."""
    chance = random.Random(1)
    return b"".join(
        tone(0.06, RATE, amplitude) if (amplitude := chance.choice([0, 0, 300, 1_000, 3_000, 9_000])) else silence(0.06)
        for _ in range(167)
    )


@pytest.mark.parametrize("snr_db", [-5, 0, 5.5, 20, 40])
@pytest.mark.parametrize("rate", [8_000, 11_025, RATE, 48_000])
def test_the_noise_has_its_level(snr_db: float, rate: int) -> None:
    """The signal is `snr_db` louder than the noise, within half a dB, whatever the rate is."""
    clean = syllables()

    noisy = all_of(NoisySource(BytesSource(clean, rate), snr_db))

    pairs = list(zip(samples_of(clean), samples_of(noisy), strict=True))
    signal, noise = sum(was**2 for was, _ in pairs), sum((was - has) ** 2 for was, has in pairs)
    assert 10 * math.log10(signal / noise) == pytest.approx(snr_db, abs=0.5)


def test_silence_stays_silent() -> None:
    """There is noise only where there is audio, so that a bot hears the end of speech."""
    clean = silence(0.5) + tone(0.5) + silence(0.5)

    noisy = all_of(NoisySource(BytesSource(clean, RATE), snr_db=0))

    assert noisy[:RATE] == noisy[-RATE:] == silence(0.5)
    assert all(any(packet) for packet in packets_of(noisy[RATE:-RATE]))


def test_loud_audio_is_clipped() -> None:
    """Noise on the loudest audio is cut off, and does not turn into its opposite."""
    loud = struct.pack("<2h", 32_767, -32_768) * RATE

    noisy = samples_of(all_of(NoisySource(BytesSource(loud, RATE), snr_db=20)))

    assert min(noisy[::2]) > 20_000
    assert max(noisy[1::2]) < -20_000


def test_the_same_seed_gives_the_same_bytes() -> None:
    """A line is the same in each session, however it is read, and another one with another seed."""
    line: dict[str, Any] = {"snr_db": 10, "loss": 0.1, "jitter": 0.06}
    clean = BytesSource(syllables(), RATE)
    first = NoisySource(clean, seed=7, **line)
    heard = all_of(first)

    first.close()
    again = all_of(first, [1, 7, 4_000])
    clean.close()
    # A source may return less than it was asked for, or more.
    pcm, sizes = clean.pcm, cycle([2, 640, 1_000, 6_400])
    places = [0]

    def read(_: int) -> bytes:
        begin = places[-1]
        places.append(begin + next(sizes))
        return pcm[begin : places[-1]]

    assert again == heard
    assert all_of(NoisySource(CallbackSource(read, RATE), seed=7, **line)) == heard
    assert all_of(NoisySource(clean, seed=8, **line)) != heard


def test_a_share_of_the_packets_is_lost() -> None:
    """A lost packet is silence, and the rest is as it was; the same ones are lost with noise and without."""
    clean = numbered(range(1, 2_001))

    def lost(snr_db: float | None) -> list[int]:
        heard = packets_of(all_of(NoisySource(BytesSource(clean, RATE), snr_db, loss=0.1, seed=3)))
        assert len(heard) == 2_000
        assert snr_db is not None or all(
            after in (before, bytes(PACKET)) for before, after in zip(packets_of(clean), heard, strict=True)
        )
        return [number for number, packet in enumerate(heard) if not any(packet)]

    assert len(lost(None)) == pytest.approx(200, abs=40)
    assert lost(None) == lost(20)


def test_all_can_be_lost() -> None:
    """A line can be dead."""
    assert all_of(NoisySource(BytesSource(tone(0.5), RATE), loss=1.0)) == silence(0.5)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("jitter", [0.02, 0.06, 0.2])
def test_packets_are_late(jitter: float, seed: int) -> None:
    """Late packets are played in order, and pauses make up for them: none is missing, and the length stays."""
    numbers, pause = [], [0] * 10
    for begin in range(1, 500, 50):
        numbers += [*range(begin, begin + 50), *pause]
    clean = numbered(numbers)

    heard = all_of(NoisySource(BytesSource(clean, RATE), jitter=jitter, seed=seed))

    assert len(heard) == len(clean)
    assert heard != clean
    assert numbers_of(heard) == [number for number in numbers if number]
    late = [
        heard_at - said_at
        for said_at, packet in enumerate(packets_of(clean))
        if any(packet)
        for heard_at in [packets_of(heard).index(packet)]
    ]
    assert min(late) >= 0
    assert 0 < max(late) <= round(50 * jitter)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_late_at_the_end_is_cut_off(seed: int) -> None:
    """Audio without a pause stays in order and keeps its length, and loses no more than the jitter at its end."""
    clean = numbered(range(1, 501))

    heard = all_of(NoisySource(BytesSource(clean, RATE), jitter=0.1, seed=seed))

    assert len(heard) == len(clean)
    numbers = numbers_of(heard)
    assert numbers == [*range(1, len(numbers) + 1)]
    assert 495 <= len(numbers) < 500


@pytest.mark.parametrize("jitter", [5e-324, 0.06, 10])
@pytest.mark.parametrize("rate", [11_025, 22_050, RATE])
def test_the_length_stays(rate: int, jitter: float) -> None:
    """Late audio has as many samples as the audio has, also where packets differ in size, and without clicks."""
    pcm = struct.pack("<h", 1_000) * (3 * rate)
    late = all_of(NoisySource(BytesSource(pcm, rate), jitter=jitter, seed=4))
    assert len(late) == len(pcm)
    edges = sum(one != other for one, other in zip(samples_of(late), samples_of(late)[1:], strict=False))
    assert edges <= 2 * 50 * 3 // 4  # only where a delay starts, and where it ends


def test_the_end_may_be_a_part_of_a_packet() -> None:
    """The length is kept to the sample."""
    clean = tone(0.5)[:-246]
    for line in ({}, {"snr_db": 10}, {"loss": 0.5}, {"jitter": 0.1}, {"snr_db": 10, "loss": 0.5, "jitter": 0.1}):
        source = NoisySource(BytesSource(clean, RATE), **line)
        assert len(all_of(source)) == len(clean)
        assert source.read(320) == b""
    assert all_of(NoisySource(BytesSource(clean, RATE))) == clean
    assert all_of(NoisySource(BytesSource(b"", RATE), snr_db=0, jitter=0.1)) == b""


@pytest.mark.parametrize("returned", [None, "ab", b"abc"])
def test_a_source_that_is_broken(returned: Any) -> None:
    """The mistake of a broken source is reported as without the line."""
    with pytest.raises((TypeError, ValueError), match=r"^read\(\) "):
        NoisySource(CallbackSource(lambda frames: returned, 8_000)).read(320)


def test_a_repr_names_the_line() -> None:
    """The source and all numbers are in it."""
    shown = "NoisySource(PushSource(), snr_db=10, loss=0.05, jitter=0.0, seed=3)"

    class Push(PushSource):
        def __repr__(self) -> str:
            return "PushSource()"

    assert repr(NoisySource(Push(), 10, loss=0.05, seed=3)) == shown


# -- in sessions ------------------------------------------------------------------------------------------------------


def test_a_question_over_a_bad_line(tmp_path) -> None:
    """A bot hears the same line each time, and when the question is over; `wait()` of the file knows it, too."""
    path = write_wav(tmp_path / "question.wav", [tone(0.6), silence(0.4)])
    question = WavSource(path)
    line = NoisySource(question, snr_db=5, loss=0.1, jitter=0.06, seed=2)
    for _ in range(2):
        with EmbeddedBot(transcripts="Hello") as bot:
            with connect(bot.ws_url, mic=False, speaker=False) as client:
                turn = client.ask(line)
                assert question.wait(GUARD)
            heard = bot.wait_for_session().audio
        assert turn.user_text == "Hello"
        # A thread reads the line, and silence is sent until its first read.
        assert heard.lstrip(b"\0").startswith(all_of(line).strip(b"\0"))
        line.close()


@pytest.mark.parametrize("rate", [8_000, 24_000])
def test_a_line_of_another_rate(rate: int) -> None:
    """A question is converted behind the line, or before it."""
    spoken = tone(0.6, rate)
    with EmbeddedBot(transcripts="Hello") as bot, connect(bot.ws_url, mic=False, speaker=False) as client:
        assert client.ask(NoisySource(BytesSource(spoken, rate), snr_db=10)).user_text == "Hello"
        before = ResamplingSource(BytesSource(spoken, rate), RATE)
        assert client.ask(NoisySource(before, snr_db=10)).user_text == "Hello"


def test_a_caller_on_a_bad_line() -> None:
    """Audio pushed as the microphone is heard with noise, all of it; `wait()` knows when the line has read it."""
    caller = PushSource(RATE)
    with EmbeddedBot() as bot, connect(bot.ws_url, mic=NoisySource(caller, snr_db=0), speaker=False):
        caller.push(numbered([1] * 25))
        assert caller.wait(GUARD)
        session = bot.wait_for_session()
        until(lambda: sum(map(bool, samples_of(session.audio))) > 24 * PACKET // 2, "the bot did not hear the caller")
        noise = {sample for sample in samples_of(session.audio) if sample}
    assert len(noise) > 100


def test_a_source_has_one_session() -> None:
    """A line counts as used while its source is in use."""
    source = SilenceSource()
    with (
        EmbeddedBot() as bot,
        connect(bot.ws_url, mic=NoisySource(source), speaker=False),
        pytest.raises(DeviceError, match="used by another session"),
    ):
        connect(bot.ws_url, mic=source, speaker=False)


def test_a_question_has_an_end() -> None:
    """A source without an end is refused, and one without audio, whatever reads it."""
    with EmbeddedBot() as bot, connect(bot.ws_url, mic=False, speaker=False) as client:
        with pytest.raises(ValueError, match="audio that ends, and a SilenceSource"):
            client.ask(NoisySource(ResamplingSource(NoisySource(SilenceSource()), 8_000)))
        with pytest.raises(ValueError, match="no audio: its length is 0"):
            client.ask(NoisySource(BytesSource(b"", RATE)))
