"""A source or sink of the application: its lease, its failures, its end."""

from __future__ import annotations

import pytest

from rtvi_sync.errors import DeviceError
from rtvi_sync.media.leased_device import LeasedDevice
from rtvi_sync.media.leases import Lease
from tests.support.forking import in_child

pytestmark = pytest.mark.inside


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


def leased(sink: Sink, reported: list[BaseException]) -> LeasedDevice:
    return LeasedDevice("speaker", sink, Lease(sink, "speaker"), reported.append)


def is_free(sink: Sink) -> bool:
    """Tell whether another session could use the sink."""
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
