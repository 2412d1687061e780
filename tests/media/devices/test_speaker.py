"""The speaker of a machine: latency, continuity, interruption, rates, volume, failure, hang, abandonment."""

from __future__ import annotations

import array
import itertools
import math
import random
import threading

import hypothesis
import pytest
from hypothesis import strategies as st

from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.errors import DeviceError, MissingExtraError
from rtvi_sync.media.devices.speaker import DeviceSpeaker
from tests.support import limits
from tests.support.fake_audio import World
from tests.support.fake_output import FakeOutput, FakeSpeakers
from tests.support.selection import some_of
from tests.support.slowness import GUARD, at_some_limit

pytestmark = pytest.mark.inside

RATE = 24000
FRAME = 960  # samples of 40 ms
GONE = DeviceError("It is gone", devices=("speaker",), type="not-found")
_PERIOD = 30011  # prime, so that a sample is not confused with an earlier one of the same value


class Rig:
    """One speaker on a machine in manual time, a bot whose samples count up, and the calls of `report` and `opened`."""

    speaker: DeviceSpeaker  # only after `make()`

    def __init__(self, *, device_id: str | None = None) -> None:
        self.world = World()
        self.speakers = FakeSpeakers(self.world)
        self.device_id = device_id
        self.volume = 1.0
        self.statuses: list[str] = []
        self.errors: list[DeviceError] = []
        self.numbers = itertools.count()
        self.echo = None
        self.is_continuous = False

    def make(self) -> Rig:
        self.speaker = DeviceSpeaker(
            self.speakers,
            self.device_id,
            volume=lambda: self.volume,
            report=self.report,
            opened=lambda device: self.statuses.append(device.label),
            echo=self.echo,
            is_continuous=lambda: self.is_continuous,
            clock=self.world.now,
            wait=self.wait,
            gil_wait=self.gil_wait,
        )
        return self

    def begin(self, idle: float = 1.0) -> Rig:
        """Make the speaker, let it open its device, and let time pass."""
        self.make()
        self.world.advance(idle)
        self.speaker.wait_opened(Deadline(0))
        return self

    def wait(self, notifier, ready, timeout: float) -> None:
        self.world.wait(notifier, ready, timeout)
        self.speakers.sleep(self.speakers.late())

    def gil_wait(self) -> float:
        late = self.speakers.late()
        self.speakers.sleep(late)
        return late

    def report(self, error: DeviceError) -> None:
        self.statuses.append("failed")
        self.errors.append(error)

    def say(self, samples: int = FRAME, rate: int = RATE) -> bytes:
        """Write the next samples of the bot, none of which is 0, and return them."""
        values = [next(self.numbers) % _PERIOD + 1 for _ in range(samples)]
        pcm = array.array("h", values).tobytes()
        self.speaker.write(pcm, rate)
        return pcm

    def stream(self, frames: int, pace: float = 0.04, samples: int = FRAME, lateness=lambda: 0.0) -> bytes:
        """Write frames in real time, with a head start of two frames, and return their samples."""
        said, begun = bytearray(), self.world.time  # appending does not copy the bytes before
        for number in range(frames):
            due = begun + pace * max(0, number - 1) + lateness()
            if due > self.world.time:
                self.world.advance(due - self.world.time)
            said += self.say(samples)
        return bytes(said)

    def watch(self, seconds: float) -> None:
        """Let time pass while the watchdog runs, four times per second."""
        for _ in range(round(seconds * 4)):
            self.world.advance(0.25)
            self.speaker.check(self.world.time)

    @property
    def stream_now(self) -> FakeOutput:
        return self.speakers.streams[-1]

    def heard(self) -> bytes:
        """Return all that was played, without the silence before and after it."""
        samples = array.array("h", b"".join(bytes(stream.heard) for stream in self.speakers.streams))
        loud = [index for index, sample in enumerate(samples) if sample]
        return samples[loud[0] : loud[-1] + 1].tobytes() if loud else b""

    def heard_speech(self) -> bytes:
        """Return all that was played, without any silence."""
        return array.array("h", [sample for sample in array.array("h", self.heard()) if sample]).tobytes()

    def end(self, seconds: float = 1.0) -> Rig:
        """Halt the speaker and let it play to the end."""
        self.speaker.halt()
        self.world.advance(seconds)
        assert self.speaker.join(Deadline(GUARD)) is None
        assert not any(stream.open for stream in self.speakers.streams)
        assert self.speakers.misused == []
        return self


@pytest.fixture
def rig():
    """Return a rig whose speaker the test makes; ended after the test."""
    rig = Rig()
    yield rig
    rig.speakers.hang(False)
    if hasattr(rig, "speaker"):
        rig.end(200.0)


# -- latency and continuity ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [0.0, 0.003, 0.011, 0.0199, 0.02, 0.0307, 0.04])
def test_speech_is_played_80_ms_after_it_arrived(rig, phase):
    """Speech starts after the same delay, at any phase of the silence."""
    rig.begin(1.0 + phase)
    came = rig.world.time
    said = rig.say() + rig.say()
    rig.end()
    assert rig.heard() == said
    first = next(i for i, sample in enumerate(array.array("h", bytes(rig.stream_now.heard))) if sample)
    assert rig.stream_now.heard_at(first) - came == pytest.approx(0.08, abs=0.0005)


