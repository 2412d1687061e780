"""The microphone of a machine: open, read, mute, failure, hang, abandonment."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable

import hypothesis
import pytest
from hypothesis import strategies as st

from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.timer_thread import TimerThread
from rtvi_sync.errors import DeviceError, DisconnectedError, MissingExtraError, WouldDeadlockError
from rtvi_sync.media.devices import device
from rtvi_sync.media.devices.microphone import DeviceMic
from tests.support import part_probes
from tests.support.fake_audio import FakeAudio, World, frame, within
from tests.support.slowness import GUARD, takes
from tests.support.threads import in_sleepless_thread
from tests.support.waiting import until

pytestmark = pytest.mark.inside

SILENCE = bytes(640)
GONE = DeviceError("It is gone", devices=("mic",), type="not-found")


class Rig:
    """One microphone on a machine in manual time, with all its calls of `report` and `opened`."""

    mic: DeviceMic  # only after `make()`

    def __init__(self, *, enabled: bool = True, device_id: str | None = None) -> None:
        self.world = World()
        self.audio = FakeAudio(self.world)
        self.enabled = enabled
        self.is_enabled = lambda: self.enabled
        self.device_id = device_id
        self.sent: list[tuple[bytes, int, float]] = []
        self.heard: list[tuple[bytes, int, float]] = []
        self.statuses: list[str] = []
        self.errors: list[DeviceError] = []
        self.sending = lambda: None
        self.timer = TimerThread()  # never started
        self.echo = None

    def make(self) -> Rig:
        self.mic = DeviceMic(
            self.audio,
            self.device_id,
            enabled=lambda: self.is_enabled(),
            publish=lambda *frame: self.heard.append(frame),
            report=lambda error: self.report(error),
            opened=lambda device: self.statuses.append(device.label),
            echo=self.echo,
            clock=self.world.now,
            wait=self.world.wait,
        )
        return self

    def begin(self) -> Rig:
        """Make the microphone, let it open its device, and start sending."""
        self.make()
        self.world.settle()
        self.mic.wait_opened(Deadline(0))
        self.mic.start(self.timer, self.send)
        return self

    def report(self, error: DeviceError) -> None:
        self.statuses.append("failed")
        self.errors.append(error)

    def send(self, pcm: bytes, rate: int) -> None:
        self.sending()
        self.sent.append((pcm, rate, self.world.time))

    def enable(self, enable: bool) -> None:
        self.enabled = enable
        self.mic.look()

    def watch(self, seconds: float) -> None:
        """Let time pass while the watchdog runs, four times per second."""
        for _ in range(round(seconds * 4)):
            self.world.advance(0.25)
            self.mic.check(self.world.time)

    @property
    def pcm(self) -> list[bytes]:
        return [pcm for pcm, _, _ in self.sent]

    def repair(self) -> None:
        """Let the device open and work."""
        self.audio.open_error = None
        self.audio.fail(None)

    def halt(self) -> None:
        """Halt the microphone and let its thread end, after the period that it is reading."""
        self.mic.halt()
        self.world.advance(0.02)
        assert self.mic.join(Deadline(GUARD)) is None

    def end(self) -> None:
        self.audio.hangs = False
        if hasattr(self, "mic"):
            self.halt()
        assert self.audio.open == []
        assert self.audio.most_open <= 1
        assert self.audio.misused == []


def gaps(rig: Rig) -> list[float]:
    """Return the seconds between consecutive sends."""
    return [later - earlier for (_, _, earlier), (_, _, later) in itertools.pairwise(rig.sent)]


@pytest.fixture
def rig():
    """Return a factory of rigs; after the test each must end cleanly."""
    made: list[Rig] = []

    def make(**options) -> Rig:
        made.append(Rig(**options))
        return made[-1]

    yield make
    for each in made:
        each.end()


# -- capture and sending ---------------------------------------------------------------------------------------------


def test_each_period_is_sent_when_it_is_read(rig):
    """Periods of 20 ms at 16 kHz are sent in order, when their read returns, on the thread that reads."""
    mic = rig().begin()
    start = mic.world.time
    threads: set[str] = set()
    mic.sending = lambda: threads.add(threading.current_thread().name)
    mic.world.advance(1.0)
    assert mic.audio.asked == [(None, 16000, 0.02)]
    assert mic.pcm == [frame(number) for number in range(1, 51)]
    assert [sent_at for _, _, sent_at in mic.sent] == pytest.approx([start + 0.02 * number for number in range(1, 51)])
    assert mic.heard == mic.sent
    assert len(threads) == 1
    assert threads.pop().startswith("rtvi-mic-")
    assert (mic.statuses, mic.mic.underruns, mic.mic.stale_dropped) == (["mic_a"], 0, 0)


def test_before_the_bot_is_ready_only_the_track_gets_audio(rig):
    """Audio is sent from start() on, and a second start() has no effect."""
    mic = rig().make()
    mic.world.advance(0.1)
    assert [pcm for pcm, _, _ in mic.heard] == [frame(number) for number in range(1, 6)]
    assert mic.sent == []
    mic.mic.start(mic.timer, mic.send)
    mic.mic.start(mic.timer, lambda pcm, rate: pytest.fail("the first call counts"))
    mic.world.advance(0.04)
    assert mic.pcm == [frame(6), frame(7)]


class FakeEcho:
    """A canceller that makes audio silent, and records its calls."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.recorded: list[tuple[bytes, float]] = []
        self.error: Exception | None = None

    def begin(self, rate: int) -> None:
        self.begun.append(rate)

    def cancel(self, pcm: bytes, at: float) -> bytes:
        if self.error is not None:
            raise self.error
        self.recorded.append((pcm, at))
        return bytes(len(pcm))


