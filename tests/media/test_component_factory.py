"""What is made of the application's choice: sources and sinks that cannot be used."""

from __future__ import annotations

import pytest

from rtvi_sync.errors import DeviceError
from rtvi_sync.media import BytesSink, CallbackSink, CallbackSource, SilenceSource, ToneSource, WavSink
from tests.support.slowness import GUARD
from tests.support.threads import media_threads
from tests.support.waiting import until

pytestmark = pytest.mark.inside


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
