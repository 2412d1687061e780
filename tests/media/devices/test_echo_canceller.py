"""The reference of the echo canceller, read by time, and the rest of an echo."""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt
import pytest

from rtvi_sync.errors import MissingExtraError
from rtvi_sync.media.devices.echo_canceller import EchoCanceller, Reference, is_available

pytestmark = pytest.mark.inside

RATE = 16000
CHUNK = RATE // 50

Samples = npt.NDArray[np.int16]


def counted(begin: int, frames: int) -> bytes:
    """Return samples that have their number as value."""
    return np.arange(begin, begin + frames, dtype="<i2").tobytes()


@pytest.fixture
def reference() -> Reference:
    """Return the reference of a speaker that started to play samples 1 to 1600 at 100 s."""
    reference = Reference(RATE)
    reference.add(counted(1, 1600), RATE, 100.0)
    return reference


def test_it_is_read_by_time(reference: Reference) -> None:
    """The reference returns the audio played at that moment, and then the next."""
    assert reference.take(CHUNK, 100.04) == counted(641, CHUNK)
    assert reference.take(CHUNK, 100.06) == counted(961, CHUNK)


def test_before_and_after_it_there_is_silence(reference: Reference) -> None:
    """A reference of which too little is there is filled up."""
    assert reference.take(480, 99.98) == bytes(640) + counted(1, 160)
    assert reference.take(1600, 100.01) == counted(161, 1440) + bytes(320)
    assert reference.take(CHUNK, 100.11) == bytes(2 * CHUNK)


def taken(reference: Reference, late: float, calls: int, begin: float = 100.02) -> list[bytes]:
    """Return the reference of the audio played from `begin` on, as taken by a thread that is late."""
    reference.add(counted(1601, 16000), RATE, 100.1)
    return [reference.take(CHUNK, begin + number / 50 + late) for number in range(calls)]


def test_a_thread_that_is_late_moves_nothing(reference: Reference) -> None:
    """The next samples are taken, if some of the calls are in time."""
    reference.take(CHUNK, 100.0)
    late = taken(reference, 0.3, 24)
    assert late == [counted(321 + CHUNK * number, CHUNK) for number in range(24)]
    assert reference.take(CHUNK, 100.5) == counted(8001, CHUNK)
    assert reference.take(CHUNK, 100.52 + 0.3) == counted(8321, CHUNK)


@pytest.mark.parametrize("late", [0.025, -0.115])
def test_what_is_near_enough_moves_nothing(reference: Reference, late: float) -> None:
    """A reference that is near enough, and ahead of the echo, is not moved."""
    reference.take(CHUNK, 100.0)
    assert taken(reference, late, 40)[-1] == counted(321 + 39 * CHUNK, CHUNK)


@pytest.mark.parametrize(("late", "first"), [(0.06, 321 + 960), (-0.2, 321 - 3200)])
def test_a_jump_is_followed(reference: Reference, late: float, first: int) -> None:
    """After half a second: a microphone that lost audio, and one whose clock was behind."""
    reference.take(CHUNK, 100.0)
    chunks = taken(reference, late, 40)
    assert chunks[23] == counted(321 + 23 * CHUNK, CHUNK)
    assert chunks[39] == counted(first + 39 * CHUNK, CHUNK)


def test_a_pause_of_the_speaker_is_silence(reference: Reference) -> None:
    """Between two stretches of audio there is silence, unless the pause is short."""
    reference.add(counted(2000, 160), RATE, 100.13)
    reference.add(counted(3000, 160), RATE, 100.145)
    assert reference.take(160, 100.095) == counted(1441, 160)
    assert reference.take(480, 100.105) == bytes(960)
    assert reference.take(CHUNK, 100.135) == counted(2000, 160) + counted(3000, 160)


def test_what_was_dropped_was_not_played(reference: Reference) -> None:
    """After an interruption silence follows, then the next audio."""
    reference.cut(100.05)
    reference.cut(100.05)
    reference.add(counted(5000, CHUNK), RATE, 100.08)
    assert reference.take(1280, 100.02) == counted(321, 480) + bytes(960) + counted(5000, CHUNK)


def test_a_microphone_that_is_not_read_holds_little(reference: Reference) -> None:
    """The newest two seconds are kept."""
    for second in range(5):
        reference.add(counted(second * 1000, RATE), RATE, 100.1 + second)
    assert reference.begin == pytest.approx(103.1)


