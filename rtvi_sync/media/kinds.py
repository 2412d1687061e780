"""The kinds of devices, their names, and the choices that an application has for each."""

from __future__ import annotations

import io
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Final, Literal, TypeAlias

import attrs

from ..errors import DeviceError
from ..protocol.validation import Rule, function_taking, has_method, is_function
from .audio_files import AUDIO_SUFFIXES, PICTURE_SUFFIXES, check_wav_name
from .base import AudioSink, AudioSource, MediaDeviceInfo, VideoSource
from .pcm import MICROPHONE_RATE_HZ
from .sinks import CallbackSink, NullSink, WavSink
from .sources import CallbackSource, WavSource

Kind = Literal["mic", "speaker", "cam", "screen"]

MicChoice: TypeAlias = str | MediaDeviceInfo | AudioSource | Path | Callable[[int], bytes] | Literal[False] | None
"""A device or its id; a source; an audio file; a function for a `CallbackSource`; False: none; None: the default."""

SpeakerChoice: TypeAlias = (
    str | MediaDeviceInfo | AudioSink | Path | Callable[[bytes, int], object] | Literal[False] | None
)
"""A device or its id; a sink; a WAV file to write; a function for a `CallbackSink`; False: none; None: the default."""

CamChoice: TypeAlias = str | MediaDeviceInfo | VideoSource | Literal[False] | None
"""A device or its id; a source; False: none; None: the default."""

# By kind of device: the methods that an object must have to be used instead of the device, and an example. An object
# without one of them would fail in the middle of a session, at the first call.
_OBJECTS: dict[Kind, tuple[tuple[str, ...], str]] = {
    "mic": (("read", "close"), "WavSource(path)"),
    "speaker": (("write", "drop", "close"), "WavSink(path)"),
    "cam": (("read", "close"), "FileVideoSource(path)"),
    "screen": (("read", "close"), "ScreenSource()"),
}
# By kind: the rule for a function, and the wrapper for a function and for a file.
_FUNCTIONS: dict[Kind, Rule] = {
    "mic": function_taking("frames"),
    "speaker": function_taking("pcm", "sample_rate_hz"),
}
_CALLBACKS: dict[Kind, Callable[[Any], Any]] = {"mic": CallbackSource, "speaker": CallbackSink}
_FILES = ("mic", "speaker")
_MEDIA_KINDS: dict[Kind, str] = {"mic": "audioinput", "speaker": "audiooutput", "cam": "videoinput"}
# Ids have separators too ("ALSA/Headset"), but none starts like a path, except one below /dev.
_PATH_BEGIN = r"~?/(?!dev/)|\.\.?[/\\]|[A-Za-z]:[/\\]"


def _is_function(value: object) -> bool:
    return is_function(value) and not isinstance(value, type)


def _is_object(kind: Kind, value: object) -> bool:
    if isinstance(value, io.IOBase):  # an open file has the methods of a source, and no samples
        return False
    for name in _OBJECTS[kind][0]:  # noqa: SIM110 - a generator takes as long as all the rest
        if not has_method(value, name):
            return False
    return True


def is_source(value: object) -> bool:
    """Return whether an object can be used as a source of audio."""
    return _is_object("mic", value)


def is_sink(value: object) -> bool:
    """Return whether an object can be used as a sink of audio."""
    return _is_object("speaker", value)


@attrs.frozen(eq=False, slots=False, repr=False)
class _ChoiceRule(Rule):
    """The rule for the choice of a kind. A function must take the arguments that the kind passes."""

    kind: Kind = attrs.field(kw_only=True)

    def check_one(self, name: str, value: Any) -> None:
        """Check the type, then the form of a function."""
        super().check_one(name, value)
        if _is_function(value) and not _is_object(self.kind, value):
            _FUNCTIONS[self.kind].check_one(name, value)


