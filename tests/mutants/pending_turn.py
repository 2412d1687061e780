"""Mutants of a question that is asked later."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/client/pending_turn.py",
    ("tests/client/test_pending_turn.py",),
    (
        Mutant(
            "The result is waited for again by each call.",
            "        if self._turn is not None:\n            return self._turn\n",
            "",
            within="PendingTurn.result",
        ),
        Mutant(
            "Each call raises the same error object.",
            "        if self._error is not None:\n            raise fresh_copy(self._error)\n",
            "        if self._error is not None:\n            raise self._error\n",
        ),
        Mutant(
            "A cancelled question is asked.",
            'if self._decision.setdefault(0, "asked") == "cancelled":',
            "if False:",
        ),
        Mutant(
            "A second event asks again.",
            "event.type is self._after and not self._due and",
            "event.type is self._after and",
        ),
        Mutant(
            "The delay does not count.",
            "self._call_later(self._delay, self._ask)",
            "self._call_later(0.0, self._ask)",
        ),
        Mutant(
            "A cancelled question says its rest.",
            "            self._rest_if_speaking()\n            return False\n",
            "            return False\n",
            within="PendingTurn.cancel",
        ),
        Mutant(
            "Turns before the question are kept.",
            "            self._question.forget()\n",
            "            pass\n",
        ),
        Mutant(
            "The end of the session leaves the microphone taken.",
            "if is_end or (event.type",
            "if (event.type",
        ),
        Mutant(
            "A question that cannot be asked keeps its result waiting.",
            "            self._question.fail(error)\n            self._question.rest()\n",
            "            self._question.rest()\n",
            within="PendingTurn._ask",
        ),
        Mutant(
            "A question that is not heard keeps the microphone.",
            "if self._silenced or (was_said and self._was_said):",
            "if self._silenced:",
        ),
        Mutant(
            "A question that is cut counts as said.",
            "if self._question.was_cut:",
            "if False:",
        ),
        Mutant(
            "A time-out before the question was asked says that the answer is late.",
            'if self._decision.setdefault(0, "cancelled") == "asked":\n                if not',
            "if True:\n                if not",
        ),
        Mutant(
            "A question goes on to be said after result() has timed out.",
            "if not self._question.has_more_to_say:",
            "if True:",
        ),
    ),
)
