"""The client that measures calls and answers, with real bots."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rtvi_sync import (
    BotError,
    BotNotReadyError,
    ConnectionTimeoutError,
    DisconnectedError,
    EvalTransport,
    MemoryTransport,
    ProtocolError,
    RequestRejectedError,
    RequestTimeoutError,
    RTVIClientOptions,
    StartBotError,
    WebSocketTransport,
    WouldDeadlockError,
)
from rtvi_sync.media import ToneSource
from rtvi_sync.testing import BotSession, EmbeddedBot, MeasuredClient, Measurement
from tests.support.garbage import collect
from tests.support.scripted_talk import TalkingBot
from tests.support.slowness import GUARD, takes

HANGOVER = 0.15


STARTED, STOPPED = ("bot-llm-started", None), ("bot-llm-stopped", None)
MOMENT = ("bot-llm-text", {"text": "One moment."})
WEATHER = {"tool_call_id": "7", "function_name": "get_weather"}
RAIN = [
    *(STARTED, ("bot-llm-text", {"text": "Rain."}), STOPPED),
    ("bot-output", {"text": "Rain.", "aggregated_by": "sentence", "will_be_spoken": False}),
]
SCRIPTS: dict[str, list[tuple[str, Any]]] = {
    "silence": [],
    "leave": [],
    "leave soon": [STARTED, MOMENT],
    "weather": [
        *(STARTED, MOMENT, ("llm-function-call-in-progress", WEATHER), STOPPED),
        *(("llm-function-call-stopped", {**WEATHER, "cancelled": False}), *RAIN),
    ],
    "fail": [STARTED, ("error", {"message": "no credit", "fatal": False}), STOPPED],
}


def handle(session: BotSession, message: dict[str, Any]) -> bool:
    """Answer some texts by a script. Text before "and then" is unasked, or answers an earlier question."""
    said = (message.get("data") or {}).get("content")
    script = [*RAIN] if said == "and then" else []
    if said in SCRIPTS:
        chat = {"text": said, "input_type": "chat", "final": True, "timestamp": "", "msg_id": message["id"]}
        script += [("user-input", chat), ("user-llm-text", {"text": said}), *SCRIPTS[said]]
    for type_, data in script:
        session.send({"label": "rtvi-ai", "type": type_, "data": data})
    if str(said).startswith("leave"):
        session.close(1011, "out of memory")
    return said in SCRIPTS


def refuse(_: object) -> None:
    raise LookupError("no such order")


@pytest.fixture(scope="module")
def bot() -> Iterator[EmbeddedBot]:
    with EmbeddedBot(hangover=HANGOVER, replies="No.", handler=handle, on_request={"refused": refuse}) as bot:
        yield bot


@pytest.fixture
def measurements() -> list[Measurement]:
    return []


@pytest.fixture
def client(bot: EmbeddedBot, measurements: list[Measurement]) -> Iterator[MeasuredClient]:
    client = MeasuredClient.for_url(bot.ws_url)
    client.on_measurement = measurements.append
    yield client
    client.close()


def names(measurements: list[Measurement]) -> list[tuple[str, str, str | None]]:
    return [(done.kind, done.name, type(done.error).__name__ if done.error else None) for done in measurements]


def test_a_client_without_devices(bot: EmbeddedBot) -> None:
    """`text_only` agrees with the defaults of `for_url()`."""
    with MeasuredClient.for_url(bot.ws_url, text_only=True) as client:
        assert client.send_client_request("echo", 1, timeout=GUARD) == 1


def test_calls(client: MeasuredClient, measurements: list[Measurement]) -> None:
    """Connecting, requests and steps are reported with their times and sizes; failures are reported and raised."""
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
    assert names(measurements) == [
        ("connect", "connect", None),
        ("request", "order", None),
        ("request", "refused", "RequestRejectedError"),
        ("step", "sum", None),
        ("step", "quotient", "ZeroDivisionError"),
    ]
    assert [done.size for done in measurements] == [0, len('{"number": 7}'), 0, 0, 0]
    assert all(done.seconds > 0 for done in measurements)
    assert before < measurements[0].began < measurements[1].began < time.monotonic()
    assert all(done.error is None or done.error.__traceback__ is None for done in measurements)


def test_config_and_actions(measurements: list[Measurement]) -> None:
    """Every call that waits for an answer is a request, by the type of its message or the name of the action."""
    config = [{"service": "tts", "options": [{"name": "voice", "value": "bass"}]}]
    action = {"service": "lamp", "action": "switch", "arguments": [{"name": "on", "value": True}]}
    with EmbeddedBot(version="0.3.0", config=config, actions={"lamp:switch": lambda on: on}) as bot:
        client = MeasuredClient.for_url(bot.base_url)
        with client:
            client.on_measurement = measurements.append
            client.get_config()
            client.get_bot_config()
            client.describe_config()
            client.update_config(config)
            client.describe_actions()
            client.action(action)
            assert len(list(client.action_stream(action))) == 1
            client.get_service_options_from_config("tts")  # asks for the config
    assert names(measurements) == [
        ("request", name, None)
        for name in (
            *("get-config", "get-config", "describe-config", "update-config", "describe-actions"),
            *("lamp:switch", "lamp:switch", "get-config"),
        )
    ]
    described = [{"name": "tts", "options": [{"name": "voice", "type": "string"}]}]
    total, result = len(json.dumps({"config": config})), len(json.dumps({"result": True}))
    assert [done.size for done in measurements if done.name != "describe-actions"] == [
        *(total, total, len(json.dumps({"config": described})), total),
        *(result, result, total),
    ]


def test_a_malformed_answer(measurements: list[Measurement]) -> None:
    """A request whose answer cannot be decoded has failed."""

    def handle(session: BotSession, message: dict[str, Any]) -> bool:
        if message["type"] == "get-config":
            session.send({"label": "rtvi-ai", "type": "config", "id": message["id"], "data": {"config": 5}})
        return bool(message["type"] == "get-config")

    with EmbeddedBot(version="0.3.0", handler=handle) as bot, MeasuredClient.for_url(bot.ws_url) as client:
        client.on_measurement = measurements.append
        with pytest.raises(ProtocolError):
            client.get_config()
    assert names(measurements) == [("request", "get-config", "ProtocolError")]


def test_a_stream(measurements: list[Measurement]) -> None:
    """Only the time of waiting counts; a stream that is closed early or fails is reported, too."""
    run = {"service": "llm", "action": "run"}
    with EmbeddedBot(replies="No.", actions={}) as bot:
        client = MeasuredClient.for_url(bot.base_url)
        client.on_measurement = measurements.append
        stream = client.action_stream(run)
        assert measurements == []
        began, size, pauses = time.monotonic(), 0, 0
        for message in stream:
            size += len(json.dumps(message.data))
            time.sleep(0.02)
            pauses += 1
        total = time.monotonic() - began
        with contextlib.closing(client.action_stream(run)) as stream:
            first = next(stream)
            time.sleep(0.02)
        with pytest.raises(RequestRejectedError):
            list(client.action_stream({**run, "action": "fly"}))
        client.close()
    assert pauses > 3
    assert names(measurements) == [
        ("request", "llm:run", None),
        ("request", "llm:run", None),
        ("request", "llm:fly", "RequestRejectedError"),
    ]
    assert [done.size for done in measurements[:2]] == [size, len(json.dumps(first.data))]
    assert 0 < measurements[0].seconds <= total - pauses * 0.02
    assert all(done.seconds > 0 for done in measurements)


def test_starting_a_bot(bot: EmbeddedBot, measurements: list[Measurement]) -> None:
    """Starting a bot is reported as connecting, and so is its failure."""
    client = MeasuredClient(transport=WebSocketTransport(), enable_mic=False)
    client.on_measurement = measurements.append
    with pytest.raises(StartBotError):
        client.start_bot(f"{bot.base_url}/nowhere")
    client.connect(client.start_bot(f"{bot.base_url}/start"))
    client.disconnect()
    client.start_bot_and_connect(f"{bot.base_url}/start")
    client.close()
    assert names(measurements) == [
        ("connect", "start_bot", "StartBotError"),
        ("connect", "start_bot", None),
        ("connect", "connect", None),
        ("connect", "start_bot_and_connect", None),
    ]


def test_no_bot(measurements: list[Measurement]) -> None:
    """A bot that never becomes ready fails the connect; wait_for_answer() raises."""
    with EmbeddedBot(ready=False) as bot:
        client = MeasuredClient.for_url(bot.ws_url, connect_timeout=0.1)
        client.on_measurement = measurements.append
        with pytest.raises(BotNotReadyError):
            client.wait_for_answer(GUARD)
        with pytest.raises(ConnectionTimeoutError):
            client.connect()
    assert names(measurements) == [("connect", "connect", "ConnectionTimeoutError")]
    assert 0.1 <= measurements[0].seconds < GUARD


def test_made_as_other_clients(bot: EmbeddedBot) -> None:
    """A MeasuredClient takes an object with options, a mapping or keywords, and needs no `on_measurement`."""
    for client in (
        MeasuredClient(RTVIClientOptions(transport=WebSocketTransport(bot.ws_url), enable_mic=False)),
        MeasuredClient({"transport": WebSocketTransport(bot.ws_url), "enableMic": False}),
        MeasuredClient(transport=WebSocketTransport(bot.ws_url), enable_mic=False),
    ):
        with client:
            assert client.send_client_request("x", 1) == 1
    with pytest.raises(TypeError):
        MeasuredClient(nothing=1)  # type: ignore[call-overload]


class TestAnswers:
    def test_typed(self, client: MeasuredClient, measurements: list[Measurement]) -> None:
        """Spoken and written answers: text, audio and completion, from the moment when the text was sent."""
        with client:
            del measurements[:]
            client.send_text("Well?")
            spoken = client.wait_for_answer(GUARD)
            client.send_text("Well?", audio_response=False)
            written = client.wait_for_answer(GUARD)
        assert [name for _, name, _ in names(measurements)] == [
            "first text",
            "first audio",
            "complete",
            "first text",
            "complete",
        ]
        assert spoken.time_to_first_token is not None
        assert spoken.duration is not None
        assert 0 < spoken.time_to_first_token < spoken.duration
        assert spoken.duration > 0.1  # one spoken word
        assert written.time_to_first_audio is None
        assert [done.seconds for done in measurements] == [
            *(spoken.time_to_first_token, spoken.time_to_first_audio, spoken.duration),
            *(written.time_to_first_token, written.duration),
        ]

    def test_spoken(self, bot: EmbeddedBot, measurements: list[Measurement]) -> None:
        """A spoken question is timed from its last audible frame, so that its time includes the bot's hangover."""
        source = ToneSource(duration=0.3)
        client = MeasuredClient.for_url(bot.base_url, mic=source)
        client.on_measurement = measurements.append
        began = time.monotonic()
        with client:
            assert source.wait(GUARD)
            sent = time.monotonic()
            answer = client.wait_for_answer(GUARD)
        complete = next(done for done in measurements if done.name == "complete")
        assert began + 0.28 <= complete.began <= sent + 0.02  # when the last 20 ms of 0.3 s were sent
        assert answer.voice_to_voice is not None
        assert answer.voice_to_voice > HANGOVER / 2  # a late microphone catches up, which shortens the bot's pause
        assert complete.seconds > answer.voice_to_voice + 0.2  # the bot repeats the user's audio
        assert not answer.audio
        assert not answer.user_audio

    def test_text_for_the_context(self, client: MeasuredClient, measurements: list[Measurement]) -> None:
        """A text that is only added to the context is no question."""
        with client:
            client.send_text("By the way.", run_immediately=False)
            with pytest.raises(RequestTimeoutError):
                client.wait_for_answer(0.05)
        assert names(measurements)[1:] == [("answer", "first audio", "RequestTimeoutError")]
        assert 0.05 <= measurements[1].seconds < GUARD

    def test_other_questions(self, client: MeasuredClient, measurements: list[Measurement]) -> None:
        """Files, and messages for the context, may ask for an answer, too."""
        with client:
            client.send_file(b"x", "What is this?", audio_response=False, name="x.txt")
            assert client.wait_for_answer(GUARD).bot_text == "No."
        with EmbeddedBot(version="1.4.0", replies="No.") as bot, MeasuredClient.for_url(bot.ws_url) as older:
            older.append_to_context("user", "By the way.")
            older.append_to_context("user", "Well?", run_immediately=True)
            assert older.wait_for_answer(GUARD).time_to_first_audio is not None

    def test_an_answer_of_long_ago(self) -> None:
        """An answer of long ago is returned at once, though a hundred turns have ended and were returned since."""
        with MeasuredClient(transport=MemoryTransport(TalkingBot()), connect_timeout=GUARD) as client:
            client.send_text("first")
            for _ in range(101):
                client.ask("next", GUARD)
            with takes(1.0):
                assert client.wait_for_answer(GUARD).number == 1

    def test_none_in_time(self, client: MeasuredClient, measurements: list[Measurement]) -> None:
        """A bot that is silent fails one answer, and may answer the next."""
        with client:
            client.send_text("silence", audio_response=False)
            with pytest.raises(RequestTimeoutError, match="missing: first text"):
                client.wait_for_answer(0.05)
            client.send_text("Well?", audio_response=False)
            client.wait_for_answer(GUARD)
        assert names(measurements)[1:] == [
            ("answer", "first text", "RequestTimeoutError"),
            ("answer", "first text", None),
            ("answer", "complete", None),
        ]

    def test_the_bot_leaves(self, client: MeasuredClient, measurements: list[Measurement]) -> None:
        """The call that waits raises, and one failure is reported; the next session is measured by itself."""
        client.connect()
        client.send_text("leave", audio_response=False)
        with pytest.raises(DisconnectedError) as caught:
            client.wait_for_answer(GUARD)
        assert caught.value.code == 1011
        with pytest.raises(BotNotReadyError):
            client.send_text("Are you there?")
        with pytest.raises(BotNotReadyError):
            client.wait_for_answer(GUARD)
        client.connect()
        client.send_text("Well?", audio_response=False)
        client.wait_for_answer(GUARD)
        assert names(measurements)[1:] == [
            ("answer", "first text", "DisconnectedError"),
            ("answer", "first text", "BotNotReadyError"),
            ("connect", "connect", None),
            ("answer", "first text", None),
            ("answer", "complete", None),
        ]

    def test_the_user_leaves(self, client: MeasuredClient, measurements: list[Measurement]) -> None:
        """An answer that disconnect() cuts off is no failure of the bot."""
        client.connect()
        client.send_text("silence")
        leaving = threading.Timer(0.05, client.disconnect)
        leaving.start()
        with pytest.raises(DisconnectedError):
            client.wait_for_answer(GUARD)
        leaving.join()
        assert names(measurements) == [("connect", "connect", None)]

    def test_the_bot_leaves_in_mid_answer(self, client: MeasuredClient, measurements: list[Measurement]) -> None:
        """The partial answer is reported, and the missing part as a failure."""
        client.connect()
        client.send_text("leave soon", audio_response=False)
        with pytest.raises(DisconnectedError):
            client.wait_for_answer(GUARD)
        client.close()
        assert names(measurements)[1:] == [
            ("answer", "first text", None),
            ("answer", "complete", "DisconnectedError"),
        ]

    def test_a_function(self, client: MeasuredClient, measurements: list[Measurement]) -> None:
        """The bot's text before a function is not the whole answer."""
        with client:
            client.send_text("weather", audio_response=False)
            turn = client.wait_for_answer(GUARD)
        assert turn.bot_text == "One moment. Rain."
        assert names(measurements)[1:] == [("answer", "first text", None), ("answer", "complete", None)]

    def test_an_error(self, client: MeasuredClient, measurements: list[Measurement]) -> None:
        """An answer that is nothing but an error has failed at once."""
        with client:
            client.send_text("fail", audio_response=False)
            with pytest.raises(BotError, match="no credit"):
                client.wait_for_answer(GUARD)
        assert names(measurements)[1:] == [("answer", "first text", "BotError")]

    def test_a_late_answer(self, client: MeasuredClient, measurements: list[Measurement]) -> None:
        """An abandoned answer is not reported again, and is not taken for the answer to the next question."""
        with client:
            client.send_text("silence", audio_response=False)
            with pytest.raises(RequestTimeoutError):
                client.wait_for_answer(0.05)
            client.send_text("and then", audio_response=False)
            assert client.wait_for_answer(GUARD).bot_text == "No."
        assert names(measurements)[1:] == [
            ("answer", "first text", "RequestTimeoutError"),
            ("answer", "first text", None),
            ("answer", "complete", None),
        ]

    def test_an_interrupted_answer(self, bot: EmbeddedBot, measurements: list[Measurement]) -> None:
        """An interrupted answer has no end that is measured, and the answer to the second question is waited for."""
        with EmbeddedBot(replies="Once upon a time. " * 20) as bot, MeasuredClient.for_url(bot.ws_url) as client:
            client.on_measurement = measurements.append
            with client.events("bot-started-speaking", timeout=GUARD) as started:
                client.send_text("And?")
                next(started)
            client.send_text("Stop!", audio_response=False)
            turn = client.wait_for_answer(GUARD)
        assert (turn.user_text, turn.status) == ("Stop!", "complete")
        assert [name for name in names(measurements) if name[1] != "first audio"] == [
            ("answer", "first text", None),
            ("answer", "first text", None),
            ("answer", "complete", None),
        ]

    def test_what_is_no_answer(self, client: MeasuredClient, measurements: list[Measurement]) -> None:
        """Unasked speech of the bot is not measured, and no call waits for it."""
        with client:
            client.send_text("and then", audio_response=False)
            assert client.wait_for_answer(GUARD).bot_text == "No."
            assert [turn.bot_text for turn in client.turns()] == ["No.", "Rain."]
        assert names(measurements)[1:] == [("answer", "first text", None), ("answer", "complete", None)]

    def test_a_bot_that_does_not_speak(self, measurements: list[Measurement]) -> None:
        """With `skip_tts` no speech is waited for, though the question asked for it."""
        transport = EvalTransport(skip_tts=True)
        with EmbeddedBot(replies="No.") as bot, MeasuredClient.for_url(bot.base_url, transport=transport) as client:
            client.on_measurement = measurements.append
            client.send_text("Well?")
            turn = client.wait_for_answer(GUARD)
        assert (turn.bot_text, turn.assumed) == ("No.", None)
        assert names(measurements) == [("answer", "first text", None), ("answer", "complete", None)]

    def test_in_manual_mode(self, bot: EmbeddedBot) -> None:
        """wait_for_answer() delivers the events while it waits."""
        client = MeasuredClient.for_url(bot.ws_url, events="manual")
        with client:
            client.send_text("Well?", audio_response=False)
            assert client.wait_for_answer(GUARD).bot_text == "No."

    def test_waiting_in_a_handler_raises(self, client: MeasuredClient) -> None:
        """In a handler, wait_for_answer() raises `WouldDeadlockError`."""
        raised: list[BaseException] = []
        done = threading.Event()

        def wait() -> None:
            try:
                client.wait_for_answer(GUARD)
            except WouldDeadlockError as error:
                raised.append(error)
            done.set()

        client.on("bot_ready", wait)
        with client:
            assert done.wait(GUARD)
        assert len(raised) == 1


def test_it_is_collected(bot: EmbeddedBot) -> None:
    """The handlers that measure do not keep a client alive."""
    import weakref

    client = MeasuredClient.for_url(bot.ws_url)
    with client:
        client.send_text("Well?", audio_response=False)
        client.wait_for_answer(GUARD)
    alive = weakref.ref(client)
    del client
    collect()
    assert alive() is None
