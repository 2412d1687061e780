"""The embedded bot behind a telephone provider, by a client that plays the provider."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, get_args

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from rtvi_sync import DisconnectedError, RequestTimeoutError, UnsupportedFeatureError
from rtvi_sync.media.convert import decode_mulaw, encode_alaw, encode_mulaw
from rtvi_sync.media.pcm import rms
from rtvi_sync.protocol.frames import AudioRawFrame
from rtvi_sync.protocol.telephony import (
    PROVIDERS,
    CallAudio,
    CallWriter,
    ClearAudio,
    Codec,
    FromBot,
    PhoneCall,
    PlaybackMark,
    ProviderName,
)
from rtvi_sync.testing import EmbeddedBot, Fault, ProviderAPI, Reply
from tests.support.slowness import GUARD
from tests.support.wavs import silence, tone

from .bot_client import QUICK, ask, threads_of_bots

pytestmark = pytest.mark.inside

NAMES: tuple[ProviderName, ...] = get_args(ProviderName)
each_provider = pytest.mark.parametrize("name", NAMES)
RATE = 8000
_ENCODERS: dict[Codec, Callable[[bytes], bytes]] = {"PCMU": encode_mulaw, "PCMA": encode_alaw, "L16": bytes}


class Caller:
    """The provider's end of a call. Its audio arrives at once, and its clock counts the audio."""

    def __init__(self, connection: ClientConnection, call: PhoneCall) -> None:
        self.connection = connection
        self.call = call
        self.provider = PROVIDERS[call.provider]
        self.writer = CallWriter(call, 0.0)
        self.at = 0.0

    def open(self) -> None:
        """Start the call; Plivo's bots need audio too, and do not hear it."""
        for text in self.writer.opening():
            self.send(text)
        if self.provider.connected() is None:
            self.say(silence(self.provider.frame_seconds, RATE))

    def send(self, text: bytes | str | None) -> None:
        if text is not None:
            self.connection.send(text if isinstance(text, str) else text.decode())

    def say(self, pcm: bytes) -> None:
        size = 2 * round(RATE * self.provider.frame_seconds)
        for start in range(0, len(pcm), size):
            self.at += self.provider.frame_seconds
            self.send(self.writer.audio(_ENCODERS[self.call.codec](pcm[start : start + size]), self.at))

    def press(self, keys: str) -> None:
        for key in keys:
            self.send(self.writer.key(key, self.at))

    def heard(self) -> FromBot:
        """Return the next message of the bot, which must be one that the provider knows."""
        text = self.connection.recv(GUARD)
        assert isinstance(text, str)
        said = self.provider.read_bot(text)
        assert said is not None, text
        return said

    def until(self, kind: type[FromBot]) -> list[FromBot]:
        """Return everything up to the first message of a kind."""
        received = [self.heard()]
        while not isinstance(received[-1], kind):
            received.append(self.heard())
        return received

    def rest(self) -> list[FromBot]:
        """Return everything up to the end of the connection."""
        received: list[FromBot] = []
        while True:
            try:
                received.append(self.heard())
            except ConnectionClosed:
                return received

    def pcm(self, received: list[FromBot]) -> bytes:
        payloads = b"".join(each.payload for each in received if isinstance(each, CallAudio))
        return payloads if self.call.provider == "exotel" else decode_mulaw(payloads)


def call_of(name: ProviderName, codec: Codec | None = None, **parameters: str) -> PhoneCall:
    return PhoneCall(
        provider=name,
        call_id="CA1",
        stream_id="MZ1",
        from_number="+15550100",
        to_number="+15550199",
        parameters=parameters,
        codec=codec or PROVIDERS[name].codecs[0],
    )


@contextmanager
def calling(bot: EmbeddedBot, call: PhoneCall, path: str = "") -> Iterator[Caller]:
    with connect(
        f"{bot.ws_url}{path}", compression=None, close_timeout=1, ping_interval=None, proxy=None
    ) as connection:
        caller = Caller(connection, call)
        caller.open()
        yield caller


