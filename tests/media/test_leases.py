"""One session at a time uses a source or sink: its lease, its failures, its end."""

from __future__ import annotations

import pytest

from rtvi_sync import DeviceError
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.media import BytesSink, NoisySource, PushSource, WavSink
from rtvi_sync.media.convert import ResamplingSink, ResamplingSource
from rtvi_sync.media.leases import Lease
from tests.support import part_probes
from tests.support.forking import in_child
from tests.support.slowness import GUARD, takes
from tests.support.threads import running
from tests.support.waiting import until

pytestmark = pytest.mark.inside


class Named:
    """A sink of something that other objects may write to, too."""

    lease_key = "out.wav"

    def __repr__(self) -> str:
        return "Named('out.wav')"


def test_one_session_at_a_time() -> None:
    """The error names the kind of object, and the device that each client needs for itself."""
    sink = BytesSink()
    lease = Lease(sink, "speaker")
    assert sink in Lease.leased()
    with pytest.raises(DeviceError, match=r"This BytesSink is used by another session.*one of its own") as caught:
        Lease(sink, "speaker")
    assert (caught.value.type, caught.value.devices) == ("in-use", ("speaker",))
    lease.release()
    assert sink not in Lease.leased()
    Lease(sink, "speaker").release()


@pytest.mark.parametrize(("ends", "advice"), [(False, "one of its own"), (True, "has not returned yet")])
def test_one_that_ends(ends: bool, advice: str) -> None:
    """A lease that ends soon is waited for, up to the deadline; one of a session that goes on is not."""
    source = PushSource()
    first = Lease(source, "mic")
    if ends:
        first.end_soon()
    with takes(1.0), pytest.raises(DeviceError, match=advice):
        Lease(source, "mic", Deadline(0.05 if ends else GUARD))
    first.end_soon()
    with running(lambda: Lease(source, "mic", Deadline(GUARD))) as waiting:
        until(part_probes.thread_sleeps(waiting.thread))
        first.release()
        waiting.get().release()


def test_objects_with_the_same_key_are_one() -> None:
    """Objects with the same key, such as two sinks of one file, exclude each other."""
    lease = Lease(Named(), "speaker")
    with pytest.raises(DeviceError, match=r"Named\('out.wav'\) is used"):
        Lease(Named(), "speaker")
    lease.release()


def test_a_wrapper_uses_what_it_wraps(tmp_path) -> None:
    """Two sinks of one file, or a source in two wrappers, are in use, also in wrappers of wrappers."""
    path, source = tmp_path / "call.wav", PushSource()

    def sink() -> ResamplingSink:
        return ResamplingSink(WavSink(path), 8_000)

    for first, second, role in [
        (sink(), sink(), "speaker"),
        (WavSink(path), sink(), "speaker"),
        (ResamplingSource(source, 8_000), source, "mic"),
        (NoisySource(ResamplingSource(source, 8_000)), NoisySource(source), "mic"),
        (ResamplingSource(ResamplingSource(source, 8_000), 16_000), ResamplingSource(source, 8_000), "mic"),
    ]:
        lease = Lease(first, role)
        with pytest.raises(DeviceError, match=rf"{type(second).__name__}.* is used by another session"):
            Lease(second, role)
        lease.release()


class Sink:
    """A sink that counts its closes, and fails in them if it has a failure."""

    def __init__(self, failure: BaseException | None = None) -> None:
        self.closes = 0
        self.failure = failure

    def write(self, pcm: bytes, sample_rate_hz: int) -> None: ...

    def drop(self) -> None: ...

    def close(self) -> None:
        self.closes += 1
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def reported() -> list[BaseException]:
    return []


def leased(sink: Sink, reported: list[BaseException]) -> Lease:
    return Lease(sink, "speaker", report=reported.append)


def is_free(sink: Sink) -> bool:
    """Return whether another session could use the sink."""
    try:
        Lease(sink, "speaker").release()
    except DeviceError:
        return False
    return True


def test_it_is_closed_and_free(reported):
    """A device is leased until it is closed."""
    sink = Sink()
    device = leased(sink, reported)
    assert not is_free(sink)
    device.close()
    assert (sink.closes, is_free(sink), device.abandoned) == (1, True, True)


def test_an_abandoned_one_is_not_closed(reported):
    """The session has given it up: it is free when its call returns, and how that ends changes nothing."""
    sink = Sink()
    device = leased(sink, reported)
    device.abandon()
    with pytest.raises(DeviceError, match=r"^This Sink was used before, and a call of its methods has not returned"):
        Lease(sink, "speaker")
    device.failed(ValueError("late"))
    device.close()
    assert (sink.closes, reported) == (0, [])
    assert is_free(sink)


def test_one_that_works_is_closed_late(reported):
    """A device that is only slow is closed when its call returns, and is not free before."""
    sink = Sink()
    device = leased(sink, reported)
    device.abandon(closes_late=True)
    assert not is_free(sink)
    device.close()
    assert sink.closes == 1
    assert is_free(sink)


@pytest.mark.parametrize("failure", [ValueError("it failed"), SystemExit("it failed")])
def test_a_failure_is_reported_and_logged_once(failure, reported, caplog):
    """The error of a close that follows another one is only logged."""
    sink = Sink(ZeroDivisionError("it failed again"))
    device = leased(sink, reported)
    device.failed(failure)
    device.close(report=False)
    assert reported == [failure]
    assert [record.getMessage() for record in caplog.records] == ["Sink failed", "Sink failed to close"]
    assert is_free(sink)


def test_a_failure_to_close_is_reported(reported):
    """The first error is reported, whatever call it is of."""
    failure = OSError("no space")
    leased(Sink(failure), reported).close()
    assert reported == [failure]


def test_a_child_does_not_use_the_device_of_its_parent(reported):
    """A process that was forked in a call of a sink writes nothing more to it, and does not close it."""
    sink = Sink()
    device = leased(sink, reported)

    def use() -> None:
        assert device.abandoned
        device.close()
        assert sink.closes == 0

    in_child(use)
    assert not device.abandoned
    device.close()
