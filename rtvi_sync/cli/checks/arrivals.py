"""How a bot's audio arrives: its rate, the length of a frame, gaps and jitter. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import attrs

from rtvi_sync.media import AudioFrame
from rtvi_sync.recording.percentiles import percentile

# Seconds without audio after which a frame belongs to other words.
_PAUSE = 1.0
# Seconds that a frame may come after the end of the audio before it, without being heard as a gap.
_GAP = 0.05


@attrs.frozen
class Arrivals:
    """How audio has arrived.

    Attributes:
        rate_hz: Its rate.
        chunk: The usual length of a frame, in seconds.
        seconds: Its length.
        ahead: Seconds of audio that were there before they were due, at most.
        gaps: How often it stopped, for up to a second.
        gap_seconds: How long in all.
        jitter: By how many seconds 95 % of the frames differ at most from an even pace.
    """

    rate_hz: int
    chunk: float
    seconds: float
    ahead: float
    gaps: int
    gap_seconds: float
    jitter: float | None


def arrivals_of(frames: Sequence[AudioFrame]) -> Arrivals | None:
    """Return how frames have arrived; None: there are none."""
    if not frames:
        return None
    gaps: list[float] = []
    steps: list[float] = []
    ahead, end = 0.0, frames[0].timestamp
    for before, frame in itertools.pairwise(frames):
        end = max(end, before.timestamp) + before.duration  # when all that has arrived is played
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
