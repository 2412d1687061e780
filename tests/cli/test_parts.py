"""The small parts of the commands: meters, choices of devices, arguments, addresses."""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path

import pytest

from rtvi_sync import RTVIClient, RTVIError, StartBotError
from rtvi_sync.cli import arguments
from rtvi_sync.cli import device_choice as choice
from rtvi_sync.cli.bot_address import client_for
from rtvi_sync.cli.log_filter import without_logs_of_devices
from rtvi_sync.cli.meter import bar
from rtvi_sync.cli.recording_file import writable
from rtvi_sync.media import MediaDeviceInfo, NullSink, WavSink, WavSource
from rtvi_sync.testing import EmbeddedBot
from tests.support.slowness import GUARD


@pytest.mark.parametrize(
    ("dbfs", "shown"), [(-100, "····"), (-60, "····"), (-45, "█···"), (-30, "██··"), (0, "████"), (3, "████")]
)
def test_a_bar_is_as_long_as_it_is_loud(dbfs: float, shown: str) -> None:
    """Empty at -60 dBFS and below, full at 0."""
    assert bar(dbfs, 4) == shown


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "no such encoding"])
def test_a_bar_needs_no_blocks(encoding: str) -> None:
    """Terminals that have none get signs that each has."""
    assert bar(-30, 4, encoding) == "##.."


def devices(kind: str, *names: str) -> list[MediaDeviceInfo]:
    """Devices that there are not."""
    return [MediaDeviceInfo(device_id=f"ALSA/{name}", kind=kind, label=name) for name in names]


MICS = devices("audioinput", "USB Headset", "USB Camera", "Built-in")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with three microphones and a speaker."""
    monkeypatch.setattr(RTVIClient, "get_all_mics", lambda _: MICS)
    monkeypatch.setattr(RTVIClient, "get_all_speakers", lambda _: devices("audiooutput", "Built-in"))


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("ALSA/USB Camera", "ALSA/USB Camera"), ("headset", "ALSA/USB Headset"), ("ALSA/b", "ALSA/Built-in")],
)
@pytest.mark.usefixtures("machine")
def test_a_part_of_a_name_chooses_a_device(wanted: str, found: str) -> None:
    """In capitals or not, of the id or of the label."""
    assert choice.microphone(wanted) == found


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ("usb", "Several microphones fit 'usb'; there are: ALSA/USB Headset, ALSA/USB Camera "),
        ("hat", "No microphone fits 'hat'; there are: ALSA/USB Headset, ALSA/USB Camera, ALSA/Built-in "),
    ],
)
@pytest.mark.usefixtures("machine")
def test_what_chooses_no_device_is_told(wanted: str, told: str) -> None:
    """With those there are."""
    with pytest.raises(RTVIError, match=told):
        choice.microphone(wanted)


@pytest.mark.usefixtures("machine")
def test_files_and_nothing_can_be_chosen(one_word: Path, tmp_path: Path) -> None:
    """A WAV file in the place of each; the default; none."""
    assert isinstance(choice.microphone(str(one_word)), WavSource)
    assert isinstance(choice.speaker(str(tmp_path / "OUT.WAV")), WavSink)
    assert choice.microphone(None) is choice.speaker(None) is choice.microphone("none") is None
    assert isinstance(choice.speaker("none"), NullSink)
    assert choice.speaker("built") == "ALSA/Built-in"


def test_the_next_device_goes_round() -> None:
    """From each to the one that follows; from one that is gone, or a file, to the first; never to the same."""
    first, second, third = MICS
    gone = devices("audioinput", "gone")[0]
    pairs = [(first, second), (third, first), (gone, first), (None, first)]
    assert [choice.next_device(MICS, current) for current, _ in pairs] == [following for _, following in pairs]
    assert choice.next_device([first], first) is None
    assert choice.next_device([], first) is None


def test_a_header_is_a_name_and_a_value() -> None:
    """What is none is refused, and not repeated: it may be a key."""
    assert arguments.header("Authorization:  Bearer a:b ") == ("Authorization", "Bearer a:b")
    for wrong in ("secret", ":secret", "secret:", "a: b\nsecret: c"):
        with pytest.raises(argparse.ArgumentTypeError) as caught:
            arguments.header(wrong)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("path", ["/connect", "/start"])
def test_headers_go_to_the_endpoint(path: str) -> None:
    """To that which connects and to that which starts; without them the server refuses."""
    with EmbeddedBot(headers={"X-Key": "abc"}) as bot:
        for headers in ({"X-Key": "abc"}, {}):
            client = client_for(
                bot.base_url + path, headers=headers, enable_mic=False, speaker=NullSink(), connect_timeout=GUARD
            )
            try:
                if headers:
                    assert client.connect().version
                else:
                    with pytest.raises(StartBotError, match="401"):
                        client.connect()
            finally:
                client.close()


def test_a_token_goes_to_the_websocket() -> None:
    """Whatever the URL says about where that is."""
    with EmbeddedBot() as bot:
        client = client_for(bot.ws_url, token="abc", enable_mic=False, speaker=NullSink(), connect_timeout=GUARD)
        try:
            client.connect()
            assert bot.wait_for_session(GUARD).path.endswith("?token=abc")
        finally:
            client.close()


def test_logs_of_devices_are_quiet_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """Also the stacks of threads that hang in one; afterwards all is as before."""
    loggers = [logging.getLogger(f"rtvi_sync.{name}") for name in ("media.manager", "concurrency.lifecycle")]
    with without_logs_of_devices():
        for logger in loggers:
            logger.error("not seen")
    for logger in loggers:
        logger.error("seen")
    assert [record.getMessage() for record in caplog.records] == ["seen", "seen"]


def test_a_file_that_is_anothers_is_no_file_to_record_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though its folder is the user's."""
    path = tmp_path / "x.wav"
    path.touch()
    monkeypatch.setattr(os, "access", lambda asked, mode: asked != path)  # for root nothing is anybody else's
    with pytest.raises(RTVIError, match="--record"):
        writable(path, "--record")


def test_a_directory_is_no_file_to_record_to(tmp_path: Path) -> None:
    """Told before anything is said."""
    assert writable(tmp_path / "x.wav", "--record") == tmp_path / "x.wav"
    for wrong in (tmp_path, tmp_path / "no" / "x.wav"):
        with pytest.raises(RTVIError, match="--record"):
            writable(wrong, "--record")