def loud_seconds(pcm: bytes) -> float:
    window = 2 * RATE // 100
    return sum(rms(pcm[start : start + window]) > 300 for start in range(0, len(pcm), window)) / 100


@each_provider
def test_a_call(name: ProviderName) -> None:
    """The bot knows the call, at any path, greets, and sends no RTVI message; the close of the socket ends it."""
    with EmbeddedBot(greeting="Good day.") as bot, calling(bot, call_of(name, plan="gold"), "/token") as caller:
        session = bot.wait_for_session()
        call = session.wait_for_call()
        assert call is session.call
        assert (call.provider, call.call_id, call.stream_id) == (name, "CA1", "MZ1")
        assert (call.from_number, call.to_number) == ("+15550100", "+15550199")
        assert call.parameters["plan"] == "gold"
        assert (call.dtmf, call.marks, session.messages, session.eval_route) == ("", (), [], None)
        assert session.path == "/ws/token"
        assert "1555" not in repr(call)
        assert "gold" not in repr(call)
        greeting = [caller.heard() for _ in range(3)]
        assert all(isinstance(each, CallAudio) and len(caller.pcm([each])) == 640 for each in greeting)
        caller.send(caller.writer.stop())
        caller.press("1")
        session.wait_for_dtmf("1")  # `stop` alone ends nothing
        assert session.ended is None
        caller.connection.close()
        assert session.wait_ended().initiator == "client"
    assert threads_of_bots() == []


@each_provider
def test_a_spoken_turn(name: ProviderName) -> None:
    """The caller is heard, the bot sends `clear` at the start of the turn, and then it answers with the same audio."""
    with (
        EmbeddedBot(hangover=QUICK, transcripts="Hello.", replies="Good day.") as bot,
        calling(bot, call_of(name)) as caller,
    ):
        session = bot.wait_for_session()
        caller.say(silence(0.3, RATE) + tone(0.6, rate=RATE) + silence(1.0, RATE))
        assert caller.until(ClearAudio) == [ClearAudio()]
        first = caller.until(CallAudio)
        session.send_mark("end")
        received = [*first, *caller.until(PlaybackMark)]
        assert not any(isinstance(each, ClearAudio) for each in received)
        bot.assert_heard("Hello.")
        assert 0.5 < loud_seconds(session.audio) < 0.7
        assert [entry["content"] for entry in session.context] == ["Hello.", "Good day."]


def test_the_answer_is_heard() -> None:
    """The echo of the caller's speech arrives in messages of 40 ms, whole, at 8 kHz."""
    with EmbeddedBot(hangover=QUICK) as bot, calling(bot, call_of("twilio")) as caller:
        session = bot.wait_for_session()
        caller.say(tone(0.6, rate=RATE) + silence(1.0, RATE))
        caller.until(ClearAudio)
        received = caller.until(CallAudio)
        session.hang_up()
        received += caller.rest()
    assert {len(each.payload) for each in received if isinstance(each, CallAudio)} == {320}
    assert 0.5 < loud_seconds(caller.pcm(received)) < 0.7


@pytest.mark.parametrize("codec", ["PCMU", "PCMA"])
def test_telnyx_answers_in_mulaw(codec: Codec) -> None:
    """A caller with A-law is heard as one with µ-law, and both are answered in µ-law."""
    with EmbeddedBot(hangover=QUICK) as bot, calling(bot, call_of("telnyx", codec)) as caller:
        session = bot.wait_for_session()
        caller.say(tone(0.6, rate=RATE) + silence(1.0, RATE))
        caller.until(ClearAudio)
        received = caller.until(CallAudio)
        session.hang_up()
        spoken = caller.pcm(received + caller.rest())
    assert 0.5 < loud_seconds(session.audio) < 0.7
    assert 0.5 < loud_seconds(spoken) < 0.7
    assert rms(spoken[1600:8000]) == pytest.approx(rms(tone(0.4, rate=RATE)), rel=0.05)