def test_the_echo_is_cancelled(rig):
    """The bot and the track get each frame without its echo; the canceller receives it with its start time."""
    mic = rig()
    mic.echo = FakeEcho()
    mic.begin()
    start = mic.world.time
    mic.world.advance(0.1)
    assert mic.echo.begun == [16000]
    assert [pcm for pcm, _ in mic.echo.recorded] == [frame(number) for number in range(1, 6)]
    assert [at for _, at in mic.echo.recorded] == pytest.approx([start + 0.02 * number for number in range(5)])
    assert mic.pcm == [SILENCE] * 5
    assert mic.heard == mic.sent


def test_a_canceller_that_fails(rig):
    """An echo canceller that fails is a failure of the microphone, which is opened again."""
    mic = rig()
    mic.echo = FakeEcho()
    mic.begin()
    mic.echo.error = ValueError("mine")
    mic.world.advance(0.1)
    mic.echo.error = None
    mic.world.advance(2.0)
    assert mic.statuses == ["mic_a", "failed", "mic_a"]
    assert "mine" in str(mic.errors[0])
    assert mic.pcm


def test_a_device_is_opened_by_its_id(rig):
    """The device is opened by its id, and `opened` is called with it."""
    mic = rig(device_id="ALSA/mic_b").begin()
    assert mic.audio.asked[0][0] == "ALSA/mic_b"
    assert mic.statuses == ["mic_b"]


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000])
def test_a_device_that_refuses_16_khz(rig, rate):
    """Audio is sent at the device's own rate, unconverted; 1 s of silence has exactly one second's samples."""
    mic = rig()
    mic.audio.rate = rate
    mic.begin().world.advance(0.1)
    assert mic.pcm == [frame(number, round(rate / 50)) for number in range(1, 6)]
    mic.enable(False)
    mic.world.advance(1.5)
    assert len(b"".join(mic.pcm[5:])) // 2 == rate
    assert {sent_rate for _, sent_rate, _ in mic.sent} == {rate}


def test_when_the_connection_is_lost_the_track_continues(rig, caplog):
    """The first error ends the sending, without a log; readers of the local track still get audio."""
    mic = rig().begin()
    tries: list[int] = []

    def refuse() -> None:
        tries.append(1)
        raise DisconnectedError("gone")

    mic.sending = refuse
    mic.world.advance(1.0)
    assert len(tries) == 1
    assert len(mic.heard) == 50
    assert (mic.errors, caplog.records) == ([], [])


# -- muting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", [0.0, 0.005, 0.0199])
def test_muting_closes_the_device_within_100_ms(rig, moment):
    """Muted during a period, the device is closed at its end, and that period is not sent."""
    mic = rig().begin()
    mic.world.advance(0.1 + moment)
    muted_at = mic.world.time
    mic.enable(False)
    mic.world.advance(0.1)
    (closed_at,) = mic.audio.closed_at
    assert closed_at - muted_at <= 0.02 + 1e-9
    assert set(mic.pcm[5:]) == {SILENCE}
    assert mic.audio.open == []


def test_muting_sends_a_second_of_silence_in_real_time(rig):
    """The last frame is followed by 50 chunks of silence, 20 ms apart, also on the track, and then by nothing."""
    mic = rig().begin()
    mic.world.advance(0.1)
    mic.enable(False)
    mic.world.advance(60.0)
    assert mic.pcm == [frame(number) for number in range(1, 6)] + [SILENCE] * 50
    assert gaps(mic) == pytest.approx([0.02] * 54)
    assert mic.heard == mic.sent


