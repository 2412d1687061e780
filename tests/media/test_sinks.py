"""Sinks without a session: the audio they keep, and their files."""

from __future__ import annotations

import array
import errno
import io
import math
import os
import shutil
import sys
import threading
import tracemalloc
import wave
from pathlib import Path
from typing import Any, cast

import pytest

from rtvi_sync import MemoryTransport, RTVIClient
from rtvi_sync.errors import DeviceError
from rtvi_sync.media import BytesSink, CallbackSink, NullSink, WavSink
from tests.support import limits
from tests.support.disks import full_disk
from tests.support.slowness import GUARD
from tests.support.waiting import until

DESCRIPTORS = Path("/proc/self/fd")
reads_descriptors = pytest.mark.skipif(not DESCRIPTORS.exists(), reason="the system does not tell what is open")


def descriptors_of(path: Path) -> list[int]:
    """Return the numbers by which this process has a file open."""
    return [int(entry.name) for entry in DESCRIPTORS.iterdir() if os.path.realpath(entry) == os.path.realpath(path)]


def read_wav(path) -> tuple[int, int, int, bytes]:
    with wave.open(str(path)) as reader:
        assert reader.getcomptype() == "NONE"
        frames = reader.readframes(reader.getnframes())
        assert path.stat().st_size == 44 + len(frames)
        return reader.getnchannels(), reader.getsampwidth(), reader.getframerate(), frames


def test_bytes_sink_keeps_everything():
    """The written audio is kept in order, with its rate; an interruption removes nothing."""
    sink = BytesSink()
    assert (sink.pcm, sink.sample_rate_hz) == (b"", None)
    sink.write(b"ab", 24000)
    sink.drop()
    sink.close()
    sink.write(b"cd", 24000)
    assert (sink.pcm, sink.sample_rate_hz) == (b"abcd", 24000)


def test_bytes_sink_refuses_another_rate():
    """Two rates in one buffer would be wrong audio without an error."""
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


def test_audio_that_does_not_fit_leaves_room_for_less():
    """A BytesSink that has refused audio takes less audio than that."""
    sink = BytesSink(max_bytes=4)
    sink.write(b"ab", 24000)
    with pytest.raises(DeviceError, match="full"):
        sink.write(b"cdef", 24000)
    sink.write(b"gh", 24000)
    assert sink.pcm == b"abgh"


def test_null_sink_takes_anything():
    """The sink that plays nothing never fails."""
    sink = NullSink()
    sink.write(b"ab", 1)
    sink.write(b"ab", 2)
    sink.drop()
    sink.close()


def test_callback_sink_calls_its_function():
    """The function gets audio and rate."""
    calls: list[tuple[bytes, int]] = []
    sink = CallbackSink(lambda pcm, rate: calls.append((pcm, rate)))
    sink.write(b"ab", 24000)
    sink.drop()
    sink.close()
    assert calls == [(b"ab", 24000)]


def test_callback_sink_calls_on_drop():
    """An interruption calls the second function, if there is one."""
    calls: list[str] = []
    CallbackSink(lambda pcm, rate: None, on_drop=lambda: calls.append("drop")).drop()
    assert calls == ["drop"]
    with pytest.raises(TypeError, match="fn must be"):
        CallbackSink(cast(Any, None))
    with pytest.raises(TypeError, match="on_drop must be"):
        CallbackSink(print, on_drop=cast(Any, 0))
    with pytest.raises(TypeError, match=r"fn\(pcm, sample_rate_hz\)"):
        CallbackSink(cast(Any, lambda pcm: None))
    with pytest.raises(TypeError, match=r"on_drop\(\)"):
        CallbackSink(print, on_drop=cast(Any, lambda pcm: None))


def test_wav_sink_is_valid_after_close_and_appends(tmp_path, is_open):
    """After each close() the file is complete and no descriptor is open; writing again appends."""
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


