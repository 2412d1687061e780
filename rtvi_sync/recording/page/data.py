"""The page's data about recordings, or turns alone, as JSON. Pure."""

from __future__ import annotations

import base64
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import attrs

from ...conversation.record import TurnTimings
from ...conversation.turn import words_of
from ...protocol.recording_rows import TEST_FAILED
from ..compare import Comparison
from ..lanes import (
    Bar,
    LaneMark,
    bars_of,
    end_in_words,
    end_of,
    failure_in_words,
    in_quotes,
    loss_in_words,
    marks_of,
    start_of,
    turn_at,
    turn_bars,
    turn_marks,
    waits_of,
)
from ..summary import percentiles_as_data, summary, turn_as_data
from ..waveform import columns_of

if TYPE_CHECKING:
    from rtvi_sync import Turn

    from ..recording import Recording

# A turn stands out as slow if it took this multiple of the median.
_SLOW: Final = 2.0
_LEAST_TURNS: Final = 3
_DIGITS: Final = 3  # of a second
_USUAL_CODES: Final = (None, 1000, 1001, 1005)


def recordings_data(
    recordings: Sequence[Recording],
    comparison: Comparison | None = None,
    *,
    folder: Path | None = None,
    embed_audio: bool = False,
) -> dict[str, Any]:
    """Return the data of a page.

    Args:
        recordings: Recordings in display order.
        comparison: Comparison with a baseline; None without one.
        folder: Future folder of the page, from which it finds the audio; None for each recording's folder.
        embed_audio: True to put the audio into the page, so that the page can move.
    """
    whole = summary(recordings, comparison)
    return {
        "kind": "recordings",
        **{name: whole[name] for name in ("percentiles", "baseline", "left_out")},
        "recordings": [_recording(recording, folder, embed_audio) for recording in recordings],
    }


def turns_data(turns: Sequence[Turn]) -> dict[str, Any]:
    """Return the timeline data of turns without a recording: no sound, messages or model runs.

    Args:
        turns: A client's turns in order, by its clock.
    """
    start = min((start_of(turn.timings) for turn in turns), default=0.0)
    moved = [_moved(turn, -start) for turn in turns]
    seconds = max((end_of(turn.timings) for turn in moved), default=0.0)
    return {"kind": "turns", "recordings": [_timeline(moved, seconds, turn_bars(moved), turn_marks(moved), ())]}


def _recording(recording: Recording, folder: Path | None, embed_audio: bool) -> dict[str, Any]:
    turns = recording.turns()
    return {
        **_timeline(turns, recording.seconds, bars_of(recording, turns), marks_of(recording, turns), recording.rows),
        "name": recording.path.stem,
        "rtvi": recording.rtvi,
        "bot": recording.bot,
        "library": recording.head.get("library", ""),
        "wall": recording.head.get("wall", ""),
        "is_cut": recording.is_cut,
        "only_heard": not recording._has_words,
        "findings": [attrs.asdict(finding) for finding in findings_of(recording, turns)],
        "percentiles": percentiles_as_data(turns),
        "messages": [
            [round(float(row.get("t", 0.0)), _DIGITS), row.get("dir"), row["message"]]
            for row in recording.rows
            if row["kind"] == "message" and isinstance(row.get("message"), dict)
        ],
        "waves": _waves(recording),
        "audio": _audio(recording, folder, embed_audio),
    }


