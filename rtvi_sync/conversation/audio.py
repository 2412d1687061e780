"""The audio of a session, divided into turns, and an account of the user's audio."""

from __future__ import annotations

import bisect
import math
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

import attrs

from ..concurrency.clock import monotonic
from ..media.base import AudioFrame
from ..media.levels import FLOOR, audible
from ..media.pcm import rms
from ..media.slot import MediaCounters
from ..media.tracks import AudioTrack, TrackFrames
from ..media.turn_audio import TurnAudio, turn_audio_of
from ..protocol.record import Record
from ..transports.base import TransportStats
from .record import Speech, TurnRecord, TurnTimings, speech_of

# Seconds of the user's audio that a turn keeps. They are the last ones: latencies count from the end of the voice.
_MAX_USER_SECONDS = 60.0
# Seconds before the bot's report that may belong to a turn, because voices are heard before they are reported.
_USER_LEAD = 3.0
_BOT_LEAD = 1.0
# Seconds of audio that are kept while no turn is open: some bots report their speech late.
_MAX_LATE = 5.0
# The least number of seconds of audio that a reader can hold between two messages of a long answer. A bot that sends
# faster than it speaks may also send this much at once while no turn is open.
_MAX_LAG = 30.0
# Seconds of silence that end one speech of the user and start another.
_PAUSE = 0.3
# If no turn keeps the user's audio: seconds of it to collect before the unneeded part is dropped.
_UNSORTED_SECONDS = 1.0
# The frames' levels are compared by every eleventh sample, which takes a fifth of the time. No usual sample rate is a
# multiple of eleven, so no tone of whole Hz is silent at all these samples.
_STEP = 11

# Seconds of the bot's audio to keep while no turn is open and turns are not used yet. In a load test, a thousand
# sessions start at once.
_FIRST_LAG = 2.0

# Seconds of one frame of the user's audio.
_FRAME = 0.02

# For `Side`: nothing was dropped, or everything.
_NOTHING: Speech = (math.inf, -math.inf)
_ALL: Speech = (-math.inf, math.inf)


