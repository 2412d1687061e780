"""Sources without a session: their content and their refusals."""

from __future__ import annotations

import math
import os
import struct
import threading
import wave
from typing import Any, cast

import pytest

from rtvi_sync import RTVIClient
from rtvi_sync.errors import DeviceError
from rtvi_sync.media import BytesSource, CallbackSource, SilenceSource, ToneSource, WavSource
from tests.support import limits
from tests.support.slowness import GUARD


def write_wav(path, data: bytes, rate: int = 16000, channels: int = 1) -> None:
    with wave.open(str(path), "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(data)


def test_wav_source_holds_the_file(tmp_path):
    """A WAV file is read once, bit exact, at its own rate; it may be deleted afterwards."""
    data = bytes(range(200))
    write_wav(tmp_path / "a.wav", data, 22050)
    source = WavSource(tmp_path / "a.wav")
    (tmp_path / "a.wav").unlink()
    assert source.sample_rate_hz == 22050
    assert source.read(60) + source.read(60) == data
    assert source.read(60) == b""
    source.close()
    assert source.read(1000) == data


def test_wav_source_without_a_file():
    """A wrong path is reported by the constructor, as a DeviceError that names it."""
    with pytest.raises(DeviceError, match=r"nowhere\.wav.*No such file") as caught:
        WavSource("nowhere.wav")
    assert caught.value.type == "not-found"
    assert caught.value.devices == ("mic",)
    assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_wav_source_with_a_path_that_no_system_has():
    """A path that is too long is reported in the same way by each Python, and is cut in the message."""
    with pytest.raises(DeviceError, match=r"(?m)^Cannot read the audio file x+…: File name too long$") as caught:
        WavSource("x" * 5000)
    assert len(str(caught.value)) < 1000


def test_wav_source_without_permission(tmp_path, monkeypatch):
    """A file that may not be read is reported as such."""

    def refuse(path, mode):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(DeviceError, match="Permission denied") as caught:
        WavSource(tmp_path / "a.wav")
    assert caught.value.type == "permissions"


def test_wav_source_of_something_else(tmp_path):
    """A file that is no WAV is refused with its name and the reason."""
    (tmp_path / "a.wav").write_text("Hello, this is a text.")
    with pytest.raises(DeviceError, match=r"a\.wav: it is not a WAV file"):
        WavSource(tmp_path / "a.wav")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="only systems of Unix have named pipes")
def test_wav_source_of_a_named_pipe(tmp_path):
    """A named pipe is refused at once, with or without a writer, and the error names an alternative."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DeviceError, match=r"pipe: it is a named pipe\. .*CallbackSource\(lambda frames: pipe\.read"):
        WavSource(tmp_path / "pipe")
    client = RTVIClient.for_url("ws://127.0.0.1:9/ws", mic=tmp_path / "pipe", speaker=False)
    with pytest.raises(DeviceError, match="named pipe"):
        client.connect()


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="the system has no paths of open files")
def test_wav_source_of_a_pipe_without_a_name(tmp_path):
    """A shell's argument for <(command) is read to its end."""
    write_wav(tmp_path / "a.wav", bytes(200))
    reader, writer = os.pipe()
    os.write(writer, (tmp_path / "a.wav").read_bytes())
    os.close(writer)
    try:
        assert WavSource(f"/dev/fd/{reader}").pcm == bytes(200)
    finally:
        os.close(reader)


def test_wav_source_is_bounded(tmp_path, monkeypatch):
    """A file over the limit is refused, and not read beyond it."""
    limits.patch(monkeypatch, wav_file=1 << 20)
    (tmp_path / "a.wav").write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(DeviceError, match="larger than 1 MiB"):
        WavSource(tmp_path / "a.wav")
    write_wav(tmp_path / "a.wav", bytes((1 << 20) - 44))
    assert WavSource(tmp_path / "a.wav").total_frames == (1 << 19) - 22


def test_bytes_source_refuses_half_a_sample():
    """An odd number of bytes cannot be 16-bit PCM."""
    with pytest.raises(ValueError, match="3 bytes"):
        BytesSource(b"abc", 16000)


