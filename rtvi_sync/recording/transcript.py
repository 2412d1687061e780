"""Turns the events of any bot into the lines of a transcript. Pure."""

from __future__ import annotations

import attrs

from rtvi_sync import Event, RTVIEvent

_USER = (RTVIEvent.USER_TRANSCRIPT, RTVIEvent.USER_INPUT)
_BOT_SENTENCES = (RTVIEvent.BOT_TRANSCRIPT, RTVIEvent.BOT_OUTPUT)
_BOT_WORDS = (RTVIEvent.BOT_LLM_TEXT, RTVIEvent.BOT_TTS_TEXT)

BOT_TEXTS = (*_BOT_SENTENCES, *_BOT_WORDS)
EVENTS = (*_USER, *BOT_TEXTS)

# Characters of a turn that are kept; what a bot says beyond them is not quoted.
_LONGEST_TURN = 100_000


@attrs.frozen(kw_only=True)
class Line:
    """What somebody said.

    Attributes:
        who: "you" or "bot".
        text: in one line or more.
        final: False if a later line replaces it.
    """

    who: str
    text: str
    final: bool = True


class Transcript:
    """Lines in the order in which they are known.

    Many bots tell the same words by several messages, and each generation of them by other ones. The first kind of
    message that brings finished lines is listened to, the others are not. A turn of the bot's without finished lines is
    quoted from its words when it is over.
    """

    def __init__(self) -> None:
        self._chosen: dict[str, RTVIEvent] = {}
        self._quoted = False
        self._segment: int | None = None
        self._words: dict[RTVIEvent, str] = {}

    def take(self, event: Event) -> Line | None:
        """What an event of the types in `EVENTS` adds."""
        if event.type in _USER:
            return self._user(event)
        if event.type in _BOT_SENTENCES:
            return self._bot(event)
        # Words of the language model bring their spaces along, words that are spoken do not.
        space = " " if event.type is RTVIEvent.BOT_TTS_TEXT else ""
        words = self._words.get(event.type, "")
        if len(words) < _LONGEST_TURN:
            self._words[event.type] = words + space + event.data.text
        return None

    @property
    def unfinished(self) -> Line | None:
        """What the bot has said so far in this turn, as long as it has said it in words only."""
        texts = [self._words[kind].strip() for kind in _BOT_WORDS if kind in self._words and not self._quoted]
        return Line(who="bot", text=texts[0], final=False) if texts else None

    def end_of_turn(self) -> Line | None:
        """What the bot has said in this turn, if it has said it in words only."""
        said = self.unfinished
        self._words, self._quoted = {}, False
        return attrs.evolve(said, final=True) if said is not None else None

    def _user(self, event: Event) -> Line | None:
        typed = getattr(event.data, "input_type", "transcription") != "transcription"
        if typed or self._chosen.setdefault("you", event.type) is not event.type:
            return None
        return Line(who="you", text=event.data.text.strip(), final=event.data.final)

    def _bot(self, event: Event) -> Line | None:
        if event.type is RTVIEvent.BOT_OUTPUT:
            if event.data.output_type == "word":
                return None
            # A segment is told again with each word that is spoken.
            told, self._segment = self._segment, event.data.segment_id
            if told is not None and told == self._segment:
                return None
        if self._chosen.setdefault("bot", event.type) is not event.type:
            return None
        self._quoted = True
        return Line(who="bot", text=event.data.text.strip())
