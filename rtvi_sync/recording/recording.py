"""A saved recording: its rows, the turns rebuilt from them, and their audio."""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

import attrs

from ..conversation.audio import SessionAudio
from ..conversation.follow import about_bot, turn_of
from ..conversation.record import speech_of
from ..conversation.tracker import OpenTurn, TurnTracker
from ..conversation.turn import Turn
from ..errors import ProtocolError
from ..media.pcm import WAV_HEADER_BYTES, is_rate
from ..media.tracks import AudioTrack
from ..media.turn_audio import TurnAudio
from ..messages import BotReadyData
from ..protocol import envelope
from ..protocol.dialects import INBOUND, decode_payload, parse_version
from ..protocol.heard import moment_of
from ..protocol.message import RTVIMessage
from ..protocol.recording_rows import Row, arrivals, before
from ..protocol.recording_rows import decode as decode_rows
from ..protocol.spoken_text import MAX_CHARACTERS
from ..protocol.validation import BOOL, PATH, Rule
from .export import FORMATS, SUFFIXES, Format, exported, format_of, write_words

# Seconds of one stretch of audio behind the last row, in frames of 20 ms.
_FRAME = 0.02
# Seconds of the bot's audio that a turn keeps.
_MAX_TURN_AUDIO = 3600.0
# Seconds by which the end of a rebuilt turn may differ from the client's.
_SAME_END = 0.25
_SUFFIXES = (".jsonl", ".wav", ".html")
_SIDES: Final = {"bot": "in", "user": "out"}
_SIDE = Rule('"bot" or "user"', lambda side: isinstance(side, str), lambda side: side in _SIDES)


