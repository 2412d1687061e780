"""A simulated caller: a function writes or speaks line after line, and the bot answers each."""

from __future__ import annotations

import itertools
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
    """The conversation with a simulated caller.

    Attributes:
        turns: Each line of the caller with the bot's answer, and the bot's unasked words, oldest first.
        ended_by: "next_line": the caller had nothing more to say. "until": `until` returned a true value. "max_turns":
            the caller reached the limit of lines. "bot": the bot ended the session, so the last turn may be incomplete.
    """

    turns: tuple[Turn, ...]
    ended_by: TalkEnd

    @property
    def lines(self) -> list[tuple[str, str]]:
        """The lines of both sides as pairs of speaker ("user" or "bot") and text, oldest first. Only known texts."""
        both = [line for turn in self.turns for line in (("user", turn.user_text), ("bot", turn.bot_text))]
        return [(speaker, text) for speaker, text in both if text]


def simulate(
    client: RTVIClient,
    next_line: Callable[[tuple[Turn, ...]], Askable | None],
    max_turns: int = 20,
    until: Callable[[tuple[Turn, ...]], object] | None = None,
    timeout: Seconds | None = 30.0,
) -> Talk:
    """Let a function play the user, and return the conversation.

        def caller(turns):
            return ["Hello!", "How is the weather?", None][len(turns)]

        talk = simulate(client, caller)

    Blocks, and waits before each line until the bot is silent. The session continues afterwards.

    Args:
        client: Connected client. If the bot has said something that no call returned, it becomes the first turn.
        next_line: Function that takes the turns so far and returns the user's next line: typed text, or audio as
            `RTVIClient.ask()` takes it; None ends the talk. Its exceptions reach the caller of `simulate()`.
        max_turns: Number of lines after which the talk ends.
        until: Function that takes the turns so far, called after each turn. The talk ends when it returns a true value.
        timeout (seconds): Limit of each line with its answer. None: no limit.

    Raises:
        RequestTimeoutError: A line had no complete answer within `timeout` seconds; `.turn` has the partial one.
        DisconnectedError, BotNotReadyError: The session ended, but the bot did not end it.
        TypeError, ValueError: An argument, or a value that `next_line` returned, is invalid.
        RTVIError: Any other error of `RTVIClient.ask()`, such as `BotError`.
    """
    _CLIENT.check(client=client)
    _TURNS.check(next_line=next_line)
    COUNT.check(max_turns=max_turns)
    _TURNS.or_none.check(until=until)
    WAIT.or_none.check(timeout=timeout)
    talk = _TalkSoFar(client, timeout)
    for said in itertools.count():
        talk.listen()
        if until is not None and talk.turns and until(talk.turns):
            return Talk(turns=talk.turns, ended_by="until")
        if talk.is_over:
            break
        if said == max_turns:
            return Talk(turns=talk.turns, ended_by="max_turns")
        line = next_line(talk.turns)
        _LINE.check_one("what next_line returns", line)
        if line is None:
            return Talk(turns=talk.turns, ended_by="next_line")
        talk.ask(line)
    return Talk(turns=talk.turns, ended_by="bot")


class _TalkSoFar:
    """The turns of a talk.

    Attributes:
        is_over: True after the bot has ended the session.
    """

    def __init__(self, client: RTVIClient, timeout: Seconds | None) -> None:
        self._client = client
        self._timeout = timeout
        self._turns: dict[tuple[int, int], Turn] = {}
        self.is_over: bool = False

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns so far."""
        return tuple(self._turns.values())

    def listen(self) -> None:
        """Wait until the bot is silent, and keep its unasked words as turns."""
        try:
            while not self.is_over:  # the client may have reconnected by itself
                is_speaking = any(turn.is_open for turn in self._client.turns())
                self._take(self._client.listen(self._timeout if is_speaking else 0.0))
        except RequestTimeoutError:
            return
        except (DisconnectedError, BotNotReadyError) as error:
            if not _is_by_bot(error):
                raise
            self.is_over = True

    def ask(self, line: Askable) -> None:
        """Say a line and wait for the answer."""
        try:
            self._take(self._client.ask(line, self._timeout))
        except (DisconnectedError, BotNotReadyError) as error:
            if not _is_by_bot(error):
                raise
            self.listen()  # to the bot's earlier words
            self.is_over = True
            self._take(error.turn)

    def _take(self, turn: Turn | None) -> None:
        if turn is not None:
            self._turns[turn.session, turn.number] = turn


def _is_by_bot(error: SessionError) -> bool:
    """Return whether the bot ended the session."""
    end = error if isinstance(error, DisconnectedError) else error.__cause__
    return isinstance(end, DisconnectedError) and end.initiator == "server"
