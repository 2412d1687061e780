"""ask(), listen(), barge_in() and turns() of a client."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import (
    BotError,
    BotNotReadyError,
    DisconnectedError,
    ExpectationError,
    FunctionCall,
    ReconnectPolicy,
    RequestRejectedError,
    RequestTimeoutError,
    RTVIClient,
    RTVIMessage,
    Turn,
    UnsupportedFeatureError,
    WouldDeadlockError,
    is_transient,
)
from rtvi_sync.media import BytesSource, NullSink
from rtvi_sync.testing import EmbeddedBot
from tests.support.clients import bot_says, settle, transport_of, websocket_client
from tests.support.probes import (
    listeners,
    questions_under_way,
    readers_of_microphone,
    thread_sleeps,
    waiting_calls,
)
from tests.support.scripted_talk import (
    RATE,
    TalkingBot,
    acknowledgement,
    begun,
    finished,
    hangs_up,
    said,
    says,
    tone,
    written,
)
from tests.support.slowness import GUARD, at_some_limit
from tests.support.threads import InThread, running
from tests.support.waiting import until


def quiet(text: str) -> None:
    """Let a bot say only the test's messages."""


class TestAsk:
    def test_a_text(self) -> None:
        """ask() returns the complete turn of a typed question, and turns are numbered in order."""
        with TalkingBot().client() as client:
            turn = client.ask("one", GUARD)
            assert (turn.bot_text, turn.spoken_text, turn.status, turn.assumed) == (
                "You said one",
                "You said one",
                "complete",
                None,
            )
            assert (turn.number, turn.session, turn.initiator, turn.modality) == (1, 1, "user", "text")
            assert [client.ask(str(n), GUARD).bot_text for n in range(20)] == [f"You said {n}" for n in range(20)]
            assert [each.number for each in client.turns()] == [*range(1, 22)]

    def test_an_empty_text(self) -> None:
        """The error says that a text must not be empty."""
        not_empty = r"a text \(a str that is not empty\)"
        with TalkingBot().client() as client, pytest.raises(ValueError, match=not_empty):
            client.ask("")

    def test_the_name_of_an_audio_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A str is words; if an audio file has that name, a warning says how to send the file."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "q1.wav").write_bytes(b"")
        (tmp_path / "hello").write_bytes(b"")
        with TalkingBot().client() as client:
            for text in ("q1.wav", "q2.wav", "hello", "a" * 5000 + ".wav", "\0.wav"):
                assert client.ask(text, GUARD).bot_text == f"You said {text}"
        assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
            ("WARNING", "'q1.wav' is sent as words, and is the name of an audio file: to say it, pass Path('q1.wav')")
        ]

    def test_manual_mode_delivers_events_during_ask(self) -> None:
        """In manual mode, ask() delivers events while it waits."""
        ended: list[Turn] = []
        with TalkingBot().client(events="manual") as client:
            client.on("turn_ended", ended.append)
            assert client.ask("one", GUARD).bot_text == "You said one"
            client.process_events()
            assert [turn.bot_text for turn in ended] == ["You said one"]

    @pytest.mark.parametrize("events", ["thread", "manual"])
    def test_asking_in_a_handler_raises(self, events: Any) -> None:
        """In a handler, ask() and listen() raise `WouldDeadlockError` before anything is sent."""
        errors: list[BaseException] = []

        def handler(_: object) -> None:
            for call in (lambda: client.ask("no"), client.listen):
                with pytest.raises(WouldDeadlockError, match="inside a handler") as raised:
                    call()
                errors.append(raised.value)

        bot = TalkingBot()
        with bot.client(events=events) as client:
            client.on("server_message", handler)
            bot_says(client, "server-message", "x")
            assert client.ask("yes", GUARD).bot_text == "You said yes"
            assert len(errors) == 2
            assert [question.data["content"] for question in bot.questions] == ["yes"]

    def test_in_a_function_that_the_bot_calls(self) -> None:
        """A function that the bot calls may itself ask while the outer ask() waits for its result."""
        inner: list[Turn] = []
        bot = TalkingBot(lambda text: None if text == "outer" else f"You said {text}")
        with bot.client() as client:

            def function(call: FunctionCall) -> str:
                inner.append(client.ask("inner", GUARD))
                return "done"

            client.register_function_call_handler("f", function)
            with running(lambda: client.ask("outer", GUARD)) as asking:
                bot.await_question()
                call = {"function_name": "f", "tool_call_id": "1", "arguments": {}}
                says(client, [RTVIMessage("bot-llm-started", None)])
                says(client, [RTVIMessage("llm-function-call-in-progress", call)])
                outer = asking.get()
            until(lambda: inner)
            assert inner[0].bot_text == "You said inner"
            assert outer.interrupted  # typed texts interrupt bots of 2.x
            assert outer.function_calls[0].function_name == "f"

    def test_threads_take_turns(self) -> None:
        """Each thread gets its own answer, in the order of the questions."""
        bot = TalkingBot(quiet)
        with bot.client() as client, running(lambda: client.ask("first", GUARD)) as first:
            bot.await_question()
            with running(lambda: client.ask("second", GUARD)) as second:
                with pytest.raises(RequestTimeoutError, match="Another thread's ask"):
                    client.ask("third", 0.0)
                assert len(bot.questions) == 1
                says(client, said("answer 1"))
                assert first.get().bot_text == "answer 1"
                bot.await_question(2)
                says(client, said("answer 2"))
                assert second.get().bot_text == "answer 2"

    def test_a_question_whose_time_is_over_while_it_queues(self) -> None:
        """A question that is too late is not sent, because it would interrupt; one that is sent late says why."""

        def check(limit: float) -> None:
            bot = TalkingBot(quiet)
            with bot.client() as client, running(lambda: client.ask("first", GUARD)) as first:
                bot.await_question()
                with running(lambda: client.ask("second", 2 * limit)) as second:
                    until(thread_sleeps(second.thread))
                    with running(lambda: client.ask("third", limit)) as third:
                        assert "Another thread's ask" in str(third.error())
                    says(client, said("answer 1"))
                    first.get()
                    assert "of which other threads' questions took" in str(second.error())
            assert [question.data["content"] for question in bot.questions] == ["first", "second"]

        at_some_limit(check)

    def test_questions_that_queue_while_the_session_is_lost(self) -> None:
        """All raise the loss, which is transient, as a call after it is."""
        bot = TalkingBot(quiet)
        with bot.client() as client, running(lambda: client.ask("first", GUARD)) as first:
            bot.await_question()
            with running(lambda: client.ask("second", GUARD)) as second:
                until(thread_sleeps(second.thread))
                hangs_up(client, 1012)
                errors = [first.error(), second.error()]
            with pytest.raises(BotNotReadyError) as raised:
                client.ask("third", GUARD)
        assert [type(error) for error in errors] == [DisconnectedError] * 2
        assert "before the bot was asked" in str(errors[1])
        assert [is_transient(error) for error in (*errors, raised.value)] == [True] * 3

    def test_questions_of_many_threads_get_their_own_answers(self) -> None:
        """Questions of several threads at once all get their own answers."""
        with TalkingBot().client() as client:

            def ask_ten(name: str) -> list[str]:
                return [client.ask(f"{name}.{n}", GUARD).bot_text or "" for n in range(10)]

            threads = [InThread(partial(ask_ten, name)) for name in "abcde"]
            for name, thread in zip("abcde", threads, strict=True):
                assert thread.get() == [f"You said {name}.{n}" for n in range(10)]

    def test_one_given_up(self) -> None:
        """After a question timed out, the next gets its own answer, and listen() the late one."""
        bot = TalkingBot(quiet)
        with bot.client() as client:
            with pytest.raises(RequestTimeoutError, match="answer did not begin") as raised:
                client.ask("first", 0.0)
            assert raised.value.kind == "timeout"
            until(client.turns)
            assert client.turns()[0].status == "in_progress"
            with running(lambda: client.ask("second", GUARD)) as second:
                bot.await_question(2)
                says(client, said("second answer"))
                assert second.get().bot_text == "second answer"
            assert client.listen(GUARD).status == "interrupted"

    def test_what_came_of_one_given_up(self) -> None:
        """The rest of an answer for which ask() has timed out is returned by listen()."""
        bot = TalkingBot(lambda text: None, goes_on=written("Half of it"))
        with bot.client(events="manual") as client:  # so that it delivers the queued events before it stops
            with pytest.raises(RequestTimeoutError, match="so far: 'Half of it'"):
                client.ask("first", 0.0)
            says(client, [*begun("Half of it"), *finished("Half of it")])
            assert client.listen(GUARD).bot_text == "Half of it"

    def test_a_function_that_does_not_return(self) -> None:
        """The error names it: the application may have no handler for it."""
        data = {"function_name": "get_weather", "tool_call_id": "1", "arguments": {}}
        bot = TalkingBot(lambda text: None, goes_on=[RTVIMessage("llm-function-call-in-progress", data)])
        needed = r"its function calls: get_weather\. .* register_function_call_handler"
        with bot.client(events="manual") as client, pytest.raises(RequestTimeoutError, match=needed):
            client.ask("first", 0.0)

    @pytest.mark.parametrize("sign", ["bot-llm-started", "bot-started-speaking"])
    def test_an_answer_without_words(self, sign: str) -> None:
        """The error does not say that the answer did not begin."""
        bot = TalkingBot(quiet, goes_on=[RTVIMessage(sign, None)])
        lacks = pytest.raises(RequestTimeoutError, match=r"was not complete .*no words of it arrived.* bot's log")
        with bot.client(events="manual") as client, lacks:
            client.ask("first", 0.0)

    def test_the_session_ends_in_mid_answer(self) -> None:
        """If the session ends in mid-answer, ask() raises `DisconnectedError` with the partial turn."""
        bot = TalkingBot(quiet)
        with bot.client() as client:
            thread = InThread(lambda: client.ask("first", GUARD))
            bot.await_question()
            says(client, [*written("Half of"), *begun("Half of")])
            hangs_up(client)
            error = thread.error()
            assert isinstance(error, DisconnectedError)
            assert error.turn is not None
            assert (error.turn.status, error.turn.bot_text) == ("failed", "Half of")
            with pytest.raises(BotNotReadyError):
                client.ask("second")
            with pytest.raises(BotNotReadyError):
                client.listen(GUARD)
            assert waiting_calls(client) == 0

    def test_disconnect_in_a_handler_of_the_answer(self) -> None:
        """An answer that was over before is returned, also if that was an assumption."""
        bot = TalkingBot(quiet, audio=True)
        with bot.client() as client:
            thread = InThread(lambda: client.ask("first", GUARD))
            bot.await_question()
            client.on("turn_ended", lambda _: client.disconnect())
            says(client, written("A long story"))
            turn = thread.get()
            assert (turn.bot_text, turn.status) == ("A long story", "complete")
            assert turn.assumed is not None

    def test_disconnect_before_it_is_known_whether_the_bot_speaks(self) -> None:
        """An answer that was not spoken to its end, or may lack its speech, is not returned."""
        bot = TalkingBot(quiet, audio=True)
        with bot.client() as client:
            thread = InThread(lambda: client.ask("first", GUARD))
            bot.await_question()
            says(client, written("A long story"))
            until(lambda: client.turns() and client.turns()[-1].bot_text)
            client.disconnect()
            error = thread.error()
            assert isinstance(error, DisconnectedError)
            assert error.turn is not None
            assert error.turn.bot_text == "A long story"
            assert error.turn.assumed is not None

    @pytest.mark.parametrize("code", [1000, 1005])
    def test_the_session_ends_right_after_the_answer(self, code: int) -> None:
        """Bots hang up before they tell that they are silent; 1005 is a close frame without a code."""
        bot = TalkingBot(quiet)
        with bot.client() as client:
            thread = InThread(lambda: client.ask("first", GUARD))
            bot.await_question()
            says(client, [*written("Bye"), *begun("Bye"), *finished("Bye")[:1]])
            hangs_up(client, code)
            assert (thread.get().bot_text, thread.get().status) == ("Bye", "complete")

    def test_the_session_ends_with_a_message_that_is_not_sent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The answer is as whole as without that message."""
        bot = TalkingBot(quiet)
        with bot.client() as client:

            def refuse() -> None:
                raise DisconnectedError("1 message was not sent", initiator="client")

            monkeypatch.setattr(transport_of(client), "disconnect", refuse)
            thread = InThread(lambda: client.ask("first", GUARD))
            bot.await_question()
            says(client, [*written("Bye"), *begun("Bye"), *finished("Bye")[:1]])
            hangs_up(client)
            assert (thread.get().bot_text, thread.get().status) == ("Bye", "complete")
            assert "not sent" in str(client.wait(GUARD).error)

    def test_an_error_instead_of_an_answer(self) -> None:
        """If the bot reports an error instead of an answer, ask() raises `BotError` with the turn."""
        bot = TalkingBot(quiet)
        with bot.client() as client:
            thread = InThread(lambda: client.ask("first", GUARD))
            bot.await_question()
            says(client, [RTVIMessage("bot-llm-started", None)])
            says(client, [RTVIMessage("error", {"error": "no key", "fatal": False})])
            says(client, [RTVIMessage("bot-llm-stopped", None)])
            error = thread.error()
            assert isinstance(error, BotError)
            assert "no key" in str(error)
            assert error.turn is not None
            assert [each.message for each in error.turn.errors] == ["no key"]

    def test_an_error_in_mid_answer(self) -> None:
        """A partial answer is returned."""
        bot = TalkingBot(quiet)
        with bot.client() as client:
            thread = InThread(lambda: client.ask("first", GUARD))
            bot.await_question()
            says(client, written("Well"))
            says(client, [RTVIMessage("error", {"error": "oops", "fatal": False})])
            says(client, [*begun("Well"), *finished("Well")])
            turn = thread.get()
            assert (turn.bot_text, [error.message for error in turn.errors]) == ("Well", ["oops"])

    def test_a_refusal(self) -> None:
        """If the bot refuses the question, ask() raises `RequestRejectedError`, and the turn has failed."""
        bot = TalkingBot(quiet)
        with bot.client() as client:
            thread = InThread(lambda: client.ask("first", GUARD))
            question = bot.await_question()
            bot_says(client, "error-response", {"error": "not today"}, question.id)
            error = thread.error()
            assert isinstance(error, RequestRejectedError)
            assert "not today" in str(error)
            until(lambda: client.turns()[-1].status == "failed")

    def test_another_way_after_a_refusal(self) -> None:
        """A bot of RTVI 1.0 that does not know send-text gets the question by append-to-context."""
        bot = TalkingBot(quiet, version="1.0.0")
        with bot.client() as client:
            thread = InThread(lambda: client.ask("first", GUARD))
            question = bot.await_question()
            bot_says(client, "error-response", {"error": "Unsupported type send-text"}, question.id)
            sent = transport_of(client).sent
            until(lambda: sent[-1].type == "append-to-context")
            assert (sent[-1].data["content"], sent[-1].data["run_immediately"]) == ("first", True)
            asked = RTVIMessage("send-text", {"content": "first"}, sent[-1].id)
            says(client, [*acknowledgement(asked), *said("There")])
            assert thread.get().bot_text == "There"

    def test_no_other_way_after_a_refusal(self) -> None:
        """A bot of RTVI 2 that does not know send-text makes ask() raise `UnsupportedFeatureError`."""
        bot = TalkingBot(quiet)
        with bot.client() as client:
            thread = InThread(lambda: client.ask("first", GUARD))
            question = bot.await_question()
            bot_says(client, "error-response", {"error": "Unsupported type send-text"}, question.id)
            assert "does not know 'send-text'" in str(thread.error())
            assert isinstance(thread.error(), UnsupportedFeatureError)

    def test_it_is_interrupted(self) -> None:
        """An interrupted answer is returned, with its status and the part that was spoken."""
        bot = TalkingBot(quiet)
        with bot.client() as client:
            thread = InThread(lambda: client.ask("first", GUARD))
            bot.await_question()
            says(client, [*written("A long story"), *begun("A long story")])
            says(client, [RTVIMessage("bot-interrupted", None)])
            turn = thread.get()
            assert (turn.status, turn.interrupted, turn.spoken_text) == ("interrupted", True, "A")

    def test_settle(self) -> None:
        """Speech within that time belongs to the answer, for bots that do not report their functions."""
        bot = TalkingBot(lambda text: None, goes_on=[*said("One moment."), *said("It is 12.")])
        with bot.client(events="manual") as client:
            assert client.ask("first", GUARD, settle=1.0).bot_text == "One moment. It is 12."
            assert client.ask("second", GUARD).bot_text == "One moment."

    def test_a_settle_that_is_given_up(self) -> None:
        """The turn is over when nothing waits any more."""
        bot = TalkingBot()
        with bot.client() as client:
            with pytest.raises(RequestTimeoutError):
                client.ask("first", 0.2, settle=GUARD)
            assert client.listen(GUARD).bot_text == "You said first"

    def test_a_shorter_settle_inside(self) -> None:
        """A question in a function of the bot's does not shorten the wait of the one that waits for its answer."""
        bot = TalkingBot(quiet)
        with bot.client() as client:
            outer = InThread(lambda: client.listen(GUARD, settle=GUARD))
            until(lambda: waiting_calls(client) == 1)
            with pytest.raises(RequestTimeoutError):
                client.listen(0.0, settle=0.0)
            says(client, said("One moment."))
            settle(client)
            assert client.turns()[0].is_open
            hangs_up(client)
            assert outer.get().bot_text == "One moment."

    def test_handlers_have_returned(self) -> None:
        """When it returns, the handlers of the message that ended the answer have."""
        heard: list[float] = []

        def slow() -> None:
            threading.Event().wait(0.05)
            heard.append(time.monotonic())

        with TalkingBot().client() as client:
            client.ask("first", GUARD)
            client.on("bot_stopped_speaking", slow)
            client.ask("second", GUARD)
            assert len(heard) == 1

    def test_no_session(self, client: RTVIClient) -> None:
        """Without a session, ask() raises `BotNotReadyError`."""
        with pytest.raises(BotNotReadyError):
            RTVIClient().ask("x")
        client.disconnect()
        with pytest.raises(BotNotReadyError):
            client.ask("x")

    def test_nothing_is_left(self) -> None:
        """Questions leave no streams, no observers and no ids behind."""
        bot = TalkingBot(lambda text: None if text == "lost" else text)
        with bot.client() as client:
            client.turns()
            before = listeners(client)
            for _ in range(3):
                client.ask("x", GUARD)
                with pytest.raises(RequestTimeoutError):
                    client.ask("lost", 0.0)
                pending = client.barge_in("y", after="server-message")
                bot_says(client, "server-message", "now")
                pending.result(GUARD)
            assert listeners(client) == before
            assert questions_under_way(client) == 0

    def test_ctrl_c_interrupts_a_question(self) -> None:
        """Ctrl-C interrupts ask(), and the next question works."""
        bot = TalkingBot(lambda text: None if text == "first" else text)
        with bot.client() as client:

            def press() -> None:
                bot.await_question()
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

            with running(press), pytest.raises(KeyboardInterrupt):
                client.ask("first", GUARD)
            assert client.ask("second", GUARD).bot_text == "second"


