"""TelephonyTransport: the calls that it makes, and their ends."""

from __future__ import annotations

import base64
import json
import logging
import re
import signal
import threading
from urllib.parse import parse_qs, urlsplit

import pytest

from rtvi_sync import RTVIClient, TelephonyTransport, connect
from rtvi_sync.errors import (
    ConnectError,
    DisconnectedError,
    InvalidTransportParamsError,
    RequestTimeoutError,
    UnsupportedFeatureError,
)
from rtvi_sync.media import BytesSource, CallbackSource, NullSink
from rtvi_sync.media.convert import encode_mulaw
from rtvi_sync.messages import RTVIMessage
from tests.support.slowness import GUARD
from tests.support.threads import running
from tests.support.waiting import until
from tests.support.websocket import BINARY, TEXT, close_frame, frame
from tests.support.websocket_bots import BotServer, Session

pytestmark = pytest.mark.inside

PROVIDERS = ["twilio", "telnyx", "plivo", "exotel"]
# A tone of 8 kHz, that is audible, as µ-law.
SECOND = encode_mulaw(b"\x00\x20\x00\xe0" * 4000)


def message_of(bot) -> dict:
    """Return the next message of the transport."""
    opcode, payload = bot.receive()
    assert opcode == TEXT
    return json.loads(payload)


def next_of(bot, event: str) -> dict:
    """Return the next message with an event."""
    while (message := message_of(bot))["event"] != event:
        pass
    return message


def say(bot, payload: bytes = SECOND) -> None:
    """Let the bot of a Twilio call speak."""
    media = {"payload": base64.b64encode(payload).decode()}
    bot.send(frame(TEXT, json.dumps({"event": "media", "streamSid": "MZ", "media": media}).encode()))


def send(bot, message: object) -> None:
    """Send JSON to the transport."""
    bot.send(frame(TEXT, json.dumps(message).encode()))


def path_of(head: str) -> str:
    """Return the path and query of a request."""
    return head.split(" ", 2)[1]


# -- the start --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_call_begins_as_the_providers_do(server, opened, provider):
    """A call has ids, numbers and parameters, and sends audio though the caller is silent."""
    transport = TelephonyTransport(
        provider, server.url, from_number="+15550100", to_number="+15550199", parameters={"plan": "gold"}
    )
    opened(transport)
    head, bot = server.arrival()
    start = next_of(bot, "start")
    told = json.dumps(start)
    assert transport.call_id in told
    assert transport.stream_id in told
    assert "+15550100" in told
    assert "gold" in told
    next_of(bot, "media")
    query = parse_qs(urlsplit(path_of(head)).query)
    assert query == ({"plan": ["gold"]} if provider == "exotel" else {})


def test_each_call_has_ids_of_its_own(plain, opened):
    """Unless the application has given one."""
    transport = TelephonyTransport("twilio", plain.url)
    ids = []
    for _ in range(2):
        opened(transport)
        _, bot = plain.arrival()
        next_of(bot, "start")
        ids += [transport.call_id, transport.stream_id]
        with running(transport.disconnect) as ending:
            next_of(bot, "stop")
            bot.send(close_frame(1000))
            ending.get()
    assert len({*ids}) == 4
    given = TelephonyTransport("twilio", plain.url, call_id="CA7")
    opened(given)
    assert given.call_id == "CA7"


def test_the_token_is_a_part_of_the_path(plain, opened):
    """A provider sends no header of the application, and the URL's query belongs to its parameters."""
    opened(TelephonyTransport("twilio", f"{plain.url}/?a=1", token="se cret"))
    assert path_of(plain.arrival()[0]) == "/ws/se%20cret?a=1"


def test_by_name():
    """`for_url()` makes the transport, and "auto" never does."""
    client = RTVIClient.for_url("ws://127.0.0.1:1/ws", transport="plivo", token="t")
    assert isinstance(client.transport, TelephonyTransport)
    assert (client.transport.name, client.transport.start_name) == ("plivo", "plivo")
    with pytest.raises(ValueError, match="did you mean 'twilio'"):
        RTVIClient.for_url("ws://127.0.0.1:1/ws", transport="twillio")  # type: ignore[arg-type]
    with pytest.raises(InvalidTransportParamsError, match="WebRTC offer"):
        RTVIClient.for_url("http://127.0.0.1:1/api/offer", transport="twilio")


