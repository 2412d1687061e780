"""The data of the events about devices and tracks."""

from __future__ import annotations

import attrs
import pytest

from rtvi_sync.errors import DeviceError
from rtvi_sync.media import AudioLevel, DeviceStatus, MediaState


def test_the_reason_is_the_errors_type() -> None:
    """A program branches on the reason without a look at the error."""
    error = DeviceError("in use", devices=("mic",), type="in-use")
    assert DeviceStatus(state="error", error=error).reason == "in-use"
    assert DeviceStatus(state="granted").reason is None


def test_nothing_was_tried_at_first() -> None:
    """Before `init_devices()` and `connect()` each device is uninitialized."""
    state = MediaState()
    assert {state.mic.state, state.cam.state, state.speaker.state} == {"uninitialized"}


def test_states_compare_by_value_and_do_not_change() -> None:
    """An event's data stays unchanged, also when it is read later."""
    state = MediaState(mic=DeviceStatus(state="granted"))
    assert state == MediaState(mic=DeviceStatus(state="granted"))
    assert state != MediaState()
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        state.mic = DeviceStatus()  # type: ignore[misc]
    with pytest.raises(TypeError):
        AudioLevel(0.5, -6.0)  # type: ignore[call-arg]
