"""Parsers of command-line arguments, and the line about the bot that they lead to."""

from __future__ import annotations

import argparse

import pytest

from rtvi_sync import AboutBotData, BotReadyData
from rtvi_sync.cli import arguments
from rtvi_sync.cli.arguments import describe_bot

pytestmark = pytest.mark.inside


def test_a_header_is_a_name_and_a_value() -> None:
    """Any other text is refused, and not repeated: it may hold a key."""
    assert arguments.header("Authorization:  Bearer a:b ") == ("Authorization", "Bearer a:b")
    for wrong in ("secret", ":secret", "secret:", "a: b\nsecret: c", "a b: secret", "a: sécret secret"):
        with pytest.raises(argparse.ArgumentTypeError) as caught:
            arguments.header(wrong)
        assert "secret" not in str(caught.value)


def test_library_and_version() -> None:
    """The bot's library and version are shown as the bot states them, or else "a bot"."""
    about = AboutBotData(library="pipecat-ai", library_version="1.14.0")
    assert describe_bot(BotReadyData(version="2.2.0", about=about)) == (
        "connected to pipecat-ai 1.14.0, RTVI version 2.2.0"
    )
    assert describe_bot(BotReadyData()) == "connected to a bot, RTVI version unknown"
