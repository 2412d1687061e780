"""Mutants of a question to the bot."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/conversation/ask.py",
    ("tests/conversation/test_ask.py", "tests/client/test_turns.py", "tests/conversation/test_pending_turn.py"),
    (
        Mutant(
            "An error of the session's end has no turn.",
            "                error.turn = self.turn_so_far()\n",
            "",
            within="Question.answer",
        ),
        Mutant(
            "A failed turn is returned though the session lives.",
            'if turn.status != "failed" and not ended_here:',
            "if not ended_here:",
        ),
        Mutant(
            "The answer that was under way when the application disconnected counts as complete.",
            'if turn.status != "failed" and not ended_here:',
            'if turn.status != "failed":',
        ),
        Mutant(
            "A turn with text and an error raises.",
            'if turn.status != "failed" or not turn.errors or not is_empty:',
            'if turn.status != "failed" or not turn.errors:',
        ),
        Mutant(
            "The bot's error is never fatal.",
            "fatal=any(each.fatal for each in turn.errors)",
            "fatal=False",
        ),
        Mutant(
            "A later answer is one that a call has returned.",
            "            self._conversation.asked.discard(self._message_id)\n",
            "            pass\n",
            within="TypedQuestion.close",
        ),
        Mutant(
            "The refusal of another message refuses the question.",
            "if refusal is None or refusal.id != self._message_id:",
            "if refusal is None:",
        ),
        Mutant(
            "The turn of a refused question stays open.",
            'follower.unsent(RTVIMessage("send-text", id=self._message_id))',
            "pass",
        ),
        Mutant(
            "The turn of a refused action stays open.",
            "session.follower.unsent(message)",
            "pass",
            tests=("tests/conversation/test_ask.py::test_an_action_that_is_refused",),
        ),
        Mutant(
            "The microphone does not speak again after a question.",
            "            self._session.media.mic.remove(sender)\n",
            "            pass\n",
        ),
        Mutant(
            "A question that was said still claims turns.",
            "self._conversation.speaking.discard(self)",
            "pass",
            tests=("tests/conversation/test_ask.py::test_what_the_user_says_after_a_question_is_another_turn",),
        ),
        Mutant(
            "Turns before a spoken question may be its own.",
            "turn.number >= self._first",
            "True",
            within="SpokenQuestion.may_be",
            tests=("tests/conversation/test_ask.py::test_a_turn_that_a_spoken_question_interrupts",),
        ),
        Mutant(
            "The turn that the question itself has interrupted is its answer.",
            'if turn.status == "interrupted" and self._goes_on_after(turn):',
            "if False:",
        ),
        Mutant(
            "The answer to the first part of a question counts as the answer.",
            "return heard_end is not None and heard_end >= self._voice_end - _SOFT_END",
            "return heard_end is not None",
            tests=(
                "tests/conversation/test_ask.py::test_the_answer_to_the_first_part_of_a_question_is_not_its_answer",
            ),
        ),
        Mutant(
            "A source that fails in the middle keeps the call waiting.",
            "self._run.when_over(self._check_all_sent)",
            "pass",
        ),
        Mutant(
            "A bot that has heard nothing is not told from one that is slow.",
            'error.kind = "not_heard"',
            "pass",
        ),
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
            "            self._silence()\n            return False\n",
            "            return False\n",
            within="PendingTurn.cancel",
        ),
        Mutant(
            "Turns before the question are kept.",
            "                question.stream.clear()",
            "                pass",
        ),
        Mutant(
            "The end of the session leaves the microphone taken.",
            "is_end = event.type is RTVIEvent.DISCONNECTED",
            "is_end = False",
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
            "if not self._question.all_sent:",
            "if False:",
        ),
        Mutant(
            "A time-out before the question was asked says that the answer is late.",
            'if self._decision.setdefault(0, "cancelled") == "asked":\n                if self',
            "if True:\n                if self",
        ),
        Mutant(
            "A question goes on to be said after result() has timed out.",
            "if self._question.all_sent or not self._question.is_speaking:",
            "if True:",
        ),
    ),
)
