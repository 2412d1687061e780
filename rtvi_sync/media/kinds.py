"""The kinds of devices: what the program may choose for each, and what they are called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from ..errors import DeviceError
from .base import MediaDeviceInfo

Kind = Literal["mic", "speaker", "cam", "screen"]

# By kind of device: the method that an object in its place has, and an example of one.
_OBJECTS: dict[Kind, tuple[str, str]] = {
    "mic": ("read", "WavSource(path)"),
    "speaker": ("write", "WavSink(path)"),
    "cam": ("read", "FileVideoSource(path)"),
    "screen": ("read", "ScreenSource()"),
}
_MEDIA_KINDS: dict[Kind, str] = {"mic": "audioinput", "speaker": "audiooutput", "cam": "videoinput"}


def is_device(choice: object) -> bool:
    """Whether the program chose a device of the machine rather than an object of its own."""
    return choice is None or isinstance(choice, str)


def media_kind(kind: Kind) -> str:
    """What `MediaDeviceInfo.kind` calls it."""
    return _MEDIA_KINDS[kind]


def find_device(kind: Kind, device_id: str, there_are: Sequence[MediaDeviceInfo]) -> MediaDeviceInfo:
    """The device with this id.

    Raises:
        DeviceError: there is none.
    """
    for info in there_are:
        if info.device_id == device_id:
            return info
    ids = ", ".join(repr(info.device_id) for info in there_are) or "none at all"
    raise DeviceError(
        f"There is no {kind} {device_id!r}; there are: {ids}. (For a file pass {_OBJECTS[kind][1]}.)",
        devices=(kind,),
        type="not-found",
    )


def choice_of(kind: Kind, given: object) -> Any:
    """What the program has chosen: None, a device's id, or an object in its place.

    Args:
        kind: of the device.
        given: that, or the `MediaDeviceInfo` of a device.

    Raises:
        TypeError: it is none of these.
    """
    if isinstance(given, MediaDeviceInfo):
        return given.device_id
    method, example = _OBJECTS[kind]
    if not is_device(given) and not callable(getattr(given, method, None)):
        raise TypeError(f"{kind} is None, a device, its id (str) or an object such as {example}, not {given!r}")
    return given
