"""The backend with a PyAudio that reports where the real one would crash: errors, conversions, threads, restarts."""

from __future__ import annotations

import array
import importlib.util
import os
import platform
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync.errors import DeviceError, MissingExtraError
from rtvi_sync.media.devices import audio_errors, portaudio
from rtvi_sync.media.devices.audio_errors import crashed
from rtvi_sync.media.devices.device_probe import describe
from rtvi_sync.media.devices.probing import PortAudioDevice, parse_devices
from rtvi_sync.media.devices.pyaudio_backend import PyAudioBackend, PyAudioInput, PyAudioOutput, backend
from tests.support.fake_pyaudio import FakeDevice, FakeMachine, FakePyAudio
from tests.support.forking import in_child
from tests.support.slowness import GUARD

SOON = GUARD


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMachine]:
    """A machine with a microphone and a speaker; nothing that would have crashed it may happen, nothing stay begun."""
    machine = FakeMachine(
        devices=[FakeDevice("desk", inputs=1), FakeDevice("box", outputs=2)],
        defaults={"audioinput": "desk", "audiooutput": "box"},
    )
    monkeypatch.setitem(sys.modules, "pyaudio", machine.module)
    monkeypatch.setattr(portaudio, "probe", lambda: probed(machine))
    yield machine
    assert machine.crashes == []
    assert (machine.alive, machine.open_streams) == (0, [])


def probed(machine: FakeMachine) -> list[PortAudioDevice]:
    """What another process would find."""
    elsewhere = FakeMachine(devices=machine.devices, defaults=machine.defaults, hosts=machine.hosts)
    return parse_devices(describe(FakePyAudio(elsewhere)))


@pytest.fixture
def audio(machine: FakeMachine) -> PyAudioBackend:
    return PyAudioBackend()


def counted(start: int, frames: int) -> bytes:
    """What the fake microphone hears."""
    return b"".join((n % 1000).to_bytes(2, "little") for n in range(start, start + frames))


class Owner:
    """A thread with a stream of its own."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)

    def do(self, function: Any, *args: Any) -> Any:
        """The result of `function(*args)` on that thread."""
        return self._pool.submit(function, *args).result(SOON)

    def begin(self, function: Any, *args: Any) -> Any:
        """The future of it."""
        return self._pool.submit(function, *args)

    def close(self) -> None:
        self._pool.shutdown()


@pytest.fixture
def owner() -> Iterator[Owner]:
    owner = Owner()
    yield owner
    owner.close()


# -- devices -----------------------------------------------------------------------------------------------------------


def test_devices_have_stable_ids(machine: FakeMachine, audio: PyAudioBackend) -> None:
    """Host API and name; a number for the second of a name; a headset is in both lists."""
    machine.devices += [FakeDevice("headset", inputs=1, outputs=2), FakeDevice("desk", inputs=2)]
    assert [(info.kind, info.device_id, info.label) for info in audio.devices()] == [
        ("audioinput", "ALSA/desk", "desk"),
        ("audioinput", "ALSA/headset", "headset"),
        ("audioinput", "ALSA/desk#2", "desk"),
        ("audiooutput", "ALSA/box", "box"),
        ("audiooutput", "ALSA/headset", "headset"),
    ]


def test_devices_that_take_no_blocking_calls_are_not_listed(machine: FakeMachine, audio: PyAudioBackend) -> None:
    """Those of the host API WDM-KS, which Windows has under other host APIs too."""
    machine.devices = [FakeDevice("line", inputs=2, host=1)]
    assert audio.devices() == []


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("Kopfhörer".encode().decode("cp1252"), "Kopfhörer"),
        ("Kopfhörer", "Kopfhörer"),
        (b"ear \xff", "ear \ufffd"),
        ("耳", "耳"),
    ],
)
def test_names_are_readable(
    audio: PyAudioBackend, machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, name: str | bytes, label: str
) -> None:
    """Also where PyAudio has taken UTF-8 for the encoding of the locale, or could not decode it."""
    monkeypatch.setattr("locale.getpreferredencoding", lambda do_setlocale=True: "cp1252")
    machine.devices = [FakeDevice(name, inputs=1)]
    assert [info.label for info in audio.devices()] == [label]


def test_the_default_is_portaudios(machine: FakeMachine, audio: PyAudioBackend) -> None:
    """PortAudio says which it is, and says it has none by an error without a number."""
    del machine.defaults["audiooutput"]
    assert [info.device_id for info in audio.devices() if info.is_default] == ["ALSA/desk"]


def test_there_is_one_backend() -> None:
    """All clients of a process share the one PortAudio it has."""
    assert backend() is backend()


def test_where_no_process_can_be_started(
    machine: FakeMachine, audio: PyAudioBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a frozen application this process lists the devices; while a stream is open the list does not change."""
    monkeypatch.setattr(portaudio, "probe", lambda: None)
    assert len(audio.devices()) == 2
    assert machine.alive == 0
    stream = audio.open_input(None, 16000, 0.02)
    machine.devices.append(FakeDevice("new", inputs=1))
    assert len(audio.devices()) == 2
    with pytest.raises(DeviceError):
        audio.open_input("ALSA/new", 16000, 0.02)
    stream.close()
    assert len(audio.devices()) == 3


