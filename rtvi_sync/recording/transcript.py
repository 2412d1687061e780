"""The lines of a conversation, from its turns. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import Final, Literal

import attrs

from rtvi_sync import RTVIEvent
from rtvi_sync.conversation.record import TurnRecord

from ..protocol.text import LONGEST_LINE

# Longer lines are divided; what stands before them needs some room.
_LONGEST = LONGEST_LINE - 100

#: The line of a speaker whose words are not known.
SPEAKS: Final = "(speaks)"

#: The types of events after which the lines may have changed.
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
        text: the words.
    """

    who: Literal["you", "bot"]
    text: str


@attrs.define
class _Shown:
    """What was returned of a turn."""

    user: bool = False
    bot: bool = False  # that it speaks, without words
    bot_characters: int = 0


class Transcript:
    """Lines in the order in which they become final: what the user said, then what the bot answered.

    What the user typed is no line, because it is shown where it is typed. Over a transport that carries no messages a
    line tells that one of them speaks.

    Attributes:
        unfinished: the line that may still change; None: there is none.
    """

    def __init__(self) -> None:
        self.unfinished: Line | None = None
        self._shown: dict[int, _Shown] = {}  # by the number of the turn

    def update(self, turns: Iterable[TurnRecord], *, flush: bool = False) -> list[Line]:
        """Return the lines that have become final since the last call.

        Args:
            turns: the last turns, in order, with those that are not over.
            flush: what the bot has said so far is a line, although its turn is not over.
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
    """Yield who speaks, where the words are not known, as soon as that is heard."""
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
    """Return whether the words of a speaking user are complete."""
    return not turn.is_open or (turn.timings.transcribed is not None and has_begun(turn))
