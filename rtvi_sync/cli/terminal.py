"""A console on a terminal, drawn by prompt_toolkit: the transcript scrolls above an input line and two meters.

Raises:
    ModuleNotFoundError: prompt_toolkit is not installed.
"""

from __future__ import annotations

import _thread
import contextlib
import io
import logging
import queue
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import Dimension, HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.layout.processors import AfterInput, ConditionalProcessor
from prompt_toolkit.output import create_output
from prompt_toolkit.renderer import print_formatted_text
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import TextArea

from rtvi_sync import RTVIError
from rtvi_sync.concurrency.lifecycle import start_thread
from rtvi_sync.protocol.text import clean

from .console import Key, Status
from .screen import Style as LineStyle
from .screen import level_bar, wrapped

_STYLE = Style.from_dict(
    {
        "you": "bold ansigreen",
        "bot": "bold ansicyan",
        "partial": "italic",
        "faint": "ansibrightblack",
        "good": "ansigreen",
        "warning": "ansiyellow",
        "error": "ansired",
        "hint": "italic ansibrightblack",
        "status": "reverse",
        "muted": "bold",
    }
)
_METER_WIDTH = 16
# Maximum number of lines queued between two drawings; more would have scrolled out of view.
_MAX_LINES = 1000
# Number of characters shown of a partial utterance: its end.
_MAX_PARTIAL = 200
# Seconds for prompt_toolkit to start, and to restore the terminal.
_TERMINAL_TIMEOUT = 5.0


