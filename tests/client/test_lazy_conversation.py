"""The conversation that begins when it is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync import ForkedProcessError, RTVIClient
from rtvi_sync.client.conversation import ConversationTracker
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.session.session import Session
from tests.support.clients import settle
from tests.support.forking import in_child
from tests.support.scripted_talk import TalkingBot
from tests.support.slowness import GUARD
from tests.support.threads import InThread, holding


def test_it_begins_once() -> None:
    """Threads that ask at the same time get the same one."""
    with TalkingBot().client() as client:
        lazy = client._conversation
        threads = [InThread(lazy.get) for _ in range(8)]
        assert len({id(thread.get()) for thread in threads}) == 1


def test_only_events_of_turns_begin_it() -> None:
    client: Any = RTVIClient()
    client.on("bot_ready", print)
    client.events("metrics").close()
    assert client._conversation._conversation is None
    client.once("turn_started", print)
    assert client._conversation._conversation is not None


def test_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session is followed though the first call that asks for its turns is interrupted."""
    follow, calls = ConversationTracker.follow, []

    def interrupted(conversation: ConversationTracker, session: Session) -> None:
        calls.append(session)
        if len(calls) == 1:
            raise KeyboardInterrupt
        follow(conversation, session)

    monkeypatch.setattr(ConversationTracker, "follow", interrupted)
    with TalkingBot(greeting="Hello!").client() as client:
        settle(client)
        with pytest.raises(KeyboardInterrupt):
            client.turns()
        assert client.listen(GUARD).bot_text == "Hello!"
        assert len(calls) == 2


def test_in_a_forked_child() -> None:
    """All that follows turns raises: the session is the parent's."""
    with TalkingBot().client() as client:
        client.ask("x", GUARD)

        def child() -> None:
            asking = (lambda: client.ask("y"), lambda: client.barge_in("z"))
            for call in (client.turns, client.listen, client.expect, *asking):
                with pytest.raises(ForkedProcessError):
                    call()

        in_child(child)


def test_a_fork_while_another_thread_asks() -> None:
    """The child of a process whose client was not connected asks as ever."""
    client = TalkingBot().client()
    lazy = client._conversation

    def child() -> object:
        with client:
            return client.ask("x", GUARD).bot_text

    with holding(lazy._lock), holding(lazy.ask_lock.hold(Deadline(GUARD))):
        assert in_child(child) == "You said x"
