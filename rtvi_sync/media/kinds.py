"""The kinds of devices, their names, and the choices that an application has for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, Literal

from ..errors import DeviceError
from ..protocol.validation import Rule, has_method
from .base import MediaDeviceInfo

Kind = Literal["mic", "speaker", "cam", "screen"]

# By kind of device: the method that an object must have to be used instead of the device, and an example.
_OBJECTS: dict[Kind, tuple[str, str]] = {
    "mic": ("read", "WavSource(path)"),
    "speaker": ("write", "WavSink(path)"),
    "cam": ("read", "FileVideoSource(path)"),
    "screen": ("read", "ScreenSource()"),
}
_AUDIO_KINDS = ("mic", "speaker")
_MEDIA_KINDS: dict[Kind, str] = {"mic": "audioinput", "speaker": "audiooutput", "cam": "videoinput"}
# Suffixes of file names, which are sometimes passed by mistake instead of a device id.
_FILE_SUFFIXES = (
    *(".aac", ".aiff", ".flac", ".m4a", ".mp3", ".ogg", ".opus", ".pcm", ".raw", ".wav"),
    *(".avi", ".gif", ".jpeg", ".jpg", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".png", ".webm"),
)


def _rule(kind: Kind) -> Rule:
    method, example = _OBJECTS[kind]
    return Rule(
        f"None, a device, its id (a str) or an object such as {example}",
        lambda given: isinstance(given, (str, MediaDeviceInfo)) or has_method(given, method),
        optional=True,
    )


#: What an application may choose for each kind of device.
CHOICES: Final[Mapping[Kind, Rule]] = {kind: _rule(kind) for kind in _OBJECTS}


def is_device(choice: object) -> bool:
    """Return whether the choice is a device of the machine rather than an object of the application."""
    return choice is None or isinstance(choice, str)


def media_kind(kind: Kind) -> str:
    """Return the value of `MediaDeviceInfo.kind` for the kind."""
    return _MEDIA_KINDS[kind]


def find_device(kind: Kind, device_id: str, there_are: Sequence[MediaDeviceInfo]) -> MediaDeviceInfo:
    """Return the device with this id.

    Raises:
        DeviceError: no device has it.
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
    """Return the application's choice: None, a device id, or an object used instead of a device.

    Args:
        kind: of the device.
        given: the choice, or the `MediaDeviceInfo` of a device.

    Raises:
        TypeError: it is none of these.
        ValueError: it is the name of a file.
    """
    if isinstance(given, MediaDeviceInfo):
        return given.device_id
    CHOICES[kind].check_one(kind, given)
    if isinstance(given, str):
        _refuse_file(kind, given)
    return given


def _refuse_file(kind: Kind, device_id: str) -> None:
    """Reject the name of a file, because the error about a missing device would not help.

    Raises:
        ValueError: `device_id` is the name of a file; the message says what to pass.
    """
    suffix = PurePath(device_id).suffix.lower()
    if suffix not in _FILE_SUFFIXES:
        return
    shown = repr(device_id)[:200]
    class_name = _OBJECTS[kind][1].partition("(")[0]
    only_wav = " Convert a file of another kind to WAV." if suffix != ".wav" and kind in _AUDIO_KINDS else ""
    raise ValueError(
        f"{kind}={shown} is the name of a file, but a str names a device. Pass {kind}={class_name}({shown}).{only_wav}"
    )
