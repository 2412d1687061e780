"""Mutants of the expectations of a bot's next actions."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/conversation/expect.py",
    ("tests/conversation/test_expect.py",),
    (
        Mutant(
            "A block notes what the block before has noted.",
            "self._events, self._next, self._met_calls = [], 0, set()",
            "self._next, self._met_calls = 0, set()",
        ),
        Mutant(
            "A call that was met in a block before is not met again.",
            "self._events, self._next, self._met_calls = [], 0, set()",
            "self._events, self._next = [], 0",
        ),
        Mutant("check_from is ignored.", 'if check_from == "start":', "if False:"),
        Mutant(
            "An event that came after the limit counts.",
            "if event.received_at > self._began + seconds:",
            "if False:",
        ),
        Mutant(
            "A call that is announced by two messages counts twice.",
            "event.type not in _CALLS_BY_ID or event.data.tool_call_id in self._met_calls:",
            "event.type not in _CALLS_BY_ID:",
        ),
        Mutant(
            "Each call looks from the beginning of the block.",
            "self._next, self._since = position, max(self._since, event.received_at)",
            "self._since = max(self._since, event.received_at)",
        ),
        Mutant(
            "The limit counts from the beginning of the block.",
            "self._next, self._since = position, max(self._since, event.received_at)",
            "self._next = position",
            tests=("tests/conversation/test_expect.py::test_where_the_limit_counts_from",),
        ),
        Mutant(
            "The limit does not count from the last message sent.",
            "return max(self._since, self._conversation.sent_at)",
            "return self._since",
        ),
        Mutant(
            "An absence looks again at what it has seen.",
            "self._next, self._since = position, max(self._since, monotonic())",
            "pass",
        ),
        Mutant(
            "An absence counts what came after its time.",
            ") is not None and event.received_at <= until:",
            ") is not None:",
        ),
        Mutant(
            "Words of an interrupted answer count as said.",
            "elif event.type is _E.BOT_TTS_TEXT and not self.is_cut:",
            "elif event.type is _E.BOT_TTS_TEXT:",
        ),
        Mutant(
            "Segments of an interrupted answer count as said.",
            "elif event.type is _E.BOT_OUTPUT and not self.is_cut:",
            "elif event.type is _E.BOT_OUTPUT:",
        ),
        Mutant(
            "An interruption never ends.",
            "self.is_cut = event.type is _E.BOT_INTERRUPTED\n",
            "self.is_cut = self.is_cut or event.type is _E.BOT_INTERRUPTED\n",
        ),
        Mutant(
            "What a bot announces to say counts as said.",
            'elif data.spoken_status != "new" and data.spoken_progress is not None:',
            "elif data.spoken_progress is not None:",
        ),
        Mutant(
            "An answer's end is more, though its speech was interrupted.",
            "ends_speech = event.type is _E.BOT_STOPPED_SPEAKING and not said.is_cut",
            "ends_speech = event.type is _E.BOT_STOPPED_SPEAKING",
        ),
        Mutant(
            "The call's later messages are more.",
            "is_announced = event.data.tool_call_id in calls or announced > len(calls)",
            "is_announced = event.data.tool_call_id in calls",
        ),
        Mutant(
            "A second call is not more.",
            "                announced += 1\n                return announced > len(calls)\n",
            "                announced += 1\n                return False\n",
        ),
        Mutant(
            "A bot that is speaking when no_more() begins does nothing more.",
            "if speech is _E.BOT_STARTED_SPEAKING:",
            "if False:",
        ),
        Mutant(
            "A bot that speaks since before the block does nothing more.",
            "if speech is None and self._speaks_since_before():",
            "if False:",
        ),
        Mutant(
            "The session's end is told as a time-out.",
            "                if ended is not None:\n",
            "                if False:\n",
        ),
        Mutant(
            "A turn of before the block is shown.",
            "if turn.is_open or _ended(turn) >= self._entered]",
            "]",
        ),
    ),
)