class Side:
    """The frames of one side that no turn has taken yet. Under the conversation's lock.

    Args:
        seconds: Length of the audio to keep. Later audio counts as missing. 0: keep only the first audible audio.
        lead: Seconds for which a frame is kept while no turn is open.
    """

    def __init__(self, seconds: float, lead: float) -> None:
        self._limit = seconds + lead
        self._max_lag = max(self._limit, _MAX_LAG)
        self._idle_lag = max(lead, _MAX_LATE)
        self._lead = lead
        self._is_kept = seconds > 0
        self._track: AudioTrack | None = None
        self._reader: TrackFrames[AudioFrame] | None = None
        self._dropped = 0  # by the reader
        self._frames: list[AudioFrame] = []
        self._seconds = 0.0
        # The moments of the first and the last frame that were dropped.
        self._lost: Speech = _NOTHING

    def hold(self, seconds: float) -> None:
        """Let the reader hold this many seconds while no turn is open."""
        self._idle_lag = seconds
        self._max_lag = max(self._limit, _MAX_LAG) if seconds >= _MAX_LATE else _MAX_LAG

    def lose(self, until: float) -> None:
        """Note that all audio up to a moment is missing."""
        self._lost = (-math.inf, until)

    def add(self, frames: Sequence[AudioFrame]) -> None:
        """Append frames while there is room."""
        for frame in frames:
            # If nothing is kept, the first audible frame may follow any length of silence, which some bots send.
            while not self._is_kept and self._seconds >= self._limit and not self._frames[0].pcm.strip(b"\0"):
                self._seconds -= self._frames.pop(0).duration
            if self._seconds >= self._limit:
                self._lose(frame.timestamp)
            else:
                self._frames.append(frame)
                self._seconds += frame.duration

    def _lose(self, at: float) -> None:
        """Note that a frame was dropped."""
        begin, end = self._lost
        self._lost = min(begin, at), max(end, at)

    def read(self, track: AudioTrack | None, *, idle: bool, at: float) -> None:
        """Append the audio that a track has received.

        Args:
            track: The current track of this side. None: there is none.
            idle: True if no open turn can contain the frames so far.
            at: The moment up to which all events are known.
        """
        if self._has_enough and not idle:
            self._lose(at)  # the audio since the last call
            return
        frames = self._unread()
        if track is not self._track:  # the previous track has ended, or the session
            self.close()
            self._track = track
            self._reader = track.frames(buffer=self._max_lag) if track is not None else None
            self._dropped = 0
        if self._reader is not None:
            # Most sessions of a load test are idle. Slow handlers may delay the event that starts a turn.
            self._reader.shrink(self._idle_lag if idle else self._max_lag, self._max_lag)
        if idle:
            frames, self._frames, self._seconds = [*self._frames, *frames], [], 0.0
            self._lost = self._lost if self._lost[1] > at else _NOTHING
            frames = [frame for frame in frames if frame.timestamp >= at - self._lead]
        self.add(frames)
        if self._has_enough and not idle:
            self.close()  # each frame that is read takes time

    @property
    def _has_enough(self) -> bool:
        """True if nothing is kept, and the first audible frame was found."""
        return not self._is_kept and self._seconds >= self._limit and bool(self._frames[0].pcm.strip(b"\0"))

    def _unread(self) -> list[AudioFrame]:
        """Return the reader's frames since the last call."""
        reader = self._reader
        if reader is None:
            return []
        frames = reader.take()
        if (dropped := reader.dropped) != self._dropped:  # between the last read and now
            self._dropped = dropped
            for frame in (*self._frames[-1:], *frames[:1]):
                self._lose(frame.timestamp)
        return frames

    def take(self, start: float, end: float) -> tuple[list[AudioFrame], bool]:
        """Return the frames from `start` to `end`, and whether any are missing. Forget them and all earlier ones."""
        taken = [frame for frame in self._frames if start <= frame.timestamp <= end]
        self._frames = [frame for frame in self._frames if frame.timestamp > end]
        self._seconds = sum(frame.duration for frame in self._frames)
        missing = self.lacks(start, end)
        if not self.is_lost:  # else audio is missing until `lose()`
            self._lost = (max(self._lost[0], end), self._lost[1]) if self._lost[1] > end else _NOTHING
        return taken, missing

    def lacks(self, start: float, end: float) -> bool:
        """Return whether a frame from `start` to `end` was dropped."""
        return self._lost[0] <= end and self._lost[1] >= start

    def close(self) -> None:
        """Stop reading the track."""
        if self._reader is not None:
            self._reader.close()
        self._reader = self._track = None

    @property
    def is_lost(self) -> bool:
        """True after `forget()`, if there was a track."""
        return self._lost == _ALL

    def forget(self) -> None:
        """Stop reading the track, and forget its audio."""
        if self._track is not None or self._frames:
            self._lost = _ALL
        self.close()
        self._frames, self._seconds = [], 0.0


class UserSide(Side):
    """The user's frames that no turn has taken yet. The newest frames of a speech are kept.

    Args:
        is_kept: False: no turn keeps them. Then only frames that may be the end of a speech are kept.
    """

    def __init__(self, *, is_kept: bool) -> None:
        super().__init__(_MAX_USER_SECONDS, _USER_LEAD)
        self._has_only_ends = not is_kept
        self._room = self._limit if is_kept else _USER_LEAD + _UNSORTED_SECONDS

    def add(self, frames: Sequence[AudioFrame]) -> None:
        """Append frames. `hear()` makes room."""
        self._frames += frames
        self._seconds += sum(frame.duration for frame in frames)

    def hear(self, track: AudioTrack | None, speeches: Collection[Speech], at: float) -> None:
        """Append the audio that a track has received; see `read()`. If there is too much, first drop audio between the
        speeches.

        Args:
            track: The current track of this side. None: there is none.
            speeches: The speeches of the turns in progress.
            at: The moment up to which all events are known.
        """
        self.read(track, idle=not speeches, at=at)
        if self._seconds <= self._room:
            return
        spans = [(begin - self._lead, end) for begin, end in (*speeches, (at, math.inf))]
        if self._has_only_ends:
            recent = bisect.bisect_left(self._frames, at - self._lead, key=lambda frame: frame.timestamp)
            kept = [*_possible_ends(self._frames[:recent], spans), *self._frames[recent:]]
        else:
            kept = [frame for frame in self._frames if any(begin <= frame.timestamp <= end for begin, end in spans)]
        self._seconds = sum(frame.duration for frame in kept)
        dropped = 0
        while self._seconds > _MAX_USER_SECONDS:
            self._seconds -= kept[dropped].duration
            self._lose(kept[dropped].timestamp)
            dropped += 1
        self._frames = kept[dropped:]


