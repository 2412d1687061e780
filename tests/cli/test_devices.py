"""The command `devices`: the list, and the levels of microphones."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from rtvi_sync import DeviceError, MissingExtraError, RTVIClient, cli
from rtvi_sync.cli import devices
from rtvi_sync.cli.screen import PlainScreen
from rtvi_sync.media import AudioLevel, MediaDeviceInfo
from tests.support import limits
from tests.support.installed import install_command

pytestmark = pytest.mark.inside

MICS = [
    MediaDeviceInfo(device_id=f"ALSA/{name}", kind="audioinput", label=name, is_default="default" in name)
    for name in ("USB Headset", "\x1b[2Jdefault")
]
SPEAKERS = [MediaDeviceInfo(device_id="ALSA/Built-in", kind="audiooutput", label="Built-in")]
CAMERAS = [
    MediaDeviceInfo(device_id=f"V4L2/{name}", kind="videoinput", label=name, is_default=name == "one")
    for name in ("one", "two")
]

Setting = Callable[..., None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Setting:
    """Return a function that sets this machine's devices, or the errors of listing them."""

    def set_up(mics: Any = MICS, speakers: Any = SPEAKERS, cams: Any = CAMERAS) -> None:
        for name, there_are in (("mics", mics), ("speakers", speakers), ("cams", cams)):
            monkeypatch.setattr(RTVIClient, f"get_all_{name}", lambda _, given=there_are: _given(given))

    return set_up


def _given(devices: list[MediaDeviceInfo] | Exception) -> list[MediaDeviceInfo]:
    if isinstance(devices, Exception):
        raise devices
    return devices


