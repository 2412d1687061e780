"""What the user has asked and the bot has not begun to answer, and which of it the bot has. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from .answer import BotTraits
from .open_turn import OpenTurn
from .spoken_text import letters_of

# How many ids of texts that run no model are kept.
_MAX_SILENT = 1000


class Questions:
    """The user's turns of one session whose answer has not begun, in order.

    Args:
        bot: its traits.
    """

    def __init__(self, bot: BotTraits) -> None:
        self._bot = bot
        self._turns: deque[OpenTurn] = deque()
        self._silent: deque[str] = deque(maxlen=_MAX_SILENT)

    def __iter__(self) -> Iterator[OpenTurn]:
        return iter([*self._turns])

    def __len__(self) -> int:
        return len(self._turns)

    def add(self, turn: OpenTurn) -> None:
        """Append a question."""
        self._turns.append(turn)

    def put_first(self, turn: OpenTurn) -> None:
        """Put a question first: it is answered next, or its answer has not begun after all."""
        self.remove(turn)
        self._turns.appendleft(turn)

    def remove(self, turn: OpenTurn) -> None:
        """Remove a question, if it is one."""
        if turn in self._turns:
            self._turns.remove(turn)

    @property
    def first(self) -> OpenTurn | None:
        """Return the question that is to be answered next."""
        return self._turns[0] if self._turns else None

    @property
    def in_speech(self) -> OpenTurn | None:
        """Return the spoken question that further speech belongs to, because its answer has not begun."""
        last = self._turns[-1] if self._turns else None
        return last if last is not None and last.modality == "audio" else None

    @property
    def failed(self) -> OpenTurn | None:
        """Return the first question if the bot has answered it by an error only."""
        first = self.first
        is_asked = first is not None and (first.told_llm_text or not first.is_speaking)
        return first if first is not None and first.errors and is_asked else None

    # -- which of them the bot has ------------------------------------------------------------------------------------

    def add_silently(self, message_id: str) -> None:
        """Note a text that runs no model: the bot acknowledges it like the others."""
        self._silent.append(message_id)

    def of_message(self, message_id: str | None) -> OpenTurn | None:
        """Return the typed question that was sent by the message with this id."""
        if message_id is None or message_id in self._silent:
            return None
        return next((turn for turn in self._turns if turn.message_id == message_id), None)

    def of_text(self, text: str) -> OpenTurn | None:
        """Return the question that the bot's model gets with this text, which may join several typed ones."""
        key = _key_of(text)
        typed = [turn for turn in self._turns if turn.modality == "text" and not turn.told_llm_text]
        same = (turn for turn in typed if _key_of(turn.user_text) == key)
        joined = (turn for turn in reversed(typed) if (own := _key_of(turn.user_text)) and key.endswith(own))
        # More than once of a user who goes on: the model found that the question was not finished.
        spoken = (
            turn for turn in self._turns if turn.modality == "audio" and (turn.is_speaking or not turn.told_llm_text)
        )
        return next(same, None) or next(joined, None) or next(spoken, None)

    def before(self, turn: OpenTurn) -> list[OpenTurn]:
        """Return the questions before this one, which the bot has skipped if it has this one."""
        turns = [*self._turns]
        return turns[: turns.index(turn)] if turn in turns else []

    @property
    def is_first_reached(self) -> bool:
        """Tell whether the bot has said that it has the first question, by all messages by which it does so."""
        first = self.first
        if first is None:
            return False
        if first.modality == "audio":
            has_ended = first.timings.user_stopped_reported is not None and not first.is_speaking
            return first.told_llm_text or (has_ended and not self._bot.tells_spoken)
        misses_input = self._tells_input_of(first) and not first.told_input
        misses_text = self._bot.tells_typed and not first.told_llm_text
        return (first.told_input or first.told_llm_text) and not (misses_input or misses_text)

    def may_first_be_answered(self, *, by_model: bool) -> bool:
        """Tell whether what the bot begins now, unasked as far as it says, may be the answer to the first question.

        A model from speech to speech may answer long before the bot reports that the user has stopped, and so does one
        that decides whether the user has finished.
        """
        first, bot = self.first, self._bot
        if first is None:
            return False
        if first.is_speaking:
            return self.is_first_reached or (by_model and not bot.tells_spoken)
        is_told = bot.tells_spoken if first.modality == "audio" else bot.tells_typed or self._tells_input_of(first)
        return self.is_first_reached or not is_told

    def _tells_input_of(self, turn: OpenTurn) -> bool:
        return self._bot.tells_user_input is not False and not turn.is_file


def _key_of(text: str) -> str:
    """Return what two texts are compared by: their letters and digits; without any, as of an emoji, all of it."""
    return letters_of(text) or text.strip()
