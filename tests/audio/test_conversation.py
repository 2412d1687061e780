"""Sound through the devices of the machine, to real bots and back."""

from __future__ import annotations

import itertools

import pytest

from rtvi_sync import RTVIEvent
from rtvi_sync.media import BytesSource, NullSink, SilenceSource
from rtvi_sync.testing import EmbeddedBot
from tests.pipecat.clients import Watch
from tests.pipecat.conftest import BotServer
from tests.support.protobuf import AudioRawFrame, InterruptionFrame
from tests.support.slowness import GUARD
from tests.support.waiting import until

from .pulse import RATE, PulseServer
from .sessions import Hearing, client_of, device, once, tone
from .signals import correlation, longest_silence, loud_seconds, speech


@pytest.mark.parametrize("library", ["pyaudio", "sounddevice"], indirect=True)
def test_speech_goes_to_the_bot_and_comes_back(pulse: PulseServer, pipecat_echo: BotServer, library: str) -> None:
    """Speech into the microphone is played by the speaker after a bot has sent it back."""
    said = speech()
    with client_of(pipecat_echo.ws_url, audio_backend=library), pulse.record() as recording:

        def is_heard() -> bool:
            begin = len(recording.samples())
            assert pulse.play(said).wait(GUARD) == 0
            recording.wait(1.0)  # on its way through two devices and the bot
            return correlation(recording.samples()[begin:], said) > 0.95

        assert once(is_heard)


def test_the_microphone_is_switched_while_the_bot_listens(
    pulse: PulseServer, pipecat_echo: BotServer, library: str
) -> None:
    """The bot hears the other microphone without a gap of 200 ms, and the track is the same."""
    hz = {"mic_a": 440, "mic_b": 880}
    for mic in hz:
        pulse.play(tone(hz[mic], 60), feed=f"{mic}_feed")
    with (
        client_of(pipecat_echo.ws_url, speaker=NullSink(), audio_backend=library) as client,
        client.events(timeout=GUARD) as events,
    ):
        local, bot = client.tracks().local.audio, client.tracks().bot.audio
        assert local is not None
        assert bot is not None
        sent, echo = Hearing(local), Hearing(bot)
        mics = itertools.cycle(["mic_b", "mic_a"])

        def is_switched() -> bool:
            echo.wait_loud(0.5)
            begin, mic = len(sent.frames) - 1, next(mics)
            client.update_mic(device(mic))
            echo.wait_loud(1.0)
            assert echo.pitch() == pytest.approx(hz[mic], abs=20)
            assert pulse.source_outputs() == [mic]
            assert client.tracks().local.audio is local
            assert local.ready_state == "live"
            return sent.longest_gap(begin) < 0.2

        assert once(is_switched)
        updated = Watch(events).until(RTVIEvent.MIC_UPDATED, lambda info: info.device_id == device("mic_b"))
        assert updated.data.kind == "audioinput"


def test_the_speaker_is_switched_in_mid_sentence(pulse: PulseServer, pipecat_echo: BotServer, library: str) -> None:
    """The sentence goes on at the other speaker, after 200 ms at most, and nothing of it is lost or heard twice."""

    def is_switched() -> bool:
        source = BytesSource(tone(440, 3.0).tobytes(), RATE)
        with pulse.record("speaker_a.monitor") as a, pulse.record("speaker_b.monitor") as b:
            with client_of(pipecat_echo.ws_url, mic=source, audio_backend=library) as client:
                bot = client.tracks().bot.audio
                a.wait_for(lambda heard: loud_seconds(heard) > 1.0, "nothing was heard")

                client.update_speaker(device("speaker_b"))

                assert client.tracks().bot.audio is bot
                assert client.selected_speaker is not None
                assert client.selected_speaker.device_id == device("speaker_b")
                assert source.wait(GUARD)
                b.wait(1.0)
                assert pulse.sink_inputs() == ["speaker_b"]
            first, second = a.samples(), b.samples()
        assert loud_seconds(second) > 1.0
        whole = loud_seconds(first) + loud_seconds(second)
        return whole == pytest.approx(3.0, abs=0.2) and longest_silence(first, second) < 0.2

    assert once(is_switched)


def test_an_interruption_is_heard_at_once(pulse: PulseServer, library: str) -> None:
    """Audio that the bot sent ahead of its time is not heard after the bot reports that it was interrupted."""
    with (
        EmbeddedBot() as bot,
        client_of(bot.ws_url, mic=SilenceSource(), audio_backend=library),
        pulse.record() as recording,
    ):
        session = bot.wait_for_session()
        for _ in range(100):
            session.send_frame(AudioRawFrame(audio=tone(500, 0.04).tobytes(), sample_rate=RATE, num_channels=1))
        recording.wait_for(lambda heard: loud_seconds(heard) > 0.5, "nothing was heard")

        session.send_frame(InterruptionFrame())
        interrupted = recording.seconds()

        recording.wait(1.0)
        assert loud_seconds(recording.samples()[int(RATE * interrupted) :]) < 0.2


def test_what_is_muted_is_closed(pulse: PulseServer, pipecat_echo: BotServer, library: str) -> None:
    """`enable_mic(False)` closes the device within 100 ms; with `enable_mic(True)` the bot hears it again."""
    pulse.play(tone(440, 30))
    with client_of(pipecat_echo.ws_url, speaker=NullSink(), audio_backend=library) as client:
        bot = client.tracks().bot.audio
        assert bot is not None
        hearing = Hearing(bot)
        hearing.wait_loud(0.3)
        assert pulse.source_outputs() == ["mic_a"]

        client.enable_mic(False)
        # On a machine that does nothing else 100 ms; asking takes its time too.
        until(lambda: pulse.source_outputs() == [], "the microphone is still open", 0.3)
        assert client.is_mic_enabled is False

        client.enable_mic(True)
        hearing.wait_loud(0.3)
        assert pulse.source_outputs() == ["mic_a"]


def test_devices_before_a_session(pulse: PulseServer, pipecat_echo: BotServer, library: str) -> None:
    """`init_devices()` opens the microphone, which tells its level; `connect()` takes it as it is."""
    pulse.play(tone(440, 30))
    client = client_of(pipecat_echo.ws_url, audio_backend=library)
    with client.events(timeout=GUARD) as events:
        assert (client.media_state.mic.state, client.media_state.speaker.state) == ("uninitialized", "uninitialized")
        watch = Watch(events)
        client.init_devices()
        watch.until(RTVIEvent.MEDIA_STATE_UPDATED, lambda state: state.mic.state == "granted")
        level = watch.until(RTVIEvent.LOCAL_AUDIO_LEVEL, lambda level: level.level > 0.1).data
        # A sine of an amplitude of 8000: 8000 / 32768 / sqrt(2)
        assert level.level == pytest.approx(0.173, abs=0.03)
        assert level.dbfs == pytest.approx(-15.3, abs=1.5)
        assert (client.media_state.mic.state, client.media_state.speaker.state) == ("granted", "granted")
        opened = pulse.pactl("list", "short", "source-outputs")
        with client:
            bot = client.tracks().bot.audio
            assert bot is not None
            Hearing(bot).wait_loud(0.3)
            assert pulse.pactl("list", "short", "source-outputs") == opened
            watch.until(RTVIEvent.REMOTE_AUDIO_LEVEL, lambda level: level.level > 0.1)
    until(lambda: pulse.source_outputs() == [] and pulse.sink_inputs() == [], "a device is still open")