def test_what_a_provider_does_not_pass_on():
    """A parameter that the bot would not get is refused where it is given."""
    with pytest.raises(ValueError, match="512 bytes"):
        TelephonyTransport("plivo", parameters={"a": "x" * 512})
    with pytest.raises(ValueError, match="separate"):
        TelephonyTransport("plivo", parameters={"a": "x;y=z"})
    with pytest.raises(ValueError, match="at most 3 parameters"):
        TelephonyTransport("exotel", parameters=dict.fromkeys("abcd", ""))
    with pytest.raises(ValueError, match="must be 'PCMU', which its bots hear"):
        TelephonyTransport("twilio", codec="PCMA")
    with pytest.raises(ValueError, match="surrogate"):
        TelephonyTransport("twilio", parameters={"name": "\ud800"})


def test_nothing_private_is_shown(plain, opened, caplog):
    """Numbers, parameters and the token do not appear in the repr or in a log."""
    caplog.set_level(logging.DEBUG, "rtvi_sync")
    transport = TelephonyTransport("twilio", plain.url, token="tok7", from_number="+49171", parameters={"pin": "4711"})
    opened(transport)
    _, bot = plain.arrival()
    next_of(bot, "media")
    bot.send(frame(TEXT, b'{"event": "media", "media": {"payload": "%%%"}}'))
    until(lambda: "not base64" in caplog.text)
    shown = repr(transport) + repr(transport.call) + caplog.text
    assert not [secret for secret in ("tok7", "+49171", "4711") if secret in shown]


@pytest.mark.parametrize("path", ["/ws", "/phone", "/"])
def test_no_error_shows_the_token(path):
    """Errors never show the token of Pipecat's runner; this path is another one."""
    with BotServer() as server:
        url = f"ws://{server.authority}{path}"
    client = RTVIClient(transport=TelephonyTransport("twilio", url, token="tok7"), mic=False, speaker=False)
    with pytest.raises(ConnectError) as raised:
        client.connect()
    assert "tok7" not in str(raised.value)


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_a_refused_call_says_why(plain):
    """The wire has no reason, so the error names the likely ones."""
    client = RTVIClient.for_url(plain.url, transport="telnyx", connect_timeout=GUARD, mic=False, speaker=False)
    with running(client.connect) as connecting:
        _, bot = plain.arrival()
        next_of(bot, "start")
        bot.reset()
        with pytest.raises((ConnectError, DisconnectedError)) as raised:
            connecting.get()
    advice = "'telnyx' in its transport_params, and TELNYX_API_KEY in its environment"
    assert str(raised.value).count(advice) == 1


def test_a_call_that_fails_later_says_why(plain):
    """A bot's first call may take longer than the client waits for a refusal."""
    with (
        connect(plain.url, transport="exotel", mic=False, speaker=False) as client,
        client.events("disconnected", timeout=GUARD) as events,
    ):
        _, bot = plain.arrival()
        bot.reset()
        ended = next(iter(events))
    assert "'exotel' in its transport_params" in str(ended.data.error)
    assert "environment" not in str(ended.data.error)


def test_other_ends_are_no_refusal(plain):
    """A bot may only listen, and hang up; one that does not read is no bot that has refused."""
    for end in (close_frame(1000), close_frame(1011, b"overloaded")):
        with (
            connect(plain.url, transport="twilio", mic=False, speaker=False) as client,
            client.events("disconnected", timeout=GUARD) as events,
        ):
            _, bot = plain.arrival()
            bot.send(end)
            assert next(iter(events)).data.error is None
    transport = TelephonyTransport("twilio", plain.url, ping_interval=0.1, ping_timeout=0.1)
    client = RTVIClient(transport=transport, mic=False, speaker=False, connect_timeout=GUARD)
    with pytest.raises(DisconnectedError, match="not answered a ping") as raised:
        client.connect()
    assert "transport_params" not in str(raised.value)


# -- unsupported functions --------------------------------------------------------------------------------------------


def test_messages_are_refused(plain, opened):
    """Nothing is sent, and the call goes on."""
    transport = TelephonyTransport("twilio", plain.url)
    opened(transport)
    with pytest.raises(UnsupportedFeatureError, match="by telephone"):
        transport.send_message(RTVIMessage("send-text", {"content": "Hello"}))
    _, bot = plain.arrival()
    next_of(bot, "media")