class TestListen:
    @pytest.mark.parametrize("audio", [False, True])
    def test_a_greeting_that_came_before(self, audio: bool) -> None:
        """The first call after connect() returns it, with its audio, once."""
        with TalkingBot(greeting="Hello!", audio=audio).client() as client:
            settle(client)
            turn = client.listen(GUARD)
            assert (turn.initiator, turn.modality, turn.bot_text, turn.number) == ("bot", None, "Hello!", 1)
            assert turn.audio.seconds == (pytest.approx(0.1) if audio else 0.0)
            with pytest.raises(RequestTimeoutError, match="No turn ended"):
                client.listen(0.0)
            assert client.ask("x", GUARD).number == 2

    def test_what_could_not_be_sent_is_no_turn_to_return(self) -> None:
        """The bot knows nothing of it."""
        with TalkingBot().client() as client:
            client.turns()
            with pytest.raises(ValueError, match="lone surrogate"):
                client.ask("\ud800", GUARD)
            client.ask("x", GUARD)
            settle(client)
            with pytest.raises(RequestTimeoutError, match="No turn ended"):
                client.listen(0.0)

    def test_a_greeting_in_two_halves(self) -> None:
        """Audio before and after the first call is one turn, without a gap."""
        with TalkingBot(audio=True).client() as client:
            transport = transport_of(client)
            says(client, [*written("Hello you"), *begun("Hello you")])
            first = [bytes([n, 16]) * 480 for n in range(10)]
            for frame in first:
                transport.receive_audio(frame, 24_000)
            client.turns()
            second = [bytes([n, 17]) * 480 for n in range(10)]
            for frame in second:
                transport.receive_audio(frame, 24_000)
            says(client, finished("Hello you"))
            turn = client.listen(GUARD)
            assert turn.bot_text == "Hello you"
            assert turn.audio.pcm == b"".join(first + second)

    def test_manual_mode_delivers_events_during_listen(self) -> None:
        """In manual mode, listen() returns the bot's turn without `process_events()`."""
        with TalkingBot(greeting="Hello!").client(events="manual") as client:
            assert client.listen(GUARD).bot_text == "Hello!"

    def test_settle(self) -> None:
        """Speech within that time belongs to the turn; a turn that has ended is returned unchanged."""
        with TalkingBot(quiet).client() as client:
            listening = InThread(lambda: client.listen(GUARD, settle=1.0))
            until(lambda: waiting_calls(client) == 1)
            says(client, [*said("One moment."), *said("It is 12.")])
            assert listening.get().bot_text == "One moment. It is 12."
            says(client, [*said("One moment."), *said("It is 12.")])
            assert client.listen(GUARD).bot_text == "One moment."
            assert client.listen(GUARD, settle=GUARD).bot_text == "It is 12."

    def test_a_question_before_the_first_use(self) -> None:
        """Messages sent before the first use belong to the conversation, too."""
        with TalkingBot().client() as client:
            client.send_text("one")
            turn = client.listen(GUARD)
            assert (turn.modality, turn.user_text, turn.bot_text) == ("text", "one", "You said one")

    def test_a_reconnected_session(self) -> None:
        """Turns and their numbers go on."""
        bot = TalkingBot(greeting="Hello!")
        policy = ReconnectPolicy(initial_delay=0.01)
        with bot.client(reconnect=policy) as client:
            assert client.listen(GUARD).session == 1
            assert client.ask("x", GUARD).number == 2
            with client.events("bot_ready", timeout=GUARD) as ready:
                transport_of(client).end()
                next(ready)
            assert (turn := client.listen(GUARD)).bot_text == "Hello!"
            assert (turn.session, turn.number) == (2, 3)
            assert (turn := client.ask("x", GUARD)).number == 4
            assert turn.session == 2

    def test_turns_before_a_loss(self) -> None:
        """Turns before a loss are still returned if the client replaces the session, but not after `connect()`."""
        with TalkingBot().client(reconnect=ReconnectPolicy(initial_delay=0.01)) as client:
            client.turns()
            says(client, [*said("one"), *said("two")])
            assert client.listen(GUARD).bot_text == "one"
            with client.events("bot_ready", timeout=GUARD) as ready:
                transport_of(client).end()
                next(ready)
            says(client, [*said("three"), *said("four")])
            assert [client.listen(GUARD).bot_text for _ in range(2)] == ["two", "three"]
            settle(client)
            client.disconnect()
            client.connect()
            says(client, said("five"))
            assert client.listen(GUARD).bot_text == "five"

    def test_turns_that_end_late(self) -> None:
        """A turn that a slow handler delays until the next session does not belong to that session."""
        go_on, told, told_on = threading.Event(), threading.Event(), threading.Event()

        def late(_: Turn) -> None:
            told.set()
            told_on.wait(GUARD)

        with TalkingBot().client() as client:
            client.on("turn_ended", late)
            client.on("server-message", lambda: go_on.wait(GUARD))
            bot_says(client, "server-message", 1)
            says(client, said("old"))
            hangs_up(client)
            client.connect()
            go_on.set()
            assert told.wait(GUARD)
            with pytest.raises(RequestTimeoutError):
                client.listen(0.0)
            told_on.set()
            says(client, said("new"))
            assert client.listen(GUARD).bot_text == "new"

    def test_a_second_session(self) -> None:
        """A second session has its own number, and its turns are numbered on."""
        bot = TalkingBot(greeting="Hello!")
        with bot.client() as client:
            client.disconnect()
            client.connect()
            assert (client.listen(GUARD).session, client.ask("x", GUARD).number) == (2, 3)
            client.disconnect()
            client.connect()
            assert (client.listen(GUARD).session, client.ask("x", GUARD).number) == (3, 5)

    def test_the_session_ends_meanwhile(self) -> None:
        """When the session ends, listen() raises `DisconnectedError`."""
        with TalkingBot().client() as client:
            thread = InThread(lambda: client.listen(GUARD))
            until(lambda: waiting_calls(client) == 1)
            hangs_up(client)
            assert isinstance(thread.error(), DisconnectedError)


