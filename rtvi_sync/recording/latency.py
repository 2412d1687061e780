"""The bot's latencies in table form. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

import attrs

from rtvi_sync.media import AudioFrame
from rtvi_sync.media.levels import audible
from rtvi_sync.media.pcm import rms

if TYPE_CHECKING:
    from rtvi_sync import Turn

TITLE = """\
Latency in ms: from the moment the last audible part of your speech was sent, to the arrival of the reaction.
It includes the pause by which the bot detects the end of your speech."""
HEADERS = ("turn", "final transcript", "first text", "first audio")


@attrs.frozen(kw_only=True)
class Latency:
    """Seconds from the end of one utterance of the user to each reaction; None if it did not happen.

    Attributes:
        transcript: Last final transcript of the user's words.
        text: First text of the bot.
        audio: First audible audio of the bot.
    """

    transcript: float | None = None
    text: float | None = None
    audio: float | None = None


def of_turn(turn: Turn) -> Latency:
    """Return the latencies of a turn of the user."""
    return Latency(transcript=turn.transcription, text=turn.time_to_first_token, audio=turn.time_to_first_audio)


def audible_timestamps(frames: Sequence[AudioFrame]) -> list[float]:
    """Return the timestamps of the audio frames that contain speech."""
    marks = audible([rms(frame.pcm) for frame in frames])
    return [frame.timestamp for frame, is_audible in zip(frames, marks, strict=True) if is_audible]


def as_rows(latencies: Sequence[Latency], first: int = 1) -> list[tuple[str, ...]]:
    """Return table rows under `HEADERS`: one for each turn, numbered from `first`, and a last row of medians."""
    values = [attrs.astuple(latency) for latency in latencies]
    known = [[value for value in column if value is not None] for column in zip(*values, strict=True)]
    rows = [(str(number), *map(_ms, turn)) for number, turn in enumerate(values, first)]
    return [*rows, ("median", *(_ms(median(column) if column else None) for column in known))] if rows else []


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.0f}"
