"""The media manager: missing and leased devices, their replacement, and the end."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading

import pytest

from rtvi_sync.errors import DeviceError
from rtvi_sync.media import BytesSink, BytesSource, CallbackSink, CallbackSource, SilenceSource, ToneSource, WavSink
from rtvi_sync.media.manager import MediaManager
from rtvi_sync.media.session import MediaCounters
from tests.support.slowness import GUARD

from .conftest import Talk

LIMIT = GUARD


def media_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("rtvi-mic", "rtvi-speaker"))]


# -- absent and taken --------------------------------------------------------------------------------------------------


def test_absent_default_devices_are_not_fatal(talk, timer, caplog):
    """Without devices there is one warning and one event, and the session sends and plays nothing."""
    session = talk(mic=None, speaker=None).begin()
    timer.advance(1.0)
    session.hear(bytes(960))
    session.manager.interrupt()
    session.manager.enable_mic(False)
    assert session.chunks == []
    ((event, error),) = session.events
    assert event == "deviceError"
    assert (error.devices, error.type) == (("mic", "speaker"), "not-found")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "There is no sound device by default. Without one pass mic=" in record.getMessage()
    assert session.manager.stop(1.0) == []


def test_a_missing_microphone_matters_once_it_is_enabled(talk):
    """With enable_mic=False no microphone is reported missing until it is switched on."""
    session = talk(mic=None, enable_mic=False).begin()
    assert session.events == []
    session.manager.enable_mic(True)
    assert [error.devices for _, error in session.events] == [("mic",)]


@pytest.mark.parametrize(("option", "kind"), [({"mic": "hw:7"}, "mic"), ({"speaker": "hw:7"}, "speaker")])
def test_a_device_id_that_does_not_exist(talk, option, kind):
    """A missing device that was selected by id is a DeviceError, and leaves nothing behind."""
    session = talk(**option)
    for _ in range(2):
        with pytest.raises(DeviceError, match="hw:7") as caught:
            session.prepare()
        assert caught.value.type == "not-found"
        assert getattr(session.manager.status_reporter.state, kind).error is caught.value
    assert media_threads() == []


def test_what_was_opened_first_is_closed_when_the_second_fails(talk):
    """If the speaker cannot be opened, the source is closed and its thread ends before prepare() raises."""
    closes: list[str] = []
    source = CallbackSource(lambda frames: b"")
    source.close = lambda: closes.append("close")
    with pytest.raises(DeviceError):
        talk(mic=source, speaker="nowhere").prepare()
    assert closes == ["close"]
    assert media_threads() == []
    assert source.wait() is False
    talk(mic=source).prepare()


@pytest.mark.parametrize("wrong", [42, b"bytes", object(), open])
def test_something_else_is_a_type_error(wrong):
    """A choice that is neither None, an id nor an object of the right kind is refused at once, with an example."""
    with pytest.raises(TypeError, match="WavSource"):
        MediaManager(mic=wrong)
    with pytest.raises(TypeError, match="WavSink"):
        MediaManager(speaker=wrong)
    with pytest.raises(TypeError, match="WavSource"):
        MediaManager().select("mic", wrong)


@pytest.mark.parametrize("rate", [None, 0, 44100.0, "16000", ZeroDivisionError("no rate")])
def test_a_source_without_a_usable_rate(talk, rate):
    """An invalid or missing rate is a DeviceError that names the source."""

    class Source(SilenceSource):
        @property
        def sample_rate_hz(self):
            if isinstance(rate, Exception):
                raise rate
            return rate

    with pytest.raises(DeviceError, match="Source has no usable sample_rate_hz"):
        talk(mic=Source()).prepare()


@pytest.mark.parametrize(
    ("option", "make"),
    [
        ("mic", lambda path: ToneSource()),
        ("mic", lambda path: CallbackSource(lambda frames: bytes(2 * frames))),
        ("speaker", lambda path: BytesSink()),
        ("speaker", lambda path: CallbackSink(print)),
        ("speaker", lambda path: WavSink(path / "a.wav")),
    ],
)
def test_a_source_or_sink_belongs_to_one_session(talk, option, make, tmp_path):
    """While one session uses an object another session cannot; afterwards it can."""
    thing = make(tmp_path)
    first, second = talk(**{option: thing}).prepare(), talk(**{option: thing})
    with pytest.raises(DeviceError, match="used by another session") as caught:
        second.prepare()
    assert (caught.value.type, caught.value.devices) == ("in-use", (option,))
    first.manager.stop(LIMIT)
    second.prepare()


# -- replacing -------------------------------------------------------------------------------------------------------


def test_a_source_is_replaced_while_it_runs(talk, timer):
    """The old source ends at once and is released; the new one starts with its first sample at its own rate."""
    old, new = ToneSource(440, 1.0), BytesSource(bytes(range(2, 242)) * 4, 24000)
    session = talk(mic=old).begin()
    track = session.manager.tracks().local.audio
    frames = track.frames()
    timer.advance(0.09)
    session.manager.select("mic", new)
    assert old.wait() is False
    timer.advance(0.03)
    assert new.wait(0) is True
    assert session.rates == [16000] * 5 + [24000] * 2
    assert b"".join(session.chunks[5:]) == bytes(range(2, 242)) * 4 + bytes(960)
    assert session.manager.tracks().local.audio is track
    assert (track.label, track.ready_state) == ("BytesSource", "live")
    talk(mic=old).prepare()
    session.manager.stop(1.0)
    assert [frame.pcm for frame in frames] == session.chunks


def test_a_users_source_is_replaced(talk, timer, until):
    """Threads of replaced sources have ended when set_mic() returns; a muted microphone stays muted."""
    session = talk(mic=CallbackSource(lambda frames: b"\1\1" * frames)).begin()
    until(media_threads)
    session.manager.enable_mic(False)
    session.manager.select("mic", CallbackSource(lambda frames: b"\2\2" * frames))
    assert len(media_threads()) == 1
    timer.advance(1.0)
    assert session.chunks == []
    session.manager.enable_mic(True)
    session.manager.select("mic", ToneSource())
    assert media_threads() == []
    timer.advance(0.01)
    assert session.sent == ToneSource().read(320)


def test_replacing_by_itself_changes_nothing(talk, timer):
    """A source that is in use already continues where it is."""
    source = ToneSource()
    session = talk(mic=source).begin()
    timer.advance(0.09)
    session.manager.select("mic", source)
    timer.advance(0.1)
    assert session.sent == ToneSource().read(10 * 320)


def test_a_replacement_that_fails_leaves_the_old_one(talk, timer):
    """If the new source or sink cannot be opened, the old one continues."""
    sink, taken = BytesSink(), SilenceSource()
    session = talk(mic=ToneSource(), speaker=sink).begin()
    talk(mic=taken).prepare()
    with pytest.raises(DeviceError, match="another session"):
        session.manager.select("mic", taken)
    with pytest.raises(DeviceError, match="nowhere"):
        session.manager.select("mic", "nowhere")
    with pytest.raises(DeviceError, match="nowhere"):
        session.manager.select("speaker", "nowhere")
    timer.advance(0.09)
    session.hear(b"ab")
    assert session.sent == ToneSource().read(5 * 320)
    assert sink.pcm == b"ab"


@pytest.mark.parametrize(("frames", "heard"), [(8000, b"\x03\0"), (8001, b"\x02\0")])
def test_channels_of_a_long_piece_are_not_mixed(talk, frames, heard):
    """Of a frame longer than 1 s only the first channel is played, because mixing it blocks all sessions."""
    sink = BytesSink()
    session = talk(speaker=sink).begin()
    session.hear(b"\x02\0\x04\0" * frames, rate=8000, channels=2)
    assert sink.pcm == heard * frames


def test_a_source_set_between_prepare_and_start(talk, timer):
    """Before the bot is ready the new source waits for it like the old one."""
    session = talk(mic=SilenceSource()).prepare()
    session.manager.select("mic", ToneSource())
    timer.advance(1.0)
    assert session.chunks == []
    session.manager.start(session.send)
    timer.advance(0.0)
    assert session.sent == ToneSource().read(320)


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


def test_a_sink_is_replaced_while_it_runs(talk):
    """The old sink gets all earlier audio and is closed; the new one gets the later audio."""
    heard: list[int] = []
    session = talk(speaker=CallbackSink(lambda pcm, rate: heard.append(pcm[0]))).prepare()
    for number in range(10):
        session.hear(bytes([number]) * 960)
    sink = BytesSink()
    session.manager.select("speaker", sink)
    session.hear(b"ab")
    assert heard == list(range(10))
    assert sink.pcm == b"ab"
    assert media_threads() == []


def with_a_source_that_hangs(talk, monkeypatch) -> tuple[Talk, threading.Event]:
    """Return a session whose source blocks in its read() until the event is set, with short timeouts."""
    monkeypatch.setattr("rtvi_sync.media.device_slots.END_TIMEOUT", 0.05)
    entered, hang = threading.Event(), threading.Event()

    def fn(frames: int) -> bytes:
        entered.set()
        hang.wait(LIMIT)
        return b""

    session = talk(mic=CallbackSource(fn)).begin()
    assert entered.wait(LIMIT)
    return session, hang


def test_a_replaced_source_that_hangs_is_reported_by_stop(talk, timer, monkeypatch):
    """set_mic() waits for a hanging source for a limited time only; stop() returns its thread."""
    session, hang = with_a_source_that_hangs(talk, monkeypatch)
    session.manager.select("mic", ToneSource())
    (thread,) = session.manager.stop(1.0)
    assert thread.name.startswith("rtvi-mic")
    hang.set()
    thread.join(LIMIT)


def test_a_replaced_source_that_ends_late_is_not_reported(talk, timer, monkeypatch):
    """A hanging source that has returned before the end of the session is not in the result."""
    session, hang = with_a_source_that_hangs(talk, monkeypatch)
    (thread,) = (each for each in threading.enumerate() if each.name.startswith("rtvi-mic"))
    session.manager.select("mic", ToneSource())
    hang.set()
    thread.join(LIMIT)
    assert session.manager.stop(1.0) == []


def test_what_was_not_played_is_logged(talk, caplog):
    """Audio that a slow sink has lost is logged when the losses begin, and all of it at the end."""
    entered, hang = threading.Event(), threading.Event()
    sink = CallbackSink(lambda pcm, rate: (entered.set(), hang.wait(LIMIT)))
    session = talk(speaker=sink, max_queued_audio_bytes=20_000).begin()
    session.hear(bytes(9600))
    assert entered.wait(LIMIT)
    for _ in range(7):
        session.hear(bytes(9600))
    assert ["audio that waited for CallbackSink" in record.getMessage() for record in caplog.records] == [True]
    hang.set()
    session.manager.stop(LIMIT)
    assert caplog.records[-1].getMessage() == "1.00 s of the bot's audio were dropped in this session"


def test_counters_go_on_when_parts_are_replaced(talk, timer):
    """The losses of a replaced source and sink still count after the replacement, but not in the next session."""
    entered, hang = threading.Event(), threading.Event()

    def slow_source(frames: int) -> bytes:
        hang.wait(LIMIT)
        return b""

    def slow_sink(pcm: bytes, rate: int) -> None:
        entered.set()
        hang.wait(LIMIT)

    session = talk(
        mic=CallbackSource(slow_source), speaker=CallbackSink(slow_sink), max_queued_audio_bytes=20_000
    ).begin()
    session.hear(bytes(12_000))
    assert entered.wait(LIMIT)
    for _ in range(5):
        session.hear(bytes(12_000))
    timer.advance(0.05)
    before = session.manager.counters
    assert before == MediaCounters(mic_underruns=3, speaker_dropped_seconds=1.0)
    hang.set()
    session.manager.select("mic", ToneSource())
    session.manager.select("speaker", BytesSink())
    timer.advance(0.05)
    assert session.manager.counters == before
    session.manager.stop(LIMIT)
    assert session.manager.counters == before
    session.prepare()
    assert session.manager.counters == MediaCounters()


# -- life ------------------------------------------------------------------------------------------------------------


def test_stop_is_idempotent_and_leaves_nothing(talk, timer):
    """After stop() no thread and no task is left; a second stop() and late calls do nothing."""
    session = talk(
        mic=CallbackSource(lambda frames: bytes(2 * frames)), speaker=CallbackSink(lambda pcm, rate: None)
    ).begin()
    assert len(media_threads()) == 2
    assert session.manager.stop(LIMIT) == []
    assert media_threads() == []
    assert timer.live() == []
    assert session.manager.stop(LIMIT) == []
    session.manager.start(session.send)
    session.manager.interrupt()
    session.manager.pause()
    session.hear(b"ab")
    timer.advance(1.0)
    assert session.chunks == []


def test_stop_without_start(talk):
    """A session that never became ready is stopped as usual, and its source is closed unread."""
    calls: list[str] = []
    source = CallbackSource(lambda frames: calls.append("read") or b"")
    source.close = lambda: calls.append("close")
    session = talk(mic=source).prepare()
    assert session.manager.stop(LIMIT) == []
    assert calls == ["close"]


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
        assert session.manager.stop(LIMIT) == []
        assert media_threads() == []
    assert heard == [bytes([number]) * 2 for number in range(10)]


def test_preparing_twice_keeps_the_devices(talk, timer):
    """A second prepare() before stop(), after init_devices() for example, opens only what is not open."""
    session = talk(mic=ToneSource(), speaker=BytesSink()).prepare()
    tracks = session.manager.tracks()
    session.prepare()
    assert session.manager.tracks() == tracks
    session.hear(b"ab", 24000)
    session.hear(b"ab", 16000)
    assert len(session.events) == 1


def test_a_prepare_that_was_overtaken_by_stop_leaves_nothing(talk):
    """If the session ends during a call of its source, prepare() raises late and no lease remains."""
    entered, go = threading.Event(), threading.Event()

    class Slow(SilenceSource):
        @property
        def sample_rate_hz(self) -> int:
            entered.set()
            go.wait(LIMIT)
            return 16000

    source, outcome = Slow(), []
    session = talk(mic=source)

    def prepare() -> None:
        try:
            session.prepare()
        except DeviceError as error:
            outcome.append(str(error))

    thread = threading.Thread(target=prepare)
    thread.start()
    assert entered.wait(LIMIT)
    assert session.manager.stop(0.1) == []
    go.set()
    thread.join(LIMIT)
    assert outcome == ["The session ended while its devices were being prepared"]
    assert media_threads() == []
    session.prepare()


def test_start_after_the_pacer_has_closed(talk):
    """A bot that becomes ready just as the last session ends does no harm; otherwise the error is not hidden."""

    class Closed:
        def add(self, step, first):
            session.manager.stop(1.0)
            raise RuntimeError("closed")

    session = talk().prepare(timer=Closed())
    session.manager.start(session.send)

    class Broken:
        def add(self, step, first):
            raise RuntimeError("can't start new thread")

    session.prepare(timer=Broken())
    with pytest.raises(RuntimeError, match="start new thread"):
        session.manager.start(session.send)


def test_no_thread_to_be_had(talk, monkeypatch):
    """If the process can start no thread, prepare() raises and the source stays free."""

    def refuse(role, target, *args):
        raise RuntimeError("can't start new thread")

    source = CallbackSource(lambda frames: b"")
    session = talk(mic=source)
    with monkeypatch.context() as patch:
        patch.setattr("rtvi_sync.media.device_thread.start_thread", refuse)
        with pytest.raises(RuntimeError, match="start new thread"):
            session.prepare()
    session.prepare()


def test_enabling_from_many_threads_ends_in_one_state(talk, timer):
    """However mute and unmute race, the sent audio agrees with mic_enabled."""
    session = talk(mic=ToneSource()).begin()
    barrier = threading.Barrier(4)

    def toggle(enable: bool) -> None:
        barrier.wait(LIMIT)
        for _ in range(200):
            session.manager.enable_mic(enable)

    togglers = [threading.Thread(target=toggle, args=(enable,)) for enable in (True, False) * 2]
    for thread in togglers:
        thread.start()
    for thread in togglers:
        thread.join(LIMIT)
    timer.advance(2.0)
    session.chunks.clear()
    timer.advance(1.0)
    assert bool(session.chunks) is session.manager.settings.mic


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_starts_afresh(talk, timer):
    """In the child of a fork neither the parent's session nor a lock that it held blocks a new session."""
    source = ToneSource()
    session = talk(mic=source).begin()
    with session.manager._lock:
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