class TestEvents:
    def test_a_handler_starts_to_follow(self) -> None:
        """A handler of a turn's start or end makes the client follow turns."""
        heard: list[tuple[str, str, str | None]] = []
        with TalkingBot().client() as client:
            client.on("turn_started", lambda turn: heard.append(("started", turn.status, turn.user_text)))
            client.on("turn_ended", lambda turn: heard.append(("ended", turn.status, turn.bot_text)))
            client.send_text("one")
            client.listen(GUARD)
            settle(client)
        assert heard == [("started", "in_progress", "one"), ("ended", "complete", "You said one")]

    def test_a_stream_starts_to_follow(self) -> None:
        """A stream of `turn_ended` makes the client follow turns."""
        with TalkingBot().client() as client, client.events("turn_ended", timeout=GUARD) as turns:
            client.send_text("one")
            assert next(turns).data.bot_text == "You said one"

    def test_callbacks_start_to_follow(self) -> None:
        """The callback `on_turn_ended` makes the client follow turns."""
        ended: list[Turn] = []
        with TalkingBot().client(callbacks={"on_turn_ended": ended.append}) as client:
            client.send_text("one")
            settle(client)
            until(lambda: ended)
        assert ended[0].bot_text == "You said one"

    def test_signals(self) -> None:
        """Receivers of signals get turns."""
        from rtvi_sync import signals

        ended: list[Turn] = []

        def receive(sender: RTVIClient, event: Any) -> None:
            ended.append(event.data)

        with TalkingBot().client() as client:
            signals.turn_ended.connect(receive, sender=client)
            client.send_text("one")
            until(lambda: ended)
        assert ended[0].bot_text == "You said one"

    def test_a_client_without_turns_has_no_observer(self) -> None:
        """A client that follows no turns decodes and queues only messages that have a handler."""
        with TalkingBot().client(track_turns=False) as client:
            assert listeners(client) == (0, 0, 0)
            client.send_text("one")
            settle(client)
            assert listeners(client) == (0, 0, 0)


