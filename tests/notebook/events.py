"""Events of a bot, 0.1 s apart."""

from __future__ import annotations

import itertools
from typing import Any

from rtvi_sync import BotLLMTextData, BotOutputData, Event, RTVIEvent, UserInputData, UserTranscriptionData
from rtvi_sync.messages import SpokenProgressData


class Script:
    """Creates events whose times come from a counter."""

    def __init__(self) -> None:
        self._ticks = itertools.count(1)

    def event(self, name: str, data: Any = None) -> Event:
        """Return an event of any type."""
        return Event(type=RTVIEvent[name], data=data, received_at=next(self._ticks) / 10)

    def heard(self, text: str, *, final: bool = True) -> Event:
        """Return a transcript of the user's speech."""
        return self.event("USER_TRANSCRIPT", UserTranscriptionData(text=text, final=final))

    def typed(self, text: str) -> Event:
        """Return the acknowledgement of the user's typed text."""
        return self.event("USER_INPUT", UserInputData(text=text, input_type="chat", final=True))

    def token(self, text: str) -> Event:
        """Return a token of the bot's language model."""
        return self.event("BOT_LLM_TEXT", BotLLMTextData(text=text))

    def said(self, text: str) -> Event:
        """Return a transcript of the bot's speech."""
        return self.event("BOT_TRANSCRIPT", BotLLMTextData(text=text))

    def word(self, text: str) -> Event:
        """Return a spoken word."""
        return self.event("BOT_TTS_TEXT", BotLLMTextData(text=text))

    def progress(self, spoken: str, rest: str, segment: int = 1) -> Event:
        """Return a report of spoken progress."""
        progress = SpokenProgressData(accumulated_text=spoken, remaining_text=rest)
        data = BotOutputData(text=spoken + rest, output_type="sentence", segment_id=segment, spoken_progress=progress)
        return self.event("BOT_OUTPUT", data)
