"""Video files and screens instead of a camera."""

from __future__ import annotations

import functools
import os
import threading
from pathlib import Path

import pytest

from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.errors import DeviceError, MissingExtraError
from rtvi_sync.media import FileVideoSource, ScreenSource, VideoFrame
from rtvi_sync.media.video import Pace
from tests.support import limits
from tests.support.fake_camera import Shoot
from tests.support.real_video import opencv, shade, write_film
from tests.support.slowness import GUARD, Stopwatch, takes

pytestmark = pytest.mark.inside


def image_of(source: FileVideoSource | ScreenSource) -> VideoFrame:
    """Return the next image."""
    frame = source.read()
    assert frame is not None
    return frame


def has_published(shoot: Shoot, count: int) -> bool:
    """Return whether `count` images were published."""
    return len(shoot.published) >= count


# -- pace


def test_pace_keeps_time():
    """The delays of single calls do not add up."""
    pace = Pace(100)
    missed = 0
    with Stopwatch() as watch:
        for number in range(21):
            missed += pace.wait()
            if number % 5 == 0:
                threading.Event().wait(0.004)
    assert watch.took >= 0.199
    assert watch.given < 0.3 + missed * 0.01


def test_pace_tells_what_was_missed():
    """After a delay wait() returns the number of missed periods."""
    pace = Pace(100)
    pace.wait()
    threading.Event().wait(0.055)
    assert pace.wait() >= 4


def test_pace_goes_on_after_a_long_stop(monkeypatch):
    """A process that was stopped for longer than the limit continues where it was, and has missed nothing."""
    limits.patch(monkeypatch, picture_lag=0.03)
    pace = Pace(100)
    pace.wait()
    threading.Event().wait(0.055)
    assert pace.wait() == 0


# -- files


@pytest.fixture
def film(tmp_path) -> Path:
    """Write five images for ten frames a second."""
    return write_film(tmp_path / "film.avi", 5)


@pytest.fixture
def hurried(monkeypatch):
    """Read every image, as fast as possible."""
    monkeypatch.setattr(Pace, "wait", lambda self: 0)


def test_a_file_plays_in_real_time(film):
    """The frames arrive in order, at the rate of the file; on a busy machine one may be skipped."""
    source = FileVideoSource(film, loop=False)
    frames = []
    with takes(1.5, at_least=0.4):
        while (frame := source.read()) is not None:
            frames.append(frame)
    source.close()
    shades = [shade(frame) for frame in frames]
    assert shades[0] == 0
    assert shades == sorted(set(shades))
    assert {(frame.width, frame.height, frame.format, len(frame.image)) for frame in frames} == {
        (64, 48, "RGB", 64 * 48 * 3)
    }
    assert [frame.timestamp for frame in frames] == sorted(frame.timestamp for frame in frames)


def test_a_file_ends(film, hurried):
    """Without `loop` None follows the last image, until the source is closed."""
    source = FileVideoSource(film, loop=False)
    assert [shade(image_of(source)) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert (source.read(), source.read()) == (None, None)
    source.close()
    assert shade(image_of(source)) == 0
    source.close()


def test_a_file_begins_again(film, hurried):
    """By default a video has no end, as a camera has none."""
    source = FileVideoSource(film)
    assert [shade(image_of(source)) for _ in range(12)] == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    source.close()
    assert shade(image_of(source)) == 0
    source.close()


def test_a_slow_reader_misses_images(film):
    """The video's time passes while it is not read."""
    source = FileVideoSource(film, loop=False)
    assert shade(image_of(source)) == 0
    threading.Event().wait(0.25)
    assert shade(image_of(source)) >= 2
    source.close()


def test_a_picture_stays(tmp_path, hurried):
    """An image is a still video, even if others of its name lie beside it."""
    import numpy

    cv2 = opencv()
    for number in (1, 2):
        cv2.imwrite(str(tmp_path / f"photo{number}.png"), numpy.full((4, 6, 3), 40 * number, numpy.uint8))
    source = FileVideoSource(tmp_path / "photo1.png")
    assert shade(image_of(source)) == 1
    aside = (tmp_path / "photo1.png").rename(tmp_path / "aside.png")  # the file is not read again for each frame
    assert [shade(image_of(source)) for _ in range(4)] == [1, 1, 1, 1]
    source.close()
    aside.rename(tmp_path / "photo1.png")
    series = FileVideoSource(tmp_path / "photo%d.png")
    assert [shade(image_of(series)) for _ in range(4)] == [1, 2, 1, 2]
    series.close()


def test_colours_are_red_first(tmp_path):
    """OpenCV has blue first, the package red."""
    import numpy

    cv2 = opencv()
    image = numpy.zeros((4, 6, 3), numpy.uint8)
    image[:, :] = (10, 20, 30)
    cv2.imwrite(str(tmp_path / "photo.png"), image)
    source = FileVideoSource(tmp_path / "photo.png")
    frame = image_of(source)
    source.close()
    assert frame.image[:3] == bytes([30, 20, 10])
    assert frame.to_numpy()[0, 0].tolist() == [30, 20, 10]


@pytest.mark.parametrize(
    ("name", "type_", "message"),
    [
        ("nowhere.mp4", "not-found", "Cannot read the video file"),
        ("letter.txt", "unknown", "OpenCV finds no image in"),
        ("nothing%d.png", "unknown", "OpenCV finds no image in"),
    ],
)
def test_a_file_that_is_none(tmp_path, capfd, name, type_, message):
    """A wrong path or file is reported by the constructor."""
    opencv()
    tmp_path.joinpath("letter.txt").write_text("Dear Sir,")
    with pytest.raises(DeviceError, match=message) as caught:
        FileVideoSource(tmp_path / name)
    assert (caught.value.type, caught.value.devices) == (type_, ("cam",))


@pytest.mark.parametrize("fps", [0, -1, float("nan"), float("inf")])
def test_impossible_rates(fps):
    """A rate must be above zero."""
    with pytest.raises(ValueError, match="must be a positive number"):
        FileVideoSource("film.avi", fps=fps)
    with pytest.raises(ValueError, match="must be a positive number"):
        ScreenSource(fps=fps)


def test_a_file_without_opencv(tmp_path, monkeypatch):
    """The error has the command that installs it."""
    import sys

    tmp_path.joinpath("film.avi").touch()
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingExtraError, match=r"FileVideoSource needs .*\[video\]"):
        FileVideoSource(tmp_path / "film.avi")


