"""Devices on the command line: finds devices by arguments, and suppresses log records about devices."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rtvi_sync import RTVIClient, RTVIError
from rtvi_sync.media import AudioSink, AudioSource, MediaDeviceInfo, NullSink, WavSink, WavSource
from rtvi_sync.media.kinds import is_file_name
from rtvi_sync.media.pcm import MICROPHONE_RATE_HZ

from .arguments import writable_wav

DEFAULT = "default"
NONE = "none"


def select_mic(wanted: str) -> str | AudioSource | None:
    """Return the value for a client's microphone.

    Args:
        wanted: Id, part of an id or name, or audio file; "default" for the system's default; "none" also means the
            default, which the client keeps closed while it is muted.

    Raises:
        RTVIError: No microphone or several match, or the file cannot be read.
    """
    if wanted in (DEFAULT, NONE):
        return None
    if is_file_name("mic", wanted):
        return WavSource(wanted, MICROPHONE_RATE_HZ)
    return _find_device("microphone", wanted, RTVIClient().get_all_mics)


def select_speaker(wanted: str) -> str | AudioSink | None:
    """Return the value for a client's speaker, like `select_mic()`, except that "none" is silence.

    Raises:
        RTVIError: No speaker or several match, or the file cannot be written.
    """
    if wanted == DEFAULT:
        return None
    if wanted == NONE:
        return NullSink()
    if is_file_name("speaker", wanted):
        return WavSink(writable_wav(Path(wanted), "--speaker"))
    return _find_device("speaker", wanted, RTVIClient().get_all_speakers)


def _find_device(kind: str, wanted: str, devices: Callable[[], Sequence[MediaDeviceInfo]]) -> str:
    available = devices()
    if any(device.device_id == wanted for device in available):
        return wanted
    matching = [d for d in available if wanted.casefold() in f"{d.device_id}\n{d.label}".casefold()]
    if len(matching) == 1:
        return matching[0].device_id
    names = ", ".join(device.device_id for device in matching or available) or "none"
    problem = f"Several {kind}s match" if matching else f"No {kind} matches"
    cause = "" if available else " Is the sound server running?"
    raise RTVIError(f"{problem} {wanted!r}. Available: {names}.{cause} Run `rtvi-sync devices` for details")


def next_device(devices: Sequence[MediaDeviceInfo], current: MediaDeviceInfo | None) -> MediaDeviceInfo | None:
    """Return the device after `current`, cyclically, or None if there is no other."""
    ids = [device.device_id for device in devices]
    index = ids.index(current.device_id) if current is not None and current.device_id in ids else -1
    following = devices[(index + 1) % len(ids)] if ids else None
    return following if following != current else None


@contextlib.contextmanager
def suppress_device_logs() -> Iterator[None]:
    """Suppress the log records about devices, for commands that print device errors from events."""
    # The second logger writes the stacks of threads that are still blocked in a device at the end.
    loggers = [logging.getLogger(f"rtvi_sync.{name}") for name in ("media", "concurrency.lifecycle")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
