"""Mutants of the attribution of a bot's output to turns."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/protocol/attribution.py",
    (
        "tests/protocol/test_attribution.py",
        "tests/protocol/test_turns.py",
        "tests/protocol/test_turns_random.py",
        "tests/protocol/test_captures.py",
    ),
    (
        Mutant(
            "999 open questions are kept.",
            "if len(self.asked) > _MAX_ASKED and",
            "if len(self.asked) >= _MAX_ASKED and",
        ),
        Mutant("101 turns are kept.", "deque(maxlen=MAX_TURNS)", "deque(maxlen=MAX_TURNS + 1)"),
        Mutant(
            "Words of a new session's bot are taken for those of the bot before.",
            "        self.stale.clear()\n",
            "",
            within="Attribution.begin_session",
        ),
        Mutant(
            "A session begins as if its bot had been interrupted.",
            "        self.is_cut = False\n",
            "",
            within="Attribution.begin_session",
        ),
        Mutant(
            "A turn that is over ends again.",
            "        if turn.is_over:\n            return\n",
            "",
            within="Attribution.end",
        ),
        Mutant(
            "Late words of an answer that is over begin a turn.",
            "self.stale.append(turn.answer)",
            "pass",
        ),
        Mutant(
            "A turn that was still spoken stays so when it is over.",
            "        self.fading = None if turn is self.fading else self.fading\n",
            "",
            within="Attribution.end",
        ),
        Mutant(
            "A session that was lost in the middle of a speech leaves a complete turn.",
            "                if not lost:\n",
            "                if True:\n",
            within="Attribution.end_session",
        ),
        Mutant(
            "Of two answers that are still spoken the first never ends.",
            "            if self.fading is not None:\n",
            "            if False:\n",
            within="Attribution._leave",
        ),
        Mutant(
            "An answer whose rest is not spoken counts as complete when the next one begins.",
            "is_cut = answer.is_under_way or answer.owes_run or answer.owes_speech",
            "is_cut = answer.is_under_way or answer.owes_run",
        ),
        Mutant(
            "A question that the bot has skipped stays open.",
            'self.end(skipped, at, "interrupted")',
            "pass",
        ),
        Mutant(
            "A user who speaks is skipped by a text.",
            "if not skipped.is_speaking:",
            "if True:",
        ),
        Mutant(
            "An answer is not complete at the end of its quiet time, only behind it.",
            "at >= turn.last_sign + self.patience",
            "at > turn.last_sign + self.patience",
        ),
        Mutant(
            "A question is not announced by the interruption that it causes.",
            "asked.is_announced = True",
            "pass",
        ),
        Mutant(
            "Speech that a text has cut at once counts as whole.",
            "at - (turn.timings.bot_started_speaking or at) < _CUT_AT_ONCE",
            "False",
        ),
        Mutant(
            "A turn is not over when it is due, only later.",
            "if turn is None or now < turn.last_sign + self._patience_with(turn):",
            "if turn is None or now <= turn.last_sign + self._patience_with(turn):",
        ),
        Mutant(
            "Each question waits for an acknowledgement that this bot never sends.",
            "self.bot.may_acknowledge = False",
            "pass",
        ),
        Mutant(
            "Each answer waits for the voice of a bot without one.",
            "            self.bot.has_voice = answer.lacks_speech\n",
            "            pass\n",
        ),
        Mutant(
            "A question that was never answered is complete.",
            'self.end(turn, now, "failed")',
            'self.end(turn, now, "complete")',
            within="Attribution.pass_time",
        ),
        Mutant(
            "A question whose answer was taken back comes behind later ones.",
            "self.asked.put_first(turn)",
            "self.asked.add(turn)",
            within="Attribution.take_back",
        ),
        Mutant(
            "The session's end leaves an answer complete whose model should run again.",
            "if answer.is_empty or answer.owes_run or answer.is_under_way:",
            "if answer.is_empty or answer.is_under_way:",
        ),
        Mutant(
            "An old bot's speech that the user may have cut counts as whole.",
            "return not self.bot.tells_interruption and any(",
            "return False and any(",
        ),
        Mutant(
            "Of two open turns the one that ends last is waited for first.",
            "return min(turn, fading,",
            "return max(turn, fading,",
        ),
        Mutant(
            "A turn that begins and ends by one message is reported twice.",
            "for turn in dict.fromkeys(changed)]",
            "for turn in changed]",
        ),
        Mutant(
            "Changes are reported again by the next call.",
            "changed, self._changed = self._changed, []",
            "changed = self._changed",
        ),
        Mutant(
            "An answer that was assumed to be complete does not say so.",
            'turn.assumed = f"waited {wait[0]:g} s {wait[1]}"',
            "pass",
        ),
        Mutant(
            "A bot of exactly 2.2 is not expected to acknowledge typed texts.",
            "version >= _TELLS_USER_INPUT",
            "version > _TELLS_USER_INPUT",
        ),
    ),
)
