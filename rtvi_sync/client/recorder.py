"""Recordings of a client's sessions, which `RTVIClient.record()` starts: the noted events, and the thread that writes.

A session notes its events by `Recorder.note()`, which only appends to a queue. Audio is read from the tracks, as an
application would. Every 0.2 s the thread `rtvi-record` takes both, in order, and writes the audio, then its sizes, then
the rows that refer to it. So a file is valid even if the process is killed.
"""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import attrs

from .._version import __version__
from ..concurrency.clock import monotonic, wall_time
from ..concurrency.deadline import Deadline
from ..concurrency.descriptors import Mark, keep_open
from ..concurrency.latch import Latch, Notifier
from ..concurrency.lifecycle import (
    NoThreadError,
    fork_generation,
    register_for_exit,
    register_for_fork,
    start_thread,
)
from ..concurrency.lock import new_lock
from ..concurrency.logs import package_logger
from ..media.base import AudioFrame
from ..media.resample import resampler_of
from ..media.stereo_file import StereoFile, create, write_all
from ..media.tracks import AudioTrack, TrackFrames
from ..messages import BotReadyData, RTVIMessage
from ..protocol import envelope
from ..protocol.recording_rows import (
    FORMAT,
    VERSION,
    Redactor,
    Row,
    Stretches,
    before,
    encode,
    message_row,
    seconds,
    secrets_of,
)
from ..protocol.states import CloseInfo

if TYPE_CHECKING:
    from ..session.session import Session
    from ..transports.base import Inbound
    from .life import Life

logger: logging.Logger = package_logger(__name__)

Side: TypeAlias = Literal["in", "out"]

# The thread writes at this interval, in seconds. It leaves out the most recent events, because threads may still be
# about to note earlier ones, and rows are written in order.
_INTERVAL = 0.2
_SETTLE = 0.02
_LAG = 0.2  # of the audio
# The limits of the queue: rows and their bytes, and seconds of audio of a side.
_MAX_ROWS = 10_000
_MAX_BYTES = 2**26
_MAX_SECONDS = 10.0
# The sample rate of a file in which the user is heard first, because the bot's rate is not known yet.
_RATE_HZ = 24_000
# Seconds that `close()` waits for the thread, and then for the page. The page of an hour takes a quarter of a minute.
_CLOSE_LIMIT = 5.0
_PAGE_LIMIT = 60.0
# Bytes reserved for the last rows.
_RESERVE = 2_048

_SUFFIXES = (".jsonl", ".wav")


class Note(NamedTuple):
    """An event with its time and its session."""

    at: float
    session: Session | None
    kind: str
    value: Any


class Recorder:
    """The recordings of one client. Its sessions note events here. No method blocks, and any thread may call it.

    Args:
        life: The client's life.
    """

    def __init__(self, life: Life) -> None:
        # When the client was collected, its last session has ended.
        self._life = weakref.ref(life, lambda _: self.end())
        #: Replaced as a whole.
        self.recordings: tuple[RecordingSession, ...] = ()

    def add(self, recording: RecordingSession) -> None:
        """Pass events to a recording from now on."""
        self.recordings = (*self.recordings, recording)

    def remove(self, recording: RecordingSession) -> None:
        """Pass no more events to a recording."""
        self.recordings = tuple(each for each in self.recordings if each is not recording)

    def end(self) -> None:
        """End all recordings soon."""
        for recording in self.recordings:
            recording._end()

    def close(self) -> None:
        """Close all recordings."""
        for recording in self.recordings:
            recording._close()

    def note(self, session: Session | None, kind: str, value: Any = None, at: float | None = None) -> None:
        """Note an event."""
        note = Note(monotonic() if at is None else at, session, kind, value)
        for recording in self.recordings:
            recording._put(note)

    def received(self, session: Session, message: Inbound) -> None:
        """Note a message of the bot."""
        self._note_message(session, "in", message, monotonic())

    def sent(self, session: Session, message: RTVIMessage, at: float) -> None:
        """Note a message that was sent."""
        self._note_message(session, "out", message, at)

    def _note_message(self, session: Session, side: Side, message: Inbound, at: float) -> None:
        if not isinstance(message, (str, bytes)):  # as text, because the application may change it later
            document = message.to_dict() if isinstance(message, RTVIMessage) else message
            try:
                message = envelope.to_json(document)
            except (TypeError, ValueError):
                return
        self.note(session, side, message, at)

    def ready(self, session: Session, bot: BotReadyData) -> None:
        """Note that the bot of a session is ready, and listen to both sides from now on."""
        self.note(session, "bot", bot)
        for recording in self.recordings:
            recording._listen(session)

    def about(self) -> tuple[str, set[str]]:
        """Return the bot's URL, and all secrets that the client knows."""
        life = self._life()
        return ("", set()) if life is None else address_of(life)


