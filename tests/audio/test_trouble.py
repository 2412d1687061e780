"""Devices that are plugged in or out, and a sound server that dies or hangs, during a session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from rtvi_sync import DeviceError, ReconnectPolicy, RTVIClient, RTVIEvent
from rtvi_sync.media import NullSink, SilenceSource
from rtvi_sync.testing import EmbeddedBot
from tests.pipecat.clients import Watch
from tests.pipecat.conftest import BotServer
from tests.support.slowness import GUARD, takes
from tests.support.waiting import until

from .pulse import PulseServer
from .sessions import Hearing, client_of, device, is_loud, tone
from .signals import loud_seconds


@pytest.fixture
def bot() -> Iterator[EmbeddedBot]:
    with EmbeddedBot() as running:
        yield running


def works(client: RTVIClient) -> bool:
    """Return whether the bot answers."""
    answer: object = client.send_client_request("ping", 1)
    return answer in (1, {"pong": 1})


def ids(devices: Iterable[object]) -> set[str]:
    """Return the ids of a list of devices."""
    return {str(getattr(info, "device_id", None)) for info in devices}


def test_devices_are_plugged_in_and_pulled_out(pulse: PulseServer, bot: EmbeddedBot, library: str) -> None:
    """A session with open devices hears of others; one of them can be used at once."""
    updates = (RTVIEvent.AVAILABLE_MICS_UPDATED, RTVIEvent.AVAILABLE_SPEAKERS_UPDATED)
    with client_of(bot.ws_url, audio_backend=library) as client, client.events(*updates, timeout=GUARD) as events:
        watch = Watch(events)
        assert device("mic_c") not in ids(client.get_all_mics())
        pulse.load_mic("mic_c")
        came = watch.until(RTVIEvent.AVAILABLE_MICS_UPDATED, lambda mics: device("mic_c") in ids(mics))
        assert ids(came.data) == ids(client.get_all_mics())

        client.update_mic(device("mic_c"))
        assert pulse.source_outputs() == ["mic_c"]
        assert client.selected_mic is not None
        assert client.selected_mic.label == "mic_c"

        pulse.load_speaker("speaker_c")
        watch.until(RTVIEvent.AVAILABLE_SPEAKERS_UPDATED, lambda speakers: device("speaker_c") in ids(speakers))
        pulse.unload("speaker_c")
        watch.until(RTVIEvent.AVAILABLE_SPEAKERS_UPDATED, lambda speakers: device("speaker_c") not in ids(speakers))
        with pytest.raises(DeviceError) as error:
            client.update_speaker(device("speaker_c"))
        assert error.value.type == "not-found"
        # Beside busy processes a speaker opens its device again, with a longer buffer.
        until(lambda: pulse.sink_inputs() == ["speaker_a"], "the speaker is closed")


def test_a_speaker_is_pulled_out_while_it_plays(pulse: PulseServer, pipecat_echo: BotServer, library: str) -> None:
    """The session lives, and later speech is heard at the speaker that is left."""
    pulse.play(tone(440, 30))
    with (
        client_of(pipecat_echo.ws_url, speaker=device("speaker_b"), audio_backend=library),
        pulse.record("speaker_b.monitor") as b,
    ):
        b.wait_for(lambda heard: loud_seconds(heard) > 0.3, "nothing was heard")
        with pulse.record("speaker_a.monitor") as a:
            pulse.unload("speaker_b")
            a.wait_for(lambda heard: loud_seconds(heard) > 0.3, "nothing is heard any more")


def test_the_sound_server_is_killed(pulse: PulseServer, pipecat_echo: BotServer, library: str) -> None:
    """The session lives, both devices report it, and both work again once there is a new server."""
    pulse.play(tone(440, 30))
    with (
        client_of(pipecat_echo.ws_url, audio_backend=library) as client,
        client.events("device_error", timeout=GUARD) as errors,
    ):
        bot = client.tracks().bot.audio
        assert bot is not None
        hearing = Hearing(bot)
        hearing.wait_loud(0.3)

        pulse.kill()

        failed = {next(errors).data.devices for _ in range(2)}
        assert failed == {("mic",), ("speaker",)}
        assert client.state == "ready"
        mic = client.media_state.mic
        assert mic.state == "error"

        pulse.start()
        pulse.play(tone(880, 30))
        with pulse.record() as recording:
            hearing.wait_loud(0.5)
            recording.wait_for(lambda heard: loud_seconds(heard) > 0.3, "nothing is heard")
        assert hearing.pitch() == pytest.approx(880, abs=20)
        assert client.media_state.mic.state == "granted"


@pytest.mark.parametrize("again", ["goes on", "is replaced"])
def test_the_sound_server_hangs(pulse: PulseServer, bot: EmbeddedBot, again: str, library: str) -> None:
    """The session lives, it is reported, `disconnect()` is quick; once sound works again, so does another session."""
    client = client_of(bot.ws_url, audio_backend=library)
    client.connect()
    with client.events("device_error", timeout=GUARD) as errors:
        pulse.stop()
        failed = {next(errors).data.devices for _ in range(2)}
    assert failed == {("mic",), ("speaker",)}
    assert works(client)
    with takes(5.0):
        client.disconnect()

    if again == "goes on":
        pulse.go_on()
    else:
        pulse.kill()
        pulse.start()
    pulse.play(tone(440, 30))
    with client:
        local = client.tracks().local.audio
        assert local is not None
        Hearing(local).wait_loud(0.3)
        assert pulse.source_outputs() == ["mic_a"]
        assert pulse.sink_inputs() == ["speaker_a"]


def test_the_sound_server_hangs_before_a_session(pulse: PulseServer, bot: EmbeddedBot, library: str) -> None:
    """A default device that does not answer is reported, and the session goes without it."""
    pulse.stop()
    client = client_of(bot.ws_url, mic=None, speaker=NullSink(), audio_backend=library)
    with client.events("device_error", timeout=GUARD) as errors, client:
        assert next(errors).data.devices == ("mic",)
        assert works(client)
    pulse.go_on()


@pytest.mark.matrix
def test_a_device_that_is_asked_for_hangs_before_a_session(pulse: PulseServer, bot: EmbeddedBot, library: str) -> None:
    """A device that was asked for by its id and does not answer is an error of `connect()`, in time."""
    pulse.stop()
    with takes(10.0), pytest.raises(DeviceError, match="does not answer"):
        client_of(bot.ws_url, audio_backend=library).connect()
    pulse.go_on()


def test_the_default_devices(pulse: PulseServer, bot: EmbeddedBot, library: str) -> None:
    """Without a choice, a session uses the system's default devices at its start."""
    client = client_of(bot.ws_url, mic=None, speaker=None, audio_backend=library)
    for letter in "ab":
        pulse.set_default_mic(f"mic_{letter}")
        pulse.set_default_speaker(f"speaker_{letter}")
        with client:
            assert (pulse.source_outputs(), pulse.sink_inputs()) == ([f"mic_{letter}"], [f"speaker_{letter}"])