def test_muted_from_the_start_no_device_is_opened(rig):
    """While the microphone is off nothing is opened or sent, and wait_opened() does not block."""
    mic = rig(enabled=False).make()
    mic.mic.wait_opened(Deadline(0))
    mic.mic.start(mic.timer, mic.send)
    mic.watch(10.0)
    assert (mic.audio.asked, mic.sent, mic.statuses) == ([], [], [])
    mic.enable(True)
    mic.world.advance(0.04)
    assert (mic.pcm, mic.statuses) == ([frame(1), frame(2)], ["mic_a"])


def test_unmuting_opens_the_device_again(rig):
    """The device is opened again, `opened` is called, and the silence ends with the first frame."""
    mic = rig().begin()
    mic.world.advance(0.04)
    mic.enable(False)
    mic.world.advance(0.1)
    mic.enable(True)
    mic.world.advance(0.06)
    assert mic.pcm == [frame(1), frame(2), *[SILENCE] * 5, frame(1), frame(2), frame(3)]
    assert mic.statuses == ["mic_a", "mic_a"]
    assert len(mic.audio.asked) == 2


def test_unmuted_before_the_period_ends(rig):
    """Muting and unmuting within one period keeps the device open and loses no audio."""
    mic = rig().begin()
    mic.world.advance(0.05)
    for enable in (False, True) * 5:
        mic.enable(enable)
    mic.world.advance(0.05)
    assert mic.pcm == [frame(number) for number in range(1, 6)]
    assert len(mic.audio.asked) == 1


def test_muting_and_unmuting_fast_never_outruns_real_time(rig):
    """At any switching speed no more audio is sent than time has passed, and the device is open in the end."""
    mic = rig().begin()
    start = mic.world.time
    for enable in (False, True) * 100:
        mic.enable(enable)
        mic.world.advance(0.007)
    assert len(mic.sent) <= (mic.world.time - start) / 0.02
    mic.world.advance(0.1)
    assert len(mic.audio.open) == 1
    assert set(mic.pcm[-4:]).isdisjoint({SILENCE})


def test_the_second_muting_within_a_second_has_one_silence(rig):
    """Muted, unmuted briefly and muted again, the bot gets one second of silence, not two."""
    mic = rig().begin()
    mic.world.advance(0.02)
    mic.enable(False)
    mic.world.advance(0.5)
    mic.enable(True)
    mic.world.advance(0.02)
    mic.enable(False)
    before = len(mic.sent)
    mic.world.advance(5.0)
    assert mic.pcm[before:] == [SILENCE] * 50


def test_muted_while_it_opens(rig):
    """If the microphone is muted while a slow device opens, the device is closed without a read."""
    mic = rig()
    mic.audio.open_takes = 0.5
    mic.make().world.advance(0.1)
    mic.enable(False)
    mic.world.advance(0.4)
    assert (mic.audio.open, len(mic.audio.closed_at)) == ([], 1)
    mic.mic.wait_opened(Deadline(0))
    mic.world.advance(1.0)
    assert mic.heard == []


def test_muted_before_the_first_open(rig):
    """If the application mutes before the thread opens the device, nothing is opened and wait_opened() returns."""
    mic = rig()
    asked = iter([True])
    mic.mic = DeviceMic(
        mic.audio,
        None,
        enabled=lambda: next(asked, False),
        publish=lambda *frame: None,
        report=mic.report,
        opened=lambda device: None,
        clock=mic.world.now,
        wait=mic.world.wait,
    )
    mic.mic.wait_opened(Deadline(GUARD))
    mic.world.settle()
    assert mic.audio.asked == []


# -- the first open --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [GONE, MissingExtraError("A microphone", "audio")])
def test_a_device_that_cannot_be_opened_at_first(rig, error):
    """wait_opened() raises the backend's error, each time; nothing is reported or tried again."""
    mic = rig()
    mic.audio.open_error = error
    mic.make().world.settle()
    raised: list[Exception] = []
    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            mic.mic.wait_opened(Deadline(0))
        raised.append(caught.value)
    assert [str(each) for each in raised] == [str(error)] * 2
    assert raised[0] is not raised[1]
    assert mic.mic.join(Deadline(GUARD)) is None
    mic.mic.start(mic.timer, mic.send)
    mic.enable(False)
    mic.watch(5.0)
    assert (len(mic.audio.asked), mic.statuses, mic.heard) == (1, [], [])


