"""Live spans of OpenTelemetry, read from its SDK."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rtvi_sync import BotError, ConnectError, MissingExtraError, RTVIClient, Turn, UnsupportedFeatureError
from rtvi_sync.testing import BotSession, EmbeddedBot, Fault, Reply
from tests.support.clients import bot_says, memory_client
from tests.support.slowness import GUARD
from tests.support.wavs import tone

sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk is not installed")

from opentelemetry import trace  # noqa: E402 - behind the line that skips the tests without it
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402

from rtvi_sync.otel import instrument  # noqa: E402

WEATHER = Reply("It rains.", call=("get_weather", {"city": "Oslo"}), result={"sky": "grey"}, report_level="full")


class Spans:
    """A provider of tracers, with the spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span

    def children(self, parent: ReadableSpan) -> list[ReadableSpan]:
        return [span for span in self.all if span.parent is not None and span.parent.span_id == parent.context.span_id]

    @property
    def all(self) -> list[ReadableSpan]:
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture(scope="module")
def bot() -> Iterator[EmbeddedBot]:
    """Start a bot that knows the weather."""
    with EmbeddedBot(
        transcripts=["What is the weather?"], replies={"weather": WEATHER, "": "Hello."}, hangover=0.2
    ) as bot:
        yield bot


def client_of(bot: EmbeddedBot, **options: Any) -> RTVIClient:
    return RTVIClient.for_url(bot.base_url, mic=False, speaker=False, connect_timeout=GUARD, **options)


def on_thread(function: Callable[[], Any]) -> Any:
    """Call a function on a thread of its own, and return its result."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join(GUARD)
    return results[0]


def test_the_tree_over_three_threads(spans: Spans, bot: EmbeddedBot) -> None:
    """The spans are below the one that was current at the call, whatever thread connects and asks."""
    tracer = spans.provider.get_tracer("application")
    client = client_of(bot)
    with tracer.start_as_current_span("job"):
        instrument(client, tracer_provider=spans.provider)
    with contextlib.closing(client):
        on_thread(client.connect)
        on_thread(lambda: client.ask("What is the weather?", timeout=GUARD))
        on_thread(lambda: client.ask(tone(0.5), sample_rate_hz=16_000, timeout=GUARD))
    [conversation] = spans.children(spans.one("job"))
    assert conversation.name == "conversation"
    connect, *turns = spans.children(conversation)
    assert [span.name for span in (connect, *turns)] == ["connect", "turn", "turn"]
    assert [[child.name for child in spans.children(turn)] for turn in turns] == [["execute_tool get_weather"]] * 2
    assert len(spans.all) == 7


def test_times_are_the_timings(spans: Spans, bot: EmbeddedBot) -> None:
    """One difference of the clocks, to 1 ms, leads from all timings of a turn to the events of its span."""
    with client_of(bot) as client:
        instrument(client, tracer_provider=spans.provider)
        turns = [client.ask(text, timeout=GUARD) for text in ("What is the weather?", "Hello")]
    offsets = [
        offset for turn, span in zip(turns, spans.named("turn"), strict=True) for offset in offsets_of(turn, span)
    ]
    assert len(offsets) > 10
    assert max(offsets) - min(offsets) < 0.001
    for turn, span in zip(turns, spans.named("turn"), strict=True):
        assert attributes_of(span)["turn.user_bot_latency_seconds"] == pytest.approx(turn.time_to_first_audio, abs=1e-9)
        assert attributes_of(span)["turn.duration_seconds"] == pytest.approx(seconds(span), abs=0.001)
    [call] = turns[0].function_calls
    span = spans.one("execute_tool get_weather")
    assert call.started is not None
    assert call.stopped is not None
    assert seconds(span) == pytest.approx(call.stopped - call.started, abs=0.001)


def test_half_a_character(spans: Spans) -> None:
    """A bot's texts can be encoded by an exporter, in names, attributes and errors."""
    half = "half \ud83d"
    reply = Reply(half, call=(half, {"city": half}), result={"sky": half}, report_level="full")

    def fail(session: BotSession, message: dict[str, Any]) -> bool:
        is_asked = message["type"] == "send-text" and message["data"]["content"] == "Fail"
        if is_asked:
            session.send({"label": "rtvi-ai", "type": "error", "id": "1", "data": {"error": half, "fatal": False}})
        return is_asked

    with EmbeddedBot(replies={"weather": reply}, handler=fail) as bot, client_of(bot) as client:
        instrument(client, tracer_provider=spans.provider, content=True)
        client.ask("What is the weather?", timeout=GUARD)
        with pytest.raises(BotError):
            client.ask("Fail", timeout=GUARD)
    assert spans.named("turn")[-1].status.description == "half ?"
    for span in spans.all:
        json.dumps([span.name, attributes_of(span), span.status.description], ensure_ascii=False).encode()
    assert spans.named("execute_tool half ?")


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def offsets_of(turn: Turn, span: ReadableSpan) -> Iterator[float]:
    names = [event.name for event in span.events]
    assert names == sorted(names, key=lambda name: getattr(turn.timings, name))
    for event in span.events:
        yield event.timestamp / 1e9 - getattr(turn.timings, event.name)
    assert (span.start_time, span.end_time) == (span.events[0].timestamp, span.events[-1].timestamp)


