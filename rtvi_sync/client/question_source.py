"""The source that says a spoken question."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..errors import MissingExtraError
from ..media.audio_files import decode
from ..media.base import AudioSource
from ..media.component_factory import rate_of
from ..media.convert import ResamplingSource
from ..media.kinds import is_source
from ..media.levels import WINDOWS_PER_SECOND, audible_windows
from ..media.pcm import MICROPHONE_RATE_HZ
from ..media.resample import resample
from ..media.sources import BytesSource, MemorySource, PackagedSource, WavSource


def source_of(question: Any, sample_rate_hz: int | None) -> AudioSource:
    """Return the source for a spoken question.

    Args:
        question: a `Path`, the bytes of an audio file, PCM with `sample_rate_hz`, or a source.
        sample_rate_hz: of PCM; None: it is none.

    Raises:
        TypeError: it is none of these.
        ValueError: bytes that are no audio file, or a source without an end or without audio.
        DeviceError: the file cannot be used.
    """
    source = _source_of(question, sample_rate_hz)
    read = source.source if isinstance(source, ResamplingSource) else source
    if isinstance(read, PackagedSource) and read.is_endless:
        raise ValueError(f"question must be audio that ends, and a {type(read).__name__} of this kind does not")
    if isinstance(read, MemorySource) and read.total_frames == 0:
        raise ValueError("question has no audio: its length is 0. Look at what made it, or pass other audio")
    return source


def _source_of(question: Any, sample_rate_hz: int | None) -> AudioSource:
    if isinstance(question, os.PathLike):
        return WavSource(Path(question))
    if isinstance(question, (bytes, bytearray, memoryview)):
        if sample_rate_hz is not None:
            return BytesSource(question, sample_rate_hz)
        try:
            return BytesSource(*decode(bytes(question), "The audio file of a question"))
        except (ValueError, MissingExtraError) as error:
            raise ValueError(
                f"question has bytes without sample_rate_hz=, which raw PCM needs. As an audio file it cannot be used: "
                f"{error}"
            ) from error
    if is_source(question):
        source: AudioSource = question
        return source
    raise TypeError(
        f"question must be a text (a str), an audio file (a Path, or its bytes), PCM with sample_rate_hz=, or an "
        f"AudioSource; not {type(question).__name__}"
    )


def at_microphone_rate(source: AudioSource) -> AudioSource:
    """Return the source, or one of the rate of microphones that reads it. Errors as of `rate_of()`."""
    rate_hz = rate_of(source)
    if rate_hz == MICROPHONE_RATE_HZ:
        return source
    if isinstance(source, BytesSource):
        return BytesSource(resample(source.pcm, rate_hz, MICROPHONE_RATE_HZ), MICROPHONE_RATE_HZ)
    return ResamplingSource(source, MICROPHONE_RATE_HZ)


def voiced_seconds(source: BytesSource) -> float:
    """Return when the voice in a source ends."""
    marks, _ = audible_windows(source.pcm, source.sample_rate_hz)
    last = max((index for index, is_voice in enumerate(marks) if is_voice), default=len(marks))
    return (last + 1) / WINDOWS_PER_SECOND
