"""The arrival of a bot's audio: its rate, the length of a frame, gaps and jitter. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import attrs

from rtvi_sync.media import AudioFrame
from rtvi_sync.recording.percentiles import percentile

# Seconds without audio after which a frame belongs to another utterance.
_PAUSE = 1.0
# Seconds that a frame may be late after the audio before it, without an audible gap.
_GAP = 0.05


@attrs.frozen
class Arrivals:
    """How a bot's audio arrived.

    Attributes:
        rate_hz: Sample rate in hertz.
        chunk: Usual length of a frame, in seconds.
        seconds: Length of the audio, in seconds.
        ahead: Longest time by which audio arrived before it was due, in seconds.
        gaps: Number of gaps of up to a second.
        gap_seconds: Length of all gaps, in seconds.
        jitter: Largest deviation of 95 % of the frames from an even pace, in seconds.
    """

    rate_hz: int
    chunk: float
    seconds: float
    ahead: float
    gaps: int
    gap_seconds: float
    jitter: float | None


def arrivals_of(frames: Sequence[AudioFrame]) -> Arrivals | None:
    """Return how frames arrived; None if there are none."""
    if not frames:
        return None
    gaps: list[float] = []
    steps: list[float] = []
    ahead, end = 0.0, frames[0].timestamp
    for before, frame in itertools.pairwise(frames):
        end = max(end, before.timestamp) + before.duration  # when all received audio has been played
        late = frame.timestamp - end
        ahead = max(ahead, -late)
        if late > _PAUSE:
            continue
        steps.append(abs(frame.timestamp - before.timestamp - before.duration))
        if late > _GAP:
            gaps.append(late)
    durations = sorted(frame.duration for frame in frames)
    return Arrivals(
        rate_hz=frames[0].sample_rate_hz,
        chunk=durations[len(durations) // 2],
        seconds=sum(durations),
        ahead=ahead,
        gaps=len(gaps),
        gap_seconds=sum(gaps),
        jitter=percentile(sorted(steps), 0.95),
    )