def _rule(kind: Kind) -> Rule:
    (*methods, last), example = _OBJECTS[kind]
    files = " a Path, a function" if kind in _FILES else ""
    return _ChoiceRule(
        f"None, False, a device, its id (a str),{files} or an object with {'(), '.join(methods)}() and {last}(), "
        f"such as {example}",
        lambda given: (
            given is False
            or isinstance(given, (str, MediaDeviceInfo))
            or _is_object(kind, given)
            or (kind in _FILES and (isinstance(given, Path) or _is_function(given)))
        ),
        optional=True,
        kind=kind,
    )


#: The rules for an application's choice, by kind of device.
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
    """Return the application's choice: None, False, a device id, a `Path`, or an object used instead of a device.

        kind: kind of the device.
        given: the choice; the `MediaDeviceInfo` of a device; or a function, which is wrapped into a source or sink.
            `CHOICES` has the rules.

    Raises:
        ValueError: a str names a file, or the path for a speaker names a file of a format other than WAV.
    """
    if given is None or given is False:
        return NullSink() if given is False and kind == "speaker" else given
    if isinstance(given, MediaDeviceInfo):
        return given.device_id
    if isinstance(given, Path):
        if kind == "speaker":
            check_wav_name(given)
        return given.absolute()  # the application may change its directory
    if isinstance(given, str):
        _refuse_file(kind, given)
    elif _is_function(given) and not _is_object(kind, given):
        return _CALLBACKS[kind](given)
    return given


class AudioFiles:
    """The audio files of one client. A `Path` that is chosen again gives the same object. One thread at a time."""

    def __init__(self) -> None:
        self._recordings: dict[Path, WavSink] = {}
        self._source: WavSource | None = None  # the last one, because each holds its samples

    def open(self, choice: Any, kind: Kind) -> Any:
        """Return the source or sink for a choice that is a `Path`, and any other choice as it is. May block.

        A recording is continued. A source has the rate of microphones, and is read again if its file has changed.

        Raises:
            DeviceError: the file cannot be used.
            MissingExtraError: the file needs a library that is not installed.
        """
        if isinstance(choice, WavSink):
            self._recordings[choice.path] = choice
        elif isinstance(choice, WavSource):
            self._source = choice
        elif not isinstance(choice, Path):
            return choice
        elif kind == "speaker":
            choice = self._recordings.get(choice) or self._recordings.setdefault(choice, WavSink(choice))
        else:
            source = self._source
            is_it = source is not None and source.path.absolute() == choice
            if source is None or not is_it or source.sample_rate_hz != MICROPHONE_RATE_HZ or source.is_outdated:
                source = self._source = WavSource(choice, MICROPHONE_RATE_HZ)
            choice = source
        return choice


def is_file_name(kind: Kind, text: str) -> bool:
    """Return whether `text` is the name of a file, which need not exist, rather than a device's id."""
    is_path = kind in _FILES and (re.match(_PATH_BEGIN, text) is not None or is_file(text))
    return is_path or PurePath(text).suffix.lower() in AUDIO_SUFFIXES + PICTURE_SUFFIXES


def _refuse_file(kind: Kind, device_id: str) -> None:
    """Reject the name of a file, because the error about a missing device would not help.

    Raises:
        ValueError: `device_id` is the name of a file; the message names the value to pass instead.
    """
    if not is_file_name(kind, device_id):
        return
    shown = repr(device_id)[:200]
    instead = f"{kind}={_OBJECTS[kind][1].partition('(')[0]}({shown})"
    if kind in _FILES:
        instead = f"{kind}=Path({shown}) or {instead}"
    raise ValueError(f"{kind}={shown} is the name of a file, but a str names a device. Pass {instead}.")


def is_audio_file(text: str) -> bool:
    """Return whether `text` is the name of an audio file that exists."""
    return PurePath(text).suffix.lower() in AUDIO_SUFFIXES and is_file(text)


def is_file(name: str) -> bool:
    """Return whether a file of this name, or a pipe, exists."""
    try:
        mode = os.stat(name).st_mode
    except (OSError, ValueError):  # ValueError: a null character
        return False
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode)  # shells pass pipes by names below /dev
