"""Mutants of the replacement of a lost session."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/client/reconnect.py",
    ("tests/client/test_reconnect.py",),
    (
        Mutant("The loss counts as an attempt.", "Retries(self._policy, first=1)", "Retries(self._policy, first=2)"),
        Mutant(
            "The attempt under way is told after the session is back.",
            "            self.pending = None\n            session.wait_for",
            "            session.wait_for",
        ),
        Mutant(
            "A session that does not last begins a new count.",
            "            session.wait_for(Phase.DRAINED, Deadline(self._policy.stable_after))\n",
            "",
        ),
        Mutant(
            "The rule is asked twice about a loss.",
            "error, is_loss, is_retried = loss_of(session), True, True",
            "error, is_loss, is_retried = loss_of(session), True, should_retry(self._policy, loss_of(session))",
        ),
        Mutant(
            "A failed attempt is retried whatever the rule says.",
            "error, is_loss, is_retried = failure, False, should_retry(self._policy, failure)",
            "error, is_loss, is_retried = failure, False, True",
        ),
        Mutant(
            "A stopped reconnect asks the rule.",
            "if self.abandoned or isinstance(failure, BotAlreadyStartedError):",
            "if isinstance(failure, BotAlreadyStartedError):",
            reason="what it does then ends at the next check, unless the rule takes its time",
        ),
        Mutant(
            "An attempt follows one whose rule has disconnected.",
            "        while not self.abandoned:  # also by the policy's own rule\n",
            "        while True:\n",
            reason="announce() refuses it, too",
        ),
        Mutant(
            "It says nothing when it gives up.",
            "                return self._report_failure(attempts, error)\n",
            "                return None\n",
        ),
        Mutant(
            "It does not wait.",
            "                self.pause(following.delay)\n",
            "",
        ),
        Mutant(
            "A session that is lost while its reconnect ends is not replaced.",
            "        if self.progress is Progress.DONE:\n            return Reconnect(",
            "        if False:\n            return Reconnect(",
        ),
        Mutant(
            "A second loss is replaced twice.",
            "        if self.progress is Progress.DONE:\n            return Reconnect(",
            "        if True:\n            return Reconnect(",
        ),
        Mutant(
            "The threads of the runtime stay.",
            "                runtime.release()\n",
            "                pass\n",
        ),
        Mutant(
            "A client that is dropped meanwhile keeps its thread.",
            "on_collected=lambda _: self.stop()",
            "on_collected=None",
            reason="the client's finalizer stops the operation, unless another thread names one in that very step",
        ),
        Mutant(
            "A rule that disconnects waits for itself.",
            "        if threading.current_thread() is self._thread:\n            return\n",
            "",
        ),
        Mutant(
            "A system without threads leaves the client waiting.",
            "            self._report_failure(0, error)\n",
            "            pass\n",
        ),
        Mutant(
            "Each log entry is of a loss.",
            "            if is_loss:\n",
            "            if True:\n",
        ),
    ),
)
