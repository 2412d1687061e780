"""The backend with a PyAudio that reports where the real one would crash: errors, conversions, threads, restarts."""

from __future__ import annotations

import array
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rtvi_sync.errors import DeviceError, MissingExtraError
from rtvi_sync.media.devices import portaudio
from rtvi_sync.media.devices.portaudio_backend import PortAudioBackend, PortAudioOutput, backend
from tests.support.fake_portaudio import FakeDevice, FakeMachine, Owner, counted
from tests.support.slowness import GUARD

pytestmark = pytest.mark.inside

# -- devices -----------------------------------------------------------------------------------------------------------


def test_the_default_is_portaudios(machine: FakeMachine, audio: PortAudioBackend) -> None:
    """PortAudio says which it is, and says it has none by an error without a number."""
    del machine.defaults["audiooutput"]
    assert [info.device_id for info in audio.devices() if info.is_default] == ["ALSA/desk"]


def test_there_is_one_backend() -> None:
    """All clients of a process share the one PortAudio it has."""
    assert backend("pyaudio") is backend("pyaudio")


def test_where_no_process_can_be_started(
    machine: FakeMachine, audio: PortAudioBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a frozen application this process lists the devices; while a stream is open the list does not change."""
    monkeypatch.setattr(portaudio, "probe", lambda _: None)
    assert len(audio.devices()) == 2
    assert machine.alive == 0
    stream = audio.open_input(None, 16000, 0.02)
    machine.devices.append(FakeDevice("new", inputs=1))
    assert len(audio.devices()) == 2
    with pytest.raises(DeviceError):
        audio.open_input("ALSA/new", 16000, 0.02)
    stream.close()
    assert len(audio.devices()) == 3


def test_what_is_open_here_is_listed(machine: FakeMachine, audio: PortAudioBackend) -> None:
    """Hardware that this process uses, by ALSA and alone, is missing from the list of another process."""
    machine.devices = [FakeDevice("USB: Audio (hw:1,0)", inputs=1)]
    stream = audio.open_input("ALSA/USB: Audio (hw:1,0)", 16000, 0.02)
    machine.devices = []
    assert audio.devices() == [stream.device]
    stream.close()
    assert audio.devices() == []


def test_what_others_would_see_is_not_there_if_they_do_not(machine: FakeMachine, audio: PortAudioBackend) -> None:
    """A device of a sound server's was pulled out, and the server has moved the stream to another."""
    stream = audio.open_input("ALSA/desk", 16000, 0.02)
    machine.devices = []
    assert audio.devices() == []
    stream.close()


# -- opening -----------------------------------------------------------------------------------------------------------


def test_a_microphone(machine: FakeMachine, audio: PortAudioBackend) -> None:
    """A microphone is opened at the wanted rate, one channel and the period, and an overflow is no error."""
    stream = audio.open_input(None, 16000, 0.02)
    assert (stream.device.device_id, stream.sample_rate_hz) == ("ALSA/desk", 16000)
    assert stream.read() == counted(0, 320)
    assert stream.read() == counted(320, 320)
    assert stream.backlog() == 0.02
    (opened,) = machine.streams
    assert (opened.rate, opened.channels, opened.frames) == (16000, 1, 320)
    stream.close()
    stream.close()
    assert not opened.is_open


def test_a_speaker(machine: FakeMachine, audio: PortAudioBackend) -> None:
    """Written audio is played; the buffer holds three periods."""
    stream = audio.open_output("ALSA/box", 24000, 0.04)
    assert (stream.sample_rate_hz, stream.buffer, stream.room()) == (24000, 0.12, 0.12)
    stream.write(counted(0, 960))
    assert stream.room() == pytest.approx(0.08)
    assert machine.streams[0].queued == counted(0, 960)
    stream.close()


def test_an_index_is_looked_up_at_each_opening(machine: FakeMachine, audio: PortAudioBackend) -> None:
    """Indices move when devices are plugged in or out; names do not."""
    audio.open_input("ALSA/desk", 16000, 0.02).close()
    machine.devices.insert(0, FakeDevice("first", inputs=1))
    stream = audio.open_input("ALSA/desk", 16000, 0.02)
    assert [opened.device.name for opened in machine.streams] == ["desk", "desk"]
    stream.close()


def test_an_impossible_rate_is_refused(audio: PortAudioBackend) -> None:
    """A rate that is impossible is refused before PyAudio gets it."""
    with pytest.raises(ValueError, match="sample_rate_hz must be"):
        audio.open_input(None, 0, 0.02)


@pytest.mark.parametrize("is_mic", [True, False])
def test_a_device_that_is_not_there(
    machine: FakeMachine, audio: PortAudioBackend, monkeypatch: pytest.MonkeyPatch, is_mic: bool
) -> None:
    """The error lists the existing devices; PortAudio ends again. No other process is asked for the list just made."""
    audio.devices()
    monkeypatch.setattr(portaudio, "probe", lambda _: pytest.fail("asked"))
    with pytest.raises(DeviceError, match=r"There is no .*'ALSA/gone'.*ALSA/") as caught:
        (audio.open_input if is_mic else audio.open_output)("ALSA/gone", 24000, 0.04)
    assert (caught.value.type, caught.value.devices) == ("not-found", ("mic" if is_mic else "speaker",))
    assert machine.streams == []


def test_no_default_device(machine: FakeMachine, audio: PortAudioBackend) -> None:
    """Without a default microphone the error says so, though there are microphones."""
    machine.defaults.clear()
    with pytest.raises(DeviceError, match=r"default.*ALSA/desk") as caught:
        audio.open_input(None, 16000, 0.02)
    assert caught.value.type == "not-found"


def test_portaudio_does_not_begin(machine: FakeMachine, audio: PortAudioBackend) -> None:
    """An error at its start is one of the sound system."""

    def fail() -> None:
        raise OSError(-9999, "Unanticipated host error")

    machine.begin = fail
    with pytest.raises(DeviceError, match="sound server") as caught:
        audio.open_input(None, 16000, 0.02)
    assert caught.value.devices == ("mic", "speaker")


def test_portaudio_does_not_list(machine: FakeMachine, audio: PortAudioBackend) -> None:
    """PortAudio is terminated if it fails to list its devices."""
    audio.devices()

    def fail() -> None:
        raise OSError(-9996, "Invalid device info")

    machine.lists = fail
    with pytest.raises(DeviceError, match="Invalid device info"):
        audio.open_input(None, 16000, 0.02)
    assert (machine.begun, machine.alive) == (1, 0)


# -- refusals of a device ----------------------------------------------------------------------------------------------


def test_a_microphone_that_refuses_the_rate(machine: FakeMachine, audio: PortAudioBackend) -> None:
    """A microphone that refuses the rate is opened at its own; each read returns one period at the wanted one."""
    machine.devices[0].rates = {44100}
    stream = audio.open_input(None, 16000, 0.02)
    assert stream.sample_rate_hz == 16000
    assert {len(stream.read()) for _ in range(20)} == {640}
    assert machine.streams[0].rate == 44100
    assert 0.02 < stream.backlog() < 0.05  # the device's samples and the converted ones
    stream.close()


def test_a_microphone_that_refuses_the_rate_without_soxr(
    machine: FakeMachine, audio: PortAudioBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audio is delivered at the microphone's own rate, which bots take."""
    monkeypatch.setitem(sys.modules, "soxr", None)
    machine.devices[0].rates = {44100}
    stream = audio.open_input(None, 16000, 0.02)
    assert stream.sample_rate_hz == 44100
    assert stream.read() == counted(0, 882)
    stream.close()


def test_a_speaker_that_refuses_the_rate(machine: FakeMachine, audio: PortAudioBackend) -> None:
    """Written audio is converted to the speaker's own rate; only the filter's delay is lost."""
    machine.devices[1].rates = {44100}
    stream = audio.open_output(None, 24000, 0.04)
    assert stream.sample_rate_hz == 24000
    for _ in range(25):
        stream.write(bytes(1920))
    opened = machine.streams[0]
    assert opened.rate == 44100
    assert 44100 - 300 <= len(opened.played + opened.queued) / 2 <= 44100
    stream.close()


def test_dropping_what_is_converted(machine: FakeMachine, audio: PortAudioBackend) -> None:
    """The audio that the filter holds back is dropped too: later silence is silent."""
    machine.devices[1].rates = {44100}
    stream = audio.open_output(None, 24000, 0.04)
    stream.write(b"\x00\x60" * 960)
    stream.drop()
    stream.write(bytes(1920))
    heard = array.array("h", machine.streams[0].queued)
    assert len(heard) > 1700
    assert max(map(abs, heard)) < 10
    stream.close()


def test_a_speaker_that_refuses_the_rate_without_soxr(
    machine: FakeMachine, audio: PortAudioBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the command that installs the missing package; no stream stays open."""
    monkeypatch.setitem(sys.modules, "soxr", None)
    machine.devices[1].rates = {44100}
    with pytest.raises(MissingExtraError, match=r"install .*\[resample\]"):
        audio.open_output(None, 24000, 0.04)


def test_mono_refused(machine: FakeMachine, audio: PortAudioBackend) -> None:
    """A stereo microphone is mixed; both sides of a speaker play the same."""
    machine.devices = [FakeDevice("desk", inputs=2, channels={2}), FakeDevice("box", outputs=8, channels={2})]
    mic, speaker = audio.open_input(None, 16000, 0.02), audio.open_output(None, 24000, 0.04)
    assert mic.read() == counted(0, 320)
    speaker.write(b"\x01\x00\x02\x00\x03")
    assert machine.streams[1].queued == b"\x01\x00\x01\x00\x02\x00\x02\x00"
    assert speaker.room() == pytest.approx(0.12 - 2 / 24000)
    mic.close()
    speaker.close()


def test_everything_refused(machine: FakeMachine, audio: PortAudioBackend) -> None:
    """The last refusal is the error."""
    machine.devices[1].rates = set()
    with pytest.raises(DeviceError, match="Invalid sample rate") as caught:
        audio.open_output(None, 24000, 0.04)
    assert caught.value.type == "unknown"


# -- reading and writing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_of_any_kind_are_played(machine: FakeMachine, audio: PortAudioBackend, kind: Any) -> None:
    """PyAudio takes only bytes, and trusts the number of samples passed with them."""
    stream = audio.open_output(None, 24000, 0.04)
    stream.write(kind(b"\x01\x02\x03"))
    stream.write(kind(b""))
    stream.write(kind(b"\x01"))
    assert machine.streams[0].queued == b"\x01\x02"
    stream.close()


def test_errors_of_reading_and_writing(machine: FakeMachine, audio: PortAudioBackend) -> None:
    """Errors of reading and writing are typed; later calls fail too, the counts are 0, and closing works."""
    mic, speaker = audio.open_input(None, 16000, 0.02), audio.open_output(None, 24000, 0.04)
    for opened in machine.streams:
        opened.failing = OSError(-9999, "Unanticipated host error")
    for call in (mic.read, mic.read, lambda: speaker.write(bytes(2)), speaker.drop):
        with pytest.raises(DeviceError) as caught:
            call()
        assert caught.value.type == "unknown"
    assert (mic.backlog(), speaker.room()) == (0.0, 0.0)
    mic.close()
    speaker.close()


def test_dropping(machine: FakeMachine, audio: PortAudioBackend) -> None:
    """Audio in the buffer is not heard, and the device plays the next audio."""
    stream = audio.open_output(None, 24000, 0.04)
    stream.write(bytes(1920))
    stream.drop()
    stream.write(b"\x01\x02")
    opened = machine.streams[0]
    assert (opened.played, opened.queued, opened.is_started) == (b"", b"\x01\x02", True)
    stream.close()


# -- one PortAudio for all threads -------------------------------------------------------------------------------------


# -- a device that is plugged in later ---------------------------------------------------------------------------------


def test_dropped_sound_does_not_come_back(machine: FakeMachine, audio: PortAudioBackend, owner: Owner) -> None:
    """An interruption before the restart drops the unplayed audio."""
    speaker: PortAudioOutput = owner.do(audio.open_output, None, 24000, 0.04)
    owner.do(speaker.write, counted(0, 960))
    owner.do(speaker.drop)
    machine.devices.append(FakeDevice("new", inputs=1))
    with ThreadPoolExecutor(1) as opening:
        future = opening.submit(audio.open_input, "ALSA/new", 16000, 0.02)
        while not future.done():
            owner.do(speaker.write, b"")
        opening.submit(future.result().close).result(GUARD)
    owner.do(speaker.write, b"\x01\x00")
    assert machine.begun == 2
    assert machine.open_streams[-1].played + machine.open_streams[-1].queued == b"\x01\x00"
    owner.do(speaker.close)


# -- forks -------------------------------------------------------------------------------------------------------------


# -- packages that are not installed -----------------------------------------------------------------------------------
