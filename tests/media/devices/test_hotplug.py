"""Devices that are plugged in or unplugged while an application listens."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import cast

import pytest

from rtvi_sync import DeviceError, MissingExtraError
from rtvi_sync.media import MediaDeviceInfo
from rtvi_sync.media.devices.hotplug import DeviceWatch
from rtvi_sync.media.devices.portaudio_backend import backend
from tests.support import part_probes
from tests.support.fake_devices import info
from tests.support.forking import in_child
from tests.support.slowness import GUARD
from tests.support.stub import Stub, children
from tests.support.threads import open_descriptors
from tests.support.waiting import until

pytestmark = pytest.mark.inside


def test_a_list_that_fails_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """If listing the devices fails, it is repeated, with one log entry; then the devices are reported."""
    answers: list[object] = [
        [info("one", "videoinput")],
        *[DeviceError("no server", devices=("mic",))] * 3,
        OSError(),
        SystemExit(),
    ]
    changes: list[list[MediaDeviceInfo]] = []

    def look() -> list[MediaDeviceInfo]:
        answer = answers.pop(0) if answers else [info("two", "videoinput")]
        if isinstance(answer, BaseException):
            raise answer
        return cast("list[MediaDeviceInfo]", answer)

    watch = DeviceWatch(changes.append, look, 0.01)
    until(lambda: len(changes) == 2)
    watch.close()
    assert [[each.label for each in cameras] for cameras in changes] == [["one"], ["two"]]
    assert [record.getMessage() for record in caplog.records] == ["Cannot list the devices; trying again: no server"]


def test_a_list_that_needs_a_library(caplog: pytest.LogCaptureFixture) -> None:
    """A list that needs a missing library is not asked for again."""

    def look() -> list[MediaDeviceInfo]:
        raise MissingExtraError("A camera", "video")

    watch = DeviceWatch(lambda _: None, look, 0.01)
    until(lambda: "rtvi-devices" not in {each.name.rpartition("-")[0] for each in threading.enumerate()})
    watch.close()
    assert "new ones are not noticed" in caplog.text


def test_cameras_that_come_and_go() -> None:
    """The first cameras are reported, and from then on each change, until the watch is closed."""
    there = [info("one", "videoinput")]
    changes: list[list[MediaDeviceInfo]] = []
    looked = threading.Semaphore(0)

    def look() -> list[MediaDeviceInfo]:
        looked.release()
        return list(there)

    watch = DeviceWatch(changes.append, look, 0.01)
    for _ in range(3):
        assert looked.acquire(timeout=GUARD)
    there.append(info("two", "videoinput"))
    until(lambda: len(changes) == 2)
    watch.close()
    assert [[each.label for each in cameras] for cameras in changes] == [["one"], ["one", "two"]]


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="it looks at processes as Linux shows them")

INTERVAL = 0.02


class Told:
    """The reports of a watch: the names of the devices, each time."""

    def __init__(self) -> None:
        self.lists: list[list[str]] = []
        self.threads: set[str] = set()
        self.then: Callable[[], object] = lambda: None

    def __call__(self, infos: list[MediaDeviceInfo]) -> None:
        self.threads.add(threading.current_thread().name.rstrip("0123456789"))
        self.lists.append([info.label for info in infos])
        self.then()


def watch_of(library: str, on_change: Callable[[list[MediaDeviceInfo]], object], interval: float) -> DeviceWatch:
    """Return a watch of the microphones and speakers of this machine."""
    return DeviceWatch(on_change, backend(library).prober(), interval)


def settle(watch: DeviceWatch) -> None:
    """Wait until the watch knows the first devices."""
    until(lambda: part_probes.has_listed(watch), "nothing was listed")


@linux_only
def test_coming_and_going(library: str, stub: Stub) -> None:
    """The first devices are reported, and each change once, with all devices."""
    stub.set(devices=["desk"])
    told = Told()
    watch = watch_of(library, told, INTERVAL)
    until(lambda: told.lists, "it was not told")
    stub.set(devices=["desk", "new"])
    until(lambda: len(told.lists) == 2, "it was not told")
    stub.set(devices=["new", "desk"])
    stub.set(devices=["desk"])
    until(lambda: len(told.lists) == 3, "it was not told")
    watch.close()
    assert told.lists == [["desk"], ["desk", "new"], ["desk"]]
    assert told.threads == {"rtvi-devices-"}


@linux_only
def test_closing_ends_thread_and_process(library: str, stub: Stub) -> None:
    """At once, and any number of times."""
    watch = watch_of(library, Told(), 60.0)
    settle(watch)
    assert len(children()) == 1
    process = part_probes.listing_process(watch)
    watch.close()
    watch.close()
    assert process.returncode == 0  # it was not killed
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rtvi-devices")]
    assert children() == set()


@linux_only
def test_watches_share_a_process(library: str, stub: Stub) -> None:
    """The last watch that closes ends the process; a later one gets the current devices, too."""
    stub.set(devices=["desk"])
    first, second = Told(), Told()
    a = watch_of(library, first, INTERVAL)
    settle(a)
    b = watch_of(library, second, 60.0)
    settle(b)
    assert len(children()) == 1
    stub.set(devices=[])
    until(lambda: first.lists == second.lists == [["desk"], []], "one was not told")
    a.close()
    assert len(children()) == 1
    b.close()
    assert children() == set()


@linux_only
def test_a_hung_sound_system_does_not_hold_up_closing(library: str, stub: Stub) -> None:
    """close() kills the process during its work."""
    watch = watch_of(library, Told(), INTERVAL)
    settle(watch)
    (before,) = children()
    stub.set(hang=True)
    # The process reads and answers in turn: one that hangs has nothing to read and writes nothing.
    until(lambda: waits(before), "it does not hang")
    process = part_probes.listing_process(watch)
    watch.close()
    assert process.returncode == -signal.SIGKILL
    assert children() == set()


def waits(pid: int) -> bool:
    """Return whether a process waits for a lock, as the hanging PyAudio does."""
    with open(f"/proc/{pid}/wchan") as file, open(f"/proc/{pid}/syscall") as call:
        return "futex" in file.read() or call.read().split()[0] == "202"


@linux_only
def test_a_crash_is_not_the_end(library: str, stub: Stub, caplog: pytest.LogCaptureFixture) -> None:
    """After a crash, another process watches the devices, and reports the changes since then."""
    caplog.set_level(logging.INFO)
    stub.set(devices=["desk"])
    told = Told()
    watch = watch_of(library, told, INTERVAL)
    settle(watch)
    stub.set(crash=True)
    until(lambda: "crashes" in caplog.text, "it has not crashed")
    stub.set(devices=["desk", "new"])
    until(lambda: told.lists == [["desk"], ["desk", "new"]], "it was not told")
    watch.close()


@linux_only
def test_a_function_that_fails(library: str, stub: Stub, caplog: pytest.LogCaptureFixture) -> None:
    """A callback for changed devices that fails is logged, and the other callbacks are told."""

    def fail(infos: list[MediaDeviceInfo]) -> None:
        raise ValueError("mine")

    told = Told()
    failing, watch = watch_of(library, fail, INTERVAL), watch_of(library, told, INTERVAL)
    settle(failing)
    settle(watch)
    stub.set(devices=["new"])
    until(lambda: told.lists[1:], "it was not told")
    assert "mine" in caplog.text
    failing.close()
    watch.close()


@linux_only
def test_a_function_that_closes_its_watch(library: str, stub: Stub) -> None:
    """A callback may close its watch, on the thread that ends by that."""
    told = Told()
    watch = watch_of(library, told, INTERVAL)
    told.then = watch.close
    settle(watch)
    stub.set(devices=["new"])
    until(lambda: told.lists and not children(), "it goes on")


@linux_only
def test_without_the_library(library: str, stub: Stub, caplog: pytest.LogCaptureFixture) -> None:
    """A warning names the package to install; no process or thread is left."""
    stub.set(missing="No module named '_sounddevice'")
    watch = watch_of(library, Told(), INTERVAL)
    until(lambda: "pip install" in caplog.text and not children(), "no warning")
    watch.close()


@linux_only
def test_a_forked_child(library: str, stub: Stub) -> None:
    """A forked child does not keep its parent's listing process alive, and may watch by itself."""
    told = Told()
    watch = watch_of(library, told, INTERVAL)
    settle(watch)
    (prober,) = children()

    def child() -> bool:
        watch.close()  # the parent's: nothing happens
        mine = Told()
        own = watch_of(library, mine, INTERVAL)
        settle(own)
        own.close()
        asked_through = os.readlink(f"/proc/{prober}/fd/0")
        return asked_through in open_descriptors().values()

    assert in_child(child) is False
    stub.set(devices=["new"])
    until(lambda: told.lists[1:], "it was not told")
    watch.close()