class TerminalConsole:
    """A terminal. Its own thread draws and waits for keys, so that no other work delays it.

    Use it on the main thread. Ctrl-C raises `KeyboardInterrupt` there, as without this class.

    Args:
        stdout: The terminal; stdin must be one, too.
        hint: Text shown while the input line is empty.
    """

    interactive: bool = True

    def __init__(self, stdout: TextIO, hint: str = "") -> None:
        self._encoding = stdout.encoding
        self._status = Status()
        self._input_queue: queue.SimpleQueue[str | Key] = queue.SimpleQueue()
        self._started: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        # Appended by the conversation's thread, removed by the terminal's. Both operations are atomic.
        self._lines: deque[StyleAndTextTuples] = deque(maxlen=_MAX_LINES)
        self._thread: threading.Thread | None = None
        self._restore = contextlib.ExitStack()
        self._input = TextArea(
            prompt="> ",
            multiline=False,
            wrap_lines=False,
            height=1,
            accept_handler=self._accept,
            input_processors=[
                ConditionalProcessor(
                    AfterInput(hint, "class:hint"),
                    Condition(lambda: not self._input.text),
                )
            ],
        )
        self._app: Application[None] = Application(
            Layout(
                HSplit(
                    [
                        Window(
                            FormattedTextControl(self._partial),
                            height=Dimension(min=1, max=3),
                            wrap_lines=True,
                            dont_extend_height=True,
                        ),
                        self._input,
                        Window(FormattedTextControl(self._meters), height=1, style="class:status"),
                        Window(FormattedTextControl(self._help), height=1, style="class:status"),
                    ]
                )
            ),
            key_bindings=self._keys(),
            style=_STYLE,
            output=create_output(stdout),
            erase_when_done=True,
            min_redraw_interval=0.05,
        )

    # -- conversation thread ------------------------------------------------------------------------------------------

    def print_line(self, text: str, style: LineStyle = "") -> None:
        """Print one permanent line."""
        indent = " " * (len(text) - len(text.lstrip()))
        self._print([(f"class:{style}" if style else "", indent + self._wrapped(text.lstrip(), indent))])

    def print_utterance(self, who: str, text: str) -> None:
        """Print a complete utterance permanently."""
        indent = " " * len(f"{who}  ")
        self._print([(f"class:{who}", who), ("", f"  {self._wrapped(text, indent)}")])

    def show_status(self, status: Status) -> None:
        """Draw this status if it has changed."""
        if status != self._status:
            self._status = status
            self._app.invalidate()

    def poll(self) -> str | Key | None:
        """Return the next line or key, or None if there is none. Never blocks."""
        try:
            return self._input_queue.get_nowait()
        except queue.Empty:
            return None

    def __enter__(self) -> TerminalConsole:
        self._thread = start_thread("terminal", self._run)
        try:
            with contextlib.suppress(queue.Empty):
                problem = self._started.get(timeout=_TERMINAL_TIMEOUT)
                if problem is not None:
                    raise RTVIError(
                        f"The terminal cannot be used: {problem!r}. Set TERM=dumb for plain lines"
                    ) from problem
            self._redirect_stderr()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # A second Ctrl-C must not interrupt the restoring, because the terminal would be left without echo.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._restore.close()
            self._call_on_loop(self._exit)
            if self._thread is not None:
                self._thread.join(_TERMINAL_TIMEOUT)
            self._print_lines()
        finally:
            signal.signal(signal.SIGINT, before)

    def _print(self, line: StyleAndTextTuples) -> None:
        self._lines.append(line)
        self._call_on_loop(self._print_above)

    def _call_on_loop(self, function: Callable[[], None]) -> None:
        loop = self._app.loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                loop.call_soon_threadsafe(function)

    def _wrapped(self, text: str, indent: str = "") -> str:
        return f"\n{indent}".join(wrapped(clean(text), self._columns() - len(indent)))

    def _columns(self) -> int:
        return max(20, self._app.output.get_size().columns)

    def _redirect_stderr(self) -> None:
        """Turn stderr, and log handlers that write to it, into lines, because raw writes would corrupt the drawing."""
        stream = _LineStream(self.print_line)
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr:
                self._restore.callback(handler.setStream, handler.stream)
                handler.setStream(stream)
        self._restore.enter_context(contextlib.redirect_stderr(stream))

    # -- terminal thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._app.run(pre_run=lambda: self._started.put(None), set_exception_handler=False, handle_sigint=False)
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits for the start
            self._started.put(error)
        self._input_queue.put(Key.END)

    def _exit(self) -> None:
        if self._app.is_running and not self._app.is_done:
            self._app.exit()

    def _print_above(self) -> None:
        """Print the new lines above the input line."""
        # During `run_in_terminal()` the terminal itself reads keys, and typed text is lost.
        if self._lines:
            self._app.renderer.erase()
            self._print_lines()
            self._app.renderer.render(self._app, self._app.layout)

    def _print_lines(self) -> None:
        text: StyleAndTextTuples = []
        with contextlib.suppress(IndexError):
            while True:
                text += [*self._lines.popleft(), ("", "\n")]
        if text:
            print_formatted_text(self._app.output, text, _STYLE)

    def _accept(self, buffer: Buffer) -> bool:
        self._input_queue.put(buffer.text)
        self._input.window.horizontal_scroll = 0  # after a long line the prompt would stay scrolled out of view
        return False

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        for name, meaning in (("tab", Key.MUTE), ("f2", Key.NEXT_MIC), ("f3", Key.NEXT_SPEAKER)):
            keys.add(name)(lambda _, meaning=meaning: self._input_queue.put(meaning))
        keys.add("c-d", filter=Condition(lambda: not self._input.text))(lambda _: self._input_queue.put(Key.END))
        # Pasted text always becomes one line.
        keys.add(Keys.BracketedPaste)(lambda event: event.current_buffer.insert_text(" ".join(event.data.splitlines())))
        keys.add("c-c")(lambda _: _interrupt_main_thread())
        return keys

    def _partial(self) -> StyleAndTextTuples:
        if self._status.partial is None:
            return []
        who, text = self._status.partial
        text = clean(text)
        shown = text if len(text) <= _MAX_PARTIAL else "…" + text[1 - _MAX_PARTIAL :]
        return [(f"class:{who}", who), ("class:partial", f"  {shown}")]

    def _meters(self) -> StyleAndTextTuples:
        status = self._status
        meter = max(5, min(_METER_WIDTH, (self._columns() - 34) // 2))
        user = "MUTED".center(meter) if status.muted else level_bar(status.user, meter, self._encoding)
        bot = level_bar(status.bot, meter, self._encoding)
        return [
            ("", " you "),
            ("class:muted" if status.muted else "", user),
            ("", f"   bot {bot}   {clean(status.state)}"),
            ("class:muted", f"  {clean(status.activity)}" if status.activity else ""),
        ]

    def _help(self) -> str:
        room = (self._columns() - 50) // 2
        if room < 7:
            return " Tab mute  F2 mic  F3 speaker  ^C leave"
        mic, speaker = (_shortened(clean(name), room) for name in (self._status.mic, self._status.speaker))
        return f" Tab mute   F2 mic: {mic}   F3 speaker: {speaker}   Ctrl-C leave"


class _LineStream(io.TextIOBase):
    """A stream whose lines a console prints."""

    def __init__(self, line: Callable[[str], None]) -> None:
        self._line = line

    def write(self, text: str) -> int:
        for line in text.splitlines():
            self._line(line)
        return len(text)


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _interrupt_main_thread() -> None:
    """Interrupt the main thread like the terminal at Ctrl-C. prompt_toolkit reads that key itself."""
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signal.SIGINT)  # also wakes it from a blocking call
    else:
        _thread.interrupt_main()
