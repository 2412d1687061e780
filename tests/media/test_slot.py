"""Slots: devices that cannot be used, replacements, and the leftovers of predecessors."""

from __future__ import annotations

import threading

import pytest

from rtvi_sync.errors import DeviceError
from rtvi_sync.events import RTVIEvent
from rtvi_sync.media import BytesSink, BytesSource, CallbackSink, CallbackSource, SilenceSource, ToneSource, WavSink
from rtvi_sync.media.pcm import wav_header
from rtvi_sync.media.slot import MediaCounters
from tests.support.slowness import GUARD
from tests.support.talk import Talk
from tests.support.threads import media_threads
from tests.support.waiting import until

pytestmark = pytest.mark.inside


class FailingOnce(BytesSink):
    """A sink that a session calls on a worker, whose first call fails."""

    failed = False

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        if not self.failed:
            self.failed = True
            raise OSError("the disk is full")
        super().write(pcm, sample_rate_hz)


class Film:
    """Video without an image."""

    reads = 0

    def read(self) -> None:
        self.reads += 1

    def close(self) -> None:
        """Do nothing."""


def test_a_source_is_replaced_while_it_runs(talk, timer):
    """The old source ends at once and is released; the new one starts with its first sample at its own rate."""
    old, new = ToneSource(440, 1.0), BytesSource(bytes(range(2, 242)) * 4, 24000)
    session = talk(mic=old).begin()
    track = session.manager.tracks().local.audio
    frames = track.frames()
    timer.advance(0.09)
    states = session.events_of(RTVIEvent.MEDIA_STATE_UPDATED)
    session.manager.select("mic", new)
    assert session.events_of(RTVIEvent.MEDIA_STATE_UPDATED) == states  # it is "granted", as before
    assert old.wait() is False
    timer.advance(0.03)
    assert new.wait(0) is True
    assert session.rates == [16000] * 5 + [24000] * 2
    assert b"".join(session.chunks[5:]) == bytes(range(2, 242)) * 4 + bytes(960)
    assert session.manager.tracks().local.audio is track
    assert (track.label, track.ready_state) == ("BytesSource", "live")
    assert [data.track for data in session.events_of(RTVIEvent.TRACK_STARTED)] == [track]
    talk(mic=old).prepare()
    session.manager.stop(1.0)
    assert [frame.pcm for frame in frames] == session.chunks


def test_a_users_source_is_replaced(talk, timer, until):
    """Threads of replaced sources have ended when set_mic() returns; a muted microphone stays muted, and the new source
    gets its thread when it is not."""
    session = talk(mic=CallbackSource(lambda frames: b"\1\1" * frames)).begin()
    until(media_threads)
    session.manager.enable_mic(False)
    session.manager.select("mic", CallbackSource(lambda frames: b"\2\2" * frames))
    assert media_threads() == []
    timer.advance(1.0)
    assert session.chunks == []
    session.manager.enable_mic(True)
    until(media_threads)
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


def test_a_source_that_has_ended_is_chosen_again(talk, timer, until, tmp_path):
    """A source that has ended and is chosen again is sent from its start: an object, a file, one with a thread."""
    tone = ToneSource(440, 0.02).read(320)
    (tmp_path / "q.wav").write_bytes(wav_header(16000, len(tone)) + tone)
    for source in (BytesSource(tone, 16000), tmp_path / "q.wav", Once(tone)):
        session = talk(mic=SilenceSource()).begin()
        for _ in range(2):
            session.chunks.clear()
            session.manager.select("mic", source)
            for _ in range(2):  # an ended source is silent, and a running one is not chosen again
                until(lambda: session.source_is_read)  # noqa: B023
                timer.advance(0.1)
            assert session.sent.strip(b"\0") == tone.strip(b"\0")
        session.manager.stop(GUARD)


class Once(CallbackSource):
    """A source that is read to its end, and starts again after `close()`."""

    def __init__(self, pcm: bytes) -> None:
        self._pcm = [pcm]
        self._whole = pcm
        super().__init__(lambda frames: self._pcm.pop() if self._pcm else b"")

    def close(self) -> None:
        self._pcm = [self._whole]


@pytest.mark.parametrize("sink", [BytesSink(max_bytes=960), FailingOnce()], ids=lambda sink: type(sink).__name__)
def test_a_sink_that_has_failed_is_chosen_again(talk, until, sink):
    """A sink that has failed and is chosen again gets the audio from then on."""
    session = talk(speaker=sink).prepare()
    session.hear(bytes(962))
    assert session.reported.wait(GUARD)
    until(lambda: session.manager.speaker.component.ended)
    session.manager.select("speaker", sink)
    assert session.manager.state.speaker.state == "granted"
    session.hear(b"ab")
    session.manager.select("speaker", sink)  # works, so that it stays
    session.hear(b"cd")
    session.manager.stop(GUARD)
    assert sink.pcm == b"abcd"