def address_of(life: Life) -> tuple[str, set[str]]:
    """Return the bot's URL, and all secrets that a client knows, which no file may contain."""
    params, transport = life.params, life.transport
    url, headers = transport.credentials() if transport is not None else ("", {})
    secrets = secrets_of(url, headers) | secrets_of(params.base_url, params.headers, params.request_data)
    asked = [
        each
        for candidate in life.candidates
        if (bot := candidate.bot_url) is not None
        for each in (bot.ws_url, *bot.endpoints, bot.base_url, bot.offer_url)
        if each is not None
    ]
    for each in asked:
        secrets |= secrets_of(each)
    if transport is not None and (start := transport.start_request) is not None:
        secrets |= secrets_of(start.url, start.headers)
    return url or next(iter(asked), params.base_url or ""), secrets


class RecordingSession:
    """A recording in progress. Made by `RTVIClient.record()`. Any thread may call its methods.

    Leaving its ``with`` block closes it.
    Its first files have the name given to `RTVIClient.record()`. Each further session of the client has files of its
    own, ``NAME-2.jsonl`` and so on. When the client ends for good, so does the recording.
    """

    # Mutable state. `_queue` and `_listeners` are changed in single steps by any thread. Until the queue is empty,
    # `_queued_bytes` may be wrong, if two threads add at once. `_files`, `_later`, `_count`, `_ended`, `_is_full` and
    # `_redactor` belong to the thread that writes, which holds `_writing`.

    def __init__(
        self,
        recorder: Recorder,
        path: Path,
        *,
        audio: bool,
        page_of: Callable[[Path], str] | None,
        redact: Callable[[Row], Row | None] | None,
        overwrite: bool,
        max_bytes: int,
    ) -> None:
        self._recorder = recorder
        self._base = path.with_suffix("") if path.suffix in _SUFFIXES else path
        self._audio = audio
        self._page_of = page_of
        self._overwrite = overwrite
        self._max_bytes = max_bytes
        self._redactor = Redactor(function=redact)
        self._queue: deque[Note] = deque()
        self._queued_bytes = 0
        self._rows_lost = 0
        self._listeners: list[_Listener] = []
        self._later: list[Note] = []
        self._paths: tuple[Path, ...] = ()
        self._lost: tuple[Row, ...] = ()
        self._count = 0
        self._ended = 0  # the number of the last ended session, among the client's sessions
        self._is_full = False
        self._closes = False
        self._done = Latch()  # the files are complete
        self._has_pages = Latch()
        if page_of is None:
            self._has_pages.set()
        # Held while the files are written, by the thread that writes or the one that waits for the last rows.
        self._writing = threading.Lock()
        self._files: _Files | None = self._open(monotonic(), 1)

    # -- the application's: any thread --------------------------------------------------------------------------------

    @property
    def path(self) -> Path:
        """The file with the rows of the first session."""
        return self._paths[0]

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files so far."""
        return self._paths

    @property
    def lost(self) -> tuple[Row, ...]:
        """The rows that report gaps in the recording: the side, the length, and the reason."""
        return self._lost

    def mark(self, text: str) -> None:
        """Put a mark at this moment, which the timeline shows. Between two sessions it starts the next session's files.

        Raises:
            TypeError: `text` is not a string.
        """
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, not {type(text).__name__}")
        self._put(Note(monotonic(), None, "mark", text))

    def close(self) -> None:
        """Write the remaining rows, close the files, and write the pages. Idempotent.

        Takes at most 5 s if the disk hangs, and at most a minute for the pages. In the function `redact` it does not
        wait, because `redact` runs on the thread that writes.
        """
        if self._close():
            self._has_pages.wait(Deadline(_PAGE_LIMIT))

    def __enter__(self) -> RecordingSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RecordingSession {os.fspath(self.path)!r}{' closed' if self._done.is_set() else ''}>"

    def _close(self) -> bool:
        """Write the remaining rows, and close the files. Return whether they are complete."""
        self._end()
        return not _writer.is_own_thread() and self._done.wait(Deadline(_CLOSE_LIMIT))

    def _discard(self) -> None:
        """Remove the files of a recording that could not start."""
        if (files := self._files) is not None:
            files.abandon()
            files.path.unlink(missing_ok=True)

    def _forget(self) -> None:
        """Close the files as they are, in a forked child, because they are the parent's."""
        self._recorder.remove(self)
        # A new lock, because a thread of the parent may have held the old one.
        self._writing, self._closes = threading.Lock(), True
        if self._files is not None:
            self._files.abandon()
        self._done.set()
        self._has_pages.set()

    # -- events: any thread -------------------------------------------------------------------------------------------

    def _put(self, note: Note) -> None:
        """Take a note, if there is room."""
        if len(self._queue) < _MAX_ROWS and self._queued_bytes < _MAX_BYTES:
            self._queue.append(note)
            self._queued_bytes += sys.getsizeof(note.value)
        else:
            self._rows_lost += 1

    def _listen(self, session: Session) -> None:
        """Read the tracks of a session whose bot is ready, from now on."""
        if self._audio and not any(listener.session is session for listener in [*self._listeners]):
            self._listeners.append(_Listener(session))

    def _end(self) -> None:
        """End the recording soon. Does not block."""
        if not self._closes:
            self._recorder.remove(self)
            self._closes = True
        _writer.wake()

    # -- writing: on the thread for it --------------------------------------------------------------------------------

    def _write_soon(self) -> bool:
        """Write the events so far. Return whether this was the last time."""
        with self._writing:
            if self._done.is_set():
                return self._has_pages.is_set()
            try:
                closes = self._closes
                self._write(monotonic(), closes=closes)
            except BaseException:  # SystemExit too, of an application's transport: the thread writes other recordings
                logger.exception("A recording has failed. Please report it: it is a fault of rtvi_sync")
                closes = True
                if self._files is not None:
                    self._files.abandon()
            if closes:
                self._recorder.remove(self)
                self._start_pages()
                self._done.set()
            return closes and self._has_pages.is_set()

    def _start_pages(self) -> None:
        """Write the pages on a thread of their own, because a long one takes seconds."""
        if self._page_of is None:
            return
        try:
            start_thread("page", self._write_pages, self._page_of)
        except NoThreadError:  # the interpreter exits
            self._write_pages(self._page_of)

    def _write_pages(self, page_of: Callable[[Path], str]) -> None:
        """Write the page of each session. If one cannot be written, log a warning, and write no more."""
        for rows in [path for path in self._paths if path.suffix == ".jsonl"]:
            path = rows.with_suffix(".html")
            try:
                page = page_of(rows).encode()
                with contextlib.closing(create(path)) as file:
                    try:
                        write_all(file, page)
                    except OSError:
                        path.unlink(missing_ok=True)
                        raise
            except Exception as error:  # noqa: BLE001 - the recording is complete without it
                logger.warning("The page %s cannot be written: %s", path, error)
                break
            self._paths = (*self._paths, path)
        self._has_pages.set()
        _writer.wake()

    def _write(self, now: float, *, closes: bool) -> None:
        notes = self._later
        while self._queue:
            notes.append(self._queue.popleft())
        self._queued_bytes = 0
        for listener in [*self._listeners]:
            notes += listener.take()
            if listener.is_over:
                self._listeners.remove(listener)
        notes.sort(key=_moment)
        settled = now if closes else now - _SETTLE
        self._later = [note for note in notes if note.at > settled]
        for note in notes[: len(notes) - len(self._later)]:
            self._take(note)
        files = self._files
        if files is None:
            return
        if self._rows_lost:
            count, self._rows_lost = self._rows_lost, 0
            files.lose(now, "rows", 0.0, "slow_disk", rows=count)
        files.write(now)
        if closes:
            files.close(now, None)
        self._after(files)

    def _take(self, note: Note) -> None:
        if note.session is not None and note.session.number <= self._ended:
            return  # it is late
        files = self._files
        if files is None:  # the last session has ended: the next one, or a mark, starts further files
            files = self._open_next(note.at) if not self._is_full else None
            if files is None:
                return
        if note.kind in ("state", "bot", "end"):  # the server may have sent a token
            self._redactor.learn(self._recorder.about()[1])
        files.take(note)
        if files.is_over:
            self._ended = note.session.number if note.session is not None else self._ended
            self._after(files)

    def _after(self, files: _Files) -> None:
        """Note the known facts of the files, and forget the files if they are complete."""
        self._lost = (*self._lost, *files.lost[files.told :])
        files.told = len(files.lost)
        if files.wav_path is not None and files.wav_path not in self._paths:
            self._paths = (*self._paths, files.wav_path)
        if not files.is_over:
            return
        self._files = None
        if files.is_full:
            self._is_full = True
            self._end()

    def _open_next(self, at: float) -> _Files | None:
        """Open the files of a further session, by the next free number.

        Returns:
            None: They cannot be created; the recording ends.
        """
        while True:
            try:
                self._files = self._open(at, self._count + 1)
            except FileExistsError:  # of an older recording
                continue
            except OSError as error:
                logger.warning("The recording %s ends, but not the session: %s", self.path, error)
                self._lost = (*self._lost, {"t": 0.0, "kind": "lost", "side": "rows", "seconds": 0.0, "why": "full"})
                self._is_full = True
                self._end()
            return self._files

    def _open(self, at: float, number: int) -> _Files:
        """Open the files of a session.

        Raises:
            OSError: They cannot be created.
        """
        self._count = number
        url, secrets = self._recorder.about()
        self._redactor.learn(secrets)
        base = self._base if number == 1 else self._base.with_name(f"{self._base.name}-{number}")
        files = _Files(
            base,
            at,
            number,
            url=url,
            redactor=self._redactor,
            has_audio=self._audio,
            has_page=self._page_of is not None,
            overwrite=self._overwrite,
            max_bytes=self._max_bytes,
        )
        self._paths = (*self._paths, files.path)
        return files