@attrs.frozen(eq=False, slots=False)
class Recording:
    """The record of one session; see `RTVIClient.record()`.

    Attributes:
        path: File with the rows.
        rows: All rows, ordered by time. Times are in seconds since the start of the recording.
        is_cut: True if the recording was not closed, for example because the process was killed, or a file is damaged.
        wav: File with the audio; None if there is none.
    """

    path: Path
    rows: tuple[Row, ...] = attrs.field(repr=lambda rows: f"<{len(rows)} rows>")
    is_cut: bool = False
    wav: Path | None = attrs.field(default=None, repr=False)

    # -- reading ------------------------------------------------------------------------------------------------------

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Recording:
        """Read a recording. Missing parts (the end, the head, some audio) are no error.

        Args:
            path: Path of either file, or their path without a suffix.

        Raises:
            FileNotFoundError: No rows file has that name.
            OSError: The file cannot be read.
            ValueError: The file is not a recording, or its version is newer than this package reads.
        """
        PATH.check(path=path)
        file = _rows_file(Path(path))
        try:
            rows, is_cut = decode_rows(file.read_bytes())
        except ValueError as error:
            raise ValueError(f"Cannot read {file}: {error}") from None
        rate = _rate_of(rows)
        wav = file.with_suffix(".wav")  # not by the name in its row: the files may have been renamed together
        found = wav if rate and _is_stereo(wav) else None
        frames = _frames_of(found)
        ends = {
            side: max((row["at"] + row["n"] for row in rows if _is_audio_of(row, side)), default=0)
            for side in ("in", "out")
        }
        has_end = any(row["kind"] == "end" for row in rows)
        is_cut = is_cut or not has_end or max(ends.values()) > frames or (bool(rate) and found is None)
        if is_cut and rate:
            rows += [rest for side, end in ends.items() for rest in _rest(side, end, frames, rate)]
        rows.sort(key=_time_of)
        return cls(file, tuple(rows), is_cut, found)

    @classmethod
    def load_all(cls, *paths: str | os.PathLike[str]) -> tuple[Recording, ...]:
        """Read recordings: files, and all recordings in folders, ordered by name. Each is read once.

        Raises:
            OSError, ValueError: See `load()`.
        """
        found: list[Path] = []
        for path in paths:
            PATH.check(paths=path)
            file = Path(path)
            found += sorted(file.rglob("*.jsonl")) if file.is_dir() else [_rows_file(file)]
        return tuple(map(cls.load, dict.fromkeys(found)))  # "kept/*" names both files, and the page

    # -- content ------------------------------------------------------------------------------------------------------

    @property
    def head(self) -> Row:
        """First row: format, version, wall-clock time, library, session and URL; empty if it is missing."""
        return self.rows[0] if self.rows and self.rows[0]["kind"] == "head" else {}

    @property
    def seconds(self) -> float:
        """Time of the last row or the end of the audio, in seconds."""
        last = max((row.get("until", _time_of(row)) for row in self.rows), default=0.0)
        return max(last, self._frames / self._rate_hz if self._rate_hz else 0.0)

    @property
    def lost(self) -> tuple[Row, ...]:
        """Rows about missing data: which side, how much, and why."""
        return tuple(row for row in self.rows if row["kind"] == "lost")

    @property
    def rtvi(self) -> str:
        """Version of the bot's protocol; "" if unknown."""
        return str(self._bot_row.get("rtvi", ""))

    @property
    def bot(self) -> str:
        """Name and versions of the bot: "RTVI 2.2.0, pipecat-ai 1.14.0"; "" if unknown."""
        return about_bot(self._bot)

    @property
    def _bot_row(self) -> Row:
        return next((row for row in self.rows if row["kind"] == "bot"), {})

    @property
    def _has_words(self) -> bool:
        return self._bot_row.get("messages") is not False

    @property
    def _bot(self) -> BotReadyData:
        row = self._bot_row
        data = {"version": row.get("rtvi", ""), "about": row.get("about"), "capabilities": row.get("capabilities")}
        known = {name: each for name, each in data.items() if each is not None}
        try:
            bot: BotReadyData = decode_payload(INBOUND["bot-ready"], known)
        except ProtocolError:
            return BotReadyData()
        return bot

    # -- exporting ----------------------------------------------------------------------------------------------------

    def export(self, path: str | os.PathLike[str] | None = None, format: Format | None = None) -> str:
        """Return the recording in another format, and write it to a file if `path` is given.

        Args:
            path: File to write or overwrite; only this user may read a new one. Its suffix names the format: .html,
                .vtt (subtitles of both sides), .otlp.json (traces for OpenTelemetry), .trace.json (chrome://tracing and
                Perfetto) or .conversation.json (Pipecat's evals).
            format: "html", "vtt", "otlp", "chrome" or "conversation"; None takes the format from the suffix.

        Raises:
            ValueError: Neither argument names a format, or the path is a file of the recording.
            OSError: The file cannot be written, or the WAV file cannot be read.
        """
        PATH.or_none.check(path=path)
        file = None if path is None else Path(path)
        chosen = format if format is not None else None if file is None else format_of(file)
        if chosen is None or chosen not in FORMATS:
            raise ValueError(
                f"export() knows no such format: end the path in {', '.join(SUFFIXES)}; or pass format=, one of "
                f"{', '.join(FORMATS)}"
            )
        return self._written(exported(self, chosen, file), file)

    def report(self, path: str | os.PathLike[str] | None = None, *, embed_audio: bool = False) -> str:
        """Return an HTML page that shows the recording, and write it to a file if `path` is given.

        Args:
            path: File to write or overwrite; only this user may read a new one.
            embed_audio: True to put the audio into the page. Otherwise the page plays the WAV file where it is now.

        Raises:
            ValueError: The path is a file of the recording.
            OSError: The file cannot be written, or the WAV file cannot be read.
        """
        PATH.or_none.check(path=path)
        BOOL.check(embed_audio=embed_audio)
        file = None if path is None else Path(path)
        return self._written(exported(self, "html", file, embed_audio=embed_audio), file)

    def _written(self, text: str, file: Path | None) -> str:
        if file is not None:
            self.check_output(file)
            write_words(file, text)
        return text

    def check_output(self, path: str | os.PathLike[str]) -> None:
        """Check that an output file would not overwrite a file of the recording.

        Raises:
            ValueError: It would.
        """
        PATH.check(path=path)
        own = {os.path.realpath(each) for each in (self.path, self.path.with_suffix(".wav"))}
        if os.path.realpath(path) in own:
            raise ValueError(f"{path} is a file of the recording, which would be overwritten: pass another path")

    # -- audio --------------------------------------------------------------------------------------------------------

    @property
    def _rate_hz(self) -> int:
        return _rate_of(self.rows)

    @property
    def _frames(self) -> int:
        return _frames_of(self.wav)

    def audio(self, turn: Turn | int | None = None, side: Literal["bot", "user"] = "bot") -> TurnAudio:
        """Return audio as the user and the bot heard it; empty if there is none.

        Args:
            turn: One of `turns()`, or its number; None for the whole recording.
            side: Side that spoke, "bot" or "user".

        Raises:
            ValueError: No such turn or side exists.
            OSError: The WAV file cannot be read.
        """
        _SIDE.check(side=side)
        if turn is None:
            pcm = _channel(self.wav, side)
            return TurnAudio(pcm=pcm, sample_rate_hz=self._rate_hz if pcm else 0)
        number = turn.number if isinstance(turn, Turn) else turn
        found = next((each for each in self.turns() if each.number == number), None)
        if found is None:
            raise ValueError(f"turn must be one of turns() or its number, not {turn!r}")
        return found.audio if side == "bot" else found.user_audio

    # -- turns --------------------------------------------------------------------------------------------------------

    def turns(self) -> tuple[Turn, ...]:
        """Return the turns as the client built them from the same messages, with the heard part of their audio.

        Their `timings` are in seconds since the start of the recording.

        Raises:
            OSError: The WAV file cannot be read.
        """
        return self._turns

    @cached_property
    def _turns(self) -> tuple[Turn, ...]:
        return tuple(_TurnMaker(self).run())