def test_a_wav_sink_whose_file_was_moved_away(tmp_path):
    """The next session has a file of its own, at its own rate; one without audio has none."""
    sink = WavSink(tmp_path / "call.wav")
    for rate in (24000, 16000, 8000):
        sink.write(b"ab" * rate, rate)
        sink.close()
        (tmp_path / "call.wav").rename(tmp_path / f"{rate}.wav")
        sink.close()
    sink.write(b"cd", 8000)
    sink.close()
    sink.write(b"ef", 8000)
    sink.close()
    assert read_wav(tmp_path / "call.wav") == (1, 2, 8000, b"cdef")
    for rate in (24000, 16000, 8000):
        assert read_wav(tmp_path / f"{rate}.wav") == (1, 2, rate, b"ab" * rate)


def test_a_wav_sink_whose_directory_is_away_for_a_while(tmp_path):
    """The error names the directory, and the recording is continued when it is back."""
    folder = tmp_path / "recordings"
    folder.mkdir()
    sink = WavSink(folder / "call.wav")
    sink.write(b"ab", 24000)
    sink.close()
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(DeviceError, match="Cannot write") as caught:
        sink.write(b"cd", 24000)
    assert caught.value.type == "not-found"
    (tmp_path / "elsewhere").rename(folder)
    sink.write(b"ef", 24000)
    sink.close()
    assert read_wav(folder / "call.wav") == (1, 2, 24000, b"abef")


def test_a_wav_sink_behind_a_link_whose_volume_is_away_for_a_while(tmp_path):
    """The directory of the link gets no file; the recording on the volume is continued when it is back."""
    folder, path = tmp_path / "volume", tmp_path / "call.wav"
    folder.mkdir()
    path.symlink_to(folder / "call.wav")
    sink = WavSink(path)
    sink.write(b"abcd", 24000)
    sink.close()
    folder.rename(tmp_path / "elsewhere")
    for _ in range(2):
        with pytest.raises(DeviceError, match="Cannot write") as caught:
            sink.write(b"ef", 24000)
        assert caught.value.type == "not-found"
        sink.close()
    (tmp_path / "elsewhere").rename(folder)
    sink.write(b"gh", 24000)
    sink.close()
    assert read_wav(path) == (1, 2, 24000, b"abcdgh")


def test_a_wav_sink_whose_directory_is_another_one_for_a_while(tmp_path):
    """A WAV sink gets a new file in a directory that is mounted for a while, and does not touch the returned file."""
    folder, path = tmp_path / "volume", tmp_path / "volume" / "call.wav"
    folder.mkdir()
    sink = WavSink(path)
    sink.write(b"abcd", 24000)
    sink.close()
    folder.rename(tmp_path / "elsewhere")
    folder.mkdir()
    sink.write(b"ef", 24000)
    sink.close()
    assert read_wav(path)[-1] == b"ef"
    folder.rename(tmp_path / "below")
    (tmp_path / "elsewhere").rename(folder)
    with pytest.raises(DeviceError, match="not the file that this WavSink has written"):
        sink.write(b"gh", 24000)
    sink.close()
    assert read_wav(path)[-1] == b"abcd"


def test_a_wav_sink_whose_file_was_replaced(tmp_path):
    """A file that may not be its recording is not touched; a copy of the recording is continued."""
    path, other = tmp_path / "call.wav", tmp_path / "other.wav"
    sink = WavSink(path)
    sink.write(b"abcd", 24000)
    sink.close()
    shutil.copy(path, other)
    other.replace(path)
    sink.write(b"ef", 24000)
    sink.close()
    assert read_wav(path) == (1, 2, 24000, b"abcdef")
    recording = path.read_bytes() * 2
    other.write_bytes(recording)
    other.replace(path)
    with pytest.raises(DeviceError, match="not the file that this WavSink has written"):
        sink.write(b"gh", 24000)
    sink.close()
    assert path.read_bytes() == recording
    assert not DESCRIPTORS.exists() or descriptors_of(path) == []
    path.unlink()
    sink.write(b"gh", 24000)
    sink.close()
    assert read_wav(path) == (1, 2, 24000, b"gh")