def test_another_rate() -> None:
    """The audio that the converter holds back is not late: a click is in its place."""
    reference = Reference(RATE)
    click = np.zeros(24000, "<i2")
    click[12000] = 20000
    for begin in range(0, 24000, 960):
        reference.add(click[begin : begin + 960].tobytes(), 24000, 100.0 + begin / 24000)
    heard = np.frombuffer(reference.take(RATE // 2, 100.25), "<i2")
    assert abs(int(np.abs(heard).argmax()) - RATE // 4) < 16


# -- the canceller -----------------------------------------------------------------------------------------------------


def noise(seconds: float, seed: int) -> Samples:
    """Return noise with pauses, as speech has."""
    samples = np.random.default_rng(seed).standard_normal(int(seconds * RATE)) * 3000
    return (samples * (np.sin(np.arange(len(samples)) * 2 * np.pi * 3 / RATE) > -0.5)).astype(np.int16)


@pytest.fixture
def canceller() -> EchoCanceller:
    """Return the canceller of a microphone that is open."""
    pytest.importorskip("pywebrtc_audio")
    canceller = EchoCanceller()
    canceller.begin(RATE)
    return canceller


def recorded(canceller: EchoCanceller, played: Samples, near: Samples, start: float = 50.0) -> Samples:
    """Return the rest of `near`, recorded while the speaker plays with 100 ms in its buffer."""
    ahead = RATE // 10
    canceller.play(played[:ahead].tobytes(), RATE, start)
    left = []
    for begin in range(0, len(near), CHUNK):
        at = start + begin / RATE
        if ahead + begin < len(played):
            canceller.play(played[ahead + begin : ahead + begin + CHUNK].tobytes(), RATE, at + 0.1)
        left.append(np.frombuffer(canceller.cancel(near[begin : begin + CHUNK].tobytes(), at), "<i2"))
    return np.concatenate(left)


def level(samples: Samples) -> float:
    """Return the level in decibels."""
    return float(10 * np.log10((samples.astype(float) ** 2).mean() + 1e-3))


@pytest.mark.parametrize("delay", [0.02, 0.24])
def test_an_echo_is_cancelled(canceller: EchoCanceller, delay: float) -> None:
    """After four seconds it is 25 dB weaker, however long it took."""
    played = noise(6, 1)
    echo = np.concatenate([np.zeros(int(delay * RATE), np.int16), played // 2])[: len(played)]
    left = recorded(canceller, played, echo)
    assert level(echo[4 * RATE : len(left)]) - level(left[4 * RATE :]) > 25


def test_without_a_speaker_nothing_changes(canceller: EchoCanceller) -> None:
    """Audio between a microphone and a sink, or after the speaker has ended, is unchanged: there is no echo."""
    said = noise(0.02, 2).tobytes()
    assert canceller.cancel(said, 50.0) == said
    canceller.play(said, RATE, 50.0)
    assert canceller.cancel(said, 50.0) != said
    canceller.end()
    assert canceller.cancel(said, 50.02) == said


def test_nothing_is_let_through_while_it_learns(canceller: EchoCanceller) -> None:
    """Beside the first 1.5 s that the speaker plays, and until their echo is over; the user alone is heard before."""
    user = noise(1, 6)
    heard = recorded(canceller, np.zeros_like(user), user)
    assert level(heard[RATE // 2 :]) > level(user) - 20  # noise is suppressed, too
    tone = (np.sin(np.arange(4 * RATE) * 0.1) * 3000).astype(np.int16)
    played = np.concatenate([tone[:RATE], np.zeros(RATE, np.int16), tone[: 2 * RATE]])
    left = recorded(canceller, played, noise(4, 8), 51.0)
    silent = [not left[begin : begin + CHUNK].any() for begin in range(0, len(left), CHUNK)]
    assert all(silent[:74])
    assert not all(silent[76:100])
    assert all(silent[101:124])
    assert not all(silent[126:])


def test_a_speaker_before_the_microphone() -> None:
    """Audio played while no microphone is open is forgotten."""
    pytest.importorskip("pywebrtc_audio")
    canceller = EchoCanceller()
    canceller.reset()
    canceller.play(bytes(640), RATE, 50.0)
    canceller.drop(50.0)
    said = noise(0.02, 2).tobytes()
    assert canceller.cancel(said, 50.0) == said


def test_a_speaker_that_is_opened_again(canceller: EchoCanceller) -> None:
    """The canceller forgets its adaptation: the same audio has the same result as at first."""
    played = noise(4, 3)
    near = played // 2
    first, second = (recorded(canceller, played, near, start) for start in (50.0, 54.0))
    first, second = first[2 * RATE :], second[2 * RATE :]
    canceller.reset()
    third = recorded(canceller, played, near, 58.0)[2 * RATE :]
    assert np.array_equal(first, third)
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("module", ["pywebrtc_audio", "soxr", "numpy"])
def test_the_extra_is_missing(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """The error gives the installation command, and the import that failed."""
    monkeypatch.setitem(sys.modules, module, None)
    assert not is_available()
    with pytest.raises(MissingExtraError, match=rf"install .*\[aec\].*{module}") as caught:
        EchoCanceller()
    assert caught.value.extra == "aec"
