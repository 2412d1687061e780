"""The kinds of devices: what the program may choose for each, and what they are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, Literal

from ..errors import DeviceError
from ..protocol.validation import Rule, has_method
from .base import MediaDeviceInfo

Kind = Literal["mic", "speaker", "cam", "screen"]

# By kind of device: the method that an object in its place has, and an example of one.
_OBJECTS: dict[Kind, tuple[str, str]] = {
    "mic": ("read", "WavSource(path)"),
    "speaker": ("write", "WavSink(path)"),
    "cam": ("read", "FileVideoSource(path)"),
    "screen": ("read", "ScreenSource()"),
}
_AUDIO_KINDS = ("mic", "speaker")
_MEDIA_KINDS: dict[Kind, str] = {"mic": "audioinput", "speaker": "audiooutput", "cam": "videoinput"}
# Suffixes of files that are given by mistake in place of a device's id.
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
        ValueError: it is the name of a file.
    """
    if isinstance(given, MediaDeviceInfo):
        return given.device_id
    CHOICES[kind].check_one(kind, given)
    if isinstance(given, str):
        _refuse_file(kind, given)
    return given


def _refuse_file(kind: Kind, device_id: str) -> None:
    """Refuse the name of a file, which no device has as its id: else the error would be about a missing device.

    Raises:
        ValueError: it is one; the message says what to pass.
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
