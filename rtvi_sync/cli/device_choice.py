"""Which microphone and speaker a user means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rtvi_sync import RTVIClient, RTVIError
from rtvi_sync.media import AudioSink, AudioSource, MediaDeviceInfo, NullSink, WavSink, WavSource

NONE = "none"


def microphone(wanted: str | None) -> str | AudioSource | None:
    """What a client takes as its microphone.

    Args:
        wanted: an id, a part of an id or of a name, or a WAV file; None or "none": the system's default, which is yet
            to be opened.

    Raises:
        RTVIError: there is no such microphone, there are several, or the file cannot be read.
    """
    if wanted is None or wanted == NONE:
        return None
    if _is_file(wanted):
        return WavSource(wanted)
    return _device("microphone", wanted, RTVIClient().get_all_mics)


def speaker(wanted: str | None) -> str | AudioSink | None:
    """What a client takes as its speaker. As `microphone()`, but "none" is silence.

    Raises:
        RTVIError: there is no such speaker, there are several, or the file cannot be written.
    """
    if wanted is None:
        return None
    if wanted == NONE:
        return NullSink()
    if _is_file(wanted):
        return WavSink(wanted)
    return _device("speaker", wanted, RTVIClient().get_all_speakers)


def _is_file(wanted: str) -> bool:
    return wanted.lower().endswith(".wav") or Path(wanted).is_file()


def _device(kind: str, wanted: str, devices: Callable[[], Sequence[MediaDeviceInfo]]) -> str:
    there_are = devices()
    if any(device.device_id == wanted for device in there_are):
        return wanted
    fitting = [d for d in there_are if wanted.casefold() in f"{d.device_id}\n{d.label}".casefold()]
    if len(fitting) == 1:
        return fitting[0].device_id
    names = ", ".join(device.device_id for device in fitting or there_are) or "none at all"
    what = f"Several {kind}s fit" if fitting else f"No {kind} fits"
    raise RTVIError(f"{what} {wanted!r}; there are: {names} (rtvi-sync devices tells more)")


def next_device(devices: Sequence[MediaDeviceInfo], current: MediaDeviceInfo | None) -> MediaDeviceInfo | None:
    """The device after this one, and after the last the first; None if there is no other."""
    ids = [device.device_id for device in devices]
    place = ids.index(current.device_id) if current is not None and current.device_id in ids else -1
    following = devices[(place + 1) % len(ids)] if ids else None
    return following if following != current else None
