"""Where the processes that list devices find a PyAudio and a sounddevice of the test's own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync.media.devices.audio_libraries import AUDIO_LIBRARIES


class Stub:
    """The machine as another process sees it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for library in AUDIO_LIBRARIES:
            shutil.copy(Path(__file__).with_name(f"stub_{library}.py"), folder / f"{library}.py")
        self.set(devices=[])

    def set(self, **state: Any) -> None:
        """Set the devices from now on: `devices=["desk"]`; or the failure: `hang`, `crash`, `error`, `missing`."""
        new = self._folder / "new"
        new.write_text(json.dumps(state))
        new.replace(self._folder / "state.json")


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stub:
    monkeypatch.syspath_prepend(str(tmp_path))
    return Stub(tmp_path)


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def children() -> set[int]:
    """Return the processes that this one has started to list devices and that run; not the bots of other tests."""
    found = set()
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError):  # a thread that has just ended
            found |= {int(pid) for pid in Path(f"/proc/self/task/{task}/children").read_text().split()}
    return {pid for pid in found if is_alive(pid) and b"device_probe" in Path(f"/proc/{pid}/cmdline").read_bytes()}
