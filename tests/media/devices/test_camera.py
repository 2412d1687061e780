"""The camera's thread: opening, reading, releasing, sending, and failures."""

from __future__ import annotations

import logging
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.errors import DeviceError, DisconnectedError, MissingExtraError
from rtvi_sync.media import CameraSource, ScreenSource, VideoFrame
from rtvi_sync.media.devices import device
from tests.support.fake_camera import WEBCAM, FakeCameras, Shoot, number_of, picture
from tests.support.slowness import GUARD, takes
from tests.support.waiting import until

pytestmark = pytest.mark.inside


def watch(session: Shoot, seconds: float) -> None:
    """Run the watchdog for this many seconds of its own time, four times per second."""
    begun = session.watched
    while session.watched < begun + seconds:
        session.watched += 0.25
        session.camera.check(session.watched)


@pytest.fixture
def fake() -> FakeCameras:
    """Return a camera that the test controls."""
    return FakeCameras()


@pytest.fixture
def shoot(fake):
    """Return `shoot()`, which captures from the fake camera or from a source; ended after the test."""
    made: list[Shoot] = []

    def make(cam=None, **options) -> Shoot:
        made.append(Shoot(CameraSource(backend=fake) if cam is None else cam, **options))
        return made[-1]

    yield make
    for each in made:
        for _ in range(3):  # for threads that wait for a frame
            fake.pictures.put(picture(0))
        each.end()


class Album:
    """Source of an application: returns its frames, then `end`, before which it blocks if `ends` is False."""

    def __init__(self, *pictures: object, end: object = None, ends: bool = True) -> None:
        self.pictures = list(pictures)
        self.end = end
        self.ends = ends
        self.go_on = threading.Event()
        self.closed: list[int] = []
        self.read_by: set[int] = set()

    def read(self):
        self.read_by.add(threading.get_ident())
        if self.pictures:
            return self.pictures.pop(0)
        if not self.ends:
            assert self.go_on.wait(GUARD), "the test forgot this thread"
        if isinstance(self.end, BaseException):
            raise self.end
        return self.end

    def close(self) -> None:
        self.closed.append(threading.get_ident())


# -- one thread


def test_one_thread_opens_reads_and_releases(fake, shoot):
    """The thread rtvi-cam makes all calls to a camera, even the last one, whichever thread ends the session."""
    session = shoot()
    fake.pictures.put(picture(1))
    session.camera.wait_opened(Deadline(GUARD))
    fake.pictures.put(picture(2))
    session.until(lambda: len(session.published) == 2)
    fake.wait_for("read", 3)
    session.camera.halt()
    fake.pictures.put(picture(3))
    assert session.camera.join(Deadline(GUARD)) is None
    assert [name for name, _ in fake.calls] == ["try", "open", "read", "read", "read", "close"]
    (thread,) = {ident for _, ident in fake.calls}
    assert thread != threading.get_ident()
    assert session.threads == {thread}
    assert [number_of(frame) for frame in session.published] == [1, 2]  # the one after halt() is dropped
    assert session.infos == [WEBCAM]
    assert session.errors == []


def roles() -> list[str]:
    """Return the names of the package's threads, without their numbers."""
    return sorted(t.name.rpartition("-")[0] for t in threading.enumerate() if t.name.startswith("rtvi-"))


def test_the_threads_have_names(fake, shoot):
    """The threads are rtvi-cam and, once the transport takes video, rtvi-video; a screen's is rtvi-screen."""

    session = shoot()
    assert roles() == ["rtvi-cam"]
    session.camera.start(lambda frame: None)
    fake.pictures.put(picture(1))
    session.until(lambda: session.published)
    fake.wait_for("read", 2)
    assert roles() == ["rtvi-cam", "rtvi-video"]
    album = Album(ends=False)
    shoot(album, role="screen")
    assert roles() == ["rtvi-cam", "rtvi-screen", "rtvi-video"]
    album.go_on.set()


def test_off_releases_the_device_at_once(fake, shoot):
    """Turned off, the device is released after the current read, whose frame is dropped; turned on, it is opened."""
    session = shoot()
    fake.pictures.put(picture(1))
    session.until(lambda: session.published)
    fake.wait_for("read", 2)
    session.turn(False)
    fake.pictures.put(picture(2))
    fake.wait_for("close", 1)
    assert fake.opened == 0
    session.turn(True)
    fake.pictures.put(picture(3))
    session.until(lambda: len(session.published) == 2)
    assert [number_of(frame) for frame in session.published] == [1, 3]
    assert session.infos == [WEBCAM, WEBCAM]


