"""The recordings and images that scenarios name."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rtvi_sync.errors import DeviceError, ScenarioFileError
from rtvi_sync.media.sources import WavSource
from rtvi_sync.protocol.text import one_line
from rtvi_sync.testing.scenarios.model import Scenario

#: Limit in seconds of a recording, and of a turn's synthesized speech.
MAX_SPEECH: Final = 600
#: Number of faults that an error lists.
MAX_FAULTS: Final = 100


def read_recording(path: Path) -> WavSource:
    """Return the source of a recording.

    Raises:
        DeviceError: The recording cannot be read, or is too long.
    """
    source = WavSource(path)
    if is_too_long(source.pcm, source.sample_rate_hz):
        raise DeviceError(f"the recording {path} is longer than {MAX_SPEECH} s", devices=("mic",))
    return source


def is_too_long(pcm: bytes, sample_rate_hz: int) -> bool:
    """Return whether audio, 16-bit mono, is longer than a turn of the user may be."""
    return len(pcm) > 2 * sample_rate_hz * MAX_SPEECH


def check_media(scenarios: Iterable[Scenario]) -> None:
    """Check that the recordings and images of scenarios exist, and that no recording is longer than 10 minutes.

    Blocks until they are read.

    Raises:
        ScenarioFileError: Some are invalid. The error lists them all.
        MissingExtraError: A recording is not a WAV file, and the extra `files` is not installed.
    """
    why: dict[Path, str] = {}
    faults: list[tuple[Path, int, int, str]] = []
    for turn in (turn for scenario in scenarios for turn in scenario.turns):
        for path, fault_of in ((turn.audio, _recording_fault), (turn.image, _image_fault)):
            if path is not None and len(faults) < MAX_FAULTS:
                if path not in why:
                    why[path] = fault_of(path)
                if why[path]:
                    faults.append((*turn.at, why[path]))
    if faults:
        first, *others = faults
        raise ScenarioFileError(*first, others=others)


def _recording_fault(path: Path) -> str:
    """Return the fault of a recording, or ""."""
    try:
        read_recording(path)
    except DeviceError as error:
        return str(error)
    return ""


def _image_fault(path: Path) -> str:
    """Return the fault of an image, or ""."""
    return "" if os.path.isfile(path) else f"there is no image {one_line(str(path))}"