def seconds(span: ReadableSpan) -> float:
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e9


def test_attributes_have_the_names_of_pipecat(spans: Spans, bot: EmbeddedBot) -> None:
    """A turn has the attributes of Pipecat's traces, and all spans the id that the application gave."""
    with client_of(bot) as client:
        instrument(client, tracer_provider=spans.provider, conversation_id="call-7")
        client.ask("What is the weather?", timeout=GUARD)
    conversation, turn = spans.one("conversation"), spans.one("turn")
    assert attributes_of(conversation) == {
        "conversation.id": "call-7",
        "conversation.type": "voice",
        "gen_ai.conversation.id": "call-7",
    }
    attributes = attributes_of(turn)
    assert attributes.pop("turn.duration_seconds", 0) > 0
    assert attributes.pop("turn.user_bot_latency_seconds", 0) > 0
    assert attributes == {
        "conversation.id": "call-7",
        "gen_ai.conversation.id": "call-7",
        "turn.number": 1,
        "turn.type": "conversation",
        "turn.was_interrupted": False,
        "rtvi.turn.status": "complete",
        "rtvi.turn.initiator": "user",
        "rtvi.turn.modality": "text",
    }
    call = attributes_of(spans.one("execute_tool get_weather"))
    assert call.pop("gen_ai.tool.call.id")
    assert call == {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get_weather"}


def test_no_words_without_content(spans: Spans, bot: EmbeddedBot) -> None:
    """Spoken words, calls and results are in the spans with `content` alone."""
    with_content = Spans()
    with client_of(bot) as client:
        instrument(client, tracer_provider=spans.provider)
        instrument(client, tracer_provider=with_content.provider, content=True)
        client.ask("What is the weather?", timeout=GUARD)
    text = "".join(span.to_json() for span in spans.all)
    for words in ("weather?", "rains", "Oslo", "grey"):
        assert words not in text
    turn = attributes_of(with_content.one("turn"))
    assert json.loads(str(turn["gen_ai.input.messages"])) == [
        {"role": "user", "parts": [{"type": "text", "content": "What is the weather?"}]}
    ]
    assert "It rains." in str(turn["gen_ai.output.messages"])
    call = attributes_of(with_content.one("execute_tool get_weather"))
    assert json.loads(str(call["gen_ai.tool.call.arguments"])) == {"city": "Oslo"}
    assert json.loads(str(call["gen_ai.tool.call.result"])) == {"sky": "grey"}


def test_each_session_is_a_conversation(spans: Spans, bot: EmbeddedBot) -> None:
    """A second session of the client has a conversation and an id of its own."""
    client = client_of(bot)
    instrument(client, tracer_provider=spans.provider)
    for _ in range(2):
        with client:
            client.ask("Hello", timeout=GUARD)
            client.disconnect()
    first, second = spans.named("conversation")
    assert attributes_of(first)["conversation.id"] != attributes_of(second)["conversation.id"]
    assert [[child.name for child in spans.children(each)] for each in (first, second)] == [["connect", "turn"]] * 2


def test_a_turn_that_the_end_cuts_off(spans: Spans) -> None:
    """A turn without a whole answer says that the conversation ended first; the turn before it does not."""
    # The fault is after the first spoken word, so the end may come before, during or after it.
    bot = EmbeddedBot(replies={"stall": "Never in full.", "": "Hello."}, faults=[Fault("stall", "stall")])
    with bot, client_of(bot) as client:
        instrument(client, tracer_provider=spans.provider)
        client.ask("Hello", timeout=GUARD)
        with client.events("bot-llm-started", timeout=GUARD) as starts:
            client.send_text("stall")
            next(starts)
    first, second = spans.named("turn")
    assert "turn.ended_by_conversation_end" not in attributes_of(first)
    assert attributes_of(second)["turn.ended_by_conversation_end"] is True
    assert second.status.status_code is trace.StatusCode.ERROR
    assert second.end_time == spans.one("conversation").end_time


def test_a_conversation_that_fails(spans: Spans) -> None:
    """A connection that breaks is the error of the conversation."""
    with EmbeddedBot(faults=[Fault("drop")]) as bot, client_of(bot) as client:
        instrument(client, tracer_provider=spans.provider)
        client.send_text("Hello")
        client.wait(GUARD)
    conversation = spans.one("conversation")
    assert conversation.status.status_code is trace.StatusCode.ERROR
    assert conversation.status.description


def test_an_attempt_that_fails(spans: Spans) -> None:
    """An attempt without a bot is a span of its own with an error, and no conversation."""
    client = RTVIClient.for_url("ws://127.0.0.1:9/", mic=False, speaker=False, connect_timeout=GUARD)
    instrument(client, tracer_provider=spans.provider)
    with pytest.raises(ConnectError):
        client.connect()
    client.close()
    assert {span.name for span in spans.all} == {"connect"}
    assert spans.all[0].parent is None
    assert spans.all[0].status.status_code is trace.StatusCode.ERROR


def test_close(spans: Spans) -> None:
    """close() ends the conversation and its turn in progress; nothing that happens later has a span."""
    client = memory_client()
    instrumentation = instrument(client, tracer_provider=spans.provider)
    with client:
        with client.events("turn_started", timeout=GUARD) as turns:
            bot_says(client, "bot-llm-started")
            next(turns)
        instrumentation.close()
        instrumentation.close()
        ended = [span.name for span in spans.all]
        assert sorted(ended) == ["connect", "conversation", "turn"]
        assert attributes_of(spans.one("turn"))["turn.ended_by_conversation_end"] is True
    assert [span.name for span in spans.all] == ended


def test_a_session_that_is_live_already(spans: Spans) -> None:
    """A client that is connected has a conversation from the call on, without a span for the connection."""
    with memory_client() as client:
        instrument(client, tracer_provider=spans.provider)
    assert [span.name for span in spans.all] == ["conversation"]


def test_without_turns(spans: Spans) -> None:
    """A client that follows no turns cannot be instrumented."""
    with pytest.raises(UnsupportedFeatureError):
        instrument(memory_client(track_turns=False), tracer_provider=spans.provider)


def test_the_global_provider(bot: EmbeddedBot) -> None:
    """Without an SDK that the application has set up, nothing happens."""
    with client_of(bot) as client:
        instrument(client)
        client.ask("Hello", timeout=GUARD)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without OpenTelemetry the error names the package to install."""
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(MissingExtraError, match="otel"):
        instrument(memory_client())
