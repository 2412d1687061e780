"""Audio from the bot to a sink: order, interruption, slow, hanging and failing sinks."""

from __future__ import annotations

import threading
import wave

import pytest

from rtvi_sync.errors import DeviceError
from rtvi_sync.media import BytesSink, CallbackSink, NullSink, WavSink
from rtvi_sync.media.playback import QueuedSpeaker
from tests.support import part_probes
from tests.support.slowness import GUARD, at_some_limit, takes
from tests.support.threads import media_threads, running, switch_interval
from tests.support.waiting import until

pytestmark = pytest.mark.inside

FRAME = bytes(960)  # 20 ms at 24 kHz


def frame(number: int) -> bytes:
    return bytes([number]) * 960


class UserSink:
    """A sink of the application, controlled by the test."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.calls: list[object] = []
        self.threads: set[threading.Thread] = set()
        self.hang = threading.Event()
        if not hangs:
            self.hang.set()
        self.entered = threading.Event()
        self.failure: BaseException | None = None

    def _call(self, what: object) -> None:
        self.threads.add(threading.current_thread())
        self.calls.append(what)
        self.entered.set()
        self.hang.wait(GUARD)
        if self.failure is not None:
            raise self.failure

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        self._call((pcm[0], len(pcm), sample_rate_hz))

    def drop(self) -> None:
        self._call("drop")

    def close(self) -> None:
        self._call("close")


def test_bytes_sink_hears_bit_exactly_on_the_calling_thread(talk):
    """Each frame is in a BytesSink when receive_audio() returns, also before the bot is ready."""
    sink = BytesSink()
    session = talk(speaker=sink).prepare()
    for number in range(100):
        session.hear(frame(number))
    assert sink.pcm == b"".join(frame(number) for number in range(100))
    assert sink.sample_rate_hz == 24000
    session.manager.interrupt()
    session.manager.stop(1.0)
    assert len(sink.pcm) == 96000


def test_a_second_session_appends_to_bytes_sink(talk):
    """One BytesSink keeps the audio of one session after the other, and nothing between them."""
    sink = BytesSink()
    session = talk(speaker=sink)
    for number in (1, 2):
        session.prepare()
        session.hear(frame(number))
        session.manager.stop(1.0)
        session.hear(frame(9))
    assert sink.pcm == frame(1) + frame(2)


def test_stereo_is_mixed_and_half_samples_are_cut(talk):
    """Channels are averaged; an odd byte and a missing number of channels are tolerated; empty audio is ignored."""
    sink = BytesSink()
    session = talk(speaker=sink).prepare()
    session.hear(b"\2\0\4\0" * 3, channels=2)
    session.hear(b"\5\0\6", channels=0)
    session.hear(b"")
    session.hear(b"\1")
    assert sink.pcm == b"\3\0" * 3 + b"\5\0"


@pytest.mark.parametrize("view", [bytearray, lambda buffer: memoryview(buffer).cast("h")])
def test_a_buffer_that_is_used_again(talk, view):
    """Data that a transport writes into its buffer afterwards is not heard; a view of samples is as long as its
    bytes.
    """
    sink = BytesSink()
    session = talk(speaker=sink).prepare()
    for number in (1, 2, 3):
        buffer = view(bytearray(frame(number)[:6]))
        session.hear(buffer)
        buffer[:] = view(bytearray(6))
    assert sink.pcm == b"".join(frame(number)[:6] for number in (1, 2, 3))


@pytest.mark.parametrize(("rate", "channels"), [(0, 1), (999, 1), (1 << 31, 1), (24000, 33), (24000, 1 << 31)])
def test_impossible_audio_is_ignored_and_counted(talk, rate, channels, caplog):
    """Audio that cannot be played does no harm; it is counted, and logged once."""
    sink = BytesSink()
    session = talk(speaker=sink).prepare()
    session.hear(FRAME, rate, channels)
    session.hear(FRAME, rate, channels)
    session.hear(frame(1))
    assert sink.pcm == frame(1)
    assert session.manager.counters.bot_frames_ignored == 2
    assert len(caplog.records) == 1


def test_a_failing_memory_sink_is_reported_once(talk):
    """A change of rate ends the sink with one report; the session goes on."""
    sink = BytesSink()
    session = talk(speaker=sink).prepare()
    session.hear(frame(1), 24000)
    for _ in range(3):
        session.hear(frame(2), 16000)
    session.hear(frame(3), 24000)
    assert sink.pcm == frame(1)
    ((event, error),) = session.events
    assert event == "deviceError"
    assert error.devices == ("speaker",)
    assert "24000 to 16000" in str(error)


def test_a_users_sink_is_called_by_workers(talk, until):
    """All calls are made by workers, in order, and a worker that is there makes all; the last is a single close()."""
    sink = UserSink()
    session = talk(speaker=sink).prepare()
    for number in range(20):
        session.hear(frame(number))
    until(lambda: len(sink.calls) == 20)
    session.hear(frame(20), 16000)
    assert session.manager.stop(GUARD) == []
    assert sink.calls == [(number, 960, 24000) for number in range(20)] + [(20, 960, 16000), "close"]
    assert all(thread.name.startswith("rtvi-worker-") for thread in sink.threads)
    assert media_threads() == []


def test_sinks_that_block_hold_up_themselves_only(talk, until):
    """While the sinks of five sessions hang, the sixth session's sink gets all audio, and the five get theirs
    afterwards.
    """
    hang = threading.Event()
    sinks = [UserSink() for _ in range(6)]
    sessions = [talk(speaker=sink).prepare() for sink in sinks]
    for sink in sinks[:5]:
        sink.hang = hang
    for number in range(3):
        for session in sessions:
            session.hear(frame(number))
    expected = [(number, 960, 24000) for number in range(3)]
    until(lambda: sinks[5].calls == expected)
    until(lambda: all(len(sink.calls) == 1 for sink in sinks[:5]))
    hang.set()
    for session in sessions:
        assert session.manager.stop(GUARD) == []
    assert [sink.calls for sink in sinks] == [[*expected, "close"]] * 6


def test_a_visit_writes_all_that_waits(talk):
    """A sink that gets a burst while it is busy is served by one thread, without a wake for each frame."""
    sink = UserSink(hangs=True)
    session = talk(speaker=sink).prepare()
    for number in range(100):
        session.hear(frame(number))
    assert sink.entered.wait(GUARD)
    sink.hang.set()
    assert session.manager.stop(GUARD) == []
    assert len(sink.calls) == 101
    assert len(sink.threads) == 1


def test_many_sinks_need_few_threads(talk, workers, until):
    """A hundred sinks that return at once are served by fewer threads than one in ten."""
    sinks = [UserSink() for _ in range(100)]
    sessions = [talk(speaker=sink).prepare() for sink in sinks]
    with switch_interval(GUARD):  # a worker that is interrupted in a sink looks like one that blocks there
        for number in range(10):
            for session in sessions:
                session.hear(frame(number))
        until(lambda: all(len(sink.calls) == 10 for sink in sinks))
    assert len(workers.threads()) < 10


@pytest.mark.parametrize("threads", [False, True])
def test_at_exit_no_worker_is_needed(talk, workers, monkeypatch, threads):
    """Where no worker can be had, a sink gets its audio and is closed on another thread, or on the exiting one."""

    def refuse(task):
        raise RuntimeError("can't start new thread")

    sink = UserSink()
    session = talk(speaker=sink).prepare()
    monkeypatch.setattr(workers, "submit", lambda work: None)
    for number in range(3):
        session.hear(frame(number))
    monkeypatch.setattr("rtvi_sync.media.playback.is_exiting", lambda: True)
    if not threads:
        monkeypatch.setattr("rtvi_sync.media.playback.PoolTask.start", refuse)
    assert session.manager.stop(GUARD) == []
    assert sink.calls == [*((number, 960, 24000) for number in range(3)), "close"]
    assert (threading.current_thread() in sink.threads) is not threads


def test_what_was_received_is_flushed_before_the_end(talk):
    """stop() lets a busy sink take all audio that had arrived."""
    sink = UserSink(hangs=True)
    session = talk(speaker=sink).prepare()
    for number in range(40):
        session.hear(frame(number))
    assert sink.entered.wait(GUARD)
    threading.Timer(0.1, sink.hang.set).start()
    assert session.manager.stop(GUARD) == []
    assert sink.calls == [(number, 960, 24000) for number in range(40)] + ["close"]


def returned(session, thread: threading.Thread) -> None:
    """Wait until a worker has left the sink in which it was abandoned."""
    until(lambda: thread in part_probes.idle_threads(session.workers))


def dropped(session) -> list[float]:
    """Return the seconds in the events `audio_dropped`."""
    return [data.seconds for event, data in session.other_events if event == "audioDropped"]


def test_a_burst_is_kept(talk):
    """A minute that arrives at once reaches a blocked sink completely and in order."""
    sink = UserSink(hangs=True)
    session = talk(speaker=sink).prepare()
    for number in range(3000):
        session.hear(frame(number % 251))
    sink.hang.set()
    assert session.manager.stop(GUARD) == []
    assert sink.calls == [(number % 251, 960, 24000) for number in range(3000)] + ["close"]
    assert session.manager.counters.speaker_dropped_seconds == 0
    assert dropped(session) == []


def test_a_slow_sink_loses_the_oldest(talk):
    """Over the limit in bytes the oldest frames are dropped; they are counted in seconds."""
    sink = UserSink(hangs=True)
    session = talk(speaker=sink, max_queued_audio_bytes=50 * (960 + 256)).prepare()
    session.hear(frame(0))
    assert sink.entered.wait(GUARD)
    for number in range(1, 101):
        session.hear(frame(number))
    assert session.manager.counters.speaker_dropped_seconds == pytest.approx(1.0)
    sink.hang.set()
    session.manager.stop(GUARD)
    assert sink.calls == [(number, 960, 24000) for number in [0, *range(51, 101)]] + ["close"]
    assert session.manager.counters.speaker_dropped_seconds == pytest.approx(1.0)


def test_small_frames_do_not_fill_the_memory(talk):
    """The memory that a frame takes beside its samples counts: a limit in bytes does not admit millions of one-sample
    frames."""
    sink = UserSink(hangs=True)
    session = talk(speaker=sink, max_queued_audio_bytes=25_800).prepare()
    session.hear(b"\1\1")
    assert sink.entered.wait(GUARD)
    for _ in range(1000):
        session.hear(b"\1\1")
    sink.hang.set()
    session.manager.stop(GUARD)
    assert len(sink.calls) == 102


def test_each_run_of_losses_is_told_once(talk, until):
    """The event is published when losses start, with the sink and the seconds lost so far, and again for the losses
    after the sink has caught up."""
    sink = UserSink()
    session = talk(speaker=sink, max_queued_audio_bytes=2 * (960 + 256)).prepare()
    for run in (1, 2):
        sink.hang, sink.entered = threading.Event(), threading.Event()
        session.hear(frame(0))
        assert sink.entered.wait(GUARD)
        for _ in range(10):
            session.hear(frame(1))
        assert dropped(session) == [pytest.approx(0.02)] * run
        sink.hang.set()
        until(lambda: len(sink.calls) == 3 * run)  # noqa: B023
    ((_, data), _) = [each for each in session.other_events if each[0] == "audioDropped"]
    assert data.sink is sink
    assert session.manager.counters.speaker_dropped_seconds == pytest.approx(0.32)


class GatedSink(UserSink):
    """A sink that takes one frame for each `release()` of the test."""

    def __init__(self) -> None:
        super().__init__()
        self.latch = threading.Semaphore(0)

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        super().write(pcm, sample_rate_hz)
        assert self.latch.acquire(timeout=GUARD)


def test_a_slow_sink_is_not_given_up(talk):
    """A sink that needs several times the limit of a hung one gets all queued audio, and its `close()`."""

    def check(limit: float) -> None:
        sink = GatedSink()
        session = talk(speaker=sink).prepare()
        for number in range(6):
            session.hear(frame(number))
        timers = [threading.Timer(limit / 4 * (number + 1), sink.latch.release) for number in range(6)]
        for timer in timers:
            timer.start()
        assert session.manager.stop(limit, GUARD) == []
        assert sink.calls == [(number, 960, 24000) for number in range(6)] + ["close"]
        assert dropped(session) == []

    at_some_limit(check)


def stop_at_the_limit(session, sink: GatedSink) -> threading.Thread:
    """Stop a session whose sink takes one more frame and hangs in the next; return the thread that is given up."""
    with running(lambda: session.manager.stop(2.0, 1.0)) as stopping:
        until(lambda: session.manager.session is None)
        sink.latch.release()
        (thread,) = stopping.get()
    return thread


def test_what_a_slow_sink_has_not_taken_at_the_limit(talk):
    """The queued audio is dropped, counted and reported; the sink is closed when its last call returns, at any later
    time."""
    sink = GatedSink()
    session = talk(speaker=sink).prepare()
    for number in range(10):
        session.hear(frame(number))
    stop_at_the_limit(session, sink)
    assert dropped(session) == [pytest.approx(0.16)]  # the sink has taken two frames
    assert session.manager.counters.speaker_dropped_seconds == pytest.approx(0.16)
    sink.latch.release()
    until(lambda: "close" in sink.calls)
    assert sink.calls == [(0, 960, 24000), (1, 960, 24000), "close"]


def test_a_late_close_does_not_hit_the_next_session(talk):
    """The next session with a slow sink waits until the sink has been closed for the last one."""
    sink = GatedSink()
    session = talk(speaker=sink).prepare()
    for number in range(3):
        session.hear(frame(number))
    thread = stop_at_the_limit(session, sink)
    sink.latch.release()
    session.prepare()
    assert sink.calls == [(0, 960, 24000), (1, 960, 24000), "close"]
    returned(session, thread)
    assert session.manager.stop(GUARD) == []
    assert sink.calls[3:] == ["close"]


def test_what_a_hung_sink_has_not_taken_is_counted(talk):
    """A sink that takes nothing is abandoned early; its queued audio is counted and reported."""
    sink = UserSink(hangs=True)
    session = talk(speaker=sink).prepare()
    for number in range(11):
        session.hear(frame(number))
    assert sink.entered.wait(GUARD)
    with takes(30.0):
        (thread,) = session.manager.stop(0.1, 60.0)
    assert dropped(session) == [pytest.approx(0.2)]
    sink.hang.set()
    returned(session, thread)
    assert sink.calls == [(0, 960, 24000)]


def test_a_replaced_sink_goes_on_with_what_waits(talk, monkeypatch, until):
    """A slow sink that is replaced during a session gets all earlier audio, and its `close()`."""
    monkeypatch.setattr("rtvi_sync.media.slot.END_TIMEOUT", 2.0)
    sink, successor = GatedSink(), BytesSink()
    session = talk(speaker=sink).prepare()
    for number in range(5):
        session.hear(frame(number))
    until(lambda: len(sink.calls) == 1)
    drain = QueuedSpeaker.drain
    release = threading.Timer(0.7, sink.latch.release)  # while the manager waits for the sink

    def released_drain(*arguments):
        release.start()
        return drain(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(QueuedSpeaker, "drain", released_drain)
        session.manager.select("speaker", successor)
    session.hear(frame(5))
    assert "close" not in sink.calls
    for _ in range(4):
        sink.latch.release()
    assert session.manager.stop(GUARD) == []
    assert sink.calls == [(number, 960, 24000) for number in range(5)] + ["close"]
    assert successor.pcm == frame(5)
    assert dropped(session) == []


def test_a_sink_that_replaces_itself(talk, until):
    """A sink that selects its successor in its own `write()` gets the rest of the earlier audio, and its `close()`."""
    successor = BytesSink()

    class Choosing(GatedSink):
        def write(self, pcm: bytes, sample_rate_hz: int) -> None:
            super().write(pcm, sample_rate_hz)
            if pcm == frame(0):
                session.manager.select("speaker", successor)

    sink = Choosing()
    session = talk(speaker=sink).prepare()
    for number in range(3):
        session.hear(frame(number))
    for _ in range(3):
        sink.latch.release()
    until(lambda: "close" in sink.calls)
    session.hear(frame(3))
    assert session.manager.stop(GUARD) == []
    assert sink.calls == [(0, 960, 24000), (1, 960, 24000), (2, 960, 24000), "close"]
    assert successor.pcm == frame(3)


def test_a_recorder_keeps_what_an_interruption_voids(talk):
    """A recorder of the application gets no call for an interruption, and gets queued audio in large chunks."""

    class Recorder(UserSink):
        is_recorder = True

    sink = Recorder(hangs=True)
    session = talk(speaker=sink).prepare()
    session.hear(frame(0))
    assert sink.entered.wait(GUARD)
    for number in range(1, 6):
        session.hear(frame(number))
        session.manager.interrupt()
    session.hear(frame(9), 16000)
    sink.hang.set()
    session.manager.stop(GUARD)
    assert sink.calls == [(0, 960, 24000), (1, 5 * 960, 24000), (9, 960, 16000), "close"]


def test_one_long_frame_is_kept(talk):
    """A single frame of more than 1 s reaches the sink."""
    sink = UserSink()
    session = talk(speaker=sink).prepare()
    session.hear(bytes([7]) * 480_000)
    session.manager.stop(GUARD)
    assert sink.calls == [(7, 480_000, 24000), "close"]


def test_interruption_drops_what_waits(talk, until):
    """Queued audio is discarded, drop() precedes all newer audio, and later audio is played."""
    sink = UserSink(hangs=True)
    session = talk(speaker=sink).prepare()
    for number in range(10):
        session.hear(frame(number))
    assert sink.entered.wait(GUARD)
    session.manager.interrupt()
    session.hear(frame(10))
    sink.hang.set()
    until(lambda: len(sink.calls) == 3)
    session.manager.interrupt()
    session.manager.stop(GUARD)
    assert sink.calls == [(0, 960, 24000), "drop", (10, 960, 24000), "drop", "close"]
    assert session.manager.counters.speaker_dropped_seconds == 0


@pytest.mark.parametrize("failure", [ZeroDivisionError("broken sink"), SystemExit("broken sink")])
def test_a_failing_sink_ends_alone(talk, failure, caplog):
    """An exception is logged and reported once, the sink is closed, the session continues and stops as usual."""
    sink = UserSink()
    sink.failure = failure
    session = talk(speaker=sink).prepare()
    session.hear(frame(0))
    assert session.reported.wait(GUARD)
    session.hear(frame(1))
    session.manager.interrupt()
    assert session.manager.stop(GUARD) == []
    ((event, error),) = session.events
    assert event == "deviceError"
    assert isinstance(error, DeviceError)
    assert error.devices == ("speaker",)
    assert error.__cause__ is failure
    assert "broken sink" in str(error)
    assert sink.calls == [(0, 960, 24000), "close"]


@pytest.mark.parametrize("sink", [UserSink(), BytesSink(max_bytes=960)], ids=lambda sink: type(sink).__name__)
def test_what_a_failed_sink_does_not_get_is_counted(talk, sink):
    """The lost audio includes the frame that failed, the frames that waited, and all later speech of the bot."""
    session = talk(speaker=sink).prepare()
    if isinstance(sink, UserSink):
        sink.failure = OSError("the disk is full")
        sink.hang.clear()
        session.hear(frame(0))
        session.hear(frame(1))
        sink.hang.set()
    else:
        session.hear(frame(0))
        session.hear(frame(1) * 2)
    assert session.reported.wait(GUARD)
    until(lambda: session.manager.speaker.component.ended)
    for number in range(10):
        session.hear(frame(number))
    assert session.manager.counters.speaker_dropped_seconds == pytest.approx(0.24)
    session.manager.stop(GUARD)
    assert session.manager.counters.speaker_dropped_seconds == pytest.approx(0.24)
    assert dropped(session) == []


def test_the_counters_while_a_session_ends(talk, monkeypatch):
    """The counters in a handler of `audio_dropped` belong to the session that ends, and stay afterwards."""
    counted: list[float] = []
    sink = UserSink(hangs=True)
    session = talk(speaker=sink).prepare()
    for number in range(11):
        session.hear(frame(number))
    assert sink.entered.wait(GUARD)
    monkeypatch.setattr(session, "event", lambda *_: counted.append(session.manager.counters.speaker_dropped_seconds))
    (thread,) = session.manager.stop(0.1, 60.0)
    assert counted[-1] == pytest.approx(0.2)
    assert session.manager.counters.speaker_dropped_seconds == pytest.approx(0.2)
    sink.hang.set()
    returned(session, thread)
    session.prepare()
    assert session.manager.counters.speaker_dropped_seconds == 0
    session.manager.stop(GUARD)
    assert session.manager.counters.speaker_dropped_seconds == 0


def test_a_hanging_sink_is_given_up(talk):
    """stop() returns the thread at its limit, which then does not use the sink any more; the sink can be used again."""
    sink = UserSink(hangs=True)
    hang = sink.hang
    session = talk(speaker=sink).prepare()
    session.hear(frame(0))
    session.hear(frame(1))
    assert sink.entered.wait(GUARD)
    with takes(1.0, at_least=0.1):
        (thread,) = session.manager.stop(0.1)
    hang.set()
    returned(session, thread)
    assert sink.calls == [(0, 960, 24000)]
    session.prepare()
    session.hear(frame(2))
    assert session.manager.stop(GUARD) == []
    assert sink.calls == [(0, 960, 24000), (2, 960, 24000), "close"]


def test_callback_sink_runs_elsewhere(talk):
    """The function of a CallbackSink never runs on the thread that receives."""
    threads: list[str] = []
    session = talk(speaker=CallbackSink(lambda pcm, rate: threads.append(threading.current_thread().name))).prepare()
    session.hear(FRAME)
    session.manager.stop(GUARD)
    assert len(threads) == 1
    assert threads[0].startswith("rtvi-worker-")


def test_a_subclass_of_a_memory_sink_runs_elsewhere(talk):
    """A subclass of a package sink is treated as a sink of the application."""
    threads: list[str] = []

    class Loud(BytesSink):
        def write(self, pcm: bytes, sample_rate_hz: int) -> None:
            threads.append(threading.current_thread().name)
            super().write(pcm, sample_rate_hz)

    sink = Loud()
    session = talk(speaker=sink).prepare()
    session.hear(FRAME)
    session.manager.stop(GUARD)
    assert threads[0].startswith("rtvi-worker-")
    assert sink.pcm == FRAME


def test_wav_sink_over_two_sessions(talk, tmp_path, is_open):
    """The file is valid after each session, the second session appends, and no descriptor stays open."""
    path = tmp_path / "a.wav"
    session = talk(speaker=WavSink(path))
    for expected in (frame(1), frame(1) + frame(2)):
        session.prepare()
        session.hear(expected[-960:])
        assert session.manager.stop(GUARD) == []
        with wave.open(str(path)) as reader:
            assert reader.readframes(10_000) == expected
        assert not is_open(path)


def test_an_older_recording_outlives_a_bot_that_was_never_ready(talk, tmp_path):
    """A file is overwritten by audio, or by a session without audio, and not by an attempt that fails."""
    path = tmp_path / "a.wav"
    path.write_bytes(b"older")
    session = talk(speaker=WavSink(path))
    for replaced in (False, True):
        session.prepare()
        if replaced:
            session.manager.select("speaker", WavSink(tmp_path / "b.wav"))
        assert session.manager.stop(GUARD) == []
        assert path.read_bytes() == b"older"
        assert [file.name for file in tmp_path.iterdir()] == ["a.wav"]
    session.manager.select("speaker", WavSink(path))
    session.begin()
    assert session.manager.stop(GUARD) == []
    with wave.open(str(path)) as reader:
        assert reader.getnframes() == 0


def test_wav_sink_keeps_what_an_interruption_voids(talk, tmp_path):
    """The file holds everything that the bot has sent, including interrupted audio."""
    path = tmp_path / "a.wav"
    session = talk(speaker=WavSink(path)).prepare()
    for number in range(100):
        session.hear(frame(number))
        session.manager.interrupt()
    session.manager.stop(GUARD)
    with wave.open(str(path)) as reader:
        assert reader.readframes(100_000) == b"".join(frame(number) for number in range(100))


def test_wav_sink_goes_on_at_another_rate(talk, tmp_path):
    """Audio at another rate is resampled; the recording does not end."""
    path = tmp_path / "a.wav"
    session = talk(speaker=WavSink(path)).prepare()
    session.hear(frame(1), 24000)
    session.hear(bytes([2]) * 640, 16000)
    session.hear(frame(3), 24000)
    session.manager.stop(GUARD)
    assert session.events == []
    with wave.open(str(path)) as reader:
        assert reader.getframerate() == 24000
        pcm = reader.readframes(10_000)
    assert (pcm[:960], pcm[-960:], len(pcm)) == (frame(1), frame(3), 3 * 960)


def test_callback_sink_is_told_of_an_interruption(talk, until):
    """`on_drop` is called between the audio before the interruption and the audio after it."""
    calls: list[object] = []
    sink = CallbackSink(lambda pcm, rate: calls.append(pcm[0]), on_drop=lambda: calls.append("drop"))
    session = talk(speaker=sink).prepare()
    session.hear(frame(1))
    until(lambda: calls == [1])
    session.manager.interrupt()
    session.hear(frame(2))
    session.manager.stop(GUARD)
    assert calls == [1, "drop", 2]


def test_null_sink_is_for_everybody(talk):
    """Many sessions may share one NullSink at once."""
    sink = NullSink()
    for _ in range(3):
        talk(speaker=sink).prepare().hear(FRAME)
