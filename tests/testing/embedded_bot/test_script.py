"""A bot's turn: the messages, their order and times; and its audio."""

from __future__ import annotations

from itertools import groupby
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtvi_sync.testing.embedded_bot.audio import ReplyAudio
from rtvi_sync.testing.embedded_bot.messages import BotVersion
from rtvi_sync.testing.embedded_bot.reply import Reply
from rtvi_sync.testing.embedded_bot.reply_script import Item, ReplyScript, SpeechScript, sentences_of, words_of
from tests.support.wire import AudioRawFrame

from .bot_client import WRITTEN

pytestmark = pytest.mark.inside

RATE = 16000
Step: TypeAlias = tuple[float, Item]
REPLY = "One two. Three."


def speech(seconds: float, *word_starts: float) -> ReplyAudio:
    return ReplyAudio(pcm=b"\1\2" * round(seconds * RATE), sample_rate=RATE, word_starts=word_starts)


VERSIONS = (BotVersion("0.3.0"), BotVersion("1.2.0"), BotVersion("2.2.0"))


def play(reply: str, sound: ReplyAudio | None, *, generation: int = 2) -> list[Step]:
    script = ReplyScript(
        reply=Reply(reply),
        bot_version=VERSIONS[generation],
        speech=SpeechScript(generation, generation, 7),
        voice=lambda _: sound or ReplyAudio(pcm=b"", sample_rate=RATE, word_starts=()),
        spoken=sound is not None,
    )
    return list(script.steps())


def outline(steps: list[Step]) -> list[str]:
    """Return one word per step: the type, and the kind of a bot-output; adjacent audio is one entry."""
    return [name for name, _ in groupby(map(name_of, steps))]


def name_of(step: Step) -> str:
    item = step[1]
    if isinstance(item, AudioRawFrame):
        return "audio"
    assert isinstance(item, dict)
    data = item.get("data", {})
    if item["type"] == "bot-output":
        kind = data["text"] if data["aggregated_by"] == "word" else data.get("spoken_status", "new")
        return f"bot-output {kind} {data.get('spoken_progress', {}).get('accumulated_text', '')}".rstrip()
    return " ".join([item["type"], *data.values()])


def test_order_of_a_spoken_turn() -> None:
    """The order matches a real 2.x bot: audio first, then its first progress before bot-started-speaking."""
    assert outline(play(REPLY, speech(1.2, 0.0, 0.4, 0.8))) == [
        *WRITTEN,
        "bot-tts-started",
        "audio",
        "bot-output in-progress One",
        "bot-started-speaking",
        "bot-output new",
        "bot-tts-text One",
        "bot-tts-stopped",
        "audio",
        "bot-tts-text two.",
        "bot-output completed One two.",
        "bot-output new",
        "audio",
        "bot-tts-text Three.",
        "bot-output completed Three.",
        "audio",
        "bot-stopped-speaking",
    ]


def test_order_for_clients_of_protocol_1() -> None:
    """Clients of 1.x get every sentence as it is written and then every word; the model stops twice."""
    assert outline(play(REPLY, speech(1.2, 0.0, 0.4, 0.8), generation=1)) == [
        *WRITTEN,
        "bot-tts-started",
        "audio",
        "bot-started-speaking",
        "bot-output new",
        "bot-output One",
        "bot-tts-text One",
        "bot-output new",
        "bot-tts-stopped",
        "bot-llm-stopped",
        "audio",
        "bot-output two.",
        "bot-tts-text two.",
        "audio",
        "bot-output Three.",
        "bot-tts-text Three.",
        "audio",
        "bot-stopped-speaking",
    ]


def test_order_of_a_turn_without_audio() -> None:
    """A reply that is not spoken has no speech events, and each sentence is sent once."""
    steps = play(REPLY, None)

    assert outline(steps) == [*WRITTEN, "bot-output new"]
    assert [item["data"]["will_be_spoken"] for _, item in steps[-2:] if isinstance(item, dict)] == [False, False]


def test_a_reply_of_nothing() -> None:
    """An empty reply is a turn without words, with any audio."""
    assert outline(play("", speech(1.0))) == ["bot-llm-started", "bot-llm-stopped"]


def test_fields_of_bot_output() -> None:
    """The fields match those from a real bot, and all reports of a sentence have one segment id."""
    items = [item for _, item in play("Hi you.", speech(0.4, 0.0, 0.2)) if isinstance(item, dict)]
    outputs = [item["data"] for item in items if item["type"] == "bot-output"]
    new, done = [data for data in outputs if data["spoken_status"] in ("new", "completed")]
    sentence = {"output_type": "sentence", "text_type": "sentence", "aggregated_by": "sentence", "segment_id": 7}

    assert new == {
        "text": "Hi you.",
        **sentence,
        "spoken": False,
        "will_be_spoken": True,
        "spoken_status": "new",
        "spoken_progress": {"accumulated_text": "", "remaining_text": "Hi you."},
    }
    assert done == {
        "text": "Hi you.",
        **sentence,
        "will_be_spoken": True,
        "spoken_status": "completed",
        "spoken_progress": {"accumulated_text": "Hi you.", "remaining_text": ""},
    }


def test_audio_is_due_in_real_time_with_a_head_start_of_two_frames() -> None:
    """Complete chunks of 40 ms, the last padded with silence; two immediately, then one every 40 ms."""
    steps = play("Hi.", speech(0.21, 0.0))
    audio = [(due, item) for due, item in steps if isinstance(item, AudioRawFrame)]

    assert [round(due, 3) for due, _ in audio] == [0.0, 0.0, 0.04, 0.08, 0.12, 0.16]
    assert {len(item.audio) for _, item in audio} == {1280}
    assert b"".join(item.audio for _, item in audio) == b"\1\2" * 3360 + bytes(2 * 480)
    assert steps[-1][0] == pytest.approx(0.20)


def test_bots_of_0_3_report_the_end_of_speech_late() -> None:
    """`bot-stopped-speaking` follows 0.35 s after the last audio; later bots send it immediately."""
    ends = [play("Hi.", speech(0.2, 0.0), generation=generation)[-1] for generation in (0, 1, 2)]

    assert [item["type"] for _, item in ends if isinstance(item, dict)] == ["bot-stopped-speaking"] * 3
    assert ends[0][0] - ends[2][0] == pytest.approx(0.35)
    assert ends[1][0] == ends[2][0]


texts = st.text(st.sampled_from("ab .!?"), max_size=60)


@given(texts, st.floats(0.01, 1.0), st.integers(0, 2))
def test_every_word_is_said_once_and_nothing_goes_back_in_time(reply: str, seconds: float, generation: int) -> None:
    """With any reply and any length of audio, all words are in order and time never goes back."""
    words = words_of(reply)
    sound = speech(seconds, *(index * 0.3 for index in range(len(words))))
    steps = play(reply, sound, generation=generation)
    said = [item["data"]["text"] for _, item in steps if isinstance(item, dict) and item["type"] == "bot-tts-text"]
    times = [due for due, _ in steps]

    assert words_of(" ".join(said)) == words
    assert times == sorted(times)


@given(texts)
def test_sentences_hold_all_words(reply: str) -> None:
    """Splitting into sentences loses and adds no word."""
    assert words_of(" ".join(sentences_of(reply))) == words_of(reply)
