"""List of the audio devices by PortAudio; run as a script, it makes the list for another process.

PortAudio lists the devices when it initializes and never again while it is in use. If the sound system is not as
PortAudio expects, its initialization may hang, or end the process. So a process of its own lists the devices.

The script is run by the path of this file and imports nothing of the package: a list takes 50 ms, and the import of the
package would take 200 ms more.
"""

from __future__ import annotations

import importlib
import json
import locale
import os
import signal
import sys
from typing import Any

# Seconds after which the script ends itself if PortAudio hangs: its parent may have ended before.
LIMIT = 5.0

# Host API whose devices cannot be read and written without callbacks, and block other programs meanwhile.
_PA_WDMKS = 11


def describe(audio: Any) -> list[dict[str, Any]]:
    """Return all microphones and speakers of a `pyaudio.PyAudio()`; a device that is both appears twice.

    Each has `device_id` (host API and name, with a number if several have the same name), `kind`, `label`, `index`,
    `channels`, `rate_hz` and `default`. Only the index changes when PortAudio is initialized again.
    """
    hosts = [audio.get_host_api_info_by_index(number) for number in range(audio.get_host_api_count())]
    described: list[dict[str, Any]] = []
    counts: dict[tuple[str, str], int] = {}
    for kind, channels_key, get_default in (
        ("audioinput", "maxInputChannels", audio.get_default_input_device_info),
        ("audiooutput", "maxOutputChannels", audio.get_default_output_device_info),
    ):
        default = _default_index(get_default)
        for index in range(audio.get_device_count()):
            device = audio.get_device_info_by_index(index)
            host = hosts[device["hostApi"]]
            if device[channels_key] < 1 or host["type"] == _PA_WDMKS:
                continue
            label = _label(device["name"])
            device_id = f"{host['name']}/{label}"
            number = counts[kind, device_id] = counts.get((kind, device_id), 0) + 1
            described.append(
                {
                    "device_id": device_id if number == 1 else f"{device_id}#{number}",
                    "kind": kind,
                    "label": label,
                    "index": index,
                    "channels": device[channels_key],
                    "rate_hz": round(device["defaultSampleRate"]),
                    "default": index == default,
                }
            )
    return described


def _default_index(get_default: Any) -> int | None:
    try:
        return int(get_default()["index"])
    except OSError:  # there is no default
        return None


def _label(name: str | bytes) -> str:
    """Decode a name as UTF-8, as PortAudio encodes it; PyAudio decodes it by the locale's encoding if that works."""
    try:
        raw = name if isinstance(name, bytes) else name.encode(locale.getpreferredencoding(False))
        return raw.decode()
    except UnicodeError:
        return name.decode(errors="replace") if isinstance(name, bytes) else name


def _answer() -> dict[str, Any]:
    try:
        pyaudio = importlib.import_module("pyaudio")
    except ImportError as error:
        return {"missing": str(error)}
    try:
        audio = pyaudio.PyAudio()
        try:
            return {"devices": describe(audio)}
        finally:
            audio.terminate()
    except OSError as error:
        return {"error": str(error)}


def main(repeat: str, path: str) -> None:
    """Answer each line of standard input with a line of JSON, until its end; only one if `repeat` is "once".

    Args:
        repeat: "once" or "always".
        path: `sys.path` of the parent process, as JSON.
    """
    sys.path[:] = json.loads(path)
    # Output of libraries goes to standard error, so that the parent does not read it as an answer.
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for _ in sys.stdin:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, LIMIT)
        answers.write(json.dumps(_answer()) + "\n")
        answers.flush()
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        if repeat == "once":
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
