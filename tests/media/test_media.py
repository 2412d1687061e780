"""A client's media: missing and leased devices, one session after the other, in any order of calls."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.errors import DeviceError
from rtvi_sync.media import (
    BytesSink,
    BytesSource,
    CallbackSink,
    CallbackSource,
    SilenceSource,
    ToneSource,
    VideoFrame,
)
from rtvi_sync.media.leases import Lease
from rtvi_sync.media.media import Media
from rtvi_sync.media.sources import SourceRun
from tests.support import limits, part_probes
from tests.support.slowness import GUARD, takes
from tests.support.threads import InThread, holding, media_threads, running
from tests.support.waiting import until

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
        kept = getattr(session.manager.state, kind).error
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
    """In the child of a fork, the parent's session and the locks that it held do not block a new session."""
    source = ToneSource()
    session = talk(mic=source).begin()
    with holding(part_probes.lock_of(session.manager)):
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)  # a child that hangs must not outlive the test
            try:
                assert session.manager.session is None
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
    """The package does not load numpy, an audio library or asyncio."""
    heavy = {"numpy", "pyaudio", "cv2", "audioop", "asyncio", "wave"}
    code = f"import sys, rtvi_sync.media.media; print({heavy} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.strip() == b"set()"


def test_a_manager_without_a_client(until, workers, monkeypatch):
    """A transport that is tested by itself has one without a runtime; its sinks still get their audio."""
    monkeypatch.setattr("rtvi_sync.media.media.WorkerPool", lambda: workers)  # ended below
    heard: list[bytes] = []
    manager = Media(mic=False, speaker=CallbackSink(lambda pcm, _: heard.append(pcm)))
    manager.prepare(video=False)
    manager.receive_audio(b"\1\1", 16_000, 1)
    until(lambda: heard == [b"\1\1"])
    assert manager.stop(GUARD) == []
    workers.close()
    for thread in workers.threads():
        thread.join(GUARD)


def test_continuous_audio(talk):
    """Endless silence does not count as audio of the bot, and audio still in flight after an interruption is
    dropped.
    """
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


AT_ONCE = Deadline(0.0)


def test_a_source_set_between_prepare_and_start(talk, timer):
    """Before the bot is ready the new source waits for it like the old one."""
    session = talk(mic=SilenceSource()).prepare()
    session.manager.select("mic", ToneSource())
    timer.advance(1.0)
    assert session.chunks == []
    session.manager.start(session.send)
    timer.advance(0.0)
    assert session.sent == ToneSource().read(320)


def test_stop_is_idempotent_and_leaves_nothing(talk, timer):
    """After stop() no thread and no task is left; a second stop() and late calls do nothing."""
    session = talk(
        mic=CallbackSource(lambda frames: bytes(2 * frames)), speaker=CallbackSink(lambda pcm, rate: None)
    ).begin()
    assert len(media_threads()) == 1  # the source's
    assert session.manager.stop(GUARD) == []
    assert media_threads() == []
    assert timer.live() == []
    assert session.manager.stop(GUARD) == []
    session.manager.start(session.send)
    session.manager.interrupt()
    session.manager.pause()
    session.hear(b"ab")
    timer.advance(1.0)
    assert session.chunks == []


def test_nothing_is_sent_after_pause(talk, timer):
    """From the return of pause() on nothing is sent, and the bot is still heard."""
    sink = BytesSink()
    session = talk(mic=ToneSource(), speaker=sink).begin()
    timer.advance(0.1)
    before = len(session.chunks)
    session.manager.pause()
    timer.advance(0.1)
    session.hear(b"ab")
    assert before
    assert len(session.chunks) == before
    assert sink.pcm == b"ab"