def test_hostile_messages_are_skipped(plain, opened):
    """The call goes on, and audio before and after is heard."""
    transport = TelephonyTransport("twilio", plain.url)
    session = opened(transport)
    _, bot = plain.arrival()
    next_of(bot, "media")
    for text in (
        *(b"", b"{", b"[]", b"1", b"null", b'"media"', b'{"event": 1}', b'{"event": "media"}'),
        *(b'{"event": "media", "media": []}', b'{"event": "media", "media": {"payload": 7}}'),
        *(b'{"event": "mark"}', b'{"event": "mark", "mark": {"name": {}}}', b'{"event": "unknown"}', b"[" * 90_000),
        b'{"event": "mark", "mark": {"name": "\\ud800"}}',
        b'{"label": "rtvi-ai", "type": "bot-ready", "id": "1", "data": {}}',
        b'{"event": "media", "media": {"payload": "%s"}}' % (b"A" * 2_000_000),
    ):
        bot.send(frame(TEXT, text))
    bot.send(frame(BINARY, b"\0\1"))
    say(bot)
    session.wait(lambda: any(getattr(each, "type", "") == "bot-started-speaking" for each in session.messages))
    assert transport.stats().audio_received == pytest.approx(1.0)


def test_audio_beyond_a_minute_is_told(plain, opened, caplog):
    """A telephone plays in real time, and the memory is bounded."""
    transport = TelephonyTransport("twilio", plain.url)
    opened(transport)
    _, bot = plain.arrival()
    say(bot, 70 * SECOND)
    next_of(bot, "media")
    until(lambda: transport.stats().audio_received > 60)
    with running(transport.disconnect) as ending:
        while bot.receive()[0] == TEXT:
            pass
        bot.send(close_frame(1000))
        ending.get()
    assert "10 s of the bot's audio were not heard" in caplog.text


# -- the end ----------------------------------------------------------------------------------------------------------


def test_hanging_up(plain, opened):
    """The provider tells the bot, then closes."""
    transport = TelephonyTransport("twilio", plain.url)
    session = opened(transport)
    _, bot = plain.arrival()
    next_of(bot, "media")
    with running(transport.disconnect) as ending:
        stop = next_of(bot, "stop")
        assert stop["stop"]["callSid"] == transport.call_id
        while (received := bot.receive())[0] == TEXT:
            pass
        assert received == (8, b"\x03\xe8")
        bot.send(close_frame(1000))
        ending.get()
    assert session.ends == []


def test_nothing_is_sent_after_stop(plain, opened):
    """All messages are numbered in order, whatever the bot asks for in the last moment."""
    mark = frame(TEXT, b'{"event": "mark", "mark": {"name": "m"}}')
    for _ in range(20):
        transport = TelephonyTransport("twilio", plain.url)
        opened(transport)
        _, bot = plain.arrival()
        next_of(bot, "media")
        received = []
        with running(transport.disconnect) as ending:
            bot.send(200 * mark)
            while (message := bot.receive())[0] == TEXT:
                received.append(json.loads(message[1]))
            bot.send(close_frame(1000))
            ending.get()
        assert received[-1]["event"] == "stop"
        numbers = [int(message["sequenceNumber"]) for message in received]
        assert numbers == [*range(numbers[0], numbers[0] + len(numbers))]


def test_the_last_words_are_heard_before_the_end(plain, opened):
    """The bot hangs up when it has sent them, and a telephone plays them to their end."""
    transport = TelephonyTransport("twilio", plain.url)
    session = opened(transport)
    _, bot = plain.arrival()
    next_of(bot, "media")
    say(bot)
    bot.send(close_frame(1000))
    session.wait(lambda: session.ends)
    names = [message.type for message in session.messages]
    assert names == ["bot-ready", "bot-started-speaking", "bot-stopped-speaking"]
    assert (session.ends[0].code, session.ends[0].initiator) == (1000, "server")
    with pytest.raises(DisconnectedError):
        transport.send_dtmf("1")


def test_a_line_that_fails(plain, opened, runtime):
    """The call ends with the error, also if that happens while the bot is heard."""

    class Fails(Session):
        def take(self, messages):
            super().take(messages)
            if messages[0].type == "bot-started-speaking":
                raise ValueError("failed")

    session = Fails(runtime)
    opened(TelephonyTransport("twilio", plain.url), session=session)
    _, bot = plain.arrival()
    say(bot)
    session.wait(lambda: session.ends)
    assert str(session.ends[0].error) == "failed"


