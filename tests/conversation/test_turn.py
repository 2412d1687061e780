"""The latencies of a turn."""

from __future__ import annotations

import attrs

from rtvi_sync import ReportedFunctionCall, TimelineEntry, Turn, TurnAudio, TurnTimings
from rtvi_sync.messages import ErrorData


def test_latencies() -> None:
    """The latencies of a turn are the differences between its times."""
    timings = TurnTimings(
        user_started=1.0,
        user_stopped=3.0,
        user_stopped_reported=3.25,
        transcribed=3.5,
        first_token=3.75,
        first_audio=4.0,
        ended=6.0,
    )
    turn = Turn(number=1, session=1, initiator="user", modality="audio", timings=timings)
    assert (turn.voice_to_voice, turn.time_to_first_audio, turn.time_to_first_token) == (1.0, 1.0, 0.75)
    assert (turn.turn_detection, turn.transcription, turn.duration) == (0.25, 0.5, 5.0)


def test_the_repr() -> None:
    """The repr of a turn is short and printable, for any data of the bot, and has no audio and no timeline."""
    turn = Turn(number=3, session=1, initiator="user", status="complete", user_text="Hello", bot_text="Hi 'there'.")
    expected = "Turn(number=3, initiator='user', status='complete', user_text='Hello', bot_text=\"Hi 'there'.\")"
    assert repr(turn) == expected
    hostile = "\ud800\x1b[2J\u202e\n" + 100_000 * "x"
    entries = tuple(TimelineEntry(1.0, "bot", "speaks", hostile) for _ in range(500))
    call = ReportedFunctionCall(function_name=hostile, result=hostile)
    errors = (ErrorData(message=hostile),)
    large = attrs.evolve(
        turn,
        user_text=hostile,
        bot_text=hostile,
        spoken_text=hostile,
        assumed=hostile,
        function_calls=(call,),
        errors=errors,
        timeline=entries,
        audio=TurnAudio(pcm=bytes(2_000_000), sample_rate_hz=24_000),
    )
    assert len(repr(large)) < 400
    assert repr(large).isprintable()


def test_what_is_unknown() -> None:
    """A typed turn has no voice-to-voice latency; unknown values are None."""
    timings = TurnTimings(user_started=1.0, user_stopped=1.0, first_audio=2.0)
    turn = Turn(number=1, session=1, initiator="user", modality="text", timings=timings)
    assert (turn.voice_to_voice, turn.time_to_first_audio) == (None, 1.0)
    assert (turn.time_to_first_token, turn.turn_detection, turn.transcription, turn.duration) == (None,) * 4


def test_the_duration_of_a_turn_of_the_bot() -> None:
    """The duration of a bot's turn lasts from its first speech to its end."""
    timings = TurnTimings(bot_started_speaking=2.0, ended=3.5)
    assert Turn(number=1, session=1, initiator="bot", timings=timings).duration == 1.5


def test_expect_returns_the_turn() -> None:
    """expect() returns the turn, so that calls can be chained."""
    calls = (ReportedFunctionCall(function_name="f", arguments={"a": 1, "b": 2}),)
    turn = Turn(number=1, session=1, initiator="user", status="complete", bot_text="Hi there", function_calls=calls)
    assert turn.expect(contains="Hithere", calls={"f": {"a": 1}}).expect(excludes="no", absent_calls=["g"]) is turn