def test_the_system_mutes_the_microphone(pulse: PulseServer, bot: EmbeddedBot, library: str) -> None:
    """A microphone that the system mutes hears silence, which is no error, and then speech again."""
    pulse.play(tone(440, 30))
    pulse.mute_mic("mic_a")
    errors: list[DeviceError] = []
    with client_of(bot.ws_url, speaker=NullSink(), audio_backend=library) as client:
        client.on("device_error", errors.append)
        local = client.tracks().local.audio
        assert local is not None
        hearing = Hearing(local)
        until(lambda: len(hearing.frames) > 20, "nothing is read")
        assert not any(map(is_loud, hearing.frames))
        pulse.mute_mic("mic_a", False)
        hearing.wait_loud(0.3)
    assert errors == []


def test_the_sound_server_starts_last(pulse: PulseServer, bot: EmbeddedBot, library: str) -> None:
    """A session that starts before the sound server gets both default devices once there is one."""
    pulse.kill()
    client = client_of(bot.ws_url, mic=None, speaker=None, audio_backend=library)
    with client.events("device_error", timeout=GUARD) as errors, client:
        assert next(errors).data.devices == ("mic", "speaker")
        pulse.start()
        pulse.play(tone(440, 30))
        until(lambda: {client.media_state.mic.state, client.media_state.speaker.state} == {"granted"}, "no device")
        local = client.tracks().local.audio
        assert local is not None
        Hearing(local).wait_loud(0.3)
        assert (pulse.source_outputs(), pulse.sink_inputs()) == (["mic_a"], ["speaker_a"])


def test_a_session_is_replaced_without_its_microphone(pulse: PulseServer, bot: EmbeddedBot, library: str) -> None:
    """While a named microphone is unplugged sessions start without it, and use it when it is plugged in again."""
    pulse.load_mic("mic_c")
    forever = ReconnectPolicy.forever(initial_delay=0.01)
    client = client_of(bot.ws_url, mic=device("mic_c"), reconnect=forever, audio_backend=library)
    with client:
        bot.wait_for_session()
        pulse.unload("mic_c")  # the server moves the stream to another source
        bot.sessions[0].close()
        bot.wait_for_session()
        client.wait_until_ready(GUARD)
        assert client.media_state.mic.state == "error"
        until(lambda: pulse.sink_inputs() == ["speaker_a"], "the speaker is closed")
        pulse.load_mic("mic_c")
        until(lambda: client.media_state.mic.state == "granted", "the microphone is closed")
        assert pulse.source_outputs() == ["mic_c"]


def test_a_device_that_is_not_there(pulse: PulseServer, bot: EmbeddedBot, library: str) -> None:
    """A device id that is not there is a `not-found` error that names it, and the next session works."""
    client = client_of(bot.ws_url, mic=device("mic_z"), speaker=NullSink(), audio_backend=library)
    with pytest.raises(DeviceError, match="mic_z") as error:
        client.connect()
    assert error.value.type == "not-found"
    assert client.state == "error"
    client.update_mic(SilenceSource())
    with client:
        assert works(client)
