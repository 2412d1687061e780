"""EvalTransport: the messages that it receives and sends."""

from __future__ import annotations

import base64
import json
import logging
from contextlib import closing
from functools import partial
from typing import Any, cast

import attrs
import pytest

from rtvi_sync import EvalTransport, RTVIClient
from rtvi_sync.errors import DisconnectedError, MessageTooLargeError
from rtvi_sync.media import BytesSink, NullSink
from rtvi_sync.messages import RTVIMessage
from rtvi_sync.testing import EmbeddedBot
from tests.support.attempts import connect_within, timed_out
from tests.support.slowness import GUARD
from tests.support.waiting import until
from tests.support.websocket import BINARY, TEXT, frame
from tests.support.websocket_bots import Session, flush

MESSAGE = b'{"label": "rtvi-ai", "type": "bot-llm-started"}'


def audio_frame(pcm: bytes, rate: object = 16_000) -> bytes:
    """Return a message in which a bot speaks."""
    data = {"audio": base64.b64encode(pcm).decode(), "sampleRate": rate}
    return frame(TEXT, json.dumps({"label": "rtvi-ai", "type": "eval-bot-audio", "data": data}).encode())


def received(bot) -> dict:
    """Return the next message that the transport has sent."""
    opcode, payload = bot.receive()
    assert opcode == TEXT
    return json.loads(payload)


# -- the first message ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({}, {"skip_tts": False, "capture_bot_audio": True, "capture_bot_images": False}),
        (
            {"skip_tts": True, "capture_bot_audio": False, "capture_bot_images": True},
            {"skip_tts": True, "capture_bot_audio": False, "capture_bot_images": True},
        ),
    ],
)
def test_the_flags_come_first(server, opened, options, flags):
    """The first message names the route and the kinds that the bot should send; `client-ready` is the second.

    Older bots read the flags in the URL.
    """
    opened(EvalTransport(f"{server.url}?mine=1", **options))
    head, bot = server.arrival()
    in_query = [name for name, wanted in flags.items() if wanted] + ["user_audio"]
    assert f"?mine=1&{'=true&'.join(in_query)}=true HTTP" in head
    assert received(bot) == {
        "label": "rtvi-ai",
        "type": "client-message",
        "id": "eval-connect",
        "data": {"t": "eval-connect", "d": flags},
    }
    assert received(bot)["type"] == "client-ready"


def test_audio_that_cannot_be_heard_is_not_captured(plain, runtime, attempt):
    """The bot's audio is not requested if the session has no track for it, unless the application requests it."""
    for capture in (None, True):
        transport, session = EvalTransport(plain.url, capture_bot_audio=capture), Session(runtime)
        transport.initialize(session.options, lambda _: None)  # no devices are prepared
        transport.connect(None, attempt.signal)
        head, bot = plain.arrival()
        assert received(bot)["data"]["d"]["capture_bot_audio"] is (capture is True)
        assert ("?capture_bot_audio=true HTTP" in head) is (capture is True)
        assert "user_audio" not in head
        transport.disconnect()


def test_a_text_only_session_asks_for_no_audio():
    """The bot's voice is not sent, but the bot speaks, so that it sends the same events as over the other transport."""
    with (
        EmbeddedBot(replies="It is noon.") as bot,
        RTVIClient.for_url(bot.ws_url, transport="eval", text_only=True) as client,
        client.events("bot-transcription", "bot-stopped-speaking", timeout=GUARD) as events,
    ):
        session = bot.wait_for_session(GUARD)
        client.send_text("What time is it?")
        assert next(events).data.text == "It is noon."
        assert next(events).type == "bot-stopped-speaking"
        assert session.eval_route is not None
        assert not any(session.eval_route.flags.values())
        assert session.path == "/ws"
        assert client.stats().audio_received == 0


@pytest.mark.parametrize("option", ["skip_tts", "capture_bot_audio", "capture_bot_images"])
def test_a_flag_that_is_none(option):
    """Each flag is a bool."""
    wrong: Any = {option: "yes"}
    with pytest.raises(TypeError, match=f"{option} must be True or False"):
        EvalTransport(**wrong)


def test_an_unknown_option():
    """A misspelt option is refused by its name."""
    with pytest.raises(TypeError, match="ping_intervall"):
        EvalTransport(ping_intervall=5)  # type: ignore[call-arg]


# -- messages ---------------------------------------------------------------------------------------------------------


def test_messages_both_ways(server, opened):
    """A message is sent as JSON in a text message, and a received one keeps its text."""
    transport = EvalTransport(server.url)
    session = opened(transport)
    bot = server.bot()
    transport.send_message(RTVIMessage("client-message", {"t": "ü"}, "id-1"))
    assert received(bot) == {"label": "rtvi-ai", "type": "client-message", "id": "id-1", "data": {"t": "ü"}}
    for text in (MESSAGE, "ü\u2028".encode(), b"no JSON", b""):
        bot.send(frame(TEXT, text))
    session.wait(lambda: session.messages == [MESSAGE.decode(), "ü\u2028", "no JSON", ""])


