"""WebSocketTransport: the messages that it receives and sends."""

from __future__ import annotations

import logging
from contextlib import closing
from functools import partial

import attrs
import pytest

from rtvi_sync import RTVIClient, WebSocketTransport
from rtvi_sync.errors import MessageTooLargeError
from rtvi_sync.media import BytesSink, NullSink
from rtvi_sync.messages import RTVIMessage
from tests.support.attempts import connect_within, timed_out
from tests.support.protobuf import AudioRawFrame, Frame, InterruptionFrame, MessageFrame, TextFrame, decode, encode
from tests.support.websocket import BINARY, TEXT, frame
from tests.support.websocket_bots import Session, flush, text_in


def test_messages_both_ways(server, opened):
    """A message is sent as one protobuf frame in a binary message, and a received one keeps its text."""
    transport = WebSocketTransport(server.url)
    session = opened(transport)
    bot = server.bot()
    transport.send_message(RTVIMessage("client-message", {"t": "ü"}, "id-1"))
    opcode, payload = bot.receive()
    assert opcode == BINARY
    assert '"id-1"' in text_in(payload)
    bot.send(frame(BINARY, encode(MessageFrame(data='{"label": "rtvi-ai"}'))))
    session.wait(lambda: session.messages == ['{"label": "rtvi-ai"}'])


def test_all_kinds_of_frames(plain, opened, runtime, caplog):
    """Audio goes to the sink, an interruption to the session; broken frames, and frames not for the client, are
    skipped.
    """
    sink = BytesSink()
    session = Session(runtime, speaker=sink)
    opened(WebSocketTransport(plain.url), session=session)
    bot = plain.bot()
    with caplog.at_level(logging.DEBUG):
        bot.send(frame(TEXT, b'{"label": "rtvi-ai"}'))
        bot.send(frame(BINARY, b"\xff\xff\xff"))
        bot.send(frame(BINARY, b""))
        bot.send(frame(BINARY, encode(TextFrame(text="skipped"))))
        bot.send(frame(BINARY, b"\xf2\x7f\x03abc"))  # an unknown field
        bot.send(frame(BINARY, encode(AudioRawFrame(audio=b"\1\2" * 80, sample_rate=16000))))
        bot.send(frame(BINARY, encode(InterruptionFrame())))
        bot.send(frame(BINARY, encode(MessageFrame(data="last"))))
        session.wait(lambda: session.messages == ["last"])
    assert session.interruptions == 1
    assert sink.pcm == b"\1\2" * 80
    assert "Cannot decode a message" in caplog.text
    assert "text frame" in caplog.text


def test_text_frames_are_counted_and_warned_of_once(plain, opened, runtime, caplog):
    """Text frames, as of a bot with a JSON serializer, are counted; the log warns once a session."""
    transport = WebSocketTransport(plain.url)
    session = opened(transport)
    bot = plain.bot()
    for n in range(3):
        bot.send(frame(TEXT, b'{"label": "rtvi-ai"}') * 2 + frame(BINARY, encode(MessageFrame(data=str(n)))))
    session.wait(lambda: session.messages == ["0", "1", "2"])
    assert transport.stats().text_frames_ignored == 6
    (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "text frames" in warning.getMessage()
    assert "ProtobufFrameSerializer" in warning.getMessage()


@pytest.mark.parametrize(
    ("sent", "named"),
    [
        (frame(TEXT, b'{"label": "rtvi-ai", "type": "bot-ready"}') * 3, "3 text frames .* ProtobufFrameSerializer"),
        (frame(BINARY, b'{"label": "rtvi-ai", "type": "bot-ready"}'), "1 messages that are not Pipecat's protobuf"),
        (b"", "See the bot's log"),
    ],
    ids=["text", "undecodable", "nothing"],
)
def test_a_bot_of_another_serializer_is_named_when_connect_times_out(plain, sent, named):
    """If the bot does not get ready, the error of `connect()` describes the data that the transport received
    instead.
    """
    plain.after = sent
    transport = WebSocketTransport(plain.url)
    with closing(RTVIClient(transport=transport, proxy=False, enable_mic=False, speaker=NullSink())) as client:
        timed_out("bot-ready", partial(connect_within, client), named)


def test_what_comes_together_keeps_its_order(plain, opened, runtime, monkeypatch):
    """Each frame of one read is delivered once and in order, no matter which kinds are between. All audio is counted,
    also in frames of the usual form.
    """
    session = Session(runtime)

    def tell(what: object) -> None:
        session._note(session.messages, what)

    monkeypatch.setattr(session.media, "receive_audio", lambda *audio: tell(audio))
    session.options = attrs.evolve(session.options, on_interruption=lambda: tell("interruption"))
    transport = WebSocketTransport(plain.url)
    opened(transport, session=session)
    pcm = [bytes([n, 0]) * 160 for n in range(3)]
    audio = [AudioRawFrame(audio=samples, sample_rate=16_000) for samples in pcm]  # from the second on it is usual
    message = [MessageFrame(data=text) for text in ("first", "second", "third")]
    together: list[Frame] = [message[0], audio[0], message[1], audio[1], message[2], InterruptionFrame(), audio[2]]

    plain.bot().send(b"".join(frame(BINARY, encode(each)) for each in together))

    session.wait(lambda: (pcm[2], 16_000, 1) in session.messages)
    flush(runtime)
    heard = [(samples, 16_000, 1) for samples in pcm]
    assert session.messages == ["first", heard[0], "second", heard[1], "third", "interruption", heard[2]]
    assert transport.stats().audio_received == pytest.approx(0.03)


def test_the_size_limit(plain, opened):
    """A serialized frame over the limit raises before a byte is sent; the connection lives."""
    transport = WebSocketTransport(plain.url, max_message_size=200)
    opened(transport)
    with pytest.raises(MessageTooLargeError, match="this transport carries 200"):
        transport.send_message(RTVIMessage("client-message", {"t": "x" * 200}))
    transport.send_message(RTVIMessage("client-message", {"t": "x"}, "id-1"))
    assert '"id-1"' in str(decode(plain.bot().receive()[1]))