def _moment(note: Note) -> float:
    return note.at


class _Listener:
    """Reads the audio of both sides of a session.

    Args:
        session: The session, whose bot is ready.
    """

    def __init__(self, session: Session) -> None:
        self.session: Final = session
        self._readers: dict[Side, tuple[AudioTrack, TrackFrames[AudioFrame]]] = {}
        self._dropped: dict[Side, int] = {"in": 0, "out": 0}
        self._unsent = 0.0
        #: The session has ended, and all audio was taken.
        self.is_over: bool = False
        self._open()

    def _open(self) -> None:
        if self.session.is_closed:
            return
        media = self.session.media
        tracks: tuple[tuple[Side, AudioTrack | None], ...] = (("in", media.received()), ("out", media.sent()))
        for side, track in tracks:
            if track is not None and (side not in self._readers or self._readers[side][0] is not track):
                self._readers[side] = track, track.frames(buffer=_MAX_SECONDS)
                self._dropped[side] = 0

    def take(self) -> list[Note]:
        """Return the received frames, and notes of lost ones."""
        session = self.session
        self.is_over = session.is_closed
        notes: list[Note] = []
        for side, (_, reader) in self._readers.items():
            frames = reader.take()
            notes += [Note(frame.timestamp, session, "frame", (side, frame)) for frame in frames]
            lost, self._dropped[side] = reader.dropped - self._dropped[side], reader.dropped
            if lost and frames:
                what = (side, lost * frames[0].duration, "slow_disk")
                notes.append(Note(frames[0].timestamp, session, "lost", what))
        unsent, before = session.transport.stats().audio_unsent, self._unsent
        if not self.is_over and unsent >= before + 0.01:
            self._unsent = unsent
            notes.append(Note(monotonic(), session, "lost", ("out", unsent - before, "slow_server")))
        self._open()
        return notes


