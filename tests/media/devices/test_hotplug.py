"""Devices that are plugged in or unplugged while an application listens."""

from __future__ import annotations

import threading
from typing import cast

import pytest

from rtvi_sync import DeviceError, MissingExtraError
from rtvi_sync.media import MediaDeviceInfo
from rtvi_sync.media.devices import hotplug as hotplug_module
from tests.support.fake_devices import info
from tests.support.slowness import GUARD
from tests.support.waiting import until

pytestmark = pytest.mark.inside


def test_a_list_that_fails_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """A list of devices that fails is asked for again, which is said once; what there is then is told."""
    answers: list[object] = [[info("one", "videoinput")], *[DeviceError("no server", devices=("mic",))] * 3, OSError()]
    changes: list[list[MediaDeviceInfo]] = []

    def look() -> list[MediaDeviceInfo]:
        answer = answers.pop(0) if answers else [info("two", "videoinput")]
        if isinstance(answer, Exception):
            raise answer
        return cast("list[MediaDeviceInfo]", answer)

    watch = hotplug_module.ListWatch(changes.append, look, 0.01)
    until(lambda: len(changes) == 2)
    watch.close()
    assert [[each.label for each in cameras] for cameras in changes] == [["one"], ["two"]]
    assert [record.getMessage() for record in caplog.records] == ["Cannot list the devices; trying again: no server"]


def test_a_list_that_needs_a_library(caplog: pytest.LogCaptureFixture) -> None:
    """A list that needs a missing library is not asked for again."""

    def look() -> list[MediaDeviceInfo]:
        raise MissingExtraError("A camera", "video")

    watch = hotplug_module.ListWatch(lambda _: None, look, 0.01)
    until(lambda: "rtvi-devices" not in {each.name.rpartition("-")[0] for each in threading.enumerate()})
    watch.close()
    assert "new ones are not noticed" in caplog.text


def test_cameras_that_come_and_go() -> None:
    """What there is at first is told, and from then on each change, until it is closed."""
    there = [info("one", "videoinput")]
    changes: list[list[MediaDeviceInfo]] = []
    looked = threading.Semaphore(0)

    def look() -> list[MediaDeviceInfo]:
        looked.release()
        return list(there)

    watch = hotplug_module.ListWatch(changes.append, look, 0.01)
    for _ in range(3):
        assert looked.acquire(timeout=GUARD)
    there.append(info("two", "videoinput"))
    until(lambda: len(changes) == 2)
    watch.close()
    assert [[each.label for each in cameras] for cameras in changes] == [["one"], ["one", "two"]]