def test_opencv_is_never_released_by_another_thread(film):
    """Sessions end repeatedly while the file is being read, which could make OpenCV hang or crash."""
    source = FileVideoSource(film, fps=120)
    for number in range(40):
        shoot = Shoot(source)
        shoot.until(functools.partial(has_published, shoot, 1))
        if number % 2:
            shoot.turn(False)
            shoot.turn(True)
        assert shoot.end() is None
        assert shoot.errors == []


# -- screens


def test_a_screen(screen):
    """The images show the screen, at the requested rate."""
    source = ScreenSource(fps=50)
    with takes(2, at_least=0.1):
        frames = [image_of(source) for _ in range(6)]
        source.close()
    assert {(frame.width, frame.height, frame.format, frame.image) for frame in frames} == {
        (320, 240, "RGB", bytes(3 * 320 * 240))
    }


def test_a_screen_on_the_threads_of_sessions(screen):
    """Each session opens the screen on its thread, and closes it there."""
    source = ScreenSource(fps=50)
    for _ in range(5):
        shoot = Shoot(source, role="screen")
        shoot.until(functools.partial(has_published, shoot, 2))
        assert shoot.end() is None
        assert shoot.errors == []


def test_a_monitor_that_is_not_there(screen):
    """The error states the number of monitors."""
    with pytest.raises(DeviceError, match="no monitor 7; this machine has 1") as caught:
        ScreenSource(7).read()
    assert (caught.value.type, caught.value.devices) == ("not-found", ("screen",))


def test_a_screen_that_goes_away(screen):
    """When the X server ends, one failure is reported; the screen is tried again like an unplugged camera."""
    shoot = Shoot(ScreenSource(fps=50), role="screen")
    shoot.camera.wait_opened(Deadline(GUARD))
    screen.kill()
    shoot.until(lambda: shoot.errors)
    assert shoot.end() is None
    assert [error.devices for error in shoot.errors] == [("screen",)]


@pytest.mark.skipif(os.name == "nt" or os.uname().sysname == "Darwin", reason="other systems have a screen always")
@pytest.mark.parametrize(("display", "message"), [(None, "DISPLAY is not set"), (":9999", "DISPLAY is ':9999'")])
def test_a_machine_without_a_screen(monkeypatch, display, message):
    """Reading raises an error that says so."""
    pytest.importorskip("mss", reason="mss (extra screen) is not installed")
    if display is None:
        monkeypatch.delenv("DISPLAY", raising=False)
    else:
        monkeypatch.setenv("DISPLAY", display)
    with pytest.raises(DeviceError, match=message) as caught:
        ScreenSource().read()
    assert (caught.value.type, caught.value.devices) == ("not-found", ("screen",))
    shoot = Shoot(ScreenSource(), role="screen")
    with pytest.raises(DeviceError, match=message):
        shoot.camera.wait_opened(Deadline(GUARD))
    shoot.end()
    assert shoot.errors == []


def test_a_screen_without_mss(monkeypatch):
    """The error has the command that installs it."""
    import sys

    monkeypatch.setitem(sys.modules, "mss", None)
    with pytest.raises(MissingExtraError, match=r"ScreenSource needs .*\[screen\]"):
        ScreenSource()
