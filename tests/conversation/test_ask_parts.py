"""The parts of a question: the source that says it, and the lock of the threads that ask."""

from __future__ import annotations

import io
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from rtvi_sync import RequestTimeoutError, TurnAudio, WouldDeadlockError
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.conversation.ask import at_microphone_rate, source_of
from rtvi_sync.conversation.follow import AskLock
from rtvi_sync.media import AudioSource, BytesSource, CallbackSource, SilenceSource, ToneSource, WavSource
from rtvi_sync.media.convert import ResamplingSource
from tests.support.probes import waiters
from tests.support.slowness import GUARD
from tests.support.threads import InThread
from tests.support.waiting import until

pytestmark = pytest.mark.inside

SPEECH = BytesSource(bytes(9_600), 24_000)


def test_sources(tmp_path: Path) -> None:
    """Texts are no files; files, their bytes, PCM and sources become sources."""
    path = tmp_path / "x.wav"
    TurnAudio(pcm=b"abcd", sample_rate_hz=8000).save(path)
    source = source_of(path, None)
    assert isinstance(source, WavSource)
    for given, rate in ((path.read_bytes(), None), (b"abcd", 8000), (bytearray(b"abcd"), 8000)):
        source = source_of(given, rate)
        assert isinstance(source, BytesSource)
        assert (source.pcm, source.sample_rate_hz) == (b"abcd", 8000)
    assert source_of(SPEECH, None) is SPEECH
    with pytest.raises(TypeError, match="not int"):
        source_of(5, None)
    with pytest.raises(TypeError, match="not BytesIO"):  # an open file, which has read() and close()
        source_of(io.BytesIO(path.read_bytes()), None)
    with pytest.raises(ValueError, match="audio"):
        source_of(b"abcd", None)


def test_all_is_said_at_the_rate_of_microphones() -> None:
    """Audio at the microphone's rate is sent unchanged; PCM is converted at once, and a function's audio while it is
    sent.
    """
    plain = BytesSource(b"abcd", 16_000)
    assert at_microphone_rate(plain) is plain
    converted = at_microphone_rate(SPEECH)
    assert isinstance(converted, BytesSource)
    assert (converted.sample_rate_hz, len(converted.pcm)) == (16_000, 6_400)
    assert at_microphone_rate(CallbackSource(lambda _: b"", 8_000)).sample_rate_hz == 16_000


@pytest.mark.parametrize("is_installed", [False, True])
def test_pcm_without_its_rate(monkeypatch: pytest.MonkeyPatch, *, is_installed: bool) -> None:
    """The error gives the arguments that PCM needs, and those for an audio file."""
    if is_installed:
        pytest.importorskip("soundfile", reason="the extra `files` installs it")
    else:
        monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(
        ValueError, match=r"^question has bytes without sample_rate_hz=, which raw PCM needs\. "
    ) as caught:
        source_of(bytes(3_200), None)
    assert ('the extra "files"' in str(caught.value)) is not is_installed


@pytest.mark.parametrize(
    ("question", "rate", "words"),
    [
        (ResamplingSource(SilenceSource(8_000), 16_000), None, "audio that ends, and a SilenceSource"),
        (ResamplingSource(ResamplingSource(ToneSource(), 8_000), 16_000), None, "audio that ends, and a ToneSource"),
        (b"", 16_000, "no audio: its length is 0"),
        (ToneSource(duration=0.0), None, "no audio: its length is 0"),
        (ResamplingSource(BytesSource(b"", 8_000), 16_000), None, "no audio: its length is 0"),
    ],
)
def test_what_cannot_be_a_question(question: bytes | AudioSource, rate: int | None, words: str) -> None:
    """The bot could not hear it, or not its end; the call says so at once."""
    with pytest.raises(ValueError, match=words):
        source_of(question, rate)


def test_first_come_first_served() -> None:
    """Callers get the lock in the order of their calls; one that times out or raises does not block the others."""
    lock, order = AskLock(), list[int]()
    leave = threading.Event()

    def pass_through(number: int) -> None:
        with lock.hold(Deadline(GUARD)):
            order.append(number)

    def hold() -> None:
        with lock.hold(Deadline(GUARD)):
            leave.wait(GUARD)
            raise KeyError

    threads = [InThread(hold)]
    until(lambda: waiters(lock) == 1)
    for number in range(3):
        threads.append(InThread(partial(pass_through, number)))
        until(lambda: waiters(lock) == len(threads))
    with pytest.raises(RequestTimeoutError, match="Another thread"), lock.hold(Deadline(0.0)):
        pass
    leave.set()
    assert isinstance(threads[0].error(), KeyError)
    for thread in threads[1:]:
        thread.get()
    assert order == [0, 1, 2]
    assert waiters(lock) == 0


def test_a_signal_handler_does_not_wait_for_its_own_thread() -> None:
    """The thread that holds the lock cannot release it before the handler returns."""
    lock = AskLock()
    with lock.hold(Deadline(None)):
        with pytest.raises(WouldDeadlockError, match="signal handler"), lock.hold(Deadline(None)):
            pass
        assert waiters(lock) == 1
    assert waiters(lock) == 0