def test_a_camera_that_is_off_is_not_opened(fake, shoot):
    """Nothing is opened before the camera is turned on, and wait_opened() does not block."""
    session = shoot(on=False)
    session.camera.wait_opened(Deadline(GUARD))
    assert fake.calls == []
    session.turn(True)
    fake.pictures.put(picture(1))
    session.until(lambda: session.published)


def test_hints_reach_the_camera(fake, shoot):
    """Size and frame rate are requested of the device."""
    shoot(CameraSource("Fake/Webcam", width=1280, height=720, fps=15, backend=fake))
    fake.wait_for("open", 1)
    assert fake.hints == {"device_id": "Fake/Webcam", "width": 1280, "height": 720, "fps": 15}


@pytest.mark.parametrize("hint", [{"width": 0}, {"height": -1}, {"fps": 0}, {"fps": float("inf")}])
def test_impossible_hints(hint):
    """A request that no camera can fulfil raises where it is made."""
    with pytest.raises(ValueError, match=r"must be (a positive number|an integer of 1 or more), not"):
        CameraSource(**hint)


# -- sending


def test_a_slow_transport_gets_the_newest_frame(fake, shoot):
    """While a frame is being sent capture continues; then the newest is sent, and those in between are counted."""
    sent: list[VideoFrame] = []
    sending, go_on = threading.Event(), threading.Event()

    def send(frame: VideoFrame) -> None:
        sent.append(frame)
        sending.set()
        assert go_on.wait(GUARD)

    session = shoot()
    session.camera.start(send)
    fake.pictures.put(picture(1))
    assert sending.wait(GUARD)
    sending.clear()
    for number in range(2, 11):
        fake.pictures.put(picture(number))
    session.until(lambda: len(session.published) == 10)
    fake.wait_for("read", 11)
    go_on.set()
    assert sending.wait(GUARD)
    assert [number_of(frame) for frame in sent] == [1, 10]
    assert session.camera.dropped == 8


def test_before_the_bot_is_ready_nothing_is_sent(fake, shoot):
    """The local track gets frames from the start, the bot from start() on."""
    sent: list[int] = []
    arrived = threading.Event()

    def send(frame: VideoFrame) -> None:
        sent.append(number_of(frame))
        arrived.set()

    session = shoot()
    fake.pictures.put(picture(1))
    session.until(lambda: session.published)
    fake.wait_for("read", 2)
    session.camera.start(send)
    fake.pictures.put(picture(2))
    assert arrived.wait(GUARD)
    assert sent == [2]


@pytest.mark.parametrize(
    ("error", "logged"),
    [(DisconnectedError("the line is gone"), []), (RuntimeError("a bug"), ["Sending video failed"])],
)
def test_an_error_ends_the_sending_alone(fake, shoot, caplog, error, logged):
    """A lost connection ends the sending silently, a bug of the transport is logged; the track continues."""
    calls: list[VideoFrame] = []

    def send(frame: VideoFrame) -> None:
        calls.append(frame)
        raise error

    session = shoot()
    session.camera.start(send)
    for number in (1, 2, 3):
        fake.pictures.put(picture(number))
        session.until(lambda number=number: len(session.published) == number)
    until(lambda: "rtvi-video" not in roles())  # which publishes nothing
    assert len(calls) == 1
    assert [record.message.partition(";")[0] for record in caplog.records if record.levelno >= logging.ERROR] == logged


def test_nothing_is_sent_once_it_is_off_or_halted(fake, shoot):
    """A frame that waited for a slow transport is dropped when the camera is turned off, and at the end."""
    for stop in ("turn", "halt"):
        sent: list[int] = []
        sending, go_on = threading.Event(), threading.Event()

        def send(frame: VideoFrame, sent=sent, sending=sending, go_on=go_on) -> None:
            sent.append(number_of(frame))
            sending.set()
            assert go_on.wait(GUARD)

        session = shoot()
        session.camera.start(send)
        fake.pictures.put(picture(1))
        assert sending.wait(GUARD)
        fake.pictures.put(picture(2))
        session.until(lambda session=session: len(session.published) == 2)
        fake.wait_for("read", 3)
        if stop == "turn":
            session.turn(False)
        else:
            session.camera.halt()
        sending.clear()
        go_on.set()
        assert not sending.wait(0.05)
        fake.pictures.put(picture(3))
        session.end()
        assert sent == [1]
        fake.calls.clear()


