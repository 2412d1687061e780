"""Mutants of automatic reconnection."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/session/reconnect.py",
    ("tests/session/test_reconnect.py",),
    (
        Mutant("The loss counts as an attempt.", "policy.max_attempts + losses", "policy.max_attempts"),
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
            "The attempt under way is told after the session is back.",
            "        self._owner.count += 1\n        self.pending = None\n",
            "        self._owner.count += 1\n",
        ),
        Mutant(
            "Replaced sessions are not counted.",
            "        self._owner.count += 1\n",
            "",
        ),
        Mutant(
            "A session that does not last begins a new count.",
            "session.drained.wait(Deadline(self._owner.policy.stable_after))",
            "pass",
        ),
        Mutant(
            "The rule is asked twice about a loss.",
            "return error is self._loss or self._owner.should_retry(error)",
            "return self._owner.should_retry(error)",
        ),
        Mutant(
            "A second loss is replaced by two runs.",
            "            if self._run is not None:\n                return",
            "            if False:\n                return",
        ),
        Mutant(
            "A session that the application has ended is replaced.",
            "self._unwanted = max(self._unwanted, session.number)",
            "pass",
            within="Reconnector.stop",
        ),
        Mutant(
            "A run that is stopped goes on.",
            "                run.stopped.set()\n",
            "                pass\n",
            within="Reconnector.stop",
        ),
        Mutant(
            "Sessions before the one of the application are replaced.",
            "self._unwanted = max(self._unwanted, session.number - 1)",
            "pass",
        ),
        Mutant(
            "The session of the application is not replaced.",
            "self._unwanted = max(self._unwanted, session.number - 1)",
            "self._unwanted = max(self._unwanted, session.number)",
        ),
        Mutant(
            "Why a session was not replaced is told after another connect().",
            "        self.failed = None\n",
            "        pass\n",
            within="Reconnector.stop_for_connect",
        ),
        Mutant(
            "A run that was stopped still reports.",
            "if sessions is None or run.stopped.is_set():",
            "if sessions is None:",
        ),
        Mutant(
            "A session that is lost while its run ends is not replaced.",
            "                return False\n            if self._run is run:\n",
            "                pass\n            if self._run is run:\n",
        ),
        Mutant(
            "Streams wait though no session follows.",
            "sessions.end_waiting_streams(session.close_info)",
            "pass",
            reason="connect(), start_bot() and disconnect(), which make a session unwanted, were seen to end them, too",
        ),
        Mutant(
            "An exception of the rule ends the thread.",
            "            return False\n",
            "            raise\n",
            within="Reconnector.should_retry",
        ),
        Mutant(
            "A bot that the application has started counts as a failed attempt.",
            "if self.stopped.is_set() or isinstance(error, BotAlreadyStartedError):",
            "if self.stopped.is_set():",
            reason="only an attempt between the beginning of a session and the stop of the run, a few steps, meets it",
        ),
        Mutant(
            "The threads of the runtime stay.",
            "                runtime.release()\n",
            "                pass\n",
        ),
        Mutant(
            "A forked child goes on with its parent's attempts.",
            "        self._run = None\n        if session is not None:\n            self._unwanted",
            "        if session is not None:\n            self._unwanted",
            within="Reconnector.after_fork_in_child",
        ),
    ),
)
