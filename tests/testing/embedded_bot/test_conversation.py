"""Conversations with the embedded bot over real sockets."""

from __future__ import annotations

from rtvi_sync.testing import EmbeddedBot
from tests.support.wavs import silence, tone
from tests.support.wire import (
    AudioRawFrame,
)

from .bot_client import ANSWER, QUICK, RATE, Talk, names, pcm_of


def test_a_text_turn_in_the_order_of_a_real_bot(talk: Talk) -> None:
    """send-text interrupts, is acknowledged with its id and answered in text and audio."""
    with EmbeddedBot(replies="Yes.") as bot:
        client = talk(bot)
        client.send("send-text", {"content": "Hello"}, id="abc")
        items = client.until("bot-stopped-speaking")

    assert names(items) == ["InterruptionFrame", "bot-interrupted", "user-input", *ANSWER]
    assert items[2]["data"].pop("timestamp").endswith("+00:00")
    assert items[2] == {
        "label": "rtvi-ai",
        "type": "user-input",
        "data": {"text": "Hello", "input_type": "chat", "final": True, "msg_id": "abc"},
    }
    audio = [item for item in items if isinstance(item, AudioRawFrame)]
    assert {(len(frame.audio), frame.sample_rate, frame.num_channels, frame.pts) for frame in audio} == {
        (1920, 24000, 1, None)
    }
    assert [frame.name for frame in audio] == [f"OutputAudioRawFrame#{frame.id}" for frame in audio]


def test_a_spoken_turn_in_the_order_of_a_real_bot(talk: Talk) -> None:
    """Speech is announced, interrupts, is transcribed, ends, and is answered."""
    with EmbeddedBot(transcripts="Hello bot", replies="Yes.", hangover=QUICK) as bot:
        client = talk(bot)
        client.say(silence(0.5) + tone(0.3) + silence(0.3))
        items = client.until("bot-stopped-speaking")

    heard = ["user-input", "user-transcription"] * 2
    started = ["user-started-speaking", "InterruptionFrame", "bot-interrupted"]
    assert names(items) == [*started, *heard, "user-llm-text", "user-stopped-speaking", *ANSWER[1:]]
    texts = [item["data"] for item in items if isinstance(item, dict) and item["type"] == "user-transcription"]
    assert [(data["text"], data["final"]) for data in texts] == [("Hello", False), ("Hello bot", True)]


def test_the_users_own_voice_comes_back_bit_exact(talk: Talk) -> None:
    """The answer to speech is the user's audio at its own rate, padded to a multiple of 40 ms."""
    with EmbeddedBot(hangover=QUICK) as bot:
        client = talk(bot)
        client.say(silence(0.5) + tone(0.33) + silence(0.4))
        items = client.until("bot-stopped-speaking")

    said = silence(0.1) + tone(0.33) + silence(0.1)
    assert pcm_of(items) == said.ljust(-(-len(said) // 1280) * 1280, b"\0")
    assert {item.sample_rate for item in items if isinstance(item, AudioRawFrame)} == {RATE}


def test_the_script_is_followed_and_begins_again(talk: Talk) -> None:
    """Transcripts and replies are used turn by turn, and from the first again after the last."""
    with EmbeddedBot(transcripts=["A", "B"], replies=["1", "2", "3"], echo=False, hangover=QUICK) as bot:
        client = talk(bot)
        turns = []
        for _ in range(4):
            client.say(tone(0.1) + silence(0.3))
            items = [item for item in client.until("bot-stopped-speaking") if isinstance(item, dict)]
            turns += [item["data"]["text"] for item in items if item["type"] in ("user-llm-text", "bot-transcription")]

    assert turns == ["A", "1", "B", "2", "A", "3", "B", "1"]


def test_replies_can_be_a_function(talk: Talk) -> None:
    """A function makes the reply from the user's words."""
    with EmbeddedBot(replies=str.upper) as bot:
        client = talk(bot)
        client.send("send-text", {"content": "louder"})

        assert client.until("bot-transcription")[-1]["data"]["text"] == "LOUDER"


def test_text_without_audio_response_is_answered_in_text(talk: Talk) -> None:
    """`audio_response: false` silences one turn; its text arrives as output that is not spoken."""
    with EmbeddedBot(replies="Yes.") as bot:
        client = talk(bot)
        client.send("send-text", {"content": "Hello", "options": {"audio_response": False}})
        items = client.until("bot-output")

    assert names(items)[-3:] == ["bot-transcription", "bot-llm-stopped", "bot-output"]
    assert items[-1]["data"]["will_be_spoken"] is False


def test_text_that_does_not_run_is_only_acknowledged(talk: Talk) -> None:
    """`run_immediately: false` interrupts nothing and answers nothing."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        client.send("send-text", {"content": "Hello", "options": {"run_immediately": False}})
        client.send("client-message", {"t": "fence"})

        assert names(client.until("server-response")) == ["user-input", "server-response"]
