"""A notebook cell's output that changes in place while events arrive on other threads."""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.latch import Notifier
from rtvi_sync.concurrency.lifecycle import start_thread
from rtvi_sync.concurrency.lock import new_lock
from rtvi_sync.concurrency.shield import shielded

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
        # Guards the fields below. Any thread may hold it, for a few assignments.
        self._lock = new_lock()
        # Wakes the thread that publishes, and callers of `flush()`.
        self._notifier = Notifier()
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
        if not self._shown:
            self._stale = False  # it is rendered now, and no other cell waits for an update
        publish_display_data(dict(self._render()), transient={"display_id": self._id})
        if not self._shown:
            _flush_after_each_cell(shell.events, self)  # first, because Ctrl-C may follow, and two flushes do no harm
            self._shown = True
            if self._stale:
                self.notify_changed()

    def notify_changed(self) -> None:
        """Schedule an update. Never blocks."""
        with self._lock:
            self._stale = True
            if self._publishing or not self._shown:
                return
        shielded(self._start_publishing)

    def flush(self) -> None:
        """Wait until all changes have been published, for at most `_FLUSH_TIMEOUT`."""
        with self._lock:
            self._flush_requested = True
        self._notifier.notify_all()
        self._notifier.wait_for(lambda: not self._publishing, Deadline(_FLUSH_TIMEOUT))

    def _start_publishing(self) -> None:
        with self._lock:
            if self._publishing:
                return
            self._publishing, self._flush_requested = True, False
        try:
            start_thread("notebook", self._publish)
        except RuntimeError:  # the interpreter is shutting down and starts no more threads
            self._stop_publishing()

    def _publish(self) -> None:
        """Publish until an interval passes without a change. The body of the thread."""
        from IPython.display import publish_display_data

        try:
            while self._take_stale():
                publish_display_data(dict(self._render()), transient={"display_id": self._id}, update=True)
                self._notifier.wait_for(lambda: self._flush_requested, Deadline(INTERVAL))
        except BaseException:
            self._stop_publishing()
            raise

    def _take_stale(self) -> bool:
        """Return and clear the stale flag. If it was clear, stop publishing: the next change starts a thread."""
        with self._lock:
            if self._stale:
                self._stale = False
                return True
            self._publishing = False
        self._notifier.notify_all()
        return False

    def _stop_publishing(self) -> None:
        self._publishing = False
        self._notifier.notify_all()


def _flush_after_each_cell(events: Any, output: LiveOutput) -> None:
    """Flush the output after each cell, so that programs that execute notebooks store the last state."""
    reference = weakref.ref(output)

    def flush(_result: object) -> None:
        live = reference()
        if live is not None:
            live.flush()

    events.register("post_run_cell", flush)
    weakref.finalize(output, events.unregister, "post_run_cell", flush).atexit = False
