"""What the demo says: cut at pauses, said on demand."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rtvi_sync import DeviceError
from rtvi_sync.cli.scripted_speech import SHIPPED, Mouth, load_speech, split
from rtvi_sync.media import WavSource
from tests.support.slowness import GUARD
from tests.support.wavs import quiet, tone, write_wav

RATE = 16_000


def test_shipped_speech_is_at_the_bots_rate_and_has_a_line_for_each_part() -> None:
    """The WAV file of the package has two turns or more, in order with its text."""
    speech = load_speech(SHIPPED)
    assert speech.sample_rate_hz == 24_000
    assert len(speech.utterances) == len(speech.words) >= 2
    assert 6 < len(WavSource(SHIPPED).read(10**6)) / 2 / 24_000 < 9
    assert speech.words_from is not None
    assert speech.words_from.name == "speech.txt"


def test_split_cuts_at_long_pauses_and_keeps_a_margin() -> None:
    """A pause inside of a sentence stays, one that ends a turn is left out, 0.1 s around each part is kept."""
    first = tone(0.3) + quiet(0.4) + tone(0.3)
    pcm = quiet(0.5) + first + quiet(0.7) + tone(0.2) + quiet(2)
    parts = list(split(pcm, RATE))
    assert parts == [quiet(0.1) + first + quiet(0.1), quiet(0.1) + tone(0.2) + quiet(0.1)]


def test_split_of_speech_to_the_edges() -> None:
    """Speech from the first sample to the last is one part, bit exact."""
    assert list(split(tone(1.0), RATE)) == [tone(1.0)]


def test_split_hears_a_soft_voice_over_a_hum() -> None:
    """What counts as speech depends on how loud the recording is."""
    hum = tone(0.7, amplitude=60)
    parts = list(split(hum + tone(0.3, amplitude=2500) + hum + tone(0.3, amplitude=2500), RATE))
    assert len(parts) == 2


def test_split_of_silence_is_nothing() -> None:
    """There is no part without sound."""
    assert list(split(quiet(2), RATE)) == []
    assert list(split(b"", RATE)) == []


def test_load_reads_the_lines_beside_the_file(two_words: Path) -> None:
    """Empty lines do not count."""
    speech = load_speech(two_words)
    assert speech.words == ("First word.", "Second word.")
    assert [round(speech.seconds(part), 2) for part in speech.utterances] == [0.5, 0.4]


def test_load_without_text_knows_no_words(tmp_path: Path) -> None:
    """The text file is optional."""
    speech = load_speech(write_wav(tmp_path / "x.wav", [tone(0.3)]))
    assert speech.words == ()
    assert speech.words_from is None


def test_load_of_silence_says_so(tmp_path: Path) -> None:
    """A file in which nothing is to be heard is refused by name."""
    path = write_wav(tmp_path / "still.wav", [quiet(1)])
    with pytest.raises(DeviceError, match=r"Nothing is to be heard in .*still\.wav"):
        load_speech(path)


def test_mouth_is_silent_until_it_is_told_what_to_say() -> None:
    """Reads return silence, then all of what is said without a gap, then silence again."""
    mouth = Mouth(RATE)
    assert mouth.read(320) == quiet(0.02)
    mouth.say(tone(0.03))
    mouth.say(b"\1\0" * 100)
    heard = b"".join(mouth.read(320) for _ in range(3))
    assert heard == tone(0.03) + b"\1\0" * 100
    assert mouth.read(320) == quiet(0.02)


def test_mouth_speaks_at_once_while_it_is_being_read() -> None:
    """A read that waits in silence ends with what is said meanwhile."""
    mouth = Mouth(RATE)
    heard: list[bytes] = []
    reader = threading.Thread(target=lambda: heard.append(mouth.read(RATE * 60)))  # would be silent for a minute
    reader.start()
    mouth.say(tone(0.02))
    reader.join(GUARD)
    assert heard == [tone(0.02)]


def test_mouth_forgets_what_a_session_did_not_hear() -> None:
    """The next session begins in silence."""
    mouth = Mouth(RATE)
    mouth.say(tone(0.5))
    mouth.say(tone(0.5))
    mouth.read(10)
    mouth.close()
    assert mouth.read(320) == quiet(0.02)
