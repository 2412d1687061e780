"""The daemon that the other tests here use: it has the devices, and passes the sound from feeds to microphones."""

from __future__ import annotations

import numpy as np

from tests.support.waiting import until

from .pulse import MICS, RATE, SPEAKERS, PulseServer
from .sessions import once
from .signals import correlation, speech


def names() -> set[str]:
    """Return PyAudio's names of the current devices."""
    import pyaudio  # the fixture says how to install it

    audio = pyaudio.PyAudio()
    try:
        return {str(audio.get_device_info_by_index(index)["name"]) for index in range(audio.get_device_count())}
    finally:
        audio.terminate()


def test_pyaudio_sees_its_devices(pulse: PulseServer) -> None:
    """PortAudio lists the daemon's microphones and speakers by name, also one that is plugged in later."""
    assert {*MICS, *SPEAKERS} < names()
    pulse.load_mic("mic_c")
    pulse.unload("speaker_b")
    assert "mic_c" in names()
    assert "speaker_b" not in names()


def test_a_microphone_hears_its_feed_only(pulse: PulseServer) -> None:
    """A microphone passes on the sound of its feed unchanged, and the other one is silent."""
    said = speech()

    def attempt() -> bool:
        with pulse.record("mic_a") as a, pulse.record("mic_b") as b:
            assert pulse.play(said).wait(20) == 0
            heard = a.stop()
        assert not b.samples().any()
        return correlation(heard, said) > 0.95

    assert once(attempt)


def test_it_may_be_killed_and_started_again(pulse: PulseServer) -> None:
    """A new daemon has the same devices, and the same environment leads to it."""
    pulse.kill()
    pulse.start()
    with pulse.record() as recording:
        pulse.play(np.full(RATE, 1000, np.int16), feed="speaker_a")
        until(lambda: pulse.sink_inputs() == ["speaker_a"], "no stream plays")
        recording.wait_for(lambda heard: (heard > 900).sum() > RATE // 2, "nothing was heard")