@pytest.mark.parametrize(
    ("pace", "leap"),
    some_of([(pace, leap) for pace in (0.0395, 0.04) for leap in (0.0, 0.01, 0.04)], (0.0395, 0.01), (0.04, 0.04)),
)
def test_a_steady_stream_is_played_bit_exact(rig, pace, leap):
    """For a minute of a bot that paces its audio as Pipecat does, no sample is lost, changed or late; the device never
    runs dry, also during silence."""
    rig.speakers.leap = leap
    rig.begin()
    said = rig.stream(1500, pace)
    rig.end(3.0)
    assert rig.heard() == said
    assert (rig.speaker.underruns, rig.speaker.dropped_seconds, rig.stream_now.dry) == (0, 0, 0)


@pytest.mark.parametrize("seed", some_of(range(3), 0))
def test_a_steady_stream_beside_busy_threads(rig, seed):
    """In a minute beside threads that keep the GIL nothing is lost: each wait for it, of this thread or the receiving
    one, is as measured beside two such threads (median 16 ms, 1 of 100 over 80 ms)."""
    rng = random.Random(seed)

    def late() -> float:
        return min(0.2, 0.005 + rng.expovariate(1 / 0.016))

    rig.speakers.late = late
    rig.begin(3.0)
    said = rig.stream(1500, 0.0395, lateness=late)
    rig.end(5.0)
    assert (rig.speaker.underruns, rig.speaker.dropped_seconds) == (0, 0)
    assert rig.heard() == said