def _timeline(
    turns: Sequence[Turn],
    seconds: float,
    bars: Sequence[Bar],
    marks: Sequence[LaneMark],
    rows: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Return the data of the timeline and the table of turns."""
    waits = waits_of(turns)
    slowest = max(waits, key=lambda wait: wait.end - wait.start) if len(waits) > 1 else None
    return {
        "seconds": round(seconds, _DIGITS),
        "outline": _outline(turns, seconds),
        "turns": [_turn(turn, rows) for turn in turns],
        "bars": [_rounded(attrs.asdict(bar)) for bar in bars],
        "waits": [{**_rounded(attrs.asdict(wait)), "slowest": wait is slowest} for wait in waits],
        "marks": [_rounded(attrs.asdict(mark)) for mark in marks],
    }


def _turn(turn: Turn, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    data = turn_as_data(turn)
    return {
        **_rounded(data),
        "modality": turn.modality,
        "assumed": turn.assumed,
        "failure": failure_in_words(turn, rows),
        "errors": [error.message for error in turn.errors],
        "start": round(start_of(turn.timings), _DIGITS),
        "end": round(end_of(turn.timings), _DIGITS),
        "timeline": [[round(entry.at, _DIGITS), entry.who, words_of(entry)] for entry in turn.timeline],
    }


def _moved(turn: Turn, by: float) -> Turn:
    """Return a turn with all its moments `by` seconds later."""

    def later(at: float | None) -> float | None:
        return None if at is None else at + by

    return attrs.evolve(
        turn,
        timings=TurnTimings(**{name: later(at) for name, at in attrs.asdict(turn.timings).items()}),
        timeline=tuple(attrs.evolve(entry, at=entry.at + by) for entry in turn.timeline),
        function_calls=tuple(
            attrs.evolve(call, started=later(call.started), stopped=later(call.stopped)) for call in turn.function_calls
        ),
    )


def _rounded(data: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, _DIGITS) if isinstance(value, float) else value for name, value in data.items()}


def _waves(recording: Recording) -> dict[str, Any] | None:
    sides = {"user": recording.audio(side="user"), "bot": recording.audio(side="bot")}
    if not any(sides.values()):
        return None
    columns = {side: columns_of(audio.pcm, audio.sample_rate_hz) for side, audio in sides.items()}
    width = max(seconds for seconds, _ in columns.values())
    return {"column": width, **{side: base64.b64encode(each).decode() for side, (_, each) in columns.items()}}


def _audio(recording: Recording, folder: Path | None, embed_audio: bool) -> dict[str, str] | None:
    """Return the location of the audio for the page; None if there is none."""
    wav = recording.wav
    if wav is None:
        return None
    if embed_audio:
        source = f"data:audio/wav;base64,{base64.b64encode(wav.read_bytes()).decode()}"
    else:
        path = wav.name if folder is None else os.path.relpath(wav, folder)
        source = quote(Path(path).as_posix())
    return {"name": wav.name, "source": source}


def _arrived(recording: Recording) -> str:
    """Return the received messages and audio in words, for a recording without turns."""
    types = Counter(
        f"{row['message'].get('type')} from the {'bot' if row.get('dir') == 'in' else 'user'}"
        for row in recording.rows
        if row["kind"] == "message" and isinstance(row.get("message"), dict)
    )
    heard = {"user": recording.audio(side="user").seconds, "bot": recording.audio(side="bot").seconds}
    messages = ", ".join(f"{name} ({count})" for name, count in types.most_common(8)) or "no message"
    sound = " and ".join(f"{seconds:.1f} s of the {side}'s audio" for side, seconds in heard.items())
    return f"Neither the user nor the bot started a turn. The recording has {messages}; {sound}."


def _outline(turns: Sequence[Turn], seconds: float) -> str:
    interrupted = sum(turn.interrupted for turn in turns)
    return (
        f"Timeline of {seconds:.1f} s with {len(turns)} turns, {interrupted} of them interrupted. "
        "The table of turns has the same as text."
    )


# -- findings ---------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Finding:
    """Something that a reader should see first.

    Attributes:
        kind: Name of the finding, in one or two words.
        text: The finding in a sentence.
        turn: Number of its turn; None if it concerns the whole recording.
        bad: True if it may explain why a test failed.
    """

    kind: str
    text: str
    turn: int | None = None
    bad: bool = True


def findings_of(recording: Recording, turns: Sequence[Turn]) -> list[Finding]:
    """Return the findings: the application's marks first, then faults, then facts worth knowing."""
    found = [finding for turn in turns for finding in _of_turn(recording, turn)]
    if not turns:
        found.append(Finding(kind="No turn", text=_arrived(recording)))
    found += _slow(turns)
    for row in recording.rows:
        if row["kind"] == "lost":
            found.append(Finding(kind="Lost", text=f"{loss_in_words(row)}."))
        elif row["kind"] == "mark":
            at = row.get("t", 0.0)
            text = str(row.get("text", ""))
            why = text.removeprefix(TEST_FAILED)
            kind = "Mark" if why == text else "Test failed"
            found.append(Finding(kind=kind, text=f"{why} ({at:.2f} s)", turn=turn_at(at, turns), bad=kind != "Mark"))
        elif row["kind"] == "end" and (row.get("error") or row.get("code") not in _USUAL_CODES):
            found.append(Finding(kind="End", text=f"At {row.get('t', 0.0):.2f} s {end_in_words(row)}."))
    if recording.is_cut:
        text = f"The recording ends at {recording.seconds:.2f} s without an end of the session: its process was killed."
        found.append(Finding(kind="Cut", text=text))
    return sorted(found, key=lambda finding: (finding.kind != "Test failed", finding.kind != "Mark", not finding.bad))


def _of_turn(recording: Recording, turn: Turn) -> Iterator[Finding]:
    why = failure_in_words(turn, recording.rows)
    if why:
        yield Finding(kind="Failed", text=f"The answer was not complete: {why}.", turn=turn.number)
        return
    for error in turn.errors:
        yield Finding(kind="Error", text=f"The bot reported {in_quotes(error.message)}.", turn=turn.number)
    if turn.is_open:
        yield Finding(kind="Unanswered", text="The answer was not complete when the recording ended.", turn=turn.number)
    elif turn.interrupted:
        text = "The bot was interrupted."
        if turn.bot_text is not None and turn.spoken_text is not None and turn.user_text is not None:
            whole = len(turn.bot_text)
            text = f"The bot was interrupted; {whole - len(turn.spoken_text)} of {whole} characters were not heard."
        yield Finding(kind="Interrupted", text=text, turn=turn.number, bad=False)
    elif turn.modality is not None and not (turn.bot_text or turn.function_calls or _was_only_heard(turn)):
        yield Finding(kind="No answer", text="The bot neither said nor called anything.", turn=turn.number)
    for call in turn.function_calls:
        if call.cancelled or (call.stopped is None and not turn.is_open):
            what = "was cancelled" if call.cancelled else "has no result"
            yield Finding(kind="Call", text=f"The call of {call.function_name} {what}.", turn=turn.number)
    if turn.assumed:
        yield Finding(
            kind="Assumed", text=f"The answer counts as complete: {turn.assumed}.", turn=turn.number, bad=False
        )


def _was_only_heard(turn: Turn) -> bool:
    """Return whether the bot spoke words that are unknown."""
    return turn.bot_text is None and turn.timings.bot_started_speaking is not None


def _slow(turns: Sequence[Turn]) -> Iterator[Finding]:
    known = sorted((turn.time_to_first_audio, turn.number) for turn in turns if turn.time_to_first_audio is not None)
    if len(known) < _LEAST_TURNS:
        return
    usual = known[len(known) // 2][0]
    longest, number = known[-1]
    if longest > _SLOW * usual:
        text = f"The bot was first heard after {longest:.2f} s, the median is {usual:.2f} s."
        yield Finding(kind="Slow", text=text, turn=number)