def test_a_wav_sink_whose_file_has_another_recording(tmp_path):
    """A file that another sink or program has overwritten with another recording is not touched."""
    path = tmp_path / "call.wav"
    first, second = WavSink(path), WavSink(path)
    for sink, pcm in ((first, b"abcd"), (second, b"efghij")):
        sink.write(pcm, 24000)
        sink.close()
    with pytest.raises(DeviceError, match="not the file that this WavSink has written"):
        first.write(b"kl", 24000)
    first.close()
    assert read_wav(path)[3] == b"efghij"
    second.write(b"kl", 24000)
    second.close()
    assert read_wav(path)[3] == b"efghijkl"


def test_a_file_has_one_lease_by_all_its_paths(tmp_path):
    """Two sinks of one file exclude each other, also if one of their paths leads over a link."""
    (tmp_path / "calls").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "calls")
    one, same, other = (WavSink(tmp_path / path) for path in ("calls/a.wav", "link/a.wav", "calls/b.wav"))
    assert one.lease_key == same.lease_key != other.lease_key


def test_a_new_wav_sink_truncates(tmp_path):
    """A new WAV sink overwrites the file."""
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


@pytest.mark.parametrize("library", [True, False], ids=["soxr", "without"])
@pytest.mark.parametrize("other", [8000, 16000, 44100, 48000])
def test_wav_sink_resamples_another_rate(tmp_path, monkeypatch, library, other):
    """Audio of another rate keeps its content and duration at the rate of the file; the rest is bit exact."""
    if library:
        pytest.importorskip("soxr")
    else:
        monkeypatch.setitem(sys.modules, "soxr", None)
    sink = WavSink(tmp_path / "a.wav")
    first, last = b"ab" * 480, b"cd" * 480
    sink.write(first, 24000)
    tone = array.array("h", (round(8000 * math.sin(2 * math.pi * 200 * n / other)) for n in range(other))).tobytes()
    chunk = 2 * (other // 50)
    for start in range(0, len(tone), chunk):
        sink.write(tone[start : start + chunk], other)
    sink.write(last, 24000)
    sink.close()
    pcm = read_wav(tmp_path / "a.wav")[3]
    assert (pcm[: len(first)], pcm[-len(last) :]) == (first, last)
    samples = array.array("h", pcm[len(first) : -len(last)])
    assert len(samples) == 24000
    expected = [8000 * math.sin(2 * math.pi * 200 * n / 24000) for n in range(24000)]
    middle = range(500, 23500)
    assert max(abs(samples[n] - expected[n]) for n in middle) < 80


def test_wav_sink_resamples_a_later_session(tmp_path):
    """A session at another rate is appended at the rate of the file, up to its last sample."""
    sink = WavSink(tmp_path / "a.wav")
    sink.write(b"ab", 24000)
    sink.close()
    sink.write(bytes(320), 8000)
    sink.close()
    *_, rate, pcm = read_wav(tmp_path / "a.wav")
    assert (rate, pcm[:2], len(pcm)) == (24000, b"ab", 2 + 960)


def test_wav_sink_needs_a_directory(tmp_path):
    """A wrong directory is reported by the constructor."""
    with pytest.raises(DeviceError, match="does not exist") as caught:
        WavSink(tmp_path / "nowhere" / "a.wav")
    assert caught.value.type == "not-found"
    assert caught.value.devices == ("speaker",)


def test_wav_sink_on_what_is_no_file(tmp_path):
    """A directory, a pipe, a file as directory and a name that is too long are reported by the constructor."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "nowhere").symlink_to(tmp_path / "absent" / "a.wav")
    for path in ("", "pipe", "file/a.wav", "x" * 300, "nowhere"):
        with pytest.raises(DeviceError, match="Cannot write") as caught:
            WavSink(tmp_path / path)
        assert caught.value.devices == ("speaker",)


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs a directory in which even root can create no file")
def test_wav_sink_where_even_root_may_not_write():
    """The constructor tries to open the file and does not rely on the permission bits."""
    with pytest.raises(DeviceError, match=r"Cannot create /proc/a\.wav"):
        WavSink("/proc/a.wav")


def test_wav_sink_changes_nothing_before_it_hears_something(tmp_path):
    """The constructor does not create or change a file."""
    (tmp_path / "old.wav").write_bytes(b"older")
    before = (tmp_path / "old.wav").stat()
    WavSink(tmp_path / "old.wav")
    WavSink(tmp_path / "new.wav")
    after = (tmp_path / "old.wav").stat()
    assert [path.name for path in tmp_path.iterdir()] == ["old.wav"]
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (before.st_size, before.st_mtime_ns, before.st_ino)


def test_wav_sink_is_readable_at_any_moment(tmp_path):
    """After each write the file opens as WAV and lacks 0.25 s at most, also where an older one was longer."""
    path = tmp_path / "a.wav"
    path.write_bytes(b"an older recording that is longer than the new one" * 5000)
    sink = WavSink(path)
    said = b""
    for number in range(200):
        said += bytes([number]) * 960
        sink.write(said[-960:], 24000)
        with wave.open(str(path)) as reader:
            kept = reader.readframes(10**9)
        assert said.startswith(kept)
        assert len(said) - len(kept) < 0.25 * 48000
    sink.close()
    assert read_wav(path) == (1, 2, 24000, said)


def test_wav_sink_survives_a_change_of_directory(tmp_path, monkeypatch):
    """A relative path is resolved by the constructor."""
    monkeypatch.chdir(tmp_path)
    sink = WavSink("a.wav")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    sink.write(b"ab", 24000)
    sink.close()
    assert read_wav(tmp_path / "a.wav")[3] == b"ab"


def test_wav_sink_stops_at_the_limit_of_the_format(tmp_path, monkeypatch):
    """A header cannot state more than 4 GiB, so the sink refuses to write more."""
    limits.patch(monkeypatch, wav_data=4)
    sink = WavSink(tmp_path / "a.wav")
    sink.write(b"abcd", 24000)
    with pytest.raises(DeviceError, match="4 GiB"):
        sink.write(b"ef", 24000)
    sink.close()
    assert read_wav(tmp_path / "a.wav")[3] == b"abcd"


def test_a_disk_that_fills_up_leaves_a_valid_file(tmp_path):
    """The file holds each sample that there was room for, and the one error names it."""
    path = tmp_path / "a.wav"
    sink = WavSink(path)
    sink.write(b"abcd", 24000)
    with full_disk(44 + 7):
        with pytest.raises(DeviceError, match=rf"^Cannot write {path}: "):
            sink.write(b"efgh", 24000)
        sink.close()
    assert read_wav(path)[3] == b"abcdef"


def test_a_write_that_failed_leaves_no_gap(tmp_path):
    """An application that continues after an error has the audio before and after it side by side."""
    sink = WavSink(tmp_path / "a.wav")
    sink.write(b"abcd", 24000)
    with full_disk(44 + 7), pytest.raises(DeviceError, match="Cannot write"):
        sink.write(b"efgh", 24000)
    sink.write(b"ij", 24000)
    sink.close()
    assert read_wav(tmp_path / "a.wav")[3] == b"abcdefij"


@pytest.mark.parametrize("room", [0, 20])
def test_a_disk_that_is_full_leaves_no_file(room, tmp_path):
    """A file without room for its header would not be valid."""
    sink = WavSink(tmp_path / "a.wav")
    with full_disk(room):
        with pytest.raises(DeviceError, match=r"Cannot write .*a\.wav"):
            sink.write(b"abcd", 24000)
        sink.close()
    assert not (tmp_path / "a.wav").exists()
    sink.write(b"abcd", 24000)
    sink.close()
    assert read_wav(tmp_path / "a.wav")[3] == b"abcd"


def test_another_file_in_the_place_of_the_recording_is_kept(tmp_path):
    """The sink refuses to append to a file that it has not written, and leaves it alone, however short it is."""
    path = tmp_path / "a.wav"
    sink = WavSink(path)
    sink.write(b"abcd", 24000)
    sink.close()
    path.write_text("my notes")
    with pytest.raises(DeviceError, match="it is not the file that this WavSink has written"):
        sink.write(b"efgh", 24000)
    sink.close()
    assert path.read_text() == "my notes"


def test_a_recording_that_could_not_be_completed(tmp_path, monkeypatch):
    """A recording goes on in its file, though that has the rest of a failed write."""
    broken = threading.Event()

    class Breaking(io.FileIO):
        def truncate(self, size: int | None = None) -> int:
            if broken.is_set():
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().truncate(size)

    monkeypatch.setattr(io, "FileIO", Breaking)
    path = tmp_path / "a.wav"
    sink = WavSink(path)
    sink.write(b"abcd", 24000)
    with full_disk(44 + 7), pytest.raises(DeviceError, match="Cannot write"):
        sink.write(b"efgh", 24000)
    broken.set()
    with pytest.raises(DeviceError, match="Cannot complete"):
        sink.close()
    broken.clear()
    sink.write(b"ij", 24000)
    sink.close()
    assert read_wav(path)[3] == b"abcdefij"


@reads_descriptors
def test_a_header_that_cannot_be_written(tmp_path):
    """A session's end that cannot complete the file fails, and leaves no descriptor open."""
    path = tmp_path / "a.wav"
    sink = WavSink(path)
    sink.write(b"ab", 24000)
    with full_disk(10), pytest.raises(DeviceError, match="Cannot complete"):
        sink.close()
    assert descriptors_of(path) == []


def test_a_session_whose_disk_fills_up(tmp_path, caplog):
    """One `device_error` and one error in the log name the file, which holds as much as there was room for."""
    transport, errors = MemoryTransport(audio=True), list[Any]()
    path = tmp_path / "a.wav"
    client = RTVIClient(transport=transport, mic=False, speaker=path, connect_timeout=GUARD)
    client.on("device_error", errors.append)
    with full_disk(44 + 1000):
        with client:
            transport.receive_audio(b"\1\2" * 2400, 24000)
            until(lambda: errors)
            transport.receive_audio(b"\1\2" * 2400, 24000)
        assert len(errors) == 1
    assert str(errors[0]).startswith(f"Cannot write {path}: ")
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == ["WavSink failed"]
    assert read_wav(path)[3] == b"\1\2" * 500


@pytest.mark.parametrize("name", ["answer.mp3", "ANSWER.OGG", "answer.mp4"])
def test_names_of_other_formats(name, tmp_path):
    """WAV data under such a name could not be played: it is refused where it is given."""
    path = tmp_path / name
    for refused in (lambda: WavSink(path), lambda: RTVIClient(speaker=path), lambda: RTVIClient().update_speaker(path)):
        with pytest.raises(ValueError, match=rf"{name} is the name of another format: end it in \.wav"):
            refused()
    RTVIClient(speaker=tmp_path / "answer.WAV")


def test_resampling_takes_little_memory(tmp_path):
    """A WavSink that gets audio of a low rate after a high one does not hold all of the converted audio."""
    pytest.importorskip("soxr")  # the other way is slow while memory is traced
    sink = WavSink(tmp_path / "a.wav")
    sink.write(b"ab", 384_000)
    sink.write(bytes(2 * 20), 1000)  # imports and objects made at first do not count
    tracemalloc.start()
    try:
        sink.write(bytes(2 * 20_000), 1000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    sink.close()
    size = (tmp_path / "a.wav").stat().st_size
    assert size > 2 * 20 * 384_000 * 0.99
    assert peak < size / 3


@reads_descriptors
def test_a_wav_sink_whose_descriptor_is_not_its_own_any_more(tmp_path):
    """A WavSink whose descriptor the application has closed leaves a file with the same number alone, and goes on."""
    sink = WavSink(tmp_path / "a.wav")
    sink.write(b"ab" * 24000, 24000)
    (number,) = descriptors_of(tmp_path / "a.wav")
    os.close(number)
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    if other != number:
        os.dup2(other, number)
        os.close(other)
    os.write(number, b"mine")
    sink.write(b"cd" * 24000, 24000)
    sink.close()
    assert os.pread(number, 100, 0) == b"mine"
    os.close(number)
    assert read_wav(tmp_path / "a.wav")[3] == b"ab" * 24000 + b"cd" * 24000
