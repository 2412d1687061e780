"""Mutants of a question to the bot."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/client/question.py",
    ("tests/client/test_question.py", "tests/client/test_turns.py", "tests/client/test_pending_turn.py"),
    (
        Mutant(
            "A question for text only may be asked aloud.",
            "return ways if audio_response else ways[:1]",
            "return ways",
        ),
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
            tests=("tests/client/test_question.py::test_an_action_that_is_refused",),
        ),
        Mutant(
            "The microphone does not speak again after a question.",
            "            self._session.media.remove(insertion)\n",
            "            pass\n",
        ),
        Mutant(
            "A question that was said still claims turns.",
            "self._conversation.speaking.discard(self)",
            "pass",
            tests=("tests/client/test_question.py::test_what_the_user_says_after_a_question_is_another_turn",),
        ),
        Mutant(
            "Turns before a spoken question may be its own.",
            "turn.number >= self._first",
            "True",
            within="SpokenQuestion.may_be",
            tests=("tests/client/test_question.py::test_a_turn_that_a_spoken_question_interrupts",),
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
            tests=("tests/client/test_question.py::test_the_answer_to_the_first_part_of_a_question_is_not_its_answer",),
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
            "What came before the question may answer it.",
            "self._stream.clear()",
            "pass",
            within="Question.forget",
        ),
    ),
)
