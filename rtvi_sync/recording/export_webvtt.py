"""Exports a recording as WebVTT subtitles of both sides. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ..protocol.text import one_line
from .lanes import bot_span, user_span

if TYPE_CHECKING:
    from rtvi_sync import Turn

# A sentence ends at a final sign before a blank, or at once in scripts without blanks.
_SENTENCES: Final = re.compile(r".+?(?:[.!?\u2026]+[\"'\u201d\u2019)]*(?=\s|$)|[\u3002\uff01\uff1f]+|$)\s*", re.DOTALL)
# The shortest time for which a cue is shown, and the time for typed words, in seconds.
_SHORTEST: Final = 0.2
_TYPED: Final = 1.0


def webvtt(turns: Sequence[Turn], name: str) -> str:
    """Return the words of both sides with their times. Of the bot's text, only the heard part is shown.

    Args:
        turns: Turns in order, with timings in seconds since the start of the recording.
        name: Name of the recording, for a note.
    """
    cues = sorted((cue for turn in turns for cue in _cues(turn)), key=lambda cue: cue[0])
    note = one_line(name).replace("-->", "->")
    blocks = [f"{_time(start)} --> {_time(end)}\n<v {who}>{_escaped(text)}" for start, end, who, text in cues]
    return "\n\n".join(["WEBVTT", f"NOTE {note}", *blocks]) + "\n"


def _cues(turn: Turn) -> Iterator[tuple[float, float, str, str]]:
    user, bot = user_span(turn), bot_span(turn)
    if user is not None:
        start, end = user
        if turn.modality == "text":
            end = start + _TYPED
        yield from _spread("You", turn.user_text or "", start, end)
    if bot is not None:
        yield from _spread("Bot", (turn.spoken_text if turn.interrupted else turn.bot_text) or "", *bot)


def _spread(who: str, text: str, start: float, end: float) -> Iterator[tuple[float, float, str, str]]:
    """Yield a cue for each sentence, whose share of the time is its share of the letters."""
    sentences = [sentence for part in _SENTENCES.findall(text) if (sentence := " ".join(part.split()))]
    letters = sum(map(len, sentences))
    done = 0
    for sentence in sentences:
        begin = start + (end - start) * done / letters
        done += len(sentence)
        yield begin, max(start + (end - start) * done / letters, begin + _SHORTEST), who, sentence


def _time(seconds: float) -> str:
    millis = round(1000 * max(seconds, 0.0))
    minutes, millis = divmod(millis, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{millis // 1000:02}.{millis % 1000:03}"


def _escaped(text: str) -> str:
    """Return a text as one line without markup: a blank line, or an arrow, would end the cue."""
    shown = one_line(text, len(text))
    return shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
