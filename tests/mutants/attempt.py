"""Mutants of an attempt to connect."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/session/attempt.py",
    ("tests/session/test_attempt.py",),
    (
        Mutant(
            "An attempt that was abandoned before it had a session makes one.",
            "        if self.abandoned:\n            raise was_disconnected()\n",
            "",
            within="ConnectAttempt.begin",
            tests=("tests/session/test_attempt.py::test_disconnect_before_there_is_a_session",),
        ),
        Mutant(
            "A session whose attempt was abandoned meanwhile connects.",
            "            if self.abandoned:\n",
            "            if False:\n",
            within="ConnectAttempt.run",
            tests=("tests/session/test_attempt.py::test_disconnect_before_there_is_a_session",),
        ),
    ),
)
