"""Conversations with the embedded bot over real sockets."""

from __future__ import annotations

import base64
import time

import pytest

from rtvi_sync.protocol.frames import (
    AudioRawFrame,
)
from rtvi_sync.testing import EmbeddedBot

from .bot_client import ANSWER, QUICK, RATE, Talk, names, pcm_of, silence, tone


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
    assert names(items) == [*started, *heard, "user-stopped-speaking", *ANSWER]
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


def test_a_user_who_stops_sending_is_answered(talk: Talk) -> None:
    """Speech that ends without any silence is answered too."""
    with EmbeddedBot(hangover=QUICK) as bot:
        client = talk(bot)
        client.say(tone(0.3))
        items = client.until("bot-stopped-speaking")

    assert pcm_of(items)[: len(tone(0.3))] == tone(0.3)


def test_audio_inside_of_messages_is_heard(talk: Talk) -> None:
    """raw-audio and raw-audio-batch messages have the effect of audio frames."""
    pcm = base64.b64encode(tone(0.3)).decode()
    quiet = base64.b64encode(silence(0.3)).decode()
    with EmbeddedBot(hangover=QUICK) as bot:
        client = talk(bot)
        client.send("raw-audio", {"base64Audio": pcm, "sampleRate": RATE, "numChannels": 1})
        client.send("raw-audio-batch", {"base64AudioBatch": [quiet], "sampleRate": RATE, "numChannels": 1})
        items = client.until("bot-stopped-speaking")

    assert pcm_of(items)[: len(tone(0.3))] == tone(0.3)


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


def test_without_a_script_the_transcript_states_the_duration(talk: Talk) -> None:
    """The transcript is the length of the speech, and the reply repeats it."""
    with EmbeddedBot(hangover=QUICK) as bot:
        client = talk(bot)
        client.say(tone(0.3) + silence(0.3))
        items = client.until("bot-transcription")

    assert items[-2]["data"]["text"] == " speech)"
    assert items[-1]["data"]["text"] == "You said: (0.4 s of speech)"


def test_replies_can_be_a_function(talk: Talk) -> None:
    """A function makes the reply from the user's words."""
    with EmbeddedBot(replies=str.upper) as bot:
        client = talk(bot)
        client.send("send-text", {"content": "louder"})

        assert client.until("bot-transcription")[-1]["data"]["text"] == "LOUDER"


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


def test_text_without_audio_response_is_answered_in_text(talk: Talk) -> None:
    """`audio_response: false` silences one turn; its text comes as output that is not spoken."""
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


def test_speech_interrupts_speech(talk: Talk) -> None:
    """Speech interrupts the bot's speech: no audio of the old turn follows the interruption."""
    with EmbeddedBot(replies=["A very long reply of many words " * 20, "Yes."], echo=False, hangover=QUICK) as bot:
        client = talk(bot)
        client.send("send-text", {"content": "Talk"})
        client.until("bot-started-speaking")
        client.say(tone(0.2) + silence(0.3))
        cut = client.until("bot-interrupted")
        rest = client.until("bot-stopped-speaking")
        answer = client.until("bot-stopped-speaking")

    assert names(cut)[-3:] == ["user-started-speaking", "InterruptionFrame", "bot-interrupted"]
    assert names(rest) == ["bot-stopped-speaking"]
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
        assert names(client.until("user-input")) == ["bot-stopped-speaking", "user-input"]


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
