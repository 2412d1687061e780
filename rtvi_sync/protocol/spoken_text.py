"""A text and the part of it that the bot has spoken: a cursor follows the words that the bot reports. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left

import attrs

# The bot's speech differs from the text of its model in spaces, punctuation, markdown, and text that filters remove. So
# only letters and digits are compared, and up to this many of them may be skipped.
_SKIPPED = 40
# The limit of a text. Further text of the bot is ignored.
MAX_CHARACTERS = 100_000
# All characters for which `str.isalnum()` is false.
_BETWEEN_LETTERS = re.compile(r"[\W_]+")


def letters_of(text: str) -> str:
    """Return the letters and digits of a text, without case."""
    return _BETWEEN_LETTERS.sub("", text.casefold())


@attrs.define(eq=False, repr=False)
class SpokenText:
    """A growing text, and the position up to which the bot has spoken it.

    Attributes:
        text: The written text.
        letters: Its letters and digits, without case.
        spoken_letters: The number of spoken letters.
        unspoken_letters: The number of letters that are not meant to be spoken.
    """

    text: str = ""
    letters: str = ""
    spoken_letters: int = 0
    unspoken_letters: int = 0
    _located: int = 0  # the end of the last segment that was found, in letters

    def write(self, text: str) -> None:
        """Append to the text."""
        text = text[: MAX_CHARACTERS - len(self.text)]
        self.text += text
        self.letters += letters_of(text)

    def speak(self, words: str) -> bool:
        """Move the cursor over spoken words. Return False if they are not the next words."""
        letters = letters_of(words)
        start = self._find(letters, self.spoken_letters)
        if start is None:
            return False
        self.spoken_letters = start + len(letters)
        return True

    def locate(self, segment: str) -> int | None:
        """Return where a segment of the text starts, in letters. None if it does not follow the last segment."""
        letters = letters_of(segment)
        start = self._find(letters, self._located)
        if start is not None:
            self._located = start + len(letters)
        return start

    def speak_until(self, letters: int) -> None:
        """Move the cursor to this letter, unless it is there or further already."""
        self.spoken_letters = min(max(self.spoken_letters, letters), len(self.letters))

    def _find(self, letters: str, start: int) -> int | None:
        found = self.letters.find(letters, start, start + _SKIPPED + len(letters))
        return found if found >= 0 else None

    @property
    def due_letters(self) -> int:
        """Return how many letters are meant to be spoken, but were not yet."""
        return max(0, len(self.letters) - self.unspoken_letters - self.spoken_letters)

    @property
    def spoken(self) -> str:
        """Return the part of the text that was spoken, with the punctuation that ends it."""
        if not self.spoken_letters:
            return ""
        if self.spoken_letters >= len(self.letters):
            return self.text
        # The shortest prefix that has as many letters. Some letters, as "ß", become two without case.
        ends = range(len(self.text) + 1)
        end = bisect_left(ends, self.spoken_letters, key=lambda end: len(letters_of(self.text[:end])))
        while end < len(self.text) and not (self.text[end].isspace() or self.text[end].isalnum()):
            end += 1
        return self.text[:end]