def test_what_comes_together_keeps_its_order(plain, opened, runtime, monkeypatch):
    """Each message of one read is delivered once and in order, no matter which kinds are between."""
    session = Session(runtime)

    def tell(what: object) -> None:
        session._note(session.messages, what)

    monkeypatch.setattr(session.media, "receive_audio", lambda *audio: tell(audio))
    transport = EvalTransport(plain.url)
    opened(transport, session=session)
    pcm = [bytes([n, 0]) * 160 for n in range(3)]
    mention = b'{"label": "rtvi-ai", "type": "bot-llm-text", "data": {"text": "eval-bot-audio"}}'
    together = [frame(TEXT, MESSAGE), audio_frame(pcm[0]), frame(TEXT, mention), audio_frame(pcm[1])]

    plain.bot().send(b"".join([*together, frame(TEXT, MESSAGE), audio_frame(pcm[2])]))

    session.wait(lambda: (pcm[2], 16_000, 1) in session.messages)
    flush(runtime)
    heard = [(samples, 16_000, 1) for samples in pcm]
    assert session.messages == [MESSAGE.decode(), heard[0], mention.decode(), heard[1], MESSAGE.decode(), heard[2]]
    assert transport.stats().audio_received == pytest.approx(0.03)


def test_audio_that_is_none(plain, opened, runtime, caplog):
    """Audio that cannot be decoded is logged and skipped, an unusable rate is counted; the session goes on."""
    sink = BytesSink()
    session = Session(runtime, speaker=sink)
    opened(EvalTransport(plain.url), session=session)
    bot = plain.bot()
    for rate in (0, -1, 10**400, "16000", None, 16_000.0):
        bot.send(audio_frame(b"\1\2" * 80, rate))
    bot.send(audio_frame(b"\1\2" * 80).replace(b'"audio": "AQ', b'"audio": "*Q'))
    bot.send(audio_frame(b"\1"))  # half a sample
    bot.send(audio_frame(b"\3\4" * 80))
    bot.send(frame(TEXT, MESSAGE))
    session.wait(lambda: session.messages == [MESSAGE.decode()])
    assert sink.pcm == b"\3\4" * 80
    assert session.media.counters.bot_frames_ignored == 3
    assert len([record for record in caplog.records if "Cannot decode a message" in record.getMessage()]) == 4
    assert session.ends == []


def test_only_the_first_undecodable_messages_are_warned_of(plain, opened, caplog):
    """A bot that sends nothing else must not fill the log."""
    session = opened(EvalTransport(plain.url))
    plain.bot().send(audio_frame(b"", None) * 50 + frame(TEXT, MESSAGE))
    session.wait(lambda: session.messages)
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 20


def test_text_that_is_not_utf_8(plain, opened):
    """Text that is not UTF-8 ends the session with WebSocket's code for it, 1007."""
    session = opened(EvalTransport(plain.url))
    plain.bot().send(frame(TEXT, b'{"label": "\xff"}'))
    session.wait(lambda: session.ends)
    assert session.ends[0].code == 1007


