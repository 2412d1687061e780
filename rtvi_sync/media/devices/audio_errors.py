"""What is said when sound devices fail, and what to do then."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable
from pathlib import Path

from ...errors import DeviceError, MissingExtraError
from ..base import MediaDeviceInfo

# PortAudio's numbers.
_PA_INVALID_DEVICE = -9996
_PA_DEVICE_UNAVAILABLE = -9985

_KINDS = {"audioinput": ("mic", "microphone"), "audiooutput": ("speaker", "speaker")}
_SOUND_FILES = Path("/dev/snd")
_JACK_LISTS = Path("/dev", "shm")  # JACK's place


def missing_library(reason: str) -> MissingExtraError:
    """PyAudio, or PortAudio below it, is not installed.

    Args:
        reason: what the import said.
    """
    return MissingExtraError("The use of microphones and speakers", "audio", hint=f"{_system_packages()}; {reason}")


def _system_packages() -> str:
    """What PyAudio wants of the system before pip can install it."""
    apt = "sudo apt-get install -y gcc python3-dev portaudio19-dev"
    dnf = "sudo dnf install -y gcc python3-devel portaudio-devel"
    this: str = sys.platform  # annotated, or mypy would look at one platform only
    if this == "darwin":
        return "before it: brew install portaudio"
    if this == "win32":
        return "pip has it ready for Python 3.10 to 3.13; such a Python: winget install Python.Python.3.13"
    try:
        system = platform.freedesktop_os_release()
    except OSError:
        system = {}
    names = f"{system.get('ID', '')} {system.get('ID_LIKE', '')}".split()
    if "debian" in names or "ubuntu" in names:
        return f"before it: {apt}"
    if "fedora" in names or "rhel" in names:
        return f"before it: {dnf}"
    return f"before it: {apt}, or {dnf}"


def no_answer(kind: str | None = None) -> DeviceError:
    """A call into the sound system does not return.

    Args:
        kind: of the device concerned; None: of all.
    """
    advice = (
        "Restart its sound server (on Linux: systemctl --user restart pipewire pulseaudio), or unplug the device that "
        "hangs"
    )
    this: str = sys.platform
    if this == "linux" and (of_jack := _JACK_LISTS / f"jack_db-{os.getuid()}").is_dir():
        advice += f". If neither helps, remove {of_jack}: JACK's list of programs, which a killed one may have spoilt"
    return DeviceError(f"The sound system of this machine does not answer. {advice}", devices=_devices(kind))


def crashed(code: int) -> DeviceError:
    """PortAudio ended the process that was to list the devices."""
    return DeviceError(
        "PortAudio crashes on this machine when it looks for sound devices, so it is not used. On Linux: is the "
        'configuration of ALSA complete, with a device named "default"?',
        devices=_devices(None),
        details=f"exit code {code}",
    )


def forked() -> DeviceError:
    """This process was forked while its parent used PortAudio."""
    return DeviceError(
        "This process was forked from one that was using sound devices, and cannot use any itself. Fork before the "
        'first session, or start processes by the method "spawn"',
        devices=_devices(None),
    )


def not_found(kind: str, device_id: str | None, infos: Iterable[MediaDeviceInfo]) -> DeviceError:
    """There is no such device.

    Args:
        kind: "audioinput" or "audiooutput".
        device_id: what was asked for; None: the default.
        infos: all there are.
    """
    device, name = _KINDS[kind]
    there = [info.device_id for info in infos if info.kind == kind]
    if not there and _locked_out():
        return DeviceError(
            f"This user may not use the sound devices of this machine, so there is no {name}. Have him join their "
            "group, then log in again: sudo usermod -aG audio $USER",
            devices=(device,),
            type="permissions",
        )
    if not there:
        wanted = f", so not {device_id!r} either" if device_id is not None else ""
        message = (
            f"This machine has no {name}{wanted}. Plug one in, or, on Linux, start the sound server; in a container, "
            "hand the sound devices in"
        )
    elif device_id is None:
        message = f"No {name} is the system's default. Make one the default there, or name one of {there}"
    else:
        message = f"There is no {name} {device_id!r}. Plug it in, or name one of {there}"
    return DeviceError(message, devices=(device,), type="not-found")


def failed(error: OSError, info: MediaDeviceInfo) -> DeviceError:
    """PortAudio could not open or use a device."""
    device, name = _KINDS[info.kind]
    code = error.args[0] if error.args else None
    details = ": ".join(map(str, error.args))
    if code == _PA_DEVICE_UNAVAILABLE:
        kind, advice = "in-use", "is used by another program, or was just unplugged. End that program, or name another"
    elif code == _PA_INVALID_DEVICE:
        kind, advice = "not-found", "is not there any more. Plug it in again, or name another"
    else:
        kind, advice = "unknown", f"failed ({details}). {_advice(info.kind)}"
    return DeviceError(f"The {name} {info.label!r} {advice}", devices=(device,), type=kind, details=details)


def library_failed(error: OSError) -> DeviceError:
    """PortAudio could not begin, or list the devices."""
    return DeviceError(
        f"The sound system of this machine cannot be used: {error}. Is a sound server running?",
        devices=_devices(None),
        details=str(error),
    )


def _advice(kind: str) -> str:
    this: str = sys.platform
    if this == "linux":
        return "Is it still plugged in, and does the sound server run?"
    if kind == "audioinput":
        return "Is it still plugged in, and may this program use it, by the privacy settings of the system?"
    return "Is it still plugged in?"


def _locked_out() -> bool:
    """There are devices of ALSA's, and none that this user may open: PortAudio does not list them then."""
    files = list(_SOUND_FILES.glob("pcm*"))
    return bool(files) and not any(os.access(file, os.R_OK | os.W_OK) for file in files)


def _devices(kind: str | None) -> tuple[str, ...]:
    return ("mic", "speaker") if kind is None else (_KINDS[kind][0],)
