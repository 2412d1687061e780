"""Sinks on their own: what they keep and how their files look."""

from __future__ import annotations

import os
import wave

import pytest

from rtvi_sync.errors import DeviceError
from rtvi_sync.media import BytesSink, CallbackSink, NullSink, WavSink


def read_wav(path) -> tuple[int, int, int, bytes]:
    with wave.open(str(path)) as reader:
        assert reader.getcomptype() == "NONE"
        frames = reader.readframes(reader.getnframes())
        assert path.stat().st_size == 44 + len(frames)
        return reader.getnchannels(), reader.getsampwidth(), reader.getframerate(), frames


def test_bytes_sink_keeps_everything():
    """What was written is there, in order, with its rate; an interruption takes nothing back."""
    sink = BytesSink()
    assert (sink.pcm, sink.sample_rate_hz) == (b"", None)
    sink.write(b"ab", 24000)
    sink.drop()
    sink.close()
    sink.write(b"cd", 24000)
    assert (sink.pcm, sink.sample_rate_hz) == (b"abcd", 24000)


def test_bytes_sink_refuses_another_rate():
    """Two rates in one buffer would be silently wrong audio."""
    sink = BytesSink()
    sink.write(b"ab", 24000)
    with pytest.raises(DeviceError, match="24000 to 16000"):
        sink.write(b"cd", 16000)
    assert sink.pcm == b"ab"


def test_bytes_sink_is_bounded():
    """A bot that never stops does not fill the memory."""
    sink = BytesSink(max_bytes=4)
    sink.write(b"abcd", 24000)
    with pytest.raises(DeviceError, match=r"full \(4 bytes\)"):
        sink.write(b"ef", 24000)
    assert sink.pcm == b"abcd"


def test_null_sink_takes_anything():
    """The sink that plays nothing never fails."""
    sink = NullSink()
    sink.write(b"ab", 1)
    sink.write(b"ab", 2)
    sink.drop()
    sink.close()


def test_callback_sink_calls_its_function():
    """Audio and rate reach the function."""
    calls: list[tuple[bytes, int]] = []
    sink = CallbackSink(lambda pcm, rate: calls.append((pcm, rate)))
    sink.write(b"ab", 24000)
    sink.drop()
    sink.close()
    assert calls == [(b"ab", 24000)]


def test_wav_sink_is_valid_after_close_and_appends(tmp_path, is_open):
    """After each close() the file is whole and no descriptor is open; writing again appends."""
    path = tmp_path / "a.wav"
    path.write_bytes(b"an older recording that is longer than the new one" * 10)
    sink = WavSink(path)
    for expected in (b"abcd", b"abcdabcd", b"abcdabcdabcd"):
        sink.write(b"ab", 24000)
        assert is_open(path)
        sink.write(b"cd", 24000)
        sink.close()
        sink.close()
        assert read_wav(path) == (1, 2, 24000, expected)
        assert not is_open(path)


def test_a_new_wav_sink_truncates(tmp_path):
    """Another object begins the file anew."""
    for data in (b"abcdef", b"gh"):
        sink = WavSink(str(tmp_path / "a.wav"))
        sink.write(data, 16000)
        sink.close()
    assert read_wav(tmp_path / "a.wav") == (1, 2, 16000, b"gh")


def test_a_wav_sink_that_heard_nothing(tmp_path):
    """A silent session leaves a valid, empty file, and the next one sets the rate."""
    path = tmp_path / "a.wav"
    path.write_bytes(b"older")
    sink = WavSink(path)
    sink.close()
    assert read_wav(path) == (1, 2, 24000, b"")
    sink.write(b"ab", 16000)
    sink.close()
    assert read_wav(path) == (1, 2, 16000, b"ab")


def test_wav_sink_refuses_another_rate(tmp_path):
    """When the rate changes the file stays valid with what it had."""
    sink = WavSink(tmp_path / "a.wav")
    sink.write(b"ab", 24000)
    with pytest.raises(DeviceError, match="24000 to 16000"):
        sink.write(b"cd", 16000)
    sink.close()
    assert read_wav(tmp_path / "a.wav") == (1, 2, 24000, b"ab")


def test_wav_sink_needs_a_directory(tmp_path):
    """A wrong directory shows where it was written."""
    with pytest.raises(DeviceError, match="does not exist") as caught:
        WavSink(tmp_path / "nowhere" / "a.wav")
    assert caught.value.type == "not-found"
    assert caught.value.devices == ("speaker",)


def test_wav_sink_on_a_directory(tmp_path):
    """What cannot be opened for writing is a DeviceError with the name, from write() and close() alike."""
    sink = WavSink(tmp_path)
    with pytest.raises(DeviceError, match=f"Cannot write {tmp_path}"):
        sink.write(b"ab", 24000)
    with pytest.raises(DeviceError, match=f"Cannot complete {tmp_path}"):
        sink.close()


def test_wav_sink_survives_a_change_of_directory(tmp_path, monkeypatch):
    """A relative path means the directory at construction."""
    monkeypatch.chdir(tmp_path)
    sink = WavSink("a.wav")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    sink.write(b"ab", 24000)
    sink.close()
    assert read_wav(tmp_path / "a.wav")[3] == b"ab"


def test_wav_sink_stops_at_the_limit_of_the_format(tmp_path, monkeypatch):
    """A header cannot say more than 4 GiB, so the sink refuses to write more."""
    monkeypatch.setattr("rtvi_sync.media.pcm.MAX_WAV_DATA_BYTES", 4)
    sink = WavSink(tmp_path / "a.wav")
    sink.write(b"abcd", 24000)
    with pytest.raises(DeviceError, match="4 GiB"):
        sink.write(b"ef", 24000)
    sink.close()
    assert read_wav(tmp_path / "a.wav")[3] == b"abcd"


def test_a_disk_that_fills_up_leaves_a_valid_file(tmp_path, monkeypatch):
    """A piece of which only a part could be written is cut off again."""
    sink = WavSink(tmp_path / "a.wav")
    sink.write(b"abcd", 24000)
    fd = sink._file.fileno()

    def write_half(file, data):
        os.write(fd, bytes(data)[: len(data) // 2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("rtvi_sync.media.sinks._write_all", write_half)
        with pytest.raises(DeviceError, match="No space left"):
            sink.write(b"efgh", 24000)
    sink.close()
    assert read_wav(tmp_path / "a.wav")[3] == b"abcd"
