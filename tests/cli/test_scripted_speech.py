"""The demo's utterances: cut at pauses, played on demand."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtvi_sync import DeviceError
from rtvi_sync.cli.scripted_speech import SHIPPED, load_script, silence_after, split
from rtvi_sync.media import WavSource
from tests.support.wavs import silence, tone, write_wav

pytestmark = pytest.mark.inside

RATE = 16_000


def test_shipped_speech_is_at_the_bots_rate_and_has_a_line_for_each_part() -> None:
    """The WAV file of the package has two turns or more, in order with its text."""
    speech = load_script(SHIPPED)
    assert speech.sample_rate_hz == 24_000
    assert len(speech.utterances) == len(speech.words) >= 2
    assert 6 < len(WavSource(SHIPPED).read(10**6)) / 2 / 24_000 < 9
    assert speech.words_from is not None
    assert speech.words_from.name == "speech.txt"


def test_split_cuts_at_long_pauses_and_keeps_a_margin() -> None:
    """A pause inside a sentence stays, one that ends a turn is removed, 0.1 s around each part is kept."""
    first = tone(0.3) + silence(0.4) + tone(0.3)
    pcm = silence(0.5) + first + silence(0.7) + tone(0.2) + silence(2)
    parts = list(split(pcm, RATE))
    assert parts == [silence(0.1) + first + silence(0.1), silence(0.1) + tone(0.2) + silence(0.1)]


def test_split_of_speech_to_the_edges() -> None:
    """Speech from the first sample to the last is one part, bit exact."""
    assert list(split(tone(1.0), RATE)) == [tone(1.0)]


def test_split_detects_a_soft_voice_over_a_hum() -> None:
    """The threshold depends on the level of the recording."""
    hum = tone(0.7, amplitude=60)
    parts = list(split(hum + tone(0.3, amplitude=2500) + hum + tone(0.3, amplitude=2500), RATE))
    assert len(parts) == 2


def test_split_of_silence_is_nothing() -> None:
    """Silence has no utterance."""
    assert list(split(silence(2), RATE)) == []
    assert list(split(b"", RATE)) == []


@pytest.mark.parametrize("seconds", [0.0, 0.5, 3.0, 60.0])
def test_silence_after_the_last_sound(seconds: float) -> None:
    """Noise counts as silence, and of very much silence a minute is looked at."""
    assert silence_after(tone(0.5) + silence(seconds), RATE) == pytest.approx(seconds)
    assert silence_after(silence(90), RATE) == pytest.approx(60)
    assert silence_after(tone(0.5, amplitude=8000) + tone(0.5, amplitude=100), RATE) == pytest.approx(0.5)
    assert silence_after(b"", RATE) == 0


def test_load_reads_the_lines_beside_the_file(two_words: Path) -> None:
    """Empty lines do not count."""
    speech = load_script(two_words)
    assert speech.words == ("First word.", "Second word.")
    assert [round(speech.seconds(part), 2) for part in speech.utterances] == [0.5, 0.4]


def test_load_without_text_knows_no_words(tmp_path: Path) -> None:
    """The text file is optional."""
    speech = load_script(write_wav(tmp_path / "x.wav", [tone(0.3)]))
    assert speech.words == ()
    assert speech.words_from is None


def test_load_of_silence_says_so(tmp_path: Path) -> None:
    """The error names a file without audible speech."""
    path = write_wav(tmp_path / "still.wav", [silence(1)])
    with pytest.raises(DeviceError, match=r"No speech was found in .*still\.wav"):
        load_script(path)