def test_video_that_has_ended_is_chosen_again(talk, until):
    """Video that has ended and is chosen again is read again, as after the camera was turned off and on."""
    film = Film()
    session = talk(cam=film, enable_cam=True)
    session.prepare(video=True)
    component = session.manager.cam.component
    until(lambda: component.ended)
    session.manager.select("cam", film)
    assert session.manager.cam.component is not component
    until(lambda: film.reads == 2)


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
    session.manager.stop(GUARD)
    session.begin()  # a source that could not be opened is not kept for later sessions either


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
    monkeypatch.setattr("rtvi_sync.media.slot.END_TIMEOUT", 0.05)
    entered, hang = threading.Event(), threading.Event()

    def fn(frames: int) -> bytes:
        entered.set()
        hang.wait(GUARD)
        return b""

    session = talk(mic=CallbackSource(fn)).begin()
    assert entered.wait(GUARD)
    return session, hang


def test_a_replaced_source_that_hangs_is_reported_by_stop(talk, timer, monkeypatch):
    """set_mic() waits for a hanging source for a limited time only; stop() returns its thread."""
    session, hang = with_a_source_that_hangs(talk, monkeypatch)
    session.manager.select("mic", ToneSource())
    (thread,) = session.manager.stop(1.0)
    assert thread.name.startswith("rtvi-mic")
    hang.set()
    thread.join(GUARD)


def test_a_replaced_source_that_ends_late_is_not_reported(talk, timer, monkeypatch):
    """A hanging source that has returned before the end of the session is not in the result."""
    session, hang = with_a_source_that_hangs(talk, monkeypatch)
    (thread,) = (each for each in threading.enumerate() if each.name.startswith("rtvi-mic"))
    session.manager.select("mic", ToneSource())
    hang.set()
    thread.join(GUARD)
    assert session.manager.stop(1.0) == []


def test_what_was_not_played_is_logged(talk, caplog):
    """Audio that a slow sink has lost is logged when the losses start, and all of it at the end."""
    entered, hang = threading.Event(), threading.Event()

    def play(pcm: bytes, rate: int) -> None:
        entered.set()
        hang.wait(GUARD)

    session = talk(speaker=CallbackSink(play), max_queued_audio_bytes=20_000).begin()
    session.hear(bytes(9600))
    assert entered.wait(GUARD)
    for _ in range(7):
        session.hear(bytes(9600))
    assert ["audio that waited for CallbackSink" in record.getMessage() for record in caplog.records] == [True]
    hang.set()
    session.manager.stop(GUARD)
    assert caplog.records[-1].getMessage() == "1.00 s of the bot's audio were dropped in this session"


def test_counters_go_on_when_parts_are_replaced(talk, timer):
    """The losses of a replaced source and sink still count after the replacement, but not in the next session."""
    entered, hang = threading.Event(), threading.Event()

    def slow_source(frames: int) -> bytes:
        hang.wait(GUARD)
        return b""

    def slow_sink(pcm: bytes, rate: int) -> None:
        entered.set()
        hang.wait(GUARD)

    session = talk(
        mic=CallbackSource(slow_source), speaker=CallbackSink(slow_sink), max_queued_audio_bytes=20_000
    ).begin()
    session.hear(bytes(12_000))
    assert entered.wait(GUARD)
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
    session.manager.stop(GUARD)
    assert session.manager.counters == before
    session.prepare()
    assert session.manager.counters == MediaCounters()


def test_what_was_opened_first_is_closed_when_the_second_fails(talk):
    """If the speaker cannot be opened, the source is closed and its thread ends before prepare() raises."""
    closes: list[str] = []

    class Source(CallbackSource):
        def close(self) -> None:
            closes.append("close")

    source = Source(lambda frames: b"")
    with pytest.raises(DeviceError):
        talk(mic=source, speaker="nowhere").prepare()
    assert closes == ["close"]
    until(lambda: not media_threads())  # an idle thread gets its other name a moment later
    assert source.wait() is False
    talk(mic=source).prepare()


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
    first.manager.stop(GUARD)
    second.prepare()


def test_a_file_belongs_to_one_session(talk, tmp_path):
    """Two sinks of one file would overwrite each other's audio, whatever name each has for the file."""
    (tmp_path / "link").symlink_to(tmp_path)
    first = talk(speaker=WavSink(tmp_path / "a.wav")).prepare()
    second = talk(speaker=tmp_path / "link" / "a.wav")
    with pytest.raises(DeviceError, match=r"WavSink\(.*a\.wav'\) is used by another session") as caught:
        second.prepare()
    assert (caught.value.type, caught.value.devices) == ("in-use", ("speaker",))
    talk(speaker=tmp_path / "b.wav").prepare()
    first.manager.stop(GUARD)
    second.prepare()
