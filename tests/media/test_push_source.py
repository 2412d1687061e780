"""A source that the application pushes audio to: pace, order, limits, the end."""

from __future__ import annotations

import array
import random
import sys
import threading
import time

import pytest

from rtvi_sync.media import PushSource
from rtvi_sync.media.convert import ResamplingSource
from tests.support import part_probes
from tests.support.slowness import GUARD, takes
from tests.support.threads import media_threads, running

CHUNK = 640  # bytes of 20 ms at 16 kHz


def noise(frames: int) -> bytes:
    return random.Random(frames).randbytes(2 * frames).replace(b"\0", b"\1")


def test_what_is_pushed_is_sent_bit_exact_in_real_time(talk, timer):
    """Pushes of any size become frames of 20 ms, after one that is silent; silence follows. There is no thread."""
    source, data = PushSource(16000), noise(3000)
    session = talk(mic=source).begin()
    for begin, end in ((0, 2), (2, 640), (640, 642), (642, 5000), (5000, 6000)):
        source.push(data[begin:end])
    assert source.waiting_seconds == 3000 / 16000
    timer.advance(0.499)
    silence = CHUNK
    assert session.sent == bytes(silence) + data + bytes(25 * CHUNK - silence - len(data))
    assert set(session.rates) == {16000}
    assert media_threads() == []
    assert session.manager.counters.mic_underruns == 0


