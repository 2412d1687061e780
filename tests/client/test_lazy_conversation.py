"""The conversation that begins when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rtvi_sync import ForkedProcessError, RTVIClient
from tests.support.clients import settle
from tests.support.forking import in_child
from tests.support.moments import at
from tests.support.probes import asking_on_another_thread, follows_turns, listeners
from tests.support.scripted_talk import TalkingBot
from tests.support.slowness import GUARD
from tests.support.threads import InThread


def test_it_begins_once() -> None:
    """Threads that ask at the same time get the same one."""
    with TalkingBot().client() as client:
        for thread in [InThread(client.turns) for _ in range(8)]:
            assert thread.get() == ()
        with TalkingBot().client() as other:
            other.turns()
            assert listeners(client) == listeners(other)


def test_only_events_of_turns_begin_it() -> None:
    """Only a handler of turn events makes the client follow turns."""
    client: Any = RTVIClient()
    client.on("bot_ready", print)
    client.events("metrics").close()
    assert not follows_turns(client)
    client.once("turn_started", print)
    assert follows_turns(client)


def test_ctrl_c_in_the_first_call_does_not_stop_the_following() -> None:
    """Turns are followed even if the first call that asks for them is interrupted."""
    calls: list[object] = []

    def interrupted(go_on: Callable[[], object], session: object) -> None:
        calls.append(session)
        if len(calls) == 1:
            raise KeyboardInterrupt
        go_on()

    with at("the turns of a session are followed", interrupted), TalkingBot(greeting="Hello!").client() as client:
        settle(client)
        with pytest.raises(KeyboardInterrupt):
            client.turns()
        assert client.listen(GUARD).bot_text == "Hello!"
        assert len(calls) == 2


def test_a_forked_child_cannot_follow_turns() -> None:
    """In a forked child, each call that follows turns raises `ForkedProcessError`."""
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

    def child() -> object:
        with client:
            return client.ask("x", GUARD).bot_text

    with asking_on_another_thread(client):
        assert in_child(child) == "You said x"