def test_another_rate_of_the_bot() -> None:
    """A bot that speaks at 24 kHz is heard at 8 kHz, in messages of the same length."""
    with (
        EmbeddedBot(greeting="Good day.", audio_out_sample_rate_hz=24000) as bot,
        calling(bot, call_of("twilio")) as caller,
    ):
        first = caller.heard()
    assert isinstance(first, CallAudio)
    assert len(first.payload) == 320


def test_an_interruption() -> None:
    """The caller interrupts: none of the old speech follows `clear`, and its marks may return."""
    with (
        EmbeddedBot(greeting="one two three four five six seven eight " * 5, hangover=GUARD) as bot,
        calling(bot, call_of("twilio")) as caller,
    ):
        session = bot.wait_for_session()
        caller.until(CallAudio)
        caller.say(tone(0.6, rate=RATE))
        caller.until(ClearAudio)
        session.send_mark("end")
        assert caller.until(PlaybackMark) == [PlaybackMark("end")]


@pytest.mark.parametrize("version", ["0.3.0", "1.0.0", "2.0.0"])
def test_bots_of_every_version_clear(version: str) -> None:
    """`clear` is older than RTVI's message of an interruption."""
    with EmbeddedBot(version=version) as bot, calling(bot, call_of("twilio")) as caller:
        caller.say(tone(0.3, rate=RATE))
        assert caller.heard() == ClearAudio()


@each_provider
def test_keys(name: ProviderName) -> None:
    """The keys are kept, and waited for."""
    with EmbeddedBot() as bot, calling(bot, call_of(name)) as caller:
        session = bot.wait_for_session()
        caller.press("12#")
        session.wait_for_dtmf("12#")
        caller.press("*0")
        session.wait_for_dtmf("#*")
        session.wait_for_dtmf("12#*0")
        assert session.wait_for_call().dtmf == "12#*0"
        with pytest.raises(RequestTimeoutError):
            session.wait_for_dtmf("99", timeout=0)
        caller.connection.close()
        with pytest.raises(DisconnectedError):
            session.wait_for_dtmf("99")
        session.wait_for_dtmf("12#")  # has arrived before the end


@each_provider
def test_marks(name: ProviderName) -> None:
    """The provider gets a mark after the audio, and the bot learns that it was reached."""
    with EmbeddedBot() as bot, calling(bot, call_of(name)) as caller:
        session = bot.wait_for_session()
        session.wait_for_call()
        session.send_frame(AudioRawFrame(audio=tone(0.04, rate=RATE), sample_rate=RATE))
        session.send_mark("m1")
        session.send_mark("é")
        assert [type(caller.heard()), caller.heard(), caller.heard()] == [
            CallAudio,
            PlaybackMark("m1"),
            PlaybackMark("é"),
        ]
        with pytest.raises(RequestTimeoutError):
            session.wait_for_mark("m1", timeout=0)
        caller.send(caller.writer.played("m1"))
        caller.send(caller.writer.cleared())
        caller.send(caller.writer.played("é"))
        session.wait_for_mark("é")
        assert session.wait_for_call().marks == ("m1", "é")


# -- hanging up -------------------------------------------------------------------------------------------------------


@each_provider
def test_the_bot_hangs_up(name: ProviderName) -> None:
    """The bot speaks to the end, makes the provider's request if it has one, and closes with 1000."""
    with ProviderAPI() as api, EmbeddedBot(greeting="Good bye to you.", provider_api=api) as bot:
        with calling(bot, call_of(name)) as caller:
            session = bot.wait_for_session()
            caller.heard()
            session.hang_up()
            session.hang_up()  # once is enough
            spoken = caller.pcm(caller.rest())
            end = session.wait_ended()
        assert (end.code, end.initiator) == (1000, "server")
        assert loud_seconds(spoken) > 0.6  # the first word takes 0.26 s
        assert [(each.provider, each.call_id) for each in api.hang_ups] == ([] if name == "exotel" else [(name, "CA1")])
    assert threads_of_bots() == []