def test_a_backend_with_a_bug(rig):
    """An unexpected exception of the backend becomes a DeviceError that quotes it."""
    mic = rig()
    mic.audio.open_error = ZeroDivisionError("a fault")
    mic.make().world.settle()
    with pytest.raises(DeviceError, match=r"microphone 'default' failed: ZeroDivisionError\('a fault'\)") as caught:
        mic.mic.wait_opened(Deadline(0))
    assert (caught.value.devices, caught.value.type) == (("mic",), "unknown")


def test_a_slow_device_is_waited_for(rig):
    """wait_opened() returns when the device is open; the watchdog does not check the first open."""
    mic = rig()
    mic.audio.open_takes = 3.0
    mic.make().watch(2.0)
    outcome: list[str] = []

    def wait() -> None:
        mic.mic.wait_opened(Deadline(GUARD))
        outcome.append("opened")

    thread = threading.Thread(target=wait)
    thread.start()
    assert outcome == []
    mic.watch(1.0)
    thread.join(GUARD)
    assert outcome == ["opened"]
    assert mic.statuses == ["mic_a"]


def test_a_first_open_that_hangs(rig):
    """wait_opened() raises at its deadline and names the remedy; the abandoned thread ends without side effects."""
    mic = rig()
    mic.audio.hangs = True
    mic.make().world.settle()
    with pytest.raises(DeviceError, match=r"'default' does not answer.*update_mic") as caught:
        mic.mic.wait_opened(Deadline(0.01))
    assert (caught.value.devices, caught.value.type) == (("mic",), "unknown")
    thread = mic.mic.join(Deadline(0.01))
    assert thread.name.startswith("rtvi-mic-")
    mic.audio.hangs = False
    thread.join(GUARD)
    assert not thread.is_alive()
    assert (mic.statuses, mic.heard, len(mic.audio.closed_at)) == ([], [], 1)


def test_the_session_ends_during_the_first_open(rig):
    """halt() wakes a thread that waits for a device that hangs."""
    mic = rig()
    mic.audio.hangs = True
    mic.make().world.settle()
    waiting = threading.Thread(target=mic.mic.wait_opened, args=(Deadline(GUARD),))
    waiting.start()
    mic.mic.halt()
    waiting.join(GUARD)
    assert not waiting.is_alive()


# -- failing and recovering ------------------------------------------------------------------------------------------


def test_a_device_that_fails(rig, caplog):
    """A failure makes one report and one log line; the device is closed, 1 s of silence sent, then silent tries after
    1, 2 and 4 s."""
    mic = rig().begin()
    mic.world.advance(0.105)
    mic.audio.fail(GONE)
    mic.audio.open_error = DeviceError("another text", devices=("mic",), type="in-use")
    mic.world.advance(10.5)
    assert mic.audio.open == []
    assert mic.errors == [GONE]
    assert gaps(mic) == pytest.approx([0.02] * 54)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert mic.pcm == [frame(number) for number in range(1, 6)] + [SILENCE] * 50
    assert len(mic.audio.asked) == 1 + 3


def test_a_backend_that_exits(rig):
    """A SystemExit of the backend is reported as a failure, and the device is tried again."""
    mic = rig().begin()
    mic.audio.fail(SystemExit(3))
    mic.world.advance(0.1)
    assert [str(error).partition(". ")[0] for error in mic.errors] == ["The microphone 'mic_a' failed: SystemExit(3)"]
    mic.audio.fail(None)
    mic.world.advance(1.1)
    assert mic.statuses == ["mic_a", "failed", "mic_a"]


def test_a_device_that_comes_back(rig):
    """When a try succeeds frames are sent again, and `opened` is called with the first of them."""
    mic = rig().begin()
    mic.audio.fail(GONE)
    mic.audio.open_error = GONE
    mic.world.advance(3.5)
    mic.audio.fail(None)
    mic.audio.open_error = None
    mic.sent.clear()
    mic.world.advance(3.51)
    assert mic.statuses == ["mic_a", "failed"]
    mic.world.advance(0.04)
    assert mic.statuses == ["mic_a", "failed", "mic_a"]
    assert mic.pcm == [frame(1), frame(2)]


def test_a_device_that_opens_and_fails_immediately(rig):
    """A device that can be opened and not read is reported once, not with each try."""
    mic = rig().begin()
    mic.audio.fail(GONE)
    mic.watch(9.5)
    assert mic.statuses == ["mic_a", "failed"]
    assert len(mic.audio.asked) == 1 + 3
    mic.audio.fail(None)
    mic.watch(6.0)
    mic.audio.fail(GONE)
    mic.watch(2.0)
    assert mic.statuses == ["mic_a", "failed", "mic_a", "failed"]


