"""A conversation whose audio and time the test controls, and the audio that a session keeps."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, cast

from rtvi_sync import BotReadyData, RTVIEvent, Turn
from rtvi_sync.conversation.audio import SessionAudio, Side
from rtvi_sync.conversation.follow import ConversationTracker
from rtvi_sync.media import AudioTrack
from rtvi_sync.media.base import AudioFrame

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


class Talk:
    """A conversation whose time the test tells, with a bot that reports its interruptions."""

    def __init__(self, max_turn_audio: float = 120.0) -> None:
        self.media = FakeMedia()
        self.audio = SessionAudio(cast("Any", self.media), max_turn_audio)
        self.ended: list[Turn] = []
        follower = SimpleNamespace(
            audio=self.audio,
            bot=BotReadyData(version="2.0.0"),
            call_at=lambda due: None,
            has_listener=lambda is_explicit: False,
            has_words=True,
            is_transcribed=False,
            items_of=self._take_turn,
            number=1,
            read_at=0.0,
            timer_due=None,
            user_is_muted=False,
        )
        self.follower = cast("Any", follower)
        self.conversation = ConversationTracker(max_turn_audio=max_turn_audio)
        self.conversation._follower = self.follower

    def _take_turn(self, type_: RTVIEvent, turn: Any) -> list[Any]:
        if type_ is RTVIEvent.TURN_ENDED:
            self.ended.append(turn.turn())
        return []

    def tell(self, at: float, *events: str) -> None:
        """Let events of the bot arrive; its texts have one."""
        for name in events:
            data = SimpleNamespace(text="Hi") if name == "bot-llm-text" else None
            self.follower.read_at = 0.0  # enough time has passed
            self.conversation.take(self.follower, RTVIEvent(name), at, data)

    def ask(self, seconds: int) -> None:
        """Let the user speak from the start, and the bot start its answer a second later."""
        self.tell(0.0, "user-started-speaking")
        self.hear(0.0, seconds, 3000)
        self.tell(seconds + 0.5, "user-stopped-speaking")
        self.answer(seconds + 1.0)

    def answer(self, at: float) -> None:
        """Let the bot start an answer."""
        self.tell(at, "bot-llm-started", "bot-llm-text")

    def hear(self, start: float, seconds: int, level: int) -> None:
        """Let the user's audio be sent, and be read now and then, as in a session whose bot sends events."""
        for number in range(seconds):
            send(self.media.user, frames(level, start + number, 10))
            self.follower.read_at = 0.0
            self.conversation._read_audio(self.follower, self.conversation._start(self.follower), start + number + 1)

    @property
    def user_seconds(self) -> float:
        """The seconds of the user's audio that are kept."""
        return self.audio._user._seconds

    def lose_tracks(self) -> None:
        """Take the tracks from the client, as the end of its session does."""
        for track in (self.media.bot, self.media.user):
            track.end()
        self.audio._media = cast("Any", SimpleNamespace(received=lambda: None, sent=lambda: None))

    def end(self, at: float) -> list[Turn]:
        """End the session; return its turns."""
        self.conversation.end_session(self.follower, at, lost=False)
        return self.ended


def send(track: AudioTrack, frames: Iterable[AudioFrame]) -> None:
    for frame in frames:
        track.publish(frame.pcm, frame.sample_rate_hz, frame.timestamp)


def bot_side(audio: SessionAudio) -> Side:
    """Return the kept audio of the bot."""
    return audio._bot


def queued_frames(side: Side) -> int:
    """Return how many frames wait to be read."""
    assert side._reader is not None
    return len(side._reader.queued())


def kept_moments(side: Side) -> list[float]:
    """Return the arrival times of the kept frames."""
    return [frame.timestamp for frame in side._frames]
