"""The audio of one side of a turn."""

from __future__ import annotations

import base64
import signal
import tracemalloc
import wave
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import DeviceError, MissingExtraError, TurnAudio, UsageError
from rtvi_sync.media import AudioFrame
from rtvi_sync.media.turn_audio import turn_audio_of
from tests.support.disks import full_disk
from tests.support.fake_devices import FakeBackend, FakeOutput
from tests.support.scripted_talk import tone
from tests.support.threads import media_threads, running
from tests.support.waiting import until

pytestmark = pytest.mark.inside


def frame(pcm: bytes, rate: int = 8000) -> AudioFrame:
    return AudioFrame(pcm=pcm, sample_rate_hz=rate, timestamp=0.0)


def test_joined() -> None:
    """Frames of audio are joined into one piece, which has their rate and length."""
    audio = turn_audio_of([frame(b"ab"), frame(b"cdef")])
    assert (audio.pcm, audio.sample_rate_hz, audio.seconds, audio.truncated) == (b"abcdef", 8000, 3 / 8000, False)
    assert audio
    assert "6 bytes" in repr(audio)


def test_in_a_notebook() -> None:
    """In a notebook audio is a player with all of it, and a plain repr if there is none."""
    audio = TurnAudio(pcm=b"abcdef", sample_rate_hz=8000)
    html = audio._repr_html_() or ""
    assert html.startswith('<audio controls src="data:audio/wav;base64,')
    assert base64.b64decode(html.split(",")[1].split('"')[0]) == audio.wav
    assert TurnAudio()._repr_html_() is None


def test_none() -> None:
    """No audio is false, and has no bytes beside a header."""
    assert not TurnAudio()
    assert turn_audio_of([], truncated=True).truncated
    assert TurnAudio().seconds == 0.0
    assert len(TurnAudio().wav) == 44


def test_up_to_a_limit() -> None:
    """Audio over the limit in seconds is cut off, and marked as truncated."""
    frames = [frame(b"ab" * 4000)] * 2
    assert turn_audio_of(frames, 1.0) == turn_audio_of(frames)
    cut = turn_audio_of(frames, 0.75)
    assert (len(cut.pcm), cut.truncated) == (12000, True)
    nothing = turn_audio_of(frames, 0)
    assert (nothing.pcm, nothing.sample_rate_hz, nothing.truncated) == (b"", 0, True)