class _Tracks:
    """The audio tracks of a recording, for `SessionAudio`."""

    def __init__(self) -> None:
        self._bot, self._user = AudioTrack(label="bot"), AudioTrack(label="sent")
        self.of: Final[Mapping[str, AudioTrack]] = {"in": self._bot, "out": self._user}

    def received(self) -> AudioTrack:
        """Return the bot's track."""
        return self._bot

    def sent(self) -> AudioTrack:
        """Return the user's track."""
        return self._user


class _TurnMaker:
    """Rebuilds turns: feeds the rows of a recording to a tracker, each at its time.

    Args:
        recording: Recording to read.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._bot = recording._bot
        self._tracker = TurnTracker()
        self._tracks = _Tracks()
        self._audio = SessionAudio(self._tracks, _MAX_TURN_AUDIO)
        self._turns: dict[int, Turn] = {}

    def run(self) -> list[Turn]:
        """Return the turns."""
        bot, tracker = self._bot, self._tracker
        tracker.start_session(
            audio_out=bot.capabilities.audio_out is not False,
            version=parse_version(bot.version),
            has_words=self._recording._has_words,
            number=1,
        )
        for at, kind, what in self._happenings():
            self._pass_time(at)
            if kind == "frame":
                side, pcm, rate = what
                self._tracks.of[side].publish(pcm, rate, at)
                continue
            self._audio.read(tracker.speeches, at)
            if kind == "end":
                if what.get("initiator") is not None:  # otherwise only the recording ended
                    self._report(at, tracker.end_session(at, lost=_is_loss(what)))
                break
            self._report(at, self._take(at, what))
        self._audio.close()
        in_progress = {each.number: turn_of(each, bot=about_bot(bot)) for each in tracker.turns}
        self._add_transcripts()
        return [turn for _, turn in sorted((in_progress | self._turns).items())]

    def _add_transcripts(self) -> None:
        """Add to the ended turns the words transcribed from their audio, matched by the moments of their ends."""
        ends = sorted(
            (turn.timings.ended or 0.0, turn.number) for turn in self._turns.values() if turn.bot_text is None
        )
        for row in self._recording.rows:
            if row["kind"] != "transcript":
                continue
            ended = row["ended"]
            place = bisect_left(ends, (ended, 0))
            near = [index for index in (place - 1, place) if 0 <= index < len(ends)]
            index = min(near, key=lambda index: abs(ends[index][0] - ended), default=None)
            if index is not None and abs(ends[index][0] - ended) <= _SAME_END:
                _, number = ends.pop(index)
                text = row["text"][:MAX_CHARACTERS]
                self._turns[number] = attrs.evolve(self._turns[number], bot_text=text, spoken_text=text)

    def _happenings(self) -> Iterator[tuple[float, str, Any]]:
        """Yield the messages, the audio frames and the end, in the order of time."""
        recording = self._recording
        found: list[tuple[float, str, Any]] = []
        channels = {_SIDES[side]: _channel(recording.wav, side) for side in _SIDES}
        for row in recording.rows:
            kind = row["kind"]
            if kind in ("message", "end"):
                found.append((_time_of(row), kind, row))
        for side, pcm in channels.items():
            found += [(at, "frame", (side, part, recording._rate_hz)) for at, part in frames_of(recording, side, pcm)]
        found.sort(key=lambda happening: happening[0])
        yield from found

    def _take(self, at: float, row: Row) -> list[OpenTurn]:
        try:
            type_, data, id_ = envelope.open_document(row.get("message"))
            if row.get("dir") == "out":
                return self._tracker.sent(at, RTVIMessage(type_, data, id_))
            spec = INBOUND.get(type_)
            if spec is None or spec.event is None or not spec.event.in_turns:
                return []
            moment = at if self._recording._has_words else moment_of(data, at)
            return self._tracker.take(spec.event, moment, decode_payload(spec, data))
        except ProtocolError:
            return []

    def _pass_time(self, now: float) -> None:
        while (due := self._tracker.due) is not None and due <= now:
            self._audio.read(self._tracker.speeches, due)
            self._report(due, self._tracker.pass_time(due))

    def _report(self, at: float, turns: list[OpenTurn]) -> None:
        """Build the ended turns, with their audio, as `ConversationTracker._report()` does."""
        for number, turn in enumerate(turns):
            if not turn.is_over:
                continue
            speeches = [
                *self._tracker.speeches,
                *(speech_of(other.timings) for other in turns[number + 1 :] if other.modality == "audio"),
            ]
            record = turn.record()
            self._turns[turn.number] = turn_of(record, self._audio.cut(record, speeches, at), about_bot(self._bot))
        if turns:
            self._audio.read(self._tracker.speeches, at)


def _rows_file(path: Path) -> Path:
    """Return the rows file, given either file, the page, or their name without a suffix."""
    return path.with_suffix(".jsonl") if path.suffix in _SUFFIXES else path.with_name(f"{path.name}.jsonl")


def frames_of(recording: Recording, direction: str, pcm: bytes) -> Iterator[tuple[float, bytes]]:
    """Yield the audio frames of one side, each with its arrival time.

    Args:
        recording: Recording to read.
        direction: "in" for the bot, "out" for the user.
        pcm: All audio of that side.
    """
    for row in recording.rows:
        if _is_audio_of(row, direction) and (known := before(row, len(pcm) // 2)) is not None:
            for at, begin, end in arrivals(known):
                yield at, pcm[2 * begin : 2 * end]


def _time_of(row: Row) -> float:
    return float(row.get("t", 0.0))


def _rate_of(rows: Iterable[Row]) -> int:
    """Return the sample rate of the WAV file, in hertz; 0 if there is no file."""
    return next((row["rate_hz"] for row in rows if row["kind"] == "wav" and is_rate(row.get("rate_hz"))), 0)


def _is_audio_of(row: Row, side: str) -> bool:
    return row["kind"] == "audio" and row.get("dir") == side


def _is_loss(row: Row) -> bool:
    """Return whether a session was cut off, by the client's rule for its own turns."""
    return (
        row.get("initiator") == "network" or row.get("error") is not None or row.get("code") not in (None, 1000, 1005)
    )


