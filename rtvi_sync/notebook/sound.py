"""What each turn sounded like, and how long after the user's last sound the bot reacted. Pure."""

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

# Sound after a shorter pause goes on with what was being said before.
_PAUSE = 0.3
# Kept around what is to be heard, so that soft first and last sounds are not cut off.
_MARGIN = 0.1


@attrs.frozen
class Clip:
    """Mono PCM of 16 bit, little endian, and how many samples it has per second."""

    pcm: bytes = attrs.field(repr=lambda pcm: f"<{len(pcm)} bytes>")
    sample_rate_hz: int

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return len(self.pcm) / 2 / self.sample_rate_hz

    def wav(self) -> bytes:
        """As a WAV file."""
        return wav_header(self.sample_rate_hz, len(self.pcm)) + self.pcm


class Side:
    """What was sent, or what was heard.

    Args:
        frames: in order.
        drops: when somebody cut it short: what had come and was not yet played is not heard.
    """

    def __init__(self, frames: Sequence[AudioFrame], drops: Collection[float] = ()) -> None:
        self.sound: list[float] = audible_timestamps(frames)
        self._frames = frames
        self._times = [frame.timestamp for frame in frames]
        self._drops = drops

    def clips(self, begin: float, until: float) -> list[Clip]:
        """What was to be heard in a time, from the first sound to the last; a clip for each sample rate in turn."""
        sound = _between(self.sound, self.sound, begin, until)
        if not sound:
            return []
        first, last = max(begin, sound[0] - _MARGIN), min(until, sound[-1] + _MARGIN)
        frames = _between(self._frames, self._times, first, last)
        line = simulate_playback(frames, self._drops)
        groups = [(rate, list(group)) for rate, group in groupby(line, key=lambda segment: segment.sample_rate_hz)]
        return [Clip(render(group, group[0].start, rate), rate) for rate, group in groups]

    def onset(self, moment: float) -> float:
        """When the sound began that is there at a moment, and a bit of what was before it."""
        for earlier in reversed(self.sound[: bisect_right(self.sound, moment)]):
            if moment - earlier > _PAUSE:
                break
            moment = earlier
        return moment - _MARGIN


class Sound:
    """The audio of a conversation, cut into its turns.

    Args:
        turns: in order.
        user, bot: all that was sent and heard, in order.
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
        self._user = Side(user)
        self._bot = Side(bot, interruptions)
        # A user is heard before the bot tells that it hears him, and meanwhile the bot may still be speaking.
        self._begins = [self._user.onset(turn.began) if turn.aloud else turn.began for turn in turns]

    def of_user(self, index: int) -> list[Clip]:
        """What the user said in a turn."""
        begins = [*self._begins, math.inf]
        return self._user.clips(begins[index], begins[index + 1]) if self._turns[index].aloud else []

    def of_bot(self, index: int) -> list[Clip]:
        """What was heard of the bot in a turn."""
        begins = [*(turn.heard_from for turn in self._turns), math.inf]
        return self._bot.clips(begins[index], begins[index + 1])

    def latencies(self) -> list[Latency]:
        """The latencies of the user's turns.

        They are measured from the last audible part of what was sent, or from the acknowledgement of what was typed.
        Where there is no audio, the bot's word is taken for when somebody stopped or began to speak.
        """
        own = [number for number, turn in enumerate(self._turns) if turn.number is not None]
        turns, begins = [self._turns[number] for number in own], [self._begins[number] for number in own]
        ends = [turn.typed or (None if self._user.sound else turn.stopped) for turn in turns]
        return measure(
            begins,
            sorted([*self._user.sound, *_known(ends)]),
            self._bot.sound or _known([turn.spoke for turn in turns]),
            _known([turn.final for turn in turns]),
            _known([turn.text for turn in turns]),
            self._interruptions,
        )


def _known(moments: Sequence[float | None]) -> list[float]:
    return [moment for moment in moments if moment is not None]


def _between(items: Sequence[T], times: Sequence[float], begin: float, until: float) -> Sequence[T]:
    """The items whose times are from `begin` to before `until`."""
    return items[bisect_left(times, begin) : bisect_left(times, until)]
