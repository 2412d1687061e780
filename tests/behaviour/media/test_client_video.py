"""Cameras and screens as an application uses them, through its client."""

from __future__ import annotations

import threading

import pytest

from rtvi_sync import DeviceError, MemoryTransport, RTVIClient, RTVIEvent
from rtvi_sync.media import CameraSource, FileVideoSource, MediaDeviceInfo, NullSink, VideoFrame, VideoTrack
from tests.support.fake_camera import WEBCAM, FakeCameras, number_of, picture, use_cameras
from tests.support.real_video import shade, write_film
from tests.support.slowness import GUARD

OTHER = MediaDeviceInfo(device_id="Fake/Other", kind="videoinput", label="Other")


class Screening(MemoryTransport):
    """A transport that records when a picture has been sent."""

    def __init__(self) -> None:
        super().__init__(video=True)
        self.camera = threading.Event()
        self.screen = threading.Event()

    def send_video(self, frame: VideoFrame) -> None:
        super().send_video(frame)
        self.camera.set()

    def send_screen(self, frame: VideoFrame) -> None:
        super().send_screen(frame)
        self.screen.set()


@pytest.fixture
def cameras(monkeypatch):
    """Return two cameras by their ids, which deliver picture 0 a hundred times a second, and others when a test says
    so."""
    both = {info.device_id: FakeCameras(running=True) for info in (WEBCAM, OTHER)}
    infos = {WEBCAM.device_id: WEBCAM, OTHER.device_id: OTHER}

    def open_camera(device_id, **hints):
        found = both.get(device_id or WEBCAM.device_id)
        if found is None:
            raise DeviceError(f"There is no camera {device_id!r}", devices=("cam",), type="not-found")
        stream = found.open_camera(device_id, **hints)
        stream.device = infos[device_id or WEBCAM.device_id]
        return stream

    use_cameras(monkeypatch, open_camera, WEBCAM, OTHER)
    return both


def video_of(user: RTVIClient) -> VideoTrack:
    """Return the track of the user's camera."""
    track = user.tracks().local.video
    assert track is not None
    return track


def client(transport: MemoryTransport, **options) -> RTVIClient:
    """Return a client that only sends and receives video."""
    return RTVIClient(transport=transport, enable_mic=False, speaker=NullSink(), **options)


def test_a_camera_from_off_to_on_to_another(cameras):
    """A camera is off at first, opened when turned on, replaced while it runs, and released when turned off; the track
    continues."""
    transport = Screening()
    webcam, other = cameras.values()
    with client(transport) as user:
        assert user.get_all_cams() == [WEBCAM, OTHER]
        assert webcam.calls == []
        with user.events(RTVIEvent.CAM_UPDATED, RTVIEvent.TRACK_STARTED, timeout=GUARD) as events:
            user.enable_cam(True)
            assert user.is_cam_enabled
            assert user.selected_cam == WEBCAM
            assert user.media_state.cam.state == "granted"
            frames = video_of(user).frames()
            webcam.pictures.put(picture(1))
            assert any(number_of(frame) == 1 for frame in frames)
            user.update_cam(OTHER.device_id)
            assert user.selected_cam == OTHER
            other.pictures.put(picture(2))
            assert any(number_of(frame) == 2 for frame in frames)
            received = [next(events) for _ in range(3)]
        assert sorted(event.type for event in received) == sorted(
            [RTVIEvent.CAM_UPDATED, RTVIEvent.CAM_UPDATED, RTVIEvent.TRACK_STARTED]
        )
        assert transport.camera.wait(GUARD)
        assert (webcam.opened, other.opened) == (0, 1)
        user.enable_cam(False)
        other.wait_for("close", 1)
        assert other.opened == 0
        assert not video_of(user).enabled


def test_a_camera_that_is_not_there(cameras):
    """update_cam() raises, and the camera in use continues."""
    transport = Screening()
    webcam = cameras[WEBCAM.device_id]
    with client(transport, enable_cam=True) as user:
        frames = video_of(user).frames()
        with pytest.raises(DeviceError, match="no camera 'Fake/None'") as caught:
            user.update_cam("Fake/None")
        assert caught.value.type == "not-found"
        webcam.pictures.put(picture(2))
        assert any(number_of(frame) == 2 for frame in frames)


def test_a_machine_without_cameras(monkeypatch):
    """With the camera on, the session still starts, and `device_error` is published."""

    def open_camera(device_id, **hints):
        raise DeviceError("There is no camera", devices=("cam",), type="not-found")

    use_cameras(monkeypatch, open_camera)
    errors: list[DeviceError] = []
    with client(Screening(), enable_cam=True, callbacks={"on_device_error": errors.append}) as user:
        assert user.tracks().local.video is None
        assert user.media_state.cam.reason == "not-found"
        with pytest.raises(DeviceError, match="There is no camera"):
            user.update_cam("V4L2/HD Webcam")
    assert [error.devices for error in errors] == [("cam",)]


