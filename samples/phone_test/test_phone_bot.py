"""Requirements of a phone bot. The same tests call an embedded bot, and, with --rtvi-url, a live one."""

from __future__ import annotations

from pathlib import Path

import pytest

import rtvi_sync
from rtvi_sync import RTVIClient
from rtvi_sync.testing import BotSession, EmbeddedBot

# A question of five seconds, with a pause in it. Take one that your bot answers.
QUESTION = Path(rtvi_sync.__file__).with_name("cli") / "speech.wav"

STORY = "Once upon a time there was a robot who wanted to see the sea."

pytestmark = pytest.mark.rtvi(replies=lambda _: STORY)


def test_it_answers_in_time(rtvi_client: RTVIClient) -> None:
    """The caller hears an answer soon after the question."""
    turn = rtvi_client.ask(QUESTION, timeout=60)
    turn.expect(voice_to_voice=5)
    assert turn.audio.seconds > 0.5


def test_it_can_be_interrupted(rtvi_client: RTVIClient) -> None:
    """Who talks over the answer is listened to, and hears no more of it."""
    second = rtvi_client.barge_in(QUESTION, delay=0.5)
    rtvi_client.ask(QUESTION, timeout=60).expect(interrupted=True)
    second.result(60).expect(voice_to_voice=5)


def test_it_takes_keys(rtvi_bot: EmbeddedBot, rtvi_client: RTVIClient) -> None:
    """Keys reach the bot. For a live bot, check its answer to them with `rtvi_client.listen()`."""
    rtvi_client.send_dtmf("12#")
    session: BotSession = rtvi_bot.sessions[0]
    session.wait_for_dtmf("12#")


def test_it_hangs_up(rtvi_bot: EmbeddedBot, rtvi_client: RTVIClient) -> None:
    """The caller hears the bot's last words before it hangs up."""
    with rtvi_client.events("disconnected", timeout=60) as events:
        rtvi_bot.sessions[0].hang_up()
        assert next(events).data.initiator == "server"
