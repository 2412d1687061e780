"""What microphones, speakers and cameras share: the first open, reports of failures, and the watchdog."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.errors import DeviceError, MissingExtraError
from rtvi_sync.media import MediaDeviceInfo
from rtvi_sync.media.devices.device import HANGS_AFTER, Device
from tests.support.slowness import GUARD

INFO = MediaDeviceInfo(device_id="fake/desk", kind="audioinput", label="Desk")


class Rig:
    """A device whose thread is the test's, and what it has told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.device = Device("mic", "fake/desk", report=self._report, opened=self._opened)

    def _report(self, error: DeviceError) -> None:
        self.told.append(str(error).partition(".")[0])

    def _opened(self, info: MediaDeviceInfo) -> None:
        self.told.append(f"opened {info.label}")


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_device_that_opens(rig: Rig) -> None:
    """It is told once, and the caller who waits goes on."""
    rig.device._on_opened(INFO)
    rig.device.wait_opened(Deadline(GUARD))
    assert rig.told == ["opened Desk"]


@pytest.mark.parametrize(
    "error", [DeviceError("busy", devices=("mic",), type="in-use"), MissingExtraError("It", "audio")]
)
def test_a_first_open_that_fails(rig: Rig, error: Any) -> None:
    """The caller gets the error each time; nothing is reported, and nothing is tried again."""
    assert rig.device._on_failure(error) is False
    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            rig.device.wait_opened(Deadline(GUARD))
        assert caught.value is not error
    assert rig.told == []


def test_a_first_open_that_hangs(rig: Rig) -> None:
    """At the deadline the caller gets an error with advice, and the device has ended."""
    with pytest.raises(DeviceError, match=r"'fake/desk' does not answer\. .*update_mic\(\)"):
        rig.device.wait_opened(Deadline(0.0))
    rig.device._on_opened(INFO)
    assert rig.told == []


def test_a_failure_is_reported_once_until_the_device_works(rig: Rig) -> None:
    """Between a report and the next success there is no other report, nor an `opened` before it works."""
    rig.device._on_opened(INFO)
    for _ in range(3):
        assert rig.device._on_failure(DeviceError("pulled out", devices=("mic",))) is True
    rig.device._on_opened(INFO)
    rig.device._on_success(INFO)
    rig.device._on_success(INFO)
    rig.device._on_failure(MissingExtraError("It", "audio"))
    assert rig.told[:3] == ["opened Desk", "pulled out", "opened Desk"]
    assert len(rig.told) == 4


def test_a_call_that_does_not_return_is_reported(rig: Rig) -> None:
    """The watchdog reports a call that takes longer than `HANGS_AFTER`, once."""
    rig.device._on_opened(INFO)

    def hang() -> None:
        for step in range(8):
            rig.device.check(100.0 + step * HANGS_AFTER / 4)

    rig.device._call_library(hang)
    assert rig.told == ["opened Desk", "The microphone 'Desk' has stopped answering"]


def test_short_calls_and_a_suspended_process_are_no_hang(rig: Rig) -> None:
    """Each call is timed by itself, and a gap between two checks is the process's own."""
    rig.device._on_opened(INFO)
    for step in range(8):
        rig.device._call_library(functools.partial(rig.device.check, 100.0 + step * HANGS_AFTER / 2))

    def check_twice() -> None:
        rig.device.check(200.0)
        rig.device.check(260.0)

    rig.device._call_library(check_twice)
    assert rig.told == ["opened Desk"]


def test_what_a_library_raises_is_a_device_error(rig: Rig) -> None:
    """Errors of this package pass; any other is wrapped, with the device's name."""
    mine = DeviceError("mine", devices=("mic",))

    def fail(error: Exception) -> None:
        raise error

    with pytest.raises(DeviceError) as caught:
        rig.device._call_library(lambda: fail(mine))
    assert caught.value is mine
    with pytest.raises(DeviceError, match=r"The microphone 'fake/desk' failed: OSError\(5\)"):
        rig.device._call_library(lambda: fail(OSError(5)))


def test_after_halt_nothing_is_told(rig: Rig) -> None:
    """Neither a failure nor a success; halting twice does no harm."""
    rig.device._on_opened(INFO)
    rig.device.halt()
    rig.device.halt()
    assert rig.device._on_failure(DeviceError("pulled out", devices=("mic",))) is False
    rig.device._on_opened(INFO)
    assert rig.told == ["opened Desk"]