def delay(rig: Rig) -> float:
    """Write one frame, and return after how many seconds it is played."""
    came, stream, before = rig.world.time, rig.stream_now, len(rig.stream_now.heard)
    rig.say()
    rig.world.advance(1.0)
    heard = array.array("h", bytes(stream.heard[before:]))
    first = next(index for index, sample in enumerate(heard) if sample)
    return stream.heard_at(before // 2 + first) - came


def periods(rig: Rig) -> list[float]:
    """Return the periods with which the device was opened, in order."""
    return [period for _, _, period in rig.speakers.asked]


def test_busy_threads_from_the_beginning(rig):
    """Busy threads are detected before the first open, so that immediate speech is not interrupted."""
    rig.speakers.late = lambda: 0.016
    rig.begin(0.3)
    assert periods(rig) == [0.2]
    assert delay(rig) == pytest.approx(0.48, abs=0.04)
    assert periods(rig) == [0.2]


def test_busy_threads_come_and_go(rig):
    """If the thread is late repeatedly, the device is reopened with a larger buffer and speech starts later, until the
    thread is on time again. Speech is played to its end before."""
    rig.begin()
    rig.speakers.late = lambda: 0.016
    rig.world.advance(3.0)
    assert delay(rig) == pytest.approx(0.48, abs=0.04)
    rig.speakers.late = lambda: 0.0
    rig.world.advance(28.0)
    assert delay(rig) == pytest.approx(0.48, abs=0.001)
    assert periods(rig) == [0.08, 0.2]
    said = rig.stream(60)
    assert periods(rig) == [0.08, 0.2]
    rig.world.advance(2.0)
    assert bytes(rig.speakers.streams[1].heard).rstrip(b"\0").endswith(said.rstrip(b"\0"))
    assert delay(rig) == pytest.approx(0.08, abs=0.001)
    rig.end(2.0)
    assert periods(rig) == [0.08, 0.2, 0.08]
    assert rig.statuses == ["speaker_a"] * 3  # each time; the slot publishes changes
    assert rig.speaker.underruns == 0


def test_threads_that_become_busy_while_the_bot_speaks(rig):
    """Busy threads are detected immediately; the device is reopened once all speech was played and silence follows."""
    rig.begin(3.0)
    rig.speakers.late = lambda: 0.016
    said = rig.stream(50, lateness=lambda: 0.016)
    assert periods(rig) == [0.08]
    rig.world.advance(0.6)
    assert periods(rig) == [0.08, 0.2]
    assert rig.heard() == said


def test_speech_that_breaks_off_beside_busy_threads(rig):
    """The device, silent anyway, is reopened immediately. The gap counts as an underrun, and nothing is lost."""
    rig.begin(3.0)
    rig.speakers.late = lambda: 0.016
    said = rig.stream(50, lateness=lambda: 0.016)
    rig.world.advance(0.27)
    said += rig.stream(50, lateness=lambda: 0.016)
    rig.end(2.0)
    assert periods(rig) == [0.08, 0.2]
    assert rig.speaker.underruns == 1
    assert rig.heard_speech() == said


@pytest.mark.parametrize("gap", [0.15, 0.152, 0.154, 0.156, 0.158, 0.16, 0.18, 0.2, 0.23])
def test_speech_that_continues_at_the_last_moment_beside_busy_threads(rig, gap):
    """The audio left in the device is played, and the device is reopened later."""
    rig.begin(3.0)
    rig.speakers.late = lambda: 0.016
    said = rig.stream(50, lateness=lambda: 0.016)
    rig.speakers.late = lambda: 0.0
    rig.world.advance(gap)
    said += rig.stream(50, lateness=lambda: 0.016)
    rig.end(2.0)
    assert rig.heard_speech() == said


def test_a_short_buffer_can_wait(rig):
    """When the threads are idle again, the start of speech is not delayed by reopening the device."""
    rig.speakers.late = lambda: 0.016
    rig.begin(1.0)
    rig.speakers.late = lambda: 0.0
    said = rig.stream(800)
    rig.world.advance(0.8)
    said += rig.stream(20)
    assert periods(rig) == [0.2]
    rig.end(2.0)
    assert rig.heard_speech() == said


@pytest.mark.parametrize(("seed", "share"), some_of([(1, 0.3), (2, 0.4), (1, 0.4), (2, 0.3)], (1, 0.3)))
def test_threads_that_are_busy_now_and_then(rig, share, seed):
    """A load between one and two busy threads does not reopen the device repeatedly."""
    rng = random.Random(seed)
    rig.speakers.late = lambda: 0.010 if rng.random() < share else 0.005
    rig.begin(100.0)
    assert len(rig.speakers.asked) <= 12


def test_an_interruption_beside_busy_threads(rig):
    """Speech after an interruption has the same delay; the device stays open."""
    rig.speakers.late = lambda: 0.016
    rig.begin(1.0)
    for _ in range(3):
        rig.stream(20, lateness=lambda: 0.016)
        rig.speaker.interrupt()
        rig.world.advance(0.1)
    assert delay(rig) == pytest.approx(0.48, abs=0.04)
    assert periods(rig) == [0.2]
    assert rig.speaker.underruns == 0


def test_a_device_that_refuses_a_long_buffer(rig):
    """After one attempt with a long buffer that fails, the short one is used again, without an error."""
    rig.begin()
    rig.speakers.longest = 0.1
    rig.speakers.late = lambda: 0.016
    said = rig.stream(20, lateness=lambda: 0.016)
    rig.world.advance(3.0)
    assert periods(rig) == [0.08, 0.2, 0.08]
    assert rig.heard() == said
    assert delay(rig) == pytest.approx(0.16, abs=0.04)
    rig.speakers.late = lambda: 0.0
    rig.world.advance(32.0)
    rig.end()
    assert periods(rig) == [0.08, 0.2, 0.08]
    assert rig.errors == []


def test_a_device_that_fails_with_a_long_buffer(rig, monkeypatch):
    """If the device opens with the long buffer and then fails to write, the short buffer is used again."""
    write = FakeOutput.write

    def refuse(stream: FakeOutput, pcm: bytes) -> None:
        if stream.buffer > 0.5:
            stream.fail()
            raise GONE
        write(stream, pcm)

    monkeypatch.setattr(FakeOutput, "write", refuse)
    rig.begin()
    rig.speakers.late = lambda: 0.016
    rig.world.advance(20.0)
    assert periods(rig) == [0.08, 0.2, 0.08]
    assert rig.errors == []


def test_another_device_is_opened_with_a_long_buffer(rig):
    """After a failure another device is tried with the buffer that the first one refused."""
    rig.begin()
    rig.speakers.longest = 0.1
    rig.speakers.late = lambda: 0.016
    rig.world.advance(3.0)
    rig.speakers.longest = math.inf
    rig.speakers.outputs.reverse()
    rig.speakers.fail(GONE)
    rig.world.advance(0.5)
    rig.speakers.fail(None)
    rig.world.advance(3.0)
    assert rig.stream_now.device.label == "speaker_b"
    assert periods(rig)[-1] == 0.2


def test_a_failure_beside_busy_threads_refuses_no_buffer(rig):
    """A device that fails temporarily is opened with the long buffer again."""
    rig.begin()
    rig.speakers.open_error = GONE
    rig.speakers.late = lambda: 0.016
    rig.world.advance(3.0)
    rig.speakers.open_error = None
    rig.world.advance(3.0)
    assert periods(rig)[-1] == 0.2
    assert rig.statuses == ["speaker_a", "failed", "speaker_a"]


def test_a_small_device_beside_busy_threads(rig):
    """With a small buffer, speech starts no earlier than on an idle machine."""
    rig.speakers.most = 0.12
    rig.speakers.late = lambda: 0.016
    rig.begin(1.0)
    assert 0.08 <= delay(rig) < 0.12


def test_reopening_keeps_the_device(rig):
    """If the default changes, reopening does not switch to another device; after a failure it does."""
    rig.begin()
    rig.speakers.outputs.reverse()
    rig.speakers.late = lambda: 0.016
    rig.world.advance(3.0)
    rig.say(FRAME, 16000)
    rig.world.advance(1.0)
    assert [label for label, _, _ in rig.speakers.asked] == [None, "ALSA/speaker_a", "ALSA/speaker_a"]
    rig.speakers.fail(GONE)
    rig.world.advance(0.5)
    rig.speakers.fail(None)
    rig.world.advance(1.0)
    assert rig.stream_now.device.label == "speaker_b"


def test_the_end_does_not_reopen_the_device(rig):
    """A thread that detects busy threads at the end of all speech does not reopen the device."""
    rig.begin(3.0)
    rig.speakers.late = lambda: 0.016
    rig.stream(50, lateness=lambda: 0.016)
    rig.world.advance(0.27)
    rig.say()
    rig.end(3.0)
    assert periods(rig) == [0.08]


def test_an_abandoned_thread_opens_no_device(rig):
    """If the library refuses the long buffer after the thread was abandoned, no other open follows."""
    rig.speakers.late = lambda: 0.016
    rig.speakers.longest = 0.1
    rig.make()
    rig.world.advance(0.15)
    rig.speakers.hang(True)
    assert periods(rig) == [0.2]
    with pytest.raises(DeviceError):
        rig.speaker.wait_opened(Deadline(0.05))
    thread = rig.speaker.join(Deadline(0.05))
    rig.speakers.hang(False)
    rig.world.advance(1.0)
    thread.join(GUARD)
    assert periods(rig) == [0.2]


@pytest.mark.parametrize("late", [0.0052, 0.0065])
def test_beside_one_busy_thread(rig, late):
    """One busy thread releases the GIL every 5 ms, so speech does not start much later."""
    rig.speakers.late = lambda: late
    rig.begin(5.0)
    assert delay(rig) == pytest.approx(0.08, abs=0.025)
    rig.stream(100, lateness=lambda: late)
    rig.end()
    assert periods(rig) == [0.08]
    assert rig.speaker.underruns == 0


@pytest.mark.parametrize("usual", [0.0, 0.0052])
@pytest.mark.parametrize("pause", [0.03, 0.2])
@pytest.mark.parametrize("waits_before", [0, 5, 60])
def test_one_pause_of_the_machine(rig, usual, pause, waits_before):
    """If the thread is late once, by any time, also beside one busy thread, the device is not reopened."""
    lates = itertools.chain([usual] * waits_before, [pause], itertools.repeat(usual))
    rig.speakers.late = lambda: next(lates)
    rig.begin(3.0)
    rig.stream(20)
    rig.end()
    assert periods(rig) == [0.08]


@pytest.mark.parametrize("pause", [0.2, 30.0])
def test_a_process_that_was_stopped(rig, pause):
    """After a leap in time the device is not reopened."""
    rig.begin(3.0)
    rig.world.leap(pause)
    rig.world.advance(3.0)
    rig.end()
    assert periods(rig) == [0.08]


def test_a_bot_that_is_ahead_reopens_nothing(rig):
    """The age of frames that were queued ahead is not counted as a wait of the thread."""
    rig.begin()
    rig.say(10 * RATE)
    rig.world.advance(12.0)
    assert periods(rig) == [0.08]


@pytest.mark.parametrize("speed", some_of([0.9995, 1.0005], 0.9995))
def test_clocks_that_differ(rig, speed):
    """After two minutes with a device whose clock differs by 500 ppm, speech has the same delay and is complete."""
    rig.speakers.speed = speed
    rig.begin(120.0)
    came = rig.world.time
    said = rig.stream(100)
    rig.end()
    assert rig.heard() == said
    assert rig.speaker.underruns == 0
    first = next(i for i, sample in enumerate(array.array("h", bytes(rig.stream_now.heard))) if sample)
    assert rig.stream_now.heard_at(first) - came == pytest.approx(0.08, abs=0.003)


def delay_of_the_last(rig: Rig, samples: int) -> float:
    """Return how long after its arrival the last frame is heard."""
    arrived, stream = rig.world.time, rig.stream_now
    rig.world.advance(1.0)
    end = math.ceil(len(stream.heard.rstrip(b"\0")) / 2)  # samples until silence
    return stream.heard_at(end) - arrived - samples / RATE


LONG = 4800  # samples of 200 ms, because fewer frames make a test faster


@pytest.mark.parametrize(("is_continuous", "is_late"), [(False, True), (True, False)])
def test_what_has_come_at_once(rig, is_continuous, is_late):
    """A burst of 0.4 s is made up for if the bot speaks on continuously, and stays as delay otherwise."""
    rig.is_continuous = is_continuous
    rig.begin()
    rig.say(9600)
    rig.stream(225, 0.2, LONG)
    assert rig.speaker.underruns == 0
    assert (delay_of_the_last(rig, LONG) > 0.55) is is_late


@pytest.mark.parametrize("speed", some_of([0.9991, 1.0009], 1.0009))
def test_continuous_speech_and_clocks_that_differ(rig, speed):
    """After two minutes at 900 ppm, which make 108 ms, the buffer has not run dry, and speech is late by less than half
    of that.
    """
    rig.speakers.speed = speed
    rig.is_continuous = True
    rig.begin()
    rig.stream(600, 0.2, LONG)
    assert rig.speaker.underruns == rig.stream_now.dry == 0
    assert 0.02 < delay_of_the_last(rig, LONG) < 0.14


@pytest.mark.matrix
@pytest.mark.parametrize("speed", [0.9995, 1.0005])
def test_an_hour_of_continuous_speech(rig, speed):
    """With clocks that differ by 500 ppm, and a stall after each quarter, the delay is within 100 ms in the end."""
    rig.speakers.speed = speed
    rig.is_continuous = True
    rig.begin()
    for _ in range(4):
        rig.stream(4450, 0.2, LONG)
        rig.world.advance(0.4)
        for _ in range(2):
            rig.say(LONG)
    rig.stream(500, 0.2, LONG)
    assert rig.world.time > 500 + 3600
    assert abs(delay_of_the_last(rig, LONG) - 0.08) < 0.1
    assert rig.speaker.underruns <= 4


def test_continuous_speech_is_bit_exact(rig):
    """While nothing has to be made up for, no sample is changed."""
    rig.is_continuous = True
    rig.begin()
    said = rig.stream(100)
    rig.end()
    assert rig.heard() == said[:-16]  # these samples would arrive with the next frame


@pytest.mark.parametrize("samples", [120, 240, 480, 1200, 24000])
def test_frames_of_any_size(rig, samples):
    """Frames of 5 ms to 1 s make the same stream."""
    rig.begin()
    said = rig.stream(48000 // samples + 2, samples / RATE, samples)
    rig.end(4.0)
    assert rig.heard() == said
    assert rig.speaker.underruns == 0


def test_a_bot_that_sends_all_at_once(rig):
    """Of 10 s sent at once 5 s are played after 5 s, with the usual delay, and the device has a full buffer."""
    rig.begin()
    said = rig.say(10 * RATE)
    rig.world.advance(5.0)
    rig.speaker.surrender()
    rig.end()
    assert said.startswith(rig.heard())
    assert len(rig.heard()) / (2 * RATE) == pytest.approx(5.0 - 0.08 + 0.24 + 0.02, abs=0.021)
    assert (rig.speaker.underruns, rig.speaker.dropped_seconds) == (0, 0)


def test_a_minute_that_is_sent_at_once(rig):
    """A minute of speech that is sent at once is played whole, bit-exact and without a gap."""
    rig.begin()
    said = rig.say(60 * RATE)
    rig.end(61.0)
    assert rig.heard() == said
    assert (rig.speaker.underruns, rig.speaker.dropped_seconds, rig.stream_now.dry) == (0, 0, 0)


@pytest.mark.parametrize("samples", [1, 17, 959])
def test_the_tail_of_an_utterance_is_played(rig, samples):
    """A last frame shorter than a period is played without a following one, and the device does not run dry."""
    rig.begin()
    said = rig.say() + rig.say() + rig.say(samples)
    rig.world.advance(1.0)
    assert rig.heard() == said
    assert rig.stream_now.dry == 0


def test_audio_beyond_the_queue_is_dropped(rig):
    """If more than two minutes are queued, the oldest audio is dropped and counted in seconds."""
    rig.begin()
    assert rig.speaker.write(b"\1\1" * (122 * RATE), RATE) > 0  # reported when it starts
    assert 1.75 < rig.speaker.dropped_seconds < 2.01  # the thread may have fetched the first by then
    assert rig.speaker.write(b"\1\1" * RATE, RATE) == 0
    rig.speaker.interrupt()


# -- underruns -------------------------------------------------------------------------------------------------------


def test_speech_that_breaks_off_is_counted(rig):
    """A frame that is 150 ms late makes a gap, which is counted once, and no audio is lost."""
    rig.begin()
    said = rig.stream(10)
    rig.world.advance(0.19 + 0.08)
    said += rig.stream(10)
    rig.end()
    assert rig.speaker.underruns == 1
    assert rig.heard_speech() == said


def test_a_thread_that_was_late_is_counted(rig):
    """If the device runs dry though the bot was on time, that is an underrun, and no audio is lost."""
    rig.begin()
    said = rig.stream(10)
    lates = itertools.chain([0.3], itertools.repeat(0.0))
    rig.speakers.late = lambda: next(lates)
    said += rig.stream(30)
    rig.end()
    assert rig.heard_speech() == said
    assert rig.speaker.underruns == 1


def test_a_pause_is_no_underrun(rig):
    """A pause between sentences is no underrun, and neither is one after an interruption."""
    rig.begin()
    for pause in (1.0, 0.6, 0.6):
        rig.stream(5)
        rig.world.advance(pause)
    rig.stream(5)
    rig.speaker.interrupt()
    rig.world.advance(0.1)
    rig.stream(5)
    rig.end()
    assert rig.speaker.underruns == 0


def test_a_late_frame_within_the_head_start_makes_no_gap(rig):
    """A frame that arrives 90 ms late makes no gap."""
    rig.begin()
    said = rig.stream(10)
    rig.world.advance(0.04 + 0.09)
    said += rig.say() + rig.say() + rig.say()
    rig.world.advance(0.04)
    said += rig.stream(10)
    rig.end()
    assert rig.heard() == said
    assert rig.speaker.underruns == 0


# -- interruption ----------------------------------------------------------------------------------------------------


def test_an_interruption_takes_effect_immediately(rig):
    """Within one period the device is silent; audio that follows is played from its start."""
    rig.begin()
    rig.say(5 * RATE)
    rig.world.advance(1.0)
    interrupted = rig.world.time
    rig.speaker.interrupt()
    rig.world.advance(0.5)
    before = rig.heard()
    assert len(before) / (2 * RATE) <= 1.0 - 0.08 + 0.04
    came = rig.world.time
    said = rig.stream(20)
    rig.end(2.0)
    assert rig.heard().endswith(said)
    assert rig.heard_speech() == before + said
    assert came > interrupted
    assert rig.speaker.dropped_seconds == 0


def test_an_interruption_of_silence(rig):
    """An interruption during silence has no effect."""
    rig.begin()
    rig.speaker.interrupt()
    rig.world.advance(0.3)
    said = rig.stream(5)
    rig.end()
    assert rig.heard() == said


# -- echo ------------------------------------------------------------------------------------------------------------


class FakeEcho:
    """The calls of a canceller, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []
        self.played: list[tuple[bytes, float]] = []

    def reset(self) -> None:
        self.calls.append(("reset", None))

    def play(self, pcm: bytes, rate: int, at: float) -> None:
        assert rate == RATE
        self.played.append((pcm, at))

    def drop(self, at: float) -> None:
        self.calls.append(("drop", at))

    def end(self) -> None:
        self.calls.append(("end", None))


def test_what_is_played_is_the_reference(rig):
    """All that is written, silence too, after the volume, with the time at which the device plays it."""
    rig.echo, rig.volume = FakeEcho(), 0.5
    rig.begin()
    rig.stream(25)
    rig.end()
    played = [(sample, at + index / RATE) for pcm, at in rig.echo.played for index, sample in enumerate(samples(pcm))]
    assert rig.stream_now.heard.startswith(b"".join(pcm for pcm, _ in rig.echo.played[:20]))
    for index, sample in enumerate(samples(bytes(rig.stream_now.heard))[:RATE]):
        assert played[index] == (sample, pytest.approx(rig.stream_now.heard_at(index), abs=0.001))
    assert rig.echo.calls == [("reset", None), ("end", None)]


def test_what_was_dropped_is_no_reference(rig):
    """The canceller gets an interruption with its time; for a device that is opened again it starts again."""
    rig.echo = FakeEcho()
    rig.begin()
    rig.say(RATE)
    rig.world.advance(0.5)
    rig.speaker.interrupt()
    rig.world.advance(0.2)
    rig.speakers.fail(GONE)
    rig.world.advance(0.5)
    rig.speakers.fail(None)
    rig.world.advance(2.0)
    rig.end()
    (_, dropped) = rig.echo.calls[1]
    assert dropped == pytest.approx(501.5, abs=0.05)
    assert [name for name, _ in rig.echo.calls] == ["reset", "drop", "reset", "end"]


def samples(pcm: bytes) -> array.array[int]:
    return array.array("h", pcm)


# -- rates and volume ------------------------------------------------------------------------------------------------


def test_another_rate_reopens_the_device(rig):
    """Each part is played to its end at its own rate, by a stream of its own; no stream is open beside another."""
    rig.begin()
    first, second, third = rig.say(5000), rig.say(3000, 16000), rig.say(700, 48000)
    rig.end(2.0)
    assert [rate for _, rate, _ in rig.speakers.asked] == [24000, 16000, 48000]
    heard = [bytes(stream.heard).strip(b"\0") for stream in rig.speakers.streams]
    assert heard == [part.strip(b"\0") for part in (first, second, third)]
    assert rig.speaker.underruns == 0


def test_another_rate_begins_as_late_as_all_speech(rig):
    """Each stream starts with 80 ms of silence."""
    rig.begin()
    rig.say(5000)
    rig.say(3000, 16000)
    rig.end(2.0)
    first = next(index for index, sample in enumerate(array.array("h", bytes(rig.stream_now.heard))) if sample)
    assert first / 16000 == pytest.approx(0.08, abs=0.001)


def test_volume(rig):
    """At half volume each sample is halved; the change takes effect with the next period, without a gap."""
    rig.begin()
    first = rig.stream(10)
    rig.volume = 0.5
    rig.world.advance(0.04)
    second = rig.stream(10)
    rig.end()
    heard, said = array.array("h", rig.heard()), array.array("h", first + second)
    assert len(heard) == len(said)
    changed = next(index for index in range(1, len(said)) if heard[index] != said[index])
    assert list(heard[changed:]) == [(sample + 1) // 2 for sample in said[changed:]]
    assert 10 * FRAME - 4 * FRAME <= changed <= 11 * FRAME


def test_muted_speech_keeps_its_time(rig):
    """Speech at volume 0 is played silently, so that later speech keeps its position."""
    rig.begin()
    rig.volume = 0.0
    rig.stream(15)
    rig.volume = 1.0
    rig.world.advance(0.04)
    rig.stream(15)
    rig.end()
    heard = array.array("h", rig.heard())
    assert heard[0] > 12 * FRAME
    assert list(heard) == list(range(heard[0], 30 * FRAME + 1))


# -- the end ---------------------------------------------------------------------------------------------------------


def test_the_end_plays_all_audio(rig):
    """After halt() all audio is played, none is taken, and the device is closed 0.3 s later."""
    rig.begin()
    said = rig.stream(10)
    rig.speaker.halt()
    rig.speaker.halt()
    rig.say()
    rig.world.advance(0.16 + 0.12 + 0.04)
    assert rig.speaker.join(Deadline(GUARD)) is None
    assert rig.heard() == said


def test_a_silent_speaker_ends_immediately(rig):
    """Without speech there is no buffer to play to its end."""
    rig.begin()
    rig.speaker.halt()
    rig.world.settle()
    assert rig.speaker.join(Deadline(GUARD)) is None


def test_audio_not_played_at_the_deadline_is_cut_off(monkeypatch):
    """join() returns at its deadline though minutes are queued, and the device is closed then."""
    limits.patch(monkeypatch, speaker_close=math.inf)  # a quarter of the time is left

    def check(limit: float) -> None:
        rig = Rig()
        rig.begin()
        rig.say(240 * RATE)
        rig.world.advance(0.5)
        rig.speaker.halt()
        given_up: list[object] = []
        joining = threading.Thread(target=lambda: given_up.append(rig.speaker.join(Deadline(limit))))
        joining.start()
        while joining.is_alive():
            rig.world.advance(0.01)
            joining.join(0.005)
        heard, is_open = len(rig.heard()), rig.stream_now.open
        rig.end(200.0)
        assert given_up == [None]
        assert not is_open
        assert 0 < heard < 120 * RATE
        assert 119 < rig.speaker.dropped_seconds < 240

    at_some_limit(check)


def test_a_hanging_device_is_abandoned(rig):
    """join() returns the thread at its deadline; when the device answers, the thread closes it and reports nothing."""
    rig.begin()
    rig.stream(5)
    rig.speakers.hang(True)
    rig.world.advance(0.5)
    rig.speaker.halt()
    thread = rig.speaker.join(Deadline(0.05))
    assert thread is not None
    assert thread.name.startswith("rtvi-speaker-")
    rig.speakers.hang(False)
    rig.world.advance(1.0)
    thread.join(GUARD)
    assert not rig.stream_now.open
    assert rig.statuses == ["speaker_a"]


def test_surrender(rig):
    """surrender() returns the queued audio in order; the device plays its buffer, and no audio is taken."""
    rig.begin()
    said = rig.say(RATE)
    rig.world.advance(0.5)
    given_back = b"".join(frame.pcm for frame in rig.speaker.surrender())
    assert rig.say()
    rig.end()
    assert rig.heard() + given_back == said
    assert 0.3 < len(given_back) / (2 * RATE) < 0.6


@pytest.mark.parametrize("how", ["fails", "hangs"])
def test_surrender_by_a_device_that_does_not_work(rig, how):
    """Of what waits for a device that fails or hangs, surrender() returns only what would not have been played by now.
    The rest counts as dropped."""
    rig.begin()
    rig.speakers.open_error = GONE if how == "fails" else None
    rig.speakers.fail(rig.speakers.open_error)
    rig.speakers.hang(how == "hangs")
    rig.watch(16.0)
    assert rig.statuses == ["speaker_a", "failed"]
    said = rig.say(6 * RATE)
    rig.watch(4.0)
    given_back = b"".join(frame.pcm for frame in rig.speaker.surrender())
    assert said.endswith(given_back)
    assert len(given_back) / (2 * RATE) == pytest.approx(2.0, abs=0.05)
    assert rig.speaker.dropped_seconds == pytest.approx(4.0, abs=0.05)


# -- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [GONE, MissingExtraError("Devices", "audio")])
def test_an_error_of_the_first_open_is_raised(rig, error):
    """wait_opened() raises a new copy of the error each time, and nothing is reported; the thread has ended."""
    rig.speakers.open_error = error
    rig.make()
    for _ in range(2):
        with pytest.raises(type(error)) as raised:
            rig.speaker.wait_opened(Deadline(GUARD))
        assert raised.value is not error
        assert str(raised.value) == str(error)
    assert rig.speaker.join(Deadline(GUARD)) is None
    assert rig.statuses == []


def test_a_first_open_that_hangs(rig):
    """wait_opened() raises at its deadline; once the device opens, the thread closes it and reports nothing."""
    rig.speakers.hang(True)
    rig.make()
    with pytest.raises(DeviceError, match=r"'default' does not answer.*update_speaker") as raised:
        rig.speaker.wait_opened(Deadline(0.05))
    assert raised.value.devices == ("speaker",)
    thread = rig.speaker.join(Deadline(0.05))
    assert thread is not None
    rig.speakers.hang(False)
    rig.world.settle()
    thread.join(GUARD)
    assert not rig.stream_now.open
    assert rig.statuses == []


@pytest.mark.parametrize("error", [GONE, MissingExtraError("Devices", "audio")])
def test_a_failing_device_is_tried_again(rig, error):
    """A device that fails is reported once, closed, and tried again after 1, 2 and 4 s until `opened` is called; its
    audio in this time is dropped and counted."""
    rig.begin()
    said = rig.stream(26)
    rig.speakers.open_error = error
    rig.speakers.fail(error)
    said += rig.stream(80)
    assert rig.statuses == ["speaker_a", "failed"]
    assert rig.errors[0].devices == ("speaker",)
    assert len(rig.speakers.asked) == 3
    rig.speakers.open_error = None
    rig.speakers.fail(None)
    said += rig.stream(125)
    assert rig.statuses == ["speaker_a", "failed", "speaker_a"]
    rig.end()
    after = bytes(rig.stream_now.heard).strip(b"\0")
    assert said.strip(b"\0").endswith(after)
    assert 0.5 * RATE < len(after) / 2 < 2.3 * RATE
    assert 5.9 < rig.speaker.dropped_seconds < 8.3
    assert len(rig.speakers.streams) == 2
    assert rig.speaker.underruns == 0


def test_a_device_that_refuses_a_rate(rig):
    """The failure is reported; once the bot uses a supported rate again, its audio is played."""
    rig.begin()
    rig.speakers.open_error = DeviceError("Invalid sample rate", devices=("speaker",))
    rig.say(FRAME, 16000)
    rig.world.advance(0.5)
    assert rig.statuses == ["speaker_a", "failed"]
    rig.speakers.open_error = None
    said = rig.stream(30)
    rig.world.advance(1.0)
    assert [rate for _, rate, _ in rig.speakers.asked] == [24000, 16000, 24000]
    assert said.strip(b"\0").endswith(bytes(rig.stream_now.heard).strip(b"\0"))
    assert rig.stream_now.heard.strip(b"\0")
    assert rig.statuses == ["speaker_a", "failed", "speaker_a"]


def test_a_failed_device_does_not_delay_the_end(rig):
    """halt() ends the wait for the next try."""
    rig.begin()
    rig.speakers.fail(GONE)
    rig.world.advance(0.2)
    rig.speaker.halt()
    assert rig.speaker.join(Deadline(GUARD)) is None
    assert len(rig.speakers.asked) == 1


def test_a_device_that_hangs_is_reported(rig):
    """The watchdog reports a hang once, after 1 s; when the device answers, `opened` is called, stale audio dropped."""
    rig.begin()
    said = rig.stream(20)
    rig.speakers.hang(True)
    rig.watch(0.75)
    assert rig.statuses == ["speaker_a"]
    rig.watch(2.25)
    assert rig.statuses == ["speaker_a", "failed"]
    assert "does not answer" in str(rig.errors[0])
    said += rig.stream(50)
    rig.speakers.hang(False)
    said += rig.stream(50)
    rig.end()
    assert rig.statuses == ["speaker_a", "failed", "speaker_a"]
    assert said.strip(b"\0").endswith(rig.heard()[-RATE:])
    assert 1.19 < rig.speaker.dropped_seconds < 2.09


@pytest.mark.parametrize("how", ["fails", "hangs"])
def test_what_waits_for_a_device_that_does_not_work(rig, how):
    """Nothing waits, because it is not played; what comes once the device works again waits."""
    rig.begin()
    rig.say(6 * RATE)
    rig.world.advance(1.0)
    assert 4.9 < rig.speaker.waiting_seconds < 5.1
    rig.speakers.open_error = GONE if how == "fails" else None
    rig.speakers.fail(rig.speakers.open_error)
    rig.speakers.hang(how == "hangs")
    rig.watch(2.0)
    assert rig.statuses == ["speaker_a", "failed"]
    assert rig.speaker.waiting_seconds == 0.0
    rig.say(6 * RATE)
    assert rig.speaker.waiting_seconds == 0.0
    rig.speakers.open_error = None
    rig.speakers.fail(None)
    rig.speakers.hang(False)
    rig.watch(10.0)
    assert rig.statuses == ["speaker_a", "failed", "speaker_a"]
    assert rig.speaker.waiting_seconds == 0.0
    rig.say(6 * RATE)
    assert rig.speaker.waiting_seconds > 5.9


def test_a_process_that_was_stopped_blames_no_device(rig):
    """After a leap in time, as of a suspended process, nothing is reported."""
    rig.begin()
    rig.speaker.check(rig.world.time)
    rig.world.leap(30.0)
    rig.watch(0.5)
    assert rig.statuses == ["speaker_a"]


def test_a_device_by_its_id(rig):
    """The device is opened by its id, with 24 kHz and periods of 80 ms."""
    rig.device_id = "ALSA/speaker_b"
    rig.begin()
    assert rig.speakers.asked == [("ALSA/speaker_b", 24000, 0.08)]
    assert rig.statuses == ["speaker_b"]


# -- any sequence of actions -----------------------------------------------------------------------------------------

_STEPS = st.one_of(
    st.tuples(st.just("say"), st.integers(1, 6000)),
    st.tuples(st.just("pause"), st.floats(0.0, 0.5)),
    st.tuples(st.just("rate"), st.sampled_from([8000, 16000, 24000])),
    st.tuples(st.just("interrupt"), st.none()),
)


@hypothesis.settings(max_examples=60)
@hypothesis.given(
    steps=st.lists(_STEPS, max_size=25),
    leap=st.sampled_from([0.0, 0.01, 0.04]),
    lateness=st.lists(st.floats(0.0, 0.05), min_size=1, max_size=8),
)
def test_played_audio_is_what_was_written(steps, leap, lateness):
    """After any sequence of writes, interruptions and pauses, at any lateness: the start of each generation is played,
    the last one completely, in order, once. No audio of an interrupted generation is played after the thread could know
    it.
    """
    rig = Rig()
    lates = itertools.cycle(lateness)
    rig.speakers.leap, rig.speakers.late = leap, lambda: next(lates)
    rig.begin()
    rate, spoken = RATE, [0]  # `spoken`: how many samples had been written when each generation started
    interruptions: list[float] = []
    total = 0
    for step, amount in steps:
        if step == "say":
            rig.say(amount, rate)
            total += amount
        elif step == "pause":
            rig.world.advance(amount)
        elif step == "rate":
            rate = amount
        else:
            rig.speaker.interrupt()
            interruptions.append(rig.world.time)
            spoken.append(total)
    rig.end(60.0)
    heard: list[int] = []
    for stream in rig.speakers.streams:
        for index, sample in enumerate(array.array("h", bytes(stream.heard))):
            if sample:
                # At most 6000 samples are written at a time, so the number that was wrapped around is the nearest one.
                number = sample - 1 + (heard[-1] // _PERIOD * _PERIOD if heard else 0)
                number += _PERIOD if heard and number < heard[-1] else 0
                heard.append(number)
                generation = sum(begin <= number for begin in spoken[1:])
                if generation < len(interruptions):
                    # The current call may take a whole period, and the thread may be late before and after it.
                    assert stream.heard_at(index) <= interruptions[generation] + 0.04 + leap + 3 * max(lateness)
    ends = [*spoken[1:], total]
    expected: list[int] = []
    for begin, end in zip(spoken, ends, strict=True):
        part = [number for number in heard if begin <= number < end]
        assert part == list(range(begin, begin + len(part)))
        expected += part
    assert heard == expected
    assert rig.speaker.dropped_seconds or not (ends[-1] - spoken[-1]) or heard[-1] == total - 1
    assert len([number for number in heard if number >= spoken[-1]]) == total - spoken[-1]
    assert rig.speaker.dropped_seconds == 0
