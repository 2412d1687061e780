"""The bot's latencies in table form. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from rtvi_sync.media import AudioFrame
from rtvi_sync.media.levels import audible
from rtvi_sync.media.pcm import rms
from rtvi_sync.protocol.text import one_line

if TYPE_CHECKING:
    from rtvi_sync import Turn

TITLE = """\
Latency in ms: from the end of your speech or text to the reaction.
After speech it includes the pause by which the bot detects the end."""
HEADERS = ("turn", "asked", "question", "transcript", "first text", "first audio")
#: The number of columns with text; the others are numbers.
TEXTS = 3
_MAX_QUESTION = 24
_KINDS = {"audio": "spoken", "text": "typed"}


def audible_timestamps(frames: Sequence[AudioFrame]) -> list[float]:
    """Return the timestamps of the audio frames that contain speech."""
    marks = audible([rms(frame.pcm) for frame in frames])
    return [frame.timestamp for frame, is_audible in zip(frames, marks, strict=True) if is_audible]


def as_rows(turns: Sequence[Turn], first: int = 1) -> list[tuple[str, ...]]:
    """Return table rows under `HEADERS`: one for each turn of the user, numbered from `first`. The last rows are the
    medians: of spoken turns, then of typed ones, which bots answer much faster.
    """
    rows = [
        (
            str(number),
            _KINDS[turn.modality or "text"],
            one_line(turn.user_text or "", _MAX_QUESTION),
            *map(_ms, _latencies(turn)),
        )
        for number, turn in enumerate(turns, first)
    ]
    for modality, kind in _KINDS.items():
        measured = [_latencies(turn) for turn in turns if turn.modality == modality]
        known = [[value for value in column if value is not None] for column in zip(*measured, strict=True)]
        if known:
            rows.append(("median", kind, "", *(_ms(median(column) if column else None) for column in known)))
    return rows


def _latencies(turn: Turn) -> tuple[float | None, float | None, float | None]:
    return turn.transcription, turn.time_to_first_token, turn.time_to_first_audio


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.0f}"
