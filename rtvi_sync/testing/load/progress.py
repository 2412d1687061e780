"""The progress of sessions or scenarios on stderr: a bar on a terminal, otherwise a line each 5 s."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ...concurrency.clock import monotonic

if TYPE_CHECKING:
    from rich.progress import Progress

# Seconds between two updates of the bar, or two lines.
_BAR_INTERVAL: Final = 0.1
_LINE_INTERVAL: Final = 5.0
_NOT_FAILED: Final = frozenset({"passed", "not_judged", "unsupported"})


class LoadProgress:
    """The progress of one load test, or one suite of scenarios. One thread calls its methods.

    Args:
        total: Number of sessions.
        shown: False to write nothing; None to write only on a terminal.
        what: Plural noun to show for the sessions.
    """

    def __init__(self, total: int, *, shown: bool | None, what: str = "sessions") -> None:
        self._total = total
        self._what = what
        self._began = monotonic()
        is_terminal = sys.stderr is not None and sys.stderr.isatty()
        is_shown = is_terminal if shown is None else shown
        self._bar = _bar() if is_shown and is_terminal else None
        self._is_bar_begun = False
        self._interval = _BAR_INTERVAL if self._bar is not None else _LINE_INTERVAL if is_shown else math.inf
        #: Time of the next `show()`; infinite for never.
        self.due: float = self._began + self._interval

    def show(self, outcomes: Sequence[str], running: int) -> None:
        """Show the progress, if an update is due.

        Args:
            outcomes: Outcomes of the ended sessions.
            running: Number of running sessions.
        """
        now = monotonic()
        if now < self.due:
            return
        self.due = now + self._interval
        failed = sum(outcome not in _NOT_FAILED for outcome in outcomes)
        if self._bar is None:
            told = f"{len(outcomes)} of {self._total} {self._what} ended, {running} running, {failed} failed"
            print(f"{now - self._began:.0f} s: {told}", file=sys.stderr, flush=True)  # noqa: T201
            return
        if not self._is_bar_begun:
            self._is_bar_begun = True
            self._bar.start()
        if not self._bar.task_ids:
            self._bar.add_task(self._what, total=self._total, running=0, failed="")
        told_failed = f"[red]{failed} failed" if failed else ""
        self._bar.update(self._bar.task_ids[0], completed=len(outcomes), running=running, failed=told_failed)
        self._bar.refresh()

    def hide(self) -> None:
        """Remove the bar until its next update, to make room for other output."""
        if self._bar is not None and self._is_bar_begun:
            self._is_bar_begun = False
            self._bar.stop()

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()


def _bar() -> Progress | None:
    """Return a bar that is drawn on demand; None without rich."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    except ModuleNotFoundError:
        return None
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[running]} running {task.fields[failed]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