class _Files:
    """The files of one session of a recording. On the thread that writes.

    Args:
        base: Path of the files, without suffixes.
        began: The start of their time.
        number: Number of the session, among the recording's sessions.
        url: The bot's URL.
        redactor: Removes secrets.
        has_audio: True if there is a WAV file, once there is audio.
        has_page: True if there will be a page.
        overwrite: True: replace existing files.
        max_bytes: Limit of both files together, in bytes.

    Raises:
        FileExistsError: One of them exists.
        OSError: They cannot be created.
    """

    def __init__(
        self,
        base: Path,
        began: float,
        number: int,
        *,
        url: str,
        redactor: Redactor,
        has_audio: bool,
        has_page: bool,
        overwrite: bool,
        max_bytes: int,
    ) -> None:
        self.path: Path = base.with_name(f"{base.name}.jsonl")
        self._wav_name = base.with_name(f"{base.name}.wav")
        for suffix in (".jsonl", *([".wav"] if has_audio else []), *([".html"] if has_page else [])):
            path = base.with_name(f"{base.name}{suffix}")
            if overwrite:
                path.unlink(missing_ok=True)
            elif path.exists():
                raise FileExistsError(
                    errno.EEXIST, "There is a recording already; pass another path, or overwrite=True", os.fspath(path)
                )
        self.began = began
        self._redactor = redactor
        self._has_audio = has_audio
        self._max_bytes = max_bytes
        self._file: io.FileIO = create(self.path)
        self._mark = Mark(self._file)
        self._size = 0
        self._wav: StereoFile | None = None
        self._stretches: dict[Side, Stretches] = {}
        self._held: deque[Row] = deque()  # stretches whose audio is not in the file yet
        self._ahead = 0.0  # seconds of the bot's audio that were lost because it arrived too far ahead
        self._last: dict[str, float] = {}
        self._was_ready = False
        self._has_failed = False  # the function `redact`
        self.is_over: bool = False
        self.is_full: bool = False
        self.lost: list[Row] = []
        self.told: int = 0  # the number of them that are noted
        moment = datetime.fromtimestamp(wall_time(), timezone.utc).isoformat(timespec="microseconds")
        head = {"kind": "head", "format": FORMAT, "version": VERSION, "wall": moment.replace("+00:00", "Z")}
        self._add(head | {"library": f"rtvi_sync {__version__}", "session": number, "url": url})

    @property
    def wav_path(self) -> Path | None:
        """The WAV file, or None."""
        return self._wav_name if self._wav is not None else None

    # -- events -------------------------------------------------------------------------------------------------------

    def take(self, note: Note) -> None:
        """Take a note."""
        at, session, kind, value = note
        t = max(0.0, at - self.began)
        if kind == "frame":
            side, frame = value
            self._take_frame(side, frame, t)
        elif kind in ("in", "out"):
            t = self._last[kind] = max(t, self._last.get(kind, 0.0))
            self._add(message_row(seconds(t), kind, value))
        elif kind == "bot":
            self._was_ready = True
            about, capabilities = value.about, value.capabilities
            is_heard = session is not None and not session.transport.carries_messages
            given: Row = {"about": _given(about), "capabilities": _given(capabilities)}
            self._row(t, "bot", rtvi=value.version, **given, **({"messages": False} if is_heard else {}))
        elif kind == "state":
            self._row(t, "state", state=value)
        elif kind == "mark":
            self._row(t, "mark", text=value)
        elif kind == "transcript":
            ended, text = value
            self._row(t, "transcript", ended=seconds(max(0.0, ended - self.began)), text=text)
        elif kind == "interruption":
            self._interrupt(t)
        elif kind == "lost":
            self.lose(at, *value)
        elif kind == "end":
            self._take_end(at, value)

    def _take_frame(self, side: Side, frame: AudioFrame, t: float) -> None:
        if not self._has_audio:
            return
        wav = self._wav
        if wav is None:
            wav = self._make_wav(t, frame.sample_rate_hz if side == "in" else _RATE_HZ)
            if wav is None:
                return
        channel = wav.bot if side == "in" else wav.user
        placed = channel.place(t, frame.pcm, frame.sample_rate_hz)
        if placed is None:
            self._ahead += frame.duration
            return
        self._held += self._stretches[side].add(t, frame.sample_rate_hz, *placed)

    def _make_wav(self, t: float, rate_hz: int) -> StereoFile | None:
        try:
            self._wav = StereoFile(self._wav_name, rate_hz)
        except OSError as error:
            self._has_audio = False
            logger.warning("A recording has no audio, because %s cannot be created: %s", self._wav_name, error)
            return None
        self._stretches = {"in": Stretches("in", rate_hz), "out": Stretches("out", rate_hz)}
        self._row(t, "wav", file=self._wav_name.name, rate_hz=rate_hz)
        return self._wav

    def _interrupt(self, t: float) -> None:
        dropped = 0
        if self._wav is not None:
            self._end_stretches()
            dropped = self._wav.bot.cut(t)
            end = self._wav.bot.end
            self._held = deque(
                left
                for row in self._held
                if (left := before(row, end) if dropped and row["dir"] == "in" else row) is not None
            )
        self._row(t, "interruption", dropped=dropped)

    def _end_stretches(self) -> None:
        for stretches in self._stretches.values():
            self._held += stretches.end()

    def _take_end(self, at: float, info: CloseInfo) -> None:
        if self._was_ready:
            self.close(at, info)
        else:  # a failed attempt: the next one may follow
            error = str(info.error) if info.error is not None else None
            self._row(max(0.0, at - self.began), "state", state="disconnected", error=error)

    def lose(self, at: float, side: str, duration: float, why: str, *, rows: int = 0) -> None:
        """Note a gap."""
        row: Row = {"t": seconds(max(0.0, at - self.began)), "kind": "lost", "side": side}
        row |= {"seconds": seconds(duration)} | ({"rows": rows} if rows else {}) | {"why": why}
        self.lost.append(row)
        self._add(row)

    # -- writing ------------------------------------------------------------------------------------------------------

    def _row(self, t: float, kind: str, **values: Any) -> None:
        self._add({"t": seconds(t), "kind": kind, **values})

    def _add(self, row: Row) -> None:
        """Write a row without its secrets."""
        try:
            redacted = self._redactor.row(row)
            line = encode(redacted) if redacted is not None else b""
        except BaseException:  # of the application's function, SystemExit too: the thread writes other recordings
            if not self._has_failed:  # once, not for each row
                logger.exception("The function `redact` of a recording has failed; such rows are left out")
            self._has_failed = True
        else:
            self._write_line(line)

    def _write_line(self, line: bytes) -> None:
        if self.is_over or not line:
            return
        wav_bytes = self._wav.size if self._wav is not None else 0
        if self._size + len(line) + wav_bytes > self._max_bytes - (0 if self.is_full else _RESERVE):
            self._become_full("it has reached max_bytes")
            return
        if self._mark.is_gone:
            self._lose_file()
            return
        try:
            write_all(self._file, line)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(self._size)
                self._file.seek(self._size)
            self._become_full(str(error))
        else:
            self._size += len(line)

    def write(self, now: float) -> None:
        """Write the audio up to shortly before `now`, and the rows for the audio in the file."""
        if self._ahead:
            ahead, self._ahead = self._ahead, 0.0
            self.lose(now, "in", ahead, "full")
        if self._wav is not None and not self.is_over:
            until = now - self.began - _LAG
            self._write_wav(lambda wav, room: wav.write(until, room))
            self._write_held(self._wav.written)

    def _write_wav(self, write: Callable[[StereoFile, int], bool]) -> None:
        wav = self._wav
        if wav is None:
            return
        if self._mark.is_gone:
            self._lose_file()
            return
        try:
            if not write(wav, self._max_bytes - self._size - _RESERVE):
                self._become_full("it has reached max_bytes")
        except OSError as error:
            self._become_full(str(error))

    def _write_held(self, written: float) -> None:
        held, self._held = self._held, deque()
        for row in held:
            if row["at"] + row["n"] <= written:
                self._add(row)
            else:
                self._held.append(row)

    def close(self, at: float, info: CloseInfo | None) -> None:
        """Write the remaining rows, and the last one. `info`: the session's end. None: the recording is closed."""
        if self.is_over:
            return
        if self._wav is not None:
            self._end_stretches()
            self._write_wav(lambda wav, room: wav.close(room))
            self._write_held(self._wav.written)
        error = str(info.error) if info is not None and info.error is not None else None
        code, initiator = (info.code, info.initiator) if info is not None else (None, None)
        self._row(max(0.0, at - self.began), "end", code=code, initiator=initiator, error=error)
        self.is_over = True
        self._file.close()

    def _become_full(self, why: str) -> None:
        """End the recording, because there is no room for more."""
        if self.is_full:
            return
        self.is_full = True
        logger.warning("The recording %s ends, but not the session: %s", self.path, why)
        now = monotonic()
        self.lose(now, "rows", 0.0, "full")
        if self._wav is not None:
            with contextlib.suppress(OSError):
                self._wav.file.close()
        self._row(max(0.0, now - self.began), "end", code=None, initiator=None, error=None)
        self.is_over = True
        self._file.close()

    def _lose_file(self) -> None:
        """Write nothing more: the application has closed the descriptors, whose numbers may be other files' now."""
        logger.warning("The recording %s ends: the application has closed its descriptor", self.path)
        self.is_over = self.is_full = True
        for file in (self._file, *([self._wav.file] if self._wav is not None else [])):
            keep_open(file)

    def abandon(self) -> None:
        """Close the files as they are."""
        self.is_over = True
        for file in (self._file, *([self._wav.file] if self._wav is not None else [])):
            with contextlib.suppress(OSError):
                file.close()


