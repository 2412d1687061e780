"""The bot's activity, from its events and its audio."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync import Event, RTVIEvent
from rtvi_sync.cli.bot_activity import ACTIVITY_EVENTS, ANSWER_TIMEOUT, BotActivity


def happened(*events: tuple[RTVIEvent, float]) -> BotActivity:
    """Return the activity after events at these times."""
    activity = BotActivity()
    for type_, at in events:
        assert type_ in ACTIVITY_EVENTS
        activity.update(Event(type=type_, data=None, received_at=at))
    return activity


@pytest.mark.parametrize(
    ("activity", "answered"),
    [
        (BotActivity(), False),
        (happened((RTVIEvent.BOT_LLM_TEXT, 11.0)), True),
        (happened((RTVIEvent.BOT_LLM_TEXT, 9.0)), False),
        (happened((RTVIEvent.BOT_STARTED_SPEAKING, 11.0)), True),
        (happened((RTVIEvent.BOT_STARTED_SPEAKING, 9.0), (RTVIEvent.BOT_STOPPED_SPEAKING, 11.0)), False),
        (BotActivity(last_audible=11.0), True),
    ],
)
def test_it_has_answered(activity: BotActivity, answered: bool) -> None:
    """Text, audible audio and the beginning of speech are an answer; the end of earlier speech is none."""
    assert activity.has_answered_since(10.0) is answered


@pytest.mark.parametrize(
    ("activity", "pause"),
    [
        (happened((RTVIEvent.BOT_LLM_TEXT, 10.0), (RTVIEvent.BOT_STOPPED_SPEAKING, 10.0)), 3.0),
        (happened((RTVIEvent.BOT_LLM_TEXT, 9.0), (RTVIEvent.BOT_STOPPED_SPEAKING, 10.0)), 0.8),
        (happened((RTVIEvent.BOT_LLM_TEXT, 10.0)), 3.0),
        (happened((RTVIEvent.BOT_STARTED_SPEAKING, 10.0)), ANSWER_TIMEOUT),
        (BotActivity(playback_ends_at=10.0, speaking_changed_at=8.0, last_text=7.0), 0.8),
    ],
)
def test_it_has_finished(activity: BotActivity, pause: float) -> None:
    """The pause that ends an answer depends on what the bot has reported last."""
    assert not activity.has_finished(10.0 + pause - 0.01)
    assert activity.has_finished(10.0 + pause + 0.01)


def test_all_its_audio_is_played_first() -> None:
    """An answer whose audio still plays is not complete, whatever the bot has reported."""
    activity: Any = happened((RTVIEvent.BOT_STARTED_SPEAKING, 1.0), (RTVIEvent.BOT_STOPPED_SPEAKING, 2.0))
    activity.playback_ends_at = 20.0
    assert not activity.has_finished(20.0)
    assert activity.has_finished(21.0)
