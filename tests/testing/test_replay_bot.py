"""A recording as a bot: the same turns for the same client, and an error for a different one."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import DisconnectedError, Recording, RequestTimeoutError, connect
from rtvi_sync.media import ToneSource
from rtvi_sync.testing import EmbeddedBot, ReplayBot
from tests.support.slowness import GUARD
from tests.support.waiting import until
from tests.support.wavs import tone

OPTIONS: dict[str, Any] = {"mic": False, "speaker": False, "connect_timeout": GUARD}


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the recording of a session with two typed questions."""
    path = tmp_path_factory.mktemp("talk") / "talk.jsonl"
    with (
        EmbeddedBot(replies={"time": "Noon.", "": "Well."}) as bot,
        connect(bot.ws_url, **OPTIONS) as client,
        client.record(path),
    ):
        client.ask("What time is it?")
        client.ask("Really?")
    return path


def test_the_same_client_gets_the_same_turns(talk):
    """Texts, audio and latencies match the recording, without its bot."""
    with ReplayBot(talk) as bot, connect(bot.base_url, **OPTIONS) as client:
        turns = [client.ask("What time is it?", GUARD), client.ask("Really?", GUARD)]
        until(lambda: bot.done)
    recorded = Recording.load(talk).turns()
    assert [turn.bot_text for turn in turns] == [turn.bot_text for turn in recorded] == ["Noon.", "Well."]
    assert [turn.status for turn in turns] == [turn.status for turn in recorded]
    for turn, before in zip(turns, recorded, strict=True):
        assert turn.audio.pcm.strip(b"\0")[:9600] == before.audio.pcm.strip(b"\0")[:9600]
        assert turn.time_to_first_token == pytest.approx(before.time_to_first_token, abs=0.3)
    assert bot.mismatches == []


def test_fast_takes_no_time(talk):
    """Nothing is waited for but the client."""
    began = time.monotonic()
    with ReplayBot(talk, pace="fast") as bot, connect(bot.ws_url, **OPTIONS) as client:
        assert client.ask("What time is it?", GUARD).bot_text == "Noon."
        assert client.ask("Really?", GUARD).bot_text == "Well."
    assert time.monotonic() - began < GUARD
    assert bot.mismatches == []


def test_a_call_is_replayed_over_the_websocket(tmp_path, caplog):
    """A recording of a call is replayed over the WebSocket; a call is refused at once, and the log says why."""
    question = ToneSource(440, 0.5)
    with (
        EmbeddedBot() as bot,
        connect(bot.ws_url, transport="twilio", **OPTIONS) as caller,
        caller.record(tmp_path / "call"),
    ):
        assert caller.ask(question, GUARD).audio
    with ReplayBot(tmp_path / "call") as replay:
        with connect(replay.ws_url, **OPTIONS) as client:
            assert client.ask(ToneSource(440, 0.5), GUARD).audio
        assert replay.mismatches == []
        assert caplog.records == []
        with pytest.raises(DisconnectedError), connect(replay.ws_url, transport="twilio", **OPTIONS) as caller:
            caller.ask(ToneSource(440, 0.5), GUARD)  # a busy machine may take the refusal for a bot that is silent
    assert "A recording of a call is replayed over the WebSocket, too" in caplog.text


def test_another_question_is_told_and_answered(talk):
    """The replay continues, unless the match is by type."""
    with ReplayBot(talk, pace="fast") as bot, connect(bot.ws_url, **OPTIONS) as client:
        assert client.ask("What day is it?", GUARD).bot_text == "Noon."
    (mismatch, *_) = bot.mismatches
    assert mismatch.expected is not None
    assert mismatch.received is not None
    assert mismatch.expected["data"]["content"] == "What time is it?"
    assert mismatch.received["data"]["content"] == "What day is it?"
    with ReplayBot(talk, pace="fast", match="type") as bot, connect(bot.ws_url, **OPTIONS) as client:
        assert client.ask("What day is it?", GUARD).bot_text == "Noon."
        assert client.ask("Oh", GUARD).bot_text == "Well."
    assert bot.mismatches == []


def test_a_close_frame_without_a_code(talk, tmp_path):
    """A bot whose close frame had no code ends the replay as one that closes with 1000."""
    *rows, end = map(json.loads, talk.read_text("utf-8").splitlines())
    assert end["kind"] == "end"
    end |= {"code": 1005, "initiator": "server"}
    path = tmp_path / "closed.jsonl"
    path.write_text("\n".join(map(json.dumps, [*rows, end])) + "\n")
    with ReplayBot(path, pace="fast", match="none") as bot, connect(bot.ws_url, **OPTIONS) as client:
        assert client.wait(GUARD).code == 1000
        until(lambda: bot.done)


def test_a_client_that_asks_nothing_is_told(talk):
    """A client that sends nothing within the timeout is a mismatch, and the bot still speaks."""
    with ReplayBot(talk, pace="fast", timeout=0.1) as bot, connect(bot.ws_url, **OPTIONS) as client:
        client.wait_for("bot_llm_text", timeout=GUARD)
    assert bot.mismatches[0].received is None


def test_strict_ends_the_session(talk):
    """The close code says that the client is a different one."""
    with ReplayBot(talk, strict=True) as bot, connect(bot.ws_url, **OPTIONS) as client:
        with pytest.raises((DisconnectedError, RequestTimeoutError)):
            client.ask("What day is it?", GUARD)
        assert client.wait(GUARD).code == 1011
    assert len(bot.mismatches) == 1


def test_spoken_questions_are_cues(tmp_path):
    """The answer counts from the moment when the user is heard."""
    with (
        EmbeddedBot(transcripts=["One", "Two"]) as bot,
        connect(bot.ws_url, **OPTIONS) as client,
        client.record(tmp_path / "a"),
    ):
        for _ in range(2):
            client.ask(tone(0.6), sample_rate_hz=16_000)
    recorded = Recording.load(tmp_path / "a").turns()
    with ReplayBot(tmp_path / "a") as replay, connect(replay.ws_url, **OPTIONS) as client:
        turns = [client.ask(tone(0.6), GUARD, sample_rate_hz=16_000) for _ in range(2)]
    assert [turn.user_text for turn in turns] == [turn.user_text for turn in recorded] == ["One", "Two"]
    for turn, before in zip(turns, recorded, strict=True):
        assert turn.voice_to_voice == pytest.approx(before.voice_to_voice, abs=0.5)
    assert replay.mismatches == []


def test_a_recording_that_cannot_be_read_is_told(tmp_path):
    """Before anything listens."""
    with pytest.raises(FileNotFoundError, match="none"):
        ReplayBot(tmp_path / "none")
    for wrong in ({"pace": "slow"}, {"match": "all"}, {"strict": 1}, {"timeout": -1}):
        with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
            ReplayBot(tmp_path / "none", **wrong)
