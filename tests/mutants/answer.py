"""Mutants of one answer of a bot."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/conversation/answer.py",
    (
        "tests/conversation/test_answer.py",
        "tests/conversation/test_turns.py",
        "tests/conversation/test_turns_random.py",
        "tests/conversation/test_captures.py",
    ),
    (
        Mutant(
            "Data that is refused takes the room of later data.",
            "self._data_room = room if room >= 0 else self._data_room",
            "self._data_room = room",
        ),
        Mutant("A turn keeps ten times the data.", "_MAX_DATA = 1_000_000", "_MAX_DATA = 10_000_000"),
        Mutant(
            "An answer keeps 101 calls.", "elif len(self._calls) < _MAX_CALLS:", "elif len(self._calls) <= _MAX_CALLS:"
        ),
        Mutant(
            "A full answer still grows.",
            "text = text[: max(0, self._room)]",
            "text = text[: self._room]",
        ),
        Mutant(
            "The blanks between the parts do not count for the limit of the text.",
            "            self._room -= 1\n",
            "",
            within="Answer._add_part",
        ),
        Mutant(
            "An error does not explain a run that says nothing.",
            "(is_empty and not (called or self._has_failed))",
            "(is_empty and not called)",
        ),
        Mutant(
            "A run whose text had no room counts as one that says nothing.",
            "is_empty = (run is None or not run.letters) and self._room > 0",
            "is_empty = run is None or not run.letters",
        ),
        Mutant(
            "A second end of a run counts as a run that says nothing.",
            "        if not self.running:\n            return\n",
            "",
            within="Answer.stop_run",
        ),
        Mutant(
            "A second end of a call moves its time.",
            "stopped=call.stopped or at,",
            "stopped=at,",
        ),
        Mutant(
            "A second end of a call announces another run of the model.",
            "        if call.stopped is None:\n",
            "        if True:\n",
            within="Answer.end_call",
        ),
        Mutant(
            "The model is not expected after a function that took too long.",
            "self.owes_run = not cancelled or self._bot.tells_interruption",
            "self.owes_run = not cancelled",
        ),
        Mutant(
            "An answer with a cancelled call counts as cut though the bot speaks again.",
            "self._unheard = self.is_cancelled = False",
            "self._unheard = False",
        ),
        Mutant(
            "Words count as unheard though the bot speaks.",
            "self._unheard = self.is_cancelled = False",
            "self.is_cancelled = False",
        ),
        Mutant(
            "The quote of a speech has the first word of the next one.",
            "        self._speech_end = len(self.spoken_text)\n",
            "",
        ),
        Mutant(
            "A speech that may be cut shows that the bot reports no words.",
            " and self.text and not may_be_cut:",
            " and self.text:",
        ),
        Mutant(
            "The progress of a later segment counts from the beginning of the text.",
            "part.speak_until(start + reached)",
            "part.speak_until(reached)",
        ),
        Mutant(
            "An error leaves a run expected.",
            "        if self.is_empty:\n            self.owes_run = False\n",
            "",
            within="Answer.fail",
        ),
        Mutant(
            "An answer is complete before its last speech is.",
            "(is_unheard or self.spoken_share < _SPOKEN)",
            "(self.spoken_share < _SPOKEN)",
        ),
        Mutant(
            "An answer that is only an error is waited for as if it were none.",
            "if self.is_empty and not self._has_failed:",
            "if self.is_empty:",
            within="Answer.wait",
        ),
        Mutant(
            "A bot that reports words and, once, a whole sentence counts as one that reports sentences.",
            "self._by_words = self._by_words or by_words",
            "self._by_words = by_words",
        ),
        Mutant(
            "An answer counts as cut though the model runs again.",
            "self.running, self.owes_run, self.is_cancelled = True, False, False",
            "self.running, self.owes_run = True, False",
        ),
        Mutant(
            "A later message without arguments removes those of a call.",
            "arguments=arguments if arguments is not None else known.arguments,",
            "arguments=arguments,",
        ),
        Mutant("An answer counts as spoken at its half.", "_SPOKEN = 0.98", "_SPOKEN = 0.5"),
        Mutant(
            "What is spoken without the model comes behind the text that is still to be spoken.",
            "while index and self._parts[index - 1].is_pending:",
            "while False:",
        ),
        Mutant(
            "A bot of exactly 2.0 is not expected to tell of interruptions.",
            "self.version >= _TELLS_INTERRUPTION",
            "self.version > _TELLS_INTERRUPTION",
        ),
        Mutant(
            "The last speech ends nothing that is spoken by a bot without words.",
            "part.speak_until(len(part.letters))",
            "pass",
            within="Answer.stop_speaking",
        ),
        Mutant(
            "A call that is announced without an id is listed again when its id is told.",
            "if call.tool_call_id is None and (name is None or call.function_name in (None, name)):",
            "if False:",
        ),
    ),
)
