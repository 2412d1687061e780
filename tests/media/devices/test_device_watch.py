"""Devices that come and go, as another process sees them."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable

import pytest

from rtvi_sync.media.base import MediaDeviceInfo
from rtvi_sync.media.devices.device_watch import DeviceWatch
from rtvi_sync.media.devices.portaudio_backend import backend
from tests.support import part_probes
from tests.support.forking import in_child
from tests.support.stub import Stub, children
from tests.support.threads import open_descriptors
from tests.support.waiting import until

pytestmark = [
    pytest.mark.inside,
    pytest.mark.skipif(sys.platform != "linux", reason="it looks at processes as Linux shows them"),
]

INTERVAL = 0.02


class Told:
    """What a watch was told: the names of the devices, each time."""

    def __init__(self) -> None:
        self.lists: list[list[str]] = []
        self.threads: set[str] = set()
        self.then: Callable[[], object] = lambda: None

    def __call__(self, infos: list[MediaDeviceInfo]) -> None:
        self.threads.add(threading.current_thread().name.rstrip("0123456789"))
        self.lists.append([info.label for info in infos])
        self.then()


def settle(watch: DeviceWatch) -> None:
    """Wait until it knows what there is at first."""
    until(lambda: part_probes.has_listed(watch), "nothing was listed")


def test_coming_and_going(library: str, stub: Stub) -> None:
    """What is there at first is told, and each change once, with all devices there are."""
    stub.set(devices=["desk"])
    told = Told()
    watch = DeviceWatch(backend(library), told, INTERVAL)
    until(lambda: told.lists, "it was not told")
    stub.set(devices=["desk", "new"])
    until(lambda: len(told.lists) == 2, "it was not told")
    stub.set(devices=["new", "desk"])
    stub.set(devices=["desk"])
    until(lambda: len(told.lists) == 3, "it was not told")
    watch.close()
    assert told.lists == [["desk"], ["desk", "new"], ["desk"]]
    assert told.threads == {"rtvi-devices-"}


def test_closing_ends_thread_and_process(library: str, stub: Stub) -> None:
    """At once, and any number of times."""
    watch = DeviceWatch(backend(library), Told(), 60.0)
    settle(watch)
    assert len(children()) == 1
    process = part_probes.listing_process(backend(library))
    watch.close()
    watch.close()
    assert process.returncode == 0  # it was not killed
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rtvi-devices")]
    assert children() == set()


def test_watches_share_a_process(library: str, stub: Stub) -> None:
    """The last one that closes ends it; one that comes later is told what there is then, too."""
    stub.set(devices=["desk"])
    first, second = Told(), Told()
    a = DeviceWatch(backend(library), first, INTERVAL)
    settle(a)
    b = DeviceWatch(backend(library), second, 60.0)
    settle(b)
    assert len(children()) == 1
    stub.set(devices=[])
    until(lambda: first.lists == second.lists == [["desk"], []], "one was not told")
    a.close()
    assert len(children()) == 1
    b.close()
    assert children() == set()


def test_a_hung_sound_system_does_not_hold_up_closing(library: str, stub: Stub) -> None:
    """close() kills the process during its work."""
    watch = DeviceWatch(backend(library), Told(), INTERVAL)
    settle(watch)
    (before,) = children()
    stub.set(hang=True)
    # The process reads and answers in turn: one that has begun to hang has nothing to read and writes nothing.
    until(lambda: waits(before), "it does not hang")
    process = part_probes.listing_process(backend(library))
    watch.close()
    assert process.returncode == -signal.SIGKILL
    assert children() == set()


def waits(pid: int) -> bool:
    """Tell whether a process waits for a lock, as the hanging PyAudio does."""
    with open(f"/proc/{pid}/wchan") as file, open(f"/proc/{pid}/syscall") as call:
        return "futex" in file.read() or call.read().split()[0] == "202"


def test_a_crash_is_not_the_end(library: str, stub: Stub, caplog: pytest.LogCaptureFixture) -> None:
    """After a crash, another process watches the devices, and reports what has changed meanwhile."""
    caplog.set_level(logging.INFO)
    stub.set(devices=["desk"])
    told = Told()
    watch = DeviceWatch(backend(library), told, INTERVAL)
    settle(watch)
    stub.set(crash=True)
    until(lambda: "crashes" in caplog.text, "it has not crashed")
    stub.set(devices=["desk", "new"])
    until(lambda: told.lists == [["desk"], ["desk", "new"]], "it was not told")
    watch.close()


def test_a_function_that_fails(library: str, stub: Stub, caplog: pytest.LogCaptureFixture) -> None:
    """A callback for changed devices that fails is logged, and the other callbacks are told."""

    def fail(infos: list[MediaDeviceInfo]) -> None:
        raise ValueError("mine")

    told = Told()
    failing, watch = DeviceWatch(backend(library), fail, INTERVAL), DeviceWatch(backend(library), told, INTERVAL)
    settle(failing)
    settle(watch)
    stub.set(devices=["new"])
    until(lambda: told.lists[1:], "it was not told")
    assert "mine" in caplog.text
    failing.close()
    watch.close()


def test_a_function_that_closes_its_watch(library: str, stub: Stub) -> None:
    """A callback may close its watch, on the thread that ends by that."""
    told = Told()
    watch = DeviceWatch(backend(library), told, INTERVAL)
    told.then = watch.close
    settle(watch)
    stub.set(devices=["new"])
    until(lambda: told.lists and not children(), "it goes on")


def test_without_the_library(library: str, stub: Stub, caplog: pytest.LogCaptureFixture) -> None:
    """A warning says what to install; nothing runs on."""
    stub.set(missing="No module named '_sounddevice'")
    watch = DeviceWatch(backend(library), Told(), INTERVAL)
    until(lambda: "pip install" in caplog.text and not children(), "no warning")
    watch.close()


def test_a_forked_child(library: str, stub: Stub) -> None:
    """A forked child does not keep its parent's listing process alive, and may watch by itself."""
    told = Told()
    watch = DeviceWatch(backend(library), told, INTERVAL)
    settle(watch)
    (prober,) = children()

    def child() -> bool:
        watch.close()  # the parent's: nothing happens
        mine = Told()
        own = DeviceWatch(backend(library), mine, INTERVAL)
        settle(own)
        own.close()
        asked_through = os.readlink(f"/proc/{prober}/fd/0")
        return asked_through in open_descriptors().values()

    assert in_child(child) is False
    stub.set(devices=["new"])
    until(lambda: told.lists[1:], "it was not told")
    watch.close()
