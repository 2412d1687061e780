"""The client that tells how long things take, with real bots."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rtvi_sync import (
    BotNotReadyError,
    ConnectionTimeoutError,
    DisconnectedError,
    RequestRejectedError,
    RequestTimeoutError,
    RTVIClient,
    RTVIClientOptions,
    StartBotError,
    WebSocketTransport,
    WouldDeadlockError,
)
from rtvi_sync.media import ToneSource
from rtvi_sync.testing import BotSession, EmbeddedBot, MeasuredClient, Measurement
from tests.support.garbage import collect
from tests.support.slowness import GUARD

SOON = GUARD
HANG_OVER = 0.15


def handle(session: BotSession, message: dict[str, Any]) -> bool:
    """Some texts are not answered."""
    said = (message.get("data") or {}).get("content")
    if said == "leave":
        session.close(1011, "out of memory")
    return said in ("leave", "silence")


def refuse(_: object) -> None:
    raise LookupError("never heard of it")


@pytest.fixture(scope="module")
def bot() -> Iterator[EmbeddedBot]:
    with EmbeddedBot(hangover=HANG_OVER, replies="No.", handler=handle, on_request={"refused": refuse}) as bot:
        yield bot


@pytest.fixture
def told() -> list[Measurement]:
    return []


@pytest.fixture
def client(bot: EmbeddedBot, told: list[Measurement]) -> Iterator[MeasuredClient]:
    client = MeasuredClient.for_url(bot.ws_url)
    client.on_measurement = told.append
    yield client
    client.close()


def names(told: list[Measurement]) -> list[tuple[str, str, str | None]]:
    return [(done.kind, done.name, type(done.error).__name__ if done.error else None) for done in told]


def test_calls(client: MeasuredClient, told: list[Measurement]) -> None:
    """Connecting, requests and steps are told with their times and sizes; failures are told and raised."""
    before = time.monotonic()
    with client as same:
        assert same is client
        assert client.send_client_request("order", {"number": 7}) == {"number": 7}
        with pytest.raises(RequestRejectedError):
            client.send_client_request("refused")
        with client.measure("sum"):
            sum(range(1000))
        with pytest.raises(ZeroDivisionError), client.measure("quotient"):
            _ = 1 / 0
    assert names(told) == [
        ("connect", "connect", None),
        ("request", "order", None),
        ("request", "refused", "RequestRejectedError"),
        ("step", "sum", None),
        ("step", "quotient", "ZeroDivisionError"),
    ]
    assert [done.size for done in told] == [0, len('{"number": 7}'), 0, 0, 0]
    assert all(done.seconds > 0 for done in told)
    assert before < told[0].began < told[1].began < time.monotonic()
    assert all(done.error is None or done.error.__traceback__ is None for done in told)


def test_config_and_actions(told: list[Measurement]) -> None:
    """Every call that waits for an answer is a request, by the type of its message or the name of the action."""
    config = [{"service": "tts", "options": [{"name": "voice", "value": "bass"}]}]
    action = {"service": "lamp", "action": "switch", "arguments": [{"name": "on", "value": True}]}
    with EmbeddedBot(version="0.3.0", config=config, actions={"lamp:switch": lambda on: on}) as bot:
        client = MeasuredClient.for_url(bot.base_url)
        with client:
            client.on_measurement = told.append
            client.get_config()
            client.get_bot_config()
            client.describe_config()
            client.update_config(config)
            client.describe_actions()
            client.action(action)
            assert len(list(client.action_stream(action))) == 1
            client.get_service_options_from_config("tts")  # asks for the config
    assert names(told) == [
        ("request", name, None)
        for name in (
            *("get-config", "get-config", "describe-config", "update-config", "describe-actions"),
            *("lamp:switch", "lamp:switch", "get-config"),
        )
    ]
    described = [{"name": "tts", "options": [{"name": "voice", "type": "string"}]}]
    whole, result = len(json.dumps({"config": config})), len(json.dumps({"result": True}))
    assert [done.size for done in told if done.name != "describe-actions"] == [
        *(whole, whole, len(json.dumps({"config": described})), whole),
        *(result, result, whole),
    ]


def test_a_stream(told: list[Measurement]) -> None:
    """It takes as long as it is waited for, with all that came; it is told, too, when it is closed early or fails."""
    run = {"service": "llm", "action": "run"}
    with EmbeddedBot(replies="No.", actions={}) as bot:
        client = MeasuredClient.for_url(bot.base_url)
        client.on_measurement = told.append
        stream = client.action_stream(run)
        assert told == []
        began, size, pauses = time.monotonic(), 0, 0
        for message in stream:
            size += len(json.dumps(message.data))
            time.sleep(0.02)
            pauses += 1
        whole = time.monotonic() - began
        with contextlib.closing(client.action_stream(run)) as stream:
            first = next(stream)
            time.sleep(0.02)
        with pytest.raises(RequestRejectedError):
            list(client.action_stream({**run, "action": "fly"}))
        client.close()
    assert pauses > 3
    assert names(told) == [
        ("request", "llm:run", None),
        ("request", "llm:run", None),
        ("request", "llm:fly", "RequestRejectedError"),
    ]
    assert [done.size for done in told[:2]] == [size, len(json.dumps(first.data))]
    assert 0 < told[0].seconds <= whole - pauses * 0.02
    assert all(done.seconds > 0 for done in told)


def test_starting_a_bot(bot: EmbeddedBot, told: list[Measurement]) -> None:
    """What starts a bot is told as connecting, and so is that it could not be."""
    client = MeasuredClient(transport=WebSocketTransport(), enable_mic=False)
    client.on_measurement = told.append
    with pytest.raises(StartBotError):
        client.start_bot(f"{bot.base_url}/nowhere")
    client.connect(client.start_bot(f"{bot.base_url}/start"))
    client.disconnect()
    client.start_bot_and_connect(f"{bot.base_url}/start")
    client.close()
    assert names(told) == [
        ("connect", "start_bot", "StartBotError"),
        ("connect", "start_bot", None),
        ("connect", "connect", None),
        ("connect", "start_bot_and_connect", None),
    ]


def test_no_bot(told: list[Measurement]) -> None:
    """A bot that never gets ready fails the connect; an answer cannot be waited for."""
    with EmbeddedBot(ready=False) as bot:
        client = MeasuredClient.for_url(bot.ws_url, connect_timeout=0.1)
        client.on_measurement = told.append
        with pytest.raises(BotNotReadyError):
            client.wait_for_answer(SOON)
        with pytest.raises(ConnectionTimeoutError):
            client.connect()
    assert names(told) == [("connect", "connect", "ConnectionTimeoutError")]
    assert 0.1 <= told[0].seconds < SOON


def test_made_as_other_clients(bot: EmbeddedBot) -> None:
    """It takes an object with options, a mapping, or keywords; without anybody who listens it works, too."""
    for client in (
        MeasuredClient(RTVIClientOptions(transport=WebSocketTransport(bot.ws_url), enable_mic=False)),
        MeasuredClient({"transport": WebSocketTransport(bot.ws_url), "enableMic": False}),
        MeasuredClient(transport=WebSocketTransport(bot.ws_url), enable_mic=False),
    ):
        with client:
            assert client.send_client_request("x", 1) == 1
    with pytest.raises(TypeError):
        MeasuredClient(nothing=1)


class TestAnswers:
    def test_typed(self, client: MeasuredClient, told: list[Measurement]) -> None:
        """In sound and in writing: text, sound and the whole, from the moment when the text was sent."""
        with client:
            del told[:]
            client.send_text("Well?")
            spoken = client.wait_for_answer(SOON)
            client.send_text("Well?", audio_response=False)
            written = client.wait_for_answer(SOON)
        assert [name for _, name, _ in names(told)] == ["first text", "first sound", "whole", "first text", "whole"]
        assert spoken.text is not None
        assert spoken.sound is not None
        assert 0 < spoken.text < spoken.whole
        assert spoken.whole > 0.1  # a word of sound
        assert written.sound is None
        assert [done.seconds for done in told] == [
            *(spoken.text, spoken.sound, spoken.whole),
            *(written.text, written.whole),
        ]

    def test_spoken(self, bot: EmbeddedBot, told: list[Measurement]) -> None:
        """From the last sound that was sent on: it includes the silence by which the bot tells that it was the last."""
        source = ToneSource(duration=0.3)
        client = MeasuredClient.for_url(bot.base_url, mic=source)
        client.on_measurement = told.append
        began = time.monotonic()
        with client:
            assert source.wait(SOON)
            sent = time.monotonic()
            answer = client.wait_for_answer(SOON)
        whole = next(done for done in told if done.name == "whole")
        assert began + 0.28 <= whole.began <= sent  # when the last 20 ms of 0.3 s were sent
        assert answer.sound is not None
        assert answer.sound > HANG_OVER
        assert answer.whole > answer.sound + 0.2  # the bot says what it heard

    def test_what_is_not_asked(self, client: MeasuredClient, told: list[Measurement]) -> None:
        """A text that joins the context only is no question."""
        with client:
            client.send_text("By the way.", run_immediately=False)
            with pytest.raises(RequestTimeoutError):
                client.wait_for_answer(0.05)
        assert names(told)[1:] == [("answer", "first sound", "RequestTimeoutError")]
        assert 0.05 <= told[1].seconds < SOON

    def test_other_questions(self, client: MeasuredClient, told: list[Measurement]) -> None:
        """Files are asked about, and messages for the context may have the bot answer, too."""
        with client:
            client.send_file(b"x", "What is this?", audio_response=False, name="x.txt")
            assert client.wait_for_answer(SOON).text is not None
        with EmbeddedBot(version="1.4.0", replies="No.") as bot, MeasuredClient.for_url(bot.ws_url) as older:
            older.append_to_context("user", "By the way.")
            older.append_to_context("user", "Well?", run_immediately=True)
            assert older.wait_for_answer(SOON).sound is not None

    def test_none_in_time(self, client: MeasuredClient, told: list[Measurement]) -> None:
        """A bot that is silent fails one answer, and may answer the next."""
        with client:
            client.send_text("silence", audio_response=False)
            with pytest.raises(RequestTimeoutError, match="no first text"):
                client.wait_for_answer(0.05)
            client.send_text("Well?", audio_response=False)
            client.wait_for_answer(SOON)
        assert names(told)[1:] == [
            ("answer", "first text", "RequestTimeoutError"),
            ("answer", "first text", None),
            ("answer", "whole", None),
        ]

    def test_the_bot_leaves(self, client: MeasuredClient, told: list[Measurement]) -> None:
        """Who waits is told, and so is who counts, once; the next session is another one."""
        client.connect()
        client.send_text("leave", audio_response=False)
        with pytest.raises(DisconnectedError) as caught:
            client.wait_for_answer(SOON)
        assert caught.value.code == 1011
        with pytest.raises(BotNotReadyError):
            client.send_text("Are you there?")
        with pytest.raises(DisconnectedError):
            client.wait_for_answer(SOON)
        client.connect()
        client.send_text("Well?", audio_response=False)
        client.wait_for_answer(SOON)
        assert names(told)[1:] == [
            ("answer", "first text", "DisconnectedError"),
            ("answer", "first sound", "BotNotReadyError"),
            ("connect", "connect", None),
            ("answer", "first text", None),
            ("answer", "whole", None),
        ]

    def test_the_user_leaves(self, client: MeasuredClient, told: list[Measurement]) -> None:
        """Who hangs up has not been failed by the bot."""
        client.connect()
        client.send_text("silence")
        leaving = threading.Timer(0.05, client.disconnect)
        leaving.start()
        with pytest.raises(DisconnectedError):
            client.wait_for_answer(SOON)
        leaving.join()
        assert names(told) == [("connect", "connect", None)]

    def test_in_manual_mode(self, bot: EmbeddedBot) -> None:
        """There the events are delivered while it is waited for the answer."""
        client = MeasuredClient.for_url(bot.ws_url, events="manual")
        with client:
            client.send_text("Well?", audio_response=False)
            assert client.wait_for_answer(SOON).text is not None

    def test_in_a_handler(self, client: MeasuredClient) -> None:
        """A handler that waited for what comes after it would wait in vain."""
        raised: list[BaseException] = []
        done = threading.Event()

        def wait() -> None:
            try:
                client.wait_for_answer(SOON)
            except WouldDeadlockError as error:
                raised.append(error)
            done.set()

        client.on("bot_ready", wait)
        with client:
            assert done.wait(SOON)
        assert len(raised) == 1


def test_it_is_collected(bot: EmbeddedBot) -> None:
    """What measures does not keep a client alive."""
    import weakref

    client = MeasuredClient.for_url(bot.ws_url)
    with client:
        client.send_text("Well?", audio_response=False)
        client.wait_for_answer(SOON)
    alive = weakref.ref(client)
    del client
    collect()
    assert alive() is None


def test_it_is_a_client() -> None:
    """It has every public method of one, with the same parameters."""
    import inspect

    for name in vars(RTVIClient) | {n: None for base in RTVIClient.__mro__ for n in vars(base)}:
        method = getattr(RTVIClient, name)
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        ours = inspect.signature(getattr(MeasuredClient, name)).parameters
        assert list(ours) == list(inspect.signature(method).parameters), name
