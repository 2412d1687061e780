"""Mutants of the tracker of turns."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/protocol/turns.py",
    ("tests/protocol/test_turns.py", "tests/protocol/test_turns_random.py", "tests/protocol/test_captures.py"),
    (
        Mutant(
            "A turn keeps 21 errors.",
            "if len(turn.errors) < _MAX_ERRORS:",
            "if len(turn.errors) <= _MAX_ERRORS:",
        ),
        Mutant(
            "A turn keeps 51 measurements.",
            "len(turn.metrics) < _MAX_METRICS",
            "len(turn.metrics) <= _MAX_METRICS",
        ),
        Mutant(
            "Measurements of any size are kept.",
            " and turn.answer.keeps(attrs.asdict(data)):",
            ":",
            within="TurnTracker._measured",
        ),
        Mutant(
            "A session begins with the early speech of the one before.",
            "self._speaks_early = False",
            "pass",
            within="TurnTracker.begin_session",
        ),
        Mutant(
            "An interruption leaves early speech announced.",
            "self._speaks_early = self._speaks_early and self._turns.user_is_muted",
            "pass",
        ),
        Mutant(
            "Speech that was announced early and has stopped still counts as announced.",
            "self._speaks_early = False",
            "pass",
            within="TurnTracker._bot_stopped",
        ),
        Mutant(
            "Speech after a run that follows an interruption is taken for that of before.",
            "self._turns.is_cut = False",
            "pass",
            within="TurnTracker._run_started",
        ),
        Mutant(
            "A blank counts as the first token.",
            "if data.text.strip():",
            "if True:",
            within="TurnTracker._wrote",
        ),
        Mutant(
            "A late transcript that is not final begins a turn.",
            "if not final and self._turns.has_just_heard:",
            "if final and self._turns.has_just_heard:",
        ),
        Mutant(
            "Speech that resumes counts as told to the model already.",
            "turn.is_speaking, turn.told_llm_text = True, False",
            "turn.is_speaking = True",
        ),
        Mutant(
            "A user who has stopped is still taken to speak.",
            "turn.is_speaking = False",
            "pass",
            within="TurnTracker._user_stopped",
        ),
        Mutant(
            "Words that the bot reports by two messages are noted twice.",
            "if not self._turns.bot.tells_user_input:",
            "if True:",
            within="TurnTracker._user_transcript",
        ),
        Mutant(
            "Spoken words that the bot reports by two messages are noted twice.",
            "if not self._turns.bot.tells_output:",
            "if True:",
            within="TurnTracker._tts_text",
        ),
        Mutant(
            "The turn of a message that could not be sent is complete.",
            'self._turns.end(turn, at, "failed")',
            'self._turns.end(turn, at, "complete")',
            within="TurnTracker.unsent",
        ),
        Mutant(
            "A call that is told of twice is twice in the timeline.",
            "is_new = call_id is not None and not turn.answer.has_call(call_id)",
            "is_new = call_id is not None",
        ),
        Mutant(
            "The end of a call of an answer that is over is noted in the next turn.",
            "                return\n        turn = self._turns.answered",
            "                break\n        turn = self._turns.answered",
            within="TurnTracker._returned",
        ),
        Mutant(
            "Speech that goes on from one answer to the next is not the next one's.",
            "            turn.answer.start_speaking()\n",
            "",
            within="TurnTracker._segment",
        ),
        Mutant(
            "A segment of what was cut begins a turn.",
            "if self._turns.is_cut or any(",
            "if any(",
            within="TurnTracker._segment",
        ),
        Mutant(
            "Words of what was cut begin a turn.",
            "if self._turns.is_cut or any(",
            "if any(",
            within="TurnTracker._words",
        ),
        Mutant(
            "The timeline does not quote a speech after which the bot speaks again.",
            "turn.quote_speech()  # of the speech before",
            "pass",
        ),
        Mutant(
            "Speech of what was cut begins a turn.",
            "if turns.is_cut and turns.asked and has_nothing:",
            "if False:",
        ),
        Mutant(
            "The end of speech counts as acknowledged though the bot tells what its model gets.",
            "if not self._turns.bot.tells_spoken:",
            "if True:",
            within="TurnTracker._user_stopped",
        ),
        Mutant(
            "A session that was lost counts as ended in order.",
            "self._turns.end_session(at, lost=lost)",
            "self._turns.end_session(at, lost=False)",
        ),
        Mutant(
            "An acknowledged text does not count as one that the bot has.",
            "question.told_input = True",
            "pass",
        ),
        Mutant(
            "An error is no sign of the bot.",
            "        turn.last_sign = at\n",
            "",
            within="TurnTracker._failed",
        ),
        Mutant(
            "A large error is kept whole, beyond the million characters of a turn.",
            "turn.errors.append(data if is_kept else",
            "turn.errors.append(data if True else",
        ),
        Mutant(
            "The result that the client sends does not end the call.",
            "turn.answer.end_call(at, call_id, result=result)",
            "pass",
        ),
    ),
)
