"""Mutants of the tracker of turns."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/conversation/tracker.py",
    (
        "tests/conversation/test_tracker.py",
        "tests/conversation/test_turns.py",
        "tests/conversation/test_turns_random.py",
        "tests/conversation/test_captures.py",
    ),
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
            within="TurnTracker.start_session",
        ),
        Mutant(
            "An interruption leaves early speech announced.",
            "self._speaks_early = self._speaks_early and self._user_is_muted",
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
            "self._is_cut = False",
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
            "if not final and last is not None and",
            "if final and last is not None and",
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
            "if not self._bot.tells_user_input:",
            "if True:",
            within="TurnTracker._user_transcript",
        ),
        Mutant(
            "Spoken words that the bot reports by two messages are noted twice.",
            "if not self._bot.tells_output:",
            "if True:",
            within="TurnTracker._tts_text",
        ),
        Mutant(
            "The turn of a message that could not be sent is complete.",
            'self._end(turn, at, "failed")',
            'self._end(turn, at, "complete")',
            within="TurnTracker.unsent",
        ),
        Mutant(
            "A call that is told of twice is twice in the timeline.",
            "is_new = call_id is not None and not turn.answer.has_call(call_id)",
            "is_new = call_id is not None",
        ),
        Mutant(
            "The end of a call of an answer that is over is noted in the next turn.",
            "                return\n        turn = self._answered",
            "                break\n        turn = self._answered",
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
            "if self._is_cut or any(",
            "if any(",
            within="TurnTracker._segment",
        ),
        Mutant(
            "Words of what was cut begin a turn.",
            "if self._is_cut or any(",
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
            "if self._is_cut and self._asked and has_nothing:",
            "if False:",
        ),
        Mutant(
            "The end of speech counts as acknowledged though the bot tells what its model gets.",
            "if not self._bot.tells_spoken:",
            "if True:",
            within="TurnTracker._user_stopped",
        ),
        Mutant(
            "A session that was lost counts as ended in order.",
            "self._status_at_end(turn, lost=lost)",
            "self._status_at_end(turn, lost=False)",
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
        Mutant(
            "999 open questions are kept.",
            "if len(self._asked) > _MAX_ASKED and",
            "if len(self._asked) >= _MAX_ASKED and",
        ),
        Mutant("101 turns are kept.", "deque(maxlen=MAX_TURNS)", "deque(maxlen=MAX_TURNS + 1)"),
        Mutant(
            "Words of a new session's bot are taken for those of the bot before.",
            "        self._stale.clear()\n",
            "",
            within="TurnTracker.start_session",
        ),
        Mutant(
            "A session begins as if its bot had been interrupted.",
            "        self._is_cut = False\n",
            "",
            within="TurnTracker.start_session",
        ),
        Mutant(
            "Late words of an answer that is over begin a turn.",
            "self._stale.append(turn.answer)",
            "pass",
        ),
        Mutant(
            "A turn that was still spoken stays so when it is over.",
            "        self._fading = None if turn is self._fading else self._fading\n",
            "",
            within="TurnTracker._end",
        ),
        Mutant(
            "A session that was lost in the middle of a speech leaves a complete turn.",
            "                if not lost:\n",
            "                if True:\n",
            within="TurnTracker.end_session",
        ),
        Mutant(
            "Of two answers that are still spoken the first never ends.",
            "            if self._fading is not None:\n",
            "            if False:\n",
            within="TurnTracker._leave",
        ),
        Mutant(
            "An answer whose rest is not spoken counts as complete when the next one begins.",
            "is_cut = answer.is_under_way or answer.owes_run or answer.owes_speech",
            "is_cut = answer.is_under_way or answer.owes_run",
        ),
        Mutant(
            "A question that the bot has skipped stays open.",
            'self._end(skipped, at, "interrupted")',
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
            'at - turn.moments.get("bot_started_speaking", at) < _CUT_AT_ONCE',
            "False",
        ),
        Mutant(
            "A turn is not over when it is due, only later.",
            "now >= turn.last_sign + self._patience_with(turn)",
            "now > turn.last_sign + self._patience_with(turn)",
        ),
        Mutant(
            "Each question waits for an acknowledgement that this bot never sends.",
            "self._bot.may_acknowledge = False",
            "pass",
        ),
        Mutant(
            "Each answer waits for the voice of a bot without one.",
            "            self._bot.has_voice = answer.lacks_speech\n",
            "            pass\n",
        ),
        Mutant(
            "A question that was never answered is complete.",
            'self._end(turn, now, "failed")',
            'self._end(turn, now, "complete")',
            within="TurnTracker._stop_waiting",
        ),
        Mutant(
            "A question whose answer was taken back comes behind later ones.",
            "self._asked.put_first(turn)",
            "self._asked.add(turn)",
            within="TurnTracker._take_back",
        ),
        Mutant(
            "The session's end leaves an answer complete whose model should run again.",
            "if answer.is_empty or answer.owes_run or answer.is_under_way:",
            "if answer.is_empty or answer.is_under_way:",
        ),
        Mutant(
            "An old bot's speech that the user may have cut counts as whole.",
            "return not self._bot.tells_interruption and any(",
            "return False and any(",
        ),
        Mutant(
            "Of two open turns the one that ends last is waited for first.",
            "return min(turn, fading,",
            "return max(turn, fading,",
        ),
        Mutant(
            "A turn that begins and ends by one message is reported twice.",
            "return [*dict.fromkeys(changed)]",
            "return changed",
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
        Mutant(
            "A question that is put first is asked twice.",
            "        self.remove(turn)\n",
            "",
            within="Questions.put_first",
        ),
        Mutant(
            "Further speech belongs to the first question.",
            "last = self.turns[-1] if self.turns else None",
            "last = self.turns[0] if self.turns else None",
            within="Questions.in_speech",
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
        Mutant(
            "The blanks between the user's words do not count for their limit.",
            "self.room -= len(text) + 1",
            "self.room -= len(text)",
        ),
        Mutant(
            "The last words of the user are noted twice.",
            'self.partial = "" if final else text',
            "self.partial = text",
        ),
        Mutant(
            "A timeline has 501 entries.",
            "if len(self.timeline) < _MAX_TIMELINE:",
            "if len(self.timeline) <= _MAX_TIMELINE:",
        ),
        Mutant(
            "An entry of the timeline has any length.",
            "TimelineEntry(at, who, kind, text[:_MAX_ENTRY])",
            "TimelineEntry(at, who, kind, text)",
        ),
        Mutant(
            "A quoted speech has any length.",
            "self.answer.last_speech[:_MAX_ENTRY]",
            "self.answer.last_speech",
        ),
        Mutant(
            "The last moment of a kind counts as the first.",
            "self.moments = moments | self.moments",
            "self.moments = self.moments | moments",
        ),
        Mutant(
            "A question whose answer was taken back keeps the timings of that.",
            "self.moments.pop(name)",
            "self.moments[name]",
        ),
        Mutant(
            "A question whose answer was taken back keeps the errors of that.",
            "other.errors, self.errors = self.errors, []",
            "other.errors = self.errors",
        ),
        Mutant(
            "A question whose answer was taken back keeps the timeline of that.",
            'self.timeline = [entry for entry in self.timeline if entry.who != "bot"]',
            "pass",
        ),
        Mutant(
            "The spoken text of a complete turn lacks what filters take out.",
            'spoken_text=text if self.status == "complete" else answer.spoken_text,',
            "spoken_text=answer.spoken_text,",
        ),
        Mutant(
            "A function's result that is no JSON raises.",
            "except (TypeError, ValueError, RecursionError):",
            "except TypeError:",
        ),
    ),
)
