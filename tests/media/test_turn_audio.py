"""The audio of one side of a turn."""

from __future__ import annotations

import wave
from pathlib import Path

import pytest

from rtvi_sync import TurnAudio
from rtvi_sync.media import AudioFrame
from rtvi_sync.media.turn_audio import turn_audio_of


def frame(pcm: bytes, rate: int = 8000) -> AudioFrame:
    return AudioFrame(pcm=pcm, sample_rate_hz=rate, timestamp=0.0)


def test_joined() -> None:
    audio = turn_audio_of([frame(b"ab"), frame(b"cdef")])
    assert (audio.pcm, audio.sample_rate_hz, audio.seconds, audio.truncated) == (b"abcdef", 8000, 3 / 8000, False)
    assert audio
    assert "6 bytes" in repr(audio)


def test_none() -> None:
    """It is false, and can be saved."""
    assert not TurnAudio()
    assert turn_audio_of([], truncated=True).truncated
    assert TurnAudio().seconds == 0.0
    assert len(TurnAudio().wav) == 44


def test_up_to_a_limit() -> None:
    frames = [frame(b"ab" * 4000)] * 2
    assert turn_audio_of(frames, 1.0) == turn_audio_of(frames)
    cut = turn_audio_of(frames, 0.75)
    assert (len(cut.pcm), cut.truncated) == (12000, True)
    nothing = turn_audio_of(frames, 0)
    assert (nothing.pcm, nothing.sample_rate_hz, nothing.truncated) == (b"", 0, True)


def test_several_rates() -> None:
    """The first frame's rate is that of all."""
    audio = turn_audio_of([frame(bytes(160)), frame(bytes(320), 16_000)])
    assert audio.sample_rate_hz == 8000
    assert len(audio.pcm) == pytest.approx(320, abs=8)


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "turn.wav"
    TurnAudio(pcm=b"abcd", sample_rate_hz=24_000).save(path)
    with wave.open(str(path)) as file:
        assert (file.readframes(9), file.getframerate(), file.getnchannels()) == (b"abcd", 24_000, 1)


def test_numpy() -> None:
    numpy = pytest.importorskip("numpy")
    samples = TurnAudio(pcm=b"\1\0\2\0", sample_rate_hz=8000).to_numpy()
    assert samples.dtype == numpy.int16
    assert samples.flatten().tolist() == [1, 2]
