"""What the tests of this folder share."""

from __future__ import annotations

from tests.support.webrtc import far_loop  # noqa: F401 - a fixture
