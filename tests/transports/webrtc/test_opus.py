"""Opus: levels, concealment, and packets that cannot be decoded."""

from __future__ import annotations

import math
import random
import subprocess
import sys

import numpy as np
import pytest

from rtvi_sync.media.pcm import rms, samples_of
from rtvi_sync.media.resample import resample
from rtvi_sync.transports.webrtc import opus
from tests.audio.signals import alignment, speech
from tests.support import part_probes
from tests.support.slowness import GUARD

from .sounds import packets, tone

pytestmark = pytest.mark.inside


@pytest.mark.parametrize("rate", opus.RATES)
def test_the_level_stays(rate):
    """Mono audio stays as loud as it was at each rate of a source, within half a decibel."""
    decoder = opus.Decoder(24000)
    decoded = b"".join(map(decoder.decode, packets(rate, tone(rate, 0.4))))
    assert len(decoded) == 2 * round(24000 * 0.4)
    assert 20 * abs(math.log10(rms(decoded[9600:]) / rms(tone(24000, 0.3)))) < 0.5


def test_silence_is_silent():
    """Silence from the start becomes exact zeros, in a few bytes."""
    coded = packets(16000, bytes(16000))
    decoder = opus.Decoder(24000)
    assert max(map(abs, samples_of(b"".join(map(decoder.decode, coded))))) <= 2
    assert max(map(len, coded)) < 20


def test_a_lost_packet():
    """A tone goes on through a lost packet, whether the next packet is there or not."""
    coded = packets(16000, tone(16000, 0.4))
    for following in (coded[11], None):
        decoder = opus.Decoder(24000)
        before = [decoder.decode(packet) for packet in coded[:10]]
        made_up = decoder.conceal(following)
        assert len(made_up) == len(before[-1]) == 960
        assert rms(made_up) > 0.5 * rms(before[-1])


def test_what_cannot_be_decoded():
    """A damaged or an empty packet counts as lost."""
    decoder = opus.Decoder(24000)
    decoder.decode(packets(16000, tone(16000, 0.02))[0])
    assert len(decoder.decode(b"")) == 960
    assert len(decoder.decode(b"\x03")) == 960  # says that it has several frames, and has none


def test_what_cannot_be_encoded():
    """A frame of another length is an error that says so."""
    with pytest.raises(ValueError, match="cannot encode 10 bytes at 16000 Hz"):
        opus.Encoder(16000).encode(bytes(10))


AT_EXIT = """
import atexit
atexit.register(lambda: print(len(encoder.encode(decoder.decode(packet))) > 0))  # runs after weakref's own, made later
from rtvi_sync.transports.webrtc import opus
encoder, decoder = opus.Encoder(24000), opus.Decoder(24000)
packet = encoder.encode(bytes(960))
"""


def test_use_at_exit():
    """A session may be live when the interpreter exits: its coders still work while the exit ends it."""
    process = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, timeout=GUARD)
    assert (process.returncode, process.stdout, process.stderr) == (0, "True\n", "")


def test_without_libopus(monkeypatch):
    """Nothing is found: aiortc's own way is left."""
    part_probes.libopus_at(monkeypatch, "/nonexistent/libopus.so", "libc.so.6")
    opus.library.cache_clear()
    try:
        assert opus.library() is None
        with pytest.raises(RuntimeError, match="libopus"):
            opus.Decoder(24000)
    finally:
        opus.library.cache_clear()


def test_a_bit_rate():
    """A packet has as many bits as it may have, so that more of them sound better."""
    pcm = bytes(random.Random(1).randbytes(48000))
    sizes = []
    for bitrate in (8_000, None, 128_000):
        encoder = opus.Encoder(24000, bitrate)
        sizes.append(sum(len(encoder.encode(pcm[start : start + 960])) for start in range(0, len(pcm), 960)))
    assert sizes[0] < 1.3 * 8_000 / 8 < sizes[1] < sizes[2]


@pytest.mark.parametrize("per_second", [50, 100])
@pytest.mark.parametrize(("rate", "least"), [(8000, 0.995), (16000, 0.99), (24000, 0.99), (48000, 0.99)])
def test_speech_is_what_it_was(rate, least, per_second):
    """Decoded audio correlates with the speech, half a second at a time, so that a bot can understand it."""
    said = resample(speech(3.0).tobytes(), 24000, rate)
    decoder = opus.Decoder(24000)
    decoded = np.frombuffer(b"".join(map(decoder.decode, packets(rate, said, per_second))), np.int16)
    reference = np.frombuffer(resample(said, rate, 24000), np.int16)
    found = [
        alignment(decoded[begin : begin + 14000], reference[begin : begin + 12000])[0]
        for begin in range(12000, 48000, 12000)
    ]
    assert min(found) > least