def test_the_devices_are_listed(machine: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    """Ids, names, and an asterisk for the default, without control characters."""
    machine()
    assert cli.main(["devices"]) == 0
    shown = capsys.readouterr()
    assert [line.rstrip() for line in shown.out.splitlines()] == [
        "Microphones",
        "  id                name",
        "  ALSA/USB Headset  USB Headset",
        "* ALSA/ [2Jdefault   [2Jdefault",
        "",
        "Speakers",
        "  id             name",
        "  ALSA/Built-in  Built-in",
        "",
        "Cameras",
        "  id        name",
        "* V4L2/one  one",
        "  V4L2/two  two",
        "",
    ]
    assert shown.err == ""


def test_a_machine_without_devices_has_none(machine: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    """The status is 1, and stderr has the cause and the cure."""
    machine([], [], [])
    assert cli.main(["devices"]) == 1
    shown = capsys.readouterr()
    assert shown.out.split() == ["Microphones:", "none", "Speakers:", "none", "Cameras:", "none"]
    no_mic, no_speaker, see = shown.err.splitlines()
    assert "This machine has no microphone. Plug one in, or, on Linux, start the sound server" in no_mic
    assert "This machine has no speaker." in no_speaker
    assert see == "See: rtvi-sync explain no-device"


def test_a_machine_with_a_speaker_only(machine: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    """The status is 0, and stderr says what is missing; with --levels it is 1."""
    machine([])
    assert cli.main(["devices"]) == 0
    shown = capsys.readouterr()
    assert "ALSA/Built-in" in shown.out
    assert "no microphone" in shown.err
    assert "no speaker" not in shown.err
    assert cli.main(["devices", "--levels", "1", "--json"]) == 1
    assert "no microphone" in json.loads(capsys.readouterr().out)["problems"]["microphones"]


def test_what_can_be_had_is_listed_where_a_library_is_missing(
    machine: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    """The status is 1, and stderr names once the package to install."""
    missing = MissingExtraError("Audio", "audio", hint="before it: apt")
    machine(missing, missing)
    assert cli.main(["devices"]) == 1
    shown = capsys.readouterr()
    assert "V4L2/two" in shown.out
    assert "Microphones" not in shown.out
    assert shown.err == (
        'rtvi-sync devices: Audio needs the extra "audio". '
        f"Install it with: {install_command('audio')} (before it: apt)\n"
        "See: rtvi-sync explain missing-extra\n"
    )


def test_cameras_are_an_extra(machine: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    """Without it the list says how to install it, and the status is 0."""
    machine(cams=MissingExtraError("The camera", "video"))
    assert cli.main(["devices"]) == 0
    shown = capsys.readouterr()
    assert "Microphones" in shown.out
    assert install_command("video") in shown.out
    assert shown.err == ""


def test_the_list_as_json(machine: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    """Devices and problems are in one document; the error lines stay on stderr."""
    machine(cams=DeviceError("cv2 does not load", devices=("cam",)))
    assert cli.main(["devices", "--json"]) == 1
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert document["microphones"][1] == {
        "device_id": "ALSA/\x1b[2Jdefault",
        "kind": "audioinput",
        "label": "\x1b[2Jdefault",
        "group_id": "",
        "is_default": True,
    }
    assert [speaker["is_default"] for speaker in document["speakers"]] == [False]
    assert document["cameras"] == []
    assert document["problems"] == {"cameras": "cv2 does not load"}
    assert shown.err == "rtvi-sync devices: cv2 does not load\n"


class FakeClient(RTVIClient):
    """A client whose microphone reports levels, or cannot be opened."""

    opened: ClassVar[list[str]]

    def __init__(self, mic: str = "", **_: Any) -> None:
        self._mic = mic
        self._handlers: dict[str, Callable[[Any], None]] = {}

    def on(self, event: str, handler: Callable[[Any], None]) -> None:  # type: ignore[override]
        """Keep the handler of an event."""
        self._handlers[event] = handler

    def init_devices(self) -> None:
        """Fail for the first microphone; report two levels for any other."""
        if self._mic == MICS[0].device_id:
            raise DeviceError("The headset is used by another application", devices=("mic",), type="in-use")
        self.opened.append(self._mic)
        for level in (0.1, 0.01):
            self._handlers["local_audio_level"](AudioLevel(level=level, dbfs=-20 if level == 0.1 else -40))

    def close(self) -> None:
        """Note that the microphone is closed."""
        if self._mic in self.opened:
            self.opened.remove(self._mic)


@pytest.fixture
def microphones(machine: Setting, monkeypatch: pytest.MonkeyPatch) -> type[FakeClient]:
    """Provide two microphones: one is in use, the other reports levels."""
    machine()
    FakeClient.opened = []
    monkeypatch.setattr("rtvi_sync.cli.devices.RTVIClient", FakeClient)
    return FakeClient


def test_levels_are_peaks_where_the_output_is_no_terminal(
    microphones: type[FakeClient], capsys: pytest.CaptureFixture[str]
) -> None:
    """All microphones are open at once; one that cannot be opened does not affect the others; all are closed."""
    assert cli.main(["devices", "--levels", "0.1"]) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert len(lines) == 5
    assert re.fullmatch(r"  ALSA/USB Headset +unavailable: in-use", lines[2])
    assert re.fullmatch(r"\* ALSA/ \[2Jdefault +█{20}·{10} +-20", lines[3])
    assert shown.err == "rtvi-sync devices: The headset is used by another application\n"
    assert microphones.opened == []
    assert logging.getLogger("rtvi_sync.media").level == logging.NOTSET


def test_levels_as_json(microphones: type[FakeClient], capsys: pytest.CaptureFixture[str]) -> None:
    """Levels are numbers."""
    assert cli.main(["devices", "--levels", "0", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["microphones"]
    assert (first["loudest_dbfs"], first["problem"]) == (-100, "The headset is used by another application")
    assert (second["loudest_dbfs"], second["problem"]) == (-20, None)


def test_levels_are_live_on_a_terminal(
    microphones: type[FakeClient], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C ends the measurement, prints the peaks, and sets status 130."""
    seen: list[Any] = []

    class Screen(PlainScreen):
        """A terminal whose user presses Ctrl-C after three updates."""

        live = True

        def show_partial_table(self, headers: Any, rows: Any, texts: int = 1) -> None:
            assert microphones.opened == [MICS[1].device_id]
            seen.append(rows[1][-1])
            if len(seen) == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(devices, "screen_for", lambda: Screen(sys.stdout))
    limits.patch(monkeypatch, levels_tick=0)
    assert cli.main(["devices", "--levels"]) == 130
    assert seen == ["-40"] * 3
    shown = capsys.readouterr().out
    assert shown.startswith("Say something. Ctrl-C ends.\n")
    assert "-20\n" in shown
    assert microphones.opened == []