@pytest.mark.parametrize("answer", [204, 404])
def test_any_answer_will_do(answer: Any) -> None:
    """A provider that knows no such call does not keep the bot; neither does one that cannot be reached."""
    with contextlib.ExitStack() as stack:
        api = ProviderAPI(answer=answer)
        bot = stack.enter_context(EmbeddedBot(provider_api=api))
        for number in range(2):
            if number == 1:
                stack.enter_context(api)
            with calling(bot, call_of("twilio")):
                session = bot.wait_for_session()
                session.wait_for_call()
                session.hang_up()
                assert session.wait_ended().code == 1000
            assert len(api.hang_ups) == number


@pytest.mark.parametrize("who", ["caller", "bot", "provider"])
def test_a_provider_that_does_not_answer(who: str) -> None:
    """The bot waits for the answer; the end of the call, of the bot or of the provider's server ends that."""
    with (
        ProviderAPI(answer="never") as api,
        EmbeddedBot(provider_api=api) as bot,
        calling(bot, call_of("plivo")) as caller,
    ):
        session = bot.wait_for_session()
        session.wait_for_call()
        session.hang_up()
        api.wait_for_hang_up()
        assert session.ended is None
        ends: dict[str, Callable[[], None]] = {
            "caller": caller.connection.close,
            "bot": bot.stop,
            "provider": api.stop,
        }
        ends[who]()
        codes = {"caller": 1000, "bot": 1012, "provider": 1000}
        assert session.wait_ended().code == codes[who]
    assert threads_of_bots() == []


def test_the_caller_hangs_up_first() -> None:
    """The rest of the bot's speech, and its request, are left out."""
    with ProviderAPI() as api, EmbeddedBot(greeting="word " * 100, provider_api=api) as bot:
        with calling(bot, call_of("telnyx")) as caller:
            session = bot.wait_for_session()
            caller.heard()
            session.hang_up()
        session.wait_ended()
        session.hang_up()
    assert threads_of_bots() == []
    assert api.hang_ups == []


def test_what_other_sessions_cannot() -> None:
    """Marks, keys and hanging up are for telephone calls."""
    with EmbeddedBot() as bot, connect(bot.ws_url, proxy=None):
        session = bot.wait_for_session()
        assert session.call is None
        for act in (session.hang_up, lambda: session.send_mark("m1")):
            with pytest.raises(UnsupportedFeatureError, match="no telephone call"):
                act()
        for wait in (
            session.wait_for_call,
            lambda timeout: session.wait_for_dtmf("1", timeout),
            lambda timeout: session.wait_for_mark("m1", timeout),
        ):
            with pytest.raises(RequestTimeoutError):
                wait(timeout=0)


# -- requests that are no call ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "texts",
    [
        ['{"event": "connected"}', '{"event": "media", "media": {"payload": ""}}'],
        ['{"event": "start", "start": {"streamSid": "MZ1"}}', '{"event": "connected"}'],
        ['{"event": "connected"}', b"{}"],
        ['{"event": "connected"}', "[]"],
    ],
    ids=range(4),
)
def test_two_messages_without_a_call(texts: list[str | bytes]) -> None:
    """The connection breaks without a close frame, as with bots of Pipecat."""
    with EmbeddedBot() as bot, connect(bot.ws_url, proxy=None) as connection:
        for text in texts:
            connection.send(text)
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(GUARD)
        assert closed.value.rcvd is None
        session = bot.wait_for_session()
        session.wait_ended()
        assert session.call is None


@pytest.mark.parametrize("text", ["hello", "[]", "{}", '{"event": 5}'])
def test_a_first_message_unlike_a_provider(text: str) -> None:
    """Another text is refused at once, with 1000."""
    with EmbeddedBot() as bot, connect(bot.ws_url, proxy=None) as connection:
        connection.send(text)
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(GUARD)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1000


