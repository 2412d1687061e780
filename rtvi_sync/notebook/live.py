"""A notebook cell's output that changes in place while events arrive on other threads."""

from __future__ import annotations

import threading
import uuid
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from rtvi_sync.concurrency.lifecycle import start_thread

# Seconds from one update to the next. Faster updates cannot be read, and each is a message to the browser.
INTERVAL = 0.1
# Seconds that a flush may take; handing a message to the kernel's own thread takes far less.
_FLUSH_TIMEOUT = 1.0


class LiveOutput:
    """The same output in every cell that shows it, kept up to date.

    A thread of its own publishes, and lives only while there are changes: at most one message every `INTERVAL` seconds,
    and always one with the last state. All methods may be called on any thread, except `show()`, which a cell calls.

    Args:
        render: returns the output by MIME type; called on any thread.
    """

    def __init__(self, render: Callable[[], Mapping[str, str]]) -> None:
        self._render = render
        self._id = uuid.uuid4().hex
        # Guards the fields below, and wakes the thread that publishes and callers of flush(). Any thread may hold it,
        # for a few assignments.
        self._condition = threading.Condition(threading.Lock())
        self._shown = False
        self._stale = False
        self._publishing = False
        self._flush_requested = False

    def show(self) -> None:
        """Show the output in the running cell. In a terminal, where outputs cannot change, show the current state."""
        from IPython import get_ipython
        from IPython.core.displaypub import DisplayPublisher
        from IPython.display import publish_display_data

        shell: Any = get_ipython()
        if type(shell.display_pub) is DisplayPublisher:
            publish_display_data(dict(self._render()))
            return
        with self._condition:
            if not self._shown:
                self._stale = False  # it is rendered now, and no other cell waits for an update
        publish_display_data(dict(self._render()), transient={"display_id": self._id})
        with self._condition:
            first, self._shown = not self._shown, True
            is_late = first and self._stale
        if first:
            _flush_after_each_cell(shell.events, self)
        if is_late:
            self.notify_changed()

    def notify_changed(self) -> None:
        """Schedule an update. Never blocks."""
        with self._condition:
            self._stale = True
            if self._publishing or not self._shown:
                return
            self._publishing, self._flush_requested = True, False
        try:
            start_thread("notebook", self._publish)
        except RuntimeError:  # the interpreter is shutting down and starts no more threads
            self._stop_publishing()

    def flush(self) -> None:
        """Wait until all changes have been published, for at most `_FLUSH_TIMEOUT`."""
        with self._condition:
            self._flush_requested = True
            self._condition.notify_all()
            self._condition.wait_for(lambda: not self._publishing, _FLUSH_TIMEOUT)

    def _publish(self) -> None:
        """Publish until an interval passes without a change. The body of the thread."""
        from IPython.display import publish_display_data

        try:
            while self._take_stale():
                publish_display_data(dict(self._render()), transient={"display_id": self._id}, update=True)
                with self._condition:
                    self._condition.wait_for(lambda: self._flush_requested, INTERVAL)
        except BaseException:
            self._stop_publishing()
            raise

    def _take_stale(self) -> bool:
        """Return and clear the stale flag. If it was clear, stop publishing: the next change starts a thread."""
        with self._condition:
            stale, self._stale = self._stale, False
            if not stale:
                self._publishing = False
                self._condition.notify_all()
            return stale

    def _stop_publishing(self) -> None:
        with self._condition:
            self._publishing = False
            self._condition.notify_all()


def _flush_after_each_cell(events: Any, output: LiveOutput) -> None:
    """Flush the output after each cell, so that programs that execute notebooks store the last state."""
    reference = weakref.ref(output)

    def flush(_result: object) -> None:
        live = reference()
        if live is not None:
            live.flush()

    events.register("post_run_cell", flush)
    weakref.finalize(output, events.unregister, "post_run_cell", flush).atexit = False