def test_bytes_source_keeps_its_own_copy():
    """A buffer that changes later does not change the source."""
    buffer = bytearray(b"abcd")
    source = BytesSource(buffer, 16000)
    buffer[:] = b"wxyz"
    assert source.read(9) == b"abcd"


def test_silence_never_ends():
    """Silence has exactly the requested number of samples."""
    source = SilenceSource(8000)
    assert source.sample_rate_hz == 8000
    assert source.read(100_000) == source.read(100_000) == bytes(200_000)


@pytest.mark.parametrize(("frequency", "rate"), [(440, 16000), (1000.5, 24000), (123.4, 11025)])
def test_tone_is_a_sine_without_steps(frequency, rate):
    """The tone follows the sine over many repetitions of its table, in chunks of any size."""
    source = ToneSource(frequency, None, rate, volume=0.25)
    data = b"".join(source.read(frames) for frames in [1, 2, 3, 1000, 7, rate * 12])
    tone = struct.unpack(f"<{len(data) // 2}h", data)
    expected = (32767 * 0.25 * math.sin(2 * math.pi * frequency * i / rate) for i in range(len(tone)))
    assert max(abs(a - b) for a, b in zip(tone, expected, strict=True)) <= 1


@pytest.mark.parametrize("start", [*range(1600, 3300, 50), 16_100])
def test_a_tone_has_nothing_behind_its_end(start):
    """A tone of 0.1 s has no sample from position 1600 on, however far that is."""
    assert ToneSource(441, duration=0.1).samples(start, 320) == b""


def test_tone_has_its_duration():
    """A tone of 0.33 s at 11025 Hz has 3638 samples and then ends."""
    source = ToneSource(440, 0.33, 11025)
    assert len(source.read(100_000)) == 2 * 3638
    assert source.read(1) == b""


@pytest.mark.parametrize(
    "arguments",
    [
        (0,),
        (0.05,),
        (8000,),
        (-1,),
        (math.inf,),
        (math.nan,),
        (440, -1),
        (440, math.inf),
        (440, math.nan),
        (440, 1, 0),
        (440, 1, 16000, 1.1),
    ],
)
def test_tone_refuses_nonsense(arguments):
    """Arguments out of range raise ValueError at construction."""
    with pytest.raises(ValueError, match=r"must lie|must be|sample rate"):
        ToneSource(*arguments)


def test_callback_source_calls_its_function():
    """read() passes the number of samples on and returns the function's result."""
    source = CallbackSource(lambda frames: b"ab" * frames, 8000)
    assert source.read(3) == b"ababab"
    assert source.sample_rate_hz == 8000
    with pytest.raises(TypeError, match=r"fn\(frames\)"):
        CallbackSource(cast(Any, lambda: b""))


def test_wait_without_a_session_returns_at_once():
    """wait() never waits for a session to start."""
    assert BytesSource(b"", 16000).wait() is False


def test_wait_times_out(talk):
    """wait() returns after its limit if the source is not complete."""
    source = ToneSource(440, 1.0)
    talk(mic=source).begin()
    assert source.wait(0.01) is False


@pytest.mark.parametrize("source", [ToneSource(440, 1.0), CallbackSource(lambda frames: bytes(2 * frames))])
def test_wait_returns_false_when_the_session_ends_first(talk, source):
    """A thread in wait() without a limit is woken by the end of the session."""
    session = talk(mic=source).begin()
    answers: list[bool] = []
    waiter = threading.Thread(target=lambda: answers.append(source.wait()))
    waiter.start()
    session.manager.stop(5.0)
    waiter.join(GUARD)
    assert answers == [False]
    assert source.wait() is False


def test_wait_belongs_to_the_session_it_began_in(talk, timer):
    """Each session sends the source from its start, and wait() returns the result of the current one."""
    source = ToneSource(440, 0.1)
    session = talk(mic=source).begin()
    timer.advance(0.2)
    assert source.wait() is True
    session.manager.stop(1.0)
    assert source.wait() is True
    session.begin()
    assert source.wait(0) is False
    timer.advance(0.2)
    assert source.wait() is True
