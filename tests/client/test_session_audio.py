"""The audio of a session, divided into its turns."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import pytest

from rtvi_sync.client.session_audio import SessionAudio, Side
from rtvi_sync.media import AudioTrack
from rtvi_sync.media.base import AudioFrame
from rtvi_sync.protocol.turn_record import TurnRecord, TurnTimings

RATE_HZ = 8000
SECOND = bytes([1]) * 16_000


def pcm(level: int) -> bytes:
    return array("h", [level, -level] * (RATE_HZ // 20)).tobytes()


def frames(level: int, start: float, count: int) -> Iterator[AudioFrame]:
    """Return frames of 0.1 s."""
    for number in range(count):
        yield AudioFrame(pcm=pcm(level), sample_rate_hz=RATE_HZ, timestamp=start + number / 10)


def publish(track: AudioTrack, moments: range) -> None:
    """Publish a second of audio at each of these moments."""
    for at in moments:
        track.publish(SECOND, RATE_HZ, at)


class FakeMedia:
    """The tracks of a session."""

    def __init__(self) -> None:
        self.bot, self.user = AudioTrack(label="bot"), AudioTrack(label="user")

    def received(self) -> AudioTrack:
        return self.bot

    def sent(self) -> AudioTrack:
        return self.user


def audio_of(media: Any) -> SessionAudio:
    audio = SessionAudio(media, 120.0)
    audio.begin(None)
    return audio


def spoken(**moments: float) -> TurnRecord:
    """Return a turn of the user's voice that is over."""
    return TurnRecord(number=1, session=1, initiator="user", modality="audio", timings=TurnTimings(**moments))


@pytest.mark.parametrize("silence", [5, 50])
def test_silence_takes_no_room(silence: int) -> None:
    """What is heard first is found behind any silence, though no audio is to be kept."""
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
        assert side._reader is not None
        return len(side._reader.queued())

    assert lengths(idle=True) == 50
    assert lengths(idle=False) == 100
    assert lengths(idle=True) == 50


def test_while_nobody_speaks() -> None:
    """Only the last seconds are kept; what is over counts as missing only in a turn."""
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


def test_an_event_that_comes_late() -> None:
    """What has arrived since is kept, as far as a turn would keep it; what is older than the lead is not."""
    track, side = AudioTrack(label="x"), Side(1.0, 2.0)
    side.read(track, idle=True, at=0.0)
    publish(track, range(10))
    side.read(track, idle=True, at=8.0)
    assert [frame.timestamp for frame in side._frames] == [6, 7, 8]
    side.read(track, idle=True, at=20.0)
    assert side.take(0.0, 100.0) == ([], False)


def test_turns_one_after_the_other() -> None:
    """A turn takes what is between its ends; what is before is forgotten."""
    track, side = AudioTrack(label="x"), Side(30.0, 1.0)
    side.read(track, idle=False, at=0.0)
    publish(track, range(10))
    side.read(track, idle=False, at=0.0)
    assert [frame.timestamp for frame in side.take(2.0, 4.0)[0]] == [2, 3, 4]
    assert [frame.timestamp for frame in side.take(0.0, 6.0)[0]] == [5, 6]


def test_another_track() -> None:
    """What the track before had is kept, and its reader is closed."""
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
    media = FakeMedia()
    audio = audio_of(media)
    audio.read(["audio"], 0.1)
    for frame in [*frames(0, 0.1, 15), *frames(3000, 1.66, 8)]:
        media.bot.publish(frame.pcm, frame.sample_rate_hz, frame.timestamp)
    audio.read(["audio"], 2.5)
    turn = spoken(user_started=0.1, user_stopped_reported=2.22, acknowledged=2.22, llm_started=1.59, ended=2.5)
    taken = audio.take(turn)
    assert taken.timings.first_audio == 1.66
    assert taken.bot.pcm == pcm(3000) * 8