def test_binary_frames_are_counted_and_warned_of_once(plain, opened, caplog):
    """Binary frames, as of a bot with a protobuf serializer, are counted; the log warns once a session."""
    transport = EvalTransport(plain.url)
    session = opened(transport)
    plain.bot().send((frame(BINARY, b"\x22\0") * 2 + frame(TEXT, MESSAGE)) * 3)
    session.wait(lambda: len(session.messages) == 3)
    assert (transport.stats().binary_frames_ignored, transport.stats().text_frames_ignored) == (6, 0)
    (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "binary frames" in warning.getMessage()
    assert "WebSocketTransport" in warning.getMessage()


def test_a_bot_of_protobuf_is_named_when_connect_times_out(plain):
    """If the bot does not get ready, the error of `connect()` describes the data that the transport received
    instead.
    """
    plain.after = frame(BINARY, b"\x22\0") * 3
    transport = EvalTransport(plain.url)
    with closing(RTVIClient(transport=transport, proxy=False, enable_mic=False, speaker=NullSink())) as client:
        timed_out("bot-ready", partial(connect_within, client), "3 binary frames .* WebSocketTransport")


def test_the_size_limit(plain, opened):
    """The limit counts the bytes of the JSON text; a longer one raises before a byte is sent, and the session lives."""
    transport = EvalTransport(plain.url, max_message_size=200)
    opened(transport)
    bot = plain.bot()
    empty = len(json.dumps(RTVIMessage("x", "", "id").to_dict(), separators=(",", ":")))
    with pytest.raises(MessageTooLargeError, match="has 202 bytes; this transport carries 200"):
        transport.send_message(RTVIMessage("x", "ü" * ((202 - empty) // 2) + "x" * (empty % 2), "id"))
    transport.send_message(RTVIMessage("x", "x" * (200 - empty), "id"))
    assert received(bot)["type"] == "x"


def test_audio_out(plain, opened):
    """The user's audio is one message for each frame, and counted in seconds."""
    transport = EvalTransport(plain.url)
    opened(transport)
    transport.send_audio(b"\1\2" * 320, 16_000)
    data = received(plain.bot())["data"]
    assert data == {"base64Audio": base64.b64encode(b"\1\2" * 320).decode(), "sampleRate": 16_000, "numChannels": 1}
    assert transport.stats().audio_sent == pytest.approx(0.02)


# -- control of the bot -----------------------------------------------------------------------------------------------


def test_controls(plain, opened, tmp_path):
    """Each method sends one client message that only the eval route takes."""
    transport = EvalTransport(plain.url)
    opened(transport)
    bot = plain.bot()
    image = tmp_path / "a.png"
    image.write_bytes(b"\x89PNG")
    for call, kind, data in (
        (lambda: transport.configure("full"), "configure", {"function_call_report_level": {"*": "full"}}),
        (lambda: transport.configure({"f": "name"}), "configure", {"function_call_report_level": {"f": "name"}}),
        (
            lambda: transport.configure(vad_user_speaking=True, llm_markers=False),
            "configure",
            {"vad_user_speaking": True, "llm_markers": False},
        ),
        (
            lambda: transport.seed_context([{"role": "user", "content": "hi"}]),
            "context",
            {"messages": [{"role": "user", "content": "hi"}]},
        ),
        (lambda: transport.seed_context([]), "context", {"messages": []}),
        (lambda: transport.set_user_image(image), "image", {"image": "iVBORw==", "format": "image/png"}),
        (lambda: transport.set_user_image(str(image)), "image", {"image": "iVBORw==", "format": "image/png"}),
        (transport.cancel, "cancel", {}),
    ):
        call()
        message = received(bot)
        assert (message["type"], message["id"]) == ("client-message", f"eval-{kind}")
        assert message["data"] == {"t": f"eval-{kind}", "d": data}


def test_controls_that_are_refused(plain, opened, tmp_path):
    """Errors name wrong values; files that are too large are not read; without a session there is nothing to
    control.
    """
    transport = EvalTransport(plain.url, max_message_size=1000)
    with pytest.raises(DisconnectedError):
        transport.configure("full")
    opened(transport)
    with pytest.raises(ValueError, match="function_call_report_level"):
        transport.configure(cast("Any", "everything"))
    with pytest.raises(TypeError, match="vad_user_speaking"):
        transport.configure(vad_user_speaking=cast("Any", 1))
    for messages in ({"role": "user"}, "hi", ["hi"], None):
        with pytest.raises(TypeError, match="messages"):
            transport.seed_context(cast("Any", messages))
    with pytest.raises(TypeError, match="path"):
        transport.set_user_image(cast("Any", b"image"))
    with pytest.raises(FileNotFoundError):
        transport.set_user_image(tmp_path / "none.png")
    with pytest.raises(MessageTooLargeError, match="client-message"):
        transport.set_user_image("/dev/zero")


# -- conversations ----------------------------------------------------------------------------------------------------


def test_an_interruption(plain, opened, runtime):
    """`bot-interrupted` is the only report of one: the session drops the bot's queued audio."""
    dropped = []

    class Sink(BytesSink):
        def drop(self) -> None:
            dropped.append(len(self.pcm))

    with EmbeddedBot(replies="one two three four five six seven eight", echo=False) as bot:
        sink = Sink()
        client = RTVIClient(transport=EvalTransport(bot.ws_url), enable_mic=False, speaker=sink, connect_timeout=GUARD)
        with client, client.events("bot-interrupted", "bot-started-speaking", timeout=GUARD) as events:
            assert client.transport is not None
            client.send_text("Speak")
            assert [next(events).type.value for _ in range(2)] == ["botInterrupted", "botStartedSpeaking"]
            client.send_text("Stop")
            assert next(events).type.value == "botInterrupted"
            until(lambda: len(dropped) == 2)


def test_the_client_shows_its_transport():
    """`client.transport` is the object that was given, with its methods."""
    transport = EvalTransport()
    assert RTVIClient(transport=transport).transport is transport
    assert (transport.name, transport.supports_audio, transport.supports_video) == ("eval", True, False)
    assert repr(transport) == "EvalTransport(ws_url=None)"


def test_a_burst(plain, opened, runtime):
    """Hundreds of messages and audio frames in one go are all delivered, in order."""
    sink = BytesSink()
    session = Session(runtime, speaker=sink)
    transport = EvalTransport(plain.url)
    opened(transport, session=session)
    texts = [json.dumps({"label": "rtvi-ai", "type": "x", "data": n}) for n in range(300)]
    bot = plain.bot()
    for n, text in enumerate(texts):
        bot.send(frame(TEXT, text.encode()) + audio_frame(n.to_bytes(2, "little") * 80))
    session.wait(lambda: len(session.messages) == len(texts) and len(sink.pcm) == 160 * len(texts))
    assert session.messages == texts
    assert sink.pcm == b"".join(n.to_bytes(2, "little") * 80 for n in range(len(texts)))
    assert attrs.asdict(transport.stats())["audio_received"] == pytest.approx(1.5)
