"""A device whose thread is the test's: it makes the calls of a microphone, a speaker or a camera to their base class,
step by step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rtvi_sync.errors import DeviceError
from rtvi_sync.media import MediaDeviceInfo
from rtvi_sync.media.devices.device import Device

INFO = MediaDeviceInfo(device_id="fake/desk", kind="audioinput", label="Desk")


class DrivenDevice(Device):
    """A device, and its reports.

    Attributes:
        told: each call of `report` and `opened`.
    """

    def __init__(self, kind: Any = "mic", device_id: str = "fake/desk") -> None:
        self.told: list[str] = []
        super().__init__(kind, device_id, report=self._take_error, opened=self._take_info)

    def _take_error(self, error: DeviceError) -> None:
        self.told.append(str(error).partition(".")[0])

    def _take_info(self, info: MediaDeviceInfo) -> None:
        self.told.append(f"opened {info.label}")

    def opens(self) -> None:
        """Be opened."""
        self._on_opened(INFO)

    def works(self) -> None:
        """Give audio or a picture, or take some."""
        self._on_success(INFO)

    def fails(self, error: Any) -> bool:
        """Fail; return whether it is opened again."""
        return self._on_failure(error)

    def call(self, function: Callable[[], Any]) -> Any:
        """Call a function of the library."""
        return self._call_library(function)
