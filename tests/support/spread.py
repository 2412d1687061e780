"""Which tests run in the same process when several run them, and which start first."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

#: What stays together in one process: folders (with a final slash), files and tests that share what takes seconds to
#: make, such as a server. The bots of Pipecat are in several groups, by the programs that their tests start: as one
#: group they would take as long as all other tests. Every other file is a group of its own.
TOGETHER = (
    ("tests/pipecat/test_ask.py", "tests/pipecat/test_telephony.py"),
    ("tests/pipecat/generations/",),
    ("tests/audio/",),
    (
        "tests/pipecat/test_connect.py",
        "tests/pipecat/test_doctor.py",
        "tests/pipecat/test_errors.py",
        "tests/pipecat/test_eval.py",
        "tests/pipecat/test_phone.py",
        "tests/pipecat/test_webrtc.py",
    ),
    (
        "tests/pipecat/test_bots.py",
        "tests/pipecat/test_conversation.py",
        "tests/pipecat/test_endings.py",
        "tests/pipecat/test_scenarios.py",  # its limits are times, so it is not among the first, when all bots start
        "tests/pipecat/test_servers.py",
        "tests/pipecat/test_sinks.py",
    ),
    # with the package's wheel in an environment
    ("tests/cli/test_installed.py", "tests/test_installation.py", "tests/test_docs.py::test_block_of_readme_needs"),
)
#: Long files whose tests share nothing: any process runs any of these tests.
APART = (
    "tests/test_docs.py",
    "tests/testing/test_pytest_plugin.py",
    "tests/behaviour/faults/test_fault_table.py",
    "tests/test_samples.py",
)
#: The longest groups start first, and the tests of `APART` last: they fill the processes that are done with the rest.
LONGEST = (
    *(path for group in TOGETHER[:2] for path in group),
    "tests/flask/test_page_voice.py",
    *(path for group in TOGETHER[2:] for path in group),
    "tests/pipecat",
    "tests/flask",
    "tests/behaviour/workers",
    "tests/behaviour/contract",
    "tests/behaviour/order",
    "tests/web",
    "tests/test_url.py",
)


def group_of(nodeid: str) -> str:
    """Return the name of a test's group: its first path, or the test itself where the tests of a file share nothing."""
    file = nodeid.partition("::")[0]
    alone = nodeid if file in APART else file
    return next((group[0] for group in TOGETHER if nodeid.startswith(group)), alone)


def begin_of(nodeid: str) -> int:
    """Return the rank of a test: lower numbers start earlier."""
    last = len(LONGEST) + nodeid.startswith(APART)
    return next((rank for rank, path in enumerate(LONGEST) if nodeid.startswith(path)), last)


class ByGroup(LoadScopeScheduling):
    """Gives each process a group of tests at a time, in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # it would start with the group that has the most tests

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
