"""Audio from a source to the bot: its content and its timing."""

from __future__ import annotations

import itertools
import logging
import random
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from rtvi_sync.concurrency.timer_thread import TimerThread
from rtvi_sync.concurrency.worker_pool import WorkerPool
from rtvi_sync.errors import DeviceError, DisconnectedError
from rtvi_sync.media import BytesSource, CallbackSource, NullSink, SilenceSource, ToneSource, WavSource
from tests.support.slowness import GUARD, takes
from tests.support.threads import media_threads

pytestmark = pytest.mark.inside


def noise(frames: int) -> bytes:
    """Return samples without silence, so that padding is visible."""
    return bytes(byte | 1 for byte in random.Random(frames).randbytes(2 * frames))


class UserSource:
    """A source of the application, controlled by the test."""

    sample_rate_hz = 16000

    def __init__(self, *chunks) -> None:
        self.chunks = list(chunks)
        self.reads = 0
        self.closes = 0
        self.threads: set[threading.Thread] = set()
        self.hang: threading.Event | None = None
        self.entered = threading.Event()

    def read(self, frames: int) -> bytes:
        self.reads += 1
        self.threads.add(threading.current_thread())
        self.entered.set()
        if self.hang is not None:
            self.hang.wait(GUARD)
        chunk = self.chunks.pop(0) if self.chunks else b""
        if isinstance(chunk, BaseException):
            raise chunk
        return chunk

    def close(self) -> None:
        self.threads.add(threading.current_thread())
        self.closes += 1