def test_a_transport_that_hangs_is_abandoned(fake, shoot):
    """join() returns the sending thread at its deadline; the camera's own has ended."""
    go_on = threading.Event()
    sending = threading.Event()

    def send(frame: VideoFrame) -> None:
        sending.set()
        assert go_on.wait(GUARD)

    session = shoot()
    session.camera.start(send)
    fake.pictures.put(picture(1))
    assert sending.wait(GUARD)
    fake.pictures.put(picture(2))
    given_up = session.end(0.05)
    assert given_up is not None
    assert given_up.name.startswith("rtvi-video")
    go_on.set()
    given_up.join(GUARD)


# -- failures


def test_a_camera_that_cannot_be_opened(fake, shoot):
    """wait_opened() raises the error of the open, and nothing is reported."""
    fake.refuse = DeviceError("There is no camera", devices=("cam",), type="not-found")
    session = shoot()
    with pytest.raises(DeviceError, match="no camera") as caught:
        session.camera.wait_opened(Deadline(GUARD))
    assert caught.value.type == "not-found"
    session.end()
    assert session.errors == []


def test_a_missing_library(fake, shoot, monkeypatch):
    """wait_opened() raises MissingExtraError unchanged; later it is reported as a device that was not found, and the
    camera is not opened again by itself."""
    monkeypatch.setattr(device, "RETRY_INTERVAL", 0.01)
    fake.refuse = MissingExtraError("The camera", "video")
    with pytest.raises(MissingExtraError, match=r"\[video\]"):
        shoot().camera.wait_opened(Deadline(GUARD))
    session = shoot(on=False)
    session.turn(True)
    session.until(lambda: session.errors)
    assert (session.errors[0].type, session.errors[0].devices) == ("not-found", ("cam",))
    assert "[video]" in str(session.errors[0])
    tries = fake.count("try")
    threading.Event().wait(0.05)
    assert fake.count("try") == tries


def test_a_camera_that_fails_is_reported_once_and_tried_again(fake, shoot, monkeypatch):
    """The camera is released immediately, opened again without reports, and `opened` is called once it works again."""
    monkeypatch.setattr(device, "RETRY_INTERVAL", 0.01)
    session = shoot()
    fake.pictures.put(picture(1))
    session.camera.wait_opened(Deadline(GUARD))
    fake.break_down()
    session.until(lambda: session.errors)
    fake.wait_for("close", 4)
    assert [str(error) for error in session.errors] == ["it was unplugged"]
    assert session.errors[0].type == "not-found"
    fake.mend()
    fake.pictures.put(picture(2))
    session.until(lambda: len(session.infos) == 2)
    session.until(lambda: len(session.published) == 2)
    fake.break_down("again")
    session.until(lambda: len(session.errors) == 2)
    assert len({ident for _, ident in fake.calls}) == 1


def test_a_failure_is_reported_again_after_the_camera_was_turned_off_and_on(fake, shoot, monkeypatch):
    """A known failure is reported again once the application has turned the camera off and on."""
    monkeypatch.setattr(device, "RETRY_INTERVAL", 60.0)
    session = shoot()
    fake.pictures.put(picture(1))
    session.camera.wait_opened(Deadline(GUARD))
    fake.break_down()
    session.until(lambda: session.errors)
    session.turn(False)
    session.turn(True)
    session.until(lambda: len(session.errors) == 2)


def test_a_camera_that_was_turned_off_and_on_and_works(fake, shoot, monkeypatch):
    """After its next failure it is tried again as soon as after a first one."""
    monkeypatch.setattr(device, "RETRY_INTERVAL", 600.0)
    monkeypatch.setattr(device, "LONGEST_RETRY_INTERVAL", 600.0)
    session = shoot()
    fake.pictures.put(picture(1))
    session.until(lambda: len(session.published) == 1)
    fake.break_down()
    session.until(lambda: session.errors)
    monkeypatch.setattr(device, "RETRY_INTERVAL", 0.01)
    session.turn(False)
    fake.mend()
    fake.pictures.put(picture(2))
    session.turn(True)
    session.until(lambda: len(session.published) == 2)
    fake.break_down()
    session.until(lambda: len(session.errors) == 2)
    fake.wait_for("try", 4)