def test_a_failed_device_is_not_opened_while_muted(rig):
    """While muted the device is not tried; unmuting tries it immediately, and a known failure is not reported again."""
    mic = rig().begin()
    mic.audio.fail(GONE)
    mic.audio.open_error = GONE
    mic.world.advance(0.3)
    mic.enable(False)
    mic.world.advance(10.0)
    assert len(mic.audio.asked) == 1
    assert mic.pcm == []
    mic.enable(True)
    mic.world.advance(0.01)
    assert len(mic.audio.asked) == 2
    assert mic.statuses == ["mic_a", "failed"]


def test_muting_and_unmuting_tries_a_failed_device(rig):
    """Muting and unmuting tries the device before the retry interval is over."""
    mic = rig().begin()
    mic.audio.fail(GONE)
    mic.world.advance(0.3)
    mic.audio.fail(None)
    mic.enable(False)
    mic.world.advance(0.1)
    mic.enable(True)
    mic.world.advance(0.05)
    assert mic.statuses == ["mic_a", "failed", "mic_a"]


def test_muted_in_the_silence_after_a_failure(rig):
    """The silence continues: 1 s in all, in real time."""
    mic = rig().begin()
    mic.world.advance(0.02)
    mic.audio.fail(GONE)
    mic.world.advance(0.305)
    mic.enable(False)
    mic.world.advance(10.0)
    assert mic.pcm == [frame(1)] + [SILENCE] * 50
    assert gaps(mic) == pytest.approx([0.02] * 50)


@pytest.mark.parametrize("error", [GONE, MissingExtraError("A microphone", "audio")])
def test_a_microphone_that_is_first_unmuted_later_and_missing(rig, error):
    """A failure after the first unmuting is reported, and the device is tried again until it works."""
    mic = rig(enabled=False)
    mic.audio.open_error = error
    mic.begin()
    mic.enable(True)
    mic.world.advance(5.0)
    assert [(str(told), told.devices, told.type) for told in mic.errors] == [(str(error), ("mic",), "not-found")]
    mic.audio.open_error = None
    mic.world.advance(2.1)
    assert mic.statuses == ["failed", "mic_a"]


# -- hanging ---------------------------------------------------------------------------------------------------------


def test_a_device_that_hangs_is_reported_once(rig):
    """A device without a frame for 1 s is reported once, with advice, after 1.5 s at the latest."""
    mic = rig().begin()
    mic.watch(1.0)
    mic.audio.hangs = True
    mic.watch(0.75)
    assert mic.statuses == ["mic_a"]
    mic.watch(0.75)
    assert mic.statuses == ["mic_a", "failed"]
    mic.watch(60.0)
    (error,) = mic.errors
    assert (error.devices, error.type) == (("mic",), "unknown")
    assert "'mic_a' does not answer" in str(error)
    assert "update_mic()" in str(error)


def test_a_device_that_hung_and_continues(rig):
    """Frames are sent again without the stale audio, `opened` is called, and a second hang is reported again."""
    mic = rig().begin()
    mic.watch(1.0)
    for number in (1, 2):
        mic.audio.hangs = True
        mic.watch(3.0)
        mic.sent.clear()
        mic.audio.hangs = False
        mic.world.advance(0.1)
        assert mic.statuses == ["mic_a", *["failed", "mic_a"] * number]
        assert mic.pcm == [frame(50 + 155 * number - back) for back in (4, 3, 2, 1, 0)]
        assert mic.mic.stale_dropped == 150 * number


def test_a_device_continues_while_it_is_reported(rig):
    """If the device works again during `report`, `opened` is called after it."""
    mic = rig().begin()
    entered, go = threading.Event(), threading.Event()

    def report(error: DeviceError) -> None:
        entered.set()
        assert go.wait(GUARD)
        mic.statuses.append("failed")

    mic.report = report
    mic.watch(1.0)
    mic.audio.hangs = True
    mic.watch(0.75)
    watchdog = threading.Thread(target=mic.watch, args=(0.25,))
    watchdog.start()
    assert entered.wait(GUARD)
    mic.audio.hangs = False
    mic.world.advance(0.1)
    assert mic.statuses == ["mic_a"]
    assert mic.pcm[-1] != mic.pcm[49]
    go.set()
    watchdog.join(GUARD)
    mic.world.advance(0.02)
    assert mic.statuses == ["mic_a", "failed", "mic_a"]