# -- in memory -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 22050, 24000, 44100, 48000])
def test_a_source_is_sent_bit_exact_at_its_own_rate(talk, timer, rate):
    """All samples are sent in order, padded with silence to a whole chunk, then silence, at any rate."""
    data = noise(rate * 3 + 7)
    source = BytesSource(data, rate)
    session = talk(mic=source).begin()
    timer.advance(60.0)
    assert session.sent[: len(data)] == data
    assert not any(session.sent[len(data) :])
    assert set(session.rates) == {rate}
    assert len(session.chunks) == 3001
    assert {len(chunk) // 2 for chunk in session.chunks} == {rate // 50, -(-rate // 50)}
    assert len(session.sent) // 2 == 3001 * rate // 50


def test_no_drift_in_60_seconds(talk, timer):
    """Each of 3000 chunks is due exactly 20 ms after the one before."""
    session = talk(mic=SilenceSource()).begin()
    start = timer.now()
    timer.advance(60.0)
    assert max(abs(at - start - i * 0.02) for i, at in enumerate(session.times)) < 1e-6


def test_a_short_stall_is_made_up_for(talk, timer):
    """Chunks that became due in a stall of 0.5 s are sent at once; the schedule stays the same."""
    data = noise(16000 * 2)
    session = talk(mic=BytesSource(data, 16000)).begin()
    start = timer.now()
    timer.advance(0.1)
    timer.advance(0.02, stall=0.5)
    assert len(session.chunks) == 32
    timer.advance(2.0)
    assert session.times[-1] == pytest.approx(start + (len(session.times) - 1) * 0.02)
    assert session.sent[: len(data)] == data


def test_after_a_long_stall_nothing_is_sent_in_a_burst(talk, timer):
    """After a stop of 10 s the process continues where it was, without loss, at the usual pace."""
    data = noise(16000 * 2)
    session = talk(mic=BytesSource(data, 16000)).begin()
    timer.advance(0.1)
    before = len(session.chunks)
    timer.advance(0.02, stall=10.0)
    assert len(session.chunks) == before + 1
    resumed = timer.now()
    timer.advance(2.0)
    assert len(session.chunks) == before + 1 + 100
    assert session.times[-1] == pytest.approx(resumed + 2.0)
    assert session.sent[: len(data)] == data
    assert session.manager.counters.mic_delayed == pytest.approx(10.0, abs=0.05)
    assert session.manager.counters.mic_max_delay == pytest.approx(10.0, abs=0.05)


def test_all_sent_means_all_sent(talk, timer):
    """wait() returns True with the last chunk, not before."""
    source = BytesSource(noise(960), 16000)
    session = talk(mic=source).begin()
    timer.advance(0.03)
    assert source.wait(0) is False
    timer.advance(0.01)
    assert source.wait(0) is True
    assert len(session.chunks) == 3


def test_an_empty_source_is_all_sent(talk, timer):
    """A source without samples is complete with the first chunk of silence."""
    source = BytesSource(b"", 16000)
    talk(mic=source).begin()
    timer.advance(0.001)
    assert source.wait(0) is True


def test_nothing_is_sent_before_the_bot_is_ready(talk, timer):
    """Preparing sends nothing; start() starts with the first sample, at once."""
    session = talk(mic=ToneSource()).prepare()
    timer.advance(1.0)
    assert session.chunks == []
    session.manager.start(session.send)
    timer.advance(0.0)
    assert session.sent == ToneSource().read(320)


def test_each_session_starts_from_the_beginning(talk, timer):
    """The second session of a client sends the same as the first, wherever that one stopped."""
    data = noise(16000)
    session = talk(mic=BytesSource(data, 16000)).begin()
    timer.advance(0.5)
    session.manager.stop(1.0)
    first = session.sent
    session.chunks.clear()
    session.begin()
    timer.advance(2.0)
    assert data.startswith(first)
    assert session.sent[: len(data)] == data


def test_nothing_is_sent_after_stop_or_pause(talk, timer):
    """After pause(), which ends the source for this session, and after stop(), no chunk is sent."""
    source = ToneSource()
    session = talk(mic=source).begin()
    timer.advance(0.1)
    session.manager.pause()
    assert source.wait() is False
    count = len(session.chunks)
    timer.advance(1.0)
    session.manager.enable_mic(False)
    session.manager.enable_mic(True)
    session.manager.stop(1.0)
    timer.advance(1.0)
    assert len(session.chunks) == count
    assert timer.live() == []


def test_a_lost_line_ends_sending_quietly(talk, timer, caplog):
    """When the transport reports the end of the session, the source stops and nothing is reported."""
    source = ToneSource()
    session = talk(mic=source).prepare()

    def send(pcm, rate):
        session.chunks.append(pcm)
        raise DisconnectedError("gone")

    session.manager.start(send)
    with caplog.at_level(logging.INFO):
        timer.advance(1.0)
    assert len(session.chunks) == 1
    assert session.events == []
    assert caplog.records == []


# -- mute ------------------------------------------------------------------------------------------------------------


def test_muting_sends_one_second_of_silence_then_nothing(talk, timer):
    """The source pauses while muted and continues with its next sample."""
    data = noise(16000)
    session = talk(mic=BytesSource(data, 16000)).begin()
    timer.advance(0.099)
    assert len(session.chunks) == 5
    session.manager.enable_mic(False)
    assert session.manager.settings.mic is False
    timer.advance(5.0)
    assert len(session.chunks) == 55
    assert not any(b"".join(session.chunks[5:]))
    assert timer.live() == []
    resumed = timer.now()
    session.manager.enable_mic(True)
    timer.advance(1.0)
    assert session.times[55] == resumed
    assert session.sent[: 5 * 640] + b"".join(session.chunks[55:])[: len(data) - 5 * 640] == data


def test_unmuting_within_the_silence_goes_on_at_once(talk, timer):
    """Unmuted before the second of silence has passed, the source sends the next chunk, on the same schedule."""
    data = noise(16000)
    session = talk(mic=BytesSource(data, 16000)).begin()
    start = timer.now()
    timer.advance(0.05)
    session.manager.enable_mic(False)
    timer.advance(0.1)
    session.manager.enable_mic(True)
    timer.advance(0.1)
    assert len(session.chunks) == 13
    assert b"".join(session.chunks[:3] + session.chunks[8:]) == data[: 8 * 640]
    assert not any(b"".join(session.chunks[3:8]))
    assert session.times == pytest.approx([start + i * 0.02 for i in range(13)])


def test_muted_from_the_start_sends_nothing(talk, timer):
    """With enable_mic=False not even silence is sent until the microphone is enabled."""
    data = noise(640)
    session = talk(mic=BytesSource(data, 16000), enable_mic=False).begin()
    timer.advance(5.0)
    assert session.chunks == []
    session.manager.enable_mic(True)
    timer.advance(0.02)
    assert session.sent == data


def test_muting_after_the_end_of_the_source(talk, timer):
    """The trailing silence stops 1 s after muting and is sent again after the next muting."""
    session = talk(mic=BytesSource(b"", 16000)).begin()
    timer.advance(0.09)
    session.manager.enable_mic(False)
    timer.advance(3.0)
    assert len(session.chunks) == 55
    session.manager.enable_mic(True)
    timer.advance(0.09)
    assert len(session.chunks) == 60


def test_mute_is_remembered_between_sessions(talk, timer):
    """enable_mic() without a session sets the state at the start of the next one."""
    session = talk(mic=ToneSource())
    session.manager.enable_mic(False)
    session.begin()
    timer.advance(1.0)
    assert session.chunks == []
    assert session.events == []


# -- sources of the user's ----------------------------------------------------------------------------------------


def test_a_users_source_is_sent_bit_exact_from_its_own_thread(talk, timer, until):
    """Frames of any size are sent in order; the source is read and closed on its own thread."""
    data = noise(15000)
    cuts = [0, 2, 640, 642, 5000, 5002, 20000, 30000]
    source = UserSource(*(data[a:b] for a, b in itertools.pairwise(cuts)))
    session = talk(mic=source).begin()
    until(lambda: source.closes == 1)
    timer.advance(1.5)
    assert session.sent[:30000] == data
    assert not any(session.sent[30000:])
    assert session.manager.counters.mic_underruns == 0
    session.manager.stop(GUARD)
    (thread,) = source.threads
    assert thread.name.startswith("rtvi-mic-")
    assert not thread.is_alive()
    assert source.closes == 1


def test_a_users_source_of_buffers(talk, timer, until):
    """A source may return any buffer of bytes or samples, and its size in bytes counts."""
    data = noise(963)
    source = UserSource(bytearray(data[:640]), memoryview(data[640:]).cast("h"))
    session = talk(mic=source).begin()
    until(lambda: source.closes == 1)
    timer.advance(0.1)
    assert session.sent[: len(data)] == data
    assert session.events == []


def test_a_callback_source_reads_at_most_a_second_ahead(talk, timer, until):
    """The function is called until 1 s of audio is buffered, and again when the timer thread has taken some."""
    calls: list[int] = []

    def fn(frames: int) -> bytes:
        calls.append(frames)
        return noise(frames)

    session = talk(mic=CallbackSource(fn, 16000)).begin()
    until(lambda: len(calls) == 50)
    assert set(calls) == {320}
    timer.advance(0.199)
    until(lambda: len(calls) == 60)
    assert session.sent == noise(320) * 10


def test_wait_on_a_callback_source(talk, timer, until):
    """wait() returns when the last frame of a callback source was sent, not when it was read."""
    chunks = [noise(400), b""]
    source = CallbackSource(lambda frames: chunks.pop(0))
    session = talk(mic=source).begin()
    until(lambda: not chunks)
    until(lambda: not any(t.name.startswith("rtvi-mic") for t in threading.enumerate()))
    timer.advance(0.01)
    assert source.wait(0) is False
    timer.advance(0.01)
    assert source.wait(0) is True
    assert session.sent == noise(400) + bytes(480)


def test_a_source_is_not_read_before_the_bot_is_ready(talk, timer):
    """A live source must not buffer audio while the client connects."""
    source = UserSource(noise(320))
    session = talk(mic=source).prepare()
    assert not source.entered.wait(0.05)
    session.manager.start(session.send)
    assert source.entered.wait(GUARD)


def test_a_source_gets_its_thread_when_the_microphone_is_on(talk, until):
    """A muted session has no such thread from its start to its end, when one closes the source."""
    source = UserSource(noise(320))
    session = talk(mic=source, enable_mic=False).begin()
    assert media_threads() == []
    session.manager.enable_mic(True)
    assert source.entered.wait(GUARD)
    session.manager.stop(GUARD)
    assert source.closes == 1

    muted = UserSource(noise(320))
    session = talk(mic=muted, enable_mic=False).begin()
    session.manager.stop(GUARD)
    assert (muted.closes, muted.entered.is_set()) == (1, False)
    assert media_threads() == []


@pytest.mark.parametrize("muted", [False, True])
def test_a_source_without_a_thread(talk, timer, monkeypatch, muted):
    """If the process can start no thread, prepare() raises; a source that is unmuted later is reported to have failed,
    and the session goes on. In both cases the source is free."""

    def refuse(role, target, *args):
        raise RuntimeError("can't start new thread")

    source = UserSource(noise(320))
    session = talk(mic=source, enable_mic=not muted)
    with monkeypatch.context() as patch:
        patch.setattr("rtvi_sync.media.capture.start_thread", refuse)
        if muted:
            session.begin().manager.enable_mic(True)
            timer.advance(0.1)
            assert "start new thread" in str(session.events[0][1])
            assert session.sent == bytes(len(session.sent)) != b""
        else:
            with pytest.raises(RuntimeError, match="start new thread"):
                session.prepare()
    talk(mic=source).begin()
    assert source.entered.wait(GUARD)


def test_a_muted_source_is_not_read(talk, timer, until):
    """While muted, a source of the application is not called, except for the read in progress."""
    hang = threading.Event()
    source = UserSource(*[noise(320)] * 1000)
    source.hang = hang
    session = talk(mic=source).begin()
    assert source.entered.wait(GUARD)
    session.manager.enable_mic(False)
    source.entered.clear()
    hang.set()
    assert not source.entered.wait(0.05)
    assert source.reads == 1
    session.manager.enable_mic(True)
    assert source.entered.wait(GUARD)


def test_a_slow_source_yields_silence(talk, timer, until):
    """During an underrun silence is sent and counted; late audio is sent completely afterwards."""
    source = UserSource(noise(320), noise(320))
    source.hang = threading.Event()
    session = talk(mic=source).begin()
    timer.advance(0.19)
    assert len(session.chunks) == 10
    assert not any(session.sent)
    assert session.manager.counters.mic_underruns == 10
    source.hang.set()
    until(lambda: source.closes)
    timer.advance(0.1)
    assert b"".join(session.chunks[10:12]) == noise(320) * 2
    assert session.manager.counters.mic_underruns == 10
    session.manager.stop(GUARD)
    assert session.manager.counters.mic_underruns == 10


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (ZeroDivisionError("broken mic"), "UserSource failed.*broken mic"),
        (SystemExit(3), "UserSource failed.*SystemExit"),
        ("text", "returns bytes, not str"),
        (b"abc", "3 bytes"),
    ],
)
def test_a_failing_source_ends_alone(talk, timer, caplog, failure, message):
    """An exception of a source, or an invalid return value, is logged and reported; silence follows the last
    samples.
    """
    source = UserSource(noise(320), failure, noise(320))
    session = talk(mic=source).begin()
    assert session.reported.wait(GUARD)
    timer.advance(0.1)
    assert session.sent[:640] == noise(320)
    assert not any(session.sent[640:])
    ((event, error),) = session.events
    assert event == "deviceError"
    assert isinstance(error, DeviceError)
    assert error.devices == ("mic",)
    with pytest.raises(DeviceError, match=message):
        raise error
    assert session.manager.stop(GUARD) == []
    assert source.closes == 1
    assert len(caplog.records) == 1


