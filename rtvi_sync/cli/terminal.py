"""A console on a terminal, by way of prompt_toolkit: what is said scrolls by; below it, meters and a line to type into.

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
import textwrap
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
from rtvi_sync.recording.text import clean

from .console import Key, Status
from .meter import bar

_STYLE = Style.from_dict(
    {
        "you": "bold ansigreen",
        "bot": "bold ansicyan",
        "partial": "italic",
        "hint": "italic ansibrightblack",
        "status": "reverse",
        "muted": "bold",
    }
)
_METER = 16
# Lines that wait to be shown: of more between two drawings nobody sees the first.
_MOST_LINES = 1000
# Of what is being said the end is shown: the rest has been read.
_LONGEST_PARTIAL = 200
# Seconds that the terminal may take to be ours, and to be given back.
_LIMIT = 5.0


class TerminalConsole:
    """A terminal. What draws there and waits for keys has a thread of its own, so that nothing else holds it up.

    To be used on the main thread: Ctrl-C raises `KeyboardInterrupt` there, as it does without this class.

    Args:
        stdout: the terminal; stdin is one, too.
    """

    attended: bool = True

    def __init__(self, stdout: TextIO) -> None:
        self._encoding = stdout.encoding
        self._status = Status()
        self._taken: queue.SimpleQueue[str | Key] = queue.SimpleQueue()
        self._began: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        # Put in by the thread of the conversation, taken out by that of the terminal, each in single steps.
        self._lines: deque[StyleAndTextTuples] = deque(maxlen=_MOST_LINES)
        self._thread: threading.Thread | None = None
        self._saved = contextlib.ExitStack()
        self._input = TextArea(
            prompt="> ",
            multiline=False,
            wrap_lines=False,
            height=1,
            accept_handler=self._typed,
            input_processors=[
                ConditionalProcessor(
                    AfterInput("talk, or type here and press Enter", "class:hint"),
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

    # -- on the thread of the conversation ----------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self._print([("", self._wrapped(text))])

    def said(self, who: str, text: str) -> None:
        self._print([(f"class:{who}", who), ("", self._wrapped(text, indent=" " * len(f"{who}  "))[len(who) :])])

    def show(self, status: Status) -> None:
        if status != self._status:
            self._status = status
            self._app.invalidate()

    def take(self) -> str | Key | None:
        try:
            return self._taken.get_nowait()
        except queue.Empty:
            return None

    def __enter__(self) -> TerminalConsole:
        self._thread = start_thread("terminal", self._run)
        try:
            with contextlib.suppress(queue.Empty):
                problem = self._began.get(timeout=_LIMIT)
                if problem is not None:
                    raise RTVIError(f"This terminal cannot be used: {problem!r}") from problem
            self._redirect_notes()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # Who is impatient and presses Ctrl-C again shall not be left with a terminal that shows nothing he types.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._saved.close()
            self._on_loop(self._leave)
            if self._thread is not None:
                self._thread.join(_LIMIT)
            self._print_lines()
        finally:
            signal.signal(signal.SIGINT, before)

    def _print(self, line: StyleAndTextTuples) -> None:
        self._lines.append(line)
        self._on_loop(self._print_above)

    def _on_loop(self, function: Callable[[], None]) -> None:
        loop = self._app.loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(function)

    def _wrapped(self, text: str, indent: str = "") -> str:
        return textwrap.fill(
            clean(text),
            self._columns(),
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )

    def _columns(self) -> int:
        return max(20, self._app.output.get_size().columns)

    def _redirect_notes(self) -> None:
        """What others write to stderr, logs first of all, would tear what is drawn: it becomes lines."""
        notes = _Notes(self.line)
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr:
                self._saved.callback(handler.setStream, handler.stream)
                handler.setStream(notes)
        self._saved.enter_context(contextlib.redirect_stderr(notes))

    # -- on the thread of the terminal --------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._app.run(pre_run=lambda: self._began.put(None), set_exception_handler=False, handle_sigint=False)
        except BaseException as error:  # noqa: BLE001 - there are many ways for a terminal to go away
            self._began.put(error)
        self._taken.put(Key.END)

    def _leave(self) -> None:
        if self._app.is_running and not self._app.is_done:
            self._app.exit()

    def _print_above(self) -> None:
        """Show the new lines above what is drawn."""
        # Not by `run_in_terminal()`: meanwhile the terminal itself reads keys, and what is typed goes astray.
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

    def _typed(self, buffer: Buffer) -> bool:
        self._taken.put(buffer.text)
        self._input.window.horizontal_scroll = 0  # else a line that was too long takes the prompt along
        return False

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        for name, meaning in (("tab", Key.MUTE), ("f2", Key.NEXT_MIC), ("f3", Key.NEXT_SPEAKER)):
            keys.add(name)(lambda _, meaning=meaning: self._taken.put(meaning))
        keys.add("c-d", filter=Condition(lambda: not self._input.text))(lambda _: self._taken.put(Key.END))
        # What is pasted is one line, too.
        keys.add(Keys.BracketedPaste)(lambda event: event.current_buffer.insert_text(" ".join(event.data.splitlines())))
        keys.add("c-c")(lambda _: _interrupt_main_thread())
        return keys

    def _partial(self) -> StyleAndTextTuples:
        if self._status.partial is None:
            return []
        who, text = self._status.partial
        text = clean(text)
        shown = text if len(text) <= _LONGEST_PARTIAL else "…" + text[1 - _LONGEST_PARTIAL :]
        return [(f"class:{who}", who), ("class:partial", f"  {shown}")]

    def _meters(self) -> StyleAndTextTuples:
        status = self._status
        meter = max(5, min(_METER, (self._columns() - 21) // 2))
        user = "MUTED".center(meter) if status.muted else bar(status.user, meter, self._encoding)
        bot = bar(status.bot, meter, self._encoding)
        return [
            ("", " you "),
            ("class:muted" if status.muted else "", user),
            ("", f"   bot {bot}   {clean(status.state)}"),
        ]

    def _help(self) -> str:
        room = (self._columns() - 50) // 2
        if room < 7:
            return " Tab mute  F2 mic  F3 speaker  ^C leave"
        mic, speaker = (_shortened(clean(name), room) for name in (self._status.mic, self._status.speaker))
        return f" Tab mute   F2 mic: {mic}   F3 speaker: {speaker}   Ctrl-C leave"


class _Notes(io.TextIOBase):
    """A stream whose lines go to a console."""

    def __init__(self, line: Callable[[str], None]) -> None:
        self._line = line

    def write(self, text: str) -> int:
        for line in text.splitlines():
            self._line(line)
        return len(text)


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _interrupt_main_thread() -> None:
    """What the terminal does at Ctrl-C where nobody reads its keys."""
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signal.SIGINT)  # wakes it, too
    else:
        _thread.interrupt_main()
