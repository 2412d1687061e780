"""Mutants of a turn that may still change."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/protocol/open_turn.py",
    (
        "tests/protocol/test_open_turn.py",
        "tests/protocol/test_turns.py",
        "tests/protocol/test_turns_random.py",
        "tests/protocol/test_captures.py",
    ),
    (
        Mutant(
            "The blanks between the user's words do not count for their limit.",
            "len(each) + 1 for each in self.finals",
            "len(each) for each in self.finals",
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
            "for name, at in moments.items() if getattr(self.timings, name) is None}",
            "for name, at in moments.items()}",
        ),
        Mutant(
            "A question whose answer was taken back keeps the timings of that.",
            "self.timings = attrs.evolve(self.timings, **dict.fromkeys(_OF_ANSWER))",
            "pass",
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
