"""Latencies of the bot, from the times of what was sent and received. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from statistics import median

import attrs

from rtvi_sync.media import AudioFrame
from rtvi_sync.media.pcm import rms

from .level import audible

TITLE = """\
Latency in ms: from the moment the last audible part of your speech was sent, to the arrival of the reaction.
It includes the pause by which the bot detects the end of your speech."""
HEADERS = ("turn", "final transcript", "first text", "first audio")

# After a pause of up to this many seconds audio continues the utterance before it.
_MAX_PAUSE = 0.3


@attrs.frozen(kw_only=True)
class Latency:
    """Seconds from the end of one utterance of the user to each reaction; None: it did not come.

    Attributes:
        transcript: the last final transcript of the user's words.
        text: the bot's first text.
        audio: the bot's first audible audio.
    """

    transcript: float | None = None
    text: float | None = None
    audio: float | None = None


def audible_timestamps(frames: Sequence[AudioFrame]) -> list[float]:
    """Return the timestamps of the frames that hold speech."""
    marks = audible([rms(frame.pcm) for frame in frames])
    return [frame.timestamp for frame, is_audible in zip(frames, marks, strict=True) if is_audible]


def measure(
    turn_starts: Sequence[float],
    user_audio: Sequence[float],
    bot_audio: Sequence[float],
    transcripts: Sequence[float],
    texts: Sequence[float],
    interruptions: Collection[float] = (),
) -> list[Latency]:
    """Return the latencies of each of the user's turns.

    Args:
        turn_starts: when each utterance began.
        user_audio: when audible audio of the user was sent.
        bot_audio: when audible audio of the bot arrived.
        transcripts: when final transcripts of the user's words arrived.
        texts: when text of the bot arrived.
        interruptions: when the bot was interrupted.

    All of them are monotonic seconds in ascending order.
    """
    # If the bot was speaking already (it greets, it echoes, it interrupts), the audio that follows is no reaction.
    onsets = [
        *bot_audio[:1],
        *(
            later
            for earlier, later in pairwise(bot_audio)
            if later - earlier > _MAX_PAUSE or any(earlier < moment < later for moment in interruptions)
        ),
    ]
    latencies = []
    for begin, until in pairwise([*turn_starts, float("inf")]):
        end = max((moment for moment in user_audio if begin <= moment < until), default=until)
        final, text, audio = ([m - end for m in ms if end < m < until] for ms in (transcripts, texts, onsets))
        latencies.append(
            Latency(transcript=max(final, default=None), text=min(text, default=None), audio=min(audio, default=None))
        )
    return latencies


def as_rows(latencies: Sequence[Latency], first: int = 1) -> list[tuple[str, ...]]:
    """Return table rows under `HEADERS`: one for each turn, numbered from `first`, and the median of each column."""
    values = [attrs.astuple(latency) for latency in latencies]
    known = [[value for value in column if value is not None] for column in zip(*values, strict=True)]
    rows = [(str(number), *map(_ms, turn)) for number, turn in enumerate(values, first)]
    return [*rows, ("median", *(_ms(median(column) if column else None) for column in known))] if rows else []


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.0f}"
