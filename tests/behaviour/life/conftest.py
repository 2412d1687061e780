"""Fixtures of this folder."""

from __future__ import annotations

from tests.support.webrtc import far_loop  # noqa: F401 - a fixture
