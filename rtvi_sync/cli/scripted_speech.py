"""What the user of a demonstration says, and the microphone through which it is said."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path

import attrs

from rtvi_sync import DeviceError
from rtvi_sync.media import WavSource
from rtvi_sync.media.pcm import rms
from rtvi_sync.recording.level import audible

SHIPPED = Path(__file__).with_name("speech.wav")

_WINDOW = 0.02
# Long enough that bots take the turn for ended, longer than the pauses inside of a sentence.
_PAUSE = 0.6
# Kept around each utterance, so that soft first and last sounds are not cut off.
_MARGIN = 0.1


@attrs.frozen(kw_only=True)
class Speech:
    """A recording, cut at its pauses.

    Attributes:
        utterances: PCM (signed 16-bit little endian, mono) of each.
        sample_rate_hz: of all of them.
        words: the text of each utterance, as far as it is known.
        words_from: the file that holds the text; None if there is none.
    """

    utterances: tuple[bytes, ...] = attrs.field(repr=lambda utterances: f"<{len(utterances)} utterances>")
    sample_rate_hz: int
    words: tuple[str, ...] = ()
    words_from: Path | None = None

    def seconds(self, utterance: bytes) -> float:
        """How long an utterance lasts."""
        return len(utterance) / 2 / self.sample_rate_hz


def load_speech(path: Path) -> Speech:
    """Read a WAV file, and what is said in it from the text file beside it, one line for each utterance.

    Raises:
        DeviceError: it is no WAV file of PCM, or nothing is to be heard in it.
        OSError: the text file cannot be read.
    """
    source = WavSource(path)
    pcm = source.read(source.total_frames or 0)
    utterances = tuple(split(pcm, source.sample_rate_hz))
    if not utterances:
        raise DeviceError(f"Nothing is to be heard in {path}; give a WAV file of somebody who speaks", devices=("mic",))
    text = path.with_suffix(".txt")
    if not text.is_file():
        return Speech(utterances=utterances, sample_rate_hz=source.sample_rate_hz)
    lines = text.read_text(encoding="utf-8", errors="replace").splitlines()
    words = tuple(line.strip() for line in lines if line.strip())
    return Speech(utterances=utterances, sample_rate_hz=source.sample_rate_hz, words=words, words_from=text)


def split(pcm: bytes, sample_rate_hz: int) -> Iterator[bytes]:
    """Cut speech at every pause that ends a speaker's turn; the pauses are left out."""
    window = 2 * max(1, round(sample_rate_hz * _WINDOW))
    loud = audible([rms(pcm[at : at + window]) for at in range(0, len(pcm), window)])
    pause, margin = round(_PAUSE / _WINDOW), round(_MARGIN / _WINDOW)
    begin, end = None, 0
    for index, speaks in enumerate([*loud, *[False] * pause]):
        if speaks:
            begin = index if begin is None else begin
            end = index + 1
        elif begin is not None and index - end >= pause - 1:
            yield pcm[max(0, begin - margin) * window : (end + margin) * window]
            begin = None


class Mouth:
    """An `AudioSource` that says what it is told when it is told; in between it is silent.

    `read()` is called on the thread of the source, the rest on any.

    Args:
        sample_rate_hz: of all that is said.
    """

    def __init__(self, sample_rate_hz: int) -> None:
        self.sample_rate_hz = sample_rate_hz
        self._to_say: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._rest = b""

    def say(self, pcm: bytes) -> None:
        """Say this after what is being said."""
        self._to_say.put(pcm)

    def read(self, frames: int) -> bytes:
        """The next samples. Silence is not made ahead of time, or it would delay what is said after it."""
        try:
            self._rest = self._rest or self._to_say.get(timeout=frames / self.sample_rate_hz)
        except queue.Empty:
            return bytes(2 * frames)
        piece, self._rest = self._rest[: 2 * frames], self._rest[2 * frames :]
        return piece

    def close(self) -> None:
        """The session is over: what was not said is forgotten."""
        self._rest = b""
        while not self._to_say.empty():
            self._to_say.get()
