"""A loudspeaker that a microphone hears, and a microphone that is muted while the bot speaks."""

from __future__ import annotations

import time
from functools import partial

from rtvi_sync.testing import EmbeddedBot
from tests.support.protobuf import AudioRawFrame
from tests.support.slowness import GUARD
from tests.support.waiting import until

from .pulse import RATE, PulseServer
from .sessions import client_of, tone
from .signals import loud_seconds


def has_heard(bot: EmbeddedBot, times: int) -> bool:
    """Return whether the bot has heard that many utterances."""
    return len(bot.heard) >= times


def test_a_bot_does_not_answer_itself(pulse: PulseServer, library: str) -> None:
    """The recipe of docs/guides/audio.md: the microphone is on again once the loudspeaker is silent."""
    pulse.loop("80%")
    with EmbeddedBot(echo=False) as bot, client_of(bot.ws_url, audio_backend=library) as client:

        def listen(_: object) -> None:
            deadline = time.monotonic() + 10
            while (left := client.stats().speaker_waiting) and time.monotonic() < deadline:
                time.sleep(left)
            time.sleep(0.5)
            client.enable_mic(True)

        client.on("bot_started_speaking", lambda _: client.enable_mic(False))
        client.on("bot_stopped_speaking", listen)
        with pulse.record() as speaker:
            for turn in (1, 2):
                until(lambda: client.is_mic_enabled, "the microphone stays off")
                pulse.play(tone(440, 1))
                until(partial(has_heard, bot, turn), "the bot hears nothing", GUARD)
                until(lambda: not client.is_mic_enabled, "the bot says nothing")
                until(lambda: client.is_mic_enabled, "the microphone stays off")
                assert loud_seconds(speaker.wait(1.5)) == 0.0
                assert len(bot.heard) == turn


def test_what_the_speaker_has_not_played(pulse: PulseServer, library: str) -> None:
    """`speaker_waiting` covers all that is still to be heard, within the delay of the sound server."""
    with EmbeddedBot() as bot, client_of(bot.ws_url, audio_backend=library) as client, pulse.record() as speaker:
        assert client.stats().speaker_waiting == 0.0
        session = bot.wait_for_session()
        for _ in range(75):
            session.send_frame(AudioRawFrame(audio=tone(440, 0.04).tobytes(), sample_rate=RATE, num_channels=1))
        until(lambda: client.stats().speaker_waiting > 1.0, "nothing waits")
        until(lambda: client.stats().speaker_waiting == 0.0, "it is never silent")
        speaker.wait(0.5)
        assert loud_seconds(speaker.wait(0.5)) == 0.0