def test_disconnecting_does_not_wait_for_the_last_words(plain, opened):
    """The caller hangs up while they are played."""
    transport = TelephonyTransport("twilio", plain.url)
    session = opened(transport)
    _, bot = plain.arrival()
    say(bot, 9 * SECOND)
    bot.send(close_frame(1000))
    session.wait(lambda: any(message.type == "bot-started-speaking" for message in session.messages))
    while bot.receive()[0] == TEXT:
        pass  # up to the close frame, with which the transport knows that the bot has hung up
    transport.disconnect()
    assert session.ends == []


def test_keys(plain, opened):
    """One message each, in order; the call returns when the last one was sent."""
    transport = TelephonyTransport("twilio", plain.url)
    opened(transport)
    _, bot = plain.arrival()
    with running(lambda: transport.send_dtmf("1#")) as pressing:
        assert next_of(bot, "dtmf")["dtmf"]["digit"] == "1"
        assert next_of(bot, "dtmf")["dtmf"]["digit"] == "#"
        pressing.get()
    for wrong in ("", "A", "1 2"):
        with pytest.raises(ValueError, match="keys of a telephone"):
            transport.send_dtmf(wrong)


def test_keys_of_a_call_that_ends(plain, opened):
    """The call that presses them is told."""
    transport = TelephonyTransport("twilio", plain.url)
    opened(transport)
    _, bot = plain.arrival()
    with running(lambda: transport.send_dtmf("1" * 1000)) as pressing:
        next_of(bot, "dtmf")
        bot.send(close_frame(1000))
        with pytest.raises(DisconnectedError, match="before all keys were sent"):
            pressing.get()


def test_keys_of_two_threads(plain, opened):
    """One presses after the other, however long that takes."""
    transport = TelephonyTransport("twilio", plain.url)
    opened(transport)
    _, bot = plain.arrival()
    with running(lambda: transport.send_dtmf("1" * 60)) as first:
        next_of(bot, "dtmf")
        with running(lambda: transport.send_dtmf("2")) as second:
            keys = [next_of(bot, "dtmf")["dtmf"]["digit"] for _ in range(60)]
            first.get()
            second.get()
    assert keys == [*"1" * 59, "2"]


def test_keys_that_are_interrupted(plain, opened):
    """Ctrl-C ends the call that presses them, and the rest is not pressed."""
    transport = TelephonyTransport("twilio", plain.url)
    opened(transport)
    _, bot = plain.arrival()

    def interrupt():
        next_of(bot, "dtmf")
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)

    with running(interrupt), pytest.raises(KeyboardInterrupt):
        transport.send_dtmf("1" * 100)
    transport.send_dtmf("2")
    keys = "1"
    while not keys.endswith("2"):
        keys += next_of(bot, "dtmf")["dtmf"]["digit"]
    assert len(keys) < 50


def test_keys_without_a_call():
    """Keys are heard in a call only."""
    with pytest.raises(DisconnectedError, match="no call"):
        TelephonyTransport("twilio", "ws://127.0.0.1:1/ws").send_dtmf("1")


# -- questions --------------------------------------------------------------------------------------------------------


def refusal_of(plain, source) -> RequestTimeoutError:
    """Return the error of a question that the bot of a call has not heard."""
    transport = TelephonyTransport("twilio", plain.url)
    with RTVIClient(transport=transport, mic=None, speaker=NullSink(), connect_timeout=GUARD) as call:
        _, bot = plain.arrival()
        with pytest.raises(RequestTimeoutError) as raised:
            call.ask(source, 0.3)
        bot.send(close_frame(1000))
        call.wait(GUARD)
    return raised.value


def test_a_question_that_is_silent(plain):
    """The error advises to listen to it."""
    error = refusal_of(plain, BytesSource(bytes(3200), 16_000))
    assert error.kind == "not_heard"
    assert re.search(r"was audible within 0.3 s.* Listen to its audio", str(error))


def test_a_question_whose_source_is_late(plain):
    """The error names the loss, and does not suspect the audio."""
    late = threading.Event()

    def read(frames: int) -> bytes:
        late.wait(GUARD)
        return bytes(2 * frames)

    try:
        error = refusal_of(plain, CallbackSource(read))
    finally:
        late.set()
    assert re.search(r"were late in this process or in its source. Run less", str(error))
