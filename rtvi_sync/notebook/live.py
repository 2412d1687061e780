"""An output of a notebook cell that changes in place while events come from other threads."""

from __future__ import annotations

import threading
import uuid
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from rtvi_sync.concurrency.lifecycle import start_thread

# Seconds from one update to the next: faster than that nobody reads, and every update is a message to the browser.
INTERVAL = 0.1
# How long a flush may take: writing a message to the kernel's own thread takes far less.
_FLUSH_LIMIT = 1.0


class LiveOutput:
    """Shows the same thing in every cell it is shown in, and keeps it up to date.

    A thread of its own publishes, and only while there is something new: messages are sent at most ten times a second,
    and the last state always is. Its methods may be called on any thread, except `show()`: that belongs to the cell.

    Args:
        render: returns what is shown by MIME type; called on any thread.
    """

    def __init__(self, render: Callable[[], Mapping[str, str]]) -> None:
        self._render = render
        self._id = uuid.uuid4().hex
        self._live = False
        # Guards the fields below, and wakes the thread that publishes and whoever waits until it is done. Any thread
        # may hold it, for a few assignments.
        self._changed = threading.Condition(threading.Lock())
        self._stale = False
        self._publishing = False
        self._hurry = False

    def show(self) -> None:
        """Show it in the cell that is running. Where outputs cannot change, in a terminal, it is shown as it is now."""
        from IPython import get_ipython
        from IPython.core.displaypub import DisplayPublisher
        from IPython.display import publish_display_data

        shell: Any = get_ipython()
        if type(shell.display_pub) is DisplayPublisher:
            publish_display_data(dict(self._render()))
            return
        publish_display_data(dict(self._render()), transient={"display_id": self._id})
        if not self._live:
            self._live = True
            _flush_after_each_cell(shell.events, self)

    def changed(self) -> None:
        """There is something new to be shown. Never waits."""
        if not self._live:
            return
        with self._changed:
            self._stale = True
            if self._publishing:
                return
            self._publishing, self._hurry = True, False
        try:
            start_thread("notebook", self._publish)
        except RuntimeError:  # the interpreter is shutting down and starts no more threads: nobody is looking
            self._done()

    def flush(self) -> None:
        """Return when all that is new was published, or after a second."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._publishing, _FLUSH_LIMIT)

    def _publish(self) -> None:
        """Publish until nothing was new for an interval; the body of the thread."""
        from IPython.display import publish_display_data

        try:
            while self._take():
                publish_display_data(dict(self._render()), transient={"display_id": self._id}, update=True)
                with self._changed:
                    self._changed.wait_for(lambda: self._hurry, INTERVAL)
        except BaseException:
            self._done()
            raise

    def _take(self) -> bool:
        """Whether there is something new. If not, the next change finds nobody publishing."""
        with self._changed:
            stale, self._stale = self._stale, False
            if not stale:
                self._publishing = False
                self._changed.notify_all()
            return stale

    def _done(self) -> None:
        with self._changed:
            self._publishing = False
            self._changed.notify_all()


def _flush_after_each_cell(events: Any, output: LiveOutput) -> None:
    """What is to be seen when a cell ends is part of its outputs, also for programs that run notebooks."""
    reference = weakref.ref(output)

    def flush(_result: object) -> None:
        live = reference()
        if live is not None:
            live.flush()

    events.register("post_run_cell", flush)
    weakref.finalize(output, events.unregister, "post_run_cell", flush).atexit = False
