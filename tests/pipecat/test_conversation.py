"""The client in conversation with real Pipecat bots."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from rtvi_sync import (
    MessageTooLargeError,
    RequestRejectedError,
    RequestTimeoutError,
    RTVIEvent,
    RTVIMessage,
)
from rtvi_sync.media import BytesSink, NullSink, ToneSource
from tests.support.slowness import GUARD

from .clients import assert_echo, client_of
from .conftest import BotServer


def test_audio_comes_back_bit_exact(pipecat_echo: BotServer) -> None:
    """Two seconds of noise at 16 kHz, sent in real time and echoed by the bot, return unchanged."""
    assert_echo(partial(client_of, pipecat_echo))


def test_spoken_turn(pipecat_talk: BotServer) -> None:
    """Speech with silence after it is one turn: transcript, tokens, speech, with audio at the bot's own rate."""
    sink = BytesSink()
    types: list[str] = []
    client = client_of(pipecat_talk, mic=ToneSource(440, duration=1.0, sample_rate_hz=16000), speaker=sink)
    with client.events(timeout=GUARD) as events, client:
        for event in events:
            types.append(event.type.value)
            if event.type is RTVIEvent.USER_TRANSCRIPT and event.data.final:
                transcript = event.data.text
            if event.type is RTVIEvent.BOT_TRANSCRIPT:
                answer = event.data.text
            if event.type is RTVIEvent.BOT_STOPPED_SPEAKING and "botStartedSpeaking" in types:
                break

    assert transcript == "hello bot"
    assert "hello bot" in answer
    turn = ["userStartedSpeaking", "userTranscript", "userLlmText", "botLlmStarted", "botLlmText", "botLlmStopped"]
    assert [t for i, t in enumerate(types) if t in turn and t not in types[:i]] == turn
    assert sink.sample_rate_hz == 24000
    assert len(sink.pcm) > 24000


def test_typed_turn(pipecat_talk: BotServer) -> None:
    """Every message of a typed turn arrives as a typed event; none is unknown."""
    with client_of(pipecat_talk) as client, client.events(timeout=GUARD) as events:
        client.send_text("Good morning")
        seen = []
        for event in events:
            seen.append(event)
            if event.type is RTVIEvent.BOT_STOPPED_SPEAKING:
                break

    by_type = {event.type: event for event in seen}
    assert RTVIEvent.UNKNOWN_MESSAGE not in by_type
    assert by_type[RTVIEvent.USER_INPUT].data.text == "Good morning"
    assert by_type[RTVIEvent.USER_INPUT].data.input_type == "chat"
    tokens = "".join(event.data.text for event in seen if event.type is RTVIEvent.BOT_LLM_TEXT)
    assert tokens == by_type[RTVIEvent.BOT_TRANSCRIPT].data.text
    outputs = [event.data for event in seen if event.type is RTVIEvent.BOT_OUTPUT]
    assert {output.spoken_status for output in outputs} >= {"new", "in-progress", "completed"}
    assert outputs[-1].spoken_progress.remaining_text == ""


def test_interruption_drops_playback(pipecat_talk: BotServer) -> None:
    """A typed turn while the bot speaks interrupts it, and the sink has to drop its audio."""
    dropped = threading.Event()

    class Sink(NullSink):
        def drop(self) -> None:
            dropped.set()

    with client_of(pipecat_talk, speaker=Sink()) as client, client.events(timeout=GUARD) as events:
        client.send_text("Tell me a story of many words, please, and take your time with it")
        next(event for event in events if event.type is RTVIEvent.BOT_STARTED_SPEAKING)
        dropped.clear()
        client.send_text("Stop")
        next(event for event in events if event.type is RTVIEvent.BOT_INTERRUPTED)
        assert dropped.wait(GUARD)


def test_silent_answer(pipecat_talk: BotServer) -> None:
    """With audio_response=False the answer arrives as text and no audio is played."""
    sink = BytesSink()
    with client_of(pipecat_talk, speaker=sink) as client, client.events(timeout=GUARD) as events:
        client.send_text("Quietly please.", audio_response=False)
        next(event for event in events if event.type is RTVIEvent.BOT_LLM_STOPPED)
        assert client.send_client_request("ping", 1) == {"pong": 1}

    assert not any(sink.pcm[: 24000 * 2])


def test_requests(pipecat_talk: BotServer) -> None:
    """Answers arrive out of order, twice, as refusals or never; each call gets its own."""
    with client_of(pipecat_talk) as client:
        slow: list[object] = []
        thread = threading.Thread(target=lambda: slow.append(client.send_client_request("slow", 0.5)))
        thread.start()
        assert client.send_client_request("ping", {"a": [1, None]}) == {"pong": {"a": [1, None]}}
        assert not slow
        client.send_client_request("twice", 1)
        with pytest.raises(RequestRejectedError):
            client.send_client_request("fail")
        with pytest.raises(RequestTimeoutError):
            client.send_client_request("never", timeout=0.3)
        assert client.send_client_request("ping", "still here") == {"pong": "still here"}
        thread.join(GUARD)
        assert slow


def test_unsupported_type_is_refused(pipecat_talk: BotServer) -> None:
    """A message of a type that the bot does not know fires message_error with the bot's words."""
    with client_of(pipecat_talk) as client, client.events("message-error", timeout=GUARD) as errors:
        client.send_message(RTVIMessage("no-such-type", {}))
        assert "no-such-type" in next(errors).data.message


def test_large_messages(pipecat_talk: BotServer) -> None:
    """Just under the limit a request is answered; over it nothing is sent."""
    with client_of(pipecat_talk) as client:
        payload = "x" * 1_000_000
        assert client.send_client_request("ping", payload) == {"pong": payload}
        with pytest.raises(MessageTooLargeError, match="1048576"):
            client.send_client_request("ping", "x" * 1_048_576)
        assert client.send_client_request("ping", 1) == {"pong": 1}


def test_old_bot(pipecat_0_3: BotServer) -> None:
    """A bot of RTVI 0.3 takes our handshake; its bot-ready carries version and config, typed."""
    client = client_of(pipecat_0_3)
    ready = client.connect()
    client.disconnect()

    assert ready.version == "0.3.0"
    assert ready.config
    assert all(service.service and service.options for service in ready.config)
