"""A caller that is played: a function writes, or says, line after line, and the bot answers each."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import attrs

from rtvi_sync.client.client import RTVIClient
from rtvi_sync.errors import BotNotReadyError, DisconnectedError, RequestTimeoutError, SessionError
from rtvi_sync.media.kinds import is_source
from rtvi_sync.protocol.record import Record
from rtvi_sync.protocol.validation import COUNT, WAIT, Rule, function_taking, instance_of

if TYPE_CHECKING:
    from rtvi_sync import Turn
    from rtvi_sync.client.turns import Askable
    from rtvi_sync.session.params import Seconds

TalkEnd: TypeAlias = Literal["next_line", "until", "max_turns", "bot"]

_CLIENT: Final = instance_of("an RTVIClient", RTVIClient)
_TURNS: Final = function_taking("turns")
_LINE: Final = Rule(
    "a text (a str that is not empty), audio as ask() takes it, or None",
    lambda line: isinstance(line, (str, os.PathLike, bytes, bytearray, memoryview)) or is_source(line),
    bool,
    optional=True,
)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Talk(Record):
    """What was said with a simulated caller.

    Attributes:
        turns: each line of the caller with the bot's answer, and what the bot has said unasked, oldest first.
        ended_by: "next_line": the caller had nothing more to say. "until": what was to be reached was reached.
            "max_turns": the caller had said as many lines. "bot": the bot has ended the session; the last turn may be
            incomplete.
    """

    turns: tuple[Turn, ...]
    ended_by: TalkEnd

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Return who, "user" or "bot", has said what, oldest first, without what is not known."""
        both = [line for turn in self.turns for line in (("user", turn.user_text), ("bot", turn.bot_text))]
        return [(speaker, text) for speaker, text in both if text]


def simulate(
    client: RTVIClient,
    next_line: Callable[[tuple[Turn, ...]], Askable | None],
    max_turns: int = 20,
    until: Callable[[tuple[Turn, ...]], object] | None = None,
    timeout: Seconds | None = 30.0,
) -> Talk:
    """Let a function play the user, and return what was said.

        def caller(turns):
            return ["Hello!", "How is the weather?", None][len(turns)]

        talk = simulate(client, caller)

    Before each line it waits until the bot does not speak. The session goes on afterwards.

    Args:
        client: it is connected. What the bot has said already, and no call has returned, is the first turn.
        next_line: called with the turns so far; returns what the user says next: a text, which is typed, or audio, as
            `RTVIClient.ask()` takes them. None: nothing more. What it raises is raised.
        max_turns: the number of lines after which the talk ends.
        until: called with the turns so far after each of them; the talk ends when it returns what is true.
        timeout: seconds for each line and its answer; None: no limit.

    Raises:
        RequestTimeoutError: a line was not answered within `timeout` seconds; `.turn` is what there was of it.
        DisconnectedError, BotNotReadyError: the session has ended, and not by the bot.
        TypeError, ValueError: an argument, or what `next_line` has returned, cannot be used.
        RTVIError: what `RTVIClient.ask()` raises, such as a `BotError`.
    """
    _CLIENT.check(client=client)
    _TURNS.check(next_line=next_line)
    COUNT.check(max_turns=max_turns)
    _TURNS.or_none.check(until=until)
    WAIT.or_none.check(timeout=timeout)
    talk = _TalkSoFar(client, timeout)
    for said in range(max_turns + 1):
        if not talk.listen():
            return talk.over("bot")
        if until is not None and talk.turns and until(talk.turns):
            return talk.over("until")
        if said == max_turns:
            break
        line = next_line(talk.turns)
        _LINE.check_one("what next_line returns", line)
        if line is None:
            return talk.over("next_line")
        if not talk.ask(line):
            return talk.over("bot")
    return talk.over("max_turns")


class _TalkSoFar:
    """The turns of a talk. Its calls return False when the bot has ended the session."""

    def __init__(self, client: RTVIClient, timeout: Seconds | None) -> None:
        self._client = client
        self._timeout = timeout
        self._turns: dict[tuple[int, int], Turn] = {}

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Return the turns so far."""
        return tuple(self._turns.values())

    def over(self, ended_by: TalkEnd) -> Talk:
        """Return the whole talk."""
        return Talk(turns=self.turns, ended_by=ended_by)

    def listen(self) -> bool:
        """Wait until the bot does not speak, and take what it has said unasked."""
        try:
            while True:
                is_speaking = any(turn.is_open for turn in self._client.turns())
                self._take(self._client.listen(self._timeout if is_speaking else 0.0))
        except RequestTimeoutError:
            return True
        except (DisconnectedError, BotNotReadyError) as error:
            self._check_end(error)
            return False

    def ask(self, line: Askable) -> bool:
        """Say a line, and wait for the answer."""
        try:
            self._take(self._client.ask(line, self._timeout))
        except (DisconnectedError, BotNotReadyError) as error:
            self._check_end(error)
            self.listen()  # to what it has said before
            self._take(error.turn)
            return False
        return True

    def _take(self, turn: Turn | None) -> None:
        if turn is not None:
            self._turns[turn.session, turn.number] = turn

    @staticmethod
    def _check_end(error: SessionError) -> None:
        """Raise the error if the session was not ended by the bot."""
        end = error if isinstance(error, DisconnectedError) else error.__cause__
        if not (isinstance(end, DisconnectedError) and end.initiator == "server"):
            raise error
