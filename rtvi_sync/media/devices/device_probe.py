"""The sound devices as PortAudio lists them; run as a program, it lists them for another process.

PortAudio lists the devices when it begins and never again while it is in use; and where the sound system is not as it
expects, its beginning may hang, or end the process. So other processes ask for what there is now.

The program is run by the path of this file and imports nothing of the package: a list is there in 50 ms, of which the
import of the package would take 200 more.
"""

from __future__ import annotations

import importlib
import json
import locale
import os
import signal
import sys
from typing import Any

# Seconds after which the program ends itself if PortAudio hangs: its parent may not be there any more to do it.
LIMIT = 5.0

# Its devices cannot be read from and written to without callbacks, and no other program can use them meanwhile.
_PA_WDMKS = 11


def describe(audio: Any) -> list[dict[str, Any]]:
    """All microphones and speakers of a `pyaudio.PyAudio()`; a device that is both comes twice.

    Each has `device_id` (host API and name; a number sets several of one name apart), `kind`, `label`, `index`,
    `channels`, `rate_hz` and `default`. All but the index stays the same when PortAudio begins anew.
    """
    hosts = [audio.get_host_api_info_by_index(number) for number in range(audio.get_host_api_count())]
    described: list[dict[str, Any]] = []
    found: dict[tuple[str, str], int] = {}
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
            number = found[kind, device_id] = found.get((kind, device_id), 0) + 1
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
    except OSError:  # there is none
        return None


def _label(name: str | bytes) -> str:
    """PortAudio's names are UTF-8; PyAudio takes them to be in the encoding of the locale, if that is possible."""
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
    """Answer each line of the standard input with a line of JSON, to its end; or only one, if `repeat` is "once".

    Args:
        repeat: "once" or "always".
        path: `sys.path` of the process that asks, as JSON.
    """
    sys.path[:] = json.loads(path)
    # What libraries print must not be taken for an answer.
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
