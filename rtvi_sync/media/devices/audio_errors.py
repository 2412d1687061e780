"""Errors of audio devices: the failure, and the advice."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from ...errors import DeviceError, MissingExtraError
from ...installation import install_command
from ..base import MediaDeviceInfo
from .audio_libraries import AUDIO_LIBRARIES

# Error codes of PortAudio.
_PA_INVALID_DEVICE = -9996
_PA_DEVICE_UNAVAILABLE = -9985
#: What PortAudio reports when a device, or the sound server, is gone during use.
PA_UNANTICIPATED_HOST_ERROR = -9999

_KINDS = {"audioinput": ("mic", "microphone"), "audiooutput": ("speaker", "speaker")}
_ALSA_DEVICES = Path("/dev/snd")
_JACK_REGISTRIES = Path("/dev", "shm")


def missing_library(library: str, reason: str = "") -> MissingExtraError:
    """Return the error for a library, or PortAudio below it, that is not installed.

    Args:
        library: "pyaudio" or "sounddevice".
        reason: text of the import error, if the library is there.
    """
    hints = filter(None, (_HINTS[library](), reason))
    return MissingExtraError("Audio", AUDIO_LIBRARIES[library], hint="; ".join(hints))


def _hint_at_pyaudio() -> str:
    """Return how to install the system packages that pip needs to build PyAudio."""
    this: str = sys.platform  # annotated, because mypy would check one platform only otherwise
    if this == "darwin":
        packages = "before that, run: brew install portaudio"
    elif this == "win32":
        packages = "pip has wheels for Python 3.10 to 3.13; to install such a Python: winget install Python.Python.3.13"
    else:
        packages = _linux_packages("gcc python3-dev portaudio19-dev", "gcc python3-devel portaudio-devel")
    return f"{packages}; or, to compile nothing: {install_command('sounddevice')}"


def _hint_at_sounddevice() -> str:
    """Return how to install PortAudio, which sounddevice brings along on the other systems."""
    this: str = sys.platform
    return _linux_packages("libportaudio2", "portaudio") if this not in ("darwin", "win32") else ""


_HINTS: Final[Mapping[str, Callable[[], str]]] = {"pyaudio": _hint_at_pyaudio, "sounddevice": _hint_at_sounddevice}


def _linux_packages(apt: str, dnf: str) -> str:
    apt, dnf = f"sudo apt-get install -y {apt}", f"sudo dnf install -y {dnf}"
    try:
        system = platform.freedesktop_os_release()
    except OSError:
        system = {}
    names = f"{system.get('ID', '')} {system.get('ID_LIKE', '')}".split()
    if "debian" in names or "ubuntu" in names:
        return f"before that, run: {apt}"
    if "fedora" in names or "rhel" in names:
        return f"before that, run: {dnf}"
    return f"before that, run: {apt}, or {dnf}"


def no_answer(kind: str | None = None) -> DeviceError:
    """Return the error for a call into the audio system that does not return.

    Args:
        kind: kind of the device; None: microphones and speakers.
    """
    return DeviceError(
        "The audio system of this machine does not answer. Unplug the device that hangs, or restart the sound server "
        f"(on Linux: systemctl --user restart pipewire pulseaudio){jack_advice()}",
        devices=_devices(kind),
    )


def jack_advice() -> str:
    """Return advice about JACK for the error of a call that hangs, if JACK has a client registry here; else "".

    A process that is killed while it loads PortAudio can leave a lock in that registry locked. Then every process that
    loads PortAudio waits for it, until the registry is removed. Seen with libjack-jackd2 1.9.21, whose database is
    Berkeley DB.
    """
    this: str = sys.platform
    if this != "linux" or not (registry := _JACK_REGISTRIES / f"jack_db-{os.getuid()}").is_dir():
        return ""
    return f". If that does not help, remove {registry}, JACK's client registry, which a killed process may have locked"


def crashed(code: int) -> DeviceError:
    """Return the error for a PortAudio that crashed the process that lists the devices."""
    return DeviceError(
        "PortAudio crashes on this machine when it lists the audio devices, so it is not used. On Linux, check that "
        'the configuration of ALSA is complete, with a device named "default"',
        devices=_devices(None),
        details=f"exit code {code}",
    )


def forked() -> DeviceError:
    """Return the error for a process that was forked while its parent used PortAudio."""
    return DeviceError(
        "This process was forked from one that was using audio devices, so it cannot use any. Fork before the "
        'first session, or start processes by the method "spawn"',
        devices=_devices(None),
    )


def not_found(kind: str, device_id: str | None, infos: Iterable[MediaDeviceInfo]) -> DeviceError:
    """Return the error for a device that does not exist.

    Args:
        kind: "audioinput" or "audiooutput".
        device_id: the requested device; None: the default.
        infos: all devices that exist.
    """
    device, name = _KINDS[kind]
    ids = [info.device_id for info in infos if info.kind == kind]
    if not ids and _lacks_permission():
        return DeviceError(
            f"This user may not use the audio devices of this machine, so there is no {name}. Add the user to the "
            "group of the devices, then log in again: sudo usermod -aG audio $USER",
            devices=(device,),
            type="permissions",
        )
    if not ids:
        # Without `device_id`: the application did not request it if the default device was lost.
        message = (
            f"This machine has no {name}. Plug one in, or, on Linux, start the sound server; in a container, pass the "
            "audio devices through"
        )
    elif device_id is None:
        message = f"No {name} is the system's default. Make one the default there, or name one of {ids}"
    else:
        message = f"There is no {name} {device_id!r}. Plug it in, or name one of {ids}"
    return DeviceError(message, devices=(device,), type="not-found")


def failed(error: OSError, info: MediaDeviceInfo) -> DeviceError:
    """Return the error for a device that PortAudio could not open or use."""
    device, name = _KINDS[info.kind]
    code = error.args[0] if error.args else None
    details = ": ".join(map(str, error.args))
    if code == _PA_DEVICE_UNAVAILABLE:
        kind, advice = "in-use", "is in use by another program, or was unplugged. End that program, or choose another"
    elif code == _PA_INVALID_DEVICE:
        kind, advice = "not-found", "is no longer connected. Plug it in again, or choose another"
    else:
        kind, advice = "unknown", f"failed ({details}). {_advice(info.kind)}"
    return DeviceError(f"The {name} {info.label!r} {advice}", devices=(device,), type=kind, details=details)


def library_failed(error: OSError) -> DeviceError:
    """Return the error for a PortAudio that could not initialize, or list the devices."""
    return DeviceError(
        f"The audio system of this machine cannot be used: {error}. Check that a sound server is running",
        devices=_devices(None),
        details=str(error),
    )


def _advice(kind: str) -> str:
    this: str = sys.platform
    if this == "linux":
        return "Check that it is plugged in and that the sound server is running"
    if kind == "audioinput":
        return "Check that it is plugged in and that the privacy settings of the system let this program use it"
    return "Check that it is plugged in"


def _lacks_permission() -> bool:
    """Return whether this user may open none of the ALSA devices that exist: PortAudio does not list them then."""
    files = list(_ALSA_DEVICES.glob("pcm*"))
    return bool(files) and not any(os.access(file, os.R_OK | os.W_OK) for file in files)


def _devices(kind: str | None) -> tuple[str, ...]:
    return ("mic", "speaker") if kind is None else (_KINDS[kind][0],)
