"""Conversations in any order: questions, given up or not, interruptions and new sessions, with bots that lose, repeat
and shuffle their messages.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rtvi_sync import (
    BotError,
    BotNotReadyError,
    DisconnectedError,
    MemoryTransport,
    RequestTimeoutError,
    RTVIClient,
    RTVIError,
    RTVIMessage,
    Turn,
)
from tests.support.clients import memory_client
from tests.support.scripted_talk import acknowledgement, hangs_up, said, says
from tests.support.slowness import GUARD
from tests.support.threads import thread_names
from tests.support.waiting import until

# The messages by which a bot answers a question.
LENGTH = len([*acknowledgement(RTVIMessage("send-text", {"content": ""})), *said("x")])
NOISE = ("bot-interrupted", "user-started-speaking", "user-stopped-speaking", "bot-llm-started", "bot-stopped-speaking")

some = st.integers(0, LENGTH) | st.just(1000)
settle = st.sampled_from([0.0, 0.0, 60.0])
at_once = st.just(0.0)  # with a longer one, unasked speech of the bot belongs to the turn
in_order = st.tuples(st.just("ask"), st.none(), some, at_once)
out_of_order = st.tuples(st.just("ask"), st.lists(st.integers(0, LENGTH - 1), max_size=2 * LENGTH), some, settle)
other = st.one_of(
    st.tuples(st.just("more"), some),
    st.tuples(st.just("listen"), at_once),
    st.just(("unasked",)),
    st.just(("connect",)),
    st.just(("hang up",)),
)
noise = st.tuples(st.just("noise"), st.sampled_from(NOISE)) | st.tuples(st.just("listen"), settle)
# Examples are few, because each has sessions. A busy machine makes them slow.
few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def answer_to(question: str) -> str:
    return f"re{question} end{question}"


class Bot:
    """A bot that sends as much of its messages as it is told.

    Args:
        cuts: a question ends the answer to the one before; False: that is given first.
    """

    def __init__(self, *, cuts: bool) -> None:
        self._cuts = cuts
        self._waiting: list[RTVIMessage] = []
        self.order: list[int] | None = None  # of the messages of the next answer; None: the right one
        self.released = 0  # how many messages the bot sends with the next question

    def __call__(self, transport: MemoryTransport, message: RTVIMessage) -> Iterable[Any]:
        if message.type == "client-ready":
            self._waiting = []
            yield RTVIMessage("bot-ready", {"version": "2.2.0"}, message.id)
        elif message.type == "send-text":
            answer = [*acknowledgement(message), *said(answer_to(message.data["content"]))]
            if self._cuts:
                self._waiting = []
            self.add(answer if self.order is None else [answer[index] for index in self.order])
            yield from self.more(self.released)

    def add(self, messages: Iterable[RTVIMessage]) -> None:
        """Add messages to the future ones."""
        self._waiting += messages

    def more(self, count: int) -> list[RTVIMessage]:
        """Return the next messages."""
        now, self._waiting = self._waiting[:count], self._waiting[count:]
        return now


class Talk:
    """A conversation, whose calls have no time to wait."""

    def __init__(self, client: RTVIClient, bot: Bot) -> None:
        self.client = client
        self.bot = bot
        self.questions = 0
        self.returned: list[int] = []

    def ask(self, order: list[int] | None, released: int, settle: float) -> Turn | None:
        self.questions += 1
        question = str(self.questions)
        self.bot.order, self.bot.released = order, released
        turn = self._returned_by(lambda: self.client.ask(question, 0.0, settle=settle))
        assert turn is None or (turn.user_text, turn.modality) == (question, "text")
        return turn

    def listen(self, settle: float) -> Turn | None:
        return self._returned_by(lambda: self.client.listen(0.0, settle=settle))

    def _returned_by(self, call: Any) -> Turn | None:
        try:
            turn: Turn = call()
        except (RequestTimeoutError, BotNotReadyError, DisconnectedError, BotError):
            return None
        assert not turn.is_open
        self.returned.append(turn.number)
        return turn

    def do(self, kind: str, *rest: Any) -> Turn | None:
        client = self.client
        if kind == "ask":
            return self.ask(*rest)
        if kind == "listen":
            return self.listen(*rest)
        if kind == "more":
            says(client, self.bot.more(*rest))
        elif kind == "unasked":
            self.bot.add(said("By the way"))
        elif kind == "noise":
            says(client, [RTVIMessage(rest[0], None)])
        elif kind == "connect":
            client.disconnect()
            client.connect()
        else:
            hangs_up(client)
            client.wait(GUARD)
        return None

    def end(self) -> None:
        """End the conversation, and check the invariants."""
        while self.listen(0.0) is not None:
            pass
        self.client.close()
        with contextlib.suppress(RTVIError):  # events are not delivered by hand
            self.client.process_events()
        assert len(set(self.returned)) == len(self.returned)
        turns = self.client.turns()
        assert not any(turn.is_open for turn in turns)
        assert [turn.number for turn in turns] == [*range(1, len(turns) + 1)]
        assert set(self.returned) <= {turn.number for turn in turns}
        until(lambda: not thread_names())


@few
@given(
    st.lists(in_order | out_of_order | other | noise, max_size=25), st.booleans(), st.sampled_from(["thread", "manual"])
)
def test_any_order(steps: list[Any], cuts: bool, events: Any) -> None:
    """ask() returns the turn of its own question or none, no turn is returned twice, and nothing is left open."""
    bot = Bot(cuts=cuts)
    with memory_client(bot, events=events) as client:
        talk = Talk(client, bot)
        for step in steps:
            talk.do(*step)
        talk.end()


@few
@given(st.lists(in_order | other, max_size=25), st.booleans())
def test_a_bot_in_order(steps: list[Any], cuts: bool) -> None:
    """However questions timed out, a turn has the answer to its own question, and an answer that arrived is
    returned.
    """
    bot = Bot(cuts=cuts)
    with memory_client(bot, events="manual") as client:
        talk = Talk(client, bot)
        for step in steps:
            turn = talk.do(*step)
            if step[0] == "ask" and step[2] == 1000 and client.connected:
                assert turn is not None
                assert turn.status == "complete"
            if turn is not None and turn.modality is not None:
                whole = answer_to(turn.user_text or "")
                assert turn.bot_text == whole if turn.status == "complete" else turn.bot_text in ("", whole)
        talk.end()