def test_a_live_voice_has_no_gap(talk, timer):
    """Pushes that are up to 15 ms late, in frames of 20 ms, or arrive in frames of 30 ms, leave no gap."""
    for size, pause in ((CHUNK, 0.02), (CHUNK * 3 // 2, 0.03)):
        source, jitter, pushed = PushSource(16000), random.Random(1), b""
        session = talk(mic=source).begin()
        for number in range(100):
            late = jitter.uniform(0, 0.015)
            timer.advance(late)
            part = noise(size // 2 + number)[:size]
            pushed += part
            source.push(part)
            timer.advance(pause - late)
        timer.advance(0.2)
        assert session.sent.strip(b"\0") == pushed
        session.manager.stop(GUARD)


@pytest.mark.parametrize("view", [bytearray, lambda pcm: memoryview(array.array("h", pcm))])
def test_a_buffer_that_is_used_again(talk, timer, view):
    """Data that the application writes into its buffer afterwards is not sent; a view of samples is as long as its
    bytes.
    """
    source, data = PushSource(8000), noise(160)
    session = talk(mic=source).begin()
    buffer = view(data)
    source.push(buffer)
    buffer[0] = 0
    timer.advance(0.05)
    assert data in session.sent


def test_what_is_pushed_before_the_bot_is_ready(talk, timer):
    """Audio pushed before the bot is ready waits, as it does while the microphone is muted."""
    source, data = PushSource(16000), noise(320)
    source.push(data)
    session = talk(mic=source, enable_mic=False).begin()
    timer.advance(1.0)
    assert session.chunks == []
    assert source.waiting_seconds == pytest.approx(0.02)
    session.manager.enable_mic(True)
    timer.advance(0.05)
    assert session.sent.strip(b"\0") == data


def test_too_much_loses_the_oldest(talk, timer, caplog):
    """Beyond `max_seconds` the oldest audio is dropped; it is counted, and logged once for a run of losses."""
    source = PushSource(16000, max_seconds=0.1)
    parts = [noise(320 + number)[:CHUNK] for number in range(20)]
    session = talk(mic=source).begin()
    for part in parts:
        source.push(part)
    assert source.dropped_seconds == pytest.approx(0.3)
    assert source.waiting_seconds == pytest.approx(0.1)
    assert session.manager.counters.mic_dropped == 15
    assert len(caplog.records) == 1
    timer.advance(0.3)
    assert session.sent.strip(b"\0") == b"".join(parts[15:])
    for part in parts[:6]:
        source.push(part)
    assert len(caplog.records) == 2
    session.manager.stop(GUARD)
    session.begin()
    assert session.manager.counters.mic_dropped == 0


def test_a_long_push_is_kept_and_then_the_oldest(talk, timer):
    """A push of any length is kept; while later ones are sent, the oldest of their audio is lost."""
    source, long, live = PushSource(16000, max_seconds=1.0), noise(32000), noise(320)
    session = talk(mic=source).begin()
    source.push(long)
    assert source.dropped_seconds == 0.0
    source.push(b"")
    for _ in range(5):
        source.push(live)
    assert source.dropped_seconds == pytest.approx(1.1)
    timer.advance(2.0)
    assert session.sent.strip(b"\0") == long[2 * 17600 :] + 5 * live


@pytest.mark.parametrize("rate_sent", [16000, 8000])
def test_a_voice_that_is_in_time_again(talk, timer, until, caplog, rate_sent):
    """The waiting audio is dropped and counted, without a warning; the next push is sent at once."""
    source = PushSource(16000)
    session = talk(mic=ResamplingSource(source, rate_sent)).begin()
    source.push(noise(32000))
    timer.advance(0.1)
    with running(source.wait) as waiting:
        assert waiting.goes_on(0.05)
        source.clear()
        assert source.waiting_seconds < 0.1
        assert source.dropped_seconds == pytest.approx(1.9, abs=0.1)
        timer.advance(0.3)
        assert waiting.get() is True
    session.chunks.clear()
    source.push(noise(320))
    timer.advance(0.2)
    assert len(session.sent.strip(b"\0")) == pytest.approx(2 * rate_sent // 50, abs=80)
    assert session.manager.counters.mic_dropped > 0
    assert not caplog.records


def test_clearing_beside_a_thread_that_pushes(talk, timer):
    """Audio that two threads drop at once is counted once: nothing waits in the end."""
    source = PushSource(16000, max_seconds=0.1)
    talk(mic=source).begin()

    def push() -> None:
        for number in range(2000):
            source.push(bytes(2 * (1 + number % 900)))

    with running(push) as pushing:
        while not pushing.done:
            source.clear()
            timer.advance(0.02)
    source.clear()
    timer.advance(0.2)
    assert source.waiting_bytes == 0
    assert source.wait(0)


@pytest.mark.parametrize("burst", [CHUNK, 5 * CHUNK, 10 * CHUNK])
def test_a_live_voice_with_a_low_limit(talk, timer, burst):
    """With 0.3 s, bursts of up to 0.2 s lose nothing and leave no gap; after a gap of the session the voice is
    0.3 s late at most.
    """
    source, pushed = PushSource(16000, max_seconds=0.3), b""
    session = talk(mic=source).begin()
    for number in range(20):
        part = noise(burst // 2 + number)[:burst]
        pushed += part
        source.push(part)
        timer.advance(burst / 32000)
    timer.advance(0.3)
    assert session.sent.strip(b"\0") == pushed
    assert source.dropped_seconds == 0
    session.manager.stop(GUARD)
    for _ in range(100):
        source.push(noise(320))
    session.begin()
    for _ in range(100):
        source.push(noise(320))
        timer.advance(0.02)
        assert source.waiting_seconds <= 0.3


def test_a_push_that_waits_for_room(talk, timer, until):
    """With a timeout, nothing is dropped while the session sends: the push returns when there is room."""
    source, data = PushSource(16000, max_seconds=0.1), noise(16000)
    session = talk(mic=source).begin()

    def push() -> None:
        for begin in range(0, len(data), CHUNK):
            source.push(data[begin : begin + CHUNK], timeout=None)

    with running(push) as pushing:
        while not pushing.done:
            until(lambda: pushing.done or source.waiting_seconds > 0.09)
            timer.advance(0.02)
    timer.advance(0.2)
    assert session.sent.strip(b"\0") == data
    assert source.dropped_seconds == 0


def test_a_push_that_waits_too_long_drops(talk):
    """When its timeout has passed, the oldest audio is dropped as without one."""
    source = PushSource(16000, max_seconds=0.1)
    talk(mic=source).begin()
    source.push(bytes(5 * CHUNK))
    with takes(0.5, at_least=0.1):
        source.push(bytes(CHUNK), timeout=0.1)
    assert source.dropped_seconds == pytest.approx(0.1)


def test_a_push_never_waits_for_a_session(talk):
    """push() returns at once without a session, and a waiting push() returns when the session ends."""
    source = PushSource(16000, max_seconds=0.1)
    for _ in range(2):
        source.push(bytes(5 * CHUNK), timeout=None)
    assert source.dropped_seconds == pytest.approx(0.1)
    session = talk(mic=source).begin()
    with running(lambda: source.push(bytes(CHUNK), timeout=None)) as pushing:
        assert pushing.goes_on(0.05)
        session.manager.stop(GUARD)
        pushing.get()


def test_wait(talk, timer, until):
    """wait() returns when all that was pushed so far is sent, or the session has ended before."""
    source = PushSource(16000)
    assert source.wait() is False
    session = talk(mic=source).begin()
    assert source.wait(0) is True
    source.push(noise(330))
    timer.advance(0.039)
    assert source.wait(0.01) is False
    with running(source.wait) as waiting:
        timer.advance(0.02)
        assert waiting.get() is True
    session.manager.stop(GUARD)
    assert source.wait() is True
    session.begin()
    source.push(bytes(CHUNK))
    with running(source.wait) as waiting:
        assert waiting.goes_on(0.05)
        session.manager.stop(GUARD)
        assert waiting.get() is False


def test_what_was_sent_stays_sent():
    """Silence in front of the next speech is held by the converter, too, and is nothing of the one before."""
    source = PushSource(8000)
    source.take(10)
    source.push(bytes(CHUNK))
    source.take(CHUNK)
    source.mark_sent()
    source.push(bytes(CHUNK))
    source.take(1)
    source.mark_sent(held_bytes=2 * CHUNK)
    assert part_probes.is_sent(source, CHUNK)


def test_wait_beside_a_thread_that_pushes(talk, timer, until):
    """wait() waits for the audio that was pushed before it, even while another thread keeps pushing."""
    source = PushSource(16000)
    talk(mic=source).begin()
    source.push(noise(330))
    with running(source.wait) as waiting:
        assert waiting.goes_on(0.05)
        for _ in range(4):
            source.push(noise(330))
            timer.advance(0.02)
        assert waiting.get() is True
        assert source.waiting_seconds > 0


def test_the_rest_of_a_session_is_not_sent_in_the_next(talk, timer):
    """Audio that a session has not sent when it ends is discarded, including the rest of a push that was partly
    sent.
    """
    source = PushSource(16000)
    session = talk(mic=source).begin()
    source.push(noise(1000))
    source.push(noise(1000))
    timer.advance(0.05)
    session.manager.stop(GUARD)
    assert source.waiting_seconds == 0
    session.chunks.clear()
    session.begin()
    source.push(noise(320))
    timer.advance(0.1)
    assert session.sent.strip(b"\0") == noise(320)


@pytest.mark.parametrize("rate", [16000, 8000])
def test_an_attempt_that_fails_discards_nothing(talk, timer, rate):
    """Audio pushed before is sent in the next session, at any rate of it; a `wait()` returns False, though the session
    before has sent everything.
    """
    source, data = PushSource(16000), noise(640)
    talk(mic=source).begin().manager.stop(GUARD)
    assert source.wait() is True
    source.push(data)
    failing = talk(mic=ResamplingSource(source, rate)).prepare()
    with running(source.wait) as waiting:
        assert waiting.goes_on(0.05)
        failing.manager.stop(GUARD)
        assert waiting.get() is False
    assert source.waiting_bytes == len(data)
    session = talk(mic=source).begin()
    timer.advance(0.1)
    assert session.sent.strip(b"\0") == data
    session.manager.stop(GUARD)
    assert source.wait() is True


def test_an_attempt_that_fails_after_a_loss(talk, timer):
    """Audio that the lost session discarded counts as not sent, though nothing waits any more."""
    source = PushSource(16000)
    session = talk(mic=source).begin()
    source.push(noise(16000))
    timer.advance(0.1)
    session.manager.stop(GUARD)
    talk(mic=source).prepare().manager.stop(GUARD)
    assert source.waiting_bytes == 0
    assert source.wait() is False


def test_many_threads_and_the_session_at_once(talk, timer):
    """If one thread pushes while another one sends, nothing is lost and nothing is sent twice."""
    source, data = PushSource(16000), noise(64_000)
    session = talk(mic=source).begin()

    def push() -> None:
        for begin in range(0, len(data), 250):
            source.push(data[begin : begin + 250])

    with running(push) as pushing:
        while not pushing.done:
            timer.advance(0.02)
    timer.advance(5.0)
    # Where the sender was ahead there is silence, of which the data have none.
    assert session.sent.replace(b"\0", b"") == data
    assert source.wait(0)


@pytest.mark.parametrize("soxr", [True, False])
@pytest.mark.parametrize(("rate", "rate_sent"), [(8000, 16000), (16000, 8000), (24000, 8000), (44100, 16000)])
def test_a_live_voice_at_another_rate_has_no_gap(talk, timer, monkeypatch, rate, rate_sent, soxr):
    """Pushes that are up to 15 ms late leave no gap, nothing is missing, and the only delay is the resampler's."""
    if soxr:
        pytest.importorskip("soxr")
    else:
        monkeypatch.setitem(sys.modules, "soxr", None)
    part_probes.forget_lags()
    source, jitter = PushSource(rate), random.Random(1)
    session = talk(mic=ResamplingSource(ResamplingSource(source, 11025), rate_sent)).begin()
    for _ in range(2):  # the second after silence
        session.chunks.clear()
        for _ in range(100):
            late = jitter.uniform(0, 0.015)
            timer.advance(late)
            source.push(b"\0\x10" * (rate // 50))
            timer.advance(0.02 - late)
        timer.advance(0.2)
        spoken = array.array("h", session.sent)
        loud = [number for number, sample in enumerate(spoken) if sample > 0x800]
        assert loud == list(range(loud[0], loud[0] + len(loud)))
        assert len(loud) == pytest.approx(2 * rate_sent, abs=rate_sent / 1000)
        assert loud[0] < 0.12 * rate_sent
        assert source.wait(0)
    assert media_threads() == []
    assert session.manager.counters.mic_underruns == 0
    part_probes.forget_lags()


def test_a_wrapped_source_is_used_by_the_session(talk, timer):
    """A push may wait for room, and dropped audio is counted, as without the wrapper."""
    source = PushSource(16000, max_seconds=0.1)
    session = talk(mic=ResamplingSource(source, 8000)).begin()
    source.push(bytes(5 * CHUNK))
    with running(lambda: source.push(bytes(CHUNK), timeout=None)) as pushing:
        assert pushing.goes_on(0.05)
        timer.advance(0.12)  # the lag of the resampler, and more
        pushing.get()
    assert session.manager.counters.mic_dropped == 0
    for _ in range(10):
        source.push(bytes(CHUNK))
    assert session.manager.counters.mic_dropped > 0
    with running(source.wait) as waiting:
        assert waiting.goes_on(0.05)
        timer.advance(0.4)  # the waiting audio, and the lag in front of it and behind it
        assert waiting.get() is True


@pytest.mark.parametrize(("rate", "rate_sent"), [(8000, 16000), (16000, 8000), (44100, 16000)])
@pytest.mark.parametrize("frames", [1, 333, 4000])
def test_wait_for_what_the_converter_holds(talk, timer, rate, rate_sent, frames):
    """wait() returns when the last sample has left the converter, and not when it has gone into it."""
    source = PushSource(rate)
    session = talk(mic=ResamplingSource(source, rate_sent)).begin()
    for _ in range(2):
        source.push(b"\0\x10" * frames)
        while not source.wait(0):
            timer.advance(0.02)
        sent = len(session.sent.strip(b"\0"))
        timer.advance(0.2)
        assert len(session.sent.strip(b"\0")) == sent
    source.push(b"\0\x10" * rate)
    while source.waiting_seconds:
        timer.advance(0.02)
    session.manager.stop(GUARD)
    assert source.wait() is False


def test_a_read_of_the_application():
    """read() returns the pushed audio, and silence for the time in which nothing is pushed."""
    source = PushSource(16000)
    source.push(noise(320))
    assert source.read(320) == noise(320)
    with takes(0.3, at_least=0.015):
        assert source.read(320) == bytes(CHUNK)


def test_a_read_is_woken_by_a_push():
    """read() does not wait for as long as the samples would last if they are pushed before."""
    source = PushSource(16000)
    pushing = threading.Timer(0.01, source.push, (noise(320),))
    pushing.start()
    with takes(5.0):
        assert source.read(60 * 16000) == noise(320)
    pushing.join(GUARD)


def test_arguments():
    """Half a sample, and limits that are none, are refused where they are given."""
    source = PushSource()
    with pytest.raises(ValueError, match="even number"):
        source.push(b"abc")
    for wrong in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="max_seconds"):
            PushSource(16000, wrong)
    source.push(b"")
    assert source.waiting_seconds == 0
    assert source.is_endless
    began = time.monotonic()
    assert source.wait() is False
    assert time.monotonic() - began < GUARD
