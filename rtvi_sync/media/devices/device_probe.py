"""List of the audio devices by PortAudio; run as a script, it makes the list for another process.

PortAudio lists the devices when it initializes and never again while it is in use. If the sound system is not as
PortAudio expects, its initialization may hang, or end the process. So a process of its own lists the devices.

The script is run by the path of this file and imports nothing of the package: a list takes 50 ms, and the import of the
package would take 200 ms more.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from typing import Any

# Seconds after which the script ends itself if PortAudio hangs: its parent may have ended before.
LIMIT = 5.0

# Host API whose devices work only with callbacks, and block other programs while they are open.
_WDMKS = "Windows WDM-KS"


def describe(audio: Any) -> list[dict[str, Any]]:
    """Return all microphones and speakers of an initialized PortAudio; a device that is both appears twice.

    Each has `device_id` (host API and name, with a number if several have the same name), `kind`, `label`, `index`,
    `channels`, `rate_hz` and `default`. Only the index changes when PortAudio is initialized again.

    Args:
        audio: a `PortAudioBinding`.
    """
    hosts, devices = audio.hosts(), audio.devices()
    described: list[dict[str, Any]] = []
    counts: dict[tuple[str, str], int] = {}
    for kind, channels, default in zip(
        ("audioinput", "audiooutput"), ("inputs", "outputs"), audio.defaults(), strict=True
    ):
        for device in devices:
            host = hosts[device["host"]]
            if device[channels] < 1 or host == _WDMKS:
                continue
            device_id = f"{host}/{device['name']}"
            number = counts[kind, device_id] = counts.get((kind, device_id), 0) + 1
            described.append(
                {
                    "device_id": device_id if number == 1 else f"{device_id}#{number}",
                    "kind": kind,
                    "label": device["name"],
                    "index": device["index"],
                    "channels": device[channels],
                    "rate_hz": round(device["rate_hz"]),
                    "default": device["index"] == default,
                }
            )
    return described


def _binding(library: str) -> Any:
    """Load the binding of a library from its file beside this one, without the package."""
    path = os.path.join(os.path.dirname(__file__), f"{library}_binding.py")
    spec = importlib.util.spec_from_file_location(f"{library}_binding", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _answer(library: Any) -> dict[str, Any]:
    try:
        audio = library.Binding(library.load())
        try:
            return {"devices": describe(audio)}
        finally:
            audio.terminate()
    except ImportError as error:
        return {"missing": str(error)}
    except OSError as error:
        return {"error": str(error)}


def main(library: str, repeat: str, path: str) -> None:
    """Answer each line of standard input with a line of JSON, until its end; only one if `repeat` is "once".

    Args:
        library: "pyaudio" or "sounddevice".
        repeat: "once" or "always".
        path: `sys.path` of the parent process, as JSON.
    """
    sys.path[:] = json.loads(path)
    # Output of libraries goes to standard error, so that the parent does not read it as an answer.
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    binding = _binding(library)
    for _ in sys.stdin:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, LIMIT)
        answers.write(json.dumps(_answer(binding)) + "\n")
        answers.flush()
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        if repeat == "once":
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
