"""Sound devices without hardware as fixtures, and the real bots that hear and speak through them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rtvi_sync.media.devices.audio_libraries import is_installed
from tests.support.required import missing
from tests.support.selection import some_of

from ..pipecat.conftest import (  # noqa: F401
    _launcher,
    pipecat_echo,
    pipecat_process,
    pipecat_talk,
    pytest_runtest_makereport,
    shared_bots,
)
from .pulse import PulseServer, missing_parts


@pytest.fixture(params=some_of(["pyaudio", "sounddevice"], "pyaudio"))
def library(request: pytest.FixtureRequest) -> str:
    """Return the library for microphones and speakers; each of them with the matrix."""
    name = str(request.param)
    if not is_installed(name):
        missing(f"{name} is not installed")
    return name


@pytest.fixture(scope="session")
def _pulse_parts() -> None:
    what = missing_parts()
    if what:
        missing(what)


@pytest.fixture
def pulse(_pulse_parts: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[PulseServer]:
    """Yield a daemon of this test's own (it starts in 0.1 s), which it may kill or stop; PortAudio sees no others."""
    with tempfile.TemporaryDirectory(prefix="rtvi-") as directory:
        server = PulseServer(Path(directory))
        # libasound reads the variable and the file's time whenever PortAudio starts.
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        server.start()
        yield server
        server.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the daemon as those that need a real part."""
    here = f"{Path(__file__).parent}{os.sep}"
    for item in items:
        if str(item.path).startswith(here) and "pulse" in getattr(item, "fixturenames", ()):
            item.add_marker("real")
