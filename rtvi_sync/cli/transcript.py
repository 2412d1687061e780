"""Turns the events of any bot into the lines of a transcript. Pure."""

from __future__ import annotations

import attrs

from rtvi_sync import Event, RTVIEvent

_USER = (RTVIEvent.USER_TRANSCRIPT, RTVIEvent.USER_INPUT)
_BOT_SENTENCES = (RTVIEvent.BOT_TRANSCRIPT, RTVIEvent.BOT_OUTPUT)
_BOT_WORDS = (RTVIEvent.BOT_LLM_TEXT, RTVIEvent.BOT_TTS_TEXT)

EVENTS = (*_USER, *_BOT_SENTENCES, *_BOT_WORDS)


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

    Attributes:
        finals: when finished lines of the user's arrived, in monotonic seconds.
        texts: when text of the bot's arrived.
    """

    def __init__(self) -> None:
        self.finals: list[float] = []
        self.texts: list[float] = []
        self._chosen: dict[str, RTVIEvent] = {}
        self._quoted = False
        self._segment: int | None = None
        self._words: dict[RTVIEvent, str] = {}

    def take(self, event: Event) -> Line | None:
        """What an event of the types in `EVENTS` adds."""
        if event.type in _USER:
            return self._user(event)
        self.texts.append(event.received_at)
        if event.type in _BOT_SENTENCES:
            return self._bot(event)
        # Words of the language model bring their spaces along, words that are spoken do not.
        space = " " if event.type is RTVIEvent.BOT_TTS_TEXT else ""
        self._words[event.type] = self._words.get(event.type, "") + space + event.data.text
        return None

    def end_of_turn(self) -> Line | None:
        """What the bot has said in this turn, if it has said it in words only."""
        texts = [self._words[kind].strip() for kind in _BOT_WORDS if kind in self._words and not self._quoted]
        self._words, self._quoted = {}, False
        return Line(who="bot", text=texts[0]) if texts else None

    def _user(self, event: Event) -> Line | None:
        typed = getattr(event.data, "input_type", "transcription") != "transcription"
        if typed or self._chosen.setdefault("you", event.type) is not event.type:
            return None
        if event.data.final:
            self.finals.append(event.received_at)
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