def test_wait_ends_when_the_source_fails(talk, timer):
    """wait() does not block on the rest of a source that has failed."""

    def fn(frames: int) -> bytes:
        raise ValueError("no more")

    source = CallbackSource(fn)
    session = talk(mic=source).begin()
    with takes(5.0):
        assert source.wait(GUARD) is False
    assert session.reported.wait(GUARD)
    timer.advance(0.1)
    assert source.wait(0) is False


def test_a_source_that_cannot_be_closed_is_reported(talk, timer):
    """An exception in close() is reported to the application, too."""

    class Source(UserSource):
        def close(self) -> None:
            raise ZeroDivisionError("division by zero")

    session = talk(mic=Source()).begin()
    assert session.reported.wait(GUARD)
    assert "division" in str(session.events[0][1])


def test_a_hanging_source_is_given_up(talk, timer):
    """stop() returns the thread at its limit; later reads of the thread are ignored and the source can be used again
    then.
    """
    source = UserSource(noise(320), noise(320))
    source.hang = hang = threading.Event()
    session = talk(mic=source).begin()
    assert source.entered.wait(GUARD)
    with takes(1.0, at_least=0.1):
        (thread,) = session.manager.stop(0.1)
    assert thread.is_alive()
    source.hang = None
    hang.set()
    thread.join(GUARD)
    assert not thread.is_alive()
    session.begin()
    assert session.manager.stop(GUARD) == []
    assert source.closes == 1
    assert session.events == []


