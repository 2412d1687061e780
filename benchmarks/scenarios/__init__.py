"""The scenarios, measured for each client library. A scenario runs in a new process, beside a server in another."""

from __future__ import annotations

from typing import Final

from . import many, page, process, session, webrtc
from .figures import Scenario

#: One line for each module with scenarios.
SCENARIOS: Final[dict[str, Scenario]] = {
    **session.SCENARIOS,
    **process.SCENARIOS,
    **many.SCENARIOS,
    **page.SCENARIOS,
    **webrtc.SCENARIOS,
}
