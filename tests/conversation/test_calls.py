"""Conversations by telephone with the embedded bot: turns without words."""

from __future__ import annotations

from typing import Literal

import pytest

from rtvi_sync import DisconnectedError, RTVIClient, TelephonyTransport, connect
from rtvi_sync.media import BytesSource, ToneSource
from rtvi_sync.testing import EmbeddedBot
from tests.support.slowness import GUARD

Provider = Literal["twilio", "telnyx", "plivo", "exotel"]
PROVIDERS: list[Provider] = ["twilio", "telnyx", "plivo", "exotel"]


def call(bot: EmbeddedBot, provider: Provider = "twilio", **options) -> RTVIClient:
    """Call the bot."""
    return connect(
        bot.ws_url,
        transport=TelephonyTransport(provider, **options),
        mic=False,
        speaker=False,
        connect_timeout=GUARD,
        request_timeout=GUARD,
    )


def question(seconds: float = 0.6) -> ToneSource:
    """Return something to say."""
    return ToneSource(440, seconds)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_question_is_answered(provider):
    """The answer is whole, and its latency ends with the audio that the caller hears."""
    with EmbeddedBot() as bot, call(bot, provider) as caller:
        check_answer(caller)


def test_one_question_after_the_other():
    """The greeting, and each question, is a turn."""
    with EmbeddedBot(greeting="Welcome.") as bot, call(bot) as caller:
        greeting = caller.listen(GUARD)
        assert (greeting.initiator, greeting.status) == ("bot", "complete")
        check_answer(caller)
        check_answer(caller)
        assert len(caller.turns()) == 3


def check_answer(caller: RTVIClient) -> None:
    """Ask, and check the answer."""
    turn = caller.ask(question())
    assert (turn.initiator, turn.modality, turn.status) == ("user", "audio", "complete")
    assert turn.audio.seconds > 0.3
    assert turn.voice_to_voice is not None
    assert turn.voice_to_voice > 0
    assert (turn.user_text, turn.bot_text) == (None, None)


def test_an_interruption_cuts_what_is_heard():
    """The bot drops the audio that it had not sent, and the caller hears no more of it."""
    story = " ".join(["word"] * 40)
    with EmbeddedBot(replies=lambda _: story) as bot, call(bot) as caller:
        second = caller.barge_in(question(), delay=0.3)
        first = caller.ask(question())
        assert first.status == "interrupted"
        assert first.audio.seconds < 4.0
        assert second.result(GUARD).initiator == "user"


def test_the_bot_knows_the_call():
    """Numbers, parameters and ids reach it, and keys do."""
    with EmbeddedBot() as bot:
        options = {"from_number": "+15550100", "to_number": "+15550199", "parameters": {"plan": "gold"}}
        with call(bot, "exotel", **options) as caller:
            session = bot.sessions[0]
            known = session.wait_for_call(GUARD)
            transport = caller.transport
            assert isinstance(transport, TelephonyTransport)
            assert (known.call_id, known.stream_id) == (transport.call_id, transport.stream_id)
            assert (known.from_number, known.to_number, known.parameters["plan"]) == ("+15550100", "+15550199", "gold")
            caller.send_dtmf("12#")
            session.wait_for_dtmf("12#", GUARD)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_marks_come_back_when_they_are_reached(provider):
    """A mark is returned when playback reaches it, so that a bot can know which audio was heard."""
    with EmbeddedBot() as bot, call(bot, provider):
        session = bot.sessions[0]
        session.wait_for_call(GUARD)
        session.send_mark("here")
        session.wait_for_mark("here", GUARD)


def test_the_bot_hangs_up():
    """The caller hears the end of it, and then is told."""
    with EmbeddedBot(greeting="Goodbye and thank you.") as bot, call(bot) as caller:
        with caller.events("turn_ended", "disconnected", timeout=GUARD) as events:
            bot.sessions[0].hang_up()
            happened = [next(events), next(events)]
        assert [event.type.value for event in happened] == ["turnEnded", "disconnected"]
        assert (happened[1].data.initiator, happened[1].data.code) == ("server", 1000)
        assert happened[0].data.audio.seconds > 0.3


@pytest.mark.parametrize("how", ["the caller hangs up", "the line breaks", "the bot fails"])
def test_an_answer_that_is_cut_off(how):
    """An answer is not complete if the line is cut, though its last word is not known."""
    story = " ".join(["word"] * 40)
    with EmbeddedBot(replies=lambda _: story) as bot, call(bot) as caller:
        session = bot.sessions[0]
        end = {
            "the caller hangs up": caller.disconnect,
            "the line breaks": session.drop,
            "the bot fails": lambda: session.close(1011),
        }[how]
        caller.on("bot_started_speaking", end)
        with pytest.raises(DisconnectedError):
            caller.ask(question())
        (turn,) = caller.turns()
        assert turn.status == "failed"


def test_a_call_after_a_call():
    """A client may call again, with a new call."""
    with EmbeddedBot() as bot, call(bot) as caller:
        transport = caller.transport
        assert isinstance(transport, TelephonyTransport)
        ids = [transport.call_id]
        caller.disconnect()
        caller.connect()
        assert caller.ask(question()).status == "complete"
        assert transport.call_id not in ids


def test_speech_of_another_rate_is_heard():
    """A source of the application's own rate, as from a file."""
    tone = ToneSource(440, 0.5, sample_rate_hz=48_000)
    with EmbeddedBot() as bot, call(bot) as caller:
        assert caller.ask(BytesSource(tone.read(24_000), 48_000)).status == "complete"


def test_nothing_is_left():
    """No thread and no socket is left by calls that end in different ways; fixtures of all tests would find them."""
    with EmbeddedBot(greeting="Welcome.") as bot:
        for number in range(6):
            caller = call(bot)
            if number % 3 == 0:
                caller.listen(GUARD)
            elif number % 3 == 1:
                bot.sessions[-1].close()
            caller.disconnect()