class TestWithoutTurns:
    @pytest.mark.parametrize(
        "call",
        [
            *(lambda client: client.ask("x"), lambda client: client.barge_in("x"), lambda client: client.listen()),
            *(lambda client: client.turns(), lambda client: client.expect()),
            *(lambda client: client.on("turn_ended", print), lambda client: client.once("turn_started")),
            *(lambda client: client.events("turn_ended"), lambda client: client.wait_for("turn_ended")),
        ],
    )
    def test_each_call_says_why(self, call: Callable[[RTVIClient], object]) -> None:
        """With `track_turns=False` whatever is about turns raises `UnsupportedFeatureError`, which names the option."""
        with (
            TalkingBot().client(track_turns=False) as client,
            pytest.raises(UnsupportedFeatureError, match=r"track_turns=False.*without that option"),
        ):
            call(client)

    def test_a_callback(self) -> None:
        """The constructor refuses a callback of turns."""
        with pytest.raises(UnsupportedFeatureError, match="track_turns=False"):
            RTVIClient(track_turns=False, callbacks={"on_turn_ended": print})

    def test_the_rest_works(self) -> None:
        """Messages are sent, and events arrive."""
        with TalkingBot().client(track_turns=False) as client, client.events("bot_llm_text", timeout=GUARD) as texts:
            client.send_text("one")
            assert next(texts).data.text


