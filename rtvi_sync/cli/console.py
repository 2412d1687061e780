"""The console of a conversation: prints both sides' words, and returns the user's lines and keys."""

from __future__ import annotations

import codecs
import contextlib
import enum
import os
import queue
from types import TracebackType
from typing import Protocol, TextIO

import attrs

from rtvi_sync.concurrency.lifecycle import start_thread

from .screen import Screen, Style


class Key(enum.Enum):
    """A key, or the end of the input; the value is its meaning."""

    MUTE = "mute or unmute the microphone"
    NEXT_MIC = "use the next microphone"
    NEXT_SPEAKER = "use the next speaker"
    END = "end of input"


@attrs.frozen(kw_only=True)
class Status:
    """The constantly changing values.

    Attributes:
        partial: Speaker and words of an unfinished utterance; None if there is none.
        user, bot: Audio levels, in dBFS.
        muted: True if the microphone is muted.
        mic, speaker: Names of the devices, for humans.
        state: State of the session.
        activity: Activity of the bot.
    """

    partial: tuple[str, str] | None = None
    user: float = -100.0
    bot: float = -100.0
    muted: bool = False
    mic: str = ""
    speaker: str = ""
    state: str = ""
    activity: str = ""


class Console(Protocol):
    """The user's console. Use it as a context manager, and call its methods inside, on one thread.

    Attributes:
        interactive: True if a user types here at any time.
    """

    interactive: bool

    def print_line(self, text: str, style: Style = "") -> None:
        """Print one permanent line."""

    def print_utterance(self, who: str, text: str) -> None:
        """Print a complete utterance permanently."""

    def show_status(self, status: Status) -> None:
        """Show this status in place of the one before."""

    def poll(self) -> str | Key | None:
        """Return the next line or key, or None if there is none. Never blocks."""

    def __enter__(self) -> Console: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class LineConsole:
    """A line-based console, for pipes and for terminals with unknown abilities.

    Args:
        stdin: Stream with a file descriptor, which a thread reads; None if the process has no stdin.
        screen: Screen for the utterances.
    """

    def __init__(self, stdin: TextIO | None, screen: Screen) -> None:
        self.interactive: bool = stdin is not None and stdin.isatty()
        self._stdin = stdin
        self._screen = screen
        self._input_queue: queue.SimpleQueue[str | Key] = queue.SimpleQueue()

    def print_line(self, text: str, style: Style = "") -> None:
        """Print one permanent line."""
        self._screen.print_line(text, style)

    def print_utterance(self, who: str, text: str) -> None:
        """Print a complete utterance permanently."""
        self._screen.print_utterance(who, text)

    def show_status(self, status: Status) -> None:
        """Show the partial utterance, if the screen shows partial text. Other values are not shown."""
        if status.partial is not None:
            self._screen.show_partial("  ".join(status.partial))

    def poll(self) -> str | Key | None:
        """Return the next line or key, or None if there is none. Never blocks."""
        try:
            return self._input_queue.get_nowait()
        except queue.Empty:
            return None

    def __enter__(self) -> LineConsole:
        self._screen.__enter__()
        if self._stdin is None:
            self._input_queue.put(Key.END)
        else:
            start_thread("typed", self._read, self._stdin.fileno(), self._stdin.encoding)
        return self

    def __exit__(self, *_: object) -> None:
        self._screen.__exit__(None, None, None)

    def _read(self, descriptor: int, encoding: str) -> None:
        """Read lines until the end of the input. Runs on a thread, which stays blocked if the input never ends."""
        # The stream's own lock, held by a blocked thread, would keep the interpreter from exiting.
        pending = b""
        with contextlib.suppress(OSError):
            while chunk := os.read(descriptor, 65536):
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    self._put(line, encoding)
        if pending:
            self._put(pending, encoding)
        self._input_queue.put(Key.END)

    def _put(self, line: bytes, encoding: str) -> None:
        """Queue a line, without the byte order mark of some text files: a pipe may deliver several of them."""
        self._input_queue.put(line.removeprefix(codecs.BOM_UTF8).decode(encoding, "replace"))
