"""Recordings as plain data."""

from __future__ import annotations

import json

import pytest

from rtvi_sync import Recording
from rtvi_sync.recording.compare import compare
from rtvi_sync.recording.summary import summary

pytestmark = pytest.mark.inside


def test_the_data(talk: Recording) -> None:
    """The data are JSON: each recording with its turns, and the percentiles over all."""
    data = json.loads(json.dumps(summary([talk, talk])))
    assert [each["path"] for each in data["recordings"]] == [str(talk.path)] * 2
    assert data["recordings"][0]["turns"][1] == {
        "number": 2,
        "initiator": "user",
        "status": "complete",
        "user_text": "Do you have a table for four on Friday?",
        "bot_text": "Yes. Friday at seven works for a table of four.",
        "spoken_text": "Yes. Friday at seven works for a table of four.",
        "calls": [
            {
                "name": "check_availability",
                "arguments": {"day": "Friday", "party_size": 4},
                "result": {"free": ["19:00", "20:30"]},
                "cancelled": False,
                "seconds": pytest.approx(0.35, abs=0.001),
            }
        ],
        "voice_to_voice": talk.turns()[1].voice_to_voice,
        "time_to_first_token": talk.turns()[1].time_to_first_token,
        "time_to_first_audio": talk.turns()[1].time_to_first_audio,
    }
    assert data["percentiles"]["voice_to_voice"]["count"] == 6
    assert (data["baseline"], data["left_out"]) == (None, {"before": [], "after": []})


def test_a_comparison(talk: Recording) -> None:
    """A comparison has each percentile of each latency."""
    data = summary([talk], compare(talk.turns()[:3], talk.turns()))
    assert data["baseline"]["voice_to_voice"]["p50"]["verdict"] == "not_judged"
    assert data["left_out"]["after"] == ["What is the address?", "And how do I get there by bus?", "Thank you, bye."]
