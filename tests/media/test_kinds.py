"""Kinds of devices that an application may choose."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import RTVIClient, WebSocketTransport
from rtvi_sync.errors import DeviceError
from rtvi_sync.media import BytesSource, CallbackSink, CallbackSource, MediaDeviceInfo, NullSink, WavSink, WavSource
from rtvi_sync.media.kinds import AudioFiles, choice_of, is_file_name
from tests.support.wavs import write_wav

pytestmark = pytest.mark.inside


@pytest.mark.parametrize("wrong", [42, b"bytes", object(), True, Path, io.BytesIO()])
def test_something_else_is_a_type_error(wrong):
    """A choice other than None, an id or an object of the right kind is refused at once, with an example."""
    with pytest.raises(TypeError, match="WavSource"):
        RTVIClient(mic=wrong)
    with pytest.raises(TypeError, match="WavSink"):
        RTVIClient(speaker=wrong)
    client = RTVIClient(transport=WebSocketTransport("ws://127.0.0.1:1"))
    with pytest.raises(TypeError, match="WavSource"):
        client.update_mic(wrong)


def test_a_device_is_its_id():
    """A device of the list stands for its id, whatever that looks like."""
    assert choice_of("mic", MediaDeviceInfo(device_id="a.wav", kind="audioinput", label="A")) == "a.wav"
    assert choice_of("mic", "ALSA/Headset: USB Audio (hw:1,0)") == "ALSA/Headset: USB Audio (hw:1,0)"
    for kind in ("mic", "cam"):
        assert choice_of(kind, "/dev/video0") == "/dev/video0"


@pytest.mark.parametrize("name", ["a.wav", "B.FLAC", "./a", "../a", "/a/b", "~/a", "C:\\a", ".\\a", "recordings/a.mp3"])
@pytest.mark.parametrize("kind", ["mic", "speaker"])
def test_the_name_of_a_file_is_no_device(kind, name):
    """A str names a device; the error explains how to pass a file."""
    with pytest.raises(ValueError, match=rf"{kind}=.* is the name of a file.* Pass {kind}=Path\(.*\) or {kind}=Wav"):
        choice_of(kind, name)


def test_the_name_of_a_file_that_exists(tmp_path, monkeypatch):
    """The name of a file that exists is a file, even without a suffix."""
    monkeypatch.chdir(tmp_path)
    assert choice_of("speaker", "answer") == "answer"
    (tmp_path / "answer").touch()
    with pytest.raises(ValueError, match="is the name of a file"):
        choice_of("speaker", "answer")
    assert choice_of("speaker", "an\0swer") == "an\0swer"


@pytest.mark.skipif(sys.platform == "win32", reason="there are no named pipes of this kind")
def test_a_pipe_is_a_file():
    """A pipe is a file, even below /dev, where shells name theirs; a device there is none."""
    reading, writing = os.pipe()
    name = f"/dev/fd/{reading}"
    assert is_file_name("mic", name)
    assert not is_file_name("cam", name)
    assert not is_file_name("mic", "/dev/null")
    os.close(reading)
    os.close(writing)


def test_functions():
    """A function is called by the source or the sink made of it."""
    source = choice_of("mic", lambda frames: b"\1\2" * frames)
    assert type(source) is CallbackSource
    assert (source.read(2), source.sample_rate_hz) == (b"\1\2\1\2", 16_000)
    heard = []
    sink = choice_of("speaker", lambda pcm, rate: heard.append((pcm, rate)))
    assert type(sink) is CallbackSink
    sink.write(b"ab", 24_000)
    assert heard == [(b"ab", 24_000)]


@pytest.mark.parametrize(
    ("kind", "function", "text"),
    [
        ("mic", lambda: b"", r"mic must be a function that can be called as mic\(frames\); <lambda> cannot"),
        ("mic", lambda frames, rate: b"", r"mic\(frames\)"),
        ("speaker", lambda pcm: None, r"speaker\(pcm, sample_rate_hz\)"),
    ],
)
def test_a_function_that_could_not_be_called(kind, function, text):
    """A function that could not be called is refused when it is chosen, not when the first audio arrives."""
    with pytest.raises(TypeError, match=text):
        RTVIClient({kind: function})


def test_a_generator_function():
    """A generator function is refused, because a call of it runs nothing and all audio would be lost."""

    def audio(*_: Any) -> Any:
        yield b""

    for kind in ("mic", "speaker"):
        with pytest.raises(TypeError, match=f"{kind} must be .* not a generator function"):
            RTVIClient({kind: audio})


def test_an_object_that_can_be_called_is_an_object():
    """An object with the method of a source is one, even if it can be called too."""

    class Both(BytesSource):
        def __call__(self):
            raise AssertionError

    both = Both(b"", 16_000)
    assert choice_of("mic", both) is both


def test_none_at_all():
    """False is no device: a speaker discards the audio."""
    assert choice_of("mic", False) is False
    assert choice_of("cam", False) is False
    assert type(choice_of("speaker", False)) is NullSink


def test_a_file_is_opened_when_it_is_needed(tmp_path):
    """The choice touches no file; opening it reports one that cannot be used."""
    path, files = tmp_path / "a.wav", AudioFiles()
    assert choice_of("mic", path) is path
    with pytest.raises(DeviceError, match="Cannot read"):
        files.open(path, "mic")
    write_wav(path, [b"\1\2"], 8000)
    source = files.open(path, "mic")
    assert isinstance(source, WavSource)
    assert files.open(path, "mic") is source
    sink = files.open(path, "speaker")
    assert isinstance(sink, WavSink)
    assert files.open(None, "mic") is None


def test_a_file_that_is_chosen_again(tmp_path, monkeypatch):
    """A recording is continued, after any other choices; a source is read again only if its file has changed."""
    one, two, files = tmp_path / "1.wav", tmp_path / "2.wav", AudioFiles()
    first, second = files.open(one, "speaker"), files.open(two, "speaker")
    assert (files.open(one, "speaker"), files.open(two, "speaker")) == (first, second)
    assert files.open(other := WavSink(one), "speaker") is files.open(one, "speaker") is other
    write_wav(one, [b"\1\2"], 16_000)
    source = files.open(one, "mic")
    one.unlink()
    assert files.open(one, "mic") is source
    write_wav(one, [b"\1\2\3\4"], 16_000)
    assert files.open(one, "mic").pcm == b"\1\2\3\4"
    monkeypatch.chdir(tmp_path)
    assert choice_of("mic", Path("1.wav")) == one
    assert files.open(given := WavSource("1.wav"), "mic") is files.open(one, "mic") is given


def test_a_file_has_the_rate_of_microphones(tmp_path):
    """Bots of Pipecat hear other rates too slowly, or too fast; a source of the application's stays as it is."""
    path, files = tmp_path / "a.wav", AudioFiles()
    write_wav(path, [bytes(2 * 4800)], 48_000)
    source = files.open(path, "mic")
    assert (source.sample_rate_hz, len(source.pcm)) == (16_000, 2 * 1600)
    given = WavSource(path)
    assert (given.sample_rate_hz, len(given.pcm)) == (48_000, 2 * 4800)
    assert files.open(given, "mic") is given
    assert files.open(path, "mic").sample_rate_hz == 16_000
    assert len(WavSource(path, 8_000).pcm) == 2 * 800
