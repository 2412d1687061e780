"""What the client tells a bot about itself."""

from __future__ import annotations

import platform

from .._version import __version__


def about_this_client() -> dict[str, str]:
    """Return the `about` of `client-ready`: the library, the platform, and their versions."""
    return {
        "library": "rtvi_sync",
        "library_version": __version__,
        "platform": platform.system().lower() or "unknown",
        "platform_version": platform.release(),
    }