def test_nothing_is_sent_after_pause_from_other_sources(talk, timer):
    """After pause(), questions that are being said, and sources that are set later, send nothing."""
    session = talk(mic=ToneSource()).begin()
    session.manager.mic.insert(ToneSource(), AT_ONCE)
    timer.advance(0.1)
    before = len(session.chunks)
    session.manager.pause()
    session.manager.select("mic", ToneSource())
    with pytest.raises(DeviceError):
        session.manager.mic.insert(ToneSource(), AT_ONCE)
    timer.advance(0.1)
    assert before
    assert len(session.chunks) == before


def test_pause_before_prepare(talk):
    """A session may end before it has reached its devices."""
    session = talk(mic=ToneSource())
    session.manager.pause()
    session.begin()


def test_stop_without_start(talk):
    """A session that never became ready is stopped as usual, and its source is closed unread."""
    calls: list[str] = []

    def read(frames: int) -> bytes:
        calls.append("read")
        return b""

    class Source(CallbackSource):
        def close(self) -> None:
            calls.append("close")

    session = talk(mic=Source(read)).prepare()
    assert session.manager.stop(GUARD) == []
    assert calls == ["close"]


def test_preparing_twice_keeps_the_devices(talk, timer):
    """A second prepare() before stop(), after init_devices() for example, opens only devices that are not open."""
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
            go.wait(GUARD)
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
    assert entered.wait(GUARD)
    assert session.manager.stop(0.1) == []
    go.set()
    thread.join(GUARD)
    assert outcome == ["The session ended while its devices were being prepared"]
    assert media_threads() == []
    session.prepare()


def test_what_needs_no_check_starts_no_timer_thread(talk, timer):
    """With the microphone off and a sink there is nothing to check over time, until the microphone is wanted."""
    session = talk(mic=None, enable_mic=False, speaker=BytesSink()).begin()
    session.hear(bytes(960))
    assert timer.tasks == []
    session.manager.enable_mic(True)
    assert len(timer.live()) == 1


def test_start_after_the_timer_thread_has_closed(talk):
    """A bot that becomes ready just as the last session ends does no harm; otherwise the error is not hidden."""

    class Closed:
        now = time.monotonic

        def add(self, step, first):
            session.manager.stop(1.0)
            raise RuntimeError("closed")

    session = talk().prepare(timer=Closed())
    session.manager.start(session.send)

    class Broken:
        now = time.monotonic

        def add(self, step, first):
            raise RuntimeError("can't start new thread")

    session.prepare(timer=Broken())
    with pytest.raises(RuntimeError, match="start new thread"):
        session.manager.start(session.send)


def test_enabling_from_many_threads_ends_in_one_state(talk, timer):
    """However mute and unmute race, the sent audio agrees with mic_enabled."""
    session = talk(mic=ToneSource()).begin()
    barrier = threading.Barrier(4)

    def toggle(enable: bool) -> None:
        barrier.wait(GUARD)
        for _ in range(200):
            session.manager.enable_mic(enable)

    togglers = [threading.Thread(target=toggle, args=(enable,)) for enable in (True, False) * 2]
    for thread in togglers:
        thread.start()
    for thread in togglers:
        thread.join(GUARD)
    timer.advance(2.0)
    session.chunks.clear()
    timer.advance(1.0)
    assert bool(session.chunks) is session.manager.settings.mic


@pytest.mark.parametrize(
    ("choice", "advice"), [(None, "send in real time"), (BytesSink(), "raise max_queued_audio_bytes")]
)
def test_what_to_do_about_losses(talk, monkeypatch, caplog, choice, advice):
    """The limit of a loudspeaker is fixed, and no option changes it."""
    session = talk().begin()
    with monkeypatch.context() as patch:
        slot = session.manager.speaker
        patch.setattr(slot, "component", SimpleNamespace(write=lambda *_: 1.5))
        patch.setattr(slot, "choice", choice)
        session.hear(bytes(960))
    assert advice in caplog.text