def test_a_camera_with_wishes(cameras):
    """A CameraSource replaces an id; the device that it opened is the selected one."""
    fake = FakeCameras(running=True)
    transport = Screening()
    with client(transport, enable_cam=True, cam=CameraSource(width=320, height=240, fps=5, backend=fake)) as user:
        assert user.selected_cam == WEBCAM
        assert transport.camera.wait(GUARD)
    assert fake.hints == {"device_id": None, "width": 320, "height": 240, "fps": 5}


def test_other_wishes_for_the_camera_that_is_on(cameras):
    """The camera, which serves one stream, is closed and opened again."""

    class OneStream(FakeCameras):
        def open_camera(self, device_id, **hints):
            if self.opened:
                raise DeviceError("It is in use", devices=("cam",), type="in-use")
            return super().open_camera(device_id, **hints)

    fake, transport = OneStream(running=True), Screening()
    with client(transport, enable_cam=True, cam=CameraSource(width=320, height=240, backend=fake)) as user:
        assert transport.camera.wait(GUARD)
        user.update_cam(CameraSource(width=640, height=480, backend=fake))
        assert (fake.hints["width"], fake.opened) == (640, 1)
        transport.camera.clear()
        assert transport.camera.wait(GUARD)


def test_a_camera_that_another_client_uses(cameras):
    """The camera in use is not closed or opened again."""
    shared, own = CameraSource(backend=FakeCameras(running=True)), FakeCameras(running=True)
    with (
        client(Screening(), enable_cam=True, cam=shared),
        client(Screening(), enable_cam=True, cam=CameraSource(backend=own)) as user,
    ):
        with pytest.raises(DeviceError, match="another session"):
            user.update_cam(shared)
        assert [name for name, _ in own.calls].count("open") == 1


class HungCamera:
    """A camera whose `read()` does not return until the test lets it."""

    def __init__(self) -> None:
        self.entered, self.may_return = threading.Event(), threading.Event()
        self.readers: set[int] = set()
        self.met = False  # whether two threads were in it at once

    def read(self):
        self.readers.add(threading.get_ident())
        self.met = self.met or len(self.readers) > 1
        self.entered.set()
        assert self.may_return.wait(GUARD)
        self.readers.discard(threading.get_ident())
        return picture(1)

    def close(self):
        pass


def test_a_hung_camera_and_the_next_session():
    """A session that would read a camera beside a call that hangs is refused; then the camera can be used again."""
    camera, transport = HungCamera(), Screening()
    user = client(transport, enable_cam=True, cam=camera)
    user.connect()
    assert camera.entered.wait(GUARD)
    user.disconnect()
    with pytest.raises(DeviceError, match="HungCamera was used before, and a call of its methods has not returned yet"):
        user.connect()
    camera.may_return.set()
    with user:  # connect() waits for the call
        assert transport.camera.wait(GUARD)
    assert not camera.met


def test_a_film_in_place_of_a_camera(tmp_path):
    """The bot receives the pictures of the file; the next session starts with the first one."""
    film = FileVideoSource(write_film(tmp_path / "film.avi", 5), fps=60)
    transport = Screening()
    user = client(transport, enable_cam=True, cam=film)
    for _ in range(2):
        with user:
            track = video_of(user)
            frames = track.frames()
            assert track.label == "FileVideoSource"
            assert (next(frames).width, next(frames).height) == (64, 48)
            assert transport.camera.wait(GUARD)
        transport.camera.clear()
    assert {shade(frame) for frame in transport.sent_video} <= {0, 1, 2, 3, 4}


def test_a_screen_is_shared(screen):
    """Pictures of a shared screen go to the bot and to the track until sharing ends; events carry the track."""
    transport = Screening()
    with (
        client(transport) as user,
        user.events(RTVIEvent.SCREEN_TRACK_STARTED, RTVIEvent.SCREEN_TRACK_STOPPED, timeout=GUARD) as events,
    ):
        user.enable_screen_share(True)
        assert user.is_sharing_screen
        started = next(events)
        track = user.tracks().local.screen_video
        assert track is not None
        assert started.data.track is track
        frame = next(track.frames())
        assert (frame.width, frame.height) == (320, 240)
        assert transport.screen.wait(GUARD)
        user.enable_screen_share(False)
        stopped = next(events)
        assert (stopped.type, stopped.data) == (RTVIEvent.SCREEN_TRACK_STOPPED, started.data)
        assert user.tracks().local.screen_video is None
    assert not transport.sent_video


def test_there_is_no_screen(monkeypatch):
    """Sharing raises, and the event is published to the rest of the application."""
    pytest.importorskip("mss", reason="mss (extra screen) is not installed")
    monkeypatch.setenv("DISPLAY", ":9999")
    errors: list[DeviceError] = []
    with client(Screening(), callbacks={"on_screen_share_error": errors.append}) as user:
        with pytest.raises(DeviceError, match="no screen") as caught:
            user.enable_screen_share(True)
        assert not user.is_sharing_screen
    assert [str(error) for error in errors] == [str(caught.value)]
