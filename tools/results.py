"""What came of several runs of pytest: counts by version, and why tests were skipped. Standard library only.

Each run writes its counts to the file that `VARIABLE` names (`tests/conftest.py`).
"""

import json
from collections.abc import Sequence
from pathlib import Path

VARIABLE = "RTVI_TEST_RESULTS"


class Result:
    """One run of pytest.

    Attributes:
        name: of what was tested.
        passed, failed: how many tests; a run that fails without a failed test, or left no counts, counts as one.
        skipped: how many tests, by reason.
    """

    def __init__(self, name: str, status: int, file: Path) -> None:
        try:
            counts = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            status, counts = status or 1, {"passed": 0, "failed": 0, "skipped": {}}
        self.name = name
        self.passed: int = counts["passed"]
        self.failed: int = counts["failed"] or int(status != 0)
        self.skipped: dict[str, int] = counts["skipped"]

    @property
    def good(self) -> bool:
        """True if nothing has failed, and each test that was skipped says why."""
        return not self.failed and "" not in self.skipped


def summary(results: Sequence[Result], lacking: Sequence[str]) -> list[str]:
    """The closing lines: each run with what it skipped, what could not be had, and the sum of all runs."""
    lines = []
    for result in results:
        lines.append(
            f"{result.name}: {result.passed} passed, {result.failed} failed, {sum(result.skipped.values())} skipped"
        )
        lines += [f"  {n} skipped: {reason or 'WITHOUT A REASON'}" for reason, n in sorted(result.skipped.items())]
    lines += [f"not tested: {line}" for line in lacking]
    passed, failed = sum(result.passed for result in results), sum(result.failed for result in results)
    return [*lines, f"{passed} passed, {failed} failed"]
