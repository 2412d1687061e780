"""Devices chosen by a part of their names."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from rtvi_sync import RTVIClient, RTVIError
from rtvi_sync.cli import device_choice as choice
from rtvi_sync.cli.device_choice import suppress_device_logs
from rtvi_sync.media import MediaDeviceInfo, NullSink, WavSink, WavSource
from tests.support.wavs import write_wav

pytestmark = pytest.mark.inside


def devices(kind: str, *names: str) -> list[MediaDeviceInfo]:
    """Return descriptions of devices."""
    return [MediaDeviceInfo(device_id=f"ALSA/{name}", kind=kind, label=name) for name in names]


MICS = devices("audioinput", "USB Headset", "USB Camera", "Built-in")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give this machine three microphones and a speaker."""
    monkeypatch.setattr(RTVIClient, "get_all_mics", lambda _: MICS)
    monkeypatch.setattr(RTVIClient, "get_all_speakers", lambda _: devices("audiooutput", "Built-in"))


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("ALSA/USB Camera", "ALSA/USB Camera"), ("headset", "ALSA/USB Headset"), ("ALSA/b", "ALSA/Built-in")],
)
@pytest.mark.usefixtures("machine")
def test_a_part_of_a_name_chooses_a_device(wanted: str, found: str) -> None:
    """Case does not matter, and the part may be of the id or of the label."""
    assert choice.select_mic(wanted) == found


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ("usb", "Several microphones match 'usb'. Available: ALSA/USB Headset, ALSA/USB Camera."),
        ("hat", "No microphone matches 'hat'. Available: ALSA/USB Headset, ALSA/USB Camera, ALSA/Built-in."),
    ],
)
@pytest.mark.usefixtures("machine")
def test_an_ambiguous_or_unknown_name_is_an_error(wanted: str, told: str) -> None:
    """The error lists the candidates."""
    with pytest.raises(RTVIError, match=told):
        choice.select_mic(wanted)


def test_a_name_on_a_machine_without_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the likely cause."""
    monkeypatch.setattr(RTVIClient, "get_all_mics", lambda _: [])
    with pytest.raises(RTVIError, match=r"Available: none\. Is the sound server running\?"):
        choice.select_mic("mic_a")


@pytest.mark.usefixtures("machine")
def test_files_and_none_can_be_chosen(one_word: Path, tmp_path: Path) -> None:
    """A WAV file stands for each device; "default" and "none" are special."""
    assert isinstance(choice.select_mic(str(one_word)), WavSource)
    assert isinstance(choice.select_speaker(str(tmp_path / "OUT.WAV")), WavSink)
    assert choice.select_mic("default") is choice.select_speaker("default") is choice.select_mic("none") is None
    assert isinstance(choice.select_speaker("none"), NullSink)
    assert choice.select_speaker("built") == "ALSA/Built-in"


def test_a_file_is_converted_to_the_rate_of_bots(tmp_path: Path) -> None:
    """A file is converted to the rate of bots, which would hear another one too slowly or too fast."""
    source = choice.select_mic(str(write_wav(tmp_path / "fast.wav", [bytes(9600)], 48_000)))
    assert isinstance(source, WavSource)
    assert (source.sample_rate_hz, len(source.pcm)) == (16_000, 3200)


@pytest.mark.parametrize("wanted", ["missing.wav", "missing.flac", "./missing"])
def test_a_file_that_is_missing(wanted: str) -> None:
    """The error is about the file; no device is looked for."""
    with pytest.raises(RTVIError, match=r"Cannot read the audio file missing.*: No such file"):
        choice.select_mic(wanted)


def test_a_speaker_is_no_file_of_another_format(tmp_path: Path) -> None:
    """A player could not play a WAV file under the name of another format, so such a name is refused."""
    with pytest.raises(RTVIError, match=r"--speaker: A WAV file would be written, but .*out.mp3"):
        choice.select_speaker(str(tmp_path / "out.mp3"))


def test_the_next_device_goes_round() -> None:
    """Each is followed by the next, a missing device or a file by the first; never by itself."""
    first, second, third = MICS
    gone = devices("audioinput", "gone")[0]
    pairs = [(first, second), (third, first), (gone, first), (None, first)]
    assert [choice.next_device(MICS, current) for current, _ in pairs] == [following for _, following in pairs]
    assert choice.next_device([first], first) is None
    assert choice.next_device([], first) is None


def test_device_logs_are_suppressed_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """The logs of devices and the stacks of blocked threads are suppressed, and afterwards appear again."""
    loggers = [logging.getLogger(f"rtvi_sync.{name}") for name in ("media.media", "concurrency.lifecycle")]
    with suppress_device_logs():
        for logger in loggers:
            logger.error("not seen")
    for logger in loggers:
        logger.error("seen")
    assert [record.getMessage() for record in caplog.records] == ["seen", "seen"]
