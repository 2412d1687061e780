"""The events of a conversation in the order of the queue."""

from __future__ import annotations

import threading
import weakref

import pytest

from rtvi_sync import ForkedProcessError, RTVIMessage, Turn
from tests.support.clients import bot_says, settle
from tests.support.forking import in_child
from tests.support.garbage import collect
from tests.support.probes import asking_on_another_thread, listeners
from tests.support.scripted_talk import TalkingBot, begun, finished, hangs_up, said, says, tone, written
from tests.support.slowness import GUARD
from tests.support.threads import InThread
from tests.support.waiting import until


def test_it_is_one() -> None:
    """Threads that ask at the same time get the same one, and no call adds listeners."""
    with TalkingBot().client() as client:
        before = listeners(client)
        for thread in [InThread(client.turns) for _ in range(8)]:
            assert thread.get() == ()
        assert listeners(client) == before


def test_it_begins_while_events_are_queued() -> None:
    """Events that a slow handler delays are not lost and not reported twice."""
    entered, go = threading.Event(), threading.Event()

    def slow() -> None:
        entered.set()
        go.wait(GUARD)

    with TalkingBot().client() as client:
        client.once("server_message", slow)
        bot_says(client, "server-message", 1)
        assert entered.wait(GUARD)
        says(client, [*written("Hello you"), *begun("Hello you")])
        client.turns()
        says(client, finished("Hello you"))
        client.send_text("one")
        go.set()
        assert client.listen(GUARD).bot_text == "Hello you"
        turn = client.listen(GUARD)
        assert (turn.user_text, turn.bot_text) == ("one", "You said one")
        assert [turn.number for turn in client.turns()] == [1, 2]


def test_it_begins_after_the_session() -> None:
    """turns() after the session waits for no event of it, and the next session is followed."""
    with TalkingBot().client() as client:
        client.disconnect()
        assert client.turns() == ()
        client.connect()
        assert client.ask("x", GUARD).bot_text == "You said x"


def test_the_next_session_begins_while_events_are_queued() -> None:
    """Events that are queued when the next session starts belong to their own session."""
    ended: list[Turn] = []
    client = TalkingBot(greeting="Hello!").client(events="manual")
    client.on("turn_ended", ended.append)
    with client:
        says(client, [*written("Half of"), *begun("Half of")])
        client.disconnect()
        client.connect()
        says(client, said("Whole."))
        until(lambda: client.process_events(0.1) == 0)
    assert [(turn.session, turn.bot_text, turn.status) for turn in ended] == [
        (1, "Hello!", "complete"),
        (1, "Half of", "failed"),
        (2, "Hello!", "complete"),
        (2, "Whole.", "complete"),
    ]


def test_ctrl_c_in_a_handler_of_a_turn() -> None:
    """Later reports are not lost: the end of the turn, and the turns that were kept, are delivered."""
    started: list[Turn] = []

    def interrupt(turn: Turn) -> None:
        started.append(turn)
        if len(started) == 1:
            raise KeyboardInterrupt

    with TalkingBot().client(events="manual") as client:
        client.on("turn_started", interrupt)
        says(client, [*said("one"), *said("two")])
        with pytest.raises(KeyboardInterrupt):
            until(lambda: client.process_events(0.1) == 0)
        says(client, said("three"))
        assert [client.listen(GUARD).bot_text for _ in range(3)] == ["one", "two", "three"]
    assert [turn.number for turn in started] == [1, 2, 3]


def test_a_first_message_that_breaks_the_protocol() -> None:
    """The other messages at the start of a session make up for the broken one."""
    with TalkingBot().client() as client:
        says(client, [*written("Hello you"), RTVIMessage("bot-llm-text", {"text": 5}), *begun("Hello you")])
        client.turns()
        says(client, finished("Hello you"))
        assert client.listen(GUARD).bot_text == "Hello you"


def test_a_message_that_could_not_be_sent() -> None:
    """The turn of a message that could not be sent has failed, and the next one is not confused."""

    def refuse(text: str) -> str:
        if text == "no":
            raise RuntimeError("no route")
        return text

    with TalkingBot(refuse).client() as client:
        client.turns()
        with pytest.raises(RuntimeError):
            client.send_text("no")
        assert client.ask("yes", GUARD).bot_text == "yes"
        assert [turn.status for turn in client.turns()] == ["failed", "complete"]


def test_a_bot_that_goes_silent() -> None:
    """Time passes on its own: an error without an answer ends the turn."""
    with TalkingBot(lambda text: None).client() as client:
        client.turns()
        client.send_text("x")
        says(client, [RTVIMessage("error", {"error": "no key", "fatal": False})])
        assert client.listen(GUARD).status == "failed"


def test_a_hundred_turns_are_kept() -> None:
    """A client keeps the last hundred turns, and nothing of those before."""
    with TalkingBot().client() as client:
        asked = [weakref.ref(client.ask("x", GUARD)) for _ in range(110)]
        assert [turn.number for turn in client.turns()] == [*range(11, 111)]

        def are_gone() -> bool:
            collect()
            return not any(turn() for turn in asked[:10])

        until(are_gone)


def test_a_full_stream_of_turns() -> None:
    """A full stream of turns ends the session, as one of any other event does, so that no turn is lost silently."""
    with TalkingBot().client(max_queued_events=50) as client, client.events("turn_ended") as turns:
        for _ in range(51):
            client.ask("x", GUARD)
        assert "the queue is full" in str(client.wait(GUARD).error)
        assert len([*turns]) == 50


def test_a_stream_of_turns_with_much_audio() -> None:
    """The audio counts for `max_queued_bytes`."""
    size = len(tone(0.1))
    client = TalkingBot(audio=True).client(max_queued_bytes=5 * size)
    with client, client.events("turn_ended") as turns:
        for _ in range(6):
            client.ask("x", GUARD)
        assert "max_queued_bytes" in str(client.wait(GUARD).error)
        assert [event.data.audio.pcm for event in turns] == [tone(0.1)] * 5


def test_a_turn_that_is_larger_than_a_queue() -> None:
    """A turn that is larger than `max_queued_bytes` is still returned."""
    with TalkingBot(audio=True).client(max_queued_bytes=4000) as client:
        assert [client.ask("x", GUARD).audio.pcm for _ in range(2)] == [tone(0.1)] * 2


def test_the_end_of_a_session_ends_its_turns() -> None:
    """The end of a session ends its open turn, which has failed."""
    with TalkingBot(lambda text: None).client() as client:
        client.turns()
        client.send_text("x")
        settle(client)
        hangs_up(client)
        until(lambda: client.turns()[0].status == "failed")


def test_a_fork_while_other_threads_follow_it() -> None:
    """A child of a process whose client was not connected can ask: locks held by the parent's threads are renewed."""
    client = TalkingBot().client()
    with client:
        client.ask("x", GUARD)

    def child() -> object:
        with client:
            says(client, said("Hello you"))
            return client.listen(GUARD).bot_text, client.ask("y", GUARD).bot_text

    with asking_on_another_thread(client):
        assert in_child(child) == ("Hello you", "You said y")


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