def test_what_is_open_here_is_listed(machine: FakeMachine, audio: PyAudioBackend) -> None:
    """Hardware that this process uses, by ALSA and alone, is missing from the list of another process."""
    machine.devices = [FakeDevice("USB: Audio (hw:1,0)", inputs=1)]
    stream = audio.open_input("ALSA/USB: Audio (hw:1,0)", 16000, 0.02)
    machine.devices = []
    assert audio.devices() == [stream.device]
    stream.close()
    assert audio.devices() == []


def test_what_others_would_see_is_not_there_if_they_do_not(machine: FakeMachine, audio: PyAudioBackend) -> None:
    """A device of a sound server's was pulled out, and the server has moved the stream to another."""
    stream = audio.open_input("ALSA/desk", 16000, 0.02)
    machine.devices = []
    assert audio.devices() == []
    stream.close()


# -- opening -----------------------------------------------------------------------------------------------------------


def test_a_microphone(machine: FakeMachine, audio: PyAudioBackend) -> None:
    """It is asked for the wanted rate, one channel and the period, and read without an error for an overflow."""
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


def test_a_speaker(machine: FakeMachine, audio: PyAudioBackend) -> None:
    """What is written is played; its buffer holds three periods."""
    stream = audio.open_output("ALSA/box", 24000, 0.04)
    assert (stream.sample_rate_hz, stream.buffer, stream.room()) == (24000, 0.12, 0.12)
    stream.write(counted(0, 960))
    assert stream.room() == pytest.approx(0.08)
    assert machine.streams[0].queued == counted(0, 960)
    stream.close()


def test_an_index_is_looked_up_at_each_opening(machine: FakeMachine, audio: PyAudioBackend) -> None:
    """Indices move when devices come and go; names do not."""
    audio.open_input("ALSA/desk", 16000, 0.02).close()
    machine.devices.insert(0, FakeDevice("first", inputs=1))
    stream = audio.open_input("ALSA/desk", 16000, 0.02)
    assert [opened.device.name for opened in machine.streams] == ["desk", "desk"]
    stream.close()


def test_an_impossible_rate_is_refused(audio: PyAudioBackend) -> None:
    """Before PyAudio sees it."""
    with pytest.raises(ValueError, match="sample_rate_hz must be"):
        audio.open_input(None, 0, 0.02)


@pytest.mark.parametrize("is_mic", [True, False])
def test_a_device_that_is_not_there(
    machine: FakeMachine, audio: PyAudioBackend, monkeypatch: pytest.MonkeyPatch, is_mic: bool
) -> None:
    """The error names those that are; PortAudio ends again. No other process is asked what was just listed."""
    audio.devices()
    monkeypatch.setattr(portaudio, "probe", lambda: pytest.fail("asked"))
    with pytest.raises(DeviceError, match=r"There is no .*'ALSA/gone'.*ALSA/") as caught:
        (audio.open_input if is_mic else audio.open_output)("ALSA/gone", 24000, 0.04)
    assert (caught.value.type, caught.value.devices) == ("not-found", ("mic" if is_mic else "speaker",))
    assert machine.streams == []


