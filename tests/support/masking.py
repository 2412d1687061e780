"""How WebSocket frames are masked: by code of the package `websockets`, or by Python's own numbers."""

from __future__ import annotations

from typing import Literal

import pytest

from rtvi_sync.transports import websocket_frames

Way = Literal["compiled", "by number"]


def way_found() -> Way:
    """Return how frames would be masked if the package was imported now."""
    return "by number" if websocket_frames._find_mask() is websocket_frames._mask_by_number else "compiled"


def way_used() -> Way:
    """Return how frames are masked in this process."""
    return "by number" if websocket_frames._mask is websocket_frames._mask_by_number else "compiled"


def mask_in(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mask the frames of a test in this way, which has to be there."""
    function = websocket_frames._mask_by_number if way == "by number" else websocket_frames._find_mask()
    assert (function is websocket_frames._mask_by_number) == (way == "by number")
    monkeypatch.setattr(websocket_frames, "_mask", function)


def forget_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the masking keys that were fetched from the system and not used."""
    monkeypatch.setattr(websocket_frames, "_keys", websocket_frames._Keys())
