"""The libraries that drive microphones and speakers."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from typing import Final

#: The libraries, the preferred one first, and the extra that installs each.
AUDIO_LIBRARIES: Final[Mapping[str, str]] = {"pyaudio": "audio", "sounddevice": "sounddevice"}


def is_installed(module: str) -> bool:
    """Return whether a module can probably be imported, without importing it."""
    return module in sys.modules or importlib.util.find_spec(module) is not None


def preferred_library() -> str:
    """Return the first library that is installed; if none is, the one to install: the other may need a compiler."""
    return next(filter(is_installed, AUDIO_LIBRARIES), "sounddevice")
