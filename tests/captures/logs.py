"""The captured sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LOGS = Path(__file__).parent / "logs"


def rows_of(path: Path) -> list[list[Any]]:
    """Return the rows of a log."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
