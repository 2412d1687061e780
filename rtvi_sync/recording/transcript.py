"""Turns the records of a conversation into lines of text. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import Final, Literal

import attrs

from rtvi_sync import RTVIEvent
from rtvi_sync.conversation.record import TurnRecord

from ..protocol.text import LONGEST_LINE

# Longer lines are divided, which leaves room for the speaker's label.
_LONGEST = LONGEST_LINE - 100

#: The line for a speaker whose words are unknown.
SPEAKS: Final = "(speaks)"

#: Events that may change the lines.
EVENTS = (
    RTVIEvent.TURN_STARTED,
    RTVIEvent.TURN_ENDED,
    RTVIEvent.USER_INPUT,
    RTVIEvent.USER_TRANSCRIPT,
    RTVIEvent.USER_LLM_TEXT,
    RTVIEvent.BOT_LLM_STARTED,
    RTVIEvent.BOT_LLM_TEXT,
    RTVIEvent.BOT_LLM_STOPPED,
    RTVIEvent.BOT_OUTPUT,
    RTVIEvent.BOT_TTS_TEXT,
    RTVIEvent.BOT_STARTED_SPEAKING,
)


@attrs.frozen
class Line:
    """Words of one speaker.

    Attributes:
        who: "you" or "bot".
        text: The words.
    """

    who: Literal["you", "bot"]
    text: str


@attrs.define
class _Shown:
    """The parts of a turn that were already returned."""

    user: bool = False
    bot: bool = False  # True once a line says that the bot speaks, without its words
    bot_characters: int = 0


class Transcript:
    """Lines in the order in which they become final: the user's words, then the bot's answer.

    Typed text makes no line, because the terminal already shows it. If the transport carries no messages, a line says
    who speaks.

    Attributes:
        unfinished: Line that may still change; None if there is none.
    """

    def __init__(self) -> None:
        self.unfinished: Line | None = None
        self._shown: dict[int, _Shown] = {}  # by the number of the turn

    def update(self, turns: Iterable[TurnRecord], *, flush: bool = False) -> list[Line]:
        """Return the lines that became final since the last call.

        Args:
            turns: Latest turns in order, including open ones.
            flush: True to return the bot's words so far as a line, although its turn is still open.
        """
        before, self._shown, self.unfinished = self._shown, {}, None
        lines: list[Line] = []
        for turn in turns:
            shown = self._shown[turn.number] = before.get(turn.number) or _Shown()
            lines += _without_words(turn, shown)
            if turn.modality == "audio" and turn.user_text and not shown.user and is_heard(turn):
                shown.user = True
                lines.append(Line("you", turn.user_text))
            written = turn.bot_text or ""
            text = written[shown.bot_characters :].strip()
            if text and (flush or not turn.is_open):
                shown.bot_characters = len(written)
                lines += [Line("bot", part) for part in textwrap.wrap(text, _LONGEST)]
            elif text:
                self.unfinished = Line("bot", text)
            elif turn.modality == "audio" and turn.user_text and not shown.user:
                self.unfinished = Line("you", turn.user_text)
        return lines


def _without_words(turn: TurnRecord, shown: _Shown) -> Iterator[Line]:
    """Yield a line for each speaker whose words are unknown, as soon as the speaker is heard."""
    timings = turn.timings
    if turn.user_text is None and timings.user_started is not None and not shown.user:
        shown.user = True
        yield Line("you", SPEAKS)
    if turn.bot_text is None and timings.bot_started_speaking is not None and not shown.bot:
        shown.bot = True
        yield Line("bot", SPEAKS)


def has_begun(turn: TurnRecord) -> bool:
    """Return whether the bot has started to answer."""
    timings = turn.timings
    return bool(timings.llm_started or timings.bot_started_speaking or turn.bot_text or turn.function_calls)


def is_heard(turn: TurnRecord) -> bool:
    """Return whether the user's spoken words are complete."""
    return not turn.is_open or (turn.timings.transcribed is not None and has_begun(turn))
