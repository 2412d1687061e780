"""The process that lists the devices: it may fail in every way, and this one is told how."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rtvi_sync.errors import DeviceError, MissingExtraError
from rtvi_sync.media.devices import device_probe, probing
from tests.support.stub import Stub, children

pytestmark = [
    pytest.mark.inside,
    pytest.mark.skipif(sys.platform != "linux", reason="it looks at processes as Linux shows them"),
]


def test_the_devices(library: str, stub: Stub) -> None:
    """Devices are listed whatever libraries print, with names in any script; the process has ended."""
    stub.set(devices=["desk", "耳"])
    found = probing.probe(library)
    assert found is not None
    assert [device.info.device_id for device in found] == ["ALSA/desk", "ALSA/耳"]
    assert [device.info.is_default for device in found] == [True, False]
    assert (found[1].index, found[1].channels, found[1].rate_hz) == (1, 1, 44100)
    assert children() == set()


def test_a_path_that_python_ignores(library: str, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Python ignores in `sys.path`, such as a `Path`, does not prevent the list."""
    stub.set(devices=["desk"])
    monkeypatch.setattr(sys, "path", [Path("/nonexistent"), *sys.path, None])
    found = probing.probe(library)
    assert found is not None
    assert [device.info.device_id for device in found] == ["ALSA/desk"]


def test_a_library_that_is_missing(library: str, stub: Stub) -> None:
    """The error has the import's message, and this process has imported and printed nothing."""
    stub.set(missing="libportaudio.so.2: cannot open shared object file")
    with pytest.raises(MissingExtraError, match=r"pip install.*libportaudio\.so\.2"):
        probing.probe(library)


def test_portaudio_fails(library: str, stub: Stub) -> None:
    """PortAudio's error is the reason in the `DeviceError`."""
    stub.set(error="Unanticipated host error")
    with pytest.raises(DeviceError, match="Unanticipated host error"):
        probing.probe(library)


def test_portaudio_crashes(library: str, stub: Stub) -> None:
    """A crash of PortAudio ends the probing process only, and is a `DeviceError`."""
    stub.set(crash=True)
    with pytest.raises(DeviceError, match="crashes"):
        probing.probe(library)


def test_portaudio_hangs(library: str, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PortAudio that hangs is not waited for longer than the limit, and its process is ended."""
    monkeypatch.setattr(device_probe, "LIMIT", 0.5)
    stub.set(hang=True)
    with pytest.raises(DeviceError, match="does not answer"):
        probing.probe(library)
    assert children() == set()


@pytest.mark.parametrize("python", ["", "/usr/bin/uwsgi", "/nonexistent/python3"])
def test_no_interpreter_to_start(library: str, monkeypatch: pytest.MonkeyPatch, python: str) -> None:
    """A program that embeds Python is not started once more."""
    monkeypatch.setattr(sys, "executable", python)
    assert probing.probe(library) is None


def test_a_frozen_program(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen program, whose executable is the program itself, has no fault to report."""
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert probing.probe(library) is None


def test_an_answer_that_is_none(library: str, stub: Stub) -> None:
    """An answer of another kind, as of an interpreter that starts in another way, counts as no process."""
    prober = probing.start_process(library, "once")
    assert probing.parse_answer(library, prober, b"Welcome!\n") is None
    probing.end_process(prober)