def test_a_device_that_hung_and_fails(rig):
    """A sound server that is killed while it hangs is one failure; silence is sent and the device tried again."""
    mic = rig().begin()
    mic.watch(1.0)
    mic.audio.hangs = True
    mic.watch(3.0)
    mic.audio.fail(GONE)
    mic.audio.hangs = False
    mic.watch(1.0)
    assert mic.statuses == ["mic_a", "failed"]
    assert mic.pcm[50:] == [SILENCE] * 50
    assert gaps(mic)[50:] == pytest.approx([0.02] * 49)
    mic.audio.fail(None)
    mic.watch(2.5)
    assert mic.statuses == ["mic_a", "failed", "mic_a"]


@pytest.mark.parametrize("step", ["open", "close"])
def test_a_device_that_hangs_when_it_is_opened_or_closed(rig, step):
    """The watchdog reports that too, and the microphone continues when the library does."""
    mic = rig().begin()
    mic.world.advance(0.03)
    mic.enable(False)
    if step == "open":
        mic.world.advance(2.0)
        mic.enable(True)
        mic.audio.open_takes = 0.01
        mic.world.advance(0.0)
        mic.audio.hangs = True
    else:
        mic.world.advance(0.005)
        mic.audio.hangs = True
        mic.world.advance(0.01)
    mic.watch(2.0)
    assert mic.statuses == ["mic_a", "failed"]
    mic.audio.hangs = False
    mic.enable(True)
    mic.watch(0.5)
    assert mic.statuses == ["mic_a", "failed", "mic_a"]
    assert set(mic.pcm[-5:]).isdisjoint({SILENCE})


def test_a_process_that_was_stopped_blames_no_device(rig):
    """After a process was suspended for 5 s in a read, the device is not reported, and the backlog is dropped."""
    mic = rig().begin()
    mic.watch(1.0)
    mic.world.time += 5.0
    mic.mic.check(mic.world.time)
    mic.mic.check(mic.world.time)
    mic.watch(2.0)
    assert mic.errors == []
    assert mic.mic.stale_dropped == 250


def test_muted_and_slow_microphones_do_not_hang(rig):
    """A muted microphone and one whose reads are on time are never reported."""
    mic = rig().begin()
    mic.watch(5.0)
    mic.enable(False)
    mic.watch(5.0)
    assert mic.errors == []


# -- stale audio -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [10.0, 0.06, 0.0])
def test_a_backlog_is_dropped_to_the_newest(rig, told):
    """A reader that was blocked for 3 s continues with current audio, whatever backlog the library reports."""
    mic = rig()
    mic.audio.backlog_limit = told
    mic.begin().world.advance(0.1)

    def stall() -> None:
        mic.sending = lambda: None
        mic.world.time += 3.0

    mic.sending = stall
    mic.world.advance(0.02)
    mic.world.advance(0.1)
    assert mic.pcm == [frame(number) for number in (1, 2, 3, 4, 5, 6, 157, 158, 159, 160, 161)]
    assert mic.mic.stale_dropped == 150
    assert mic.statuses == ["mic_a"]


def test_a_short_delay_loses_nothing(rig):
    """A reader that is late by 180 ms sends all frames, in a burst."""
    mic = rig().begin()

    def stall() -> None:
        mic.sending = lambda: None
        mic.world.time += 0.18

    mic.world.advance(0.1)
    mic.sending = stall
    mic.world.advance(0.4)
    assert mic.pcm == [frame(number) for number in range(1, len(mic.sent) + 1)]
    assert len(mic.sent) == 25
    assert mic.mic.stale_dropped == 0


def test_a_backlog_that_grew_slowly_is_dropped(rig):
    """A reader that is a little too slow does not send ever older audio."""
    mic = rig().begin()

    def delay() -> None:
        mic.world.time += 0.025

    mic.sending = delay
    mic.world.advance(2.0)
    assert mic.mic.stale_dropped > 0
    mic.sending = lambda: None
    mic.world.advance(0.5)
    latest = round((mic.world.time - 500.0) / 0.02)
    assert int.from_bytes(mic.pcm[-1][:2], "little") >= latest - 1


def test_a_device_that_needs_a_second_to_begin_loses_nothing(rig):
    """A headset that is slow to deliver its first frame loses no audio."""
    mic = rig()
    mic.audio.first_frame_after = 1.0
    mic.begin().world.advance(1.1)
    assert mic.pcm == [frame(number) for number in range(1, 6)]
    assert mic.mic.stale_dropped == 0


# -- the end ---------------------------------------------------------------------------------------------------------


