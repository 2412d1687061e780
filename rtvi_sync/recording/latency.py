"""How long the bot took to react, from what was sent and what arrived. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from statistics import median

import attrs

from rtvi_sync.media import AudioFrame

from .level import audible, rms

TITLE = """\
Latency in ms: from the moment when the last audible part of what you said was sent, to the arrival of the reaction.
It includes the pause by which the bot tells that you have finished."""
HEADERS = ("turn", "final transcript", "first text", "first sound")

# Sound after a shorter pause goes on with what was being said before.
_PAUSE = 0.3


@attrs.frozen(kw_only=True)
class Latency:
    """Seconds from the end of one utterance of the user to what followed; None: it did not come.

    Attributes:
        transcript: the last final transcript of the user's words.
        text: the first text of the bot's.
        sound: the first audible audio of the bot's.
    """

    transcript: float | None = None
    text: float | None = None
    sound: float | None = None


def moments_of_sound(frames: Sequence[AudioFrame]) -> list[float]:
    """The timestamps of the frames in which somebody is to be heard."""
    heard = audible([rms(frame.pcm) for frame in frames])
    return [frame.timestamp for frame, loud in zip(frames, heard, strict=True) if loud]


def measure(
    said: Sequence[float],
    user_sound: Sequence[float],
    bot_sound: Sequence[float],
    transcripts: Sequence[float],
    texts: Sequence[float],
    interruptions: Collection[float] = (),
) -> list[Latency]:
    """The latencies of each of the user's turns.

    Args:
        said: when each utterance was begun.
        user_sound: when audible audio of the user's was sent.
        bot_sound: when audible audio of the bot's arrived.
        transcripts: when final transcripts of the user's words arrived.
        texts: when text of the bot's arrived.
        interruptions: when the bot was interrupted.

    All of them are monotonic seconds in ascending order.
    """
    # Where a bot was speaking already (it greets, it echoes, it interrupts), what follows is no reaction.
    onsets = [
        *bot_sound[:1],
        *(
            later
            for earlier, later in pairwise(bot_sound)
            if later - earlier > _PAUSE or any(earlier < moment < later for moment in interruptions)
        ),
    ]
    latencies = []
    for begin, until in pairwise([*said, float("inf")]):
        end = max((moment for moment in user_sound if begin <= moment < until), default=until)
        final, text, sound = ([m - end for m in ms if end < m < until] for ms in (transcripts, texts, onsets))
        latencies.append(
            Latency(transcript=max(final, default=None), text=min(text, default=None), sound=min(sound, default=None))
        )
    return latencies


def as_rows(latencies: Sequence[Latency], first: int = 1) -> list[tuple[str, ...]]:
    """The rows of a table under `HEADERS`: one for each turn, numbered from `first`, and the median of each column."""
    values = [attrs.astuple(latency) for latency in latencies]
    known = [[value for value in column if value is not None] for column in zip(*values, strict=True)]
    rows = [(str(number), *map(_ms, turn)) for number, turn in enumerate(values, first)]
    return [*rows, ("median", *(_ms(median(column) if column else None) for column in known))] if rows else []


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.0f}"