def _possible_ends(frames: Sequence[AudioFrame], spans: Sequence[Speech]) -> list[AudioFrame]:
    """Return the frames that may prove to be the last audible one of a speech. These are the frames that no later frame
    of the speech equals in level; the first of them is the loudest. They are few, however long the speech is.

    Args:
        frames: The user's frames, oldest first.
        spans: The spans of the speeches.
    """
    ends: list[AudioFrame] = []
    loudest = dict.fromkeys(spans, -1.0)
    for frame in reversed(frames):
        for span in spans:
            if span[0] <= frame.timestamp <= span[1]:
                level = rms(frame.pcm, _STEP)
                if level > loudest[span]:
                    loudest[span] = level
                    ends.append(frame)
                break
    return ends[::-1]


class TakenAudio(NamedTuple):
    """The audio of an ended turn, and the turn's timings, including the timings of the audio."""

    timings: TurnTimings
    bot: TurnAudio
    user: TurnAudio


@attrs.frozen(eq=False, repr=False)
class TurnCut(Record):
    """The frames of an ended turn, as received and sent.

    Attributes:
        record: The turn.
        max_seconds: Seconds of the bot's audio that a turn keeps. 0: it keeps none of the user's either.
        bot: The bot's frames.
        user: The user's frames.
        bot_truncated: True if some of the bot's frames are missing.
        user_truncated: True if some of the user's frames are missing.
    """

    record: TurnRecord
    max_seconds: float
    bot: Sequence[AudioFrame]
    bot_truncated: bool
    user: Sequence[AudioFrame] = ()
    user_truncated: bool = False

    def without_audio(self) -> TurnCut:
        """Return the cut of a turn whose audio is missing."""
        return attrs.evolve(
            self,
            bot=(),
            user=(),
            bot_truncated=self.bot_truncated or bool(self.bot),
            user_truncated=self.user_truncated or bool(self.user),
        )

    def join(self) -> TakenAudio:
        """Join the frames, and measure when they were audible. Any thread."""
        heard = next((frame.timestamp for frame in self.bot if rms(frame.pcm) >= FLOOR), None)
        timings = attrs.evolve(self.record.timings, first_audio=heard)
        user = _voiced(self.user, speech_of(timings)[0]) if self.user else []
        if user:
            timings = attrs.evolve(timings, user_stopped=user[-1].timestamp + user[-1].duration)
        return TakenAudio(
            timings,
            turn_audio_of(self.bot, self.max_seconds, truncated=self.bot_truncated),
            turn_audio_of(user if self.max_seconds else [], truncated=self.user_truncated),
        )


def _voiced(frames: Sequence[AudioFrame], begin: float) -> Sequence[AudioFrame]:
    """Return the frames of the user's voice: from the pause before its reported start, to its end."""
    voiced = [index for index, is_voice in enumerate(audible([rms(frame.pcm) for frame in frames])) if is_voice]
    if not voiced:
        return []
    first = next((index for index in voiced if frames[index].timestamp >= begin), voiced[-1])
    for index in reversed(voiced):
        if index < first and frames[first].timestamp - frames[index].timestamp <= _PAUSE:
            first = index
    return frames[first : voiced[-1] + 1]


class AudioTracks(Protocol):
    """The audio that a session receives and sends. `Media` implements it."""

    def received(self) -> AudioTrack | None:
        """Return the track of the bot's audio, or None."""

    def sent(self) -> AudioTrack | None:
        """Return the track of all audio that is sent, or None."""


