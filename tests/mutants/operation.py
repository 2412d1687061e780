"""Mutants of an operation that can be cancelled at every instant."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/client/operation.py",
    ("tests/client/test_operation.py",),
    (
        Mutant(
            "disconnect() does not find the call.",
            "        self.life.operations.append(self)  # first of all, because `disconnect()` must find it\n",
            "",
        ),
        Mutant(
            "A call that was cancelled before runs.",
            "            self.check_wanted()\n            result",
            "            result",
        ),
        Mutant(
            "A failed call keeps the client.",
            "            if progress is Progress.FAILED:\n                life.release(self)\n",
            "",
        ),
        Mutant(
            "A call meets the rest of an abandoned one.",
            "                    other.wait_over(Deadline(EndLimits.STOP))\n",
            "                    pass\n",
            tests=("tests/client/test_operation.py::test_the_next_waits_for_an_abandoned_one",),
        ),
        Mutant(
            "The result of a cancelled call stays.",
            "            shielded(lambda: self._undo(deadline))\n",
            "            pass\n",
        ),
        Mutant(
            "A call that failed is undone.",
            "        if self.progress is Progress.FAILED:\n            return\n",
            "",
        ),
        Mutant(
            "A cancelled call goes on.",
            "        self.abandoned = True\n",
            "",
        ),
        Mutant(
            "A pause goes on.",
            "        self.check_wanted()\n\n    # -- any thread",
            "\n    # -- any thread",
        ),
        Mutant(
            "The session of a cancelled call stays.",
            "            shielded(lambda: session.end(BY_CLIENT))\n",
            "            pass\n",
        ),
        Mutant(
            "The end that the application wanted is followed.",
            "wanted = session.is_lost and self._wants_next(session)",
            "wanted = self._wants_next(session)",
        ),
        Mutant(
            "Those who wait are not woken.",
            "        self.progress = progress\n        self._notifier.notify_all()\n",
            "        self.progress = progress\n",
        ),
    ),
)
