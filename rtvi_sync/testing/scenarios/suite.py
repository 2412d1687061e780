"""Many scenarios against a bot, some of them at the same time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from rtvi_sync.concurrency.clock import monotonic
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.latch import Notifier
from rtvi_sync.concurrency.lifecycle import start_thread
from rtvi_sync.testing.load.progress import LoadProgress
from rtvi_sync.testing.scenarios.report import ScenarioResult
from rtvi_sync.testing.scenarios.run import ScenarioRun

# Seconds in which a run ends after its session was closed.
_END_TIMEOUT: Final = 8.0


class ScenarioSuite:
    """Runs of scenarios, each on a thread of its own. One thread calls `run()`.

    Args:
        runs: make the run of a scenario each, on that thread.
        concurrency: how many run at the same time, at most.
        on_result: called with each result as its run ends, on the thread of `run()`.
        progress: shown meanwhile, and hidden before `on_result` is called.
    """

    def __init__(
        self,
        runs: Sequence[Callable[[], ScenarioRun]],
        concurrency: int,
        on_result: Callable[[ScenarioResult], object],
        progress: LoadProgress,
    ) -> None:
        self._waiting = deque(enumerate(runs))
        self._concurrency = concurrency
        self._on_result = on_result
        self._progress = progress
        # By number; each access is one step, and each item is written by one thread.
        self._running: dict[int, ScenarioRun | None] = {}
        self._ended: deque[tuple[int, ScenarioResult | BaseException]] = deque()
        self._results: dict[int, ScenarioResult] = {}
        self._notifier = Notifier()
        self._is_aborted = False

    @property
    def results(self) -> list[ScenarioResult]:
        """Return the results so far, in the order of the runs."""
        return [self._results[number] for number in sorted(self._results)]

    def run(self) -> None:
        """Run all scenarios.

        Raises:
            KeyboardInterrupt: Ctrl-C; the sessions were ended, and `results` has what was over.
            Exception: what the first run has raised that could not be made or run; the others were ended.
        """
        try:
            while self._waiting or self._running:
                while self._waiting and len(self._running) < self._concurrency:
                    number, make = self._waiting.popleft()
                    self._running[number] = None
                    start_thread("scenario", self._run_one, number, make)
                self._await_end()
        except BaseException:
            self._abort()
            raise

    def _await_end(self) -> None:
        """Wait until a run has ended, and take what has."""
        while not self._ended:
            due = self._progress.due
            limit = None if due == math.inf else max(0.0, due - monotonic())
            self._notifier.wait_for(lambda: bool(self._ended), Deadline(limit))
            self._progress.show([result.verdict for result in self.results], len(self._running))
        while self._ended:
            number, result = self._ended.popleft()
            del self._running[number]
            if isinstance(result, BaseException):
                raise result
            self._results[number] = result
            self._progress.hide()
            self._on_result(result)

    def _run_one(self, number: int, make: Callable[[], ScenarioRun]) -> None:
        result: ScenarioResult | BaseException
        try:
            run = self._running[number] = make()
            if self._is_aborted:  # it may not have known of the run
                run.abort()
            result = run.run()
        except BaseException as error:  # noqa: BLE001 - raised on the thread of run()
            result = error
        self._ended.append((number, result))
        self._notifier.notify_all()

    def _abort(self) -> None:
        """End all sessions, and wait until the runs have ended."""
        self._is_aborted = True
        self._waiting.clear()
        for run in [*self._running.values()]:
            if run is not None:
                run.abort()
        self._notifier.wait_for(lambda: len(self._ended) >= len(self._running), Deadline(_END_TIMEOUT))
