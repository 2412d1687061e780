"""Runs many scenarios against a bot, some at the same time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from rtvi_sync.concurrency.clock import monotonic
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.latch import Notifier
from rtvi_sync.concurrency.lifecycle import start_thread
from rtvi_sync.testing.load.progress import LoadProgress
from rtvi_sync.testing.scenarios.report import ScenarioResult
from rtvi_sync.testing.scenarios.run import PATIENCE, ScenarioRun, patience_after

#: Creates the run of a scenario, with its patience in seconds.
MakeRun: TypeAlias = Callable[[float], ScenarioRun]

# Seconds in which a run must end after its session was closed.
_END_TIMEOUT: Final = 8.0


class ScenarioSuite:
    """Runs of scenarios, each on its own thread. One thread calls `run()`.

    A bot that doesn't listen yet is waited for, but after one run that did so in vain, the others don't.

    Args:
        runs: Functions that create the run of a scenario, each called on the run's thread.
        concurrency: Maximum number of runs at the same time.
        on_result: Function called with each result as its run ends, on the thread of `run()`.
        progress: Progress display, hidden before each call of `on_result`.
    """

    def __init__(
        self,
        runs: Sequence[MakeRun],
        concurrency: int,
        on_result: Callable[[ScenarioResult], object],
        progress: LoadProgress,
    ) -> None:
        self._waiting = deque(enumerate(runs))
        self._concurrency = concurrency
        self._on_result = on_result
        self._progress = progress
        # By number. Each access is atomic, and one thread writes each item.
        self._running: dict[int, ScenarioRun | None] = {}
        self._ended: deque[tuple[int, ScenarioResult | BaseException]] = deque()
        self._results: dict[int, ScenarioResult] = {}
        self._notifier = Notifier()
        self._patience = PATIENCE
        self._is_aborted = False

    @property
    def results(self) -> list[ScenarioResult]:
        """Results so far, in the order of the runs."""
        return [self._results[number] for number in sorted(self._results)]

    def run(self) -> None:
        """Run all scenarios.

        Raises:
            KeyboardInterrupt: Ctrl-C. All sessions were ended; `results` has the completed runs.
            Exception: The first error of a run that could not be created or completed. The others were ended.
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
        """Wait until a run ends, and handle the ended runs."""
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
            self._patience = patience_after(result)
            self._progress.hide()
            self._on_result(result)

    def _run_one(self, number: int, make: MakeRun) -> None:
        result: ScenarioResult | BaseException
        try:
            run = self._running[number] = make(self._patience)
            if self._is_aborted:  # the abort may have missed this run
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
