"""The audio of both sides of a page that talks."""

from __future__ import annotations

import threading
from array import array
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import Recording, RTVIClient, TurnAudio
from rtvi_sync.flask import RTVIBlueprint
from rtvi_sync.testing import EmbeddedBot
from tests.flask.browser import User, site_of
from tests.support.slowness import takes
from tests.support.talking_page import (
    RATE,
    names_of,
    share_of,
    speech,
)

from .talking import LONG, PAUSE, Serve


def test_a_question_by_voice(serve: Serve) -> None:
    """The page's audio reaches the bot, and the bot's speech reaches the page, in time."""
    page = serve().user().talk()
    said = speech(1.0)
    page.say(said + PAUSE)
    with takes(2.0):
        page.wait_for_event("botStoppedSpeaking")
    assert page.rate == RATE
    assert share_of(said, bytes(page.audio)) > 0.8
    assert names_of(page).index("voiceFormat") < names_of(page).index("botStoppedSpeaking")


def test_an_interruption_empties_the_page(serve: Serve) -> None:
    """The player is emptied at once, nothing of the old answer follows, and the words that were not heard are known."""
    with EmbeddedBot(replies=[LONG, "Yes."]) as bot:
        site = serve(to=bot)
        page = site.user().talk()
        page.send({"type": "text", "text": "Tell me."})
        page.wait_for(lambda page: page.rate and len(page.audio) > 2 * page.rate)
        page.say(speech(0.5)[:9600])
        with takes(0.5):
            page.wait_for_event("voiceClear")
        turn = next(turn for turn in site.clients[0].turns() if turn.user_text == "Tell me.")
        assert turn.status == "interrupted"
        assert 0 < len(turn.spoken_text or "") < len(turn.bot_text or "")
        page.say(PAUSE)
        page.wait_for_event("botOutput", lambda data: data["text"] == "Yes.")
        page.wait_for(
            lambda page: names_of(page)[::-1].index("botStoppedSpeaking") < names_of(page)[::-1].index("voiceClear")
        )


def test_text_and_its_answer_by_voice(serve: Serve) -> None:
    """A page that talks may type too; all pages get the text."""
    user = serve().user()
    page = user.talk()
    page.send({"type": "text", "text": "Hello!"})
    assert page.wait_for_event("relayText")["data"] == {"text": "Hello!"}
    page.wait_for_event("botStoppedSpeaking")
    assert len(page.audio) > RATE // 2
    page.send({"type": "text", "text": "Now in writing.", "audio_response": False})
    page.wait_for_event("botOutput", lambda data: "in writing" in data["text"])


def test_a_page_that_plays_nothing(serve: Serve) -> None:
    """A page that does not play gets one second of the bot's audio, and the rest once it plays; nothing is lost."""
    with EmbeddedBot(replies=[LONG]) as bot:
        site = serve(to=bot)
        page = site.user().talk(plays=False)
        page.send({"type": "text", "text": "Tell me."})
        page.wait_for_event("botStoppedSpeaking")
        assert page.rate is not None
        held = len(page.audio) / (2 * page.rate)
        assert 0.9 < held < 1.3
        page.plays = True
        page.wait_for(lambda page: len(page.audio) > 4 * RATE)
        assert site.clients[0].stats().speaker_dropped_seconds == 0


def test_the_first_page_hears_the_greeting(serve: Serve) -> None:
    """Speech of the bot waits for the first page, from the first word on."""
    with EmbeddedBot(greeting="One two three.") as bot:
        user = serve(to=bot).user()
        user.start()
        bot.wait_for_session().wait_for_message("client-ready")
        threading.Event().wait(0.3)
        page = user.open()
        page.wait_for_event("botStoppedSpeaking")
        page.wait_for(lambda page: len(page.audio) > 2 * RATE * 0.8)


def test_what_is_said_while_no_page_is_there(serve: Serve) -> None:
    """Speech without a page is lost in real time: a page that returns hears the bot's current words."""
    with EmbeddedBot(replies=[LONG]) as bot:
        user = serve(to=bot).user()
        page = user.talk()
        page.send({"type": "text", "text": "Tell me."})
        page.wait_for(lambda page: len(page.audio) > RATE)
        page.close()
        threading.Event().wait(2.0)
        again = user.open(after=page.last_id)
        again.wait_for_event("botStoppedSpeaking")
        both = len(page.audio) + len(again.audio)
        alone = serve(to=bot).user().talk()
        alone.send({"type": "text", "text": "Tell me."})
        alone.wait_for_event("botStoppedSpeaking")
        lost = (len(alone.audio) - both) / (2 * RATE)
        assert 1.0 < lost < 3.5


def test_a_flood_of_audio(serve: Serve, bot: EmbeddedBot) -> None:
    """Audio beyond real time is dropped, and the bot hears the current words."""
    page = serve().user().talk()
    for _ in range(2000):
        page.send(bytes(640))
    said = speech(2.0)
    page.say(said + PAUSE)
    page.wait_for_event("botStoppedSpeaking")
    # Not all of it: on a busy machine the rest of the flood and the first words arrive together.
    assert share_of(said, bytes(page.audio)) > 0.5


@pytest.mark.parametrize("options", [{"mic": False, "speaker": False}, {"enable_mic": False}], ids=str)
def test_devices_that_the_application_chose(serve: Serve, options: dict[str, Any]) -> None:
    """The page's take their place."""
    page = serve(options).user().talk()
    said = speech(0.5)
    page.say(said + PAUSE)
    page.wait_for_event("botStoppedSpeaking")
    assert share_of(said, bytes(page.audio)) > 0.8


def test_a_client_for_text_alone() -> None:
    """A client without a voice is refused: its pages could not talk."""
    blueprint = RTVIBlueprint(lambda _: RTVIClient.for_url("ws://127.0.0.1:1", text_only=True), voice=True)
    user = User(site_of(blueprint))
    with pytest.raises(TypeError, match="text_only=True, which has no voice"):
        user.ask()
    assert user.get("session").status_code == 404


def test_a_conversation_is_recorded(serve: Serve, tmp_path: Path) -> None:
    """As any other: both sides' audio, and the words."""
    path = tmp_path / "talk.jsonl"
    page = serve(record=path).user().talk()
    said = speech(0.5)
    page.say(said + PAUSE)
    page.wait_for_event("botStoppedSpeaking")
    page.send({"type": "end"})
    page.closed()
    recording = Recording.load(path)
    assert [turn.user_text for turn in recording.turns()] != []
    assert 0.4 < seconds_of_sound(recording.audio(side="user")) < 0.7
    assert 0.4 < seconds_of_sound(recording.audio(side="bot")) < 0.7


def seconds_of_sound(audio: TurnAudio) -> float:
    """Return for how long it is loud."""
    parts = [array("h", audio.pcm[begin : begin + 480]) for begin in range(0, len(audio.pcm), 480)]
    return sum(max(part) > 2000 for part in parts) * 240 / audio.sample_rate_hz