def test_after_halt_nothing_is_sent(rig):
    """From the return of halt() on nothing is sent, published or reported; the device is closed within a period."""
    mic = rig().begin()
    mic.world.advance(0.11)
    mic.mic.halt()
    mic.world.advance(0.1)
    assert mic.mic.join(Deadline(GUARD)) is None
    assert mic.audio.open == []
    assert len(mic.sent) == len(mic.heard) == 5
    mic.mic.halt()
    mic.mic.look()
    mic.mic.check(mic.world.time)
    mic.mic.start(mic.timer, mic.send)
    assert (mic.statuses, len(mic.sent)) == (["mic_a"], 5)


@pytest.mark.parametrize("muted", [True, False])
def test_halt_ends_the_silence_too(rig, muted):
    """Halted in the second after a muting or a failure, the thread ends immediately."""
    mic = rig().begin()
    mic.world.advance(0.02)
    if muted:
        mic.enable(False)
    else:
        mic.audio.fail(GONE)
    mic.world.advance(0.3)
    before = len(mic.sent)
    mic.mic.halt()
    assert mic.mic.join(Deadline(GUARD)) is None
    assert len(mic.sent) == before


def test_halt_waits_for_what_is_being_sent(rig):
    """While a chunk is being sent halt() blocks, except on the microphone's own thread."""
    mic = rig().begin()
    entered, go = threading.Event(), threading.Event()

    def slow() -> None:
        entered.set()
        assert go.wait(GUARD)

    mic.sending = slow
    mic.world.leap(0.021)
    assert entered.wait(GUARD)
    halting = threading.Thread(target=mic.mic.halt)
    halting.start()
    until(part_probes.thread_sleeps(halting))
    assert halting.is_alive()
    with in_sleepless_thread(), pytest.raises(WouldDeadlockError):
        mic.mic.halt()
    go.set()
    halting.join(GUARD)
    assert not halting.is_alive()
    mic.world.settle()
    assert len(mic.sent) == 1


@pytest.mark.parametrize("where", ["sending", "report", "just before"])
def test_halt_on_its_own_thread(rig, where):
    """A finalizer on the microphone's thread, or the `report` callback, may call halt()."""
    mic = rig().begin()
    if where == "sending":
        mic.sending = lambda: mic.mic.halt()
    elif where == "report":
        mic.report = lambda error: mic.mic.halt()
        mic.audio.fail(GONE)
    else:
        mic.is_enabled = lambda: (mic.mic.halt(), True)[1]
    mic.world.advance(0.1)
    assert mic.mic.join(Deadline(GUARD)) is None
    assert len(mic.sent) == (1 if where == "sending" else 0)
    assert len(mic.heard) == len(mic.sent)


def test_halt_while_locks_are_held(rig):
    """A finalizer may call halt() while the thread holds the lock."""
    mic = rig().begin()
    with part_probes.lock_of(mic.mic):
        mic.mic.halt()
    mic.world.advance(0.02)
    assert mic.mic.join(Deadline(GUARD)) is None


def test_a_hanging_device_is_abandoned(rig):
    """join() returns the thread at its deadline; when the library call returns, it only closes the device."""
    mic = rig().begin()
    mic.world.advance(0.1)
    mic.audio.hangs = True
    mic.world.advance(0.1)
    mic.mic.halt()
    with takes(1.0):
        thread = mic.mic.join(Deadline(0.05))
    assert thread.is_alive()
    mic.mic.check(mic.world.time)
    mic.mic.check(mic.world.time + 0.5)
    mic.mic.check(mic.world.time + 1.0)
    mic.audio.hangs = False
    thread.join(GUARD)
    assert mic.audio.open == []
    assert (len(mic.sent), len(mic.heard), mic.statuses) == (5, 5, ["mic_a"])
    assert mic.mic.join(Deadline(0)) is None


def test_a_hanging_device_that_fails_after_it_was_abandoned(rig, caplog):
    """The late error of an abandoned device is not reported or logged."""
    mic = rig().begin()
    mic.audio.hangs = True
    mic.world.advance(0.1)
    mic.mic.halt()
    mic.audio.fail(GONE)
    mic.audio.hangs = False
    assert mic.mic.join(Deadline(GUARD)) is None
    assert (mic.errors, caplog.records) == ([], [])


def test_halted_before_it_has_opened(rig):
    """Halted immediately, the microphone leaves no device open."""
    for _ in range(50):
        mic = rig().make()
        mic.mic.halt()
        mic.world.advance(0.02)
        assert mic.mic.join(Deadline(GUARD)) is None
        assert (mic.audio.open, mic.heard) == ([], [])