def _frames_of(wav: Path | None) -> int:
    """Return the number of samples on each side of a WAV file, by the file's size."""
    if wav is None:
        return 0
    return max(0, wav.stat().st_size - WAV_HEADER_BYTES) // 4


def _is_stereo(wav: Path) -> bool:
    """Return whether a WAV file exists and has a recording's header: 2 channels of 16 bits, then the samples."""
    if not wav.is_file():
        return False
    with wav.open("rb") as file:
        head = file.read(WAV_HEADER_BYTES)
    if len(head) < WAV_HEADER_BYTES or (head[:4], head[8:16], head[36:40]) != (b"RIFF", b"WAVEfmt ", b"data"):
        return False
    return struct.unpack_from("<HH", head, 20) == (1, 2) and struct.unpack_from("<H", head, 34) == (16,)


def _channel(wav: Path | None, side: str) -> bytes:
    """Return the samples of one side of a WAV file. The length in its header is ignored: a killed process leaves it."""
    if wav is None:
        return b""
    with wav.open("rb") as file:
        file.seek(WAV_HEADER_BYTES)
        stereo = file.read()
    stereo = stereo[: len(stereo) // 4 * 4]
    offset = 0 if side == "user" else 2
    pcm = bytearray(len(stereo) // 2)
    pcm[::2], pcm[1::2] = stereo[offset::4], stereo[offset + 1 :: 4]
    return bytes(pcm)


def _rest(side: str, end: int, frames: int, rate_hz: int) -> list[Row]:
    """Return the last stretch of audio, which has no row because the process was killed before writing one."""
    n = frames - end
    if n <= 0:
        return []
    count = max(1, round(n / rate_hz / _FRAME))
    row: dict[str, Any] = {"t": end / rate_hz, "until": end / rate_hz + (count - 1) * _FRAME, "kind": "audio"}
    return [row | {"dir": side, "rate_hz": rate_hz, "at": end, "n": n, "frames": count}]
