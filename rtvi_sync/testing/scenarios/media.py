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

#: Seconds of a recording.
MAX_AUDIO_S: Final = 600
#: Faults that an error lists.
MAX_FAULTS: Final = 100


def check_media(scenarios: Iterable[Scenario]) -> None:
    """Check that the recordings and images of scenarios are there, and that no recording is longer than 10 minutes.

    Blocks until they are read.

    Raises:
        ScenarioFileError: one cannot be used; it has all such.
        MissingExtraError: a recording is no WAV file, and the extra `files` is not installed.
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
    """Return what is wrong with a recording, or ""."""
    try:
        source = WavSource(path)
    except DeviceError as error:
        return str(error)
    except OSError as error:  # no system has such a path
        return f"the recording {one_line(str(path))} cannot be used: {error.strerror}"
    seconds = len(source.pcm) / 2 / source.sample_rate_hz
    return f"the recording {path} is longer than {MAX_AUDIO_S} s" if seconds > MAX_AUDIO_S else ""


def _image_fault(path: Path) -> str:
    """Return what is wrong with an image, or ""."""
    return "" if os.path.isfile(path) else f"there is no image {one_line(str(path))}"
