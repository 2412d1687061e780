"""Which tests run in the same process when several run them, and which start first."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

#: Folders whose tests stay together: servers that take seconds to start are shared by all of them. The first folder is
#: in the second, but shares no server with it.
TOGETHER = ("tests/pipecat/generations", "tests/pipecat", "tests/audio")
#: The longest tests start first, so that no process is left alone with them in the end.
LONGEST = (
    "tests/pipecat",
    "tests/test_docs.py",
    "tests/flask/test_page_voice.py",
    "tests/audio",
    "tests/behaviour/faults/test_fault_table.py",
    "tests/testing/test_pytest_plugin.py",
    "tests/test_samples.py",
    "tests/behaviour/model",
    "tests/behaviour/workers",
    "tests/behaviour/soak",
    "tests/behaviour/footprint",
    "tests/flask",
    "tests/django",
    "tests/behaviour/life",
)


def group_of(nodeid: str) -> str:
    """Return the folder or the file of a test, whose tests share servers and other fixtures and run in one process."""
    file = nodeid.partition("::")[0]
    return next((folder for folder in TOGETHER if file.startswith(f"{folder}/")), file)


def begin_of(nodeid: str) -> int:
    """Return the rank of a test: lower numbers start earlier."""
    return next((rank for rank, path in enumerate(LONGEST) if nodeid.startswith(path)), len(LONGEST))


class ByGroup(LoadScopeScheduling):
    """Gives each process a group of tests at a time, in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # it would start with the group that has the most tests

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