@pytest.mark.parametrize("finish", [SourceRun.end, SourceRun.all_sent])
def test_who_waits_for_the_end_of_a_run_is_called_once(finish):
    """A callback that waits for the end of a run is called once, at whichever time and however often it ends."""
    run, calls = SourceRun(), []
    run.when_over(lambda: calls.append("before"))
    assert not calls
    finish(run)
    run.end()
    run.when_over(lambda: calls.append("after"))
    assert calls == ["before", "after"]


class TestInserted:
    """A source that speaks in the microphone's place."""

    def test_while_the_microphone_is_off(self, talk, timer):
        """A question in place of a muted microphone is sent, then silence until it is removed, then nothing."""
        session = talk(mic=ToneSource(), enable_mic=False).begin()
        insertion = session.manager.mic.insert(BytesSource(b"ab" * 320, 16000), AT_ONCE)
        timer.advance(0.1)
        assert session.sent.startswith(b"ab" * 320 + bytes(640))
        assert insertion.run.sent
        session.manager.mic.remove(insertion)
        session.chunks.clear()
        timer.advance(0.1)
        assert session.chunks == []

    def test_the_microphone_is_sending(self, talk, timer):
        """The first audio of a question waits until the microphone's last is sent: transports take one at a time."""
        inside, go_on, second = threading.Event(), threading.Event(), threading.Event()

        def send(pcm, _):
            if inside.is_set():
                second.set()
            else:
                inside.set()
                assert go_on.wait(GUARD)

        session = talk(mic=ToneSource()).prepare()
        session.manager.start(send)
        microphone = InThread(lambda: timer.advance(0.0))
        assert inside.wait(GUARD)
        session.manager.mic.insert(BytesSource(b"ab" * 320, 16000), AT_ONCE)
        asking = InThread(lambda: timer.tasks[-1].step(timer.time))
        assert not second.wait(0.1)
        go_on.set()
        microphone.get()
        asking.get()
        assert second.is_set()

    def test_the_microphones_source_waits(self, talk, timer):
        """The microphone's source waits during an insertion, and none of its samples is lost."""
        session = talk(mic=ToneSource()).begin()
        timer.advance(0.1)
        before = session.sent
        insertion = session.manager.mic.insert(BytesSource(b"ab" * 320, 16000), AT_ONCE)
        session.chunks.clear()
        timer.advance(2.98)  # no whole number of periods of the tone
        assert session.sent.rstrip(b"\0") == b"ab" * 320
        session.manager.mic.remove(insertion)
        session.chunks.clear()
        timer.advance(0.1)
        assert session.sent
        assert before + session.sent == ToneSource().read(len(before + session.sent) // 2)

    @pytest.mark.parametrize("order", [(1, 0), (0, 1)])
    def test_two(self, talk, timer, order):
        """Of two insertions the last one speaks; the first one goes on when the last one is removed."""
        session = talk(mic=None, enable_mic=False).begin()
        insertions = [session.manager.mic.insert(ToneSource(), AT_ONCE)]
        timer.advance(0.1)
        first = session.sent
        session.chunks.clear()
        insertions.append(session.manager.mic.insert(BytesSource(b"ab" * 320, 16000), AT_ONCE))
        timer.advance(2.0)
        assert session.sent.rstrip(b"\0") == b"ab" * 320
        session.manager.mic.remove(insertions[order[0]])
        session.chunks.clear()
        timer.advance(0.1)
        if order[0] == 1:
            assert session.sent
            assert first + session.sent == ToneSource().read(len(first + session.sent) // 2)
        else:
            assert not session.sent.strip(b"\0")
        session.manager.mic.remove(insertions[order[1]])
        session.chunks.clear()
        timer.advance(2.0)
        assert session.chunks == []

    def test_the_end_of_the_session_releases_the_source(self, talk, timer):
        """The end of the session releases an inserted source; late calls do no harm."""
        source = CallbackSource(lambda frames: bytes(2 * frames))
        session = talk(mic=None, enable_mic=False).begin()
        insertion = session.manager.mic.insert(source, AT_ONCE)
        assert session.manager.stop(GUARD) == []
        session.manager.mic.remove(insertion)
        with pytest.raises(DeviceError):
            session.manager.mic.insert(source, AT_ONCE)
        session.begin()
        session.manager.mic.remove(session.manager.mic.insert(source, AT_ONCE))

    def test_the_session_ends_meanwhile(self, talk, timer, monkeypatch):
        """A source that is set after the end is refused and released, on any thread."""
        source = CallbackSource(lambda frames: bytes(2 * frames))
        session = talk(mic=None, enable_mic=False).begin()
        sent = session.manager.sent()
        end = sent.end

        def end_late() -> None:
            with running(lambda: session.manager.mic.insert(source, AT_ONCE)) as inserting:
                assert "has ended" in str(inserting.error())
            end()

        monkeypatch.setattr(sent, "end", end_late)
        assert session.manager.stop(GUARD) == []
        until(lambda: not media_threads())
        Lease(source, "mic").release()

    def test_it_does_not_return(self, talk, timer):
        """The microphone speaks at once. No second thread reads the source, not after the session either."""
        reading, go_on, reads = threading.Event(), threading.Event(), []

        def read(frames: int) -> bytes:
            reads.append(threading.get_ident())
            reading.set()
            assert go_on.wait(GUARD)
            return b""

        source = CallbackSource(read)
        session = talk(mic=ToneSource()).begin()
        with takes(1.0):
            insertion = session.manager.mic.insert(source, AT_ONCE)
            assert reading.wait(GUARD)
            session.manager.mic.remove(insertion)
        timer.advance(0.1)
        assert session.sent.strip(b"\0")
        with pytest.raises(DeviceError, match="has not returned yet"):
            session.manager.mic.insert(source, AT_ONCE)
        assert len(reads) == 1
        assert len(session.manager.stop(0.0)) == 1
        with pytest.raises(DeviceError, match="has not returned yet"):
            Lease(source, "mic")
        go_on.set()
        Lease(source, "mic", Deadline(GUARD)).release()

    def test_it_returns_late(self, talk, monkeypatch):
        """A source whose read returns late can be said again, as soon as that is done."""
        limits.patch(monkeypatch, source_end=GUARD)
        reading, go_on = threading.Event(), threading.Event()

        def read(frames: int) -> bytes:
            reading.set()
            assert go_on.wait(GUARD)
            return b""

        source = CallbackSource(read)
        session = talk(mic=ToneSource()).begin()
        first = session.manager.mic.insert(source, Deadline(GUARD))
        assert reading.wait(GUARD)
        session.manager.mic.remove(first)
        inserting = InThread(lambda: session.manager.mic.insert(source, Deadline(GUARD)))
        until(part_probes.thread_sleeps(inserting.thread))
        go_on.set()
        second = inserting.get()
        session.manager.mic.remove(second)
        assert session.manager.stop(GUARD) == []

    def test_a_source_that_is_in_use(self, talk):
        """A source that is the microphone already is refused as a question, and the microphone goes on."""
        source = ToneSource()
        session = talk(mic=source).begin()
        with pytest.raises(DeviceError, match="This source is this client's microphone already") as raised:
            session.manager.mic.insert(source, AT_ONCE)
        assert raised.value.type == "in-use"

    def test_no_audio(self, talk):
        """A question without a session is refused."""
        with pytest.raises(DeviceError, match="no session"):
            talk().manager.mic.insert(ToneSource(), AT_ONCE)

    def test_all_that_is_sent(self, talk, timer):
        """One track has all audio that is sent, from whichever source."""
        session = talk(mic=ToneSource()).begin()
        frames = session.manager.sent().frames()
        timer.advance(0.1)
        insertion = session.manager.mic.insert(BytesSource(b"ab" * 320, 16000), AT_ONCE)
        timer.advance(0.1)
        session.manager.mic.remove(insertion)
        timer.advance(0.1)
        assert b"".join(frame.pcm for frame in frames.take()) == session.sent
