"""The `pyaudio` that processes import which list the devices for tests: `state.json` beside it says how it behaves.

Not imported by tests: they copy it to a folder of their own.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

_STATE = json.loads(Path(__file__).with_name("state.json").read_text())

os.write(1, b"libraries print things")
if "missing" in _STATE:
    raise ImportError(_STATE["missing"])


class PyAudio:
    def __init__(self) -> None:
        # Read each time that PortAudio initializes
        self._state: dict[str, Any] = json.loads(Path(__file__).with_name("state.json").read_text())
        if "error" in self._state:
            raise OSError(-9999, self._state["error"])
        if "crash" in self._state:
            os.abort()
        if "hang" in self._state:
            threading.Event().wait()

    def terminate(self) -> None:
        pass

    def get_host_api_count(self) -> int:
        return 1

    def get_host_api_info_by_index(self, index: int) -> dict[str, Any]:
        return {"name": "ALSA", "type": 8}

    def get_device_count(self) -> int:
        return len(self._state["devices"])

    def get_device_info_by_index(self, index: int) -> dict[str, Any]:
        name = self._state["devices"][index]
        channels = {"maxInputChannels": 1, "maxOutputChannels": 0}
        return {"index": index, "name": name, "hostApi": 0, "defaultSampleRate": 44100.0, **channels}

    def get_default_input_device_info(self) -> dict[str, Any]:
        if not self._state["devices"]:
            raise OSError("No Default Input Device Available")
        return self.get_device_info_by_index(0)

    def get_default_output_device_info(self) -> dict[str, Any]:
        raise OSError("No Default Output Device Available")