def test_one_message_is_not_enough() -> None:
    """The bot waits for the second message before it says anything."""
    with EmbeddedBot(greeting="Good day.") as bot, connect(bot.ws_url, proxy=None) as connection:
        caller = Caller(connection, call_of("plivo"))
        caller.send(caller.writer.opening()[0])
        session = bot.wait_for_session()
        with pytest.raises(RequestTimeoutError):
            session.wait_for_call(timeout=0.1)
        caller.say(silence(0.02, RATE))
        caller.until(CallAudio)
        assert session.audio == b""  # the first audio is not heard


@pytest.mark.parametrize("text", ["hello", "[]", '{"event": "media", "media": {"payload": "?"}}'])
def test_bad_messages_end_a_call(text: str) -> None:
    """A message that no provider sends ends the call with 1000; a message without content does not."""
    with EmbeddedBot() as bot, calling(bot, call_of("twilio")) as caller:
        session = bot.wait_for_session()
        caller.connection.send(b"\xff")
        for ignored in ("{}", '{"event": "new"}', '{"event": "dtmf", "dtmf": {"digit": "A"}}'):
            caller.send(ignored)
        caller.press("1")
        session.wait_for_dtmf("1")
        caller.send(text)
        assert caller.rest() == []
        assert session.wait_ended().code == 1000
        assert session.wait_for_call().dtmf == "1"


@pytest.mark.parametrize("kind", ["drop", "close", "malformed", "error"])
def test_faults(kind: Any) -> None:
    """Faults happen in calls, too: an end, a text that is no JSON, or a model that says nothing."""
    with (
        EmbeddedBot(hangover=QUICK, faults=[Fault(kind)], replies=Reply("One two three.")) as bot,
        calling(bot, call_of("twilio")) as caller,
    ):
        session = bot.wait_for_session()
        with contextlib.suppress(ConnectionClosed):  # the bot may end before all messages are sent
            caller.say(tone(0.6, rate=RATE) + silence(1.0, RATE))
        caller.until(ClearAudio)
        if kind == "malformed":
            texts: list[str | bytes] = []
            while not texts or _is_json(texts[-1]):
                texts.append(caller.connection.recv(GUARD))
            assert len(texts) > 1
        elif kind == "error":
            bot.assert_heard("speech")
            session.send_mark("end")
            assert caller.until(PlaybackMark) == [PlaybackMark("end")]
        else:
            caller.rest()
            assert session.wait_ended().code == (1000 if kind == "close" else None)


def _is_json(text: bytes | str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def test_a_bot_that_is_not_ready() -> None:
    """A bot that never becomes ready does not greet a caller."""
    with EmbeddedBot(greeting="Good day.", ready=False) as bot, calling(bot, call_of("twilio")) as caller:
        session = bot.wait_for_session()
        session.wait_for_call()
        session.send_mark("m1")
        assert caller.heard() == PlaybackMark("m1")


def test_calls_side_by_side() -> None:
    """Calls of all providers, an RTVI session, and a call without a word do not disturb each other."""
    with EmbeddedBot(hangover=QUICK, replies=lambda said: said, transcripts=["one", "two"]) as bot:

        def call(name: ProviderName) -> None:
            with calling(bot, call_of(name)) as caller:
                for _ in range(2):
                    caller.say(tone(0.6, rate=RATE) + silence(1.0, RATE))
                    caller.until(ClearAudio)
                    caller.until(CallAudio)

        threads = [threading.Thread(target=call, args=(name,)) for name in NAMES]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(GUARD)
        assert sorted(bot.heard) == sorted(["one", "two"] * len(NAMES))


@each_provider
def test_the_start_endpoint(name: ProviderName) -> None:
    """`POST /start` gives a telephone the address of the WebSocket."""
    with EmbeddedBot() as bot:
        status, body, _ = ask(f"{bot.base_url}/start", body=json.dumps({"transport": name}).encode())
        assert (status, body) == (200, {"wsUrl": bot.ws_url})