def test_no_default_device(machine: FakeMachine, audio: PyAudioBackend) -> None:
    """There are microphones, but none is the default."""
    machine.defaults.clear()
    with pytest.raises(DeviceError, match=r"default.*ALSA/desk") as caught:
        audio.open_input(None, 16000, 0.02)
    assert caught.value.type == "not-found"


def test_no_device_at_all(machine: FakeMachine, audio: PyAudioBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a speaker."""
    monkeypatch.setattr(audio_errors, "_ALSA_DEVICES", Path("/nonexistent"))
    machine.devices.clear()
    with pytest.raises(DeviceError, match="no speaker") as caught:
        audio.open_output(None, 24000, 0.04)
    assert caught.value.type == "not-found"


def test_devices_that_the_user_may_not_open(
    machine: FakeMachine, audio: PyAudioBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """PortAudio lists nothing then; the error says how to get the right."""
    tmp_path.joinpath("pcmC0D0c").touch()
    monkeypatch.setattr(audio_errors, "_ALSA_DEVICES", tmp_path)
    monkeypatch.setattr(os, "access", lambda *args: False)
    machine.devices.clear()
    with pytest.raises(DeviceError, match="usermod -aG audio") as caught:
        audio.open_input(None, 16000, 0.02)
    assert caught.value.type == "permissions"


@pytest.mark.parametrize(
    ("error", "kind", "advice"),
    [
        (OSError(-9985, "PortAudioDevice unavailable"), "in-use", "End that program"),
        (OSError(-9996, "Invalid device"), "not-found", "Plug it in again"),
        (OSError(-9993, "Illegal combination of I/O devices"), "unknown", "plugged in"),
        (OSError(-9999, "Unanticipated host error"), "unknown", "plugged in"),
        (OSError("Stream not open"), "unknown", "plugged in"),
        (OSError(), "unknown", "plugged in"),
    ],
)
@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_errors_of_opening(
    audio: PyAudioBackend,
    machine: FakeMachine,
    monkeypatch: pytest.MonkeyPatch,
    error: OSError,
    kind: str,
    advice: str,
    system: str,
) -> None:
    """Each number of PortAudio's is a type, with a next step, on every platform; nothing stays open."""
    monkeypatch.setattr(sys, "platform", system)
    machine.devices[0].error = error
    with pytest.raises(DeviceError, match=advice) as caught:
        audio.open_input(None, 16000, 0.02)
    assert (caught.value.type, caught.value.devices) == (kind, ("mic",))
    assert caught.value.__cause__ is error
    # The next attempt works if the device does.
    machine.devices[0].error = None
    audio.open_input(None, 16000, 0.02).close()


def test_portaudio_does_not_begin(machine: FakeMachine, audio: PyAudioBackend) -> None:
    """An error of its beginning is one of the sound system."""

    def fail() -> None:
        raise OSError(-9999, "Unanticipated host error")

    machine.begin = fail
    with pytest.raises(DeviceError, match="sound server") as caught:
        audio.open_input(None, 16000, 0.02)
    assert caught.value.devices == ("mic", "speaker")


def test_portaudio_does_not_list(machine: FakeMachine, audio: PyAudioBackend) -> None:
    """It ends again."""
    audio.devices()

    def fail() -> None:
        raise OSError(-9996, "Invalid device info")

    machine.lists = fail
    with pytest.raises(DeviceError, match="Invalid device info"):
        audio.open_input(None, 16000, 0.02)
    assert (machine.begun, machine.alive) == (1, 0)


# -- what a device refuses ---------------------------------------------------------------------------------------------


def test_a_microphone_that_refuses_the_rate(machine: FakeMachine, audio: PyAudioBackend) -> None:
    """It is opened at its own rate; each read still returns one period at the wanted one."""
    machine.devices[0].rates = {44100}
    stream = audio.open_input(None, 16000, 0.02)
    assert stream.sample_rate_hz == 16000
    assert {len(stream.read()) for _ in range(20)} == {640}
    assert machine.streams[0].rate == 44100
    assert 0.02 < stream.backlog() < 0.05  # what the device has, and what is converted
    stream.close()


def test_a_microphone_that_refuses_the_rate_without_soxr(
    machine: FakeMachine, audio: PyAudioBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it hears is delivered at its own rate, which bots take."""
    monkeypatch.setitem(sys.modules, "soxr", None)
    machine.devices[0].rates = {44100}
    stream = audio.open_input(None, 16000, 0.02)
    assert stream.sample_rate_hz == 44100
    assert stream.read() == counted(0, 882)
    stream.close()


def test_a_speaker_that_refuses_the_rate(machine: FakeMachine, audio: PyAudioBackend) -> None:
    """What is written is converted to its own rate; nothing is lost but what the filter holds back."""
    machine.devices[1].rates = {44100}
    stream = audio.open_output(None, 24000, 0.04)
    assert stream.sample_rate_hz == 24000
    for _ in range(25):
        stream.write(bytes(1920))
    opened = machine.streams[0]
    assert opened.rate == 44100
    assert 44100 - 300 <= len(opened.played + opened.queued) / 2 <= 44100
    stream.close()


def test_dropping_what_is_converted(machine: FakeMachine, audio: PyAudioBackend) -> None:
    """What the filter holds back is dropped too: silence that follows is silence."""
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
    machine: FakeMachine, audio: PyAudioBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the command that installs what is missing; nothing stays open."""
    monkeypatch.setitem(sys.modules, "soxr", None)
    machine.devices[1].rates = {44100}
    with pytest.raises(MissingExtraError, match=r'pip install "rtvi_sync\[resample\]"'):
        audio.open_output(None, 24000, 0.04)


def test_mono_refused(machine: FakeMachine, audio: PyAudioBackend) -> None:
    """A stereo microphone is mixed; what is played is the same on both sides."""
    machine.devices = [FakeDevice("desk", inputs=2, channels={2}), FakeDevice("box", outputs=8, channels={2})]
    mic, speaker = audio.open_input(None, 16000, 0.02), audio.open_output(None, 24000, 0.04)
    assert mic.read() == counted(0, 320)
    speaker.write(b"\x01\x00\x02\x00\x03")
    assert machine.streams[1].queued == b"\x01\x00\x01\x00\x02\x00\x02\x00"
    assert speaker.room() == pytest.approx(0.12 - 2 / 24000)
    mic.close()
    speaker.close()


def test_everything_refused(machine: FakeMachine, audio: PyAudioBackend) -> None:
    """The last refusal is the error."""
    machine.devices[1].rates = set()
    with pytest.raises(DeviceError, match="Invalid sample rate") as caught:
        audio.open_output(None, 24000, 0.04)
    assert caught.value.type == "unknown"


# -- reading and writing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_of_any_kind_are_played(machine: FakeMachine, audio: PyAudioBackend, kind: Any) -> None:
    """PyAudio takes bytes alone, and believes the number of samples that comes with them."""
    stream = audio.open_output(None, 24000, 0.04)
    stream.write(kind(b"\x01\x02\x03"))
    stream.write(kind(b""))
    stream.write(kind(b"\x01"))
    assert machine.streams[0].queued == b"\x01\x02"
    stream.close()


def test_errors_of_reading_and_writing(machine: FakeMachine, audio: PyAudioBackend) -> None:
    """They are typed; what follows fails too, the counts are 0, and closing works."""
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


def test_dropping(machine: FakeMachine, audio: PyAudioBackend) -> None:
    """What is in the buffer is not heard, and the device plays what comes next."""
    stream = audio.open_output(None, 24000, 0.04)
    stream.write(bytes(1920))
    stream.drop()
    stream.write(b"\x01\x02")
    opened = machine.streams[0]
    assert (opened.played, opened.queued, opened.is_started) == (b"", b"\x01\x02", True)
    stream.close()


# -- one PortAudio for all threads -------------------------------------------------------------------------------------


def test_it_begins_with_the_first_stream_and_ends_with_the_last(machine: FakeMachine, audio: PyAudioBackend) -> None:
    """Once each, however many there are between."""
    mic, speaker = audio.open_input(None, 16000, 0.02), audio.open_output(None, 24000, 0.04)
    mic.close()
    mic.close()
    assert (machine.begun, machine.alive) == (1, 1)
    speaker.close()
    assert (machine.begun, machine.alive) == (1, 0)


def test_threads_do_not_meet_in_it(machine: FakeMachine, audio: PyAudioBackend) -> None:
    """Eight threads open and close at once: PortAudio is never entered by two of them."""

    def cycles(number: int) -> None:
        for _ in range(10):
            stream = audio.open_input(None, 16000, 0.02) if number % 2 else audio.open_output(None, 24000, 0.04)
            stream.close()

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(cycles, number) for number in range(8)]:
            done.result(GUARD)
    assert len(machine.streams) == 80


def test_a_hung_sound_server_does_not_hang_everybody(
    machine: FakeMachine, audio: PyAudioBackend, monkeypatch: pytest.MonkeyPatch, owner: Owner
) -> None:
    """One thread hangs in the beginning of PortAudio: the others are told in time, and all works when it is over."""
    monkeypatch.setattr(portaudio, "LIMIT", 0.1)
    inside, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        inside.set()
        go_on.wait(SOON)

    machine.begin = hang
    hanging = owner.begin(audio.open_input, None, 16000, 0.02)
    assert inside.wait(SOON)
    with pytest.raises(DeviceError, match="does not answer"):
        audio.open_output(None, 24000, 0.04)
    go_on.set()
    stream: PyAudioInput = hanging.result(SOON)
    audio.open_output(None, 24000, 0.04).close()
    owner.do(stream.close)


def test_where_another_process_crashes_this_one_does_not_try(
    machine: FakeMachine, audio: PyAudioBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PortAudio begins elsewhere first."""
    tried: list[int] = []

    def crash() -> list[PortAudioDevice]:
        tried.append(machine.begun)
        raise crashed(-6)

    monkeypatch.setattr(portaudio, "probe", crash)
    with pytest.raises(DeviceError, match="crashes"):
        audio.open_input(None, 16000, 0.02)
    with pytest.raises(DeviceError, match="crashes"):
        audio.devices()
    assert (tried, machine.begun) == ([0, 0], 0)


@pytest.mark.parametrize("fails", ["opening", "reading"])
def test_after_a_failure_another_process_tries_first(
    machine: FakeMachine, audio: PyAudioBackend, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """A sound server that has failed may hang next."""

    def crash() -> list[PortAudioDevice]:
        raise crashed(-6)

    error = OSError(-9999, "Unanticipated host error")
    if fails == "opening":
        machine.devices[0].error = error
        with pytest.raises(DeviceError, match="failed"):
            audio.open_input(None, 16000, 0.02)
    else:
        stream = audio.open_input(None, 16000, 0.02)
        machine.streams[0].failing = error
        with pytest.raises(DeviceError, match="failed"):
            stream.read()
        stream.close()
    monkeypatch.setattr(portaudio, "probe", crash)
    with pytest.raises(DeviceError, match="crashes"):
        audio.open_input(None, 16000, 0.02)
    assert machine.begun == 1


# -- a device that came later ------------------------------------------------------------------------------------------


def test_a_new_device_is_opened_while_others_go_on(
    machine: FakeMachine, audio: PyAudioBackend, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All streams close, PortAudio is restarted, and the speaker's unplayed audio is written again."""
    monkeypatch.setattr(portaudio, "_CLOSE_FOR_RESTART_LIMIT", 60.0)  # no test waits for its end
    speaker: PyAudioOutput = owner.do(audio.open_output, None, 24000, 0.04)
    sound = counted(0, 4800)
    owner.do(speaker.write, sound[:3840])
    machine.devices.insert(0, FakeDevice("new", inputs=1))

    opening = ThreadPoolExecutor(1)
    future = opening.submit(audio.open_input, "ALSA/new", 16000, 0.02)
    position = 3840
    while not future.done():
        owner.do(speaker.write, sound[position : position + 2])
        position += 2
    owner.do(speaker.write, sound[position:])
    mic: PyAudioInput = future.result()
    assert mic.device.label == "new"
    assert opening.submit(mic.read).result(SOON) == counted(0, 320)
    assert machine.begun == 2
    before, after = (opened for opened in machine.streams if opened.device.outputs)
    assert before.played + after.played + after.queued == sound
    opening.submit(mic.close).result(SOON)
    opening.shutdown()
    owner.do(speaker.close)


def test_dropped_sound_does_not_come_back(machine: FakeMachine, audio: PyAudioBackend, owner: Owner) -> None:
    """An interruption before the restart drops the unplayed audio."""
    speaker: PyAudioOutput = owner.do(audio.open_output, None, 24000, 0.04)
    owner.do(speaker.write, counted(0, 960))
    owner.do(speaker.drop)
    machine.devices.append(FakeDevice("new", inputs=1))
    with ThreadPoolExecutor(1) as opening:
        future = opening.submit(audio.open_input, "ALSA/new", 16000, 0.02)
        while not future.done():
            owner.do(speaker.write, b"")
        opening.submit(future.result().close).result(SOON)
    owner.do(speaker.write, b"\x01\x00")
    assert machine.begun == 2
    assert machine.open_streams[-1].played + machine.open_streams[-1].queued == b"\x01\x00"
    owner.do(speaker.close)


def test_a_wrong_id_disturbs_nobody(
    machine: FakeMachine, audio: PyAudioBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that no list contains does not restart PortAudio, however old its list is."""
    monkeypatch.setattr(portaudio, "_MIN_RESTART_AGE", 0.0)
    speaker = audio.open_output(None, 24000, 0.04)
    with pytest.raises(DeviceError, match="no microphone 'ALSA/gone'"):
        audio.open_input("ALSA/gone", 16000, 0.02)
    assert machine.begun == 1
    speaker.close()


def test_a_device_in_use_disturbs_nobody(machine: FakeMachine, audio: PyAudioBackend) -> None:
    """Nor is one that another program has."""
    speaker = audio.open_output(None, 24000, 0.04)
    machine.devices.append(FakeDevice("new", inputs=1))
    machine.devices[0].error = OSError(-9985, "PortAudioDevice unavailable")
    with pytest.raises(DeviceError, match="used by another program"):
        audio.open_input(None, 16000, 0.02)
    assert machine.begun == 1
    speaker.close()


def test_a_device_that_was_pulled_out_and_is_back(
    machine: FakeMachine, audio: PyAudioBackend, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that was plugged in again restarts PortAudio, but not more often than the minimum interval."""
    speaker: PyAudioOutput = owner.do(audio.open_output, None, 24000, 0.04)
    machine.devices[0] = FakeDevice("desk", inputs=2)
    with pytest.raises(DeviceError, match="Unanticipated host error"):
        audio.open_input("ALSA/desk", 16000, 0.02)
    assert machine.begun == 1
    monkeypatch.setattr(portaudio, "_MIN_RESTART_AGE", 0.0)
    with ThreadPoolExecutor(1) as opening:
        future = opening.submit(audio.open_input, "ALSA/desk", 16000, 0.02)
        while not future.done():
            owner.do(speaker.write, bytes(2))
        opening.submit(future.result().close).result(SOON)
    owner.do(speaker.write, bytes(2))
    assert machine.begun == 2
    owner.do(speaker.close)


def test_a_stream_that_does_not_close_for_a_restart(
    machine: FakeMachine, audio: PyAudioBackend, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a device hangs, opening the new one raises in time, and the other streams continue."""
    monkeypatch.setattr(portaudio, "_CLOSE_FOR_RESTART_LIMIT", 0.1)
    mic: PyAudioInput = owner.do(audio.open_input, None, 16000, 0.02)
    inside, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        inside.set()
        go_on.wait(SOON)

    machine.streams[0].hold = hang
    reading = owner.begin(mic.read)
    assert inside.wait(SOON)
    machine.devices.append(FakeDevice("new", inputs=1))
    with pytest.raises(DeviceError, match="does not answer"):
        audio.open_input("ALSA/new", 16000, 0.02)
    go_on.set()
    assert reading.result(SOON) == counted(0, 320)
    assert owner.do(mic.read) == counted(320, 320)
    assert machine.begun == 1
    owner.do(mic.close)


def test_a_device_that_is_gone_after_a_restart(machine: FakeMachine, audio: PyAudioBackend, owner: Owner) -> None:
    """A stream whose device was unplugged meanwhile fails, as it would without a restart."""
    mic: PyAudioInput = owner.do(audio.open_input, None, 16000, 0.02)
    machine.devices[0] = FakeDevice("new", inputs=1)
    with ThreadPoolExecutor(1) as opening:
        future = opening.submit(audio.open_input, "ALSA/new", 16000, 0.02)
        with pytest.raises(DeviceError, match="no microphone 'ALSA/desk'"):  # noqa: PT012 - whichever read it is
            while True:
                owner.do(mic.read)
        opening.submit(future.result(SOON).close).result(SOON)
    owner.do(mic.close)


# -- forks -------------------------------------------------------------------------------------------------------------


def test_a_forked_child_leaves_the_parents_portaudio_alone(machine: FakeMachine, audio: PyAudioBackend) -> None:
    """It is refused everything, whatever it calls, and touches no stream."""
    mic = audio.open_input(None, 16000, 0.02)

    def child() -> list[str]:
        errors = []
        for call in (audio.devices, lambda: audio.open_output(None, 24000, 0.04), mic.read):
            try:
                call()
            except DeviceError as error:
                errors.append(str(error))
        mic.close()
        assert machine.streams[0].is_open
        assert machine.begun == 1
        return errors

    errors = in_child(child)
    assert len(errors) == 3
    assert all("spawn" in error for error in errors)
    assert mic.read() == counted(0, 320)
    mic.close()


def test_a_forked_child_of_a_process_without_open_devices(machine: FakeMachine, audio: PyAudioBackend) -> None:
    """It may use devices, also if the parent has used some before."""
    audio.open_input(None, 16000, 0.02).close()

    def child() -> bytes:
        mic = audio.open_input(None, 16000, 0.02)
        heard = mic.read()
        mic.close()
        return heard

    assert in_child(child) == counted(0, 320)


def test_a_child_forked_while_portaudio_begins(machine: FakeMachine, audio: PyAudioBackend, owner: Owner) -> None:
    """The state of PortAudio in the child is unknown, so devices are refused."""
    inside, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        inside.set()
        go_on.wait(SOON)

    machine.begin = hang
    opening = owner.begin(audio.open_input, None, 16000, 0.02)
    assert inside.wait(SOON)

    def child() -> str:
        with pytest.raises(DeviceError) as caught:
            audio.open_input(None, 16000, 0.02)
        return str(caught.value)

    assert "forked" in in_child(child)
    go_on.set()
    owner.do(opening.result(SOON).close)


# -- what is not installed ---------------------------------------------------------------------------------------------

PIP = r'pip install "rtvi_sync\[audio\]"'


@pytest.mark.parametrize(
    ("system", "release", "command"),
    [
        ("linux", {"ID": "debian"}, r"sudo apt-get install -y gcc python3-dev portaudio19-dev"),
        ("linux", {"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}, r"sudo apt-get install"),
        ("linux", {"ID": "fedora"}, r"sudo dnf install -y gcc python3-devel portaudio-devel"),
        ("linux", {"ID": "rocky", "ID_LIKE": "rhel fedora"}, r"sudo dnf install"),
        ("linux", {"ID": "arch"}, r"apt-get install.* or sudo dnf install"),
        ("linux", None, r"apt-get install.* or sudo dnf install"),
        ("darwin", None, r"brew install portaudio"),
        ("win32", None, r"winget install Python\.Python\.3\.13"),
    ],
)
def test_pyaudio_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, system: str, release: dict[str, str] | None, command: str
) -> None:
    """The error has the commands that install it and what it needs of this platform."""

    def read_release() -> dict[str, str]:
        if release is None:
            raise FileNotFoundError
        return release

    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "freedesktop_os_release", read_release)
    monkeypatch.delitem(sys.modules, "pyaudio", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    audio = PyAudioBackend()
    for call in (audio.devices, lambda: audio.open_input(None, 16000, 0.02)):
        with pytest.raises(MissingExtraError, match=f"{PIP}.*{command}.*No module named 'pyaudio'") as caught:
            call()
        assert caught.value.extra == "audio"


def test_pyaudio_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there, but the library of the system is not: no process could be started that would have said so before."""
    monkeypatch.setitem(sys.modules, "pyaudio", None)
    monkeypatch.setattr(portaudio, "probe", lambda: None)
    with pytest.raises(MissingExtraError, match=f"{PIP}.*pyaudio"):
        PyAudioBackend().open_input(None, 16000, 0.02)
