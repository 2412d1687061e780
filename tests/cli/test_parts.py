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
from rtvi_sync.cli.bot_address import create_client
from rtvi_sync.cli.log_filter import suppress_device_logs
from rtvi_sync.cli.meter import level_bar
from rtvi_sync.cli.recording_file import writable_path
from rtvi_sync.media import MediaDeviceInfo, NullSink, WavSink, WavSource
from rtvi_sync.testing import EmbeddedBot
from tests.support.slowness import GUARD


@pytest.mark.parametrize(
    ("dbfs", "shown"), [(-100, "····"), (-60, "····"), (-45, "█···"), (-30, "██··"), (0, "████"), (3, "████")]
)
def test_a_bar_is_as_long_as_it_is_loud(dbfs: float, shown: str) -> None:
    """The bar is empty at -60 dBFS and below, full at 0 dBFS."""
    assert level_bar(dbfs, 4) == shown


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "no such encoding"])
def test_a_bar_needs_no_blocks(encoding: str) -> None:
    """Without block characters the bar is made of ASCII characters."""
    assert level_bar(-30, 4, encoding) == "##.."


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


@pytest.mark.usefixtures("machine")
def test_files_and_none_can_be_chosen(one_word: Path, tmp_path: Path) -> None:
    """A WAV file stands for each device; the default and "none" are special."""
    assert isinstance(choice.select_mic(str(one_word)), WavSource)
    assert isinstance(choice.select_speaker(str(tmp_path / "OUT.WAV")), WavSink)
    assert choice.select_mic(None) is choice.select_speaker(None) is choice.select_mic("none") is None
    assert isinstance(choice.select_speaker("none"), NullSink)
    assert choice.select_speaker("built") == "ALSA/Built-in"


def test_the_next_device_goes_round() -> None:
    """Each is followed by the next, a missing device or a file by the first; never by itself."""
    first, second, third = MICS
    gone = devices("audioinput", "gone")[0]
    pairs = [(first, second), (third, first), (gone, first), (None, first)]
    assert [choice.next_device(MICS, current) for current, _ in pairs] == [following for _, following in pairs]
    assert choice.next_device([first], first) is None
    assert choice.next_device([], first) is None


def test_a_header_is_a_name_and_a_value() -> None:
    """Any other text is refused, and not repeated: it may hold a key."""
    assert arguments.header("Authorization:  Bearer a:b ") == ("Authorization", "Bearer a:b")
    for wrong in ("secret", ":secret", "secret:", "a: b\nsecret: c"):
        with pytest.raises(argparse.ArgumentTypeError) as caught:
            arguments.header(wrong)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("path", ["/connect", "/start"])
def test_headers_go_to_the_endpoint(path: str) -> None:
    """The connect and the start endpoint receive them; without them the server refuses."""
    with EmbeddedBot(headers={"X-Key": "abc"}) as bot:
        for headers in ({"X-Key": "abc"}, {}):
            client = create_client(
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
    """The token is in the handshake's query."""
    with EmbeddedBot() as bot:
        client = create_client(bot.ws_url, token="abc", enable_mic=False, speaker=NullSink(), connect_timeout=GUARD)
        try:
            client.connect()
            assert bot.wait_for_session(GUARD).path.endswith("?token=abc")
        finally:
            client.close()


def test_device_logs_are_suppressed_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """So are the stacks of blocked threads; afterwards the levels are as before."""
    loggers = [logging.getLogger(f"rtvi_sync.{name}") for name in ("media.manager", "concurrency.lifecycle")]
    with suppress_device_logs():
        for logger in loggers:
            logger.error("not seen")
    for logger in loggers:
        logger.error("seen")
    assert [record.getMessage() for record in caplog.records] == ["seen", "seen"]


def test_a_file_without_write_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write permission for its folder does not help."""
    path = tmp_path / "x.wav"
    path.touch()
    monkeypatch.setattr(os, "access", lambda asked, mode: asked != path)  # root may write everywhere
    with pytest.raises(RTVIError, match="--record"):
        writable_path(path, "--record")


def test_a_directory_is_refused(tmp_path: Path) -> None:
    """So is a file in a directory that does not exist."""
    assert writable_path(tmp_path / "x.wav", "--record") == tmp_path / "x.wav"
    for wrong in (tmp_path, tmp_path / "no" / "x.wav"):
        with pytest.raises(RTVIError, match="--record"):
            writable_path(wrong, "--record")
