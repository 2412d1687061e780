"""The audio of each turn, and the time from the user's last audio to the bot's first. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from itertools import groupby
from typing import TypeVar

import attrs

from rtvi_sync.media import AudioFrame
from rtvi_sync.media.pcm import wav_header
from rtvi_sync.recording.latency import Latency, audible_timestamps, measure
from rtvi_sync.recording.recorder import render, simulate_playback

from .turns import Turn

T = TypeVar("T")

# Seconds of silence that divide utterances.
_PAUSE = 0.3
# Seconds kept around audible audio, so that its soft beginning and end are not cut off.
_MARGIN = 0.1


@attrs.frozen
class Clip:
    """Mono PCM, 16 bit, little endian, with its sample rate."""

    pcm: bytes = attrs.field(repr=lambda pcm: f"<{len(pcm)} bytes>")
    sample_rate_hz: int

    @property
    def seconds(self) -> float:
        """The duration."""
        return len(self.pcm) / 2 / self.sample_rate_hz

    def wav(self) -> bytes:
        """Return the clip as a WAV file."""
        return wav_header(self.sample_rate_hz, len(self.pcm)) + self.pcm


class SideAudio:
    """The audio of one side: sent or received.

    Args:
        frames: in order.
        drops: the times of interruptions: what had arrived and was not yet played is left out.
    """

    def __init__(self, frames: Sequence[AudioFrame], drops: Collection[float] = ()) -> None:
        self.audible_times: list[float] = audible_timestamps(frames)
        self._frames = frames
        self._times = [frame.timestamp for frame in frames]
        self._drops = drops

    def clips(self, begin: float, until: float) -> list[Clip]:
        """Return what was audible in a span of time; one clip for each run of frames of one sample rate."""
        audible = _between(self.audible_times, self.audible_times, begin, until)
        if not audible:
            return []
        first, last = max(begin, audible[0] - _MARGIN), min(until, audible[-1] + _MARGIN)
        frames = _between(self._frames, self._times, first, last)
        segments = simulate_playback(frames, self._drops)
        groups = [(rate, list(group)) for rate, group in groupby(segments, key=lambda segment: segment.sample_rate_hz)]
        return [Clip(render(group, group[0].start, rate), rate) for rate, group in groups]

    def utterance_start(self, moment: float) -> float:
        """Return when the utterance that is audible at a moment began, less a margin."""
        for earlier in reversed(self.audible_times[: bisect_right(self.audible_times, moment)]):
            if moment - earlier > _PAUSE:
                break
            moment = earlier
        return moment - _MARGIN


class ConversationAudio:
    """The audio of a conversation, divided into its turns.

    Args:
        turns: in order.
        user, bot: all frames that were sent and received, in order.
        interruptions: when the bot was interrupted.
    """

    def __init__(
        self,
        turns: Sequence[Turn],
        user: Sequence[AudioFrame],
        bot: Sequence[AudioFrame],
        interruptions: Collection[float],
    ) -> None:
        self._turns = turns
        self._interruptions = interruptions
        self._user = SideAudio(user)
        self._bot = SideAudio(bot, interruptions)
        # The user's audio begins before the bot reports it, and until then the bot may still be speaking.
        self._begins = [self._user.utterance_start(turn.began) if turn.by_voice else turn.began for turn in turns]

    def user_clips(self, index: int) -> list[Clip]:
        """Return the user's audio of a turn."""
        begins = [*self._begins, math.inf]
        return self._user.clips(begins[index], begins[index + 1]) if self._turns[index].by_voice else []

    def bot_clips(self, index: int) -> list[Clip]:
        """Return the bot's audio of a turn."""
        begins = [*(turn.bot_audio_from for turn in self._turns), math.inf]
        return self._bot.clips(begins[index], begins[index + 1])

    def latencies(self) -> list[Latency]:
        """Return the latencies of the user's turns.

        They are measured from the last audible audio that was sent, or from the acknowledgement of typed text. If there
        is no audio, they are measured between the bot's reports of when each side stopped and started to speak.
        """
        own = [number for number, turn in enumerate(self._turns) if turn.number is not None]
        turns, begins = [self._turns[number] for number in own], [self._begins[number] for number in own]
        ends = [turn.typed or (None if self._user.audible_times else turn.stopped) for turn in turns]
        return measure(
            begins,
            sorted([*self._user.audible_times, *_without_none(ends)]),
            self._bot.audible_times or _without_none([turn.spoke for turn in turns]),
            _without_none([turn.final for turn in turns]),
            _without_none([turn.text for turn in turns]),
            self._interruptions,
        )


def _without_none(moments: Sequence[float | None]) -> list[float]:
    return [moment for moment in moments if moment is not None]


def _between(items: Sequence[T], times: Sequence[float], begin: float, until: float) -> Sequence[T]:
    """Return the items whose times are from `begin` to before `until`."""
    return items[bisect_left(times, begin) : bisect_left(times, until)]
