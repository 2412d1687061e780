"""How a command describes a bot."""

from __future__ import annotations

import pytest

from rtvi_sync import AboutBotData, BotReadyData
from rtvi_sync.cli.bot_address import describe_bot

pytestmark = pytest.mark.inside


def test_library_and_version() -> None:
    """The bot's library and version are shown as the bot states them, or else "a bot"."""
    about = AboutBotData(library="pipecat-ai", library_version="1.14.0")
    assert describe_bot(BotReadyData(version="2.2.0", about=about)) == (
        "connected to pipecat-ai 1.14.0, RTVI version 2.2.0"
    )
    assert describe_bot(BotReadyData()) == "connected to a bot, RTVI version unknown"