def test_a_late_failure_of_a_source_given_up_is_not_reported(talk, timer):
    """The exception of an abandoned read() is not reported."""
    source = UserSource(ValueError("late"))
    source.hang = threading.Event()
    session = talk(mic=source).begin()
    assert source.entered.wait(GUARD)
    (thread,) = session.manager.stop(0.05)
    source.hang.set()
    thread.join(GUARD)
    assert session.events == []
    assert source.closes == 0


def test_a_subclass_does_not_run_on_the_pacer(talk, timer, until):
    """A subclass of a package source is treated as a source of the application."""
    threads: list[str] = []

    class Loud(ToneSource):
        def read(self, frames: int) -> bytes:
            threads.append(threading.current_thread().name)
            return super().read(frames)

    source = Loud(440, 0.1)
    session = talk(mic=source).begin()
    until(lambda: len(threads) == 6)
    timer.advance(0.2)
    assert all(name.startswith("rtvi-mic-") for name in threads)
    assert source.wait(0) is True
    session.manager.stop(GUARD)
    session.chunks.clear()
    session.begin()
    until(lambda: len(threads) == 12)
    timer.advance(0.2)
    assert session.sent[:3200] == ToneSource(440, 0.1).read(1600)


# -- real time -------------------------------------------------------------------------------------------------------


def test_two_seconds_in_real_time(tmp_path):
    """2 s of a WAV file leave the real timer thread in 1.98 s and little more, bit exact, and none of it before its
    time.
    """
    from rtvi_sync.media.media import Media
    from rtvi_sync.media.pcm import wav_header

    data = noise(32000)
    (tmp_path / "a.wav").write_bytes(wav_header(16000, len(data)) + data)
    source = WavSource(tmp_path / "a.wav")
    manager = Media(mic=source, speaker=NullSink())
    timer = TimerThread()
    sent: list[tuple[float, bytes]] = []
    runtime: Any = SimpleNamespace(timer=timer, workers=WorkerPool())
    manager.expect(runtime)
    manager.prepare(audio=True, video=False)
    began = time.monotonic()
    manager.start(lambda pcm, rate: sent.append((time.monotonic(), pcm)))
    with takes(2.2):
        assert source.wait(GUARD) is True
    assert manager.stop(GUARD) == []
    timer.close()
    assert timer.join(GUARD)
    times = [at for at, _ in sent[:100]]
    assert b"".join(pcm for _, pcm in sent[:100]) == data
    assert all(at >= began + i * 0.02 for i, at in enumerate(times))