class SessionAudio:
    """The session's audio, from the construction on, that no turn has taken yet. Under the conversation's lock.

    Args:
        media: Has the tracks.
        max_seconds: Seconds of the bot's audio that a turn keeps. 0: it keeps none of the user's either.
        in_full: False: turns are not used yet. Keep only the bot's audio, until `forget()` or `keep()`.
    """

    def __init__(self, media: AudioTracks, max_seconds: float, *, in_full: bool = True) -> None:
        self._media = media
        self._max_seconds = max_seconds
        self._bot = Side(max_seconds, _BOT_LEAD)
        self._user = UserSide(is_kept=max_seconds > 0)
        self._in_full = in_full
        #: Any audio is read.
        self.is_read: bool = True
        if not in_full:
            self._bot.hold(_FIRST_LAG)
        self.read((), 0.0)

    def keep(self, *, is_turn_open: bool) -> None:
        """Read the audio of both sides from now on.

        Args:
            is_turn_open: True if a turn may lack earlier audio.
        """
        if self._in_full:
            return
        missing = monotonic() if is_turn_open else -math.inf
        self._user.lose(missing)
        if self._bot.is_lost:
            self._bot.lose(missing)
        self._bot.hold(max(_BOT_LEAD, _MAX_LATE))
        self._in_full = self.is_read = True
        self._bot.read(self._media.received(), idle=not is_turn_open, at=0.0)
        self._user.read(self._media.sent(), idle=not is_turn_open, at=0.0)

    def forget(self) -> None:
        """Forget the audio, and read none until `keep()`."""
        self._bot.forget()
        self.is_read = False

    def read(self, speeches: Collection[Speech | None], at: float) -> None:
        """Read the tracks.

        Args:
            speeches: The user's speech in each turn in progress. None: the user did not speak in it.
            at: The moment of the event that was just taken, or is about to be taken.
        """
        if self.is_read:
            self._bot.read(self._media.received(), idle=not speeches, at=at)
        if self._in_full:
            self._user.hear(self._media.sent(), [speech for speech in speeches if speech is not None], at)

    def cut(self, record: TurnRecord, speeches: Collection[Speech | None], at: float) -> TurnCut:
        """Return the audio of an ended turn, and forget it. Turns are cut in the order of their ends.

        Args:
            record: The turn.
            speeches: The user's speech in each other turn, which is in progress; see `read()`.
            at: Now.
        """
        timings = record.timings
        speech = speech_of(timings) if record.modality == "audio" else None
        self.read([speech, *speeches], at)
        end = timings.ended or 0.0
        start = 0.0
        if record.initiator == "user":
            # The earlier moment: a speech-to-speech model answers before the bot reports the end of the question.
            begins = [moment for moment in (timings.acknowledged, timings.llm_started) if moment is not None]
            start = min(begins, default=timings.user_started or 0.0)
        bot, bot_truncated = self._bot.take(start, end)
        if speech is None or not self._in_full:
            return TurnCut(record, self._max_seconds, bot, bot_truncated, user_truncated=speech is not None)
        begin, end = speech
        user_truncated = self._user.lacks(begin, end)
        user, _ = self._user.take(0.0, end)
        return TurnCut(record, self._max_seconds, bot, bot_truncated, user, user_truncated)

    def close(self) -> None:
        """Stop reading the tracks."""
        self._bot.close()
        self._user.close()


class AudioAccount(NamedTuple):
    """An account of the user's audio, in seconds.

    Attributes:
        sent: Audio that the system took from this process. 0: the transport does not count it.
        not_taken: Audio dropped because the server read too slowly; over WebRTC, because this process was too busy.
        late: Audio that this process or the source had not ready in time. Replaced by silence, dropped, or delayed.
    """

    sent: float
    not_taken: float
    late: float

    def since(self, before: AudioAccount) -> AudioAccount:
        """Return the account of the time after `before`."""
        return AudioAccount(
            sent=self.sent - before.sent, not_taken=self.not_taken - before.not_taken, late=self.late - before.late
        )

    @property
    def has_losses(self) -> bool:
        """Whether a frame was lost or late."""
        return self.not_taken >= _FRAME or self.late >= _FRAME

    def describe(self) -> str:
        """Return sentences that name the side on which audio was lost. "" if the transport does not count it."""
        found = []
        if self.not_taken >= _FRAME:
            found.append(
                f"{self.not_taken:.1f} s of audio were dropped because the server read too slowly (over WebRTC: this "
                "process was too busy)"
            )
        if self.late >= _FRAME:
            found.append(f"{self.late:.1f} s of audio were late in this process or in its source")
        if self.sent and not found:
            found.append(f"{self.sent:.1f} s of audio were sent in time, and the server took all of it")
        return "".join(f"{each}. " for each in found)


def account_of(carried: TransportStats, media: MediaCounters) -> AudioAccount:
    """Return the account of the user's audio in a session."""
    late = _FRAME * (media.mic_underruns + media.mic_dropped) + media.mic_delayed
    return AudioAccount(sent=carried.audio_sent, not_taken=carried.audio_unsent, late=late)
