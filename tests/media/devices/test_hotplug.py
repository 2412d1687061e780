"""Devices that are plugged in or unplugged while an application listens."""

from __future__ import annotations

import threading

from rtvi_sync.media import (
    MediaDeviceInfo,
)
from rtvi_sync.media.devices import hotplug as hotplug_module
from tests.support.fake_devices import info
from tests.support.slowness import GUARD
from tests.support.waiting import until


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