def _given(payload: Any) -> dict[str, Any]:
    """Return the fields of a payload that the bot has sent."""
    return {name: value for name, value in attrs.asdict(payload).items() if value is not None and name != "extra"}


class _Writer:
    """The thread that writes all recordings of the process, while there are any."""

    # Mutable state. `_lock` guards the list and `_has_thread`, for an assignment. Re-entrant, because a finalizer may
    # run during the assignment.

    def __init__(self) -> None:
        self._lock = new_lock()
        self._recordings: list[RecordingSession] = []
        self._has_thread = False
        self._ident: int | None = None  # of the thread, while it runs
        self._is_awake = False
        self._woken = Notifier()
        register_for_fork(self)

    def add(self, recording: RecordingSession) -> None:
        """Write a recording from now on.

        Raises:
            NoThreadError: No thread can be started.
        """
        register_for_exit(self, last=True)
        with self._lock:
            self._recordings.append(recording)
            starts, self._has_thread = not self._has_thread, True
        if starts:
            try:
                start_thread("record", self._run)
            except BaseException:
                with self._lock:
                    self._recordings.remove(recording)
                    self._has_thread = False
                raise

    def is_own_thread(self) -> bool:
        """Return whether this is the thread that writes."""
        return threading.get_ident() == self._ident

    def wake(self) -> None:
        """Write at once."""
        self._is_awake = True
        self._woken.notify_all()

    def _run(self) -> None:
        try:
            self._write_until_none_is_left()
        except BaseException:
            self._has_thread, self._ident = False, None  # the next recording starts another
            raise

    def _write_until_none_is_left(self) -> None:
        generation = fork_generation()
        self._ident = threading.get_ident()
        while generation == fork_generation():
            self._woken.wait_for(lambda: self._is_awake, Deadline(_INTERVAL))
            self._is_awake = False
            self._write()
            with self._lock:
                if not self._recordings:
                    self._has_thread, self._ident = False, None
                    return

    def _write(self) -> None:
        for recording in [*self._recordings]:
            if recording._write_soon():
                with self._lock, contextlib.suppress(ValueError):
                    self._recordings.remove(recording)

    def at_exit(self, deadline: Deadline) -> None:
        """Close all recordings. Their sessions have ended."""
        recordings = [*self._recordings]
        for recording in recordings:
            recording._end()
        for recording in recordings:
            is_done = recording._done.wait(Deadline(deadline.at_most(_CLOSE_LIMIT)))
            if not is_done and not recording._writing.locked():  # else the disk hangs, and this thread would, too
                recording._write_soon()
        for recording in recordings:
            recording._has_pages.wait(Deadline(deadline.at_most(_CLOSE_LIMIT)))

    def after_fork_in_child(self) -> None:
        """Forget the parent's recordings, whose files are the parent's."""
        self._lock, self._woken = new_lock(), Notifier()
        recordings, self._recordings = self._recordings, []
        self._has_thread, self._ident = False, None
        for recording in recordings:
            recording._forget()


_writer: Final = _Writer()


def record(life: Life, path: Path, **options: Any) -> RecordingSession:
    """Start a recording. See `RTVIClient.record()`."""
    if options["audio"]:
        resampler_of(_RATE_HZ, 2 * _RATE_HZ)  # imports its library here, because the thread that writes must not wait
    recorder = life.recorder or Recorder(life)
    recording = RecordingSession(recorder, path, **options)
    try:
        _writer.add(recording)
    except BaseException:
        recording._discard()
        raise
    recorder.add(recording)
    life.recorder = recorder
    session = life.last_session
    if session is not None and session.live:
        session.recorder = recorder
        if (bot := session.bot) is not None:
            recording._put(Note(monotonic(), session, "bot", bot))
            recording._listen(session)
        recording._put(Note(monotonic(), session, "state", life.transport_state.value))
    return recording
