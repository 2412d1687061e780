"""Mutants of the cursor that follows the bot's speech."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/protocol/spoken_text.py",
    ("tests/protocol/test_spoken_text.py", "tests/conversation/test_turns.py", "tests/conversation/test_captures.py"),
    (
        Mutant(
            "A text has 100,001 characters.",
            "text[: MAX_CHARACTERS - len(self.text)]",
            "text[: MAX_CHARACTERS + 1 - len(self.text)]",
        ),
        Mutant("No letter may be skipped.", "_SKIPPED = 40", "_SKIPPED = 0"),
        Mutant("41 letters may be skipped.", "_SKIPPED = 40", "_SKIPPED = 41"),
        Mutant(
            "The cursor moves back.",
            "min(max(self.spoken_letters, letters), len(self.letters))",
            "min(letters, len(self.letters))",
        ),
        Mutant(
            "The cursor moves behind the text.",
            "min(max(self.spoken_letters, letters), len(self.letters))",
            "max(self.spoken_letters, letters)",
        ),
        Mutant(
            "A segment that is told again is found again.",
            "            self._located = start + len(letters)\n",
            "            pass\n",
        ),
        Mutant(
            "A letter that has two without case shifts the cursor.",
            "key=lambda end: len(letters_of(self.text[:end]))",
            "key=lambda end: sum(map(str.isalnum, self.text[:end]))",
        ),
        Mutant(
            "The punctuation that ends the spoken words is missing.",
            "while end < len(self.text) and not",
            "while False and not",
        ),
    ),
)
