"""The common base of microphones, speakers and cameras: the first open, reports of failures, and the watchdog."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.errors import DeviceError, MissingExtraError
from rtvi_sync.media.devices.device import HANGS_AFTER
from tests.support.driven_device import DrivenDevice
from tests.support.slowness import GUARD

pytestmark = pytest.mark.inside


@pytest.fixture
def device() -> DrivenDevice:
    """Return a microphone that has not been opened."""
    return DrivenDevice()


def test_a_device_that_opens(device: DrivenDevice) -> None:
    """The first open is reported once, and the caller who waits for it returns."""
    device.opens()
    device.wait_opened(Deadline(GUARD))
    assert device.told == ["opened Desk"]


@pytest.mark.parametrize(
    "error", [DeviceError("busy", devices=("mic",), type="in-use"), MissingExtraError("It", "audio")]
)
def test_a_first_open_that_fails(device: DrivenDevice, error: Any) -> None:
    """Each wait for a first open that failed raises the error; nothing is reported, and nothing is tried again."""
    assert device.fails(error) is False
    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            device.wait_opened(Deadline(GUARD))
        assert caught.value is not error
    assert device.told == []


def test_a_first_open_that_hangs(device: DrivenDevice) -> None:
    """A wait for a first open that hangs raises an error with advice at its deadline, and the device has ended."""
    with pytest.raises(DeviceError, match=r"'fake/desk' does not answer\. .*update_mic\(\)"):
        device.wait_opened(Deadline(0.0))
    device.opens()
    assert device.told == []


def test_a_failure_is_reported_once_until_the_device_works(device: DrivenDevice) -> None:
    """After a reported failure a device reports no other one, and is not said to be opened, until it works again."""
    device.opens()
    for _ in range(3):
        assert device.fails(DeviceError("pulled out", devices=("mic",))) is True
    device.opens()
    device.works()
    device.works()
    device.fails(MissingExtraError("It", "audio"))
    assert device.told[:3] == ["opened Desk", "pulled out", "opened Desk"]
    assert len(device.told) == 4


def test_a_call_that_does_not_return_is_reported(device: DrivenDevice) -> None:
    """The watchdog reports a call that takes longer than `HANGS_AFTER`, once."""
    device.opens()

    def hang() -> None:
        for step in range(8):
            device.check(100.0 + step * HANGS_AFTER / 4)

    device.call(hang)
    assert device.told == ["opened Desk", "The microphone 'Desk' does not answer"]


def test_short_calls_and_a_suspended_process_are_no_hang(device: DrivenDevice) -> None:
    """The watchdog times each call by itself, and takes a gap between two checks for a pause of the process."""
    device.opens()
    for step in range(8):
        device.call(functools.partial(device.check, 100.0 + step * HANGS_AFTER / 2))

    def check_twice() -> None:
        device.check(200.0)
        device.check(260.0)

    device.call(check_twice)
    assert device.told == ["opened Desk"]


def test_what_a_library_raises_is_a_device_error(device: DrivenDevice) -> None:
    """A call to the library passes errors of this package on, and wraps any other with the device's name."""
    mine = DeviceError("mine", devices=("mic",))

    def fail(error: BaseException) -> None:
        raise error

    with pytest.raises(DeviceError) as caught:
        device.call(lambda: fail(mine))
    assert caught.value is mine
    with pytest.raises(DeviceError, match=r"The microphone 'fake/desk' failed: OSError\(5\)"):
        device.call(lambda: fail(OSError(5)))
    with pytest.raises(DeviceError, match=r"The microphone 'fake/desk' failed: SystemExit\(3\)"):
        device.call(lambda: fail(SystemExit(3)))


def test_after_halt_nothing_is_told(device: DrivenDevice) -> None:
    """A device that was halted, once or twice, reports no failure and no success."""
    device.opens()
    device.halt()
    device.halt()
    assert device.fails(DeviceError("pulled out", devices=("mic",))) is False
    device.opens()
    assert device.told == ["opened Desk"]
