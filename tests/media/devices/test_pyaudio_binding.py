"""Functions that only PyAudio needs; the tests of the backend run with each library."""

from __future__ import annotations

import pytest

from rtvi_sync.media.devices.pyaudio_binding import Binding
from tests.support.fake_portaudio import FakeDevice, FakeMachine

pytestmark = pytest.mark.inside


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("Kopfhörer".encode().decode("cp1252"), "Kopfhörer"),
        ("Kopfhörer", "Kopfhörer"),
        (b"ear \xff", "ear \ufffd"),
        ("耳", "耳"),
    ],
)
def test_names_are_readable(monkeypatch: pytest.MonkeyPatch, name: str | bytes, label: str) -> None:
    """Names are readable even where PyAudio has decoded UTF-8 with the locale's encoding, or not at all."""
    monkeypatch.setattr("locale.getpreferredencoding", lambda do_setlocale=True: "cp1252")
    machine = FakeMachine(devices=[FakeDevice(name, inputs=1)])
    assert [device["name"] for device in Binding(machine.module("pyaudio")).devices()] == [label]
