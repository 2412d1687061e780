"""The audio of a session, divided into its turns."""

from __future__ import annotations

from array import array
from typing import Any, cast

import pytest

from rtvi_sync import Turn
from rtvi_sync.concurrency.clock import monotonic
from rtvi_sync.conversation.audio import SessionAudio, Side
from rtvi_sync.conversation.record import TurnRecord, TurnTimings
from rtvi_sync.media import AudioTrack
from tests.support.timed_talk import (
    RATE_HZ,
    SECOND,
    FakeMedia,
    Talk,
    bot_side,
    frames,
    kept_moments,
    pcm,
    publish,
    queued_frames,
    send,
)

pytestmark = pytest.mark.inside


def levels(turn: Turn) -> list[int]:
    """Return the level of each tenth of a second of the user's speech."""
    samples = array("h", turn.user_audio.pcm)
    return [samples[at] for at in range(0, len(samples), RATE_HZ // 10)]


@pytest.mark.parametrize("silence", [5, 50])
def test_silence_takes_no_room(silence: int) -> None:
    """The first audio is found behind any silence, even if no audio is kept."""
    side = Side(0.0, lead=1.0)
    side.add([*frames(0, 1.0, silence), *frames(3000, 9.0, 50)])
    kept, missing = side.take(0.0, 99.0)
    assert next(frame.timestamp for frame in kept if frame.pcm == pcm(3000)) == 9.0
    assert len(kept) <= 20
    assert missing


def test_an_idle_reader_keeps_little() -> None:
    """Between the turns only some seconds are kept, as far as they are not read; in a turn everything is."""
    track = AudioTrack(label="bot")
    side = Side(120.0, lead=1.0)

    def lengths(*, idle: bool) -> int:
        side.read(track, idle=idle, at=0.0)
        for frame in frames(3000, 0.0, 100):
            track.publish(frame.pcm, frame.sample_rate_hz, frame.timestamp)
        return queued_frames(side)

    assert lengths(idle=True) == 50
    assert lengths(idle=False) == 100
    assert lengths(idle=True) == 50


def test_while_nobody_speaks() -> None:
    """Outside a turn, only the last seconds are kept; dropped audio counts as missing only in a turn."""
    track, side = AudioTrack(label="x"), Side(3.0, 2.0)
    side.read(track, idle=True, at=0.0)
    publish(track, range(10))
    side.read(track, idle=True, at=10.0)
    frames, missing = side.take(0.0, 100.0)
    assert ([frame.timestamp for frame in frames], missing) == ([8, 9], False)
    side.read(track, idle=False, at=0.0)
    publish(track, range(10, 20))
    side.read(track, idle=False, at=0.0)
    frames, missing = side.take(0.0, 100.0)
    assert ([frame.timestamp for frame in frames], missing) == ([10, 11, 12, 13, 14], True)
    side.close()


def test_more_than_a_reader_holds() -> None:
    """Audio between two reads of a turn is either kept or counts as missing."""
    track, side = AudioTrack(label="x"), Side(120.0, 1.0)
    side.read(track, idle=False, at=0.0)
    publish(track, range(45))
    side.read(track, idle=False, at=45.0)
    assert len(side.take(0.0, 44.0)[0]) == 45
    publish(track, range(45, 200))
    side.read(track, idle=False, at=200.0)
    kept, missing = side.take(0.0, 200.0)
    assert (len(kept), missing) == (121, True)
    publish(track, range(200, 210))
    side.read(track, idle=False, at=210.0)
    assert not side.take(0.0, 210.0)[1]


def test_an_event_that_comes_too_late() -> None:
    """Audio that an idle reader no longer has when the turn is reported counts as missing in it; older audio does
    not.
    """
    track, side = AudioTrack(label="x"), Side(120.0, 1.0)
    side.read(track, idle=True, at=0.0)
    publish(track, range(1, 20))
    side.read(track, idle=True, at=19.0)
    assert not side.lacks(0.0, 99.0)
    publish(track, range(20, 40))
    side.read(track, idle=True, at=21.0)
    side.read(track, idle=False, at=21.0)
    kept, missing = side.take(0.0, 40.0)
    assert ([frame.timestamp for frame in kept], missing) == ([35, 36, 37, 38, 39], True)


def test_an_event_that_comes_late() -> None:
    """Audio since the event is kept, as far as a turn would keep it; audio older than the lead is not."""
    track, side = AudioTrack(label="x"), Side(1.0, 2.0)
    side.read(track, idle=True, at=0.0)
    publish(track, range(10))
    side.read(track, idle=True, at=8.0)
    assert kept_moments(side) == [6, 7, 8]
    side.read(track, idle=True, at=20.0)
    assert side.take(0.0, 100.0) == ([], False)


def test_turns_one_after_the_other() -> None:
    """A turn takes the audio between its ends; earlier audio is forgotten."""
    track, side = AudioTrack(label="x"), Side(30.0, 1.0)
    side.read(track, idle=False, at=0.0)
    publish(track, range(10))
    side.read(track, idle=False, at=0.0)
    assert [frame.timestamp for frame in side.take(2.0, 4.0)[0]] == [2, 3, 4]
    assert [frame.timestamp for frame in side.take(0.0, 6.0)[0]] == [5, 6]


def test_another_track() -> None:
    """The previous track's audio is kept, and its reader is closed."""
    tracks, side = [AudioTrack(label="a"), AudioTrack(label="b")], Side(30.0, 1.0)
    for at, track in enumerate(tracks):
        side.read(track, idle=False, at=0.0)
        track.publish(SECOND, 8000, at)
        side.read(track, idle=False, at=0.0)
    assert [frame.timestamp for frame in side.take(0.0, 9.0)[0]] == [0, 1]
    tracks[0].publish(SECOND, 8000, 2)
    side.read(tracks[1], idle=False, at=0.0)
    assert side.take(0.0, 9.0) == ([], False)


def test_an_answer_that_begins_before_the_question_ends() -> None:
    """A model from speech to speech answers before the bot reports the end of the user's speech: see the captures."""
    talk = Talk()
    talk.tell(0.1, "user-started-speaking")
    talk.answer(1.59)
    send(talk.media.bot, [*frames(0, 1.0, 6), *frames(3000, 1.66, 8)])
    talk.tell(2.22, "user-stopped-speaking")
    (turn,) = talk.end(2.5)
    assert turn.timings.first_audio == 1.66
    assert turn.audio.pcm == pcm(3000) * 8


def test_the_user_speaks_for_more_than_a_minute() -> None:
    """The last minute is kept, so that the latency is right."""
    talk = Talk()
    talk.tell(0.0, "user-started-speaking")
    talk.hear(0.0, 10, 3000)
    talk.hear(10.0, 65, 5000)
    talk.tell(75.5, "user-stopped-speaking")
    talk.answer(76.0)
    (turn,) = talk.end(78.0)
    assert turn.timings.user_stopped == pytest.approx(75.0)
    assert turn.user_audio.truncated
    assert {*levels(turn)} == {5000}
    assert 60.0 <= turn.user_audio.seconds <= 63.0


def test_noise_that_was_taken_for_speech() -> None:
    """The user's speech long after the noise belongs to the same turn, and is kept whole; the silence between is
    not.
    """
    talk = Talk()
    talk.tell(0.0, "user-started-speaking")
    talk.hear(0.0, 1, 3000)
    talk.tell(1.0, "user-stopped-speaking")
    talk.hear(1.0, 99, 0)
    talk.tell(100.0, "user-started-speaking")
    talk.hear(100.0, 5, 5000)
    talk.tell(105.5, "user-stopped-speaking")
    talk.answer(106.0)
    (turn,) = talk.end(107.0)
    assert turn.timings.user_stopped == pytest.approx(105.0)
    said = levels(turn)
    assert (said.count(3000), said.count(5000)) == (10, 50)
    assert not turn.user_audio.truncated
    assert turn.user_audio.seconds < 70


def test_a_long_answer_to_a_long_question() -> None:
    """The user's silence during the answer does not displace the question; memory is bounded."""
    talk = Talk()
    talk.ask(40)
    talk.hear(41.0, 100, 0)
    assert talk.user_seconds < 64
    (turn,) = talk.end(141.0)
    assert levels(turn) == [3000] * 400
    assert not turn.user_audio.truncated


def test_an_interruption_after_more_than_a_minute() -> None:
    """The user's speech during a long answer is kept from its start."""
    talk = Talk()
    talk.ask(1)
    talk.hear(2.0, 70, 0)
    talk.hear(72.0, 1, 5000)
    talk.tell(73.0, "user-started-speaking", "bot-interrupted")
    talk.hear(73.0, 4, 5000)
    talk.tell(77.5, "user-stopped-speaking")
    first, second = talk.end(78.0)
    assert levels(first) == [3000] * 10
    assert levels(second) == [5000] * 50
    assert not second.user_audio.truncated


def test_a_speech_without_end_of_which_nothing_is_kept() -> None:
    """Some seconds of it are in memory, however long it is."""
    talk = Talk(max_turn_audio=0.0)
    talk.tell(0.0, "user-started-speaking")
    talk.hear(0.0, 100, 3000)
    assert talk.user_seconds < 5


@pytest.mark.parametrize(
    "loudness",
    [
        [(5, 3000), (20, 0)],
        [(1, 30_000), (8, 3000), (20, 1000)],  # breath and noise
        [(3, 1000), (5, 0), (2, 3000), (30, 20)],
        [(8, 3000), (1, 2900), (1, 2800), (1, 2700), (9, 25)],
        [(30, 20), (2, 3000), (15, 0)],
    ],
)
def test_the_end_of_a_speech_of_which_nothing_is_kept(loudness: list[tuple[int, int]]) -> None:
    """The end is where it is if all is kept, also if the bot reports it late."""
    ends = []
    for max_turn_audio in (120.0, 0.0):
        talk, at = Talk(max_turn_audio), 0.5
        talk.tell(0.5, "user-started-speaking")
        for seconds, level in loudness:
            talk.hear(at, seconds, level)
            at += seconds
        talk.tell(at, "user-stopped-speaking")
        talk.hear(at, 10, 5000)  # of no turn yet
        talk.answer(at + 10)
        (turn,) = talk.end(at + 20.0)
        ends.append(turn.timings.user_stopped)
        assert bool(turn.user_audio) == bool(max_turn_audio)
    assert ends[0] == ends[1] is not None


def test_two_speeches_of_which_nothing_is_kept() -> None:
    """A louder one does not displace the end of the one before."""
    talk = Talk(max_turn_audio=0.0)
    talk.ask(2)
    talk.hear(3.0, 10, 0)
    talk.tell(13.0, "user-started-speaking", "bot-interrupted")
    talk.hear(13.0, 20, 20_000)
    talk.hear(33.0, 5, 0)
    talk.tell(38.0, "user-stopped-speaking")
    first, second = talk.end(39.0)
    assert first.timings.user_stopped == pytest.approx(2.0)
    assert second.timings.user_stopped == pytest.approx(33.0)


def test_answers_of_which_nothing_is_kept() -> None:
    """The bot's audio is read until enough of it is there, and again for the next turn."""
    talk = Talk(max_turn_audio=0.0)
    heard = []
    for at in (0.0, 100.0, 200.0):
        talk.tell(at, "bot-llm-started", "bot-started-speaking")
        send(talk.media.bot, [*frames(0, at, 5), *frames(3000, at + 0.5, 30)])
        talk.tell(at + 4.0, "bot-llm-text")
        assert not talk.media.bot.readers
        send(talk.media.bot, frames(3000, at + 4.0, 300))
        talk.tell(at + 35.0, "bot-llm-text", "bot-llm-stopped", "bot-stopped-speaking")
        heard.append(at + 0.5)
        assert talk.media.bot.readers
    turns = talk.end(300.0)
    assert [turn.timings.first_audio for turn in turns] == heard
    assert [turn.audio.truncated for turn in turns] == [True] * 3
    assert not any(turn.audio for turn in turns)


def test_another_turn_ends_while_the_user_speaks() -> None:
    """The end of a greeting, or of the answer to a typed text, removes no part of the user's speech."""
    talk = Talk()
    talk.answer(0.0)
    talk.tell(1.0, "user-started-speaking")
    talk.hear(1.0, 11, 3000)
    talk.tell(12.0, "bot-interrupted")
    talk.hear(12.0, 1, 3000)
    talk.tell(13.5, "user-stopped-speaking")
    greeting, turn = talk.end(14.0)
    assert greeting.initiator == "bot"
    assert levels(turn) == [3000] * 120


def test_two_turns_end_at_once() -> None:
    """The end of the first turn, which has no speech of the user, does not discard the user's speech for the second."""
    talk = Talk()
    talk.answer(0.0)
    talk.tell(1.0, "user-started-speaking")
    talk.hear(1.0, 5, 3000)
    talk.tell(6.0, "user-stopped-speaking")
    talk.hear(6.0, 9, 0)
    greeting, turn = talk.end(15.0)
    assert greeting.initiator == "bot"
    assert levels(turn) == [3000] * 50


def unused() -> tuple[FakeMedia, SessionAudio]:
    """Return the audio of a session whose turns are not used yet."""
    media = FakeMedia()
    return media, SessionAudio(cast("Any", media), 120.0, in_full=False)


def test_little_is_kept_of_what_is_not_used() -> None:
    """The bot's last two seconds while no turn is open, and nothing of the user's."""
    media, audio = unused()
    send(media.bot, frames(3000, 0.0, 100))
    assert queued_frames(bot_side(audio)) == 20
    assert not media.user.readers


def test_what_is_used_in_time_is_kept() -> None:
    """The bot's audio before the first use is kept, and from then on both sides are read."""
    media, audio = unused()
    send(media.bot, frames(3000, 0.0, 10))
    audio.keep(is_turn_open=True)
    send(media.bot, frames(3000, 1.0, 30))
    audio.read([None], 4.0)
    assert len(kept_moments(bot_side(audio))) == 40
    assert not bot_side(audio).lacks(0.0, 4.0)
    assert media.user.readers


def test_what_is_not_used_is_forgotten() -> None:
    """Nothing is read until the first use; earlier audio counts as missing."""
    media, audio = unused()
    send(media.bot, frames(3000, 0.0, 10))
    audio.read([None], 1.0)
    assert kept_moments(bot_side(audio))
    audio.forget()
    send(media.bot, frames(3000, 1.0, 10))
    audio.read([None], 2.0)
    assert (kept_moments(bot_side(audio)), media.bot.readers, media.user.readers) == ([], {}, {})
    assert bot_side(audio).lacks(0.0, 2.0)
    audio.keep(is_turn_open=True)
    now = monotonic()
    send(media.bot, frames(3000, now, 10))
    audio.read([None], now)
    assert len(kept_moments(bot_side(audio))) == 10
    assert (bot_side(audio).lacks(0.0, 1.0), bot_side(audio).lacks(now, now + 1.0)) == (True, False)


def test_a_turn_between_the_first_seconds_and_the_first_use() -> None:
    """Audio of that turn is missing, and audio of the turns after the first use is kept."""
    media, audio = unused()
    audio.forget()
    before = TurnRecord(number=1, session=1, initiator="bot", status="complete", timings=TurnTimings(ended=2.0))
    assert audio.cut(before, [], 2.0).bot_truncated
    audio.keep(is_turn_open=False)
    now = monotonic()
    send(media.bot, frames(3000, now, 10))
    after = TurnRecord(number=2, session=1, initiator="bot", status="complete", timings=TurnTimings(ended=now + 1.0))
    cut = audio.cut(after, [], now + 1.0)
    assert (len(cut.bot), cut.bot_truncated) == (10, False)


@pytest.mark.parametrize("seconds", [10, 29])
def test_all_of_an_answer_at_once(seconds: int) -> None:
    """A bot may send the whole answer before the event that starts its turn is handled."""
    talk = Talk()
    send(talk.media.bot, frames(0, 0.0, 200))
    for _ in range(10 * seconds):
        talk.media.bot.publish(pcm(3000), RATE_HZ, 30.0)
    talk.tell(30.0, "bot-llm-started", "bot-started-speaking")
    (turn,) = talk.end(31.0)
    assert turn.audio.pcm == pcm(3000) * 10 * seconds
    assert not turn.audio.truncated


def test_the_session_has_ended() -> None:
    """The audio of its tracks until the end is read, though the client has no tracks any more."""
    talk = Talk()
    talk.tell(0.5, "user-started-speaking")
    send(talk.media.user, frames(3000, 1.0, 10))
    talk.tell(2.0, "user-stopped-speaking")
    talk.answer(2.5)
    send(talk.media.bot, frames(3000, 3.0, 400))
    talk.lose_tracks()
    (turn,) = talk.end(45.0)
    assert len(turn.audio.pcm) == 400 * len(pcm(3000))
    assert levels(turn) == [3000] * 10
