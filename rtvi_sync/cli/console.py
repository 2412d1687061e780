"""Where a user sits who talks to a bot: shows the conversation, takes what is typed and pressed."""

from __future__ import annotations

import contextlib
import enum
import os
import queue
from types import TracebackType
from typing import Protocol, TextIO

import attrs

from rtvi_sync.concurrency.lifecycle import start_thread

from .screen import Screen


class Key(enum.Enum):
    """What a user wants besides saying something."""

    MUTE = "mute the microphone, or unmute it"
    NEXT_MIC = "another microphone"
    NEXT_SPEAKER = "another speaker"
    END = "no more: end of what is typed"


@attrs.frozen(kw_only=True)
class Status:
    """What changes all the time.

    Attributes:
        partial: what somebody is saying and may still change: who, and the words; None: nobody.
        user, bot: levels, in dBFS.
        muted: whether the microphone is.
        mic, speaker: what they are, for humans.
        state: how it stands with the session.
    """

    partial: tuple[str, str] | None = None
    user: float = -100.0
    bot: float = -100.0
    muted: bool = False
    mic: str = ""
    speaker: str = ""
    state: str = ""


class Console(Protocol):
    """A user's place. Use it as a context manager; the rest is called inside, on one thread.

    Attributes:
        attended: somebody sits there, who types when he likes.
    """

    attended: bool

    def line(self, text: str) -> None:
        """Show one line for good."""

    def said(self, who: str, text: str) -> None:
        """Show for good what somebody has said."""

    def show(self, status: Status) -> None:
        """Show this instead of the status before."""

    def take(self) -> str | Key | None:
        """A line that was typed, or a key; None: nothing. Never waits."""

    def __enter__(self) -> Console: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class LineConsole:
    """Lines in and out: for pipes, and for terminals about which nothing is known.

    Args:
        stdin: has a file descriptor; a thread waits there for lines. None: it was closed before this process began.
        screen: what is said is shown there.
    """

    def __init__(self, stdin: TextIO | None, screen: Screen) -> None:
        self.attended: bool = stdin is not None and stdin.isatty()
        self._stdin = stdin
        self._screen = screen
        self._typed: queue.SimpleQueue[str | Key] = queue.SimpleQueue()

    def line(self, text: str) -> None:
        self._screen.line(text)

    def said(self, who: str, text: str) -> None:
        self._screen.line(f"{who}  {text}")

    def show(self, status: Status) -> None:
        if status.partial is not None:
            self._screen.partial("  ".join(status.partial))

    def take(self) -> str | Key | None:
        try:
            return self._typed.get_nowait()
        except queue.Empty:
            return None

    def __enter__(self) -> LineConsole:
        self._screen.__enter__()
        if self._stdin is None:
            self._typed.put(Key.END)
        else:
            start_thread("typed", self._read, self._stdin.fileno(), self._stdin.encoding)
        return self

    def __exit__(self, *_: object) -> None:
        self._screen.__exit__(None, None, None)

    def _read(self, descriptor: int, encoding: str) -> None:
        """Read lines until the end; the body of a thread, which is left behind where nothing more comes."""
        # Not by way of the stream: its lock, held by a thread that waits, would not let the interpreter exit.
        rest = b""
        with contextlib.suppress(OSError):
            while piece := os.read(descriptor, 65536):
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    self._typed.put(line.decode(encoding, "replace"))
        if rest:
            self._typed.put(rest.decode(encoding, "replace"))
        self._typed.put(Key.END)