def test_many_devices_one_after_the_other(rig):
    """After 50 microphones no thread is left."""
    before = threading.active_count()
    for _ in range(50):
        mic = rig().begin()
        mic.world.advance(0.04)
        mic.end()
    assert threading.active_count() == before


def on_the_real_clock(mic: Rig) -> DeviceMic:
    """Return a microphone of which only the device is in manual time."""
    return DeviceMic(
        mic.audio,
        None,
        enabled=lambda: mic.enabled,
        publish=lambda *frame: mic.heard.append(frame),
        report=mic.report,
        opened=lambda device: None,
    )


def test_silence_on_the_real_clock(rig):
    """The silence after muting is sent in real time by the machine's clock too."""
    mic = rig()
    mic.mic = on_the_real_clock(mic)
    mic.world.advance(0.021)
    mic.enable(False)
    mic.world.leap(0.02)
    assert within(GUARD, lambda: len(mic.heard) >= 6)
    assert [pcm for pcm, _, _ in mic.heard[:6]] == [frame(1)] + [SILENCE] * 5
    assert mic.heard[5][2] - mic.heard[0][2] >= 0.0999


def test_failures_are_waited_out_on_the_real_clock(rig, monkeypatch):
    """The time between two tries is the constant of the module."""
    monkeypatch.setattr(device, "RETRY_INTERVAL", 0.01)
    mic = rig(enabled=False)
    mic.audio.open_error = GONE
    mic.mic = on_the_real_clock(mic)
    mic.enable(True)
    assert within(GUARD, lambda: len(mic.audio.asked) >= 5)
    assert mic.errors == [GONE]


# -- anything in any order -------------------------------------------------------------------------------------------

ACTIONS: dict[str, Callable[[Rig], object]] = {
    "mute": lambda rig: rig.enable(False),
    "unmute": lambda rig: rig.enable(True),
    "fail": lambda rig: rig.audio.fail(GONE),
    "gone": lambda rig: setattr(rig.audio, "open_error", GONE),
    "repair": lambda rig: rig.repair(),
    "hang": lambda rig: setattr(rig.audio, "hangs", True),
    "wake": lambda rig: setattr(rig.audio, "hangs", False),
    "start": lambda rig: rig.mic.start(rig.timer, rig.send),
    "halt": lambda rig: rig.mic.halt(),
}


@hypothesis.settings(max_examples=150)
@hypothesis.given(
    enabled=st.booleans(),
    steps=st.lists(st.tuples(st.sampled_from(sorted(ACTIONS)), st.sampled_from([0, 0.003, 0.02, 0.25, 1.1]))),
)
@hypothesis.example(enabled=True, steps=[("fail", 1.1), ("repair", 0)])
@hypothesis.example(enabled=True, steps=[("fail", 0), ("mute", 0), ("unmute", 0), ("repair", 0)])
def test_any_sequence_of_actions(enabled, steps):
    """After any sequence of actions: at most one stream, none while muted, frames while the device works, alternating
    reports and recoveries, nothing sent after the end, and no thread or stream left."""
    rig = Rig(enabled=enabled).make()
    try:
        rig.world.settle()
        halted = False
        for action, seconds in steps:
            before = len(rig.heard)
            ACTIONS[action](rig)
            rig.world.advance(seconds)
            rig.mic.check(rig.world.time)
            assert not halted or len(rig.heard) == before
            halted = halted or action == "halt"
            wanted = rig.enabled and not halted
            assert wanted or rig.audio.open == [] or rig.audio.hangs or seconds < 0.02
        if wanted_and_well(rig) and not halted:
            until_recovered(rig)
            rig.world.advance(1.1)
            before = len(rig.heard)
            rig.world.advance(0.2)
            assert len(rig.heard) == before + 10
            assert rig.statuses[-1] == "mic_a"
    finally:
        rig.end()
    assert all(pair != ("failed", "failed") for pair in itertools.pairwise(rig.statuses))


def until_recovered(rig: Rig) -> None:
    """Let time pass until a repaired device is opened again; the pause doubles with each failure, up to a limit."""
    end = rig.world.time + device.LONGEST_RETRY_INTERVAL
    while rig.statuses[-1:] == ["failed"] and rig.world.time < end:
        rig.world.advance(1.0)


def wanted_and_well(rig: Rig) -> bool:
    """Return whether the microphone is enabled and its device works."""
    return rig.enabled and not (rig.audio.read_error or rig.audio.open_error or rig.audio.hangs)