def test_a_low_rate_does_not_fill_the_memory() -> None:
    """Audio that grows some hundred times when it is converted, is converted up to the limit."""
    frames = [frame(tone(0.01), 384_000), frame(b"ab" * 50_000, 1000)]
    tracemalloc.start()
    try:
        audio = turn_audio_of(frames, 1.0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (audio.seconds, audio.truncated) == (1.0, True)
    assert peak < 16e6  # all of it takes 38 MB


def test_several_rates() -> None:
    """The first frame's rate applies to all."""
    audio = turn_audio_of([frame(bytes(160)), frame(bytes(320), 16_000)])
    assert audio.sample_rate_hz == 8000
    assert len(audio.pcm) == pytest.approx(320, abs=8)


def test_frames_of_another_rate_meet_without_a_click() -> None:
    """A tone in frames of 20 ms is that tone at the other rate, with noise 60 dB below it, as long as before."""
    np = pytest.importorskip("numpy")
    pytest.importorskip("soxr")

    def sines(rate: int, seconds: float) -> Any:
        return 12_000 * np.sin(2 * np.pi * 440 * np.arange(round(seconds * rate)) / rate)

    spoken = sines(16_000, 1.0).astype("<i2").tobytes()
    frames = [frame(spoken[begin : begin + 640], 16_000) for begin in range(0, len(spoken), 640)]
    first = frame(b"ab" * 480, 24_000)
    samples = np.frombuffer(turn_audio_of([first, *frames, first, *frames]).pcm, "<i2").astype(float)
    assert len(samples) == pytest.approx(2 * 24_480, abs=2)
    for begin in (480, 24_960):
        out = samples[begin : begin + 24_000][240:-240]  # a tone is not pure at its start and its end
        basis = np.stack([sines(24_000, 1.0), np.roll(sines(24_000, 1.0), 1)], axis=1)[240:-240]
        fitted = basis @ np.linalg.lstsq(basis, out, rcond=None)[0]
        assert 10 * np.log10(np.sum(fitted**2) / np.sum((out - fitted) ** 2)) > 60


def test_a_file(tmp_path: Path) -> None:
    """`save()` writes the audio as a WAV file."""
    path = tmp_path / "turn.wav"
    TurnAudio(pcm=b"abcd", sample_rate_hz=24_000).save(path)
    with wave.open(str(path)) as file:
        assert (file.readframes(9), file.getframerate(), file.getnchannels()) == (b"abcd", 24_000, 1)


@pytest.mark.parametrize(
    ("audio", "why"),
    [(TurnAudio(), "this side of the turn was not"), (TurnAudio(truncated=True), "max_turn_audio")],
)
def test_no_audio_makes_no_file(audio: TurnAudio, why: str, tmp_path: Path) -> None:
    """The error says that there is none, and why."""
    path = tmp_path / "turn.wav"
    with pytest.raises(UsageError, match=rf"^There is no audio to save in {path}: .*{why}"):
        audio.save(path)
    assert not path.exists()


def test_a_name_of_another_format(tmp_path: Path) -> None:
    """A WAV file is not written under it."""
    with pytest.raises(ValueError, match=r"turn\.mp3 is the name of another format: end it in \.wav"):
        TurnAudio(pcm=b"abcd", sample_rate_hz=24_000).save(tmp_path / "turn.mp3")


def test_a_full_disk(tmp_path: Path) -> None:
    """The error names the file, which holds as much as there was room for; without room for a header there is none."""
    audio, path = TurnAudio(pcm=b"abcdefgh", sample_rate_hz=24_000), tmp_path / "turn.wav"
    with full_disk(44 + 5), pytest.raises(OSError, match=rf"'{path}'"):
        audio.save(path)
    with wave.open(str(path)) as file:
        assert file.readframes(9) == b"abcd"
    with full_disk(40), pytest.raises(OSError, match=rf"'{path}'"):
        audio.save(path)
    assert not path.exists()


def test_numpy() -> None:
    """`to_numpy()` returns the samples as 16-bit integers."""
    numpy = pytest.importorskip("numpy")
    samples = TurnAudio(pcm=b"\1\0\2\0", sample_rate_hz=8000).to_numpy()
    assert samples.dtype == numpy.int16
    assert samples.flatten().tolist() == [1, 2]


class Loudspeaker(FakeBackend):
    """A machine with one loudspeaker."""

    def __init__(self) -> None:
        super().__init__()
        self.rates: list[int] = []

    def open_output(self, device_id: str | None, sample_rate_hz: int, period: float) -> FakeOutput:
        self.rates.append(sample_rate_hz)
        return super().open_output(device_id, sample_rate_hz, period)

    @property
    def voice(self) -> bytes:
        """All that it was given, without silence."""
        return bytes(self.heard.get("fake/speaker_a", b"")).replace(b"\0\0", b"")


class TestPlay:
    @pytest.fixture
    def machine(self, monkeypatch: pytest.MonkeyPatch) -> Loudspeaker:
        machine = Loudspeaker()
        monkeypatch.setattr("rtvi_sync.media.turn_audio.audio_backend", lambda: machine)
        return machine

    @pytest.mark.parametrize("rate", [16_000, 24_000])
    def test_it_returns_when_all_was_played(self, machine: Loudspeaker, rate: int) -> None:
        """The loudspeaker is opened with the rate of the audio, and closed."""
        pcm = tone(0.3)
        TurnAudio(pcm=pcm, sample_rate_hz=rate).play()
        assert machine.voice == pcm
        assert (set(machine.rates), machine.open, media_threads()) == ({rate}, [], [])

    def test_none(self, machine: Loudspeaker) -> None:
        """Nothing to play opens no loudspeaker."""
        TurnAudio().play()
        assert machine.opened == []

    def test_a_long_one(self, machine: Loudspeaker, monkeypatch: pytest.MonkeyPatch) -> None:
        """Audio up to `max_turn_audio` is never dropped."""
        monkeypatch.setattr(FakeOutput, "_pace", lambda *_: None)  # it plays faster than in real time
        pcm = tone(130.0)
        TurnAudio(pcm=pcm, sample_rate_hz=24_000).play()
        assert machine.voice == pcm

    def test_on_another_thread(self, machine: Loudspeaker) -> None:
        """`play()` works on another thread than the main one."""
        with running(TurnAudio(pcm=tone(0.1), sample_rate_hz=24_000).play):
            pass
        assert machine.voice == tone(0.1)

    def test_ctrl_c_stops_the_sound(self, machine: Loudspeaker) -> None:
        """Ctrl-C during `play()` stops the sound, and leaves nothing open."""

        def interrupt() -> None:
            until(lambda: machine.voice)
            signal.raise_signal(signal.SIGINT)

        with running(interrupt), pytest.raises(KeyboardInterrupt):
            TurnAudio(pcm=tone(60.0), sample_rate_hz=24_000).play()
        assert (machine.open, media_threads()) == ([], [])
        assert len(machine.voice) < len(tone(60.0))

    def test_no_loudspeaker(self, machine: Loudspeaker) -> None:
        """`play()` on a machine without a loudspeaker raises an error of type "not-found"."""
        machine.there = []
        with pytest.raises(DeviceError) as raised:
            TurnAudio(pcm=tone(0.1), sample_rate_hz=24_000).play()
        assert raised.value.type == "not-found"

    def test_no_pyaudio(self, machine: Loudspeaker, monkeypatch: pytest.MonkeyPatch) -> None:
        """`play()` without the extra "audio" raises an error that names it."""

        def open_output(*_: object) -> FakeOutput:
            raise MissingExtraError("Playing audio", "audio")

        monkeypatch.setattr(machine, "open_output", open_output)
        with pytest.raises(MissingExtraError, match=r"\[audio\]"):
            TurnAudio(pcm=tone(0.1), sample_rate_hz=24_000).play()

    def test_the_loudspeaker_fails(self, machine: Loudspeaker) -> None:
        """A loudspeaker that fails during `play()` makes it raise the error of the device."""

        def unplug() -> None:
            until(lambda: machine.voice)
            machine.broken["fake/speaker_a"] = DeviceError("It was unplugged", devices=("speaker",))

        with running(unplug), pytest.raises(DeviceError, match="unplugged"):
            TurnAudio(pcm=tone(60.0), sample_rate_hz=24_000).play()
        assert (machine.open, media_threads()) == ([], [])
