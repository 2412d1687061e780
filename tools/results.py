"""The results of several pytest runs: counts by version, and the reasons of skips. Standard library only.

Each run writes its counts to the file that `VARIABLE` names (`tests/conftest.py`).
"""

import json
from collections.abc import Sequence
from pathlib import Path

VARIABLE = "RTVI_TEST_RESULTS"


class Result:
    """One run of pytest.

    Attributes:
        name: the tested version or part.
        passed, failed: numbers of tests; a run that fails without a failed test, or has no counts, counts as one.
        skipped: numbers of tests by reason.
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
        """Whether nothing has failed, and each skipped test has a reason."""
        return not self.failed and "" not in self.skipped


def summary(results: Sequence[Result], unavailable: Sequence[str]) -> list[str]:
    """Return the closing lines: each run with its skips, the unavailable parts, and the sum of all runs."""
    lines = []
    for result in results:
        lines.append(
            f"{result.name}: {result.passed} passed, {result.failed} failed, {sum(result.skipped.values())} skipped"
        )
        lines += [f"  {n} skipped: {reason or 'WITHOUT A REASON'}" for reason, n in sorted(result.skipped.items())]
    lines += [f"not tested: {line}" for line in unavailable]
    passed, failed = sum(result.passed for result in results), sum(result.failed for result in results)
    return [*lines, f"{passed} passed, {failed} failed"]
