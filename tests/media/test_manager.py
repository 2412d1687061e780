"""The media manager: missing and leased devices, their replacement, and the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from rtvi_sync.errors import DeviceError
from rtvi_sync.media import BytesSink, CallbackSink, CallbackSource, ToneSource, VideoFrame
from rtvi_sync.media.manager import MediaManager
from tests.support import part_probes
from tests.support.slowness import GUARD
from tests.support.threads import media_threads

pytestmark = pytest.mark.inside

# -- absent and taken --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("option", "kind"), [({"mic": "hw:7"}, "mic"), ({"speaker": "hw:7"}, "speaker")])
def test_a_device_id_that_does_not_exist(talk, option, kind):
    """A missing device that was selected by id is a DeviceError, and leaves nothing behind."""
    session = talk(**option)
    for _ in range(2):
        with pytest.raises(DeviceError, match="hw:7") as caught:
            session.prepare()
        assert caught.value.type == "not-found"
        kept = getattr(session.manager.status_reporter.state, kind).error
        assert (str(kept), kept.type, kept.__traceback__) == (str(caught.value), "not-found", None)
    assert media_threads() == []


# -- replacing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("frames", "heard"), [(8000, b"\x03\0"), (8001, b"\x02\0")])
def test_channels_of_a_long_piece_are_not_mixed(talk, frames, heard):
    """Of a frame longer than 1 s only the first channel is played, because mixing it blocks all sessions."""
    sink = BytesSink()
    session = talk(speaker=sink).begin()
    session.hear(b"\x02\0\x04\0" * frames, rate=8000, channels=2)
    assert sink.pcm == heard * frames


def test_a_source_set_without_a_session(talk, timer):
    """Between sessions set_mic() and set_speaker() select the next one; an unknown id is refused at once."""
    session = talk()
    sink = BytesSink()
    session.manager.select("mic", ToneSource())
    session.manager.select("speaker", sink)
    with pytest.raises(DeviceError):
        session.manager.select("mic", "nowhere")
    with pytest.raises(DeviceError):
        session.manager.select("speaker", "nowhere")
    session.begin()
    timer.advance(0.0)
    session.hear(b"ab")
    assert session.sent == ToneSource().read(320)
    assert sink.pcm == b"ab"


def test_defaults_that_are_absent_replace_nothing(talk, timer):
    """Selecting the missing default devices again is an error, and the present ones continue."""
    sink = BytesSink()
    session = talk(mic=ToneSource(), speaker=sink).begin()
    track = session.manager.tracks().local.audio
    for kind in ("mic", "speaker"):
        with pytest.raises(DeviceError, match="by default"):
            session.manager.select(kind, None)
    session.hear(b"ab")
    timer.advance(0.0)
    assert session.sent == ToneSource().read(320)
    assert sink.pcm == b"ab"
    assert session.manager.tracks().local.audio is track
    assert track.ready_state == "live"
    assert session.events == []


# -- life ------------------------------------------------------------------------------------------------------------


def test_many_sessions_one_after_the_other(talk, timer):
    """Ten sessions of one manager, with sources and sinks of the application, leave no thread."""
    heard: list[bytes] = []
    session = talk(
        mic=CallbackSource(lambda frames: b"\1\1" * frames), speaker=CallbackSink(lambda pcm, rate: heard.append(pcm))
    )
    for number in range(10):
        session.begin()
        session.hear(bytes([number]) * 2)
        timer.advance(0.1)
        assert session.manager.stop(GUARD) == []
        assert media_threads() == []
    assert heard == [bytes([number]) * 2 for number in range(10)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_starts_afresh(talk, timer):
    """In the child of a fork neither the parent's session nor a lock that it held blocks a new session."""
    source = ToneSource()
    session = talk(mic=source).begin()
    with part_probes.lock_of(session.manager):
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)  # a child that hangs must not outlive the test
            try:
                assert session.manager.stop(1.0) == []
                session.chunks.clear()
                session.begin()
                timer.advance(0.02)
                assert session.chunks[0] == ToneSource().read(320)
                os._exit(0)
            finally:
                os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    timer.advance(0.02)
    assert session.sent == ToneSource().read(640)


def test_importing_media_is_light():
    """The package loads neither numpy nor an audio library nor asyncio."""
    heavy = {"numpy", "pyaudio", "cv2", "audioop", "asyncio", "wave"}
    code = f"import sys, rtvi_sync.media.manager; print({heavy} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.strip() == b"set()"


def test_a_manager_without_a_client(until, workers, monkeypatch):
    """A transport that is tested by itself has one without a runtime; its sinks get their audio all the same."""
    monkeypatch.setattr("rtvi_sync.media.manager.WorkerPool", lambda: workers)  # ended below
    heard: list[bytes] = []
    manager = MediaManager(mic=False, speaker=CallbackSink(lambda pcm, _: heard.append(pcm)))
    manager.prepare(video=False)
    manager.receive_audio(b"\1\1", 16_000, 1)
    until(lambda: heard == [b"\1\1"])
    assert manager.stop(GUARD) == []
    workers.close()
    for thread in workers.threads():
        thread.join(GUARD)


def test_continuous_audio(talk):
    """Silence without end is no audio of the bot, and what was on its way after an interruption is dropped."""
    sink = BytesSink()
    session = talk(speaker=sink)
    session.manager.expect(SimpleNamespace(timer=session.timer, workers=session.workers))
    session.manager.prepare(video=False, is_continuous=True)
    speech, silence = b"\x00\x10" * 480, bytes(960)
    for pcm in (silence, speech, *[silence] * 30, speech):
        session.hear(pcm)
    session.manager.interrupt()
    session.hear(speech)
    assert bytes(sink.pcm) == speech + silence * 15 + speech


def test_pictures_that_are_wanted(talk):
    """Pictures are wanted until the first one makes the track, then while it is read, and never without a session."""
    session = talk()
    assert not session.manager.wants_video
    session.prepare()
    assert session.manager.wants_video
    session.manager.receive_video(VideoFrame(image=bytes(3), width=1, height=1, timestamp=0.0))
    assert not session.manager.wants_video
    reader = session.manager.tracks().bot.video.frames()
    assert session.manager.wants_video
    del reader
    assert not session.manager.wants_video
