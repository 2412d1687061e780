"""PortAudio in this process: one at a time, restarted for new devices, and never after a fork."""

from __future__ import annotations

import ctypes
import os
import queue
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.errors import DeviceError
from rtvi_sync.media.devices import portaudio
from rtvi_sync.media.devices.audio_errors import crashed
from rtvi_sync.media.devices.device import HANGS_AFTER
from rtvi_sync.media.devices.microphone import DeviceMic
from rtvi_sync.media.devices.portaudio import silence_libraries
from rtvi_sync.media.devices.portaudio_backend import PortAudioBackend, PortAudioInput, PortAudioOutput
from rtvi_sync.media.devices.probing import PortAudioDevice
from tests.support import limits
from tests.support.fake_portaudio import FakeDevice, FakeMachine, Owner, counted
from tests.support.forking import in_child
from tests.support.processes import run_python
from tests.support.slowness import GUARD

from .conftest import probed

pytestmark = pytest.mark.inside
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only there these libraries print")


def test_it_begins_with_the_first_stream_and_ends_with_the_last(machine: FakeMachine, audio: PortAudioBackend) -> None:
    """PortAudio is initialized once for the first stream, and terminated once after the last."""
    mic, speaker = audio.open_input(None, 16000, 0.02), audio.open_output(None, 24000, 0.04)
    mic.close()
    mic.close()
    assert (machine.begun, machine.alive) == (1, 1)
    speaker.close()
    assert (machine.begun, machine.alive) == (1, 0)


def test_threads_do_not_meet_in_it(machine: FakeMachine, audio: PortAudioBackend) -> None:
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
    machine: FakeMachine, audio: PortAudioBackend, monkeypatch: pytest.MonkeyPatch, owner: Owner
) -> None:
    """If one thread hangs while PortAudio starts, others get an error in time, and all works afterwards."""
    monkeypatch.setattr(portaudio, "LIMIT", 0.1)
    inside, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        inside.set()
        go_on.wait(GUARD)

    machine.begin = hang
    hanging = owner.begin(audio.open_input, None, 16000, 0.02)
    assert inside.wait(GUARD)
    with pytest.raises(DeviceError, match="does not answer"):
        audio.open_output(None, 24000, 0.04)
    go_on.set()
    stream: PortAudioInput = hanging.result(GUARD)
    audio.open_output(None, 24000, 0.04).close()
    owner.do(stream.close)


