"""The spoken utterances of the demo and of other commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs

from rtvi_sync import DeviceError
from rtvi_sync.media import BytesSource, WavSource
from rtvi_sync.media.levels import WINDOWS_PER_SECOND, audible_windows

SHIPPED = Path(__file__).with_name("speech.wav")

# Seconds at the end of a recording that are searched for the last sound: a long search would take seconds.
_LAST_SECONDS = 60
# Seconds of silence after which bots consider the turn ended. Pauses inside a sentence are shorter.
_PAUSE = 0.6
# Seconds kept around each utterance, so that its soft edges are not cut off.
_MARGIN = 0.1


@attrs.frozen(kw_only=True)
class ScriptedSpeech:
    """A recording, cut at its pauses.

    Attributes:
        utterances: PCM of each utterance (signed 16-bit little-endian, mono).
        sample_rate_hz: Their sample rate in hertz.
        words: Text of each utterance, as far as known.
        words_from: File with the text; None if there is none.
    """

    utterances: tuple[bytes, ...] = attrs.field(repr=lambda utterances: f"<{len(utterances)} utterances>")
    sample_rate_hz: int
    words: tuple[str, ...] = ()
    words_from: Path | None = None

    def seconds(self, utterance: bytes) -> float:
        """Return the duration of an utterance."""
        return len(utterance) / 2 / self.sample_rate_hz


def load_script(path: Path) -> ScriptedSpeech:
    """Read a WAV file, and its words from the text file beside it, one line for each utterance.

    Raises:
        DeviceError: The file is not a WAV file of PCM, or contains no audible speech.
        OSError: The text file cannot be read.
    """
    source = WavSource(path)
    pcm = source.read(source.total_frames or 0)
    utterances = tuple(split(pcm, source.sample_rate_hz))
    if not utterances:
        raise DeviceError(f"No speech was found in {path}; pass a WAV file with audible speech", devices=("mic",))
    text = path.with_suffix(".txt")
    if not text.is_file():
        return ScriptedSpeech(utterances=utterances, sample_rate_hz=source.sample_rate_hz)
    lines = text.read_text(encoding="utf-8", errors="replace").splitlines()
    words = tuple(line.strip() for line in lines if line.strip())
    return ScriptedSpeech(utterances=utterances, sample_rate_hz=source.sample_rate_hz, words=words, words_from=text)


def sample() -> BytesSource:
    """Return the first utterance of this package's own recording."""
    speech = load_script(SHIPPED)
    return BytesSource(speech.utterances[0], speech.sample_rate_hz)


def split(pcm: bytes, sample_rate_hz: int) -> Iterator[bytes]:
    """Yield the utterances of PCM: cut at every pause that ends a turn, without the pauses."""
    loud, window = audible_windows(pcm, sample_rate_hz)
    pause, margin = round(_PAUSE * WINDOWS_PER_SECOND), round(_MARGIN * WINDOWS_PER_SECOND)
    begin, end = None, 0
    for index, speaks in enumerate([*loud, *[False] * pause]):
        if speaks:
            begin = index if begin is None else begin
            end = index + 1
        elif begin is not None and index - end >= pause - 1:
            yield pcm[max(0, begin - margin) * window : (end + margin) * window]
            begin = None


def silence_after(pcm: bytes, sample_rate_hz: int) -> float:
    """Return the seconds of silence at the end of PCM, at most 60."""
    loud, _ = audible_windows(pcm[-2 * _LAST_SECONDS * sample_rate_hz :], sample_rate_hz)
    return [*reversed(loud), True].index(True) / WINDOWS_PER_SECOND