class TestAudio:
    def test_complete_to_the_byte(self) -> None:
        """Of three answers each has its own, whole."""
        samples = {str(n): bytes([n + 1, 32]) * (1000 + n) for n in range(3)}
        bot = TalkingBot(lambda text: text, audio=True, spoken=lambda text: samples[text])
        with bot.client() as client:
            for text, pcm in samples.items():
                turn = client.ask(text, GUARD)
                assert (turn.audio.pcm, turn.audio.sample_rate_hz, turn.audio.truncated) == (pcm, 24_000, False)
                assert turn.time_to_first_audio is not None
                assert turn.voice_to_voice is None

    @pytest.mark.parametrize("seconds", [3, 20])
    def test_events_that_are_handled_late(self, seconds: int) -> None:
        """A greeting whose audio arrived long before its events are handled is whole."""
        with TalkingBot(audio=True).client(events="manual") as client:
            client.process_events()
            says(client, [*written("Hello you"), *begun("Hello you")])
            for _ in range(10 * seconds):
                transport_of(client).receive_audio(tone(0.1), RATE)
            says(client, finished("Hello you"))
            turn = client.listen(GUARD)
            assert turn.audio.seconds == pytest.approx(seconds)
            assert not turn.audio.truncated

    def test_nothing_is_kept_of_what_the_user_says_unasked(self) -> None:
        """Nearly all sessions talk as soon as they start: five seconds would take 200 kB of each."""
        source = BytesSource(tone(0.5), RATE)
        with EmbeddedBot() as bot, websocket_client(bot, mic=source, speaker=NullSink()) as client:
            assert source.wait(GUARD)
            assert readers_of_microphone(client) == 0
            client.turns()
            assert readers_of_microphone(client) == 1

    @pytest.mark.parametrize("seconds", [0, 0.05])
    def test_less_is_kept(self, seconds: float) -> None:
        """`max_turn_audio` limits the audio kept, not the audio measured."""
        with TalkingBot(audio=True).client(max_turn_audio=seconds) as client:
            for _ in range(2):
                turn = client.ask("x", GUARD)
                assert turn.audio.seconds == pytest.approx(seconds)
                assert turn.audio.truncated, turn
                assert turn.time_to_first_audio is not None

    def test_a_turn_is_checked(self) -> None:
        """A turn that does not meet expect() raises `ExpectationError`."""
        with TalkingBot().client() as client, pytest.raises(ExpectationError):
            client.ask("x", GUARD).expect(contains="y")