def test_where_another_process_crashes_this_one_does_not_try(
    machine: FakeMachine, audio: PortAudioBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PortAudio is started in another process first."""
    tried: list[int] = []

    def crash(_: str) -> list[PortAudioDevice]:
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
    machine: FakeMachine, audio: PortAudioBackend, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """A sound server that has failed may hang next."""

    def crash(_: str) -> list[PortAudioDevice]:
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


def test_a_new_device_is_opened_while_others_go_on(
    machine: FakeMachine, audio: PortAudioBackend, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All streams close, PortAudio is restarted, and the speaker's unplayed audio is written again."""
    limits.patch(monkeypatch, restart_close=60.0)  # no test waits for its end
    speaker: PortAudioOutput = owner.do(audio.open_output, None, 24000, 0.04)
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
    mic: PortAudioInput = future.result()
    assert mic.device.label == "new"
    assert opening.submit(mic.read).result(GUARD) == counted(0, 320)
    assert machine.begun == 2
    before, after = (opened for opened in machine.streams if opened.device.outputs)
    assert before.played + after.played + after.queued == sound
    opening.submit(mic.close).result(GUARD)
    opening.shutdown()
    owner.do(speaker.close)


def test_a_wrong_id_disturbs_nobody(
    machine: FakeMachine, audio: PortAudioBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that no list contains does not restart PortAudio, however old its list is."""
    limits.patch(monkeypatch, restart_age=0.0)
    speaker = audio.open_output(None, 24000, 0.04)
    with pytest.raises(DeviceError, match="no microphone 'ALSA/gone'"):
        audio.open_input("ALSA/gone", 16000, 0.02)
    assert machine.begun == 1
    speaker.close()


def test_a_device_in_use_disturbs_nobody(machine: FakeMachine, audio: PortAudioBackend) -> None:
    """A device that another program uses does not restart PortAudio."""
    speaker = audio.open_output(None, 24000, 0.04)
    machine.devices.append(FakeDevice("new", inputs=1))
    machine.devices[0].error = OSError(-9985, "PortAudioDevice unavailable")
    with pytest.raises(DeviceError, match="in use by another program"):
        audio.open_input(None, 16000, 0.02)
    assert machine.begun == 1
    speaker.close()


def test_a_device_that_was_pulled_out_and_is_back(
    machine: FakeMachine, audio: PortAudioBackend, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that was plugged in again restarts PortAudio, but not more often than the minimum interval."""
    speaker: PortAudioOutput = owner.do(audio.open_output, None, 24000, 0.04)
    machine.devices[0] = FakeDevice("desk", inputs=2)
    with pytest.raises(DeviceError, match="Unanticipated host error"):
        audio.open_input("ALSA/desk", 16000, 0.02)
    assert machine.begun == 1
    limits.patch(monkeypatch, restart_age=0.0)
    with ThreadPoolExecutor(1) as opening:
        future = opening.submit(audio.open_input, "ALSA/desk", 16000, 0.02)
        while not future.done():
            owner.do(speaker.write, bytes(2))
        opening.submit(future.result().close).result(GUARD)
    owner.do(speaker.write, bytes(2))
    assert machine.begun == 2
    owner.do(speaker.close)


def test_a_stream_that_does_not_close_for_a_restart(
    machine: FakeMachine, audio: PortAudioBackend, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a device hangs, opening the new one raises in time, and the other streams continue."""
    limits.patch(monkeypatch, restart_close=0.1)
    mic: PortAudioInput = owner.do(audio.open_input, None, 16000, 0.02)
    inside, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        inside.set()
        go_on.wait(GUARD)

    machine.streams[0].hold = hang
    reading = owner.begin(mic.read)
    assert inside.wait(GUARD)
    machine.devices.append(FakeDevice("new", inputs=1))
    with pytest.raises(DeviceError, match="does not answer"):
        audio.open_input("ALSA/new", 16000, 0.02)
    go_on.set()
    assert reading.result(GUARD) == counted(0, 320)
    assert owner.do(mic.read) == counted(320, 320)
    assert machine.begun == 1
    owner.do(mic.close)


def test_a_device_that_is_gone_after_a_restart(machine: FakeMachine, audio: PortAudioBackend, owner: Owner) -> None:
    """A stream whose device was unplugged during the restart fails, as it would without a restart."""
    mic: PortAudioInput = owner.do(audio.open_input, None, 16000, 0.02)
    machine.devices[0] = FakeDevice("new", inputs=1)
    with ThreadPoolExecutor(1) as opening:
        future = opening.submit(audio.open_input, "ALSA/new", 16000, 0.02)
        with pytest.raises(DeviceError, match="no microphone 'ALSA/desk'"):  # noqa: PT012 - whichever read it is
            while True:
                owner.do(mic.read)
        opening.submit(future.result(GUARD).close).result(GUARD)
    owner.do(mic.close)


@pytest.mark.parametrize("name", ["desk", "USB: Audio (hw:1,0)"])
@pytest.mark.parametrize(("is_there", "reason"), [(False, "not-found"), (True, "unknown")])
def test_a_microphone_that_fails_in_use(
    machine: FakeMachine,
    audio: PortAudioBackend,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    is_there: bool,
    reason: str,
) -> None:
    """The list of devices tells whether it was pulled out. A process that needs seconds to list them is no hang."""
    machine.devices[0].name = machine.defaults["audioinput"] = name
    machine.devices.append(FakeDevice("other", inputs=1))
    errors: queue.Queue[DeviceError] = queue.Queue()
    mic = DeviceMic(
        audio, None, enabled=lambda: True, publish=lambda *_: None, report=errors.put, opened=lambda _: None
    )
    mic.wait_opened(Deadline(GUARD))

    def probe(library: str) -> list[PortAudioDevice]:
        for step in range(8):
            mic.check(100.0 + step * HANGS_AFTER / 4)
        taken = {stream.device.name for stream in machine.open_streams}
        return [device for device in probed(machine, library) if device.info.label not in taken]

    monkeypatch.setattr(portaudio, "probe", probe)
    if not is_there:
        machine.devices.pop(0)
    stream = machine.streams[0]
    stream.hold = lambda: setattr(stream, "failing", OSError(-9999, "Unanticipated host error"))  # in a read
    error = errors.get(timeout=GUARD)
    mic.halt()
    assert mic.join(Deadline(GUARD)) is None
    assert (error.devices, error.type) == (("mic",), reason)
    assert errors.empty()


def lost(audio: PortAudioBackend, machine: FakeMachine) -> DeviceError:
    """Return what a microphone reports whose device, the default, is lost in use."""
    errors: queue.Queue[DeviceError] = queue.Queue()
    mic = DeviceMic(
        audio, None, enabled=lambda: True, publish=lambda *_: None, report=errors.put, opened=lambda _: None
    )
    mic.wait_opened(Deadline(GUARD))
    machine.devices.clear()
    stream = machine.streams[0]
    stream.hold = lambda: setattr(stream, "failing", OSError(-9999, "Unanticipated host error"))  # in a read
    error = errors.get(timeout=GUARD)
    mic.halt()
    assert mic.join(Deadline(GUARD)) is None
    return error


def test_the_default_device_is_lost(
    machine: FakeMachine, audio: PortAudioBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error does not name the device, which was not requested."""
    limits.patch(monkeypatch, alsa_devices=Path("/nonexistent"))
    error = lost(audio, machine)
    assert str(error).startswith("This machine has no microphone. ")
    assert error.type == "not-found"


def test_an_unknown_reason_of_a_loss(
    machine: FakeMachine, audio: PortAudioBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the devices cannot be listed because of an unexpected exception, the device's own error is reported."""
    audio.devices()  # so that only the failure asks another process
    monkeypatch.setattr(portaudio, "probe", lambda _: 1 // 0)
    error = lost(audio, machine)
    assert str(error).startswith("The microphone 'desk' failed (-9999: Unanticipated host error)")
    assert error.type == "unknown"


def test_a_forked_child_leaves_the_parents_portaudio_alone(machine: FakeMachine, audio: PortAudioBackend) -> None:
    """A forked child is refused everything, whatever it calls, and touches no stream of its parent's."""
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


def test_a_forked_child_of_a_process_without_open_devices(machine: FakeMachine, audio: PortAudioBackend) -> None:
    """A forked child may use devices if its parent has none open, even if that has used some before."""
    audio.open_input(None, 16000, 0.02).close()

    def child() -> bytes:
        mic = audio.open_input(None, 16000, 0.02)
        heard = mic.read()
        mic.close()
        return heard

    assert in_child(child) == counted(0, 320)


def test_a_child_forked_while_portaudio_begins(machine: FakeMachine, audio: PortAudioBackend, owner: Owner) -> None:
    """The state of PortAudio in the child is unknown, so devices are refused."""
    inside, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        inside.set()
        go_on.wait(GUARD)

    machine.begin = hang
    opening = owner.begin(audio.open_input, None, 16000, 0.02)
    assert inside.wait(GUARD)

    def child() -> str:
        with pytest.raises(DeviceError) as caught:
            audio.open_input(None, 16000, 0.02)
        return str(caught.value)

    assert "forked" in in_child(child)
    go_on.set()
    owner.do(opening.result(GUARD).close)


class Library:
    """A library that was loaded, and records the handlers that it is given."""

    def __init__(self, *functions: str) -> None:
        self.handlers: dict[str, Any] = {}
        for name in functions:
            setattr(self, name, lambda handler, name=name: self.handlers.update({name: handler}))


@on_linux
def test_each_loaded_library_gets_a_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that is not loaded, and a function that it lacks, are passed over; the handler is a C function."""
    asound, portaudio = Library("snd_lib_error_set_handler"), Library()
    load = ctypes.CDLL

    def loaded(name: str | None, mode: int = 0) -> Any:
        if name is None:
            return load(None)
        assert mode & os.RTLD_NOLOAD
        if name == "libjack.so.0":
            raise OSError("it is not loaded")
        return asound if name == "libasound.so.2" else portaudio

    monkeypatch.setattr(ctypes, "CDLL", loaded)
    silence_libraries()
    assert set(asound.handlers) == {"snd_lib_error_set_handler"}
    assert isinstance(asound.handlers["snd_lib_error_set_handler"], ctypes.c_void_p)
    assert portaudio.handlers == {}


@on_linux
def test_nothing_is_loaded_for_it() -> None:
    """A process without these libraries is without them afterwards, too."""
    script = """
        from pathlib import Path
        from rtvi_sync.media.devices.portaudio import silence_libraries

        silence_libraries()
        maps = Path("/proc/self/maps").read_text()
        print([name for name in ("libasound", "libjack", "libportaudio") if name in maps])
    """
    assert run_python(script) == (0, "[]\n", "")
