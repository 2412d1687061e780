"""Playback of replies: pace, rates, and interruption."""

from __future__ import annotations

import time

import pytest

from rtvi_sync.testing import EmbeddedBot
from tests.support.wavs import silence, tone
from tests.support.wire import (
    AudioRawFrame,
)

from .bot_client import QUICK, RATE, Talk, names


def test_audio_can_have_a_fixed_rate(talk: Talk) -> None:
    """`audio_out_sample_rate_hz` holds for echoes and for tones."""
    with EmbeddedBot(audio_out_sample_rate_hz=8000, replies="Yes.", hangover=QUICK) as bot:
        client = talk(bot)
        client.say(tone(0.3) + silence(0.3))
        spoken = client.until("bot-stopped-speaking")
        client.send("send-text", {"content": "Hello"})
        typed = client.until("bot-stopped-speaking")

    frames = [item for item in spoken + typed if isinstance(item, AudioRawFrame)]
    assert {(frame.sample_rate, len(frame.audio)) for frame in frames} == {(8000, 640)}


@pytest.mark.parametrize(("speech_first", "rate"), [(True, RATE), (False, 24000)])
def test_audio_has_one_rate_a_session(talk: Talk, speech_first: bool, rate: int) -> None:
    """Without a fixed rate the bot uses the user's, or its own if it speaks before the user, and keeps it."""
    with EmbeddedBot(replies="Yes.", hangover=QUICK) as bot:
        client = talk(bot)
        items = []
        for speech in (speech_first, not speech_first):
            if speech:
                client.say(tone(0.3) + silence(0.3))
            else:
                client.send("send-text", {"content": "Hello"})
            items += client.until("bot-stopped-speaking")

    frames = [item for item in items if isinstance(item, AudioRawFrame)]
    assert {frame.sample_rate for frame in frames} == {rate}


def test_speech_interrupts_speech(talk: Talk) -> None:
    """Speech interrupts the bot's speech: one more word of the old turn follows the interruption, and no audio."""
    with EmbeddedBot(replies=["A very long reply of many words " * 20, "Yes."], echo=False, hangover=QUICK) as bot:
        client = talk(bot)
        client.send("send-text", {"content": "Talk"})
        client.until("bot-started-speaking")
        client.say(tone(0.2) + silence(0.3))
        cut = client.until("bot-interrupted")
        rest = client.until("bot-stopped-speaking")
        answer = client.until("bot-stopped-speaking")

    assert names(cut)[-3:] == ["user-started-speaking", "InterruptionFrame", "bot-interrupted"]
    assert names(rest) == ["bot-tts-text", "bot-output", "bot-stopped-speaking"]
    assert [
        item["data"]["text"] for item in answer if not isinstance(item, AudioRawFrame) and "bot-tr" in item["type"]
    ] == ["Yes."]


def test_text_interrupts_speech(talk: Talk) -> None:
    """send-text interrupts the bot's speech as well."""
    with EmbeddedBot(replies=["A very long reply of many words " * 20, "Yes."]) as bot:
        client = talk(bot)
        client.send("send-text", {"content": "Talk"})
        client.until("bot-started-speaking")
        client.send("send-text", {"content": "Stop"})

        assert names(client.until("bot-interrupted"))[-2:] == ["InterruptionFrame", "bot-interrupted"]
        assert names(client.until("user-input")) == [
            "bot-tts-text",
            "bot-output",
            "bot-stopped-speaking",
            "user-input",
        ]


def test_audio_is_not_faster_than_real_time(talk: Talk) -> None:
    """No chunk arrives before it is due: 40 ms for each but the two of the head start."""
    with EmbeddedBot(replies="One two three four.") as bot:
        client = talk(bot)
        began, arrivals = time.monotonic(), []
        client.send("send-text", {"content": "Talk"})
        while True:
            frame = client.receive()
            if isinstance(frame, AudioRawFrame):
                arrivals.append(time.monotonic() - began)
            elif "bot-stopped-speaking" in getattr(frame, "data", ""):
                break

    assert len(arrivals) > 20
    assert [at for index, at in enumerate(arrivals) if at < (index - 1) * 0.04] == []


def test_no_silence_is_sent_between_turns(talk: Talk) -> None:
    """A silent bot sends nothing, however much silence it receives."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        client.say(silence(3))
        client.send("client-message", {"t": "fence"})

        assert names(client.until("server-response")) == ["server-response"]
