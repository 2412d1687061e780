"""Parsers of command-line arguments, and the line about the bot that they lead to."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import pytest

from rtvi_sync import AboutBotData, BotReadyData, MemoryTransport, RTVIError
from rtvi_sync.cli import arguments, main
from rtvi_sync.cli.arguments import check_takes_text, describe_bot, recorded, writable_wav
from tests.support.by_ear import EarTransport
from tests.support.clients import memory_client
from tests.support.installed import install_command

pytestmark = pytest.mark.inside


def test_a_header_is_a_name_and_a_value() -> None:
    """Any other text is refused, and not repeated: it may hold a key."""
    assert arguments.header("Authorization:  Bearer a:b ") == ("Authorization", "Bearer a:b")
    for wrong in ("secret", ":secret", "secret:", "a: b\nsecret: c", "a b: secret", "a: sécret secret"):
        with pytest.raises(argparse.ArgumentTypeError) as caught:
            arguments.header(wrong)
        assert "secret" not in str(caught.value)


def test_a_text_for_a_bot_that_is_only_heard() -> None:
    """A text is refused before the bot is connected to, if the transport carries no messages."""
    for transport in ("auto", "websocket", MemoryTransport()):
        check_takes_text(argparse.Namespace(url="ws://127.0.0.1:1", transport=transport))
    with pytest.raises(RTVIError, match="carries no text: pass --wav FILE or --sample instead"):
        check_takes_text(argparse.Namespace(url="ws://127.0.0.1:1", transport=EarTransport()))


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("ws://127.0.0.1:9", "The URL is for a WebSocket, which the transport 'webrtc' does not use"),
        (
            "http://127.0.0.1:9",
            f'SmallWebRTCTransport needs the extra "webrtc". Install it with: {install_command("webrtc")}',
        ),
    ],
    ids=["not for the URL", "not installed"],
)
@pytest.mark.parametrize(
    "words",
    [
        ("talk", "URL"),
        ("ask", "URL", "Hello"),
        ("demo", "--url", "URL"),
        ("doctor", "URL"),
        ("load", "URL", "--sessions", "1", "--sample"),
        ("eval", "calls.yaml", "--url", "URL"),
    ],
    ids=lambda words: words[0],
)
def test_a_transport_that_cannot_reach_the_url(
    words: tuple[str, ...],
    url: str,
    fault: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command has the status 2, and does nothing."""
    monkeypatch.setitem(sys.modules, "aiortc", None)
    with pytest.raises(SystemExit) as exit_:
        main([*(word.replace("URL", url) for word in words), "--transport", "webrtc"])
    assert exit_.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"rtvi-sync {words[0]}: error: {fault}"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--timeout", "-1"), "argument --timeout: '-1' is not a positive number of seconds"),
        (("--timeout", "0"), "argument --timeout: '0' is not a positive number of seconds"),
        (("--timeout", "5s"), "argument --timeout: '5s' is not a positive number of seconds"),
        (("--timeout", "inf"), "argument --timeout: 'inf' is not a positive number of seconds"),
        (("--rate", "nan"), "argument --rate: 'nan' is not a positive number"),
    ],
)
def test_numbers_that_are_none(words: tuple[str, str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The error says which numbers the option takes."""
    with pytest.raises(SystemExit, match="2"):
        main(["load", "ws://127.0.0.1:9", "--sessions", "1", "--sample", *words])
    assert capsys.readouterr().err.splitlines()[-1] == f"rtvi-sync load: error: {told}"


def test_library_and_version() -> None:
    """The bot's library and version are shown as the bot states them, or else "a bot"."""
    about = AboutBotData(library="pipecat-ai", library_version="1.14.0")
    assert describe_bot(BotReadyData(version="2.2.0", about=about)) == (
        "connected to pipecat-ai 1.14.0, RTVI version 2.2.0"
    )
    assert describe_bot(BotReadyData()) == "connected to a bot, RTVI version unknown"


def test_a_file_without_write_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write permission for its folder does not help."""
    path = tmp_path / "x.wav"
    path.touch()
    monkeypatch.setattr(os, "access", lambda asked, mode: asked != path)  # root may write everywhere
    with pytest.raises(RTVIError, match="--record"):
        writable_wav(path, "--record")


def test_a_directory_is_refused(tmp_path: Path) -> None:
    """A directory is refused, and so is a file in a directory that does not exist or is a file."""
    assert writable_wav(tmp_path / "x.wav", "--record") == tmp_path / "x.wav"
    (tmp_path / "file").touch()
    for wrong in (tmp_path, tmp_path / "no" / "x.wav", tmp_path / "file" / "x.wav"):
        with pytest.raises(RTVIError, match="--record"):
            writable_wav(wrong, "--record")


def test_the_name_of_another_format_is_refused(tmp_path: Path) -> None:
    """WAV is all that is written; a name without an ending is the user's own."""
    assert writable_wav(tmp_path / "x", "--record") == tmp_path / "x"
    with pytest.raises(
        RTVIError, match=r"--record: A WAV file would be written, but .*x.MP3 is the name of another format"
    ):
        writable_wav(tmp_path / "x.MP3", "--record")


def test_messages_replace_those_of_a_recording_only(tmp_path: Path) -> None:
    """The file beside the WAV file is not named by the user, and may be anything."""
    for _ in range(2):
        with recorded(memory_client(), tmp_path / "a.wav", print):
            pass
    (tmp_path / "b.jsonl").write_text('{"question": "Hello"}\n')
    with (
        pytest.raises(RTVIError, match=r"b\.jsonl: it is no recording"),
        recorded(memory_client(), tmp_path / "b.wav", print),
    ):
        pass
    assert (tmp_path / "b.jsonl").read_text() == '{"question": "Hello"}\n'
