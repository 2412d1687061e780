"""The sessions of a load test, as its page has them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any


def sessions_in(page: Path) -> list[dict[str, Any]]:
    """Return the sessions of the page of a load test."""
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text("utf-8"))
    assert data is not None
    report: dict[str, Any] = json.loads(data[1])["report"]
    sessions: list[dict[str, Any]] = report["rows"]
    assert [session["number"] for session in sessions] == list(range(len(sessions)))
    assert all(
        0 <= session["began"] < session["began"] + session["seconds"] <= report["seconds"] for session in sessions
    )
    return sessions