def test_a_camera_that_hangs_is_reported_once(fake, shoot, monkeypatch):
    """check() reports a camera that delivers no frame for 3 s; `opened` is called with the next frame."""
    session = shoot()
    fake.pictures.put(picture(1))
    session.camera.wait_opened(Deadline(GUARD))
    fake.wait_for("read", 2)
    watch(session, 3.0)
    assert session.errors == []
    watch(session, 10.0)
    (error,) = session.errors
    assert str(error).startswith("The camera 'Webcam' does not answer. Unplug it and plug it in again")
    assert str(error).endswith("choose another one with update_cam()")
    fake.pictures.put(picture(2))
    session.until(lambda: len(session.infos) == 2)
    fake.wait_for("read", 3)
    watch(session, 10.0)
    assert len(session.errors) == 2


def test_a_camera_may_take_its_time_to_open(fake, shoot):
    """The watchdog allows 10 s for the first frame."""
    session = shoot(on=False)
    with fake.hang():
        session.turn(True)
        fake.wait_for("try", 1)
        watch(session, 10.0)
        assert session.errors == []
        watch(session, 1.0)
        assert len(session.errors) == 1


def test_a_process_that_was_stopped(fake, shoot):
    """If the process was suspended, the watchdog is late too, and does not report the camera."""
    session = shoot()
    fake.pictures.put(picture(1))
    session.camera.wait_opened(Deadline(GUARD))
    fake.wait_for("read", 2)
    watch(session, 1.0)
    session.watched += 60
    watch(session, 1.0)
    assert session.errors == []


@pytest.fixture
def screenshots(monkeypatch):
    """Replace the machine's screen with one of 2 x 1 pixels; return an event, set when it is closed."""
    closed = threading.Event()

    class Screen:
        MSS = classmethod(lambda cls: cls())
        ScreenShotError = OSError
        monitors = ("all", "the first")

        def grab(self, area):
            return SimpleNamespace(rgb=bytes(6), width=2, height=1)

        def close(self) -> None:
            closed.set()

    monkeypatch.setitem(sys.modules, "mss", Screen)
    return closed


def test_a_screen_that_is_read_seldom(screenshots, shoot):
    """A screen that is read seldom does not count as hanging, and is turned off or ended at once."""
    session = shoot(ScreenSource(fps=0.001), role="screen")
    session.until(lambda: session.published)
    watch(session, 60.0)
    assert session.errors == []
    session.turn(False)
    assert screenshots.wait(GUARD)
    session.turn(True)
    session.until(lambda: len(session.published) == 2)
    assert session.end() is None


def test_a_source_of_the_application_may_block(shoot):
    """The watchdog checks devices only."""
    album = Album(ends=False)
    session = shoot(album)
    watch(session, 60.0)
    assert session.errors == []
    album.go_on.set()


def test_a_hung_camera_is_abandoned_and_releases_itself(fake, shoot):
    """join() returns at its deadline; when the library call returns, the thread releases the camera and ends."""
    session = shoot()
    session.camera.start(lambda frame: None)
    fake.pictures.put(picture(1))
    session.camera.wait_opened(Deadline(GUARD))
    fake.wait_for("read", 2)
    with fake.hang():
        fake.pictures.put(picture(2))
        with takes(1.0):
            given_up = session.end(0.1)
        assert given_up is not None
        assert given_up.name.startswith("rtvi-cam")
        until(lambda: "rtvi-video" not in roles())  # which publishes nothing
        assert fake.opened == 1
        watch(session, 60.0)
    given_up.join(GUARD)
    assert fake.opened == 0
    assert fake.calls[-1] == ("close", fake.calls[0][1])
    assert [number_of(frame) for frame in session.published] == [1]
    assert session.errors == []


def test_a_source_that_was_abandoned_serves_the_next_session(fake, shoot):
    """An abandoned thread releases its own capture, not the one that the next session reads."""
    source = CameraSource(backend=fake)
    first = shoot(source)
    fake.pictures.put(picture(1))
    first.camera.wait_opened(Deadline(GUARD))
    fake.wait_for("read", 2)
    with fake.hang():
        given_up = first.end(0.05)
        second = shoot(source)
        fake.wait_for("try", 2)
    while given_up.is_alive():  # both wait for frames, and either may get one
        fake.pictures.put(picture(2))
        given_up.join(0.01)
    fake.pictures.put(picture(3))
    second.until(lambda: second.published)
    assert fake.count("open") == 2
    late = fake.calls[0][1]
    assert [ident for name, ident in fake.calls if name == "close"] == [late]


