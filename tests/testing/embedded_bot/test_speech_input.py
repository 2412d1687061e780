"""Speech input: audio in frames and messages becomes transcripts."""

from __future__ import annotations

import base64

import pytest

from rtvi_sync import BotError, RTVIClient
from rtvi_sync.media import BytesSource, NullSink, SilenceSource
from rtvi_sync.testing import EmbeddedBot
from tests.support.slowness import GUARD
from tests.support.wavs import silence, tone
from tests.support.wire import (
    AudioRawFrame,
    TranscriptionFrame,
)

from .bot_client import QUICK, RATE, Talk, pcm_of


def test_a_user_who_stops_sending_is_answered(talk: Talk) -> None:
    """Speech that ends without any silence is answered too."""
    with EmbeddedBot(hangover=QUICK) as bot:
        client = talk(bot)
        client.say(tone(0.3))
        items = client.until("bot-stopped-speaking")

    assert pcm_of(items)[: len(tone(0.3))] == tone(0.3)


def test_a_reply_that_raises() -> None:
    """A reply that raises is a failure of the bot's model, and the next question is answered."""
    asked: list[str] = []

    def reply(said: str) -> str:
        asked.append(said)
        if len(asked) == 1:
            raise ValueError("no model")
        return "Yes."

    with (
        EmbeddedBot(replies=reply, transcripts=["one", "two"], hangover=QUICK) as bot,
        RTVIClient.for_url(bot.ws_url, mic=SilenceSource(RATE), speaker=NullSink()) as client,
    ):
        with pytest.raises(BotError, match="answered nothing: The model failed") as failed:
            client.ask(BytesSource(tone(0.3), RATE), timeout=GUARD)
        assert failed.value.turn is not None
        assert failed.value.turn.user_text == "one"
        assert client.ask(BytesSource(tone(0.3), RATE), timeout=GUARD).bot_text == "Yes."
    assert asked == ["one", "two"]


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


def test_without_a_script_the_transcript_states_the_duration(talk: Talk) -> None:
    """The transcript is the length of the speech, and the reply repeats it."""
    with EmbeddedBot(hangover=QUICK) as bot:
        client = talk(bot)
        client.say(tone(0.3) + silence(0.3))
        items = client.until("bot-transcription")

    assert items[-2]["data"]["text"] == " speech)"
    assert items[-1]["data"]["text"] == "You said: (0.4 s of speech)"


def test_a_transcription_frame_counts_as_heard(talk: Talk) -> None:
    """A client's own transcription is returned as the user's transcript."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        client.send_frame(TranscriptionFrame(text="Hello", user_id="me", timestamp="now"))
        items = client.until("user-transcription")

    assert [(item["type"], item["data"]["text"], item["data"]["final"]) for item in items] == [
        ("user-input", "Hello", True),
        ("user-transcription", "Hello", True),
    ]


def test_audio_without_a_rate_is_an_error(talk: Talk) -> None:
    """A frame without a sample rate gets an error, and the session stays open."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        client.send_frame(AudioRawFrame(audio=b"\1\2", sample_rate=0))

        assert client.message("error")["data"]["error"] == "Error processing frame: Sample rate should be over 0"
