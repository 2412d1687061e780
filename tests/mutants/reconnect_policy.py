"""Mutants of the policy of automatic reconnection."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/session/reconnect_policy.py",
    ("tests/session/test_reconnect_policy.py", "tests/client/test_reconnect.py"),
    (
        Mutant("Close code 1012 is final.", "1011, 1012, 1013, 1014)", "1011, 1013, 1014)"),
        Mutant("Close code 1006 is final.", "(1001, 1006,", "(1001,"),
        Mutant("HTTP 500 is final.", "error.status >= 500", "error.status > 500"),
        Mutant("HTTP 429 is final.", "_PASSING_STATUSES = (408, 425, 429)", "_PASSING_STATUSES = (408, 425)"),
        Mutant(
            "A certificate that is refused is transient.",
            "        if _is_caused_by(error, ssl.SSLCertVerificationError):\n            return False\n",
            "",
        ),
        Mutant(
            "A server that refuses the last of several transports is asked again.",
            "last.status in _REFUSALS:",
            "False:",
        ),
        Mutant(
            "Of several attempts all must be transient.",
            "return any(is_transient(attempt) for _, attempt in error.attempts)",
            "return all(is_transient(attempt) for _, attempt in error.attempts)",
        ),
        Mutant("A limit that passed is final.", "return isinstance(error, ConnectionTimeoutError)", "return False"),
        Mutant(
            "forever() repeats after an error of the application.",
            "and not isinstance(error, (UsageError, ForkedProcessError))",
            "",
        ),
        Mutant(
            "An attempt has the time of the call.",
            "return deadline if limit is None or deadline.at_most(limit) != limit else Deadline(limit)",
            "return deadline",
        ),
        Mutant(
            "An attempt begins after the elapsed limit.",
            "for limit in (policy.max_elapsed, left)",
            "for limit in (left,)",
        ),
        Mutant(
            "An attempt begins after the time of connect().",
            "for limit in (policy.max_elapsed, left)",
            "for limit in (policy.max_elapsed,)",
            tests=("tests/session/test_forever.py::test_connect_timeout_limits_all_attempts_together",),
        ),
        Mutant(
            "There is one attempt more than allowed.",
            "if most is not None and attempt > most:",
            "if most is not None and attempt > most + 1:",
        ),
        Mutant(
            "The delays do not grow.",
            "        self._state.attempt_number += 1\n",
            "",
        ),
        Mutant(
            "An exception of the rule ends the thread.",
            "        return False\n",
            "        raise\n",
            within="should_retry",
        ),
        Mutant(
            "The cause of an error is not looked for.",
            "error = error.__cause__ or error.__context__",
            "error = error.__cause__",
        ),
    ),
)
