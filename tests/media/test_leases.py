"""One session at a time uses a source or sink."""

from __future__ import annotations

import pytest

from rtvi_sync import DeviceError
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.media import BytesSink, PushSource, WavSink
from rtvi_sync.media.convert import ResamplingSink, ResamplingSource
from rtvi_sync.media.leases import Lease
from tests.support import part_probes
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
    with pytest.raises(DeviceError, match=r"This BytesSink is used by another session.*a speaker of its own") as caught:
        Lease(sink, "speaker")
    assert (caught.value.type, caught.value.devices) == ("in-use", ("speaker",))
    lease.release()
    assert sink not in Lease.leased()
    Lease(sink, "speaker").release()


@pytest.mark.parametrize(("ends", "advice"), [(False, "a mic of its own"), (True, "has not returned yet")])
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
        (ResamplingSource(ResamplingSource(source, 8_000), 16_000), ResamplingSource(source, 8_000), "mic"),
    ]:
        lease = Lease(first, role)
        with pytest.raises(DeviceError, match=rf"{type(second).__name__}.* is used by another session"):
            Lease(second, role)
        lease.release()