def test_a_camera_that_hangs_while_it_opens(fake, shoot):
    """wait_opened() raises at its deadline."""
    session = shoot()
    with fake.hang():
        with pytest.raises(DeviceError, match="does not answer"):
            session.camera.wait_opened(Deadline(0.05))
        assert session.end(0.05) is not None
    fake.pictures.put(picture(1))


# -- sources of the application


def test_a_source_is_read_and_closed_on_the_same_thread(shoot):
    """A source is read while the camera is on, and closed when it is turned off and at the end."""
    album = Album(picture(1), picture(2), ends=False, end=picture(3))
    session = shoot(album)
    session.camera.wait_opened(Deadline(GUARD))  # nothing to wait for
    session.until(lambda: len(session.published) == 2)
    session.turn(False)
    album.go_on.set()
    session.end()
    assert [number_of(frame) for frame in session.published] == [1, 2]
    assert {*album.closed} == album.read_by
    assert len(album.closed) == 1
    assert session.infos == []


def test_a_source_that_is_never_on_is_not_read(shoot):
    """With the camera off a source is not read or closed."""
    album = Album(picture(1))
    shoot(album, on=False).end()
    assert (album.read_by, album.closed) == (set(), [])


def test_a_source_that_ends_is_read_again_when_turned_on(shoot):
    """None ends the source; turning the camera off and on reads it again."""
    album = Album(picture(1))
    session = shoot(album)
    session.until(lambda: session.published)
    album.pictures.append(picture(2))
    session.turn(False)
    session.turn(True)
    session.until(lambda: len(session.published) == 2)
    assert session.errors == []


@pytest.mark.parametrize(
    ("album", "message"),
    [
        (Album(end=ValueError("no film")), r"The cam Album failed: ValueError\('no film'\)"),
        (Album(end=SystemExit(3)), r"The cam Album failed: SystemExit\(3\)"),
        (Album("a picture"), "returns a VideoFrame or None, not str"),
        (Album(end=DeviceError("the lens is dirty", type="permissions")), "the lens is dirty"),
    ],
    ids=["exception", "exit", "type", "device error"],
)
def test_a_source_that_fails(shoot, album, message):
    """An exception of any type is reported and closes the source, and the thread continues."""
    session = shoot(album)
    session.until(lambda: session.errors)
    session.end()
    assert len(session.errors) == 1
    with pytest.raises(DeviceError, match=message):
        raise session.errors[0]
    assert len(album.closed) == 1


def test_a_source_that_cannot_be_closed(shoot):
    """An exception of close() is reported."""

    class Jammed(Album):
        def close(self) -> None:
            raise OSError("the lid is stuck")

    session = shoot(Jammed(picture(1)))
    session.until(lambda: session.errors)
    assert "the lid is stuck" in str(session.errors[0])


def test_two_sessions_cannot_share_a_source(shoot):
    """The second session raises; once the first has ended, it can use the source."""
    album = Album(picture(1), ends=False)
    first = shoot(album)
    with pytest.raises(DeviceError, match="used by another session") as caught:
        shoot(album)
    assert (caught.value.type, caught.value.devices) == ("in-use", ("cam",))
    album.go_on.set()
    first.end()
    shoot(album)


def test_a_source_that_hangs_is_not_closed(shoot):
    """An abandoned source of the application is not closed, and serves no other session until its call returns."""
    album = Album(ends=False)
    session = shoot(album)
    given_up = session.end(0.05)
    assert given_up is not None
    with pytest.raises(DeviceError, match="a call of its methods has not returned yet"):
        shoot(album)
    album.go_on.set()
    given_up.join(GUARD)
    assert album.closed == []
    shoot(album)


def test_a_source_that_never_blocks_is_throttled(shoot):
    """A source that never blocks is read at most 60 times per second, so that it does not occupy a whole core."""

    class Endless(Album):
        def read(self):
            self.read_by.add(threading.get_ident())
            return picture(1)

    begun = time.monotonic()
    session = shoot(Endless())
    session.until(lambda: len(session.published) >= 13)
    assert time.monotonic() - begun > 0.19


def test_many_short_sessions(fake, shoot):
    """After sessions that are turned on and off and ended at any moment no camera is open and no thread runs."""
    before = threading.active_count()
    for number in range(60):
        fake.pictures.put(picture(number))
        session = Shoot(CameraSource(backend=fake), on=number % 3 != 0)
        session.turn(number % 2 == 0)
        fake.pictures.put(picture(number))
        session.camera.halt()
        fake.pictures.put(picture(number))
        assert session.camera.join(Deadline(GUARD)) is None
    assert fake.opened == 0
    assert threading.active_count() == before
