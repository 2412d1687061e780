"""Transcript of a conversation, made from the events of any bot. Pure."""

from __future__ import annotations

import attrs

from rtvi_sync import Event, RTVIEvent

_USER = (RTVIEvent.USER_TRANSCRIPT, RTVIEvent.USER_INPUT)
_BOT_SENTENCES = (RTVIEvent.BOT_TRANSCRIPT, RTVIEvent.BOT_OUTPUT)
_BOT_WORDS = (RTVIEvent.BOT_LLM_TEXT, RTVIEvent.BOT_TTS_TEXT)

BOT_TEXTS = (*_BOT_SENTENCES, *_BOT_WORDS)
EVENTS = (*_USER, *BOT_TEXTS)

# Maximum number of characters kept of one turn; longer text is cut.
_LONGEST_TURN = 100_000


@attrs.frozen(kw_only=True)
class Line:
    """Words of one speaker.

    Attributes:
        who: "you" or "bot".
        text: the words, in one line or more.
        final: False if a later line replaces this one.
    """

    who: str
    text: str
    final: bool = True


class Transcript:
    """Lines in the order in which they become known.

    Many bots send the same words in messages of several types, and each generation of bots uses other types. The first
    type that brings complete lines is used, the others are ignored. If a turn of the bot has no complete lines, its
    line is joined from single words when the turn ends.
    """

    def __init__(self) -> None:
        self._chosen: dict[str, RTVIEvent] = {}
        self._has_sentences = False
        self._segment: int | None = None
        self._words: dict[RTVIEvent, str] = {}

    def add(self, event: Event) -> Line | None:
        """Add an event of a type in `EVENTS`, and return the line that it makes, if any."""
        if event.type in _USER:
            return self._user(event)
        if event.type in _BOT_SENTENCES:
            return self._bot(event)
        # Words of the LLM include their spaces, words of the TTS do not.
        space = " " if event.type is RTVIEvent.BOT_TTS_TEXT else ""
        words = self._words.get(event.type, "")
        if len(words) < _LONGEST_TURN:
            self._words[event.type] = words + space + event.data.text
        return None

    @property
    def unfinished(self) -> Line | None:
        """Return the bot's words so far in this turn, or None if it has sent complete lines or nothing."""
        texts = [self._words[kind].strip() for kind in _BOT_WORDS if kind in self._words and not self._has_sentences]
        return Line(who="bot", text=texts[0], final=False) if texts else None

    def end_turn(self) -> Line | None:
        """End the bot's turn, and return its line if it was sent as single words only."""
        line = self.unfinished
        self._words, self._has_sentences = {}, False
        return attrs.evolve(line, final=True) if line is not None else None

    def _user(self, event: Event) -> Line | None:
        typed = getattr(event.data, "input_type", "transcription") != "transcription"
        if typed or self._chosen.setdefault("you", event.type) is not event.type:
            return None
        return Line(who="you", text=event.data.text.strip(), final=event.data.final)

    def _bot(self, event: Event) -> Line | None:
        if event.type is RTVIEvent.BOT_OUTPUT:
            if event.data.output_type == "word":
                return None
            # The bot sends a segment again with each word that it speaks.
            previous, self._segment = self._segment, event.data.segment_id
            if previous is not None and previous == self._segment:
                return None
        if self._chosen.setdefault("bot", event.type) is not event.type:
            return None
        self._has_sentences = True
        return Line(who="bot", text=event.data.text.strip())
