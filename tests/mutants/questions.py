"""Mutants of the user's questions that the bot has not begun to answer."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/protocol/questions.py",
    (
        "tests/protocol/test_questions.py",
        "tests/protocol/test_turns.py",
        "tests/protocol/test_turns_random.py",
        "tests/protocol/test_captures.py",
    ),
    (
        Mutant(
            "A question that is put first is asked twice.",
            "        self.remove(turn)\n",
            "",
            within="Questions.put_first",
        ),
        Mutant(
            "Further speech belongs to the first question.",
            "last = self._turns[-1] if self._turns else None",
            "last = self._turns[0] if self._turns else None",
        ),
        Mutant(
            "A user who speaks again after an error is not waited for.",
            "(first.told_llm_text or not first.is_speaking)",
            "True",
        ),
        Mutant(
            "The same text again is taken for the first one.",
            'turn.modality == "text" and not turn.told_llm_text]',
            'turn.modality == "text"]',
        ),
        Mutant(
            "Of texts that the bot joins the first one counts as the last.",
            "for turn in reversed(typed)",
            "for turn in typed",
        ),
        Mutant(
            "A question is acknowledged by one of two messages.",
            "not (misses_input or misses_text)",
            "not (misses_input and misses_text)",
        ),
        Mutant(
            "A run of the model answers a user who still speaks, though the bot would tell that it has the words.",
            "(by_model and not bot.tells_spoken)",
            "by_model",
        ),
        Mutant(
            "Any two texts without letters are the same.",
            "return letters_of(text) or text.strip()",
            "return letters_of(text)",
        ),
        Mutant(
            "A question skips itself.",
            "turns[: turns.index(turn)]",
            "turns[: turns.index(turn) + 1]",
        ),
        Mutant(
            "A file waits for an acknowledgement that no bot sends.",
            "self._bot.tells_user_input is not False and not turn.is_file",
            "self._bot.tells_user_input is not False",
        ),
    ),
)
