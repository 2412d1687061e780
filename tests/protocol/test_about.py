"""What the client tells a bot about itself."""

from __future__ import annotations

import platform

import pytest

import rtvi_sync
from rtvi_sync.protocol.about import about_this_client

pytestmark = pytest.mark.inside


def test_library_and_platform() -> None:
    """The versions are those of this package and of this system."""
    assert about_this_client() == {
        "library": "rtvi_sync",
        "library_version": rtvi_sync.__version__,
        "platform": platform.system().lower(),
        "platform_version": platform.release(),
    }


def test_an_unknown_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without a name is called unknown, since the field must not be empty."""
    monkeypatch.setattr(platform, "system", lambda: "")
    assert about_this_client()["platform"] == "unknown"
